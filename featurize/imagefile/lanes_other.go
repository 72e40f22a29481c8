//go:build !amd64

package imagefile

func (a *axis) along(sums []int32, row []int16) { a.alongGo(sums, row) }

func (a *axis) downward(dst []int16, sums []int32, rows []uint8, stride, i int) {
	downGo(a, dst, sums, rows, stride, i)
}

func (a *axis) downwardWords(dst []int16, sums []int32, rows []int16, stride, i int) {
	downGo(a, dst, sums, rows, stride, i)
}

func readPairs(luma, cb, cr, red, green, blue []uint8) {
	readPairsGo(luma, cb, cr, red, green, blue)
}

func readEach(luma, cb, cr, red, green, blue []uint8) {
	readEachGo(luma, cb, cr, red, green, blue)
}

func mix(red, green, blue []int16) { mixGo(red, green, blue) }
