// Command mutate changes the sources in one place after another, and runs the test that must
// notice:
//
//	go run ./docs/mutate docs/mutate/mutations.txt
//	go run ./docs/mutate -part 1/3 docs/mutate/mutations.txt
//
// With -part K/N it takes the K-th of every N mutations of the list, K from 1 to N.
//
// The list holds, of each mutation, a line "== FILE PACKAGE TEST" and the lines that are taken out
// (-) and put in their place (+); the first must stand in the file once. A file without a folder is
// the package's. The files themselves are left alone: go test -overlay reads the changed copies. A
// mutation that no test notices, that does not compile, or whose lines are no longer there ends the
// command with exit code 1. One whose test skips, as on a processor without the kernel's
// instructions, is counted apart.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// errSkipped says that a test is not for this machine's processor: nothing can be said of the
// mutation here.
var errSkipped = errors.New("SKIPPED: the test is not for this machine")

// mutation is a change of one file, and the test that must fail with it.
type mutation struct{ file, pkg, test, old, new string }

func main() {
	part := flag.String("part", "1/1", "take the K-th of every N mutations: `K/N`")
	flag.Parse()
	var k, n int
	if got, err := fmt.Sscanf(*part, "%d/%d", &k, &n); flag.NArg() != 1 || got != 2 ||
		err != nil || k < 1 || k > n {
		fmt.Fprintln(os.Stderr, "usage: mutate [-part K/N] LIST, K from 1 to N")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), k, n); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// run tries the k-th of every n mutations of a list.
func run(list string, k, n int) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	all, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	var some []mutation
	for i := k - 1; i < len(all); i += n {
		some = append(some, all[i])
	}
	all = some
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var g errgroup.Group
	g.SetLimit(2)
	var skipped atomic.Int64
	missed := make([]string, len(all)) // a line of each mutation that was not caught
	for i, m := range all {
		g.Go(func() error {
			verdict := "caught"
			err := m.try(filepath.Join(dir, fmt.Sprint(i)))
			if err != nil {
				verdict = err.Error()
			}
			line := fmt.Sprintf("%s: %s -> %s: %s", m.file, strings.TrimSpace(m.old),
				strings.TrimSpace(m.new), verdict)
			fmt.Println(line)
			switch {
			case errors.Is(err, errSkipped):
				skipped.Add(1)
			case err != nil:
				missed[i] = line
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if missed = slices.DeleteFunc(missed, func(s string) bool { return s == "" }); len(missed) > 0 {
		return fmt.Errorf("%d of %d mutations were not caught:\n%s", len(missed), len(all),
			strings.Join(missed, "\n"))
	}
	fmt.Printf("%d mutations were caught; the tests of %d are skipped on this machine\n",
		int64(len(all))-skipped.Load(), skipped.Load())
	return nil
}

// parse reads a list. Lines of - and + belong to the last line of ==. Empty lines and those of #
// are passed over, and all others are errors.
func parse(text string) ([]mutation, error) {
	var all []mutation
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "#"):
		case fields[0] == "==" && len(fields) == 4:
			m := mutation{file: fields[1], pkg: fields[2], test: fields[3]}
			if !strings.Contains(m.file, "/") {
				m.file = path.Join(m.pkg, m.file)
			}
			all = append(all, m)
		case line[0] == '-' && len(all) > 0:
			all[len(all)-1].old += line[1:] + "\n"
		case line[0] == '+' && len(all) > 0:
			all[len(all)-1].new += line[1:] + "\n"
		default:
			return nil, fmt.Errorf("line %d is not understood: %q", i+1, line)
		}
	}
	for _, m := range all {
		if m.old == "" || m.old == m.new {
			return nil, fmt.Errorf("a mutation of %s changes nothing", m.file)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("it holds no mutation")
	}
	return all, nil
}

// changed returns the file as the mutation leaves it.
func (m mutation) changed() (string, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("NOT APPLIED: the lines stand in the file %d times", n)
	}
	return strings.Replace(string(source), m.old, m.new, 1), nil
}

// try runs the test on the changed file; the error says why the mutation was not caught. base
// begins the names of files that it writes.
func (m mutation) try(base string) error {
	changed, err := m.changed()
	if err != nil {
		return err
	}
	file, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: base + ".go"}})
	if err != nil {
		return err
	}
	for name, data := range map[string]string{base + ".go": changed,
		base + ".json": string(overlay)} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			return err
		}
	}
	args := []string{"test", "-v", "-overlay", base + ".json", "-count=1", "-vet=off",
		"-timeout=2m", "-run", m.test, m.pkg}
	out, err := exec.Command("go", args...).CombinedOutput()
	switch text := string(out); {
	case err == nil && strings.Contains(text, "no tests to run"):
		return fmt.Errorf("NO TEST %s in %s", m.test, m.pkg)
	case err == nil && strings.Contains("\n"+text, "\n--- SKIP") &&
		!strings.Contains("\n"+text, "\n--- PASS"):
		return errSkipped
	case err == nil:
		return errors.New("SURVIVED")
	// A change that does not compile is not caught.
	case !strings.Contains(text, "--- FAIL") && !strings.Contains(text, "panic:"):
		return fmt.Errorf("NO TEST RAN: %s", strings.Join(strings.Fields(text), " "))
	}
	return nil
}
