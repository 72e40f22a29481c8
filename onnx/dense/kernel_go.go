package dense

// goRows is the rows of tileGo's tile, of Width columns. Ten sums, two columns of five rows, fit
// the sixteen registers of common processors beside the operands.
const goRows = 5

// tileGo adds a b to a tile of c in Go, two columns at a time so that the sums fit registers: a is
// goRows x d with distances rs and ks, b [d, width]. c[i, j] += Σ_l a[i rs + l ks] b[l, j]. Rows of
// c begin cs apart, and width is even.
func tileGo[T float32 | float64](width, d int, a []T, rs, ks int, b []T, c []T, cs int) {
	for j := 0; j < width; j += 2 {
		var s00, s01, s10, s11, s20, s21, s30, s31, s40, s41 T
		for at, l := 0, j; l < d*width; at, l = at+ks, l+width {
			x, y := b[l], b[l+1]
			v := a[at]
			s00 += v * x
			s01 += v * y
			v = a[at+rs]
			s10 += v * x
			s11 += v * y
			v = a[at+2*rs]
			s20 += v * x
			s21 += v * y
			v = a[at+3*rs]
			s30 += v * x
			s31 += v * y
			v = a[at+4*rs]
			s40 += v * x
			s41 += v * y
		}
		c[j] += s00
		c[j+1] += s01
		c[cs+j] += s10
		c[cs+j+1] += s11
		c[2*cs+j] += s20
		c[2*cs+j+1] += s21
		c[3*cs+j] += s30
		c[3*cs+j+1] += s31
		c[4*cs+j] += s40
		c[4*cs+j+1] += s41
	}
}

// rowGo adds a b to Width numbers of c, for one row a of d numbers and one panel b. c[j] += Σ_l
// a[l] b[l, j]. The panel is [d, Width], row by row.
func rowGo(d int, a, b, c []float64) {
	// The conversion checks the length once, and panics where c is shorter than a panel is wide.
	to := (*[Width]float64)(c)
	s0, s1, s2, s3, s4, s5, s6, s7 := to[0], to[1], to[2], to[3], to[4], to[5], to[6], to[7]
	for l, v := range a[:d] {
		p := (*[Width]float64)(b[l*Width:])
		s0 += v * p[0]
		s1 += v * p[1]
		s2 += v * p[2]
		s3 += v * p[3]
		s4 += v * p[4]
		s5 += v * p[5]
		s6 += v * p[6]
		s7 += v * p[7]
	}
	*to = [Width]float64{s0, s1, s2, s3, s4, s5, s6, s7}
}

// narrowGo rounds n runs of Width numbers to float32; in `to` they begin step numbers apart.
func narrowGo(n int, from []float64, to []float32, step int) {
	for l := range n {
		f, t := (*[Width]float64)(from[l*Width:]), (*[Width]float32)(to[l*step:])
		for i, v := range f {
			t[i] = float32(v)
		}
	}
}

// rowSingleGo is rowGo in float32, for a panel of SingleWidth columns.
func rowSingleGo(d int, a, b, c []float32) {
	to := (*[SingleWidth]float32)(c)
	for l, v := range a[:d] {
		p := (*[SingleWidth]float32)(b[l*SingleWidth:])
		for j, x := range p {
			to[j] += v * x
		}
	}
}
