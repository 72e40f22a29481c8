package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/settings"
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

// faulty is a writer with a fault of the program.
type faulty struct{}

func (faulty) Write([]byte) (int, error) { panic("no such case") }

// TestFault: a fault of the program is told as one, with the exit code that the help gives it.
func TestFault(t *testing.T) {
	var errs bytes.Buffer
	code := execute(t.Context(), []string{"--help"}, nil, faulty{}, &errs)
	if code != 134 || !strings.Contains(errs.String(), "internal error: no such case") {
		t.Errorf("exit code %d: %s", code, &errs)
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
		{missingError(&fs.PathError{Op: "read", Path: "x", Err: syscall.EIO}), exitFailed},
		{usageError(syscall.EDQUOT), exitFailed}, {usageError(syscall.EACCES), exitUsage},
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
	walk(newRootCommand(nil))
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

func TestSetupErrors(t *testing.T) {
	t.Run("no npm", func(t *testing.T) {
		cache := t.TempDir()
		t.Setenv("XDG_CACHE_HOME", cache)
		t.Setenv(ort.LibraryEnv, "")
		if lib, _, err := ort.FindLibrary(""); err == nil {
			t.Skipf("this system has a library of its own: %s", lib)
		}
		t.Setenv("PATH", t.TempDir())
		refused(t, exitMissing, "install Node.js", "setup")
		if es, _ := os.ReadDir(cache); len(es) != 0 {
			t.Errorf("something was left behind: %v", es)
		}
	})
	t.Run("library of one's own that is not there", func(t *testing.T) {
		t.Setenv(ort.LibraryEnv, filepath.Join(t.TempDir(), "gone.so"))
		refused(t, exitMissing, "$"+ort.LibraryEnv, "setup")
	})
}

func TestSetupLeavesAWorkingLibraryAlone(t *testing.T) {
	needRuntime(t)
	lib, _ := must.Get2(ort.FindLibrary(""))(t)
	t.Setenv(ort.LibraryEnv, lib)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	refused(t, exitOK, "nothing to fetch", "setup")
}

// TestCompletion: what a shell is offered at the end of a command line.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args      []string
		has, lack []string
		directive string
	}{
		{[]string{"r"}, []string{"run", "results"}, []string{"data"}, ":4"},
		{[]string{"run", "--dataset", ""}, []string{"mnist", "digits-color"}, nil, ":0"},
		{[]string{"run", "--methods", "FMP,"}, []string{"FMP,CANN"}, []string{"FMP,FMP"}, ":6"},
		{[]string{"run", "--partition", ""}, []string{"dirichlet"}, nil, ":4"},
		{[]string{"config", "--federation.partition", ""}, []string{"dirichlet"}, nil, ":4"},
		{[]string{"run", "--config", ""}, []string{"table1"}, nil, ":0"},
		{[]string{"run", "--set", "erm"}, []string{"erm.l2="}, nil, ":6"},
		{[]string{"run", "--set", "protocol="}, []string{"protocol=tuned"}, nil, ":0"},
		{[]string{"data", "pull", ""}, []string{"mnist", "cifar100"}, []string{"digits"}, ":4"},
		{[]string{"data", "pull", "mnist", ""}, nil, []string{"mnist"}, ":4"},
		{[]string{"onnx", "inspect", ""}, []string{"onnx"}, nil, ":8"},
		{[]string{"results", "show", ""}, nil, nil, ":16"},
		{[]string{"results", "compare", "RUN", "--method", ""}, []string{"CANN", "FedCGS"}, nil, ":4"},
		{[]string{"help", "onnx", ""}, []string{"inspect"}, []string{"run\tRaw"}, ":4"},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}, nil, ":4"},
		{[]string{"version", ""}, nil, nil, ":4"},
	} {
		out, _ := ran(t, append([]string{"__complete"}, c.args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var offered []string
		for _, l := range lines {
			name, _, _ := strings.Cut(l, "\t")
			offered = append(offered, name)
		}
		if lines[len(lines)-1] != c.directive {
			t.Errorf("%v: the last line is %q, want %q", c.args, lines[len(lines)-1], c.directive)
		}
		for _, n := range c.has {
			if !slices.Contains(offered, n) {
				t.Errorf("%v: offered %v, without %s", c.args, offered, n)
			}
		}
		for _, n := range c.lack {
			if slices.Contains(offered, n) {
				t.Errorf("%v: offered %s", c.args, n)
			}
		}
	}
}

// TestCompletionScripts: every shell's script is written, and is one for the shells that are here.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		out, _ := ran(t, "completion", shell)
		if !strings.Contains(out, "__complete") {
			t.Errorf("%s: %s", shell, out)
			continue
		}
		path, err := exec.LookPath(shell)
		if err != nil || shell == "powershell" {
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		must.Do(t, os.WriteFile(file, []byte(out), 0o644))
		if said, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s does not read its script: %v\n%s", shell, err, said)
		}
	}
}

func doctor(t *testing.T, args ...string) (int, diagnosis) {
	t.Helper()
	code, out, errs := runFMP(t, append([]string{"doctor", "--json"}, args...)...)
	var d diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	return code, d
}

func (d *diagnosis) find(name string) finding {
	for _, f := range d.Findings {
		if f.Name == name {
			return f
		}
	}
	return finding{}
}

func TestDoctorFindsTheRuntime(t *testing.T) {
	needRuntime(t)
	code, d := doctor(t)
	if code != exitOK || !d.Healthy || d.Version == "" || d.find("ONNX Runtime").State != stateOK ||
		d.find("provider cpu").State != stateOK {
		t.Errorf("exit code %d: %+v", code, d)
	}
	if out, _ := ran(t, "doctor"); strings.Contains(out, "\x1b") || !strings.Contains(out, d.Library) {
		t.Errorf("printed:\n%s", out)
	}
}

func TestDoctorSaysWhatIsMissing(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone.so")
	for _, c := range []struct {
		name    string
		args    []string
		finding string
		state   string
		code    int
	}{
		{"library", []string{"--engine.library", gone}, "ONNX Runtime", stateMissing, exitMissing},
		{"library that is not needed", []string{"--engine.library", gone, "--engine", "pure"},
			"ONNX Runtime", stateAbsent, exitOK},
		{"library that was not asked for", []string{"--engine", "auto"}, "pure engine",
			stateOK, exitOK},
		{"data set", []string{"--dataset", "cifar10", "--data-dir", t.TempDir(), "--engine", "pure"},
			"data cifar10", stateMissing, exitMissing},
		{"data set that is not needed", []string{"--data-dir", t.TempDir(), "--engine", "pure"},
			"data cifar10", stateAbsent, exitOK},
		{"folder of images", []string{"--dataset", "./nowhere", "--engine", "pure"}, "data ./nowhere",
			stateMissing, exitMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.state == stateOK {
				t.Setenv(ort.LibraryEnv, "")
				t.Setenv("XDG_CACHE_HOME", t.TempDir())
			}
			code, d := doctor(t, c.args...)
			f := d.find(c.finding)
			if code != c.code || f.State != c.state || f.Detail+f.Advice == "" ||
				d.Healthy != (c.code == exitOK) {
				t.Errorf("exit code %d, finding %+v; want %d and %s with advice", code, f,
					c.code, c.state)
			}
		})
	}
	t.Run("cache that cannot be written", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", writeFile(t, "file", ""))
		t.Setenv(ort.LibraryEnv, "")
		code, d := doctor(t, "--engine", "pure")
		if f := d.find("cache folder"); code != exitMissing || f.State != stateMissing ||
			f.Advice == "" {
			t.Errorf("exit code %d, finding %+v", code, f)
		}
	})
}

func TestOpenEngine(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(ort.LibraryEnv, "")
	if lib, _, err := ort.FindLibrary(""); err == nil {
		t.Skipf("this system has a library of its own: %s", lib)
	}
	gone := filepath.Join(t.TempDir(), "gone.so")
	for _, c := range []struct {
		name     string
		cfg      settings.Engine
		env      string
		engine   string
		code     int
		contains string // of what is said
	}{
		{"pure by name", settings.Engine{Name: "pure"}, "", "pure", exitOK, ""},
		{"pure in the runtime's place", settings.Engine{Name: "auto", Provider: "cpu"}, "", "pure",
			exitOK, "pure-Go engine"},
		{"ort by name", settings.Engine{Name: "ort"}, "", "", exitMissing, "make setup"},
		{"library by name", settings.Engine{Name: "auto", Library: gone}, "", "", exitMissing, gone},
		{"library of the environment", settings.Engine{Name: "auto"}, gone, "", exitMissing, gone},
		{"provider by name", settings.Engine{Name: "auto", Provider: "cuda"}, "", "",
			exitMissing, "make setup"},
		{"unknown engine", settings.Engine{Name: "tf"}, "", "", exitUsage,
			"allowed are auto, ort, pure"},
		{"pure on another provider", settings.Engine{Name: "pure", Provider: "cuda"}, "", "",
			exitUsage, "cuda"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(ort.LibraryEnv, c.env)
			var said strings.Builder
			e, err := openEngine(t.Context(), c.cfg, 1, &said)
			if err != nil {
				said.WriteString(err.Error())
			} else if e.Name() != c.engine {
				t.Errorf("engine %s, want %s", e.Name(), c.engine)
			}
			if exitCode(err) != c.code || !strings.Contains(said.String(), c.contains) ||
				c.contains == "" &&
					said.String() != "" {
				t.Errorf("exit code %d, said %q; want %d and %q", exitCode(err), said.String(),
					c.code, c.contains)
			}
		})
	}
	_, said := ran(t, "onnx", "test", backendTest(t, 2), "--engine", "auto")
	if strings.Count(said, "pure-Go engine") != 1 {
		t.Errorf("two models in the runtime's place: said %q; want it once", said)
	}
}

// shellWords splits a line of a page as a shell would, as far as pages go: quotes, and comments
// after " #".
func shellWords(line string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`"[^"]*"|'[^']*'|#.*|[^\s"'#]+`).FindAllString(line, -1) {
		if strings.HasPrefix(m, "#") {
			break
		}
		words = append(words, strings.Trim(m, `"'`))
	}
	return words
}

// commandLines are the invocations of the program in a page: lines of its blocks of code (those of
// text, which hold output, apart) that begin with fmp, and `fmp …` in its text. A line that the
// next one refuses ("fmp: …") shows a mistake, and is left out.
func commandLines(page string) []string {
	var out []string
	page = strings.ReplaceAll(page, "\\\n", " ")
	inBlock, output := false, false
	lines := strings.Split(page, "\n")
	for i, l := range lines {
		if fence, ok := strings.CutPrefix(strings.TrimSpace(l), "```"); ok {
			inBlock, output = !inBlock, fence == "text"
			continue
		}
		if inBlock && output {
			continue
		}
		if !inBlock {
			for _, m := range regexp.MustCompile("`(fmp [^`]+)`").FindAllStringSubmatch(l, -1) {
				out = append(out, m[1])
			}
			continue
		}
		l = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(l), "$ "), "bin/")
		if strings.HasPrefix(l, "fmp ") &&
			(i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "fmp: ")) {
			out = append(out, l)
		}
	}
	return out
}

// TestPagesNameCommandsThatExist: every command line of README.md and the pages has a command and
// flags that the program knows.
func TestPagesNameCommandsThatExist(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	n := 0
	for _, p := range append(pages, "../../README.md") {
		text := must.Get(os.ReadFile(p))(t)
		for _, line := range commandLines(string(text)) {
			n++
			var args []string
			for _, w := range shellWords(line)[1:] {
				if w == "|" || w == ">" || w == "&&" {
					break
				}
				if w != "…" && w != "..." {
					args = append(args, w)
				}
			}
			cmd, rest, err := newRootCommand(nil).Find(args)
			// What cobra adds when the program runs, and words for the reader to fill in, are let
			// through.
			if err == nil && cmd.HasSubCommands() && len(rest) > 0 && rest[0] != "help" &&
				rest[0] != "completion" &&
				!strings.HasPrefix(rest[0], "-") && rest[0] != strings.ToUpper(rest[0]) {
				t.Errorf("%s: %q: %s has no command %q", p, line, cmd.CommandPath(), rest[0])
				continue
			}
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err != nil && err.Error() != "pflag: help requested" {
				t.Errorf("%s: %q: %v", p, line, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d command lines were found; the pattern must be wrong", n)
	}
}

// TestPagesAreFresh: the pages that the program writes are those that are kept. `make docs` renews
// them.
func TestPagesAreFresh(t *testing.T) {
	clearSettings(t)
	t.Setenv(ort.LibraryEnv, "") // put back afterwards
	os.Unsetenv(ort.LibraryEnv)
	pages := func(dir string) map[string]string {
		t.Helper()
		out := map[string]string{}
		files := must.Get(filepath.Glob(filepath.Join(dir, "*.md")))(t)
		for _, f := range files {
			b := must.Get(os.ReadFile(f))(t)
			out[filepath.Base(f)] = string(b)
		}
		return out
	}
	dir := t.TempDir()
	ran(t, "man", filepath.Join(dir, "man1"))
	if page := string(read(t, filepath.Join(dir, "man1", "fmp-onnx-run.1"))); !strings.Contains(page, "batch.npy") {
		t.Errorf("the manual page of an example is %s", page)
	}
	refused(t, exitFailed, "writing manual pages", "man", filepath.Join(writeFile(t, "file", ""), "d"))
	ran(t, "man", "--format", "markdown", dir)
	settings, _ := ran(t, "config", "--markdown")
	want, got := pages(dir), pages("../../docs/commands")
	want["settings"], got["settings"] = settings, pages("../../docs")["settings.md"]
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the pages of commands and settings are not what the program writes; run make docs (- "+
			"as it is now, + as it is kept):\n%s", d)
	}
}

// TestPageShowsTheDemo: the run directory that docs/install.md names is that of `make demo` today:
// its name is a digest of settings, models and data. Where one of them has changed, run make demo
// and copy what it prints, and run make figures.
func TestPageShowsTheDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("makes the features of the embedded digits")
	}
	clearSettings(t)
	// The ONNX Runtime makes the features fast enough for a test.
	p := must.Get(experiment.Prepare(context.Background(), experiment.Default(), orttest.New(t), nil, nil))(t)
	defer p.Close()
	page := must.Get(os.ReadFile("../../docs/install.md"))(t)
	if want := fmt.Sprintf("run directory: runs/digits-%.8s ",
		p.Manifest.Identity); !strings.Contains(string(page), want) {
		t.Errorf("docs/install.md lacks %q: what it shows of make demo is another run's", want)
	}
}

// clearSettings takes the settings of whoever runs the tests out of the environment.
func clearSettings(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FMP_") {
			t.Setenv(name, "") // put back afterwards
			os.Unsetenv(name)
		}
	}
}
