package jpeg

import "golang.org/x/sys/cpu"

var haveLanes = cpu.X86.HasAVX2

// factors are the numbers that eight and put have, eight lanes each.
//
//lint:ignore U1000 lanes_amd64.s reads them
var factors = func() (f [17][8]int32) {
	for i, v := range [...]int32{c0541, c1847, c0765, c1175, -c0899, -c2562, -c1961, -c0390,
		c0298, c2053, c3072, c1501,
		1 << (fraction - between - 1), 1 << (eighth + fraction + between - 1),
		128 * 0x10001, beyond * 0x10001, -beyond<<16 | -beyond&0xffff} {
		for k := range f[i] {
			f[i][k] = v
		}
	}
	return f
}()

// eightByEight is passes and put for 8 x 8 points, where the processor has the lanes for them.
func (d *decoder) eightByEight(p *Plane, at int) bool {
	switch {
	case !haveLanes:
		return false
	case p.Whole != nil:
		// The assembly checks no bounds: the last byte that it writes must be there.
		_ = p.Whole[at+7*p.Stride+7]
		wholeY(&d.block[0], &p.Whole[at], p.Stride)
	default:
		_ = p.Reduced[at+7*p.Stride+7]
		reducedY(&d.block[0], &p.Reduced[at], p.Stride)
	}
	return true
}

// wholeY writes the samples of a block into rows that begin stride samples after each other.
//
//go:noescape
func wholeY(block *int32, to *uint8, stride int)

// reducedY is wholeY for samples less 128, which are not cut off at 0 and 255.
//
//go:noescape
func reducedY(block *int32, to *int16, stride int)
