//go:build cgo

package pass_test

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"testing"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/internal/collection"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
)

// The operator tests of the ONNX standard: what is inferred of their outputs,
// without what the files say of them, must fit the outputs that the tests expect.
func TestInferOnTheStandardsTests(t *testing.T) {
	tested, whole := 0, 0
	open := map[string]int{}
	for dir, m := range standardModels(t) {
		name := filepath.Base(dir)
		if err := check.Model(m); errors.Is(err, onnx.ErrUnknown) {
			continue // operators of another domain
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ops := map[string]bool{}
		for _, n := range m.Graph.Nodes {
			if n.Domain != "" {
				ops = nil
				break
			}
			ops[n.Op] = true
		}
		if ops == nil {
			continue
		}
		for i, o := range m.Graph.Outputs {
			m.Graph.Outputs[i] = onnx.ValueInfo{Name: o.Name}
		}
		m.Graph.Values = nil
		if err := pass.Inline(m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := shape.Infer(m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tested++
		complete := true
		for i, o := range m.Graph.Outputs {
			want, err := expected(dir, fmt.Sprint("output_", i), o.DType)
			if err != nil {
				continue // a sequence or an optional
			}
			if err := fits(o, want); err != nil {
				t.Errorf("%s: output %q was inferred as %v and is %v: %v", name, o.Name, o, want, err)
			}
			if o.DType == onnx.Undefined || o.Shape == nil {
				complete = false
			}
			for _, d := range o.Shape {
				complete = complete && (d.IsKnown() || d.Symbol != "")
			}
		}
		if complete {
			whole++
		} else {
			for op := range ops {
				open[op]++
			}
		}
	}
	t.Logf("%d models, %d with every output's shape known; operators in the others: %v", tested, whole,
		open)
	if tested < 500 {
		t.Errorf("only %d models were tested", tested)
	}
}

// expected reads a value of a test's first set, of the type d; the standard's files hold bfloat16 as
// uint16.
func expected(dir, name string, d onnx.DType) (*onnx.Tensor, error) {
	x, err := conformance.ReadTensor(filepath.Join(dir, "test_data_set_0", name+".pb"))
	if err == nil && d == onnx.BFloat16 && x.DType == onnx.Uint16 {
		x.DType = d
	}
	return x, err
}

// standardTests is the folder of the standard's tests of single operators.
func standardTests(t *testing.T) string {
	t.Helper()
	return filepath.Join(collection.Dir(t), "node")
}

// standardModels are the models of these tests, by folder, but for sequences and operator sets that
// are not known.
func standardModels(t *testing.T) iter.Seq2[string, *onnx.Model] {
	paths := must.Get(filepath.Glob(filepath.Join(standardTests(t), "*", "model.onnx")))(t)
	return func(yield func(string, *onnx.Model) bool) {
		for _, path := range paths {
			m, err := serde.Load(path)
			if err == nil && m.Opset() <= onnx.MaxOpset && m.Opset() >= onnx.MinOpset &&
				!yield(filepath.Dir(path), m) {
				return
			}
		}
	}
}

// rewriting is an engine that changes models before it loads them.
type rewriting struct {
	engine.Engine
	rewrite func(m *onnx.Model) error
	refused map[string]int // reason: how often
}

func (r *rewriting) Load(m *onnx.Model) (engine.Session, error) {
	m = onnx.Clone(m)
	if err := r.rewrite(m); err != nil {
		r.refused[err.Error()]++
		return nil, err
	}
	s, err := r.Engine.Load(m)
	if err != nil {
		return nil, fmt.Errorf("after rewriting: %w", err)
	}
	return s, nil
}

// A test that passes must pass after each rewriting, unless that refuses the model.
func TestRewritingOnTheStandardsTests(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the standard's tests several times")
	}
	dir := standardTests(t)
	e := orttest.New(t)
	base := must.Get(conformance.RunAll(t.Context(), e, dir, conformance.DefaultTolerance, nil))(t)
	for name, rewrite := range map[string]func(m *onnx.Model) error{
		"inline and infer": func(m *onnx.Model) error {
			return errors.Join(pass.Inline(m), shape.Infer(m))
		},
		"simplify":      func(m *onnx.Model) error { return pass.Simplify(m) },
		"upgrade to 17": func(m *onnx.Model) error { return pass.Upgrade(m, 17) },
		"upgrade to 21": func(m *onnx.Model) error { return pass.Upgrade(m, 21) },
		"upgrade to 26": func(m *onnx.Model) error { return pass.Upgrade(m, 26) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &rewriting{e, rewrite, map[string]int{}}
			got := must.Get(conformance.RunAll(t.Context(), r, dir, conformance.DefaultTolerance, nil))(t)
			passed, lost := 0, 0
			for i, b := range base {
				if b.Verdict != conformance.Passed {
					continue
				}
				switch g := got[i]; {
				case g.Verdict == conformance.Passed:
					passed++
				case r.refused[g.Reason] > 0:
					lost++
				default:
					t.Errorf("%s (%v): %s: %s", b.Name, b.Ops, g.Verdict, g.Reason)
				}
			}
			t.Logf("%d passed, %d refused", passed, lost)
			for reason, n := range r.refused {
				t.Logf("refused %d: %s", n, reason)
			}
		})
	}
}

// Folding computes what the standard expects: with a test's inputs as initializers, the whole model
// folds, or what is left of it is right because nothing was changed. Either the output became a
// constant, which must be the expected one, or its node is still there.
func TestFoldingOnTheStandardsTests(t *testing.T) {
	folded, left := 0, map[string]int{}
	for dir, m := range standardModels(t) {
		name := filepath.Base(dir)
		whole := true
		for i, in := range m.Graph.Inputs {
			x, err := expected(dir, fmt.Sprint("input_", i), in.DType)
			if whole = whole && err == nil; whole {
				m.Graph.Initializers[in.Name] = x
			}
		}
		if !whole {
			continue // a sequence or an optional
		}
		m.Graph.Inputs = nil
		last := ""
		if n := m.Graph.Nodes; len(n) > 0 {
			last = n[len(n)-1].Op
		}
		if err := pass.Simplify(m); err != nil {
			continue // contradictions are for other tests
		}
		for i, o := range m.Graph.Outputs {
			want, err := expected(dir, fmt.Sprint("output_", i), o.DType)
			if err != nil {
				continue
			}
			var got *onnx.Tensor
			for _, n := range m.Graph.Nodes {
				if n.Op == "Identity" && n.Outputs[0] == o.Name {
					got = m.Graph.Initializers[n.Inputs[0]]
				}
			}
			if got == nil {
				left[last]++
				continue
			}
			folded++
			if err := conformance.Compare(got, want, conformance.DefaultTolerance); err != nil &&
				conformance.KnownFailure(name) == "" {
				t.Errorf("%s: output %q: %v", name, o.Name, err)
			}
		}
	}
	t.Logf("%d outputs were folded; left are the last nodes %v", folded, left)
	if folded < 500 {
		t.Errorf("only %d outputs were folded", folded)
	}
}
