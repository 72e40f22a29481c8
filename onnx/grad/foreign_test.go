package grad_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/grad"
	"fmp/onnx/internal/collection"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// apart are graphs in which onnx-ad 0.3.0 differs, and central differences or another reason are on
// our side.
var apart = []string{
	"test_batchnorm_epsilon", "test_batchnorm_example", // it takes mean and variance for constants
	"test_det_2d", "test_det_nd", // it gives zeros
	"test_spacetodepth_crd_mode_example", // it takes the mode for DCR
	// it takes the indices for those of the larger output, as the ONNX Runtime does
	"test_maxunpool_export_with_output_shape",
	"test_rnn_seq_length", // both lose digits of 1 - y², where y is nearly 1
}

// TestForeignGraphs compares both modes with onnx-ad, another program with rules of its own, on
// models of the standard's collection. Its NaN agree with anything: it multiplies zeros of masked
// rows with infinities. It wants Python ($ONNX_PYTHON, or python3) with onnx-ad.
func TestForeignGraphs(t *testing.T) {
	python := cmp.Or(os.Getenv("ONNX_PYTHON"), "python3")
	if err := exec.Command(python, "-c", "import onnx_ad").Run(); err != nil {
		t.Skipf("%s has no onnx-ad (pip install onnx-ad==0.3.0): %v", python, err)
	}
	if testing.Short() {
		t.Skip("some hundred models: not in short tests")
	}
	dirs := must.Get(conformance.FindTests(collection.Dir(t)))(t)
	var list strings.Builder
	dirs = slices.DeleteFunc(dirs,
		func(d string) bool { return strings.HasSuffix(d, "_expanded") || !differentiable(d) })
	for i, d := range dirs {
		fmt.Fprintln(&list, i, filepath.Join(d, "model.onnx"))
	}
	out := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := exec.CommandContext(ctx, python, "testdata/foreign.py", out)
	c.Stdin = strings.NewReader(list.String())
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	eng := must.Get(pure.New(engine.Options{}))(t)
	graphs, operators := 0, map[string]bool{}
	for i, d := range dirs {
		m := must.Get(serde.Load(filepath.Join(d, "model.onnx")))(t)
		wrt := modeltest.Floats(m)
		compared := 0
		for _, mode := range []struct {
			file, given, of, theirs string
			build                   func(*onnx.Model, grad.Options) (*onnx.Model, error)
		}{{"adj", "grad_", "grad_", "adj_", grad.Build}, {"fwd", "vector_", "jvp_", "fwd_", grad.JVP}} {
			theirs, err := serde.Load(filepath.Join(out, fmt.Sprint(i, ".", mode.file, ".onnx")))
			if err != nil {
				continue // onnx-ad has no rule
			}
			ours, err := mode.build(m, grad.Options{WRT: wrt})
			if err != nil {
				continue
			}
			got, want, ok := both(eng, d, m, ours, theirs, mode.given, mode.theirs)
			if !ok {
				continue
			}
			compared++
			for name, g := range got {
				w := want[mode.theirs+strings.TrimPrefix(name, mode.of)]
				if w == nil || w.Len() != g.Len() {
					t.Errorf("%s: %s is %v, onnx-ad's %v", filepath.Base(d), name, g, w)
					continue
				}
				scale := 1.0
				for k := range w.Len() {
					if v := math.Abs(w.At(k)); v > scale { // not NaN
						scale = v
					}
				}
				for k := range g.Len() {
					same := g.At(k) == w.At(k) || math.Abs(g.At(k)-w.At(k)) <= 1e-6*scale || math.IsNaN(w.At(k))
					if !same && !slices.Contains(apart, filepath.Base(d)) {
						t.Errorf("%s: %s[%d] is %v, onnx-ad's %v", filepath.Base(d), name, k, g.At(k), w.At(k))
						break
					}
				}
			}
		}
		if compared > 0 {
			graphs++
			for _, n := range m.Graph.Nodes {
				operators[n.Op] = true
			}
		}
	}
	t.Logf("%d graphs of %d operators", graphs, len(operators))
	if graphs < 100 {
		t.Errorf("%d graphs were compared; at least 100 are wanted", graphs)
	}
}

// differentiable reports whether a test's model has float32 inputs and outputs alone, or others
// beside them, and at least one of each.
func differentiable(dir string) bool {
	m, err := serde.Load(filepath.Join(dir, "model.onnx"))
	if err != nil {
		return false
	}
	some := func(vs []onnx.ValueInfo) bool {
		n := 0
		for _, v := range vs {
			if v.DType.IsFloat() && v.DType != onnx.Float32 {
				return false
			}
			if v.DType == onnx.Float32 {
				n++
			}
		}
		return n > 0
	}
	return some(m.Graph.Inputs) && some(m.Graph.Outputs)
}

// both runs two derivatives of a model on a test's inputs and the same seeds; theirs have an axis
// of one direction behind the others. ok is false where one of them does not run.
func both(eng engine.Engine, dir string, m, ours, theirs *onnx.Model, given,
	prefix string) (got, want map[string]*onnx.Tensor, ok bool) {
	feeds := map[string]*onnx.Tensor{}
	for i, v := range m.Graph.Inputs {
		x, err := conformance.ReadTensor(filepath.Join(dir, "test_data_set_0",
			fmt.Sprintf("input_%d.pb", i)))
		if err != nil {
			return nil, nil, false
		}
		feeds[v.Name] = x
	}
	s, err := eng.Load(m)
	if err != nil {
		return nil, nil, false
	}
	defer s.Close()
	primal, err := engine.Eval(s, feeds)
	if err != nil {
		return nil, nil, false
	}
	r := rand.New(rand.NewPCG(8, 9))
	seeds := map[string]*onnx.Tensor{}
	run := func(m *onnx.Model, prefix string, wide bool) map[string]*onnx.Tensor {
		s, err := eng.Load(m)
		if err != nil {
			return nil
		}
		defer s.Close()
		all := map[string]*onnx.Tensor{}
		for _, v := range m.Graph.Inputs {
			of := strings.TrimPrefix(v.Name, prefix)
			x := feeds[v.Name]
			if x == nil && seeds[of] == nil {
				like := cmp.Or(primal[of], feeds[of])
				if like == nil {
					return nil
				}
				seeds[of] = modeltest.Normal(r, 1, like.Shape...)
			}
			if x == nil {
				x = seeds[of]
				if wide {
					x = onnx.NewTensor(x.F32(), append(slices.Clone(x.Shape), 1)...)
				}
			}
			all[v.Name] = x
		}
		out, err := engine.Eval(s, all)
		if err != nil {
			return nil
		}
		return out
	}
	got, want = run(ours, given, false), run(theirs, prefix, true)
	return got, want, got != nil && want != nil
}
