package kernel

import "golang.org/x/sys/cpu"

const panelRows, panelCols = 8, 32

var (
	havePanels = cpu.X86.HasAVX2 && cpu.X86.HasFMA
	haveAVX512 = cpu.X86.HasAVX512F && havePanels
)

// stridedPanels says that panelStrided is there.
const stridedPanels = true

// panelKernel adds a b to c: a [k, panelRows], b [k, panelCols], c panelRows rows of panelCols with a stride, of which the first
// w are wanted. The sums are the same to the bit with either instruction set.
func panelKernel(k int, a, b, c []float32, stride, w int) {
	panelStrided(k, a, b, panelCols, c, stride, w)
}

// panelStrided is panelKernel for a b whose rows lie bs apart.
func panelStrided(k int, a, b []float32, bs int, c []float32, stride, w int) {
	wide := min(w+15, panelCols) / 16 * 16
	_, _, _ = a[k*panelRows-1], b[(k-1)*bs+wide-1], c[(panelRows-1)*stride+wide-1]
	switch {
	case haveAVX512 && w > 16:
		panel8x32(k, &a[0], &b[0], bs, &c[0], stride)
	case haveAVX512:
		panel8x16(k, &a[0], &b[0], bs, &c[0], stride)
	default:
		for j := 0; j < w; j += 16 {
			panel4x16(k, &a[0], &b[j], bs, &c[j], stride)
			panel4x16(k, &a[4], &b[j], bs, &c[4*stride+j], stride)
		}
	}
}

//go:noescape
func panel8x32(k int, a, b *float32, bs int, c *float32, stride int)

//go:noescape
func panel8x16(k int, a, b *float32, bs int, c *float32, stride int)

//go:noescape
func panel4x16(k int, a, b *float32, bs int, c *float32, stride int)
