package kernel

import (
	"cmp"
	"fmt"
	"reflect"
	"sort"
	"sync"
	"unsafe"

	"fmp/onnx"
)

// Bounds on the memory that a model may ask for when it runs, so that a hostile shape is an error and not an
// exhausted machine.
const (
	// MaxTensorBytes bounds one intermediate tensor: 2 GiB.
	MaxTensorBytes = 2 << 30
	// MaxLiveBytes bounds all intermediate tensors of a session, those kept for later included, unless its engine has another bound: 8 GiB.
	MaxLiveBytes = 8 << 30
)

// Pool keeps the buffers of values that are no longer needed for those that come. It is safe for
// concurrent use.
type Pool struct {
	Most int64 // bytes handed out and kept; 0: MaxLiveBytes

	mu   sync.Mutex
	live int64 // bytes handed out
	kept int64 // bytes of unused buffers
	lists
}

// lists are unused buffers by type.
type lists struct {
	f32 freeList[float32]
	f64 freeList[float64]
	i8  freeList[int8]
	i16 freeList[int16]
	i32 freeList[int32]
	i64 freeList[int64]
	u8  freeList[uint8]
	u16 freeList[uint16]
	u32 freeList[uint32]
	u64 freeList[uint64]
	b   freeList[bool]
	s   freeList[string]
}

// freeList holds unused buffers, smallest first.
type freeList[T any] struct{ free [][]T }

// get takes the smallest buffer that holds n elements, nil where there is none. One that is far too large is left for a larger
// value; where none fits, the largest that is too small is given up, so that a growing batch does not
// pile up buffers of every size it has had. gone is the capacity that left the list.
func (l *freeList[T]) get(n int) (b []T, gone int) {
	i := sort.Search(len(l.free), func(i int) bool { return cap(l.free[i]) >= n })
	if i < len(l.free) && cap(l.free[i]) <= 4*n+1024 {
		b = l.free[i]
		l.free = append(l.free[:i], l.free[i+1:]...)
		return b[:n], cap(b)
	}
	if i > 0 {
		gone = cap(l.free[i-1])
		l.free = append(l.free[:i-1], l.free[i:]...)
	}
	return nil, gone
}

// take returns n elements from a list of the pool's, or new ones within its limit, for which it gives up unused buffers where it must.
func take[T any](p *Pool, l *freeList[T], n int) (any, error) {
	var one T
	size := int64(unsafe.Sizeof(one))
	b, gone := l.get(n)
	p.kept -= int64(gone) * size
	if b == nil {
		limit, need := cmp.Or(p.Most, MaxLiveBytes), int64(n)*size
		if p.live+p.kept+need > limit {
			p.lists = lists{}
			p.kept = 0
		}
		if p.live+need > limit {
			return nil, fmt.Errorf("intermediate values take more than %d bytes; run a smaller batch", limit)
		}
		b = make([]T, n)
	}
	p.live += int64(cap(b)) * size
	return b, nil
}

func (l *freeList[T]) put(b []T) {
	if cap(b) == 0 {
		return
	}
	i := sort.Search(len(l.free), func(i int) bool { return cap(l.free[i]) >= cap(b) })
	l.free = append(l.free, nil)
	copy(l.free[i+1:], l.free[i:])
	l.free[i] = b
}

// Get returns a slice of n elements of the Go type that holds d, with arbitrary contents.
func (p *Pool) Get(d onnx.DType, n int) (any, error) {
	size := int64(d.Size())
	if d == onnx.String {
		size = 16
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < 0 || int64(n)*size > MaxTensorBytes {
		return nil, fmt.Errorf("a tensor of %d elements of %v is over the bound of %d bytes", n, d, int64(MaxTensorBytes))
	}
	switch d {
	case onnx.Float32:
		return take(p, &p.f32, n)
	case onnx.Float64:
		return take(p, &p.f64, n)
	case onnx.Int8, onnx.Int4, onnx.Int2:
		return take(p, &p.i8, n)
	case onnx.Int16:
		return take(p, &p.i16, n)
	case onnx.Int32:
		return take(p, &p.i32, n)
	case onnx.Int64:
		return take(p, &p.i64, n)
	case onnx.Uint8, onnx.Float8E4M3FN, onnx.Float8E4M3FNUZ, onnx.Float8E5M2, onnx.Float8E5M2FNUZ, onnx.Uint4, onnx.Float4E2M1,
		onnx.Float8E8M0, onnx.Uint2:
		return take(p, &p.u8, n)
	case onnx.Uint16, onnx.Float16, onnx.BFloat16:
		return take(p, &p.u16, n)
	case onnx.Uint32:
		return take(p, &p.u32, n)
	case onnx.Uint64:
		return take(p, &p.u64, n)
	case onnx.Bool:
		return take(p, &p.b, n)
	case onnx.String:
		return take(p, &p.s, n)
	}
	return nil, fmt.Errorf("no buffer of element type %v", d)
}

// Put returns a buffer from Get to the pool.
func (p *Pool) Put(b any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(b)
	p.kept += bufferBytes(b)
	switch b := b.(type) {
	case []float32:
		p.f32.put(b)
	case []float64:
		p.f64.put(b)
	case []int8:
		p.i8.put(b)
	case []int16:
		p.i16.put(b)
	case []int32:
		p.i32.put(b)
	case []int64:
		p.i64.put(b)
	case []uint8:
		p.u8.put(b)
	case []uint16:
		p.u16.put(b)
	case []uint32:
		p.u32.put(b)
	case []uint64:
		p.u64.put(b)
	case []bool:
		p.b.put(b)
	case []string:
		p.s.put(b)
	}
}

// Forget says that a buffer from Get leaves the pool for good: it belongs to the caller now.
func (p *Pool) Forget(b any) {
	p.mu.Lock()
	p.leave(b)
	p.mu.Unlock()
}

// leave takes a buffer from those handed out. A kernel may have made it by itself.
func (p *Pool) leave(b any) { p.live = max(0, p.live-bufferBytes(b)) }

func bufferBytes(b any) int64 {
	v := reflect.ValueOf(b)
	if !v.IsValid() {
		return 0
	}
	return int64(v.Cap()) * int64(v.Type().Elem().Size())
}
