package audit

import (
	"testing"

	"fmp/models"
	"fmp/onnx/must"
)

// TestPacking: through class means of single images, calibration points and a gate an approved
// packing extractor gives whole images away; means of many images and no gate give nothing of one.
func TestPacking(t *testing.T) {
	p := models.Preprocessing{Height: 8, Width: 8, Channels: 3, Raw: true, NHWC: true}
	const most = 8 * 8 * 8 * 3
	for _, c := range []struct {
		leaking
		bits, best [2]float64 // shares of all bits, from and to
	}{
		{leaking{upload: "single", perClass: 1}, [2]float64{0.9, 1}, [2]float64{0.9, 1}},
		{leaking{upload: "means", perClass: 40}, [2]float64{0, 0}, [2]float64{0, 0}},
		{leaking{upload: "points", perClass: 40, points: 10}, [2]float64{0.02, 0.03},
			[2]float64{0.9, 1}},
		{leaking{upload: "gate", perClass: 40, gate: true}, [2]float64{0.002, 0.03},
			[2]float64{0.6, 1}},
		{leaking{upload: "moments", perClass: 40, points: 10, moments: true}, [2]float64{0.01, 0.03},
			[2]float64{0.6, 1}},
		{leaking{upload: "moments, gate", perClass: 40, gate: true, moments: true},
			[2]float64{0.002, 0.03}, [2]float64{0.5, 1}},
	} {
		g, dx := must.Get2(packing(p, c.gate, c.moments))(t)
		cl := must.Get(plainClient(g, p, dx, c.moments))(t)
		var l Leak
		must.Do(t, l.unpack(t.Context(), cl, c.leaking, 1))
		if got := l.Bits / most; got < c.bits[0] || got > c.bits[1] {
			t.Errorf("%s: a share of %.4f of the bits of all images; want %v", c.upload, got, c.bits)
		}
		if got := l.Best / most; got < c.best[0] || got > c.best[1] {
			t.Errorf("%s: a share of %.4f of the bits of one image; want %v", c.upload, got, c.best)
		}
	}
}
