package grad

import (
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
)

// A value that the graph of an If takes from around it is read by the If: its gradient is refused by name, not zero.
func TestCapturesAreRefusedByName(t *testing.T) {
	branch := func(name, op string) onnx.Attr {
		out := name + "/out"
		return onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: &onnx.Graph{Name: name, Initializers: map[string]*onnx.Tensor{},
			Outputs: []onnx.ValueInfo{{Name: out, DType: onnx.Float32, Shape: onnx.Shape(3)}},
			Nodes:   []*onnx.Node{{Name: name, Op: op, Inputs: []string{"x"}, Outputs: []string{out}}}}}
	}
	m := onnx.NewModel(&onnx.Graph{Name: "choice", Initializers: map[string]*onnx.Tensor{},
		Inputs:  []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(3)}, {Name: "which", DType: onnx.Bool, Shape: onnx.Shape()}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: onnx.Shape(3)}},
		Nodes: []*onnx.Node{{Name: "choose", Op: "If", Inputs: []string{"which"}, Outputs: []string{"y"},
			Attrs: []onnx.Attr{branch("then_branch", "Exp"), branch("else_branch", "Neg")}}}})
	_, err := Build(m, Options{WRT: []string{"x"}})
	for _, err := range []error{err, Supports(m)} {
		if err == nil || !strings.Contains(err.Error(), `"choose"`) || !strings.Contains(err.Error(), "If") {
			t.Errorf("error is %v", err)
		}
	}
}

// Supports says what Build says, where attributes or shapes decide as well.
func TestSupportsAgreesWithBuild(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(b *build.Builder, x build.Ref) build.Ref
		want string // "" where it can be differentiated
	}{
		{"a pooling by columns", func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("MaxPool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 2, 2), onnx.IntAttr("storage_order", 1))
		}, "storage_order"},
		{"a linear resize", func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Resize", []build.Ref{x, "", b.Const(onnx.Vector[float32](1, 1, 2, 2))}, onnx.StrAttr("mode", "linear"))
		}, "mode linear has no rule"},
		{"a resize before a refused node", func(b *build.Builder, x build.Ref) build.Ref {
			x = b.Op("Resize", []build.Ref{x, "", b.Const(onnx.Vector[float32](1, 1, 2, 2))}, onnx.StrAttr("mode", "linear"))
			return b.Op("LpPool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 2, 2))
		}, "mode linear has no rule"},
		{"scales that are joined from constants", func(b *build.Builder, x build.Ref) build.Ref {
			scales := b.Concat(0, b.Const(onnx.Vector[float32](1, 1)), b.Mul(b.Const(onnx.Vector[float32](1, 1)), b.F32(2)))
			return b.Op("Resize", []build.Ref{x, "", scales}, onnx.StrAttr("mode", "nearest"), onnx.StrAttr("coordinate_transformation_mode", "asymmetric"), onnx.StrAttr("nearest_mode", "floor"))
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := build.New("g")
			b.Output("y", tc.make(b, b.Input("x", onnx.Float32, "n", 2, "h", "w")))
			m, err := b.Model()
			if err != nil {
				t.Fatal(err)
			}
			_, built := Build(m, Options{WRT: []string{"x"}})
			supported := Supports(m)
			if (built == nil) != (supported == nil) {
				t.Errorf("Build says %v and Supports %v", built, supported)
			}
			if tc.want == "" && supported != nil || tc.want != "" && (supported == nil || !strings.Contains(supported.Error(), tc.want)) {
				t.Errorf("Supports says %v, want %q", supported, tc.want)
			}
		})
	}
}
