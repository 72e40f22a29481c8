package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/pipeline/erm"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
	"fmp/pipeline/stats"
)

// shipped writes a shipped model of the digits to a file.
func shippedFile(t *testing.T, kind string) string { return assetstest.File(t, "digits", kind) }

// centres are where the classes of made-up uploads lie.
func centres(f models.Manifest) []float32 {
	out := make([]float32, f.C*f.Dx)
	rng.Normal(rng.New(1, "centres"), out)
	return out
}

// madeUpload writes an upload with one point a class near twice its centre, two images behind each.
func madeUpload(t *testing.T, f models.Manifest, path, client, model string, round uint64) string {
	t.Helper()
	centre := centres(f)
	s := point.New(f.C, f.Dx, f.C)
	noise := make([]float32, f.Dx)
	for c := range f.C {
		row := s.Row(c)
		rng.Normal(rng.New(1, "noise", client, c), noise)
		for k := range f.Dx {
			if row[k] = 2*centre[c*f.Dx+k] + 0.3*noise[k]; f.ClassMeans {
				row[k] *= 0.02 // classes that nobody is sure of
			}
		}
		row[f.Dx+c] = 1
		s.W[c] = 2
	}
	u := federate.Upload{Round: round, Client: client, Model: model, N: 2 * f.C, Points: s}
	data := must.Get(u.Encode())(t)
	must.Do(t, os.WriteFile(path, data, 0o644))
	return path
}

// TestPool: uploads whose classes lie apart become heads that know them apart, the same for the
// same seed; uploads that do not belong together are refused, and nothing is written.
func TestPool(t *testing.T) {
	predictor, client := shippedFile(t, models.KindPredictor), shippedFile(t, models.KindEmbedding)
	_, f := must.Get2(models.Load(client))(t)
	dir := t.TempDir()
	centre := centres(f)
	made := func(name, file, model string, round uint64) string {
		return madeUpload(t, f, filepath.Join(dir, file), name, model, round)
	}
	var uploads []string
	for i := range 4 {
		uploads = append(uploads, made(fmt.Sprint("client ", i), fmt.Sprint(i), f.Digest, 2))
	}
	pool := func(out string, args ...string) []string {
		return append([]string{"pool", "--engine.name", "pure", "--predictor", predictor, "-o", out},
			args...)
	}
	out := filepath.Join(dir, "posterior.npy")
	ran(t, pool(out, append(slices.Clone(uploads), "--client-graph", client, "--round", "2", "--set",
		"posterior.samples=6")...)...)
	heads := must.Get(npy.Load(out))(t)
	if want := []int{6, f.Dx + 1, f.C}; !slices.Equal(heads.Shape, want) {
		t.Fatalf("heads of shape %v, want %v", heads.Shape, want)
	}
	for s := range 6 {
		theta := heads.F64()[s*(f.Dx+1)*f.C:]
		for c := range f.C {
			best, top := -1, math.Inf(-1)
			for k := range f.C {
				v := theta[f.Dx*f.C+k]
				for j := range f.Dx {
					v += 2 * float64(centre[c*f.Dx+j]) * theta[j*f.C+k]
				}
				if v > top {
					best, top = k, v
				}
			}
			if best != c {
				t.Errorf("sample %d takes class %d for %d", s, c, best)
			}
		}
	}
	first := must.Get(os.ReadFile(out))(t)
	ran(t, pool(out, append(slices.Clone(uploads), "--threads", "1", "--set", "posterior.samples=6")...)...)
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the same uploads and seed gave another posterior (%v)", err)
	}

	other := strings.Repeat("ab", 32)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"both of client", []string{uploads[0], uploads[0]}},
		{"model is", []string{uploads[0], made("x", "x", other, 2)}},
		{"model is", []string{filepath.Join(dir, "x"), "--client-graph", client}},
		{"allowed: 3, the round", []string{uploads[0], made("y", "y", f.Digest, 3)}},
		{"round is 2", []string{uploads[0], "--round", "1"}},
	} {
		out := filepath.Join(t.TempDir(), "posterior.npy")
		refused(t, exitUsage, c.want, pool(out, c.args...)...)
		absent(t, out)
	}
}

// TestPoolUnfit: an upload with class means that no images give ends a pool with its name, or is
// left out where that is asked for.
func TestPoolUnfit(t *testing.T) {
	r := newMadeRound(t, 3)
	u := decoded(t, r.uploads[1])
	for i := range u.Points.N {
		for j := range u.Points.Features(i) {
			u.Points.Features(i)[j] *= 1e6
		}
	}
	must.Do(t, os.WriteFile(r.uploads[1], must.Get(u.Encode())(t), 0o600))
	out := r.path("c.onnx")
	args := append([]string{"pool", "--rows", "--json", "--engine.name", "pure", "-o", out}, r.uploads...)
	refused(t, exitUsage, "1.upload", args...)
	refused(t, exitUsage, "far out", args...)
	absent(t, out)
	p := answer[pooled](t, append(args, "--on-bad", "skip")...)
	if len(p.Clients) != 2 || len(p.Skipped) != 1 || p.N != 4*u.Points.C {
		t.Errorf("%+v", p)
	}
}

// TestPrintClients: suspects come first, then the clients of whose claim the smallest share counts;
// of many the text names twenty. A classifier for a suspect is told of, and so are calibration
// points.
func TestPrintClients(t *testing.T) {
	text := func(p pooled) string {
		var b strings.Builder
		p.printClients(&b)
		return b.String()
	}
	p := pooled{Clients: []string{"small", "large", "suspect"}, Honest: []float64{0.99, 0.98, 0.1},
		Claimed: []float64{20, 20000, 20},
		Counted: []float64{20, 57.4, 20}}
	want := `clients:    P(honest)   claimed   counted
                 0.10        20        20  suspect
                 0.98     20000        57  large
                 0.99        20        20  small
            97 of 20040 images count: the others' images bear no more out; --trust counts all, of clients that you know
`
	if got := text(p); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for of, warns := range map[string]bool{"suspect": true, "small": false, "": false} {
		p.For = of
		if got := text(p); strings.Contains(got, "for suspect, and hardly of its upload") != warns ||
			!strings.HasPrefix(got, want) {
			t.Errorf("for %q:\n%s", of, got)
		}
	}
	p.For, p.Calibration = "", []int{0, 10, 0}
	if got := text(p); got != strings.Replace(want, "large", "large, 10 of them calibration points", 1) {
		t.Errorf("with calibration points:\n%s", got)
	}
	two := pooled{Clients: []string{"a", "b"}, Honest: []float64{1, 1}, Claimed: []float64{9, 4}, Counted: []float64{9, 4}}
	if got := text(two); !strings.Contains(got, "of two clients neither can be judged") {
		t.Errorf("of two clients:\n%s", got)
	}
	two.Counted = []float64{4.5, 4} // copies
	if got := text(two); strings.Contains(got, "each counts as it claims") {
		t.Errorf("of copies:\n%s", got)
	}
	p.Calibration = nil
	for range 30 {
		p.Clients, p.Honest, p.Claimed, p.Counted = append(p.Clients, "x"), append(p.Honest, 1),
			append(p.Claimed, 5), append(p.Counted, 5)
	}
	if got := text(p); strings.Count(got, "\n") != 1+maxClients+2 || !strings.Contains(got, "and 13 more") {
		t.Errorf("of 33 clients:\n%s", got)
	}
}

// TestPrintEffects: clients with another camera are named, the furthest first, and sets state
// level, points and clients.
func TestPrintEffects(t *testing.T) {
	var b strings.Builder
	p := pooled{Clients: []string{"a", "b", "c"}, Effects: []float64{2, 0, 5.25},
		Sets: setsOf(&models.OriginSets{Level: 0.95, Images: 40, Clients: 3, Class: make([]int, 40)},
			[]string{"x", "y"})}
	p.printEffects(&b)
	p.Sets.print(&b)
	want := "cameras:    2 of 3 clients differ from the others in all classes alike, by so many " +
		"standard deviations: c (5.2), a (2.0)\nsets:       hold the class of a new image of these " +
		"clients with probability 0.95 or more, from 40 calibration points of 3 clients (fmp predict " +
		"--level: up to 0.966)\n"
	if b.String() != want {
		t.Errorf("printed is %q", b.String())
	}
	b.Reset()
	p.Shape, p.Chosen = []int{20, 5, 2}, &pooledChoice{Temperature: 0.514, Penalty: 0.1, Points: 50}
	chosen := "chosen:     temperature 0.51 and penalty 0.1 times the corpus's, by 50 calibration points\n"
	if p.print(&b); !strings.Contains(b.String(), chosen) {
		t.Errorf("printed is %q", b.String())
	}
	b.Reset()
	p = pooled{Clients: []string{"a"}, Sets: setsOf(nil, nil)}
	p.printEffects(&b)
	if p.Sets.print(&b); b.Len() != 0 {
		t.Errorf("a round without effects and sets prints %q", b.String())
	}
}

// TestPrintSurvived: sets say how many clients, of which group, may send false points.
func TestPrintSurvived(t *testing.T) {
	groups := []string{"north", "south"}
	for _, c := range []struct {
		want string
		s    models.OriginSets
	}{
		{"2 of the clients", models.OriginSets{False: []int{2}}},
		{"1 of the clients of north and 2 of the clients of south",
			models.OriginSets{False: []int{1, 2}, Groups: groups}},
		{"2 of the clients of south", models.OriginSets{False: []int{0, 2}, Groups: groups}},
		{"", models.OriginSets{False: []int{0}}},
		{"", models.OriginSets{False: []int{2}, Proportions: []float64{.5, .5}}},
	} {
		want, s := c.want, c.s
		if want != "" {
			want = "            whatever the points of " + want + " are\n"
		}
		s.Level, s.Images, s.Clients = 0.8, 60, 6
		for i := range 60 {
			s.Class, s.Client = append(s.Class, 0), append(s.Client, i%6)
			if s.Groups != nil {
				s.Group = append(s.Group, i%2)
			}
		}
		var b strings.Builder
		sets := setsOf(&s, []string{"x", "y"})
		if sets.print(&b); (sets.False != nil) != (want != "") {
			t.Errorf("%+v: %v may be false", s, sets.False)
		}
		if _, got, _ := strings.Cut(b.String(), ")\n"); got != want {
			t.Errorf("%v of %v: printed is %q; want %q", s.False, s.Groups, b.String(), want)
		}
	}
}

// TestPrintPooled: of moments the text says whether calibration points corrected the temperature of
// clients left out, and why nothing told it, with the remedy. Of class means it says the scope.
func TestPrintPooled(t *testing.T) {
	tails, kappa, novelty := []float64{1.54, 0.17}, []float64{0.85, 0.25}, 2.5
	for want, p := range map[string]pooled{
		"left out, times 1.54 ± 17% for the tails of images\n":          {Tails: tails, Calibration: []int{9}},
		"for the tails of images, corrected by 58 calibration points\n": {Tails: tails, judged: 58},
		"moments, the corpus was not read: no (kappa 0.85 ± 25%)\n":     {Kappa: kappa, Unread: "no"},
		"(kappa 0.85 ± 25%)\n":                                             {Kappa: kappa, Calibration: []int{2}},
		"sets:       none: level .9 wants more\n":                          {NoSets: "level .9 wants more"},
		"a guess: no; calibration points tell it (fmp-edge compress --cal": {Kappa: kappa, Unmeasured: "no"},
		"scope:      closed: of the corpus's classes (novelty 2.50":        {Scope: "closed", known: true, Novelty: &novelty},
		"scope:      open: of classes that the corpus lacks (novelty 2.50": {Scope: "open", Novelty: &novelty},
		"scope:      open: images unlike the corpus's of the same names (": {Scope: "open", known: true,
			Novelty: &novelty},
		"scope:      open: by --scope (novelty 2.50": {Scope: "open", known: true, asked: true, Novelty: &novelty},
		"scope:      closed: by --scope\n":           {Scope: "closed", asked: true},
		"":                                           {Scope: "closed"},
	} {
		p.Shape = []int{1, 2, 2}
		var b strings.Builder
		if p.print(&b); !strings.Contains(b.String(), want) ||
			strings.Contains(b.String(), "not measured") != (p.Unmeasured != "") ||
			strings.Contains(b.String(), "scope:") != strings.HasPrefix(want, "scope:") {
			t.Errorf("want %q in %s", want, b.String())
		}
	}
}

// TestCorpusUnread: a corpus that nothing weighed has a reason in place of its log evidence.
func TestCorpusUnread(t *testing.T) {
	for _, c := range []struct {
		unread      string
		kappa       float64
		diagnostics map[string]float64
		want        string
	}{
		{"", 0.7, nil, ""},
		{"", 0.7, map[string]float64{"corpus": 0}, ""},
		{"it is of one class", 0.7, nil, "kappa is known, and it is of one class"},
		{"it is of one class", 0, nil, "it is of one class, and clients left out cannot weigh it"},
	} {
		var p pooled
		p.describe(&pool.Round{Client: models.Manifest{Bytes: 1, Kappa: c.kappa}},
			&posterior.Result{Ensembles: []posterior.Ensemble{{erm.NewTheta(2, 2)}}, Diagnostics: c.diagnostics,
				Unread: c.unread})
		if p.Unread != c.want || (p.Corpus != nil) != (c.diagnostics != nil) {
			t.Errorf("%+v: the corpus is unread as %q, log evidence %v", c, p.Unread, p.Corpus)
		}
	}
}

// TestPoolNames: the program's corpus counts in a round of two of its classes, in the order of the
// round; where it lacks one by name, fmp pool says which.
func TestPoolNames(t *testing.T) {
	at := newFolder(t)
	fmp := func(args ...string) string { t.Helper(); return onPure(t, args...) }
	fmp("fuse", "--dataset", "digits", "--class-names", "8,3", "--set", "open.model=none", "-o", at("closed.onnx"))
	refused(t, exitUsage, "names that the corpus lacks", "fuse", "--dataset", "digits",
		"--class-names", "8,fox", "--set", "open.model=none", "-o", at("none.onnx"))
	var uploads []string
	for _, c := range []struct{ names, unknown string }{{"8,3", ""}, {"8,three", "three"}} {
		graph := at(c.names + ".onnx")
		fmp("fuse", "--dataset", "digits", "--class-names", c.names, "-o", graph)
		for i := range 3 {
			file := at(fmt.Sprint(c.names, i, ".upload"))
			if c.unknown == "" {
				fmp("anchor", "--dataset", "digits", "--client-graph", graph, "--images", "20", "--seed", fmt.Sprint(i+1),
					"-o", file)
				uploads = append(uploads, file)
			}
			u := decoded(t, uploads[i])
			u.Client, u.Model = fmt.Sprint("client ", i), must.Get(models.DigestFile(graph, 1<<30))(t)
			must.Do(t, os.WriteFile(file, must.Get(u.Encode())(t), 0o600))
		}
		args := []string{"pool", "--samples", "5", "--client-graph", graph, "-o", at("c.onnx"),
			at(c.names + "0.upload"), at(c.names + "1.upload"), at(c.names + "2.upload")}
		got := answer[pooled](t, append(args, "--json", "--engine.name", "pure")...)
		if (got.Named != nil) != (c.unknown == "") || strings.Join(got.Unknown, ",") != c.unknown ||
			!slices.Equal(got.Classes, strings.Split(c.names, ",")) {
			t.Errorf("%s: classes %v, the corpus counts: %v, lacks %v", c.names, got.Classes, got.Named != nil, got.Unknown)
		}
		text := fmp(args...)
		if strings.Contains(text, "the corpus has no class three") != (c.unknown != "") ||
			strings.Contains(text, "of its images count") != (c.unknown == "") {
			t.Errorf("%s: printed is %s", c.names, text)
		}
		if text := fmp(append(args, "--scope", "open")...); !strings.Contains(text, "open: by --scope (novelty ") {
			t.Errorf("%s: printed is %s", c.names, text)
		}
		if c.unknown != "" {
			continue
		}
		if text := fmp(append(args, "--scope", "closed")...); !strings.Contains(text, "closed: by --scope\n") {
			t.Errorf("%s: printed is %s", c.names, text)
		}
	}
}

// TestFuseWithoutImages: a client graph behind an extractor that comes with the program needs no image
// of its data set.
func TestFuseWithoutImages(t *testing.T) {
	t.Setenv("FMP_DATA", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "client.onnx")
	for _, args := range [][]string{{"--dataset", "cifar10", "--class-names", "cat,dog"}, {"--dataset", "mnist"}} {
		ran(t, append(append([]string{"fuse"}, args...), "-o", file)...)
	}
	refused(t, exitMissing, "cifar10", "fuse", "--dataset", "cifar10", "--dataset.dir", t.TempDir(), "-o", file)
}

// TestPoolUnlike: where clients give two classes each other's names, fmp pool says that the corpus's
// images of these do not count, and of no class where names are right.
func TestPoolUnlike(t *testing.T) {
	at := newFolder(t)
	fmp := func(args ...string) string { t.Helper(); return onPure(t, args...) }
	fmp("train", "conjugate", "--dataset", "digits", "--images", "--steps", "1", "-o", at("images.onnx"))
	for name, swapped := range map[string]bool{"right": false, "swapped": true} {
		args := []string{"pool", "--rows", "--samples", "5", "--predictor", at("images.onnx"),
			"-o", at(name + ".onnx")}
		for i := range 3 {
			file := at(fmt.Sprint(name, i, ".upload"))
			fmp("anchor", "--dataset", "digits", "--images", "20", "--seed", fmt.Sprint(i+1), "-o", file)
			u := decoded(t, file)
			if u.Client = fmt.Sprint("client ", i); swapped {
				for j := range u.Points.Dx {
					three, eight := u.Points.Row(3), u.Points.Row(8)
					three[j], eight[j] = eight[j], three[j]
				}
			}
			must.Do(t, os.WriteFile(file, must.Get(u.Encode())(t), 0o600))
			args = append(args, file)
		}
		got := answer[pooled](t, append(args, "--json", "--engine.name", "pure")...)
		var want []string
		if swapped {
			want = []string{"3", "8"}
		}
		if got.Named == nil || !slices.Equal(got.Unlike, want) {
			t.Errorf("%s names: images of %v do not count, want %v", name, got.Unlike, want)
		}
		text := fmp(args...)
		if strings.Contains(text, "not those of 3, 8: the clients' lie elsewhere") != swapped {
			t.Errorf("%s names: printed is %s", name, text)
		}
	}
}

// TestPoolRedraw: another sum of uploads of a private round wants --redraw, and classifier and account
// say what all sums together spent.
func TestPoolRedraw(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	graph, out := filepath.Join(dir, "client.onnx"), filepath.Join(dir, "c.onnx")
	ran(t, "fuse", "--dataset", "digits", "--upload", "private", "-o", graph)
	_, f := must.Get2(models.Load(graph))(t)
	made := func(client, noise string) string {
		t.Helper()
		r := &federate.Release{Client: client, Model: f.Digest, Sums: privacy.NewRelease(f.C, f.K), Salt: [16]byte{1},
			Budget: privacy.Budget{Epsilon: 4, Delta: 1e-5, Unit: privacy.Example, Relation: privacy.AddRemove,
				Noise: noise}}
		path := filepath.Join(dir, client+"."+noise)
		must.Do(t, os.WriteFile(path, must.Get(r.Encode())(t), 0o600))
		return path
	}
	a, b, c := made("a", privacy.Trusted), made("b", privacy.Trusted), made("c", privacy.Trusted)
	plain := madeUpload(t, shippedManifest(t, "digits", models.KindClient), filepath.Join(dir, "plain"), "p",
		f.Digest, 0)
	for _, s := range []struct {
		args  []string
		says  string // "": it succeeds
		draws int
	}{
		{[]string{a, b, c, "-o", filepath.Join(dir, "first.onnx")}, "", 0},
		{[]string{a, b, "-o", out}, "give --redraw", 0},
		{[]string{a, b, "-o", filepath.Join(dir, "first.onnx"), "--redraw"}, "choose another --output", 0},
		{[]string{a, b, "-o", out, "--redraw"}, "", 2},
		{[]string{made("a", privacy.Local), "-o", out, "--redraw"}, "add their own", 0},
		{[]string{a, b, c, "-o", out, "--for", "a"}, "--for is of clients", 0},
		{[]string{plain, "-o", out, "--redraw"}, "not of one", 0},
	} {
		args := slices.Concat([]string{"pool", "--engine.name", "pure", "--rows", "--json", "--samples", "5",
			"--client-graph", graph}, s.args)
		if s.says != "" {
			refused(t, exitUsage, s.says, args...)
		} else if res := answer[pooledPrivate](t, args...); res.Spent.Draws != s.draws {
			t.Errorf("%q: %+v", s.args, res)
		}
	}
	_, f = must.Get2(models.Load(out))(t)
	if o, err := models.ReadOrigin(f); err != nil || !strings.Contains(string(o.Private), `"epsilon":5.98`) ||
		strings.Contains(f.Command, "redraw") {
		t.Errorf("origin %s, command %s, %v", o.Private, f.Command, err)
	}
}

// madeRound is made-up uploads of class means, and runs fmp pool on them.
type madeRound struct {
	t       *testing.T
	dir     string
	uploads []string
}

func newMadeRound(t *testing.T, clients int) *madeRound {
	t.Helper()
	f := shippedManifest(t, "digits", models.KindClient)
	r := &madeRound{t: t, dir: t.TempDir()}
	for i := range clients {
		r.uploads = append(r.uploads,
			madeUpload(t, f, r.path(fmt.Sprint(i, ".upload")), fmt.Sprint("client ", i), f.Digest, 0))
	}
	return r
}

func (r *madeRound) path(name string) string { return filepath.Join(r.dir, name) }

func (r *madeRound) read(name string) []byte {
	r.t.Helper()
	return read(r.t, r.path(name))
}

// args are those of fmp pool.
func (r *madeRound) args(more ...string) []string {
	return append([]string{"pool", "--engine.name", "pure", "--rows", "--scope", "closed", "--samples", "5"},
		more...)
}

// pool writes a classifier and returns its bytes.
func (r *madeRound) pool(out string, args ...string) []byte {
	r.t.Helper()
	ran(r.t, r.args(append(args, "-o", r.path(out))...)...)
	return r.read(out)
}

// TestPoolWithout: the classifier of a round that a client withdrew from is, to the byte, the one
// of the round that it never took part in, and the record of it, which is signed, says which
// published versions still hold the client.
func TestPoolWithout(t *testing.T) {
	r := newMadeRound(t, 5)
	before := r.pool("all.onnx", r.uploads...)
	never := r.pool("never.onnx", slices.Delete(slices.Clone(r.uploads), 2, 3)...)
	ran(t, "keys", "--dir", r.path("keys"), "--roster", r.path("servers.txt"), "server")
	ran(t, append([]string{"merge", "-o", r.path("first.part")}, r.uploads...)...)
	r.pool("mixed.onnx", r.uploads[0], r.uploads[1])
	r.pool("judged.onnx", "--anchor", r.uploads[2], r.uploads[0], r.uploads[1])
	must.Do(t, os.WriteFile(r.path("again"), r.read("2.upload"), 0o600))
	other := decoded(t, r.uploads[2])
	other.Points.W[0]++
	other.N++
	must.Do(t, os.WriteFile(r.path("other"), must.Get(other.Encode())(t), 0o600))
	got := r.pool("without.onnx",
		slices.Concat([]string{"--without", "client 2", "--key", r.path("keys/server.key"), "--record",
			r.path("record.json"), "--published", r.path("all.onnx"), "--published",
			r.path("mixed.onnx"), "--published", r.path("judged.onnx")}, r.uploads,
			[]string{r.path("again"), r.path("other")})...)
	if !bytes.Equal(got, never) || bytes.Equal(got, before) {
		t.Error("the classifier without a client is not the one that it never took part in")
	}
	roster := must.Get(identity.LoadRoster(r.path("servers.txt")))(t)
	w := must.Get(pool.VerifyWithdrawal(r.read("record.json"), roster))(t)
	if len(w.Withdrawn) != 2 || w.Withdrawn[0].Name != "client 2" ||
		w.Withdrawn[0].Upload != models.DigestBytes(r.read("2.upload")) ||
		w.Classifier != models.DigestBytes(got) || len(w.Holds) != 2 || w.Holds[1].File != r.path("judged.onnx") ||
		w.Holds[0].SHA256 != models.DigestBytes(before) || len(w.Holds[0].Holds) != 1 || len(w.Free) != 1 ||
		len(w.Unknown) != 0 {
		t.Errorf("record: %+v", w)
	}
	forged := bytes.Replace(r.read("record.json"), []byte(`"holds"`), []byte(`"free"`), 1)
	must.Do(t, os.WriteFile(r.path("forged.json"), forged, 0o600))
	verify := func(file string, args ...string) []string {
		return append([]string{"receipts", "verify", r.path(file)}, args...)
	}
	by := []string{"--signed-by", r.path("servers.txt")}
	out, _ := ran(t, verify("record.json", append(by, "--upload", r.uploads[2])...)...)
	if !strings.Contains(out, "record:     holds") || !strings.Contains(out, "held by:    \""+r.path("all.onnx")) {
		t.Errorf("the record is shown as %s", out)
	}
	for want, args := range map[string][]string{
		"the signature in the name": verify("forged.json", by...),
		"names no upload":           verify("record.json", append(by, "--upload", r.uploads[1])...),
	} {
		refused(t, exitFailed, want, args...)
	}
	refused(t, exitUsage, "--signed-by is of the record", verify("record.json", "--server-key", "x")...)
	must.Do(t, os.WriteFile(r.path("receipt.json"), []byte(`{"client":"a"}`), 0o600))
	refused(t, exitUsage, "--server-key of every receipt", verify("receipt.json", by...)...)
	refused(t, exitUsage, "or --signed-by", verify("record.json", append(by, "--server-key", "x")...)...)
	for want, args := range map[string][]string{
		"none of the 5 uploads":     append([]string{"--without", "client 9"}, r.uploads...),
		"no upload is left":         {"--without", "client 0", r.uploads[0]},
		"--record tells of clients": append([]string{"--record", "x", "--key", "y"}, r.uploads...),
		"give both or neither": append([]string{"--record", "x", "--without", "client 1"},
			r.uploads...),
		"--published versions": append([]string{"--published", "x", "--without", "client 1"},
			r.uploads...),
		"published versions are classifiers": slices.Concat([]string{"--without", "client 2", "--key",
			r.path("keys/server.key"), "--record", r.path("x.json"), "--published",
			shippedFile(t, models.KindPredictor)}, r.uploads),
		"fmp merge --without": {"--without", "client 1", r.path("first.part")},
		"take it out of --groups": append([]string{"--without", "client 1", "--groups",
			"a=client 0,client 1"}, r.uploads...),
		"leave it off the command line": {"--without", "client 1", r.uploads[0], r.uploads[1], r.path("servers.txt")},
		"is the record of client \"client 2\"": slices.Concat([]string{"--without", "client 1", "--key",
			r.path("keys/server.key"), "--record", r.path("record.json")}, r.uploads),
		"again: it is an upload of client": append([]string{"--without", "client 2", "--anchor", r.path("again")},
			r.uploads...),
	} {
		refused(t, exitUsage, want, r.args(append(args, "-o", r.path("none.onnx"))...)...)
	}
	for _, name := range []string{"none.onnx", "x.json"} {
		absent(t, r.path(name))
	}
}

// TestWithoutHasNoSay: a client that withdraws decides no round by its upload, and two files of it are
// no error.
func TestWithoutHasNoSay(t *testing.T) {
	r := newMadeRound(t, 3)
	f := shippedManifest(t, "digits", models.KindClient)
	made := func(client string, round uint64) string {
		return madeUpload(t, f, r.path(fmt.Sprint(client, round)), client, f.Digest, round)
	}
	never := r.pool("never.onnx", r.uploads...)
	must.Do(t, os.WriteFile(r.path("again"), must.Get(os.ReadFile(made("client 9", 0)))(t), 0o600))
	twice := r.pool("twice.onnx",
		append([]string{"--without", "client 9", made("client 9", 0), r.path("again")}, r.uploads...)...)
	if !bytes.Equal(twice, never) {
		t.Error("two files of a client that withdrew leave a trace")
	}
	code, _, stderr := runFMP(t, r.args("--on-bad", "skip", "--without", "client 9", "-o",
		r.path("none.onnx"), r.uploads[0], r.uploads[1], made("client 8", 3), made("client 9", 3))...)
	if code != exitUsage || !strings.Contains(stderr, "left out: "+r.path("client 93")+": upload: round") ||
		!strings.Contains(stderr, "none of the 2 uploads") {
		t.Errorf("an upload of another round is taken out: exit code %d: %s", code, stderr)
	}
}

// atOnce pools late clients in processes at once: a state has all whose command did not fail, and the
// others are told that it changed.
func (r *madeRound) atOnce() {
	r.t.Helper()
	r.pool("once.onnx", "--state", r.path("once.state"), r.uploads[0])
	var codes [4]int
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() {
			out := r.path(fmt.Sprint("once", i, ".onnx"))
			code, _, stderr := runFMP(r.t, r.args("--state", r.path("once.state"), "-o", out, r.uploads[i+1])...)
			if codes[i] = code; code != exitOK && !strings.Contains(stderr, "run the command again") {
				r.t.Errorf("a process beside others: exit code %d: %s", code, stderr)
			}
		})
	}
	all.Wait()
	s := must.Get(stats.Decode(r.read("once.state"), federate.Expect{}))(r.t)
	for i, code := range codes {
		if _, in := s.Client(fmt.Sprint("client ", i+1)); in != (code == exitOK) {
			r.t.Errorf("client %d is in the state: %v, and its command ended with %d", i+1, in, code)
		}
	}
	o := poolSums{state: r.path("once.state"), before: []byte("another")}
	if _, err := o.take(); err == nil {
		r.t.Error("a state that another process changed is taken")
	}
}

// far writes an upload whose first class mean is as far out as no image.
func (r *madeRound) far() string {
	r.t.Helper()
	u := decoded(r.t, r.uploads[0])
	u.Client = "far"
	for i := range u.Points.Dx {
		u.Points.Z[i] *= 1e4
	}
	must.Do(r.t, os.WriteFile(r.path("far.upload"), must.Get(u.Encode())(r.t), 0o600))
	return r.path("far.upload")
}

// TestStateUnfit: an upload that no image gives is refused before it is in a state's sums, or left out
// by itself, in whichever fold; one that a state has is taken out.
func TestStateUnfit(t *testing.T) {
	r := newMadeRound(t, 3)
	far, state := r.far(), r.path("s.state")
	r.pool("two.onnx", "--state", state, r.uploads[0], r.uploads[1])
	before := r.read("s.state")
	refused(t, exitUsage, far+": of client \"far\": points[0] is", r.args("--state", state, far, r.uploads[2], "-o",
		r.path("none.onnx"))...)
	if !bytes.Equal(r.read("s.state"), before) {
		t.Error("a state changed with an upload that is refused")
	}
	all := r.pool("all.onnx", append([]string{"--state", r.path("all.state")}, r.uploads...)...)
	late := r.pool("late.onnx", "--state", state, "--on-bad", "skip", far, r.uploads[2])
	if !bytes.Equal(late, all) {
		t.Error("an upload that is left out leaves a trace, or takes others with it")
	}
	other := decoded(t, r.uploads[0])
	other.Points.W[0]++
	other.N++
	must.Do(t, os.WriteFile(r.path("other"), must.Get(other.Encode())(t), 0o600))
	r.pool("one.onnx", "--state", r.path("one.state"), r.uploads[0], r.uploads[1])
	refused(t, exitUsage, "--without and the file that was added", r.args("--state", r.path("one.state"), r.path("other"),
		r.uploads[2], "-o", r.path("none.onnx"))...)
	if late := r.pool("late.onnx", "--state", r.path("one.state"), "--on-bad", "skip", r.path("other"),
		r.uploads[2]); !bytes.Equal(late, all) {
		t.Error("a client that sends again keeps a late one out of a state")
	}
	s := must.Get(stats.Decode(r.read("s.state"), federate.Expect{}))(t)
	must.Do(t, s.Add(decoded(t, far), models.DigestBytes(r.read("far.upload"))))
	must.Do(t, os.WriteFile(state, must.Get(s.Encode())(t), 0o600))
	refused(t, exitUsage, "the state's sums of fold", r.args("--state", state, "-o", r.path("none.onnx"))...)
	if out := r.pool("out.onnx", "--state", state, "--without", "far", far); !bytes.Equal(out, all) {
		t.Error("an upload that no image gives is not taken out of a state")
	}
}

// TestPoolState: a late upload is added to a state without the others' files, and one that
// withdraws is taken out, with the bytes of a state and a classifier that were made at once.
func TestPoolState(t *testing.T) {
	r := newMadeRound(t, 6)
	all := r.pool("all.onnx", append([]string{"--state", r.path("all.state")}, r.uploads...)...)
	r.pool("some.onnx", "--state", r.path("s.state"), r.uploads[4], r.uploads[1],
		r.uploads[0], r.uploads[3])
	some, someState := r.read("some.onnx"), r.read("s.state")
	r.pool("late.onnx", "--state", r.path("s.state"), r.uploads[5])
	late := r.pool("late.onnx", "--state", r.path("s.state"), r.uploads[2])
	if !bytes.Equal(late, all) || !bytes.Equal(r.read("s.state"), r.read("all.state")) {
		t.Error("late uploads give another classifier or state than all at once")
	}
	if again := r.pool("late.onnx", "--state", r.path("s.state"), r.uploads[2]); !bytes.Equal(again, all) {
		t.Error("an upload that is in already changes the classifier")
	}
	if again := r.pool("again.onnx", "--state", r.path("s.state")); !bytes.Equal(again, all) {
		t.Error("the state alone gives another classifier")
	}
	gone := r.pool("gone.onnx", "--state", r.path("s.state"), "--without", "client 5", "--without",
		"client 2", r.uploads[2], r.uploads[5])
	if !bytes.Equal(gone, some) || !bytes.Equal(r.read("s.state"), someState) {
		t.Error("clients that withdrew leave a trace")
	}
	if res := answer[pooled](t, r.args("--json", "--state", r.path("s.state"), "-o",
		r.path("c.onnx"))...); len(res.Clients) != 4 || res.N == 0 {
		t.Errorf("pooled: %+v", res)
	}
	_, f := must.Get2(models.Load(r.path("c.onnx")))(t)
	if o, err := models.ReadOrigin(f); err != nil || len(o.Clients) != 4 ||
		o.Clients[3].Name != "client 4" {
		t.Errorf("the classifier's clients are %+v, %v", o.Clients, err)
	}
	damaged := bytes.Clone(someState)
	damaged[len(damaged)/2] ^= 1
	must.Do(t, os.WriteFile(r.path("damaged.state"), damaged, 0o600))
	for want, args := range map[string][]string{
		"give the upload that was added": {"--state", r.path("s.state"), "--without", "client 1"},
		"is not in": {"--state", r.path("s.state"), "--without",
			"client 2", r.uploads[2]},
		"there is none yet": {"--state", r.path("new.state"), "--without",
			"client 2", r.uploads[2]},
		"was given none":    {},
		"checksum":          {"--state", r.path("damaged.state")},
		"shifts of clients": {"--state", r.path("s.state"), "--for", "client 1"},
		"leave --level":     {"--state", r.path("s.state"), "--level", "0.9"},
		"leave --score":     {"--state", r.path("s.state"), "--score", "adaptive"},
		"leave --by-class":  {"--state", r.path("s.state"), "--by-class"},
		"--proportions out": {"--state", r.path("s.state"), "--proportions", "equal"},
		"--false-share out": {"--state", r.path("s.state"), "--false-share", "0.1"},
	} {
		refused(t, exitUsage, want, r.args(append(args, "-o", r.path("none.onnx"))...)...)
	}
	r.atOnce()
	fails(t, "is not there", r.args("--state", r.path("none/new.state"), r.uploads[2], "-o",
		r.path("none.onnx"))...)
	if !bytes.Equal(r.read("s.state"), someState) {
		t.Error("an error changed the state")
	}
}

// TestRecordOfState: a record tells of no withdrawal from a state that could not be written.
func TestRecordOfState(t *testing.T) {
	r := newMadeRound(t, 2)
	r.pool("s.onnx", append([]string{"--state", r.path("s.state")}, r.uploads...)...)
	must.Do(t, os.Mkdir(r.path("folder"), 0o700))
	for _, c := range []struct {
		state, record, says string
		state1, record1     bool // whether they are written
	}{
		{"folder", "r.json", "the state still holds client 1: run", false, false},
		{"s.state", "folder", "it is a folder", false, false},
		{"s.state", "r.json", "", true, true},
		{"", "r2.json", "", false, true},
	} {
		before := r.read("s.state")
		o := &poolRun{out: r.path("s.onnx")}
		o.withdrawal, o.by = &pool.Withdrawal{}, must.Get(identity.New("server"))(t)
		o.record, o.without = r.path(c.record), []string{"client 1"}
		if c.state != "" {
			o.state, o.sums = r.path(c.state), must.Get(stats.Decode(before, federate.Expect{}))(t)
			digest := models.DigestBytes(r.read(filepath.Base(r.uploads[1])))
			must.Do(t, o.sums.Remove(decoded(t, r.uploads[1]), digest))
		}
		err := o.finish()
		if c.says != "" {
			must.Fail(0, err)(t, c.says, c.state+" "+c.record)
		} else {
			must.Do(t, err)
		}
		info, err := os.Stat(r.path(c.record))
		record1 := err == nil && !info.IsDir()
		if state1 := !bytes.Equal(r.read("s.state"), before); state1 != c.state1 || record1 != c.record1 {
			t.Errorf("%+v: state %v, record %v", c, state1, record1)
		}
	}
}

// TestPoolCommand: a classifier records the flags and settings that act on it, wherever they are given,
// and files by their digests, so that it holds no name of this machine.
func TestPoolCommand(t *testing.T) {
	r := newMadeRound(t, 12)
	must.Do(t, os.WriteFile(r.path("c.yaml"), []byte("seed: 3\n"), 0o600))
	merge := append([]string{"merge", "-o", r.path("1.part")}, r.uploads[:10]...)
	ran(t, merge...)
	for from, to := range map[string]string{"11.upload": "known", "1.part": "2.part"} {
		must.Do(t, os.WriteFile(r.path(to), r.read(from), 0o600))
	}
	uploads := r.uploads[:4]
	for name, c := range map[string]struct{ first, second, names []string }{
		"threads":       {nil, []string{"--threads", "2"}, nil},
		"the library":   {nil, []string{"--engine.library", r.path("ort.so")}, nil},
		"a default":     {nil, []string{"--seed", "1"}, nil},
		"a config file": {[]string{"--seed", "3"}, []string{"--config", r.path("c.yaml")}, []string{" --seed=3"}},
		"--set":         {[]string{"--seed", "3"}, []string{"--set", "seed=3"}, []string{" --seed=3"}},
		"an anchor": {[]string{"--anchor", r.uploads[11]}, []string{"--anchor", r.path("known")},
			[]string{" --anchor=" + models.DigestBytes(r.read("11.upload"))}},
		"a part to judge by": {[]string{"--against", r.path("1.part"), r.path("1.part")},
			[]string{"--against", r.path("2.part"), r.path("1.part")},
			[]string{" --against=" + models.DigestBytes(r.read("1.part"))}},
	} {
		of := uploads
		if strings.HasPrefix(name, "a part") {
			of = r.uploads[10:11]
		}
		first := r.pool("first.onnx", slices.Concat(c.first, of)...)
		if !bytes.Equal(first, r.pool("second.onnx", slices.Concat(c.second, of)...)) {
			t.Errorf("%s: the classifier of %q is not that of %q", name, c.first, c.second)
		}
		_, f := must.Get2(models.Load(r.path("first.onnx")))(t)
		if strings.Contains(f.Command, r.dir) || !strings.Contains(f.Command, "--posterior.samples=5") {
			t.Errorf("%s: the command is %q", name, f.Command)
		}
		for _, want := range c.names {
			if !strings.Contains(f.Command, want) {
				t.Errorf("%s: no %q in the command %q", name, want, f.Command)
			}
		}
	}
	for want, args := range map[string][]string{
		"are of parts":  {"--against", r.path("1.part")},
		"anchor: open ": {"--anchor", r.path("gone")},
		"upload: open ": {"--against", r.path("1.part"), r.path("gone.part")},
	} {
		fails(t, want, r.args(slices.Concat(args, uploads, []string{"-o", r.path("none.onnx")})...)...)
	}
}

// TestKindOfState: uploads that the client graph does not make are told by name before they are in a
// sum.
func TestKindOfState(t *testing.T) {
	upload := func(client string, k int, w *moments.Within) pool.Upload {
		return pool.Upload{Path: client + ".upload", Upload: &federate.Upload{Client: client, N: 3, Within: w,
			Points: &point.Set{N: 1, Dx: k, C: 2, Z: make([]float32, k), Y: []int32{1}, W: []float32{3}}}}
	}
	o := poolRun{merging: merging{graph: &onnx.Model{}, manifest: models.Manifest{Dx: 2, C: 2, Bytes: 4096}}}
	good, bad := o.fit([]pool.Upload{upload("a", 2, &moments.Within{K: 2}), upload("b", 3, &moments.Within{K: 3}),
		upload("c", 2, nil), upload("d", 2, &moments.Within{K: 2, Dof: 1, Data: []float32{1, 2, 1}}),
		upload("e", 2, &moments.Within{K: 2, Dof: 1, Data: []float32{1, 0, 1}})}, nil, nil)
	if len(good) != 2 || good[1].Client != "e" || len(bad) != 3 {
		t.Fatalf("%d good, %v", len(good), bad)
	}
	for i, want := range []string{`b.upload: of client "b": points are of 3`, "holds no moments", "no covariance"} {
		if !strings.Contains(bad[i].Error(), want) {
			t.Errorf("%v; want %q", bad[i], want)
		}
	}
}
