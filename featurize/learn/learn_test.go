package learn

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/onnx/train"
)

// stripes are images of 8x8 whose class is the direction and colour of their stripes, plus noise.
func stripes(name string, n, classes int) *dataset.Dataset {
	part := func(n int, stream string) dataset.Labelled {
		r := rng.New(1, name, stream)
		p := dataset.Labelled{Images: dataset.Images{N: n, H: 8, W: 8, Ch: 3,
			Pix: make([]uint8, n*192)},
			Labels: make([]int, n)}
		for i := range n {
			y := i % classes
			p.Labels[i] = y
			phase := r.IntN(4)
			for k := range 64 {
				along := k % 8
				if y%2 == 1 {
					along = k / 8
				}
				for c := range 3 {
					v := 60 + r.IntN(60)
					if (along+phase)/2%2 == 0 && c == y/2%3 {
						v += 120
					}
					p.Pix[i*192+3*k+c] = uint8(v)
				}
			}
		}
		return p
	}
	names := make([]string, classes)
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	return &dataset.Dataset{Name: name, Classes: names, Train: part(n, "train"),
		Test: part(60, "test"), Digest: name}
}

func smallConfig(ds *dataset.Dataset) Config {
	c := DefaultConfig(ds, 6)
	c.Network.Widths, c.Network.Residual = []int{4, 8}, []bool{true}
	c.Epochs, c.Batch, c.Warmup, c.Rate = 4, 16, 1, 0.1
	c.Augment = Augment{Flip: true, Shift: 1, Cutout: 2}
	return c
}

func TestExtractorLearnsAndIsStandardised(t *testing.T) {
	eng := orttest.New(t)
	ds := stripes("stripes", 400, 4)
	c := smallConfig(ds)
	c.Epochs = 10
	res := must.Get(Extractor(context.Background(), eng, ds, nil, c, Run{Threads: 2}))(t)
	if res.Accuracy < 0.8 {
		t.Errorf("accuracy on stripes is %v", res.Accuracy)
	}
	manifest := must.Get(models.ReadManifest(res.Model))(t)
	if manifest.Kind != models.KindExtractor || manifest.Dx != 6 || len(manifest.Mean) != 3 {
		t.Errorf("manifest is %+v", manifest)
	}
	x := must.Get(extractor.New(eng, res.Model, manifest, extractor.Options{}, ds.Train.Images))(t)
	defer x.Close()
	part := must.Get(ds.Train.Select(dataset.Range{From: 0, To: 200}.Indices()))(t)
	rows := must.Get(x.Features(context.Background(), part, nil))(t)
	for k := range 6 {
		var s, q float64
		for i := range 200 {
			v := float64(rows[6*i+k])
			s, q = s+v/200, q+v*v/200
		}
		if math.Abs(s) > 1e-4 || math.Abs(q-1) > 1e-3 {
			t.Errorf("feature %d of the extractor part has mean %v and mean square %v", k, s, q)
		}
	}
}

// TestThreadsAndInterruptionsLeaveNoTrace compares the trained bytes.
func TestThreadsAndInterruptionsLeaveNoTrace(t *testing.T) {
	eng := orttest.New(t)
	ds, aux := stripes("stripes", 160, 2), stripes("other", 120, 3)
	c := smallConfig(ds)
	c.Auxiliary = 0.25
	c.Epochs = 2
	bytes := func(run Run) []byte {
		t.Helper()
		res := must.Get(Extractor(context.Background(), eng, ds, aux, c, run))(t)
		if res.Auxiliary == nil {
			t.Fatal("no extractor for the auxiliary data")
		}
		return must.Get(serde.Marshal(res.Model))(t)
	}
	one := bytes(Run{Threads: 1})
	if two := bytes(Run{Threads: 2}); string(one) != string(two) {
		t.Error("one and two threads train different extractors")
	}
	run := Run{Threads: 2, Checkpoint: filepath.Join(t.TempDir(), "c")}
	ctx, cancel := context.WithCancel(context.Background())
	run.Progress = func(p train.Progress) {
		if p.Step == 5 {
			cancel()
		}
	}
	if _, err := Extractor(ctx, eng, ds, aux, c, run); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled run gave %v", err)
	}
	run.Progress = nil
	if resumed := bytes(run); string(one) != string(resumed) {
		t.Error("a resumed run trains another extractor")
	}
	aux.Digest = "others"
	must.Fail(Extractor(context.Background(), eng, ds, aux, c, run))(t, "another run",
		"a checkpoint of other auxiliary data was taken")
}

func TestBatchesShareOutTheExtractorPartAlone(t *testing.T) {
	ds, aux := stripes("stripes", 160, 2), stripes("other", 120, 3)
	main, other, classes, err := sources(ds, aux, dataset.DefaultFractions)
	if err != nil {
		t.Fatal(err)
	}
	if classes != 5 || main[0].images.N != 80 || other[0].images.N != 60 {
		t.Fatalf("%d classes, %d and %d images; want 5, 80 and 60", classes, main[0].images.N,
			other[0].images.N)
	}
	c := smallConfig(ds)
	c.Smoothing = 0.2
	tr := &trainer{c: c, main: newPool(main), other: newPool(other), fromMain: 12, classes: classes,
		scale: extractor.Scaled([]float32{0, 0, 0}, []float32{1, 1, 1})}
	shards := must.Get(tr.batch(3))(t)
	count := map[bool]int{}
	for _, s := range shards {
		for i := range 8 {
			target, allowed := s[models.TargetInput].F32()[5*i:5*i+5],
				s[models.AllowedInput].F32()[5*i:5*i+5]
			var sum float32
			for y, v := range target {
				sum += v
				if allowed[y] != 0 && v != 0 {
					t.Errorf("class %d is not allowed and has mass %v", y, v)
				}
			}
			if math.Abs(float64(sum-1)) > 1e-6 {
				t.Errorf("label masses %v add up to %v", target, sum)
			}
			count[allowed[0] == 0]++
		}
	}
	if count[true] != 12 || count[false] != 4 {
		t.Errorf("%d images of the data set and %d auxiliary ones; want 12 and 4",
			count[true], count[false])
	}
	// Over an epoch every image comes once.
	seen := map[int]bool{}
	o := order{n: 80, seed: 1, name: "main"}
	for k := range 80 {
		seen[o.at(k)] = true
	}
	if len(seen) != 80 {
		t.Errorf("an epoch shows %d of 80 images", len(seen))
	}
}

func TestAugment(t *testing.T) {
	im := &dataset.Images{N: 1, H: 3, W: 3, Ch: 1, Pix: []uint8{1, 2, 3, 4, 5, 6, 7, 8, 9}}
	s := extractor.Scaled([]float32{0}, []float32{1.0 / 255})
	dst := make([]float32, 9)
	Augment{}.put(dst, im, 0, s, rand.New(rand.NewPCG(1, 1)))
	for i, v := range dst {
		if math.Abs(float64(v)-float64(i+1)) > 1e-4 {
			t.Fatalf("unvaried image is %v", dst)
		}
	}
	kinds := map[string]bool{}
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		Augment{Flip: true}.put(dst, im, 0, s, r)
		row := []int{int(math.Round(float64(dst[0]))), int(math.Round(float64(dst[1]))),
			int(math.Round(float64(dst[2])))}
		switch {
		case slices.Equal(row, []int{1, 2, 3}):
			kinds["as is"] = true
		case slices.Equal(row, []int{3, 2, 1}):
			kinds["mirrored"] = true
		default:
			t.Fatalf("a mirrored row is %v", row)
		}
	}
	if len(kinds) != 2 {
		t.Errorf("of 50 images all are %v", kinds)
	}
	Augment{Cutout: 9}.put(dst, im, 0, s, r)
	zeros := 0
	for _, v := range dst {
		if v == 0 {
			zeros++
		}
	}
	if zeros == 0 {
		t.Error("nothing was cut out")
	}
}

func TestConfigIsChecked(t *testing.T) {
	ds := stripes("stripes", 40, 2)
	for name, change := range map[string]func(*Config){
		"epochs":    func(c *Config) { c.Epochs = 0 },
		"batch":     func(c *Config) { c.Batch = 15 },
		"rate":      func(c *Config) { c.Rate = 0 },
		"smoothing": func(c *Config) { c.Smoothing = 1 },
		"auxiliary": func(c *Config) { c.Auxiliary = 1 },
		"all of it": func(c *Config) { c.Auxiliary = 0.99 },
		"cutout":    func(c *Config) { c.Augment.Cutout = 100 },
		"too few":   func(c *Config) { c.Batch = 64 },
		"dx":        func(c *Config) { c.Network.Dx = 0 },
		"widths":    func(c *Config) { c.Network.Widths = []int{4} },
	} {
		c := smallConfig(ds)
		change(&c)
		must.Fail(Extractor(context.Background(), nil, ds, nil, c, Run{}))(t, "", name)
	}
}

// TestStartAndMirror goes on from a trained extractor, and compares the mirrored model with the
// mean over both images.
func TestStartAndMirror(t *testing.T) {
	eng := orttest.New(t)
	ds := stripes("stripes", 400, 4)
	c := smallConfig(ds)
	c.Epochs = 8
	first := must.Get(Extractor(context.Background(), eng, ds, nil, c, Run{}))(t)
	loss := func(c Config) float64 {
		t.Helper()
		var out float64
		run := Run{Progress: func(p train.Progress) {
			if p.Step == p.Steps {
				out = p.Metrics["loss"]
			}
		}}
		res := must.Get(Extractor(context.Background(), eng, ds, nil, c, run))(t)
		man := must.Get(models.ReadManifest(res.Model))(t)
		if begun := strings.Contains(man.TrainingData, "begun from"); begun != (c.Start != nil) {
			t.Errorf("the training data are %q", man.TrainingData)
		}
		return out
	}
	c.Epochs, c.Warmup = 1, 0
	fresh := loss(c)
	c.Start, c.StartDigest = first.Model, "first"
	if on := loss(c); !(on < 0.8*fresh) {
		t.Errorf("an epoch from a trained extractor ends at loss %v, one from random weights at %v", on,
			fresh)
	}

	c.Network.Widths = []int{4, 16}
	if _, err := Extractor(context.Background(), eng, ds, nil, c, Run{}); !errors.Is(err, ErrStart) {
		t.Errorf("an extractor of other widths to start from gave %v", err)
	}

	c = smallConfig(ds)
	c.Epochs = 1
	plain := must.Get(Extractor(context.Background(), eng, ds, nil, c, Run{}))(t)
	c.Network.Mirror = true
	mirrored := must.Get(Extractor(context.Background(), eng, ds, nil, c, Run{}))(t)
	image := onnx.ZerosF32(3, 3, 8, 8)
	rng.Normal(rng.New(3, "image"), image.F32())
	flipped := image.Clone()
	for row := 0; row < len(flipped.F32()); row += 8 {
		slices.Reverse(flipped.F32()[row : row+8])
	}
	features := func(m *onnx.Model, image *onnx.Tensor) []float32 {
		t.Helper()
		session := must.Get(eng.Load(m))(t)
		defer session.Close()
		out := must.Get(engine.Eval(session, map[string]*onnx.Tensor{models.ImageInput: image},
			models.FeaturesOutput))(t)
		return out[models.FeaturesOutput].F32()
	}
	a, b, got := features(plain.Model, image), features(plain.Model, flipped),
		features(mirrored.Model, image)
	// Standardisation differs by a factor and a shift of each feature: differences between images
	// tell the factor.
	for k := range 6 {
		mean := func(i int) float64 { return float64(a[6*i+k]+b[6*i+k]) / 2 }
		scale := float64(got[6+k]-got[k]) / (mean(1) - mean(0))
		if want := float64(got[k]) +
			scale*(mean(2)-mean(0)); math.Abs(want-float64(got[12+k])) > 1e-3 ||
			!(scale > 0) {
			t.Errorf("feature %d of the third image is %v; the mean over image and mirror image is %v", k,
				got[12+k], want)
		}
	}
}
