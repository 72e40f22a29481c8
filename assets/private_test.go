package assets_test

import (
	"testing"

	"fmp/assets"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// TestPrivateCoordinates: a shipped private predictor has the coordinates of the conjugate
// predictor beside it.
func TestPrivateCoordinates(t *testing.T) {
	for _, set := range assets.Datasets() {
		var m [2]*onnx.Model
		for i, kind := range []string{models.KindPrivate, models.KindConjugate} {
			data := must.Get(assets.Model(set, kind))(t)
			m[i] = must.Get(serde.Unmarshal(data))(t)
		}
		if err := models.SameCoordinates(m[0], m[1]); err != nil {
			t.Errorf("%s: %v; assets/train.sh %s private", set, err, set)
		}
	}
}
