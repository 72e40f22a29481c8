// Package conformance runs ONNX backend tests: folders that hold a model.onnx and test_data_set_K
// folders of input_I.pb and output_I.pb, the form in which the ONNX standard ships its operator
// tests (https://github.com/onnx/onnx/tree/main/onnx/backend/test).
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/message"
	"fmp/onnx/onnxpb"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
)

// Verdict is how a test ended.
type Verdict string

// Passed: every output agrees. Unsupported: the model was refused before it ran, with a reason.
// Failed: the rest, that is wrong outputs, an error while running, or an unreadable test.
const (
	Passed      Verdict = "passed"
	Failed      Verdict = "failed"
	Unsupported Verdict = "unsupported"
)

// Result is the outcome of one test.
type Result struct {
	Name    string   `json:"name"` // the folder, below the one that was searched
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason,omitempty"`
	Ops     []string `json:"ops,omitempty"` // operators of the model, each once, in alphabetical order
	Opset   int64    `json:"opset,omitempty"`
}

// Tolerance is how far outputs may be off: |got - want| <= Absolute + Relative |want|. Infinities
// must be equal, NaN matches NaN, types and shapes must be the same.
type Tolerance struct{ Relative, Absolute float64 }

// DefaultTolerance is that of ONNX's own runner.
var DefaultTolerance = Tolerance{Relative: 1e-3, Absolute: 1e-7}

// maxTensorFile bounds a test's tensor file: 1 GiB.
const maxTensorFile = 1 << 30

// FindTests lists the tests below a folder (or the folder itself), in alphabetical order.
func FindTests(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && d.Name() == "model.onnx" {
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for tests: %w", err)
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("looking for tests: no model.onnx in or below %s", root)
	}
	sort.Strings(dirs)
	return dirs, nil
}

// RunAll runs the tests below root one after another; each is called with every result as it comes
// and may be nil. It stops when ctx is done. ctx is looked at between tests, and the results so far
// come with its error.
func RunAll(ctx context.Context, e engine.Engine, root string, tol Tolerance,
	each func(done, total int, r Result)) ([]Result, error) {
	dirs, err := FindTests(root)
	if err != nil {
		return nil, err
	}
	var results []Result
	for i, dir := range dirs {
		if err := ctx.Err(); err != nil {
			return results, err
		}
		r := run(e, dir, tol)
		if rel, err := filepath.Rel(root, dir); err == nil && rel != "." {
			r.Name = filepath.ToSlash(rel)
		}
		results = append(results, r)
		if each != nil {
			each(i+1, len(dirs), r)
		}
	}
	return results, nil
}

// run runs the test in one folder.
func run(e engine.Engine, dir string, tol Tolerance) (r Result) {
	r = Result{Name: filepath.Base(dir)}
	end := func(v Verdict, err error) Result {
		r.Verdict, r.Reason = v, err.Error()
		return r
	}
	m, err := serde.Load(filepath.Join(dir, "model.onnx"))
	if err != nil {
		r.Ops, r.Opset = rawOps(filepath.Join(dir, "model.onnx"))
		// No engine can be asked for values that our own reader does not hold (sequences, sparse
		// tensors, ...).
		return end(Unsupported, trimPath(err, dir))
	}
	r.Ops, r.Opset = ops(m), m.Opset()
	s, err := e.Load(m)
	if err != nil {
		return end(Unsupported, err)
	}
	defer s.Close()
	sets, err := filepath.Glob(filepath.Join(escape(dir), "test_data_set_*"))
	if err != nil {
		return end(Failed, err)
	}
	if len(sets) == 0 {
		return end(Failed, fmt.Errorf("no test_data_set_* beside model.onnx"))
	}
	sort.Strings(sets)
	for _, set := range sets {
		err := runSet(s, set, tol)
		// A test that contradicts its own model says nothing of the engine.
		var c *contradiction
		if errors.As(err, &c) {
			return end(Unsupported, err)
		}
		if err != nil {
			return end(Failed, fmt.Errorf("%s: %w", filepath.Base(set), err))
		}
	}
	r.Verdict = Passed
	return r
}

// escape keeps filepath.Glob from reading a folder's name as a pattern.
func escape(path string) string {
	return strings.NewReplacer("\\", "\\\\", "*", "\\*", "?", "\\?", "[", "\\[").Replace(path)
}

// trimPath keeps reasons the same wherever the tests lie.
func trimPath(err error, dir string) error {
	return errors.New(strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
}

// contradiction is an input file that the model's own declaration rules out: an engine may not run
// it.
type contradiction struct{ text string }

func (c *contradiction) Error() string { return "the test contradicts itself: " + c.text }

// contradicts compares an input file with the model's declaration. An open size fits any, and so
// does a shape that is not declared.
func contradicts(t *onnx.Tensor, v onnx.ValueInfo) error {
	ok := t.DType == v.DType && (v.Shape == nil || len(v.Shape) == len(t.Shape))
	for k := 0; ok && v.Shape != nil && k < len(t.Shape); k++ {
		ok = !v.Shape[k].IsKnown() || v.Shape[k].Size == t.Shape[k]
	}
	if ok {
		return nil
	}
	return &contradiction{fmt.Sprintf("it feeds %v to input %q, which the model declares otherwise", t, v.Name)}
}

// runSet runs one data set. Outputs without a file are not compared, and a set without any is an
// error.
func runSet(s engine.Session, set string, tol Tolerance) error {
	inputs, err := tensors(set, "input")
	if err != nil {
		return err
	}
	want, err := tensors(set, "output")
	if err != nil {
		return err
	}
	if len(want) == 0 {
		return errors.New("no output_NUMBER.pb to compare with")
	}
	// Tests list their inputs in the graph's order, initializers that are inputs as well (up to IR
	// 3) among them.
	feeds := map[string]*onnx.Tensor{}
	for i, v := range s.Inputs() {
		if i >= len(inputs) || inputs[i] == nil {
			return fmt.Errorf("no input_%d.pb for input %q", i, v.Name)
		}
		feeds[v.Name] = asDeclared(inputs[i], v.DType)
		if err := contradicts(feeds[v.Name], v); err != nil {
			return err
		}
	}
	got, err := engine.Eval(s, feeds)
	if err != nil {
		return err
	}
	outs := s.Outputs()
	if len(want) > len(outs) {
		return fmt.Errorf("%d output files for %d outputs", len(want), len(outs))
	}
	for i, w := range want {
		if w == nil {
			continue
		}
		if err := Compare(got[outs[i].Name], asDeclared(w, outs[i].DType), tol); err != nil {
			return fmt.Errorf("output %q: %w", outs[i].Name, err)
		}
	}
	return nil
}

// asDeclared reads uint16 data as bfloat16 where the model declares that: NumPy, which wrote the
// tests, has no such type.
func asDeclared(t *onnx.Tensor, d onnx.DType) *onnx.Tensor {
	// The elements are shared, as both types hold 16 bits.
	if t != nil && d == onnx.BFloat16 && t.DType == onnx.Uint16 {
		return &onnx.Tensor{DType: d, Shape: t.Shape, Data: t.Data}
	}
	return t
}

// tensors reads kind_0.pb, kind_1.pb, ... of a data set. Element i is file kind_i.pb, nil where a
// number is left out. Numbers end at 2^16, since a name must not ask for memory.
func tensors(set, kind string) ([]*onnx.Tensor, error) {
	files, err := filepath.Glob(filepath.Join(escape(set), kind+"_*.pb"))
	if err != nil {
		return nil, err
	}
	var out []*onnx.Tensor
	for _, f := range files {
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), kind+"_"), ".pb"))
		if err != nil || n < 0 || n > 1<<16 {
			return nil, fmt.Errorf("%s: the name is not %s_NUMBER.pb", filepath.Base(f), kind)
		}
		for len(out) <= n {
			out = append(out, nil)
		}
		if out[n], err = ReadTensor(f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ReadTensor reads a file that holds one serialised TensorProto.
func ReadTensor(path string) (*onnx.Tensor, error) {
	data, err := regularfile.ReadFile(path, maxTensorFile)
	if err != nil {
		return nil, err
	}
	t, err := decodeTensor(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return t, nil
}

// decodeTensor decodes a serialised TensorProto.
func decodeTensor(data []byte) (*onnx.Tensor, error) {
	var p onnxpb.TensorProto
	if err := message.Unmarshal(data, &p, 0); err != nil {
		return nil, fmt.Errorf("not a serialised TensorProto: %w", err)
	}
	return serde.TensorFromProto(&p)
}

// ops lists operators of the main graph; those within subgraphs and functions are not counted.
func ops(m *onnx.Model) []string {
	seen := map[string]bool{}
	for _, n := range m.Graph.Nodes {
		seen[qualified(n.Domain, n.Op)] = true
	}
	return names(seen)
}

// rawOps reads the operators of a file that our own reader refuses. Nothing is listed where the
// file is no protobuf with a graph.
func rawOps(path string) ([]string, int64) {
	data, err := regularfile.ReadFile(path, serde.MaxFileBytes)
	if err != nil {
		return nil, 0
	}
	var p onnxpb.ModelProto
	if err := message.Unmarshal(data, &p, 0); err != nil || p.Graph == nil {
		return nil, 0
	}
	seen := map[string]bool{}
	for _, n := range p.Graph.Node {
		seen[qualified(n.Domain, n.OpType)] = true
	}
	opset := int64(0)
	for _, o := range p.OpsetImport {
		if o.Domain == "" || o.Domain == "ai.onnx" {
			opset = o.Version
		}
	}
	return names(seen), opset
}

// qualified leaves the standard domain's name out, under either of its two names.
func qualified(domain, op string) string {
	if domain == "" || domain == "ai.onnx" {
		return op
	}
	return domain + "." + op
}

// names sorts a set, so that results do not vary from run to run.
func names(set map[string]bool) []string {
	var out []string
	for n := range set {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
