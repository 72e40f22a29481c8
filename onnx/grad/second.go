package grad

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// JVP makes the model of Jacobian-vector products of m, which is not changed: forward mode. Its
// inputs are m's own and vector_<a> for each a of Options.WRT; its outputs are jvp_<y> = Σ_a
// (∂y/∂a) vector_a for each y of Options.Outputs, of y's type and shape. Options.UnitCotangent is
// refused: there are no cotangents.
//
// A gradient is linear in the cotangents that it is given, and the gradient of that linear map is
// the product (Townsend 2017, "A new trick for calculating Jacobian vector products"). So one rule
// for an operator serves both modes.
func JVP(m *onnx.Model, opt Options) (*onnx.Model, error) {
	if opt.UnitCotangent {
		return nil,
			fmt.Errorf("differentiating %q forward: UnitCotangent is set, and there are no cotangents",
				graphName(m))
	}
	return attempt(m, " forward", func() *onnx.Model { return twice(m, opt, true) })
}

// HVP makes the model of Hessian-vector products of m, which is not changed. Its inputs are m's
// own, vector_<a> for each a of Options.WRT, and grad_<y> for each y of Options.Outputs, unless
// Options.UnitCotangent is set as for a scalar loss. Its outputs are hvp_<a> = Σ_b ∂²⟨grad_y,
// y⟩/∂a∂b vector_b, of a's type and shape. Options.KeepOutputs adds m's own outputs and the
// gradients.
//
// The gradient is differentiated once more: its graph is made of operators that have rules
// themselves.
func HVP(m *onnx.Model, opt Options) (*onnx.Model, error) {
	return attempt(m, " twice", func() *onnx.Model { return twice(m, opt, false) })
}

// twice differentiates the gradient of m: for the cotangents of the outputs where it is to go
// forward, else for its values again.
func twice(m *onnx.Model, opt Options, forward bool) *onnx.Model {
	prefix := cmp.Or(opt.Prefix, "grad_")
	g := prepare(m)
	own := slices.Clone(g.Graph.Outputs)
	first := opt
	first.ParamsAsInputs, first.KeepOutputs = false, true
	reverse(g, first, naming{seed: before(prefix), result: before(prefix), free: forward,
		again: !forward})
	gradients := slices.Clone(g.Graph.Outputs[len(own):])
	taken := map[string]bool{}
	g.Graph.AddNames(taken)
	if err := infer(g, taken); err != nil {
		try.Fail("the gradient graph: %w", err)
	}
	second := Options{WRT: opt.WRT, ParamsAsInputs: opt.ParamsAsInputs}
	for _, o := range gradients {
		second.Outputs = append(second.Outputs, o.Name)
	}
	bare := func(name string) string { return strings.TrimPrefix(name, prefix) }
	names := naming{seed: func(y string) string { return "vector_" + bare(y) },
		result: before("hvp_")}
	if forward {
		second.WRT = nil
		for _, y := range own {
			if gives(g.Graph, prefix+y.Name) &&
				(len(opt.Outputs) == 0 || slices.Contains(opt.Outputs, y.Name)) {
				second.WRT = append(second.WRT, prefix+y.Name)
			}
		}
		names.result = func(w string) string { return "jvp_" + bare(w) }
		gradients = nil
	}
	reverse(g, second, names)
	if opt.KeepOutputs {
		g.Graph.Outputs = slices.Concat(own, gradients, g.Graph.Outputs)
	}
	if forward && opt.ParamsAsInputs {
		freeParameters(g.Graph, opt.WRT)
	}
	return finish(g)
}
