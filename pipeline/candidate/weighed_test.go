package candidate

import (
	"testing"

	"fmp/pipeline/moments"
)

// TestWeighedByOthers: the evidence of a group counts for as many images as the others hold at most;
// where none holds more than half, all is as it was.
func TestWeighedByOthers(t *testing.T) {
	for _, c := range []struct{ images, want []float64 }{
		{[]float64{200, 10, 10}, []float64{0.1, 1, 1}}, {[]float64{30, 10}, []float64{1. / 3, 1}},
		{[]float64{10, 10}, []float64{1, 1}}, {[]float64{20, 10, 10}, []float64{1, 1, 1}},
	} {
		s, per := &sums{}, [][]moments.Curve{}
		for _, n := range c.images {
			s.images += n
			s.parts = append(s.parts, part{n: []float64{n / 4, 3 * n / 4}})
			per = append(per, []moments.Curve{{8}, {-6}})
		}
		for g, curves := range s.weighed(per) {
			if curves[0][0] != 8*c.want[g] || curves[1][0] != -6*c.want[g] {
				t.Errorf("%v images: evidence of group %d is %v and %v, want %v of it", c.images, g,
					curves[0][0], curves[1][0], c.want[g])
			}
		}
		if per[0][0][0] != 8 {
			t.Error("the evidence itself changed")
		}
	}
}
