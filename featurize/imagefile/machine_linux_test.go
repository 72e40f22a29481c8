package imagefile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"fmp/onnx/must"
)

// TestMachineFailsBehindLink: a folder behind a link that cannot be listed for want of files to open
// ends the walk, and is no bad image.
func TestMachineFailsBehindLink(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, ".store", "more"), 0o700))
	must.Do(t, os.Mkdir(filepath.Join(dir, "cat"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(dir, "cat", "1.png"), nil, 0o600))
	must.Do(t, os.Symlink(filepath.Join("..", ".store", "more"), filepath.Join(dir, "cat", "more")))
	w := Walker{Dir: dir, Others: &LeftOut{}, Visit: func(_ string, _ int, bad error) error { return bad }}
	must.Do(t, w.Walk("cat", 0))
	w.Visit = func(path string, _ int, bad error) error {
		t.Errorf("%s is visited: %v", path, bad)
		return nil
	}
	var was syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	next := must.Get(os.Open(dir))(t)
	few := was
	few.Cur = uint64(next.Fd()) // the lowest number that is free
	must.Do(t, next.Close())
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	err := w.End()
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("the walk ends with %v", err)
	}
}
