package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Peers is the folder of the scripts that do the same works with other programs, and of the virtual
// environment with their packages (make bench-peers).
type Peers string

// Ready reports whether the folder has both.
func (p Peers) Ready() bool {
	for _, path := range []string{p.python(), p.script()} {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}

// python and script are the interpreter and the program of peers.
func (p Peers) python() string { return filepath.Join(string(p), "venv", "bin", "python") }
func (p Peers) script() string { return filepath.Join(string(p), "peer.py") }

// peer is another program, with the work that peer.py has it do.
type peer struct{ work, name string }

// start starts a process that does a peer's work on the files of a folder, on one thread, whenever
// its Once is called. The peer is not at hand where the virtual environment lacks a package, or the
// packages there cannot do the work. The peer writes its name as a line once it is ready, or
// "missing: " and the reason. From then on an empty line asks for a run, and the seconds that it
// took are the answer. Of this process's environment it has nothing but the variables below. The
// process ends when its input is closed, or when ctx ends. A reply that is no number is an error of
// the run.
func (p Peers) start(ctx context.Context, of peer, folder string) (Contender, error) {
	if !p.Ready() {
		return Contender{Name: of.name}, nil
	}
	work := of.work
	cmd := exec.CommandContext(ctx, p.python(), p.script(), work, folder)
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
		"PYTHONDONTWRITEBYTECODE"} {
		// The first three keep its linear algebra to one thread; the last keeps it from writing
		// caches.
		cmd.Env = append(cmd.Env, name+"=1")
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return Contender{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Contender{}, err
	}
	if err := cmd.Start(); err != nil {
		return Contender{}, fmt.Errorf("peer %s: %w", work, err)
	}
	lines := bufio.NewScanner(out)
	// The peer's end is the error, with the last line that it said.
	next := func() (string, error) {
		if lines.Scan() {
			return lines.Text(), nil
		}
		return "", fmt.Errorf("peer %s ended: %w: %s", work, errors.Join(lines.Err(), cmd.Wait()),
			lastLine(stderr.String()))
	}
	name, err := next()
	if err != nil {
		return Contender{}, err
	}
	if why, ok := strings.CutPrefix(name, "missing: "); ok {
		return Contender{Name: of.name + " (" + why + ")"}, errors.Join(in.Close(), cmd.Wait())
	}
	return Contender{
		Name: name,
		Once: func() (time.Duration, error) {
			if _, err := io.WriteString(in, "\n"); err != nil {
				return 0, err
			}
			line, err := next()
			if err != nil {
				return 0, err
			}
			seconds, err := strconv.ParseFloat(line, 64)
			if err != nil {
				return 0, fmt.Errorf("it said %q in place of seconds", line)
			}
			return time.Duration(seconds * float64(time.Second)), nil
		},
		Close: func() error { return errors.Join(in.Close(), cmd.Wait()) },
	}, nil
}

// lastLine is the last line of a program's messages: of a Python traceback, the error.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
