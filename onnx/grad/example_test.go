package grad_test

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/grad"
)

// The gradient of y = tanh(x w) with respect to x and w, as a model that any engine runs.
func ExampleBuild() {
	b := build.New("layer")
	x := b.Input("x", onnx.Float32, "batch", 2)
	w := b.Param("w", onnx.NewTensor([]float32{1, 0.5}, 2, 1))
	b.Output("y", b.Op("Tanh", []build.Ref{b.MatMul(x, w)}))
	m, err := b.Model() // or serde.Load("model.onnx"): anybody's model will do
	if err != nil {
		fmt.Println(err)
		return
	}

	g, err := grad.Build(m, grad.Options{Outputs: []string{"y"}, WRT: []string{"x", "w"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, in := range g.Graph.Inputs {
		fmt.Println("in: ", in)
	}
	for _, out := range g.Graph.Outputs {
		fmt.Println("out:", out)
	}

	// serde.Save("grad.onnx", g) would write it for any ONNX Runtime. Here it runs on the pure Go
	// engine.
	eng, err := pure.New(engine.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer eng.Close()
	s, err := eng.Load(g)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	out, err := engine.Eval(s, map[string]*onnx.Tensor{
		"x":      onnx.NewTensor([]float32{1, -2, 0.5, 0}, 2, 2),
		"grad_y": onnx.NewTensor([]float32{1, 1}, 2, 1), // the cotangent: of the sum over the batch
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.4f\n", out["grad_w"].F32())
	fmt.Printf("%.4f\n", out["grad_x"].F32())
	// Output:
	// in:  x float32[batch,2]
	// in:  grad_y float32[batch,1]
	// out: grad_x float32[batch,2]
	// out: grad_w float32[2,1]
	// [1.3932 -2.0000]
	// [1.0000 0.5000 0.7864 0.3932]
}

// A scalar loss needs no cotangent, and training wants the parameters as inputs.
func ExampleBuild_loss() {
	b := build.New("mean square")
	x := b.Input("x", onnx.Float32, "batch", 2)
	w := b.Param("w", onnx.NewTensor([]float32{1, 0.5}, 2, 1))
	y := b.MatMul(x, w)
	b.Output("loss", b.ReduceMean(b.Mul(y, y), false, 0, 1))
	m, err := b.Model()
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := grad.Build(m, grad.Options{Outputs: []string{"loss"}, WRT: []string{"w"},
		UnitCotangent: true, ParamsAsInputs: true,
		KeepOutputs: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, in := range g.Graph.Inputs {
		fmt.Println("in: ", in)
	}
	for _, out := range g.Graph.Outputs {
		fmt.Println("out:", out)
	}
	// Output:
	// in:  x float32[batch,2]
	// in:  w float32[2,1]
	// out: loss float32[]
	// out: grad_w float32[2,1]
}

// An operator without a rule is named, with a node that uses it, before anything is built.
func ExampleSupports() {
	b := build.New("values")
	x := b.Input("x", onnx.Float32, "batch", 3)
	b.Output("y", b.Op("Unique", []build.Ref{b.Exp(x)}))
	m, err := b.Model()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(grad.Supports(m))
	// Output: node "unique": no differentiation rule for operator Unique; differentiate for values after it, or replace it in the model
}

// rosenbrock is (1 - x0)² + 100 (x1 - x0²)².
func rosenbrock() (*onnx.Model, error) {
	b := build.New("rosenbrock")
	x := b.Input("x", onnx.Float32, 2)
	x0, x1 := b.Slice(x, 0, 0, 1), b.Slice(x, 0, 1, 2)
	p, q := b.Sub(b.F32(1), x0), b.Sub(x1, b.Mul(x0, x0))
	b.Output("y", b.Add(b.Mul(p, p), b.Mul(b.F32(100), b.Mul(q, q))))
	return b.Model()
}

// show runs a model on the pure Go engine and prints one output.
func show(m *onnx.Model, output string, feeds map[string]*onnx.Tensor) {
	eng, err := pure.New(engine.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer eng.Close()
	s, err := eng.Load(m)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	out, err := engine.Eval(s, feeds)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(output, out[output].F32())
}

// How y changes where x moves in a direction.
func ExampleJVP() {
	m, err := rosenbrock()
	if err != nil {
		fmt.Println(err)
		return
	}
	j, err := grad.JVP(m, grad.Options{WRT: []string{"x"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	show(j, "jvp_y", map[string]*onnx.Tensor{"x": onnx.Vector[float32](2, 1),
		"vector_x": onnx.Vector[float32](1, 0)})
	// Output: jvp_y [2402]
}

// How the gradient changes where x moves in a direction: a column of the Hessian.
func ExampleHVP() {
	m, err := rosenbrock()
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := grad.HVP(m, grad.Options{WRT: []string{"x"}, UnitCotangent: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	show(h, "hvp_x", map[string]*onnx.Tensor{"x": onnx.Vector[float32](2, 1),
		"vector_x": onnx.Vector[float32](1, 0)})
	// Output: hvp_x [4402 -800]
}
