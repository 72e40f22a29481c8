package dense

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
)

// laid is a random matrix that is read as rows x cols, with some room beside every stored row.
func laid(r *rand.Rand, rows, cols int, t blas.Transpose) blas64.General {
	if t != blas.NoTrans {
		rows, cols = cols, rows
	}
	g := blas64.General{Rows: rows, Cols: cols, Stride: cols + r.IntN(4)}
	g.Data = drawn[float64](r, rows*g.Stride)
	return g
}

func drawn[T float32 | float64](r *rand.Rand, n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = T(r.NormFloat64())
	}
	return v
}

func at(g blas64.General, t blas.Transpose, i, j int) float64 {
	if t != blas.NoTrans {
		i, j = j, i
	}
	return g.Data[i*g.Stride+j]
}

var flags = []blas.Transpose{blas.NoTrans, blas.Trans}

// Products are those of the definition, whatever the shape and the flags, and nothing beside c is
// written.
func TestProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 160 {
		size := func() int { return 1 + r.IntN([]int{3, 20, 70, 11}[i%4]) }
		m, n, k := size(), size(), size()
		switch i % 10 {
		case 3:
			k = 200 + r.IntN(500) // more than one block
		case 7:
			n = 450 + r.IntN(200)
		}
		ta, tb := flags[r.IntN(2)], flags[r.IntN(2)]
		a, b, c := laid(r, m, k, ta), laid(r, k, n, tb), laid(r, m, n, blas.NoTrans)
		alpha, beta := []float64{1, 1, -0.5}[r.IntN(3)], []float64{0, 1, 2}[r.IntN(3)]
		packed, was := copyOf(c), slices.Clone(c.Data)
		rowOf := make([]float64, n)
		x := make([]float64, k)
		for l := range x {
			x[l] = at(a, ta, 0, l)
		}
		Pack(tb, b, nil).MulRow(x, rowOf)
		Gemm(ta, tb, alpha, a, b, beta, c)
		Pack(tb, b, nil).Mul(ta, a, packed)
		for x := range c.Data {
			row, col := x/c.Stride, x%c.Stride
			if col >= n {
				if c.Data[x] != was[x] || packed.Data[x] != was[x] {
					t.Fatalf("%d x %d x %d: element %d beside c was written", m, n, k, x)
				}
				continue
			}
			var sum, scale float64
			for l := range k {
				p := at(a, ta, row, l) * at(b, tb, l, col)
				sum, scale = sum+p, scale+math.Abs(p)
			}
			if row == 0 && !(math.Abs(rowOf[col]-sum) <= 1e-14*scale) {
				t.Fatalf("%d x %d x %d: element %d of a row's product is %v, want %v", m, n, k, col,
					rowOf[col], sum)
			}
			scale += math.Abs(was[x])
			if want := alpha*sum + beta*was[x]; !(math.Abs(c.Data[x]-want) <= 1e-14*scale) {
				t.Fatalf("%d x %d x %d: element [%d, %d] is %v, want %v", m, n, k, row, col, c.Data[x], want)
			}
			if want := sum + was[x]; !(math.Abs(packed.Data[x]-want) <= 1e-14*scale) {
				t.Fatalf("%d x %d x %d: element [%d, %d] of a packed product is %v, want %v",
					m, n, k, row, col, packed.Data[x], want)
			}
		}
	}
}

// Products in float32 are those of the rounded operands, and those of some rows are to the bit what
// Gemm makes of them.
func TestOtherProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 60 {
		m, n, k := SingleRows*(1+r.IntN(3)), 1+r.IntN(70), 1+r.IntN(600)
		b := laid(r, k, n, blas.NoTrans)
		packed := Pack(blas.NoTrans, b, nil)
		s := packed.Single(nil)
		a := blas32.General{Rows: m, Cols: k, Stride: k + r.IntN(4)}
		a.Data = drawn[float32](r, m*a.Stride)
		c := blas32.General{Rows: m, Cols: s.Cols(), Stride: s.Cols(), Data: make([]float32, m*s.Cols())}
		s.Mul(a, c)
		rowOf := make([]float32, s.Cols())
		s.MulRow(a.Data[:k], rowOf)
		for j, v := range rowOf {
			if d := math.Abs(float64(v - c.Data[j])); !(d <= 1e-4) {
				t.Fatalf("%d x %d: element %d of a row's product is %v, want %v", n, k, j, v, c.Data[j])
			}
		}
		for x, v := range c.Data {
			row, col := x/c.Stride, x%c.Stride
			var sum, scale float64
			for l := range k {
				if col < n {
					p := float64(a.Data[row*a.Stride+l]) * float64(float32(b.Data[l*b.Stride+col]))
					sum, scale = sum+p, scale+math.Abs(p)
				}
			}
			if !(math.Abs(float64(v)-sum) <= 1e-6*scale) {
				t.Fatalf("%d x %d x %d: element [%d, %d] is %v, want %v", m, n, k, row, col, v, sum)
			}
		}

		from := r.IntN(k)
		left := laid(r, k-from, n, blas.NoTrans)
		whole := laid(r, n, n, blas.NoTrans)
		upper, square := copyOf(whole), copyOf(whole)
		packed.MulRows(from, left, upper, true)
		packed.MulRows(from, left, square, false)
		Gemm(blas.Trans, blas.NoTrans, 1, left,
			blas64.General{Rows: k - from, Cols: n, Stride: b.Stride, Data: b.Data[from*b.Stride:]}, 1,
			whole)
		for i := range n {
			for j := range n {
				at := i*whole.Stride + j
				if got, want := square.Data[at], whole.Data[at]; got != want || j >= i &&
					upper.Data[at] != want {
					t.Fatalf("%d x %d from row %d: element [%d, %d] is %v and %v, want %v", k, n,
						from, i, j, got, upper.Data[at], want)
				}
			}
		}
	}
}

// Widening takes the mean over rows out, to float64's precision.
func TestWiden(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for n := range 30 {
		c := 1 + n%7
		h, v, out := drawn[float32](r, c*(n+2)), drawn[float64](r, c*n), make([]float64, c*n)
		Widen(c, n, h, n+2, v, out, 0.5)
		for j := range n {
			var mean float64
			for k := range c {
				mean += float64(h[k*(n+2)+j]) / float64(c)
			}
			for k := range c {
				if got, want := out[k*n+j],
					float64(h[k*(n+2)+j])-mean+0.5*v[k*n+j]; math.Abs(got-want) > 1e-14 {
					t.Fatalf("%d x %d: element [%d, %d] is %v, want %v", c, n, k, j, got, want)
				}
			}
		}
	}
}

// Rows times a row, and rows added up, are those of the definition, in both precisions.
func TestRows(t *testing.T) {
	testRows[float64](t, 1e-12)
	testRows[float32](t, 1e-4)
}

func testRows[T float32 | float64](t *testing.T, slack float64) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 10 {
		for _, d := range []int{1, 7, 15, 16, 17, 48, 100} {
			a, x, by, y := drawn[T](r, n*d), drawn[T](r, d), drawn[T](r, n), drawn[T](r, d)
			was := slices.Clone(y)
			out := make([]T, n)
			Dots(a, x, out)
			AddRows(a, by, y)
			for i := range n {
				want := 0.
				for j := range d {
					want += float64(a[i*d+j]) * float64(x[j])
				}
				if !(math.Abs(float64(out[i])-want) <= slack) {
					t.Fatalf("%d rows of %d: product %d is %v, want %v", n, d, i, out[i], want)
				}
			}
			for j := range d {
				want := float64(was[j])
				for i := range n {
					want += float64(a[i*d+j]) * float64(by[i])
				}
				if !(math.Abs(float64(y[j])-want) <= slack) {
					t.Fatalf("%d rows of %d: sum %d is %v, want %v", n, d, j, y[j], want)
				}
			}
		}
	}
}

// Residuals of a softmax in float32 are those of the definition, for labels that lie apart as well.
func TestResidual(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range []int{1, 2, 3, 10, 37} {
		const n, apart = 48, 64
		a, y, w := make([]float32, c*n), make([]float32, c*apart), make([]float32, n)
		for i := range a {
			a[i] = float32(r.NormFloat64() * 8)
		}
		for i := range y {
			y[i] = r.Float32()
		}
		for i := range w {
			w[i] = 2 * r.Float32()
		}
		a[0] = -1000
		was, same := slices.Clone(a), slices.Clone(a)
		Residual(c, n, a, y, apart, w)
		residualGo(c, n, same, n, y, apart, w)
		for i := range n {
			top, sum := math.Inf(-1), 0.
			for k := range c {
				top = max(top, float64(was[k*n+i]))
			}
			for k := range c {
				sum += math.Exp(float64(was[k*n+i]) - top)
			}
			for k := range c {
				p := math.Exp(float64(was[k*n+i])-top) / sum
				want := float64(w[i])*p - float64(y[k*apart+i])
				for _, got := range []float32{a[k*n+i], same[k*n+i]} {
					if !(math.Abs(float64(got)-want) <= 4e-7) {
						t.Fatalf("%d classes, class %d of point %d: %v, want %v", c, k, i, got, want)
					}
				}
			}
		}
	}
}

// A matrix laid out in float32 at once, and parts of it, give the products of the whole.
func TestPackSingle(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, size := range [][2]int{{1, 1}, {16, 16}, {17, 5}, {40, 33}, {5, 70}} {
		n, d := size[0], size[1]
		x := laid(r, n, d, blas.NoTrans)
		across, along := PackSingle(x, nil, nil)
		if want := Pack(blas.Trans, x, nil).Single(nil); !slices.Equal(across.panels, want.panels) {
			t.Errorf("%d x %d: the transpose lies otherwise", n, d)
		}
		if want := Pack(blas.NoTrans, x, nil).Single(nil); !slices.Equal(along.panels, want.panels) {
			t.Errorf("%d x %d lies otherwise", n, d)
		}
		a := blas32.General{Rows: SingleRows, Cols: n, Stride: n, Data: drawn[float32](r, SingleRows*n)}
		whole := blas32.General{Rows: SingleRows, Cols: along.Cols(), Stride: along.Cols(),
			Data: make([]float32, SingleRows*along.Cols())}
		along.Mul(a, whole)
		parts := blas32.General{Rows: SingleRows, Cols: whole.Cols, Stride: whole.Stride,
			Data: make([]float32, len(whole.Data))}
		for from := 0; from < n; from += 3 {
			a := a
			a.Data, a.Cols = a.Data[from:], min(3, n-from)
			along.MulRows(from, a, parts)
		}
		for from := 0; from < along.Cols(); from += SingleWidth {
			c := blas32.General{Rows: SingleRows, Cols: SingleWidth, Stride: SingleWidth,
				Data: make([]float32, SingleRows*SingleWidth)}
			along.MulColumns(from, SingleWidth, a, c)
			for i, v := range whole.Data {
				if j := i%whole.Stride - from; j >= 0 && j < SingleWidth &&
					math.Abs(float64(v-c.Data[i/whole.Stride*SingleWidth+j])) > 1e-4 {
					t.Fatalf("%d x %d: columns from %d differ", n, d, from)
				}
			}
		}
		for i, v := range whole.Data {
			if math.Abs(float64(v-parts.Data[i])) > 1e-4 {
				t.Fatalf("%d x %d: rows in parts give %v, want %v", n, d, parts.Data[i], v)
			}
		}
	}
}

// Numbers in float32 are those that Go rounds to.
func TestNarrow(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for n := range 40 {
		src, dst := make([]float64, n), make([]float32, n+1)
		for i := range src {
			src[i] = r.NormFloat64() * math.Pow(10, float64(r.IntN(90)-45))
		}
		dst[n] = 7
		Narrow(dst, src)
		for i, v := range src {
			if dst[i] != float32(v) {
				t.Fatalf("%d numbers: number %d is %v, want %v", n, i, dst[i], float32(v))
			}
		}
		if dst[n] != 7 {
			t.Fatalf("%d numbers: one more was written", n)
		}
	}
}

// An element does not depend on how the product around it was cut.
func TestParts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const m, n, k = 23, 61, 300
	a, b := laid(r, m, k, blas.NoTrans), laid(r, k, n, blas.NoTrans)
	product := func(i, h, j, w int) []float64 {
		c := blas64.General{Rows: h, Cols: w, Stride: w, Data: make([]float64, h*w)}
		Gemm(blas.NoTrans, blas.NoTrans, 1,
			blas64.General{Rows: h, Cols: k, Stride: a.Stride, Data: a.Data[i*a.Stride:]},
			blas64.General{Rows: k, Cols: w, Stride: b.Stride, Data: b.Data[j:]}, 0, c)
		return c.Data
	}
	whole := product(0, m, 0, n)
	for range 50 {
		i, j := r.IntN(m), r.IntN(n)
		h, w := 1+r.IntN(m-i), 1+r.IntN(n-j)
		for x, v := range product(i, h, j, w) {
			if want := whole[(i+x/w)*n+j+x%w]; v != want {
				t.Fatalf("part %d+%d x %d+%d: %v, want %v", i, h, j, w, v, want)
			}
		}
	}
}

// Infinities and NaN of either side come through, with a zero on the other as well.
func TestOddNumbers(t *testing.T) {
	for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		for _, left := range []bool{false, true} {
			a, b, c := zeros(9, 9), zeros(9, 9), zeros(9, 9)
			if left {
				a.Data[4] = v // [0, 4]
			} else {
				b.Data[4] = v
			}
			Gemm(blas.NoTrans, blas.NoTrans, 1, a, b, 0, c)
			for i, got := range c.Data {
				hit := i%9 == 4
				if left {
					hit = i/9 == 0
				}
				if hit != math.IsNaN(got) || !hit && got != 0 {
					t.Errorf("%v on the left: %v: element %d is %v", v, left, i, got)
				}
			}
		}
	}
}

func columns(c, n, room int) Columns {
	m := Columns{C: c, N: n, Stride: n + room}
	m.Data = make([]float64, c*m.Stride)
	return m
}

// Softmaxes against math.Exp, over logits from tiny to so far apart that exp underflows.
func TestSoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 60 {
		c, n := 1+r.IntN(12), Width*(1+r.IntN(5))
		scale := math.Pow(10, float64(r.IntN(6)-2))
		l, p := columns(c, n, r.IntN(3)), columns(c, n, r.IntN(3))
		for k := range l.Data {
			l.Data[k] = scale * r.NormFloat64()
		}
		for k := range p.Data {
			p.Data[k] = 7
		}
		top, sum := make([]float64, n), make([]float64, n)
		Softmax(l, p, top, sum)
		added := columns(c, n, 1)
		copy2 := Columns{C: c, N: n, Stride: l.Stride, Data: slices.Clone(l.Data)}
		for k := range added.Data {
			added.Data[k] = 1
		}
		AddSoftmax(copy2, added, make([]float64, n), make([]float64, n))
		for x := range n {
			most, all := math.Inf(-1), 0.0
			for k := range c {
				most = max(most, l.Data[k*l.Stride+x])
			}
			for k := range c {
				all += math.Exp(l.Data[k*l.Stride+x] - most)
			}
			if top[x] != most || math.Abs(sum[x]-all) > 4e-15*all {
				t.Fatalf("case %d, column %d: top %v and sum %v, want %v and %v", i, x, top[x],
					sum[x], most, all)
			}
			for k := range c {
				want := math.Exp(l.Data[k*l.Stride+x]-most) / all
				if got := p.Data[k*p.Stride+x]; math.Abs(got-want) > 4e-15*want+1e-300 {
					t.Fatalf("case %d, class %d, column %d: %v, want %v", i, k, x, got, want)
				}
				if got := added.Data[k*added.Stride+x]; math.Abs(got-1-want) > 1e-15 {
					t.Fatalf("case %d, class %d, column %d: added to 1 %v, want %v", i, k, x, got, 1+want)
				}
			}
		}
		for k := range p.Data {
			if k%p.Stride >= n && p.Data[k] != 7 {
				t.Fatalf("element %d beside p was written", k)
			}
		}
	}
	l, p := columns(3, 8, 0), columns(3, 8, 0)
	l.Data[0], l.Data[8+1], l.Data[16+2] = math.NaN(), math.NaN(), math.Inf(1)
	Softmax(l, p, make([]float64, 8), make([]float64, 8))
	for i, v := range p.Data {
		if odd := i%8 < 3; odd != math.IsNaN(v) {
			t.Errorf("with NaN or +Inf in columns 0 to 2, class %d of column %d is %v", i/8, i%8, v)
		}
	}
}

// TestBlend: sums of probabilities and their products with logits are those of the definition, and
// nothing beside them is written.
func TestBlend(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	for i := range 40 {
		c, n := 1+r.IntN(12), Width*(1+r.IntN(5))
		l, p, sum := columns(c, n, r.IntN(3)), columns(c, n, r.IntN(3)), columns(c, n, r.IntN(3))
		inner := make([]float64, n+1)
		for _, numbers := range [][]float64{l.Data, p.Data, sum.Data, inner} {
			for k := range numbers {
				numbers[k] = r.NormFloat64()
			}
		}
		wantSum, wantInner := slices.Clone(sum.Data), slices.Clone(inner)
		for x := range n {
			for k := range c {
				wantSum[k*sum.Stride+x] += p.Data[k*p.Stride+x]
				wantInner[x] += p.Data[k*p.Stride+x] * l.Data[k*l.Stride+x]
			}
		}
		Blend(l, p, sum, inner)
		if !slices.Equal(sum.Data, wantSum) {
			t.Fatalf("case %d: sums of probabilities are %v, want %v", i, sum.Data, wantSum)
		}
		for x, v := range inner {
			if math.Abs(v-wantInner[x]) > 1e-13 {
				t.Fatalf("case %d, column %d: product %v, want %v", i, x, v, wantInner[x])
			}
		}
	}
}

// Sums of exponentials are Softmax's.
func TestExpSum(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	for i := range 40 {
		c, n, by := 1+r.IntN(12), Width*(1+r.IntN(5)), math.Exp(2*r.NormFloat64())
		l, z := make([]float32, c*n), columns(c, n, 0)
		for k := range l {
			if k >= n { // the first row is the largest
				l[k] = -float32(math.Abs(r.NormFloat64()) * math.Pow(10, float64(i%4)))
			}
			z.Data[k] = by * float64(l[k])
		}
		sum, want, top := make([]float64, n), make([]float64, n), make([]float64, n)
		ExpSum(c, n, l, by, sum)
		Softmax(z, z, top, want)
		for k, v := range sum {
			if math.Abs(v-want[k]) > 4e-15*want[k] {
				t.Fatalf("%d x %d: sum %d is %v, want %v", c, n, k, v, want[k])
			}
		}
	}
}

func TestCurve(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 40 {
		c, n := 1+r.IntN(12), Width*(1+r.IntN(4))
		a, p, w := columns(c, n, i%3), columns(c, n, i%2), make([]float64, n)
		for _, s := range [][]float64{a.Data, p.Data, w} {
			for k := range s {
				s[k] = r.Float64()
			}
		}
		want := Columns{C: c, N: n, Stride: a.Stride, Data: slices.Clone(a.Data)}
		curveGo(c, n, want.Data, want.Stride, p.Data, p.Stride, w)
		Curve(a, p, w)
		s, ps := make([]float32, c*2*n), make([]float32, c*2*n)
		ws := As[float32](slices.Concat(w, w))
		for k := range s {
			s[k], ps[k] = float32(r.Float64()), float32(r.Float64())
		}
		wantS := slices.Clone(s)
		curveGo(c, 2*n, wantS, 2*n, ps, 2*n, ws)
		CurveSingle(c, 2*n, 2*n, s, ps, ws)
		for k, v := range s {
			if math.Abs(float64(v-wantS[k])) > 1e-5 {
				t.Fatalf("%d x %d: element %d in float32 is %v, want %v", c, 2*n, k, v, wantS[k])
			}
		}
		for k, v := range a.Data {
			if math.Abs(v-want.Data[k]) > 1e-14 {
				t.Fatalf("%d x %d: element %d is %v, want %v", c, n, k, v, want.Data[k])
			}
		}
	}
}

// The tile in Go is what the others are held against, on every machine.
func TestTileInGo(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for d := 1; d < 30; d++ {
		a, b, c := drawn[float64](r, goRows*d), drawn[float64](r, Width*d), drawn[float64](r, goRows*9)
		was := slices.Clone(c)
		tileGo(Width, d, a, d, 1, b, c, 9)
		for i, v := range c {
			want := was[i]
			for l := range d {
				if i%9 < Width {
					want += a[i/9*d+l] * b[l*Width+i%9]
				}
			}
			if math.Abs(v-want) > 1e-13 {
				t.Fatalf("d %d: element %d is %v, want %v", d, i, v, want)
			}
		}
	}
}

func BenchmarkGemm(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][3]int{{10, 300, 65}, {10, 65, 300}, {200, 300, 65}, {512, 512, 512}} {
		m, n, k := s[0], s[1], s[2]
		x, y, z := laid(r, m, k, blas.NoTrans), laid(r, k, n, blas.NoTrans), laid(r, m, n, blas.NoTrans)
		packed := Pack(blas.NoTrans, y, nil)
		for name, do := range map[string]func(){
			"packed": func() { packed.Mul(blas.NoTrans, x, z) },
			"dense":  func() { Gemm(blas.NoTrans, blas.NoTrans, 1, x, y, 0, z) },
			"gonum":  func() { blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, x, y, 0, z) },
		} {
			b.Run(fmt.Sprintf("%dx%dx%d/%s", m, n, k, name), func(b *testing.B) {
				for b.Loop() {
					do()
				}
				b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9,
					"GFLOP/s")
			})
		}
	}
}

// BenchmarkSingle measures products in float32.
func BenchmarkSingle(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range [][3]int{{SingleRows, 300, 65}, {20 * SingleRows, 304, 65}, {50 * SingleRows, 512, 512}} {
		m, n, k := s[0], s[1], s[2]
		packed := Pack(blas.NoTrans, laid(r, k, n, blas.NoTrans), nil).Single(nil)
		x := blas32.General{Rows: m, Cols: k, Stride: k, Data: drawn[float32](r, m*k)}
		z := blas32.General{Rows: m, Cols: packed.Cols(), Stride: packed.Cols(),
			Data: make([]float32, m*packed.Cols())}
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			for b.Loop() {
				packed.Mul(x, z)
			}
			b.ReportMetric(2*float64(m)*float64(packed.Cols())*float64(k)*float64(
				b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
