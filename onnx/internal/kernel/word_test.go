package kernel

import (
	"math"
	"testing"

	"math/rand/v2"
)

// TestWord: numbers truncate to whole numbers of each type as [bounded] has it, at the ends of the
// types and elsewhere.
func TestWord(t *testing.T) {
	numbers := []float64{0, math.Copysign(0, -1), 0.5, -0.5, 1, -1, math.NaN(),
		math.Inf(1), math.Inf(-1), math.MaxFloat32, -math.MaxFloat32, 5e-324}
	for _, e := range []int{7, 8, 15, 16, 31, 32, 53, 62, 63, 64, 65} {
		x := math.Ldexp(1, e)
		for _, v := range []float64{x, x - 1, x + 1, math.Nextafter(x, 0), math.Nextafter(x, 2*x)} {
			numbers = append(numbers, v, -v)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		numbers = append(numbers, math.Ldexp(r.Float64()-0.5, r.IntN(70)))
	}
	for _, of := range []struct {
		lo int64
		hi uint64
	}{{math.MinInt8, math.MaxInt8}, {math.MinInt32, math.MaxInt32}, {math.MinInt64, math.MaxInt64},
		{0, math.MaxUint8}, {0, math.MaxUint32},
		{0, math.MaxUint64}} {
		b := newWholes(of.lo, of.hi)
		for _, v := range numbers {
			want := bounded[uint64](v, 0, of.hi)
			if of.lo < 0 && v < 0 {
				want = uint64(bounded[int64](v, of.lo, of.hi))
			}
			if got := b.word(v); got != want {
				t.Errorf("%v in %d to %d is %d; want %d", v, of.lo, of.hi, int64(got), int64(want))
			}
		}
	}
}
