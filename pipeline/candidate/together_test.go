package candidate

import (
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// TestNobodyIsAsked: where no class is held by two clients the prior of the temperature stands.
func TestNobodyIsAsked(t *testing.T) {
	if got := temperature(make([]moments.Curve, 3)); got != priorT {
		t.Errorf("a temperature of %v, want the prior %v", got, priorT)
	}
	curve := moments.Curve{}
	for i := range curve {
		curve[i] = -float64((i - 20) * (i - 20))
	}
	if got := temperature([]moments.Curve{curve, {}, curve}); got == priorT {
		t.Error("the prior stands although two clients were asked")
	}
}

// TestTogether: rows that stand for images are those of each client where they fit, and else those of
// all clients together, as many as fit.
func TestTogether(t *testing.T) {
	const k, clients, classes, draws = maxNumbers / 24, 4, 2, 8
	r := &Round{K: k, C: classes}
	for range clients {
		means := &point.Set{N: classes, Dx: k, C: classes, Z: make([]float32, classes*(k+classes)),
			W: []float32{3, 5}}
		for y := range classes {
			means.Z[y*(k+classes)+k+y] = 1
		}
		r.Clients = append(r.Clients, Client{Means: means})
	}
	p := &pool{k: k, c: classes, n: []float64{12, 20}, mean: make([]float64, classes*k),
		clients: []int{0, 1, 2, 3}}
	cells, n := r.together(p, draws) // 64 rows, and 24 fit
	if len(cells) != classes || n != 12 || r.stands(p, draws) != 24 {
		t.Errorf("%d cells of %d draws, %d rows", len(cells), n, r.stands(p, draws))
	}
	p.clients = p.clients[:1] // 16 rows
	if cells, n := r.together(p, draws); cells != nil || n != draws || r.stands(p, draws) != 16 {
		t.Errorf("one client: %d cells of %d draws, %d rows", len(cells), n, r.stands(p, draws))
	}
	must.Do(t, r.Clients[0].check(k, classes))
}
