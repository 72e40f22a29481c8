package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// laid is a random matrix of rows x cols as read, with some room beside every stored row.
func laid(r *rand.Rand, rows, cols int, trans bool) matrix[float32] {
	m := matrix[float32]{rows: rows, cols: cols, trans: trans}
	sr, sc := m.stored()
	m.stride = sc + r.IntN(4)
	m.data = tame(r, sr*m.stride)
	return m
}

func (m matrix[T]) at(i, j int) T {
	if m.trans {
		i, j = j, i
	}
	return m.data[i*m.stride+j]
}

// Products in panels are those of float64, whatever the shape, and nothing beside c is written.
func TestPanels(t *testing.T) {
	if !havePanels {
		t.Skip("this processor has neither AVX2 and FMA nor NEON")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		size := func() int { return 1 + r.IntN([]int{3, 20, 70, 9}[i%4]) }
		m, n, k := size(), size(), size()
		switch i % 12 {
		case 3:
			k = 200 + r.IntN(400) // more than one block
		case 7:
			n = 200 + r.IntN(400)
		}
		a, b, c := laid(r, m, k, r.IntN(2) == 0), laid(r, k, n, r.IntN(2) == 0), laid(r, m, n, false)
		was := slices.Clone(c.data)
		multiplyPanels(a, b, c, false, false)
		for i, v := range c.data {
			row, col := i/c.stride, i%c.stride
			if col >= n {
				if v != was[i] {
					t.Fatalf("%d x %d x %d: element %d beside c was written", m, n, k, i)
				}
				continue
			}
			want, scale := float64(was[i]), math.Abs(float64(was[i]))
			for l := range k {
				p := float64(a.at(row, l)) * float64(b.at(l, col))
				want, scale = want+p, scale+math.Abs(p)
			}
			if !(math.Abs(float64(v)-want) <= 1e-6*scale) {
				t.Fatalf("%d x %d x %d: element [%d, %d] is %v, want %v", m, n, k, row, col, v, want)
			}
		}
	}
}

// An element does not depend on how the product around it was cut.
func TestPanelsOfParts(t *testing.T) {
	if !havePanels {
		t.Skip("this processor has neither AVX2 and FMA nor NEON")
	}
	r := rand.New(rand.NewPCG(3, 4))
	const m, n, k = 23, 61, 300
	a, b := laid(r, m, k, false), laid(r, k, n, false)
	whole := dense(make([]float32, m*n), m, n)
	multiplyPanels(a, b, whole, false, false)
	for range 50 {
		i, j := r.IntN(m), r.IntN(n)
		h, w := 1+r.IntN(m-i), 1+r.IntN(n-j)
		part := dense(make([]float32, h*w), h, w)
		multiplyPanels(a.part(i, 0, h, k), b.part(0, j, k, w), part, false, false)
		for x, v := range part.data {
			if want := whole.at(i+x/w, j+x%w); v != want {
				t.Fatalf("part %d+%d x %d+%d: %v, want %v", i, h, j, w, v, want)
			}
		}
	}
}

// Infinities and NaN of either side come through, with a zero on the other as well.
func TestPanelsOfOddNumbers(t *testing.T) {
	if !havePanels {
		t.Skip("this processor has neither AVX2 and FMA nor NEON")
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, v := range []float32{inf, -inf, nan} {
		for _, left := range []bool{false, true} {
			a, b := dense(make([]float32, 9*9), 9, 9), dense(make([]float32, 9*9), 9, 9)
			if left {
				a.data[4] = v // [0, 4]
			} else {
				b.data[4] = v
			}
			c := dense(make([]float32, 9*9), 9, 9)
			multiplyPanels(a, b, c, false, false)
			for i, got := range c.data {
				hit := i%9 == 4
				if left {
					hit = i/9 == 0
				}
				if hit != (got != got) || !hit && got != 0 {
					t.Errorf("%v on the left: %v: element %d is %v", v, left, i, got)
				}
			}
		}
	}
}

// The kernel in Go is what the others are held against, on every machine.
func TestPanelInGo(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for k := 1; k < 40; k++ {
		a, b, c := tame(r, 4*k), tame(r, 4*k), tame(r, 3*7+4)
		was := slices.Clone(c)
		panelGo(k, a, b, 4, c, 7)
		for i, v := range c {
			if i%7 > 3 {
				if v != was[i] {
					t.Fatalf("element %d beside the tile was written", i)
				}
				continue
			}
			want := float64(was[i])
			for l := range k {
				want += float64(a[4*l+i/7]) * float64(b[4*l+i%7])
			}
			if math.Abs(float64(v)-want) > 1e-5 {
				t.Fatalf("k %d: element %d is %v, want %v", k, i, v, want)
			}
		}
	}
}

// convolve runs the kernel of Conv.
func convolve(t *testing.T, threads, group int, attrs []onnx.Attr, x, w, b *onnx.Tensor,
	known bool) *onnx.Tensor {
	t.Helper()
	n := &onnx.Node{Op: "Conv", Attrs: append([]onnx.Attr{onnx.IntAttr("group", group)}, attrs...)}
	return evaluated(t, threads, n, map[int]bool{1: known}, x, w, b)
}

func normal(r *rand.Rand, shape ...int) *onnx.Tensor {
	return onnx.NewTensor(tame(r, product(shape)), shape...)
}

// Conv against its definition in float64, over strides, dilations, paddings, groups, weights known
// before and not, and planes small and large; an image's result depends neither on its batch nor on
// the number of threads.
func TestConvByDefinition(t *testing.T) { testConv(t, 200) }

// The same without the processor's vectors.
func TestConvInGo(t *testing.T) {
	if !inGo(t) {
		t.Skip("there is one way alone on this machine")
	}
	testConv(t, 60)
}

func testConv(t *testing.T, cases int) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range cases {
		group := []int{1, 1, 1, 2, 3}[r.IntN(5)]
		cg, og := 1+r.IntN(12), 1+r.IntN(14)
		if i%4 == 0 { // one channel at a time
			cg, og, group = 1, 1, 1+r.IntN(9)
		}
		n, h, wd := 1+r.IntN(9), 1+r.IntN(18), 1+r.IntN(18)
		kh, kw := 1+r.IntN(3), 1+r.IntN(3)
		s, d := []int{1 + r.IntN(3), 1 + r.IntN(3)}, []int{1 + r.IntN(2), 1 + r.IntN(2)}
		pads := []int{r.IntN(4), r.IntN(4), r.IntN(4), r.IntN(4)}
		known, bound := i%3 != 0, 1e-6
		if i%16 == 1 { // what is done in tiles
			n, cg, og, kh, kw = min(n, 2), winogradLeast+r.IntN(4), winogradLeast+r.IntN(10), 3, 3
			s, d = []int{1, 1}, []int{1, 1}
			bound = 2e-6
		}
		oh, ow := h+pads[0]+pads[2]-d[0]*(kh-1)-1, wd+pads[1]+pads[3]-d[1]*(kw-1)-1
		if oh < 0 || ow < 0 {
			continue
		}
		oh, ow = oh/s[0]+1, ow/s[1]+1
		x, w, b := normal(r, n, cg*group, h, wd), normal(r, og*group, cg, kh, kw), normal(r, og*group)
		attrs := []onnx.Attr{onnx.IntsAttr("strides", s...), onnx.IntsAttr("dilations", d...),
			onnx.IntsAttr("pads", pads...)}
		name := fmt.Sprintf("case %d: x %v w %v group %d strides %v dilations %v pads %v", i, x.Shape,
			w.Shape, group, s, d, pads)
		got := convolve(t, 1, group, attrs, x, w, b, known)
		if !slices.Equal(got.Shape, []int{n, og * group, oh, ow}) {
			t.Fatalf("%s: shape %v, want %v", name, got.Shape, []int{n, og * group, oh, ow})
		}
		for at, v := range got.F32() {
			q, p, o, m := at%ow, at/ow%oh, at/ow/oh%(og*group), at/ow/oh/(og*group)
			want, scale := float64(b.F32()[o]), math.Abs(float64(b.F32()[o]))
			for c := range cg {
				for y := range kh {
					for z := range kw {
						u, e := p*s[0]-pads[0]+y*d[0], q*s[1]-pads[1]+z*d[1]
						if u < 0 || u >= h || e < 0 || e >= wd {
							continue
						}
						prod := float64(x.F32()[((m*group+o/og)*cg+c)*h*wd+u*wd+e]) * float64(
							w.F32()[((o*cg)+c)*kh*kw+y*kw+z])
						want, scale = want+prod, scale+math.Abs(prod)
					}
				}
			}
			if !(math.Abs(float64(v)-want) <= bound*scale) {
				t.Fatalf("%s: element %d is %v, want %v", name, at, v, want)
			}
		}
		if again := convolve(t, 3, group, attrs, x, w, b, known); !slices.Equal(again.F32(), got.F32()) {
			t.Fatalf("%s: three threads differ from one", name)
		}
		one := onnx.NewTensor(x.F32()[(n-1)*cg*group*h*wd:], 1, cg*group, h, wd)
		if last := convolve(t, 1, group, attrs, one, w, b, known).F32(); !slices.Equal(last,
			got.F32()[len(got.F32())-len(last):]) {
			t.Fatalf("%s: the last image alone differs from the last of the batch", name)
		}
	}
}

// Columns are what the definition says of every tap and position, for any part of the output.
func TestColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		in := []int{1 + r.IntN(6), 1 + r.IntN(6)}
		pair := func(low, n int) []int { return []int{low + r.IntN(n), low + r.IntN(n)} }
		w := window{autoPad: "NOTSET", size: pair(1, 4), stride: pair(1, 2), dilation: pair(1, 2),
			begin: pair(0, 4), end: pair(0, 4)}
		w, out, err := w.fit(in)
		if err != nil {
			continue // the window is larger than the input
		}
		const channels = 2
		x := laid(r, channels, in[0]*in[1], false)
		x.stride = x.cols
		pos, q := out[0]*out[1], w.size[0]*w.size[1]
		p0 := r.IntN(pos)
		p1 := p0 + 1 + r.IntN(pos-p0)
		col := make([]float32, channels*q*(p1-p0))
		for i := range col {
			col[i] = 7
		}
		var ph *phases
		var split []float32
		if !inPlanes(in, out, w) {
			ph = must.Get(newPhases(w, in, out))(t)
			split = make([]float32, ph.len())
		}
		v := &convolution[float32]{window: w, xs: []int{1, channels, in[0], in[1]}, sp: out,
			channels: channels, in: in[0] * in[1], taps: q,
			phases: ph}
		v.columns(col, p1-p0, x.data[:channels*x.cols], split, p0, p1)
		for i, got := range col {
			c, tap, p := i/(p1-p0)/q, i/(p1-p0)%q, p0+i%(p1-p0)
			y := p/out[1]*w.stride[0] - w.begin[0] + tap/w.size[1]*w.dilation[0]
			z := p%out[1]*w.stride[1] - w.begin[1] + tap%w.size[1]*w.dilation[1]
			want := float32(0)
			if y >= 0 && y < in[0] && z >= 0 && z < in[1] {
				want = x.data[c*in[0]*in[1]+y*in[1]+z]
			}
			if got != want {
				t.Fatalf("input %v, %+v, positions %d to %d: channel %d, tap %d, position %d is %v, want %v",
					in, w, p0, p1, c, tap, p, got, want)
			}
		}
	}
}

// BenchmarkPanels measures products in float32, both operands copied each time.
func BenchmarkPanels(b *testing.B) {
	if !havePanels {
		b.Skip("this processor has neither AVX2 and FMA nor NEON")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{64, 784, 144}, {256, 196, 1152}, {512, 512, 512}} {
		m, n, k := s[0], s[1], s[2]
		x, y, z := laid(r, m, k, false), laid(r, k, n, false), laid(r, m, n, false)
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			for b.Loop() {
				multiplyPanels(x, y, z, false, false)
			}
			b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9,
				"GFLOP/s")
		})
	}
}

// In steps a product in panels has the bits of the plain loops, whatever its shape and the
// instruction set, and so have sums over taps.
func TestSteps(t *testing.T) {
	for {
		r := rand.New(rand.NewPCG(9, 10))
		for i := range 60 {
			m, n, k := 1+r.IntN(40), 1+r.IntN([]int{20, 90, 400}[i%3]), 1+r.IntN([]int{30, 900}[i%2])
			a, b := laid(r, m, k, i%4 == 3), laid(r, k, n, i%5 == 4)
			got, want := dense(make([]float32, m*n), m, n), dense(make([]float32, m*n), m, n)
			multiplyPlain(a, b, want)
			multiplyAs(a, b, got, havePanels, true, false)
			if !slices.Equal(got.data, want.data) {
				t.Fatalf("%d x %d x %d: the bits are not those of the plain loops", m, n, k)
			}
			taps := 1 + r.IntN(9)
			src, weights, offsets := laid(r, 1, 200, false).data, laid(r, 1, taps, false).data,
				make([]int, taps)
			for i := range offsets {
				offsets[i] = r.IntN(100)
			}
			sums, plain := make([]float32, 2*tapRun), make([]float32, 2*tapRun)
			tapSums(sums, src, offsets, weights[:taps], .25, true)
			tapSumsGo(plain, src, offsets, weights[:taps], .25)
			if !slices.Equal(sums, plain) {
				t.Fatalf("%d taps: the bits are not those of the plain loop", taps)
			}
		}
		if !narrower(t) {
			return
		}
	}
}

// Products whose columns are few, or are a half panel's and a few more, have the bits of the same
// columns among others, on either instruction set, and write nothing beside c.
func TestFewColumns(t *testing.T) {
	if !stridedPanels || !havePanels {
		t.Skip("rows fill vectors on amd64 alone")
	}
	r := rand.New(rand.NewPCG(31, 32))
	for _, wide := range []bool{true, false} {
		if !wide && !narrower(t) {
			t.Skip("this processor has no AVX-512")
		}
		for _, n := range []int{1, 2, 3, 4, 5, 17, 20, 21, 49} {
			for _, m := range []int{1, 7, 8, 9, 16, 25, 40, 300} {
				k := []int{1, 5, 400}[r.IntN(3)]
				a, b, from := laid(r, m, k, false), laid(r, k, 64, false), odd(r, padRows(m))
				high := padRows(m)
				left := make([]float32, high*k)
				packLeft(left, a)
				all, part := laid(r, m, 64, false), laid(r, m, n, false)
				was := slices.Clone(part.data)
				whole := matrix[float32]{data: odd(r, high*64), rows: m, cols: n, stride: 64}
				p := newPacks(false)
				p.multiply(left, a, b, all, from, nil)
				p.multiply(left, a, b.part(0, 0, k, n), part, from, nil)
				packPool.Put(p)
				none := laid(r, m, 64, false)
				clear(none.data)
				multiplyPanels(a, b, none, false, false)
				dense := make([]float32, k*64)
				for l := range k {
					copy(dense[l*64:][:64], b.data[l*b.stride:])
				}
				multiplyWhole(left, dense, whole.data, m, n, k, 64)
				for i := range m {
					got := part.data[i*part.stride:]
					if !same(got[:n], all.data[i*all.stride:][:n]) ||
						!same(got[n:part.stride], was[i*part.stride+n:][:part.stride-n]) {
						t.Fatalf("row %d of %d x %d x %d, AVX-512 %v: %v, want %v", i, m, n, k, wide, got[:n],
							all.data[i*all.stride:][:n])
					}
					if !same(whole.data[i*64:][:n], none.data[i*none.stride:][:n]) {
						t.Fatalf("row %d of %d x %d x %d from zero: %v, want %v", i, m, n, k, whole.data[i*64:][:n],
							none.data[i*none.stride:][:n])
					}
				}
			}
		}
	}
}

// Tiles that end with bounds have the bits of sums that are bounded afterwards, in all sizes and on
// either instruction set, and end is not called for them.
func TestBoundedTiles(t *testing.T) {
	if !boundedTiles || !havePanels {
		t.Skip("no kernel ends with bounds")
	}
	r := rand.New(rand.NewPCG(43, 44))
	for _, wide := range []bool{true, false} {
		if !wide && !narrower(t) {
			t.Skip("this processor has no AVX-512")
		}
		for i := range 300 {
			m, n, k, steps := 1+r.IntN(70), 1+r.IntN(300), []int{1, 9, 400, 800}[i%4], r.IntN(2) == 0
			then := &after{lo: []float32{-1, 0, float32(math.Inf(-1))}[r.IntN(3)], hi: 1.5}
			a, b, from := laid(r, m, k, false), laid(r, k, n, false), odd(r, padRows(m))
			b.data[r.IntN(len(b.data))] = float32(math.NaN())
			got, want := laid(r, m, n, false), laid(r, m, n, false)
			was := slices.Clone(got.data)
			p := newPacks(steps)
			p.multiply(nil, a, b, want, from, nil)
			p.bounds, p.bounded = then.bounds()
			p.multiply(nil, a, b, got, from, func(part matrix[float32], row, _ int) {
				if then.apply(part, row); part.cols > fewColumns || steps {
					t.Error("a bounded tile is bounded again")
				}
			})
			packPool.Put(p)
			for y := range m {
				row, line := got.data[y*got.stride:][:got.stride], want.data[y*want.stride:][:n]
				limitGo(line, line, 1, negativeZero, then.lo, then.hi)
				if !sameBits(row[:n], line) || !sameBits(row[n:], was[y*got.stride+n:][:got.stride-n]) {
					t.Fatalf("row %d of %d x %d x %d, AVX-512 %v: %v, want %v", y, m, n, k, wide, row[:n], line)
				}
			}
		}
	}
	if _, only := (&after{curve: swish}).bounds(); only {
		t.Error("a curve is taken for bounds")
	}
	if _, only := (&after{scale: []float32{2}, shift: []float32{0}}).bounds(); only {
		t.Error("a scale is left out")
	}
}

// A row times a constant has the bits of the same row among others, on either instruction set.
func TestRowByRight(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	for _, wide := range []bool{true, false} {
		if !wide && !narrower(t) {
			t.Skip("this processor has no AVX-512")
		}
		for _, n := range []int{1, 31, 32, 33, 100} {
			for _, k := range []int{8, 500} {
				a, b := laid(r, 3, k, false), &right{matrix: laid(r, k, n, false)}
				all, one := laid(r, 3, n, false), laid(r, 1, n, false)
				was := slices.Clone(one.data)
				copy(one.data[:n], all.data)
				b.multiply(a, 0, n, all, nil)
				b.multiply(a.part(0, 0, 1, k), 0, n, one, nil)
				if !same(one.data[:n], all.data[:n]) || !same(one.data[n:], was[n:]) {
					t.Fatalf("%d x %d, AVX-512 %v: %v, want %v", k, n, wide, one.data, all.data[:n])
				}
			}
		}
	}
}

// TestPatches: the columns of windows that lie side by side are those of any windows.
func TestPatches(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 46))
	for range 200 {
		size := []int{3 + r.IntN(4), []int{2, 4, 8, 16}[r.IntN(4)]}
		in := []int{size[0] * (1 + r.IntN(5)), size[1]*(1+r.IntN(20)) + r.IntN(2)}
		w, out, err := window{size: size, stride: size, dilation: []int{1, 1}, begin: []int{0, 0},
			end: []int{0, 0}}.fit(in)
		must.Do(t, err)
		v := &convolution[float32]{window: w, xs: []int{1, 1, in[0], in[1]}, sp: out,
			x:   tame(r, in[0]*in[1]),
			pos: out[0] * out[1], phases: must.Get(newPhases(w, in, out))(t)}
		cols := v.pos + r.IntN(3)
		got, want := make([]float32, size[0]*size[1]*cols), make([]float32, size[0]*size[1]*cols)
		if !v.phases.patches() {
			t.Fatalf("%v of %v are no patches", size, in)
		}
		patchColumns(v.phases, got, cols, v.x, make([]float32, v.phases.len()))
		tapColumns(v.phases, want, cols, v.x, make([]float32, v.phases.len()), 0, v.pos)
		if !sameBits(got, want) {
			t.Fatalf("%v of %v: %v, want %v", size, in, got, want)
		}
	}
}
