package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// logEvery is how often progress is a line in a log.
const logEvery = 10 * time.Second

// progress shows how far work is: a bar with rate and time left on a terminal; elsewhere plain lines, at
// the start and the end of a stage and every ten seconds between.
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
	said    string // the last problem
}

// newProgress writes to w; call close when the work has ended.
func newProgress(w io.Writer) *progress {
	return &progress{w: w, bars: isTerminal(w), now: time.Now}
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// wantColor says whether output to w may be coloured: a terminal, and no NO_COLOR (https://no-color.org).
func wantColor(w any) bool { return os.Getenv("NO_COLOR") == "" && isTerminal(w) }

// report says that done of total steps of a stage are done; total 0 means that the end is not known. It may
// be called from several goroutines.
func (p *progress) report(stage string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if stage != p.stage || total != p.total {
		p.finish()
		p.stage, p.total, p.started, p.first, p.last, p.lined = stage, total, now, done, time.Time{}, done
		if p.bars {
			p.bar = newBar(p.w, stage, total)
		}
	}
	p.done = max(p.done, done) // goroutines may report out of order
	if p.bar != nil {
		// The bar only draws; where it cannot, the work goes on.
		_ = p.bar.Set(p.done)
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
		text = fmt.Sprintf("%s: %d of %d (%d%%)", p.stage, p.done, p.total, 100*p.done/p.total)
	}
	fmt.Fprintln(p.w, text+pace(p.done-p.first, p.total-p.done, now.Sub(p.started)))
}

// pace is rate and time left of work of which so many steps took so long, and so many are left, to follow a
// line of progress.
func pace(done, left int, took time.Duration) string {
	if took <= 0 || done <= 0 {
		return ""
	}
	rate := float64(done) / took.Seconds()
	text := fmt.Sprintf(", %.3g/s", rate)
	if left > 0 {
		text += fmt.Sprintf(", %s left", time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second))
	}
	return text
}

// newBar draws on w; total 0 means that the end is not known.
func newBar(w io.Writer, description string, total int) *progressbar.ProgressBar {
	limit := int64(total)
	if total <= 0 {
		limit = -1
	}
	return progressbar.NewOptions64(limit,
		progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(description), progressbar.OptionSetWidth(24),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetPredictTime(true),
		progressbar.OptionEnableColorCodes(false), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionUseANSICodes(true))
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

// problem is a line about what went wrong and does not end the work; the same one is said once.
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
