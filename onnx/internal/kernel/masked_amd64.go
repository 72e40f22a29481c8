package kernel

// haveMasks says that tapSumsMasked is there.
func haveMasks() bool { return haveAVX512 }

// tapSumsMasked sets dst to the finished sums of weights times the elements of src that the taps of
// m read. Offsets may lie before src or behind it: masks keep loads from the elements that are not
// there.
func tapSumsMasked(m *maskedTaps, dst, src, weights []float32, f *finishing) {
	groups := (len(dst) + maskedGroup - 1) / maskedGroup
	_, _ = weights[len(m.offsets)-1], m.masks[groups*(len(m.offsets)+1)*4-1]
	tapSumsZ(len(m.offsets), groups, &dst[0], &src[0], &m.offsets[0], &weights[0], &m.masks[0], f)
}

//go:noescape
func tapSumsZ(taps, groups int, dst, src *float32, offsets *int, weights *float32,
	masks *uint16, f *finishing)
