//go:build cgo

package integers_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	_ "fmp/onnx/engine/ort"
	_ "fmp/onnx/engine/pure"
	_ "fmp/onnx/integers"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// BenchmarkNetwork runs the networks of $FMP_NETWORKS, files with commas between them, on one image
// and one thread: quantised ones that bench/peers/quantise.py writes, and the same in float32.
func BenchmarkNetwork(b *testing.B) {
	files := os.Getenv("FMP_NETWORKS")
	if files == "" {
		b.Skip("FMP_NETWORKS names no model files")
	}
	for _, file := range strings.Split(files, ",") {
		data := must.Get(os.ReadFile(file))(b)
		m := must.Get(serde.Unmarshal(data))(b)
		var shape []int
		for _, d := range m.Graph.Inputs[0].Shape {
			shape = append(shape, max(d.Size, 1))
		}
		x := modeltest.Normal(rand.New(rand.NewPCG(1, 2)), 1, shape...)
		for _, name := range []string{"pure", "ort"} {
			b.Run(file+"/"+name, func(b *testing.B) {
				eng, err := engine.Open(name, engine.Options{Threads: 1})
				if err != nil {
					b.Skip(err)
				}
				defer eng.Close()
				s := must.Get(eng.Load(m))(b)
				defer s.Close()
				for b.Loop() {
					must.Get(engine.Eval(s, map[string]*onnx.Tensor{m.Graph.Inputs[0].Name: x}))(b)
				}
			})
		}
	}
}
