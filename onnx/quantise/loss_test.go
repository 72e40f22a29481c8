package quantise

import (
	"encoding/json"
	"math"
	"testing"

	"fmp/onnx/must"
)

// TestLoss: variance is about the mean of each position of an image, numbers that are infinite or NaN in
// the model are left out, those that are so in the quantised model alone make the loss infinite, and
// JSON takes every loss.
func TestLoss(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	type images [][]float32
	for _, c := range []struct {
		before, after images
		loss          float64
		json          string
	}{
		{images{{1}, {3}}, images{{1}, {4}}, .5, "0.5"},
		{images{{1}, {3}}, images{{1}, {3}}, 0, "0"},
		{images{{1, inf, -inf, nan}, {3, inf, nan, 0}}, images{{1, inf, 5, nan}, {4, 0, 0, 0}}, .5, "0.5"},
		{images{{1}, {3}}, images{{1}, {inf}}, math.Inf(1), "null"},
		{images{{1}, {3}}, images{{1}, {-inf}}, math.Inf(1), "null"},
		{images{{1}, {3}}, images{{1}, {nan}}, math.Inf(1), "null"},
		{images{{inf, nan}, {inf, nan}}, images{{1, 2}, {1, 2}}, math.NaN(), "null"},
		{images{{2}, {2}}, images{{2}, {3}}, math.NaN(), "null"},
		{images{{1, 3}}, images{{1, 4}}, math.NaN(), "null"},
		{nil, nil, math.NaN(), "null"},
		// positions differ, each by a constant of its own
		{images{{1, -1e4}, {3, -1e4}}, images{{1, -1e4}, {4, -1e4}}, .5, "0.5"},
		{images{{1, 5, -3e38}, {3, 7, -3e38}}, images{{1, 5, -3e38}, {4, 7, -3e38}}, .25, "0.25"},
		{images{{1, 1 << 23}, {3, 1<<23 + 2}}, images{{1, 1 << 23}, {4, 1<<23 + 2}}, .25, "0.25"},
		{images{{1}, {3, 5}, {2, 7}}, images{{1}, {4, 5}, {2, 7}}, .25, "0.25"}, // of two sizes
	} {
		var s Sums
		for i, x := range c.before {
			s.Add(x, c.after[i])
		}
		got := float64(s.Loss())
		if got != c.loss && !(math.IsNaN(got) && math.IsNaN(c.loss)) {
			t.Errorf("%v and %v: loss %v; want %v", c.before, c.after, got, c.loss)
		}
		if said := must.Get(json.Marshal(Report{Loss: s.Loss()}))(t); string(said) !=
			`{"layers":0,"loss":`+c.json+`,"loss_of_all_layers":0}` {
			t.Errorf("%v and %v: JSON %s", c.before, c.after, said)
		}
	}
}
