package dense

import "golang.org/x/sys/cpu"

var (
	// asked of the processor once, when the program starts
	haveAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && haveAVX2
	haveAVX2   = cpu.X86.HasAVX2 && cpu.X86.HasFMA
)

// tileRows is the rows of the largest tile; smaller ones divide it. Two panels at a time are for
// AVX-512.
const tileRows = 10

var twoPanels = haveAVX512

// tile adds a b to tileRows x w numbers of c: a is tileRows x d with distances rs and ks, b one
// panel (w = Width) or two that are bs apart.
func tile(d int, a []float64, rs, ks int, b []float64, bs int, c []float64, cs, w int) {
	// Assembly checks no bounds: the furthest elements that it reaches are looked at here.
	_, _ = a[(tileRows-1)*rs+(d-1)*ks], c[(tileRows-1)*cs+w-1]
	switch {
	case haveAVX512 && w > Width:
		_ = b[bs+d*Width-1]
		tile10x16(d, &a[0], rs, ks, &b[0], bs, &c[0], cs)
	case haveAVX512:
		_ = b[d*Width-1]
		tile10x8(d, &a[0], rs, ks, &b[0], &c[0], cs)
	case haveAVX2:
		_ = b[d*Width-1]
		tile5x8(d, &a[0], rs, ks, &b[0], &c[0], cs)
		tile5x8(d, &a[5*rs], rs, ks, &b[0], &c[5*cs], cs)
	default:
		tileGo(Width, d, a, rs, ks, b, c, cs)
		tileGo(Width, d, a[5*rs:], rs, ks, b, c[5*cs:], cs)
	}
}

// tileSingle is tile in float32: panels have SingleWidth columns, and rows of a lie rs apart.
func tileSingle(d int, a []float32, rs int, b []float32, bs int, c []float32, cs, w int) {
	_, _ = a[(tileRows-1)*rs+d-1], c[(tileRows-1)*cs+w-1]
	switch {
	case haveAVX512 && w > SingleWidth:
		_ = b[bs+d*SingleWidth-1]
		tile10x32s(d, &a[0], rs, 1, &b[0], bs, &c[0], cs)
	case haveAVX512:
		_ = b[d*SingleWidth-1]
		tile10x16s(d, &a[0], rs, 1, &b[0], &c[0], cs)
	case haveAVX2:
		_ = b[d*SingleWidth-1]
		tile5x16s(d, &a[0], rs, 1, &b[0], &c[0], cs)
		tile5x16s(d, &a[5*rs], rs, 1, &b[0], &c[5*cs], cs)
	default:
		tileGo(SingleWidth, d, a, rs, 1, b, c, cs)
		tileGo(SingleWidth, d, a[5*rs:], rs, 1, b, c[5*cs:], cs)
	}
}

// Instructions names the instruction set that products are done with.
func Instructions() string {
	switch {
	case haveAVX512:
		return "AVX-512"
	case haveAVX2:
		return "AVX2"
	}
	return "Go"
}

// softmax is softmaxGo, in vectors where the processor has them; callers have checked the shapes.
func softmax(c, n int, l []float64, ls int, e []float64, es int, p []float64, ps int, add bool, top,
	sum []float64) {
	switch {
	case n == 0:
	case haveAVX512:
		softmaxZ(c, n, &l[0], ls, &e[0], es, &p[0], ps, add, &top[0], &sum[0])
	case haveAVX2:
		softmaxY(c, n, &l[0], ls, &e[0], es, &p[0], ps, add, &top[0], &sum[0])
	default:
		softmaxGo(c, n, l, ls, e, es, p, ps, add, top, sum)
	}
}

// blend is blendGo, in vectors where the processor has them.
func blend(c, n int, l []float64, ls int, p []float64, ps int, s []float64, ss int,
	inner []float64) {
	switch {
	case n == 0:
	case haveAVX2:
		blendY(c, n, &l[0], ls, &p[0], ps, &s[0], ss, &inner[0])
	default:
		blendGo(c, n, l, ls, p, ps, s, ss, inner)
	}
}

// expSum is expSumGo, in vectors where the processor has them.
func expSum(c, n int, l []float32, ls int, by float64, sum []float64) {
	switch {
	case n == 0:
	case haveAVX512:
		expSumZ(c, n, &l[0], ls, by, &sum[0])
	case haveAVX2:
		expSumY(c, n, &l[0], ls, by, &sum[0])
	default:
		expSumGo(c, n, l, ls, by, sum)
	}
}

// curve is curveGo, in vectors where the processor has them.
func curve(c, n int, a []float64, as int, p []float64, ps int, w []float64) {
	switch {
	case n == 0:
	case haveAVX2:
		curveY(c, n, &a[0], as, &p[0], ps, &w[0])
	default:
		curveGo(c, n, a, as, p, ps, w)
	}
}

// curveSingle is curveGo in float32, where a vector has twice as many numbers.
func curveSingle(c, n int, a []float32, as int, p []float32, ps int, w []float32) {
	switch {
	case n == 0:
	case haveAVX2:
		curveYs(c, n, &a[0], as, &p[0], ps, &w[0])
	default:
		curveGo(c, n, a, as, p, ps, w)
	}
}

// residual is residualGo, in vectors where the processor has them.
func residual(c, n int, a []float32, as int, y []float32, ys int, w []float32) {
	switch {
	case n == 0:
	case haveAVX2:
		residualYs(c, n, &a[0], as, &y[0], ys, &w[0])
	default:
		residualGo(c, n, a, as, y, ys, w)
	}
}

// narrow writes n groups of Width numbers in float32 to groups that are step numbers apart.
func narrow(n int, from []float64, to []float32, step int) {
	switch {
	case n == 0:
	case haveAVX2:
		_, _ = from[n*Width-1], to[(n-1)*step+Width-1]
		narrowY(n, &from[0], &to[0], step)
	default:
		narrowGo(n, from, to, step)
	}
}

// row adds a b to Width numbers of c, for one row a of d numbers and one panel b.
func row(d int, a, b, c []float64) {
	_, _, _ = a[d-1], b[d*Width-1], c[Width-1]
	if haveAVX2 {
		rowY(d, &a[0], &b[0], &c[0])
		return
	}
	rowGo(d, a, b, c)
}

// rowSingle is row for SingleWidth numbers.
func rowSingle(d int, a, b, c []float32) {
	_, _, _ = a[d-1], b[d*SingleWidth-1], c[SingleWidth-1]
	if haveAVX2 {
		rowYs(d, &a[0], &b[0], &c[0])
		return
	}
	rowSingleGo(d, a, b, c)
}

// widen is Widen for the first columns, and returns how many it did.
func widen(c, n int, h []float32, hs int, v, out []float64, l2 float64) int {
	n = n / Width * Width
	if !haveAVX2 || n == 0 || c == 0 {
		return 0
	}
	widenY(c, n, &h[0], hs, &v[0], &out[0], len(v)/c, 1/float64(c), l2)
	return n
}

// half4 adds four rows of a times by to y, and sets sums to their products with x, for the first
// columns of n. It returns how many.
func half4(n int, a []float64, as int, x, y []float64, by, sums *[4]float64) int {
	n = n / 4 * 4
	if !haveAVX2 || n == 0 {
		return 0
	}
	_, _, _ = a[3*as+n-1], x[n-1], y[n-1]
	halfY(n, &a[0], as, &x[0], &y[0], by, sums)
	return n
}

// dots4 sets out to the products of four rows of a, as apart, with x, for the first columns of n,
// and returns how many.
func dots4[T float32 | float64](n int, a []T, as int, x, out []T) int {
	n = n / SingleWidth * SingleWidth
	if !haveAVX2 || n == 0 {
		return 0
	}
	_, _, _ = a[3*as+n-1], x[n-1], out[3]
	switch a := any(&a[0]).(type) {
	case *float64:
		dotsY(n, a, as, any(&x[0]).(*float64), any(&out[0]).(*float64))
	case *float32:
		dotsYs(n, a, as, any(&x[0]).(*float32), any(&out[0]).(*float32))
	}
	return n
}

// adds4 adds four rows of a, as apart, times by to y, for the first columns of n, and returns how
// many.
func adds4[T float32 | float64](n int, a []T, as int, by, y []T) int {
	n = n / SingleWidth * SingleWidth
	if !haveAVX2 || n == 0 {
		return 0
	}
	_, _, _ = a[3*as+n-1], by[3], y[n-1]
	switch a := any(&a[0]).(type) {
	case *float64:
		addsY(n, a, as, any(&by[0]).(*float64), any(&y[0]).(*float64))
	case *float32:
		addsYs(n, a, as, any(&by[0]).(*float32), any(&y[0]).(*float32))
	}
	return n
}

// Of these four, n is a multiple of 16, at least 16.
//
//go:noescape
func dotsY(n int, a *float64, as int, x, out *float64)

//go:noescape
func dotsYs(n int, a *float32, as int, x, out *float32)

//go:noescape
func addsY(n int, a *float64, as int, by, y *float64)

//go:noescape
func addsYs(n int, a *float32, as int, by, y *float32)

// n is a multiple of 4, at least 4.
//
//go:noescape
func halfY(n int, a *float64, as int, x, y *float64, by, sums *[4]float64)

//go:noescape
func rowY(d int, a, b, c *float64)

// The tiles need d of at least 1; distances are in numbers.

//go:noescape
func tile10x16(d int, a *float64, rs, ks int, b *float64, bs int, c *float64, cs int)

//go:noescape
func tile10x8(d int, a *float64, rs, ks int, b *float64, c *float64, cs int)

//go:noescape
func tile5x8(d int, a *float64, rs, ks int, b *float64, c *float64, cs int)

// n is a multiple of 8, at least 8.
//
//go:noescape
func softmaxZ(c, n int, l *float64, ls int, e *float64, es int, p *float64, ps int, add bool,
	top, sum *float64)

//go:noescape
func softmaxY(c, n int, l *float64, ls int, e *float64, es int, p *float64, ps int, add bool,
	top, sum *float64)

//go:noescape
func blendY(c, n int, l *float64, ls int, p *float64, ps int, s *float64, ss int, inner *float64)

//go:noescape
func expSumZ(c, n int, l *float32, ls int, by float64, sum *float64)

//go:noescape
func expSumY(c, n int, l *float32, ls int, by float64, sum *float64)

//go:noescape
func curveY(c, n int, a *float64, as int, p *float64, ps int, w *float64)

// The names that end in s are of float32, with panels of as many bytes.

//go:noescape
func tile10x32s(d int, a *float32, rs, ks int, b *float32, bs int, c *float32, cs int)

//go:noescape
func tile10x16s(d int, a *float32, rs, ks int, b *float32, c *float32, cs int)

//go:noescape
func tile5x16s(d int, a *float32, rs, ks int, b *float32, c *float32, cs int)

//go:noescape
func rowYs(d int, a, b, c *float32)

// n is a multiple of 8, at least 8.
//
//go:noescape
func widenY(c, n int, h *float32, hs int, v, out *float64, vs int, share, l2 float64)

//go:noescape
func narrowY(n int, from *float64, to *float32, step int)

// n is a multiple of 8.
//
//go:noescape
func residualYs(c, n int, a *float32, as int, y *float32, ys int, w *float32)

// n is a multiple of 16.
//
//go:noescape
func curveYs(c, n int, a *float32, as int, p *float32, ps int, w *float32)
