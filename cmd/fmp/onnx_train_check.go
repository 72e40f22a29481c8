package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"fmp/onnx"
	"fmp/onnx/train"
)

// check refuses settings that are out of range, and those that nothing would read.
func (o *tuning) check(cmd *cobra.Command) error {
	if o.out == "" && !o.list {
		return usageErrorf("-o is not given; name the file to write")
	}
	if (o.images == "") == (o.data == "") {
		return usageErrorf("give one of --images FOLDER and --data FILE.npz")
	}
	if err := o.t.Loss.Check(); err != nil {
		return usageErrorf("--loss: %w", err)
	}
	if _, err := whole(o.freeze); err != nil {
		return usageErrorf("--freeze: %w", err)
	}
	const up = "0 and up"
	for _, c := range []struct {
		flag    string
		value   float64
		ok      bool
		allowed string
	}{
		{"epochs", float64(o.t.Epochs), o.t.Epochs >= 1, "1 epoch and up"},
		{"batch", float64(o.t.Batch), o.t.Batch >= 1, "1 and up"},
		{"parts", float64(o.t.Parts), o.t.Parts >= 1, "1 and up"},
		{"parallel", float64(o.t.Threads), o.t.Threads >= 1, "1 and up"},
		{"patience", float64(o.t.Patience), o.t.Patience >= 0, up},
		{"lora", float64(o.t.LoRA), o.t.LoRA >= 0, up},
		{"classes", float64(o.classes), o.classes >= 0, up},
		{"shift", float64(o.augment.Shift), o.augment.Shift >= 0, up},
		{"held-out", o.heldOut, o.heldOut >= 0 && o.heldOut < 1, "0 to below 1"},
		{"rate", o.rate, o.rate > 0 || !cmd.Flags().Changed("rate"), "above 0"},
		{"warmup", o.warmup, o.warmup >= 0 && o.warmup <= 1, "0 to 1"},
		{"momentum", o.momentum, o.momentum >= 0 && o.momentum < 1, "0 to below 1"},
		{"weight-decay", o.decay, o.decay >= 0, up},
		{"clip", o.clip, o.clip >= 0, up},
		{"temperature", o.t.Loss.Temperature, o.t.Loss.Temperature > 0, "above 0"},
	} {
		if !c.ok || math.IsInf(c.value, 0) {
			return usageErrorf("--%s %v; allowed are %s", c.flag, c.value, c.allowed)
		}
	}
	for _, c := range []struct {
		acts  bool
		with  string
		flags []string
	}{
		{o.images != "", "--images", []string{"preset", "mean", "std", "layout", "side", "flip", "shift", "on-bad"}},
		{o.data != "", "--data", []string{"classes"}},
		{o.optimizer != "adamw", "--optimizer sgd", []string{"momentum"}},
		{o.t.Loss.Name == train.CrossEntropy || o.t.Loss.Name == train.Contrastive,
			"--loss " + train.CrossEntropy + " or " + train.Contrastive, []string{"classes"}},
		{o.t.Loss.Name == train.CrossEntropy, "--loss " + train.CrossEntropy, []string{"smoothing", "head"}},
		{o.t.Loss.Name == train.Contrastive, "--loss " + train.Contrastive, []string{"temperature"}},
	} {
		for _, name := range c.flags {
			if cmd.Flags().Changed(name) && !c.acts {
				return usageErrorf("--%s goes with %s, and would be ignored here", name, c.with)
			}
		}
	}
	return nil
}

// checkRows returns an error for the first row of an array that is no target of the loss, or, of an
// input, has a number that is not finite.
func (o *tuning) checkRows(name string, t *onnx.Tensor) error {
	if t.F32() == nil || len(t.Shape) == 0 || t.Shape[0] == 0 {
		return nil
	}
	target, size := name == train.TargetInput, t.Len()/t.Shape[0]
	for row := range t.Shape[0] {
		sum, low, high := 0.0, math.Inf(1), math.Inf(-1)
		for _, v := range t.F32()[row*size : (row+1)*size] {
			sum, low, high = sum+float64(v), min(low, float64(v)), max(high, float64(v))
		}
		want := ""
		switch {
		case math.IsNaN(sum) || size > 0 && (math.IsInf(low, 0) || math.IsInf(high, 0)):
			want = "finite numbers"
		case target && o.t.Loss.Name == train.CrossEntropy && !(low >= 0 && math.Abs(sum-1) <= 1e-3):
			want = "probabilities that sum to 1, or the number of a class"
		case target && o.t.Loss.Name == train.Binary && !(low >= 0 && high <= 1):
			want = "numbers from 0 to 1"
		}
		if want != "" {
			return fmt.Errorf("%s: row %d of %q has %v to %v, of sum %v; want %s", o.data, row,
				name, low, high, sum, want)
		}
	}
	return nil
}
