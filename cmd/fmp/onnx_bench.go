package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/serde"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// benchResult is how fast one engine runs a model. Times are milliseconds of one call. P90 is the
// time that nine calls in ten do not exceed. Load is the time to prepare the session, without the
// engine's own start. Times are of warm calls: the first one is not counted.
type benchResult struct {
	Engine     string  `json:"engine"`
	Load       float64 `json:"load_ms"`
	Runs       int     `json:"runs"`
	Min        float64 `json:"min_ms"`
	Median     float64 `json:"median_ms"`
	P90        float64 `json:"p90_ms"`
	Mean       float64 `json:"mean_ms"`
	Throughput float64 `json:"items_per_second"` // of the batch in the mean time
	Error      string  `json:"error,omitempty"`  // why this engine did not run it
}

// benchReport compares engines on one model. Ratio is below 1 for an engine that is faster than the
// first, whose own is 1.
type benchReport struct {
	Model   string `json:"model"`
	Batch   int    `json:"batch"`   // items of one call
	Threads int    `json:"threads"` // 0: one a core
	// Inputs are types and shapes by name.
	Inputs  map[string]string `json:"inputs"`
	Results []benchResult     `json:"results"`
	// Ratio is the median of each engine over that of the first.
	Ratio map[string]float64 `json:"ratio,omitempty"`
}

// maxBenchBytes bounds the inputs that bench draws. Outputs and the engine's own memory come on top
// of it.
const maxBenchBytes = 1 << 30

// newONNXBenchCommand declares fmp onnx bench. Inputs that are drawn are equal in every run, so
// that two runs measure the same work. Nothing is written but the report.
func newONNXBenchCommand() *cobra.Command {
	var inputs, dims []string
	var batch int
	var seconds float64
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use:   "bench MODEL",
		Short: "Measure latency and throughput of an ONNX model, on one engine or both",
		Long: `Run a model over and over for a while and report the time of one call: the least, the median, the
90th percentile and the mean, and how many items (first axis) a second that is. Inputs that no
--input gives are drawn at random; axes of unknown size are the batch where they come first, else
what --dim says. With --engine both, both engines are measured and compared.`,
		Example: `  fmp onnx bench model.onnx --batch 64
  fmp onnx bench model.onnx --engine both --threads 1 --json
  fmp onnx bench attention.onnx --dim n=200`,
		Args: exactArgs("MODEL"),
	}
	s := bindSettings(cmd, &cfg, hardwareAliases)
	cmd.PreRunE = nil // --engine is one of its sources
	var engineName string
	flags := cmd.Flags()
	flags.StringVar(&engineName, "engine", "",
		"auto, ort, pure or both (default: the setting engine.name)")
	flags.StringArrayVar(&inputs, "input", nil, "input `NAME=FILE` (.npy or .pb)")
	flags.StringArrayVar(&dims, "dim", nil,
		"size of a named axis, `NAME=N`; may be given several times")
	flags.IntVar(&batch, "batch", 1, "size of a first axis that the model leaves open, 1 to 65536")
	flags.Float64Var(&seconds, "seconds", 2, "how long to measure each engine, 0.01 to 600")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		both, err := s.resolveEngine(engineName)
		if err != nil {
			return err
		}
		if batch < 1 || batch > 65536 {
			return usageErrorf("--batch is %d; allowed are 1 to 65536", batch)
		}
		if err := checkSeconds(seconds); err != nil {
			return err
		}
		m, err := serde.Load(args[0])
		if err != nil {
			return usageError(err)
		}
		feeds, err := benchFeeds(m, inputs, dims, batch)
		if err != nil {
			return usageError(err)
		}
		// A flag without an effect is refused, as it would be believed.
		if cmd.Flags().Changed("batch") && !takesBatch(m, inputs, dims) {
			return usageErrorf("--batch is %d, and no input that is drawn leaves its first axis "+
				"open: leave it out", batch)
		}
		report := newBenchReport(args[0], itemsOf(m, feeds), cfg.Engine.Threads, feeds)
		if err := report.measure(cmd, cfg.Engine, m, feeds, both, seconds); err != nil {
			return err
		}
		return show(cmd, report, report.print)
	}
	return cmd
}

// checkSeconds refuses a --seconds that nothing is measured for. NaN is refused, as no comparison
// with it holds.
func checkSeconds(seconds float64) error {
	if !(seconds >= 0.01 && seconds <= 600) {
		return usageErrorf("--seconds is %v; allowed are 0.01 to 600", seconds)
	}
	return nil
}

// newBenchReport returns a report without results yet.
// Inputs are told by their types and shapes, not by their numbers.
func newBenchReport(model string, batch, threads int, feeds map[string]*onnx.Tensor) benchReport {
	b := benchReport{Model: model, Batch: batch, Threads: threads, Inputs: map[string]string{}}
	for name, t := range feeds {
		b.Inputs[name] = t.String()
	}
	return b
}

// resolveEngine reads the settings with the engine of --engine, one of their sources, and reports
// whether it is both engines.
// With both the setting engine.name has no effect.
func (s *resolver) resolveEngine(name string) (both bool, err error) {
	if !slices.Contains([]string{"", "auto", "ort", "pure", "both"}, name) {
		return false, usageErrorf("--engine is %q; allowed are auto, ort, pure and both", name)
	}
	if both = name == "both"; name != "" && !both {
		s.sets = append(s.sets, "engine.name="+name)
	}
	return both, s.resolve()
}

// measure measures the engine, or both, for some seconds each. With both engines the fault of one
// is a line of the report, and an interrupt ends it.
// Engines run one after the other, each closed before the next is opened.
func (b *benchReport) measure(cmd *cobra.Command, cfg settings.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor, both bool, seconds float64) error {
	names := []string{cfg.Name}
	// The runtime comes first, so that ratios are against it.
	if both {
		names = []string{"ort", "pure"}
	}
	for _, name := range names {
		cfg.Name = name
		r, err := benchEngine(cmd, cfg, m, feeds, b.Batch,
			time.Duration(seconds*float64(time.Second)))
		if err != nil {
			if !both || cmd.Context().Err() != nil {
				return err
			}
			r = benchResult{Engine: name, Error: err.Error()}
		}
		b.Results = append(b.Results, r)
	}
	b.compare()
	return nil
}

// gives reports whether one of the NAME=VALUE is of that name.
func gives(pairs []string, name string) bool {
	return slices.ContainsFunc(pairs, func(p string) bool { return strings.HasPrefix(p, name+"=") })
}

// opens reports whether an input leaves its first axis open. A rank that is not known has no first
// axis.
func opens(in onnx.ValueInfo) bool { return len(in.Shape) > 0 && !in.Shape[0].IsKnown() }

// takesBatch reports whether an input that is drawn has the size of the batch. It is false where
// files or --dim give every open first axis.
func takesBatch(m *onnx.Model, pairs, dims []string) bool {
	return slices.ContainsFunc(m.Graph.Inputs, func(in onnx.ValueInfo) bool {
		return opens(in) && !gives(pairs, in.Name) && !gives(dims, in.Shape[0].Symbol)
	})
}

// itemsOf returns the size of the first axis, of an input that leaves it open where there is one. A
// scalar input has no axis; without any axis a call has one item.
func itemsOf(m *onnx.Model, feeds map[string]*onnx.Tensor) int {
	items := 0
	for _, in := range m.Graph.Inputs {
		if t := feeds[in.Name]; t != nil && len(t.Shape) > 0 {
			if opens(in) {
				return t.Shape[0]
			}
			items = cmp.Or(items, t.Shape[0])
		}
	}
	return cmp.Or(items, 1)
}

// benchFeeds reads the given inputs and draws the others. Those that are drawn take maxBenchBytes
// together at most, and are the same in every run. The copies have other lists of inputs and m's
// own initializers, so that a default that is given holds in m.
func benchFeeds(m *onnx.Model, pairs, dims []string, batch int) (map[string]*onnx.Tensor, error) {
	sizes, err := benchSizes(m, dims)
	if err != nil {
		return nil, err
	}
	given := *m
	g := *m.Graph
	g.Inputs = nil
	var drawn []onnx.ValueInfo
	for _, in := range m.Graph.Inputs {
		if gives(pairs, in.Name) {
			g.Inputs = append(g.Inputs, in)
		} else {
			drawn = append(drawn, in)
		}
	}
	given.Graph = &g
	feeds := map[string]*onnx.Tensor{}
	if err := readFeeds(&given, pairs, feeds); err != nil {
		return nil, err
	}
	// The seed is fixed, and inputs are drawn in the order of the model.
	r := rand.New(rand.NewPCG(1, 1))
	total := 0
	for _, in := range drawn {
		shape, err := benchShape(in, sizes, batch)
		if err != nil {
			return nil, err
		}
		n, err := onnx.Elements(shape)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", in.Name, err)
		}
		// A type without a fixed size has 0.
		size := in.DType.Size()
		size = cmp.Or(size, 16) // of a Go string
		if total += n * size; total > maxBenchBytes {
			return nil, fmt.Errorf("input %q of shape %v: the inputs need more than %d bytes; "+
				"make --batch or --dim smaller", in.Name, shape, maxBenchBytes)
		}
		t, err := onnx.Zeros(in.DType, shape...)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", in.Name, err)
		}
		drawValues(r, t)
		feeds[in.Name] = t
	}
	return feeds, nil
}

// dimSizes reads the NAME=N of --dim. 0 is allowed. A size of 0 makes empty tensors, which models
// may take.
func dimSizes(dims []string) (map[string]int, error) {
	sizes := map[string]int{}
	for _, d := range dims {
		name, text, _ := strings.Cut(d, "=")
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || name == "" {
			return nil, fmt.Errorf("--dim %s: want NAME=N with N a whole number", d)
		}
		if _, twice := sizes[name]; twice {
			return nil, fmt.Errorf("--dim %s: %q is given twice", d, name)
		}
		sizes[name] = n
	}
	return sizes, nil
}

// benchSizes reads the NAME=N of --dim, of names that the inputs have. An unknown name is an error,
// as it would otherwise be passed over.
func benchSizes(m *onnx.Model, dims []string) (map[string]int, error) {
	sizes, err := dimSizes(dims)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, in := range m.Graph.Inputs {
		for _, d := range in.Shape {
			if d.Symbol != "" {
				known[d.Symbol] = true
			}
		}
	}
	for name := range sizes {
		if !known[name] {
			return nil, fmt.Errorf("--dim %s=%d: no input has a size called %q; there are %q", name,
				sizes[name], name, slices.Sorted(maps.Keys(known)))
		}
	}
	return sizes, nil
}

// benchShape returns the shape of an input that is drawn: its open axes have the given sizes, and a
// first one that of the batch. A --dim by the name of a first axis goes before --batch.
func benchShape(in onnx.ValueInfo, sizes map[string]int, batch int) ([]int, error) {
	if in.Shape == nil || in.DType == onnx.Undefined {
		return nil, fmt.Errorf("input %q: the model does not say its type and shape; give "+
			"--input %s=FILE", in.Name, in.Name)
	}
	shape := make([]int, len(in.Shape))
	for i, d := range in.Shape {
		n, named := sizes[d.Symbol]
		switch {
		case d.IsKnown():
			shape[i] = d.Size
		// An axis without a symbol has the key "", which no --dim can give.
		case named && d.Symbol != "":
			shape[i] = n
		case i == 0:
			shape[i] = batch
		default:
			return nil, fmt.Errorf("input %q: axis %d (%q) has no fixed size; give --dim %s=N, "+
				"or --input %s=FILE", in.Name, i, d.Symbol, d.Symbol, in.Name)
		}
	}
	return shape, nil
}

// drawValues fills a tensor at random; integers stay 0, since they are often indices. Floats are
// standard normal, and bytes uniform. Zeros are indices within any table; other types stay 0 too.
func drawValues(r *rand.Rand, t *onnx.Tensor) {
	switch d := t.Data.(type) {
	case []float32:
		for i := range d {
			d[i] = float32(r.NormFloat64())
		}
	case []float64:
		for i := range d {
			d[i] = r.NormFloat64()
		}
	case []uint8:
		for i := range d {
			d[i] = uint8(r.IntN(256))
		}
	}
}

// benchEngine measures one engine. Of n sorted times the median is the n/2-th and P90 the 9n/10-th,
// from 0. Throughput is batch over the mean. The mean is sum/n, and all times are of the wall
// clock. Sorting costs O(n log n) of n calls, after the last one is timed.
func benchEngine(cmd *cobra.Command, cfg settings.Engine, m *onnx.Model,
	feeds map[string]*onnx.Tensor, batch int, budget time.Duration) (benchResult, error) {
	ctx := cmd.Context()
	e, err := openEngine(ctx, cfg, cfg.Threads, cmd.ErrOrStderr())
	if err != nil {
		return benchResult{}, err
	}
	defer e.Close()
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	// Opening the engine, and its library, is not in the time.
	start := time.Now()
	s, err := e.Load(m)
	if err != nil {
		return benchResult{}, usageError(err)
	}
	defer s.Close()
	r := benchResult{Engine: e.Name(), Load: ms(time.Since(start))}
	// The first call makes the outputs, which later ones fill in place.
	fetch, err := engine.Eval(s, feeds)
	if err != nil {
		return benchResult{}, usageError(err)
	}
	var times []float64
	// Three calls are timed at least, however long they take.
	for end := time.Now().Add(budget); time.Now().Before(end) || len(times) < 3; {
		if err := ctx.Err(); err != nil {
			return benchResult{}, err
		}
		start := time.Now()
		if err := s.Run(ctx, feeds, fetch); err != nil {
			return benchResult{}, usageError(err)
		}
		times = append(times, ms(time.Since(start)))
	}
	sort.Float64s(times)
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	n := len(times)
	// Of an even number of times the median is the upper of the two in the middle.
	r.Runs, r.Min, r.Median, r.P90, r.Mean = n, times[0], times[n/2],
		times[min(n-1, n*9/10)], sum/float64(n)
	r.Throughput = float64(batch) / r.Mean * 1000
	return r, nil
}

// compare relates the medians to the first engine's, unless that one did not run. Ratio[e] is the
// median of engine e over that of the first.
func (b *benchReport) compare() {
	if len(b.Results) < 2 || b.Results[0].Median == 0 {
		return
	}
	b.Ratio = map[string]float64{}
	for _, r := range b.Results {
		if r.Error == "" {
			b.Ratio[r.Engine] = r.Median / b.Results[0].Median
		}
	}
}

// print writes a line for each engine that ran, and then the errors of the others.
func (b *benchReport) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "engine\tload ms\truns\tmin ms\tmedian ms\tp90 ms\tmean ms\titems/s\tratio\t")
	for _, r := range b.Results {
		if r.Error != "" {
			continue
		}
		ratio := "-"
		if v, ok := b.Ratio[r.Engine]; ok {
			ratio = fmt.Sprintf("%.2f", v)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f\t%s\t\n", r.Engine, r.Load,
			r.Runs, r.Min, r.Median, r.P90, r.Mean, r.Throughput, ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range b.Results {
		if r.Error != "" {
			if _, err := fmt.Fprintf(out, "%s: %s\n", r.Engine, r.Error); err != nil {
				return err
			}
		}
	}
	return nil
}

// testReport is one engine's result on a folder of tests.
type testReport struct {
	Engine string `json:"engine"`
	// Unsupported are tests whose model the engine refuses, and failed those whose outputs differ.
	Passed      int                  `json:"passed"`
	Failed      int                  `json:"failed"`
	Unsupported int                  `json:"unsupported"`
	Results     []conformance.Result `json:"results"`
}

// newONNXTestCommand declares fmp onnx test. Failed tests end it with exit code 1 and no further
// message, as each has a line of its own. The tolerance is that of NumPy's allclose, |got - want|
// <= atol + rtol |want|.
func newONNXTestCommand() *cobra.Command {
	var verbose bool
	var engineName, table string
	tol := conformance.DefaultTolerance
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Run ONNX backend tests (model.onnx with test_data_set_*/) and count what passes",
		Long: `Run every test in and below DIR: a folder with a model.onnx and test_data_set_K folders of
input_I.pb and output_I.pb, as the ONNX standard ships its operator tests (make testdata). A test
passes where every output has the expected type and shape and |got - want| <= absolute + relative
|want|; it is unsupported where the engine refuses the model before running it; anything else is a
failure, which ends the command with exit code 1.`,
		Example: `  fmp onnx test ~/.cache/fmp/onnx-tests/1.23.2 --engine pure
  fmp onnx test ~/.cache/fmp/onnx-tests/1.23.2/node/test_add --engine both --json
  fmp onnx test my-tests --engine ort --verbose`,
		Args: exactArgs("DIR"),
	}
	s := bindSettings(cmd, &cfg, hardwareAliases)
	flags := cmd.Flags()
	flags.StringVar(&engineName, "engine", "",
		"auto, ort, pure or both (default: the setting engine.name)")
	flags.Float64Var(&tol.Relative, "relative", tol.Relative, "relative tolerance")
	flags.Float64Var(&tol.Absolute, "absolute", tol.Absolute, "absolute tolerance")
	flags.StringVar(&table, "table", "",
		"also write what runs, operator by operator, as a Markdown `FILE`")
	outputs.Made(flags, "table")
	flags.BoolVar(&verbose, "verbose", false,
		"list unsupported tests, with the reason, as well as failures")
	jsonFlag(cmd, "print every result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		both, err := s.resolveEngine(engineName)
		if err != nil {
			return err
		}
		names := []string{cfg.Engine.Name}
		if both {
			names = []string{"pure", "ort"}
		}
		if !(tol.Relative >= 0 && tol.Absolute >= 0) {
			return usageErrorf("--relative is %v and --absolute %v; both must be at least 0",
				tol.Relative, tol.Absolute)
		}
		// A folder without tests is an error before an engine is opened.
		if _, err := conformance.FindTests(args[0]); err != nil {
			return usageError(err)
		}
		var reports []testReport
		failed := false
		for _, name := range names {
			ec := cfg.Engine
			ec.Name = name
			r, err := testEngine(cmd, ec, args[0], tol)
			if err != nil {
				return err
			}
			failed = failed || r.Failed > 0
			reports = append(reports, r)
		}
		if table != "" {
			if err := writeTestTable(table, reports); err != nil {
				return err
			}
		}
		// The report comes before the exit code, as failures are its content.
		err = show(cmd, reports, func(w io.Writer) error { return printTests(w, reports, verbose) })
		if err == nil && failed {
			err = &silentError{exitFailed}
		}
		return err
	}
	return cmd
}

// writeTestTable writes which operators run on which engine, as Markdown.
// Folders that are missing are made. An older table stays until the new one is whole.
func writeTestTable(path string, reports []testReport) error {
	var b bytes.Buffer
	byEngine := map[string][]conformance.Result{}
	for _, r := range reports {
		byEngine[r.Engine] = r.Results
	}
	conformance.WriteTable(&b, byEngine)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return atomicfile.WriteBytes(path, b.Bytes())
}

// testEngine runs all tests on one engine. A test that is neither passed nor unsupported has
// failed. A fault of the engine or the folder ends it, and a failed test does not.
func testEngine(cmd *cobra.Command, cfg settings.Engine, dir string,
	tol conformance.Tolerance) (testReport, error) {
	e, err := openEngine(cmd.Context(), cfg, cfg.Threads, cmd.ErrOrStderr())
	if err != nil {
		return testReport{}, err
	}
	defer e.Close()
	p := newProgress(cmd.ErrOrStderr())
	defer p.close()
	r := testReport{Engine: e.Name()}
	r.Results, err = conformance.RunAll(cmd.Context(), e, dir, tol,
		func(done, total int, _ conformance.Result) {
			p.report("tests on "+e.Name(), done, total)
		})
	for _, x := range r.Results {
		switch x.Verdict {
		case conformance.Passed:
			r.Passed++
		case conformance.Unsupported:
			r.Unsupported++
		default:
			r.Failed++
		}
	}
	return r, err
}

// printTests prints failures, with verbose the unsupported tests too, and then the counts of each
// engine.
// A failure that is known has its reason beside it, and counts as failed all the same.
func printTests(out io.Writer, reports []testReport, verbose bool) error {
	for _, r := range reports {
		for _, x := range r.Results {
			if x.Verdict == conformance.Failed || verbose && x.Verdict == conformance.Unsupported {
				why := ""
				if k := conformance.KnownFailure(x.Name); k != "" &&
					x.Verdict == conformance.Failed {
					why = " (known: " + k + ")"
				}
				line(out, "%s: %s: %s: %s%s\n", r.Engine, x.Verdict, x.Name, x.Reason, why)
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "engine\tpassed\tfailed\tunsupported\ttests\t")
	for _, r := range reports {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t\n", r.Engine, r.Passed, r.Failed,
			r.Unsupported, len(r.Results))
	}
	return w.Flush()
}
