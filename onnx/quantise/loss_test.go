package quantise

import (
	"encoding/json"
	"math"
	"testing"

	"fmp/onnx/must"
)

// TestLoss: numbers that are infinite or NaN in the model are left out, those that are so in the
// quantised model alone make the loss infinite, and JSON takes every loss.
func TestLoss(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		before, after []float32
		loss          float64
		json          string
	}{
		{[]float32{1, 3}, []float32{1, 4}, .5, "0.5"},
		{[]float32{1, 3}, []float32{1, 3}, 0, "0"},
		{[]float32{1, 3, inf, -inf, nan}, []float32{1, 4, inf, 5, nan}, .5, "0.5"},
		{[]float32{1, 3}, []float32{1, inf}, math.Inf(1), "null"},
		{[]float32{1, 3}, []float32{1, -inf}, math.Inf(1), "null"},
		{[]float32{1, 3}, []float32{1, nan}, math.Inf(1), "null"},
		{[]float32{inf, nan}, []float32{1, 2}, math.NaN(), "null"},
		{[]float32{2, 2}, []float32{2, 3}, math.NaN(), "null"},
		{nil, nil, math.NaN(), "null"},
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
