package learn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/train"
)

// TestPhotos: images are scaled and laid out for the model, flipped in training alone, and carry
// their class.
func TestPhotos(t *testing.T) {
	t.Parallel()
	b := build.New("m")
	x := b.Input("picture", onnx.Float32, "n", 1, 1, 3)
	b.Output("y", b.Mul(x, b.F32(2)))
	m := must.Get(b.Model())(t)
	part := &dataset.Labelled{Images: dataset.Images{N: 2, H: 1, W: 3, Ch: 1,
		Pix: []uint8{0, 51, 255, 255, 51, 51}}, Labels: []int{1, 0}}
	o := extractor.Options{Mean: []float64{0.2}, Std: []float64{0.5}, Layout: "NCHW"}
	feed, _ := must.Get2(extractor.Feeder("none.onnx", m, models.Manifest{}, o, part.Images))(t)
	d := Photos(part, 2, train.CrossEntropy, Augment{Flip: true}, feed)
	plain := must.Get(d.Batch([]int{1, 0}, nil))(t)
	first, second := []float32{1.6, 0, 0}, []float32{-0.4, 0, 1.6}
	near := func(a, b []float32) bool {
		return slices.EqualFunc(a, b, func(x, y float32) bool { return x-y < 1e-6 && y-x < 1e-6 })
	}
	if got := plain["picture"]; !near(got.F32(), slices.Concat(first, second)) ||
		!slices.Equal(got.Shape, []int{2, 1, 1, 3}) {
		t.Errorf("images are %v %v", got, got.F32())
	}
	if got := plain[train.TargetInput].F32(); !slices.Equal(got, []float32{1, 0, 0, 1}) {
		t.Errorf("targets are %v", got)
	}
	flipped := map[bool]int{}
	for seed := range uint64(64) {
		got := must.Get(d.Batch([]int{0}, rand.New(rand.NewPCG(seed, 1))))(t)
		switch v := got["picture"].F32(); {
		case near(v, second):
			flipped[false]++
		case near(v, []float32{1.6, 0, -0.4}):
			flipped[true]++
		default:
			t.Fatalf("an image became %v", v)
		}
	}
	if flipped[true] < 16 || flipped[false] < 16 {
		t.Errorf("flipped %v", flipped)
	}
	if part.Pix[2] != 255 {
		t.Error("the images themselves were changed")
	}
}
