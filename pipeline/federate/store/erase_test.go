package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"fmp/onnx/must"
)

// secret returns bytes that nothing else has.
func secret(name string, n int) []byte {
	var seed [32]byte
	copy(seed[:], name)
	out := make([]byte, n)
	_, _ = rand.NewChaCha8(seed).Read(out)
	return out
}

// step is the distance of the pieces of 16 bytes by which a text is looked for.
const step = 997

// pieces returns how many pieces of a text are in the files of a folder.
func pieces(t *testing.T, dir string, text []byte) (n int) {
	t.Helper()
	must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // NATS makes and renames files meanwhile
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for at := 0; at+16 <= len(text); at += step {
			if bytes.Contains(data, text[at:at+16]) {
				n++
			}
		}
		return err
	}))
	return n
}

// erasure is a deletion whose bytes must leave the files of the state.
type erasure struct {
	name string
	// put stores bytes; gone deletes them.
	put, gone func(t *testing.T, s *Store, text []byte) error
}

func erasures() []erasure {
	var last *Record
	upload := func(t *testing.T, s *Store, text []byte) error {
		last = record("a", "1")
		last.Data = text
		return s.Put(t.Context(), last, 0)
	}
	refuse := func(t *testing.T, s *Store, text []byte) error {
		return s.Refuse(t.Context(), Refusal{Client: "r"}, text)
	}
	return []erasure{
		{"withdrawn", upload, func(t *testing.T, s *Store, _ []byte) error {
			return s.Withdraw(t.Context(), last, Gone{}, nil)
		}},
		{"replaced", upload, func(t *testing.T, s *Store, _ []byte) error {
			return s.Put(t.Context(), record("a", "2"), last.Revision)
		}},
		{"refused, dropped", refuse, func(t *testing.T, s *Store, _ []byte) error {
			return s.DropRefusal(t.Context(), "r")
		}},
		{"refused, again", refuse, func(t *testing.T, s *Store, _ []byte) error {
			return s.Refuse(t.Context(), Refusal{Client: "r"}, []byte("another"))
		}},
		{"version", func(t *testing.T, s *Store, text []byte) error {
			return s.Publish(t.Context(), Version{Number: 1}, text, text[:len(text)/2], nil)
		}, func(t *testing.T, s *Store, _ []byte) error { return s.DropClassifier(t.Context(), 1) }},
		{"stored twice", func(t *testing.T, s *Store, text []byte) error {
			return errors.Join(s.PutObject(t.Context(), "o", text), s.PutObject(t.Context(), "o", text))
		}, func(t *testing.T, s *Store, _ []byte) error { return s.DeleteObject(t.Context(), "o") }},
	}
}

// TestErased: nothing of an upload that was withdrawn or replaced, of a refused one that is no longer
// in quarantine, and of a version whose files were deleted, is in a file of the state, while the
// server runs and after it; the others are there, after a start too.
func TestErased(t *testing.T) {
	for _, c := range erasures() {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := opened(t, Options{Dir: dir})
			text, other := secret("gone", 300_000), record("z", "1")
			other.Data = secret("stays", 3000)
			must.Do(t, s.Put(t.Context(), other, 0))
			must.Do(t, c.put(t, s, text))
			// others follow, so that the message is not the last of its file
			must.Do(t, s.Put(t.Context(), record("y", "1"), 0))
			must.Do(t, s.Refuse(t.Context(), Refusal{Client: "y"}, []byte("x")))
			if n := pieces(t, dir, text); n < len(text)/step {
				t.Fatalf("%d pieces are in the files before it is deleted", n)
			}
			must.Do(t, c.gone(t, s, text))
			for _, when := range []string{"while the server runs", "after a start"} {
				if n := pieces(t, dir, text); n > 0 {
					t.Errorf("%s: %d pieces are still in the files", when, n)
				}
				if r, err := s.Get(t.Context(), "z"); err != nil || !bytes.Equal(r.Data, other.Data) ||
					r.Revision != other.Revision {
					t.Errorf("%s: another upload: %v", when, err)
				}
				s.Close()
				if n := pieces(t, dir, text); n > 0 {
					t.Errorf("%s, and was closed: %d pieces are still in the files", when, n)
				}
				s = opened(t, Options{Dir: dir})
			}
		})
	}
}

// TestErasedLater: the next start erases the values that a killed program had not erased yet; until
// then the newest value alone is read, from a start in the middle too.
func TestErasedLater(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, Options{Dir: dir})
	text := secret("gone", 300_000)
	first := must.Get(s.uploads.Put(t.Context(), key("a"), must.Get(record("a", "1").encode())(t)))(t)
	old := record("b", "1")
	old.Data = text
	must.Get(s.uploads.Put(t.Context(), key("b"), must.Get(old.encode())(t)))(t)
	must.Get(s.uploads.Put(t.Context(), key("b"), must.Get(record("b", "2").encode())(t)))(t)
	must.Get(s.refused.Put(t.Context(), key("c"), text))(t)
	must.Do(t, s.refused.Delete(t.Context(), key("c")))
	must.Do(t, s.PutObject(t.Context(), "o", text))
	o := must.Get(s.objects.GetInfo(t.Context(), "o"))(t)
	m, err := s.parts.GetLastMsgForSubject(t.Context(), s.chunks(o))
	must.Do(t, err)
	must.Do(t, s.DeleteObject(t.Context(), "o"))
	must.Get(s.js.Publish(t.Context(), m.Subject, m.Data))(t)
	// of an object that was not stored to its end
	must.Get(s.js.Publish(t.Context(), "$O.fmp-1-objects.C.none", text))(t)
	var got []string
	_, err = watch(t.Context(), s.uploads, &first, func(e jetstream.KeyValueEntry, err error) bool {
		got = append(got, must.Get(decodeRecord(e.Value()))(t).Receipt.Upload)
		return true
	})
	if err != nil || fmt.Sprint(got) != "[2]" {
		t.Errorf("uploads %v, %v", got, err)
	}
	if n := pieces(t, dir, text); n == 0 {
		t.Fatal("nothing is left")
	}
	s.Close()
	s = opened(t, Options{Dir: dir})
	if n := pieces(t, dir, text); n > 0 {
		t.Errorf("%d pieces are still in the files", n)
	}
	// a worker is storing one
	must.Get(s.js.Publish(t.Context(), "$O.fmp-1-objects.C.new", text))(t)
	must.Do(t, s.discardRest(t.Context(), time.Now().Add(-time.Minute)))
	if n := pieces(t, dir, text); n == 0 {
		t.Error("the parts of an object that is being stored were erased")
	}
}

// TestKeepsDeleted: a bucket that keeps what is deleted is refused, as no withdrawal could be true there.
func TestKeepsDeleted(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, Options{Dir: dir})
	must.Do(t, s.js.DeleteKeyValue(t.Context(), "fmp-1-uploads"))
	must.Get(s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "fmp-1-uploads",
		Storage: jetstream.FileStorage}))(t)
	s.Close()
	must.Fail(Open(t.Context(), "fmp-1", Options{Dir: dir}))(
		t, "keeps what is deleted", "a bucket that keeps what is deleted")
}

// told is a stream that tells of further subjects.
type told struct {
	jetstream.Stream
	subjects []string
}

func (s told) Info(ctx context.Context, o ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := s.Stream.Info(ctx, o...)
	for _, subject := range s.subjects {
		if err == nil {
			info.State.Subjects[subject] = 1
		}
	}
	return info, err
}

// TestRestLeft: a start erases no parts that somebody may still name: none on external servers, and none
// where objects are not all listed; with workers, none of the last hour.
func TestRestLeft(t *testing.T) {
	const prefix = "$O.fmp-1-objects."
	worked := Options{Dir: t.TempDir()}
	for _, c := range []struct {
		name  string
		o     Options
		told  []string
		after time.Duration
		left  uint64
	}{
		{"external servers", external(t), nil, 1000 * time.Hour, 1},
		{"a worker, within the hour", worked, nil, unfinished / 2, 1},
		{"a worker, later", worked, nil, 2 * unfinished, 0},
		{"a short list", Options{Dir: t.TempDir()}, []string{prefix + "M.b", prefix + "M.c"}, unfinished, 1},
		{"parts that are no longer there", Options{Dir: t.TempDir()}, []string{prefix + "C.away"}, unfinished, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := opened(t, c.o)
			if c.o == worked {
				s.inside.options.DontListen = false
			}
			must.Do(t, s.PutObject(t.Context(), "a", []byte("there")))
			must.Do(t, s.PutObject(t.Context(), "b", []byte("deleted")))
			o := must.Get(s.objects.GetInfo(t.Context(), "b"))(t)
			must.Do(t, s.DeleteObject(t.Context(), "b"))
			must.Get(s.js.Publish(t.Context(), s.chunks(o), []byte("deleted")))(t)
			must.Get(s.js.Publish(t.Context(), prefix+"C.none", []byte("unnamed")))(t)
			is := s.parts
			s.parts = told{is, c.told}
			must.Do(t, s.discardRest(t.Context(), time.Now().Add(c.after)))
			info := must.Get(is.Info(t.Context(), jetstream.WithSubjectFilter(prefix+"C.>")))(t)
			if n := info.State.Subjects[prefix+"C.none"]; n != c.left {
				t.Errorf("%d unnamed parts are left, want %d", n, c.left)
			}
			if n := info.State.Subjects[s.chunks(o)]; n != 0 {
				t.Errorf("%d parts of a deleted object are left", n)
			}
			if got, err := s.Object(t.Context(), "a", 100); err != nil || string(got) != "there" {
				t.Errorf("the object that is there: %q, %v", got, err)
			}
			must.Do(t, s.erase(t.Context(), is, prefix+"C.none", false))
		})
	}
}

// TestPartsLost: an object whose parts are not there is stored again.
func TestPartsLost(t *testing.T) {
	s := opened(t, Options{Dir: t.TempDir()})
	text := secret("object", 10_000)
	must.Do(t, s.PutObject(t.Context(), "o", text))
	o := must.Get(s.objects.GetInfo(t.Context(), "o"))(t)
	must.Do(t, s.erase(t.Context(), s.parts, s.chunks(o), false))
	must.Do(t, s.PutObject(t.Context(), "o", text))
	if got, err := s.Object(t.Context(), "o", 1<<20); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
