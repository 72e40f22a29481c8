package corpus

import (
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/shipped"
)

// TestModel: a setting names the shipped model, a file or none; one that does not fit is said, and
// is an error if somebody named it.
func TestModel(t *testing.T) {
	m, behind := must.Get2(shipped.Load("digits", models.KindConjugate))(t)
	file := filepath.Join(t.TempDir(), "conjugate.onnx")
	must.Do(t, serde.Save(file, m))
	other := behind
	other.Extractor = strings.Repeat("0", 64)
	for _, c := range []struct {
		name, kind, setting, dataset string
		behind                       models.Manifest
		found                        bool
		note, err                    string
	}{
		{"shipped", models.KindConjugate, "default", "digits", behind, true, "", ""},
		{"file", models.KindConjugate, file, "digits", behind, true, "", ""},
		{"untrained", models.KindConjugate, "untrained", "digits", behind, false, "", ""},
		{"none shipped", models.KindConjugate, "default", "photos", behind, false, "", ""},
		{"shipped behind another", models.KindConjugate, "default", "digits", other, false,
			"does not fit", ""},
		{"file behind another", models.KindConjugate, file, "digits", other, false, "",
			"setting conjugate.model: "},
		{"file of another kind", models.KindPredictor, file, "digits", behind, false, "",
			"want predictor"},
		{"no file", models.KindConjugate, "nowhere.onnx", "digits", behind, false, "", "nowhere.onnx"},
	} {
		m, f, note, err := Model(c.kind, c.setting, c.dataset, c.behind)
		if (m != nil) != c.found || c.found && f.Kind != c.kind || !strings.Contains(note, c.note) ||
			(note == "") != (c.note == "") {
			t.Errorf("%s: found %v, %q, note %q", c.name, m != nil, f.Kind, note)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v; want one that says %q", c.name, err, c.err)
		}
	}
}
