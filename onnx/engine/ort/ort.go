// Package ort runs ONNX models on the stock ONNX Runtime, a shared library that is found and loaded
// when the first engine is made ([FindLibrary]); building a program with this package needs a C
// compiler and not the library.
//
// Sessions may be run from several goroutines at once.
//
// The number of threads of one operator (Options.Threads) can change the last bits of a result: the
// ONNX Runtime cuts long sums where the share of a thread ends (seen in MatMul of two computed
// matrices with more columns than rows and an inner size over 128, and in Conv with a computed
// kernel). Where figures must be the same for any number of threads, set Threads to 1 and call Run
// from several goroutines, each with its own part of the work.
//
// Tensors are handed over without a copy: the
// ONNX Runtime reads fed ones, and writes those fetched in place, in their Go memory.
package ort

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	ortgo "github.com/yalue/onnxruntime_go"
	"golang.org/x/sys/cpu"

	"fmp/onnx"
	"fmp/onnx/engine"
)

// The library is loaded once per process and stays: unloading it while sessions live would crash.
var (
	envMu      sync.Mutex
	envLibrary string // resolved path of the loaded library
)

// Options are the settings of the engine.
type Options struct {
	// Threads is the number of threads of one operator; 0 means as many as there are cores.
	Threads int
	// Provider is the execution provider: "cpu" (default), "cuda", "coreml", "dml".
	Provider string
	// Library is the path of the shared library; "" searches ([FindLibrary]).
	Library string
}

// The package's import lets others open it by name.
func init() {
	engine.Register("ort", func(o engine.Options) (engine.Engine, error) {
		if o.Reproducible || o.Flush || o.Bytes != 0 {
			return nil, errors.New("engine ort: its sums are in the processor's own order, numbers below " +
				"the normal range are kept, and its memory has no bound; engine pure has all three")
		}
		return New(Options{Threads: o.Threads})
	})
}

// Engine is an [engine.Engine] on the ONNX Runtime.
type Engine struct {
	opts    Options
	library string
}

var _ engine.Engine = (*Engine)(nil)

// New loads the library, the first time, and checks the options. A library that is not found gives
// an error that wraps [ErrNoLibrary]; a second library in one process, an unknown or unavailable
// execution provider and a negative number of threads are errors too.
func New(opts Options) (engine.Engine, error) {
	if opts.Threads < 0 {
		return nil, fmt.Errorf("engine.threads is %d; allowed are 0 (as many as there are cores) and up",
			opts.Threads)
	}
	lib, _, err := FindLibrary(opts.Library)
	if err != nil {
		return nil, err
	}
	if err := load(lib); err != nil {
		return nil, err
	}
	e := &Engine{opts: opts, library: lib}
	so, err := e.sessionOptions(false)
	if err != nil {
		return nil, err
	}
	return e, so.Destroy()
}

// load starts the ONNX Runtime from the library at path, unless that was done before.
func load(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoLibrary, path, err)
	}
	if real, err = filepath.Abs(real); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoLibrary, path, err)
	}
	envMu.Lock()
	defer envMu.Unlock()
	if envLibrary != "" {
		if envLibrary != real {
			return fmt.Errorf(
				"the ONNX Runtime is already loaded from %s; one process cannot load a second one from %s",
				envLibrary, real)
		}
		return nil
	}
	if err := checkCached(path, real); err != nil {
		return err
	}
	ortgo.SetSharedLibraryPath(real)
	// Everything that the ONNX Runtime logs as an error comes back as an error of the call as well.
	if err := ortgo.InitializeEnvironment(ortgo.WithLogLevelFatal()); err != nil {
		return fmt.Errorf("loading the ONNX Runtime from %s: %w; it must be a library of version %s or "+
			"later for %s/%s (`fmp setup` fetches %s)", real, err, MinVersion, runtime.GOOS,
			runtime.GOARCH, PinnedVersion)
	}
	if err := ortgo.DisableTelemetry(); err != nil {
		return fmt.Errorf("switching the ONNX Runtime's telemetry off: %w", err)
	}
	if err := numberTypes(); err != nil {
		return err
	}
	envLibrary = real
	return nil
}

// Version returns the version of the loaded library, "" before an engine was made.
func Version() string {
	envMu.Lock()
	defer envMu.Unlock()
	if envLibrary == "" {
		return ""
	}
	return ortgo.GetVersion()
}

// Name returns "ort".
func (e *Engine) Name() string { return "ort" }

// Identity returns the name, the library's version and the execution provider.
func (e *Engine) Identity() string {
	return fmt.Sprintf("ort %s %s", Version(), cmp.Or(e.opts.Provider, "cpu"))
}

// Library returns the path of the library in use.
func (e *Engine) Library() string { return e.library }

// Close does nothing: the library stays loaded for the life of the process.
func (e *Engine) Close() error { return nil }

// threads is how many threads an operator may use.
func (e *Engine) threads() int {
	if e.opts.Threads > 0 {
		return e.opts.Threads
	}
	return runtime.GOMAXPROCS(0) // what a container allows, where that is less than the machine has
}

// sessionOptions makes the options of one session; the caller destroys them. A lazy one leaves
// constants to the run.
func (e *Engine) sessionOptions(lazy bool) (so *ortgo.SessionOptions, err error) {
	if so, err = ortgo.NewSessionOptions(); err != nil {
		return nil, fmt.Errorf("session options: %w", err)
	}
	defer func() {
		if err != nil {
			so.Destroy()
			so = nil
		}
	}()
	for _, set := range []func() error{
		func() error { return so.SetIntraOpNumThreads(e.threads()) },
		func() error { return so.SetInterOpNumThreads(1) },
		func() error { return so.SetExecutionMode(ortgo.ExecutionModeSequential) },
		func() error { return so.SetLogSeverityLevel(ortgo.LoggingLevelFatal) },
		// Threads that wait in a loop would take the cores from the Go code between two calls.
		func() error { return so.AddSessionConfigEntry("session.intra_op.allow_spinning", "0") },
		// Products of float32 by weights of 8 or 4 bits stay products of float32: by itself the
		// runtime rounds the other factor to bytes (MatMulNBits, accuracy level 4).
		func() error { return so.AddSessionConfigEntry("session.qdq_matmulnbits_accuracy_level", "1") },
		// Without VNNI the runtime adds two products of a uint8 and an int8 in 16 bits, and
		// saturates them, unless it is told to be right. With VNNI it is right by itself, and twice
		// as fast where it is not told.
		func() error {
			if cpu.X86.HasAVX512VNNI || cpu.X86.HasAVXVNNI {
				return nil
			}
			return so.AddSessionConfigEntry("session.x64quantprecision", "1")
		},
		func() error {
			if lazy {
				return so.SetGraphOptimizationLevel(ortgo.GraphOptimizationLevelDisableAll)
			}
			return nil
		},
	} {
		if err := set(); err != nil {
			return so, fmt.Errorf("session options: %w", err)
		}
	}
	return so, appendProvider(so, e.opts.Provider)
}

// Load makes a session of m. A model that the ONNX Runtime refuses (an operator it does not know, a
// model that is not valid) is an error with the model's name and the runtime's own words.
func (e *Engine) Load(m *onnx.Model) (engine.Session, error) {
	if m == nil || m.Graph == nil {
		return nil, fmt.Errorf("ort: no model given")
	}
	s, err := e.load(m)
	if err != nil {
		return nil, fmt.Errorf("ort: model %q: %w", m.Graph.Name, err)
	}
	return s, nil
}

// providers maps the names of engine.provider to the functions that switch them on.
var providers = []struct {
	name   string
	append func(*ortgo.SessionOptions) error
}{
	{"cpu", func(*ortgo.SessionOptions) error { return nil }},
	{"cuda", func(so *ortgo.SessionOptions) error {
		o, err := ortgo.NewCUDAProviderOptions()
		if err != nil {
			return err
		}
		defer o.Destroy()
		if err = so.AppendExecutionProviderCUDA(o); err != nil {
			envMu.Lock()
			defer envMu.Unlock()
			// the runtime says that something cannot be loaded, and not the file
			if why := missing(envLibrary, "cuda"); why != "" {
				return errors.New(why)
			}
		}
		return err
	}},
	{"coreml", func(so *ortgo.SessionOptions) error {
		return so.AppendExecutionProviderCoreMLV2(nil)
	}},
	{"dml", func(so *ortgo.SessionOptions) error {
		if err := so.SetMemPattern(false); err != nil { // DirectML asks for it
			return err
		}
		return so.AppendExecutionProviderDirectML(0)
	}},
}

// ProviderNames returns the allowed values of engine.provider.
func ProviderNames() []string {
	var names []string
	for _, p := range providers {
		names = append(names, p.name)
	}
	return names
}

// appendProvider switches an execution provider on, or says how to get one.
func appendProvider(so *ortgo.SessionOptions, name string) error {
	name = cmp.Or(name, "cpu")
	for _, p := range providers {
		if p.name != name {
			continue
		}
		if err := p.append(so); err != nil {
			return fmt.Errorf("engine.provider is %q, which this ONNX Runtime (%s) cannot use: %s; use "+
				"\"cpu\", or set engine.library to a build with that provider and install the "+
				"libraries that it needs (docs/install.md)", name, ortgo.GetVersion(),
				firstLine(err))
		}
		return nil
	}
	return fmt.Errorf("engine.provider is %q; allowed are %s", name,
		strings.Join(ProviderNames(), ", "))
}

// ProviderStatus reports whether an execution provider works with the loaded library on this
// machine.
type ProviderStatus struct {
	Name  string `json:"name"`
	Works bool   `json:"works"`
	Why   string `json:"why,omitempty"` // the ONNX Runtime's reason where it does not
}

// Providers tries every execution provider by asking the loaded library for it. It is nil before an
// engine was made.
func Providers() []ProviderStatus {
	if Version() == "" {
		return nil
	}
	var out []ProviderStatus
	for _, p := range providers {
		st := ProviderStatus{Name: p.name, Works: true}
		so, err := ortgo.NewSessionOptions()
		if err == nil {
			err = p.append(so)
			so.Destroy()
		}
		if err != nil {
			st.Works, st.Why = false, firstLine(err)
		}
		out = append(out, st)
	}
	return out
}

// firstLine is an error without the runtime's trace.
func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSpace(s)
}
