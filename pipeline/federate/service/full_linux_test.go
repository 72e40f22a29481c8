package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
)

// onDisk is a server whose state is on a file system of 40 MiB. It skips where none may be mounted.
type onDisk struct {
	*fixture
	end context.CancelFunc
	ran chan error
}

func newOnDisk(t *testing.T, extra string) *onDisk {
	d := &onDisk{fixture: newFixture(t, extra)}
	d.stop()
	state := filepath.Join(d.dir, "state")
	if err := syscall.Mount("tmpfs", state, "tmpfs", 0, "size=40m"); err != nil {
		t.Skipf("needs the right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { must.Do(t, syscall.Unmount(state, syscall.MNT_DETACH)) })
	d.run()
	t.Cleanup(func() { d.halted() })
	return d
}

// run starts the server and its work beside requests.
func (d *onDisk) run() {
	d.start()
	ctx, end := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- d.srv.Run(ctx) }()
	d.end, d.ran = end, ran
}

func (d *onDisk) halted() {
	d.end()
	must.Do(d.t, <-d.ran)
}

// fill leaves that many bytes of the disk, and free all.
func (d *onDisk) fill(but int) {
	d.t.Helper()
	f := must.Get(os.Create(filepath.Join(d.dir, "state", "fill")))(d.t)
	defer f.Close()
	var s syscall.Statfs_t
	for must.Do(d.t, syscall.Statfs(f.Name(), &s)); int(s.Bavail)*int(s.Bsize) > but; {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return
		}
		must.Do(d.t, syscall.Statfs(f.Name(), &s))
	}
}

func (d *onDisk) free() {
	must.Do(d.t, os.Remove(filepath.Join(d.dir, "state", "fill")))
}

// until waits for a condition.
func (d *onDisk) until(want string, is func() bool) {
	d.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !is(); <-tick.C {
		if time.Now().After(end) {
			d.t.Fatalf("20 s later not yet: %s", want)
		}
	}
}

func (d *onDisk) says(pending int) {
	d.t.Helper()
	d.wants("metrics", 200, "", fmt.Sprintf("\nfmp_erasure_pending %d\n", pending))(
		d.request("GET", "/metrics", nil, reader))
	_, page := d.request("GET", "/", nil, reader)
	if st := d.srv.Status(); st.Unerased != (pending == 1) ||
		strings.Contains(string(page), "still to be erased") != (pending == 1) {
		d.t.Errorf("%d to be erased; status %v", pending, st.Unerased)
	}
}

// TestWithdrawnUnknown: of a withdrawal on a full disk whose state cannot be read it is not said that it is
// not noted.
func TestWithdrawnUnknown(t *testing.T) {
	d := newOnDisk(t, "quorum: 3\n")
	d.in("a")
	d.halted()
	d.ran <- nil // for the end of the test
	d.fill(0)
	d.srv.Config.Now = func() time.Time {
		d.store.Conn().Close()
		return d.now
	}
	d.wants("unknown", http.StatusServiceUnavailable, wire.NoSpace, "may be noted or not", "send again")(
		d.delete("a", wire.Any, d.keys["a"], nil))
}

// TestErasedOnceThereIsSpace: of an upload that was withdrawn on a full disk nothing is in the state's
// files soon after there is space, without a request, and over a restart too; until then the server
// says so. A version that is made meanwhile is none that failed.
func TestErasedOnceThereIsSpace(t *testing.T) {
	const noted = 1200 << 10 // room for a note, not for a block
	for name, c := range map[string]struct {
		but      int
		pooled   bool // a version holds the upload
		refused  bool // the upload is in quarantine
		restart  bool // on the full disk
		unknown  bool // the server does not know that the note is stored
		inStatus int  // clients that withdrew, while the disk is full
		says     string
	}{
		"before a version":      {noted, false, false, false, false, 1, "is noted and in force"},
		"after a version":       {noted, true, false, false, false, 1, "is noted and in force"},
		"a refused one":         {noted, false, true, false, false, 1, "is noted and in force"},
		"a start on a full one": {noted, true, false, true, false, 1, "is noted and in force"},
		"refused, and a start":  {noted, false, true, true, false, 1, "is noted and in force"},
		"unknown":               {noted, true, false, false, true, 0, ""},
		"no room for the note":  {0, true, false, false, false, 0, "is not noted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newOnDisk(t, "quorum: 3\n")
			uploads := d.in("a", "c")
			data := d.made("b", 1, func(u *federate.Upload) {
				if c.refused {
					u.Round = 4
				}
			})
			if status, text := d.put("b", data); (status == http.StatusCreated) == c.refused {
				t.Fatalf("%d %s", status, text)
			}
			if c.pooled {
				d.until("version 1", func() bool { return len(d.srv.Status().Versions) == 1 })
			}
			d.fill(c.but)
			if c.unknown {
				r := must.Get(d.store.Get(t.Context(), "b"))(t)
				if err := d.store.Withdraw(t.Context(), r, store.Gone{Time: d.clock(), By: wire.ByClient,
					Held: []int{1}}, nil); !errors.Is(err, store.ErrFull) {
					t.Fatal(err)
				}
				d.srv.rouse() // as a request does
			} else {
				d.wants(name, http.StatusServiceUnavailable, wire.NoSpace, c.says)(
					d.delete("b", digestOf(data), d.keys["b"], nil))
			}
			if c.restart {
				d.halted()
				d.stop()
				d.run()
			}
			if st := d.srv.Status(); len(st.Withdrawn) != c.inStatus || !d.holds(data) {
				t.Errorf("withdrawn %v; its bytes are there: %v", st.Withdrawn, d.holds(data))
			}
			if c.says != "is not noted" {
				d.says(1)
			}
			d.free()
			if c.says == "is not noted" {
				d.until("a receipt", func() bool {
					status, _ := d.delete("b", digestOf(data), d.keys["b"], nil)
					return status == http.StatusOK
				})
			}
			d.until("all is erased", func() bool {
				d.srv.mu.Lock()
				defer d.srv.mu.Unlock()
				return d.srv.gone["b"] != nil && !d.srv.owes()
			})
			d.says(0)
			if c.pooled {
				d.until("version 2", func() bool { return len(d.srv.Status().Versions) == 2 })
				d.until("version 1 is dropped", func() bool {
					_, err := d.store.File(t.Context(), 1)
					return errors.Is(err, store.ErrNone)
				})
			}
			if d.holds(data) || !d.holds(uploads["a"]) {
				t.Errorf("b's bytes are there: %v; a's: %v", d.holds(data), d.holds(uploads["a"]))
			}
			d.wants("metrics", 200, "", "\nfmp_pooling_failed_total 0\n")(
				d.request("GET", "/metrics", nil, reader))
			if st := d.srv.Status(); st.Failure != "" {
				t.Errorf("told as failed: %s", st.Failure)
			}
			d.gone("b", data)
		})
	}
}
