package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fmp/onnx/must"
)

func entries(t *testing.T, dir string) []string {
	t.Helper()
	es := must.Get(os.ReadDir(dir))(t)
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteReplacesWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "file.txt") // folders are made
	for _, content := range []string{"first", "second, longer", ""} {
		must.Do(t, WriteBytes(path, []byte(content)))
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("holds %q (%v), want %q", got, err, content)
		}
	}
	if got := entries(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("the folder holds %v", got)
	}
}

// TestLeftoversOfKilledProgramsAreRemoved: those of the same file that nobody has written to for an
// hour.
func TestLeftoversOfKilledProgramsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * time.Hour)
	for name, stale := range map[string]bool{".a.123.tmp": true, ".a.456.tmp": false,
		".b.123.tmp": true, "a.123.tmp": true, ".a.txt": true} {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte("x"), 0o600))
		if stale {
			must.Do(t, os.Chtimes(path, old, old))
		}
	}
	must.Do(t, WriteBytes(filepath.Join(dir, "a"), []byte("new")))
	long := filepath.Join(dir, strings.Repeat("n", 255))
	killed := filepath.Join(dir, temporary(long)+"1.tmp")
	must.Do(t, os.WriteFile(killed, nil, 0o600))
	must.Do(t, os.Chtimes(killed, old, old))
	must.Do(t, WriteBytes(long, []byte("long")))
	must.Do(t, os.Remove(long))
	if got, want := entries(t, dir),
		[]string{".a.456.tmp", ".a.txt", ".b.123.tmp", "a", "a.123.tmp"}; !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	first, ok, err := Lock(dir)
	if err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	if _, ok, err := Lock(dir); err != nil || ok {
		t.Errorf("a folder is locked twice: %v, %v", ok, err)
	}
	must.Do(t, first.Close())
	again, ok, err := Lock(dir)
	if err != nil || !ok {
		t.Errorf("a folder stays locked: %v, %v", ok, err)
	} else {
		again.Close()
	}
	if _, _, err := Lock(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestFailureLeavesTheOldFile: where writing fails half way, the file that was there stays and
// nothing is left behind.
func TestFailureLeavesTheOldFile(t *testing.T) {
	boom := errors.New("boom")
	dir := t.TempDir()
	path := filepath.Join(dir, "file.txt")
	fail := func(w io.Writer) error {
		if _, err := w.Write([]byte("half of")); err != nil {
			return err
		}
		return boom
	}
	if err := Write(path, fail); !errors.Is(err, boom) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want boom and the path", err)
	}
	if got := entries(t, dir); len(got) != 0 {
		t.Errorf("the folder holds %v, want nothing", got)
	}
	must.Do(t, WriteBytes(path, []byte("old")))
	if err := Write(path, fail); !errors.Is(err, boom) {
		t.Errorf("got %v, want boom", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" || len(entries(t, dir)) != 1 {
		t.Errorf("holds %q beside %v, want the old file alone", got, entries(t, dir))
	}
}

func TestPlacesThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Do(t, WriteBytes(file, nil))
	folder := filepath.Join(dir, "folder")
	must.Do(t, WriteBytes(filepath.Join(folder, "x"), nil))
	for _, path := range []string{filepath.Join(file, "under"), folder} {
		must.Fail(WriteBytes(path, []byte("x")))(t, path)
	}
	if got := entries(t, dir); len(got) != 2 {
		t.Errorf("something was left behind: %v", got)
	}
}

// A reader sees one whole content or the other, never a mixture.
func TestReadersSeeWholeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	a, b := strings.Repeat("a", 1<<16), strings.Repeat("b", 1<<15)
	must.Do(t, WriteBytes(path, []byte(a)))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, err := os.ReadFile(path)
			if runtime.GOOS == "windows" && inUse(err) {
				continue // for the moment of a renaming
			}
			if err != nil || string(got) != a && string(got) != b {
				t.Errorf("read %d bytes (%v), neither of the two contents", len(got), err)
				return
			}
		}
	})
	for i := range 30 {
		content := a
		if i%2 == 0 {
			content = b
		}
		must.Do(t, WriteBytes(path, []byte(content)))
	}
	close(stop)
	wg.Wait()
}

// TestPatiently: what is in use for a moment is tried again, for a while, and nothing else is.
func TestPatiently(t *testing.T) {
	busy, boom := &os.LinkError{Err: syscall.Errno(32)}, errors.New("boom")
	for name, c := range map[string]struct {
		says   []error // one after the other, the last for good
		within time.Duration
		tries  int
		want   error
	}{
		"at once":     {[]error{nil}, time.Minute, 1, nil},
		"in use":      {[]error{busy, fs.ErrPermission, nil}, time.Minute, 3, nil},
		"other error": {[]error{boom, nil}, time.Minute, 1, boom},
		"too long":    {[]error{fs.ErrPermission}, -1, 1, fs.ErrPermission},
	} {
		tries := 0
		err := patiently(func() error {
			tries++
			return c.says[min(tries, len(c.says))-1]
		}, c.within)
		if tries != c.tries || !errors.Is(err, c.want) {
			t.Errorf("%s: %d tries, %v; want %d, %v", name, tries, err, c.tries, c.want)
		}
	}
}

// A device is not replaced by a file, nor a link by what it points to.
func TestSpecialTargets(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must.Do(t, WriteBytes(file, []byte("old")))
	if err := os.Symlink(file, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	must.Do(t, WriteBytes(link, []byte("new")))
	st := must.Get(os.Lstat(link))(t)
	if got, err := os.ReadFile(file); err != nil || string(got) != "new" ||
		st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the file holds %q (%v), the link is %v", got, err, st.Mode())
	}
	dangling, device := filepath.Join(dir, "dangling"), filepath.Join(dir, "device")
	for path, to := range map[string]string{dangling: filepath.Join(dir, "gone"), device: os.DevNull} {
		must.Do(t, os.Symlink(to, path))
		must.Fail(WriteBytes(path, []byte("x")))(t, path)
	}
	if got := entries(t, dir); len(got) != 4 {
		t.Errorf("something was left behind: %v", got)
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode().IsRegular() {
		t.Errorf("%s is %v (%v)", os.DevNull, st.Mode(), err)
	}
}

// TestReady: what would keep a file from being written is told before the work, by the names that
// were given, and nothing is left behind.
func TestReady(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, WriteBytes(filepath.Join(dir, "file"), []byte("there")))
	t.Chdir(dir)
	for path, want := range map[string]string{"here": "", filepath.Join(dir, "new"): "",
		filepath.Join(dir, "file"): "",
		filepath.Join(dir, "nowhere", "new"): "the folder " + filepath.Join(dir, "nowhere") +
			" is not there", filepath.Join(dir, "file", "new"): "is no folder", dir: "it is a folder",
		os.DevNull:               "it is no regular file",
		strings.Repeat("n", 255): "", strings.Repeat("n", 256): "its name is too long",
		"/proc/new": "the folder /proc cannot be written to"} {
		err := Ready(path)
		if said := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(said, want) ||
			strings.Contains(said, ".tmp") {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
		if missing := strings.Contains(path, "nowhere"); errors.Is(err, fs.ErrNotExist) != missing &&
			path != "/proc/new" {
			t.Errorf("%s: %v; want missing %v", path, err, missing)
		}
	}
	if got := entries(t, dir); len(got) != 1 {
		t.Errorf("the folder holds %v", got)
	}
	if data, err := os.ReadFile("file"); err != nil || string(data) != "there" {
		t.Errorf("the file is %q, %v", data, err)
	}
}
