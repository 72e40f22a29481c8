package kernel

// row replaces numbers by those of the curve, to the bit. It is elementwise: a number's result does
// not depend on where it stands.
func (f evenCurve) row(x []float64) {
	if !havePanels {
		f.slowly(x)
		return
	}
	n := len(x) &^ 7
	if n > 0 {
		f.vectors(x[:n])
	}
	var rest [8]float64
	if copy(rest[:], x[n:]) > 0 {
		f.vectors(rest[:])
		copy(x[n:], rest[:])
	}
}

// vectors is row of a multiple of eight numbers, at least eight.
func (f evenCurve) vectors(x []float64) {
	if f == evenErfs {
		evenErfY(len(x), &x[0], &erfSeries[0], len(erfSeries)-1)
		return
	}
	evenExpY(len(x), &x[0], (*[12]float64)(overFactorials), f == evenSigmoids)
}

// doubles sets the first numbers of dst to those of src, and returns how many.
func doubles(dst []float64, src []float32) int {
	n := len(dst) &^ 7
	if !havePanels || n == 0 {
		return 0
	}
	doublesY(n, &dst[0], &src[:n][0])
	return n
}

// singles sets the first numbers of dst to those of src, rounded, and returns how many.
func singles(dst []float32, src []float64) int {
	n := len(src) &^ 7
	if !havePanels || n == 0 {
		return 0
	}
	singlesY(n, &dst[:n][0], &src[0])
	return n
}

// evenHardSwish sets dst to x min(max(x/6 + 1/2, 0), 1), rounded to float32 once.
func evenHardSwish(dst, x []float32) {
	if !havePanels {
		hardSwishSlowly(dst, x)
		return
	}
	dst = dst[:len(x)]
	n := len(x) &^ 7
	if n > 0 {
		evenHardSwishY(n, &dst[0], &x[0])
	}
	var rest [8]float32
	if copy(rest[:], x[n:]) > 0 {
		evenHardSwishY(len(rest), &rest[0], &rest[0])
		copy(dst[n:], rest[:])
	}
}

//go:noescape
func doublesY(n int, dst *float64, src *float32)

//go:noescape
func singlesY(n int, dst *float32, src *float64)

//go:noescape
func evenHardSwishY(n int, dst, x *float32)

//go:noescape
func evenExpY(n int, x *float64, series *[12]float64, sigmoid bool)

//go:noescape
func evenErfY(n int, x, series *float64, last int)
