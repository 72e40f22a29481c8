package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"fmp/assets"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/atomicfile"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/point"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// servedLoad is the output of fmp bench serve. Rates are of all clients together, and MiB are 2^20
// bytes. Clients, Parallel, Sync and Workers are flags, and the rest is measured. Times named
// seconds are of the wall clock, those named cpu of processors. Memory is 0, and so is processor
// time, where there is no /proc.
//
// Parallel is the number of clients that send at once. Bytes is of the last client's upload: all
// have the same number of points.
type servedLoad struct {
	Clients int `json:"clients"`
	Bytes   int `json:"bytes"` // of one upload
	// Of a private round with two servers: bytes of the helper's share, milliseconds that a client
	// takes to make the two, and memory of the helper.
	HelperBytes  int     `json:"helper_bytes,omitempty"`
	ShareMS      float64 `json:"share_ms,omitempty"`
	MemoryHelper float64 `json:"memory_helper_mib,omitempty"`
	Parallel     int     `json:"parallel"`
	Sync         bool    `json:"sync"`
	Seconds      float64 `json:"seconds"`
	PerSecond    float64 `json:"uploads_per_second"`
	// Again counts requests that the server put off (503, 429) and that were sent again.
	Again int64 `json:"again"`
	// Milliseconds from the first request to the receipt.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	// Memory of the server (resident, MiB) before the first upload, after the last, and after the
	// classifier; 0 where the system does not say.
	MemoryBefore float64 `json:"memory_before_mib"`
	MemoryAfter  float64 `json:"memory_after_mib"`
	// PoolSeconds is from the last receipt to the classifier, PoolCPU the server's processor time
	// for it (on a machine that is shared the first says more of the others), MemoryPooled the
	// server's memory then, and MemoryPeak the most that it ever held; 0 without --pool.
	PoolSeconds  float64 `json:"pool_seconds,omitempty"`
	PoolCPU      float64 `json:"pool_cpu_seconds,omitempty"`
	MemoryPooled float64 `json:"memory_pooled_mib,omitempty"`
	MemoryPeak   float64 `json:"memory_peak_mib,omitempty"`
	// Of fmp worker --merge: how many there are, the processor time of all, and the largest memory
	// of one.
	Workers      int     `json:"workers,omitempty"`
	WorkersCPU   float64 `json:"workers_cpu_seconds,omitempty"`
	MemoryWorker float64 `json:"memory_worker_mib,omitempty"`
	// after kill -9, until /readyz is answered with 200
	Restart float64 `json:"restart_seconds"`
}

// benchRound is the number of the benchmark's round. Uploads and their signatures state it.
const benchRound = 1

// newBenchServeCommand declares fmp bench serve. The servers are processes of this program, so that
// a kill is a real one. All files lie in a temporary folder, which is removed at the end and after
// an error. Flags are checked before it is made. The processes listen on loopback alone.
//
// All uploads are held in this process at once, which bounds --clients.
func newBenchServeCommand() *cobra.Command {
	var clients, parallel, workers int
	var sync, pool, two bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Measure fmp serve: signed uploads a second, their latency, memory, restart",
		Long: `Start fmp serve in a folder of its own, send it one signed upload of each of many clients over
loopback, all of them other ones, and print how many a second got their receipt, how long each took,
and the server's memory. Then kill it (-9), start it again and see that nothing is lost. Keys,
uploads and signatures are made before the clock starts; a client of the benchmark and the server
share this machine.

With --workers the uploads are added up by that many fmp worker --merge beside the server, which has
--merge, and pooled.

With --two-servers the round is a private one with a leader and a helper (docs/privacy.md), both on
this machine: each client sends a share of the sums of ten images to either, and has its receipts
once the two have checked its proof.`,
		Example: "  fmp bench serve\n  fmp bench serve --clients 100000 --pool --json\n  " +
			"  fmp bench serve --clients 100000 --workers 2\n  fmp bench serve --clients 1000 " +
			"--two-servers --pool",
		Args: noArgs,
	}
	f := cmd.Flags()
	f.IntVar(&clients, "clients", 10_000, "clients, 1 to 200000")
	f.IntVar(&parallel, "parallel", 64, "uploads at once")
	f.BoolVar(&sync, "sync", false, "with fmp serve --sync")
	f.BoolVar(&pool, "pool", false, "wait for the classifier of all of them as well")
	f.BoolVar(&two, "two-servers", false, "a private round with two servers")
	f.IntVar(&workers, "workers", 0, "leave the adding up to that many fmp worker --merge, 1 to "+
		"64, and wait for the classifier; 0: to none")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if clients < 1 || clients > 200_000 || parallel < 1 || parallel > 1024 {
			return usageErrorf("bench serve: --clients %d and --parallel %d; allowed are 1 to "+
				"200000 and 1 to 1024", clients, parallel)
		}
		if workers < 0 || workers > 64 || two && workers > 0 {
			return usageErrorf("bench serve: --workers %d; allowed are 0 to 64, and 0 with "+
				"--two-servers", workers)
		}
		// Uploads that workers have added up are of use only to the classifier.
		pool = pool || workers > 0
		dir, err := os.MkdirTemp("", "fmp-bench-serve")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		res := servedLoad{Clients: clients, Parallel: parallel, Sync: sync, Workers: workers}
		if err := res.measure(cmd.Context(), dir, two, pool); err != nil {
			return err
		}
		return tell(cmd, res, func(b *strings.Builder) {
			fmt.Fprintf(b, "uploads:  %d of %d bytes in %.2f s, %d at "+
				"once: %.0f a second, %d put off and sent again\nlatency:  median %.1f ms, 99%% "+
				"%.1f ms, longest %.1f ms\nmemory:   %.0f MiB before, %.0f MiB after\n"+
				"restart:  %.2f s after kill -9 until ready, nothing lost\n", res.Clients,
				res.Bytes, res.Seconds, res.Parallel, res.PerSecond, res.Again, res.P50, res.P99,
				res.Max, res.MemoryBefore, res.MemoryAfter, res.Restart)
			if two {
				fmt.Fprintf(b, "helper:   %d bytes of each client, %.0f MiB; a client makes its "+
					"two shares in %.1f ms\n", res.HelperBytes, res.MemoryHelper, res.ShareMS)
			}
			if pool {
				fmt.Fprintf(b, "pooling:  %.1f s (%.1f s of processors), at "+
					"most %.0f MiB, %.0f MiB after it\n", res.PoolSeconds, res.PoolCPU,
					res.MemoryPeak, res.MemoryPooled)
			}
			if workers > 0 {
				fmt.Fprintf(b, "workers:  %d, %.1f s of processors, at most %.0f MiB each\n",
					workers, res.WorkersCPU, res.MemoryWorker)
			}
		})
	}
	return cmd
}

// loadRequest is one of the load: the server that it goes to, path, headers and body. It is made
// before the clock starts, with its signature. server is an index into the addresses of the load. A
// request may be sent many times, and is not changed by it. path has no address in front.
type loadRequest struct {
	server  int
	path    string
	headers map[string]string
	body    []byte
}

// The servers of a load. Of a round with one server that one is the leader.
const loadLeader, loadHelper = prio.Leader, prio.Helper

// measure starts the servers in dir, sends the load, waits for the classifier where pool is set,
// and measures a restart after kill -9. Processes that it started end with it. The steps are: keys
// and requests, the helper, the server, the workers, the load, the classifier, the kill and the
// second start. The helper starts first, since the leader is given its address. The restart is of
// the server alone.
func (res *servedLoad) measure(ctx context.Context, dir string, two, pool bool) error {
	requests, err := res.prepare(ctx, dir, two, pool)
	if err != nil {
		return err
	}
	// The second start has the same arguments, as a service manager would give them.
	args := []string{"--round", filepath.Join(dir, "round.yaml")}
	if res.Sync {
		args = append(args, "--sync")
	}
	var helper string
	if two {
		args = append(args, "--servers-secret-file", filepath.Join(dir, "secret"))
		at := filepath.Join(dir, "helper")
		address, kill, err := startServer(ctx, at, append(args, "--as-helper"))
		if err != nil {
			return err
		}
		defer kill()
		// Calls that are deferred run last first: memory is read before the helper is killed.
		defer func() { res.MemoryHelper = serverMemory(at, "VmHWM") }()
		helper = address
		args = append(args, "--helper", helper)
	}
	var queue []string
	if res.Workers > 0 {
		if queue, err = loadQueue(dir); err != nil {
			return err
		}
		args = append(append(args, "--merge", "--nats-listen"), queue...)
	}
	url, kill, err := startServer(ctx, dir, args)
	if err != nil {
		return err
	}
	defer kill()
	killWorkers, err := res.startWorkers(ctx, dir, queue)
	if err != nil {
		return err
	}
	defer killWorkers()
	urls := [...]string{loadLeader: url, loadHelper: helper}
	res.MemoryBefore = serverMemory(dir, "VmRSS")
	// Each sender can keep one connection, so that the load measures few handshakes.
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: res.Parallel,
		MaxConnsPerHost: res.Parallel}}
	start := time.Now()
	if err := res.send(ctx, client, urls, requests); err != nil {
		return err
	}
	res.MemoryAfter = serverMemory(dir, "VmRSS")
	if pool {
		// Counted from here, processor time is of pooling and not of uploads.
		worked := serverCPU(dir)
		if err := waitPooled(ctx, client, url); err != nil {
			return err
		}
		res.PoolSeconds, res.PoolCPU = time.Since(start).Seconds()-res.Seconds,
			serverCPU(dir)-worked
		res.MemoryPooled, res.MemoryPeak = serverMemory(dir, "VmRSS"), serverMemory(dir, "VmHWM")
	}
	for i := range res.Workers {
		at := workerFolder(dir, i)
		res.WorkersCPU, res.MemoryWorker = res.WorkersCPU+serverCPU(at),
			max(res.MemoryWorker, serverMemory(at, "VmHWM"))
	}
	killWorkers()
	kill()
	return res.restart(ctx, dir, args)
}

// send sends the requests of all clients, Parallel at once, and measures their rate and latency. A
// client's requests follow each other. Of n sorted times P50 is the n/2-th and P99 the 99n/100-th.
// An error ends its goroutine alone, and the first is returned once all have ended. Latency is that
// of all requests of a client, in ms, with the waits of those that are put off. Clients are taken
// in order from one counter, so that a slow one delays nobody else. Each goroutine writes only the
// time of its own clients, and Again is counted atomically. Figures are set only where all uploads
// have arrived.
//
// The cost in memory is one number for each client. Times are in microseconds, and given in
// milliseconds. Of few clients P99 is the longest.
func (res *servedLoad) send(ctx context.Context, client *http.Client, urls [2]string,
	requests [][]loadRequest) error {
	took := make([]float64, len(requests))
	var next atomic.Int64
	var group sync.WaitGroup
	// There is room for an error of each goroutine, so that none waits to be read.
	errs := make(chan error, res.Parallel)
	start := time.Now()
	for range res.Parallel {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				// After an interrupt no further client is begun.
				if i >= len(requests) || ctx.Err() != nil {
					return
				}
				at := time.Now()
				for _, r := range requests[i] {
					if err := r.send(ctx, client, urls[r.server], &res.Again); err != nil {
						errs <- fmt.Errorf("bench serve: upload %d: %w", i, err)
						return
					}
				}
				// No other goroutine has the index i.
				took[i] = float64(time.Since(at).Microseconds()) / 1000
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	res.Seconds = time.Since(start).Seconds()
	res.PerSecond = float64(len(requests)) / res.Seconds
	slices.Sort(took)
	res.P50, res.P99, res.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	return nil
}

// waitPooled asks for the classifier until it is there, ten times a second until the context ends.
// Of a long classifier the first maxReply bytes are read. Any other status than 200 means that it is
// not there yet. An error of the connection ends the wait, as the server has then ended. So does a
// pooling that failed, which is looked for every five seconds: the time of another try would not be
// the round's.
func waitPooled(ctx context.Context, client *http.Client, url string) error {
	for i := 0; ; i++ {
		status, _, err := ask(ctx, client, url+wire.RoundPath(benchRound)+"/classifier.onnx")
		if err != nil {
			return fmt.Errorf("bench serve: %w", err)
		}
		if status == http.StatusOK {
			return nil
		}
		// Every five seconds, since a status of many clients costs the server time.
		if i%50 == 0 {
			st, err := statusOf(ctx, client, url)
			if err != nil {
				return fmt.Errorf("bench serve: %w", err)
			}
			if st.Failure != "" {
				return fmt.Errorf("bench serve: the server made no classifier: %s", st.Failure)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// restart starts a server that was killed once more, with the same arguments, and checks it. The
// process ends with it.
func (res *servedLoad) restart(ctx context.Context, dir string, args []string) error {
	start := time.Now()
	url, kill, err := startServer(ctx, dir, args)
	if err != nil {
		return err
	}
	defer kill()
	if err := res.checkRestart(ctx, url, start); err != nil {
		return fmt.Errorf("bench serve: after kill -9, %w", err)
	}
	return nil
}

// checkRestart measures how long a server that was killed takes until it is ready, and counts the
// uploads that it still has. start is the moment before the process was started, and url its
// address. Ready means that the state is read and /readyz answers 200. Every upload that got a
// receipt must be counted as in: the receipt promises that it survives a kill.
func (res *servedLoad) checkRestart(ctx context.Context, url string, start time.Time) error {
	status, _, err := ask(ctx, http.DefaultClient, url+"/readyz")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("the server answers %d %s to /readyz", status, http.StatusText(status))
	}
	res.Restart = time.Since(start).Seconds()
	st, err := statusOf(ctx, http.DefaultClient, url)
	if err != nil {
		return err
	}
	if st.In != res.Clients {
		return fmt.Errorf("%d of %d uploads with a receipt are in", st.In, res.Clients)
	}
	return nil
}

// loadStatus is as much of a round's status as the benchmark reads.
type loadStatus struct {
	In      int
	Failure string // of pooling
}

// statusOf reads the status of the round. An answer that is no status is an error.
func statusOf(ctx context.Context, client *http.Client, url string) (st loadStatus, err error) {
	status, text, err := ask(ctx, client, url+wire.RoundPath(benchRound)+"/status")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the server answers %d %s to /status", status, http.StatusText(status))
	}
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	return st, err
}

// ask gets an address of the server, as exchange does.
func ask(ctx context.Context, client *http.Client, url string) (status int, text []byte,
	err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	return exchange(client, req)
}

// maxReply bounds the bytes of a reply that are read: a status lists 1,000 clients four times.
const maxReply = 8 << 20

// exchange sends a request and returns the reply's status and its first bytes, maxReply at most.
// Any status is a result and no error. The rest of a longer reply is not read, and its connection
// is then closed.
func exchange(client *http.Client, req *http.Request) (status int, text []byte, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxReply))
	return resp.StatusCode, text, err
}

// prepare makes the round's files and the requests of each client, in their order. Each client has
// a key and an upload of its own. Memory is that of all requests at once. It writes the client
// graph, the roster, the round file and the server's key. The deadline is far ahead, so that the
// round ends by its quorum alone, or not at all.
//
// Requests are [clients][1], or [clients][2] of a private round: the helper's comes first, and the
// leader's after it. Signing costs one Ed25519 signature a request, before the clock starts.
func (res *servedLoad) prepare(ctx context.Context, dir string, two,
	pool bool) ([][]loadRequest, error) {
	// Names in the round file are relative to its folder.
	path := filepath.Join(dir, "client.onnx")
	round := fmt.Sprintf("round: %d\nclient_graph: client.onnx\nroster: roster.txt\n"+
		"deadline: 2199-01-01T00:00:00Z\n", benchRound)
	var err error
	if two {
		round += "privacy: {epsilon: 1, noise: two-servers, points: 10}\n"
		// The secret is that by which leader and helper know each other.
		if err = identity.SaveSecret(filepath.Join(dir, "secret"),
			[]byte(rand.Text())); err == nil {
			err = fuse(ctx, path)
		}
	} else {
		var graph []byte
		if graph, err = assets.Model("digits", models.KindClient); err == nil {
			err = atomicfile.WriteBytes(path, graph)
		}
	}
	if err != nil {
		return nil, err
	}
	_, f, err := models.Load(path)
	if err != nil {
		return nil, err
	}
	servers, err := loadServers(dir, f.Digest)
	if err != nil {
		return nil, err
	}
	var roster bytes.Buffer
	if !pool { // a client that never comes keeps the round from its quorum
		absent, err := identity.New("absent")
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(&roster, absent.Line())
	}
	requests := make([][]loadRequest, res.Clients)
	var making time.Duration
	// Row c is the centre of class c modulo C, standard normal in each coordinate.
	centres := make([]float32, f.S*f.Dx)
	rng.Normal(rng.New(1, "centres"), centres)
	for i := range requests {
		name := fmt.Sprintf("client-%06d", i)
		// A key pair takes some tens of microseconds.
		k, err := identity.New(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(&roster, k.Line())
		if two {
			start := time.Now()
			shares, err := loadShares(name, f)
			if err != nil {
				return nil, err
			}
			making += time.Since(start)
			for _, server := range []int{loadHelper, loadLeader} {
				requests[i] = append(requests[i], servers.upload(k, server, shares[server]))
			}
			res.Bytes, res.HelperBytes = len(shares[loadLeader]), len(shares[loadHelper])
			res.ShareMS = making.Seconds() * 1000 / float64(i+1)
			continue
		}
		body, err := loadMeans(name, f, centres)
		if err != nil {
			return nil, err
		}
		requests[i] = []loadRequest{servers.upload(k, loadLeader, body)}
		res.Bytes = len(body)
	}
	if err := atomicfile.WriteBytes(filepath.Join(dir, "roster.txt"), roster.Bytes()); err != nil {
		return nil, err
	}
	return requests, atomicfile.WriteBytes(filepath.Join(dir, "round.yaml"), []byte(round))
}

// loadPair describes the round as leader and helper have it. Signatures name the server's key, so
// that a share for one server is none for the other.
type loadPair [2]wire.Description

// loadServers makes the keys of leader and helper where they will find them, as clients sign for a
// server's key, and describes their round of a client graph. graph is the SHA-256 of the client
// graph. A server makes a key where it finds none, which a client that signs beforehand could not
// know.
func loadServers(dir, graph string) (pair loadPair, err error) {
	for server, at := range [...]string{loadLeader: dir, loadHelper: filepath.Join(dir, "helper")} {
		k, err := identity.New("server")
		if err == nil {
			err = k.Save(filepath.Join(at, "state", "server.key"))
		}
		if err != nil {
			return pair, err
		}
		pair[server] = wire.Description{ServerKey: k.PublicText(), Round: benchRound, Graph: graph}
	}
	return pair, nil
}

// upload is a client's signed upload to one of the servers. The signature is of the upload's
// digest, the server, the round and the graph. body is kept and not copied.
func (p *loadPair) upload(k *identity.Key, server int, body []byte) loadRequest {
	headers, _ := p[server].Headers(k, body)
	return loadRequest{server, wire.UploadPath(benchRound, k.Name), headers, body}
}

// loadMeans is a client's upload, of points near centres [S, Dx] of which each is of two images.
// Row c is 0.2 centre + 0.1 normal noise, by a stream of the client's name, with the one-hot class
// behind it. Points are float32 before the encoding. The upload says that it is of 2S images, the
// sum of its masses. Centres are common to all clients, so that their uploads are alike.
func loadMeans(name string, f models.Manifest, centres []float32) ([]byte, error) {
	s := point.New(f.S, f.Dx, f.C)
	r := rng.New(1, name)
	for c := range f.S {
		row := s.Row(c)
		for j := range f.Dx {
			row[j] = 0.2*centres[c*f.Dx+j] + 0.1*float32(r.NormFloat64())
		}
		// Behind the features stands a point of the probability simplex, as uploads of points have
		// it.
		row[f.Dx+c%f.C] = 1
		s.W[c] = 2
	}
	return (&federate.Upload{Round: benchRound, Client: name, Model: f.Digest, N: 2 * f.S,
		Points: s}).Encode()
}

// loadShares are a client's messages for leader and helper, of the sums of ten images. Points are
// normal and labels uniform, by a stream of the client's name. The budget is that of the round file
// that prepare writes. The sums are clipped as a client clips them, to the norm in the graph's
// manifest. Shares and their proof need random numbers that nobody can repeat: those come from
// crypto/rand, unlike the images.
func loadShares(name string, f models.Manifest) (messages [2][]byte, err error) {
	const images = 10
	r := rng.New(1, name)
	w, labels := make([]float32, images*f.K), make([]int, images)
	rng.Normal(r, w)
	for i := range labels {
		labels[i] = r.IntN(f.C)
	}
	sums, err := privacy.Sum(w, labels, f.C, f.K, f.Clip)
	if err != nil {
		return messages, err
	}
	b := privacy.Budget{Epsilon: 1, Delta: privacy.DefaultDelta, Unit: privacy.Example,
		Relation: privacy.AddRemove, Noise: privacy.TwoServers,
		Points: images}
	pair, err := (&federate.Release{Round: benchRound, Client: name, Model: f.Digest, Budget: b,
		Sums: sums}).Split(rand.Reader)
	if err != nil {
		return messages, err
	}
	for i, share := range pair {
		if messages[i], err = share.Encode(); err != nil {
			return messages, err
		}
	}
	return messages, nil
}

// fuse writes the client graph of a private round. It runs this program's own fmp fuse in a
// process, so that the graph is the one that an operator makes. The error quotes the output of that
// process.
func fuse(ctx context.Context, path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, self, "fuse", "--dataset", "digits", "--upload",
		"private", "-o", path).CombinedOutput(); err != nil {
		return fmt.Errorf("bench serve: %w: %s", err, out)
	}
	return nil
}

// patience is how long a request that the server puts off is sent again, as fmp-edge would until
// the deadline. Beyond it the load fails.
const patience = time.Minute

// send puts the upload until the server has it, and counts how often it had to come again. It waits
// 20 ms, and twice as long each time, up to 2 s. 201 says that the upload was kept. 200 says that
// the server had it already, which is right only after a try that was put off. 503 and 429 are
// tried again, and any other status is an error with the reply's text. The waits double, so that a
// full server is asked less often.
func (l *loadRequest) send(ctx context.Context, client *http.Client, url string,
	again *int64) error {
	start := time.Now()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		status, text, err := l.once(ctx, client, url)
		switch {
		case err != nil:
			return err
		case status == http.StatusCreated, status == http.StatusOK && wait > 20*time.Millisecond:
			// kept by a request that was put off
			return nil
		case status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests ||
			time.Since(start) > patience:
			return fmt.Errorf("%d %s: %s", status, http.StatusText(status), text)
		}
		atomic.AddInt64(again, 1)
		time.Sleep(wait)
	}
}

// once sends the request, as exchange does.
func (l *loadRequest) once(ctx context.Context, client *http.Client,
	url string) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url+l.path, bytes.NewReader(l.body))
	if err != nil {
		return 0, nil, err
	}
	for name, value := range l.headers {
		req.Header.Set(name, value)
	}
	return exchange(client, req)
}

// startServer runs fmp serve with its state and log in a folder, and returns its address once it is
// ready, and a function that kills it. It is ready when its line with the address comes: port 0
// takes a free one. The error of a server that ends before its line has the text of its log. The
// context's error is beside it, as an interrupt ends the process too. args follow the flags that it
// sets itself.
func startServer(ctx context.Context, dir string,
	args []string) (url string, kill func(), err error) {
	out, kill, err := launch(ctx, dir,
		append([]string{"serve", "--listen", "127.0.0.1:0", "--state", filepath.Join(dir, "state")},
			args...))
	if err != nil {
		return "", nil, err
	}
	// The pipe closes when the process ends, which ends the loop.
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		// The line of fmp serve is "serving round N on URL".
		if _, at, ok := strings.Cut(lines.Text(), " on "); ok {
			return at, kill, nil
		}
	}
	kill()
	text, _ := os.ReadFile(filepath.Join(dir, "server.log"))
	return "", nil, errors.Join(fmt.Errorf("bench serve: the server did not start: %s", text),
		ctx.Err())
}

// launch starts this program with its log and its process's id in a folder. kill may be called
// again; it waits for the end. The process is killed when ctx ends, too. Its log is server.log, and
// its process id pid, by which memory and time are read from /proc. dir is made where it is
// missing. out is its stdout. After an error there is no process.
// The process inherits the environment, and so the settings in it.
func launch(ctx context.Context, dir string,
	args []string) (out io.Reader, kill func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, err
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, nil, err
	}
	// The process has its own handle of the file, so that ours is closed here.
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	var once sync.Once
	kill = func() {
		// A second Wait would be an error.
		once.Do(func() {
			_ = cmd.Process.Kill()
			// Waiting frees the number of the process and closes its pipe.
			_ = cmd.Wait()
		})
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)),
		0o644); err != nil {
		kill()
		return nil, nil, err
	}
	return out, kill, nil
}

// loadQueue returns where workers come in: an address of loopback that is free, and the flag of the
// file with their token. The address is given up again: another process could take it meanwhile.
// The order is that of arguments: fmp serve puts --nats-listen before them, and fmp worker --nats.
// The token is random, and in a file that its owner alone can read.
func loadQueue(dir string) ([]string, error) {
	// Port 0 lets the system choose a free one.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("bench serve: %w", err)
	}
	token := filepath.Join(dir, "nats.token")
	return []string{l.Addr().String(), "--nats-token-file", token},
		errors.Join(l.Close(), identity.SaveSecret(token, []byte(rand.Text())))
}

// workerFolder is where the i-th worker has its log and its process id.
func workerFolder(dir string, i int) string { return filepath.Join(dir, fmt.Sprint("worker-", i)) }

// startWorkers starts the workers that merge, and returns a function that kills them. queue is
// empty where there are no workers, and kill does nothing then. If one does not start, those before
// it are killed. Nobody waits until they are ready.
func (res *servedLoad) startWorkers(ctx context.Context, dir string,
	queue []string) (kill func(), err error) {
	var kills []func()
	kill = func() {
		for _, k := range kills {
			k()
		}
	}
	for i := range res.Workers {
		_, k, err := launch(ctx, workerFolder(dir, i),
			append([]string{"worker", "--merge", "--nats"}, queue...))
		if err != nil {
			kill()
			return nil, err
		}
		kills = append(kills, k)
	}
	return kill, nil
}

// aboutServer returns a file of /proc on the server's process; nil where it does not. dir is that
// of launch. An error is no result, as on systems without /proc and after the process has ended.
func aboutServer(dir, file string) []byte {
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return nil
	}
	text, _ := os.ReadFile(filepath.Join("/proc", string(pid), file))
	return text
}

// serverMemory is the resident size of the server in MiB, now (VmRSS) or the largest so far
// (VmHWM), where the system says it. The system counts kB of 1024 bytes. which is a name in
// /proc/PID/status (proc(5)), and is not quoted in the pattern.
func serverMemory(dir, which string) float64 {
	m := regexp.MustCompile(which + `:\s+(\d+) kB`).FindSubmatch(aboutServer(dir, "status"))
	if m == nil {
		return 0
	}
	kb, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return 0
	}
	return kb / 1024
}

// serverCPU is the seconds that processors have worked for the server, in it and for it, where the
// system says it. It is user and system time of /proc/PID/stat, 0 elsewhere. Time of children is
// left out, as a server has none.
func serverCPU(dir string) float64 {
	const perSecond = 100 // ticks, on every Linux
	// The name, in brackets, may hold anything; of the fields after it the 12th and 13th are ticks.
	_, rest, _ := bytes.Cut(aboutServer(dir, "stat"), []byte(") "))
	fields := bytes.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	var sum float64
	for _, f := range fields[11:13] {
		v, err := strconv.ParseFloat(string(f), 64)
		if err != nil {
			return 0
		}
		sum += v
	}
	return sum / perSecond
}
