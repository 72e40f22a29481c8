package cost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/inspect"
	"fmp/onnx/must"
)

// bombs are small models of [n, 4] that take much memory or work.
var bombs = map[string]struct {
	make func(b *build.Builder, x build.Ref) build.Ref
	want string
}{
	"many tensors": {func(b *build.Builder, x build.Ref) build.Ref {
		var all []build.Ref
		for range 40 {
			all = append(all, b.Op("Expand", []build.Ref{x, b.Axes(1, 10_000_000, 4)}))
		}
		y := all[0]
		for _, v := range all[1:] {
			y = b.Add(y, v)
		}
		return b.ReduceSum(y, false, 1)
	}, "MiB of memory"},
	"one product": {func(b *build.Builder, x build.Ref) build.Ref {
		y := filled(b, x, 12_000, 12_000)
		return b.Add(x, b.ReduceSum(b.MatMul(y, y), false, 0, 1))
	}, "multiply-adds"},
	"a product of integers": {func(b *build.Builder, x build.Ref) build.Ref {
		y := b.Op("Expand", []build.Ref{b.Cast(b.ReduceSum(x, false, 0, 1), onnx.Int64),
			b.Axes(8_000, 8_000)})
		return b.Add(x, b.Cast(b.ReduceSum(b.MatMul(y, y), false, 0, 1), onnx.Float32))
	}, "multiply-adds"},
	"Gemm": {func(b *build.Builder, x build.Ref) build.Ref {
		y := filled(b, x, 11_000, 11_000)
		return b.Add(x, b.ReduceSum(b.Op("Gemm", []build.Ref{y, y}, onnx.BoolAttr("transA", true)), false, 0, 1))
	}, "multiply-adds"},
	"Einsum": {func(b *build.Builder, x build.Ref) build.Ref {
		y := filled(b, x, 2000)
		return b.Add(x, b.Op("Einsum", []build.Ref{y, y, y, y}, onnx.StrAttr("equation", "a,b,c,d->")))
	}, "multiply-adds"},
	"Einsum with an ellipsis": {func(b *build.Builder, x build.Ref) build.Ref {
		y := filled(b, x, 300, 10_000)
		return b.Add(x, b.ReduceSum(b.Op("Einsum", []build.Ref{y, y, y},
			onnx.StrAttr("equation", "...a,...b,...c->...")), false, 0))
	}, "multiply-adds"},
	"a convolution": {func(b *build.Builder, x build.Ref) build.Ref {
		y := filled(b, x, 1, 1, 4000, 4000)
		w := b.Op("Expand", []build.Ref{b.F32(1), b.Axes(1, 1, 301, 301)})
		return b.Add(x, b.ReduceSum(b.Op("Conv", []build.Ref{y, w}), false, 0, 1, 2, 3))
	}, "multiply-adds"},
	"pooling": {func(b *build.Builder, x build.Ref) build.Ref {
		y := filled(b, x, 1, 1, 6000, 6000)
		return b.Add(x, b.ReduceSum(b.Op("MaxPool", []build.Ref{y},
			onnx.IntsAttr("kernel_shape", 901, 901)), false, 0, 1, 2, 3))
	}, "multiply-adds"},
	"Tile": {func(b *build.Builder, x build.Ref) build.Ref {
		return b.Add(x, b.ReduceSum(b.Op("Tile", []build.Ref{x, b.Axes(1, 400_000_000)}), true, 1))
	}, "MiB of memory"},
	"ConstantOfShape": {func(b *build.Builder, x build.Ref) build.Ref {
		return b.Add(x, b.ReduceSum(b.Op("ConstantOfShape", []build.Ref{b.Axes(1, 2_000_000_000)}), true, 1))
	}, "MiB of memory"},
	"Range": {func(b *build.Builder, x build.Ref) build.Ref {
		i := func(v int64) build.Ref { return b.Const(onnx.Scalar(v)) }
		return b.Add(x, b.Cast(b.ReduceSum(b.Op("Range", []build.Ref{i(0), i(2_000_000_000), i(1)}), true,
			0), onnx.Float32))
	}, "MiB of memory"},
	"a size that an image gives": {func(b *build.Builder, x build.Ref) build.Ref {
		n := b.Cast(b.Unsqueeze(b.ReduceSum(x, false, 0, 1), 0), onnx.Int64)
		return b.Add(x, b.ReduceSum(b.Op("ConstantOfShape", []build.Ref{n}), true, 0))
	}, "cannot be told before it runs"},
	"a deep chain": {func(b *build.Builder, x build.Ref) build.Ref {
		y := filled(b, x, 100_000_000)
		for range 3000 {
			y = b.Op("Neg", []build.Ref{y})
		}
		return b.Add(x, b.ReduceSum(y, true, 0))
	}, "multiply-adds"},
	"resizing": {func(b *build.Builder, x build.Ref) build.Ref {
		y := b.Unsqueeze(b.Unsqueeze(x, 0), 0)
		y = b.Op("Resize", []build.Ref{y, "", b.Const(onnx.NewTensor([]float32{1, 1, 9000, 9000}, 4))},
			onnx.StrAttr("mode", "cubic"))
		return b.Add(x, b.ReduceSum(y, false, 0, 1, 2, 3))
	}, "MiB of memory"},
}

// filled is a number of x, over and over.
func filled(b *build.Builder, x build.Ref, shape ...int) build.Ref {
	return b.Op("Expand", []build.Ref{b.ReduceSum(x, false, 0, 1), b.Axes(shape...)})
}

func bomb(t *testing.T, make func(b *build.Builder, x build.Ref) build.Ref) *onnx.Model {
	t.Helper()
	b := build.New("bomb")
	x := b.Input("x", onnx.Float32, "n", 4)
	b.Output("y", make(b, x))
	return must.Get(b.Model())(t)
}

// TestBombs: models that take more than the limits of foreign ones are refused when they are
// loaded, at once and by the node.
func TestBombs(t *testing.T) {
	e := must.Get(pure.New(engine.Options{Threads: 1, Bytes: Foreign.Bytes}))(t)
	for name, c := range bombs {
		t.Run(name, func(t *testing.T) {
			m, start := bomb(t, c.make), time.Now()
			_, err := Bounded(e, Foreign).Load(m)
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "node ") && !strings.Contains(err.Error(), "shape") {
				t.Errorf("error %v; want one of %q", err, c.want)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("it took %v to refuse", took)
			}
		})
	}
}

// TestBatchBomb: a model that is cheap for one item and dear for two is refused at two.
func TestBatchBomb(t *testing.T) {
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	m := bomb(t, func(b *build.Builder, x build.Ref) build.Ref {
		n := b.Slice(b.Op("Shape", []build.Ref{x}), 0, 0, 1)
		for range 5 {
			n = b.Mul(n, n) // n^32
		}
		return b.Add(x, b.ReduceSum(
			b.Op("ConstantOfShape", []build.Ref{b.Op("Min", []build.Ref{n, b.Axes(2_000_000_000)})}), true,
			0))
	})
	s := must.Get(Bounded(e, Foreign).Load(m))(t)
	for n, want := range map[int]bool{1: true, 2: false} {
		_, err := engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.ZerosF32(n, 4)})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "the model is not run") {
			t.Errorf("%d items: error %v", n, err)
		}
	}
}

// TestCost: the cost of known runs, and no less than the operations that package inspect counts, by
// rules of its own.
func TestCost(t *testing.T) {
	b := build.New("m")
	x := b.Input("x", onnx.Float32, "n", 3, 8, 8)
	h := b.Op("Conv", []build.Ref{x, b.Param("w", onnx.ZerosF32(16, 3, 3, 3))},
		onnx.IntsAttr("pads", 1, 1, 1, 1))
	h = b.Relu(h)
	b.Output("y", b.MatMul(b.Reshape(h, 0, -1), b.Param("v", onnx.ZerosF32(1024, 10))))
	m := must.Get(b.Model())(t)
	for _, n := range []int{1, 5} {
		c := must.Get(Estimate(m, map[string][]int{"x": {n, 3, 8, 8}}))(t)
		s := must.Get(inspect.Stats(m, map[string]int{"n": n}))(t)
		if c.Work < s.FLOPs/2 || c.Work > s.FLOPs || c.Hardest.Op != "Conv" {
			t.Errorf("%d items: %v multiply-adds, most in %s; %v operations are counted", n, c.Work,
				c.Hardest.Op, s.FLOPs)
		}
		// input and output of Relu, or of Reshape
		if want := float64(n * 4 * 2 * 1024); c.Bytes != want {
			t.Errorf("%d items: %v bytes at %s; want %v", n, c.Bytes, c.Largest.Op, want)
		}
	}
	must.Do(t, (Cost{}).Check(Foreign))
}

// TestStopsWithinAKernel: a product that takes many seconds ends with its context.
func TestStopsWithinAKernel(t *testing.T) {
	for _, d := range []onnx.DType{onnx.Float32, onnx.Int64} {
		for _, batch := range []int{1, 3} {
			t.Run(fmt.Sprint(d, batch), func(t *testing.T) {
				b := build.New("m")
				y := b.Op("Expand", []build.Ref{b.Cast(b.Input("x", onnx.Float32), d),
					b.Axes(batch, 6000, 6000)})
				b.Output("y", b.ReduceSum(b.MatMul(y, y), false, 0, 1, 2))
				m := must.Get(b.Model())(t)
				ctx, cancel := context.WithCancelCause(context.Background())
				e := must.Get(pure.New(engine.Options{Threads: 1, Reproducible: true}))(t)
				s := must.Get(engine.Under(ctx, e).Load(m))(t)
				enough := errors.New("enough")
				start := spent()
				time.AfterFunc(time.Second, func() { cancel(enough) })
				if _, err := engine.Eval(s,
					map[string]*onnx.Tensor{"x": onnx.Scalar[float32](1)}); !errors.Is(err, enough) {
					t.Errorf("the run ended with %v", err)
				}
				if took := spent() - start; took > 5*time.Second {
					t.Errorf("it ended after %v", took)
				}
			})
		}
	}
}

// TestMemory: the engine's own bound holds whatever was told beforehand.
func TestMemory(t *testing.T) {
	m := bomb(t, bombs["a size that an image gives"].make)
	e := must.Get(pure.New(engine.Options{Threads: 1, Bytes: 1 << 20}))(t)
	s := must.Get(e.Load(m))(t)
	for size, want := range map[float32]bool{50_000: true, 300_000: false} {
		x := onnx.NewTensor([]float32{size, 0, 0, 0}, 1, 4)
		if _, err := engine.Eval(s, map[string]*onnx.Tensor{"x": x}); (err == nil) != want {
			t.Errorf("%v numbers: error %v", size, err)
		}
	}
}
