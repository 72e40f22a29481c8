package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/op"
)

func init() { EnableIntegers() }

// drawnBytes are of a type of bytes, signed ones of all 256 values.
func drawnBytes(r *rand.Rand, d onnx.DType, shape ...int) *onnx.Tensor {
	t, err := onnx.Zeros(d, shape...)
	if err != nil {
		panic(err)
	}
	b, _ := bytesOf(t)
	drawBytes(r, b)
	return t
}

func drawBytes(r *rand.Rand, b []uint8) []uint8 {
	for i := range b {
		b[i] = uint8(r.Uint32())
	}
	return b
}

// evaluated is the first output of a node on inputs, of which those in known are known before it
// runs.
func evaluated(t *testing.T, threads int, n *onnx.Node, known map[int]bool,
	in ...*onnx.Tensor) *onnx.Tensor {
	t.Helper()
	return evaluatedIn(t, &Env{Pool: &Pool{}, Threads: threads}, n, known, in...)
}

func evaluatedIn(t *testing.T, env *Env, n *onnx.Node, known map[int]bool, in ...*onnx.Tensor) *onnx.Tensor {
	t.Helper()
	s := &Spec{Node: n, Opset: 21}
	for i, x := range in {
		d, c := onnx.Undefined, (*onnx.Tensor)(nil)
		if n.Inputs = append(n.Inputs, ""); x != nil {
			n.Inputs[i], d = fmt.Sprint("in", i), x.DType
		}
		if known[i] {
			c = x
		}
		s.In, s.Const = append(s.In, d), append(s.Const, c)
	}
	n.Outputs = []string{"out"}
	k := must.Get(Prepare(s))(t)
	c := NewCall(env, len(in), 1)
	copy(c.In, in)
	c.Want[0] = true
	must.Do(t, c.Do(k))
	return c.Out[0]
}

// TestIntegerConvByDefinition: sums of bytes are those of the definition, exactly, and so are their
// quanta, whatever the number of filters, channels and columns, for signed and unsigned bytes, with
// each set of the processor's kernels.
func TestIntegerConvByDefinition(t *testing.T) {
	byteKernels(t, testIntegerConv)
}

func testIntegerConv(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	types := []onnx.DType{onnx.Int8, onnx.Uint8}
	for i := range 150 {
		channels, filters, group := 1+r.IntN(9), 1+r.IntN(19), 1+r.IntN(3)
		if i%3 == 0 {
			channels, filters, group = 1, 1, 1+r.IntN(20)
		}
		xd, wd := types[r.IntN(2)], types[r.IntN(2)]
		size := []int{1 + r.IntN(3), 1 + r.IntN(6)}
		stride, dilation := []int{1 + r.IntN(2), 1 + r.IntN(3)}, []int{1 + r.IntN(2), 1 + r.IntN(2)}
		pads := []int{r.IntN(2), r.IntN(3), r.IntN(2), r.IntN(3)}
		if i%4 == 0 {
			size, stride, pads = []int{1, 1}, []int{1, 1}, []int{0, 0, 0, 0}
		}
		side := []int{(size[0]-1)*dilation[0] + 1 + r.IntN(9), (size[1]-1)*dilation[1] + 1 + r.IntN(40)}
		for k := range side { // and planes that are smaller than the window
			if i%5 == 1 {
				side[k] = max(1, (size[k]-1)*dilation[k]+1-pads[k]-pads[k+2]) + r.IntN(2)
			}
		}
		x := drawnBytes(r, xd, 1+r.IntN(2), channels*group, side[0], side[1])
		w := drawnBytes(r, wd, filters*group, channels, size[0], size[1])
		zx, zw := drawnBytes(r, xd, 1), drawnBytes(r, wd, filters*group)
		if r.IntN(4) > 0 { // weights that are signed bytes less their zero point, as most are
			b, flip := bytesOf(zw)
			fillRange(b, flip^128)
		}
		zx.Shape = nil
		node := func(op string) *onnx.Node {
			return &onnx.Node{Op: op,
				Attrs: []onnx.Attr{onnx.IntsAttr("strides", stride...), onnx.IntsAttr("dilations", dilation...),
					onnx.IntsAttr("pads", pads...), onnx.IntAttr("group", group)}}
		}
		known, threads := map[int]bool{1: i%2 == 0, 3: i%2 == 0}, 1+r.IntN(3)
		got := evaluated(t, threads, node("ConvInteger"), known, x, w, zx, zw)
		want := byDefinition(x, w, zx, zw, got.Shape, group, stride, dilation, pads)
		if !slices.Equal(data[int32](got), want) {
			t.Fatalf("case %d: x %v, w %v, group %d, stride %v, dilation %v, pads %v: sums differ", i, x, w,
				group, stride, dilation, pads)
		}
		scale, bias, zy := onnx.ZerosF32(filters*group), make([]int32, filters*group),
			drawnBytes(r, xd, 1)
		zy.Shape = nil
		for j := range bias {
			bias[j], scale.F32()[j] = int32(r.IntN(1000)-500), r.Float32()*.01
		}
		b := onnx.NewTensor(bias, len(bias))
		one, three := onnx.Scalar(float32(.5)), onnx.Scalar(float32(3))
		known = map[int]bool{3: i%2 == 0, 5: i%2 == 0}
		quanta := evaluated(t, threads, node("QLinearConv"), known, x, one, zx, w, scale,
			zw, three, zy, b)
		lo, hi := limits(xd)
		plane := got.Shape[2] * got.Shape[3]
		for j, v := range want {
			c := j / plane % len(bias)
			q := math.RoundToEven(float64(float32(v+bias[c])*(float32(.5*scale.F32()[c])/3))) + zy.At(0)
			if q = min(max(q, lo), hi); quanta.At(j) != q {
				t.Fatalf("case %d: element %d is %v where %v is expected", i, j, quanta.At(j), q)
			}
		}
	}
}

func byDefinition(x, w, zx, zw *onnx.Tensor, shape []int, group int, stride, dilation,
	pads []int) []int32 {
	var out []int32
	in, size, per := x.Shape[2:], w.Shape[2:], w.Shape[0]/group
	for n := range shape[0] {
		for co := range shape[1] {
			for p := range shape[2] * shape[3] {
				sum := 0.0
				for k := range w.Shape[1] * size[0] * size[1] {
					c, t := k/(size[0]*size[1]), k%(size[0]*size[1])
					y := p/shape[3]*stride[0] - pads[0] + t/size[1]*dilation[0]
					z := p%shape[3]*stride[1] - pads[1] + t%size[1]*dilation[1]
					if y < 0 || z < 0 || y >= in[0] || z >= in[1] {
						continue
					}
					at := ((n*x.Shape[1]+co/per*w.Shape[1]+c)*in[0]+y)*in[1] + z
					sum += (x.At(at) - zx.At(0)) * (w.At(co*w.Shape[1]*size[0]*size[1]+k) - zw.At(co))
				}
				out = append(out, int32(sum))
			}
		}
	}
	return out
}

// scalesOf draws n scales.
func scalesOf(r *rand.Rand, n int) *onnx.Tensor {
	out := onnx.ZerosF32(n)
	for i := range n {
		out.F32()[i] = .1 + r.Float32()
	}
	return out
}

// TestIntegerMatMulByDefinition: products of matrices of bytes are exact.
func TestIntegerMatMulByDefinition(t *testing.T) { byteKernels(t, testIntegerMatMul) }

func testIntegerMatMul(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	for i := range 60 {
		m, k, n := 1+r.IntN(70), 1+r.IntN(20), 1+r.IntN(80)
		d := []onnx.DType{onnx.Uint8, onnx.Int8}[i/2%2]
		a, b := drawnBytes(r, d, m, k), drawnBytes(r, onnx.Int8, k, n)
		za := drawnBytes(r, d, 1)
		za.Shape = nil
		got := evaluated(t, 1, &onnx.Node{Op: "MatMulInteger"}, map[int]bool{1: i%3 > 0}, a, b, za)
		one, zero := onnx.Scalar(float32(1)), onnx.Scalar(int8(0))
		scaleA, scaleB, zb := scalesOf(r, m), scalesOf(r, n), drawnBytes(r, onnx.Int8, n)
		if i%2 == 0 {
			scaleA, scaleB, zb = scalesOf(r, 1), scalesOf(r, 1), drawnBytes(r, onnx.Int8, 1)
		}
		many := evaluated(t, 1, &onnx.Node{Op: "QLinearMatMul"}, map[int]bool{3: i%3 > 0, 5: true}, a, scaleA, za, b,
			scaleB, zb, onnx.Scalar(float32(300)), onnx.Scalar(uint8(9)))
		far, zy := onnx.Scalar(float32(700)), onnx.Scalar(uint8(100))
		quanta := evaluated(t, 1, &onnx.Node{Op: "QLinearMatMul"}, map[int]bool{3: i%3 > 0, 5: true}, a,
			one, za, b, one, zero, far, zy)
		for j := range m * n {
			sum, beyond := 0.0, 0.0
			for l := range k {
				sum += (a.At(j/n*k+l) - za.At(0)) * b.At(l*n+j%n)
				beyond += (a.At(j/n*k+l) - za.At(0)) * (b.At(l*n+j%n) - zb.At(j%n%zb.Len()))
			}
			factor := float32(float32(scaleA.At(j/n%scaleA.Len()))*float32(scaleB.At(j%n%scaleB.Len()))) / 300
			if q := min(max(math.RoundToEven(float64(float32(beyond)*factor))+9, 0), 255); many.At(j) != q {
				t.Fatalf("%d x %d x %d: quantum %d by rows and columns is %v where %v is expected", m, k, n, j, many.At(j), q)
			}
			if got.At(j) != sum {
				t.Fatalf("%d x %d x %d: element %d is %v where %v is expected", m, k, n, j, got.At(j), sum)
			}
			if q := min(max(math.RoundToEven(float64(float32(sum)*float32(1./700)))+100, 0), 255); quanta.At(j) != q {
				t.Fatalf("%d x %d x %d: quantum %d is %v where %v is expected", m, k, n, j, quanta.At(j), q)
			}
		}
	}
}

// TestByteLoops: loops over bytes give what those in Go give, at every length.
func TestByteLoops(t *testing.T) { byteKernels(t, testByteLoops) }

func testByteLoops(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	bytes := func(n int) []uint8 { return drawBytes(r, make([]uint8, n)) }
	for n := range 150 {
		for _, d := range []onnx.DType{onnx.Int8, onnx.Uint8} {
			zero := float64(r.IntN(100))
			s, q := saturationOf(d, zero), quantumOf(d, .37, zero)
			src, x := bytes(n), odd(r, n)
			for i := range x {
				if i%5 > 0 {
					x[i] = float32(r.IntN(1200)-600) / 4 // halves among them
				}
			}
			got, want := bytes(n+3), make([]uint8, n+3)
			copy(want, got)
			check := func(what string) {
				t.Helper()
				if !slices.Equal(got, want) {
					t.Fatalf("%s of %d %v: %v where %v is expected", what, n, d, got, want)
				}
			}
			quantizeRow(got, x, .5, s)
			quantizeGo(want, x, .5, s)
			check("quanta")
			a, b := make([]float32, n+1), make([]float32, n+1)
			dequantizeRow(a, src, q)
			dequantizeGo(b, src, q)
			if !slices.Equal(a, b) {
				t.Fatalf("values of %d %v: %v where %v are expected", n, d, a, b)
			}
			two := bytes(n)
			p := &pairing{a: q, b: quantumOf(d, .11, 3), scale: .3, product: n%2 == 0, saturation: s}
			paired(got[:n], src, two, p)
			pairedGo(want[:n], src, two, p)
			check("pairs")
			table := [256]uint8(bytes(256))
			lookUp(got, src, &table)
			lookUpGo(want, src, &table)
			check("a table")
			run, offsets := n/tapRun*tapRun, []int{3, 0, 17}
			long := bytes(n + 20)
			tapMaximaBytes(got[:run], long, offsets, q.flip)
			tapMaximaBytesGo(want[:run], long, offsets, q.flip)
			check("maxima")
			even, odd := bytes(n+1), bytes(n+1)
			done := splitBytes(n/2, even, odd, src)
			for i := range done {
				if even[i] != src[2*i] || odd[i] != src[2*i+1] {
					t.Fatalf("split bytes differ at %d of %d", i, n)
				}
			}
			rows := [4][]uint8{src, two, bytes(n), bytes(n)}
			four, other := bytes(4*n), make([]uint8, 4*n)
			interleaveGo(four, &rows, q.flip, interleave(four, &rows, q.flip))
			interleaveGo(other, &rows, q.flip, 0)
			if !slices.Equal(four, other) {
				t.Fatalf("rows of %d are interleaved in another way", n)
			}
		}
	}
}

// TestMaximaOfBytes: pools of bytes are those of the same numbers as int64.
func TestMaximaOfBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	for range 40 {
		for _, d := range []onnx.DType{onnx.Int8, onnx.Uint8} {
			x := drawnBytes(r, d, 2, 3, 3+r.IntN(30), 3+r.IntN(30))
			wide := converted(x, onnx.Int64)
			node := func() *onnx.Node {
				return &onnx.Node{Op: "MaxPool",
					Attrs: []onnx.Attr{onnx.IntsAttr("kernel_shape", 3, 2), onnx.IntsAttr("strides", 2, 2),
						onnx.IntsAttr("pads", 1, 1, 1, 1)}}
			}
			got := evaluated(t, 2, node(), nil, x)
			w := window{size: []int{3, 2}, stride: []int{2, 2}, begin: []int{1, 1}, end: []int{1, 1}}
			c := NewCall(&Env{Pool: &Pool{}, Threads: 1}, 1, 1)
			c.In[0], c.Want[0] = wide, true
			must.Do(t, maxPool[int64](w, false)(c))
			if !slices.Equal(converted(got, onnx.Int64).I64(), c.Out[0].I64()) {
				t.Fatalf("maxima of %v differ", x)
			}
		}
	}
}

// TestSizesInTurn: a kernel that keeps the arrangement of its last planes convolves others too.
func TestSizesInTurn(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 1))
	w := drawnBytes(r, onnx.Int8, 5, 3, 3, 3)
	node := &onnx.Node{Op: "ConvInteger", Inputs: []string{"x", "w"}, Outputs: []string{"y"},
		Attrs: []onnx.Attr{onnx.IntsAttr("strides", 2, 2)}}
	k := must.Get(Prepare(&Spec{Node: node, Opset: 21, In: []onnx.DType{onnx.Uint8, onnx.Int8},
		Const: []*onnx.Tensor{nil, w}}))(t)
	c := NewCall(&Env{Pool: &Pool{}, Threads: 1}, 2, 1)
	for _, side := range []int{9, 10, 14, 9} { // planes of 9 and 10 have outputs of one size
		x := drawnBytes(r, onnx.Uint8, 1, 3, side, side)
		c.Reset()
		c.In[0], c.In[1], c.Want[0] = x, w, true
		must.Do(t, c.Do(k))
		none := onnx.Scalar(uint8(0))
		want := byDefinition(x, w, none, onnx.NewTensor(make([]int8, 5), 5), c.Out[0].Shape, 1, []int{2, 2},
			[]int{1, 1}, []int{0, 0, 0, 0})
		if !slices.Equal(data[int32](c.Out[0]), want) {
			t.Fatalf("sums of planes of %d differ", side)
		}
	}
}

// sumsOf holds the sums of x, padded, with w, a stride apart, in memory of at most the given bytes,
// to the definition.
func sumsOf(t *testing.T, most int64, stride int, x, w *onnx.Tensor, pads ...int) {
	t.Helper()
	one, strides, zx := []int{1, 1}, []int{stride, stride}, onnx.Scalar(uint8(7))
	if x.DType == onnx.Int8 {
		zx = onnx.Scalar(int8(7))
	}
	zw := onnx.NewTensor(make([]int8, w.Shape[0]), w.Shape[0])
	n := &onnx.Node{Op: "ConvInteger", Attrs: []onnx.Attr{onnx.IntsAttr("pads", pads...),
		onnx.IntsAttr("strides", strides...)}}
	got := evaluatedIn(t, &Env{Pool: &Pool{Most: most}, Threads: 1}, n, map[int]bool{1: true, 3: true}, x, w,
		zx, zw)
	if !slices.Equal(data[int32](got), byDefinition(x, w, zx, zw, got.Shape, 1, strides, one, pads)) {
		t.Fatalf("sums of %v and %v at a stride of %d differ", x, w, stride)
	}
}

// TestGatheredColumns: planes of short lines, whose taps are gathered for many filters, give the
// convolution of the definition, with signed and unsigned bytes around them.
func TestGatheredColumns(t *testing.T) {
	byteKernels(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(13, 1))
		for _, side := range []int{3, 4, 7, 8, 14} {
			for stride := 1; stride < 3; stride++ {
				d := []onnx.DType{onnx.Int8, onnx.Uint8}[r.IntN(2)]
				x, w := drawnBytes(r, d, 1, 6, side, side), drawnBytes(r, onnx.Int8, 90, 6, 3, 3)
				sumsOf(t, 0, stride, x, w, 1, 1, 1, 1)
			}
		}
	})
}

// TestChunksOfLines: where channels are many, weights go over lines of planes in parts, which give the
// convolution of the definition.
func TestChunksOfLines(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 1))
	x, w := drawnBytes(r, onnx.Uint8, 1, 602, 21, 23), drawnBytes(r, onnx.Int8, 3, 602, 3, 3)
	byteKernels(t, func(t *testing.T) { sumsOf(t, 0, 1, x, w, 1, 1, 1, 1) })
}

// TestLongLines: many filters over a long line take little memory beside their sums.
func TestLongLines(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 1))
	x, w := drawnBytes(r, onnx.Uint8, 1, 1, 1, 5000), drawnBytes(r, onnx.Int8, 200, 1, 1, 3)
	byteKernels(t, func(t *testing.T) { sumsOf(t, 4*200*5000+1<<19, 1, x, w, 0, 1, 0, 1) })
}

// TestNoColumns: a plane without columns, whose windows lie in the padding, has sums too.
func TestNoColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 1))
	x, w := drawnBytes(r, onnx.Uint8, 1, 4, 30, 0), drawnBytes(r, onnx.Int8, 64, 4, 3, 3)
	byteKernels(t, func(t *testing.T) { sumsOf(t, 0, 1, x, w, 1, 2, 1, 2) })
}

// TestLargePlanes: the columns of planes are gathered only where they take little memory, which is a
// plane's for every tap.
func TestLargePlanes(t *testing.T) {
	node := &onnx.Node{Op: "Conv", Attrs: []onnx.Attr{onnx.IntsAttr("pads", 1, 1, 1, 1)}}
	win := newWindow(&Spec{Node: node, attrs: op.Attrs(node, 21), used: map[string]bool{}})
	for _, c := range []struct {
		lines, channels, group int
		gathered               bool
	}{{14, 256, 1, true}, {14, 1024, 1, true}, {20000, 64, 1, false}, {8000, 1, 1, true}, {9000, 1, 1, false},
		{14, 64, 64, false}} {
		v, x := &integerConv{group: c.group}, []int{1, c.group * c.channels, c.lines, 14}
		fitted, sp, err := convShape(win, c.group, x, []int{256 * c.group, c.channels, 3, 3})
		must.Do(t, err)
		r := &integerRun{xs: x, sp: sp, group: c.group, channels: c.channels, filters: 256, in: product(x[2:]),
			pos: product(sp)}
		if must.Do(t, v.arrange(r, fitted)); (r.gathered != nil) != c.gathered {
			t.Errorf("%+v: gathered %v, in %d bytes", c, r.gathered != nil, 4*r.plane*c.group*((c.channels+3)/4))
		}
	}
}
