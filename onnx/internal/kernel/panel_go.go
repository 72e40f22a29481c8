package kernel

// panelGo adds a b to c in plain Go, every product rounded: a [k, 4], b k rows of four that lie bs
// apart, c four rows of four with a stride. Sixteen sums are variables of their own, which
// compilers keep in registers as far as they have them. The conversions to float32 keep compilers
// from fusing a product with its sum (Go specification, floating-point operators).
func panelGo(k int, a, b []float32, bs int, c []float32, stride int) {
	r0, r1, r2, r3 := (*[4]float32)(c), (*[4]float32)(c[stride:]), (*[4]float32)(c[2*stride:]),
		(*[4]float32)(c[3*stride:])
	c00, c01, c02, c03 := r0[0], r0[1], r0[2], r0[3]
	c10, c11, c12, c13 := r1[0], r1[1], r1[2], r1[3]
	c20, c21, c22, c23 := r2[0], r2[1], r2[2], r2[3]
	c30, c31, c32, c33 := r3[0], r3[1], r3[2], r3[3]
	for l := range k {
		x, y := (*[4]float32)(a[4*l:]), (*[4]float32)(b[bs*l:])
		y0, y1, y2, y3 := y[0], y[1], y[2], y[3]
		v := x[0]
		c00 += float32(v * y0)
		c01 += float32(v * y1)
		c02 += float32(v * y2)
		c03 += float32(v * y3)
		v = x[1]
		c10 += float32(v * y0)
		c11 += float32(v * y1)
		c12 += float32(v * y2)
		c13 += float32(v * y3)
		v = x[2]
		c20 += float32(v * y0)
		c21 += float32(v * y1)
		c22 += float32(v * y2)
		c23 += float32(v * y3)
		v = x[3]
		c30 += float32(v * y0)
		c31 += float32(v * y1)
		c32 += float32(v * y2)
		c33 += float32(v * y3)
	}
	*r0 = [4]float32{c00, c01, c02, c03}
	*r1 = [4]float32{c10, c11, c12, c13}
	*r2 = [4]float32{c20, c21, c22, c23}
	*r3 = [4]float32{c30, c31, c32, c33}
}
