package models

import (
	"math"
	"strconv"
	"strings"

	"fmp/onnx"
	"fmp/onnx/build"
)

// resize builds the part of a graph that computes the weights of resizing, from sizes that the
// graph itself reads, in float64.
type resize struct {
	b        *build.Builder
	one, two build.Ref // whole numbers, [1]
}

// axis is a resize along one dimension: pixels start to start+from-1 of in become pixels at to
// at+to-1 of out. All are int64 [1].
type axis struct {
	in, start, from build.Ref
	out, at, to     build.Ref
}

// atLeastOne returns the larger of a number and 1: no part of an image is empty.
func (r *resize) atLeastOne(x build.Ref) build.Ref { return r.b.Op("Max", []build.Ref{x, r.one}) }

// least returns the smaller of two numbers.
func (r *resize) least(x, y build.Ref) build.Ref { return r.b.Op("Min", []build.Ref{x, y}) }

// share returns max(1, a*b/c), rounded: the size of a part that has another shape's aspect ratio.
// It is (2 a b + c) / (2 c) in whole numbers, as imagefile computes it.
func (r *resize) share(a, b, c build.Ref) build.Ref {
	twice := r.b.Mul(r.two, c)
	return r.atLeastOne(r.b.Div(r.b.Add(r.b.Mul(r.two, r.b.Mul(a, b)), c), twice))
}

// margin returns (whole - part) / 2, rounded down. Of an odd difference the smaller margin comes
// first.
func (r *resize) margin(whole, part build.Ref) build.Ref {
	return r.b.Div(r.b.Sub(whole, part), r.two)
}

// CropShare reads a way to resize that crops: crop, or crop: and a share of the largest central
// part, of more than 0 and at most 1.
func CropShare(resize string) (share float64, ok bool) {
	text, part := strings.CutPrefix(resize, "crop:")
	if !part {
		return 1, resize == "crop"
	}
	share, err := strconv.ParseFloat(text, 64)
	return share, err == nil && share > 0 && share <= 1
}

// Shrunk returns the share of a number of pixels, rounded, 1 at least. A half is rounded up.
func Shrunk(pixels int, share float64) int {
	return max(1, int(math.Floor(float64(pixels)*share+0.5)))
}

// shrunk is [Shrunk] in the graph.
func (r *resize) shrunk(pixels build.Ref, share float64) build.Ref {
	x := r.b.Mul(r.b.Cast(pixels, onnx.Float64), r.number(share))
	return r.atLeastOne(r.b.Cast(r.rounded(x), onnx.Int64))
}

// part maps an image of h x w pixels to one of the manifest's size: all of it, its central part of
// that aspect ratio (crop) or a share of that, or all between margins (pad).
func (r *resize) part(h, w build.Ref, f Manifest) (rows, columns axis) {
	zero, toH, toW := r.b.Axes(0), r.b.Axes(f.Height), r.b.Axes(f.Width)
	rows = axis{in: h, start: zero, from: h, out: toH, at: zero, to: toH}
	columns = axis{in: w, start: zero, from: w, out: toW, at: zero, to: toW}
	share, crop := CropShare(f.Resize)
	switch {
	case crop:
		// The smaller of the whole and the share is the right one, to the rounding of the other.
		rows.from = r.least(h, r.share(w, toH, toW))
		columns.from = r.least(w, r.share(h, toW, toH))
		rows.from, columns.from = r.shrunk(rows.from, share), r.shrunk(columns.from, share)
		rows.start, columns.start = r.margin(h, rows.from), r.margin(w, columns.from)
	case f.Resize == "pad":
		rows.to = r.least(toH, r.share(h, toW, w))
		columns.to = r.least(toW, r.share(w, toH, h))
		rows.at, columns.at = r.margin(toH, rows.to), r.margin(toW, columns.to)
	}
	return rows, columns
}

// weights returns the matrix R of an axis times [unit], float64 [out, in], and that unit: whole
// numbers of which every row has the sum unit, 0 outside of the part that is resized. As running
// sums are rounded, and not the weights, no row's sum is off by rounding. They are computed for
// each call, since sizes are known then alone. It costs O(out in).
func (r *resize) weights(a axis) (weights, unit build.Ref) {
	b := r.b
	real := func(x build.Ref) build.Ref { return b.Cast(x, onnx.Float64) }
	count := func(n, from build.Ref, axis int) build.Ref {
		zero, one := b.Const(onnx.Scalar(int64(0))), b.Const(onnx.Scalar(int64(1)))
		to := b.Op("Range", []build.Ref{zero, b.Squeeze(n, 0), one})
		return b.Unsqueeze(real(b.Sub(to, from)), axis)
	}
	within := func(x, n build.Ref) build.Ref {
		return b.Op("And", []build.Ref{b.Op("GreaterOrEqual", []build.Ref{x, r.number(0)}),
			b.Op("Less", []build.Ref{x, real(n)})})
	}
	i, j := count(a.out, a.at, 1), count(a.in, a.start, 0)
	scale := b.Div(real(a.from), real(a.to))
	centre := b.Sub(b.Mul(b.Add(i, r.number(0.5)), scale), r.number(0.5))
	t := b.Op("Abs", []build.Ref{b.Sub(centre, j)})
	t = b.Mul(t, b.Op("Min", []build.Ref{r.number(1), b.Div(r.number(1), scale)}))
	k := b.Op("Where", []build.Ref{within(j, a.from), r.cubic(t), r.number(0)})
	unit = r.unit(scale)
	running := func(exclusive int) build.Ref {
		return b.Op("CumSum", []build.Ref{k, b.Const(onnx.Scalar(int64(1)))},
			onnx.IntAttr("exclusive", exclusive))
	}
	upTo, before := running(0), running(1)
	total := b.Slice(upTo, 1, -1, math.MaxInt32)
	whole := func(sum build.Ref) build.Ref { return r.rounded(b.Mul(b.Div(sum, total), unit)) }
	return b.Op("Where", []build.Ref{within(i, a.to), b.Sub(whole(upTo), whole(before)),
			r.number(0)}),
		unit
}

// unit returns 2^14, 2^15 where an axis shrinks to a half or less, 2^16 where it shrinks to a
// quarter or less: with pixels of 8 bits, and of [resizeFraction] more between the axes, sums have
// 31 bits at most, and weights 16 (Go's integers and the lanes of processors).
func (r *resize) unit(scale build.Ref) build.Ref {
	u := r.number(resizeUnit)
	for _, from := range []float64{2, 4} {
		twice := r.b.Mul(u, r.number(2))
		u = r.b.Op("Where", []build.Ref{r.b.Op("GreaterOrEqual",
			[]build.Ref{scale, r.number(from)}), twice, u})
	}
	return u
}

// The integers of resizing, which package imagefile computes with too.
const (
	resizeUnit     = 1 << 14
	resizeFraction = 1 << 6
)

// cubic returns the cubic convolution of Keys at t >= 0, operation by operation as package
// imagefile computes it.
func (r *resize) cubic(t build.Ref) build.Ref {
	b, number := r.b, r.number
	near := b.Add(b.Mul(b.Mul(b.Sub(b.Mul(number(1.5), t), number(2.5)), t), t), number(1))
	far := b.Add(b.Mul(b.Sub(b.Mul(b.Add(b.Mul(number(-0.5), t), number(2.5)), t), number(4)), t),
		number(2))
	far = b.Op("Where", []build.Ref{b.Op("Less", []build.Ref{t, number(2)}), far, number(0)})
	return b.Op("Where", []build.Ref{b.Op("Less", []build.Ref{t, number(1)}), near, far})
}

// number returns a constant of float64, in which all weights are computed.
func (r *resize) number(v float64) build.Ref { return r.b.Const(onnx.Scalar(v)) }

// rounded returns whole numbers: halves go up.
func (r *resize) rounded(x build.Ref) build.Ref {
	return r.b.Op("Floor", []build.Ref{r.b.Add(x, r.number(0.5))})
}
