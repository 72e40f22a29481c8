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
// metadata hold the step, the identity of the run, and the SHA-256 of the file without it.
const (
	keyStep   = "fmp.train.step"
	keyRun    = "fmp.train.run"
	keyDigest = "fmp.train.sha256"
)

// digest is that of a checkpoint's content, whatever its metadata say of it.
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

// saveCheckpoint writes the state before step t, whole or not at all.
func saveCheckpoint(path, run string, t int, state map[string]*onnx.Tensor) error {
	m := onnx.NewModel(&onnx.Graph{Name: "checkpoint", Initializers: state})
	m.Metadata[keyStep] = strconv.Itoa(t)
	m.Metadata[keyRun] = run
	sum, err := digest(m)
	if err != nil {
		return err
	}
	m.Metadata[keyDigest] = sum
	return serde.Save(path, m)
}

// loadCheckpoint reads a checkpoint; ok is false where there is none.
func loadCheckpoint(path, run string) (t int, state map[string]*onnx.Tensor, ok bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil, false, nil
	}
	m, err := serde.Load(path)
	if err != nil {
		return 0, nil, false, fmt.Errorf("checkpoint: %w; remove it to start afresh", err)
	}
	if sum, err := digest(m); err != nil || m.Metadata[keyDigest] != sum {
		return 0, nil, false, fmt.Errorf("checkpoint %s does not match the digest in it: it was "+
			"damaged, or is of an earlier release; remove it to start afresh", path)
	}
	if have := m.Metadata[keyRun]; have != run {
		return 0, nil, false, fmt.Errorf("checkpoint %s is of another run (it says %s where this one "+
			"says %s); remove it to start afresh, or write to another file", path, differs(have, run),
			differs(run, have))
	}
	t, err = strconv.Atoi(m.Metadata[keyStep])
	if err != nil || t < 0 {
		return 0, nil, false, fmt.Errorf("checkpoint %s: its step is %q; remove it to start afresh",
			path, m.Metadata[keyStep])
	}
	return t, m.Graph.Initializers, true, nil
}

// differs is the part of a around the first place where it is not b, quoted.
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
