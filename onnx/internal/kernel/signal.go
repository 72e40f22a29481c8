package kernel

import (
	"fmt"
	"math"
	"math/cmplx"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// DFT, STFT: discrete Fourier transforms; complex numbers are pairs on the last axis, of which the
// input may have one (the real part). Windows and the weights of mel bins. All is computed in
// float64.
func outputDatatype(s *Spec) (onnx.DType, error) { return s.dtype("output_datatype"), nil }

// signal reads a tensor [..., 1 or 2] as complex numbers. at(i) is the i-th number in row-major
// order of the axes before the last.
func signal(t *onnx.Tensor) (at func(i int) complex128) {
	if len(t.Shape) < 2 || t.Shape[len(t.Shape)-1] != 1 && t.Shape[len(t.Shape)-1] != 2 {
		try.Fail("the input has shape %v; the last axis must hold real numbers (1) or complex "+
			"ones (2)", t.Shape)
	}
	if t.Shape[len(t.Shape)-1] == 1 {
		return func(i int) complex128 { return complex(t.At(i), 0) }
	}
	return func(i int) complex128 { return complex(t.At(2*i), t.At(2*i+1)) }
}

// DFT: axis (1 before opset 20, then -2); inverse = 0, which divides by the length; onesided = 0
// keeps the bins up to half of the length. Inverse and one-sided, those bins are all that is read,
// the others are their conjugates, and the result is real. dft_length (the axis' size; twice one
// less than the bins that are given) cuts the input or fills it with zeros.
func newDFT(s *Spec) (Kernel, error) {
	d := dft{axis: -2, inverse: s.bool("inverse"), onesided: s.bool("onesided")}
	if s.Opset < 20 {
		d.axis = s.int("axis")
	}
	return d.run, nil
}

// dft holds the attributes of a DFT, and with plan the sizes of a call. A copy is planned for each
// call, so that calls may run at a time.
type dft struct {
	axis              int
	inverse, onesided bool
	length            int // of the transform
	// positions that are read and written on the axis; numbers of a bin, 1 where it is real
	read, bins, parts int
}

// run transforms line by line, O(n log n) each, on one thread. It looks between pieces of a line
// whether the run is to end.
func (d dft) run(c *Call) error {
	x := signal(c.In[0])
	try.Do(d.plan(c))
	shape := append([]int{}, c.In[0].Shape...)
	have, outer, inner := shape[d.axis], product(shape[:d.axis]),
		product(shape[d.axis+1:len(shape)-1])
	shape[d.axis], shape[len(shape)-1] = d.bins, d.parts
	out := try.Get(c.New(0, c.In[0].DType, shape))
	t := newTransform(c, d.length)
	for o := range outer {
		for i := range inner {
			// Positions beyond those read are zeros: the input is filled up to the transform's
			// length.
			clear(t.line)
			c.pieces(0, d.read, 16, func(lo, hi int) {
				for k := lo; k < hi; k++ {
					t.line[k] = x((o*have+k)*inner + i)
					// The spectrum of a real signal is Hermitian: X_{n-k} = conj X_k.
					if d.parts == 1 && k > 0 {
						t.line[d.length-k] = cmplx.Conj(t.line[k])
					}
				}
			})
			t.run(d.inverse)
			c.pieces(0, d.bins, 16, func(lo, hi int) {
				for k := lo; k < hi; k++ {
					if at := (o*d.bins+k)*inner + i; d.parts == 2 {
						setComplex(out, at, t.line[k])
					} else if to := out.F32(); to != nil {
						to[at] = float32(real(t.line[k]))
					} else {
						out.F64()[at] = real(t.line[k])
					}
				}
			})
		}
	}
	return nil
}

// plan sets the axis, counted from the first, and the sizes of a call. The last axis, which holds
// real and imaginary parts, cannot be transformed.
func (d *dft) plan(c *Call) error {
	in := c.In[0].Shape
	last := len(in) - 1
	d.parts = 2
	if d.inverse && d.onesided {
		if d.parts = 1; in[last] != 2 {
			return fmt.Errorf("the input has shape %v; an inverse transform of one side needs complex "+
				"numbers (2 on the last axis)", in)
		}
	}
	// Input 2 is the axis from operator set 20 on.
	at := d.axis
	if t := c.in(2); t != nil {
		at = whole(t, "axis")
	}
	var err error
	if d.axis, err = axisOf(at, last+1); err != nil || d.axis == last {
		return fmt.Errorf("axis %d of an input of shape %v", at, in)
	}
	d.length = in[d.axis]
	if d.parts == 1 {
		d.length = 2 * (d.length - 1)
	}
	if t := c.in(1); t != nil {
		d.length = whole(t, "dft_length")
	}
	// A line of complex128, 16 bytes a number, must fit in one tensor.
	if d.length < 1 || d.length > maxTensorBytes/16 {
		return fmt.Errorf("a transform of length %d", d.length)
	}
	d.bins, d.read = d.length, min(in[d.axis], d.length)
	if d.parts == 1 {
		// Bins beyond half of the length are conjugates of those read.
		d.read = min(in[d.axis], d.length/2+1)
	} else if d.onesided {
		d.bins = d.length/2 + 1
	}
	return nil
}

// setComplex writes number i of a tensor of pairs, which is of float32 or float64.
func setComplex(t *onnx.Tensor, i int, v complex128) {
	if d := t.F32(); d != nil {
		d[2*i], d[2*i+1] = float32(real(v)), float32(imag(v))
		return
	}
	t.F64()[2*i], t.F64()[2*i+1] = real(v), imag(v)
}

// STFT: transforms of frames of the signal [batch, n, 1 or 2], every frame_step; out = [batch,
// frames, bins, 2]. frames = floor((n - length) / step) + 1; samples after the last whole frame are
// left out. length is frame_length, or the window's size; both must agree where both are given.
// bins is length, or length/2 + 1 with onesided.
func newSTFT(s *Spec) (Kernel, error) {
	onesided := s.bool("onesided")
	return func(c *Call) error {
		x := signal(c.In[0])
		if len(c.In[0].Shape) != 3 {
			return fmt.Errorf("the signal has shape %v; [batch, length, 1 or 2] is expected",
				c.In[0].Shape)
		}
		step := whole(c.In[1], "frame_step")
		batch, n := c.In[0].Shape[0], c.In[0].Shape[1]
		window := c.in(2)
		length := 0
		switch t := c.in(3); {
		case t != nil:
			length = whole(t, "frame_length")
		case window != nil:
			length = window.Len()
		default:
			return fmt.Errorf("neither a window nor frame_length is given")
		}
		if step < 1 || length < 1 || length > n || window != nil && window.Len() != length {
			return fmt.Errorf("frames of %d every %d of a signal of %d, and a window of %v", length,
				step, n, window)
		}
		frames, bins := (n-length)/step+1, length
		if onesided {
			bins = length/2 + 1
		}
		out := try.Get(c.New(0, c.In[0].DType, []int{batch, frames, bins, 2}))
		t := newTransform(c, length)
		for b := range batch {
			for f := range frames {
				for k := range t.line {
					t.line[k] = x(b*n + f*step + k)
					if window != nil {
						t.line[k] *= complex(window.At(k), 0)
					}
				}
				t.run(false)
				for k, v := range t.line[:bins] {
					setComplex(out, (b*frames+f)*bins+k, v)
				}
			}
		}
		return nil
	}, nil
}

// newWindowFunction is w_k = a - b cos(2πk/N) + c cos(4πk/N), with N the size (periodic = 1), or
// one less. The Hann window is (1/2, 1/2, 0), Hamming's (25/46, 21/46, 0) and Blackman's (0.42,
// 0.5, 0.08).
func newWindowFunction(a, b, c float64) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		periodic, d := s.bool("periodic"), s.dtype("output_datatype")
		return func(call *Call) error {
			n := whole(call.In[0], "size")
			if n < 0 || n > maxTensorBytes/8 {
				return fmt.Errorf("a window of size %d", n)
			}
			out := try.Get(call.New(0, d, []int{n}))
			over := float64(n)
			if !periodic {
				over--
			}
			castEach(out, func(k int) float64 {
				t := 2 * math.Pi * float64(k) / over
				return a - b*math.Cos(t) + c*math.Cos(2*t)
			})
			return nil
		}, nil
	}
}

// MelWeightMatrix: out [dft_length/2 + 1, bins], triangles over the frequencies whose corners are
// equally far apart in mel. Mel of f Hz is 2595 log10(1 + f/700). Corner i of bins + 2 is the row
// floor((dft_length + 1) f_i / sample_rate) of its frequency f_i. A triangle rises from corner i to
// i + 1 and falls to i + 2.
func newMelWeightMatrix(s *Spec) (Kernel, error) {
	d := s.dtype("output_datatype")
	return func(c *Call) error {
		var sizes [3]int
		for i, what := range []string{"num_mel_bins", "dft_length", "sample_rate"} {
			v := whole(c.In[i], what)
			if v < 1 || v > 1<<24 {
				return fmt.Errorf("%s is %d", what, v)
			}
			sizes[i] = v
		}
		if c.In[3].Len() != 1 || c.In[4].Len() != 1 {
			return fmt.Errorf("edges of shapes %v and %v where scalars are expected",
				c.In[3].Shape, c.In[4].Shape)
		}
		bins, rows := sizes[0], sizes[1]/2+1
		mel := func(hertz float64) float64 { return 2595 * math.Log10(1+hertz/700) }
		low, high := mel(c.In[3].At(0)), mel(c.In[4].At(0))
		corner := make([]int, bins+2)
		for i := range corner {
			hertz := 700 * (math.Pow(10, (low+float64(i)*(high-low)/float64(bins+2))/2595) - 1)
			at := math.Floor(float64(sizes[1]+1) * hertz / float64(sizes[2]))
			// So written, NaN is refused too.
			if !(at >= 0 && at < float64(rows)) {
				return fmt.Errorf("the edges %v and %v reach row %v of %d", c.In[3].At(0),
					c.In[4].At(0), at, rows)
			}
			corner[i] = int(at)
		}
		out := try.Get(c.New(0, d, []int{rows, bins}))
		castEach(out, func(at int) float64 {
			j, i := at/bins, at%bins
			from, mid, to := corner[i], corner[i+1], corner[i+2]
			switch {
			case j == mid && from <= mid: // also where the rising side has no rows
				return 1
			case from < j && j < mid:
				return float64(j-from) / float64(mid-from)
			case mid < j && j < to:
				return float64(to-j) / float64(to-mid)
			}
			return 0
		})
		return nil
	}, nil
}
