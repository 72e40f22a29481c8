// Package engine runs ONNX models behind one interface, so that code that holds a model need not
// know the engine: onnx/engine/ort is the stock ONNX Runtime, onnx/engine/pure is Go alone.
package engine

import (
	"context"
	"fmt"

	"fmp/onnx"
)

// Engine makes sessions.
type Engine interface {
	// Name is the name that settings and output use: "ort" or "pure".
	Name() string
	// Load prepares a model for running. It refuses nodes that the engine cannot run, by node and
	// operator.
	Load(m *onnx.Model) (Session, error)
	// Close releases the engine's resources; its sessions are closed first by their owners.
	Close() error
}

// Identity is the name of an engine and all else that its results depend on, to the bit, as far as
// it says so by a method of this name.
func Identity(e Engine) string {
	if i, ok := e.(interface{ Identity() string }); ok {
		return i.Identity()
	}
	return e.Name()
}

// Session is a model ready to run. It is not safe for concurrent use unless its engine says so.
type Session interface {
	// Inputs and Outputs describe the model's own, in its order.
	Inputs() []onnx.ValueInfo
	Outputs() []onnx.ValueInfo
	// Run evaluates the outputs named in fetch from feeds, which must name every input. When ctx is
	// done the run ends, at the next node or turn of a loop, with an error that wraps the context's
	// cause. A non-nil tensor in fetch has its data overwritten in place and must have the output's
	// type and shape; a nil one is replaced in the map by a new tensor. Feeding and fetching
	// tensors of the same backing arrays call after call costs no copy. A tensor must not be both
	// fed and fetched in one call.
	Run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) error
	Close() error
}

// Options are the settings of an engine (design: settings engine.*).
type Options struct {
	// Threads is the number of threads of one operator; 0 means as many as there are cores.
	Threads int
	// Reproducible has products, convolutions and all that is made of single operations give the
	// same bits on every processor, more slowly. Functions such as exp are as the processor's
	// library has them. Pure alone has it.
	Reproducible bool
	// Flush has numbers below the normal range of float32, 1.2e-38, count as zeros, so that they
	// take no longer than others, where the processor can: amd64 and arm64. Pure alone has it.
	Flush bool
	// Bytes bounds the memory of a session's intermediate values, those kept for the next run
	// included; 0 is the engine's own bound, 8 GiB for pure. The ONNX Runtime has none.
	Bytes int64
}

// Limits bound a run of a model; 0 is no limit. Package cost holds a model to them before it runs.
type Limits struct {
	Work  float64 // multiply-adds for each item of the inputs' first axis
	Bytes int64   // of the values that are alive at once
}

// Stopped returns the error of a run that ctx ended, nil where it has not.
func Stopped(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the run was stopped: %w", context.Cause(ctx))
}

// Eval is Run with new tensors for the named outputs (all of them where none is named), under the
// context of its engine ([Under]) alone.
func Eval(s Session, feeds map[string]*onnx.Tensor,
	outputs ...string) (map[string]*onnx.Tensor, error) {
	fetch := map[string]*onnx.Tensor{}
	for _, o := range outputs {
		fetch[o] = nil
	}
	if len(outputs) == 0 {
		for _, o := range s.Outputs() {
			fetch[o.Name] = nil
		}
	}
	if err := s.Run(context.Background(), feeds, fetch); err != nil {
		return nil, err
	}
	return fetch, nil
}
