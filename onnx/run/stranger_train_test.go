package run_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// around is the program that the block of training and quantising stands in: images of one class
// are bright.
const around = `package main

import (
	"context"
	"fmt"
	"log"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	_ "fmp/onnx/integers"
	"fmp/onnx/optim"
	"fmp/onnx/quantise"
	_ "fmp/onnx/rare"
	"fmp/onnx/serde"
	"fmp/onnx/train"
)

func run(ctx context.Context) error {
	model, err := serde.Load("extractor.onnx")
	if err != nil {
		return err
	}
	eng, err := pure.New(engine.Options{})
	if err != nil {
		return err
	}
	defer eng.Close()
	const n = 64
	images, labels := onnx.ZerosF32(n, 3, 128, 128), make([]int, n)
	for i := range images.F32() {
		labels[i/(3*128*128)] = i / (3 * 128 * 128) % 2
		images.F32()[i] = float32(labels[i/(3*128*128)]) + float32(i%7)/7
	}
BLOCK	if err != nil {
		return err
	}
	s, err := eng.Load(small)
	if err != nil {
		return err
	}
	defer s.Close()
	out, err := engine.Eval(s, map[string]*onnx.Tensor{"image": images})
	if err != nil {
		return err
	}
	right := 0
	for _, scores := range out {
		for i, y := range labels {
			if row := scores.F32()[2*i : 2*i+2]; (row[1] > row[0]) == (y == 1) {
				right++
			}
		}
	}
	fmt.Println(right, "of", n, report.Layers)
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
`

// TestStrangerTrains: the lines of onnx/README.md that train a head and quantise the model do so in
// a module of their own, without cgo.
func TestStrangerTrains(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles a program")
	}
	page := must.Get(os.ReadFile(filepath.Join("..", "README.md")))(t)
	block := regexp.MustCompile("(?s)\n## Train it\n.*?```go\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("onnx/README.md has no block of training")
	}
	dir, module, command := elsewhere(t, strings.Replace(around, "BLOCK", string(block[1]), 1))
	if module != "fmp" {
		t.Skip("its imports are of this module's own path")
	}
	b := build.New("extractor")
	x := b.Input("image", onnx.Float32, "n", 3, 128, 128)
	w := onnx.ZerosF32(4, 3, 8, 8)
	for i := range w.F32() {
		w.F32()[i] = float32(i%5-1) / 100
	}
	x = b.Op("Relu", []build.Ref{b.Op("Conv", []build.Ref{x, b.Param("w", w)}, onnx.IntsAttr("strides", 8, 8))})
	b.Output("features", b.Op("Flatten", []build.Ref{b.Op("GlobalAveragePool", []build.Ref{x})}))
	m, err := b.Model()
	if err == nil {
		err = serde.Save(filepath.Join(dir, "extractor.onnx"), m)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := command("go", "run", "."), "64 of 64 2\n"; got != want {
		t.Errorf("the program says %q, want %q", got, want)
	}
}
