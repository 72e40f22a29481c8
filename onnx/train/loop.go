package train

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/optim"
	"fmp/onnx/regularfile"
)

// Metrics are named numbers of a step or a validation; "loss" is the one that is watched.
type Metrics map[string]float64

// Stateful is the state that a checkpoint holds: [Step] and [Split] have one.
type Stateful interface {
	State() map[string]*onnx.Tensor
	SetState(map[string]*onnx.Tensor) error
}

var (
	_ Stateful = (*Step)(nil)
	_ Stateful = (*Split)(nil)
)

// Loop takes training steps until they are done, the context is cancelled or a value is not finite.
//
// Where everything that Step does is a function of the step's number and of the model's state (take
// random numbers from a stream named by the step), a run that was stopped and resumed equals one
// that was not, bit for bit.
type Loop struct {
	// Steps is the number of steps; at least one, and no fewer than a checkpoint has.
	Steps int
	// Step takes step t (from 0) at a learning rate; its metrics must hold "loss".
	Step func(ctx context.Context, t int, rate float64) (Metrics, error)
	// Rate is the schedule of learning rates.
	Rate optim.Schedule
	// Model holds the state for checkpoints.
	Model Stateful

	// Run identifies the run (configuration and seed): a checkpoint of another is refused.
	Run string
	// Checkpoint is the file to resume from and to save to, every Interval and at the end; "" saves
	// nothing.
	Checkpoint string
	// Interval is the time between checkpoints; default 30 s. No more is lost where the program is
	// killed; on cancellation nothing is.
	Interval time.Duration

	// Validate measures the model every ValidateEvery steps and after the last; nil never. With
	// [ErrStop] beside its metrics it ends the training there, for good where there is a
	// checkpoint.
	Validate      func(ctx context.Context, t int) (Metrics, error)
	ValidateEvery int

	// Log is a file of JSON Lines, one for every LogEvery steps (default 1) with the means since
	// the last, and one for every validation; its numbers that are not finite are null. Lines after
	// the checkpoint that is resumed from are removed. "" writes none.
	Log      string
	LogEvery int
	// Progress, where not nil, is called after every step.
	Progress func(Progress)

	log *os.File
}

// Progress tells how far a run is.
type Progress struct {
	Step, Steps int // steps done, of how many
	Metrics     Metrics
	Rate        float64       // learning rate
	PerSecond   float64       // steps, over the last ones
	Left        time.Duration // at that rate
	Validation  Metrics       // of the latest validation
	// Problem, where not nil, is why a checkpoint or a line of the log could not be written, on a
	// full disk say. Training goes on: only the chance to go on from there is lost.
	Problem error
}

// ErrStop is the error that [Loop].Validate returns to end the training early.
var ErrStop = errors.New("training is ended early")

// NotFiniteError says where training stopped making numbers.
type NotFiniteError struct {
	Step   int
	Tensor string // the loss, a gradient or a carried tensor
}

// Error names as a remedy the data at step 0, where no update was made yet, and the rate later.
func (e *NotFiniteError) Error() string {
	if e.Step == 0 {
		return fmt.Sprintf("step 0: %s is not finite; look for numbers in the examples, their targets and the weights "+
			"that are not", e.Tensor)
	}
	return fmt.Sprintf("step %d: %s is not finite; lower the learning rate or clip the gradients",
		e.Step, e.Tensor)
}

// Train runs the loop. On cancellation it saves a checkpoint and returns the context's error.
// Settings and the checkpoint are checked before the log is touched.
func (l *Loop) Train(ctx context.Context) (err error) {
	if l.Steps < 1 || l.Step == nil || l.Rate == nil {
		return fmt.Errorf("training: steps is %d (allowed are 1 and up), and both Step and Rate "+
			"must be given", l.Steps)
	}
	if l.Checkpoint != "" && l.Model == nil {
		return errors.New("training: a checkpoint is of a Model, and none is given")
	}
	first, next, err := l.resume()
	if err != nil || next == nextNothing {
		return err
	}
	if err := l.openLog(first); err != nil {
		return err
	}
	defer func() {
		if l.log != nil {
			err = errors.Join(err, l.log.Close())
			l.log = nil
		}
	}()
	begun := time.Now()
	r := &course{Loop: l, begun: begun, saved: begun, pace: newPace(begun), interval: l.Interval}
	if r.interval <= 0 {
		r.interval = 30 * time.Second
	}
	t := first
	if next == nextValidation {
		err = r.validate(ctx, t-1, l.Rate(t-1, l.Steps))
	}
	for ; err == nil && t < l.Steps; t++ {
		err = r.step(ctx, t)
	}
	if next = ""; errors.Is(err, ErrStop) {
		next, err = nextNothing, nil
	}
	if err != nil {
		return err
	}
	return r.tell(l.save(t, next))
}

// resume loads the checkpoint, if there is one, and returns the number of steps done and how the
// run goes on. A checkpoint of as many steps as are wanted leaves none to take.
func (l *Loop) resume() (int, string, error) {
	if l.Checkpoint == "" {
		return 0, "", nil
	}
	s, ok, err := loadCheckpoint(l.Checkpoint, l.Run)
	if err != nil || !ok {
		return 0, "", err
	}
	if s.t > l.Steps {
		return 0, "", fmt.Errorf("checkpoint %s: it is of step %d, and %d are to be taken; remove it to start afresh",
			l.Checkpoint, s.t, l.Steps)
	}
	if err := l.Model.SetState(s.state); err != nil {
		return 0, "", fmt.Errorf("checkpoint %s: %w; remove it to start afresh", l.Checkpoint, err)
	}
	return s.t, s.next, nil
}

// course is the progress of a run.
type course struct {
	*Loop
	begun, saved time.Time
	interval     time.Duration // between checkpoints
	pace         *pace
	sums         Metrics // of the steps since the last line of the log
	summed       int
	validation   Metrics
	now          Progress
}

// tell passes a problem on to Progress; without one it is the run's error.
func (r *course) tell(problem error) error {
	if problem == nil || r.Progress == nil {
		return problem
	}
	p := r.now
	p.Problem = problem
	r.Progress(p)
	return nil
}

// step takes step t, with its log, validation, checkpoint and progress.
func (r *course) step(ctx context.Context, t int) error {
	if err := ctx.Err(); err != nil {
		return errors.Join(err, r.save(t, ""))
	}
	rate := r.Rate(t, r.Steps)
	m, err := r.Step(ctx, t, rate)
	if err != nil {
		if ctx.Err() != nil {
			// The step was broken off; its inputs are unchanged.
			return errors.Join(ctx.Err(), r.save(t, ""))
		}
		return err
	}
	if err := r.finite(t, m); err != nil {
		return err
	}
	if err := r.record(t, rate, m); err != nil {
		return err
	}
	if err := r.validate(ctx, t, rate); err != nil {
		return err
	}
	if time.Since(r.saved) >= r.interval && t+1 < r.Steps {
		if err := r.tell(r.save(t+1, "")); err != nil {
			return err
		}
		r.saved = time.Now()
	}
	if r.Progress != nil {
		p := r.pace.after(time.Now())
		r.now = Progress{
			Step: t + 1, Steps: r.Steps, Metrics: m, Rate: rate, PerSecond: p,
			Left:       time.Duration(float64(r.Steps-t-1) / p * float64(time.Second)),
			Validation: r.validation,
		}
		r.Progress(r.now)
	}
	return nil
}

// record adds up the metrics of step t and writes their means when a line of the log is due. A line
// is due after the last step as well; a resumed run's first line has the mean since the checkpoint.
func (r *course) record(t int, rate float64, m Metrics) error {
	if r.sums == nil {
		r.sums = Metrics{}
	}
	for k, v := range m {
		r.sums[k] += v
	}
	r.summed++
	if (t+1)%max(1, r.LogEvery) != 0 && t+1 != r.Steps {
		return nil
	}
	for k := range r.sums {
		r.sums[k] /= float64(r.summed)
	}
	err := r.tell(r.write("train", t+1, rate, r.begun, r.sums))
	r.sums, r.summed = nil, 0
	return err
}

// validate measures the model after step t where that is due. A validation that is broken off is
// taken again by the run that resumes.
func (r *course) validate(ctx context.Context, t int, rate float64) error {
	due := r.ValidateEvery > 0 && (t+1)%r.ValidateEvery == 0 || t+1 == r.Steps
	if r.Validate == nil || !due {
		return nil
	}
	v, err := r.Validate(ctx, t+1)
	if err != nil && !errors.Is(err, ErrStop) {
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), r.save(t+1, nextValidation))
		}
		return fmt.Errorf("validation after step %d: %w", t+1, err)
	}
	r.validation = v
	return errors.Join(r.tell(r.write("validation", t+1, rate, r.begun, v)), err)
}

// save writes a checkpoint of the state before step t, where there is a file for it.
func (l *Loop) save(t int, next string) error {
	if l.Checkpoint == "" {
		return nil
	}
	if err := saveCheckpoint(l.Checkpoint, l.Run, saved{t, next, l.Model.State()}); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// finite looks for NaN and infinities in the metrics; where there is one it names the tensor to
// blame.
func (l *Loop) finite(t int, m Metrics) error {
	bad := ""
	for k, v := range m {
		if (math.IsNaN(v) || math.IsInf(v, 0)) && (bad == "" || k < bad) {
			bad = k
		}
	}
	if bad == "" {
		return nil
	}
	if s, ok := l.Model.(interface{ NotFinite() string }); ok {
		if n := s.NotFinite(); n != "" {
			return &NotFiniteError{t, n}
		}
	}
	if v, isLoss := m["loss"]; isLoss && (math.IsNaN(v) || math.IsInf(v, 0)) {
		return &NotFiniteError{t, "loss"}
	}
	if l.Model != nil {
		if n := notFinite(l.Model.State()); n != "" {
			return &NotFiniteError{t, n}
		}
	}
	return &NotFiniteError{t, bad}
}

// maxLog bounds a training log: 256 MiB.
const maxLog = 256 << 20

// openLog keeps the lines of a log up to step first and opens it to go on after them. The file is
// replaced whole, so that a kill leaves the old log or the new one.
func (l *Loop) openLog(first int) error {
	if l.Log == "" {
		return nil
	}
	var kept bytes.Buffer
	if data, err := regularfile.ReadFile(l.Log, maxLog); err == nil && first > 0 {
		sc := bufio.NewScanner(bytes.NewReader(data))
		for sc.Scan() {
			var line struct {
				Step int `json:"step"`
			}
			if json.Unmarshal(sc.Bytes(), &line) == nil && line.Step <= first {
				kept.Write(sc.Bytes())
				kept.WriteByte('\n')
			}
		}
		if err := sc.Err(); err != nil {
			return fmt.Errorf("training log %s: %w", l.Log, err)
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("training log: %w", err)
	}
	if err := atomicfile.WriteBytes(l.Log, kept.Bytes()); err != nil {
		return fmt.Errorf("training log: %w", err)
	}
	f, err := os.OpenFile(l.Log, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("training log: %w", err)
	}
	l.log = f
	return nil
}

// write adds a line to the log, where there is one.
func (l *Loop) write(kind string, step int, rate float64, begun time.Time, m Metrics) error {
	if l.log == nil {
		return nil
	}
	line := map[string]any{"kind": kind, "step": step, "rate": rate,
		"seconds": math.Round(time.Since(begun).Seconds()*10) / 10}
	for k, v := range m {
		if line[k] = v; math.IsNaN(v) || math.IsInf(v, 0) {
			line[k] = nil // JSON has no such numbers
		}
	}
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("training log: %w", err)
	}
	if _, err := l.log.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("training log: %w", err)
	}
	return nil
}

// pace measures steps per second over the last ones.
type pace struct{ times []time.Time }

// newPace begins with one time, so that the first step has an interval.
func newPace(start time.Time) *pace { return &pace{times: []time.Time{start}} }

// after notes that a step has ended, and returns the steps per second over the last fifty.
func (p *pace) after(now time.Time) float64 {
	const window = 50
	p.times = append(p.times, now)
	if len(p.times) > window {
		p.times = p.times[1:]
	}
	took := now.Sub(p.times[0]).Seconds()
	return float64(len(p.times)-1) / max(took, 1e-9)
}
