package kernel

// run sweeps the window down one strip of a plane, or down two planes where both is set. Sizes are
// 3, 5 and 7; that of 7 comes with a stride of 1 and one plane alone.
func (a *sweep) run(size, stride int, both bool) {
	switch {
	case size == 7:
		sweep7(a)
	case !both && a.plain:
		a.runPlain(size, stride)
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

// runPlain is run of one strip, of sums that are neither scaled nor shifted.
func (a *sweep) runPlain(size, stride int) {
	switch {
	case size == 3 && stride == 1:
		sweep3Plain(a)
	case size == 3:
		sweep3by2Plain(a)
	case stride == 1:
		sweep5Plain(a)
	default:
		sweep5by2Plain(a)
	}
}

//go:noescape
func sweep3Plain(a *sweep)

//go:noescape
func sweep5Plain(a *sweep)

//go:noescape
func sweep3by2Plain(a *sweep)

//go:noescape
func sweep5by2Plain(a *sweep)

//go:noescape
func sweep3(a *sweep)

//go:noescape
func sweep5(a *sweep)

//go:noescape
func sweep7(a *sweep)

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
