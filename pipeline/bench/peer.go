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

// Peers is the folder of the scripts that do the same works with other programs, and of the virtual environment with their
// packages (make bench-peers).
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

func (p Peers) python() string { return filepath.Join(string(p), "venv", "bin", "python") }
func (p Peers) script() string { return filepath.Join(string(p), "peer.py") }

// MissingPackage is the error for a package that the virtual environment lacks.
type MissingPackage struct{ Package string }

// Error names the package.
func (e *MissingPackage) Error() string { return "the peers' virtual environment has no " + e.Package }

// Start starts a process that does a work on the files of a folder, on one thread, whenever its Once is called.
func (p Peers) Start(ctx context.Context, work, folder string) (Contender, error) {
	cmd := exec.CommandContext(ctx, p.python(), p.script(), work, folder)
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"} {
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
	next := func() (string, error) {
		if lines.Scan() {
			return lines.Text(), nil
		}
		return "", fmt.Errorf("peer %s ended: %w: %s", work, errors.Join(lines.Err(), cmd.Wait()), lastLine(stderr.String()))
	}
	name, err := next()
	if err != nil {
		return Contender{}, err
	}
	if missing, ok := strings.CutPrefix(name, "missing: "); ok {
		return Contender{}, errors.Join(&MissingPackage{missing}, in.Close(), cmd.Wait())
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

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
