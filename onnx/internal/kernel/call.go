package kernel

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Kernel computes one node: it reads Call.In and makes every wanted Call.Out with [Call.New],
// c.view or c.over. It must not keep the call, and may run for several calls at a time: state of a
// run belongs to the call.
type Kernel func(c *Call) error

// Env is the state that all kernels of a session share.
type Env struct {
	Pool    *Pool
	Threads int          // at least 1
	Stopped func() error // why the run under way is to end before its time; may be nil
	// Reproducible has every processor compute the same bits: see [Spec].Reproducible.
	Reproducible bool
	// Flush has numbers below the normal range of float32 count as zeros, within [Env.Flushed] and
	// where the processor can.
	Flush bool
}

// stopped is the reason to end the run, nil where it goes on.
func (e *Env) stopped() error {
	if e.Stopped == nil {
		return nil
	}
	return e.Stopped()
}

// Call is one evaluation of a kernel.
type Call struct {
	In   []*onnx.Tensor // nil where an optional input is left out
	Out  []*onnx.Tensor // filled by the kernel
	Want []bool         // whether anyone reads output i
	// Overwrite[i] says that nobody needs input i after this node, so that its buffer may become an
	// output's.
	Overwrite []bool
	// Alias[i] is the input whose buffer output i shares, -1 where it has its own.
	Alias []int

	// mu guards scratch, which goroutines of one kernel add to.
	env     *Env
	mu      sync.Mutex
	scratch []any
}

// NewCall readies a call for a node with the given number of inputs and outputs. No output is
// wanted at first. A call serves one run at a time, and [Call.Reset] readies it for the next.
func NewCall(env *Env, inputs, outputs int) *Call {
	return &Call{
		In: make([]*onnx.Tensor, inputs), Out: make([]*onnx.Tensor, outputs),
		Want:      make([]bool, outputs),
		Overwrite: make([]bool, inputs), Alias: slices.Repeat([]int{-1}, outputs), env: env,
	}
}

// Do runs a kernel, and gives scratch memory back. On an error outputs that were made already stay
// in c.Out, for the caller to give back.
func (c *Call) Do(k Kernel) error {
	err := c.run(k)
	c.free()
	return err
}

// run runs a kernel, which may end by package try. Other panics become errors as well: a defect of
// ours must not end the user's program.
func (c *Call) run(k Kernel) (err error) {
	defer try.Catch(&err, failed)
	return k(c)
}

// failed is the error of a panic that is not package try's.
func failed(panicked any) error { return fmt.Errorf("the kernel failed: %v", panicked) }

// Reset readies the call for the next run.
func (c *Call) Reset() {
	clear(c.In)
	clear(c.Overwrite)
	for i := range c.Out {
		c.Out[i], c.Alias[i] = nil, -1
	}
}

// free gives the call's scratch memory back to the pool.
func (c *Call) free() {
	for _, b := range c.scratch {
		c.env.Pool.Put(b)
	}
	c.scratch = c.scratch[:0]
}

// Env returns the state that the call shares with those of its session.
func (c *Call) Env() *Env { return c.env }

// wants reports whether output i is to be computed.
func (c *Call) wants(i int) bool { return i < len(c.Want) && c.Want[i] }

// in is input i, nil where it is left out.
func (c *Call) in(i int) *onnx.Tensor {
	if i < len(c.In) {
		return c.In[i]
	}
	return nil
}

// New makes output i with arbitrary contents. Its memory comes from the pool; an error says that
// the shape or the session's limit forbids it. The shape is copied.
func (c *Call) New(i int, d onnx.DType, shape []int) (*onnx.Tensor, error) {
	n, err := onnx.Elements(shape)
	if err != nil {
		return nil, err
	}
	buf, err := c.env.Pool.Get(d, n)
	if err != nil {
		return nil, err
	}
	t := &onnx.Tensor{DType: d, Shape: append([]int{}, shape...), Data: buf}
	if i < len(c.Out) {
		c.Out[i] = t
	} else {
		c.mu.Lock()
		c.scratch = append(c.scratch, buf) // nobody asked for it
		c.mu.Unlock()
	}
	return t, nil
}

// view makes output i the data of input j under another shape of as many elements. Nothing is
// copied: the caller of the kernel learns of the shared buffer by c.Alias.
func (c *Call) view(i, j int, shape []int) error {
	t, err := c.In[j].Reshape(shape...)
	if err == nil {
		c.Out[i], c.Alias[i] = t, j
	}
	return err
}

// over makes output i in the buffer of input j where that may be overwritten and fits, else in a
// new one. In the input's buffer the result must be written element by element, each after it is
// read.
func (c *Call) over(i, j int, d onnx.DType, shape []int) (*onnx.Tensor, error) {
	if in := c.In[j]; c.Overwrite[j] && in.DType == d && slices.Equal(in.Shape, shape) {
		c.Out[i], c.Alias[i] = in, j
		c.Overwrite[j] = false // no second output may take it
		return in, nil
	}
	return c.New(i, d, shape)
}

// buffer is memory of n elements that lives until the kernel returns. Its contents are arbitrary;
// several goroutines may ask for some at a time.
func (c *Call) buffer(d onnx.DType, n int) (any, error) {
	b, err := c.env.Pool.Get(d, n)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.scratch = append(c.scratch, b)
	c.mu.Unlock()
	return b, nil
}

// take removes b, which is not empty, from the memory that ends with the kernel.
func (c *Call) take(b any) {
	at := reflect.ValueOf(b).Pointer()
	c.scratch = slices.DeleteFunc(c.scratch, func(s any) bool { return reflect.ValueOf(s).Pointer() == at })
}

// drop gives memory of [scratch], which is not empty, back to the pool before the call ends.
func (c *Call) drop(b any) {
	c.take(b)
	c.env.Pool.Put(b)
}

// scratch returns memory of as many elements as shape says, with arbitrary contents, that lives
// until the kernel returns. It may be called from several goroutines.
func scratch[T onnx.Element](c *Call, shape ...int) []T {
	n, err := onnx.Elements(shape)
	if err != nil {
		panic(err)
	}
	b, err := c.buffer(onnx.TypeOf[T](), n)
	if err != nil {
		panic(err)
	}
	return b.([]T)
}

// minWork is the number of elementary operations below which a second goroutine costs more than it
// saves.
const minWork = 1 << 15

// work is the product of the factors of a cost, at most 2^31-1, so that it is an int on every
// machine.
func work(factors ...int) int {
	p := 1.0
	for _, f := range factors {
		p *= float64(f)
	}
	return int(min(p, math.MaxInt32))
}

// check ends the kernel where the run is to end.
func (c *Call) check() { try.Do(c.env.stopped()) }

// pieceWork is the number of elementary operations after which a kernel looks whether its run is to
// end: some tenths of a second.
const pieceWork = 1 << 28

// pieces calls f on lo <= i < hi, in pieces between which it looks whether the run is to end. cost
// is that of one i, in elementary operations. Without Env.Stopped there is one piece.
func (c *Call) pieces(lo, hi, cost int, f func(lo, hi int)) {
	step := hi - lo
	if c.env.Stopped != nil {
		step = max(1, pieceWork/max(cost, 1))
	}
	for ; hi-lo > step; lo += step {
		c.check()
		f(lo, lo+step)
	}
	f(lo, hi)
}

// Parallel calls f on pieces lo <= i < hi of 0..n, where each i costs about `cost` elementary
// operations. f must treat the items independently: the pieces depend on the number of threads. It
// returns when all pieces are done. A panic of a piece comes out on the calling goroutine, the
// first of them alone.
func (c *Call) Parallel(n, cost int, f func(lo, hi int)) {
	threads := int(min(int64(c.env.Threads), int64(n), int64(n)*int64(max(cost, 1))/minWork))
	if threads <= 1 {
		if n > 0 {
			c.pieces(0, n, cost, f)
		}
		return
	}
	var wg sync.WaitGroup
	panics := make([]any, threads)
	for w := 0; w < threads; w++ {
		lo, hi := int(int64(w)*int64(n)/int64(threads)), int(int64(w+1)*int64(n)/int64(threads))
		wg.Go(func() {
			defer func() { panics[w] = recover() }()
			defer c.env.flush()()
			c.pieces(lo, hi, cost, f)
		})
	}
	wg.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
}
