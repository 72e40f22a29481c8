package kernel

// haveEights says that windows are swept in vectors of eight.
func haveEights() bool { return havePanels }

// run sweeps the window down both strips; products are rounded before they are added where steps is
// set. Sizes are 3 and 5, strides 1 and 2: newSweeps takes no others here.
func (a *eightSweep) run(size, stride int, steps bool) {
	switch by := size*10 + stride; {
	case by == 31 && steps:
		eightSteps3(a)
	case by == 31:
		eights3(a)
	case by == 32 && steps:
		eightSteps3by2(a)
	case by == 32:
		eights3by2(a)
	case by == 51 && steps:
		eightSteps5(a)
	case by == 51:
		eights5(a)
	case steps:
		eightSteps5by2(a)
	default:
		eights5by2(a)
	}
}

//go:noescape
func eights3(a *eightSweep)

//go:noescape
func eights5(a *eightSweep)

//go:noescape
func eights3by2(a *eightSweep)

//go:noescape
func eights5by2(a *eightSweep)

//go:noescape
func eightSteps3(a *eightSweep)

//go:noescape
func eightSteps5(a *eightSweep)

//go:noescape
func eightSteps3by2(a *eightSweep)

//go:noescape
func eightSteps5by2(a *eightSweep)
