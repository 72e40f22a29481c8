package grad

import (
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
)

// Supports says what Build says, where attributes or shapes decide as well.
func TestSupportsAgreesWithBuild(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(b *build.Builder, x build.Ref) build.Ref
		want string // "" where it can be differentiated
	}{
		{"a pooling by columns", func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("MaxPool", []build.Ref{x}, onnx.IntsAttr("kernel_shape", 2, 2),
				onnx.IntAttr("storage_order", 1))
		}, "storage_order"},
		{"a linear resize", func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Resize", []build.Ref{x, "", b.Const(onnx.Vector[float32](1, 1, 2, 2))},
				onnx.StrAttr("mode", "linear"))
		}, ""},
		{"corners aligned to half a pixel", func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Resize", []build.Ref{x, "", b.Const(onnx.Vector[float32](1, 1.25, 1, 1))},
				onnx.StrAttr("mode", "linear"), onnx.StrAttr("coordinate_transformation_mode", "align_corners"))
		}, "whole size"},
		{"corners aligned by scales of the graph", func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Resize", []build.Ref{x, "", b.Input("s", onnx.Float32, 4)},
				onnx.StrAttr("mode", "linear"), onnx.StrAttr("coordinate_transformation_mode", "align_corners"))
		}, "whole size"},
		{"corners aligned", func(b *build.Builder, x build.Ref) build.Ref {
			return b.Op("Resize", []build.Ref{x, "", b.Const(onnx.Vector[float32](1, 1.5, 1, 2))},
				onnx.StrAttr("mode", "linear"), onnx.StrAttr("coordinate_transformation_mode", "align_corners"))
		}, ""},
		{"a resize before a refused node", func(b *build.Builder, x build.Ref) build.Ref {
			x = b.Op("Resize", []build.Ref{x, "", b.Const(onnx.Vector[float32](1, 1, 2, 2))},
				onnx.StrAttr("mode", "linear"))
			return b.Op("MaxRoiPool", []build.Ref{x, b.Const(onnx.ZerosF32(1, 5))},
				onnx.IntsAttr("pooled_shape", 1, 1))
		}, "MaxRoiPool"},
		{"scales that are joined from constants", func(b *build.Builder, x build.Ref) build.Ref {
			scales := b.Concat(0, b.Const(onnx.Vector[float32](1, 1)),
				b.Mul(b.Const(onnx.Vector[float32](1, 1)), b.F32(2)))
			return b.Op("Resize", []build.Ref{x, "", scales}, onnx.StrAttr("mode", "nearest"),
				onnx.StrAttr("coordinate_transformation_mode", "asymmetric"),
				onnx.StrAttr("nearest_mode", "floor"))
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := build.New("g")
			b.Output("y", tc.make(b, b.Input("x", onnx.Float32, "n", 2, "h", "w")))
			m := must.Get(b.Model())(t)
			_, built := Build(m, Options{WRT: []string{"x"}})
			supported := Supports(m)
			if (built == nil) != (supported == nil) {
				t.Errorf("Build says %v and Supports %v", built, supported)
			}
			if tc.want == "" && supported != nil || tc.want != "" &&
				(supported == nil || !strings.Contains(supported.Error(), tc.want)) {
				t.Errorf("Supports says %v, want %q", supported, tc.want)
			}
		})
	}
}
