package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate/store"
)

// TestMergeKilled: a server that is killed (-9) while its workers' jobs wait leaves the sample and
// the jobs in the store. Another upload has come meanwhile, so that the server merges other uploads
// when it is back; nothing of the first attempt stays, and no upload is lost.
func TestMergeKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a server and a worker")
	}
	const clients = 840 // some more than a sample holds
	t.Setenv(programEnv, "1")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r := newMergedRound(ctx, t, clients, clients-1)
	token := read(t, filepath.Join(r.dir, "nats.token"))
	graph := assetstest.Data(t, "digits", models.KindClient)
	objects := func() []string {
		conn, err := store.Connect(store.Options{URL: r.queue[0], Token: strings.TrimSpace(string(token))},
			"test")
		if err != nil {
			return nil
		}
		st := must.Get(store.Attach(ctx, conn, store.Name(benchRound, models.DigestBytes(graph)), 1))(t)
		defer st.Close()
		return must.Get(st.Objects(ctx))(t)
	}
	until := func(done func(names []string) bool) (names []string) {
		for names = objects(); !done(names); names = objects() {
			select {
			case <-ctx.Done():
				t.Fatalf("the store has %q; the server's log:\n%s", names,
					tail(filepath.Join(r.dir, "server.log")))
			case <-time.After(100 * time.Millisecond):
			}
		}
		return names
	}
	input := func(name string) bool { return strings.HasPrefix(name, "input-") }
	r.send(r.requests[:clients-1])
	left := until(func(names []string) bool { return slices.ContainsFunc(names, input) })
	r.send(r.requests[clients-1:])
	r.kill()
	r.start()
	r.merged()
	now, want := objects(), []string{models.DigestBytes(graph), "classifier-1-rows.onnx",
		"classifier-1.onnx", "members-1.json", "quorum"}
	for i, name := range now { // the digest of the version's parts is in their names
		now[i] = regexp.MustCompile("-1-[0-9a-f]{64}").ReplaceAllString(name, "-1")
	}
	slices.Sort(now)
	slices.Sort(want)
	if !slices.Equal(now, want) {
		t.Errorf("of %q there are %q; want %q", left, now, want)
	}
	r.kill()
	start := time.Now()
	r.start()
	must.Do(t, r.load.checkRestart(r.url, start))
}

// tail returns the end of a file.
func tail(file string) []byte {
	data, _ := os.ReadFile(file)
	return data[max(0, len(data)-2000):]
}
