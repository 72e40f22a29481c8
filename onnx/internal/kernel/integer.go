package kernel

import (
	"slices"
	"sync"
	"sync/atomic"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// FastIntegers reports whether the processor multiplies bytes in vectors; without that a product of
// bytes takes 40 times as long as one of float32.
func FastIntegers() bool { return haveDots || haveWords }

// EnableIntegers has kernels of quantised operators work on bytes; see package integers. It is
// called once, before anything is prepared: the registry has no lock.
func EnableIntegers() {
	for name, with := range map[string]func(s *Spec, k Kernel) (Kernel, error){
		"QuantizeLinear": quantizeRuns, "DequantizeLinear": dequantizeRuns, "MaxPool": maxOfBytes,
		"ConvInteger": convOfBytes,
		"QLinearConv": convOfBytes, "MatMulInteger": matMulOfBytes, "QLinearMatMul": matMulOfBytes,
	} {
		for _, d := range registry[name] {
			simple := d.New
			d.New = func(s *Spec) (Kernel, error) {
				return with(s, try.Get(simple(s)))
			}
		}
	}
}

// maxOfBytes is a MaxPool; k is run where it is none of bytes, where indices are wanted, or a
// window lies in the padding. A maximum of bytes is exact, so that both ways give the same.
func maxOfBytes(s *Spec, k Kernel) (Kernel, error) {
	d := s.In[0]
	if !bytes.Has(d) {
		return k, nil
	}
	w := newWindow(s)
	w.ceil = s.bool("ceil_mode")
	return func(c *Call) error {
		win, sp, err := poolShape(w, c.In[0].Shape)
		if in := c.In[0].Shape; err != nil || c.wants(1) || len(in) > 4 || product(sp) == 0 ||
			!seesPlane(win, in[2:], sp) {
			return k(c)
		}
		out := try.Get(c.New(0, d, append(slices.Clone(c.In[0].Shape[:2]), sp...)))
		x, flip := bytesOf(c.In[0])
		o, _ := bytesOf(out)
		maxOfRuns(c, o, x, c.In[0].Shape, sp, win, flip, func(run, split []uint8, offsets []int) {
			tapMaximaBytes(run, split, offsets, flip)
		})
		return nil
	}, nil
}

// integerConv is a convolution of bytes whose sums are exact. Four channels of the padded planes
// lie interleaved, so that a step of the products reads, for a tap of the window and 32
// neighbouring outputs, one run of them.
type integerConv struct {
	group   int
	weights *onnx.Tensor // where they and their zero point are known before the model runs
	zero    *onnx.Tensor
	matrix  bool // x and the result have the channels last
	columns bool // and the weights are columns

	once sync.Once
	kept *byteFilters

	arranged atomic.Pointer[arrangement] // the last one
}

// transposed returns the bytes of a matrix [rows, cols] as those of one [cols, rows]. The result is
// new memory.
func transposed(of any, rows, cols int) any {
	if b, ok := of.([]int8); ok {
		return transposedOf(b, rows, cols)
	}
	return transposedOf(of.([]uint8), rows, cols)
}

func transposedOf[T any](b []T, rows, cols int) []T {
	out := make([]T, len(b))
	for r := range rows {
		for c := range cols {
			out[c*rows+r] = b[r*cols+c]
		}
	}
	return out
}

// across is how many filters a panel of weights has.
func (v *integerConv) across() int {
	if v.matrix && haveDots {
		return dotColumns
	}
	return dotFilters
}

// requantized is the map from a convolution's sums to the output: by output channel, quanta of the
// output in a quantum of the sums. scale is nil where sums are the output themselves, in int32.
type requantized struct {
	bias  []int32
	scale func(channel int) float32
	saturation
}

// product sets out, of bytes or of int32, to the convolution of x, whose zero point is zero; false
// where the weights or the shapes are of another kind. Sums are of 32 bits and wrap around; out is
// written whole where it returns true.
func (v *integerConv) product(c *Call, x, w, wz *onnx.Tensor, zero int32, q *requantized,
	out *onnx.Tensor, win window) bool {
	if out.Len() == 0 {
		return true
	}
	f := v.filters(w, wz)
	if f == nil {
		return false
	}
	src, flip := bytesOf(x)
	r := &integerRun{Call: c, f: f, x: src, flip: flip, xs: x.Shape, sp: out.Shape[2:],
		group: v.group, channels: w.Shape[1],
		filters: w.Shape[0] / v.group, last: v.matrix, in: product(x.Shape[2:]),
		pos: product(out.Shape[2:]), pad: uint8(zero)}
	across := v.across()
	// high is a group's filters, filled up to whole panels.
	r.high = (r.filters + across - 1) / across * across
	// Flipped bytes are more than the numbers by flip, and so is their zero point.
	r.starts(q, zero+int32(flip))
	if r.elem = 1; out.DType == onnx.Int32 {
		r.elem = 4
		r.out = bytesOfWords(data[int32](out))
	} else {
		r.out, _ = bytesOf(out)
	}
	if f.depth != nil {
		return r.elem == 1 && (r.strips(win) || r.depthwise(win))
	}
	if across == dotColumns {
		r.rows()
		return true
	}
	if err := v.arrange(r, win); err != nil {
		return false
	}
	r.tiles()
	return true
}
