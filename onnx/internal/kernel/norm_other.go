//go:build !amd64

package kernel

func deviations([]float32, float64) (float64, bool) { return 0, false }

func normalise(_, _, _, _ []float32, _, _ float64) int { return 0 }

func normalisedLines(_, _, _, _ []float32, _ float64) bool { return false }

func turn(int, []float32, int, []float32, int) int { return 0 }
