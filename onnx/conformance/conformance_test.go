package conformance

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/build"
	_ "fmp/onnx/classical"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/collection"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// TestOperatorsOnPure: see operators.
func TestOperatorsOnPure(t *testing.T) {
	operators(t, func() engine.Engine { return must.Get(pure.New(engine.Options{}))(t) }, 1929)
}

// TestOperatorsOnORT: see operators.
func TestOperatorsOnORT(t *testing.T) {
	operators(t, func() engine.Engine { return orttest.New(t) }, 1864)
}

// operators checks that an engine passes as many of the standard's own tests, and that the ones it
// fails are known.
func operators(t *testing.T, load func() engine.Engine, least int) {
	if testing.Short() {
		t.Skip("two thousand models: not in short tests")
	}
	results := must.Get(RunAll(t.Context(), load(), collection.Dir(t), DefaultTolerance, nil))(t)
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
		if r.Verdict == Failed && KnownFailure(r.Name) == "" {
			t.Errorf("%s %v (opset %d): %s", r.Name, r.Ops, r.Opset, r.Reason)
		}
	}
	t.Logf("%v of %d", count, len(results))
	if count[Passed] < least {
		t.Errorf("%d passed, at least %d are expected", count[Passed], least)
	}
}

// writeTest lays out a backend test for y = x + 1 whose expected output is off by the given amount.
func writeTest(t *testing.T, dir string, off float32, feed *onnx.Tensor) {
	t.Helper()
	b := build.New("plus")
	b.Output("y", b.Add(b.Input("x", onnx.Float32, "n"), b.F32(1)))
	m := must.Get(b.Model())(t)
	set := filepath.Join(dir, "test_data_set_0")
	must.Do(t, os.MkdirAll(set, 0o777))
	must.Do(t, serde.Save(filepath.Join(dir, "model.onnx"), m))
	for name, x := range map[string]*onnx.Tensor{"input_0.pb": feed, "output_0.pb": onnx.Vector(2+off, 3+off)} {
		p := must.Get(serde.TensorToProto(name, x))(t)
		data := must.Get(proto.Marshal(p))(t)
		must.Do(t, os.WriteFile(filepath.Join(set, name), data, 0o666))
	}
}

func TestVerdicts(t *testing.T) {
	e := must.Get(pure.New(engine.Options{}))(t)
	root := t.TempDir()
	x := onnx.Vector[float32](1, 2)
	writeTest(t, filepath.Join(root, "a_right"), 0, x)
	writeTest(t, filepath.Join(root, "b_near"), 1e-3, x)
	writeTest(t, filepath.Join(root, "c_wrong"), 0.1, x)
	writeTest(t, filepath.Join(root, "d_contradiction"), 0, onnx.ZerosF32(1, 2))
	writeTest(t, filepath.Join(root, "e_no_input"), 0, x)
	writeTest(t, filepath.Join(root, "f_cut"), 0, x)
	writeTest(t, filepath.Join(root, "g_no_set"), 0, x)
	writeTest(t, filepath.Join(root, "h_refused"), 0, x)
	writeTest(t, filepath.Join(root, "i_no_output"), 0, x)
	for _, err := range []error{
		os.Remove(filepath.Join(root, "e_no_input/test_data_set_0/input_0.pb")),
		os.Truncate(filepath.Join(root, "f_cut/test_data_set_0/input_0.pb"), 9),
		os.RemoveAll(filepath.Join(root, "g_no_set/test_data_set_0")),
		os.Remove(filepath.Join(root, "i_no_output/test_data_set_0/output_0.pb")),
		serde.Save(filepath.Join(root, "h_refused/model.onnx"), onnx.NewModel(&onnx.Graph{
			Name: "refused", Inputs: []onnx.ValueInfo{{Name: "x", DType: onnx.Float32}},
			Outputs: []onnx.ValueInfo{{Name: "y"}},
			Nodes:   []*onnx.Node{{Op: "Frobnicate", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		})),
	} {
		must.Do(t, err)
	}
	results := must.Get(RunAll(t.Context(), e, root, DefaultTolerance, nil))(t)
	want := []Verdict{Passed, Passed, Failed, Unsupported, Failed, Failed, Failed, Unsupported,
		Failed}
	if len(results) != len(want) {
		t.Fatalf("%d results, want %d", len(results), len(want))
	}
	for i, r := range results {
		if r.Verdict != want[i] || (r.Reason == "") != (want[i] == Passed) {
			t.Errorf("%s: %s (%s), want %s", r.Name, r.Verdict, r.Reason, want[i])
		}
	}
	var table strings.Builder
	WriteTable(&table, map[string][]Result{"pure": results})
	for _, line := range []string{"| **all tests** | 2 | 5 | 2 |", "| 17 and 18 | 2 | 5 | 2 |",
		"## What pure does not run",
		"| 1 | h_refused | node (Frobnicate): the operator is not supported |",
		"| Add | yes | 1-6, 7-28 | yes | 2 | 5 | 1 |", "| Frobnicate | – | – | – | 0 | 0 | 1 |",
		"| Less | yes | 7-28 | zero |", "| gradient | Scatter |", "## What pure fails",
		"| not known: test_data_set_0: output"} {
		if !strings.Contains(table.String(), line) {
			t.Errorf("the table lacks %q:\n%s", line, table.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunAll(ctx, e, root, DefaultTolerance, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancelling: %v", err)
	}
	must.Fail(RunAll(t.Context(), e, t.TempDir(), DefaultTolerance, nil))(t, "",
		"an empty folder is no error")
}

func TestCompare(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	half := func(v ...uint16) *onnx.Tensor {
		return &onnx.Tensor{DType: onnx.Float16, Shape: []int{len(v)}, Data: v}
	}
	for _, c := range []struct {
		got, want *onnx.Tensor
		same      bool
	}{
		{onnx.Vector(1.0, nan, inf, -inf), onnx.Vector(1.0, nan, inf, -inf), true},
		{onnx.Vector(1.0005), onnx.Vector(1.0), true},
		{onnx.Vector(1.002), onnx.Vector(1.0), false},
		{onnx.Vector(nan), onnx.Vector(1.0), false},
		{onnx.Vector(1.0), onnx.Vector(nan), false},
		{onnx.Vector(1.0), onnx.Vector(inf), false},
		{onnx.Vector(-inf), onnx.Vector(inf), false},
		{onnx.Vector[float32](1), onnx.Vector(1.0), false},
		{onnx.Scalar(1.0), onnx.Vector(1.0), false},
		{onnx.Vector("a"), onnx.Vector("a"), true},
		{onnx.Vector("a"), onnx.Vector("b"), false},
		{onnx.Vector[int64](7), onnx.Vector[int64](8), false},
		{onnx.Vector(true), onnx.Vector(false), false},
		{half(0x3c00, 0x7c00, 1), half(0x3c00, 0x7c00, 1), true},
		{half(0x3c00), half(0x3d00), false},
		{nil, onnx.Vector(1.0), false},
	} {
		if err := Compare(c.got, c.want, DefaultTolerance); (err == nil) != c.same {
			t.Errorf("%v against %v: %v", c.got, c.want, err)
		}
	}
}

// TestCompareFarIntegers: integers of 64 bits are compared to the last digit, and printed so.
func TestCompareFarIntegers(t *testing.T) {
	const far = 1 << 53
	for _, c := range []struct {
		got, want *onnx.Tensor
		absolute  float64
		text      string
	}{
		{onnx.Vector[int64](far + 1), onnx.Vector[int64](far + 1), 0, ""},
		{onnx.Vector[int64](far + 1), onnx.Vector[int64](far), 0,
			"9007199254740993 where 9007199254740992 is expected"},
		{onnx.Vector[int64](-far - 1), onnx.Vector[int64](-far), 0.5, "-9007199254740993 where"},
		{onnx.Vector[int64](-far - 1), onnx.Vector[int64](-far), 1, ""},
		{onnx.Vector[int64](math.MinInt64), onnx.Vector[int64](math.MaxInt64), 1e19, "differ"},
		{onnx.Vector[uint64](math.MaxUint64), onnx.Vector[uint64](math.MaxUint64 - 1), 0,
			"18446744073709551615 where 18446744073709551614"},
		{onnx.Vector[uint64](math.MaxUint64 - 1), onnx.Vector[uint64](math.MaxUint64), 1, ""},
	} {
		err := Compare(c.got, c.want, Tolerance{Absolute: c.absolute})
		if c.text == "" {
			must.Do(t, err)
		} else {
			must.Fail(err)(t, c.text)
		}
	}
}

// FuzzDecodeTensor: what is decoded is sound, and takes at most 400 bytes of memory for each byte
// of the message (texts without characters are the worst).
func FuzzDecodeTensor(f *testing.F) {
	for _, x := range []*onnx.Tensor{onnx.Vector[float32](1, 2), onnx.Vector("a"), onnx.Vector(true),
		onnx.Scalar[int64](3)} {
		p := must.Get(serde.TensorToProto("x", x))(f)
		data := must.Get(proto.Marshal(p))(f)
		f.Add(data)
	}
	f.Add(bytes.Repeat([]byte{10, 1, 1}, 1000)) // dimensions in pieces
	f.Fuzz(func(t *testing.T, data []byte) {
		var x *onnx.Tensor
		var err error
		alloctest.AtMost(t, 400*len(data), func() { x, err = decodeTensor(data) })
		if err != nil {
			return
		}
		if err := onnx.CheckTensor(x); err != nil {
			t.Errorf("decoded a broken tensor: %v", err)
		}
	})
}
