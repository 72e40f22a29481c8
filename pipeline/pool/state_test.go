package pool

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/stats"
)

// TestTakenOutOnce: two files of one upload are taken out as one. Another upload of that client's is
// taken out of a round too, and was never in a state.
func TestTakenOutOnce(t *testing.T) {
	of := func(client, digest string) Upload {
		p := point.New(1, 2, 2)
		p.Z[2] = 1
		return Upload{Upload: &federate.Upload{Client: client, N: 1, Points: p}, Path: client, Digest: digest}
	}
	a, b := of("a", "1"), of("b", "2")
	for name, c := range map[string]struct {
		second Upload
		gone   int
		state  string // the error of a state
	}{"the same": {b, 1, ""}, "another": {of("b", "3"), 2, "a second upload, 3, beside 2"}} {
		left, gone, err := Without([]Upload{a, b, c.second}, []string{"b"})
		if err != nil || len(left) != 1 || len(gone) != c.gone {
			t.Errorf("%s: %d are left and %d gone, %v", name, len(left), len(gone), err)
		}
		s, _ := must.Get2(Update(nil, []Upload{a, b}, nil))(t)
		s, gone, err = Update(s, []Upload{b, c.second}, []string{"b"})
		if c.state != "" {
			must.Fail(s, err)(t, c.state, name)
		} else if err != nil || len(s.Clients()) != 1 || len(gone) != c.gone {
			t.Errorf("%s: of a state %d are gone, %v", name, len(gone), err)
		}
	}
}

// TestStateOfMoments: a classifier of a state of moments is as good as that of the uploads, and
// adding, taking out and files between leave its bytes as they are.
func TestStateOfMoments(t *testing.T) {
	w := newWorld(t)
	us, g, f := w.momentsRound(t, 14, 1)
	for i := range us {
		us[i].Digest = strings.Repeat("0123456789abcdef"[i:i+1], 64)
	}
	made := func(s *stats.State) []byte {
		t.Helper()
		data := must.Get(s.Encode())(t)
		s = must.Get(stats.Decode(data, federate.Expect{Model: f.Digest}))(t)
		r := must.Get(NewState(s, g, f, Options{Seed: 1}))(t)
		p := must.Get(r.Posterior(t.Context(), w.eng))(t)
		m := must.Get(r.Classifier(t.Context(), p, false, false, "fmp pool"))(t)
		data = must.Get(serde.Marshal(m))(t)
		return data
	}
	update := func(s *stats.State, us []Upload, without ...string) *stats.State {
		t.Helper()
		s, gone, err := Update(s, us, without)
		if err != nil || len(gone) != len(without) {
			t.Fatalf("%d uploads were taken out, %v", len(gone), err)
		}
		return s
	}
	all := made(update(nil, us))
	turned := slices.Clone(us)
	slices.Reverse(turned)
	late := update(update(nil, turned[:9]), turned[9:])
	if !bytes.Equal(made(late), all) {
		t.Error("late uploads give another classifier")
	}
	if gone := made(update(late, us[3:5], us[3].Client, us[4].Client)); !bytes.Equal(gone,
		made(update(nil, slices.Concat(us[:3], us[5:])))) {
		t.Error("clients that withdrew leave a trace in the classifier")
	} else if bytes.Equal(gone, all) {
		t.Error("without two clients the classifier is the same")
	}
	for i, u := range us { // a state has no single points
		w := *u.Within
		w.Labels, w.Calibration = nil, nil
		plain := *u.Upload
		plain.Within, us[i].Upload = &w, &plain
	}
	single := must.Get(New(us, g, f, Options{Seed: 1, Trust: true, Sets: Sets{Level: -1}}))(t)
	p := must.Get(single.Posterior(t.Context(), w.eng))(t)
	m := must.Get(single.Classifier(t.Context(), p, false, false, "fmp pool"))(t)
	summed := must.Get(serde.Unmarshal(all))(t)
	pix, labels := pixels(rng.New(1, "test"), 600, classes)
	nll := func(m *onnx.Model) (sum float64) {
		prob := w.eval(t, m, pix, nil)["probabilities"].F32()
		for i, y := range labels {
			sum -= math.Log(float64(prob[i*classes+y])) / 600
		}
		return sum
	}
	if a, b := nll(m), nll(summed); b > a+.02 {
		t.Errorf("NLL of the sums is %.4f, of the uploads %.4f", b, a)
	} else {
		t.Logf("NLL of the sums is %.4f, of the uploads %.4f", b, a)
	}
}

// TestSumsReach: sums of class means, of a state and of merged uploads, may lie beyond the bound of
// single uploads by their rounding alone.
func TestSumsReach(t *testing.T) {
	w := newWorld(t)
	g, f := w.client(t, true)
	o := Options{Predictor: w.predictor, Open: "none"}
	r := must.Get(New(w.uploads(t, g, f, 9, 12), g, f, o))(t)
	for out, refused := range map[float64]bool{0.99: false, 1.015: false, 1.03: true} {
		u := *w.uploads(t, g, f, 9, 12)[1].Upload
		u.Points = u.Points.Compact()
		row := u.Points.Features(0)
		scale := out / must.Get(r.reach.Compute(u.Points))(t)[0]
		for j := range row {
			row[j] *= float32(scale)
		}
		if _, err := New([]Upload{{Upload: &u}}, g, f, o); (err == nil) != (out < 1) {
			t.Errorf("%v of the radius, a single upload: %v", out, err)
		}
		s, _ := must.Get2(Update(nil, []Upload{{Upload: &u, Digest: strings.Repeat("a", 64)}}, nil))(t)
		_, state := NewState(s, g, f, o)
		joined := r.Join(&Rest{Means: u.Points, Summed: 2, N: u.N})
		for of, err := range map[string]error{"a state": state, "merged": joined} {
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "as far out") {
				t.Errorf("%v of the radius, %s: %v", out, of, err)
			}
		}
	}
}
