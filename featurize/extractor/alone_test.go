package extractor

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// three is a vector of one number for each of three channels.
func three(v float32) *onnx.Tensor { return onnx.NewTensor([]float32{v, v, v}, 3) }

// normalised is v by batch normalisation with the given statistics.
func normalised(b *build.Builder, v, mean, variance build.Ref, outputs int, attrs ...onnx.Attr) build.Ref {
	return b.OpN("BatchNormalization",
		[]build.Ref{v, b.Const(three(1)), b.Const(three(0)), mean, variance}, outputs, attrs...)[0]
}

// TestImagesAlone: a model is refused where the features of an image depend on the others of its
// batch or on chance, by whatever operators, or not on the image, and only there.
func TestImagesAlone(t *testing.T) {
	eng := orttest.New(t)
	im := images(3, 6, 4, 3)
	inTraining := func(b *build.Builder, v build.Ref) build.Ref {
		return normalised(b, v, b.Const(three(0)), b.Const(three(1)), 3, onnx.IntAttr("training_mode", 1))
	}
	dropout := func(training bool) func(b *build.Builder, v build.Ref) build.Ref {
		return func(b *build.Builder, v build.Ref) build.Ref {
			return b.Op("Dropout", []build.Ref{v, b.F32(0.5), b.Const(onnx.Scalar(training))})
		}
	}
	moments := func(b *build.Builder, v build.Ref, axes ...int) (mean, variance build.Ref) {
		d := b.Sub(v, b.ReduceMean(v, true, axes...))
		return b.ReduceMean(v, false, axes...), b.ReduceMean(b.Mul(d, d), false, axes...)
	}
	batchNorm := func(b *build.Builder, v build.Ref) build.Ref {
		mean, variance := moments(b, v, 0, 2, 3)
		return normalised(b, v, mean, variance, 1)
	}
	for name, c := range map[string]struct {
		batch any
		body  func(b *build.Builder, v build.Ref) build.Ref
		want  string
	}{
		"statistics of the batch": {"n", batchNorm, "by the statistics of its batch"},
		"of a batch of one":       {1, batchNorm, ""},
		"of the batch, by hand": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Sub(v, b.ReduceMean(v, true, 0))
		}, "beside another image"},
		"of a fixed batch": {4, func(b *build.Builder, v build.Ref) build.Ref {
			return b.Sub(v, b.ReduceMean(v, true, 0))
		}, "beside another image"},
		"of the image": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Sub(v, b.ReduceMean(v, true, 2))
		}, ""},
		"of its shape": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			channels := b.Slice(b.Op("Shape", []build.Ref{v}), 0, 1, 2)
			return normalised(b, v, b.Op("ConstantOfShape", []build.Ref{channels}), b.Const(three(1)), 1)
		}, ""},
		"softmax over the batch": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Softmax(v, 0)
		}, "beside another image"},
		"sum up to the image": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Op("CumSum", []build.Ref{v, b.Const(onnx.NewTensor([]int64{0}, 1))})
		}, "beside another image"},
		"sum from the image on": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Op("CumSum", []build.Ref{v, b.Const(onnx.NewTensor([]int64{0}, 1))},
				onnx.IntAttr("reverse", 1))
		}, "beside another image"},
		"ranges of the batch": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			q := b.OpN("DynamicQuantizeLinear", []build.Ref{v}, 3)
			return b.Op("DequantizeLinear", q)
		}, "beside another image"},
		"features by the batch": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			n := b.Slice(b.Op("Shape", []build.Ref{v}), 0, 0, 1)
			shape := b.Concat(0, n, b.Const(onnx.NewTensor([]int64{-1}, 1)))
			return b.Op("Reshape", []build.Ref{b.ReduceMean(v, true, 0), shape})
		}, "must not depend on the batch"},
		"chance": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Add(v, b.Op("RandomUniformLike", []build.Ref{v}))
		}, "on chance"},
		"weights whose moved mean is read": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			w := b.Const(onnx.NewTensor([]float32{1, 2, 6, -3, 0, 0}, 2, 3))
			o := b.OpN("BatchNormalization", []build.Ref{w, b.Const(three(1)), b.Const(three(0)),
				b.Const(three(0)), b.Const(three(1))}, 3, onnx.IntAttr("training_mode", 1))
			v = b.Op("Conv", []build.Ref{v, b.Reshape(o[0], 2, 3, 1, 1)})
			return b.Add(v, b.ReduceMean(o[1], false, 0))
		}, ""},
		"rounding alone": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Add(b.Mul(v, b.F32(1e-6)), b.F32(1))
		}, "equal but for rounding"},
		"rounding alone, one image": {1, func(b *build.Builder, v build.Ref) build.Ref {
			return b.Add(b.Mul(v, b.F32(1e-6)), b.F32(1))
		}, "equal but for rounding"},
		"a constant": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Add(b.Mul(v, b.F32(0)), b.F32(1))
		}, "equal but for rounding"},
		"coarse steps": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			top, bottom := b.Slice(v, 2, 0, 3), b.Slice(v, 2, 3, 6)
			rise := b.ReduceMean(b.Sub(bottom, top), true, 1, 2, 3)
			return b.Add(b.Op("Round", []build.Ref{b.Mul(rise, b.F32(1.9))}), b.F32(1))
		}, ""},
		"nothing": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Mul(v, b.F32(0))
		}, ""},
		"little beside a constant": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Add(b.Mul(v, b.F32(1e-3)), b.F32(1))
		}, ""},
		"tiny": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Mul(v, b.F32(1e-12))
		}, ""},
		"not finite": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return b.Log(v)
		}, "must be finite"},
		"training form": {"n", inTraining, "is BatchNormalization in training form, so that " +
			"the features of an image would depend on the others of its batch or on chance; export the model " +
			"in evaluation form"},
		"training form of a batch of one": {1, inTraining, ""},
		"evaluation form": {"n", func(b *build.Builder, v build.Ref) build.Ref {
			return normalised(b, v, b.Const(three(0)), b.Const(three(1)), 1, onnx.IntAttr("training_mode", 0))
		}, ""},
		"chance in training form":   {"n", dropout(true), "is Dropout in training form"},
		"chance in evaluation form": {"n", dropout(false), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := build.New("alone")
			v := b.Input("image", onnx.Float32, c.batch, 3, 6, 4)
			b.Output("features", c.body(b, v))
			x, err := New(eng, must.Get(b.Model())(t), models.Manifest{}, Options{Layout: "NCHW"}, *im)
			if err == nil {
				x.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v; want %q", err, c.want)
			}
		})
	}
}

// watched is an engine whose sessions note the shapes that they are fed, and refuse images below a
// height.
type watched struct {
	engine.Engine
	least int
	fed   [][]int
}

type watchedSession struct {
	engine.Session
	w *watched
}

func (w *watched) Load(m *onnx.Model) (engine.Session, error) {
	s, err := w.Engine.Load(m)
	return watchedSession{s, w}, err
}

func (s watchedSession) Run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	shape := feeds["image"].Shape
	if s.w.fed = append(s.w.fed, shape); shape[2] < s.w.least {
		return errors.New("the image is too small")
	}
	return s.Session.Run(ctx, feeds, fetch)
}

// TestTrialSize: two images at once are small ones where the model takes any size, so that a model
// for large images has the memory of one image at a time.
func TestTrialSize(t *testing.T) {
	for name, c := range map[string]struct {
		h, w  any
		least int
		want  []int
	}{
		"any size": {"h", "w", 0, []int{2, 1, 224, 200}}, "one size": {300, 200, 0, []int{2, 1, 300, 200}},
		"some sizes": {"h", 200, 0, []int{2, 1, 300, 200}}, "one after all": {"h", "w", 300, []int{2, 1, 300, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{Engine: must.Get(pure.New(engine.Options{Threads: 1}))(t), least: c.least}
			b := build.New("large")
			b.Output("features", b.Relu(b.Input("image", onnx.Float32, "n", 1, c.h, c.w)))
			m := must.Get(b.Model())(t)
			x := must.Get(New(w, m, models.Manifest{}, Options{Layout: "NCHW", Batch: 1}, *images(1, 300, 200, 1)))(t)
			defer x.Close()
			twos := slices.DeleteFunc(w.fed, func(shape []int) bool { return shape[0] < 2 })
			if len(twos) != 1 || !slices.Equal(twos[0], c.want) {
				t.Errorf("two images at once are %v; want %v", twos, c.want)
			}
		})
	}
}

// TestStandardisedWeights: batch normalisation of weights in training form is worked out before an
// engine sees it, in training too.
func TestStandardisedWeights(t *testing.T) {
	im := images(2, 6, 4, 3)
	var got [2][]float32
	filters := []float32{1, 2, 6, -3, 0, 0}
	b := build.New("standardised")
	v := b.Input("image", onnx.Float32, "n", 3, 6, 4)
	w := b.Reshape(b.Param("w", onnx.NewTensor(filters, 2, 3, 1, 1)), 1, 2, 3)
	gain := b.Param("gain", onnx.Vector[float32](2, 1))
	shift, mean := b.Const(onnx.Vector[float32](0, 3)), b.ReduceMean(w, false, 0, 2)
	w = b.OpN("BatchNormalization", []build.Ref{w, gain, shift, mean, mean}, 3,
		onnx.FloatAttr("epsilon", .5), onnx.IntAttr("training_mode", 1))[0]
	b.Output("features", b.Op("Conv", []build.Ref{v, b.Reshape(w, 2, 3, 1, 1)}))
	m := must.Get(b.Model())(t)
	for k, eng := range []engine.Engine{orttest.New(t), must.Get(pure.New(engine.Options{Threads: 1}))(t)} {
		x := must.Get(New(eng, m, models.Manifest{}, Options{}, *im))(t)
		defer x.Close()
		got[k] = must.Get(x.Features(context.Background(), im, nil))(t)
	}
	for i := range im.N {
		for f := range 2 {
			mean, squares, want := 0., 0., 0.
			for _, w := range filters[3*f : 3*f+3] {
				mean, squares = mean+float64(w)/3, squares+float64(w)*float64(w)/3
			}
			for c, w := range filters[3*f : 3*f+3] {
				w := (float64(w)-mean)/math.Sqrt(squares-mean*mean+.5)*[]float64{2, 1}[f] + []float64{0, 3}[f]
				for p := range 24 {
					want += w * float64(im.At(i)[3*p+c]) / 255 / 24
				}
			}
			for k := range got {
				if d := float64(got[k][2*i+f]) - want; !(math.Abs(d) < 1e-4) {
					t.Errorf("engine %d, image %d: feature %v; want %v", k, i, got[k][2*i+f], want)
				}
			}
		}
	}
	_, _ = must.Get2(Feeder("none.onnx", m, models.Manifest{}, Options{}, *im))(t)
	for _, n := range m.Graph.Nodes {
		if n.Op == "BatchNormalization" {
			t.Error("a model that is fed still normalises its weights")
		}
	}
}

// TestHalfPrecision: a model that takes or computes half precision is of float32 wherever it is
// read; weights that are only stored so stay.
func TestHalfPrecision(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	im := images(2, 6, 4, 3)
	for name, c := range map[string]struct {
		in     onnx.DType
		stored bool
	}{"half": {onnx.Float16, false}, "half inside": {onnx.Float32, false}, "half stored": {onnx.Float32, true}} {
		t.Run(name, func(t *testing.T) {
			b := build.New("half")
			v := b.Input("image", c.in, "n", 3, 6, 4)
			ones := must.Get(onnx.Zeros(onnx.Float16, 2, 3, 1, 1))(t)
			for i := range ones.Len() {
				ones.Data.([]uint16)[i] = 0x3c00
			}
			w := b.Param("w", ones)
			switch {
			case c.stored:
				w = b.Cast(w, onnx.Float32)
			case c.in == onnx.Float32:
				v = b.Cast(v, onnx.Float16)
			}
			b.Output("a", b.Op("Conv", []build.Ref{v, w}))
			b.Output("other", b.Op("Flatten", []build.Ref{v}))
			m := must.Get(b.Model())(t)
			file := filepath.Join(t.TempDir(), "m.onnx")
			must.Do(t, serde.Save(file, m))
			if fit := must.Get(Fit(file, Options{Output: "none"}))(t); fit.H != 6 || fit.W != 4 || fit.Ch != 3 {
				t.Errorf("images are %+v", fit)
			}
			x := must.Get(New(eng, m, models.Manifest{}, Options{Output: "a"}, *im))(t)
			defer x.Close()
			graph, _ := x.Client(nil, nil)
			feed, _ := must.Get2(Feeder(file, m, models.Manifest{}, Options{}, *im))(t)
			for _, g := range []*onnx.Graph{graph.Graph, m.Graph} {
				for name, w := range g.Initializers {
					if (w.DType == onnx.Float16) != c.stored {
						t.Errorf("%s is of %v", name, w.DType)
					}
				}
				if g.Outputs[0].DType != onnx.Float32 || g.Inputs[0].DType != onnx.Float32 {
					t.Errorf("%v to %v", g.Inputs, g.Outputs)
				}
			}
			if fed := must.Get(feed(im))(t); fed["image"].DType != onnx.Float32 {
				t.Errorf("fed is %v", fed["image"])
			}
		})
	}
}

// TestHalfDigest: a model that computes in half precision behind a float32 input has another digest
// than by its file alone, as features that are kept of it may be from when it ran so; no other has.
func TestHalfDigest(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	digests := map[string]string{}
	for name, types := range map[string][2]onnx.DType{"half": {onnx.Float16, onnx.Float16},
		"inside": {onnx.Float32, onnx.Float16}, "none": {onnx.Float32, onnx.Float32}} {
		b := build.New("half")
		v := b.Input("image", types[0], "n", 3, 6, 4)
		b.Output("a", b.Relu(b.Cast(v, types[1])))
		x := must.Get(New(eng, must.Get(b.Model())(t), models.Manifest{Digest: "file"}, Options{Output: "a"},
			*images(1, 6, 4, 3)))(t)
		digests[name] = x.Digest()
		must.Do(t, x.Close())
	}
	if digests["half"] != digests["none"] || digests["inside"] == digests["none"] {
		t.Errorf("digests are %v", digests)
	}
}

// TestFitErrors: a model whose images cannot be told is an error, and none of an open size.
func TestFitErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.onnx")
	must.Do(t, serde.Save(file, identity(t, onnx.Int64, "n", 3, 8, 8)))
	must.Fail(Fit(file, Options{}))(t, "float32, float16 and uint8")
}
