package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/pure"
	"fmp/onnx/grad"
	"fmp/onnx/inspect"
	"fmp/onnx/op"
	"fmp/onnx/pass"
	"fmp/onnx/printable"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// newONNXCheckCommand declares fmp onnx check. With --json a fault is part of the report, and no
// line of error is printed besides. The JSON report goes to standard output for sound and faulty
// models alike, and the exit code is the same with and without it.
func newONNXCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check MODEL",
		Short: "Say whether a model is sound, or what is wrong with it, by node and operator",
		Long: `Check a model: every name is given once, nodes come in order and read what exists, operators are
those of the model's operator sets with inputs, element types, attributes and words that they have,
tensors hold what they say, no shapes contradict each other, and the element types that the file
states follow from its inputs. A misspelt name is answered with the one that was probably meant. A
shape that the file states and that does not follow is noted: runtimes run such models. What a sound
model would make a runtime work out before it runs, beyond what a model of its size may ask for, is
noted. Exit code 2 where something is wrong, 3 where there
is no such file, 4 where the model may be sound and uses what is not known here: a newer operator
set, operators of another domain, values that are no tensors.`,
		Example: `  fmp onnx check model.onnx
  fmp onnx check model.onnx --json`,
		Args: exactArgs("MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := serde.Load(args[0])
			notes, but := []string{}, ""
			if err == nil {
				var stated []string
				if stated, err = checkModel(m); err != nil {
					err = fmt.Errorf("%s: %w", args[0], err)
				}
				if notes = append(notes, stated...); len(stated) > 0 {
					but = " but for the shapes that it states"
				}
			}
			if err == nil {
				// Heavy nodes are looked for in a sound model alone, whose functions are inlined by
				// then.
				heavy, herr := shape.TooHeavy(m)
				if herr != nil {
					err = fmt.Errorf("%s: %w", args[0], herr)
				}
				for _, h := range heavy {
					notes = append(notes, h.String())
				}
			}
			if wantsJSON(cmd) {
				report := map[string]any{"file": args[0], "ok": err == nil,
					"unknown": errors.Is(err, onnx.ErrUnknown), "notes": notes}
				if err != nil {
					report["error"] = err.Error()
				}
				if perr := printable.WriteJSON(cmd.OutOrStdout(), report); perr != nil {
					return perr
				}
				if err != nil {
					return &silentError{exitCode(checkError(err))}
				}
				return nil
			}
			if err != nil {
				return checkError(err)
			}
			return tell(cmd, nil, func(b *strings.Builder) {
				fmt.Fprintf(b, "%s is sound%s: %d nodes, operator set %d\n", args[0], but,
					len(m.Graph.Nodes), m.Opset())
				for _, note := range notes {
					line(b, "note: %s\n", note)
				}
			})
		},
	}
	jsonFlag(cmd, "print JSON")
	return cmd
}

// checkError gives a fault of a model its exit code. It is 4 of parts that are not known here; a
// fault is 2, and a missing file 3. A mark of a part that is not known is asked for first, so that
// it wins over that of a fault.
func checkError(err error) error {
	if errors.Is(err, onnx.ErrUnknown) {
		return coded(exitUnknown, err)
	}
	return usageError(err)
}

// checkModel checks a model and its shapes. Where all is well it has its functions inlined and its
// types filled in. The notes are of shapes that the file states and that do not follow: runtimes
// run those, and exporters write them. After an error m may be half changed: callers that go on
// with it pass a clone.
func checkModel(m *onnx.Model) (notes []string, err error) {
	if err := check.Model(m); err != nil {
		return nil, err
	}
	if err := pass.Inline(m); err != nil {
		return nil, err
	}
	// It comes before shape.Infer, which puts the types that follow in the place of those that the
	// file states.
	contradicted, err := shape.Contradicted(m)
	if err != nil {
		return nil, err
	}
	for _, s := range contradicted {
		// A contradicted element type is an error, and a contradicted shape a note.
		if s.OfType() {
			return nil, errors.New(s.String())
		}
		notes = append(notes, s.String())
	}
	if err := shape.Infer(m); err != nil {
		return nil, err
	}
	if err := op.Ranges(m.Graph, m.Opsets); err != nil {
		return nil, err
	}
	// The second check sees the types that shape.Infer filled in.
	return notes, check.Model(m)
}

// inspection is the description of a model by inspect. Sizes, Uncounted and FLOPs are as
// inspect.Stats has them: input symbols without a size count as 1. A model has Optional inputs
// where inputs have a default value.
type inspection struct {
	File      string            `json:"file"`
	Graph     string            `json:"graph"`
	Producer  string            `json:"producer,omitempty"`
	IR        int64             `json:"ir_version"`
	Opset     int64             `json:"opset"`
	Functions int               `json:"functions,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Inputs    []valueReport     `json:"inputs"`
	Optional  []valueReport     `json:"optional_inputs,omitempty"`
	Outputs   []valueReport     `json:"outputs"`
	Nodes     int               `json:"nodes"`
	Operators map[string]int    `json:"operators"`
	// Parameters counts the numbers of all weights.
	Parameters     int64 `json:"parameters"`
	ParameterBytes int64 `json:"parameter_bytes"`
	// FLOPs are of one call: a multiplication and an addition are two.
	FLOPs float64 `json:"flops"`
	// for which the operations were counted
	Sizes map[string]int `json:"sizes,omitempty"`
	// operators that flops leaves out
	Uncounted  []string `json:"uncounted,omitempty"`
	FLOPsError string   `json:"flops_error,omitempty"`
	Check      string   `json:"check"` // "ok" or what is wrong
	// Engines has "yes", or "no" or "unknown" with a reason, by engine.
	Engines         map[string]string `json:"engines"`
	Differentiation string            `json:"grad"` // "yes" or why not
}

// valueReport is a value's name, element type and shape; a size is a number or a symbol. A size
// that is neither known nor named is printed as the dimension prints itself.
type valueReport struct {
	Name  string   `json:"name"`
	Type  string   `json:"type"`
	Shape []string `json:"shape"` // null where even the rank is unknown
}

// newONNXInspectCommand declares fmp onnx inspect. A model that is not sound, or that an engine
// refuses, is no error: each reason is printed in the place of a yes. Errors are bad sizes of
// --dim, and files that hold no model.
func newONNXInspectCommand() *cobra.Command {
	var dims []string
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use: "inspect MODEL",
		Short: "Show a model's inputs, outputs, operators, size, work, and what can run or " +
			"differentiate it",
		Long: `Show what an ONNX model is: inputs and outputs with their inferred types and shapes, metadata,
operators, the number of parameters, the floating-point operations of one call (a multiplication and
an addition are two), which engines run it and whether fmp onnx grad can differentiate it.
Operations are counted for the sizes that --dim gives; other open sizes are 1.`,
		Example: `  fmp onnx inspect model.onnx
  fmp onnx inspect resnet.onnx --dim batch=8 --json
  fmp onnx inspect attention.onnx --dim batch=1 --dim n=200`,
		Args: exactArgs("MODEL"),
	}
	bindSettings(cmd, &cfg, map[string]string{"library": "engine.library"})
	cmd.Flags().StringArrayVar(&dims, "dim", nil,
		"size of a named axis, `NAME=N`; may be given several times")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sizes, err := dimSizes(dims)
		if err != nil {
			return usageError(err)
		}
		m, err := serde.Load(args[0])
		if err != nil {
			return usageError(err)
		}
		r, err := inspectModel(m, sizes, cfg.Engine)
		if err != nil {
			return usageError(fmt.Errorf("%s: %w", args[0], err))
		}
		r.File = args[0]
		return tabulate(cmd, r, r.print)
	}
	return cmd
}

// inspectModel looks at a model; an error is one of the sizes that were asked for. m is changed.
// Sizes that fit no model are an error only where they were given: else FLOPsError tells of them.
func inspectModel(m *onnx.Model, sizes map[string]int, cfg settings.Engine) (inspection, error) {
	r := inspection{
		Graph: m.Graph.Name, Producer: strings.TrimSpace(m.Producer + " " + m.ProducerVersion),
		IR:        m.IR,
		Opset:     m.Opset(),
		Functions: len(m.Functions), Metadata: m.Metadata, Check: "ok",
		Engines: map[string]string{},
	}
	sum, err := inspect.Stats(m, sizes)
	if err != nil {
		if len(sizes) > 0 {
			return r, err
		}
		r.FLOPsError = err.Error()
	}
	r.Nodes, r.Operators, r.Parameters, r.ParameterBytes = sum.Nodes, sum.Operators, sum.Parameters,
		sum.ParameterBytes
	r.FLOPs, r.Sizes, r.Uncounted = sum.FLOPs, sum.Sizes, sum.Uncounted

	// pure, grad and the runtime are asked with clones, since the model is the file's until
	// checkModel changes it.
	r.Engines["pure"] = "yes"
	// Three reasons are told, and a fourth where it is the last.
	if list := pure.Supports(onnx.Clone(m)); len(list) > 0 {
		reasons := make([]string, len(list))
		for i, u := range list {
			reasons[i] = u.String()
		}
		if more := len(list) - 3; more > 1 {
			reasons = append(reasons[:3], fmt.Sprintf("and %d more", more))
		}
		r.Engines["pure"] = "no: " + strings.Join(reasons, "; ")
	}
	r.Engines["ort"] = tryRuntime(m, cfg)
	r.Differentiation = "yes"
	if err := grad.Supports(onnx.Clone(m)); err != nil {
		r.Differentiation = "no: " + err.Error()
	}
	if _, err := checkModel(m); err != nil {
		// The reason stands in the place of "ok": a model that is at fault is described all the
		// same.
		r.Check = err.Error()
	}
	// Values are described last, with the types and shapes that checkModel inferred.
	r.Inputs, r.Optional, r.Outputs = valueReports(m.Graph.Inputs), valueReports(m.Graph.Optional),
		valueReports(m.Graph.Outputs)
	return r, nil
}

// tryRuntime loads a model on the ONNX Runtime, which alone knows its operators. It is yes, no with
// a reason, or unknown where there is no library. One thread suffices, since nothing is run.
// Kernels are chosen at load, so that an operator without one is refused there.
func tryRuntime(m *onnx.Model, cfg settings.Engine) string {
	e, err := ort.New(ort.Options{Threads: 1, Library: cfg.Library})
	if errors.Is(err, ort.ErrNoLibrary) {
		return "unknown: no library was found (fmp doctor says where it was looked for)"
	}
	if err != nil {
		return "unknown: " + err.Error()
	}
	defer e.Close()
	session, err := e.Load(withoutData(m))
	if err != nil {
		session, err = e.Load(onnx.Clone(m)) // an operator may need to know its weights
	}
	if err != nil {
		return "no: " + err.Error()
	}
	if err := session.Close(); err != nil {
		return "no: " + err.Error()
	}
	return "yes"
}

// withoutData copies a model with the weights that lie in other files as inputs, so that a runtime
// need not read them to answer. Weights of fewer than 2^16 elements stay: operators may need their
// values at load. m is left as it is. A weight becomes an input of the same name, type and shape,
// so that nodes read it as before.
func withoutData(m *onnx.Model) *onnx.Model {
	c := onnx.Clone(m)
	for name, t := range m.Graph.Initializers {
		if t.External == nil || t.Len() < 1<<16 {
			continue
		}
		delete(c.Graph.Initializers, name)
		v := onnx.ValueInfo{Name: name, DType: t.DType, Shape: []onnx.Dim{}}
		for _, d := range t.Shape {
			v.Shape = append(v.Shape, onnx.Known(d))
		}
		c.Graph.Inputs = append(c.Graph.Inputs, v)
	}
	return c
}

// valueReports describes values; a size is its number or symbol, and a rank that is not known has
// none.
func valueReports(vs []onnx.ValueInfo) []valueReport {
	out := make([]valueReport, len(vs))
	for i, v := range vs {
		out[i] = valueReport{Name: v.Name, Type: v.DType.String()}
		if v.Shape == nil {
			continue
		}
		out[i].Shape = make([]string, len(v.Shape))
		for j, d := range v.Shape {
			out[i].Shape[j] = d.String()
		}
	}
	return out
}

// print writes a label and its value a line, parted by a tab. Operators come by their numbers, the
// most frequent first. Operators of equal numbers stand in the order of their names, as the sort is
// stable.
func (r inspection) print(w io.Writer) {
	line(w, "graph\t%s\n", r.Graph)
	if r.Producer != "" {
		line(w, "producer\t%s\n", r.Producer)
	}
	line(w, "version\topset %d, IR %d\n", r.Opset, r.IR)
	for _, part := range []struct {
		label string
		vs    []valueReport
	}{{"input", r.Inputs}, {"optional", r.Optional}, {"output", r.Outputs}} {
		for _, v := range part.vs {
			shape := "[...]"
			if v.Shape != nil {
				shape = "[" + strings.Join(v.Shape, ", ") + "]"
			}
			line(w, "%s\t%s  %s %s\n", part.label, v.Name, v.Type, shape)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		line(w, "metadata\t%s = %s\n", k, abridged(r.Metadata[k], 200))
	}
	line(w, "parameters\t%s (%s bytes)\n", thousands(r.Parameters),
		thousands(r.ParameterBytes))
	var sizes []string
	for _, k := range slices.Sorted(maps.Keys(r.Sizes)) {
		sizes = append(sizes, fmt.Sprintf("%s=%d", k, r.Sizes[k]))
	}
	if r.FLOPsError != "" {
		line(w, "operations\tnot counted: %s; give sizes with --dim NAME=N\n", joined(r.FLOPsError))
	} else {
		line(w, "operations\t%.4g a call", r.FLOPs)
		if len(sizes) > 0 {
			line(w, " with %s", strings.Join(sizes, ", "))
		}
		if len(r.Uncounted) > 0 {
			line(w, ", without %s", strings.Join(r.Uncounted, ", "))
		}
		fmt.Fprintln(w)
	}
	line(w, "nodes\t%d\n", r.Nodes)
	ops := slices.Sorted(maps.Keys(r.Operators))
	sort.SliceStable(ops, func(i, j int) bool { return r.Operators[ops[i]] > r.Operators[ops[j]] })
	for i, op := range ops {
		label := "operators"
		if i > 0 {
			label = ""
		}
		line(w, "%s\t%4d  %s\n", label, r.Operators[op], op)
	}
	line(w, "check\t%s\n", joined(r.Check))
	for _, name := range slices.Sorted(maps.Keys(r.Engines)) {
		line(w, "engine %s\t%s\n", name, joined(r.Engines[name]))
	}
	line(w, "grad\t%s\n", joined(r.Differentiation))
}

// joined is a text of several lines as one.
// A line of a table must not be broken by an error's text.
func joined(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// abridged cuts a text to n runes, on one line. White space, ends of lines among it, becomes one
// space. Three dots stand for the rest, beyond the n runes.
func abridged(s string, n int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > n {
		return string(r[:n]) + "..."
	}
	return string(r)
}

// thousands writes a number in groups of three digits. The sign of a negative number counts as no
// digit.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// newONNXGradCommand declares fmp onnx grad. With Y = f(A), grad_A is the sum over outputs of J^T
// grad_Y, J the Jacobian dY/dA. With --unit grad_Y is a tensor of ones, as the derivative of a
// scalar loss for itself. Nothing is written where a node on the way has no rule; the error names
// it.
func newONNXGradCommand() *cobra.Command {
	var opt grad.Options
	var out string
	cmd := &cobra.Command{
		Use:   "grad MODEL.onnx",
		Short: "Differentiate an ONNX model into another ONNX model that any ONNX Runtime runs",
		Long: `grad writes the gradient model of MODEL.onnx. Its inputs are the model's own and grad_Y, the
cotangent of each output Y named by --output (all floating-point outputs where none is named); its
outputs are grad_A for each value A named by --wrt: inputs, initializers or values in between.`,
		Example: `  fmp onnx grad MODEL.onnx --output y --wrt a,b,x -o grad.onnx
  fmp onnx grad loss.onnx --wrt weight --keep-outputs --unit -o step.onnx`,
		Args: exactArgs("a model file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usageErrorf("-o is not given; name the file to write")
			}
			m, err := serde.Load(args[0])
			if err != nil {
				return usageError(err)
			}
			g, err := grad.Build(m, opt)
			if err != nil {
				return usageError(fmt.Errorf("%s: %w", args[0], err))
			}
			if err := serde.Save(out, g); err != nil {
				return err
			}
			ins, outs := valueNames(g.Graph.Inputs), valueNames(g.Graph.Outputs)
			return say(cmd, map[string]any{"file": out, "inputs": ins, "outputs": outs,
				"nodes": len(g.Graph.Nodes), "opset": g.Opset(),
			}, "%s: %d nodes, operator set %d\n  inputs   %s\n  outputs  %s\n", out,
				len(g.Graph.Nodes), g.Opset(), printable.Line(strings.Join(ins, ", ")),
				printable.Line(strings.Join(outs, ", ")))
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&opt.Outputs, "output", nil,
		"outputs that cotangents are given for (default: all)")
	f.StringSliceVar(&opt.WRT, "wrt", nil, "values to differentiate for, separated by commas")
	f.BoolVar(&opt.KeepOutputs, "keep-outputs", false, "keep the model's own outputs")
	f.BoolVar(&opt.ParamsAsInputs, "params-as-inputs", false,
		"turn the initializers named by --wrt into inputs")
	f.BoolVar(&opt.UnitCotangent, "unit", false, "set the cotangents to one, for a scalar loss")
	outFlag(cmd, &out, "out", "", "file to write")
	jsonFlag(cmd, "print JSON")
	return cmd
}

// valueNames lists the names of values in their order.
// It is never nil, so that JSON has a list.
func valueNames(vs []onnx.ValueInfo) []string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.Name
	}
	return names
}

// newONNXHalfCommand declares fmp onnx half. The model is checked before and after: weights are
// stored in another type, and values keep theirs. A float16 has 11 significant bits (IEEE 754
// binary16), so that the relative error of a normal number is 2^-11 at most.
func newONNXHalfCommand() *cobra.Command {
	var out string
	var least int
	cmd := &cobra.Command{
		Use: "half MODEL",
		Short: "Store a model's weights in half precision: half the file, float32 " +
			"arithmetic as before",
		Long: `Write MODEL with its large float32 weights stored as float16, each followed by a Cast back to
float32 that runtimes work out once, when they load it. Weights are rounded to 11 significant bits;
nothing else changes. Weights that half precision does not hold stay as they are: with values beyond
65504, or so small, below .00006, that more bits would be lost, in the whole tensor or in more than
a sixteenth of its rows along the first axis. So do those of functions, branches and loops. A
manifest of ours is kept, its command line completed, and a side-car file of MODEL is written again
as OUT.yaml.`,
		Example: `  fmp onnx half extractor.onnx -o small.onnx`,
		Args:    exactArgs("MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usageErrorf("-o is not given; name the file to write")
			}
			if least < 0 {
				return usageErrorf("--least is %d; allowed are 0 and up", least)
			}
			m, err := serde.Load(args[0])
			if err != nil {
				return usageError(err)
			}
			if _, err := checkModel(onnx.Clone(m)); err != nil {
				return usageError(fmt.Errorf("%s: %w", args[0], err))
			}
			f, _ := models.ReadManifest(m) // another program's model has none
			side, err := newSidecar(cmd.Flags(), args[0], out, f, extractor.Options{}, false)
			if err != nil {
				return err
			}
			n, beyond := pass.StoreHalf(m, least)
			if n == 0 {
				return usageErrorf("%s has no float32 weight of %d elements or more whose values "+
					"half precision can hold; nothing was written", args[0], least)
			}
			// A fault from here on is one of this program, and so no usage error.
			if _, err := checkModel(onnx.Clone(m)); err != nil {
				return err
			}
			if err := descends(m, args[0], "fmp onnx half"); err != nil {
				return err
			}
			before, after, err := side.save(m, args[0], out)
			if err != nil {
				return err
			}
			kept := ""
			if beyond > 0 {
				kept = fmt.Sprintf(", %d kept whose values it does not hold", beyond)
			}
			return say(cmd, map[string]any{"file": out, "tensors": n, "kept": beyond,
				"bytes": after, "bytes_before": before}, "%s: %d tensors in half precision%s, %d "+
				"bytes (%d before)\n", out, n, kept, after, before)
		},
	}
	outFlag(cmd, &out, "out", "", "file to write")
	cmd.Flags().IntVar(&least, "least", 1024, "elements that a tensor must have to be stored so")
	jsonFlag(cmd, "print JSON")
	return cmd
}

// sizes returns the bytes of a model, and of the one that was made of it.
// Both count their external data.
func sizes(model, made string) (before, after int64, err error) {
	if before, err = bytesOf(model); err == nil {
		after, err = bytesOf(made)
	}
	return before, after, err
}

// bytesOf returns the bytes of a model's file and of those that hold its external data. Names of
// external data are relative to the model's folder. The model is read whole for its list of them,
// and those files are only asked for their sizes.
func bytesOf(model string) (int64, error) {
	data, err := serde.ReadFile(model)
	if err != nil {
		return 0, fmt.Errorf("measuring the model: %w", err)
	}
	names, err := serde.Externals(data)
	if err != nil {
		return 0, fmt.Errorf("measuring the model: %s: %w", model, err)
	}
	n := int64(len(data))
	for _, name := range names {
		st, err := os.Stat(filepath.Join(filepath.Dir(model), name))
		if err != nil {
			return 0, fmt.Errorf("measuring the model: %w", err)
		}
		n += st.Size()
	}
	return n, nil
}

// descends records in a model of the program's that the file at path was made into it by a command;
// a classifier then remains one that a notice of its round supersedes. The command line of the
// manifest grows by one command, joined by "&&". The digest is that of the file's bytes, which a
// notice names, and not of m as it would be saved. A manifest that cannot be read is not written
// over.
func descends(m *onnx.Model, path, command string) error {
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil // another program's
	}
	if f.Command != "" {
		f.Command += " && " + command
		if err := f.Write(m); err != nil {
			return err
		}
	}
	if f.Kind != models.KindClassifier {
		return nil
	}
	digest, err := models.DigestFile(path, serde.MaxFileBytes)
	if err != nil {
		return err
	}
	return models.Descends(m, digest)
}
