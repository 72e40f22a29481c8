package kernel

// run sweeps the window down one strip of a plane, or down two planes where both is set.
func (a *sweep) run(size, stride int, both bool) {
	switch {
	case both && size == 3 && stride == 1:
		sweepTwo3(a)
	case both && size == 3:
		sweepTwo3by2(a)
	case both && stride == 1:
		sweepTwo5(a)
	case both:
		sweepTwo5by2(a)
	case size == 3 && stride == 1:
		sweep3(a)
	case size == 3:
		sweep3by2(a)
	case stride == 1:
		sweep5(a)
	default:
		sweep5by2(a)
	}
}

//go:noescape
func sweep3(a *sweep)

//go:noescape
func sweep5(a *sweep)

//go:noescape
func sweep3by2(a *sweep)

//go:noescape
func sweep5by2(a *sweep)

//go:noescape
func sweepTwo3(a *sweep)

//go:noescape
func sweepTwo5(a *sweep)

//go:noescape
func sweepTwo3by2(a *sweep)

//go:noescape
func sweepTwo5by2(a *sweep)
