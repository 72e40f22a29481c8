package kernel

const panelRows, panelCols = 4, 16

// Every arm64 that Go runs on has NEON.
const havePanels = true

// panelKernel adds a b to c: a [k, panelRows], b [k, panelCols], c panelRows rows of panelCols with
// a stride. Where from is not nil, c is set to a b plus from, a number for each row. Assembly
// checks no bounds, so the furthest elements are looked at first.
func panelKernel(by manner, k int, a, b, c []float32, stride, _ int, from []float32) {
	begin(c, stride, from)
	_, _, _ = a[k*panelRows-1], b[k*panelCols-1], c[(panelRows-1)*stride+panelCols-1]
	if by.steps {
		panelSteps4x16(k, &a[0], &b[0], &c[0], stride)
		return
	}
	panel4x16(k, &a[0], &b[0], &c[0], stride)
}

// panel4x16 needs k of at least 1, as does panelSteps4x16, which rounds every product.
//
//go:noescape
func panel4x16(k int, a, b, c *float32, stride int)

//go:noescape
func panelSteps4x16(k int, a, b, c *float32, stride int)
