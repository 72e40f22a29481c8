//go:build unix

package train_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/train"
)

const (
	killSteps  = 400
	killFolder = "FMP_TEST_KILLED_TRAINING" // where the process to be killed trains
)

// TestKilledEqualsUninterrupted kills a training without warning, three times and at any moment,
// such as while it writes a checkpoint, which it does after every step. Resumed, it ends with the
// parameters, moments and log of one that was left alone.
func TestKilledEqualsUninterrupted(t *testing.T) {
	if dir := os.Getenv(killFolder); dir != "" {
		l := loop(newStep(t, orttest.New(t)), killSteps, dir)
		l.Interval = 1
		l.Progress = func(p train.Progress) { fmt.Println("step", p.Step) }
		must.Do(t, l.Train(context.Background()))
		return
	}
	if testing.Short() {
		t.Skip("trains in processes of their own: some seconds")
	}
	eng := orttest.New(t)
	whole := newStep(t, eng)
	must.Do(t, loop(whole, killSteps, t.TempDir()).Train(context.Background()))
	dir := t.TempDir()
	kills := 0
	for steps := range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), killFolder+"="+dir)
		out := must.Get(cmd.StdoutPipe())(t)
		must.Do(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; n < 20*(steps+1) && lines.Scan(); n++ {
		}
		// at another point of a step
		for begun := time.Now(); time.Since(begun) < time.Duration(steps)*700*time.Microsecond; {
			runtime.Gosched()
		}
		if err := cmd.Process.Kill(); err == nil {
			kills++
		}
		must.Fail(cmd.Wait())(t, "", "the training ended before it was killed: give it more steps")
	}
	if kills != 3 {
		t.Fatalf("%d of 3 processes were killed", kills)
	}
	if _, err := os.Stat(filepath.Join(dir, "checkpoint.onnx")); err != nil {
		t.Fatalf("the killed training left no checkpoint: %v", err)
	}
	s := newStep(t, eng)
	l := loop(s, killSteps, dir)
	steps := 0
	l.Progress = func(train.Progress) { steps++ }
	must.Do(t, l.Train(context.Background()))
	// 20, 40 and 60 lines were read, and at most the one step after the last checkpoint is lost
	// each time.
	if most := killSteps - (20 + 40 + 60 - 3*2); steps > most {
		t.Errorf("%d steps were left to take, want at most %d", steps, most)
	}
	wantSame(t, s, whole)
	data := must.Get(os.ReadFile(l.Log))(t)
	if n := strings.Count(string(data), "\n"); n != killSteps {
		t.Errorf("the log holds %d lines, want %d", n, killSteps)
	}
}
