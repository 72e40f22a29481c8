//go:build cgo

package assets_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fmp/assets"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/serde"
)

// shipped is every model that comes with the program, and the graphs that it builds untrained where
// none is shipped.
func shipped(t *testing.T) map[string]*onnx.Model {
	t.Helper()
	all := map[string]*onnx.Model{}
	for _, set := range []string{"digits", "digits-color", "mnist", "cifar10", "cifar100"} {
		for _, kind := range []string{models.KindExtractor, models.KindConjugate, models.KindEmbedding,
			models.KindPredictor, models.KindClient} {
			data, err := assets.Model(set, kind)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			m := must.Get(serde.Unmarshal(data))(t)
			all[set+"-"+kind] = m
		}
	}
	const dx, classes = 6, 3
	b := build.New("extractor")
	image := b.Input("image", onnx.Float32, "batch", 1, 8, 8)
	w := onnx.ZerosF32(dx, 1, 3, 3)
	rng.Normal(rng.New(1, "weights"), w.F32())
	x := b.Relu(b.Op("Conv", []build.Ref{image, b.Param("w", w)}, onnx.IntsAttr("pads", 1, 1, 1, 1),
		onnx.IntsAttr("strides", 2, 2)))
	b.Output("features", b.ReduceMean(x, false, 2, 3))
	extractor := must.Get(b.Model())(t)
	published := map[string]bool{"untrained": false, "published": true}
	for name, yes := range published {
		embedding := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: dx, C: classes, Size: 4,
			Blocks: 1, Dim: 12, Published: yes}, 1))(t)
		predictor := must.Get(models.NewPredictor(models.PredictorConfig{Dx: dx, C: classes, Dim: 12,
			Published: yes}, 1))(t)
		e := must.Get(models.ReadManifest(embedding))(t)
		client := must.Get(models.ClientGraph(extractor,
			models.Manifest{Kind: models.KindExtractor, Dx: dx}, embedding, e,
			models.Preprocessing{Height: 8, Width: 8, Channels: 1}))(t)
		all[name+"-embedding"], all[name+"-predictor"], all[name+"-client"] = embedding,
			predictor, client
	}
	return all
}

// inputsFor draws inputs; the last set member is padding.
func inputsFor(t *testing.T, m *onnx.Model) map[string]*onnx.Tensor {
	t.Helper()
	manifest := must.Get(models.ReadManifest(m))(t)
	sizes := map[string]int{"batch": 2, "contexts": 2, "n": 7, "fresh": 5}
	feeds := map[string]*onnx.Tensor{}
	for _, in := range m.Graph.Inputs {
		shape := make([]int, len(in.Shape))
		for i, d := range in.Shape {
			if shape[i] = d.Size; !d.IsKnown() {
				if shape[i] = sizes[d.Symbol]; shape[i] == 0 {
					shape[i] = 3
				}
			}
		}
		x := must.Get(onnx.Zeros(in.DType, shape...))(t)
		r := rng.New(1, "inputs", in.Name)
		switch d := x.Data.(type) {
		case []float32:
			rng.Normal(r, d)
			if manifest.Kind == models.KindConjugate &&
				(in.Name == "points" || in.Name == "client_points") {
				width := shape[len(shape)-1]
				for i := range d { // the last numbers of a point are its label
					if c := i%width - (width - manifest.C); c >= 0 {
						d[i] = 0
						if c == i/width%manifest.C {
							d[i] = 1
						}
					}
				}
			}
			switch in.Name {
			case "uniform":
				for i := range d {
					d[i] = (float32(i) + 0.5) / float32(len(d))
				}
			case "width":
				d[0] = 2
			case "weights", "client_weights":
				for i := range d {
					d[i] = 1
					if (i+1)%shape[1] == 0 {
						d[i] = 0
					}
				}
			}
		case []uint8:
			for i := range d {
				d[i] = uint8(r.IntN(256))
			}
		case []int64:
			for i := range d {
				d[i] = r.Int64N(int64(manifest.C))
			}
		default:
			t.Fatalf("input %q is %v", in.Name, in)
		}
		feeds[in.Name] = x
	}
	return feeds
}

func run(t *testing.T, e engine.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor) map[string]*onnx.Tensor {
	t.Helper()
	s := must.Get(e.Load(m))(t)
	defer s.Close()
	out := must.Get(engine.Eval(s, feeds))(t)
	return out
}

// agree returns where two runtimes differ by more than 1e-5 of the output's largest element, or of
// 1.
func agree(got, want *onnx.Tensor) error {
	if fmt.Sprint(got.DType, got.Shape) != fmt.Sprint(want.DType, want.Shape) {
		return fmt.Errorf("%v and %v", got, want)
	}
	g, w := got.F32(), want.F32()
	if w == nil {
		return fmt.Errorf("outputs of type %v are not compared", want.DType)
	}
	scale := 1.0
	for _, v := range w {
		scale = max(scale, math.Abs(float64(v)))
	}
	for i := range w {
		if d := math.Abs(float64(g[i] - w[i])); !(d <= 1e-5*scale) {
			return fmt.Errorf("element %d is %v and %v", i, g[i], w[i])
		}
	}
	return nil
}

// TestRuntimesAgree runs every graph on both engines and, where Python has them, through ONNX's own
// checker and onnxruntime: the same outputs to 1e-5.
func TestRuntimesAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("runs every shipped graph on every runtime")
	}
	native := orttest.New(t)
	goOnly := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	defer goOnly.Close()
	dir := t.TempDir()
	wants := map[string]map[string]*onnx.Tensor{}
	for name, m := range shipped(t) {
		t.Run(name, func(t *testing.T) {
			must.Do(t, check.Model(m))
			if m.Opset() != onnx.DefaultOpset || m.IR != onnx.DefaultIR {
				t.Errorf("operator set %d and IR %d; what we ship is %d and %d", m.Opset(), m.IR,
					onnx.DefaultOpset, onnx.DefaultIR)
			}
			feeds := inputsFor(t, m)
			want := run(t, native, m, feeds)
			for out, got := range run(t, goOnly, m, feeds) {
				if err := agree(got, want[out]); err != nil {
					t.Errorf("pure and ort differ in %q: %v", out, err)
				}
			}
			wants[name] = want
			must.Do(t, serde.Save(filepath.Join(dir, name+".onnx"), m))
			in := filepath.Join(dir, name+".in")
			must.Do(t, os.Mkdir(in, 0o777))
			for k, x := range feeds {
				must.Do(t, npy.Save(filepath.Join(in, k+".npy"), x))
			}
		})
	}
	t.Run("python", func(t *testing.T) {
		python, err := exec.LookPath("python3")
		must.Have(t, err)
		text, err := exec.Command(python, filepath.Join("..", "onnx", "testdata", "other_runtimes.py"),
			dir).CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 3 {
			must.Have(t, fmt.Errorf("needs the Python packages onnx, onnxruntime and numpy: %s", text))
		}
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for name, want := range wants {
			for out, w := range want {
				got, err := npy.Load(filepath.Join(dir, name+".python", out+".npy"))
				if err != nil {
					t.Error(err)
					continue
				}
				if err := agree(got, w); err != nil {
					t.Errorf("%s: Python and ort differ in %q: %v", name, out, err)
				}
			}
		}
	})
}
