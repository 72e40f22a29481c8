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

// Compose feeds one model into another: link says which output of a each of b's inputs is read
// from. A nil link joins every input of b that is called as an output of a.
//
// The result has a's inputs and those of b that are not linked, and a's outputs that are not linked
// and all of b's, under the names that they have; two of one name are an error. Other values keep
// their names where they are free and get b's graph name in front where not. Sizes stay dynamic: a
// symbol of b's linked inputs becomes the size of a's output there; a symbol of b alone that a uses
// for something else gets a number.
//
// Functions are inlined. Where the standard operator sets differ, the older model is brought up to
// the newer ([Upgrade]). Metadata that is in one model only, or the same in both, is kept; a key
// with two values is kept twice, as "first.KEY" and "second.KEY", so that nothing is decided
// unseen; where a model has such a key already a number is put behind. Neither a nor b changes.
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

// compose may change both models, which are copies of the caller's. Operator sets are levelled
// before types are inferred, as rules differ from set to set.
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
		link = sameNames(a.Graph, b.Graph)
	}
	if len(link) == 0 {
		return nil, fmt.Errorf("nothing links them: outputs are %s, inputs are %s",
			listNames(a.Graph.Outputs), listNames(b.Graph.Inputs))
	}
	if err := checkLink(a.Graph, b.Graph, link); err != nil {
		return nil, err
	}
	if err := rebindSymbols(a.Graph, b.Graph, link); err != nil {
		return nil, err
	}
	g, err := interfaceOf(a.Graph, b.Graph, link)
	if err != nil {
		return nil, err
	}
	join(g, a.Graph, b.Graph, link)
	out := onnx.NewModel(g)
	out.IR = max(a.IR, b.IR)
	out.Opsets = a.Opsets
	// Where both have a domain its versions agree, as levelOpsets saw to.
	maps.Copy(out.Opsets, b.Opsets)
	out.Metadata = mergeMetadata(a.Metadata, b.Metadata)
	if err := shape.Infer(out); err != nil {
		return nil, err
	}
	return out, check.Model(out)
}

// sameNames links inputs of b to the outputs of a that are called the same. Types are not looked at
// here; [checkLink] refuses a pair that does not fit.
func sameNames(a, b *onnx.Graph) map[string]string {
	link := map[string]string{}
	for _, in := range b.Inputs {
		if _, ok := a.Output(in.Name); ok {
			link[in.Name] = in.Name
		}
	}
	return link
}

// interfaceOf returns a graph of the inputs and outputs that are left when a's outputs feed b. The
// order is that of a's values, and then b's.
func interfaceOf(a, b *onnx.Graph, link map[string]string) (*onnx.Graph, error) {
	g := &onnx.Graph{Name: a.Name + "+" + b.Name, Initializers: map[string]*onnx.Tensor{}}
	public := map[string]string{} // its role by name
	for _, step := range []struct {
		to     *[]onnx.ValueInfo
		values []onnx.ValueInfo
		role   string
	}{
		{&g.Inputs, a.Inputs, "an input of the first model"},
		{&g.Optional, a.Optional, "an optional input of the first model"},
		{&g.Optional, b.Optional, "an optional input of the second model"},
		{&g.Inputs, unlinkedInputs(b, link), "an input of the second model"},
		{&g.Outputs, unlinkedOutputs(a, link), "an output of the first model"},
		{&g.Outputs, b.Outputs, "an output of the second model"},
	} {
		for _, v := range step.values {
			if first, ok := public[v.Name]; ok {
				return nil, fmt.Errorf("%q is %s and %s; rename one of them (pass.Rename)", v.Name,
					first, step.role)
			}
			public[v.Name] = step.role
			*step.to = append(*step.to, v)
		}
	}
	return g, nil
}

// unlinkedInputs stay inputs of the result, in their order.
func unlinkedInputs(b *onnx.Graph, link map[string]string) []onnx.ValueInfo {
	return slices.DeleteFunc(slices.Clone(b.Inputs),
		func(v onnx.ValueInfo) bool { _, ok := link[v.Name]; return ok })
}

// unlinkedOutputs stay outputs of the result. An output that feeds b is an inner value there.
func unlinkedOutputs(a *onnx.Graph, link map[string]string) []onnx.ValueInfo {
	linked := slices.Collect(maps.Values(link))
	return slices.DeleteFunc(slices.Clone(a.Outputs),
		func(v onnx.ValueInfo) bool { return slices.Contains(linked, v.Name) })
}

// join gives g the nodes and initializers of both graphs, under names that keep them apart.
func join(g, a, b *onnx.Graph, link map[string]string) {
	taken := newNames()
	for _, v := range slices.Concat(g.Inputs, g.Optional, g.Outputs) {
		taken.taken[v.Name] = true
	}
	renamedA := taken.rename(a, slices.Concat(a.Inputs, a.Optional, unlinkedOutputs(a, link)), nil)
	fixed := maps.Clone(link)
	// b reads an output of a that was renamed under the new name.
	for in, out := range link {
		if to, ok := renamedA[out]; ok {
			fixed[in] = to
		}
	}
	renamedB := taken.rename(b, slices.Concat(unlinkedInputs(b, link), b.Optional, b.Outputs), fixed)
	Rename(a, renamedA)
	Rename(b, renamedB)
	nodes := newNames() // runtimes refuse two nodes of one name
	for _, part := range []*onnx.Graph{a, b} {
		maps.Copy(g.Initializers, part.Initializers)
		for _, n := range part.Nodes {
			if n.Name != "" {
				n.Name = nodes.unique(n.Name)
			}
			g.Nodes = append(g.Nodes, n)
		}
	}
}

// rename returns new names for a graph's values: those in fixed, and for names that are taken
// others with the graph's own in front. Public values keep their names; the names of the rest are
// taken from now on. Names are gone through in order, so that the same models give the same names.
func (ns *names) rename(g *onnx.Graph, public []onnx.ValueInfo,
	fixed map[string]string) map[string]string {
	own, all, out := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, v := range public {
		own[v.Name] = true
	}
	g.AddNames(all)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch to, ok := fixed[name]; {
		case ok:
			out[name] = to
		case name == "" || own[name]:
		case ns.taken[name]:
			out[name] = ns.unique(g.Name + "/" + name)
		default:
			ns.taken[name] = true
		}
	}
	return out
}

// listNames is for errors: names with their types, in order.
func listNames(vs []onnx.ValueInfo) string {
	parts := make([]string, len(vs))
	for i, v := range vs {
		parts[i] = fmt.Sprintf("%q %s", v.Name, v.Type())
	}
	return strings.Join(parts, ", ")
}

// checkLink names the pair that does not fit, with both types.
func checkLink(a, b *onnx.Graph, link map[string]string) error {
	for _, in := range slices.Sorted(maps.Keys(link)) {
		out := link[in]
		to, ok := b.Input(in)
		if !ok {
			return fmt.Errorf("the second model has no input %q; its inputs are %s", in,
				listNames(b.Inputs))
		}
		from, ok := a.Output(out)
		if !ok {
			return fmt.Errorf("the first model has no output %q; its outputs are %s", out,
				listNames(a.Outputs))
		}
		if err := onnx.Conflicts(from, to); err != nil {
			return fmt.Errorf("output %q %s of the first model does not fit input %q %s of the second: %w",
				out, from.Type(), in, to.Type(), err)
		}
	}
	return nil
}

// rebindSymbols gives the symbols of b's inputs the meaning that the link gives them. A known size
// goes before a symbol where one symbol of b is linked to several axes.
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
				return fmt.Errorf("the second model's size %q would be %d and %d", d.Symbol, have.Size,
					from.Shape[i].Size)
			}
			if !ok || from.Shape[i].IsKnown() {
				bound[d.Symbol] = from.Shape[i]
			}
		}
	}
	// A symbol of b that a uses for another size must not come to mean the same.
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
// Domains other than the standard one cannot be upgraded, and must be of one version.
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
			return fmt.Errorf("operator set %q has version %d in the first model and %d in the second", d,
				have, v)
		}
	}
	return nil
}

// mergeMetadata gives a value of its own key to every value of both. Keys are gone through in
// order, so that the same models give the same keys.
func mergeMetadata(a, b map[string]string) map[string]string {
	out, keys := map[string]string{}, newNames()
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k], keys.taken[k] = v, true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if have, ok := a[k]; ok && have != b[k] {
			delete(out, k)
			out[keys.unique("first."+k)], out[keys.unique("second."+k)] = have, b[k]
		}
	}
	return out
}
