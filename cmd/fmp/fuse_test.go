package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/assets"
	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
)

func TestByteSize(t *testing.T) {
	for s, want := range map[string]int{"64k": 65536, "2m": 2 << 20, "2M": 2 << 20, "1000": 1000,
		"16m": 16 << 20, "17m": 0, "0": 0, "-1k": 0,
		"k": 0, "9999999999999m": 0, "1.5m": 0} {
		var b byteSize
		if err := b.Set(s); (err == nil) != (want != 0) || int(b) != want {
			t.Errorf("%s is %d, %v; want %d", s, b, err, want)
		}
	}
}

// TestWidth: the coordinates are all features where they fit, and fewer with fewer bytes or more
// classes; the error of too few bytes says how many do.
func TestWidth(t *testing.T) {
	for bytes, want := range map[byteSize][2]int{2 << 20: {1280, 1280}, 256 << 10: {600, 720},
		64 << 10: {250, 360}} {
		if k, err := (momentsFlags{bytes: bytes}).width(1280, 10); err != nil ||
			k < want[0] || k > want[1] {
			t.Errorf("%d bytes: %d coordinates, %v; want %v", bytes, k, err, want)
		}
	}
	for _, c := range []struct {
		bytes       byteSize
		dx, classes int
		want        int
		says        string
	}{
		{2 << 20, 1280, 1000, 1258, ""},
		{2 << 20, 64, 10_000, 64, ""},
		{16 << 20, 4096, 10, 4096, ""},
		{16 << 20, 6000, 10, 4096, ""}, // servers take no wider ones
		{1000, 1280, 10, 0, "--bytes 1000 are too few for 10 classes; give 1275 or more"},
		{1275, 1280, 10, 2, ""},
		{2 << 20, 1, 4, 0, "1 feature"},
	} {
		k, err := (momentsFlags{bytes: c.bytes}).width(c.dx, c.classes)
		if k != c.want || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d bytes, %d features, %d classes: %d coordinates, %v; want %d, %q", c.bytes, c.dx,
				c.classes, k, err, c.want, c.says)
		}
	}
}

// TestWidthHolds: the largest upload of as many coordinates keeps to the bytes in int8, and has
// less than a quarter of them left.
func TestWidthHolds(t *testing.T) {
	for _, c := range []struct {
		bytes   byteSize
		classes int
	}{{16 << 10, 2}, {16 << 10, 100}, {64 << 10, 2000}} {
		k := must.Get(momentsFlags{bytes: c.bytes}.width(300, c.classes))(t)
		n := max(4*k, 3*c.classes)
		rows, labels := make([]float32, n*k), make([]int, n)
		rng.Normal(rng.New(1, "rows"), rows)
		for i := range labels {
			labels[i] = i % c.classes
		}
		for i := range rows {
			rows[i] /= float32(2 * math.Sqrt(float64(k)))
		}
		means, within := must.Get2(moments.Compute(rows, k, labels, c.classes, "a"))(t)
		u := federate.Upload{Client: strings.Repeat("a", federate.MaxClient), Model: strings.Repeat("ab", 32),
			N: int(means.Mass()), Points: means, Within: within, Precision: federate.Int8,
			Curve: must.Get(moments.CurveOf(rows, k, labels, c.classes, "a"))(t)}
		data := must.Get(u.Encode())(t)
		if len(data) > int(c.bytes) || len(data) < int(c.bytes)*3/4 {
			t.Errorf("%d classes of %d coordinates have %d bytes of %d", c.classes, k, len(data), c.bytes)
		}
	}
}

// saveNet saves a network of one layer on images of 3x8x8.
func saveNet(t *testing.T, weights *onnx.Tensor) string {
	t.Helper()
	b := build.New("net")
	x := b.Reshape(b.Input("image", onnx.Float32, "n", 3, 8, 8), -1, 192)
	b.Output("h", b.Relu(b.MatMul(x, b.Const(weights))))
	return saved(t)(b.Model())
}

// saveScores saves a classifier of three classes behind dx features, with weights in bytes.
func saveScores(t *testing.T, dx int) string {
	t.Helper()
	b := build.New("net")
	x := b.Reshape(b.Input("image", onnx.Float32, "n", 3, 8, 8), -1, 192)
	w := b.Op("DequantizeLinear", []build.Ref{b.Const(must.Get(onnx.Zeros(onnx.Int8, dx, 3))(t)),
		b.Const(onnx.Scalar[float32](1))})
	b.Output("y", b.MatMul(b.Relu(b.MatMul(x, b.Const(onnx.ZerosF32(192, dx)))), w))
	return saved(t)(b.Model())
}

// TestFuseMoments: a client graph without a data set, with all features or with fewer, and a note
// where no layer tells their directions.
func TestFuseMoments(t *testing.T) {
	const dx = 40
	net, out := saveNet(t, onnx.ZerosF32(192, dx)), filepath.Join(t.TempDir(), "client.onnx")
	for _, c := range []struct {
		net, bytes   string
		some, random bool
	}{{net, "2m", false, false}, {net, "2k", true, true}, {saveScores(t, dx), "2k", true, false}} {
		_, notes := ran(t, "fuse", "--extractor", c.net, "--class-names", "a,b", "--bytes", c.bytes, "--engine",
			"pure", "--kappa", "3,.2", "-o", out)
		_, f := must.Get2(models.Load(out))(t)
		if f.Dx != dx || f.C != 2 || c.some != (f.K > 0) || f.K > 25 ||
			strings.Contains(notes, "directions are random") != c.random || f.Kappa != 3 || f.Bytes == 0 {
			t.Errorf("--bytes %s: manifest %+v, notes %q", c.bytes, f, notes)
		}
	}
	refused(t, exitUsage, "", "fuse", "--engine", "pure", "--extractor", net, "-o", out, "--class-names", "a,b\nc")
}

// TestFuseCommand: graphs record the settings that act on them, however these were given, and no path
// of this machine. Equal settings give equal graphs.
func TestFuseCommand(t *testing.T) {
	net, dir := saveNet(t, onnx.ZerosF32(192, 4)), t.TempDir()
	settings := filepath.Join(dir, "s.yaml")
	must.Do(t, os.WriteFile(settings, fmt.Appendf(nil, "extractor: {model: %q, kappa: [3, 0.2]}\n", net), 0o644))
	const want = "fmp fuse --class-names=a,bc --extractor.kappa=[3, 0.2] --extractor.model=model.onnx --upload=moments"
	const means = "fmp fuse --upload=class-means"
	mine := []string{"--config", settings, "--class-names", "a,bc"}
	t.Setenv("FMP_ENGINE_NAME", "pure")
	digests := map[string]string{}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"flags":       {[]string{"--extractor", net, "--class-names", "a,bc", "--kappa", "3,.2"}, want},
		"other order": {[]string{"--kappa", "3,0.20", "--class-names", "a, bc", "--extractor=" + net}, want},
		"a file":      {[]string{"--config", settings, "--class-names", "a,bc"}, want},
		"--set":       {[]string{"--config", settings, "--set", "seed=1", "--class-names", "a,bc"}, want},
		"defaults":    {[]string{"--config", settings, "--class-names", "a,bc", "--dataset", "digits"}, want},
		"threads":     {[]string{"--config", settings, "--class-names", "a,bc", "--threads", "1", "--json"}, want},
		// Settings that the graph does not depend on.
		"unread": {append(mine, "--seed", "2", "--extractor.batch", "7", "--dataset.test", "7", "--conjugate.model",
			"none", "--dataset.classes", "5", "--upload", "moments", "--bytes", "2m"), want},
		"corpus": {[]string{"--dataset", "digits"}, means},
		"corpus unread": {[]string{"--privacy.model", "nowhere.onnx", "--open.model", "none", "--embedding.size", "9",
			"--seed", "2", "--extractor.batch", "7", "--dataset.test", "7", "--upload", "class-means"}, means},
		"open": {[]string{"--class-names", "x,y"}, "fmp fuse --class-names=x,y --upload=class-means"},
		"open unread": {[]string{"--class-names", "x,y", "--conjugate.model", "none"},
			"fmp fuse --class-names=x,y --upload=class-means"},
		"coordinates": {[]string{"--upload", "coordinates"}, "fmp fuse --upload=coordinates"},
		"points": {[]string{"--embedding", "untrained", "--seed", "2", "--embedding.size", "9"},
			"fmp fuse --embedding.model=untrained --embedding.size=9 --seed=2 --upload=points"},
		"some classes": {[]string{"--dataset.classes", "0-9"}, "fmp fuse --dataset.classes=0-9 --upload=class-means"},
		"few bytes": {append(mine, "--seed", "2", "--bytes", "1170"),
			strings.Replace(strings.Replace(want, "--class", "--bytes=1170 --class", 1), "--upload", "--seed=2 --upload", 1)},
		"brackets": {[]string{"--config", settings, "--class-names", "[a,b]"}, strings.Replace(want, "a,bc", "[a,b]", 1)},
		"another names": {[]string{"--config", settings, "--class-names", "x,bc"},
			strings.Replace(want, "a,bc", "x,bc", 1)},
	} {
		out := filepath.Join(dir, strings.ReplaceAll(name, " ", "")+".onnx")
		ran(t, append([]string{"fuse", "-o", out}, c.args...)...)
		_, f := must.Get2(models.Load(out))(t)
		if f.Command != c.want {
			t.Errorf("%s: the command is %q; want %q", name, f.Command, c.want)
		}
		if d := digests[c.want]; d != "" && d != f.Digest {
			t.Errorf("%s: sha256 %.12s; another graph of the same settings has %.12s", name, f.Digest, d)
		}
		digests[c.want] = f.Digest
	}
}

// TestCheckNames: names of classes are names that folders can have.
func TestCheckNames(t *testing.T) {
	long := strings.Repeat("é", 127)
	for _, c := range []struct {
		names []string
		says  string
	}{
		{[]string{"a", "b"}, ""}, {[]string{"a", long + "x"}, ""}, {[]string{"a", long + "xx"}, "255 bytes"},
		{[]string{"a/b", "c"}, "without slashes"}, {[]string{"..", "c"}, "dot"}, {[]string{"a"}, "two names"},
		{[]string{"a", "a"}, "two names"}, {[]string{"a", ""}, "two names"},
	} {
		if err := checkNames(c.names); (err != nil) != (c.says != "") || err != nil &&
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%.40q: %v; want %q", c.names, err, c.says)
		}
	}
}

// TestFuseRefuses: an extractor that every client refuses is named before a graph is written.
func TestFuseRefuses(t *testing.T) {
	b := build.New("net")
	x := b.Reshape(b.Input("image", onnx.Float32, "n", 3, 8, 8), -1, 192)
	some := b.Op("NonZero", []build.Ref{x})
	b.Output("h", b.Add(x, b.Mul(b.F32(0), b.ReduceSum(b.Cast(some, onnx.Float32), false))))
	out := filepath.Join(t.TempDir(), "client.onnx")
	code, _, stderr := runFMP(t, "fuse", "--engine", "pure", "--extractor", saved(t)(b.Model()),
		"--class-names", "a,b", "-o", out)
	if code != 2 || !strings.Contains(stderr, "every client would refuse it") || !strings.Contains(stderr, "NonZero") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	absent(t, out)
}

// TestFuseLearnsKappa: labelled images of other classes tell kappa, which the client graph keeps
// and the command prints; images too few for it are an error that says how many are wanted.
func TestFuseLearnsKappa(t *testing.T) {
	const dx = 16
	weights := onnx.ZerosF32(192, dx)
	rng.Normal(rng.New(1, "weights"), weights.F32())
	dir := t.TempDir()
	net, out := saveNet(t, weights), filepath.Join(dir, "client.onnx")
	fuse := func(images string) []string {
		photos := filepath.Join(dir, "photos-"+images)
		ran(t, "data", "synth", "-o", photos, "--photos", "--train", images, "--test", "20")
		return []string{"fuse", "--extractor", net, "--class-names", "a,b", "--dataset", photos,
			"--engine", "pure", "-o", out}
	}
	refused(t, exitUsage, "too few", fuse("40")...)
	if stdout, _ := ran(t, fuse("400")...); !strings.Contains(stdout, "kappa:") {
		t.Errorf("printed %s", stdout)
	}
	_, f := must.Get2(models.Load(out))(t)
	if !(f.Kappa > 0.125) || f.Kappa > 8 || !(f.KappaDeviation >= 0.1) || f.C != 2 {
		t.Errorf("manifest %+v", f)
	}
}

// TestFuseSaysWhatIsCut: features come from before the last layer, or from the layer that is asked
// for, and the layers behind are named.
func TestFuseSaysWhatIsCut(t *testing.T) {
	b := build.New("net")
	x := b.Reshape(b.Input("image", onnx.Float32, "n", 3, 8, 8), -1, 192)
	for _, dx := range []int{40, 20} {
		in := 192
		if dx == 20 {
			in = 40
		}
		x = b.Relu(b.MatMul(x, b.Const(onnx.ZerosF32(in, dx))))
	}
	b.Output("scores", b.MatMul(x, b.Const(onnx.ZerosF32(20, 7))))
	m := must.Get(b.Model())(t)
	var relus []*onnx.Node
	for _, n := range m.Graph.Nodes {
		if n.Op == "Relu" {
			relus = append(relus, n)
		}
	}
	relus[0].Name = "layer-1"
	net, out := saved(t)(m, nil), filepath.Join(t.TempDir(), "client.onnx")
	fuse := func(args ...string) []string {
		return append([]string{"fuse", "--extractor", net, "--class-names", "a,b", "--engine", "pure", "-o",
			out}, args...)
	}
	for _, c := range []struct {
		args  []string
		dx    int
		value string
		cut   []string
	}{
		{nil, 20, relus[1].Outputs[0], []string{"MatMul", "Identity"}},
		{[]string{"--layer", "layer-1"}, 40, relus[0].Outputs[0],
			[]string{"MatMul", "Relu", "MatMul", "Identity"}},
		{[]string{"--layer", relus[0].Outputs[0]}, 40, relus[0].Outputs[0],
			[]string{"MatMul", "Relu", "MatMul", "Identity"}},
		{[]string{"--layer", "scores"}, 7, "scores", nil},
	} {
		got := answer[fused](t, fuse(append([]string{"--json"}, c.args...)...)...)
		if got.Features == nil {
			t.Fatalf("%v: %+v", c.args, got)
		}
		var cut []string
		for _, layer := range got.Features.Without {
			op, _, _ := strings.Cut(layer, " ")
			cut = append(cut, op)
		}
		_, f := must.Get2(models.Load(out))(t)
		if f.Dx != c.dx || got.Features.Value != c.value || !slices.Equal(cut, c.cut) {
			t.Errorf("%v: %d features of %+v; want %d of %s without %v", c.args, f.Dx, *got.Features,
				c.dx, c.value, c.cut)
		}
	}
	if text, _ := ran(t, fuse()...); !strings.Contains(text, "cut off:      MatMul matmul_2, Identity scores (") ||
		!strings.Contains(text, "features:     20 of ") ||
		!strings.Contains(text, "resize:       stretch, for") ||
		!strings.Contains(text, "pixels:       divided by 255, without mean") {
		t.Errorf("printed %q", text)
	}
	for preset, want := range map[string]string{"keras-caffe": "blue first\n",
		"timm-inception": "(pixel/255 - [0.5 0.5 0.5]) / [0.5 0.5 0.5]\n", "torchvision": "resize:       crop:"} {
		if text, _ := ran(t, fuse("--preset", preset)...); !strings.Contains(text, want) {
			t.Errorf("%s: printed %q", preset, text)
		}
	}
	if text, _ := ran(t, fuse("--extractor.channels", "bgr")...); !strings.Contains(text, "by 255, blue first, ") {
		t.Errorf("channels bgr: printed %q", text)
	}
	if text, _ := ran(t, fuse("--resize", "crop:0.9")...); !strings.Contains(text, "resize:       crop:0.9\n") {
		t.Errorf("a share that is cropped: printed %q", text)
	}
	refused(t, exitUsage, "no such value", fuse("--layer", "layer-2")...)
}

// TestFuseHalfPrecision: half precision at the input or inside is fused as float32, and the errors
// of a model's input are its own.
func TestFuseHalfPrecision(t *testing.T) {
	for name, c := range map[string]struct {
		in   onnx.DType
		want string
	}{"half": {onnx.Float16, ""}, "half inside": {onnx.Float32, ""}, "integers": {onnx.Int64, "takes int64"}} {
		t.Run(name, func(t *testing.T) {
			b := build.New("net")
			x := b.Reshape(b.Cast(b.Input("image", c.in, "n", 3, 8, 8), onnx.Float16), -1, 192)
			b.Output("h", b.MatMul(x, b.Const(must.Get(onnx.Zeros(onnx.Float16, 192, 4))(t))))
			args := []string{"fuse", "--extractor", saved(t)(b.Model()), "--class-names", "a,b", "--engine", "pure",
				"--layer", "h", "-o", filepath.Join(t.TempDir(), "client.onnx")}
			if c.want != "" {
				refused(t, exitUsage, c.want, args...)
				return
			}
			ran(t, args...)
		})
	}
}

// A small deviation of kappa is not told as none.
func TestKappaText(t *testing.T) {
	for want, kappa := range map[string][2]float64{"0.85": {.85, 0}, "0.85 ± 0.3%": {.85, .0031},
		"0.85 ± 1%": {.85, .0121}, "1.20 ± 130%": {1.2, 1.3}} {
		if got := kappaText(kappa[0], kappa[1]); got != want {
			t.Errorf("kappa %v: %q, want %q", kappa, got, want)
		}
	}
}

// TestFuseTellsPreprocessing: the output as JSON has the figures that pixels are fed by.
func TestFuseTellsPreprocessing(t *testing.T) {
	net := saveNet(t, onnx.ZerosF32(192, 4))
	for _, x := range []struct {
		args []string
		want fused
	}{
		{[]string{"--preset", "imagenet"}, fused{Mean: []float32{0.485, 0.456, 0.406},
			Std: []float32{0.229, 0.224, 0.225}}},
		{[]string{"--preset", "-1-1", "--set", "extractor.scale=0-1", "--set", "extractor.channels=bgr"},
			fused{Mean: []float32{0.5, 0.5, 0.5}, Std: []float32{0.5, 0.5, 0.5}, BGR: true}},
	} {
		got := answer[fused](t, append([]string{"fuse", "--extractor", net, "--class-names", "a,b", "--engine",
			"pure", "--json", "-o", filepath.Join(t.TempDir(), "client.onnx")}, x.args...)...)
		if !slices.Equal(got.Mean, x.want.Mean) || !slices.Equal(got.Std, x.want.Std) || got.BGR != x.want.BGR {
			t.Errorf("%v: %+v", x.args, got)
		}
	}
}

// TestAnchorCommand: the shipped anchor of the drawn digits comes out of the command that its page
// names; what makes none is refused, and nothing is written.
func TestAnchorCommand(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "anchor.upload")
	ran(t, "anchor", "--dataset", "digits", "--seed", "1", "-o", out)
	got := decoded(t, out)
	want := must.Get(federate.Decode(must.Get(assets.Anchor("digits"))(t), federate.Expect{}))(t)
	if got.Model != want.Model || got.N != want.N || len(got.Points.Z) != len(want.Points.Z) {
		t.Fatalf("%d images in %d numbers; want %d and %d", got.N, len(got.Points.Z), want.N,
			len(want.Points.Z))
	}
	for i, v := range want.Points.Z {
		if math.Abs(float64(got.Points.Z[i]-v)) > 1e-4 { // processors round sums in other orders
			t.Fatalf("number %d is %v; the shipped anchor has %v", i, got.Points.Z[i], v)
		}
	}
	embedding := filepath.Join(dir, "embedding.onnx")
	must.Do(t, os.WriteFile(embedding, assetstest.Data(t, "digits", models.KindEmbedding), 0o600))
	none := filepath.Join(dir, "none.upload")
	for want, args := range map[string][]string{
		"--images 0":           {"--dataset", "digits", "--images", "0"},
		"makes no class means": {"--dataset", "digits", "--client-graph", embedding},
		"missing.onnx": {"--dataset", "digits", "--client-graph",
			filepath.Join(dir, "missing.onnx")},
	} {
		fails(t, want, append([]string{"anchor", "-o", none}, args...)...)
	}
	absent(t, none)
}
