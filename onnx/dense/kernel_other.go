//go:build !amd64 && !arm64

package dense

const (
	tileRows  = goRows
	twoPanels = false
)

// tile adds a b to tileRows x Width numbers of c: a is tileRows x d with distances rs and ks, b one
// panel.
func tile(d int, a []float64, rs, ks int, b []float64, _ int, c []float64, cs, _ int) {
	tileGo(Width, d, a, rs, ks, b, c, cs)
}

func tileSingle(d int, a []float32, rs int, b []float32, _ int, c []float32, cs, _ int) {
	tileGo(SingleWidth, d, a, rs, 1, b, c, cs)
}

// Instructions names the instruction set that products are done with.
func Instructions() string { return "Go" }
