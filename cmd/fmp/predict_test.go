package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/serde"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
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
		{[]string{upload, filepath.Join(dir, "empty"), foreign, "--on-bad", "skip"}, 1,
			100, "left out: "},
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
