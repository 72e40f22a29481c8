package dense

const (
	tileRows  = 5
	twoPanels = false
)

// tile adds a b to tileRows x Width numbers of c: a is tileRows x d with distances rs and ks, b one
// panel. Assembly checks no bounds, so the furthest elements are looked at first.
func tile(d int, a []float64, rs, ks int, b []float64, _ int, c []float64, cs, _ int) {
	_, _, _ = a[(tileRows-1)*rs+(d-1)*ks], b[d*Width-1], c[(tileRows-1)*cs+Width-1]
	tile5x8(d, &a[0], rs, ks, &b[0], &c[0], cs)
}

func tileSingle(d int, a []float32, rs int, b []float32, _ int, c []float32, cs, _ int) {
	_, _, _ = a[(tileRows-1)*rs+d-1], b[d*SingleWidth-1], c[(tileRows-1)*cs+SingleWidth-1]
	tile5x16s(d, &a[0], rs, 1, &b[0], &c[0], cs)
}

// Instructions names the instruction set that products are done with.
func Instructions() string { return "NEON" }

// tile5x8 needs d of at least 1; distances are in numbers.
//
//go:noescape
func tile5x8(d int, a *float64, rs, ks int, b *float64, c *float64, cs int)

//go:noescape
func tile5x16s(d int, a *float32, rs, ks int, b *float32, c *float32, cs int)
