package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/onnx"
	"fmp/onnx/grad"
	"fmp/onnx/serde"
)

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
			return say(cmd, map[string]any{
				"file": out, "inputs": valueNames(g.Graph.Inputs),
				"outputs": valueNames(g.Graph.Outputs),
				"nodes":   len(g.Graph.Nodes), "opset": g.Opset(),
			}, "%s: %d nodes, operator set %d\n  inputs   %s\n  outputs  %s\n", out,
				len(g.Graph.Nodes), g.Opset(), strings.Join(valueNames(g.Graph.Inputs), ", "),
				strings.Join(valueNames(g.Graph.Outputs), ", "))
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
	f.StringVarP(&out, "out", "o", "", "file to write")
	outputs.Files(cmd.Flags(), "out")
	jsonFlag(cmd, "print JSON")
	return cmd
}

func valueNames(vs []onnx.ValueInfo) []string {
	names := make([]string, len(vs))
	for i, v := range vs {
		names[i] = v.Name
	}
	return names
}
