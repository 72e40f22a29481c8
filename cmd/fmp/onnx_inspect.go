package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fmp/onnx"
	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/pure"
	"fmp/onnx/grad"
	"fmp/onnx/inspect"
	"fmp/onnx/serde"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// inspection is the description of a model by inspect.
type inspection struct {
	File            string            `json:"file"`
	Graph           string            `json:"graph"`
	Producer        string            `json:"producer,omitempty"`
	IR              int64             `json:"ir_version"`
	Opset           int64             `json:"opset"`
	Functions       int               `json:"functions,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	Inputs          []valueReport     `json:"inputs"`
	Optional        []valueReport     `json:"optional_inputs,omitempty"`
	Outputs         []valueReport     `json:"outputs"`
	Nodes           int               `json:"nodes"`
	Operators       map[string]int    `json:"operators"`
	Parameters      int64             `json:"parameters"`
	ParameterBytes  int64             `json:"parameter_bytes"`
	FLOPs           float64           `json:"flops"`
	Sizes           map[string]int    `json:"sizes,omitempty"`     // for which the operations were counted
	Uncounted       []string          `json:"uncounted,omitempty"` // operators that flops leaves out
	FLOPsError      string            `json:"flops_error,omitempty"`
	Check           string            `json:"check"` // "ok" or what is wrong
	Engines         map[string]string `json:"engines"`
	Differentiation string            `json:"grad"` // "yes" or why not
}

// valueReport is a value's name, element type and shape; a size is a number or a symbol.
type valueReport struct {
	Name  string   `json:"name"`
	Type  string   `json:"type"`
	Shape []string `json:"shape"` // null where even the rank is unknown
}

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
func inspectModel(m *onnx.Model, sizes map[string]int, cfg settings.Engine) (inspection, error) {
	r := inspection{
		Graph: m.Graph.Name, Producer: strings.TrimSpace(m.Producer + " " + m.ProducerVersion),
		IR:        m.IR,
		Opset:     m.Opset(),
		Functions: len(m.Functions), Metadata: m.Metadata, Check: "ok", Engines: map[string]string{},
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

	r.Engines["pure"] = "yes"
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
	if err := checkModel(m); err != nil {
		r.Check = err.Error()
	}
	r.Inputs, r.Optional, r.Outputs = valueReports(m.Graph.Inputs), valueReports(m.Graph.Optional),
		valueReports(m.Graph.Outputs)
	return r, nil
}

// tryRuntime loads a model on the ONNX Runtime, which alone knows its operators.
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
// need not read them to answer.
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

func (r inspection) print(w io.Writer) {
	fmt.Fprintf(w, "graph\t%s\n", r.Graph)
	if r.Producer != "" {
		fmt.Fprintf(w, "producer\t%s\n", r.Producer)
	}
	fmt.Fprintf(w, "version\topset %d, IR %d\n", r.Opset, r.IR)
	for _, part := range []struct {
		label string
		vs    []valueReport
	}{{"input", r.Inputs}, {"optional", r.Optional}, {"output", r.Outputs}} {
		for _, v := range part.vs {
			shape := "[...]"
			if v.Shape != nil {
				shape = "[" + strings.Join(v.Shape, ", ") + "]"
			}
			fmt.Fprintf(w, "%s\t%s  %s %s\n", part.label, v.Name, v.Type, shape)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		fmt.Fprintf(w, "metadata\t%s = %s\n", k, abridged(r.Metadata[k], 200))
	}
	fmt.Fprintf(w, "parameters\t%s (%s bytes)\n", thousands(r.Parameters),
		thousands(r.ParameterBytes))
	var sizes []string
	for _, k := range slices.Sorted(maps.Keys(r.Sizes)) {
		sizes = append(sizes, fmt.Sprintf("%s=%d", k, r.Sizes[k]))
	}
	if r.FLOPsError != "" {
		fmt.Fprintf(w, "operations\tnot counted: %s; give sizes with --dim NAME=N\n", r.FLOPsError)
	} else {
		fmt.Fprintf(w, "operations\t%.4g a call", r.FLOPs)
		if len(sizes) > 0 {
			fmt.Fprintf(w, " with %s", strings.Join(sizes, ", "))
		}
		if len(r.Uncounted) > 0 {
			fmt.Fprintf(w, ", without %s", strings.Join(r.Uncounted, ", "))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "nodes\t%d\n", r.Nodes)
	ops := slices.Sorted(maps.Keys(r.Operators))
	sort.SliceStable(ops, func(i, j int) bool { return r.Operators[ops[i]] > r.Operators[ops[j]] })
	for i, op := range ops {
		label := "operators"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(w, "%s\t%4d  %s\n", label, r.Operators[op], op)
	}
	fmt.Fprintf(w, "check\t%s\n", r.Check)
	for _, name := range slices.Sorted(maps.Keys(r.Engines)) {
		fmt.Fprintf(w, "engine %s\t%s\n", name, r.Engines[name])
	}
	fmt.Fprintf(w, "grad\t%s\n", r.Differentiation)
}

// abridged cuts a text to n runes, on one line.
func abridged(s string, n int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > n {
		return string(r[:n]) + "..."
	}
	return string(r)
}

// thousands writes a number in groups of three digits.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
