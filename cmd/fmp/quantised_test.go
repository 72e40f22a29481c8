package main

import (
	"errors"
	"math"
	"path/filepath"
	"testing"

	"fmp/featurize/digits"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
)

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
