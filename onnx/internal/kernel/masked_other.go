//go:build !amd64

package kernel

func haveMasks() bool { return false }

func tapSumsMasked(*maskedTaps, []float32, []float32, []float32, *finishing) {}
