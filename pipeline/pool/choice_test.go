package pool

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/onnx/must"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// TestChoice: in open scope half of the calibration points choose temperature and penalty and the
// others are for sets; all choose where no sets are asked for or where all would not prove them,
// and none where half would not. Points that name classes at random raise the temperature, those of
// clients that lie count nothing, and samples that are made in parts elsewhere are the same.
func TestChoice(t *testing.T) {
	o := newOwners(t, 3)
	pooled := func(us []Upload, change Options, elsewhere bool) *posterior.Result {
		t.Helper()
		change.Seed, change.Threads, change.Samples, change.Scope = 1, 1, 30, posterior.ScopeOpen
		s := o.sampling(t, us, change)
		var do func(context.Context, []SampleRange) ([]*Piece, error)
		if elsewhere {
			do = func(ctx context.Context, parts []SampleRange) ([]*Piece, error) {
				out := make([]*Piece, len(parts))
				for i, p := range parts {
					var err error
					if out[i], err = o.sampling(t, us, change).Do(ctx, p); err != nil {
						return nil, err
					}
				}
				return out, nil
			}
		}
		return must.Get(s.Posterior(t.Context(), do))(t)
	}
	for _, c := range []struct {
		calibrate, bad int
		level          float64
		choose, sets   float64
	}{{10, 0, 0, 30, 30}, {10, 1, 0, 25, 25}, {10, 0, -1, 60, 0}, {3, 0, 0, 0, 18}, {2, 0, 0, 12, 0},
		{0, 0, 0, 0, 0}} {
		p := pooled(o.calibrated(t, 6, c.calibrate, c.bad), Options{Sets: Sets{Level: c.level}}, false)
		sets := 0.0
		if p.Sets != nil {
			sets = float64(p.Sets.Images)
		}
		if p.Diagnostics["open"] != 1 || p.Diagnostics[posterior.DiagnosticPoints] != c.choose ||
			sets != c.sets {
			t.Errorf("%+v: diagnostics %v, %v points for sets", c, p.Diagnostics, sets)
		}
	}
	us := o.calibrated(t, 6, 10, 0)
	here, there := pooled(us, Options{}, false), pooled(us, Options{}, true)
	r := must.Get(New(us, o.graph, o.client, Options{Scope: posterior.ScopeOpen, Threads: 1}))(t)
	m := must.Get(r.Classifier(t.Context(), here, false, false, ""))(t)
	if share, size := o.held(t, m); share < .85 || size > 3 {
		t.Errorf("sets hold %.3f, mean size %.2f", share, size)
	}
	if fmt.Sprint(here.Ensembles, here.Diagnostics) != fmt.Sprint(there.Ensembles, there.Diagnostics) {
		t.Errorf("samples made elsewhere differ: %v, %v", here.Diagnostics, there.Diagnostics)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for _, u := range us {
		for i := range u.Calibration.Y {
			u.Calibration.Y[i] = int32(random.IntN(10))
		}
	}
	hot := pooled(us, Options{Sets: Sets{Level: -1}}, false)
	const name = posterior.DiagnosticTemperature
	if hot.Diagnostics[name] < 2 || here.Diagnostics[name] > 1.5 || norm(hot) > norm(here)/1.3 {
		t.Errorf(
			"temperature %v and heads of size %v by classes at random, %v and %v by those of the points",
			hot.Diagnostics[name], norm(hot), here.Diagnostics[name], norm(here))
	}
}

// norm returns the size of the heads of a posterior.
func norm(p *posterior.Result) (sum float64) {
	for _, h := range p.Ensembles[0] {
		sum += floats.Norm(h.W, 2)
	}
	return sum
}

// sampling returns a round that is ready to be sampled.
func (o *owners) sampling(t *testing.T, us []Upload, change Options) *Sampling {
	t.Helper()
	r := must.Get(New(us, o.graph, o.client, change))(t)
	s := must.Get(r.Sampling(o.eng))(t)
	t.Cleanup(s.Close)
	return s
}

// TestChoiceOfOne: a client that sends ten times as many calibration points as the others, with
// classes at random, moves the temperature no further than one that sends as many as they do.
func TestChoiceOfOne(t *testing.T) {
	o := newOwners(t, 3)
	temperature := func(points int) (at, choose float64) {
		us := o.calibrated(t, 6, 10, 0)
		random, c := rand.New(rand.NewPCG(1, 1)), us[0].Calibration
		lies := &point.Set{N: points, Dx: c.Dx, C: c.C, W: make([]float32, points)}
		for i := range points {
			lies.Z = append(lies.Z, c.Features(i%c.N)...)
			lies.Y = append(lies.Y, int32(random.IntN(10)))
		}
		us[0].Calibration = lies
		p := must.Get(o.sampling(t, us,
			Options{Seed: 1, Threads: 1, Samples: 30, Scope: posterior.ScopeOpen,
				Sets: Sets{Level: -1}}).Posterior(t.Context(), nil))(t)
		return p.Diagnostics[posterior.DiagnosticTemperature], p.Diagnostics[posterior.DiagnosticPoints]
	}
	few, n := temperature(10)
	many, m := temperature(100)
	if n != 60 || m != 60 || math.Abs(math.Log(many/few)) > 0.5 {
		t.Errorf("temperature %v by %v points, and %v by %v where one client sends 100",
			few, n, many, m)
	}
}
