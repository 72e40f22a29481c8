package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/cmd/internal/outputs/outputstest"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/serde"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/privacy"
)

// pooledFrom makes made-up uploads of a data set's shipped client graph into what fmp pool gives
// for args.
func pooledFrom(t *testing.T, dataset, out string, args ...string) {
	t.Helper()
	f := shippedManifest(t, dataset, models.KindClient)
	all := []string{"pool", "--scope", "closed", "--engine.name", "pure", "-o", out}
	for i := range 3 {
		all = append(all, madeUpload(t, f, filepath.Join(t.TempDir(), fmt.Sprint(i)),
			fmt.Sprint("client ", i), f.Digest, 0))
	}
	ran(t, append(all, args...)...)
}

func shippedManifest(t *testing.T, dataset, kind string) models.Manifest {
	_, f := assetstest.Load(t, dataset, kind)
	return f
}

// TestClassifierFile: the classifier gives what the heads give in float64 behind the extractor's
// features, to 1e-5, on the ONNX Runtime, on the pure engine, in plain Python and through fmp
// predict; so does the smaller form on feature rows.
func TestClassifierFile(t *testing.T) {
	path := newFolder(t)
	pooledFrom(t, "digits-color", path("classifier.onnx"), "--with-samples", "--samples", "7")
	pooledFrom(t, "digits-color", path("rows.onnx"), "--rows", "--samples", "7")
	pooledFrom(t, "digits-color", path("heads.npy"), "--samples", "7")

	var photo bytes.Buffer
	must.Do(t, png.Encode(&photo, image.NewGray(image.Rect(0, 0, 9, 9))))
	must.Do(t, os.WriteFile(path("photo.png"), photo.Bytes(), 0o644))

	const n, side = 12, 32
	pixels := make([]uint8, n*side*side*3)
	r := rng.New(2, "pixels")
	for i := range pixels {
		pixels[i] = uint8(r.IntN(256))
	}
	images := onnx.NewTensor(pixels, n, side, side, 3)

	// The reference: features from the client graph, heads in float64.
	client, f := assetstest.Load(t, "digits-color", models.KindClient)
	front := must.Get(models.FeatureGraph(client, f))(t)
	ort := orttest.New(t)
	goOnly := must.Get(pure.New(engine.Options{}))(t)
	eval := func(e engine.Engine, m *onnx.Model, name string,
		in *onnx.Tensor) map[string]*onnx.Tensor {
		t.Helper()
		s := must.Get(e.Load(m))(t)
		defer s.Close()
		return must.Get(engine.Eval(s, map[string]*onnx.Tensor{name: in}))(t)
	}
	features := eval(ort, front, "images", images)["features"]
	stack := must.Get(npy.Load(path("heads.npy")))(t)
	heads := make([]erm.Theta, stack.Shape[0])
	for i := range heads {
		d, c := stack.Shape[1], stack.Shape[2]
		heads[i] = erm.Theta{D: d, C: c, W: stack.F64()[i*d*c : (i+1)*d*c]}
	}
	conjugate, _ := assetstest.Load(t, "digits-color", models.KindConjugate)
	coordinates := must.Get(models.ConjugatePart(conjugate, models.ConjCoordinates))(t)
	want := must.Get(metric.Predict(t.Context(), heads,
		eval(ort, coordinates, "features", features)[models.ConjCoordinates].F32(), 1))(t)
	near := func(what string, got []float32) {
		t.Helper()
		if len(got) != len(want.P) {
			t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want.P))
		}
		for i, v := range got {
			if math.Abs(float64(v)-want.P[i]) > 1e-5 {
				t.Fatalf("%s: probability %d is %v, want %v", what, i, v, want.P[i])
			}
		}
	}
	whole, wf := must.Get2(models.Load(path("classifier.onnx")))(t)
	small, _ := must.Get2(models.Load(path("rows.onnx")))(t)
	for _, e := range []engine.Engine{ort, goOnly} {
		near("images on "+e.Name(), eval(e, whole, "images", images)["probabilities"].F32())
		near("rows on "+e.Name(), eval(e, small, "features", features)["probabilities"].F32())
	}
	if got := eval(ort, whole, "images", images)["samples"]; got.Len() != n*7*f.C {
		t.Errorf("samples %v", got)
	}
	o, err := models.ReadOrigin(wf)
	if err != nil || len(o.Clients) != 3 || o.Clients[1].Name != "client 1" ||
		len(o.Clients[1].Upload) != 64 || o.Clients[1].N != 20 ||
		o.Client != shippedManifest(t, "digits-color", models.KindClient).Digest ||
		o.Predictor != shippedManifest(t, "digits-color", models.KindConjugate).Digest ||
		o.Method != "FMP-one" || o.L2 != 0 || o.Fresh != 0 {
		t.Errorf("origin %+v, %v", o, err)
	}

	t.Run("predict", func(t *testing.T) {
		folder := path("photos")
		must.Do(t, os.Mkdir(folder, 0o755))
		for i := range n {
			im := image.NewNRGBA(image.Rect(0, 0, side, side))
			for k := range side * side {
				copy(im.Pix[4*k:], pixels[(i*side*side+k)*3:][:3])
				im.Pix[4*k+3] = 255
			}
			w := must.Get(os.Create(filepath.Join(folder, fmt.Sprintf("%02d.png", i))))(t)
			must.Do(t, png.Encode(w, im))
			w.Close()
		}
		must.Do(t, npy.Save(path("features.npy"), features))
		for _, args := range [][]string{{path("classifier.onnx"), folder},
			{path("classifier.onnx"), folder, "--engine", "pure"},
			{path("rows.onnx"), path("features.npy")}} {
			got := answer[struct {
				Classes     []string
				Predictions []struct {
					Class         string
					Probability   float64
					Unsure        bool
					Probabilities []float32
				}
				Count, Unsure int
			}](t, append([]string{"predict", "--json", "--reject", "0.5"}, args...)...)
			var all []float32
			unsure := 0
			for _, p := range got.Predictions {
				all = append(all, p.Probabilities...)
				if p.Unsure != (p.Probability < 0.5) {
					t.Errorf("%+v", p)
				}
				if p.Unsure {
					unsure++
				}
			}
			near(strings.Join(args, " "), all)
			if got.Count != n || got.Unsure != unsure || len(got.Classes) != f.C {
				t.Errorf("%d predictions, %d unsure, %v", got.Count, got.Unsure, got.Classes)
			}
		}
		out, _ := ran(t, "predict", path("classifier.onnx"), folder, "--reject", "1", "--csv")
		if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != n+1 ||
			!strings.Contains(lines[1], ",true,") {
			t.Errorf("printed %s", out)
		}
		out, _ = ran(t, "predict", path("classifier.onnx"), folder, "--reject", "1")
		if want := fmt.Sprintf("%d of %d are below 1", n, n); !strings.Contains(out, want) {
			t.Errorf("printed %s; want %q", out, want)
		}
	})

	t.Run("refused", func(t *testing.T) {
		t.Chdir(path(""))
		must.Do(t, errors.Join(os.Mkdir("bad", 0o755), os.WriteFile("bad/one.png", []byte("no picture"), 0o644),
			os.WriteFile("bad/two.jpg", []byte("no picture"), 0o644),
			npy.Save("short.npy", onnx.NewTensor(make([]int64, n-1), n-1))))
		const of, rows = "predict classifier.onnx ", "predict rows.onnx "
		const served, rowsServed = of + "--listen 127.0.0.1:0 ", rows + "--listen 127.0.0.1:0 "
		outputstest.CheckWrong(t, []outputstest.Wrong{
			{of + "photos --on-bad ignore", "--on-bad"},
			{of + "photos --reject 1.5", "--reject is 1.5"}, {of + "photos --json --csv", "--json and --csv"},
			{rows + "photos", "images"}, {rows + "photos", "rows"}, {of + "features.npy", "--rows"},
			{of + "bad/one.png", "not a readable image"}, {of + "gone", "gone"}, {rows + "gone.npy", "gone.npy"},
			{of + "photo.png --adapt photo.png", "states no shifts of cameras"},
			{of + "photo.png --host foo", "--host goes with --listen"},
			{served + "--json", "--json goes with IMAGES"}, {served + "--count 3", "--count goes with IMAGES"},
			{served + "--on-bad skip", "--on-bad goes with IMAGES"}, {served + "--reject 2", "--reject is 2"},
			{served + "--adapt photo.png", "states no shifts of cameras"}, {served + "--level 0.9", "level"},
			{served + "--level 0.3", "allowed are 0.5"},
			{"evaluate rows.onnx features.npy --labels short.npy", "labels for"},
			{rows + "features.npy --count 2", "do not go with feature rows"}, {rowsServed, "takes feature rows"},
			{rowsServed + "--max-pixels 5", "goes with IMAGES"}}, everything(t))
		for _, name := range []string{"one.png", "two.jpg"} {
			refused(t, exitUsage, name, "predict", "classifier.onnx", "bad")
			refused(t, exitUsage, name, "predict", "classifier.onnx", "bad", "--on-bad", "skip")
		}
	})

	t.Run("python", func(t *testing.T) {
		const python = "python3"
		must.Have(t, exec.Command(python, "-c", "import onnxruntime").Run())
		must.Do(t, npy.Save(path("images.npy"), images))
		const script = `import sys, numpy, onnxruntime
s = onnxruntime.InferenceSession(sys.argv[1])
numpy.save(sys.argv[3], s.run(["probabilities"], {"images": numpy.load(sys.argv[2])})[0])`
		if out, err := exec.Command(python, "-c", script, path("classifier.onnx"), path("images.npy"),
			path("p.npy")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		near("Python", must.Get(npy.Load(path("p.npy")))(t).F32())
	})
}

// TestPoolSettles: what nobody gives, the files say; what does not belong together is refused, and
// nothing is written.
func TestPoolSettles(t *testing.T) {
	dir := t.TempDir()
	// Uploads of an embedding, whose predictor has settings.
	f, mf := shippedManifest(t, "digits", models.KindEmbedding),
		shippedManifest(t, "mnist", models.KindEmbedding)
	upload := madeUpload(t, f, filepath.Join(dir, "a"), "a", f.Digest, 0)
	must.Do(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o644))
	foreign := madeUpload(t, f, filepath.Join(dir, "foreign"), "b", strings.Repeat("ab", 32), 0)
	mnist := madeUpload(t, mf, filepath.Join(dir, "mnist"), "b", mf.Digest, 0)
	wrong := assetstest.File(t, "mnist", models.KindPredictor)
	pool := func(args ...string) (int, string, string, bool) {
		out := filepath.Join(t.TempDir(), "c.onnx")
		code, text, errs := runFMP(t,
			append([]string{"pool", "--engine", "pure", "--json", "--rows", "-o", out}, args...)...)
		_, err := os.Stat(out)
		return code, text, errs, err == nil
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{upload, "--predictor", wrong}, "goes with extractor"},
		{[]string{upload, "--predictor", wrong, "--client-graph", shippedFile(t, models.KindEmbedding)},
			"goes with extractor"},
		{[]string{foreign}, "--client-graph"},
		{[]string{upload, "--on-bad", "ignore"}, "--on-bad"},
		{[]string{upload, filepath.Join(dir, "empty")}, "empty"},
		{[]string{upload, wrong}, "an ONNX model"},
		// the second bad one is named too
		{[]string{upload, filepath.Join(dir, "empty"), wrong}, "an ONNX model"},
		{[]string{upload, "--set", "federation.points=3"}, "does not read"},
		{[]string{filepath.Join(dir, "empty"), "--on-bad", "skip"}, "empty"},
		{[]string{upload, "--predictor", shippedFile(t, models.KindEmbedding)}, "wants a predictor"},
	} {
		code, _, errs, made := pool(c.args...)
		if code != exitUsage || !strings.Contains(errs, c.want) || made {
			t.Errorf("%v: exit code %d, %q, wrote a file: %v; want %d and %q", c.args, code, errs, made,
				exitUsage, c.want)
		}
	}
	for _, c := range []struct {
		args  []string
		l2    float64
		fresh int
		warn  string
	}{
		{[]string{upload}, 1, 100, ""},
		{[]string{mnist}, 0.1, 100, ""},
		{[]string{upload, "--l2", "4", "--fresh", "30"}, 4, 30, ""},
		{[]string{upload, "--predictor", "untrained"}, 3, 100, ""},
		{[]string{upload, renamed(t, upload), filepath.Join(dir, "empty"), foreign, "--on-bad",
			"skip"}, 1, 100, "left out: "},
		{[]string{upload, renamed(t, upload)}, 1, 100, "hold the same points"},
	} {
		code, out, errs, made := pool(c.args...)
		var got pooled
		if err := json.Unmarshal([]byte(out), &got); code != exitOK || err != nil || !made ||
			got.L2 != c.l2 || got.Fresh != c.fresh ||
			!strings.Contains(errs, c.warn) {
			t.Errorf("%v: exit code %d, %+v, %v, %q; want l2 %v, fresh %d and %q",
				c.args, code, got, err, errs, c.l2, c.fresh, c.warn)
		}
	}
}

// renamed is an upload of the same points from another client.
func renamed(t *testing.T, path string) string {
	t.Helper()
	u := decoded(t, path)
	u.Client += " again"
	return writeFile(t, "renamed", string(must.Get(u.Encode())(t)))
}

// predictedJSON is the part of fmp predict --json that tests read.
type predictedJSON struct {
	Predictions []struct {
		File          string
		Probabilities []float64
	}
}

// TestOneImage: one image runs on the pure engine, unless an engine is named or the classifier is
// too much work for it, and has the runtime's probabilities.
func TestOneImage(t *testing.T) {
	orttest.New(t)
	at := func(name string) string { return filepath.Join("testdata", "releases", "0.1.0", name) }
	predict := func(args ...string) string {
		t.Helper()
		out, _ := ran(t, append([]string{"predict", "--json", at("classifier.onnx")},
			args...)...)
		return out
	}
	numbers := func(out string) []float64 {
		t.Helper()
		var got predictedJSON
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Predictions) != 1 {
			t.Fatalf("%s: %v", out, err)
		}
		return got.Predictions[0].Probabilities
	}
	image := at("image.jpg")
	alone, inGo, byRuntime := predict(image), predict(image, "--engine", "pure"),
		predict(image, "--engine", "ort")
	if alone != inGo {
		t.Errorf("one image gives %s, and on the pure engine %s", alone, inGo)
	}
	for c, p := range numbers(byRuntime) {
		if q := numbers(alone)[c]; math.Abs(p-q) > 1e-5 {
			t.Errorf("class %d: %v on the runtime, %v in Go", c, p, q)
		}
	}
	if alone == byRuntime {
		t.Skip("both engines have the same bits: nothing tells which one ran")
	}
	if got := predict(image, "--engine", "auto"); got != byRuntime {
		t.Errorf("--engine auto gives %s, want the runtime's %s", got, byRuntime)
	}
	was := oneImage
	t.Cleanup(func() { oneImage = was })
	if oneImage = (engine.Limits{Work: 1000}); predict(image) != byRuntime {
		t.Error("a classifier of much work does not run on the runtime")
	}
}

// TestOneImageInBytes: a classifier that rounds to bytes gives an image the bits that it has in a
// folder; one whose weights alone are in bytes runs in Go.
func TestOneImageInBytes(t *testing.T) {
	orttest.New(t)
	from := filepath.Join("testdata", "releases", "0.1.0")
	image := filepath.Join(from, "image.jpg")
	for _, c := range []struct{ name, op, like string }{
		{"activations", "QuantizeLinear", "ort"},
		{"activations, with a scale of their own", "DynamicQuantizeLinear", "ort"},
		{"weights", "", "pure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := must.Get(serde.Load(filepath.Join(from, "classifier.onnx")))(t)
			inBytes(m.Graph, c.op)
			path := saved(t)(m, nil)
			predict := func(engine ...string) string {
				out, _ := ran(t, append([]string{"predict", "--json", path, image}, engine...)...)
				return out
			}
			byRuntime, inGo := predict("--engine", "ort"), predict("--engine", "pure")
			if byRuntime == inGo {
				t.Skip("both engines have the same bits: nothing tells which one ran")
			}
			want := map[string]string{"ort": byRuntime, "pure": inGo}[c.like]
			if got := predict(); got != want {
				t.Errorf("alone the image gives %s, want %s's %s", got, c.like, want)
			}
		})
	}
}

// inBytes adds to a classifier's entropy a number that is stored as a byte, or with op is rounded
// to one.
func inBytes(g *onnx.Graph, op string) {
	for _, n := range g.Nodes {
		for i, out := range n.Outputs {
			if out == "entropy" {
				n.Outputs[i] = "before"
			}
		}
	}
	g.Initializers["step"] = onnx.NewTensor([]float32{0.5})
	g.Initializers["zero"] = onnx.NewTensor([]uint8{0})
	back := []string{"byte", "step", "zero"}
	switch op {
	case "":
		g.Initializers["byte"] = onnx.NewTensor([]uint8{0}, 1)
	case "QuantizeLinear":
		g.Nodes = append(g.Nodes, &onnx.Node{Op: op, Inputs: []string{"before", "step", "zero"},
			Outputs: []string{"byte"}})
	default:
		back = []string{"byte", "scale", "offset"}
		g.Nodes = append(g.Nodes, &onnx.Node{Op: op, Inputs: []string{"before"}, Outputs: back})
	}
	g.Nodes = append(g.Nodes, &onnx.Node{Op: "DequantizeLinear", Inputs: back, Outputs: []string{"back"}},
		&onnx.Node{Op: "Add", Inputs: []string{"before", "back"}, Outputs: []string{"entropy"}})
}

// predicted are the probabilities that each release's classifier gave its image.
var predicted = map[string][]float64{
	"0.1.0": {0.99585134, 0.00029281236, 0.00008208089, 0.000042002706, 0.000042872853, 0.000004543984,
		0.00006461558, 0.00014605763, 0.0027651791, 0.00070848153},
}

// TestReleases: what releases wrote is read by this version: client graphs, uploads, parts,
// classifiers, signatures, ledgers and runs.
func TestReleases(t *testing.T) {
	folders, err := filepath.Glob("testdata/releases/*")
	if err != nil || len(folders) != len(predicted) {
		t.Fatalf("%d folders, %v; want one of each release that predicted has", len(folders), err)
	}
	for _, dir := range folders {
		t.Run(filepath.Base(dir),
			func(t *testing.T) { readRelease(t, dir, predicted[filepath.Base(dir)]) })
	}
}

func readRelease(t *testing.T, dir string, want []float64) {
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) { t.Helper(); refused(t, exitOK, "", args...) }
	probabilities := func(classifier string) []float64 {
		t.Helper()
		got := answer[predictedJSON](t, "predict", classifier, at("image.jpg"), "--engine", "pure", "--json")
		if len(got.Predictions) != 1 || len(got.Predictions[0].Probabilities) != len(want) {
			t.Fatalf("%s: %+v", classifier, got)
		}
		return got.Predictions[0].Probabilities
	}
	for c, p := range probabilities(at("classifier.onnx")) {
		if math.Abs(p-want[c]) > 1e-5 {
			t.Errorf("class %d has the probability %v; it had %v", c, p, want[c])
		}
	}
	// The same uploads give a classifier of the same class; a later version may fit a better one.
	for name, files := range map[string][]string{"uploads": {at("shop-1.upload"), at("shop-2.upload")},
		"part": {at("all.part")}} {
		next := filepath.Join(t.TempDir(), "next.onnx")
		run(append([]string{"pool", "--client-graph", at("client.onnx"), "-o", next, "--engine", "pure",
			"--posterior.samples", "4"}, files...)...)
		if p := probabilities(next); p[0] < 0.9 {
			t.Errorf("%s: the image of a 0 is one with probability %v", name, p[0])
		}
	}
	run("pool", at("private.upload"), "--client-graph", at("private.onnx"), "--round", "7", "-o",
		filepath.Join(t.TempDir(), "p.onnx"), "--engine", "pure")
	run("verify", at("classifier.onnx"), "--key", at("key.pub"))
	kept := filepath.Join(t.TempDir(), "run") // tables are made anew beside the figures
	must.Do(t, os.CopyFS(kept, os.DirFS(at("run"))))
	run("results", "show", kept)
	ledger := must.Get(os.ReadFile(at("ledger")))(t)
	if found, err := privacy.Find(ledger, privacy.Spending{}); err != nil || found != nil {
		t.Errorf("the ledger gives %v, %v", found, err)
	}
}

// oddPhotographs writes 60 pictures of odd sizes: PNGs in colour, and grey JPEGs that are turned by
// EXIF in each of its eight ways. Both formats decode to the same numbers everywhere: larger JPEGs
// are decoded no further than needed, and not to the bit.
func oddPhotographs(t *testing.T, dir string) {
	t.Helper()
	r := rng.New(4, "odd photographs")
	for i := range 60 {
		w, h := 9+r.IntN(120), 9+r.IntN(120)
		pixel := func(x, y, c int) uint8 {
			return uint8(128 + 90*math.Sin(float64(x*(c+2))/9+float64(i))*math.Cos(float64(y)/7) +
				float64(r.IntN(30)))
		}
		var b bytes.Buffer
		name := fmt.Sprintf("%02d.png", i)
		if i%3 > 0 {
			im := image.NewNRGBA(image.Rect(0, 0, w, h))
			for k := range w * h {
				x, y := k%w, k/w
				im.SetNRGBA(x, y, color.NRGBA{R: pixel(x, y, 0), G: pixel(x, y, 1),
					B: pixel(x, y, 2), A: 255})
			}
			must.Do(t, png.Encode(&b, im))
		} else {
			name = fmt.Sprintf("%02d.jpg", i)
			im := image.NewGray(image.Rect(0, 0, w, h))
			for k := range im.Pix {
				im.Pix[k] = pixel(k%w, k/w, 0)
			}
			var plain bytes.Buffer
			must.Do(t, jpeg.Encode(&plain, im, &jpeg.Options{Quality: 95}))
			// One directory entry: Orientation (0x112), SHORT, once.
			exif := []byte(
				"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00")
			binary.BigEndian.PutUint16(exif[24:], uint16(1+i/3%8))
			b.Write([]byte{0xff, 0xd8, 0xff, 0xe1, 0, byte(len(exif) + 2)})
			b.Write(exif)
			b.Write(plain.Bytes()[2:])
		}
		must.Do(t, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600))
	}
}

// presetClassifier writes a classifier behind a preset, with drawn weights: of images of any size,
// 24 x 32 pixels inside.
func presetClassifier(t *testing.T, dir, preset string) string {
	t.Helper()
	w := onnx.ZerosF32(8, 3, 5, 5)
	rng.Normal(rng.New(5, "filters"), w.F32())
	for i := range w.F32() {
		w.F32()[i] *= 0.2
	}
	b := build.New("filters")
	x := b.Input("image", onnx.Float32, "batch", 3, 24, 32)
	h := b.Relu(b.Op("Conv", []build.Ref{x, b.Param("w", w)}, onnx.IntsAttr("strides", 2, 2)))
	b.Output("features", b.Reshape(b.Op("GlobalAveragePool", []build.Ref{h}), 0, 8))
	net, client := saved(t)(b.Model()), filepath.Join(dir, preset+".client.onnx")
	ran(t, "fuse", "--extractor", net, "--preset", preset, "--class-names", "a,b,c", "-o", client)
	graph, f := must.Get2(models.Load(client))(t)
	features := must.Get(models.FeatureGraph(graph, f))(t)
	heads := make([]float64, 4*9*3)
	r := rng.New(6, "heads")
	for i := range heads {
		heads[i] = r.NormFloat64()
	}
	m := must.Get(models.NewClassifier(
		models.ClassifierParts{Features: features, Heads: onnx.NewTensor(heads, 4, 9, 3)},
		models.Manifest{Classes: []string{"a", "b", "c"}, Resize: f.Resize, Layout: f.Layout}))(t)
	path := filepath.Join(dir, preset+".onnx")
	must.Do(t, serde.Save(path, must.Get(models.AnySize(m))(t)))
	return path
}

// other runs a program of another runtime, which ends with 3 where it misses what it needs.
func other(t *testing.T, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	must.Have(t, err)
	out, err := exec.Command(path, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		must.Have(t, errors.New(string(out)))
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}

// TestPhotographsAgree: the probabilities of 60 photographs of odd sizes under every preset are
// those of fmp predict, to 1e-4, in Python's onnxruntime, in onnxruntime-web and in tritonclient on
// our own /v2. Python decodes the files for all three.
func TestPhotographsAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("runs other runtimes")
	}
	needRuntime(t)
	dir := t.TempDir()
	photos := filepath.Join(dir, "photos")
	must.Do(t, os.Mkdir(photos, 0o700))
	oddPhotographs(t, photos)
	other(t, "python3", filepath.Join("testdata", "photographs.py"), "decode", photos)
	for _, preset := range extractor.PresetNames() {
		path := presetClassifier(t, dir, preset)
		want := answer[predictedJSON](t, "predict", path, photos, "--json")
		if len(want.Predictions) != 60 {
			t.Fatalf("%d predictions", len(want.Predictions))
		}
		agree := func(t *testing.T, by string) {
			got := map[string][]float64{}
			must.Do(t, json.Unmarshal(read(t, filepath.Join(photos, by+".json")), &got))
			for _, p := range want.Predictions {
				name := filepath.Base(p.File)
				if len(got[name]) != 3 {
					t.Fatalf("%s: %v for %s", by, got[name], name)
				}
				for c, v := range p.Probabilities {
					if math.Abs(v-got[name][c]) > 1e-4 {
						t.Errorf("%s behind %s: %v of class %d by %s, %v by fmp predict", name, preset,
							got[name][c], c, by, v)
					}
				}
			}
		}
		t.Run(preset+"/onnxruntime", func(t *testing.T) {
			other(t, "python3", filepath.Join("testdata", "photographs.py"),
				"onnxruntime", photos, path)
			agree(t, "onnxruntime")
		})
		t.Run(preset+"/onnxruntime-web", func(t *testing.T) {
			other(t, "node", filepath.Join("testdata", "photographs.js"), photos, path)
			agree(t, "onnxruntime-web")
		})
		t.Run(preset+"/tritonclient", func(t *testing.T) {
			other(t, "python3", filepath.Join("testdata", "photographs.py"), "tritonclient", photos,
				served(t, path))
			agree(t, "tritonclient")
		})
	}
}

// served starts fmp predict --listen of a classifier, and returns its address.
func served(t *testing.T, path string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	from, to := io.Pipe()
	done := make(chan int)
	go func() {
		code := execute(ctx, []string{"predict", path, "--listen", "127.0.0.1:0"},
			strings.NewReader(""), to, io.Discard)
		to.Close()
		done <- code
	}()
	t.Cleanup(func() {
		stop()
		go io.Copy(io.Discard, from)
		<-done
	})
	line, err := bufio.NewReader(from).ReadString('\n')
	_, address, ok := strings.Cut(line, "on http://")
	if err != nil || !ok {
		t.Fatalf("fmp predict --listen says %q, %v", line, err)
	}
	return strings.TrimSpace(address)
}
