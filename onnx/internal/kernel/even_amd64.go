package kernel

// row replaces numbers by those of the curve, to the bit.
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

func (f evenCurve) vectors(x []float64) {
	if f == evenErfs {
		evenErfY(len(x), &x[0], &erfSeries[0], len(erfSeries)-1)
		return
	}
	evenExpY(len(x), &x[0], (*[12]float64)(overFactorials), f == evenSigmoids)
}

//go:noescape
func evenExpY(n int, x *float64, series *[12]float64, sigmoid bool)

//go:noescape
func evenErfY(n int, x, series *float64, last int)
