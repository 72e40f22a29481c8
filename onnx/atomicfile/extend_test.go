package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fmp/onnx/must"
)

// TestExtend: writers at the same time lose no line and see each other's; a line without an end is
// an error or gets it, and what is refused is not written.
func TestExtend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "journal")
	const writers = 20
	var wg sync.WaitGroup
	for i := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := Extend(path, 1<<16, func(lines []byte) ([]byte, error) {
				return fmt.Appendf(nil, "%d after %d\n", i, bytes.Count(lines, []byte("\n"))), nil
			}, nil); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	data := must.Get(os.ReadFile(path))(t)
	for k, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if !strings.HasSuffix(line, fmt.Sprintf("after %d", k)) {
			t.Errorf("line %d is %q", k, line)
		}
	}
	must.Do(t, os.WriteFile(path, []byte("whole\ntor"), 0o600))
	must.Fail(Extend(path, 1<<16, func([]byte) ([]byte, error) { return []byte("x\n"), nil }, nil))(t,
		"its last line, of 3 bytes, has no end", "a torn line")
	must.Do(t, os.WriteFile(path, []byte("whole\n{\"a\": 1}"), 0o600))
	refused := errors.New("no")
	if err := Extend(path, 1<<16,
		func(lines []byte) ([]byte, error) { return []byte("x\n"), refused }, nil); !errors.Is(err,
		refused) {
		t.Errorf("error %v", err)
	}
	must.Do(t, Extend(path, 1<<16, func(lines []byte) ([]byte, error) {
		if string(lines) != "whole\n{\"a\": 1}\n" {
			t.Errorf("lines %q", lines)
		}
		return []byte("next\n"), nil
	}, nil))
	if data, _ := os.ReadFile(path); string(data) != "whole\n{\"a\": 1}\nnext\n" {
		t.Errorf("the file is %q", data)
	}
	must.Fail(Extend(path, 24, func([]byte) ([]byte, error) { return []byte("more\n"), nil }, nil))(t,
		"", "a file beyond its limit was extended")
	must.Fail(Extend(t.TempDir(), 12, func([]byte) ([]byte, error) { return nil, nil }, nil))(t, "",
		"a folder was extended")
}

// broken is a file of which a write, a sync or the taking back fails.
type broken struct {
	*os.File
	room              int // bytes that are written before the disk is full; -1: any
	syncs, takingBack error
}

func (b *broken) WriteAt(data []byte, at int64) (int, error) {
	if b.room < 0 {
		return b.File.WriteAt(data, at)
	}
	n, err := b.File.WriteAt(data[:b.room], at)
	return n, errors.Join(err, errFull)
}

func (b *broken) Sync() error {
	err := b.syncs
	b.syncs = nil
	return err
}

func (b *broken) Truncate(size int64) error {
	if b.takingBack != nil {
		return b.takingBack
	}
	return b.File.Truncate(size)
}

var errFull, errStuck = errors.New("no space left"), errors.New("stuck")

// TestTakenBack: lines that cannot be written whole, or not with all that follows them, leave the file
// as it was; where even that cannot be done, the error says both.
func TestTakenBack(t *testing.T) {
	fails := func() error { return errFull }
	fine := func() error { return nil }
	for name, c := range map[string]struct {
		file broken
		then func() error
		want string
		errs []error
	}{
		"written":         {file: broken{room: -1}, then: fine, want: "one\ntwo\n"},
		"nothing written": {file: broken{}, want: "one\n", errs: []error{errFull}},
		"a part written":  {file: broken{room: 2}, want: "one\n", errs: []error{errFull}},
		"not synced":      {file: broken{room: -1, syncs: errFull}, want: "one\n", errs: []error{errFull}},
		"one that follows fails": {file: broken{room: -1}, then: fails, want: "one\n",
			errs: []error{errFull}},
		"it cannot be undone": {file: broken{room: 2, takingBack: errStuck}, want: "one\ntw",
			errs: []error{errFull, errStuck}},
	} {
		path := filepath.Join(t.TempDir(), "journal")
		must.Do(t, os.WriteFile(path, []byte("one\n"), 0o600))
		c.file.File = must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
		err := grow(&c.file, 4, []byte("two\n"), c.then)
		c.file.Close()
		if (err == nil) != (c.errs == nil) {
			t.Errorf("%s: error %v", name, err)
		}
		for _, want := range c.errs {
			if !errors.Is(err, want) {
				t.Errorf("%s: error %v; want one that is %v", name, err, want)
			}
		}
		if data := must.Get(os.ReadFile(path))(t); string(data) != c.want {
			t.Errorf("%s: the file is %q; want %q", name, data, c.want)
		}
	}
	// By the exported name: the call that fails takes the line back, and none follows no line.
	path, calls := filepath.Join(t.TempDir(), "journal"), 0
	for _, more := range []string{"", "line\n"} {
		err := Extend(path, 100, func([]byte) ([]byte, error) { return []byte(more), nil },
			func() error { calls++; return errFull })
		if (err == nil) != (more == "") {
			t.Errorf("%q: error %v", more, err)
		}
	}
	if data := must.Get(os.ReadFile(path))(t); len(data) > 0 || calls != 1 {
		t.Errorf("the file is %q after %d calls; want none of it after one", data, calls)
	}
}
