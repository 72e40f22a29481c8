package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

// servedLoad is what fmp bench serve prints.
type servedLoad struct {
	Clients   int     `json:"clients"`
	Bytes     int     `json:"bytes"` // of one upload
	Parallel  int     `json:"parallel"`
	Sync      bool    `json:"sync"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"uploads_per_second"`
	// Again counts requests that the server put off (503, 429) and that were sent again.
	Again int64 `json:"again"`
	// Milliseconds from the first request to the receipt.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	// Memory of the server (resident, MiB) before the first upload, after the last, and after the classifier; 0 where the system does not say.
	MemoryBefore float64 `json:"memory_before_mib"`
	MemoryAfter  float64 `json:"memory_after_mib"`
	// PoolSeconds is from the last receipt to the classifier, PoolCPU what the server's processors worked for it (on a machine that is
	// shared the first says more of the others), MemoryPooled what the server then holds, and MemoryPeak the most that it ever held; 0
	// without --pool.
	PoolSeconds  float64 `json:"pool_seconds,omitempty"`
	PoolCPU      float64 `json:"pool_cpu_seconds,omitempty"`
	MemoryPooled float64 `json:"memory_pooled_mib,omitempty"`
	MemoryPeak   float64 `json:"memory_peak_mib,omitempty"`
	Restart      float64 `json:"restart_seconds"` // until ready again, after kill -9
}

const benchRound = 1

func newBenchServeCommand() *cobra.Command {
	var clients, parallel int
	var sync, pool, asJSON bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Measure fmp serve: signed uploads a second, their latency, memory, restart",
		Long: `Start fmp serve in a folder of its own, send it one signed upload of each of many clients over loopback, all of them other
ones, and print how many a second got their receipt, how long each took, and the server's memory. Then kill it (-9), start it
again and see that nothing is lost. Keys, uploads and signatures are made before the clock starts; a client of the benchmark
and the server share this machine.`,
		Example: "  fmp bench serve\n  fmp bench serve --clients 100000 --pool --json",
		Args:    noArgs,
	}
	f := cmd.Flags()
	f.IntVar(&clients, "clients", 10_000, "clients, 1 to 200000")
	f.IntVar(&parallel, "parallel", 64, "uploads at once")
	f.BoolVar(&sync, "sync", false, "with fmp serve --sync")
	f.BoolVar(&pool, "pool", false, "wait for the classifier of all of them as well")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if clients < 1 || clients > 200_000 || parallel < 1 || parallel > 1024 {
			return usageErrorf("bench serve: --clients %d and --parallel %d; allowed are 1 to 200000 and 1 to 1024", clients, parallel)
		}
		dir, err := os.MkdirTemp("", "fmp-bench-serve")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		res := servedLoad{Clients: clients, Parallel: parallel, Sync: sync}
		if err := res.measure(cmd.Context(), dir, pool); err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), res)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "uploads:  %d of %d bytes in %.2f s, %d at once: %.0f a second, %d put off and sent again\nlatency:  median %.1f ms, 99%% %.1f ms, longest %.1f ms\nmemory:   %.0f MiB before, %.0f MiB after\nrestart:  %.2f s after kill -9, nothing lost\n",
			res.Clients, res.Bytes, res.Seconds, res.Parallel, res.PerSecond, res.Again, res.P50, res.P99, res.Max, res.MemoryBefore, res.MemoryAfter, res.Restart)
		if err == nil && pool {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pooling:  %.1f s (%.1f s of processors), at most %.0f MiB, %.0f MiB after it\n", res.PoolSeconds, res.PoolCPU, res.MemoryPeak, res.MemoryPooled)
		}
		return err
	}
	return cmd
}

// request is one of the load: path, headers and body.
type loadRequest struct {
	path, signature, digest string
	body                    []byte
}

func (res *servedLoad) measure(ctx context.Context, dir string, pool bool) error {
	requests, err := res.prepare(dir, pool)
	if err != nil {
		return err
	}
	url, kill, err := startServer(ctx, dir, res.Sync)
	if err != nil {
		return err
	}
	defer func() { kill() }()
	res.MemoryBefore = serverMemory(dir, "VmRSS")
	took := make([]float64, len(requests))
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make(chan error, res.Parallel)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: res.Parallel, MaxConnsPerHost: res.Parallel}}
	start := time.Now()
	for range res.Parallel {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				i := int(next.Add(1)) - 1
				if i >= len(requests) || ctx.Err() != nil {
					return
				}
				at := time.Now()
				if err := requests[i].send(ctx, client, url, &res.Again); err != nil {
					errs <- fmt.Errorf("bench serve: upload %d: %w", i, err)
					return
				}
				took[i] = float64(time.Since(at).Microseconds()) / 1000
			}
		}()
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
	res.MemoryAfter = serverMemory(dir, "VmRSS")
	slices.Sort(took)
	res.P50, res.P99, res.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	if pool {
		worked := serverCPU(dir)
		for {
			resp, err := client.Get(url + wire.RoundPath(benchRound) + "/classifier.onnx")
			if err != nil {
				return fmt.Errorf("bench serve: %w", err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
		}
		res.PoolSeconds, res.PoolCPU = time.Since(start).Seconds()-res.Seconds, serverCPU(dir)-worked
		res.MemoryPooled, res.MemoryPeak = serverMemory(dir, "VmRSS"), serverMemory(dir, "VmHWM")
	}
	kill()
	start = time.Now()
	if url, kill, err = startServer(ctx, dir, res.Sync); err != nil {
		return err
	}
	res.Restart = time.Since(start).Seconds()
	resp, err := http.Get(url + wire.RoundPath(benchRound) + "/status")
	if err != nil {
		return fmt.Errorf("bench serve: %w", err)
	}
	defer resp.Body.Close()
	var st struct{ In int }
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil || st.In != res.Clients {
		return fmt.Errorf("bench serve: after kill -9, %d of %d uploads with a receipt are in (%w)", st.In, res.Clients, err)
	}
	return nil
}

// prepare makes the round's files and the requests.
func (res *servedLoad) prepare(dir string, pool bool) ([]loadRequest, error) {
	graph, err := assets.Model("digits", models.KindClient)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "client.onnx")
	if err := atomicfile.WriteBytes(path, graph); err != nil {
		return nil, err
	}
	_, f, err := models.Load(path)
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
	requests := make([]loadRequest, res.Clients)
	centres := make([]float32, f.S*f.Dx)
	rng.Normal(rng.New(1, "centres"), centres)
	for i := range requests {
		name := fmt.Sprintf("client-%06d", i)
		k, err := identity.New(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(&roster, k.Line())
		s := point.New(f.S, f.Dx, f.C)
		r := rng.New(1, name)
		for c := range f.S {
			row := s.Row(c)
			for j := range f.Dx {
				row[j] = 0.2*centres[c*f.Dx+j] + 0.1*float32(r.NormFloat64())
			}
			row[f.Dx+c%f.C] = 1
			s.W[c] = 2
		}
		u := federate.Upload{Round: benchRound, Client: name, Model: f.Digest, N: 2 * f.S, Points: s}
		body, err := u.Encode()
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(body)
		signature := k.Sign(identity.Statement{Purpose: identity.Upload, Round: benchRound, Client: name, Graph: f.Digest, Content: fmt.Sprintf("%x", sum)})
		requests[i] = loadRequest{wire.UploadPath(benchRound, name), wire.Scheme + " " + base64.StdEncoding.EncodeToString(signature), "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":", body}
		res.Bytes = len(body)
	}
	if err := atomicfile.WriteBytes(filepath.Join(dir, "roster.txt"), roster.Bytes()); err != nil {
		return nil, err
	}
	return requests, atomicfile.WriteBytes(filepath.Join(dir, "round.yaml"), fmt.Appendf(nil, "round: %d\nclient_graph: client.onnx\nroster: roster.txt\ndeadline: 2199-01-01T00:00:00Z\n", benchRound))
}

// patience is how long a request that the server puts off is sent again, as fmp-edge would until the deadline.
const patience = time.Minute

// send puts the upload until the server has it, and counts how often it had to come again.
func (l *loadRequest) send(ctx context.Context, client *http.Client, url string, again *int64) error {
	start := time.Now()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		status, text, err := l.once(ctx, client, url)
		switch {
		case err != nil:
			return err
		case status == http.StatusCreated, status == http.StatusOK && wait > 20*time.Millisecond: // kept by a request that was put off
			return nil
		case status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests || time.Since(start) > patience:
			return fmt.Errorf("%d %s: %s", status, http.StatusText(status), text)
		}
		atomic.AddInt64(again, 1)
		time.Sleep(wait)
	}
}

func (l *loadRequest) once(ctx context.Context, client *http.Client, url string) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url+l.path, bytes.NewReader(l.body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", l.signature)
	req.Header.Set("Content-Digest", l.digest)
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, wire.MaxJSON))
	return resp.StatusCode, text, err
}

// startServer runs fmp serve in a folder and returns its address once it is ready, and what kills it.
func startServer(ctx context.Context, dir string, sync bool) (url string, kill func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	args := []string{"serve", "--round", filepath.Join(dir, "round.yaml"), "--listen", "127.0.0.1:0"}
	if sync {
		args = append(args, "--sync")
	}
	cmd := exec.CommandContext(ctx, self, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return "", nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), " on "); ok {
			return at, kill, os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
		}
	}
	kill()
	text, _ := os.ReadFile(log.Name())
	return "", nil, errors.Join(fmt.Errorf("bench serve: the server did not start: %s", text), ctx.Err())
}

// aboutServer is what the system says of the server's process in a file of /proc; nil where it does not.
func aboutServer(dir, file string) []byte {
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return nil
	}
	text, _ := os.ReadFile(filepath.Join("/proc", string(pid), file))
	return text
}

// serverMemory is the resident size of the server in MiB, now (VmRSS) or the largest so far (VmHWM), where the system says it.
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

// serverCPU is the seconds that processors have worked for the server, in it and for it, where the system says it.
func serverCPU(dir string) float64 {
	const perSecond = 100 // ticks, on every Linux
	// The name, in brackets, may hold anything; of what follows the 12th and 13th are ticks.
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
