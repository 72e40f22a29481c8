package classify

import (
	"bytes"
	"encoding/csv"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
)

// TestSetsInCSV: two sets are never the same text, whatever their classes are called, and plain
// names stand as they are.
func TestSetsInCSV(t *testing.T) {
	for _, c := range []struct {
		names []string
		set   []bool
		want  string
	}{
		{[]string{"a", "b", "c"}, []bool{true, false, true}, "a|c"},
		{[]string{"a", "b"}, []bool{false, false}, ""},
		{[]string{"a|b", "a", "b"}, []bool{true, false, false}, `a\|b`},
		{[]string{"a|b", "a", "b"}, []bool{false, true, true}, "a|b"},
		{[]string{`a\`, "b", `a\|b`}, []bool{true, true, false}, `a\\|b`},
		{[]string{`a\`, "b", `a\|b`}, []bool{false, false, true}, `a\\\|b`},
	} {
		var b bytes.Buffer
		n := len(c.names)
		p := must.Get(NewPrinter(&b, &Classifier{outputs: []string{set},
			Manifest: models.Manifest{C: n, Classes: c.names}}, CSV, 0))(t)
		must.Do(t, p.Print([]Prediction{{Probabilities: make([]float32, n), Set: c.set}}))
		must.Do(t, p.Close())
		rows := must.Get(csv.NewReader(&b).ReadAll())(t)
		if got := rows[1][len(rows[1])-1]; got != c.want {
			t.Errorf("%q of %v: %q; want %q", c.names, c.set, got, c.want)
		}
	}
}
