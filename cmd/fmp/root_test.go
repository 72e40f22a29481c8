package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
	"fmp/onnx/engine/ort"
	"fmp/onnx/must"
)

// runFMP runs the program in this process.
func runFMP(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(context.Background(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// ran returns the outputs of a command that must not fail.
func ran(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := runFMP(t, args...)
	if code != exitOK {
		t.Fatalf("fmp %q: exit code %d: %s", args, code, stderr)
	}
	return stdout, stderr
}

// onPure returns the standard output of a command that must not fail, on the pure engine.
func onPure(t *testing.T, args ...string) string {
	t.Helper()
	stdout, _ := ran(t, append(args, "--engine.name", "pure")...)
	return stdout
}

// answer is the JSON that a command prints that must not fail.
func answer[T any](t *testing.T, args ...string) (v T) {
	t.Helper()
	stdout, _ := ran(t, args...)
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		t.Fatalf("fmp %q: %v: %s", args, err, stdout)
	}
	return v
}

// refused runs a command that must end with an exit code and say so, and print nothing where it fails.
func refused(t *testing.T, want int, says string, args ...string) {
	t.Helper()
	code, stdout, stderr := runFMP(t, args...)
	if code != want || !strings.Contains(stderr, says) || want != exitOK && stdout != "" {
		t.Errorf("fmp %q: exit code %d, printed %q, said %q; want %d and %q", args, code, stdout, stderr,
			want, says)
	}
}

// fails runs a command that must fail, with whichever exit code, and say why.
func fails(t *testing.T, says string, args ...string) {
	t.Helper()
	if code, _, stderr := runFMP(t, args...); code == exitOK || !strings.Contains(stderr, says) {
		t.Errorf("fmp %q: exit code %d, said %q; want %q", args, code, stderr, says)
	}
}

// absent fails where a file is there that nothing should have written.
func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		t.Errorf("%s was written", path)
	}
}

func TestExitCode(t *testing.T) {
	plain := errors.New("x")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK}, {plain, exitFailed}, {usageError(plain), exitUsage},
		{missingError(plain), exitMissing},
		{context.Canceled, exitInterrupted}, {usageError(nil), exitOK},
		{&silentError{exitMissing}, exitMissing},
		{usageError(fs.ErrNotExist), exitMissing},
		{usageError(fmt.Errorf("data: %w", dataset.ErrNotFound)), exitMissing},
		{usageError(ort.ErrNoLibrary), exitMissing},
		{usageError(fmt.Errorf("x: %w", syscall.ENOSPC)), exitFailed},
		{usageError(fmt.Errorf("mapping a model: %w", syscall.ENOMEM)), exitFailed},
		{usageError(&fs.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}), exitFailed},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exitCode(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}

// Every command can be learned from its own help.
func TestEveryCommandHasHelpAndExample(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" || c.Hidden {
			return
		}
		if c.Short == "" {
			t.Errorf("%s has no short description", c.CommandPath())
		}
		if c.Runnable() && !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(newRootCommand())
}

func TestHelp(t *testing.T) {
	out, errs := ran(t, "help", "config")
	if errs != "" {
		t.Errorf("said %s", errs)
	}
	for _, want := range []string{"Flags:", "--json", "Settings (", "--erm.l2", "also --l2", "Examples:"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) { // wherever lines end
			t.Errorf("the help has no %q:\n%s", want, out)
		}
	}
	if _, again, _ := runFMP(t, "config", "--help"); again != out {
		t.Errorf("fmp help config and fmp config --help differ")
	}
}

func TestSay(t *testing.T) {
	t.Parallel()
	for asJSON, want := range map[bool]string{false: "a of 2%\n", true: "{\n  \"name\": \"a<b\"\n}\n"} {
		var b strings.Builder
		cmd := &cobra.Command{}
		cmd.SetOut(&b)
		jsonFlag(cmd, "")
		must.Do(t, cmd.ParseFlags([]string{fmt.Sprint("--json=", asJSON)}))
		if err := say(cmd, map[string]string{"name": "a<b"}, "%s of %d%%\n", "a", 2); err != nil ||
			b.String() != want {
			t.Errorf("json %v: %q, %v; want %q", asJSON, b.String(), err, want)
		}
	}
}

// full takes nothing, as a full disk does.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestUnprintedHelp: help that could not be written is no success.
func TestUnprintedHelp(t *testing.T) {
	for _, args := range []string{"--help", "help pool", "pool --help", "onnx --help", "onnx"} {
		var said bytes.Buffer
		code := execute(t.Context(), strings.Fields(args), strings.NewReader(""), full{}, &said)
		want := "fmp: printing the help: " + syscall.ENOSPC.Error() + "\n"
		if code != exitFailed || said.String() != want {
			t.Errorf("%s: exit code %d, %q; want %d, %q", args, code, said.String(), exitFailed, want)
		}
	}
}
