// Command fuzz runs every native fuzz target of the module, one after the other, and keeps the book of how long each has run:
//
//	go run ./docs/fuzz -time 5s                                # a short look at all of them, as continuous integration has
//	go run ./docs/fuzz -time 10m -least 1000000 -book docs/fuzz/book.txt -run 'onnx/npy FuzzRead'    # the inputs that the book lacks of that
//	go run ./docs/fuzz -book docs/fuzz/book.txt -table docs/testing.md
//
// The book holds, of each run, the target and the last line that the fuzzer itself printed. The table on the page of tests is
// written from it.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"fmp/onnx/atomicfile"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == compileCommand {
		os.Exit(compile(os.Args[2:]))
	}
	var (
		length = flag.Duration("time", 0, "how long to run each target; with -book, what the book has of it counts")
		least  = flag.Int("least", 0, "executions below which a target runs on beyond -time, up to four times as long")
		book   = flag.String("book", "", "file to add the fuzzer's last lines to, or to write the table from")
		jobs   = flag.Int("jobs", 1, "targets that run at the same time")
		only   = flag.String("run", "", "regular expression on \"PACKAGE TARGET\"; all targets by default")
		table  = flag.String("table", "", "page to write the book's table into, and nothing else")
	)
	flag.Parse()
	err := error(nil)
	if *table != "" {
		err = writeTable(*book, *table)
	} else {
		err = run(*length, *least, *jobs, *book, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is a fuzz function; its package is relative to the module.
type target struct{ pkg, name string }

func (t target) String() string { return t.pkg + " " + t.name }

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// targets are the fuzz functions of the module whose folder is root, as its sources have them: to ask the go tool, which
// go test -list does, means to build every test.
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

func run(length time.Duration, least, jobs int, book, only string) error {
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
	had := map[target]record{}
	if book != "" {
		b, err := os.ReadFile(book)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if had, err = records(b); err != nil {
			return fmt.Errorf("%s: %w", book, err)
		}
	}
	slices.SortStableFunc(all, func(a, b target) int { return cmp.Compare(had[a].execs, had[b].execs) })
	if jobs < 1 {
		return fmt.Errorf("-jobs is %d; allowed is 1 or more", jobs)
	}
	var failed atomic.Int32
	var g errgroup.Group
	g.SetLimit(jobs)
	one := func(t target) error {
		h := had[t]
		// Three more stretches are for executions.
		for more := 0; more < 4 && (h.time < length || h.execs < least); more++ {
			stretch := length - h.time
			if stretch <= 0 { // as long as the rest takes at the pace so far, and a minute in which inputs of earlier runs are gone over
				stretch = min(length, time.Duration(float64(least-h.execs)/float64(h.execs+1)*float64(h.time))+time.Minute)
			}
			line, err := fuzz(t, max(stretch, time.Second).Round(time.Second).String())
			if err != nil {
				failed.Add(1)
				fmt.Printf("%s: %v\n", t, err)
				return nil
			}
			fmt.Printf("%s: %s\n", t, line)
			if err := note(book, t, line); err != nil {
				return err
			}
			if err := h.add(line); err != nil {
				return err
			}
		}
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
		return fmt.Errorf("%d targets failed; what they failed on is in testdata/fuzz of their packages", n)
	}
	return nil
}

// lastLine is a line of the fuzzer with the time and the executions. In a short run over many inputs of earlier ones those
// inputs, with which it gathers their coverage, can be all that it comes to.
var lastLine = regexp.MustCompile(`fuzz: elapsed: (\S+), (?:execs: (\d+) |gathering baseline coverage: (\d+)/\d+ completed)`)

// memory is a folder that lies in memory on Linux: most of the time of targets that read files went to the disk's.
const memory = "/dev/shm"

// fuzz runs one target with one worker and returns the last line that the fuzzer prints. Inputs are made smaller in ten attempts
// each: by default a minute goes to every input that found something new.
func fuzz(t target, length string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	c := exec.Command("go", "test", "./"+t.pkg, "-toolexec", fmt.Sprintf("'%s' %s", self, compileCommand), "-run", "^$", "-fuzz",
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
	if err != nil && !(bytes.Contains(out, []byte("context deadline exceeded")) && !bytes.Contains(out, []byte("Failing input"))) {
		return last, fmt.Errorf("%w\n%s", err, out)
	}
	if last == "" {
		return "", fmt.Errorf("the fuzzer told nothing\n%s", out)
	}
	return last, nil
}

func note(book string, t target, line string) error {
	if book == "" {
		return nil
	}
	f, err := os.OpenFile(book, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "%s: %s\n", t, line); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// record holds the inputs and the time that a target has had in all.
type record struct {
	time  time.Duration
	execs int
	found []string
}

// add counts a last line of the fuzzer in.
func (r *record) add(line string) error {
	m := lastLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("%q is no last line of the fuzzer", line)
	}
	d, err := time.ParseDuration(m[1])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(m[2] + m[3])
	if err != nil {
		return err
	}
	r.time += d
	r.execs += n
	return nil
}

// records reads a book.
func records(book []byte) (map[target]record, error) {
	all := map[target]record{}
	for i, line := range strings.Split(string(book), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, ok := strings.Cut(line, ": ")
		pkg, function, ok2 := strings.Cut(name, " ")
		if !ok || !ok2 {
			return nil, fmt.Errorf("line %d: %q is not PACKAGE TARGET: LINE", i+1, line)
		}
		t := target{pkg, function}
		r := all[t]
		if what, ok := strings.CutPrefix(rest, "found: "); ok {
			r.found = append(r.found, what)
		} else if err := r.add(rest); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		all[t] = r
	}
	return all, nil
}

// Table is the book as Markdown: the inputs and the time of each target, those with the most first.
func Table(book []byte) (string, error) {
	had, err := records(book)
	if err != nil {
		return "", err
	}
	all := slices.SortedFunc(maps.Keys(had), func(a, b target) int {
		return cmp.Or(cmp.Compare(had[b].execs, had[a].execs), cmp.Compare(a.String(), b.String()))
	})
	var b strings.Builder
	b.WriteString("| target | minutes | executions | found and mended |\n| --- | ---: | ---: | --- |\n")
	for _, t := range all {
		r, found := had[t], "none"
		if len(r.found) > 0 {
			found = strings.Join(r.found, "; ")
		}
		fmt.Fprintf(&b, "| `%s` %s | %.1f | %s | %s |\n", t.pkg, t.name, r.time.Minutes(), grouped(r.execs), found)
	}
	return b.String(), nil
}

// grouped writes 1713407 as 1,713,407.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The table stands between these lines of the page.
const begin, end = "<!-- fuzz -->\n", "<!-- /fuzz -->\n"

func writeTable(book, page string) error {
	b, err := os.ReadFile(book)
	if err != nil {
		return err
	}
	table, err := Table(b)
	if err != nil {
		return fmt.Errorf("%s: %w", book, err)
	}
	p, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(p), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q for the table to stand between", page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return atomicfile.WriteBytes(page, []byte(head+begin+table+end+tail))
}
