//go:build !amd64

package kernel

// deviations and normalisedLines are false, and their callers go on in Go.
func deviations([]float32, float64) (float64, bool) { return 0, false }

// normalise and turn do no element: their callers go on from the number that is returned.
func normalise(_, _, _, _ []float32, _, _ float64) int { return 0 }

func normalisedLines(_, _, _, _ []float32, _ float64) bool { return false }

func turn(int, []float32, int, []float32, int) int { return 0 }
