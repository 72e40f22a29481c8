package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"fmp/onnx"
)

// Tiles by lanes have the bits of those whose lines are copied, on planes of every width and
// height, wherever the padding lies, for one image and for as many as fill several items.
func TestTileLanes(t *testing.T) {
	type run struct {
		name string
		do   func() []float32
		got  []float32
	}
	var runs []*run
	r := rand.New(rand.NewPCG(35, 36))
	add := func(n, group, high, wide int, pads ...int) {
		if high+pads[0]+pads[2] < 3 || wide+pads[1]+pads[3] < 3 {
			return
		}
		cols, rows := winogradLeast+r.IntN(3), winogradLeast+r.IntN(30)
		x, w, b := normal(r, n, cols*group, high, wide), normal(r, rows*group, cols, 3, 3),
			normal(r, rows*group)
		attrs := []onnx.Attr{onnx.IntsAttr("pads", pads...)}
		runs = append(runs, &run{name: fmt.Sprintf("x %v w %v group %d pads %v", x.Shape, w.Shape, group, pads),
			do: func() []float32 { return convolve(t, 1, group, attrs, x, w, b, true).F32() }})
	}
	for wide := 1; wide < 40; wide++ {
		add(1+r.IntN(3), 1, 1+r.IntN(12), wide, 1, 1, 1, 1)
		add(1, 1+r.IntN(2), 1+r.IntN(20), wide, r.IntN(4), r.IntN(4), r.IntN(4), r.IntN(4))
	}
	for wide := 1; wide < 8; wide++ { // several lines in a vector
		add(3, 1, 1+r.IntN(6), wide, 3, 3, 3, 3)
		add(3, 1, 1+r.IntN(6), wide, 0, 2, 1, 5)
	}
	add(2, 1, 5, 4, 1, 17, 1, 17) // several pieces of a narrow line, and tiles that see padding alone
	add(2, 1, 3, 20, 0, 0, 12, 30)
	add(2, 1, 20, 3, 12, 30, 0, 0)
	for _, plane := range [][2]int{{4, 4}, {7, 7}, {8, 8}, {16, 16}} {
		add(40, 1, plane[0], plane[1], 1, 1, 1, 1)
	}
	add(1, 1, 90, 60, 1, 1, 1, 1) // lines of one image in several items
	for _, v := range runs {
		v.got = v.do()
	}
	if !narrower(t) {
		t.Skip("no AVX-512")
	}
	for _, v := range runs {
		if want := v.do(); !same(v.got, want) {
			t.Errorf("%s: %v, want %v", v.name, v.got, want)
		}
	}
}
