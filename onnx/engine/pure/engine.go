package pure

import (
	"cmp"
	"fmt"
	"runtime"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/internal/kernel"
	"fmp/onnx/internal/mapped"
)

// MaxThreads is the largest number of threads that Options may ask for.
const MaxThreads = 1024

func init() { engine.Register("pure", New) }

type pureEngine struct {
	opts    engine.Options
	threads int
}

// New makes the engine. Options.Threads is the number of threads of one operator (0: as many as
// there are cores). Options out of range are an error, and nothing is started.
func New(o engine.Options) (engine.Engine, error) {
	if o.Threads < 0 || o.Threads > MaxThreads {
		return nil, fmt.Errorf("engine pure: threads %d; allowed are 0 (all cores) to %d",
			o.Threads, MaxThreads)
	}
	if o.Bytes < 0 {
		return nil, fmt.Errorf("engine pure: memory of %d bytes; allowed are 0 (no bound) and up",
			o.Bytes)
	}
	n := cmp.Or(o.Threads, runtime.GOMAXPROCS(0))
	return &pureEngine{opts: o, threads: n}, nil
}

// Name is the one that the engine is registered by.
func (e *pureEngine) Name() string { return "pure" }

// Close has nothing to give back: memory is the sessions'.
func (e *pureEngine) Close() error { return nil }

// Load plans a model's run; the error is an [*UnsupportedError] where a node cannot be run. The
// model's initializers are used in place, and weights of products laid out beside them at the first
// run, which takes as much memory again, or twice that for 3x3 convolutions, within the model's
// [onnx.Budget]: they must not change while the session lives.
func (e *pureEngine) Load(m *onnx.Model) (engine.Session, error) {
	p, err := compile(m, e.opts.Reproducible)
	if err != nil {
		return nil, fmt.Errorf("engine pure: %w", err)
	}
	env := &kernel.Env{Pool: &kernel.Pool{Most: e.opts.Bytes}, Threads: e.threads,
		Reproducible: e.opts.Reproducible, Flush: e.opts.Flush}
	return &session{frame: newFrame(p, env), turn: make(chan struct{}, 1),
		files: mapped.Of(m.Graph)}, nil
}
