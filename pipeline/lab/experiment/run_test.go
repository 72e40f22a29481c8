package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fmp/featurize/yamlfile"
	"fmp/models/rng"
	"fmp/onnx/alloctest"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/meta"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
	"fmp/pipeline/task"
)

// clusters is a data set of c Gaussian classes in dx dimensions.
func clusters(t *testing.T, c, dx, train, test int) *Data {
	t.Helper()
	r := rng.New(11, "clusters")
	mean := make([]float32, c*dx)
	rng.Normal(r, mean)
	draw := func(n int) ([]float32, []int) {
		f, y := make([]float32, n*dx), make([]int, n)
		rng.Normal(r, f)
		for i := range y {
			y[i] = r.IntN(c)
			for j := range dx {
				f[i*dx+j] += 1.2 * mean[y[i]*dx+j]
			}
		}
		return f, y
	}
	bank := func(n int) *task.Bank {
		f, y := draw(n)
		return must.Get(task.NewBank(f, dx, y, c))(t)
	}
	d := &Data{Clients: bank(train), Corpus: bank(train)}
	d.Test, d.TestLabels = draw(test)
	return d
}

// classMeans compresses a client to the mean of each class that it holds.
type classMeans struct{}

func (classMeans) Compress(_ context.Context, clients []*point.Set) ([]*point.Set, error) {
	var out []*point.Set
	for _, s := range clients {
		x, y := s.Labelled()
		means, _, err := moments.Parted(x, s.Dx, y, s.C, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, means.Dense())
	}
	return out, nil
}

// bootstrap draws seen points by their weights.
type bootstrap struct{}

func (bootstrap) Noise(r *rand.Rand, samples, fresh int) ([]float32, error) {
	e := make([]float32, samples*fresh)
	rng.Normal(r, e)
	return e, nil
}

func (bootstrap) Draw(_ context.Context, seen *point.Set, noise []float32,
	samples int) ([]*point.Set, error) {
	fresh := len(noise) / samples
	out := make([]*point.Set, samples)
	for s := range out {
		out[s] = point.New(fresh, seen.Dx, seen.C)
		for i := range fresh {
			u := 0.5 * math.Erfc(-float64(noise[s*fresh+i])/math.Sqrt2) * seen.Mass()
			k := 0
			for ; k < seen.N-1 && u >= float64(seen.W[k]); k++ {
				u -= float64(seen.W[k])
			}
			copy(out[s].Row(i), seen.Row(k))
		}
	}
	return out, nil
}

func small() Config {
	c := Default()
	c.Seeds, c.Federation.Clients, c.Federation.Partition, c.Federation.Alpha = 2, 4,
		"both", []float64{0.2}
	c.Predictor.Fresh, c.Posterior.Samples, c.Posterior.BNN = 30, 4, "laplace"
	c.Tuning.Tasks, c.Tuning.Points = 1, 50
	return c
}

// TestIdentityOfBadImages: what was to become of bad images is no part of a run; the images that
// were left are.
func TestIdentityOfBadImages(t *testing.T) {
	fail, skip := Default(), Default()
	skip.Dataset.Bad = "skip"
	a := must.Get(Identity(fail, nil, map[string]string{"images": "1"}))(t)
	for images, same := range map[string]bool{"1": true, "2": false} {
		if b, err := Identity(skip, nil, map[string]string{"images": images}); err != nil ||
			(a == b) != same {
			t.Errorf("images %s: the same identity is %v, want %v (%v)", images, a == b, same, err)
		}
	}
}

func execute(t *testing.T, ctx context.Context, c Config, d *Data, path string,
	progress Progress) ([]Record, error) {
	t.Helper()
	dir, err := Open(path, c, Manifest{Identity: must.Get(Identity(c, nil, nil))(t)})
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return Run(ctx, c, d, Tools{Compressor: classMeans{}, Drawer: bootstrap{},
		Conjugate: conjugate(t, d.Corpus)}, dir, progress)
}

// conjugate is the untrained predictor of a corpus.
func conjugate(t *testing.T, corpus *task.Bank) ConjugateModel {
	t.Helper()
	m := must.Get(meta.UntrainedConjugate(corpus))(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	t.Cleanup(func() { eng.Close() })
	k := must.Get(sample.NewConjugate(eng, m))(t)
	t.Cleanup(func() { k.Close() })
	return k
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(filepath.Join(path...)))(t)
}

func TestRunDoesNotDependOnThreadsOrInterruption(t *testing.T) {
	c, d := small(), clusters(t, 4, 6, 300, 120)
	c.Methods = []string{"LANN", "ANN", "MP", "CANN", "CFMP", "FMP", "FedCGS", "PRIOR"}
	one, two := t.TempDir(), t.TempDir()
	c.Engine.Threads = 1
	rs := must.Get(execute(t, t.Context(), c, d, one, nil))(t)
	cells := must.Get(Cells(&c))(t)
	if len(rs) != len(cells) || len(rs) != 2*2*8 {
		t.Fatalf("%d records of %d cells; want 32", len(rs), len(cells))
	}

	// Two threads, stopped after five cells, with half a line in the journal, then resumed.
	c.Engine.Threads = 2
	ctx, cancel := context.WithCancel(t.Context())
	_, err := execute(t, ctx, c, d, two, func(s Step) {
		if s.Done >= 5 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled run gave %v", err)
	}
	must.Fail(os.Stat(filepath.Join(two, ResultsFile)))(t, "", "an unfinished run has results")
	journal := read(t, two, JournalFile)
	kept := bytes.Count(journal, []byte("\n"))
	if kept < 5 || kept >= len(cells) {
		t.Fatalf("%d cells before the interruption", kept)
	}
	must.Do(t, os.WriteFile(filepath.Join(two, JournalFile),
		append(journal, `{"partition":"homogen`...), 0o644))
	var first atomic.Int64
	first.Store(-1)
	must.Get(execute(t, t.Context(), c, d, two, func(s Step) {
		if s.Stage == "methods" {
			first.CompareAndSwap(-1, int64(s.Done))
		}
	}))(t)
	if int(first.Load()) != kept {
		t.Errorf("the resumed run began at %d finished cells; the journal had %d", first.Load(), kept)
	}
	for _, name := range []string{ResultsFile, CSVFile} {
		if !bytes.Equal(read(t, one, name), read(t, two, name)) {
			t.Errorf("%s differs between one uninterrupted thread and two interrupted ones", name)
		}
	}
	var processor [2]float64 // known where one cell runs at a time
	for i, dir := range []string{one, two} {
		costs := must.Get(ReadCosts(dir))(t)
		for _, c := range costs {
			processor[i] += c.Processor
		}
	}
	if !(processor[0] > 0) || processor[1] != 0 {
		t.Errorf("%v processor seconds on one thread, and on two", processor)
	}
	must.Fail(os.Stat(filepath.Join(two, JournalFile)))(t, "", "a finished run has a journal")

	// A finished run is not run again.
	calls := 0
	again, err := execute(t, t.Context(), c, d, two, func(s Step) {
		if calls++; s.Done != s.Total || s.Share != 1 {
			t.Errorf("a finished run worked on: %+v", s)
		}
	})
	if err != nil || len(again) != len(cells) || calls != 1 {
		t.Errorf("a finished run gave %d records, %v", len(again), err)
	}
}

func TestRunFiguresMakeSense(t *testing.T) {
	c, d := small(), clusters(t, 4, 6, 300, 400)
	c.Federation.Partition = "homogeneous"
	c.Protocol = "both"
	c.FillDefaults()
	dir := t.TempDir()
	rs := must.Get(execute(t, t.Context(), c, d, dir, nil))(t)
	acc := map[string]float64{}
	for _, r := range rs {
		if r.Protocol == "shared" {
			acc[r.Method] += r.ACC / float64(c.Seeds)
			if r.Param == "l2" && r.Temperature == 0 && r.Value != c.ERM.L2 {
				t.Errorf("%s: shared protocol used l2 %g; want %g", r.Cell, r.Value, c.ERM.L2)
			}
		}
		for i, p := range r.BySamples {
			want := c.Posterior.Samples
			if r.Method == "BNN" || r.Method == "CBNN" { // these keep 100 at least
				want = max(want, 100)
			} else if strings.HasPrefix(r.Method, "FMP") && r.Method != "FMP-ISAB" {
				want = c.Conjugate.Samples
			}
			if i == len(r.BySamples)-1 && (p.Samples != want || math.Abs(p.NLL-r.NLL) > 1e-9) {
				t.Errorf("%s: the full prefix has %d samples and NLL %g; the method has %g", r.Cell,
					p.Samples, p.NLL, r.NLL)
			}
		}
	}
	if acc["ANN"] < acc["LANN"]+0.03 {
		t.Errorf("ANN %.3f is not above LANN %.3f", acc["ANN"], acc["LANN"])
	}
	if math.Abs(acc["PRIOR"]-0.25) > 0.1 {
		t.Errorf("prior only: %.3f; want chance, 0.25", acc["PRIOR"])
	}
	var tuned Tuned
	must.Do(t, json.Unmarshal(read(t, dir, TuningFile), &tuned))
	for _, ch := range tuned.Choices {
		for i, v := range ch.NLL {
			if at := slices.Index(ch.Grid, ch.Value); at >= 0 && v < ch.NLL[at] {
				t.Errorf("%s: chose %g; %g has a lower NLL", ch.Method, ch.Value, ch.Grid[i])
			}
		}
		for _, r := range rs {
			if r.Protocol == "tuned" && r.Method == ch.Method &&
				(r.Value != ch.Value || r.Temperature != ch.Temperature || !(r.Temperature > 0)) {
				t.Errorf("%s used %s %g at temperature %g; tuning chose %g and %g", r.Cell,
					r.Param, r.Value, r.Temperature, ch.Value, ch.Temperature)
			}
		}
	}
	methods := 0
	for _, m := range rival.All() {
		// the run is neither private nor in open scope
		if i := m.Info(); !i.Private && !i.Fitted && !i.Calibrated {
			methods++
		}
	}
	if len(tuned.Choices) != methods {
		t.Errorf("%d choices of %d methods; want one each", len(tuned.Choices), methods)
	}
}

// TestDeliver: files of a run made elsewhere are taken if it is the same run; nothing is left of
// another, so that it can be made again.
func TestDeliver(t *testing.T) {
	c := Default()
	data := map[string]string{"images": "abc"}
	m := Manifest{Identity: must.Get(Identity(c, nil, data))(t), Data: data}
	for name, made := range map[string]struct{ run, want string }{
		"the same run":       {fmt.Sprintf(`{"identity":%q}`, m.Identity), ""},
		"other data":         {`{"identity":"0","data":{"images":"xyz"}}`, "images are xyz there and abc here"},
		"no run":             {"", "run.json of a worker"},
		"a run of no digest": {"{}", "another run"},
	} {
		path := filepath.Join(t.TempDir(), "run")
		files := map[string][]byte{RunFile: []byte(made.run), CSVFile: []byte("figures")}
		err := Deliver(path, files, c, m)
		if made.want != "" {
			must.Fail(err)(t, made.want, name)
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: something is left of it: %v", name, err)
			}
			continue
		}
		must.Do(t, err)
		if got, err := os.ReadFile(filepath.Join(path, CSVFile)); err != nil || string(got) != "figures" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestMalformedJournalIsNamed(t *testing.T) {
	must.Fail(parseRecords([]byte("{}\nnonsense\n{}\n")))(t, "line 2")
}

// FuzzParseRecords: records that are read can be written and read again, and take at most 1,000
// bytes of memory for each byte of the file (a record of two bytes is a struct of some hundred).
func FuzzParseRecords(f *testing.F) {
	f.Add(
		[]byte(
			`{"partition":"homogeneous","repeat":0,"protocol":"shared","method":"FMP","acc":0.5,"curve":[{"count":1}]}` + "\n"))
	f.Add([]byte("{}\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var rs []Record
		var err error
		alloctest.AtMost(t, 1000*len(data), func() { rs, err = parseRecords(data) })
		if err != nil {
			return
		}
		b := must.Get(encodeRecords(rs))(t)
		again, err := parseRecords(b)
		if err != nil || len(again) != len(rs) {
			t.Fatalf("%d records became %d: %v", len(rs), len(again), err)
		}
	})
}

// FuzzRunDirectory reads the files of a run directory besides its records: at most 400 bytes of
// memory for each of their bytes and what 20,000 nodes of settings may take, and details whose
// classes are there.
func FuzzRunDirectory(f *testing.F) {
	f.Add([]byte(`{"identity":"ab","versions":{"go":"1"},"sizes":{"dx":4},"notes":["n"]}`),
		[]byte("seeds: 3\n"), []byte(
			`{"classes":["a","b"],"easy":[{"label":1,"top":[0],"mean":[0.5,0.5],"png":"aGk="}]}`))
	f.Add([]byte("{}"), []byte("erm: {l2: x}\n"), []byte(`{"hard":[{"label":7}]}`))
	f.Add([]byte("[[["), []byte("a: &a [*a]\n"), []byte("null"))
	f.Fuzz(func(t *testing.T, manifest, config, detail []byte) {
		if len(config) > 1<<11 { // FuzzCheck has those; here they take the fuzzer's time
			t.Skip()
		}
		alloctest.AtMost(t, 2000*len(config)+400*(len(manifest)+len(config)+len(detail))+
			2000*yamlfile.MaxNodes, func() {
			_, _ = parseManifest(manifest)
			_, _ = ParseConfig(config)
			d, err := parseDetail(detail)
			if err != nil {
				return
			}
			for _, e := range append(d.Easy, d.Hard...) {
				if e.Label >= len(d.Classes) || len(e.Mean) != len(d.Classes) {
					t.Errorf("label %d of %d classes passed", e.Label, len(d.Classes))
				}
			}
		})
	})
}

// What the tuned protocol chooses, and all it chose from, must not change with the test images, nor
// with the clients' part; it must with the corpus.
func TestTuningSeesTheCorpusOnly(t *testing.T) {
	c := small()
	c.Methods, c.Protocol, c.Seeds = []string{"ANN", "CANN", "FMP", "FedCGS", "PRIOR"}, "tuned", 1
	choices := func(change func(d *Data)) []byte {
		t.Helper()
		d, dir := clusters(t, 4, 6, 300, 60), t.TempDir()
		if change != nil {
			change(d)
		}
		must.Get(execute(t, t.Context(), c, d, dir, nil))(t)
		return read(t, dir, TuningFile)
	}
	other, want := clusters(t, 4, 6, 310, 60), choices(nil)
	if got := choices(func(d *Data) {
		d.Test, d.TestLabels = other.Test, other.TestLabels
	}); !bytes.Equal(got, want) {
		t.Error("other test images changed what was chosen")
	}
	if got := choices(func(d *Data) { d.Clients = other.Clients }); !bytes.Equal(got, want) {
		t.Error("another clients' part changed what was chosen")
	}
	if got := choices(func(d *Data) { d.Corpus = other.Corpus }); bytes.Equal(got, want) {
		t.Error("another corpus changed nothing")
	}
}

// TestTuningClasses: with classes of their own, tuning tasks are of these alone, while the tools
// know the whole corpus; where these are fewer than a task has, of all of them; in closed scope the
// setting is an error.
func TestTuningClasses(t *testing.T) {
	d := clusters(t, 4, 6, 300, 60)
	own := clusters(t, 5, 6, 300, 60).Clients
	for i := range own.Features {
		own.Features[i] += 1000 // as no other class
	}
	d.Tuning = own
	c := small()
	c.Corpus.Classes = "4-7"
	bank, tools := must.Get2(leaveOut(t.Context(), rng.New(1, "classes"), c, d, Tools{known: &rival.Corpus{}}))(t)
	if bank.C != d.Clients.C || slices.Min(bank.Features) < 500 || tools.known.C != 0 {
		t.Errorf("a bank of %d classes, the least feature %v, and tools that know %d classes", bank.C,
			slices.Min(bank.Features), tools.known.C)
	}
	d.Tuning = must.Get(own.Choose([]int{0, 1, 2}))(t)
	if bank, tools, err := leaveOut(t.Context(), rng.New(1, "classes"), c, d,
		Tools{Compressor: constantWeights{}}); err != nil || bank.C != 3 ||
		tools.Compressor != nil {
		t.Errorf("three classes for tasks of four: %d, %v, compressed by %v", bank.C, err,
			tools.Compressor)
	}
	c.Corpus.Classes, c.Tuning.Classes = "", "0-9"
	must.Fail(c.Validate())(t, "tuning.classes", "tuning.classes in closed scope")
	if c.Tuning.Classes, c.Methods = "", []string{"FMP-joint"}; true {
		must.Fail(c.methods())(t, "", "FMP-joint in closed scope is no error")
	}
}

// TestHindsight: settings that are best on the scored images are not worse there than tuned ones,
// and better somewhere; shared settings have none, nor runs that do not ask.
func TestHindsight(t *testing.T) {
	c := small()
	c.Methods, c.Protocol, c.Seeds, c.Scores.Hindsight = []string{"NCM", "FedCGS"}, "both", 2, true
	d := clusters(t, 4, 6, 300, 60)
	if got := inHindsight(rival.Choice{NLL: []float64{2, 1}}, 0.5); got != 0.5 {
		t.Errorf("a row's own NLL of 0.5 is %v in hindsight", got)
	}
	rs := must.Get(execute(t, t.Context(), c, d, t.TempDir(), nil))(t)
	better := 0
	for _, r := range rs {
		switch {
		case r.Protocol == "shared":
			if r.Hindsight != nil {
				t.Errorf("%s has %v in hindsight", r.Cell, *r.Hindsight)
			}
		case r.Hindsight == nil || *r.Hindsight > r.NLL:
			t.Errorf("%s has NLL %v and in hindsight %v", r.Cell, r.NLL, r.Hindsight)
		case *r.Hindsight < r.NLL-1e-3:
			better++
		}
	}
	if better == 0 {
		t.Error("hindsight is nowhere better than tuning")
	}
	c.Scores.Hindsight, c.Seeds = false, 1
	if rs, err := execute(t, t.Context(), c, d, t.TempDir(), nil); err != nil ||
		rs[len(rs)-1].Hindsight != nil {
		t.Errorf("a run that does not ask has hindsight, %v", err)
	}
}

// TestEdgeNotes: a note names the setting that is at the end of its grid, and its value, and no other.
func TestEdgeNotes(t *testing.T) {
	inside, below := []float64{1, 0, 1}, []float64{0, 1, 2}
	for name, x := range map[string]struct {
		beta, l2 []float64 // NLL at 0.2, 0.5 and 0.8, and at 1, 3 and 10
		want     []string
	}{
		"none":        {inside, inside, nil},
		"the first":   {below, inside, []string{"the beta of PredBayes on homogeneous, 0.2,"}},
		"the further": {inside, below, []string{"the l2 of PredBayes on homogeneous, 1,"}},
		"both": {below, below, []string{"the beta of PredBayes on homogeneous, 0.2,",
			"the l2 of PredBayes on homogeneous, 1,"}},
	} {
		beta, l2 := []float64{0.2, 0.5, 0.8}, []float64{1, 3, 10}
		at := func(grid, nll []float64) float64 { return grid[slices.Index(nll, 0)] }
		got := (&Tuned{[]Choice{{Partition: "homogeneous", Choice: rival.Choice{Method: "PredBayes",
			Param: rival.ParamBeta, Value: at(beta, x.beta), Grid: beta, NLL: x.beta,
			More:      map[string]float64{rival.ParamL2: at(l2, x.l2)},
			MoreTried: map[string]rival.Tried{rival.ParamL2: {Grid: l2, NLL: x.l2}}}}}}).EdgeNotes()
		if !slices.EqualFunc(got, x.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

// TestTuningGoesOn: a run stopped while it tunes goes on with the next method, and chooses what one
// in one go does.
func TestTuningGoesOn(t *testing.T) {
	c, d := small(), clusters(t, 4, 6, 300, 60)
	c.Methods, c.Protocol, c.Seeds = []string{"ANN", "CANN", "FMP", "FedCGS", "PRIOR"}, "tuned", 1
	one, two := t.TempDir(), t.TempDir()
	must.Get(execute(t, t.Context(), c, d, one, nil))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := execute(t, ctx, c, d, two, func(s Step) {
		if s.Stage == "tuning" && s.Done >= 3 {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled run gave %v", err)
	}
	first := -1
	must.Get(execute(t, t.Context(), c, d, two, func(s Step) {
		if s.Stage == "tuning" && first < 0 {
			if first = s.Done; s.Total != 8 {
				t.Errorf("%d choices to make; want 8", s.Total)
			}
		}
	}))(t)
	if first < 3 || first > 7 {
		t.Errorf("tuning went on at choice %d; it was stopped at 3 or soon after", first)
	}
	for _, name := range []string{TuningFile, ResultsFile} {
		if !bytes.Equal(read(t, one, name), read(t, two, name)) {
			t.Errorf("%s differs between a run in one go and one stopped while it tuned", name)
		}
	}
}

// TestLeftoversOfAKilledRunAreRemoved: what a killed program was writing, in plots as well, is
// removed when the run goes on.
func TestLeftoversOfAKilledRunAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	m := Manifest{Identity: "x"}
	d := must.Get(Open(dir, Default(), m))(t)
	must.Do(t, d.Close())
	kept := filepath.Join(dir, "plots", "images.png")
	left := []string{filepath.Join(dir, "plots", ".images.png.123.tmp"),
		filepath.Join(dir, ".report.html.4.tmp")}
	must.Do(t, os.MkdirAll(filepath.Dir(kept), 0o755))
	for _, p := range append(left, kept) {
		must.Do(t, os.WriteFile(p, []byte("x"), 0o644))
	}
	d = must.Get(Open(dir, Default(), m))(t)
	defer d.Close()
	for _, p := range left {
		must.Fail(os.Stat(p))(t, "", p)
	}
	must.Get(os.Stat(kept))(t)
}

// TestCosts: times are summed up by method, the dearest first, and a last line that was cut off
// does not count.
func TestCosts(t *testing.T) {
	dir := t.TempDir()
	if costs, err := ReadCosts(dir); costs != nil || err != nil {
		t.Errorf("no timings: %v, %v", costs, err)
	}
	d := &Directory{Path: dir, done: map[Cell]bool{}}
	defer d.Close()
	// one of which is not known
	processor := map[string][]time.Duration{"ANN": {time.Second, time.Second / 2},
		"BNN": {time.Second, 0}}
	for repeat, seconds := range []float64{1, 2} {
		for _, method := range []string{"ANN", "BNN"} {
			must.Do(t, d.Add(Record{Cell: Cell{Partition: "homogeneous", Repeat: repeat,
				Protocol: "tuned", Method: method}},
				Took{Clock: time.Duration(seconds * 1e9), Processor: processor[method][repeat]}))
		}
	}
	must.Do(t, d.Tuned("homogeneous", "BNN", 4*time.Second))
	must.Get(d.timings.WriteString(`{"method":"ANN","sec`))(t)
	costs, err := ReadCosts(dir)
	want := []Cost{{Method: "BNN", Tuning: 4, Running: 3, Share: .7},
		{Method: "ANN", Running: 3, Share: .3, Processor: 1.5}}
	if diff := cmp.Diff(want, costs); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, TimingsFile), []byte("nonsense\n"), 0o644))
	must.Fail(ReadCosts(dir))(t, TimingsFile, "a spoiled file")
}

// TestTunedApart: settings are tuned on rows that the corpus's moments have not seen: where features
// say nothing of classes no setting promises more than chance.
func TestTunedApart(t *testing.T) {
	const dx, classes, n = 60, 4, 240
	x, y := make([]float32, n*dx), make([]int, n)
	rng.Normal(rng.New(5, "noise"), x)
	for i := range y {
		y[i] = i % classes
	}
	corpus := must.Get(task.NewBank(x, dx, y, classes))(t)
	c := small()
	c.Methods, c.Protocol, c.Seeds = []string{"LDA", "Corpus"}, "tuned", 1
	c.Federation.Clients, c.Federation.Points, c.Tuning.Points, c.Tuning.Tasks = 2, 8, 60, 3
	c.Federation.Partition = "homogeneous"
	c.FillDefaults()
	r := &running{Config: c, data: &Data{Clients: corpus, Corpus: corpus}, inner: 1}
	must.Do(t, r.tools.knows(t.Context(), c, r.data))
	more := c
	more.Tuning.Points = n/2 + 1
	if c.tunedOnSeen(corpus) != "" || more.tunedOnSeen(corpus) == "" {
		t.Errorf("notes are %q and %q; want none, and one", c.tunedOnSeen(corpus), more.tunedOnSeen(corpus))
	}
	held := must.Get(r.heldTasks(t.Context(), Partition{}, 1))(t)
	for _, name := range c.Methods {
		m := must.Get(rival.Lookup(name))(t)
		choice, _ := must.Get2(rival.Tune(t.Context(), m, held, r.settings(), nil))(t)
		if got := slices.Min(choice.NLL); got < math.Log(classes)-0.02 {
			t.Errorf("%s: the least NLL on noise is %.3f, want log %d = %.3f", name, got, classes,
				math.Log(classes))
		}
	}
}

// TestLeaveOut: settings are tuned on classes of the corpus of which the methods' predictor knows
// nothing, with the scalars and the scale of the run's own.
func TestLeaveOut(t *testing.T) {
	const dx, classes, drawn, each = 6, 7, 3, 20
	bank := func(classes int) *task.Bank {
		x, y := make([]float32, classes*each*dx), make([]int, classes*each)
		rng.Normal(rng.New(1, "rows"), x)
		for i := range y {
			y[i] = i % classes
			for j := range dx {
				x[i*dx+j] = x[i*dx+j]/10 + float32(y[i]*(j+1))
			}
		}
		return must.Get(task.NewBank(x, dx, y, classes))(t)
	}
	data := &Data{Clients: bank(drawn), Corpus: bank(classes)}
	known := must.Get(meta.UntrainedOpen(data.Corpus, dx))(t)
	known.Scalars[0], known.Scale = 1.5, 0.25
	tasks, tools := must.Get2(leaveOut(t.Context(), rng.New(1, "classes"), Config{}, data, Tools{Open: known}))(t)
	if n, _ := tools.Open.Known.Dims(); tasks.C != drawn || n != classes-drawn ||
		tools.Open.Scalars != known.Scalars ||
		tools.Open.Scale != 0.25 {
		t.Fatalf("%d classes to tune on and %d that are known, scale %v", tasks.C, n, tools.Open.Scale)
	}
	// Of which class a row is says its last feature.
	class := func(v float64) int { return int(v/dx + 0.5) }
	var seen []int
	for i := range tasks.Len() {
		if y := class(float64(tasks.Features[i*dx+dx-1])); !slices.Contains(seen, y) {
			seen = append(seen, y)
		}
	}
	rest := must.Get(data.Corpus.Choose(others(seen, classes)))(t)
	want := must.Get(meta.UntrainedOpen(rest, dx))(t)
	sum := func(v []float64) (s float64) {
		for _, x := range v {
			s += x
		}
		return s
	}
	if got, of := sum(tools.Open.M0), sum(want.M0); len(seen) != drawn ||
		got < of-1e-6 || got > of+1e-6 {
		t.Errorf("tuned on classes %v, and the predictor's centre is %v, that of the others %v", seen,
			got, of)
	}
}

// others returns the classes that are not among some.
func others(some []int, classes int) (out []int) {
	for y := range classes {
		if !slices.Contains(some, y) {
			out = append(out, y)
		}
	}
	return out
}

// TestQueue: every cell is handed out once; a worker stays with its task, goes on to one that
// nobody has begun, and shares the last ones.
func TestQueue(t *testing.T) {
	q := &queue{}
	for r := range 3 {
		g := &group{repeat: r}
		for _, m := range []string{"a", "b", "c"} {
			if r != 1 || m == "a" {
				g.cells = append(g.cells, Cell{Repeat: r, Method: m})
			}
		}
		q.groups = append(q.groups, g)
	}
	own := make([]*group, 2)
	var got string
	for _, worker := range []int{0, 1, 0, 1, 1, 0, 1} {
		var cell Cell
		own[worker], cell = q.next(own[worker])
		if own[worker] == nil {
			t.Fatalf("nothing left after %q", got)
		}
		got += string(rune('0'+cell.Repeat)) + cell.Method + " "
	}
	if want := "0a 1a 0b 2a 2b 0c 2c "; got != want {
		t.Errorf("cells %q; want %q", got, want)
	}
	for i := range own {
		if g, _ := q.next(own[i]); g != nil {
			t.Errorf("worker %d gets a cell of repeat %d at the end", i, g.repeat)
		}
	}
}

// TestWork: the share of the work goes by what methods cost, the timed ones by their time and
// others in proportion.
func TestWork(t *testing.T) {
	w := newCounter("methods", func(Step) {})
	if w.share() != 0 {
		t.Errorf("share %g of no work", w.share())
	}
	for i, method := range []string{"ANN", "ANN", "PRIOR", "PRIOR", "NCM", "NCM"} {
		w.expect(method, i == 0) // by an earlier run
	}
	near := func(want float64, when string) {
		t.Helper()
		if got := w.share(); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: share %g, want %g", when, got, want)
		}
	}
	near(1.0/166, "by the usual costs of 1, 80 and 2")
	w.finish("PRIOR", 160*time.Second)
	near(2.0*(1+80)/(2*(2+160+4)), "one timed at twice its usual cost, the others scaled")
	w.finish("PRIOR", 240*time.Second)
	near((2.5+400)/(5+400+10), "the mean of two times")
	w.finish("NCM", time.Second)
	w.finish("NCM", time.Second)
	w.finish("ANN", time.Second)
	near(1, "all done")
}

// TestScoredImages: other and spoiled images are made of the test images that are scored, and classes
// without such images are noted.
func TestScoredImages(t *testing.T) {
	c := Default()
	c.Methods, c.Seeds, c.Dataset.Test = []string{"NCM"}, 1, 5
	c.Scores.Other = []string{"inverted"}
	c.Scores.Domains = []Domain{{Rotation, 0}, {"contrast", 1}, {"digits", 0}}
	eng := must.Get(pure.New(engine.Options{}))(t)
	defer eng.Close()
	p := must.Get(Prepare(t.Context(), c, eng, nil, nil))(t)
	defer p.Close()
	if n := len(p.Data.TestLabels); n != 5 || len(p.Data.Shifts) != 4 {
		t.Fatalf("%d test images, %d kinds of others", n, len(p.Data.Shifts))
	}
	of := slices.Sorted(slices.Values(p.Data.TestLabels))
	for i, s := range p.Data.Shifts {
		labels := slices.Sorted(slices.Values(s.Labels))
		if len(s.Features) != len(p.Data.Test) || i > 0 && !slices.Equal(labels, of) {
			t.Errorf("%s: %d numbers of classes %v; want those of the test images %v", s.Name,
				len(s.Features), s.Labels, of)
		}
	}
	if !slices.ContainsFunc(p.Manifest.Notes, func(n string) bool {
		return strings.HasSuffix(n, " of 10 classes have no test images: figures are of the others")
	}) {
		t.Errorf("notes %q", p.Manifest.Notes)
	}
}

// TestUnscored: the note counts the classes without images, and there is none where all have some.
func TestUnscored(t *testing.T) {
	for want, labels := range map[string][]int{"": {2, 0, 1, 1}, "1 of 3 classes": {0, 2}, "2 of 3": {1}} {
		if got := unscored(labels, 3); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%v: %q; want %q", labels, got, want)
		}
	}
}

// TestStoppedBeforeScoredImages: a stopped run whose spoiled images were of all test images is refused
// by name, as its identity has no word of the first. A run without such images has no such word.
func TestStoppedBeforeScoredImages(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{}))(t)
	defer eng.Close()
	for _, x := range []struct {
		name        string
		test        int
		corruptions bool
		other       []string
		domains     []Domain
		want        string
	}{
		{"inverted", 5, false, []string{"inverted"}, nil, "first 5"},
		{"noise", 6, false, []string{"noise"}, nil, "first 6"},
		{"corruptions", 2, true, nil, nil, "first 2"},
		{"a domain", 5, false, nil, []Domain{{"contrast", 1}}, "first 5"},
		{"a rotation by none", 5, false, nil, []Domain{{Rotation, 0}}, "first 5"},
		{"the data set's own", 5, false, nil, []Domain{{"digits", 0}}, "first 5"},
		{"all test images", 0, false, []string{"inverted"}, nil, ""},
		{"more than there are", 100000, false, []string{"inverted"}, nil, ""},
		{"no others", 5, false, nil, nil, ""},
	} {
		c := Default()
		c.Methods, c.Seeds, c.Dataset.Test, c.Scores.Images = []string{"NCM"}, 1, x.test, 2
		c.Scores.Corruptions, c.Scores.Other, c.Scores.Domains = x.corruptions, x.other, x.domains
		p := must.Get(Prepare(t.Context(), c, eng, nil, nil))(t)
		m := p.Manifest
		must.Do(t, p.Close())
		if m.Data["spoiled"] != x.want {
			t.Errorf("%s: spoiled images are of %q; want %q", x.name, m.Data["spoiled"], x.want)
		}
		old := m
		old.Data = maps.Clone(m.Data)
		delete(old.Data, "spoiled")
		old.Identity = must.Get(Identity(p.Config, old.Models, old.Data))(t)
		dir := filepath.Join(t.TempDir(), "run")
		must.Do(t, must.Get(Open(dir, p.Config, old))(t).Close())
		d, err := Open(dir, p.Config, m)
		if x.want != "" {
			must.Fail(d, err)(t, "data spoiled are none there and "+x.want+" here", x.name)
			continue
		}
		must.Do(t, must.Get(d, err)(t).Close())
	}
}
