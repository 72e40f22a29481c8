package kernel

const panelRows, panelCols = 4, 16

// Every arm64 that Go runs on has NEON.
const havePanels = true

// panelKernel adds a b to c: a [k, panelRows], b [k, panelCols], c panelRows rows of panelCols with a stride.
func panelKernel(k int, a, b, c []float32, stride, _ int) {
	_, _, _ = a[k*panelRows-1], b[k*panelCols-1], c[(panelRows-1)*stride+panelCols-1]
	panel4x16(k, &a[0], &b[0], &c[0], stride)
}

// panel4x16 needs k of at least 1.
//
//go:noescape
func panel4x16(k int, a, b, c *float32, stride int)

const stridedPanels = false

func panelStrided(int, []float32, []float32, int, []float32, int, int) {
	panic("no kernel reads b where it lies")
}
