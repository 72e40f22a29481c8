package client

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fmp/onnx/atomicfile"
)

// maxApproved bounds a file of approved extractors.
const maxApproved = 1 << 20

// Everywhere is the scope of an extractor that its owner approved by hand: it may be used for all
// servers and names.
const Everywhere = "*"

// Approved is the file of the extractors that the owner of images lets run on them: one a line, its
// digest, the time and the scope that it is approved for.
type Approved struct{ Path string }

// approval is a line of the file.
type approval struct{ digest, when, scope string }

// DefaultFile returns where a file of this program's lies unless a flag says otherwise: in the
// folder fmp of the user's folder for configuration.
func DefaultFile(name, flag string) (string, error) {
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no folder for configuration: %w; say with %s where the file is", err,
			flag)
	}
	return filepath.Join(base, "fmp", name), nil
}

// parseApproved reads a file of approved extractors: digest, time and scope a line. Empty lines and
// those that begin with # are ignored. A scope may hold spaces, and is the rest of its line.
func parseApproved(text string) ([]approval, error) {
	var out []approval
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, " ", 3)
		if len(f) != 3 || len(f[0]) != 64 || strings.Trim(f[0], "0123456789abcdef") != "" ||
			f[2] == "" {
			return nil, fmt.Errorf("line %d is %q; want the sha256 of an extractor, a time "+
				"and a scope: correct the line, or remove it", i+1, line)
		}
		out = append(out, approval{f[0], f[1], f[2]})
	}
	return out, nil
}

// Standing is the answer of a file of approved extractors about one for a scope.
type Standing struct {
	// Approved says that it may run: it was approved for the scope, or everywhere.
	Approved bool
	// Other is the extractor that was approved last for the scope, and When that was; empty where
	// none was.
	Other, When string
}

// Approvals are the extractors that an owner of images lets run on them.
type Approvals interface {
	// Find says how an extractor stands for a scope; it approves nothing.
	Find(digest, scope string) (Standing, error)
	// Add approves an extractor for a scope.
	Add(digest, scope string) error
}

// Find is [Approvals]. A file that is not there approves none.
func (a Approved) Find(digest, scope string) (s Standing, err error) {
	if _, err := os.Stat(a.Path); err != nil {
		return s, nil //nolint:nilerr // Extend says what is wrong with a file that is there
	}
	return s, atomicfile.Extend(a.Path, maxApproved, func(lines []byte) ([]byte, error) {
		s, err = (&Memory{string(lines)}).Find(digest, scope)
		return nil, err
	}, nil)
}

// Add is [Approvals].
func (a Approved) Add(digest, scope string) error {
	return atomicfile.Extend(a.Path, maxApproved, func(lines []byte) ([]byte, error) {
		m := Memory{string(lines)}
		err := m.Add(digest, scope)
		return []byte(m.Lines[len(lines):]), err
	}, nil)
}

// Memory is a file of approved extractors in memory, its lines as [Approved] has them.
type Memory struct{ Lines string }

// Find is [Approvals].
func (m *Memory) Find(digest, scope string) (Standing, error) {
	var s Standing
	all, err := parseApproved(m.Lines)
	if err != nil {
		return s, err
	}
	for _, p := range all {
		switch {
		case p.digest == digest && (p.scope == flat(scope) || p.scope == Everywhere):
			s.Approved = true
		case p.scope == flat(scope):
			s.Other, s.When = p.digest, p.when
		}
	}
	return s, nil
}

// Add is [Approvals].
func (m *Memory) Add(digest, scope string) error {
	_, err := parseApproved(m.Lines)
	if err == nil {
		if scope != Everywhere {
			scope = flat(scope)
		}
		m.Lines += string(line(digest, scope))
	}
	return err
}

// Files is the scope of client graphs that come as files, from no server.
const Files = "client graphs in files"

// ServerScope is the scope of the server that holds a key (Ed25519, base64): addresses and names
// can come to lead to another.
func ServerScope(key string) string {
	return fmt.Sprintf("the server whose key has sha256 %x", sha256.Sum256([]byte(key)))
}

// UnknownError is the refusal of an extractor that its owner has not approved.
type UnknownError struct {
	Digest, Scope string
	Standing
}

func (e *UnknownError) Error() string {
	if e.Other != "" {
		return fmt.Sprintf("the extractor %s is not the one that was approved for %s: "+
			"that was %s on %s", e.Digest, e.Scope, e.Other, e.When)
	}
	return fmt.Sprintf("the extractor %s is unknown: it does not come with this program, and "+
		"nobody approved it for %s", e.Digest, e.Scope)
}

// Trust returns nil where the extractor of the client graph may run on the images of an owner: one
// that is [Known], or one that was approved. Else the error is an [UnknownError]: nothing is
// approved by being the first.
func (c *Client) Trust(a Approvals, scope string) error {
	digest := c.Parsed.Extractor
	if Known(digest) != "" {
		return nil
	}
	s, err := a.Find(digest, scope)
	if err != nil {
		return fmt.Errorf("approved extractors: %w", err)
	}
	if !s.Approved {
		return &UnknownError{digest, scope, s}
	}
	return nil
}

// packed is the number of 8-bit pixels that a float32 of 24 significant bits holds.
const packed = 3

// Can describes in plain words the power of a network that gives as many numbers of an image as the
// graph's extractor.
func (c *Client) Can() string {
	numbers, pixels := c.Manifest.PointWidth(), c.Parsed.Pixels
	if c.Private() {
		return "In this private round noise covers what its numbers tell of one image; what it " +
			"computes is its maker's choice."
	}
	share := fmt.Sprintf("%.2g%% of", 100*float64(packed*numbers)/float64(pixels))
	if packed*numbers >= pixels {
		share = "all of"
	}
	return fmt.Sprintf("A network made for it can hide %s an image in its %d numbers, "+
		"as each holds up to %d pixels, and can give zeros for all "+
		"images of a class but one: an average over many images, too, is then that image.", share,
		numbers, packed)
}

// line returns an approval of this moment, in UTC and to the second.
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
