//go:build !amd64

package kernel

// row replaces numbers by those of the curve.
func (f evenCurve) row(x []float64) { f.slowly(x) }

// doubles and singles do no element: their callers go on from the number that is returned.
func doubles([]float64, []float32) int { return 0 }

func singles([]float32, []float64) int { return 0 }

// evenHardSwish sets dst to x min(max(x/6 + 1/2, 0), 1), rounded to float32 once.
func evenHardSwish(dst, x []float32) { hardSwishSlowly(dst, x) }
