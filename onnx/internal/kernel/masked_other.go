//go:build !amd64

package kernel

// haveMasks says that tapSumsMasked is not there.
func haveMasks() bool { return false }

func tapSumsMasked(*maskedTaps, []float32, []float32, []float32, *finishing) {}
