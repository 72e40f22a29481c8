package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fmp/onnx/must"
)

// tinyDisk mounts a file system of the given size. It skips where that is not allowed.
func tinyDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("needs the right to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		must.Do(t, syscall.Unmount(dir, 0))
	})
	return dir
}

// fill takes all but so many bytes of a disk and returns the file that does.
func fill(t *testing.T, dir string, but int) string {
	t.Helper()
	path := filepath.Join(dir, "fill")
	f := must.Get(os.Create(path))(t)
	defer f.Close()
	for freeBytes(dir) > int64(but) {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			break
		}
	}
	return path
}

// TestFullDisk: a full disk is reported at once, and before it is full; a failed write inside NATS
// stops the store only until there is space again; what was stored before is there, also for a
// program that starts on the full disk.
func TestFullDisk(t *testing.T) {
	dir := tinyDisk(t, 4<<20)
	log := &lines{}
	o := Options{Dir: dir, Largest: 64 << 10, LowSpace: 2 << 20,
		Log: slog.New(slog.NewTextHandler(log, nil))}
	s := opened(t, o)
	var stored []string
	put := func(name string) error {
		r := record(name, name)
		r.Data = make([]byte, 2000)
		err := s.Put(t.Context(), r, 0)
		if err == nil {
			stored = append(stored, name)
		}
		return err
	}
	all := func(when string) {
		t.Helper()
		in := map[string]bool{}
		for r, err := range s.All(t.Context()) {
			must.Do(t, err)
			in[r.Receipt.Client] = true
		}
		for _, name := range stored {
			if !in[name] {
				t.Errorf("%s: the record of %s is lost", when, name)
			}
		}
	}
	back := func() {
		t.Helper()
		start := time.Now()
		for err := error(nil); ; time.Sleep(20 * time.Millisecond) {
			if err = put(fmt.Sprint("back ", len(stored))); err == nil {
				break
			}
			if time.Since(start) > 25*time.Second {
				t.Fatalf("no upload is stored %v after space was freed: %v", time.Since(start), err)
			}
		}
		t.Logf("stored again %v after space was freed", time.Since(start))
		must.Do(t, s.Ready(t.Context()))
	}
	for i := range 20 {
		must.Do(t, put(fmt.Sprint("before ", i)))
	}
	low := fill(t, dir, 1<<20)
	log.has(t, "low on space")
	if now := s.Space(); !now.Low || now.Full || s.Ready(t.Context()) != nil ||
		put("while low") != nil {
		t.Errorf("low: %+v, ready %v", now, s.Ready(t.Context()))
	}
	must.Do(t, os.Remove(low))
	log.has(t, "no longer low")

	// Without a write in between.
	path := fill(t, dir, 0)
	start := time.Now()
	if err := put("while full"); !errors.Is(err, ErrFull) {
		t.Errorf("while full: %v", err)
	}
	if err := s.Ready(t.Context()); !errors.Is(err, ErrFull) {
		t.Errorf("ready while full: %v", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v to say so", took)
	}
	log.has(t, "is full")
	all("while full")
	must.Do(t, os.Remove(path))
	back()

	// With a write that NATS begins and cannot end.
	path = fill(t, dir, 0)
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	unchecked, stop := s.inside.during(within)
	if _, err := s.uploads.Create(unchecked, "unchecked", make([]byte, 60_000)); err == nil ||
		within.Err() != nil {
		t.Errorf("a write on a full disk: %v", err)
	}
	stop()
	log.has(t, "stopped writing")
	must.Do(t, os.Remove(path))
	back()
	log.has(t, "open again")
	// it is no record, and may have been stored in the end
	must.Do(t, s.uploads.Purge(t.Context(), "unchecked"))
	all("after it")

	// A program that starts on a full disk.
	path = fill(t, dir, 0)
	s.Close()
	s = opened(t, o)
	all("after a start on a full disk")
	if err := put("started full"); !errors.Is(err, ErrFull) {
		t.Errorf("a start on a full disk: %v", err)
	}
	must.Do(t, os.Remove(path))
	back()
	all("at the end")
}

// TestEraseRest: replaced values for whose erasure a start has no room are told of, and are erased once
// there is space.
func TestEraseRest(t *testing.T) {
	dir := tinyDisk(t, 40<<20)
	o := Options{Dir: dir, Largest: 64 << 10}
	s := opened(t, o)
	r := record("a", "a")
	must.Do(t, s.Put(t.Context(), r, 0))
	must.Get(s.uploads.Update(t.Context(), key("a"), must.Get(r.encode())(t), r.Revision))(t) // and is killed
	values := func() uint64 { return must.Get(s.uploads.stream.Info(t.Context()))(t).State.Msgs }
	path := fill(t, dir, 1<<20)
	s.Close()
	s = opened(t, o)
	for range 2 {
		if err := s.EraseRest(t.Context()); !errors.Is(err, ErrFull) || !s.Left() || values() != 2 {
			t.Errorf("on a full disk: %v, left %v, %d values", err, s.Left(), values())
		}
	}
	must.Do(t, os.Remove(path))
	for range 2 {
		if err := s.EraseRest(t.Context()); err != nil || s.Left() || values() != 1 {
			t.Errorf("with space: %v, left %v, %d values", err, s.Left(), values())
		}
	}
}
