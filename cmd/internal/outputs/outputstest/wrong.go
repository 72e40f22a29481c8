package outputstest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Wrong is a command line, its words separated by spaces, that must fail with one error that says
// the second string, another exit code than 0, and no file written or changed.
type Wrong [2]string

// missing are words of errors whose exit code is that of a file that is not there.
var missing = regexp.MustCompile(`no such|is not there|there is no|not found`)

// CheckWrong runs wrong command lines in the current folder.
func CheckWrong(t *testing.T, list []Wrong, run func(args ...string) (code int, said string)) {
	for _, w := range list {
		before := tree(t)
		ended := time.AfterFunc(time.Minute,
			func() { panic(w[0] + ": it waits, for a pipe or a server") })
		code, said := run(strings.Fields(w[0])...)
		ended.Stop()
		want := 2
		if missing.MatchString(said) {
			want = 3
		}
		if code != want || !strings.Contains(said, w[1]) {
			t.Errorf("%s: exit code %d, %q; want %d and an error with %q", w[0],
				code, said, want, w[1])
		}
		if n := strings.Count("\n"+said, "\nfmp"); n != 1 { // a second line may name a second image
			t.Errorf("%s: %d errors in place of one: %q", w[0], n, said)
		}
		if after := tree(t); !maps.Equal(before, after) {
			t.Errorf("%s: the folder held %v and holds %v", w[0], before, after)
			return
		}
	}
}

// tree returns the files under the current folder with digests of their contents.
func tree(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		out[path] = e.Type().String()
		if !e.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		out[path] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
