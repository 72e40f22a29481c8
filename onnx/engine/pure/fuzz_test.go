package pure_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// FuzzLoad loads and runs whatever decodes as a model: errors are fine; panics and endless work are
// not, nor is more than 4,000 bytes of memory to load for each byte of the file (small nodes are
// the worst). The memory of a run is bounded by kernel.MaxLiveBytes.
func FuzzLoad(f *testing.F) {
	seed := func(fill func(b *build.Builder)) {
		b := build.New("seed")
		fill(b)
		m := must.Get(b.Model())(f)
		data := must.Get(serde.Marshal(m))(f)
		f.Add(data)
	}
	seed(func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, "n", 2, 4, 4)
		w := b.Param("w", onnx.ZerosF32(2, 2, 3, 3))
		v := b.Op("Conv", []build.Ref{x, w}, onnx.IntsAttr("pads", 1, 1, 1, 1))
		v = b.Op("MaxPool", []build.Ref{b.Relu(v)}, onnx.IntsAttr("kernel_shape", 2, 2))
		b.Output("y", b.Softmax(b.Reshape(v, 0, -1), 1))
	})
	seed(func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, "n", 3)
		v := b.Transpose(b.MatMul(x, b.Param("w", onnx.ZerosF32(3, 3))), 1, 0)
		v = b.Op("Gather", []build.Ref{v, b.Axes(0, 2)}, onnx.IntAttr("axis", 0))
		v = b.Op("Pad", []build.Ref{v, b.Axes(0, 1, 0, 1)})
		b.Output("y", b.ReduceSum(b.Slice(v, 0, 0, 1), false, 0))
	})
	seed(func(b *build.Builder) {
		x := b.Input("x", onnx.Int64, 2)
		v := b.Op("Expand", []build.Ref{b.F32(1), x})
		v = b.Op("Tile", []build.Ref{v, x})
		b.Output("y", b.Op("Einsum", []build.Ref{v, v}, onnx.StrAttr("equation", "ij,ij->i")))
	})
	seed(func(b *build.Builder) {
		scale, zero := b.F32(.5), b.Param("zero", onnx.Scalar[int8](1))
		ws, wz := b.Param("ws", onnx.Vector[float32](1, 2)), b.Param("wz", onnx.Vector[int8](0, 0))
		bytes := func(x build.Ref) build.Ref {
			x = b.Op("QuantizeLinear", []build.Ref{x, scale, zero})
			return b.Op("DequantizeLinear", []build.Ref{x, scale, zero})
		}
		w := b.Op("DequantizeLinear", []build.Ref{b.Param("w", onnx.NewTensor(make([]int8, 18), 2, 1, 3, 3)), ws, wz},
			onnx.IntAttr("axis", 0))
		v := bytes(b.Input("x", onnx.Float32, "n", 2, 4, 4))
		v = bytes(b.Relu(b.Op("Conv", []build.Ref{v, w}, onnx.IntAttr("group", 2))))
		v = b.Op("Gemm", []build.Ref{bytes(b.Reshape(v, 0, -1)), b.Op("DequantizeLinear", []build.Ref{
			b.Param("v", onnx.NewTensor(make([]int8, 16), 8, 2)), ws, wz})})
		b.Output("y", bytes(v))
	})
	seed(func(b *build.Builder) {
		w, zero := b.Param("w", onnx.NewTensor(make([]int8, 6), 3, 2)), b.Param("zero", onnx.Scalar[uint8](1))
		zeros := b.Param("zeros", onnx.Vector[int8](1, 2))
		b.Output("y", b.Op("MatMulInteger", []build.Ref{b.Input("x", onnx.Uint8, "n", 3), w, zero, zeros}))
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := serde.Unmarshal(data)
		if err != nil {
			return
		}
		e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
		var s engine.Session
		alloctest.AtMost(t, 4000*len(data), func() { s, err = e.Load(m) })
		if err != nil {
			return
		}
		defer s.Close()
		feeds := map[string]*onnx.Tensor{}
		for _, v := range s.Inputs() {
			shape := make([]int, len(v.Shape))
			for i, d := range v.Shape {
				if shape[i] = d.Size; !d.IsKnown() || d.Size > 8 {
					shape[i] = 2
				}
			}
			x, err := onnx.Zeros(v.DType, shape...)
			if err != nil {
				return
			}
			feeds[v.Name] = x
		}
		start := time.Now()
		_, _ = engine.Eval(s, feeds)
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("a model of %d bytes ran for %v", len(data), d)
		}
	})
}

// FuzzOperators feeds operators random numbers of inputs, of random types and shapes (empty ones
// too), with random attributes: a kernel may refuse them, but not fail in its own code.
func FuzzOperators(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(tryOperator)
}

// TestRandomOperators is a fixed stretch of FuzzOperators.
func TestRandomOperators(t *testing.T) {
	for seed := range uint64(3000) {
		tryOperator(t, seed)
	}
}

var ops = kernel.Ops()

func tryOperator(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	op := ops[r.IntN(len(ops))]
	m := onnx.NewModel(&onnx.Graph{Name: op, Initializers: map[string]*onnx.Tensor{}})
	m.Opsets[""] = int64(1 + r.IntN(onnx.MaxOpset))
	n := &onnx.Node{Name: op, Op: op}
	feeds := map[string]*onnx.Tensor{}
	types := []onnx.DType{onnx.Float32, onnx.Float32, onnx.Float32, onnx.Int64, onnx.Int64,
		onnx.Float64, onnx.Uint8, onnx.Int32, onnx.Bool, onnx.Float16, onnx.String, onnx.Uint64}
	main := types[r.IntN(len(types))]
	tiles := op == "Conv" && r.IntN(2) == 0 // channels enough for Winograd's tiles
	for i := range r.IntN(5) {
		if i > 0 && r.IntN(8) == 0 {
			n.Inputs = append(n.Inputs, "")
			continue
		}
		d := main
		switch r.IntN(3) {
		case 0:
			d = onnx.Int64
		case 1:
			d = types[r.IntN(len(types))]
		}
		shape := make([]int, r.IntN(5))
		for k := range shape {
			shape[k] = r.IntN(5)
		}
		if d == onnx.Int64 && r.IntN(2) == 0 {
			shape = []int{r.IntN(5)}
		}
		if tiles && i < 2 {
			d, shape = onnx.Float32,
				[][]int{{r.IntN(3), 16, r.IntN(20), r.IntN(20)}, {16 + r.IntN(9), 16, 3, 3}}[i]
		}
		x := must.Get(onnx.Zeros(d, shape...))(t)
		switch v := x.Data.(type) {
		case []float32:
			for i := range v {
				v[i] = []float32{float32(r.NormFloat64()), 0, float32(math.Inf(1)),
					float32(math.NaN()), 3}[r.IntN(5)]
			}
		case []int64:
			for i := range v {
				v[i] = []int64{0, 1, 2, 3, -1, -2, 7, math.MaxInt64, math.MinInt64,
					math.MinInt64 + 1}[min(r.IntN(14), 9)*r.IntN(2)]
			}
		case []uint8:
			for i := range v {
				v[i] = uint8(r.Uint32())
			}
		}
		name := fmt.Sprintf("x%d", i)
		n.Inputs = append(n.Inputs, name)
		if r.IntN(3) == 0 || tiles && i == 1 {
			m.Graph.Initializers[name] = x
			continue
		}
		feeds[name] = x
		v := onnx.ValueInfo{Name: name, DType: d, Shape: []onnx.Dim{}}
		for range shape {
			v.Shape = append(v.Shape, onnx.Symbolic(""))
		}
		m.Graph.Inputs = append(m.Graph.Inputs, v)
	}
	for i := range 1 + r.IntN(3) {
		n.Outputs = append(n.Outputs, fmt.Sprintf("y%d", i))
		m.Graph.Outputs = append(m.Graph.Outputs, onnx.ValueInfo{Name: n.Outputs[i]})
	}
	whole := func() int64 {
		return []int64{0, 1, 2, 3, -1, -2, 5, math.MaxInt32, math.MinInt64}[min(r.IntN(12), 8)]
	}
	for _, a := range attributes[op] {
		if r.IntN(2) == 0 {
			continue
		}
		name, kind, _ := strings.Cut(a, ":")
		switch kind {
		case "ints":
			v := make([]int64, r.IntN(5))
			for i := range v {
				v[i] = whole()
			}
			n.Attrs = append(n.Attrs, onnx.Attr{Name: name, Kind: onnx.AttrInts, Ints: v})
		case "int":
			n.Attrs = append(n.Attrs, onnx.Attr{Name: name, Kind: onnx.AttrInt, Int: whole()})
		default: // a choice of strings
			words := strings.Split(kind, "|")
			n.Attrs = append(n.Attrs, onnx.StrAttr(name, words[r.IntN(len(words))]))
		}
	}
	m.Graph.Nodes = []*onnx.Node{n}
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	s, err := e.Load(m)
	if err == nil {
		defer s.Close()
		_, err = engine.Eval(s, feeds)
	}
	if err != nil && (strings.Contains(err.Error(), "kernel failed") ||
		strings.Contains(err.Error(), "was not made")) {
		t.Errorf("seed %d, opset %d, %v, %v: %v", seed, m.Opset(), feeds, n.Attrs, err)
	}
}

// attributes are those that shapes hang on, by operator, with their kinds.
var attributes = func() map[string][]string {
	window := []string{"kernel_shape:ints", "strides:ints", "dilations:ints", "pads:ints",
		"auto_pad:SAME_UPPER|SAME_LOWER|VALID|NOTSET"}
	m := map[string][]string{
		"Conv":        append([]string{"group:int"}, window...),
		"ConvInteger": append([]string{"group:int"}, window...),
		"ConvTranspose": append([]string{"group:int", "output_padding:ints", "output_shape:ints"},
			window...),
		"MaxPool":     append([]string{"ceil_mode:int", "storage_order:int"}, window...),
		"AveragePool": append([]string{"ceil_mode:int", "count_include_pad:int"}, window...),
		"LpPool":      append([]string{"p:int"}, window...),
		"Slice":       {"starts:ints", "ends:ints", "axes:ints"},
		"Pad":         {"pads:ints", "mode:constant|reflect|edge|wrap"}, "Transpose": {"perm:ints"},
		"Squeeze": {"axes:ints"}, "Unsqueeze": {"axes:ints"},
		"Reshape": {"shape:ints", "allowzero:int"},
		"Split":   {"axis:int", "split:ints", "num_outputs:int"},
		"Gemm":    {"transA:int", "transB:int"}, "Cast": {"to:int"},
		"Resize": {"mode:nearest|linear|cubic", "axes:ints",
			"coordinate_transformation_mode:align_corners|asymmetric|tf_crop_and_resize"},
		"Upsample":     {"mode:nearest|linear"},
		"Einsum":       {"equation:ij,jk->ik|ii->i|...i->...|i,i|ij->ji|a...,...b->ab..."},
		"Shape":        {"start:int", "end:int"},
		"DepthToSpace": {"blocksize:int", "mode:DCR|CRD"}, "SpaceToDepth": {"blocksize:int"},
		"LRN":                {"size:int"},
		"GroupNormalization": {"num_groups:int"},
		"GatherND":           {"batch_dims:int"}, "EyeLike": {"k:int", "dtype:int"},
		"Constant": {"value_int:int", "value_ints:ints"},
		"TopK":     {"axis:int", "k:int"},
		"BitShift": {"direction:LEFT|RIGHT"}, "ScatterElements": {"axis:int", "reduction:add|mul|max"},
		"ScatterND":                 {"reduction:add|mul|max"},
		"ReverseSequence":           {"time_axis:int", "batch_axis:int"},
		"NegativeLogLikelihoodLoss": {"reduction:none|sum|mean", "ignore_index:int"},
		"SoftmaxCrossEntropyLoss":   {"reduction:none|sum|mean", "ignore_index:int"},
	}
	for _, op := range kernel.Ops() {
		switch {
		case m[op] != nil:
		case strings.HasPrefix(op, "Reduce"):
			m[op] = []string{"axes:ints", "keepdims:int", "noop_with_empty_axes:int"}
		default:
			m[op] = []string{"axis:int"}
		}
	}
	return m
}()
