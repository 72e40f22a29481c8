package posterior

import (
	"fmt"
	"math"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/meta"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// TestEnds: intervals of a round in open scope reach as far as its predictor has learned, with and
// without calibration points, and the classifier says so. A predictor that has learned no ends
// leads to the same classifier as before.
func TestEnds(t *testing.T) {
	const dx, c = 5, 3
	rows := func(name string, n int) (features []float32, labels []int) {
		r := rng.New(1, name)
		for i := range n {
			labels = append(labels, i%c)
			for j := range dx {
				features = append(features, float32(r.NormFloat64())+2*float32((i%c+j)%c))
			}
		}
		return features, labels
	}
	features, labels := rows("corpus", 600)
	bank := must.Get(task.NewBank(features, dx, labels, c))(t)
	p := must.Get(meta.UntrainedOpen(bank, dx))(t)
	in := Input{Open: p, Scope: ScopeOpen, Samples: 4, Seed: 1, Threads: 1}
	points := &Calibration{}
	for m := range 3 {
		h, y := rows(fmt.Sprint("client ", m), 12)
		s := must.Get(point.FromLabelled(h, dx, y, c))(t)
		in.Soft = append(in.Soft, must.Get(p.Soften(s))(t))
		points.Features, points.Labels = append(points.Features, h...), append(points.Labels, y...)
		for range y {
			points.Client = append(points.Client, m)
		}
	}
	test, _ := rows("test", 30)
	ends := func(e models.Ends, by *Calibration) (low, high []float64) {
		t.Helper()
		p.Ends, in.Calibration = models.SizedEnds{Few: e, Many: e}, by
		fmp := must.Get(New(in))(t)
		r := must.Get(fmp.Sample(t.Context()))(t)
		low, high = must.Get2(r.Intervals.Compute(t.Context(), test, IntervalLevel))(t)
		m := must.Get(r.Classifier(t.Context(), nil, false,
			models.Manifest{Classes: []string{"a", "b", "c"}}, models.Origin{}))(t)
		o, err := models.ReadOrigin(must.Get(models.ReadManifest(m))(t))
		if err != nil || e == (models.Ends{}) && o.Ends != nil || e != (models.Ends{}) &&
			(o.Ends == nil || *o.Ends != e) {
			t.Errorf("the classifier says %v of ends %v, %v", o.Ends, e, err)
		}
		return low, high
	}
	odds := func(p float64) float64 { return math.Log(p / (1 - p)) }
	for _, by := range []*Calibration{nil, points} {
		low, high := ends(models.Ends{}, by)
		half, twice := ends(models.Ends{Down: 2, Up: 2}, by)
		for i := range low {
			if want := 2 * (odds(high[i]) - odds(low[i])); math.Abs(odds(twice[i])-odds(half[i])-want) > 1e-3*want {
				t.Fatalf("with points %v interval %d is %v wide; want %v", by != nil, i,
					odds(twice[i])-odds(half[i]), want)
			}
		}
	}
}
