package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"fmp/onnx/printable"
	"fmp/onnx/train"
	"fmp/pipeline/lab/experiment"
)

// logEvery is how often progress is a line in a log. It keeps a log of hours readable.
const logEvery = 10 * time.Second

// progress shows how far work is: a bar with rate and time left on a terminal; elsewhere plain
// lines, at the start and the end of a stage and every ten seconds between. Its methods may be
// called from several goroutines. mu guards all fields but w, bars and the clock.
type progress struct {
	mu sync.Mutex
	// bars says that w is a terminal: a bar is drawn there.
	w       io.Writer
	bars    bool
	now     func() time.Time
	stage   string
	bar     *progressbar.ProgressBar
	started time.Time
	first   int // done when the stage was first heard of, as after a resume
	last    time.Time
	lined   int // done when the last line was written
	done    int
	total   int
	share   float64 // of the work, where steps differ in what they cost; else 0
	begun   float64 // share when the stage was first heard of
	note    string  // behind the numbers of the last step
	said    string  // the last problem
}

// newProgress writes to w; call close when the work has ended. Nothing is written before the first
// report.
func newProgress(w io.Writer) *progress {
	return &progress{w: w, bars: isTerminal(w), now: time.Now}
}

// newLateProgress is newProgress for work that mostly takes a moment: nothing is written in the
// first seconds, in a log in the first ten. Lines that were dropped are not caught up on.
func newLateProgress(w io.Writer) *progress {
	p := newProgress(w)
	after := quietInLog
	if p.bars {
		w, after = printable.Raw(w), quiet
	}
	p.w = &late{w, time.Now().Add(after), time.Now}
	return p
}

// How long late progress waits on a terminal, and in a log. Tests wait less.
var (
	quiet      = 2 * time.Second
	quietInLog = logEvery
)

// late is a writer that drops all bytes before a time. from is fixed when the work begins, and a
// bar is redrawn after it.
type late struct {
	to   io.Writer
	from time.Time
	now  func() time.Time
}

// Write says that all bytes were written, also of those that it drops.
func (l *late) Write(b []byte) (int, error) {
	if l.now().Before(l.from) {
		return len(b), nil
	}
	return l.to.Write(b)
}

// isTerminal reports whether w, or the writer behind a printable one, is a terminal that can redraw
// a line. TERM=dumb is a terminal that cannot go back in a line.
func isTerminal(w any) bool {
	if to, ok := w.(io.Writer); ok {
		w = printable.Raw(to)
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// wantColor reports whether output to w may be coloured: a terminal, and no NO_COLOR
// (https://no-color.org).
func wantColor(w any) bool { return os.Getenv("NO_COLOR") == "" && isTerminal(w) }

// coloured returns the writer for a text of this program's own, which may be coloured.
func coloured(w io.Writer) io.Writer {
	if wantColor(w) {
		return printable.Raw(w)
	}
	return w
}

// report says that done of total steps of a stage are done; total 0 means that the end is not
// known. It may be called from several goroutines.
func (p *progress) report(stage string, done, total int) {
	share := 0.0
	if total > 0 {
		share = float64(done) / float64(total)
	}
	p.work(experiment.Step{Stage: stage, Done: done, Total: total, Share: share})
}

// work is report of steps that differ in cost: the bar, the share and the time left are of the
// work, not of the steps.
func (p *progress) work(s experiment.Step) { p.step(s, "") }

// step is work with a note behind the numbers.
func (p *progress) step(s experiment.Step, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	// Another total is other work, also under the same name.
	if s.Stage != p.stage || s.Total != p.total {
		p.finish()
		p.stage, p.total, p.started, p.first, p.last, p.lined = s.Stage, s.Total, now, s.Done,
			time.Time{}, s.Done
		p.share, p.begun = s.Share, s.Share
		if p.bars {
			p.bar = newBar(p.w, s.Stage, barSteps*min(s.Total, 1))
		}
	}
	// goroutines may report out of order
	p.done, p.share, p.note = max(p.done, s.Done), max(p.share, s.Share), note
	if p.bar != nil {
		// The bar only draws; where it cannot, the work goes on.
		if p.total == 0 {
			p.bar.Describe(printable.Line(fmt.Sprintf("%s %d", p.stage, p.done)))
			_ = p.bar.Set(p.done)
			return
		}
		p.bar.Describe(printable.Line(fmt.Sprintf("%s %d of %d%s", p.stage, p.done, p.total,
			note)))
		_ = p.bar.Set(int(barSteps * p.share))
		return
	}
	if p.last.IsZero() || now.Sub(p.last) >= logEvery {
		p.line(now)
	}
}

// line writes one line of a log. The caller holds mu.
func (p *progress) line(now time.Time) {
	p.last = now
	p.lined = p.done
	text := fmt.Sprintf("%s: %d", p.stage, p.done)
	if p.total > 0 {
		text = fmt.Sprintf("%s: %d of %d (%d%%)", p.stage, p.done, p.total, int(100*p.share))
	}
	fmt.Fprintln(p.w, text+p.note+
		pace(p.done-p.first, p.share-p.begun, 1-p.share, now.Sub(p.started)))
}

// pace returns the rate of work and its time left, to follow a line of progress, given the steps
// that are done, their share of the whole, the share that is left, and the time that the steps
// took. The rate is done/took, and the time left is left/share*took. Without a step or a time there
// is none. The estimate takes the pace so far for the rest.
func pace(done int, share, left float64, took time.Duration) string {
	if took <= 0 || done <= 0 {
		return ""
	}
	rate, _ := strconv.ParseFloat(fmt.Sprintf("%.3g", float64(done)/took.Seconds()), 64)
	text := fmt.Sprintf(", %s/s", strconv.FormatFloat(rate, 'f', -1, 64))
	if share > 0 && left > 0 {
		text += fmt.Sprintf(", %s left", time.Duration(left/share*float64(took)).Round(time.Second))
	}
	return text
}

// barSteps is how finely a bar is drawn. A thousandth is finer than the bar's 24 columns.
const barSteps = 1000

// newBar draws on w; total 0 means that the end is not known. It redraws ten times a second at
// most.
func newBar(w io.Writer, description string, total int) *progressbar.ProgressBar {
	limit := int64(total)
	if total <= 0 {
		limit = -1
	}
	return progressbar.NewOptions64(limit, progressbar.OptionSetWriter(printable.Raw(w)),
		progressbar.OptionSetDescription(printable.Line(description)),
		progressbar.OptionSetWidth(24), progressbar.OptionSetPredictTime(true),
		progressbar.OptionEnableColorCodes(false), progressbar.OptionUseANSICodes(true),
		progressbar.OptionThrottle(100*time.Millisecond))
}

// finish ends a stage: it closes the bar, or writes the last line of a log. The caller holds mu. A
// log gets its last line only where it would say anything new.
func (p *progress) finish() {
	if p.stage == "" {
		return
	}
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.w)
		p.bar = nil
	} else if p.done > p.lined || p.last.IsZero() {
		p.line(p.now())
	}
	p.stage, p.done, p.total = "", 0, 0
}

// problem is a line about a fault that does not end the work; the same one is said once. The stage
// begins anew with the next report.
func (p *progress) problem(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said == err.Error() {
		return
	}
	p.said = err.Error()
	p.finish()
	fmt.Fprintf(p.w, "Problem: %v; the work goes on.\n", err)
}

// close ends the last stage. Reports may come after it, and begin a stage again.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish()
}

// gridProgress shows how far several runs at once are: a line when one begins, ends or fails, and
// how far all of them are together, as one bar on a terminal and a line every ten seconds
// elsewhere. runs is changed under mu alone.
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

// gridRun is the state of one run of a grid. A cell is one record of its results.
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
// of finished cells. Call begin before the first of them and close after the last. It takes runs
// over: they are the progress's to change.
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

// cells counts those of all runs, and those that are done. The caller holds mu, or nobody else uses
// p yet or any more.
func (p *gridProgress) cells() (done, total int) {
	for _, r := range p.runs {
		done += r.done
		total += r.cells
	}
	return done, total
}

// share is that of all runs' work that is done. Each run has the weight of its cells. A run without
// cells has no weight. With cells c_i and shares w_i of runs i it is sum_i w_i c_i / sum_i c_i.
func (p *gridProgress) share() float64 {
	done, total := 0.0, 0
	for _, r := range p.runs {
		done += r.worked * float64(r.cells)
		total += r.cells
	}
	return done / float64(max(total, 1))
}

// begin says that the i-th run begins and returns the sink of its progress. Each i is begun once.
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
		// Stages before it make no cells.
		if s.Stage == "methods" {
			r.done, r.worked = s.Done, s.Share
		}
		if now := p.now(); p.bar != nil || now.Sub(p.last) >= logEvery {
			p.last = now
			p.show()
		}
	}
}

// end says that the i-th run has ended; err is nil where it ended well. It must follow begin of the
// same i.
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

// say writes a line, above the bar where there is one. The caller holds mu, and "" says nothing.
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

// atOnce is how many running runs a line names. The rest is counted.
const atOnce = 4

// show draws the bar or writes a line. The caller holds mu.
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

// close ends the bar, or says in a log where the work ended. In a log it says nothing where no run
// was begun.
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

// training is report of a training, with its loss and learning rate. A problem is told and counts
// as no step.
func (p *progress) training(t train.Progress) {
	if t.Problem != nil {
		p.problem(t.Problem)
		return
	}
	p.step(experiment.Step{Stage: "training", Done: t.Step, Total: t.Steps,
		Share: float64(t.Step) / float64(max(t.Steps, 1))},
		fmt.Sprintf(", loss %.4f, learning rate %.2g", t.Metrics["loss"], t.Rate))
}

// trainingJSON prints one line of JSON a step. Each line is an object of its own (JSON Lines), on
// the writer of progress.
func (p *progress) trainingJSON(t train.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := map[string]any{"step": t.Step, "steps": t.Steps, "rate": t.Rate,
		"per_second": t.PerSecond, "seconds_left": t.Left.Seconds(), "metrics": t.Metrics,
		"validation": t.Validation}
	if t.Problem != nil {
		line = map[string]any{"problem": t.Problem.Error()}
	}
	if data, err := json.Marshal(line); err == nil {
		fmt.Fprintf(p.w, "%s\n", data)
	}
}
