package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
)

// TestMachineFails: an image that the machine cannot read, whatever is in it, ends the work of plain and of
// private rounds with exit code 1, and nothing is written or spent; one that is broken is left out.
func TestMachineFails(t *testing.T) {
	const broken = "/proc/self/mem" // a regular file, and reading its first byte is EIO
	path := newFolder(t)
	good, share := filepath.Join(photosOf(t, 6), "1"), path("share.png")
	write(t, path("cut.png"), []byte("\x89PNG"))
	list := "path,label\ncut.png,1\nshare.png,1\n"
	for _, e := range must.Get(os.ReadDir(good))(t) {
		list += filepath.Join(good, e.Name()) + ",1\n"
	}
	write(t, path("list.csv"), []byte(list))
	private := []string{"compress", "--model", privateGraph(t), "--client", "a", "--epsilon", "1",
		"--reply-after", "0", "--ledger", path("spent"), "-o", path("up"), path("list.csv")}
	skipping := []string{"compress", "--model", model(t, models.KindClient), "--client", "a", "--on-bad", "skip",
		"-o", path("up"), path("list.csv")}
	for _, args := range [][]string{private, skipping} {
		must.Do(t, os.Symlink(broken, share))
		code, said := said(t, args...)
		if code != exitFailed || !strings.Contains(said, "input/output error") || strings.Contains(said, "left out") {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
		for _, name := range []string{"up", "spent"} {
			if _, err := os.Lstat(path(name)); err == nil {
				t.Errorf("%v: %s is there", args, name)
			}
		}
		must.Do(t, os.Remove(share))
	}
	run(t, private...) // a file that is not there is left out
}
