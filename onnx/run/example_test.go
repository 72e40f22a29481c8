package run_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/run"
	"fmp/onnx/serde"
)

// A model file is opened, and run on Go slices by name.
func Example() {
	s, err := run.Open(double())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for _, v := range s.Inputs() {
		fmt.Println("input", v)
	}
	x := onnx.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	out, err := s.Run(context.Background(), map[string]*onnx.Tensor{"x": x})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out["y"].Shape, out["y"].F32())
	// Output:
	// input x float32[batch,2]
	// [3 2] [2 4 6 8 10 12]
}

// An image file goes in, a label comes out.
func ExampleSession_image() {
	s, err := run.New(classifier())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	img := image.NewRGBA(image.Rect(0, 0, 448, 300))
	draw.Draw(img, img.Bounds(), image.NewUniform(color.RGBA{R: 20, G: 200, B: 30, A: 255}),
		image.Point{}, draw.Src)
	var file bytes.Buffer
	if err := png.Encode(&file, img); err != nil {
		log.Fatal(err)
	}
	fmt.Println(label(context.Background(), s, &file, []string{"red", "green", "blue"}))
	// Output: green <nil>
}

// label returns the likeliest of some names for an image, by a model that was trained on images of
// ImageNet's mean and deviation.
func label(ctx context.Context, s *run.Session, file io.Reader, names []string) (string, error) {
	img, _, err := image.Decode(file)
	if err != nil {
		return "", err
	}
	mean, deviation := []float32{.485, .456, .406}, []float32{.229, .224, .225}
	x, b := onnx.ZerosF32(1, 3, 224, 224), img.Bounds()
	for i := range 224 * 224 {
		red, green, blue, _ := img.At(b.Min.X+i%224*b.Dx()/224, b.Min.Y+i/224*b.Dy()/224).RGBA()
		for c, v := range []uint32{red, green, blue} {
			x.F32()[c*224*224+i] = (float32(v)/65535 - mean[c]) / deviation[c]
		}
	}
	out, err := s.Run(ctx, map[string]*onnx.Tensor{"image": x})
	if err != nil {
		return "", err
	}
	scores := out["scores"].F32()
	return names[slices.Index(scores, slices.Max(scores))], nil
}

// classifier is a model of images to scores: the score of class k is the mean of channel k.
func classifier() *onnx.Model {
	b := build.New("classifier")
	b.Output("scores", b.ReduceMean(b.Input("image", onnx.Float32, "batch", 3, 224, 224), false, 2, 3))
	m, err := b.Model()
	if err != nil {
		log.Fatal(err)
	}
	return m
}

// double writes a model that doubles its input, and returns its path.
func double() string {
	b := build.New("double")
	b.Output("y", b.Mul(b.Input("x", onnx.Float32, "batch", 2), b.F32(2)))
	m, err := b.Model()
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "onnx")
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "double.onnx")
	if err := serde.Save(path, m); err != nil {
		log.Fatal(err)
	}
	return path
}
