package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/onnx/atomicfile"
	"fmp/onnx/conformance"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// testReport is one engine's result on a folder of tests.
type testReport struct {
	Engine      string               `json:"engine"`
	Passed      int                  `json:"passed"`
	Failed      int                  `json:"failed"`
	Unsupported int                  `json:"unsupported"`
	Results     []conformance.Result `json:"results"`
}

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
		err = show(cmd, reports, func(w io.Writer) error { return printTests(w, reports, verbose) })
		if err == nil && failed {
			err = &silentError{exitFailed}
		}
		return err
	}
	return cmd
}

// writeTestTable writes which operators run on which engine, as Markdown.
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

// testEngine runs all tests on one engine.
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

func printTests(out io.Writer, reports []testReport, verbose bool) error {
	for _, r := range reports {
		for _, x := range r.Results {
			if x.Verdict == conformance.Failed || verbose && x.Verdict == conformance.Unsupported {
				why := ""
				if k := conformance.KnownFailure(x.Name); k != "" && x.Verdict == conformance.Failed {
					why = " (known: " + k + ")"
				}
				fmt.Fprintf(out, "%s: %s: %s: %s%s\n", r.Engine, x.Verdict, x.Name, x.Reason, why)
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
