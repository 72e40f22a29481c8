//go:build !amd64 && !arm64 && !wasm

package kernel

const panelRows, panelCols = 4, 4

const havePanels = true

// panelKernel adds a b to c: a [k, panelRows], b [k, panelCols], c panelRows rows of panelCols with
// a stride. Where from is not nil, c is set to a b plus from, a number for each row.
func panelKernel(_ manner, k int, a, b, c []float32, stride, _ int, from []float32) {
	begin(c, stride, from)
	panelGo(k, a, b, panelCols, c, stride)
}
