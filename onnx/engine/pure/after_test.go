package pure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
)

// TestAfterConvolution: what follows a convolution is done with it, to the same bits as by itself; a value that others read
// is left alone.
func TestAfterConvolution(t *testing.T) {
	random := func(name string, shape ...int) *onnx.Tensor {
		x := onnx.ZerosF32(shape...)
		r := rand.New(rand.NewPCG(1, uint64(len(name))))
		for i := range x.F32() {
			x.F32()[i] = float32(r.NormFloat64())
		}
		return x
	}
	image := random("image", 3, 4, 9, 9)
	image.F32()[7] = float32(math.NaN())
	for _, c := range []struct {
		name  string
		group int
		after []string
		steps int
	}{
		{"normalised", 1, []string{"BatchNormalization"}, 1},
		{"normalised, cut off", 1, []string{"BatchNormalization", "Relu"}, 1},
		{"cut off", 1, []string{"Relu"}, 1},
		{"clipped", 2, []string{"BatchNormalization", "Clip"}, 1},
		{"depthwise", 4, []string{"BatchNormalization", "Clip"}, 1},
		{"in another order", 1, []string{"Relu", "BatchNormalization"}, 2},
		{"twice", 1, []string{"BatchNormalization", "BatchNormalization", "Relu"}, 3},
	} {
		model := func(separate bool) *onnx.Model {
			b := build.New("after")
			x := b.Input("image", onnx.Float32, "n", 4, 9, 9)
			x = b.Op("Conv", []build.Ref{x, b.Param("w", random("w", 8, 4/c.group, 3, 3))}, onnx.IntsAttr("pads", 1, 1, 1, 1), onnx.IntAttr("group", c.group))
			for i, op := range c.after {
				if separate {
					b.Output(fmt.Sprint("before", i), x)
				}
				in := []build.Ref{x}
				switch op {
				case "BatchNormalization":
					for _, p := range []string{"scale", "shift", "mean", "variance"} {
						v := random(p, 8)
						if p == "variance" {
							for i := range v.F32() {
								v.F32()[i] = 1 + v.F32()[i]*v.F32()[i]
							}
						}
						in = append(in, b.Param(fmt.Sprint(p, i), v))
					}
				case "Clip":
					in = append(in, b.F32(-0.5), b.F32(0.75))
				}
				x = b.Op(op, in)
			}
			b.Output("out", x)
			m, err := b.Model()
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		var bits [2][]uint32
		for i, separate := range []bool{false, true} {
			m := model(separate)
			p, err := compile(m)
			if err != nil {
				t.Fatal(err)
			}
			steps := slices.DeleteFunc(p.steps, func(s step) bool { return s.node.Op == "Identity" }) // outputs
			if want := []int{c.steps, 1 + len(c.after)}[i]; len(steps) != want {
				t.Errorf("%s: %d steps, want %d", c.name, len(steps), want)
			}
			e, err := New(engine.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			s, err := e.Load(m)
			if err != nil {
				t.Fatal(err)
			}
			out, err := engine.Eval(s, map[string]*onnx.Tensor{"image": image}, "out")
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range out["out"].F32() {
				bits[i] = append(bits[i], math.Float32bits(v))
			}
		}
		if !slices.Equal(bits[0], bits[1]) {
			t.Errorf("%s: together and apart differ", c.name)
		}
	}
}
