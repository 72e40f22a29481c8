package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
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

// TestPlacedOnce: of two outputs of one name one is placed, and the other is refused before it is
// held; those of other names wait for nothing, also where a table is the same. A file of others that
// came meanwhile stays, and so does what is to take its place.
func TestPlacedOnce(t *testing.T) {
	path := newFolder(t)
	of := func(name string) []content {
		return []content{{path(name + ".csv"), []byte("folder,class,number,images\n"), aTable},
			{path(name), []byte("the upload " + name), anUpload}}
	}
	first := must.Get(hold("compress", of("one")))(t)
	refused := make(chan error, 1)
	go func() {
		_, err := hold("compress", []content{{path("one"), []byte("another"), anUpload}})
		refused <- err
	}()
	other := must.Get(hold("compress", of("two")))(t)
	foreign := must.Get(hold("compress", of("three")))(t)
	other.drop()
	select {
	case err := <-refused:
		t.Fatalf("a second output of the name was not waited with: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	must.Do(t, first.place())
	must.Fail(0, <-refused)(t, "is there already, another one")
	write(t, path("three"), []byte("of another program"))
	must.Fail(0, foreign.paid(foreign.place()))(t, "the budget is spent")
	for name, want := range map[string]string{"one": "the upload one", "one.csv": "folder,class,number,images\n",
		"three": "of another program",
		filepath.Base(aside(path("three"), models.DigestBytes([]byte("the upload three")))): "the upload three"} {
		if got, err := os.ReadFile(path(name)); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v; want %q", name, got, err, want)
		}
	}
	must.Do(t, os.Remove(path("three")))
	must.Do(t, put("compress", of("three")))
	if left, err := filepath.Glob(path(".*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
	must.Fail(0, move(path("one"), path("three")))(t, "exist")
}

// TestPlantedLinks: a link that somebody put under a hidden name of an output's is not followed: no file of the
// owner's is made or written over, and the output is a file of its own, of mode 0600.
func TestPlantedLinks(t *testing.T) {
	data := []byte("the upload")
	for name, c := range map[string]struct{ link, target, says string }{
		"aside, with a target": {aside("up", models.DigestBytes(data)), "mine", ""},
		"half, with a target":  {beside("up", "up", ".half"), "mine", ""},
		"half, without one":    {beside("up", "up", ".half"), "none", ""},
		"lock, with a target":  {beside("up", "", ".lock"), "mine", "is no regular file: remove it"},
		"lock, without one":    {beside("up", "", ".lock"), "none", "is no regular file: remove it"},
	} {
		path := newFolder(t)
		write(t, path("mine"), []byte("precious"))
		if err := os.Symlink(c.target, path(c.link)); err != nil {
			t.Skip(err) // a system without links
		}
		err := put("compress", []content{{path("up"), data, anUpload}})
		if c.says != "" {
			must.Fail(0, err)(t, c.says, name)
		} else {
			must.Do(t, err)
			st := must.Get(os.Lstat(path("up")))(t)
			if got, _ := os.ReadFile(path("up")); !bytes.Equal(got, data) || st.Mode() != 0o600 {
				t.Errorf("%s: the upload is %q, %v", name, got, st.Mode())
			}
		}
		if got := must.Get(os.ReadFile(path("mine")))(t); string(got) != "precious" || isThere(path("none")) {
			t.Errorf("%s: the link was followed: mine is %q, none there: %t", name, got, isThere(path("none")))
		}
	}
}

// TestPaidCopyStays: what a stopped program paid for and held stays where another cannot hold its files.
func TestPaidCopyStays(t *testing.T) {
	dir := t.TempDir()
	path, data := filepath.Join(dir, "upload"), []byte("paid")
	kept := aside(path, models.DigestBytes(data))
	write(t, kept, data)
	ledger := privacy.Ledger{Path: filepath.Join(dir, "spent")}
	p := payment{ledger, privacy.NewSpending(ofExamples, 10, 9, [][32]byte{{1}}, []int{1}), .5, false, &bytes.Buffer{}}
	_, err := p.pay("compress", []content{{path, data, anUpload}}, nil)
	must.Fail(0, err)(t, "--max-epsilon allows 0.5")
	if got, err := os.ReadFile(kept); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy has %q, %v", got, err)
	}
}

// TestLeftAside: files that programs left aside, stopped before they spent anything, go with the next release
// of the place; those that were paid for, another place's and another process's stay.
func TestLeftAside(t *testing.T) {
	path := newFolder(t)
	ledger := privacy.Ledger{Path: path("spent")}
	of := func(round uint64, data string) privacy.Spending {
		s := privacy.NewSpending(ofExamples, 10, 9, [][32]byte{{1}}, []int{1})
		s.Round, s.Files = round, []privacy.Written{{Path: path("up"), Sha256: models.DigestBytes([]byte(data))}}
		return s
	}
	must.Get2(ledger.Spend(of(1, "paid"), 0, false))(t)
	stays := map[string]bool{}
	for _, l := range []struct {
		place, data string
		age         time.Duration
		stays       bool
	}{{"up", "unpaid", 0, false}, {"up", "paid", 0, true}, {"other", "unpaid", 2 * leftFor, true},
		{"up.helper", "old", 2 * leftFor, false}, {"up.helper", "at work", 0, true}} {
		name := aside(path(l.place), models.DigestBytes([]byte(l.data)))
		write(t, name, []byte(l.data))
		at := time.Now().Add(-l.age)
		must.Do(t, os.Chtimes(name, at, at))
		stays[name] = l.stays
	}
	write(t, path(".own.held"), []byte("of somebody else"))
	stays[path(".own.held")] = true
	half := filepath.Base(beside(path("up"), "up", ".half"))
	for _, killed := range []string{half, "." + half + ".x.tmp"} {
		write(t, path(killed), []byte("of a program that was killed while it wrote"))
		stays[path(killed)] = false
	}
	locked := beside(path("up"), "", ".lock") + atomicfile.LockFile
	write(t, locked, nil) // as on Windows
	stays[locked] = false
	p := payment{ledger, of(2, "made"), 0, false, &bytes.Buffer{}}
	h := must.Get(p.pay("compress", []content{{path("up.helper"), []byte("helper"), anUpload},
		{path("up"), []byte("made"), anUpload}}, nil))(t)
	must.Do(t, h.place())
	for name, want := range stays {
		if _, err := os.Lstat(name); (err == nil) != want {
			t.Errorf("%s: %v; want it there: %v", name, err, want)
		}
	}
}

// TestLedgerInThePlace: a file that would stand in the place of the ledger that is to pay for it, of its
// seal or of a folder that is made for it, by any name, is refused before anything is spent or made.
func TestLedgerInThePlace(t *testing.T) {
	graph, c := privateGraph(t), classifier(t)
	photos := photosOf(t, 6)
	path := newFolder(t)
	must.Do(t, os.Mkdir(path("j"), 0o700))
	must.Do(t, os.Symlink("j", path("jj")))
	must.Do(t, os.Symlink("j/spent", path("link")))
	must.Do(t, must.Get(identity.New("a"))(t).Save(path("a.key")))
	compress := []string{"compress", "--model", graph, "--client", "a", "--epsilon", "1", "-o"}
	for _, r := range []struct {
		out, ledger string
		more        []string
	}{{"j/l", "j/l.classes.csv", nil}, {"jj/l", "j/l", nil}, {"j/l.seal", "jj/l", nil},
		{"j/new", "jj/new/l", nil}, {"j/new", "j/new/deep/l", nil}, {"j/NEW", "jj/new/l", nil},
		{"jj/l", "j/L.classes.csv", nil}, {"link.seal", "link", nil}, {"j/spent.seal", "link", nil},
		{"j/spent", "link", nil},
		{"jj/x", "j/x.helper", []string{"--noise", "two-servers", "--points", "40"}}} {
		refuses(t, exitUsage, "--ledger", slices.Concat(compress,
			[]string{path(r.out), "--ledger", path(r.ledger), photos}, r.more)...)
	}
	refuses(t, exitUsage, "--ledger", "evaluate", "--model", c, "--key", path("a.key"), "--epsilon", "1",
		"--ledger", path("jj/l"), "--output", path("j/l"), photos)
	if left := must.Get(os.ReadDir(path("j")))(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	for _, home := range []string{"XDG_CONFIG_HOME", "AppData"} {
		t.Setenv(home, path("home"))
	}
	must.Do(t, os.MkdirAll(path("home/fmp"), 0o700))
	refuses(t, exitUsage, "nothing was spent", append(compress, path("home/fmp/spent.jsonl.seal"), photos)...)
	write(t, path("j/one"), nil)
	must.Do(t, os.Link(path("j/one"), path("j/two.helper")))
	refuses(t, exitUsage, "it is the ledger", slices.Concat(compress, []string{path("j/two"), "--ledger", path("j/one"),
		"--noise", "two-servers", "--points", "40", photos})...)
}

// stub is a server of one round, which takes nothing; asked counts requests that would change it. Requests
// that own answers, where it is not nil, are not its.
func stub(t *testing.T, d wire.Description, graph string,
	own func(w http.ResponseWriter, r *http.Request) bool) (url string, asked *int) {
	t.Helper()
	data := must.Get(os.ReadFile(graph))(t)
	d.Round, d.Graph, d.GraphBytes, d.State = 1, models.DigestBytes(data), int64(len(data)),
		cmp.Or(d.State, wire.Open)
	if d.Now = time.Now(); d.Deadline.IsZero() {
		d.Deadline = d.Now.Add(time.Hour)
	}
	if d.ServerKey == "" {
		d.ServerKey = serverKey("s")
	}
	asked = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case own != nil && own(w, r):
		case r.Method != http.MethodGet:
			*asked++
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/v1/rounds":
			_ = json.NewEncoder(w).Encode(map[string]any{"rounds": []wire.Description{d}})
		default:
			_, _ = w.Write(data)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func serverKey(of string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(of, 32)))
}

// TestBeforeAnythingIsSpent: what a round or the owner's files do not allow is refused before anything
// is made, spent, sent or withdrawn, and every file stays as it is.
func TestBeforeAnythingIsSpent(t *testing.T) {
	private, plain := privateGraph(t), model(t, models.KindClient)
	photos := photosOf(t, 12)
	secret := wire.Description{MaxPoints: 100, MaxBytes: federate.MaxBytes, Privacy: &ofExamples, Withdrawal: true}
	public := wire.Description{MaxPoints: 100, MaxBytes: federate.MaxBytes, Withdrawal: true,
		Precisions: []string{"float32"}}
	narrow, few := secret, public
	narrow.MaxBytes, few.MaxPoints = 100, 10
	over := secret // once a reply would come
	over.Deadline = time.Now()
	taken, late := over, over
	taken.AcceptLate, late.State = true, wire.Late
	once := taken // one sum, which may be made at the deadline
	once.Withdrawal = false
	receipt := func(server, client, by string) string {
		return fmt.Sprintf(`{"server": %q, "client": %q, "round": 1, "by": %q}`, serverKey(server), client, by)
	}
	gone := receipt("s", "a", "client")
	const made = "made" // by compress, for the round
	for name, c := range map[string]struct {
		round wire.Description
		args  []string
		file  string // that is there
		holds string
		says  string
		asked int
	}{
		"an upload beyond bytes": {narrow, []string{"join"}, "", "", "nothing was made and nothing spent", 0},
		"images beyond points":   {few, []string{"join"}, "", "", "12 images; the round allows 10", 0},
		"a reply too late":       {over, []string{"join", "--reply-after", "5s"}, "", "", "give a shorter --reply-after", 0},
		"over before it":         {over, []string{"join", "--reply-after", "0"}, "", "", "the round is closed", 0},
		"a reply that counts":    {taken, []string{"join", "--reply-after", "0"}, "", "", "403", 1},
		"a reply beside the sum": {once, []string{"join", "--reply-after", "5s"}, "", "", "give a shorter --reply-after", 0},
		"a late round":           {late, []string{"join", "--reply-after", "0"}, "", "", "403", 1},
		"drawn again, made":      {secret, []string{"join", "--redraw"}, "a.1.upload", made, "move the file away", 0},
		"made":                   {secret, []string{"join"}, "a.1.upload", made, "were given then\n", 1},
		"a receipt over a key":   {public, []string{"join", "--receipt", "b.key"}, "b.key", "a key", "nothing was sent", 0},
		"over a private upload":  {secret, []string{"join", "--receipt", "b"}, "b", made, "is an upload of a private", 0},
		"over another client's":  {public, []string{"join", "--receipt", "b"}, "b", receipt("s", "b", ""), "nothing was", 0},
		"over a withdrawal's":    {public, []string{"join", "--receipt", "b"}, "b", gone, "nothing was", 0},
		"its own receipt":        {public, []string{"join", "--receipt", "b"}, "b", receipt("s", "a", ""), "403", 1},
		"an upload over a key":   {public, []string{"join"}, "a.1.upload", "a key", "is there already", 0},
		"a table over a list":    {public, []string{"join"}, "a.1.upload.classes.csv", "mine", "is there already", 0},
		"withdrawn":              {public, []string{"withdraw"}, "a.1.withdrawal.json", gone, "403", 1},
		"another's withdrawal": {public, []string{"withdraw"}, "a.1.withdrawal.json", receipt("o", "a", "client"),
			"nothing was withdrawn", 0},
		"a withdrawal over a key": {public, []string{"withdraw", "--receipt", "b"}, "b", "a key", "nothing was withdrawn", 0},
	} {
		t.Chdir(t.TempDir())
		must.Do(t, must.Get(identity.New("a"))(t).Save("a.key"))
		graph := plain
		if c.round.Privacy != nil {
			graph = private
		}
		if c.holds == made {
			run(t, "compress", "--model", private, "--client", "a", "--round", "1", "--epsilon", "1", "--ledger", "other",
				"-o", c.file, photos)
		} else if c.file != "" {
			write(t, c.file, []byte(c.holds))
		}
		before, _ := os.ReadFile(c.file)
		url, asked := stub(t, c.round, graph, nil)
		args := slices.Insert(slices.Clone(c.args), 1, url, "--key", "a.key", "--wait", "1s")
		if args[0] == "join" {
			args = append(args, "--cache", "graphs", photos)
			if c.round.Privacy != nil {
				args = append(args, "--ledger", "spent")
			}
		}
		code, log := said(t, args...)
		if code == exitOK || !strings.Contains(log, c.says) || *asked != c.asked {
			t.Errorf("%s: exit code %d, %d requests, %s; want %d and %q", name, code, *asked, log, c.asked, c.says)
		}
		if after, _ := os.ReadFile(c.file); !bytes.Equal(before, after) {
			t.Errorf("%s: %s is changed", name, c.file)
		}
		left, err := filepath.Glob("[^.]*")
		left = slices.DeleteFunc(left, func(f string) bool {
			return f == c.file || slices.Contains([]string{"a.key", "graphs", "other", "other.seal"}, f) ||
				strings.HasPrefix(f, c.file+".") && c.holds == made
		})
		if err != nil || c.asked == 0 && len(left) > 0 {
			t.Errorf("%s: %q is left, %v", name, left, err)
		}
	}
}

// TestOverMeanwhile: a round that ends while its graph is fetched, or its images are read, spends nothing:
// it is asked for before the first image and before the ledger's line.
func TestOverMeanwhile(t *testing.T) {
	graph, photos := privateGraph(t), photosOf(t, 6)
	t.Chdir(t.TempDir())
	must.Do(t, must.Get(identity.New("a"))(t).Save("a.key"))
	d := wire.Description{MaxPoints: 100, MaxBytes: federate.MaxBytes, Privacy: &ofExamples, Withdrawal: true,
		Deadline: time.Now().Add(700 * time.Millisecond)}
	url, _ := stub(t, d, graph, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/graph") {
			<-time.After(time.Until(d.Deadline))
		}
		return false
	})
	refuses(t, exitClosed, "nothing was spent", "join", url, "--key", "a.key", "--ledger", "ledger", "--cache", "graphs",
		"--reply-after", "0", photos)
	for asked, source := range []string{"no folder", photos} {
		f := pflag.NewFlagSet("compress", pflag.ContinueOnError)
		c := compressFlags(f)
		must.Do(t, f.Parse([]string{"--model", graph, "--client", "a", "--epsilon", "1", "--ledger", "ledger",
			"--reply-after", "0", "-o", "a.1.upload"}))
		n := 0
		c.takes = func(time.Duration) error {
			if n++; n > asked {
				return sender.ErrClosed
			}
			return nil
		}
		if err := c.run(t.Context(), []string{source}, io.Discard, io.Discard); !errors.Is(err, sender.ErrClosed) ||
			n != asked+1 {
			t.Errorf("%s: %v, asked %d times", source, err, n)
		}
	}
	if left := must.Get(filepath.Glob("[^.]*"))(t); !slices.Equal(left, []string{"a.key", "graphs"}) {
		t.Errorf("%q is left", left)
	}
}
