package pass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/shape"
)

// Compose feeds one model into another: link says which output of a each of b's inputs is read from. A nil
// link joins every input of b that is called as an output of a.
//
// The result has a's inputs and those of b that are not linked, and a's outputs that are not linked and all
// of b's, under the names that they have; two of one name are an error. Other values keep their names where
// they are free and get b's graph name in front where not. Sizes stay dynamic: a symbol of b's linked inputs
// becomes what a's output has there; a symbol of b alone that a uses for something else gets a number.
//
// Functions are inlined. Where the standard operator sets differ, the older model is brought up to the newer
// ([Upgrade]). Metadata that is in one model only, or the same in both, is kept; a key with two values is
// kept twice, as "first.KEY" and "second.KEY", so that nothing is decided unseen. Neither a nor b changes.
func Compose(a, b *onnx.Model, link map[string]string) (*onnx.Model, error) {
	if a == nil || b == nil || a.Graph == nil || b.Graph == nil {
		return nil, fmt.Errorf("composing models: there is no graph")
	}
	m, err := compose(onnx.Clone(a), onnx.Clone(b), link)
	if err != nil {
		return nil, fmt.Errorf("composing %q with %q: %w", a.Graph.Name, b.Graph.Name, err)
	}
	return m, nil
}

func compose(a, b *onnx.Model, link map[string]string) (*onnx.Model, error) {
	for _, m := range []*onnx.Model{a, b} {
		if err := Inline(m); err != nil {
			return nil, err
		}
	}
	if err := levelOpsets(a, b); err != nil {
		return nil, err
	}
	for _, m := range []*onnx.Model{a, b} {
		if err := shape.Infer(m); err != nil {
			return nil, err
		}
	}
	if link == nil {
		link = map[string]string{}
		for _, in := range b.Graph.Inputs {
			if _, ok := a.Graph.Output(in.Name); ok {
				link[in.Name] = in.Name
			}
		}
	}
	if len(link) == 0 {
		return nil, fmt.Errorf("nothing links them: outputs are %s, inputs are %s", listNames(a.Graph.Outputs), listNames(b.Graph.Inputs))
	}
	if err := checkLink(a.Graph, b.Graph, link); err != nil {
		return nil, err
	}
	if err := rebindSymbols(a.Graph, b.Graph, link); err != nil {
		return nil, err
	}
	linked := map[string]bool{}
	for _, out := range link {
		linked[out] = true
	}
	g := &onnx.Graph{Name: a.Graph.Name + "+" + b.Graph.Name, Initializers: map[string]*onnx.Tensor{}}
	public := map[string]string{} // name: what it is
	declare := func(vs []onnx.ValueInfo, what string, skip func(string) bool) ([]onnx.ValueInfo, error) {
		var out []onnx.ValueInfo
		for _, v := range vs {
			if skip(v.Name) {
				continue
			}
			if first, ok := public[v.Name]; ok {
				return nil, fmt.Errorf("%q is %s and %s; rename one of them (pass.Rename)", v.Name, first, what)
			}
			public[v.Name] = what
			out = append(out, v)
		}
		return out, nil
	}
	isLinked := func(s string) bool { return linked[s] }
	isFed := func(s string) bool { _, ok := link[s]; return ok }
	for _, step := range []struct {
		to   *[]onnx.ValueInfo
		vs   []onnx.ValueInfo
		what string
		skip func(string) bool
	}{
		{&g.Inputs, a.Graph.Inputs, "an input of the first model", func(string) bool { return false }},
		{&g.Inputs, b.Graph.Inputs, "an input of the second model", isFed},
		{&g.Outputs, a.Graph.Outputs, "an output of the first model", isLinked},
		{&g.Outputs, b.Graph.Outputs, "an output of the second model", func(string) bool { return false }},
	} {
		vs, err := declare(step.vs, step.what, step.skip)
		if err != nil {
			return nil, err
		}
		*step.to = append(*step.to, vs...)
	}

	all := newNames()
	for name := range public {
		all.taken[name] = true
	}
	isPublic := func(g *onnx.Graph, skipIn, skipOut func(string) bool) map[string]bool {
		own := map[string]bool{}
		for _, v := range g.Inputs {
			own[v.Name] = own[v.Name] || !skipIn(v.Name)
		}
		for _, v := range g.Outputs {
			own[v.Name] = own[v.Name] || !skipOut(v.Name)
		}
		return own
	}
	renames := func(m *onnx.Graph, own map[string]bool, fixed map[string]string) map[string]string {
		names := map[string]bool{}
		m.AddNames(names)
		out := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			switch to, ok := fixed[name]; {
			case ok:
				out[name] = to
			case name == "" || own[name]:
			case all.taken[name]:
				out[name] = all.unique(m.Name + "/" + name)
			default:
				all.taken[name] = true
			}
		}
		return out
	}
	never := func(string) bool { return false }
	ra := renames(a.Graph, isPublic(a.Graph, never, isLinked), nil)
	fixed := map[string]string{}
	for in, out := range link {
		fixed[in] = out
		if to, ok := ra[out]; ok {
			fixed[in] = to
		}
	}
	rb := renames(b.Graph, isPublic(b.Graph, isFed, never), fixed)
	Rename(a.Graph, ra)
	Rename(b.Graph, rb)
	for _, m := range []*onnx.Graph{a.Graph, b.Graph} {
		for name, t := range m.Initializers {
			g.Initializers[name] = t
		}
		g.Nodes = append(g.Nodes, m.Nodes...)
	}
	// Runtimes refuse two nodes of one name.
	nodes := newNames()
	for _, n := range g.Nodes {
		if n.Name != "" {
			n.Name = nodes.unique(n.Name)
		}
	}
	out := onnx.NewModel(g)
	out.IR = max(a.IR, b.IR)
	out.Opsets = a.Opsets
	for d, v := range b.Opsets {
		out.Opsets[d] = v
	}
	out.Metadata = mergeMetadata(a.Metadata, b.Metadata)
	if err := shape.Infer(out); err != nil {
		return nil, err
	}
	return out, check.Model(out)
}

func listNames(vs []onnx.ValueInfo) string {
	parts := make([]string, len(vs))
	for i, v := range vs {
		parts[i] = fmt.Sprintf("%q %s", v.Name, v)
	}
	return strings.Join(parts, ", ")
}

func checkLink(a, b *onnx.Graph, link map[string]string) error {
	for _, in := range slices.Sorted(maps.Keys(link)) {
		out := link[in]
		to, ok := b.Input(in)
		if !ok {
			return fmt.Errorf("the second model has no input %q; its inputs are %s", in, listNames(b.Inputs))
		}
		from, ok := a.Output(out)
		if !ok {
			return fmt.Errorf("the first model has no output %q; its outputs are %s", out, listNames(a.Outputs))
		}
		if err := onnx.Conflicts(from, to); err != nil {
			return fmt.Errorf("output %q %s of the first model does not fit input %q %s of the second: %w", out, from, in, to, err)
		}
	}
	return nil
}

// rebindSymbols gives the symbols of b's inputs the meaning that the link gives them.
func rebindSymbols(a, b *onnx.Graph, link map[string]string) error {
	bound := map[string]onnx.Dim{}
	for _, in := range slices.Sorted(maps.Keys(link)) {
		from, _ := a.Output(link[in])
		to, _ := b.Input(in)
		if from.Shape == nil || to.Shape == nil {
			continue
		}
		for i, d := range to.Shape {
			if d.IsKnown() || d.Symbol == "" {
				continue
			}
			have, ok := bound[d.Symbol]
			if ok && have.IsKnown() && from.Shape[i].IsKnown() && have != from.Shape[i] {
				return fmt.Errorf("the second model's size %q would be %d and %d", d.Symbol, have.Size, from.Shape[i].Size)
			}
			if !ok || from.Shape[i].IsKnown() {
				bound[d.Symbol] = from.Shape[i]
			}
		}
	}
	used := newNames()
	for _, v := range slices.Concat(a.Inputs, a.Outputs) {
		for _, d := range v.Shape {
			used.taken[d.Symbol] = true
		}
	}
	for i := range b.Inputs {
		for j, d := range b.Inputs[i].Shape {
			if d.IsKnown() || d.Symbol == "" {
				continue
			}
			to, ok := bound[d.Symbol]
			if !ok {
				to = d
				if used.taken[d.Symbol] {
					to = onnx.Symbolic(used.unique(d.Symbol))
				}
				bound[d.Symbol] = to
			}
			b.Inputs[i].Shape[j] = to
		}
	}
	for i := range b.Outputs {
		// Inferred anew from the inputs as they are now.
		b.Outputs[i].Shape = nil
	}
	return nil
}

// levelOpsets brings both models to one version of the standard operator set and checks the others.
func levelOpsets(a, b *onnx.Model) error {
	va, vb := a.Opset(), b.Opset()
	older, to := a, vb
	if va > vb {
		older, to = b, va
	}
	if va != vb && va != 0 && vb != 0 {
		if err := Upgrade(older, int(to)); err != nil {
			return fmt.Errorf("operator sets %d and %d of the standard domain: %w", va, vb, err)
		}
	}
	for d, v := range b.Opsets {
		if have, ok := a.Opsets[d]; ok && have != v {
			return fmt.Errorf("operator set %q has version %d in the first model and %d in the second", d, have, v)
		}
	}
	return nil
}

func mergeMetadata(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range b {
		have, ok := a[k]
		if ok && have != v {
			delete(out, k)
			out["first."+k], out["second."+k] = have, v
			continue
		}
		out[k] = v
	}
	return out
}
