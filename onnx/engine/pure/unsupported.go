package pure

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
)

// Unsupported is a node that the engine does not run, and why.
type Unsupported struct {
	Node   string // its name, or its first output's where it has none
	Op     string
	Domain string // "" is the standard operator set
	Reason string
	// Wrong says that the standard has no such node, so that other engines refuse it too.
	Wrong bool
}

// String gives the reason alone where a model is refused as a whole.
func (u Unsupported) String() string {
	op := u.Op
	if u.Domain != "" {
		op = u.Domain + "." + op
	}
	if op == "" {
		return u.Reason
	}
	return fmt.Sprintf("node %q (%s): %s", u.Node, op, u.Reason)
}

// UnsupportedError refuses a model: nothing of it has run. It comes when a model is loaded;
// errors.As finds it.
type UnsupportedError struct {
	Nodes []Unsupported // at least one
}

// It names three nodes, or four where there are no more.
func (e *UnsupportedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the pure engine does not run this model: ")
	for i, u := range e.Nodes {
		if i == 3 && len(e.Nodes) > 4 {
			fmt.Fprintf(&b, "; and %d more", len(e.Nodes)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(u.String())
	}
	b.WriteString(". " + e.advice())
	return b.String()
}

// advice is for the user of a model that is refused.
func (e *UnsupportedError) advice() string {
	if slices.ContainsFunc(e.Nodes, func(u Unsupported) bool { return u.Wrong }) {
		return "The model is at fault, and other engines refuse it too: correct it, or export it again"
	}
	return "Run it on the ONNX Runtime (engine ort) instead"
}

// Supports lists the nodes of a model that the engine cannot run, nil where it can run all. It
// plans the model as loading does and runs nothing but the nodes whose inputs are all constants. A
// model that is refused as a whole gives one entry with a reason alone.
func Supports(m *onnx.Model) []Unsupported {
	if _, err := compile(m, false); err != nil {
		if u, ok := err.(*UnsupportedError); ok {
			return u.Nodes
		}
		return []Unsupported{{Reason: err.Error()}}
	}
	return nil
}
