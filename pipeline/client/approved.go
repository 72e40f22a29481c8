package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fmp/onnx/atomicfile"
)

// maxApproved bounds a file of approved extractors.
const maxApproved = 1 << 20

// Everywhere is the scope of an extractor that its owner approved by hand: it may be used for all servers and names.
const Everywhere = "*"

// Approved is the file of the extractors that the owner of images lets run on them: one a line, its digest, the time and the scope that it
// is approved for. Within a scope the first extractor is trusted; another is refused until the owner approves it ([Approved.Add]).
type Approved struct{ Path string }

// approval is a line of the file.
type approval struct{ digest, when, scope string }

// DefaultFile returns where a file of this program's lies unless a flag says otherwise: in the folder fmp of the user's folder for
// configuration.
func DefaultFile(name, flag string) (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no folder for configuration: %w; say with %s where the file is", err, flag)
	}
	return filepath.Join(base, "fmp", name), nil
}

func parseApproved(text string) ([]approval, error) {
	var out []approval
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, " ", 3)
		if len(f) != 3 || len(f[0]) != 64 || strings.Trim(f[0], "0123456789abcdef") != "" || f[2] == "" {
			return nil, fmt.Errorf("line %d is %q; want the sha256 of an extractor, a time and a scope: correct the line, or remove it", i+1, line)
		}
		out = append(out, approval{f[0], f[1], f[2]})
	}
	return out, nil
}

// ChangedError is the refusal of an extractor in a scope that has another.
type ChangedError struct{ Old, New, Scope, When string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("the extractor of the client graph is not the one that was approved for %s: that was %s on %s, this is %s", e.Scope,
		e.Old, e.When, e.New)
}

// Trust returns nil where an extractor is approved for a scope or everywhere. The first of a scope is approved by it, and first is true;
// where another is approved for the scope, the error is a [ChangedError], and nothing is written.
func (a Approved) Trust(digest, scope string) (first bool, err error) {
	err = atomicfile.Extend(a.Path, maxApproved, func(lines []byte) ([]byte, error) {
		m := Memory{Lines: string(lines)}
		if first, err = m.Trust(digest, scope); err != nil || !first {
			return nil, err
		}
		return []byte(m.Lines[len(lines):]), nil
	})
	return first, err
}

// Memory is a file of approved extractors in memory, its lines as [Approved] has them.
type Memory struct{ Lines string }

// Trust is [Approved.Trust].
func (m *Memory) Trust(digest, scope string) (first bool, err error) {
	scope = flat(scope)
	all, err := parseApproved(m.Lines)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(all, func(p approval) bool { return p.digest == digest && (p.scope == scope || p.scope == Everywhere) }) {
		return false, nil
	}
	for _, p := range slices.Backward(all) {
		if p.scope == scope {
			return false, &ChangedError{Old: p.digest, New: digest, Scope: scope, When: p.when}
		}
	}
	m.Lines += string(line(digest, scope))
	return true, nil
}

// Has is [Approved.Has].
func (m *Memory) Has(digest string) (bool, error) {
	all, err := parseApproved(m.Lines)
	return slices.ContainsFunc(all, func(p approval) bool { return p.digest == digest && p.scope == Everywhere }), err
}

// Add is [Approved.Add].
func (m *Memory) Add(digest string) error {
	_, err := parseApproved(m.Lines)
	if err == nil {
		m.Lines += string(line(digest, Everywhere))
	}
	return err
}

// Approvals are the extractors that an owner of images lets run on them.
type Approvals interface {
	Trust(digest, scope string) (first bool, err error)
	Has(digest string) (bool, error)
}

// ErrImage means that an extractor gives as many numbers as an image has, which can be the image itself, and that its owner did not approve
// it.
var ErrImage = errors.New("as many as the image has, which can be the image itself")

// Trust returns an error unless the extractor of the client graph may run on the images of an owner: one of [Shipped], one that was
// approved, or the first for a scope, which is then approved for it.
func (c *Client) Trust(a Approvals, scope string) (first bool, err error) {
	digest := c.Apart.Extractor
	if _, ok := Shipped[digest]; ok {
		return false, nil
	}
	if !c.Private() && c.Manifest.Dx >= c.Apart.Pixels {
		if has, err := a.Has(digest); err != nil || !has {
			return false, errors.Join(err, ErrImage)
		}
	}
	return a.Trust(digest, scope)
}

// Has reports whether an extractor is approved everywhere. A file that is not there approves none.
func (a Approved) Has(digest string) (has bool, err error) {
	if _, err := os.Stat(a.Path); err != nil {
		return false, nil //nolint:nilerr // Extend says what is wrong with a file that is there
	}
	return has, atomicfile.Extend(a.Path, maxApproved, func(lines []byte) ([]byte, error) {
		has, err = (&Memory{string(lines)}).Has(digest)
		return nil, err
	})
}

// Add approves an extractor everywhere.
func (a Approved) Add(digest string) error {
	return atomicfile.Extend(a.Path, maxApproved, func(lines []byte) ([]byte, error) {
		m := Memory{string(lines)}
		err := m.Add(digest)
		return []byte(m.Lines[len(lines):]), err
	})
}

func line(digest, scope string) []byte {
	return fmt.Appendf(nil, "%s %s %s\n", digest, time.Now().UTC().Format(time.RFC3339), scope)
}

// flat writes a scope on one line. A name that is the word for everywhere is another.
func flat(scope string) string {
	if scope == Everywhere {
		return fmt.Sprintf("%q", scope)
	}
	return strings.Join(strings.Fields(scope), " ")
}
