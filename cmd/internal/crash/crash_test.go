//go:build unix

package crash

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestAbort: a program that the system has no memory for, and one of which a goroutine panics, end
// by SIGABRT and leave no core file; without Abort they end with exit code 2.
func TestAbort(t *testing.T) {
	switch os.Getenv("FMP_TEST_CRASH") {
	case "memory":
		Abort()
		n := int64(1<<48 - 1<<20) // more than a process has addresses for: nothing is exhausted
		_ = make([]byte, n)
		os.Exit(0)
	case "panic":
		Abort()
		go panic("a fault")
		select {}
	case "plain":
		go panic("a fault")
		select {}
	}
	for what, want := range map[string]string{"memory": "out of memory", "panic": "panic: a fault",
		"plain": "panic: a fault"} {
		if what == "memory" && strconv.IntSize == 32 { // where so much is out of range
			continue
		}
		cmd := exec.Command(os.Args[0], "-test.run", "^TestAbort$")
		cmd.Env, cmd.Dir = append(os.Environ(), "FMP_TEST_CRASH="+what), t.TempDir()
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(string(out), want) {
			t.Fatalf("%s: %v, %s", what, err, out)
		}
		status := exit.Sys().(syscall.WaitStatus)
		if what == "plain" {
			if status.ExitStatus() != 2 {
				t.Errorf("without Abort: %v; is it still needed?", err)
			}
			continue
		}
		if !status.Signaled() || 128+int(status.Signal()) != Code || status.CoreDump() {
			t.Errorf("%s: %v, core %v; want signal %d and no core", what, err,
				status.CoreDump(), Code-128)
		}
	}
}
