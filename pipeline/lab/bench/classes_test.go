package bench

import (
	"math"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
)

// TestClasses: a round of more classes than heads are kept for goes from training to predictions:
// its classifier holds latents of a byte in place of heads, and tells classes apart.
func TestClasses(t *testing.T) {
	if testing.Short() {
		t.Skip("a training behind 520 features")
	}
	c := Classes{Dir: t.TempDir(), C: 520, Dx: 520, Rows: 4160, Clients: 12, Images: 300, Steps: 1,
		Samples: 40, Separation: 0.4, Engine: orttest.New(t)}
	must.Do(t, c.Train(t.Context()))
	if n, err := c.Upload(t.Context()); err != nil || n > 520*(520+16) {
		t.Fatalf("an upload of %d bytes, %v", n, err)
	}
	n, err := c.Pool(t.Context())
	if most := c.C*c.Dx*c.Samples + 6*4*c.C*c.Dx; err != nil || n > most {
		t.Fatalf("a classifier of %d bytes, %v; want at most %d", n, err, most)
	}
	m, f := must.Get2(models.Load(c.file("classifier.onnx")))(t)
	if l := m.Graph.Initializers["latent"]; f.S != c.Samples || l == nil || l.DType != onnx.Int8 {
		t.Errorf("%d samples, latents %v", f.S, l)
	}
	accuracy, nll, err := c.Predict(t.Context())
	if err != nil || accuracy < 0.5 || nll > math.Log(520)/2 {
		t.Errorf("accuracy %.3f, NLL %.3f, %v", accuracy, nll, err)
	}
}
