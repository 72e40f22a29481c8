package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

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
	must.Do(t, must.Get(identity.New("a"))(t).Save(path("a.key")))
	compress := []string{"compress", "--model", graph, "--client", "a", "--epsilon", "1", "-o"}
	for _, r := range []struct {
		out, ledger string
		more        []string
	}{{"j/l", "j/l.classes.csv", nil}, {"jj/l", "j/l", nil}, {"j/l.seal", "jj/l", nil},
		{"j/new", "jj/new/l", nil}, {"j/new", "j/new/deep/l", nil}, {"j/NEW", "jj/new/l", nil},
		{"jj/l", "j/L.classes.csv", nil},
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

// stub is a server of one round, which takes nothing; asked counts requests that would change it.
func stub(t *testing.T, d wire.Description, graph string) (url string, asked *int) {
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
		"a reply too late":       {over, []string{"join", "--reply-after", "0"}, "", "", "give a shorter --reply-after", 0},
		"a reply that counts":    {taken, []string{"join", "--reply-after", "0"}, "", "", "403", 1},
		"a reply beside the sum": {once, []string{"join", "--reply-after", "0"}, "", "", "give a shorter --reply-after", 0},
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
		url, asked := stub(t, c.round, graph)
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
		left, err := filepath.Glob("[!.]*")
		left = slices.DeleteFunc(left, func(f string) bool {
			return f == c.file || slices.Contains([]string{"a.key", "graphs", "other", "other.seal"}, f) ||
				strings.HasPrefix(f, c.file+".") && c.holds == made
		})
		if err != nil || c.asked == 0 && len(left) > 0 {
			t.Errorf("%s: %q is left, %v", name, left, err)
		}
	}
}
