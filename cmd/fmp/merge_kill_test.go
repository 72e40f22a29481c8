package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
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
	dir := t.TempDir()
	res := servedLoad{Clients: clients, Parallel: 32, Workers: 1}
	requests := must.Get(res.prepare(ctx, dir, false, true))(t)
	file := filepath.Join(dir, "round.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(text, "quorum: 839\nsamples: 5\nrebuild_interval: 1s\n"...),
			0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	queue := must.Get(loadQueue(dir))(t)
	args := append([]string{"--round", file, "--merge", "--nats-listen"}, queue...)
	token := must.Get(os.ReadFile(filepath.Join(dir, "nats.token")))(t)
	graph := assetstest.Data(t, "digits", models.KindClient)
	objects := func() []string {
		conn, err := store.Connect(store.Options{URL: queue[0], Token: strings.TrimSpace(string(token))},
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
					tail(filepath.Join(dir, "server.log")))
			case <-time.After(100 * time.Millisecond):
			}
		}
		return names
	}
	input := func(name string) bool { return strings.HasPrefix(name, "input-") }
	url, kill := must.Get2(startServer(ctx, dir, args))(t)
	defer func() { kill() }()
	urls := [2]string{loadLeader: url}
	must.Do(t, res.send(ctx, http.DefaultClient, urls, requests[:clients-1]))
	left := until(func(names []string) bool { return slices.ContainsFunc(names, input) })
	must.Do(t, res.send(ctx, http.DefaultClient, urls, requests[clients-1:]))
	kill()
	url, kill = must.Get2(startServer(ctx, dir, args))(t)
	after := must.Get(res.startWorkers(ctx, dir, queue))(t)
	defer after()
	must.Do(t, waitPooled(ctx, http.DefaultClient, url))
	now, want := objects(), []string{models.DigestBytes(graph), "classifier-1-rows.onnx",
		"classifier-1.onnx", "members-1.json", "quorum"}
	slices.Sort(now)
	slices.Sort(want)
	if !slices.Equal(now, want) {
		t.Errorf("of %q there are %q; want %q", left, now, want)
	}
	kill()
	start := time.Now()
	url, kill = must.Get2(startServer(ctx, dir, args))(t)
	if err := res.checkRestart(url, start); err != nil {
		t.Error(err)
	}
}

// tail returns the end of a file.
func tail(file string) []byte {
	data, _ := os.ReadFile(file)
	return data[max(0, len(data)-2000):]
}
