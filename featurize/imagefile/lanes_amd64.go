package imagefile

import "golang.org/x/sys/cpu"

// haveLanes says that the processor has AVX2, in whose instructions all lanes are written.
var haveLanes = cpu.X86.HasAVX2

// along is alongGo.
func (a *axis) along(sums []int32, row []int16) {
	n := len(sums)
	if !haveLanes || n == 0 {
		a.alongGo(sums, row)
		return
	}
	// Lanes check no bounds: these indexes fail where they would read beyond a slice.
	_, _, _ = row[a.from+a.taps-1], a.weights[n*a.taps-1], a.first[n-1]
	alongY(n, a.taps, &sums[0], &row[0], &a.first[0], &a.weights[0])
}

// lanes returns how many of n values are computed in lanes, with how many pairs of rows. A row that
// is not there has weight 0; there is memory for it.
func (a *axis) lanes(n, i int) (values, pairs int) {
	if !haveLanes {
		return 0, 0
	}
	return n &^ (tapGroup - 1), (a.present(i) + 1) / 2
}

// downward is downGo.
func (a *axis) downward(dst []int16, sums []int32, rows []uint8, stride, i int) {
	n, pairs := a.lanes(len(dst), i)
	if n > 0 {
		_ = rows[(2*pairs-1)*stride+n-1]
		shift := a.bits - middleBits
		downY(n, pairs, &dst[0], &rows[0], stride, &a.line(i)[0], 1<<(shift-1), int(shift))
	}
	downGo(a, dst[n:], sums, rows[n:], stride, i)
}

// downwardWords is downward for values of 16 bits.
func (a *axis) downwardWords(dst []int16, sums []int32, rows []int16, stride, i int) {
	n, pairs := a.lanes(len(dst), i)
	if n > 0 {
		_ = rows[(2*pairs-1)*stride+n-1]
		shift := a.bits - middleBits
		downWordsY(n, pairs, &dst[0], &rows[0], stride, &a.line(i)[0], 1<<(shift-1), int(shift))
	}
	downGo(a, dst[n:], sums, rows[n:], stride, i)
}

// alongY sets n sums to the products of taps weights, a multiple of 16, with values of row from
// first on.
//
//go:noescape
func alongY(n, taps int, sums *int32, row *int16, first *int, weights *int16)

// downY sets n values of dst, a multiple of 16, to (half + the sum of 2*pairs rows times weights)
// >> shift.
//
//go:noescape
func downY(n, pairs int, dst *int16, rows *uint8, stride int, weights *int16, half int, shift int)

// downWordsY is downY for rows of 16 bits.
//
//go:noescape
func downWordsY(n, pairs int, dst *int16, rows *int16, stride int, weights *int16,
	half int, shift int)

// readPairs is readPairsGo.
func readPairs(luma, cb, cr, red, green, blue []uint8) {
	n := len(luma) &^ 15
	if !haveLanes || n == 0 {
		readPairsGo(luma, cb, cr, red, green, blue)
		return
	}
	_, _, _, _, _ = cb[n/2-1], cr[n/2-1], red[n-1], green[n-1], blue[n-1]
	pairsY(n, &luma[0], &cb[0], &cr[0], &red[0], &green[0], &blue[0])
	readPairsGo(luma[n:], cb[n/2:], cr[n/2:], red[n:], green[n:], blue[n:])
}

// pairsY is readPairsGo for a multiple of 16 pixels.
//
//go:noescape
func pairsY(n int, luma, cb, cr, red, green, blue *uint8)

// readEach is readEachGo.
func readEach(luma, cb, cr, red, green, blue []uint8) {
	n := len(luma) &^ 7
	if !haveLanes || n == 0 {
		readEachGo(luma, cb, cr, red, green, blue)
		return
	}
	_, _, _, _, _ = cb[n-1], cr[n-1], red[n-1], green[n-1], blue[n-1]
	eachY(n, &luma[0], &cb[0], &cr[0], &red[0], &green[0], &blue[0])
	readEachGo(luma[n:], cb[n:], cr[n:], red[n:], green[n:], blue[n:])
}

// eachY is readEachGo for a multiple of 8 pixels.
//
//go:noescape
func eachY(n int, luma, cb, cr, red, green, blue *uint8)

// mix is mixGo.
func mix(red, green, blue []int16) {
	n := len(red) &^ 7
	if !haveLanes || n == 0 {
		mixGo(red, green, blue)
		return
	}
	_, _ = green[n-1], blue[n-1]
	mixY(n, &red[0], &green[0], &blue[0])
	mixGo(red[n:], green[n:], blue[n:])
}

// mixY is mixGo for a multiple of 8 samples.
//
//go:noescape
func mixY(n int, red, green, blue *int16)
