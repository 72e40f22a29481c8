package pool

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/merge"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/shipped"
)

// misnamed returns uploads of which the first bad clients name each class by the next one's name.
func misnamed(us []Upload, bad int) []Upload {
	out := slices.Clone(us)
	for m := range bad {
		u, points := *us[m].Upload, *us[m].Points.Dense()
		points.Z = slices.Clone(points.Z)
		for i := range points.N {
			y := points.Row(i)[points.Dx:]
			copy(y, append(y[classes-1:classes:classes], y[:classes-1]...))
		}
		u.Points = &points
		out[m].Upload = &u
	}
	return out
}

// TestFallsSection: the section that a round without an anchor names is there.
func TestFallsSection(t *testing.T) {
	_, at, _ := strings.Cut(falls(4), "(")
	page, section, _ := strings.Cut(strings.TrimSuffix(at, ")"), ", ")
	text := string(must.Get(os.ReadFile(filepath.Join("../..", page)))(t))
	if section == "" || !strings.Contains(text, "\n## "+section+"\n") {
		t.Errorf("%q: %s has no such section", falls(4), page)
	}
}

// TestThinAnchor: a given anchor of fewer than ten images of some class says so.
func TestThinAnchor(t *testing.T) {
	for _, c := range []struct {
		w    []float32
		want string
	}{
		{[]float32{10, 10, 40}, `60 images of "own"`},
		{[]float32{10, 0, 40}, `50 images of "own"`},
		{[]float32{9, 40, 2}, `51 images of "own"; of 2 classes it has fewer than 10 images`},
	} {
		points := &point.Set{Dx: 1, C: 3, N: 3, Z: make([]float32, 3), Y: []int32{0, 1, 2}, W: c.w}
		r := Round{Client: models.Manifest{C: 3}, anchored: anchoredGiven,
			Options: Options{AnchorUpload: &federate.Upload{Client: "own", N: int(points.Mass()), Points: points}}}
		if got := r.Anchored(&posterior.Judgement{}); !strings.HasPrefix(got, c.want) ||
			strings.Contains(got, "fewer") != strings.Contains(c.want, "fewer") {
			t.Errorf("%v: %s; want %s", c.w, got, c.want)
		}
	}
}

// TestHeavy: a feature that drowns the others in half of the uploads is told of, and not where uploads
// hold directions of the features.
func TestHeavy(t *testing.T) {
	const dx = 16
	upload := func(heavy float64) Upload {
		x, y := make([]float32, 40*dx), make([]int, 40)
		r := rng.New(1, "heavy")
		for i := range y {
			row, total := make([]float64, dx), 0.0
			for j := range row {
				row[j] = r.Float64()
				if j == 3 {
					row[j] *= heavy
				}
				total += row[j]
			}
			for j, v := range row {
				x[i*dx+j] = float32(math.Sqrt(v / total))
			}
			y[i] = i % 2
		}
		means, within := must.Get2(moments.Parted(x, dx, y, 2, nil))(t)
		return Upload{Upload: &federate.Upload{Points: means, Within: within}}
	}
	even, heavy := upload(1), upload(1000)
	for i, c := range []struct {
		us   []Upload
		dx   int
		told bool
	}{
		{[]Upload{even, even}, dx, false},
		{[]Upload{heavy}, dx, true},
		{[]Upload{even, heavy}, dx, true},
		{[]Upload{even, heavy, even}, dx, false},
		{[]Upload{heavy}, 20, false},
	} {
		r := Round{Uploads: c.us, Client: models.Manifest{Dx: c.dx}}
		if got := r.Heavy(); strings.HasPrefix(got, "number 3 of 16 of the features") != c.told || (got != "") != c.told {
			t.Errorf("%d: told %q", i, got)
		}
	}
}

// TestAnchor: where seven of twelve clients agree on false names, an upload of the server's own
// tells who is honest, of class means in coordinates and in features and of moments; without it the
// seven are believed. Summed clients are judged by it too. An anchor that cannot act is refused.
func TestAnchor(t *testing.T) {
	w := newWorld(t)
	const clients, bad = 12, 7
	for name, made := range map[string]func() ([]Upload, *onnx.Model, models.Manifest){
		"coordinates": func() ([]Upload, *onnx.Model, models.Manifest) {
			g, f := w.client(t, false)
			return w.uploads(t, g, f, slices.Repeat([]int{30}, clients+1)...), g, f
		},
		"features": func() ([]Upload, *onnx.Model, models.Manifest) {
			g, f := w.client(t, true)
			return w.uploads(t, g, f, slices.Repeat([]int{30}, clients+1)...), g, f
		},
		"moments": func() (us []Upload, g *onnx.Model, f models.Manifest) {
			for m := range clients + 1 { // the easiest client of as many rounds
				var one []Upload
				one, g, f = w.momentsRound(t, 1, uint64(m))
				us = append(us, one...)
			}
			return us, g, f
		},
	} {
		us, g, f := made()
		for m := range us {
			us[m].Client = fmt.Sprintf("client %02d", m) // in the order of names
		}
		o := Options{Predictor: w.predictor, Seed: 3, Samples: 20, Sets: Sets{Level: -1}}
		if name == "moments" {
			o.Predictor = ""
		}
		honest := func(o Options) []float64 {
			t.Helper()
			_, p := w.posterior(t, misnamed(us[:clients], bad), g, f, o)
			return p.Judgement.Honest
		}
		if p := honest(o); p[0] < 0.5 || p[clients-1] > 0.5 {
			t.Errorf("%s: without an anchor P(honest) is %.2f; the seven agree", name, p)
		}
		o.AnchorUpload = us[clients].Upload
		for m, p := range honest(o) {
			if (p > 0.5) != (m >= bad) {
				t.Errorf("%s: with an anchor client %d is honest with %.2f", name, m, p)
			}
		}
		var messages [][]byte
		lies := misnamed(us[:clients], bad)
		for _, u := range lies {
			u.N = int(u.Points.Mass()) // calibration points are beside it
			messages = append(messages, must.Get(u.Encode())(t))
		}
		sample, _ := part(t, &merge.Merger{}, messages...)
		judge := must.Get(Judge(t.Context(), w.eng, sample, g, f, o))(t)
		for m, u := range lies {
			if share, err := judge(u.Upload); err != nil || (share > 0) != (m >= bad) {
				t.Errorf("%s: of client %d, to be summed, %.2f counts, %v", name, m, share, err)
			}
		}
		trusting, other := o, o
		trusting.Trust = true
		of := *o.AnchorUpload
		of.Model = strings.Repeat("0", 64)
		other.AnchorUpload = &of
		for want, o := range map[string]Options{"all are taken for honest": trusting,
			"make it with the round's": other} {
			must.Fail(New(us[:clients], g, f, o))(t, want, name)
		}
	}
}

// TestShippedAnchor: a round behind a shipped extractor, of the classes that its anchor holds, is
// judged by it unasked: five of ten clients that agree on false names are told, and a setting
// leaves it out. Where all clients have other images than the anchor it gives way.
func TestShippedAnchor(t *testing.T) {
	g, f := must.Get2(shipped.Load("digits", models.KindClient))(t)
	known := must.Get(shipped.Anchor(f, g))(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	const clients = 10
	r := rng.New(1, "shipped anchor")
	var us []Upload
	for m := range clients {
		points := *known.Points
		points.Z = slices.Clone(points.Z)
		for i := range points.Z {
			points.Z[i] += float32(0.02 * r.NormFloat64())
		}
		us = append(us, Upload{Upload: &federate.Upload{Client: fmt.Sprint("client ", m), Model: f.Digest,
			N: known.N, Points: &points}})
	}
	judged := func(bad int, o Options) (*posterior.Judgement, string) {
		t.Helper()
		o.Seed, o.Samples, o.Level = 1, 10, -1
		round := must.Get(New(misnamed(us, bad), nil, models.Manifest{}, o))(t)
		p := must.Get(round.Posterior(t.Context(), eng))(t)
		return p.Judgement, round.Anchored(p.Judgement)
	}
	for _, c := range []struct {
		bad   int
		o     Options
		holds bool
		says  string
	}{
		{0, Options{}, true, "100 images that come with the program"},
		{5, Options{}, true, "100 images"},
		{6, Options{}, true, "100 images"},
		{6, Options{Anchor: LeftOut}, false, "none: 5 of 10 clients that collude"},
		{10, Options{}, false, "left out: the anchor that comes with the program contradicts"},
		{6, Options{Trust: true}, false, ""},
	} {
		j, says := judged(c.bad, c.o)
		if !strings.Contains(says, c.says) || (says == "") != (c.says == "") {
			t.Errorf("%d bad: judged by %q; want %q", c.bad, says, c.says)
		}
		for m := range clients {
			if j != nil && (j.Honest[m] > 0.5) != (m >= c.bad) && c.holds {
				t.Errorf("%d bad, %q: client %d is honest with %.2f", c.bad, says, m, j.Honest[m])
			}
		}
		if c.bad == clients && slices.Min(j.Honest) < 0.5 {
			t.Errorf("all clients are of other images than the anchor: P(honest) is %.2f", j.Honest)
		}
	}
}
