package check

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/op"
	"fmp/onnx/suggest"
)

// operator checks a node against its operator's schema and returns the element types of its
// outputs, Undefined where they do not follow from those of the inputs.
// The definition comes first, then the numbers of inputs and outputs, the attributes, and the
// types. An input whose type is not known yet goes with any.
func (c *checker) operator(n *onnx.Node) ([]onnx.DType, error) {
	s, err := c.schema(n)
	if err != nil {
		return nil, err
	}
	if err := s.Fits(n); err != nil {
		return nil, err
	}
	if err := checkAttrs(n, s); err != nil {
		return nil, err
	}
	in := make([]onnx.DType, len(n.Inputs))
	for i, name := range n.Inputs {
		if name != "" {
			in[i] = c.typeOf(name)
		}
	}
	return s.Bind(in, len(n.Outputs))
}

// schema finds the definition of a node's operator; the error says why there is none. Errors tell a
// faulty model from one that another engine might run ([onnx.ErrUnknown]).
// The standard domain has two names, "" and "ai.onnx", and a model may import it by either.
func (c *checker) schema(n *onnx.Node) (*op.Schema, error) {
	name := onnx.OpName{Domain: n.Domain, Name: n.Op}
	known := op.Names(n.Domain)
	if n.Domain != "" && len(known) == 0 {
		return nil, onnx.Unknownf("operators of the domain %q are not known unless the model defines "+
			"them as functions; export it with standard operators", n.Domain)
	}
	if _, ok := c.opsets[n.Domain]; !ok && (n.Domain != "" || c.opsets["ai.onnx"] == 0) {
		if n.Domain == "" {
			return nil, fmt.Errorf("no operator set of the standard domain is imported")
		}
		return nil, fmt.Errorf("no operator set of the domain %q is imported", n.Domain)
	}
	s := op.Find(n, c.opsets)
	versions := op.Versions(n.Domain, n.Op)
	// A model may import the standard domain by both names: the larger set counts.
	standard := int(max(c.opsets[""], c.opsets["ai.onnx"]))
	set := int(c.opsets[n.Domain])
	if n.Domain == "" {
		set = standard
	}
	// The remedy of an operator that is too new names the first set that has it.
	later := slices.IndexFunc(versions, func(v *op.Schema) bool { return v.Since > set && !v.Deprecated })
	switch {
	case n.Domain == "" && op.Extended(n.Op, standard):
		newer := ""
		if later >= 0 {
			newer = fmt.Sprintf(", or export the model with set %d", versions[later].Since)
		}
		return nil, onnx.Unknownf("operator set %d of the standard does not have %s; the ONNX Runtime may "+
			"run it (engine ort)%s", standard, name, newer)
	case s == nil && later >= 0:
		return nil, fmt.Errorf("%s is an operator from operator set %d on, and the model imports %d; "+
			"export it with a newer one", name, versions[later].Since, set)
	case s == nil:
		// The model's own functions are suggested beside the standard's operators.
		for l := range c.local {
			if l.Domain == n.Domain {
				known = append(known, l.Name)
			}
		}
		if n.Domain == "com.microsoft" { // the runtime has more of them than op
			return nil, onnx.Unknownf("the operator %s is not known here%s; the ONNX Runtime may run it "+
				"(engine ort)", name, suggest.DidYouMean(n.Op, known))
		}
		return nil, fmt.Errorf("there is no operator %s%s", name, suggest.DidYouMean(n.Op, known))
	case s.Deprecated:
		return nil, fmt.Errorf("operator set %d took the operator %s out; export the model with an "+
			"older one, or upgrade it before", s.Since, name)
	}
	return s, nil
}

// kindNames are the kinds of attributes in words, for errors.
var kindNames = map[onnx.AttrKind]string{
	onnx.AttrFloat: "a float", onnx.AttrInt: "an integer", onnx.AttrString: "a string",
	onnx.AttrTensor: "a tensor", onnx.AttrGraph: "a graph",
	onnx.AttrFloats: "a list of floats", onnx.AttrInts: "a list of integers",
	onnx.AttrStrings: "a list of strings",
	onnx.AttrTensors: "a list of tensors", onnx.AttrGraphs: "a list of graphs",
}

// checkAttrs holds a node's attributes against the definition. In a function the kind of a
// reference may be left out.
func checkAttrs(n *onnx.Node, s *op.Schema) error {
	for _, a := range n.Attrs {
		if strings.HasPrefix(a.Name, "__") {
			continue // the standard leaves these to tools' own use
		}
		d := s.Attr(a.Name)
		if d == nil {
			var names []string
			for _, d := range s.Attrs {
				names = append(names, d.Name)
			}
			has := "it has none"
			if len(names) > 0 {
				has = "its attributes are " + strings.Join(names, ", ")
			}
			return fmt.Errorf("the operator has no attribute %q%s; in operator set %d %s", a.Name,
				suggest.DidYouMean(a.Name, names), s.Since, has)
		}
		// A reference takes its kind from the function's call.
		if a.Kind != d.Kind && !(a.Ref != "" && a.Kind == onnx.AttrUndefined) {
			return fmt.Errorf("the attribute %q is %s where %s is expected", a.Name,
				kindNames[a.Kind], kindNames[d.Kind])
		}
	}
	// Missing attributes come last, so that a misspelt name is reported first.
	for _, d := range s.Attrs {
		if _, ok := n.Attr(d.Name); d.Required && !ok {
			return fmt.Errorf("the attribute %q (%s) is missing, which the operator needs", d.Name,
				kindNames[d.Kind])
		}
	}
	return nil
}
