package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/cpu"

	"fmp/onnx"
)

// TestStripsOfBytes: depthwise windows that go down strips are those of the definition, beside
// windows that are too wide for strips.
func TestStripsOfBytes(t *testing.T) {
	if !haveDots {
		t.Skip("the processor does not multiply bytes in vectors of 64")
	}
	r := rand.New(rand.NewPCG(9, 1))
	for _, across := range []int{1, 2, 3, 4, 6} {
		for range 20 {
			d, channels := []onnx.DType{onnx.Int8, onnx.Uint8}[r.IntN(2)], 1+r.IntN(5)
			size, stride := []int{1 + r.IntN(5), 1 + r.IntN(7)}, []int{1 + r.IntN(3), across}
			pads := []int{r.IntN(3), r.IntN(4), r.IntN(3), r.IntN(4)}
			x := drawnBytes(r, d, 2, channels, size[0]+r.IntN(20), size[1]+r.IntN(200))
			depthByDefinition(t, &Env{Pool: &Pool{}, Threads: 2}, x, size, stride, pads)
		}
	}
}

// depthByDefinition holds a depthwise convolution of x with drawn weights to the definition.
func depthByDefinition(t *testing.T, env *Env, x *onnx.Tensor, size, stride, pads []int) {
	t.Helper()
	r, d, channels := rand.New(rand.NewPCG(9, 2)), x.DType, x.Shape[1]
	w, zx, zw := drawnBytes(r, onnx.Int8, channels, 1, size[0], size[1]), drawnBytes(r, d, 1),
		onnx.NewTensor(make([]int8, channels), channels)
	zx.Shape = nil
	one, n := onnx.Scalar(float32(1)), &onnx.Node{Op: "QLinearConv", Attrs: []onnx.Attr{
		onnx.IntsAttr("strides", stride...), onnx.IntsAttr("pads", pads...), onnx.IntAttr("group", channels)}}
	zy, every := onnx.Scalar(uint8(7)), onnx.ZerosF32(channels)
	fillRange(every.F32(), 1)
	if d == onnx.Int8 {
		zy = onnx.Scalar(int8(7))
	}
	got := evaluatedIn(t, env, n, map[int]bool{3: true, 5: true}, x, one, zx, w, every, zw,
		onnx.Scalar(float32(256)), zy)
	sums := byDefinition(x, w, zx, zw, got.Shape, channels, stride, []int{1, 1}, pads)
	lo, hi := limits(d)
	for i, v := range sums {
		if q := min(max(math.RoundToEven(float64(v)/256)+7, lo), hi); got.At(i) != q {
			t.Fatalf("x %v, w %v, strides %v, pads %v: element %d is %v where %v is expected", x.Shape, w.Shape,
				stride, pads, i, got.At(i), q)
		}
	}
}

// TestStripsOfNothing: a plane without columns has outputs that are padding alone.
func TestStripsOfNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 3))
	byteKernels(t, func(t *testing.T) {
		env := &Env{Pool: &Pool{}, Threads: 1}
		depthByDefinition(t, env, drawnBytes(r, onnx.Uint8, 3, 5, 30, 0), []int{7, 3}, []int{3, 3}, []int{1, 12, 5, 15})
		depthByDefinition(t, env, drawnBytes(r, onnx.Int8, 3, 5, 0, 30), []int{7, 3}, []int{3, 3}, []int{8, 1, 5, 2})
	})
}

// TestStripsOfTallPlanes: planes of few columns take little memory, however many lines they have.
func TestStripsOfTallPlanes(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 4))
	byteKernels(t, func(t *testing.T) {
		env := &Env{Pool: &Pool{Most: 1 << 20}, Threads: 1}
		depthByDefinition(t, env, drawnBytes(r, onnx.Uint8, 1, 2, 50000, 1), []int{3, 1}, []int{1, 1},
			[]int{1, 0, 1, 0})
	})
}

// TestStripsOfLongLines: strips of a long line share their vectors, but for those at its ends, and so
// do strips of padding.
func TestStripsOfLongLines(t *testing.T) {
	vectors := map[*depthFour]bool{}
	for _, s := range depthStrips(3, 1, 1, 1001, 20000, 22000) {
		vectors[s.fours] = true
	}
	if len(vectors) != 4 {
		t.Errorf("strips of a line have %d vectors where 4 are enough", len(vectors))
	}
	r := rand.New(rand.NewPCG(9, 5))
	byteKernels(t, func(t *testing.T) {
		env := &Env{Pool: &Pool{}, Threads: 1}
		for _, far := range []int{63, 64, 65, 79, 80, 81, 100} {
			depthByDefinition(t, env, drawnBytes(r, onnx.Int8, 1, 2, 3, 90), []int{3, 5}, []int{1, 2},
				[]int{1, far, 1, far})
		}
	})
}

// TestDotsTakeBMI2: kernels that mask columns are for processors that have the instruction.
func TestDotsTakeBMI2(t *testing.T) {
	was := cpu.X86.HasBMI2
	t.Cleanup(func() { cpu.X86.HasBMI2 = was })
	if cpu.X86.HasBMI2 = true; !dotsThere() {
		t.Skip("the processor does not multiply bytes in vectors of 64")
	}
	if cpu.X86.HasBMI2 = false; dotsThere() {
		t.Error("kernels are taken without BMI2")
	}
}

// TestTilesOfBytes: tiles of 48 and 49 columns, and those of the columns that are left, give for any
// number of filters what portable ones give, and write nothing else.
func TestTilesOfBytes(t *testing.T) {
	if !haveDots {
		t.Skip("the processor does not multiply bytes in vectors of 64")
	}
	r := rand.New(rand.NewPCG(12, 1))
	const steps = 3
	for cols := 1; cols <= 250; cols++ {
		filters, at, across := 1+r.IntN(20), r.IntN(40), (cols+15)/16*16
		high := (filters + 7) / 8 * 8
		a, b := make([]int8, steps*4*high), make([]uint8, 4*(at+steps*across))
		for i := range a {
			a[i] = int8(r.Uint32())
		}
		drawBytes(r, b)
		d := &dotSums{start: make([]int32, high), scale: make([]float32, high), saturation: saturation{-9, 200, 20},
			whole: cols%3 == 0}
		for i := range d.start {
			d.start[i], d.scale[i] = int32(r.IntN(20000)-9000), r.Float32()*.01
		}
		var offsets []int
		for i := range steps {
			offsets = append(offsets, 4*(at+(steps-1-i)*across))
		}
		d.furthest = offsets[0]
		size := 1
		if d.whole {
			size = 4
		}
		stride := size * (cols + r.IntN(3))
		got, want := make([]uint8, (filters+8)*stride), make([]uint8, (filters+8)*stride)
		dots(d, a, b, offsets, 0, filters, cols, got, stride)
		for f := 0; f < filters; f += 8 {
			for p := 0; p < cols; p += dotColumns {
				dotsGo(d, a[f*steps*4:], b[4*p:], offsets, f, min(8, filters-f), min(dotColumns, cols-p),
					want[f*stride+p*size:], stride)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d columns of %d filters differ", cols, filters)
		}
	}
}

// TestTilesOfOneColumnMore: columns cost what their tiles do, and a few after whole tiles cost little.
func TestTilesOfOneColumnMore(t *testing.T) {
	for _, c := range [][3]int{{48, 0, 48}, {49, 1, 50}, {50, 0, 64}, {98, 2, 100}, {196, 4, 200}, {7 * 49, 7, 350},
		{8*48 + 8, 0, 400}, {3, 0, 16}} {
		if longerTiles(c[0]) != c[1] || haveDots && dotCost(c[0]) != c[2] {
			t.Errorf("%d columns: %d longer tiles and a cost of %d, want %d and %d", c[0], longerTiles(c[0]), dotCost(c[0]),
				c[1], c[2])
		}
	}
	was := haveDots
	t.Cleanup(func() { haveDots = was })
	haveDots = false
	for cols, want := range map[int]int{48: 48, 49: 56, 50: 56, 196: 200, 3: 8} {
		if got := dotCost(cols); got != want {
			t.Errorf("%d columns cost %d in tiles of 8, want %d", cols, got, want)
		}
	}
}
