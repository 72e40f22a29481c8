package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fmp/pipeline/federate/wire"
)

// TestFullDiskAndKills: twenty clients over HTTPS, the server killed twice, the second time while
// its disk is full, and the disk freed: the server says at once what is wrong, is back within five
// seconds of space being freed, and all twenty uploads are in with the receipts that their clients
// hold.
func TestFullDiskAndKills(t *testing.T) {
	disk := tinyDisk(t, 24<<20)
	const n = 20
	f := newFederation(t, n, "deadline: 2100-01-01T00:00:00Z\nbounds: {bytes: 65536}\n")
	t.Cleanup(f.kill) // before the disk goes
	f.scheme = "https"
	serve := func() { f.start("--state", disk, "--tls-self-signed", "--low-space", "8") }
	serve()
	f.until("/readyz", http.StatusOK)
	fill := filepath.Join(disk, "fill")
	// closed once the disk is full: the last clients wait for it, so that uploads meet a full disk
	full := make(chan struct{})
	var back time.Duration
	disturb := map[int]func(){
		5: func() {
			f.kill()
			serve()
			f.until("/readyz", http.StatusOK)
		},
		10: func() {
			file, err := os.Create(fill)
			if err != nil {
				t.Error(err)
				close(full)
				return
			}
			if _, err := file.Write(make([]byte, 17<<20)); err != nil {
				t.Error(err)
			}
			f.logged("low on space")
			for err == nil {
				_, err = file.Write(make([]byte, 4096))
			}
			file.Close()
			f.full()
			close(full)
			f.logged("request failed") // an upload of one of the last clients
			f.kill()
			serve()
			f.full()
			if err := os.Remove(fill); err != nil {
				t.Error(err)
			}
			_, back = f.until("/readyz", http.StatusOK)
		},
	}
	f.crowd(4, f.address, func(i int) {
		if i >= n-5 {
			<-full
		}
	}, disturb, "--ca", filepath.Join(disk, "server.crt"))
	st := f.status()
	if st.In != n || len(st.Refused) != 0 || len(st.Missing) != 0 || len(st.Members) != n {
		t.Errorf("%d in, %v refused, %v missing", st.In, st.Refused, st.Missing)
	}
	f.receipts(st)
	f.published(1)
	if back > 5*time.Second {
		t.Errorf("back %v after space was freed", back)
	}
	f.logged("has space again")
	t.Logf("%d clients, the server killed twice; ready %v after space was freed", n, back)
}

// logged waits until the server's log says something.
func (f *federation) logged(want string) {
	f.t.Helper()
	var text []byte
	for range 200 {
		text, _ = os.ReadFile(f.path("server.log"))
		if strings.Contains(string(text), want) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.t.Errorf("the log does not say %q:\n%s", want, text)
}

// full waits until the server says that its disk is full, and checks how it says so.
func (f *federation) full() {
	f.t.Helper()
	data, took := f.until("/readyz", http.StatusServiceUnavailable)
	var p wire.Problem
	if err := json.Unmarshal(data, &p); err != nil || p.Code != wire.NoSpace ||
		!strings.Contains(p.Detail, "full") || took > 20*time.Second {
		f.t.Errorf("a full disk, after %v: %s", took, data)
	}
	f.logged("the disk of the state is full") // metrics are of what was last looked at
	if _, data := f.get("/metrics"); !strings.Contains(string(data), "fmp_state_full 1") ||
		!strings.Contains(string(data), "fmp_state_low 1") {
		f.t.Error("the metrics do not say that the disk is full")
	}
}
