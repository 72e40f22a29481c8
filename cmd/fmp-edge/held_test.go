package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/privacy"
	"fmp/pipeline/tally"
)

// ofExamples is the budget of a private round, of one image and of this client's noise.
var ofExamples = privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example, Relation: privacy.AddRemove,
	Noise: privacy.Local}

// TestNothingMadeNothingSpent: a release with noise whose file cannot be written spends nothing, nor
// does one that the ledger refuses leave a file.
func TestNothingMadeNothingSpent(t *testing.T) {
	image := [][sha256.Size]byte{{1}}
	upload := func(dir, out string, ledger privacy.Ledger, limit float64) error {
		a := &answer{compressing: &compressing{private: privateFlags{maxEpsilon: &limit, redraw: new(bool)}},
			ledger: ledger, spending: privacy.NewSpending(ofExamples, 10, 9, image, []int{1}),
			messages: [][]byte{[]byte("message")}, released: released{Upload: filepath.Join(dir, out)}, log: io.Discard}
		err := a.Record()
		if err == nil {
			err = a.files.place()
		}
		return err
	}
	report := func(dir, out string, ledger privacy.Ledger, limit float64) error {
		key := must.Get(identity.New("a"))(t)
		s := &scored{scoring: &scoring{output: filepath.Join(dir, out), ledger: ledger.Path, epsilon: 1,
			delta: 1e-5, maxEpsilon: limit}, key: key, log: io.Discard, digests: image, labels: []int{1},
			made: &tally.Report{Classes: 10}}
		_, err := s.spent()
		return err
	}
	for kind, try := range map[string]func(dir, out string, ledger privacy.Ledger, limit float64) error{
		"upload": upload, "report": report} {
		for name, c := range map[string]struct {
			out   string
			limit float64
			says  string
		}{
			"no place to write": {"file/out", 0, "nothing was spent"},
			"beyond the limit":  {"out", 0.5, "--max-epsilon allows 0.5"},
			"made":              {"out", 1, ""},
		} {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "file"), []byte("no folder"))
			ledger := privacy.Ledger{Path: filepath.Join(dir, "spent")}
			err := try(dir, c.out, ledger, c.limit)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %s: %v; want an error that says %q", kind, name, err, c.says)
			}
			spent, _ := os.ReadFile(ledger.Path)
			if made := c.says == ""; made != (len(spent) > 0) {
				t.Errorf("%s, %s: the ledger has %q", kind, name, spent)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
				t.Errorf("%s, %s: %q is left", kind, name, left)
			}
		}
	}
}

// paying is a command that spends of a budget, and the files that it makes, the first placed last.
type paying struct{ args, files []string }

// releases are commands that spend of one ledger, by their kind.
func releases(t *testing.T, path func(name string) string) map[string]paying {
	t.Helper()
	photos := photosOf(t, 6)
	must.Do(t, must.Get(identity.New("a"))(t).Save(path("a.key")))
	spend := []string{"--ledger", path("spent"), "--epsilon", "1", photos}
	compress := append([]string{"compress", "--model", privateGraph(t), "--client", "a"}, spend...)
	evaluate := append([]string{"evaluate", "--model", classifier(t), "--key", path("a.key")}, spend...)
	return map[string]paying{
		"upload": {slices.Concat(compress, []string{"-o", path("one")}), []string{"one"}},
		"shares": {slices.Concat(compress, []string{"--noise", "two-servers", "--points", "10", "-o", path("two")}),
			[]string{"two", "two.helper"}},
		"report": {append(evaluate, "--output", path("report")), []string{"report"}},
	}
}

// TestStoppedBeforePlaced: where a program was stopped after it spent a budget and before the file
// stood in its place, the same command puts it there, and draws and spends nothing.
func TestStoppedBeforePlaced(t *testing.T) {
	path := newFolder(t)
	for name, c := range releases(t, path) {
		run(t, c.args...)
		spent := must.Get(os.ReadFile(path("spent")))(t)
		for _, other := range []bool{false, true} { // another file came into the place meanwhile
			before := map[string][]byte{}
			for _, f := range c.files {
				before[f] = must.Get(os.ReadFile(path(f)))(t)
				must.Do(t, os.Rename(path(f), aside(path(f), models.DigestBytes(before[f]))))
				if other {
					write(t, path(f), []byte("another"))
				}
			}
			for f := range before {
				if other {
					refuses(t, exitUsage, "is there already, another one", c.args...)
					must.Do(t, os.Remove(path(f)))
				}
			}
			run(t, c.args...)
			for f, want := range before {
				if got, err := os.ReadFile(path(f)); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %s is %d bytes, not what was paid for: %v", name, f, len(got), err)
				}
			}
		}
		run(t, c.args...)
		if left, _ := filepath.Glob(path(".*")); len(left) > 0 {
			t.Errorf("%s: %q is left", name, left)
		}
		if after := must.Get(os.ReadFile(path("spent")))(t); !bytes.Equal(after, spent) {
			t.Errorf("%s: it was spent again", name)
		}
	}
}

// TestCopiesOfBefore: a release that an earlier program made of images with copies is given again, with a word
// on labels, which are not compared.
func TestCopiesOfBefore(t *testing.T) {
	path := newFolder(t)
	for name, c := range releases(t, path) {
		run(t, c.args...)
		var s privacy.Spending
		must.Do(t, json.Unmarshal(must.Get(os.ReadFile(path("spent")))(t), &s))
		for _, copies := range []bool{false, true} {
			if copies {
				s.Images, s.Content = slices.Insert(s.Images, 0, s.Images[0]), "of images with copies"
			}
			s.Chain = ""
			write(t, path("spent"), append(must.Get(json.Marshal(s))(t), '\n'))
			must.Do(t, os.Remove(path("spent")+privacy.SealSuffix))
			code, log := said(t, c.args...)
			if code != exitOK || !strings.Contains(log, "nothing is spent") ||
				strings.Contains(log, "labels may differ from these: --redraw") != copies {
				t.Errorf("%s, copies %v: exit code %d, %s", name, copies, code, log)
			}
		}
		for _, f := range []string{"spent", "spent" + privacy.SealSuffix} {
			must.Do(t, os.RemoveAll(path(f)))
		}
	}
}

// TestRedrawStopped: a release that was drawn again, and whose program was stopped after it spent the budget,
// is put where the earlier one stands, by the same command and by the one without --redraw; nothing is spent.
func TestRedrawStopped(t *testing.T) {
	path := newFolder(t)
	for name, c := range releases(t, path) {
		all := func() (out [][]byte) {
			for _, f := range c.files {
				out = append(out, must.Get(os.ReadFile(path(f)))(t))
			}
			return out
		}
		again := append(slices.Clone(c.args), "--redraw")
		run(t, c.args...)
		first := all()
		run(t, again...)
		second := all()
		spent := must.Get(os.ReadFile(path("spent")))(t)
		for _, left := range []int{len(c.files), 1} { // that are not in their places yet
			for _, there := range []bool{true, false} { // the earlier release
				for _, args := range [][]string{again, c.args} {
					for i, f := range c.files[:left] {
						must.Do(t, os.Rename(path(f), aside(path(f), models.DigestBytes(second[i]))))
						if there {
							write(t, path(f), first[i])
						}
					}
					run(t, args...)
					if got := all(); !slices.EqualFunc(got, second, bytes.Equal) {
						t.Errorf("%s, %d left, %v: another release than the one that was paid for", name, left, there)
					}
				}
			}
		}
		if left, _ := filepath.Glob(path(".*")); len(left) > 0 {
			t.Errorf("%s: %q is left", name, left)
		}
		if after := must.Get(os.ReadFile(path("spent")))(t); !bytes.Equal(after, spent) {
			t.Fatalf("%s: it was spent again", name)
		}
		run(t, again...)
		if got := all(); slices.EqualFunc(got, second, bytes.Equal) {
			t.Errorf("%s: it was not drawn again", name)
		}
		must.Do(t, os.Remove(path(c.files[0])))
		run(t, again...) // one that is nowhere any more, too
	}
}

// TestTableOfTheUpload: where an upload cannot be written, the table beside it stays that of the
// earlier one.
func TestTableOfTheUpload(t *testing.T) {
	dir := t.TempDir()
	photos := photosOf(t, 6)
	out := filepath.Join(dir, "upload")
	run(t, "compress", "--model", model(t, models.KindClient), "--client", "a", "-o", out, photos)
	u, before := read(t, out), must.Get(os.ReadFile(foldersFile(out)))(t)
	must.Do(t, os.Remove(out))
	write(t, filepath.Join(out, "file"), []byte("in the upload's place"))
	c := compressFlags(pflag.NewFlagSet("compress", pflag.ContinueOnError))
	*c.client, *c.output, c.mapped = "a", out, []imagefile.Mapped{{From: "other", Class: "1", Label: 1, Images: 1}}
	if err := c.write(t.Context(), io.Discard, u, 0, 0); err == nil {
		t.Error("an upload in the place of a folder")
	}
	if after, err := os.ReadFile(foldersFile(out)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the table is %q, %v; want %q", after, err, before)
	}
	// The table of an earlier upload goes where a later one has none.
	must.Do(t, os.RemoveAll(out))
	c.mapped = nil
	must.Do(t, c.write(t.Context(), io.Discard, u, 0, 0))
	if _, err := os.Stat(foldersFile(out)); err == nil {
		t.Error("an earlier upload's table stays")
	}
}
