package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
	"fmp/onnx/shape"
)

func newONNXCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check MODEL",
		Short: "Say whether a model is sound, or what is wrong with it, by node and operator",
		Long: `Check a model: every name is given once, nodes come in order and read what exists, operators are
those of the model's operator sets with inputs, element types and attributes that they have, tensors
hold what they say, and no shapes contradict each other. A misspelt name is answered with the one
that was probably meant. What a sound model would make a runtime work out before it runs, beyond
what a model of its size may ask for, is noted. Exit code 2 where something is wrong, 3 where there
is no such file, 4 where the model may be sound and uses what is not known here: a newer operator
set, operators of another domain, values that are no tensors.`,
		Example: `  fmp onnx check model.onnx
  fmp onnx check model.onnx --json`,
		Args: exactArgs("MODEL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := serde.Load(args[0])
			if err == nil {
				if err = checkModel(m); err != nil {
					err = fmt.Errorf("%s: %w", args[0], err)
				}
			}
			notes := []string{}
			if err == nil {
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
				if perr := printJSON(cmd.OutOrStdout(), report); perr != nil {
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
				fmt.Fprintf(b, "%s is sound: %d nodes, operator set %d\n", args[0],
					len(m.Graph.Nodes), m.Opset())
				for _, note := range notes {
					fmt.Fprintf(b, "note: %s\n", note)
				}
			})
		},
	}
	jsonFlag(cmd, "print JSON")
	return cmd
}

// checkError gives a fault of a model its exit code.
func checkError(err error) error {
	if errors.Is(err, onnx.ErrUnknown) {
		return coded(exitUnknown, err)
	}
	return usageError(err)
}

// checkModel checks a model and its shapes. Where all is well it has its functions inlined and its
// types filled in.
func checkModel(m *onnx.Model) error {
	if err := check.Model(m); err != nil {
		return err
	}
	if err := pass.Inline(m); err != nil {
		return err
	}
	if err := shape.Infer(m); err != nil {
		return err
	}
	return check.Model(m)
}
