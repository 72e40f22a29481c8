package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/featurize/digits"
	"fmp/featurize/extractor"
	"fmp/featurize/published"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/open"
)

// TestTrainZeros: a 0 of a flag means none or is refused, and never the flag's default.
func TestTrainZeros(t *testing.T) {
	t.Chdir(t.TempDir()) // where a training that is not refused would write
	for _, args := range []string{"predictor --steps 0", "predictor --batch 0", "embedding --noises 0",
		"private --steps 0", "open --validate-every 0", "embedding --rate 0", "open --coordinates 0"} {
		refused(t, exitUsage, "0; allowed are numbers", append([]string{"train"},
			strings.Fields(args)...)...)
	}
	if testing.Short() {
		t.Skip("draws the embedded digits and trains")
	}
	emptyCache(t)
	x := randomExtractor(t)
	for _, c := range []struct {
		args    string
		metrics []string // of the log
		rate    float64  // of the second step: the peak after warm-up, half of it without
	}{
		{"predictor", []string{"alone", "coupling", "joint", "loss", "score"}, 1e-3},
		{"predictor --alone 0 --joint 0 --coupling 0 --local 0 --warmup 0 --clip 0",
			[]string{"loss", "score"}, 5e-4},
		{"embedding --hidden 16", []string{"gap", "loss", "score"}, 2e-3},
		{"embedding --hidden 16 --score 0 --warmup 0", []string{"gap", "loss"}, 1e-3},
	} {
		out := filepath.Join(t.TempDir(), "m.onnx")
		args := append([]string{"train"}, strings.Fields(c.args)...)
		args = append(args, "-o", out, "--steps", "2", "--clients", "3", "--fresh", "20", "--batch", "8",
			"--extractor", x, "--extractor.mean", "0", "--extractor.std", "1")
		ran(t, args...)
		log := read(t, out+".jsonl")
		first := map[string]any{}
		must.Do(t, json.Unmarshal(log[:bytes.IndexByte(log, '\n')], &first))
		if rate, _ := first["rate"].(float64); math.Abs(rate-c.rate) > 1e-9 {
			t.Errorf("fmp train %s: rate %v; want %v", c.args, rate, c.rate)
		}
		for _, name := range []string{"grad_norm", "kind", "rate", "seconds", "step"} {
			delete(first, name)
		}
		if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, c.metrics) {
			t.Errorf("fmp train %s: metrics %v; want %v", c.args, got, c.metrics)
		}
	}
}

// TestTrainAndFuse makes a predictor, an embedding behind it and the client graph, runs with them,
// and sees them refused behind another extractor.
func TestTrainAndFuse(t *testing.T) {
	if testing.Short() {
		t.Skip("draws the embedded digits and trains: some seconds")
	}
	emptyCache(t)
	dir := t.TempDir()
	predictor, embedding, client := filepath.Join(dir, "p.onnx"), filepath.Join(dir, "e.onnx"),
		filepath.Join(dir, "c.onnx")
	x := []string{"--extractor", randomExtractor(t), "--extractor.mean", "0", "--extractor.std", "1"}
	small := []string{"--steps", "4", "--validate-every", "2", "--clients", "3",
		"--fresh", "20", "--json"}
	made := answer[trained](t, slices.Concat([]string{"train", "predictor", "-o", predictor}, small, x)...)
	if made.Validation["nll"] == 0 || made.Digest == "" {
		t.Errorf("the training says %+v", made)
	}
	made = answer[trained](t, slices.Concat([]string{"train", "embedding", "-o", embedding, "--predictor",
		predictor, "--hidden", "16"}, small, x)...)
	if made.Validation["gap"] == 0 {
		t.Errorf("the training says %+v", made)
	}
	for _, f := range []string{predictor, embedding} {
		for _, suffix := range []string{".jsonl", ".svg"} {
			if st, err := os.Stat(f + suffix); err != nil || st.Size() == 0 {
				t.Errorf("%s%s: %v", f, suffix, err)
			}
		}
		absent(t, f+".checkpoint")
		_, man := must.Get2(models.Load(f))(t)
		if len(man.Extractor) != 64 || len(man.Classes) != 10 ||
			!strings.Contains(man.TrainingData, "digits") || strings.Contains(man.Command, dir) ||
			!strings.Contains(man.Command, " --extractor.model=model.onnx --") ||
			!strings.HasPrefix(man.Command, "fmp train ") {
			t.Errorf("%s: manifest %+v", f, man)
		}
	}
	c := answer[fused](t, append([]string{"fuse", "-o", client, "--dataset", "digits", "--embedding", embedding,
		"--json"}, x...)...)
	if c.Size != 10 || c.Image[0] != 28 {
		t.Errorf("the client graph is %+v", c)
	}
	if _, man, err := models.Load(client); err != nil || man.Kind != models.KindClient {
		t.Errorf("the client graph's manifest is %+v, %v", man, err)
	}
	answer[runOutput](t, append([]string{"run", "--predictor", predictor, "--embedding", embedding,
		"--dataset.test", "200", "--seeds", "1", "--clients", "3", "--samples", "3", "--fresh", "20",
		"--methods", "MP,FMP", "--out", filepath.Join(dir, "run"), "--json"}, x...)...)

	x = []string{"--extractor", otherExtractor(t), "--extractor.mean", "0", "--extractor.std", "1"}
	refused(t, exitUsage, "same extractor", append([]string{"train", "embedding", "-o",
		filepath.Join(dir, "no.onnx"), "--predictor", predictor, "--steps", "1"}, x...)...)
	absent(t, filepath.Join(dir, "no.onnx"))
}

// otherExtractor is randomExtractor with another name in the file, and so another digest.
func otherExtractor(t *testing.T) string {
	t.Helper()
	p := randomExtractor(t)
	other := bytes.Replace(read(t, p), []byte("random filters"), []byte("random filterz"), 1)
	must.Do(t, os.WriteFile(p, other, 0o644))
	return p
}

// TestFuseClassNames: behind an extractor that learned ten classes the clients may have others.
func TestFuseClassNames(t *testing.T) {
	graph := filepath.Join(t.TempDir(), "client.onnx")
	out, _ := ran(t, "fuse", "--dataset", "digits", "--class-names", "larch,spruce,fir", "-o", graph)
	if !strings.Contains(out, "class-means, at most 3 class means of 32 numbers each") {
		t.Errorf("printed %s", out)
	}
	if _, f, err := models.Load(graph); err != nil || f.C != 3 || f.Classes[2] != "fir" {
		t.Errorf("%d classes %v, %v", f.C, f.Classes, err)
	}
}

// TestCommandLine: a training's record has the flags that act on the model, and no path of this machine.
func TestCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"--dataset /srv/secret/photos --aux ../secret/more/ --start /srv/a.onnx -o /srv/b.onnx": "" +
			"extractor --dataset photos --aux more --start a.onnx",
		"--from /srv/a.onnx --mean .3,.4 --std 0.2 --layout NHWC --side 32 --preset imagenet --on-bad skip": "" +
			"extractor --from a.onnx --preset imagenet --mean 0.300000,0.400000 --std 0.200000 --layout NHWC --side 32 " +
			"--on-bad skip",
		"--widths 4,8 --mirror --classes [a],b --parallel 1": "extractor --classes [a],b --widths 4,8 --mirror",
	} {
		cmd := newTrainExtractorCommand()
		must.Do(t, cmd.ParseFlags(strings.Fields(line)))
		if got := commandLine(cmd, extractorFlags); got != want {
			t.Errorf("%s: recorded is %q; want %q", line, got, want)
		}
	}
}

// TestTrainOpenUnlearned: classes of the corpus are none that an extractor has not learned, which
// is said before anything is trained.
func TestTrainOpenUnlearned(t *testing.T) {
	if testing.Short() {
		t.Skip("draws the embedded digits and computes features: some seconds")
	}
	emptyCache(t)
	refused(t, exitUsage, "class 5 of --unlearned-classes", "train", "open", "--dataset", "digits",
		"--classes", "0-5", "--extractor", randomExtractor(t), "--extractor.mean", "0",
		"--extractor.std", "1", "--unlearned-classes", "5-7", "-o", filepath.Join(t.TempDir(),
			"o.onnx"))
	// Ends of intervals are learned on these classes, where they are given.
	ends := func(more ...string) models.SizedEnds {
		path := filepath.Join(t.TempDir(), "o.onnx")
		ran(t, append([]string{"train", "open", "--dataset", "digits", "--classes",
			"0-5", "--steps", "1", "--batch", "1", "--noises", "1", "--clients", "2", "-o", path},
			more...)...)
		return must.Get(open.FromModel(must.Get(serde.Load(path))(t)))(t).Ends
	}
	if known, apart := ends(), ends("--unlearned-classes", "6-9"); known == apart ||
		known == (models.SizedEnds{}) {
		t.Errorf("ends of intervals are %+v, and %+v of classes that the extractor has not learned",
			known, apart)
	}
}

// TestAdaptExtractor: another's extractor is written with other weights and the layers that it had,
// and is fused as it was.
func TestAdaptExtractor(t *testing.T) {
	needRuntime(t)
	from, out := randomExtractor(t), filepath.Join(t.TempDir(), "adapted.onnx")
	train := []string{"train", "extractor", "--from", from, "--dataset", "digits", "--classes", "5",
		"--exclude-classes", "5-9", "--mean", "0.5", "--std", "1", "--lora", "2", "--epochs", "1", "--batch",
		"100", "--out", out}
	if said, _ := ran(t, train...); !strings.Contains(said, "after:") {
		t.Errorf("printed %s", said)
	}
	before := must.Get(serde.Load(from))(t)
	after, man := must.Get2(models.Load(out))(t)
	if len(after.Graph.Nodes) != len(before.Graph.Nodes) ||
		len(after.Graph.Initializers) != len(before.Graph.Initializers) || man.Kind != "" {
		t.Errorf("%d nodes, %d initializers of kind %q", len(after.Graph.Nodes),
			len(after.Graph.Initializers), man.Kind)
	}
	if slices.Equal(before.Graph.Initializers["w"].F32(), after.Graph.Initializers["w"].F32()) {
		t.Error("the weights are those of before")
	}
	if side, path, err := extractor.Sidecar(out); err != nil || path == "" || side.Mean[0] != 0.5 {
		t.Errorf("side-car %q: %+v, %v", path, side, err)
	}
	graph := filepath.Join(t.TempDir(), "client.onnx")
	ran(t, "fuse", "--extractor", out, "--class-names", "five,six", "-o", graph)
	refused(t, exitUsage, "--mirror does not go with --from", append(train, "--mirror")...)
}

// TestFeatures: shards of the command merge to the file that the command makes without them, byte
// for byte, and a run reads it.
func TestFeatures(t *testing.T) {
	if testing.Short() {
		t.Skip("draws photographs and runs on them")
	}
	emptyCache(t)
	photos := filepath.Join(t.TempDir(), "photos")
	ran(t, "data", "synth", "--photos", "--out", photos, "--train", "600", "--test", "100")
	of := []string{"--dataset", photos, "--extractor", randomExtractor(t), "--extractor.mean", "0",
		"--extractor.std", "1", "--extractor.batch", "16"}
	store := func() (name string, data []byte) {
		t.Helper()
		files, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "fmp", "features", "*"))
		if len(files) != 2 {
			t.Fatalf("stored are %v; want features and their digest", files)
		}
		return filepath.Base(files[0]), read(t, files[0])
	}
	must.Do(t, os.WriteFile(filepath.Join(photos, "train", "0", "bad.png"), []byte("no image"), 0o600))
	of = append(of, "--on-bad", "skip")
	if _, errs := ran(t, append([]string{"features"}, of...)...); !strings.Contains(errs, "0/bad.png") {
		t.Errorf("an image that is left out is not named: %s", errs)
	}
	name, want := store()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for i := range 3 {
		ran(t, append([]string{"features", "--shard", fmt.Sprintf("%d/3", i)}, of...)...)
	}
	out, _ := ran(t, "features", "merge")
	if got, data := store(); got != name || !bytes.Equal(data, want) ||
		!strings.Contains(out, "700 images, of 3 shards") {
		t.Errorf("merged %s, equal %v: %s", got, bytes.Equal(data, want), out)
	}
	_, errs := ran(t, append([]string{"run", "--seeds", "1", "--clients", "3", "--points", "20",
		"--methods", "LANN,FedCGS", "--out", filepath.Join(t.TempDir(), "run")}, of...)...)
	if !strings.Contains(errs, "data: ") || strings.Contains(errs, "features: ") {
		t.Errorf("the run computes features: %s", errs)
	}
}

func TestNothingToMerge(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	refused(t, exitMissing, "", "features", "merge")
}

var update = flag.Bool("update", false,
	"write the digests of known extractors anew, of published ones those that are here")

// TestKnown: the digests that clients know extractors by are those of the graphs that come with the
// program and that fmp extractors pull makes. Of a published extractor that is not here its line is
// taken as it is.
func TestKnown(t *testing.T) {
	const file = "../../pipeline/client/known.txt"
	digest := func(graph []byte) string { return must.Get(client.Parse(graph, 1))(t).Parsed.Extractor }
	want := map[string]string{}
	names := []string{"digits", "digits-color", "mnist", "cifar10", "cifar100"}
	for _, name := range names {
		want[name] = digest(assetstest.Data(t, name, models.KindClient))
	}
	if d := digest(assetstest.PrivateClient(t)); d != want["digits"] {
		t.Errorf("the extractor of a private round's graph has digest %s, that of a plain one %s",
			d, want["digits"])
	}
	for _, e := range must.Get(published.List())(t) {
		names = append(names, e.Name)
		if e.Path == "" {
			continue
		}
		out := filepath.Join(t.TempDir(), "client.onnx")
		ran(t, "fuse", "--extractor", e.Name, "--class-names", "a,b", "--engine", "pure", "-o", out)
		want[e.Name] = digest(read(t, out))
	}
	var lines []string
	for line := range strings.Lines(string(read(t, file))) {
		d, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if w, ok := want[name]; ok && w != d {
			t.Errorf("%s has digest %s; the file says %s: go test ./cmd/fmp -run TestKnown -update",
				name, w, d)
			d = w
		}
		lines = append(lines, d+" "+name+"\n")
		at := slices.Index(names, name)
		if at < 0 || client.Known(strings.Fields(line)[0]) != name {
			t.Errorf("%q is no extractor of ours, or stands twice", name)
			continue
		}
		names = slices.Delete(names, at, at+1)
	}
	if len(names) > 0 {
		t.Errorf("the file lacks %v", names)
	}
	if *update {
		must.Do(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644))
	}
}

// TestUploadOfQuantisedExtractor: digits' extractor in bytes (bench/peers/quantise.py on
// assets/models/digits/extractor.onnx), from images to an upload, by each engine. Where both
// compute on bytes they agree to float32's rounding. An engine on float32 rounds a number here and
// there to the next quantum: class means of twenty images move by up to .003 of their root mean
// square.
func TestUploadOfQuantisedExtractor(t *testing.T) {
	out := filepath.Join(t.TempDir(), "client.onnx")
	ran(t, "fuse", "--extractor", filepath.Join("..", "..", "onnx", "integers", "testdata",
		"digits.u8.onnx"), "--class-names", "0,1,2,3,4,5,6,7,8,9", "--engine", "pure", "--kappa",
		"3,.2", "-o", out)
	m, f := must.Get2(models.Load(out))(t)
	drawn := must.Get(digits.Draw(t.Context(), digits.Config{Train: 200, Test: 1}))(t)
	labels := make([]int64, 200)
	for i, y := range drawn.Train.Labels {
		labels[i] = int64(y)
	}
	feeds := map[string]*onnx.Tensor{"images": onnx.NewTensor(drawn.Train.Pix, 200, 28, 28, 1),
		"labels": onnx.NewTensor(labels, 200)}
	sent := func(e engine.Engine, err error) []float32 {
		if errors.Is(err, ort.ErrNoLibrary) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s := must.Get(e.Load(m))(t)
		defer s.Close()
		of := must.Get(engine.Eval(s, feeds, "points", "masses"))(t)
		set := must.Get(client.Set(of["points"], of["masses"], f))(t)
		data := must.Get((&federate.Upload{Client: "a", Model: f.Digest, N: 200, Points: set}).Encode())(t)
		u := must.Get(federate.Decode(data, federate.Expect{Model: f.Digest}))(t)
		return u.Points.Z
	}
	same := sent(pure.New(engine.Options{Threads: 1, Reproducible: true}))
	var power float64
	for _, v := range same {
		power += float64(v) * float64(v) / float64(len(same))
	}
	far := func(a, b []float32) (most, rms float64) {
		for i, v := range b {
			d := math.Abs(float64(a[i] - v))
			most, rms = max(most, d), rms+d*d/float64(len(a))
		}
		return most / math.Sqrt(power), math.Sqrt(rms / power)
	}
	check := func(what string, a, b []float32, maxLargest, rmsMax float64) {
		if most, rms := far(a, b); b != nil && (most > maxLargest || rms > rmsMax) {
			t.Errorf("%s: points differ by %.2g of their root mean square at most, by %.2g in the mean; "+
				"want %.2g and %.2g", what, most, rms, maxLargest, rmsMax)
		}
	}
	on, theirs := sent(pure.New(engine.Options{Threads: 1})), sent(ort.New(ort.Options{Threads: 1}))
	check("pure and a client's", on, same, .01, .001)
	if pure.FastIntegers() {
		check("pure and the ONNX Runtime's", on, theirs, 1e-6, 1e-6)
	}
}
