package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"fmp/onnx/printable"
	"fmp/onnx/train"
)

// trainingProgress shows loss, rate and time left of a training run: one line that is written over
// on a terminal, a line every ten seconds elsewhere.
type trainingProgress struct {
	w    io.Writer
	over bool
	last time.Time
	said string // the last problem
}

func newTrainingProgress(w io.Writer) *trainingProgress {
	return &trainingProgress{w: w, over: isTerminal(w)}
}

func (p *trainingProgress) report(t train.Progress) {
	if t.Problem != nil {
		if said := t.Problem.Error(); p.said != said {
			p.said = said
			fmt.Fprintf(p.w, "\nProblem: %s; training goes on.\n", said)
		}
		return
	}
	every := logEvery
	if p.over {
		every = 200 * time.Millisecond
	}
	now := time.Now()
	if now.Sub(p.last) < every && t.Step < t.Steps {
		return
	}
	p.last = now
	line := fmt.Sprintf("training: step %d of %d (%d%%), loss %.4f, learning rate %.2g, %.3g/s, %s left",
		t.Step, t.Steps, 100*t.Step/t.Steps, t.Metrics["loss"], t.Rate, t.PerSecond,
		t.Left.Round(time.Second))
	if !p.over {
		fmt.Fprintln(p.w, line)
		return
	}
	fmt.Fprintf(printable.Raw(p.w), "\r\x1b[K%s", line)
	if t.Step == t.Steps {
		fmt.Fprintln(p.w)
	}
}

// json prints one line of JSON a step.
func (p *trainingProgress) json(t train.Progress) {
	line := map[string]any{"step": t.Step, "steps": t.Steps, "rate": t.Rate, "per_second": t.PerSecond,
		"seconds_left": t.Left.Seconds(), "metrics": t.Metrics, "validation": t.Validation}
	if t.Problem != nil {
		line = map[string]any{"problem": t.Problem.Error()}
	}
	if data, err := json.Marshal(line); err == nil {
		fmt.Fprintf(p.w, "%s\n", data)
	}
}

// close ends a line that was broken off.
func (p *trainingProgress) close(err error) {
	if p.over && err != nil {
		fmt.Fprintln(p.w)
	}
}
