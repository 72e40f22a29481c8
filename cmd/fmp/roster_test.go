package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/models"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/service"
)

// TestRosterBeingWritten: a roster that changes from look to look is not read; one that two looks
// find the same is, once.
func TestRosterBeingWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "roster.txt")
	f := rosterFile{path: path}
	at := time.Unix(1e9, 0)
	write := func(text string) {
		t.Helper()
		at = at.Add(time.Second)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		must.Do(t, os.Chtimes(path, at, at))
	}
	write("a b c")
	f.last = f.stamp()
	f.taken = f.last
	look := func(want bool, when string) {
		t.Helper()
		if got := f.settled(); got != want {
			t.Errorf("%s: settled %v; want %v", when, got, want)
		}
	}
	look(false, "unchanged")
	write("a") // cut off by an editor that writes it anew
	look(false, "one look after a change")
	write("a b c d")
	look(false, "changed again")
	look(true, "the same at two looks")
	look(false, "taken already")
	must.Do(t, os.Remove(path))
	look(false, "away")
	write("a b c d e")
	look(false, "back")
	look(true, "back for two looks")
}

// TestRosterAtStart: a roster that changed between the reading of the round and the first look is taken;
// one with the same clients is not taken again, and one that is refused leaves the last in place.
func TestRosterAtStart(t *testing.T) {
	t.Parallel()
	a, b := must.Get(identity.New("a"))(t).Line()+"\n", must.Get(identity.New("b"))(t).Line()+"\n"
	other := must.Get(identity.New("b"))(t).Line() + "\n"
	for name, c := range map[string]struct {
		loaded string
		found  []string // one after the other
		want   []string // rosters that are taken
	}{
		"unchanged":        {a + b, []string{a + b}, nil},
		"a line less":      {a + b, []string{a}, []string{"[a]"}},
		"a line more":      {a, []string{a + b}, []string{"[a b]"}},
		"another key":      {a + b, []string{a + other}, []string{"[a b]"}},
		"the same again":   {a, []string{"# note\n" + a, a + b}, []string{"[a b]"}},
		"there and back":   {a, []string{a + b, a}, []string{"[a b]", "[a]"}},
		"refused, then on": {a, []string{"none\n", a + b}, []string{"[a b]"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { atStart(t, c.loaded, c.found, c.want) })
		})
	}
}

// atStart is a case of TestRosterAtStart, in time of its own.
func atStart(t *testing.T, loaded string, found, want []string) {
	path := filepath.Join(t.TempDir(), "roster.txt")
	r := &round.Round{Clients: must.Get(identity.ParseRoster([]byte(loaded)))(t)}
	r.Roster = path
	at := time.Unix(1e9, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, ended := make(chan string, 9), make(chan struct{})
	for i, text := range found {
		at = at.Add(time.Second)
		must.Do(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.Do(t, os.Chtimes(path+".new", at, at))
		must.Do(t, os.Rename(path+".new", path))
		if i == 0 {
			go func() {
				defer close(ended)
				watchRoster(ctx, 50*time.Millisecond, r, func(clients *identity.Roster) {
					got <- fmt.Sprint(clients.Names())
				}, slog.New(slog.DiscardHandler))
			}()
		}
		time.Sleep(500 * time.Millisecond)
	}
	cancel()
	<-ended
	close(got)
	var taken []string
	for one := range got {
		taken = append(taken, one)
	}
	if !slices.Equal(taken, want) {
		t.Errorf("taken: %v; want %v", taken, want)
	}
}

// TestRosterReadAgain: a roster that cannot be read at one moment is taken at a later one, though its file
// looks the same. The fault is said once.
func TestRosterReadAgain(t *testing.T) {
	t.Parallel()
	line := must.Get(identity.New("a"))(t).Line() + "\n"
	path := filepath.Join(t.TempDir(), "roster.txt")
	write := func(text string) {
		must.Do(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.Do(t, os.Chtimes(path+".new", time.Unix(1e9, 0), time.Unix(1e9, 0)))
		must.Do(t, os.Rename(path+".new", path))
	}
	write("E" + line[1:])
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &round.Round{Clients: must.Get(identity.ParseRoster([]byte(
			line + must.Get(identity.New("b"))(t).Line())))(t)}
		r.Roster = path
		var log bytes.Buffer
		var taken []string
		go watchRoster(ctx, time.Second, r, func(clients *identity.Roster) {
			taken = append(taken, clients.Names()...)
		}, slog.New(slog.NewTextHandler(&log, nil)))
		for _, text := range []string{"", line} {
			if text != "" {
				write(text)
			}
			time.Sleep(time.Minute + time.Millisecond)
		}
		if !slices.Equal(taken, []string{"a"}) || strings.Count(log.String(), "want lines of") != 1 {
			t.Errorf("taken %v, and in the log:\n%s", taken, &log)
		}
	})
}

// TestAcceptor: that no connection can be taken is said once a minute.
func TestAcceptor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := &acceptor{Listener: refusing{errors.New("too many open files")},
			log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 90 {
			_, err := a.Accept()
			if err == nil {
				t.Fatal("a connection")
			}
			time.Sleep(time.Second)
		}
		a.Listener = refusing{net.ErrClosed}
		time.Sleep(time.Minute)
		if _, err := a.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "no connection can be taken"); n != 2 {
			t.Errorf("said %d times in 90 seconds:\n%s", n, &log)
		}
	})
}

// refusing is a listener that takes no connection.
type refusing struct{ err error }

func (r refusing) Accept() (net.Conn, error) { return nil, r.err }
func (r refusing) Close() error              { return nil }
func (r refusing) Addr() net.Addr            { return &net.TCPAddr{} }

// TestLabelledImages: the folder of the server's own images is checked before a client comes, and a
// fault of it later leaves the scores out, not the classifier.
func TestLabelledImages(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := &round.Round{Client: models.Manifest{C: 2, Classes: []string{"cat", "dog"}}}
	if n := scoredOn(r).MaxItems; n != 1_000_000 {
		t.Errorf("%d images are taken at the start; a classifier is scored on 1,000,000 at most", n)
	}
	for name, c := range map[string]struct{ path, class, want string }{
		"none":    {},
		"missing": {path: folder + "/nowhere", want: "nowhere"},
		"good":    {path: folder + "/good", class: "cat"},
		"zebra":   {path: folder + "/other", class: "zebra", want: "zebra"},
	} {
		if c.class != "" {
			must.Do(t, os.MkdirAll(filepath.Join(c.path, c.class), 0o700))
			file := must.Get(os.Create(filepath.Join(c.path, c.class, "1.png")))(t)
			must.Do(t, png.Encode(file, image.NewGray(image.Rect(0, 0, 8, 8))))
			must.Do(t, file.Close())
		}
		r.Labelled = c.path
		if err := new(serveFlags).checkLabelled(r); (err != nil) != (c.want != "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if err := (&serveFlags{asHelper: true}).checkLabelled(r); err != nil {
			t.Errorf("%s, at the helper: %v", name, err)
		}
	}
	var log bytes.Buffer
	s := &server{round: r, eng: must.Get(pure.New(engine.Options{}))(t), log: slog.New(slog.NewTextHandler(&log, nil))}
	r.Labelled = folder + "/nowhere"
	made := must.Get(measured(s, func(context.Context, []int) (*service.Pooled, error) {
		return &service.Pooled{Classifier: []byte("x"), Summary: "kept"}, nil
	})(t.Context(), nil))(t)
	if made.Summary != "kept" || !strings.Contains(log.String(), "not scored") {
		t.Errorf("summary %v; log %s", made.Summary, &log)
	}
}
