// Command gomlx times a model on GoMLX's engine in Go, beside fmp onnx bench of the same file:
//
//	go run . MODEL.onnx
//
// Free axes of the model's input are 1. Times are processor times of one thread, in ms.
package main

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/gomlx/gomlx/backends"
	_ "github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/onnx-gomlx/onnx"
)

const runs = 7

func main() {
	if err := measure(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gomlx:", err)
		os.Exit(1)
	}
}

func measure(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give one model of one float32 input")
	}
	m, err := onnx.ReadFile(args[0])
	if err != nil {
		return err
	}
	names, shapes := m.Inputs()
	ctx := context.New()
	if err := m.VariablesToContext(ctx); err != nil {
		return err
	}
	backend, err := backends.NewWithConfig("go:parallelism=1")
	if err != nil {
		return err
	}
	e, err := context.NewExec(backend, ctx.Reuse(),
		func(ctx *context.Context, x *graph.Node) *graph.Node {
			return m.CallGraph(ctx, x.Graph(), map[string]*graph.Node{names[0]: x})[0]
		})
	if err != nil {
		return err
	}
	n, dims := 1, []int{}
	for _, d := range shapes[0].Dimensions {
		dims = append(dims, max(d, 1))
		n *= max(d, 1)
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i%13)/13 - .5
	}
	input := tensors.FromFlatDataAndDimensions(x, dims...)
	var took []float64
	for range runs {
		start := processor()
		if _, err := e.Exec(input); err != nil {
			return err
		}
		took = append(took, processor()-start)
	}
	slices.Sort(took)
	fmt.Printf("%d runs on %v: least %.1f ms, median %.1f ms\n", runs, dims, took[0], took[runs/2])
	return nil
}

// processor returns the processor time of this program in ms.
func processor() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e6
}
