package ort

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// newEngine is an engine with the library that FindLibrary finds.
func newEngine(t testing.TB, opts Options) engine.Engine {
	t.Helper()
	e, err := New(opts)
	if errors.Is(err, ErrNoLibrary) {
		t.Skipf("needs the ONNX Runtime: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func open(t testing.TB, e engine.Engine, m *onnx.Model) engine.Session {
	t.Helper()
	s := must.Get(e.Load(m))(t)
	t.Cleanup(func() { must.Do(t, s.Close()) })
	return s
}

func modelOf(t testing.TB, f func(b *build.Builder)) *onnx.Model {
	t.Helper()
	b := build.New("test")
	f(b)
	return must.Get(b.Model())(t)
}

func linear(t testing.TB) *onnx.Model {
	return modelOf(t, func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, "n", 2)
		w := b.Param("w", onnx.NewTensor([]float32{1, 2, 3, 4}, 2, 2))
		b.Output("y", b.MatMul(x, w))
	})
}

// gives fails unless a session has these outputs, where the engine allocates them and in place.
func gives(t *testing.T, s engine.Session, feeds, want map[string]*onnx.Tensor) {
	t.Helper()
	if d := cmp.Diff(want, must.Get(engine.Eval(s, feeds))(t)); d != "" {
		t.Errorf("allocated (-want +got):\n%s", d)
	}
	place := map[string]*onnx.Tensor{}
	for name, v := range want {
		place[name] = must.Get(onnx.Zeros(v.DType, v.Shape...))(t)
	}
	must.Do(t, s.Run(t.Context(), feeds, place))
	if d := cmp.Diff(want, place); d != "" {
		t.Errorf("in place (-want +got):\n%s", d)
	}
}

func TestRunAllocatesOrFillsInPlace(t *testing.T) {
	s := open(t, newEngine(t, Options{Threads: 1}), linear(t))
	feeds := map[string]*onnx.Tensor{"x": onnx.NewTensor([]float32{1, 0, 0, 1, 1, 1}, 3, 2)}
	gives(t, s, feeds, map[string]*onnx.Tensor{"y": onnx.NewTensor([]float32{1, 2, 3, 4, 4, 6}, 3, 2)})
	y := onnx.ZerosF32(3, 2)
	data := y.F32()
	for i := range 5 { // the same memory, call after call
		copy(feeds["x"].F32(), []float32{1, 0, 0, 1, 1, float32(i)})
		must.Do(t, s.Run(t.Context(), feeds, map[string]*onnx.Tensor{"y": y}))
		if want := float32(1 + 3*i); data[4] != want {
			t.Errorf("call %d: in place got %v, want %v", i, data[4], want)
		}
	}
}

// Two buffers that take turns as input and output (as a trainer's parameters do) never mix.
func TestSwappedBuffers(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, 4)
		b.Output("y", b.Add(x, b.F32(1)))
	})
	s := open(t, newEngine(t, Options{Threads: 1}), m)
	x, y := onnx.ZerosF32(4), onnx.ZerosF32(4)
	for range 20 {
		must.Do(t, s.Run(t.Context(), map[string]*onnx.Tensor{"x": x}, map[string]*onnx.Tensor{"y": y}))
		x, y = y, x
	}
	if d := cmp.Diff([]float32{20, 20, 20, 20}, x.F32()); d != "" {
		t.Error(d)
	}
}

// TestDropped: a session that nobody closed is closed by the collector, which would end the program
// where it met its pinned tensors.
func TestDropped(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) { b.Output("y", b.Add(b.Input("x", onnx.Float32, 4), b.F32(1))) })
	e := newEngine(t, Options{Threads: 1})
	for range 3 {
		s := must.Get(e.Load(m))(t)
		must.Do(t, s.Run(t.Context(), map[string]*onnx.Tensor{"x": onnx.ZerosF32(4)},
			map[string]*onnx.Tensor{"y": onnx.ZerosF32(4)}))
	}
	for range 5 {
		collected := make(chan struct{})
		runtime.SetFinalizer(&struct{ x [16]byte }{}, func(*struct{ x [16]byte }) { close(collected) })
		runtime.GC()
		<-collected
	}
}

// Every element type passes through unchanged, as a scalar, a vector and an empty tensor, both
// where the engine allocates and in place.
func TestElementTypes(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	full := []*onnx.Tensor{
		onnx.Vector[float32](1, -2, float32(math.Inf(1))), onnx.Vector[float64](1, -2, 3),
		onnx.Vector[int8](1, -2, 3),
		onnx.Vector[int16](1, -2, 3), onnx.Vector[int32](1, -2, 3), onnx.Vector[int64](1, -2, 1<<40),
		onnx.Vector[uint8](1, 2, 255),
		onnx.Vector[uint16](1, 2, 65535), onnx.Vector[uint32](1, 2, 1<<31),
		onnx.Vector[uint64](1, 2, 1<<63),
		onnx.Vector(true, false, true), onnx.Vector("a", "", "längs"),
		{DType: onnx.Float16, Shape: []int{3}, Data: []uint16{0x3c00, 0x0001, 0x8400}},
		{DType: onnx.BFloat16, Shape: []int{3}, Data: []uint16{0x3f80, 0x8000, 0x7f80}},
	}
	for _, v := range full {
		t.Run(v.DType.String(), func(t *testing.T) {
			m := modelOf(t, func(b *build.Builder) {
				x := b.Input("x", v.DType, "n")
				b.Output("y", b.Op("Identity", []build.Ref{x}))
			})
			s := open(t, e, m)
			empty := must.Get(onnx.Zeros(v.DType, 0))(t)
			for _, in := range []*onnx.Tensor{v, empty} {
				gives(t, s, map[string]*onnx.Tensor{"x": in}, map[string]*onnx.Tensor{"y": in})
			}
		})
	}
}

// TestFourBits: outputs of 4 bits are fetched, of any rank.
func TestFourBits(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	for _, want := range []*onnx.Tensor{{DType: onnx.Int4, Shape: []int{2, 2}, Data: []int8{-8, 7, 0, 1}},
		{DType: onnx.Uint4, Shape: []int{2, 2}, Data: []uint8{0, 15, 8, 1}},
		{DType: onnx.Int4, Shape: []int{}, Data: []int8{-3}}} {
		x := must.Get(onnx.Zeros(onnx.Float32, want.Shape...))(t)
		for i := range x.F32() {
			x.F32()[i] = float32(want.At(i))
		}
		m := onnx.NewModel(modeltest.Graph("", "", nil,
			modeltest.Node("Cast", "x", "y", onnx.IntAttr("to", int(want.DType)))))
		shape := onnx.Shape()
		if len(want.Shape) > 0 {
			shape = onnx.Shape("n", 2)
		}
		m.Graph.Inputs = []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: shape}}
		m.Graph.Outputs = []onnx.ValueInfo{{Name: "y", DType: want.DType, Shape: shape}}
		m.Opsets[""] = 21
		got := must.Get(engine.Eval(open(t, e, m), map[string]*onnx.Tensor{"x": x}))(t)["y"]
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", want.DType, d)
		}
	}
}

func TestScalars(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) {
		x := b.Input("x", onnx.Float32)
		b.Output("y", b.Mul(x, b.F32(2)))
		b.Output("z", b.Cast(x, onnx.Int64))
	})
	s := open(t, newEngine(t, Options{Threads: 1}), m)
	for _, v := range []float32{3, 4} {
		gives(t, s, map[string]*onnx.Tensor{"x": onnx.Scalar(v)},
			map[string]*onnx.Tensor{"y": onnx.Scalar(2 * v), "z": onnx.Scalar(int64(v))})
	}
}

// Outputs that are a constant, an input passed through, or the same value twice: the ONNX Runtime
// treats each in its own way, the caller must not notice.
func TestOddOutputs(t *testing.T) {
	m := onnx.NewModel(modeltest.Graph("x:float32[n]",
		"c2:float32[2] x2:float32[n] c:float32[2] x:float32[n]",
		map[string]*onnx.Tensor{"c": onnx.Vector[float32](7, 8)},
		modeltest.Node("Identity", "c", "c2"), modeltest.Node("Identity", "x", "x2")))
	s := open(t, newEngine(t, Options{Threads: 1}), m)
	x := onnx.Vector[float32](1, 2, 3)
	want := map[string]*onnx.Tensor{"c": onnx.Vector[float32](7, 8), "c2": onnx.Vector[float32](7, 8),
		"x": x.Clone(), "x2": x.Clone()}
	gives(t, s, map[string]*onnx.Tensor{"x": x}, want)
}

func TestNoInputs(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) { b.Output("y", b.Add(b.F32(1), b.F32(2))) })
	s := open(t, newEngine(t, Options{Threads: 1}), m)
	if len(s.Inputs()) != 0 {
		t.Errorf("inputs %v, want none", s.Inputs())
	}
	gives(t, s, nil, map[string]*onnx.Tensor{"y": onnx.Scalar[float32](3)})
}

// TestDone: a run gives no results where its context is done, however short it is.
func TestDone(t *testing.T) {
	s := open(t, newEngine(t, Options{Threads: 1}), linear(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	for range 20 {
		fetch := map[string]*onnx.Tensor{"y": nil}
		err := s.Run(ctx, map[string]*onnx.Tensor{"x": onnx.ZerosF32(3, 2)}, fetch)
		if !errors.Is(err, cause) || fetch["y"] != nil {
			t.Fatalf("%v, and results %v", err, fetch["y"])
		}
	}
}

func TestRunErrors(t *testing.T) {
	s := open(t, newEngine(t, Options{Threads: 1}), linear(t))
	good := onnx.ZerosF32(3, 2)
	for _, c := range []struct {
		name         string
		feeds, fetch map[string]*onnx.Tensor
		want         string
	}{
		{"missing input", map[string]*onnx.Tensor{}, map[string]*onnx.Tensor{"y": nil},
			`"x" (float32[n,2]) is missing`},
		{"unknown input", map[string]*onnx.Tensor{"x": good, "q": good},
			map[string]*onnx.Tensor{"y": nil}, `no input "q"`},
		{"unknown output", map[string]*onnx.Tensor{"x": good}, map[string]*onnx.Tensor{"q": nil},
			`no output "q"; the outputs are "y"`},
		{"wrong type", map[string]*onnx.Tensor{"x": onnx.NewTensor(make([]float64, 2), 1, 2)}, nil,
			"float64[1 2]"},
		{"wrong width", map[string]*onnx.Tensor{"x": onnx.ZerosF32(1, 3)}, nil, "declares float32[n,2]"},
		{"wrong rank", map[string]*onnx.Tensor{"x": onnx.ZerosF32(2)}, nil, "declares float32[n,2]"},
		{"lying tensor", map[string]*onnx.Tensor{"x": {DType: onnx.Float32, Shape: []int{3, 2},
			Data: make([]float32, 5)}}, nil, "needs 6 elements"},
		{"nil tensor", map[string]*onnx.Tensor{"x": nil}, nil, "nil tensor"},
		{"fetch of another shape", map[string]*onnx.Tensor{"x": good},
			map[string]*onnx.Tensor{"y": onnx.ZerosF32(2, 2)}, "shape"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := s.Run(t.Context(), c.feeds, c.fetch)
			must.Fail(err)(t, c.want)
			must.Fail(err)(t, `model "test"`)
		})
	}
}

// The ONNX Runtime gives a scalar where inference says [1 0]: an error, and no value that a caller
// could take.
func TestUnexpectedScalar(t *testing.T) {
	m := onnx.NewModel(modeltest.Graph("x:float32[1,0]", "y", nil, modeltest.Node("ReduceSumSquare",
		"x", "y", onnx.IntAttr("keepdims", 0), onnx.IntAttr("noop_with_empty_axes", 1))))
	m.Opsets[""] = 18
	s := open(t, newEngine(t, Options{Threads: 1}), m)
	must.Fail(engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.ZerosF32(1, 0)}))(t, "no dimensions")
}

// What the ONNX Runtime says when a node fails comes as one line, with the node and without a place
// in its C++ source.
func TestErrorsOfNodes(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, "n")
		b.Output("y", b.Op("Reshape", []build.Ref{x, b.Input("shape", onnx.Int64, 2)}))
	})
	s := open(t, newEngine(t, Options{Threads: 1}), m)
	_, err := engine.Eval(s,
		map[string]*onnx.Tensor{"x": onnx.ZerosF32(6), "shape": onnx.Vector[int64](4, 4)})
	if err == nil || !strings.Contains(err.Error(), "Reshape") ||
		!strings.Contains(err.Error(), "{4,4}") ||
		strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "onnxruntime::") {
		t.Errorf("got %v", err)
	}
}

func TestLoadErrors(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	m := linear(t)
	m.Graph.Nodes[0].Op = "NoSuchOperator"
	for _, want := range []string{"NoSuchOperator", `model "test"`} {
		must.Fail(e.Load(m))(t, want)
	}
	must.Fail(e.Load(nil))(t, "", "a nil model was loaded")
	s := must.Get(e.Load(linear(t)))(t)
	for range 2 { // closing twice is harmless
		must.Do(t, s.Close())
	}
	must.Fail(s.Run(t.Context(), nil, nil))(t, "closed")
}

func TestNewErrors(t *testing.T) {
	newEngine(t, Options{})
	for _, c := range []struct {
		opts Options
		want string
	}{
		{Options{Threads: -1}, "engine.threads is -1"},
		{Options{Provider: "tpu"}, `engine.provider is "tpu"; allowed are cpu`},
		{Options{Library: filepath.Join(t.TempDir(), "gone.so")}, "engine.library"},
		{Options{Library: touch(t, filepath.Join(t.TempDir(), "other.so"))}, "already loaded"},
	} {
		must.Fail(New(c.opts))(t, c.want, c.opts)
	}
}

// A file that is no library gives an error with its path and what to do, and does not stand in the
// way of a good one. The library is loaded once per process, so this runs in a process of its own.
func TestBadLibrary(t *testing.T) {
	const mark = "FMP_TEST_BAD_LIBRARY"
	bad := os.Getenv(mark)
	if bad == "" {
		newEngine(t, Options{}) // skips where there is none
		cmd := exec.Command(os.Args[0], "-test.run=^TestBadLibrary$", "-test.v")
		cmd.Env = append(os.Environ(), mark+"="+touch(t, filepath.Join(t.TempDir(), "bad.so")))
		if out, err := cmd.CombinedOutput(); err != nil ||
			!strings.Contains(string(out), "--- PASS: TestBadLibrary") {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	if Version() != "" || Providers() != nil {
		t.Errorf("version %q and providers %v before a library was loaded", Version(), Providers())
	}
	for _, want := range []string{bad, "fmp setup"} {
		must.Fail(New(Options{Library: bad}))(t, want)
	}
	newEngine(t, Options{})
}

func TestProviders(t *testing.T) {
	newEngine(t, Options{})
	if Version() == "" {
		t.Error("no version of a loaded library")
	}
	for _, p := range Providers() {
		_, err := New(Options{Provider: p.Name})
		if (err == nil) != p.Works {
			t.Errorf("provider %+v, but an engine with it gives %v", p, err)
		}
		if p.Name == "cpu" && !p.Works || !p.Works && p.Why == "" {
			t.Errorf("provider %+v", p)
		}
	}
}

// Goroutines share a session, each with memory of its own. Run with -race.
func TestConcurrentRuns(t *testing.T) {
	s := open(t, newEngine(t, Options{Threads: 2}), linear(t))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			y := onnx.ZerosF32(3, 2)
			for range 200 {
				x := onnx.ZerosF32(3, 2)
				for i := range x.F32() {
					x.F32()[i] = float32(r.IntN(100))
				}
				fetch := map[string]*onnx.Tensor{"y": y}
				if g%2 == 0 {
					fetch["y"] = nil
				}
				if err := s.Run(t.Context(), map[string]*onnx.Tensor{"x": x}, fetch); err != nil {
					t.Error(err)
					return
				}
				for i := range 3 {
					a, b := x.F32()[2*i], x.F32()[2*i+1]
					if got, want := fetch["y"].F32()[2*i], a+3*b; got != want {
						t.Errorf("goroutine %d: got %v, want %v", g, got, want)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestFloat16Bits: every binary16 number and NaN is recovered from its float32 form, and no NaN
// becomes a number.
func TestFloat16Bits(t *testing.T) {
	for h := range 1 << 16 {
		v := onnx.HalfToFloat32(onnx.Float16, uint16(h))
		if got := float16bits(v); got != uint16(h) {
			t.Fatalf("float16bits(%v) = %#04x, want %#04x", v, got, h)
		}
	}
	if got := float16bits(math.Float32frombits(0x7f800001)); got != 0x7c01 {
		t.Errorf("NaN became %#04x", got)
	}
}

// With one thread an operator, goroutines that share a session change not a single bit of its
// results.
func TestGoroutinesDoNotChangeResults(t *testing.T) {
	if testing.Short() {
		t.Skip("runs models of some size")
	}
	e := newEngine(t, Options{Threads: 1})
	for _, m := range parallelCases(t) {
		t.Run(m.Graph.Name, func(t *testing.T) {
			s := open(t, e, m)
			feeds := modeltest.Feeds(t, m, rand.New(rand.NewPCG(3, 4)), 0)
			want := must.Get(engine.Eval(s, feeds))(t)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					got, err := engine.Eval(s, feeds)
					if err != nil {
						t.Error(err)
						return
					}
					for name := range want {
						if !slices.EqualFunc(want[name].F32(), got[name].F32(), sameBits) {
							t.Errorf("%s differs", name)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// parallelCases are the operators with sums inside, in the sizes that our models use and some odd
// ones.
func parallelCases(t *testing.T) (cs []*onnx.Model) {
	type dims = [][]int
	add := func(op string, inputs, params dims, attrs ...onnx.Attr) {
		b := build.New(fmt.Sprint(op, inputs, params, attrs))
		var in []build.Ref
		for i, shape := range inputs {
			known := make([]any, len(shape))
			for k, d := range shape {
				known[k] = d
			}
			in = append(in, b.Input(fmt.Sprint("x", i), onnx.Float32, known...))
		}
		for i, shape := range params {
			w := modeltest.Normal(rand.New(rand.NewPCG(5, 6)), 1, shape...)
			in = append(in, b.Param(fmt.Sprint("w", i), w))
		}
		b.Output("y", b.Op(op, in, attrs...))
		cs = append(cs, must.Get(b.Model())(t))
	}
	I, Is := onnx.IntAttr, onnx.IntsAttr
	for _, s := range [][3]int{{1, 64, 10}, {7, 33, 5}, {200, 74, 128}, {257, 1000, 65},
		{2000, 576, 64}, {3, 70000, 2}, {1, 4096, 1}} {
		x, w := []int{s[0], s[1]}, []int{s[1], s[2]}
		add("MatMul", dims{x}, dims{w})
		add("MatMul", dims{x, w}, nil)
		add("Gemm", dims{{s[1], s[0]}, {s[2], s[1]}, {s[2]}}, nil, I("transA", 1), I("transB", 1))
	}
	add("MatMul", dims{{5, 200, 74}, {5, 74, 100}}, nil)
	for _, s := range []struct{ n, cin, cout, hw, k, stride, group int }{
		{1, 1, 8, 28, 3, 1, 1}, {50, 3, 32, 32, 3, 1, 1}, {50, 32, 64, 16, 3, 2, 1},
		{8, 64, 64, 8, 3, 1, 1}, {2, 64, 128, 16, 1, 2, 1},
		{3, 32, 32, 9, 3, 1, 32}, {1, 16, 5, 13, 5, 1, 1},
	} {
		attrs := []onnx.Attr{Is("strides", s.stride, s.stride), I("group", s.group),
			Is("pads", s.k/2, s.k/2, s.k/2, s.k/2)}
		x, w := []int{s.n, s.cin, s.hw, s.hw}, []int{s.cout, s.cin / s.group, s.k, s.k}
		add("Conv", dims{x}, dims{w}, attrs...)
		add("Conv", dims{x, w}, nil, attrs...)
		add("GlobalAveragePool", dims{{s.n, s.cout, s.hw, s.hw}}, nil)
	}
	large := dims{{37, 129, 300}}
	for _, axes := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}} {
		for _, op := range []string{"ReduceMean", "ReduceSumSquare", "ReduceL2", "ReduceLogSumExp", "ReduceMax"} {
			add(op, large, nil, Is("axes", axes...), I("keepdims", 1))
		}
		cs = append(cs, modelOf(t, func(b *build.Builder) {
			b.Output("y", b.ReduceSum(b.Input("x", onnx.Float32, 37, 129, 300), true, axes...))
		}))
	}
	add("Softmax", dims{{40, 30, 201}}, nil, I("axis", -1))
	add("Softmax", dims{{40, 30, 201}}, nil, I("axis", 1))
	add("LayerNormalization", dims{{500, 133}}, dims{{133}, {133}})
	add("Einsum", dims{{4, 60, 90}, {4, 50, 90}}, nil, onnx.StrAttr("equation", "bij,bkj->bik"))
	add("ConvTranspose", dims{{5, 16, 14, 14}}, dims{{16, 8, 3, 3}})
	add("AveragePool", dims{{50, 32, 28, 28}}, nil, Is("kernel_shape", 2, 2), Is("strides", 2, 2))
	for _, op := range []string{"Erf", "Exp", "Tanh", "Sigmoid"} {
		add(op, dims{{100003}}, nil)
	}
	return cs
}

// A file of a few hundred bytes that names a product of huge constants is loaded at once: the
// runtime would work it out.
func TestLoadLeavesHeavyConstantsToTheRun(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	m := modelOf(t, func(b *build.Builder) {
		c := b.Op("ConstantOfShape", []build.Ref{b.Axes(16000, 16000)})
		b.Output("y", b.Add(b.Input("x", onnx.Float32, 1), b.ReduceSum(b.MatMul(c, c), false, 0, 1)))
	})
	start := time.Now()
	s := must.Get(e.Load(m))(t)
	must.Do(t, s.Close())
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("loading took %v", took)
	}
}
