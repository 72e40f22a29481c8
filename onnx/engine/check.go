package engine

import (
	"fmt"
	"slices"
	"strings"

	"fmp/onnx"
)

// Check holds the tensors of a run against a session's declarations: every input is fed, no other
// value is fed or fetched, and each tensor has the declared type and the sizes that are known. A
// fetched output may be nil.
// Engines call it before they compute, so that a wrong call leaves every tensor as it was. A
// missing input is the first error, and all missing ones are named at once.
func Check(s Session, feeds, fetch map[string]*onnx.Tensor) error {
	inputs, outputs := s.Inputs(), s.Outputs()
	var missing []string
	for _, in := range inputs {
		t, ok := feeds[in.Name]
		if !ok {
			missing = append(missing, fmt.Sprintf("%q (%s)", in.Name, in.Type()))
			continue
		}
		if err := fits(t, in); err != nil {
			return fmt.Errorf("input %q: %w", in.Name, err)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("input %s is missing", strings.Join(missing, ", "))
	}
	// All inputs are fed by here, so that only a greater number can hold another name.
	if len(feeds) > len(inputs) {
		for name := range feeds {
			if named(inputs, name) < 0 {
				return fmt.Errorf("there is no input %q; the inputs are %s", name, nameList(inputs))
			}
		}
	}
	for name, t := range fetch {
		i := named(outputs, name)
		if i < 0 {
			return fmt.Errorf("there is no output %q; the outputs are %s", name, nameList(outputs))
		}
		if t == nil {
			continue
		}
		if err := fits(t, outputs[i]); err != nil {
			return fmt.Errorf("output %q: %w", name, err)
		}
	}
	return nil
}

// fits checks a tensor against a declared type; an axis without a known size takes any.
// A shape of nil takes any rank, and an undefined type any type.
func fits(t *onnx.Tensor, v onnx.ValueInfo) error {
	if err := onnx.CheckTensor(t); err != nil {
		return err
	}
	bad := v.DType != onnx.Undefined && t.DType != v.DType
	if v.Shape != nil {
		bad = bad || len(t.Shape) != len(v.Shape)
		for i := 0; !bad && i < len(t.Shape); i++ {
			bad = v.Shape[i].IsKnown() && v.Shape[i].Size != t.Shape[i]
		}
	}
	if bad {
		return fmt.Errorf("the model declares %s and was given %v", v.Type(), t)
	}
	return nil
}

// named returns the place of a value; -1 where there is none of the name.
func named(vs []onnx.ValueInfo, name string) int {
	return slices.IndexFunc(vs, func(v onnx.ValueInfo) bool { return v.Name == name })
}

// nameList is the names for an error, in alphabetical order.
func nameList(vs []onnx.ValueInfo) string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = fmt.Sprintf("%q", v.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
