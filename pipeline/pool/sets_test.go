package pool

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/conformal"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// momentsRound is the uploads of clients of moments, each with 60 images whose pixels are dimmed by
// as much as its number says.
func (w *world) momentsRound(t *testing.T, clients int,
	seed uint64) ([]Upload, *onnx.Model, models.Manifest) {
	t.Helper()
	g, f := momentsGraph(t)
	var us []Upload
	for m := range clients {
		pix, labels := w.clientImages(m, seed, 60)
		u := momentsOf(t, f, m, w.embedded(t, g, f, pix, labels), labels, seed)
		u.N = len(labels)
		us = append(us, Upload{Upload: u})
	}
	return us, g, f
}

// clientImages are images of one client: the higher its number, the harder.
func (w *world) clientImages(m int, seed uint64, n int) (pix []uint8, labels []int) {
	r := rng.New(seed, "images", m, n)
	pix, labels = make([]uint8, n*dx), make([]int, n)
	for i := range n {
		labels[i] = r.IntN(classes)
		for j := range dx {
			v := 100.0
			if j%3 == labels[i] {
				v = 140
			}
			pix[i*dx+j] = uint8(min(max(v+float64(10+20*m)*r.NormFloat64(), 0), 255))
		}
	}
	return pix, labels
}

// TestSets: over rounds of clients that differ, sets of a round of moments hold the classes of the
// clients' new images at least as often as stated, on average.
func TestSets(t *testing.T) {
	w := newWorld(t)
	const rounds, clients, each = 12, 4, 100
	var held, size float64
	for seed := range uint64(rounds) {
		us, g, f := w.momentsRound(t, clients, seed)
		r, p := w.posterior(t, us, g, f, Options{Seed: seed, Samples: 10})
		if p.Sets == nil || p.Sets.Images != clients*moments.MaxCalibration/2 ||
			p.Sets.Clients != clients || p.Sets.Level != Level {
			t.Fatalf("sets %+v", p.Sets)
		}
		m := must.Get(r.Classifier(t.Context(), p, false, false, ""))(t)
		for c := range clients {
			pix, labels := w.clientImages(c, seed, each)
			for i, in := range w.eval(t, m, pix, nil)[models.SetOutput].Data.([]bool) {
				if in {
					size += 1. / (rounds * clients * each)
					if i%classes == labels[i/classes] {
						held += 1. / (rounds * clients * each)
					}
				}
			}
		}
	}
	t.Logf("held %.3f, mean size %.2f", held, size)
	// A round's coverage varies by about .05, the mean of 12 by .014.
	if held < Level-0.03 || size > 0.95*classes {
		t.Errorf("sets of %v hold %.3f, mean size %.2f of %d", Level, held, size, classes)
	}
}

// TestHeldBack: points that are held back for sets take no part in the heads, and the others do.
func TestHeldBack(t *testing.T) {
	w := newWorld(t)
	us, g, f := w.momentsRound(t, 4, 1)
	heads := func(us []Upload, level float64) ([]float64, *Sampling) {
		t.Helper()
		r := must.Get(New(us, g, f, Options{Seed: 1, Samples: 4, Sets: Sets{Level: level}}))(t)
		s := must.Get(r.Sampling(w.eng))(t)
		p := must.Get(s.Posterior(t.Context(), nil))(t)
		if (p.Sets != nil) != (level >= 0) {
			t.Fatalf("level %v: sets %+v", level, p.Sets)
		}
		return p.Ensembles[0][0].W, s
	}
	want, s := heads(us, 0.9)
	if len(s.held) != 20 {
		t.Fatalf("%d points are held back", len(s.held))
	}
	heldRows := map[*float32]bool{}
	for _, c := range s.held {
		heldRows[&c.row[0]] = true
	}
	// spoil moves the first calibration point of the first client that is held back, or is not.
	spoil := func(held bool) []Upload {
		out := slices.Clone(us)
		u, own := *us[0].Upload, *us[0].Within
		own.Calibration = slices.Clone(own.Calibration)
		for i := range own.Labels {
			if heldRows[&us[0].Within.Calibration[i*dx]] == held {
				own.Calibration[i*dx] += 0.3
				break
			}
		}
		u.Within = &own
		out[0].Upload = &u
		return out
	}
	if got, _ := heads(spoil(true), 0.9); !slices.Equal(got, want) {
		t.Error("the heads depend on a point that is held back for the sets")
	}
	if got, _ := heads(spoil(false), 0.9); slices.Equal(got, want) {
		t.Error("the heads do not depend on a point that is not held back")
	}
	if got, _ := heads(us, -1); slices.Equal(got, want) {
		t.Error("without sets the points are not added back")
	}
	must.Fail(New(us, g, f, Options{Sets: Sets{Level: 0.2}}))(t, "level")
	few := us[:1]
	r := must.Get(New(few, g, f, Options{Sets: Sets{Level: 0.9}}))(t)
	must.Fail(r.Sampling(w.eng))(t, fmt.Sprint(conformal.ImagesOfClients(0.9)), "level 0.9 of one client")
	if _, s := heads(us, 0.8); s.held == nil {
		t.Error("level 0.8 holds no points back")
	}
	r = must.Get(New(few, g, f, Options{}))(t)
	if s, err := r.Sampling(w.eng); err != nil || s.held != nil {
		t.Errorf("too few points for sets that nobody asked for: %v", err)
	}
}

// calibration is that of a client's images.
func (w *world) calibration(t *testing.T, g *onnx.Model, f models.Manifest, pix []uint8, labels []int) *point.Set {
	t.Helper()
	s := &point.Set{N: len(labels), Dx: f.PointWidth(), C: classes, Z: w.embedded(t, g, f, pix, labels),
		W: make([]float32, len(labels))}
	for _, y := range labels {
		s.Y = append(s.Y, int32(y))
	}
	return s
}

// TestSetsOfMeans: in a round of class means, of features or of coordinates, the threshold is that
// of the classifier's own probabilities for the images that are calibration points, over all
// clients or for one of them; the points change no head.
func TestSetsOfMeans(t *testing.T) {
	w := newWorld(t)
	const clients, each = 4, 9
	for _, phi := range []bool{true, false} {
		g, f := w.client(t, phi)
		us := w.uploads(t, g, f, 12, 15, 9, 12)
		plain := slices.Clone(us)
		var pix []uint8
		var labels []int
		for m := range us {
			own, y := w.clientImages(m, 1, each)
			pix, labels = append(pix, own...), append(labels, y...)
			u := *us[m].Upload
			u.Calibration = w.calibration(t, g, f, own, y)
			us[m].Upload = &u
		}
		made := func(us []Upload, level float64) *posterior.Result {
			t.Helper()
			r, p := w.posterior(t, us, g, f, Options{Predictor: w.predictor, Seed: 3, Samples: 25,
				Sets: Sets{Level: level}})
			m := must.Get(r.Classifier(t.Context(), p, false, false, ""))(t)
			if p.Sets == nil {
				return p
			}
			out := w.eval(t, m, pix, nil)
			var scores []float32
			for i, y := range labels {
				scores = append(scores, out["probabilities"].F32()[i*classes+y])
			}
			want := float64(conformal.Design{Clients: true}.Table(scores, labels,
				classes).At(cmp.Or(level, Level))[0])
			if s := p.Sets; s.Images != clients*each || s.Clients != clients ||
				math.Abs(float64(s.Thresholds[0])-want) > 1e-4*(1+want) {
				t.Errorf("features %v, level %v: %+v; the classifier's own threshold is %v",
					phi, level, s, want)
			}
			return p
		}
		p := made(us, 0)
		if made(us, 0.8).Sets.Thresholds[0] <= p.Sets.Thresholds[0] {
			t.Errorf("features %v: the threshold of level .8 is not above that of .9", phi)
		}
		none := made(plain, 0)
		if none.Sets != nil || !slices.Equal(none.Ensembles[0][3].W, p.Ensembles[0][3].W) {
			t.Errorf("features %v: without points there are sets %+v, or other heads", phi, none.Sets)
		}
		if made(us, -1).Sets != nil {
			t.Errorf("features %v: level -1 has sets", phi)
		}
		w.groups(t, g, f, us)
		for _, c := range []struct {
			us    []Upload
			level float64
		}{{plain, 0.9}, {us, 0.99}} {
			r := must.Get(New(c.us, g, f, Options{Predictor: w.predictor, Sets: Sets{Level: c.level}}))(t)
			must.Fail(r.Sampling(w.eng))(t, "--calibrate", "features", phi, "level", c.level)
		}
	}
}

// groups: with two groups of the four clients the threshold is the lower one of the groups' own. A
// level that a group does not prove is an error that names the group, and no sets where the round
// is lenient.
func (w *world) groups(t *testing.T, g *onnx.Model, f models.Manifest, us []Upload) {
	t.Helper()
	o := Options{Predictor: w.predictor, Seed: 3, Samples: 25,
		Sets: Sets{Level: 0.8, Groups: fmt.Sprintf("odd=%s,%s", us[1].Client, us[3].Client)}}
	sets := func(o Options) (*models.OriginSets, error) {
		_, p, err := played(t.Context(), w.eng, us, g, f, o)
		if err != nil {
			return nil, err
		}
		return p.Sets, nil
	}
	s := must.Get(sets(o))(t)
	scores := make([][]float32, 2)
	for i, at := range s.Group {
		scores[at] = append(scores[at], s.Scores[s.Score][i])
	}
	least := float32(1)
	for _, own := range scores {
		least = min(least, conformal.Design{Clients: true}.Table(own, make([]int, len(own)), 1).At(0.8)[0])
	}
	if !slices.Equal(s.Groups, []string{"odd", "no group"}) || s.Thresholds[0] != least ||
		len(scores[0]) != 18 || len(scores[1]) != 18 {
		t.Errorf("groups %q of %d and %d points: threshold %v; the lower one is %v", s.Groups,
			len(scores[0]), len(scores[1]), s.Thresholds, least)
	}
	if f.K > 0 { // calibration points are in the heads' coordinates
		w.dishonest(t, g, f, us, o)
	}
	o.Groups = "one=" + us[2].Client // nine points
	o.Level = 0.9
	must.Fail(sets(o))(t, `clients of "one"`, "a group of nine points proves level .9")
	o.Lenient = true
	if s, err := sets(o); err != nil || s != nil {
		t.Errorf("a lenient round has sets %+v that a group does not prove: %v", s, err)
	}
	o.Lenient = false
	for _, bad := range []string{"one", "a=x;b=x", fmt.Sprintf("a=%s, %s", us[1].Client, us[3].Client)} {
		o.Groups = bad
		must.Fail(sets(o))(t, "groups of clients", bad)
	}
}

// dishonest: where no client of a group is likely honest, no point tells of the group, and there
// are no sets for it: an error where they were asked for.
func (w *world) dishonest(t *testing.T, g *onnx.Model, f models.Manifest, us []Upload, o Options) {
	t.Helper()
	for _, c := range []struct {
		honest  []float64
		lenient bool
		want    string
	}{
		{[]float64{1, 1, 1, 1}, false, ""},
		{[]float64{0, 1, 0, 1}, false, `clients of "no group"`},
		{[]float64{1, 0, 1, 0}, false, `clients of "odd"`},
		{[]float64{0, 1, 0, 1}, true, "none"},
	} {
		o.Lenient = c.lenient
		r := must.Get(New(us, g, f, o))(t)
		s := must.Get(r.Sampling(w.eng))(t)
		p := must.Get(r.Posterior(t.Context(), w.eng))(t)
		p.Judgement = &posterior.Judgement{Honest: c.honest}
		sets, err := s.calibrated(p)
		switch {
		case c.want == "" && (err != nil || sets == nil):
			t.Errorf("honest clients: %+v, %v", sets, err)
		case c.want == "none" && (err != nil || sets != nil || !strings.Contains(p.NoSets, `clients of "no group"`)):
			t.Errorf("a lenient round has sets %+v of a group without an honest client: %v, %q", sets, err, p.NoSets)
		case c.want != "" && c.want != "none" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("P(honest) %v: sets %+v, %v", c.honest, sets, err)
		}
	}
}

// TestSetsOfOne: the classifier for one client, whose camera is another, has sets by this client's
// points alone, scored as the classifier does.
func TestSetsOfOne(t *testing.T) {
	o := newOwners(t, 11)
	dark := func(pix []uint8, _ []int64) []uint8 { return camera(pix, 0.8) }
	plain := func(pix []uint8, _ []int64) []uint8 { return pix }
	const each = 12
	size := o.drawn.Side * o.drawn.Side
	var us []Upload
	var want []uint8
	for m := range 5 {
		change := plain
		if m == 4 {
			change = dark
		}
		u := o.upload(t, m, change)
		pix := change(o.drawn.Test.Pix[m*each*size:(m+1)*each*size], nil)
		u.Calibration = &point.Set{N: each, Dx: o.client.PointWidth(), C: 10, W: make([]float32, each)}
		for i := range each {
			y := int(o.drawn.Test.Labels[m*each+i])
			one := map[string]*onnx.Tensor{"images": o.images(pix[i*size : (i+1)*size]),
				"labels": onnx.NewTensor([]int64{int64(y)}, 1)}
			z := o.eval(t, o.graph, one)["points"].F32()
			u.Calibration.Z = append(u.Calibration.Z, z[y*(u.Calibration.Dx+10):][:u.Calibration.Dx]...)
			u.Calibration.Y = append(u.Calibration.Y, int32(y))
		}
		us, want = append(us, u), pix
	}
	r, p := o.posterior(t, us, Options{For: us[4].Client, Seed: 1, Samples: 20})
	if !p.Effects.Any() {
		t.Fatal("the camera is not found")
	}
	m := must.Get(r.Classifier(t.Context(), p, false, false, ""))(t)
	stated := o.eval(t, m, map[string]*onnx.Tensor{"images": o.images(want)},
		"probabilities")["probabilities"].F32()
	var scores []float32
	for i := range each {
		scores = append(scores, stated[i*10+int(o.drawn.Test.Labels[4*each+i])])
	}
	threshold := conformal.Design{}.Table(scores, make([]int, each), 1).At(Level)[0]
	if s := p.Sets; s == nil || s.Images != each || s.Clients != 1 ||
		math.Abs(float64(s.Thresholds[0]-threshold)) > 1e-3 {
		t.Errorf("sets %+v; the threshold of the client's own images is %v", s, threshold)
	}
}

// TestUnreadSets: options of the sets that others leave without effect are refused.
func TestUnreadSets(t *testing.T) {
	half, none, usual := 0.4, 0., FalseShare
	for name, c := range map[string]struct {
		o    Options
		want string // of the error; empty: none
	}{
		"honest clients":            {Options{Trust: true, Sets: Sets{FalseShare: &half}}, "take one of the two"},
		"one client":                {Options{For: "a", Sets: Sets{FalseShare: &half}}, "take one of the two"},
		"honest clients, none":      {Options{Trust: true, Sets: Sets{FalseShare: &none}}, ""},
		"honest clients, usual":     {Options{Trust: true, Sets: Sets{FalseShare: &usual}}, ""},
		"some clients":              {Options{Sets: Sets{FalseShare: &half}}, ""},
		"no sets":                   {Options{Sets: Sets{Level: -1, FalseShare: &usual}}, ""},
		"no sets, by class":         {Options{Sets: Sets{Level: -1, ByClass: true}}, "by_class is of"},
		"no sets, groups":           {Options{Sets: Sets{Level: -1, Groups: "g=a"}}, "groups is of"},
		"no sets, shares":           {Options{Sets: Sets{Level: -1, Proportions: "equal"}}, "proportions is of"},
		"no sets, score":            {Options{Sets: Sets{Level: -1, Score: conformal.Adaptive}}, "score is of"},
		"no sets, false points":     {Options{Sets: Sets{Level: -1, FalseShare: &half}}, "false_share is of"},
		"no sets, the usual score":  {Options{Sets: Sets{Level: -1, Score: conformal.Probability}}, ""},
		"the usual level, by class": {Options{Sets: Sets{ByClass: true}}, ""},
	} {
		if _, err := (&Round{Options: c.o}).setDesign(); c.want == "" {
			must.Do(t, err)
		} else {
			must.Fail(0, err)(t, c.want, name)
		}
	}
}

// TestUnproved: too few points are blamed on false ones only where the sets survive these.
func TestUnproved(t *testing.T) {
	var points []calibrationPoint
	for m := range 10 {
		points = append(points, calibrationPoint{class: 0, client: m})
	}
	for want, sets := range map[string]Sets{"may be false": {}, "": {ByClass: true}} {
		r := &Round{Uploads: []Upload{{Upload: &federate.Upload{Points: &point.Set{C: 2}}}}, Options: Options{Sets: sets}}
		r.design = must.Get(r.setDesign())(t)
		if err := r.proves(points, 0.99); err == nil || strings.Contains(err.Error(), "may be false") != (want != "") {
			t.Errorf("%+v: %v", sets, err)
		}
	}
}
