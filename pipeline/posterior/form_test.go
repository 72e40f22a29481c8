package posterior

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/meta"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

const dx, c = 5, 3 // of the rounds in open scope

// rows are n features of c classes in turn, apart from each other.
func rows(name string, n int) (features []float32, labels []int) {
	r := rng.New(1, name)
	for i := range n {
		labels = append(labels, i%c)
		for j := range dx {
			features = append(features, float32(r.NormFloat64())+2*float32((i%c+j)%c))
		}
	}
	return features, labels
}

// openPredictor is that of a corpus of 600 rows, untrained.
func openPredictor(t *testing.T) *open.Predictor {
	features, labels := rows("corpus", 600)
	bank := must.Get(task.NewBank(features, dx, labels, c))(t)
	return must.Get(meta.UntrainedOpen(bank, dx))(t)
}

// TestBounded: in open scope heads read the class means of few clients as they are, and of more
// than maxMeans some of them, with the masses and means of all.
func TestBounded(t *testing.T) {
	p := openPredictor(t)
	for _, clients := range []int{5, maxMeans/c + 1} {
		var sets []*point.Set
		for m := range clients {
			h, y := rows(fmt.Sprint("client ", m), 2*c)
			s := point.New(len(y), dx, c)
			for i, label := range y {
				copy(s.Row(i), h[i*dx:(i+1)*dx])
				s.Row(i)[dx+label], s.W[i] = 1, 1+float32(m%4)
			}
			sets = append(sets, must.Get(p.Soften(s))(t))
		}
		fmp := must.Get(New(Input{Open: p, Soft: sets, Scope: ScopeOpen, Samples: 4, Honesty: true,
			Seed: 1, Threads: 1}))(t)
		f := must.Get(fmp.Form())(t)
		all := must.Get(point.Pool(sets...))(t)
		seen := must.Get(f.pool(nil, func(int) bool { return true }))(t)
		if most := min(clients*c, maxMeans+2*c); seen.N > most || seen.N < most/3 {
			t.Errorf("%d clients: heads read %d points; want up to %d", clients, seen.N, most)
		}
		got, want := open.Means(seen), open.Means(all)
		for y := range c {
			if math.Abs(got.Mass[y]-want.Mass[y]) > 1e-6*want.Mass[y] {
				t.Errorf("%d clients: mass %v of class %d; want %v", clients, got.Mass[y],
					y, want.Mass[y])
			}
			for j, v := range want.Mean.RawRowView(y) {
				if math.Abs(got.Mean.At(y, j)-v) > 1e-6 {
					t.Errorf("%d clients: mean %v of class %d; want %v", clients,
						got.Mean.At(y, j), y, v)
				}
			}
		}
		// What a classifier of the round is made from is bounded too.
		r := must.Get(fmp.Sample(t.Context()))(t)
		if n := r.Intervals.(*conjugateIntervals).drawn.Seen.N; n > maxMeans+2*c {
			t.Errorf("%d clients: intervals read %d points; want %d at most", clients, n, maxMeans+2*c)
		}
	}
}

// TestLogOdds: log-odds of a class that is nearly certain are as exact as those of the others.
func TestLogOdds(t *testing.T) {
	t.Parallel()
	logit := []float64{-3, 60, 1, 2}
	odds := append([]float64{}, logit...)
	logOdds(odds, make([]float64, len(odds)))
	for y, v := range logit {
		others := new(big.Float).SetPrec(200)
		for c, o := range logit {
			if c != y {
				others.Add(others, big.NewFloat(math.Exp(o)))
			}
		}
		sum, _ := others.Float64()
		if want := v - math.Log(sum); math.Abs(odds[y]-want) > 1e-13*math.Abs(want) {
			t.Errorf("class %d: %v, want %v", y, odds[y], want)
		}
	}
}

// TestEnds: intervals of a round in open scope reach as far as its predictor has learned, with and
// without calibration points, and the classifier says so. A predictor that has learned no ends
// leads to the same classifier as before.
func TestEnds(t *testing.T) {
	p := openPredictor(t)
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
