package onnx_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/conformance"
)

// The operator tests of the ONNX standard (Debian: libonnx-testdata): what is inferred of their outputs,
// without what the files say of them, must fit the outputs that the tests expect.
func TestInferOnTheStandardsTests(t *testing.T) {
	dir := os.Getenv("ONNX_TESTDATA")
	if dir == "" {
		dir = "/usr/share/libonnx-testdata/data/node"
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skip("no operator tests in $ONNX_TESTDATA or where Debian's libonnx-testdata puts them")
	}
	tested, whole := 0, 0
	open := map[string]int{}
	for _, path := range paths {
		m, err := onnx.Load(path)
		if err != nil || m.Opset() > onnx.MaxOpset || m.Opset() < onnx.MinOpset {
			continue // sequences, other domains, newer versions
		}
		name := filepath.Base(filepath.Dir(path))
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
		if err := onnx.InlineFunctions(m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := onnx.Infer(m); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tested++
		complete := true
		for i, o := range m.Graph.Outputs {
			want, err := conformance.ReadTensor(filepath.Join(filepath.Dir(path), "test_data_set_0", fmt.Sprintf("output_%d.pb", i)))
			if err != nil {
				continue // a sequence or an optional
			}
			if o.DType == onnx.BFloat16 && want.DType == onnx.Uint16 {
				want.DType = onnx.BFloat16 // as the standard's files hold it
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
	var left []string
	for op, n := range open {
		left = append(left, fmt.Sprintf("%s %d", op, n))
	}
	sort.Strings(left)
	t.Logf("%d models, %d with every output's shape known; operators in the others: %s", tested, whole, strings.Join(left, ", "))
	if tested < 500 {
		t.Errorf("only %d of %d models were tested", tested, len(paths))
	}
}
