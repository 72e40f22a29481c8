//go:build !amd64

package kernel

// stridedPanels says that no kernel reads b where it lies. Callers ask it before they call the
// functions below, whose panics are never met.
const stridedPanels = false

// boundedTiles says that no kernel ends with bounds.
const boundedTiles = false

func panelStrided(manner, int, int, []float32, []float32, int, []float32, int, int, []float32) {
	panic("no kernel reads b where it lies")
}

func panelRow(int, []float32, []float32, []float32) {
	panic("no kernel takes a row alone")
}

func panelColumn(int, []float32, []float32, int, []float32) {
	panic("no kernel reads b where it lies")
}

func panelFew(int, []float32, []float32, []float32, int, *[fewColumns][2 * panelRows]float32,
	*[2 * panelRows][fewColumns]float32) {
	panic("no kernel reads b where it lies")
}

// panelUnit is the number of columns of which kernels read and write multiples.
func panelUnit() int { return panelCols }

// begin fills the rows of c with the numbers from, where that is not nil.
func begin(c []float32, stride int, from []float32) {
	if from != nil {
		for r := range panelRows {
			fillRange(c[r*stride:][:panelCols], from[r])
		}
	}
}

// packRuns has no vectors here.
func packRuns([]float32, matrix[float32]) bool { return false }

func haveRuns() bool { return false }

func tapRuns([]float32, []float32, []int, []tapPiece) {
	panic("no kernel lays out what taps read")
}

func widest(int) bool { return false }
