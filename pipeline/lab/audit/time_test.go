package audit

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/client"
	"fmp/pipeline/privacy"
)

// TestTimed: by a clock on which nothing but waiting takes time, replies with 45 images more, with
// a large file and with one that cannot be read leave when those without do.
func TestTimed(t *testing.T) {
	m := must.Get(serde.Unmarshal(assetstest.PrivateClient(t)))(t)
	f := must.Get(models.ReadManifest(m))(t)
	f.Digest = strings.Repeat("0", 64)
	cl := must.Get(client.New(m, f, 1))(t)
	b := privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example, Relation: privacy.AddRemove,
		Noise: privacy.Local}
	for _, target := range targets {
		if len(target.extractor) > 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			a := Timed{Name: target.name, Runs: 6}
			const after = 90 * time.Second
			must.Do(t, a.run(t.Context(), cl, target, b, 1, after))
			if want := float64(after.Milliseconds()); a.Fixed != (Moments{0.5, want, want}) {
				t.Errorf("%s: at a fixed time %+v", target.name, a.Fixed)
			}
		})
	}
}
