//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fmp/cmd/internal/interrupt"
	"fmp/onnx"
	"fmp/onnx/must"
)

// endless saves a model with a loop that never ends.
func endless(t *testing.T) string {
	t.Helper()
	boolean := func(name string) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, DType: onnx.Bool, Shape: []onnx.Dim{}}
	}
	value := func(name string) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, DType: onnx.Float32, Shape: onnx.Shape(1)}
	}
	body := &onnx.Graph{
		Name: "body",
		Inputs: []onnx.ValueInfo{{Name: "turn", DType: onnx.Int64, Shape: []onnx.Dim{}},
			boolean("go_on"), value("before")},
		Outputs: []onnx.ValueInfo{boolean("still"), value("after")},
		Nodes: []*onnx.Node{
			{Name: "still", Op: "Identity", Inputs: []string{"go_on"}, Outputs: []string{"still"}},
			{Name: "after", Op: "Neg", Inputs: []string{"before"}, Outputs: []string{"after"}},
		},
	}
	m := onnx.NewModel(&onnx.Graph{
		Name: "endless", Inputs: []onnx.ValueInfo{value("x"), boolean("go")},
		Outputs: []onnx.ValueInfo{value("y")},
		Nodes: []*onnx.Node{{Name: "loop", Op: "Loop", Inputs: []string{"", "go", "x"},
			Outputs: []string{"y"},
			Attrs:   []onnx.Attr{{Name: "body", Kind: onnx.AttrGraph, Graph: body}}}},
	})
	return saved(t)(m, nil)
}

func endlessRun(t *testing.T) (args []string, out string) {
	x, yes := saveTensor(t, "x.npy", onnx.Vector[float32](1)),
		saveTensor(t, "go.npy", onnx.Scalar(true))
	out = filepath.Join(t.TempDir(), "out")
	return []string{"onnx", "run", endless(t), "--input", "x=" + x, "--input", "go=" + yes, "--out",
		out, "--engine", "ort"}, out
}

func TestTimeLimit(t *testing.T) {
	needRuntime(t)
	args, out := endlessRun(t)
	begun := time.Now()
	code, _, errs := runFMP(t, append(args, "--time-limit", "300ms")...)
	if code != exitFailed || !strings.Contains(errs, "--time-limit 300ms") ||
		strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d, said %q", code, errs)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	absent(t, out)
	refused(t, exitUsage, "--time-limit", append(args, "--time-limit", "-1s")...)
}

// computes waits until a process has computed for a third of a second, where the system tells, as
// Linux does.
func computes(pid int) {
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		// user time, in hundredths of a second
		if ticks, err := strconv.Atoi(fields[11]); err != nil || ticks > 33 {
			return
		}
	}
}

// TestFirstSignalEndsTheProgram: one SIGINT, SIGTERM or SIGHUP ends the program, even where a model
// runs that would never end.
func TestFirstSignalEndsTheProgram(t *testing.T) {
	needRuntime(t)
	args, out := endlessRun(t)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			continue // under nohup, say, where it is to have no effect
		}
		c := exec.Command(os.Args[0], args...)
		c.Env = append(os.Environ(), programEnv+"=1")
		var errs bytes.Buffer
		c.Stderr = &errs
		must.Do(t, c.Start())
		computes(c.Process.Pid) // before the loop the signal must do as well
		begun := time.Now()
		must.Do(t, c.Process.Signal(sig))
		c.Wait()
		// Twice the grace, and what a busy machine takes.
		if took := time.Since(begun); took > 2*interrupt.Grace+5*time.Second {
			t.Errorf("%v: it took %v to end", sig, took)
		}
		if code := c.ProcessState.ExitCode(); code != exitInterrupted ||
			!strings.HasPrefix(errs.String(), "fmp: interrupted") {
			t.Errorf("%v: exit code %d, said %q", sig, code, errs.String())
		}
	}
	absent(t, out)
}
