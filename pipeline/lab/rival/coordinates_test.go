package rival

import (
	"context"
	"fmp/onnx/must"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/posterior"
	"testing"
)

// squares are coordinates for a test: every feature, and its square behind them all.
type squares struct{ dx int }

func (s squares) Map(_ context.Context, features []float32) ([]float32, error) {
	var out []float32
	for i := 0; i < len(features); i += s.dx {
		row := features[i : i+s.dx]
		out = append(out, row...)
		for _, v := range row {
			out = append(out, v*v)
		}
	}
	return out, nil
}

// TestHeadsOnCoordinates: a head on the square of the one feature tells the middle from both sides,
// which none on the feature itself does.
func TestHeadsOnCoordinates(t *testing.T) {
	head := posterior.Theta{D: 3, C: 2, W: []float64{0, 0, 0, 10, 0, -10}} // logit 1 is 10 x^2 - 10
	x, y := []float32{-2, -1.5, 0, 0.5, 2}, []int{1, 1, 0, 0, 1}
	s := must.Get(score.Evaluate(context.Background(),
		&posterior.Result{Ensembles: []posterior.Ensemble{{head}}, Coordinates: squares{1}}, x, y, 1))(t)
	if s.ACC != 1 {
		t.Errorf("accuracy is %v, want 1", s.ACC)
	}
	if _, err := score.Evaluate(context.Background(),
		&posterior.Result{Ensembles: []posterior.Ensemble{{head}}}, x, y, 1); err == nil {
		t.Error("a head of 2 coordinates scored rows of 1 without them")
	}
}
