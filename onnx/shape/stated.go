package shape

import (
	"cmp"
	"fmt"
	"slices"

	"fmp/onnx"
)

// Stated is a value of which a file states another type or shape than the one that follows.
type Stated struct {
	Stated, Follows onnx.ValueInfo
	// Least is the rank that follows at least, where Follows has none.
	Least int
}

// OfType reports whether the element types differ, which runtimes refuse. Most run a model whose
// sizes alone differ.
func (s Stated) OfType() bool { return s.Stated.DType != s.Follows.DType }

func (s Stated) String() string {
	if s.OfType() {
		return fmt.Sprintf("the file states that %q is %v, and %v follows from its inputs",
			s.Stated.Name, s.Stated.DType, s.Follows.DType)
	}
	follows := fmt.Sprint(s.Follows.Shape)
	if s.Follows.Shape == nil {
		follows = fmt.Sprintf("a rank of %d or more", s.Least)
	}
	return fmt.Sprintf("the file states that %q is of shape %v, and %s follows from its inputs",
		s.Stated.Name, s.Stated.Shape, follows)
}

// Contradicted lists, by name, the values of the graphs of m of which the file states another type
// than the one that follows from the inputs, another rank or one below that of a broadcast operand,
// or another size where both are known. A body of a loop is inferred several times, and only its
// last turn counts. The model is not changed; the error is that of [Infer] where the graph
// contradicts itself.
func Contradicted(m *onnx.Model) ([]Stated, error) {
	if m == nil || m.Graph == nil {
		return nil, fmt.Errorf("inferring shapes: there is no graph")
	}
	inf := newInference(m, maxFollowed, onnx.NewBudget(m))
	of := map[*onnx.Graph][]Stated{}
	inf.load.contradict = func(inf *inference, g *onnx.Graph) {
		of[g] = nil // of a body's last turn
		for _, s := range slices.Concat(g.Inputs, g.Values, g.Outputs) {
			f, least := inf.info(s.Name), 0
			if at := inf.lookup(s.Name); at != nil && f.Shape == nil {
				least = at.least
			}
			// A type of which one side says nothing contradicts nothing; the shapes are still
			// compared.
			known := f.DType != onnx.Undefined && s.DType != onnx.Undefined
			if !known {
				f.DType = s.DType
			}
			if f.DType != s.DType || differ(s.Shape, f.Shape) ||
				s.Shape != nil && len(s.Shape) < least {
				of[g] = append(of[g], Stated{s, f, least})
			}
		}
	}
	if err := inf.graph(m.Graph); err != nil {
		return nil, err
	}
	var all []Stated
	for _, s := range of {
		all = append(all, s...)
	}
	slices.SortFunc(all, func(a, b Stated) int {
		return cmp.Or(cmp.Compare(a.Stated.Name, b.Stated.Name),
			cmp.Compare(a.String(), b.String()))
	})
	return all, nil
}

// differ reports whether both shapes cannot be those of one value. Symbols are not compared: two
// names may stand for one size. A shape that is left out, nil, says nothing, and an empty one is
// that of a scalar.
func differ(a, b []onnx.Dim) bool {
	if a == nil || b == nil || len(a) != len(b) {
		return a != nil && b != nil
	}
	for i := range a {
		if a[i].IsKnown() && b[i].IsKnown() && a[i].Size != b[i].Size {
			return true
		}
	}
	return false
}
