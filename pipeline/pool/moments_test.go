package pool

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// embedded returns the rows of images, each computed from a set of one image as the client does.
func (w *world) embedded(t *testing.T, g *onnx.Model, f models.Manifest, pix []uint8,
	labels []int) (rows []float32) {
	t.Helper()
	for at, y := range labels {
		z := w.eval(t, g, pix[at*dx:(at+1)*dx], []int{y})["points"].F32()
		rows = append(rows, z[y*(f.PointWidth()+classes):][:f.PointWidth()]...)
	}
	return rows
}

// own returns the rows and labels of a client's 60 images.
func (w *world) own(t *testing.T, g *onnx.Model, f models.Manifest, client int) (rows []float32, labels []int) {
	t.Helper()
	pix, labels := pixels(rng.New(1, "client", client), 60, classes)
	return w.embedded(t, g, f, pix, labels), labels
}

// momentsOf is a client's upload of the moments of rows, of which calibration points are drawn by a seed.
func momentsOf(t *testing.T, f models.Manifest, client int, rows []float32, labels []int,
	seed ...any) *federate.Upload {
	t.Helper()
	u := &federate.Upload{Client: fmt.Sprint("client ", client), Model: f.Digest}
	u.Points, u.Within = must.Get2(moments.Compute(rows, dx, labels, classes,
		fmt.Sprint(append([]any{u.Client}, seed...)...)))(t)
	u.N = int(u.Points.Mass())
	return u
}

// owned are the uploads of moments of some clients' own images.
func (w *world) owned(t *testing.T, g *onnx.Model, f models.Manifest, clients int) (us []Upload) {
	t.Helper()
	for i := range clients {
		rows, labels := w.own(t, g, f, i)
		us = append(us, sent(t, momentsOf(t, f, i, rows, labels)))
	}
	return us
}

// TestMomentsClaim: a client of flipped labels that claims a thousand times its images costs
// little; where claims are trusted it takes the round over.
func TestMomentsClaim(t *testing.T) {
	w := newWorld(t)
	g, f := momentsGraph(t)
	var us []Upload
	for i := range 5 {
		rows, labels := w.own(t, g, f, i)
		if i == 0 {
			for at, y := range labels {
				labels[at] = (y + 1) % classes
			}
		}
		u := momentsOf(t, f, i, rows, labels)
		if i == 0 {
			u.Within.Dof *= 1000
			for _, x := range [][]float32{u.Points.W, u.Within.Data} {
				for j := range x {
					x[j] *= 1000
				}
			}
		}
		us = append(us, Upload{Upload: u})
	}
	accuracy := func(trust bool) float64 {
		r, p := w.posterior(t, us, g, f, Options{Seed: 1, Trust: trust})
		m := must.Get(r.Classifier(t.Context(), p, false, false, "fmp pool"))(t)
		pix, labels := pixels(rng.New(1, "test"), 600, classes)
		return float64(right(w.eval(t, m, pix, nil)["probabilities"].F32(), labels)) / 600
	}
	bounded, trusted := accuracy(false), accuracy(true)
	if bounded < 0.9 || trusted > 0.5 {
		t.Errorf("right %.3f of the time, %.3f where claims are trusted; want .9 or more, .5 or less",
			bounded, trusted)
	}
}

// TestMoments: uploads of moments become a classifier without a predictor or a corpus: right about
// new images, sure as often as it is right, and with intervals that are those of the posterior.
func TestMoments(t *testing.T) {
	w := newWorld(t)
	g, f := momentsGraph(t)
	if f.Bytes != 1<<16 {
		t.Fatalf("the client graph's manifest is %+v", f)
	}
	us := w.owned(t, g, f, 5)
	r, p := w.posterior(t, us, g, f, Options{Seed: 1})
	m := must.Get(r.Classifier(t.Context(), p, false, false, "fmp pool"))(t)
	pix, labels := pixels(rng.New(1, "test"), 600, classes)
	out := w.eval(t, m, pix, nil)
	prob, low, high := out["probabilities"].F32(), out["low"].F32(), out["high"].F32()
	share, sure := float64(right(prob, labels))/600, 0.0
	for i := range labels {
		at := prob[i*classes : (i+1)*classes]
		for c, v := range at {
			if l, h := low[i*classes+c], high[i*classes+c]; !(l < h) || !(l < v+0.02) || !(v-0.02 < h) {
				t.Fatalf("image %d, class %d: probability %v, interval %v to %v", i, c, v, l, h)
			}
		}
		sure += float64(slices.Max(at)) / 600
	}
	if share < 0.9 || math.Abs(sure-share) > 0.05 {
		t.Errorf("right %.3f of the time and sure %.3f", share, sure)
	}
	a, b := must.Get2(p.Intervals.Compute(t.Context(), featuresOf(pix[:20*dx]), posterior.IntervalLevel))(t)
	for i := range a {
		if math.Abs(a[i]-float64(low[i])) > 5e-3 || math.Abs(b[i]-float64(high[i])) > 5e-3 {
			t.Fatalf("interval %d is %v to %v in the graph, %v to %v by the posterior", i, low[i],
				high[i], a[i], b[i])
		}
	}
	for name, v := range map[string]struct {
		spoil func(us []Upload, o *Options)
		want  string
	}{
		"predictor": {func(_ []Upload, o *Options) { o.Predictor = w.predictor },
			"predictor (setting predictor.model) is for uploads of"},
		"no moments": {func(us []Upload, _ *Options) {
			us[1].Upload = &federate.Upload{Client: "x", Points: us[1].Points}
		}, "holds no moments"},
	} {
		spoiled, o := append([]Upload(nil), us...), Options{}
		v.spoil(spoiled, &o)
		must.Fail(played(t.Context(), w.eng, spoiled, g, f, o))(t, v.want, name)
	}
}

// readCorpus returns the corpus in a file.
func readCorpus(path string) (*discriminant.Client, error) {
	o := Options{Corpus: path}
	err := o.ReadFiles()
	return o.CorpusMoments, err
}

// TestWithdrawnActs: an upload that is withdrawn, or another of its client in that round, is neither corpus nor
// anchor.
func TestWithdrawnActs(t *testing.T) {
	g, f := momentsGraph(t)
	us := newWorld(t).owned(t, g, f, 2)
	path := func(u Upload) string {
		u.Round = 7
		return writeUpload(t, u.Upload)
	}
	o := Options{Corpus: path(us[0]), Anchor: path(us[1])}
	must.Do(t, o.ReadFiles())
	for i, u := range us {
		digest := must.Get(models.DigestFile(o.acting[i].Path, math.MaxInt64))(t)
		must.Fail(o.Withdrawn("somebody", digest, 8, u.Model))(t, "which withdraws", "the upload")
		must.Fail(o.Withdrawn(u.Client, "another", 7, u.Model))(t, "which withdraws", "another of the client")
		must.Do(t, o.Withdrawn(u.Client, "another", 8, u.Model))
		must.Do(t, o.Withdrawn(u.Client, "another", 7, "another"))
		must.Do(t, o.Withdrawn("somebody", "another", 7, u.Model))
	}
}

// writeUpload writes an upload to a file of its own.
func writeUpload(t *testing.T, u *federate.Upload) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.upload")
	must.Do(t, os.WriteFile(path, must.Get(u.Encode())(t), 0o600))
	return path
}

// TestMomentsCorpus: an upload of moments is read as a corpus, and the posterior says how much
// speaks for it; what is no corpus of the round is refused with the reason.
func TestMomentsCorpus(t *testing.T) {
	w := newWorld(t)
	g, f := momentsGraph(t)
	us := w.owned(t, g, f, 4)
	write := func(u *federate.Upload) string { return writeUpload(t, u) }
	c := must.Get(readCorpus(write(us[3].Upload)))(t)
	_, p := w.posterior(t, us[:3], g, f, Options{Seed: 1, CorpusMoments: c})
	if e, ok := p.Diagnostics["corpus"]; !ok || e == 0 {
		t.Errorf("diagnostics %v; want the evidence of the corpus", p.Diagnostics)
	}
	// without calibration points, which clients left out weigh
	for i := range 3 {
		rows, labels := w.own(t, g, f, i)
		u := *us[i].Upload
		u.N = len(labels)
		u.Points, u.Within = must.Get2(moments.Parted(rows, dx, labels, classes, nil))(t)
		us[i].Upload = &u
	}
	made := func(c *discriminant.Client) *posterior.Result {
		_, p := w.posterior(t, us[:3], g, f, Options{Seed: 1, CorpusMoments: c})
		return p
	}
	alone, with := made(nil), made(c)
	if e := with.Diagnostics["corpus"]; e == 0 || with.Diagnostics["left out"] != 1 {
		t.Errorf("diagnostics %v; want the evidence of the corpus, of clients left out", with.Diagnostics)
	}
	if _, ok := alone.Diagnostics["corpus"]; ok || slices.Equal(alone.Ensembles[0][0].W, with.Ensembles[0][0].W) {
		t.Errorf("diagnostics %v; want a corpus that takes part where there is one", alone.Diagnostics)
	}
	known := f
	known.Kappa, known.KappaDeviation = 0.85, 0.25
	for what, tt := range map[string]struct {
		us []Upload
		f  models.Manifest
	}{"kappa is known": {us[:3], known}, "one client": {us[:1], f}} {
		_, p := w.posterior(t, tt.us, g, tt.f, Options{Seed: 1, CorpusMoments: c})
		if e, ok := p.Diagnostics["corpus"]; ok {
			t.Errorf("%s: log evidence %v of a corpus that nothing weighs", what, e)
		}
	}
	means := *us[3].Upload
	means.Within = nil
	alike, improper := *us[3].Upload, *us[3].Upload
	triangle := make([]float32, dx*(dx+1)/2)
	alike.Within = &moments.Within{K: dx, Dof: 9, Data: slices.Clone(triangle)}
	triangle[0], triangle[1], triangle[dx] = 1e-3, 1, 1e-3
	improper.Within = &moments.Within{K: dx, Dof: 9, Data: triangle}
	wider := *c
	wider.Within = &moments.Within{K: dx + 1}
	for want, path := range map[string]string{"it holds no moments": write(&means),
		"are alike": write(&alike), "no covariance": write(&improper),
		"reading corpus": filepath.Join(t.TempDir(), "none")} {
		must.Fail(readCorpus(path))(t, want)
	}
	copied := *us[2].Upload
	copied.Client, copied.Precision = "somebody", federate.Int8
	_, err := New(us[:3], g, f, Options{Seed: 1, CorpusMoments: must.Get(readCorpus(write(&copied)))(t)})
	must.Fail(err)(t, "of the corpus's images")
	if unfit := (*UnfitError)(nil); !errors.As(err, &unfit) || len(unfit.Left) != 2 {
		t.Errorf("%v; want an upload that can be left out, and two others", err)
	}
	must.Fail(New(us[:3], g, f, Options{Seed: 1, CorpusMoments: &wider}))(t, "the corpus has rows of")
}

// TestSameImages: copies are told, in any order of classes, and no other images, however many there are and
// whatever their features have in common.
func TestSameImages(t *testing.T) {
	const k, c = 300, 3
	at := rng.New(1, "same")
	draw := func(n int) *discriminant.Client {
		s := &point.Set{N: c, Dx: k, C: c, Y: []int32{2, 0, 1}}
		for y := range c {
			s.W = append(s.W, float32(n+y%2))
			for range k { // the mean of n images of mean 5 and variance 1
				s.Z = append(s.Z, float32(5+float64(y)/50+at.NormFloat64()/math.Sqrt(float64(n))))
			}
		}
		w := &moments.Within{K: k, Dof: c * n, Data: make([]float32, k*(k+1)/2)}
		for i, to := 0, 0; i < k; i++ {
			w.Data[to] = float32(w.Dof)
			to += k - i
		}
		return &discriminant.Client{Means: s, Within: w}
	}
	for _, n := range []int{1, 20, 5000, 1_000_000} {
		a, b := draw(n), draw(n)
		if sameImages(b.Means, a) {
			t.Errorf("%d other images a class are taken for the corpus's", n)
		}
		turned := &point.Set{N: c, Dx: k, C: c, Y: []int32{1, 0, 2}}
		for i := range c {
			turned.W, turned.Z = append(turned.W, a.Means.W[c-1-i]), append(turned.Z, a.Means.Features(c-1-i)...)
		}
		if !sameImages(a.Means, a) || !sameImages(turned, a) {
			t.Errorf("the corpus's %d images a class are not told", n)
		}
		if turned.W[0]++; sameImages(turned, a) {
			t.Errorf("one of %d images more is taken for the corpus's", n)
		}
	}
}

// TestOrderOfUploads: a round has its uploads in the order of their clients' names, whatever the order in which they
// are given, which stays as it is.
func TestOrderOfUploads(t *testing.T) {
	w := newWorld(t)
	us, g, f := w.momentsRound(t, 3, 1)
	given := []Upload{us[2], us[0], us[1]}
	r := must.Get(New(given, g, f, Options{Seed: 3, Samples: 20, Sets: Sets{Level: -1}}))(t)
	must.Fail(New(given, g, f, Options{Samples: 1 << 20}))(
		t, "allowed are", "more samples than memory is for")

	for i, u := range r.Uploads {
		if u.Client != us[i].Client || given[i].Client != us[(i+2)%3].Client {
			t.Errorf("upload %d of the round is %s's, and was given as %s's", i, u.Client, given[i].Client)
		}
	}
}

// TestAbsent: classes of which nobody has images are named.
func TestAbsent(t *testing.T) {
	r := &Round{Client: models.Manifest{Bytes: 1, Classes: []string{"larch", "fir", "yew"}}, Uploads: []Upload{
		{Upload: &federate.Upload{Points: &point.Set{N: 2, Dx: 1, C: 3, W: []float32{4, 0}, Z: []float32{1, 2},
			Y: []int32{2, 1}}}}}}
	if got := r.Absent(); !slices.Equal(got, []string{"larch", "fir"}) {
		t.Errorf("absent are %q; want larch and fir", got)
	}
	r.Rest = &Rest{Means: &point.Set{N: 1, Dx: 1, C: 3, W: []float32{9}, Z: []float32{3}, Y: []int32{0}}}
	if got := r.Absent(); !slices.Equal(got, []string{"fir"}) {
		t.Errorf("beside merged clients absent are %q; want fir", got)
	}
}
