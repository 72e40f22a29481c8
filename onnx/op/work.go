package op

import (
	"math"
	"slices"
	"strings"

	"fmp/onnx"
)

// Size is the size of a tensor. One that is left out has none. Sizes are float64, so that products
// of hostile ones become infinite and do not wrap around.
type Size struct {
	Dims  []float64
	Count float64
}

// Sized is a node with the sizes of its inputs and of those outputs that are read.
type Sized struct {
	Node    *onnx.Node
	Attrs   Values
	In, Out []Size
}

// Work is the node's multiply-adds. An operator without a rule reads its inputs and writes its
// outputs once. It is an estimate; infinity stands for work that nothing bounds.
func (c *Sized) Work() float64 {
	w := count(c.In) + count(c.Out)*c.each()
	if extra := workRules[c.Node.Op]; extra != nil {
		w += extra(c)
	}
	if math.IsNaN(w) {
		return math.Inf(1)
	}
	return w
}

// count is the elements of all.
func count(vs []Size) float64 {
	n := 0.0
	for _, v := range vs {
		n += v.Count
	}
	return n
}

// input is input i, nothing where it is left out.
func (c *Sized) input(i int) Size {
	if i < len(c.In) {
		return c.In[i]
	}
	return Size{}
}

// size is the size of an axis of input i, counted from the end where it is below 0; 1 where there
// is none.
func (c *Sized) size(i, axis int) float64 {
	d := c.input(i).Dims
	if axis < 0 {
		axis += len(d)
	}
	if axis < 0 || axis >= len(d) {
		return 1
	}
	return d[axis]
}

// taps is the number of weights, input i, behind one output.
func (c *Sized) taps(i int) float64 { return c.input(i).Count / max(1, c.size(i, 0)) }

// each is the work of one element of the outputs. Operators of other domains (FusedMatMul,
// QLinearConv, QAttention) are told by their names. A product's is the length of its inner axis, a
// window's the number of its elements.
func (c *Sized) each() float64 {
	name := c.Node.Op
	switch {
	case c.Node.Domain == "ai.onnx.ml":
		return c.longest()
	case strings.Contains(name, "Fused") && strings.Contains(name, "MatMul"):
		return max(c.size(0, -1), c.size(0, -2)) // either may be transposed
	case strings.Contains(name, "MatMul"):
		return c.size(0, -1)
	case strings.Contains(name, "Gemm"):
		return c.size(0, 1-min(1, max(0, c.Attrs.Int("transA"))))
	case strings.Contains(name, "ConvTranspose"), name == "Col2Im":
		return 1
	case strings.Contains(name, "QLinearConv"):
		return c.taps(3)
	case strings.Contains(name, "DeformConv"):
		// Each tap is interpolated from four pixels.
		return 4 * c.taps(1)
	case strings.Contains(name, "Conv"):
		return c.taps(1)
	case strings.HasSuffix(name, "Pool") && !strings.HasPrefix(name, "Global"):
		each := 1.0
		for _, k := range c.Attrs.Ints("kernel_shape") {
			each *= float64(k)
		}
		if strings.Contains(name, "Roi") {
			return c.input(0).Count / max(1, c.size(0, 0)*c.size(0, 1)) // a region is the image at most
		}
		return each
	case name == "LRN":
		return float64(c.Attrs.Int("size"))
	case name == "RoiAlign":
		// An output is made of sampling_ratio² points, each interpolated from four pixels.
		side := float64(c.Attrs.Int("sampling_ratio"))
		if side <= 0 {
			return math.Inf(1) // as many points as a region has pixels, which need not lie in the image
		}
		return 4 * side * side
	case name == "GridSample", name == "AffineGrid":
		// Cubic interpolation reads four points an axis. Batch and channels count as axes too, so
		// that this is a bound.
		return math.Pow(4, float64(len(c.input(0).Dims)))
	}
	return 1
}

// longest is the length of the longest list among the attributes: support vectors, nodes of trees,
// and coefficients are lists.
func (c *Sized) longest() float64 {
	n := 1
	for _, a := range c.Node.Attrs {
		n = max(n, len(a.Floats), len(a.Ints), len(a.Strs))
		if a.Tensor != nil {
			n = max(n, a.Tensor.Len())
		}
	}
	return float64(n)
}

// Scratch is the bytes that a node takes beside its inputs and outputs: the weights of every
// query's keys, twelve complex numbers for each of a Fourier transform's length, and as many
// products of pairs of Einsum as are kept, in other orders too. Keys are bounded by the longest
// axis of any input.
func (c *Sized) Scratch() float64 {
	if c.Node.Op == "DFT" || c.Node.Op == "STFT" {
		return 12 * 16 * c.transformed()
	}
	if n := len(c.In); c.Node.Op == "Einsum" && n > 1 {
		return 8 * float64(min(n, 10)+1) * (count(c.In) + count(c.Out))
	}
	if !strings.Contains(c.Node.Op, "Attention") {
		return 0
	}
	heads, keys := 1.0, 1.0
	if q := c.input(0); len(q.Dims) == 3 {
		heads = float64(max(1, c.Attrs.Int("num_heads"), c.Attrs.Int("q_num_heads")))
	}
	for _, v := range c.In {
		for _, d := range v.Dims {
			keys = max(keys, d)
		}
	}
	return 4 * c.input(0).Count / max(1, c.size(0, -1)) * heads * keys
}

// workRules is the work of operators that does not follow from their outputs alone.
var workRules = map[string]func(c *Sized) float64{
	"ConvTranspose": func(c *Sized) float64 { return c.input(0).Count * c.taps(1) },
	"Einsum":        einsum,
	"Resize":        resize, "Upsample": resize,
	"TopK": sorting, "Unique": sorting, "Hardmax": sorting,
	"NonMaxSuppression": func(c *Sized) float64 { return c.input(1).Count * c.size(0, 1) },
	"Det":               func(c *Sized) float64 { return c.input(0).Count * c.size(0, -1) },
	"DFT":               transform, "STFT": transform,
	"RNN":       func(c *Sized) float64 { return recurrent(c, 1) },
	"GRU":       func(c *Sized) float64 { return recurrent(c, 3) },
	"LSTM":      func(c *Sized) float64 { return recurrent(c, 4) },
	"Attention": attention, "MultiHeadAttention": attention, "GroupQueryAttention": attention,
	"QAttention":      attention,
	"LinearAttention": attention,
}

// sorting is n log n. n is the number of all elements, as if they were one line.
func sorting(c *Sized) float64 {
	n := c.input(0).Count
	return n * math.Log2(n+2)
}

// transform takes a frequency for a sum over the whole length: the ONNX Runtime sums where it is no
// power of two.
func transform(c *Sized) float64 {
	return c.transformed() * count(c.Out)
}

// transformed is the longest axis or frame of a Fourier transform.
func (c *Sized) transformed() float64 {
	longest := c.input(2).Count
	for _, v := range slices.Concat(c.In[:min(1, len(c.In))], c.Out) {
		for _, d := range v.Dims {
			longest = max(longest, d)
		}
	}
	return longest
}

// resize reads a window of four points an axis, widened as the axis shrinks where it antialiases.
func resize(c *Sized) float64 {
	w := 0.0
	for _, v := range c.Out {
		each := 1.0
		for i, d := range v.Dims {
			if from := c.size(0, i); from != d {
				each *= 4 * max(1, from/max(1, d))
			}
		}
		w += v.Count * each
	}
	return w
}

// einsum is a product and a sum for every combination of labels. An equation that does not fit its
// inputs counts as infinite.
func einsum(c *Sized) float64 {
	terms, _, err := EinsumTerms(c.Attrs.Str("equation"))
	if err != nil || len(terms) != len(c.In) {
		return math.Inf(1)
	}
	total, sizes := float64(len(terms)), map[rune]float64{}
	for i, term := range terms {
		labels := []rune(term)
		rest := max(0, len(c.In[i].Dims)-len(labels)+strings.Count(term, "."))
		at := 0
		for _, r := range labels {
			if r == '.' { // the axes of an ellipsis, those of one operand for all
				for range rest {
					total *= max(1, c.size(i, at))
					at++
				}
				rest = 0
				continue
			}
			if have, seen := sizes[r]; !seen || have == 1 { // an axis of 1 is repeated
				sizes[r] = c.size(i, at)
			}
			at++
		}
	}
	for _, n := range sizes {
		total *= n
	}
	return total
}

// recurrent is the products of a layer: X is [seq, batch, in], W [dirs, gates hidden, in], R [dirs,
// gates hidden, hidden].
func recurrent(c *Sized, gates float64) float64 {
	hidden := c.size(2, 2)
	return c.size(0, 0) * c.size(0, 1) * c.size(1, 0) * gates * hidden * (c.size(0, 2) + hidden)
}

// attention is two products of each query with all keys, of which there are as many as the longest
// axis of keys or of the past has. width is the elements of all inputs, which bounds those of the
// queries.
func attention(c *Sized) float64 {
	longest, width := 1.0, 0.0
	for _, v := range c.In {
		width += v.Count
		for _, d := range v.Dims {
			longest = max(longest, d)
		}
	}
	return 2 * longest * width
}
