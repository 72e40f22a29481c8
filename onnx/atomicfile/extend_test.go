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
			}); err != nil {
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
	if err := Extend(path, 1<<16, func([]byte) ([]byte, error) { return []byte("x\n"), nil }); err == nil ||
		!strings.Contains(err.Error(), "its last line, of 3 bytes, has no end") {
		t.Errorf("a torn line: %v", err)
	}
	must.Do(t, os.WriteFile(path, []byte("whole\n{\"a\": 1}"), 0o600))
	refused := errors.New("no")
	if err := Extend(path, 1<<16,
		func(lines []byte) ([]byte, error) { return []byte("x\n"), refused }); !errors.Is(err,
		refused) {
		t.Errorf("error %v", err)
	}
	must.Do(t, Extend(path, 1<<16, func(lines []byte) ([]byte, error) {
		if string(lines) != "whole\n{\"a\": 1}\n" {
			t.Errorf("lines %q", lines)
		}
		return []byte("next\n"), nil
	}))
	if data, _ := os.ReadFile(path); string(data) != "whole\n{\"a\": 1}\nnext\n" {
		t.Errorf("the file is %q", data)
	}
	if err := Extend(path, 24, func([]byte) ([]byte, error) { return []byte("more\n"), nil }); err == nil {
		t.Error("a file beyond its limit was extended")
	}
	if err := Extend(t.TempDir(), 12, func([]byte) ([]byte, error) { return nil, nil }); err == nil {
		t.Error("a folder was extended")
	}
}
