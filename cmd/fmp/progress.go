package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"fmp/onnx/printable"
	"fmp/pipeline/lab/experiment"
)

// logEvery is how often progress is a line in a log.
const logEvery = 10 * time.Second

// progress shows how far work is: a bar with rate and time left on a terminal; elsewhere plain
// lines, at the start and the end of a stage and every ten seconds between.
type progress struct {
	mu      sync.Mutex
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
	said    string  // the last problem
}

// newProgress writes to w; call close when the work has ended.
func newProgress(w io.Writer) *progress {
	return &progress{w: w, bars: isTerminal(w), now: time.Now}
}

// newLateProgress is newProgress for work that mostly takes a moment: nothing is written in the
// first seconds, in a log in the first ten.
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

// late is a writer that drops all bytes before a time.
type late struct {
	to   io.Writer
	from time.Time
	now  func() time.Time
}

func (l *late) Write(b []byte) (int, error) {
	if l.now().Before(l.from) {
		return len(b), nil
	}
	return l.to.Write(b)
}

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
	p.step(experiment.Step{Stage: stage, Done: done, Total: total, Share: share})
}

// step is report of work whose steps differ in cost: the bar, the share and the time left are of
// the work, not of the steps.
func (p *progress) step(s experiment.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if s.Stage != p.stage || s.Total != p.total {
		p.finish()
		p.stage, p.total, p.started, p.first, p.last, p.lined = s.Stage, s.Total, now, s.Done,
			time.Time{}, s.Done
		p.share, p.begun = s.Share, s.Share
		if p.bars {
			p.bar = newBar(p.w, s.Stage, barSteps*min(s.Total, 1))
		}
	}
	p.done, p.share = max(p.done, s.Done), max(p.share, s.Share) // goroutines may report out of order
	if p.bar != nil {
		// The bar only draws; where it cannot, the work goes on.
		if p.total == 0 {
			p.bar.Describe(printable.Line(fmt.Sprintf("%s %d", p.stage, p.done)))
			_ = p.bar.Set(p.done)
			return
		}
		p.bar.Describe(printable.Line(fmt.Sprintf("%s %d of %d", p.stage, p.done, p.total)))
		_ = p.bar.Set(int(barSteps * p.share))
		return
	}
	if p.last.IsZero() || now.Sub(p.last) >= logEvery {
		p.line(now)
	}
}

// line writes one line of a log.
func (p *progress) line(now time.Time) {
	p.last = now
	p.lined = p.done
	text := fmt.Sprintf("%s: %d", p.stage, p.done)
	if p.total > 0 {
		text = fmt.Sprintf("%s: %d of %d (%d%%)", p.stage, p.done, p.total, int(100*p.share))
	}
	fmt.Fprintln(p.w, text+pace(p.done-p.first, p.share-p.begun, 1-p.share, now.Sub(p.started)))
}

// pace returns the rate of work and its time left, to follow a line of progress, given the steps
// that are done, their share of the whole, the share that is left, and the time that the steps
// took.
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

// barSteps is how finely a bar is drawn.
const barSteps = 1000

// newBar draws on w; total 0 means that the end is not known.
func newBar(w io.Writer, description string, total int) *progressbar.ProgressBar {
	limit := int64(total)
	if total <= 0 {
		limit = -1
	}
	return progressbar.NewOptions64(limit,
		progressbar.OptionSetWriter(printable.Raw(w)),
		progressbar.OptionSetDescription(printable.Line(description)), progressbar.OptionSetWidth(24),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionEnableColorCodes(false), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionUseANSICodes(true))
}

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

// problem is a line about a fault that does not end the work; the same one is said once.
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

// close ends the last stage.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish()
}
