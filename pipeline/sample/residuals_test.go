package sample

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
)

// TestResiduals: an interval with ends holds a limit where its residual lies between them, at the
// limit's top class and at the one named. Ends of one half width each are those of none.
func TestResiduals(t *testing.T) {
	k, clients, test := conjugateWorld(t)
	seen := uploaded(t, k, clients)
	const samples = 5
	latent := latents(k, samples)
	f := &Refit{Conjugate: k, Penalty: 10, Doubt: 1}
	heads := must.Get(f.Heads(t.Context(), seen, latent, samples))(t)
	limit := erm.Theta{D: heads[0].D, C: heads[0].C, W: slices.Clone(heads[0].W)}
	noise := make([]float32, len(limit.W))
	rng.Normal(rng.New(1, "limit"), noise)
	for i, v := range noise {
		limit.W[i] += 0.5 * float64(v)
	}
	d := Drawn{Seen: seen, Heads: heads, Latent: latent, Uniform: make([]float32, samples)}
	ends := func(e models.Ends) (low, high []float64) {
		t.Helper()
		low, high = must.Get2((&Refit{Conjugate: k, Penalty: 10, Doubt: 1, Ends: e}).Intervals(t.Context(), d,
			test.Features, 0.9))(t)
		return low, high
	}
	odds := func(p float64) float64 { return math.Log(p / (1 - p)) }
	low, high := ends(models.Ends{})
	sameLow, sameHigh := ends(models.Ends{Down: 1, Up: 1})
	e := models.Ends{Down: 0.25, Up: 0.75}
	low2, high2 := ends(e)
	// Residuals are of intervals without ends, whichever the predictor has.
	f.Ends = e
	r := must.Get(f.Residuals(t.Context(), d, limit, test.Features, 0.9))(t)
	rows := must.Get(k.Map(t.Context(), test.Features))(t)
	p := must.Get(metric.Predict(t.Context(), []erm.Theta{limit}, rows, 1))(t)
	if len(r) != 2*p.N {
		t.Fatalf("%d residuals of %d images", len(r), p.N)
	}
	seenAt := map[string]int{}
	for i := range p.N {
		at := i * p.C
		row := p.Row(i)
		middle := make([]float64, p.C)
		for y := range middle {
			middle[y] = (odds(low[at+y]) + odds(high[at+y])) / 2
		}
		named := slices.Index(middle, slices.Max(middle))
		for y := range middle {
			down, up := float64(e.Down), float64(e.Up)
			if y != named {
				down, up = up, down
			}
			half := odds(high[at+y]) - middle[y]
			for what, c := range map[string][2]float64{
				"low":                   {odds(low2[at+y]), middle[y] - down*half},
				"high":                  {odds(high2[at+y]), middle[y] + up*half},
				"low of one half width": {odds(sameLow[at+y]), odds(low[at+y])},
				"high of one":           {odds(sameHigh[at+y]), odds(high[at+y])},
			} {
				if math.Abs(c[0]-c[1]) > 1e-3 {
					t.Fatalf("%s of image %d, class %d: %v, want %v", what, i, y, c[0], c[1])
				}
			}
		}
		for j, y := range []int{slices.Index(row, slices.Max(row)), named} {
			v := r[2*i+j]
			if math.Abs(v+float64(e.Down)) < 1e-3 || math.Abs(v-float64(e.Up)) < 1e-3 {
				continue
			}
			held := low2[at+y] <= row[y] && row[y] <= high2[at+y]
			if within := -float64(e.Down) < v && v < float64(e.Up); within != held {
				t.Errorf("image %d, class %d (named %d): residual %v, held %v", i, y, named, v, held)
			}
			switch {
			case v < -float64(e.Down):
				seenAt["below"]++
			case v > float64(e.Up):
				seenAt["above"]++
			default:
				seenAt["held"]++
			}
			if y != named {
				seenAt["another class"]++
			}
		}
	}
	for _, what := range []string{"below", "above", "held", "another class"} {
		if seenAt[what] == 0 {
			t.Errorf("no residual of the kind %q: %v", what, seenAt)
		}
	}
}

// TestStudentWidth: t quantiles of the tables (19 and 1 degrees of freedom), times the root of 1 +
// 1/S of a prediction.
func TestStudentWidth(t *testing.T) {
	for _, c := range []struct {
		samples     int
		level, want float64
	}{{20, .9, 1.729133 * math.Sqrt(1.05)}, {2, .5, math.Sqrt(1.5)}} {
		w, err := studentWidth(c.samples, c.level)
		if err != nil || math.Abs(float64(w)-c.want) > 1e-5 {
			t.Errorf("%d samples at level %v: %v, %v, want %v", c.samples, c.level, w, err, c.want)
		}
	}
	for _, level := range []float64{0, 1, math.NaN()} {
		must.Fail(studentWidth(20, level))(t, "", fmt.Sprintf("level %v is no error", level))
	}
	must.Fail(studentWidth(1, .9))(t, "", "one sample is no error")
}

// TestProject: w = phi V - origin, by hand; labels and weights stay.
func TestProject(t *testing.T) {
	c := &Conjugate{config: models.ConjugateConfig{Dx: 3, K: 2}, values: map[string]*onnx.Tensor{
		models.ConjMap:    onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 3, 2),
		models.ConjOrigin: onnx.NewTensor([]float32{10, -20}, 2),
	}}
	seen := point.New(1, 3, 2)
	copy(seen.Row(0), []float32{1, .5, -1, 0, 1})
	seen.W[0] = 7
	out := c.project(seen)
	want := []float32{1 + 1.5 - 5 - 10, 2 + 2 - 6 + 20, 0, 1}
	near(t, "coordinates", out.Row(0), want, 0)
	if out.W[0] != 7 {
		t.Errorf("the weight is %v", out.W[0])
	}
}
