//go:build !amd64

package kernel

func haveEights() bool { return false }

func (a *eightSweep) run(int, int, bool) { panic("no kernel sweeps a window") }
