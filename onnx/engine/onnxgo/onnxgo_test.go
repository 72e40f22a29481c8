//go:build !386 && !arm

package onnxgo

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	decoder "github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend/testbackend"
	_ "github.com/owulveryck/onnx-go/backend/testbackend/onnx"
	"gorgonia.org/tensor"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// outcome runs one of onnx-go's tests as it does, "" where it passes. Its own runner would fail
// this test where onnx-go cannot decode a model.
func outcome(c *testbackend.TestCase) (why string) {
	g := NewGraph()
	m := decoder.NewModel(g)
	if err := decode(m, c.ModelB); err != "" {
		return "decoder: " + err
	}
	for i, in := range c.Input {
		if err := m.SetInput(i, in); err != nil {
			return "decoder: " + err.Error()
		}
	}
	if err := g.Run(); err != nil {
		return err.Error()
	}
	out, err := m.GetOutputTensors()
	if err != nil {
		return err.Error()
	}
	return compare(c.ExpectedOutput, out)
}

// known are the tests that do not pass, with the reason.
var known = map[string][]string{
	"a sum in another order: more than 1e-6 away, and less than 1e-7 of its size": {
		"TestReduceL1DefaultAxesKeepdimsRandom", "TestReduceSumSquareDefaultAxesKeepdimsRandom",
		"TestReduceSumDefaultAxesKeepdimsRandom",
		"TestReduceProdDefaultAxesKeepdimsRandom", "TestPow"},
	"the test wants four digits to be six": {"TestRoialign"},
	"the test wants one axis of a scalar":  {"TestSize", "TestSizeExample"},
	"onnx-go refuses graphs in attributes": {"TestScan9Sum"},
	"no kernel: text": {"TestTfidfvectorizerTfOnlyBigramsSkip0",
		"TestTfidfvectorizerTfOnlybigramsLevelempty", "TestTfidfvectorizerTfUniandbigramsSkip5",
		"TestTfidfvectorizerTfBatchOnlybigramsSkip5", "TestTfidfvectorizerTfOnlybigramsSkip5",
		"TestTfidfvectorizerTfBatchUniandbigramsSkip5", "TestTfidfvectorizerTfBatchOnlybigramsSkip0"},
}

// TestSuite runs the tests that onnx-go generated from the standard's.
func TestSuite(t *testing.T) {
	fails := map[string]string{}
	for why, tests := range known {
		for _, name := range tests {
			fails[name] = why
		}
	}
	all := testbackend.GetAllRegisteredTests()
	passed := 0
	for _, c := range all {
		test := c()
		got := outcome(test)
		if got == "" {
			passed++
		}
		if why, ok := fails[test.Title]; ok == (got == "") {
			t.Errorf("%s: %q; known is %q", test.Title, got, why)
		}
		delete(fails, test.Title)
	}
	t.Logf("%d of %d tests pass", passed, len(all))
	if len(all) < 348 || len(fails) > 0 {
		t.Errorf("%d tests of 348, without %v", len(all), fails)
	}
}

// A program written for onnx-go feeds, runs and reads again and again.
func TestAgain(t *testing.T) {
	b := build.New("square")
	x := b.Input("x", onnx.Float32, 2)
	b.Output("y", b.Add(b.Mul(x, x), b.Param("one", onnx.Vector[float32](1, 1))))
	m := must.Get(b.Model())(t)
	data := must.Get(serde.Marshal(m))(t)
	g := NewGraph()
	must.Fail(g.Run())(t, "", "an empty graph runs")
	model := decoder.NewModel(g)
	must.Do(t, model.UnmarshalBinary(data))
	for _, c := range []struct {
		in   any
		want []float32
	}{{[]float32{1, 2}, []float32{2, 5}}, {[]float32{3, 4}, []float32{10, 17}},
		{[]int64{1, 3}, []float32{2, 10}}} {
		must.Do(t, model.SetInput(0, tensor.New(tensor.WithShape(2), tensor.WithBacking(c.in))))
		must.Do(t, g.Run())
		out, err := model.GetOutputTensors()
		if err != nil || !slices.Equal(out[0].Data().([]float32), c.want) {
			t.Errorf("%v: %v, %v; want %v", c.in, out, err, c.want)
		}
	}
	// A NaN differs from itself, and is a number of every type of floats.
	must.Do(t, model.SetInput(0,
		tensor.New(tensor.WithShape(2), tensor.WithBacking([]float64{math.NaN(), 2}))))
	must.Do(t, g.Run())
	out := must.Get(model.GetOutputTensors())(t)
	if y := out[0].Data().([]float32); y[0] == y[0] || y[1] != 5 {
		t.Errorf("of NaN and 2: %v", y)
	}
	must.Do(t, model.SetInput(0,
		tensor.New(tensor.WithShape(2), tensor.WithBacking([]int64{1<<53 + 1, 1}))))
	must.Fail(g.Run())(t, "", "a number that float32 lacks was taken for another")
}

func decode(m *decoder.Model, data []byte) (why string) {
	defer func() {
		if r := recover(); r != nil {
			why = fmt.Sprint(r)
		}
	}()
	if err := m.UnmarshalBinary(data); err != nil {
		return err.Error()
	}
	return ""
}

// compare says how two lists of tensors differ by more than 1e-6, as onnx-go's own runner does.
func compare(want, got []tensor.Tensor) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d outputs of %d", len(got), len(want))
	}
	for i, w := range want {
		if !slices.Equal(w.Shape(), got[i].Shape()) {
			return fmt.Sprintf("output %d has shape %v of %v", i, got[i].Shape(), w.Shape())
		}
		a, b := numbers(w.Data()), numbers(got[i].Data())
		for k := range a {
			if !(math.Abs(a[k]-b[k]) <= 1e-6) && a[k] != b[k] && !(math.IsNaN(a[k]) && math.IsNaN(b[k])) {
				return fmt.Sprintf("element %d of output %d is %v of %v", k, i, b[k], a[k])
			}
		}
	}
	return ""
}

func numbers(data any) (out []float64) {
	v := reflect.ValueOf(data)
	if v.Kind() != reflect.Slice {
		v = reflect.Append(reflect.MakeSlice(reflect.SliceOf(v.Type()), 0, 1), v)
	}
	for i := range v.Len() {
		switch x := v.Index(i); {
		case x.CanFloat():
			out = append(out, x.Float())
		case x.CanInt():
			out = append(out, float64(x.Int()))
		case x.CanUint():
			out = append(out, float64(x.Uint()))
		case x.Kind() == reflect.Bool && x.Bool():
			out = append(out, 1)
		default:
			out = append(out, 0)
		}
	}
	return out
}
