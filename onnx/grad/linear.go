package grad

import (
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(vjpDet, "Det")
	register(vjpMaxUnpool, "MaxUnpool")
	register(vjpTensorScatter, "TensorScatter")
	register(vjpCumProd, "CumProd")
	register(vjpRange, "Range")
}

// mostDet bounds the rows of a matrix whose determinant is differentiated: its n² minors hold n² (n
// - 1)² elements.
const mostDet = 16

// vjpDet: x̄ = ȳ cof(x), the cofactors being signed determinants of x without a row and a column.
// Unlike det(x) x⁻ᵀ this holds where x is singular, and it is made of Det, whose own rule this is.
func vjpDet(c *call) []string {
	x := c.in(0)
	r := c.rank(x)
	s := c.shape(x)
	if r < 2 || !s[r-1].IsKnown() || s[r-1].Size > mostDet {
		try.Fail("the size of the matrices of %q is not known, or over %d", x, mostDet)
	}
	n := s[r-1].Size
	g := c.unsqueeze(c.g(), r-2, r-1)
	switch n {
	// A matrix without elements has an empty cotangent.
	case 0:
		return []string{c.filled(x, 0)}
	// The one cofactor is the determinant of the empty matrix, 1.
	case 1:
		return []string{g}
	}
	size := try.Get(c.afford(8, n, n, n-1, n-1))
	// Cofactor (i, j) is (-1)^(i+j) times the minor without row i and column j.
	signs := try.Get(c.table(func(i int) float64 { return float64(1 - 2*((i/n+i%n)%2)) }, x, n, n))
	at := make([]int64, 0, size)
	for i := range n {
		for j := range n {
			for p := range n {
				for q := range n {
					if p != i && q != j {
						at = append(at, int64(p*n+q))
					}
				}
			}
		}
	}
	lead := make([]string, 0, r-1)
	for k := range r - 2 {
		lead = append(lead, c.dim(x, k))
	}
	flat := c.reshape(x, c.vec(append(lead, c.ints(n*n))...))
	minors := c.op("Gather", []string{flat, c.constant(onnx.NewTensor(at, n, n, n-1, n-1))},
		onnx.IntAttr("axis", r-2))
	return []string{c.mul(g, c.mul(c.un("Det", minors), signs))}
}

// vjpMaxUnpool reads the cotangent where each value was put. The indices have no slope.
func vjpMaxUnpool(c *call) []string {
	x, at, g := c.in(0), c.in(1), c.g()
	if c.in(2) != "" {
		// Indices count the elements of the output without the zeros that output_shape puts behind
		// each axis.
		w := c.window(x, "")
		parts := []string{c.dim(x, 0), c.dim(x, 1)}
		for k := range w.dims {
			steps := c.intOp("Mul", c.intOp("Sub", c.dim(x, k+2), c.ints(1)), c.ints(w.Strides[k]))
			parts = append(parts, c.intOp("Add", steps, c.ints(w.Kernel[k]-w.begin[k]-w.end[k])))
		}
		g = c.op("Slice", []string{g, c.ints(make([]int, w.dims+2)...), c.vec(parts...)})
	}
	// An index is a place in the whole flattened output, batch and channels among its axes.
	read := c.op("GatherElements", []string{c.reshape(g, c.ints(-1)), c.reshape(at, c.ints(-1))})
	return []string{c.reshapeLike(read, x)}
}

// vjpTensorScatter: nothing passes to positions that are overwritten, and an update gets the
// cotangents of its places.
func vjpTensorScatter(c *call) []string {
	cache, update, first, g := c.in(0), c.in(1), c.in(2), c.g()
	r := c.rank(cache)
	axis := c.axis(cache)
	in := []string{g, c.filled(update, 0)}
	// at[b, ..., p, ...] = first[b] + p: p counts along the axis, and b along the batch, axis 0.
	line, column := ones(r), ones(r)
	line[axis], column[0] = -1, -1
	zero, one := c.constant(onnx.Scalar(int64(0))), c.constant(onnx.Scalar(int64(1)))
	at := c.reshape(c.op("Range", []string{zero, c.squeeze(c.dim(update, axis), 0), one}),
		c.ints(line...))
	if first != "" {
		in = append(in, first)
		at = c.add(at, c.reshape(first, c.ints(column...)))
	}
	if c.attrs.Str("mode") == "circular" {
		at = c.op("Mod", []string{at, c.dim(cache, axis)})
	}
	at = c.op("Expand", []string{at, c.shapeOf(update)})
	kept := c.op("TensorScatter", in, onnx.IntAttr("axis", axis),
		onnx.StrAttr("mode", c.attrs.Str("mode")))
	return []string{kept, c.op("GatherElements", []string{g, at}, onnx.IntAttr("axis", axis))}
}

// vjpRange: y_i = start + i step, whose number of elements alone follows from the limit. start gets
// the sum of ȳ_i, and step the sum of i ȳ_i.
func vjpRange(c *call) []string {
	y, g := c.out(0), c.g()
	zero, one := c.constant(onnx.Scalar(int64(0))), c.constant(onnx.Scalar(int64(1)))
	at := c.cast(c.op("Range", []string{zero, c.un("Size", y), one}), c.dtype(y))
	return []string{c.sumAll(g), "", c.sumAll(c.mul(g, at))}
}

// vjpCumProd: x̄_i is the product of the elements before x_i times r_i, where, from the last to the
// first,
//
//	r_i = ȳ_i + x_{i+1} r_{i+1}                            y_i = x_0 ... x_i
//	r_i = t_{i+1}, t_i = ȳ_i + x_i t_{i+1}, t_n = 0        y_i = x_0 ... x_{i-1} (exclusive)
//
// which holds for zeros as well; reverse turns the order.
func vjpCumProd(c *call) []string {
	x, g := c.in(0), c.g()
	r := c.rank(x)
	at, ok := c.constInts(c.in(1))
	if !ok || len(at) != 1 || at[0] < -r || at[0] >= r {
		try.Fail("the axis is worked out by the graph, or is none of %q; make it constant",
			x)
	}
	axis, exclusive, reverse := (at[0]+r)%r, c.attrs.Bool("exclusive"), c.attrs.Bool("reverse")
	lead := c.op("CumProd", []string{x, c.in(1)}, onnx.IntAttr("exclusive", 1),
		onnx.IntAttr("reverse", boolInt(reverse)))
	// One position along the axis.
	slice := slices.Delete(slices.Clone(c.shape(x)), axis, axis+1)
	var sizes []string
	for k := range r {
		if k != axis {
			sizes = append(sizes, c.dim(x, k))
		}
	}
	shape := c.ints()
	if len(sizes) > 0 {
		shape = c.vec(sizes...)
	}
	value := func(op string) onnx.ValueInfo {
		return onnx.ValueInfo{Name: c.fresh(op), DType: c.dtype(x), Shape: slice}
	}
	carried, xi, gi := value("carried"), value("factor"), value("cotangent")
	body := &onnx.Graph{Name: c.fresh("cumprod"), Inputs: []onnx.ValueInfo{carried, xi, gi},
		Initializers: map[string]*onnx.Tensor{}}
	node := func(op string, in ...onnx.ValueInfo) onnx.ValueInfo {
		out := value(op)
		body.Nodes = append(body.Nodes,
			&onnx.Node{Name: out.Name, Op: op, Inputs: []string{in[0].Name, in[1].Name},
				Outputs: []string{out.Name}})
		return out
	}
	if exclusive {
		next := node("Add", gi, node("Mul", xi, carried))
		given := value("Identity") // an output is none of the inputs
		body.Nodes = append(body.Nodes,
			&onnx.Node{Name: given.Name, Op: "Identity", Inputs: []string{carried.Name},
				Outputs: []string{given.Name}})
		body.Outputs = []onnx.ValueInfo{next, given}
	} else {
		given := node("Add", gi, carried)
		body.Outputs = []onnx.ValueInfo{node("Mul", xi, given), given}
	}
	backward := boolInt(!reverse)
	rest := c.emit("Scan", []string{c.filledShape(shape, 0, c.dtype(x)), x, g}, 2,
		onnx.Attr{Name: "body", Kind: onnx.AttrGraph, Graph: body},
		onnx.IntAttr("num_scan_inputs", 2),
		onnx.IntsAttr("scan_input_axes", axis, axis), onnx.IntsAttr("scan_output_axes", axis),
		onnx.IntsAttr("scan_input_directions", backward, backward),
		onnx.IntsAttr("scan_output_directions", backward))
	// A Scan of no turns does not know the other sizes.
	return []string{c.mul(lead, c.reshapeLike(rest[1], x)), ""}
}
