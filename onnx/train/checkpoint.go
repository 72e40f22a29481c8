package train

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"

	"fmp/onnx"
	"fmp/onnx/serde"
)

// A checkpoint is an ONNX file without nodes: the carried tensors are its initializers, and its
// metadata hold the step, the identity of the run, how it goes on, and the SHA-256 of the file
// without it.
const (
	keyStep   = "fmp.train.step"
	keyRun    = "fmp.train.run"
	keyNext   = "fmp.train.next"
	keyDigest = "fmp.train.sha256"
)

// How a run goes on from a checkpoint, where not with the step.
const (
	nextValidation = "validation" // which was broken off
	nextNothing    = "nothing"    // a validation ended the training
)

// digest is that of a checkpoint's content, whatever its metadata say of it. Marshal gives the same
// bytes for the same model, which makes it comparable. m is not changed.
func digest(m *onnx.Model) (string, error) {
	c := *m
	c.Metadata = maps.Clone(m.Metadata)
	delete(c.Metadata, keyDigest)
	data, err := serde.Marshal(&c)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// saved is a run's state before step t, and how it goes on: "" with the step.
type saved struct {
	t     int
	next  string
	state map[string]*onnx.Tensor
}

// saveCheckpoint writes a checkpoint, whole or not at all. The tensors are read while it runs, so
// that no step may be taken meanwhile. The digest is taken of everything else in the file and added
// last.
func saveCheckpoint(path, run string, s saved) error {
	m := onnx.NewModel(&onnx.Graph{Name: "checkpoint", Initializers: s.state})
	m.Metadata[keyStep] = strconv.Itoa(s.t)
	m.Metadata[keyRun] = run
	if s.next != "" {
		m.Metadata[keyNext] = s.next
	}
	sum, err := digest(m)
	if err != nil {
		return err
	}
	m.Metadata[keyDigest] = sum
	return serde.Save(path, m)
}

// loadCheckpoint reads a checkpoint; ok is false where there is none. Every error but a missing
// file is one, so that a run never starts afresh unasked. The digest is compared before the rest is
// believed, then the run, then the step.
func loadCheckpoint(path, run string) (s saved, ok bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	m, err := serde.Load(path)
	if err != nil {
		return s, false, fmt.Errorf("checkpoint: %w; remove it to start afresh", err)
	}
	if sum, err := digest(m); err != nil || m.Metadata[keyDigest] != sum {
		return s, false, fmt.Errorf("checkpoint %s does not match the digest in it: it was "+
			"damaged, or is of an earlier release; remove it to start afresh", path)
	}
	if have := m.Metadata[keyRun]; have != run {
		return s, false, fmt.Errorf("checkpoint %s is of another run (it says %s where this one "+
			"says %s); remove it to start afresh, or write to another file", path,
			differs(have, run), differs(run, have))
	}
	t, err := strconv.Atoi(m.Metadata[keyStep])
	if err != nil || t < 0 {
		return s, false, fmt.Errorf("checkpoint %s: its step is %q; remove it to start afresh",
			path, m.Metadata[keyStep])
	}
	return saved{t, m.Metadata[keyNext], m.Graph.Initializers}, true, nil
}

// differs is the part of a around the first place where it is not b, quoted. It shows at most 60
// bytes, of which 20 lie before the difference.
func differs(a, b string) string {
	const before, length = 20, 60
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-before)
	to := min(len(a), from+length)
	text := strings.ToValidUTF8(a[from:to], "")
	if from > 0 {
		text = "…" + text
	}
	if to < len(a) {
		text += "…"
	}
	return strconv.Quote(text)
}
