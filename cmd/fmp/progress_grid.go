package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"fmp/onnx/printable"
	"fmp/pipeline/lab/experiment"
)

// gridProgress shows how far several runs at once are: a line when one begins, ends or fails, and
// how far all of them are together, as one bar on a terminal and a line every ten seconds
// elsewhere.
type gridProgress struct {
	mu      sync.Mutex
	w       io.Writer
	bar     *progressbar.ProgressBar // nil in a log
	now     func() time.Time
	started time.Time
	last    time.Time
	runs    []gridRun
	ended   int     // runs
	first   int     // cells that were done before
	begun   float64 // share of the work that was done before
}

type gridRun struct {
	name        string
	cells, done int
	running     bool
	begun       time.Time
	stage       string  // where it is: "data", "methods" and so on
	share       float64 // of the stage
	worked      float64 // share of all methods' work
}

// newGridProgress returns the progress of runs with the given names, numbers of cells, and numbers
// of finished cells. Call begin before the first of them and close after the last.
func newGridProgress(w io.Writer, runs []gridRun) *gridProgress {
	p := &gridProgress{w: w, now: time.Now, runs: runs}
	done, _ := p.cells()
	for i := range runs {
		runs[i].worked = float64(runs[i].done) / float64(max(runs[i].cells, 1))
	}
	p.first, p.begun = done, p.share()
	if isTerminal(w) {
		p.bar = newBar(w, "grid", barSteps)
	}
	return p
}

func (p *gridProgress) cells() (done, total int) {
	for _, r := range p.runs {
		done += r.done
		total += r.cells
	}
	return done, total
}

// share is that of all runs' work that is done.
func (p *gridProgress) share() float64 {
	done, total := 0.0, 0
	for _, r := range p.runs {
		done += r.worked * float64(r.cells)
		total += r.cells
	}
	return done / float64(max(total, 1))
}

// begin says that the i-th run begins and returns the sink of its progress.
func (p *gridProgress) begin(i int) experiment.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.started.IsZero() {
		p.started, p.last = now, now
	}
	r := &p.runs[i]
	r.running, r.begun, r.stage = true, now, "beginning"
	text := fmt.Sprintf("%s: begun, run %d of %d", r.name, i+1, len(p.runs))
	switch {
	case r.done == r.cells && r.cells > 0:
		text = ""
	case r.done > 0:
		text += fmt.Sprintf(", %d of %d cells were done before", r.done, r.cells)
	}
	p.say(text)
	return func(s experiment.Step) {
		p.mu.Lock()
		defer p.mu.Unlock()
		r.stage, r.share = s.Stage, s.Share
		if s.Stage == "methods" {
			r.done, r.worked = s.Done, s.Share
		}
		if now := p.now(); p.bar != nil || now.Sub(p.last) >= logEvery {
			p.last = now
			p.show()
		}
	}
}

// end says that the i-th run has ended; err is nil where it ended well.
func (p *gridProgress) end(i int, resumed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &p.runs[i]
	r.running = false
	p.ended++
	switch {
	case err != nil:
		p.say(fmt.Sprintf("%s: FAILED: %s", r.name, strings.ReplaceAll(err.Error(), "\n", "; ")))
	case resumed:
		p.say(fmt.Sprintf("%s: was done before (%d of %d runs)", r.name, p.ended, len(p.runs)))
	default:
		p.say(fmt.Sprintf("%s: done in %s (%d of %d runs)", r.name,
			p.now().Sub(r.begun).Round(100*time.Millisecond), p.ended, len(p.runs)))
	}
}

// say writes a line, above the bar where there is one.
func (p *gridProgress) say(text string) {
	if text == "" {
		return
	}
	if p.bar != nil {
		_ = p.bar.Clear() // the bar only draws; where it cannot, the work goes on
	}
	fmt.Fprintln(p.w, text)
	if p.bar != nil {
		p.show()
	}
}

// atOnce is how many running runs a line names.
const atOnce = 4

// show draws the bar or writes a line.
func (p *gridProgress) show() {
	done, total := p.cells()
	var at []string
	for _, r := range p.runs {
		if !r.running {
			continue
		}
		switch {
		case r.stage == "methods" && p.bar != nil:
		case r.stage == "methods":
			at = append(at, fmt.Sprintf("%s %d%%", r.name, int(100*r.worked)))
		case r.share > 0:
			at = append(at, fmt.Sprintf("%s %s %.0f%%", r.name, r.stage, 100*r.share))
		default:
			at = append(at, fmt.Sprintf("%s %s", r.name, r.stage))
		}
	}
	if len(at) > atOnce {
		at = append(at[:atOnce], fmt.Sprintf("and %d more", len(at)-atOnce))
	}
	running := strings.Join(at, "; ")
	if p.bar == nil {
		share := p.share()
		text := fmt.Sprintf("grid: %d of %d cells (%d%%)%s", done, total, int(100*share),
			pace(done-p.first, share-p.begun, 1-share, p.now().Sub(p.started)))
		if running != "" {
			text += " | " + running
		}
		fmt.Fprintln(p.w, text)
		return
	}
	description := fmt.Sprintf("grid %d of %d cells", done, total)
	if running != "" {
		description += " (" + clip(running) + ")"
	}
	p.bar.Describe(printable.Line(description))
	_ = p.bar.Set(int(barSteps * p.share()))
}

// close ends the bar, or says in a log where the work ended.
func (p *gridProgress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.w)
	} else if !p.started.IsZero() {
		p.show()
	}
}
