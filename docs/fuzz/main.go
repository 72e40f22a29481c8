// Command fuzz runs every native fuzz target of the module:
//
//	go run ./docs/fuzz -time 5s -jobs 2
//	go run ./docs/fuzz -time 10m -run 'onnx/npy FuzzRead'
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	// The go tool calls this program again, as its -toolexec, for every tool that it runs.
	if len(os.Args) > 2 && os.Args[1] == compileCommand {
		os.Exit(compile(os.Args[2:]))
	}
	var (
		length = flag.Duration("time", 0, "how long to run each target")
		jobs   = flag.Int("jobs", 1, "targets that run at the same time")
		only   = flag.String("run", "",
			"regular expression on \"PACKAGE TARGET\"; all targets by default")
	)
	flag.Parse()
	if err := run(*length, *jobs, *only); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is a fuzz function; its package is relative to the module.
type target struct{ pkg, name string }

func (t target) String() string { return t.pkg + " " + t.name }

// fuzzFunc matches the head of a fuzz target.
var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// targets are the fuzz functions of the module whose folder is root, as its sources have them: to
// ask the go tool, which go test -list does, means to build every test.
func targets(root string) ([]target, error) {
	var all []target
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, m := range fuzzFunc.FindAllSubmatch(src, -1) {
			all = append(all, target{filepath.ToSlash(pkg), string(m[1])})
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = errors.New("there are no fuzz targets here; run it in the module's folder")
	}
	return all, err
}

// run fuzzes the targets that match, and fails at the end: a finding does not stop the others.
func run(length time.Duration, jobs int, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if length <= 0 {
		return fmt.Errorf("-time is %v; give a duration such as 5s or 10m", length)
	}
	all, err := targets(".")
	if err != nil {
		return err
	}
	if jobs < 1 {
		return fmt.Errorf("-jobs is %d; allowed is 1 or more", jobs)
	}
	var failed atomic.Int32
	var g errgroup.Group
	g.SetLimit(jobs)
	one := func(t target) error {
		line, err := fuzz(t, length.String())
		if err != nil {
			failed.Add(1)
			line = err.Error()
		}
		fmt.Printf("%s: %s\n", t, line)
		return nil
	}
	for _, t := range all {
		if pattern.MatchString(t.String()) {
			g.Go(func() error { return one(t) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d targets failed; what they failed on is in testdata/fuzz of "+
			"their packages", n)
	}
	return nil
}

// lastLine is a line of the fuzzer with the time and the executions. In a short run over many
// inputs of earlier ones those inputs, with which it gathers their coverage, can be all that it
// comes to.
var lastLine = regexp.MustCompile(
	`fuzz: elapsed: (\S+), (?:execs: (\d+) |gathering baseline coverage: (\d+)/\d+ completed)`)

// memory is a folder that lies in memory on Linux: most of the time of targets that read files went
// to the disk's.
const memory = "/dev/shm"

// fuzz runs one target with one worker and returns the last line that the fuzzer prints. Inputs are
// made smaller in ten attempts each: by default a minute goes to every input that found something
// new.
func fuzz(t target, length string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	c := exec.Command("go", "test", "./"+t.pkg, "-toolexec",
		fmt.Sprintf("'%s' %s", self, compileCommand), "-run", "^$", "-fuzz",
		"^"+t.name+"$", "-fuzztime", length, "-parallel", "1", "-fuzzminimizetime", "10x")
	if s, err := os.Stat(memory); err == nil && s.IsDir() {
		c.Env = append(os.Environ(), "TMPDIR="+memory)
	}
	out, err := c.CombinedOutput()
	last := ""
	for _, l := range strings.Split(string(out), "\n") {
		if lastLine.MatchString(l) {
			last = strings.TrimSpace(l)
		}
	}
	// The fuzzer can end with this where its time is over while a worker begins; it is no finding.
	if err != nil && !(bytes.Contains(out, []byte("context deadline exceeded")) &&
		!bytes.Contains(out, []byte("Failing input"))) {
		return last, fmt.Errorf("%w\n%s", err, out)
	}
	if last == "" {
		return "", fmt.Errorf("the fuzzer told nothing\n%s", out)
	}
	return last, nil
}
