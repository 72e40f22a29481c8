package kernel

import "golang.org/x/sys/cpu"

const panelRows, panelCols = 6, 16

var havePanels = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// panelKernel adds a b to c: a [k, panelRows], b [k, panelCols], c panelRows rows of panelCols with a stride.
func panelKernel(k int, a, b, c []float32, stride int) {
	_, _, _ = a[k*panelRows-1], b[k*panelCols-1], c[(panelRows-1)*stride+panelCols-1]
	panel6x16(k, &a[0], &b[0], &c[0], stride)
}

// panel6x16 needs AVX2 and FMA, and k of at least 1.
//
//go:noescape
func panel6x16(k int, a, b, c *float32, stride int)
