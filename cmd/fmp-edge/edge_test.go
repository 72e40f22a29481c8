package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/assets/assetstest"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/imagefile"
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
	"fmp/pipeline/client"
	"fmp/pipeline/compress"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

const side = 28 // of the digits' images

// model writes one of the shipped models of the digits to a file.
func model(t testing.TB, kind string) string { return assetstest.File(t, "digits", kind) }

// blobs are n grey images of side x side pixels, smooth as strokes are, with labels 0 to 9 in turn.
func blobs(n int) (*dataset.Images, []int) {
	im := &dataset.Images{N: n, H: side, W: side, Ch: 1, Pix: make([]uint8, n*side*side)}
	labels := make([]int, n)
	r := rng.New(9, "blobs")
	for i := range n {
		labels[i] = i % 10
		for range 3 {
			cx, cy, s := 6+16*r.Float64(), 6+16*r.Float64(), 4+20*r.Float64()
			for k, px := 0, im.At(i); k < len(px); k++ {
				dx, dy := float64(k%side)-cx, float64(k/side)-cy
				px[k] = uint8(min(255, float64(px[k])+220*math.Exp(-(dx*dx+dy*dy)/s)))
			}
		}
	}
	return im, labels
}

func gray(im *dataset.Images, i int) *image.Gray {
	return &image.Gray{Pix: im.At(i), Stride: side, Rect: image.Rect(0, 0, side, side)}
}

func writePNG(t testing.TB, path string, im image.Image) {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, png.Encode(&b, im))
	write(t, path, b.Bytes())
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, data, 0o644))
}

// newFolder makes a folder and returns the paths of files in it.
func newFolder(t *testing.T) func(name string) string {
	t.Helper()
	dir := t.TempDir()
	return func(name string) string { return filepath.Join(dir, name) }
}

// saved writes a model to a file of its own.
func saved(t testing.TB, m *onnx.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Do(t, serde.Save(path, m))
	return path
}

// run runs the program and wants it to end well.
func run(t testing.TB, args ...string) string {
	t.Helper()
	var out, log bytes.Buffer
	if code := execute(context.Background(), args, &out, &log); code != exitOK {
		t.Fatalf("fmp-edge %v: exit code %d: %s", args, code, log.String())
	}
	return out.String()
}

// faulty is a writer with a fault of the program.
type faulty struct{}

func (faulty) Write([]byte) (int, error) { panic("no such case") }

// TestFault: a fault of the program is told as one, with the exit code that the help gives it.
func TestFault(t *testing.T) {
	var log bytes.Buffer
	if code := execute(t.Context(), []string{"help"}, faulty{}, &log); code != 134 ||
		!strings.Contains(log.String(), "internal error: no such case") {
		t.Errorf("exit code %d: %s", code, &log)
	}
}

// said runs the program and returns its exit code and its messages.
func said(t testing.TB, args ...string) (int, string) {
	t.Helper()
	var log bytes.Buffer
	code := execute(t.Context(), args, io.Discard, &log)
	return code, log.String()
}

// refuses runs the program and wants it to end with an exit code and to say so, and to print nothing.
func refuses(t testing.TB, want int, says string, args ...string) {
	t.Helper()
	var out, log bytes.Buffer
	code := execute(t.Context(), args, &out, &log)
	if code != want || !strings.Contains(log.String(), says) || out.Len() > 0 {
		t.Errorf("fmp-edge %q: exit code %d, printed %q, said %q; want %d and %q", args, code, out.String(),
			log.String(), want, says)
	}
}

func read(t testing.TB, path string) *federate.Upload {
	t.Helper()
	return must.Get(federate.Decode(must.Get(os.ReadFile(path))(t), federate.Expect{}))(t)
}

// alike fails where a number differs by more than tolerance.
func alike(t testing.TB, what string, got, want []float32, tolerance float64) {
	t.Helper()
	for i, v := range got {
		if !(math.Abs(float64(v-want[i])) <= tolerance) {
			t.Fatalf("%s %d is %v, want %v to within %v", what, i, v, want[i], tolerance)
		}
	}
}

// near fails where two sets differ by more than tolerance.
func near(t testing.TB, what string, got, want *point.Set, tolerance float64) {
	t.Helper()
	if got.N != want.N || got.Dx != want.Dx || got.C != want.C {
		t.Fatalf("%s: %d points of dx %d and %d classes, want %d of %d and %d", what, got.N, got.Dx,
			got.C, want.N, want.Dx, want.C)
	}
	alike(t, what+": number", got.Z, want.Z, tolerance)
	alike(t, what+": mass", got.W, want.W, tolerance)
}

// folder lays images out as DIR/LABEL/NUMBER.png and returns DIR and the order in which they are
// read.
func folder(t testing.TB, im *dataset.Images, labels []int) (dir string, order []int) {
	dir = t.TempDir()
	for c := range 10 {
		for i, y := range labels {
			if y == c {
				writePNG(t, filepath.Join(dir, fmt.Sprint(y), fmt.Sprintf("%04d.png", i)), gray(im, i))
				order = append(order, i)
			}
		}
	}
	return dir, order
}

// photosOf lays n of the blobs out in a folder.
func photosOf(t testing.TB, n int) string {
	t.Helper()
	im, labels := blobs(n)
	dir, _ := folder(t, im, labels)
	return dir
}

// writeIDX writes images and labels to the IDX files "images" and "labels" of a folder.
func writeIDX(t testing.TB, dir string, pixels []uint8, labels []int) {
	t.Helper()
	n := uint32(len(labels))
	y := header(0x801, n)
	for _, v := range labels {
		y = append(y, byte(v))
	}
	write(t, filepath.Join(dir, "images"), append(header(0x803, n, side, side), pixels...))
	write(t, filepath.Join(dir, "labels"), y)
}

// TestSources: a folder, a list and IDX files of the same images give the same upload, to the
// rounding that the order of images makes; and it is what the program on the server's side
// computes.
func TestSources(t *testing.T) {
	const n = 23
	im, labels := blobs(n)
	m := model(t, models.KindClient)
	dir, _ := folder(t, im, labels)
	write(t, filepath.Join(dir, "3", "notes.txt"), []byte("no image"))
	write(t, filepath.Join(dir, ".hidden", "x.png"), []byte("no image"))

	list := "\ufeffpath,label\n" // as spreadsheets write it
	for i, y := range labels {
		list += fmt.Sprintf("%d/%04d.png, %d\n", y, i, y)
	}
	csvPath := filepath.Join(dir, "list.csv")
	write(t, csvPath, []byte(list))

	idxPath, labelPath := filepath.Join(dir, "images.gz"), filepath.Join(dir, "labels")
	raw := append(header(0x803, 2+n+1, side, side), make([]byte, 2*side*side)...)
	raw = append(append(raw, im.Pix...), make([]byte, side*side)...)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(raw)
	z.Close()
	write(t, idxPath, packed.Bytes())
	ys := append(header(0x801, 2+n+1), 1, 2)
	for _, y := range labels {
		ys = append(ys, byte(y))
	}
	write(t, labelPath, append(ys, 5))

	out := t.TempDir()
	path := func(name string) string { return filepath.Join(out, name) }
	run(t, "compress", "--model", m, "--client", "a", "--round", "4", "-o", path("folder"), dir)
	run(t, "compress", "--model", m, "--client", "a", "-o", path("list"), csvPath)
	var w written
	must.Do(t, json.Unmarshal([]byte(run(t, "compress", "--json", "--threads", "2", "--model", m, "--client", "a",
		"-o", path("idx"), idxPath, "--labels", labelPath, "--skip", "2", "--count", fmt.Sprint(n))), &w))
	if w.N != n || w.Size < 1 {
		t.Errorf("JSON %+v", w)
	}
	got := read(t, path("folder"))
	if got.Round != 4 || got.Client != "a" || got.N != n || math.Abs(got.Points.Mass()-n) > 1e-3 {
		t.Errorf("upload %+v", got)
	}
	for _, name := range []string{"list", "idx"} {
		near(t, name, read(t, path(name)).Points, got.Points, 1e-5)
	}
	if entries, _ := os.ReadDir(out); len(entries) != 6 {
		t.Errorf("%d files beside the 3 uploads and their tables of classes: %v",
			len(entries)-6, entries)
	}
	for p, bound := range map[string]float64{"float16": 5e-3, "int8": 0.2} {
		run(t, "compress", "--model", m, "--client", "a", "-o", path(p), "--precision", p, dir)
		near(t, p, read(t, path(p)).Points, got.Points, bound)
	}
	if s := run(t, "inspect", path("folder"), "--model", m); !strings.Contains(s, "n = 23") {
		t.Errorf("inspect says %s", s)
	}
	if s := run(t, "inspect", m); !strings.Contains(s, "compress:  yes") {
		t.Errorf("inspect says %s", s)
	}

	t.Run("server", func(t *testing.T) {
		near(t, "the server's program", serverSide(t, im, labels), got.Points, 1e-5)
	})
}

// TestCopiesTold: images that are copies of others of their class count once, in the table of classes
// too, and their number is told.
func TestCopiesTold(t *testing.T) {
	const n = 20
	im, labels := blobs(n)
	dir, _ := folder(t, im, labels)
	for i, y := range labels {
		if y < 2 { // another format, the same pixels
			var b bytes.Buffer
			must.Do(t, gif.Encode(&b, gray(im, i), &gif.Options{Quantizer: greys{}}))
			write(t, filepath.Join(dir, fmt.Sprint(y), fmt.Sprintf("a%d.gif", i)), b.Bytes())
		}
	}
	idx := t.TempDir()
	writeIDX(t, idx, slices.Concat(im.Pix, im.Pix[:4*side*side]), slices.Concat(labels, labels[:4]))
	for name, source := range map[string][]string{
		"folder": {dir}, "idx": {filepath.Join(idx, "images"), "--labels", filepath.Join(idx, "labels")}} {
		var out, log bytes.Buffer
		args := append([]string{"compress", "--json", "--model", model(t, models.KindClient), "--client", "a",
			"-o", filepath.Join(t.TempDir(), "a.upload")}, source...)
		if code := execute(t.Context(), args, &out, &log); code != exitOK {
			t.Fatalf("%s: %s", name, log.String())
		}
		var w written
		must.Do(t, json.Unmarshal(out.Bytes(), &w))
		listed := 0
		for _, f := range w.Folders {
			listed += f.Images
		}
		if w.N != n || w.Copies != 4 || listed != n ||
			!strings.Contains(log.String(), "4 of 24 images are copies of others and count once") {
			t.Errorf("%s: %d images, %d copies, %d listed; said %q", name, w.N, w.Copies, listed, log.String())
		}
	}
}

// TestHeavyTold: one feature that drowns the others is told of, and none of a client without one.
func TestHeavyTold(t *testing.T) {
	for share, want := range map[float64]string{0: "", 0.83: "number 7 of 256 of the features, from 0, has 83%"} {
		var log bytes.Buffer
		tell(&log, &client.Client{Manifest: models.Manifest{Dx: 256}, Heavy: moments.Heavy{Feature: 7, Share: share}}, nil)
		if !strings.Contains(log.String(), want) || (log.Len() == 0) != (want == "") {
			t.Errorf("share %v: told %q; want %q", share, log.String(), want)
		}
	}
}

// greys is a palette of all greys.
type greys struct{}

func (greys) Quantize(p color.Palette, _ image.Image) color.Palette {
	for v := range 256 {
		p = append(p, color.Gray{Y: uint8(v)})
	}
	return p
}

// serverSide computes an upload as fmp run does: extractor and embedding apart, on the ONNX
// Runtime.
func serverSide(t *testing.T, im *dataset.Images, labels []int) *point.Set {
	e := orttest.New(t)
	x := must.Get(extractor.Open(e, model(t, models.KindExtractor), extractor.Options{}, *im))(t)
	defer x.Close()
	h := must.Get(x.Features(t.Context(), im, nil))(t)
	set := must.Get(point.FromLabelled(h, x.Dx(), labels, 10))(t)
	conjugate, _ := must.Get2(models.Load(model(t, models.KindConjugate)))(t)
	k := must.Get(compress.New(e, must.Get(models.ConjugateEmbedding(conjugate, true))(t)))(t)
	defer k.Close()
	uploads := must.Get(k.Compress(t.Context(), []*point.Set{set}))(t)
	return uploads[0]
}

// TestMain keeps what the tests approve and spend out of the user's folder for configuration, and
// has private rounds wait for nothing.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fmp-edge-config")
	if err != nil {
		panic(err)
	}
	if cache, err := os.UserCacheDir(); err == nil {
		os.Setenv("XDG_CACHE_HOME", cache) // where fmp setup put the ONNX Runtime
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "HOME", "AppData"} {
		os.Setenv(name, dir)
	}
	replyAfter = 0
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// TestParts: the graph in two parts gives what it gives in one piece.
func TestParts(t *testing.T) {
	const n = 11
	im, labels := blobs(n)
	path := model(t, models.KindClient)
	c := must.Get(openClient(path, 1))(t)
	dir, order := folder(t, im, labels)
	src, _ := must.Get2(imagefile.Open(dir,
		imagefile.Options{Fit: c.Fit, Classes: imagefile.Classes{N: c.Manifest.C}, MaxItems: n}))(t)
	got, _, _, err := c.Points(t.Context(), src, client.Options{})
	must.Do(t, err)
	m, _ := must.Get2(models.Load(path))(t)
	e := must.Get(pure.New(engine.Options{}))(t)
	s := must.Get(e.Load(m))(t)
	sorted := must.Get(im.Select(order))(t)
	ys := make([]int64, n)
	for i, k := range order {
		ys[i] = int64(labels[k])
	}
	out := must.Get(engine.Eval(s,
		map[string]*onnx.Tensor{"images": onnx.NewTensor(sorted.Pix, n, side, side, 1),
			"labels": onnx.NewTensor(ys, n)}, "points", "masses"))(t)
	near(t, "in parts", got, must.Get(client.Set(out["points"], out["masses"], c.Manifest))(t), 1e-5)
}

// TestRows: feature rows go through an embedding.
func TestRows(t *testing.T) {
	dir := t.TempDir()
	m := model(t, models.KindEmbedding)
	_, f := must.Get2(models.Load(m))(t)
	x := onnx.ZerosF32(12, f.Dx)
	rng.Normal(rng.New(2, "rows"), x.F32())
	y := make([]int64, 12)
	for i := range y {
		y[i] = int64(i % f.C)
	}
	rows, labels, out := filepath.Join(dir, "x.npy"), filepath.Join(dir, "y.npy"),
		filepath.Join(dir, "u")
	for p, tensor := range map[string]*onnx.Tensor{rows: x, labels: onnx.NewTensor(y, 12)} {
		must.Do(t, npy.Save(p, tensor))
	}
	run(t, "compress", "--model", m, "--client", "rows", "-o", out, "--rows", rows, "--labels", labels)
	if u := read(t, out); u.N != 12 || u.Points.N != f.S || u.Model != f.Digest {
		t.Errorf("upload %+v", u)
	}
}

// foreign writes a model of another program.
func foreign(t *testing.T) string {
	t.Helper()
	b := build.New("foreign")
	b.Output("y", b.Relu(b.Input("x", onnx.Float32, "n", 3)))
	return saved(t, must.Get(b.Model())(t))
}

// TestHelp: help, the version, and a command that is interrupted.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help", "compress"}, {"compress", "--help"}} {
		if s := run(t, args...); !strings.Contains(s, "--max-pixels") {
			t.Errorf("%v: %s", args, s)
		}
	}
	for command, alone := range map[string]bool{"compress": false, "evaluate": false, "join": true} {
		if s := run(t, command, "--help"); strings.Contains(s, "above 0 refuses plain rounds too") != alone {
			t.Errorf("%s: %s", command, s)
		}
	}
	if s := run(t, "--version"); !strings.HasPrefix(s, "fmp-edge ") {
		t.Errorf("--version: %s", s)
	}
	if s := run(t, "inspect", foreign(t)); !strings.Contains(s, "fmp fuse") {
		t.Errorf("inspecting a foreign model: %s", s)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if code := execute(cancelled, []string{"compress", "--model", model(t, models.KindClient), "--client", "a", "-o",
		filepath.Join(t.TempDir(), "u"), photosOf(t, 4)}, io.Discard, io.Discard); code != exitInterrupted {
		t.Errorf("interrupted: exit code %d", code)
	}
}

// classifier writes a classifier behind the shipped client graph of the digits, of heads drawn from
// a seed.
func classifier(t *testing.T) string {
	t.Helper()
	g, f := must.Get2(models.Load(model(t, models.KindClient)))(t)
	features := must.Get(models.FeatureGraph(g, f))(t)
	heads := make([]float64, 5*(f.Dx+1)*f.C)
	r := rng.New(3, "heads")
	for i := range heads {
		heads[i] = 0.5 * r.NormFloat64()
	}
	m := must.Get(models.NewClassifier(models.ClassifierParts{Features: features,
		Heads: onnx.NewTensor(heads, 5, f.Dx+1, f.C)}, models.Manifest{Classes: f.Classes}))(t)
	return saved(t, m)
}

// predictions are the probabilities that predict --json prints.
func predictions(t *testing.T, text string) [][]float32 {
	t.Helper()
	var got struct {
		Predictions []struct{ Probabilities []float32 }
	}
	must.Do(t, json.Unmarshal([]byte(text), &got))
	var out [][]float32
	for _, p := range got.Predictions {
		out = append(out, p.Probabilities)
	}
	return out
}

// TestPredict: a folder, one image, a list without labels and IDX files get the same probabilities,
// which are those of the ONNX Runtime; the unsure are counted; what cannot be read is named, all of
// it.
func TestPredict(t *testing.T) {
	const n = 20
	im, labels := blobs(n)
	c := classifier(t)
	dir, order := folder(t, im, labels)
	write(t, filepath.Join(dir, "images"), append(header(0x803, n, side, side), im.Pix...))
	list := ""
	for i, y := range labels {
		list += fmt.Sprintf("%d/%04d.png\n", y, i)
	}
	write(t, filepath.Join(dir, "list.csv"), []byte(list))
	of := func(source string, more ...string) [][]float32 {
		t.Helper()
		args := append([]string{"predict", "--json", "--model", c, filepath.Join(dir, source)}, more...)
		return predictions(t, run(t, args...))
	}
	byIDX := of("images")
	if len(byIDX) != n {
		t.Fatalf("%d predictions", len(byIDX))
	}
	same := func(source string, at func(i int) int) {
		t.Helper()
		for i, p := range of(source) {
			alike(t, fmt.Sprintf("%s: image %d: probability", source, i), p, byIDX[at(i)], 1e-6)
		}
	}
	same("list.csv", func(i int) int { return i })
	same("", func(i int) int { return order[i] })
	same(filepath.Join("7", "0007.png"), func(int) int { return 7 })
	t.Run("ort", func(t *testing.T) {
		m, _ := must.Get2(models.Load(c))(t)
		s := must.Get(orttest.New(t).Load(m))(t)
		defer s.Close()
		out := must.Get(engine.Eval(s,
			map[string]*onnx.Tensor{"images": onnx.NewTensor(im.Pix, n, side, side, 1)},
			"probabilities"))(t)
		alike(t, "against the ONNX Runtime: probability", slices.Concat(byIDX...), out["probabilities"].F32(), 1e-5)
	})
	if s := run(t, "predict", "--model", c, "--reject", "1", dir); !strings.Contains(s, "20 of 20 are below 1") {
		t.Errorf("--reject 1: %s", s)
	}
	for _, name := range []string{"0/bad.png", "9/worse.jpg"} {
		write(t, filepath.Join(dir, name), []byte("no image"))
	}
	if code, log := said(t, "predict", "--model", c, dir); code != exitUsage ||
		!strings.Contains(log, "bad.png") || !strings.Contains(log, "worse.jpg") ||
		!strings.Contains(log, "--on-bad skip") {
		t.Errorf("bad images: exit code %d: %s", code, log)
	}
	if got := of("", "--on-bad", "skip"); len(got) != n {
		t.Errorf("%d predictions beside bad images", len(got))
	}
}

// TestBuilds: the program is small, and on another architecture gives the same upload.
func TestBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program for two architectures")
	}
	const maxBytes, maxMemory = 12 << 20, 64.0
	bin := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		bin[arch] = filepath.Join(t.TempDir(), "fmp-edge-"+arch)
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-tags",
			shipped, unfused, errorsApart, locksApart, messagesApart, shapesApart, "-o", bin[arch], ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building for %s: %v\n%s", arch, err, out)
		}
		st := must.Get(os.Stat(bin[arch]))(t)
		t.Logf("linux/%s: %d bytes", arch, st.Size())
		if st.Size() > maxBytes {
			t.Errorf("linux/%s: %d bytes; allowed are %d", arch, st.Size(), maxBytes)
		}
	}
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Skip("qemu-aarch64 is missing (apt-get install qemu-user): the arm64 program is not run")
	}
	dir := photosOf(t, 50)
	m := model(t, models.KindClient)
	sameUpload(t, []string{qemu, bin["arm64"]}, dir, "digits")
	// The same classifier says the same.
	c := classifier(t)
	said := must.Get(exec.Command(qemu, bin["arm64"], "predict", "--json", "--model", c, dir).Output())(t)
	theirs, ours := predictions(t, string(said)), predictions(t, run(t, "predict", "--json", "--model", c, dir))
	alike(t, "arm64: probability", slices.Concat(theirs...), slices.Concat(ours...), 1e-5)
	var b benched
	text := must.Get(exec.Command(qemu, bin["arm64"], "bench", "--json", "--runs", "1", "--model", m).Output())(t)
	must.Do(t, json.Unmarshal(text, &b))
	t.Logf("arm64 under qemu: %.0f ms, %.1f MiB with the emulator", b.First, b.PeakMemory)
	if b.PeakMemory > 4*maxMemory {
		t.Errorf("%.1f MiB with the emulator", b.PeakMemory)
	}
}

const (
	// shipped are the Makefile's tags of the program.
	shipped = "minimal,nethttpomithttp2"
	// unfused has the compiler keep products and sums apart, as make edge-all does, on processors
	// where it would fuse them.
	unfused = "-gcflags=all=-d=fmahash=qn"
	// errorsApart keeps errors.New out of the 1,400 places that call fmt.Errorf, and locksApart keeps
	// the locks of package sync out of their callers; messagesApart does so within protobuf. The Makefile has more.
	errorsApart   = "-gcflags=errors=-l -d=fmahash=qn"
	locksApart    = "-gcflags=sync=-l -d=fmahash=qn"
	messagesApart = "-gcflags=google.golang.org/protobuf/...=-l -d=fmahash=qn"
	shapesApart   = "-gcflags=fmp/onnx/shape=-l -d=fmahash=qn"
)

// sameUpload fails unless a program makes the upload of this one, byte for byte, of a folder and of
// photographs in every format that is read, which are decoded and resized.
func sameUpload(t *testing.T, program []string, dir string, datasets ...string) {
	t.Helper()
	odd, photographs := filepath.Join("..", "..", "featurize", "imagefile", "testdata", "odd"),
		t.TempDir()
	entries := must.Get(os.ReadDir(odd))(t)
	for i, e := range entries {
		if strings.Contains(e.Name(), "heic") || strings.Contains(e.Name(), "avif") {
			continue // decoded by a program of the machine, if it has one
		}
		data := must.Get(os.ReadFile(filepath.Join(odd, e.Name())))(t)
		to := filepath.Join(photographs, fmt.Sprint(i%10), e.Name())
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644)))
	}
	for _, dataset := range datasets {
		for _, images := range []string{dir, photographs} {
			here, there := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "there")
			args := []string{"compress", "--model", assetstest.File(t, dataset, models.KindClient),
				"--client", "a", "--on-bad", "skip", "--class-numbers", images,
				"-o"}
			run(t, append(args, here)...)
			cmd := exec.Command(program[0], append(append(program[1:], args...), there)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", program, err, out)
			}
			want := must.Get(os.ReadFile(here))(t)
			if got, err := os.ReadFile(there); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: the upload of %s behind %s is not that of this program, byte for byte: %v",
					program, images, dataset, err)
			}
		}
	}
}

// TestWebAssembly: the program in WebAssembly makes the upload of this one, byte for byte.
func TestWebAssembly(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program for WebAssembly")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is missing: the program in WebAssembly is not run")
	}
	root := must.Get(exec.Command("go", "env", "GOROOT").Output())(t)
	program := filepath.Join(t.TempDir(), "fmp-edge.wasm")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=js", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	dir := photosOf(t, 30)
	start := filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec_node.js")
	sameUpload(t, []string{node, start, program}, dir, "digits", "cifar10")
}

func header(magic uint32, dims ...uint32) []byte {
	h := binary.BigEndian.AppendUint32(nil, magic)
	for _, d := range dims {
		h = binary.BigEndian.AppendUint32(h, d)
	}
	return h
}

// TestPredictedInPart: of a run that ends at a damaged image no JSON or CSV is printed.
func TestPredictedInPart(t *testing.T) {
	c := classifier(t)
	photos := photosOf(t, 20)
	write(t, filepath.Join(photos, "9", "zz.png"), []byte("\x89PNG"))
	for _, format := range []string{"--json", "--csv"} {
		refuses(t, exitUsage, "zz.png", "predict", "--model", c, photos, format)
		if s := run(t, "predict", "--model", c, photos, format, "--on-bad", "skip"); strings.Count(s, ".png") != 20 {
			t.Errorf("%s: %s", format, s)
		}
	}
}

// TestProgress: a long command says every ten seconds how far it is, and nothing at its end.
func TestProgress(t *testing.T) {
	at := time.Unix(0, 0)
	var log strings.Builder
	tell := progress(&log, func() time.Time { return at })
	for done := 10; done <= 100; done += 10 {
		at = at.Add(4 * time.Second)
		tell(done, 100)
	}
	const want = "fmp-edge: images: 30 of 100 (30%), 2.5/s, 28s left\n" +
		"fmp-edge: images: 60 of 100 (60%), 2.5/s, 16s left\n" +
		"fmp-edge: images: 90 of 100 (90%), 2.5/s, 4s left\n"
	if log.String() != want {
		t.Errorf("it says %q; want %q", log.String(), want)
	}
}
