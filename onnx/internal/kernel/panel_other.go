//go:build !amd64 && !arm64

package kernel

const panelRows, panelCols = 4, 4

const havePanels = true

// panelKernel adds a b to c: a [k, panelRows], b [k, panelCols], c panelRows rows of panelCols with a stride.
func panelKernel(k int, a, b, c []float32, stride, _ int) { panelGo(k, a, b, c, stride) }

const stridedPanels = false

func panelStrided(int, []float32, []float32, int, []float32, int, int) {
	panic("no kernel reads b where it lies")
}
