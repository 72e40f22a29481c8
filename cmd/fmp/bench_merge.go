package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"fmp/assets"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/merge"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
)

// mergedLoad is the output of fmp bench serve --merged.
type mergedLoad struct {
	Clients int `json:"clients"`
	Bytes   int `json:"bytes"` // of one upload
	Kept    int `json:"kept"`
	Summed  int `json:"summed"`
	LeftOut int `json:"left_out"`
	Part    int `json:"part_bytes"`
	// Seconds and CPU are those of making and merging the uploads, PoolSeconds of the classifier, and Memory the most of this program, MiB; 0
	// where the system does not say.
	Seconds     float64 `json:"seconds"`
	CPU         float64 `json:"cpu_seconds"`
	PoolSeconds float64 `json:"pool_seconds"`
	Memory      float64 `json:"memory_mib"`
}

// A tree of merges: uploads of a leaf, and parts of a branch. leafJudges are the uploads that the others are judged by; of fewer
// clients all.
const (
	leafUploads, branchParts = 10_000, 32
	leafJudges, minMerged    = 300, 100
)

// simulated makes uploads of class means of the digits' client graph.
type simulated struct {
	graph   *onnx.Model
	f       models.Manifest
	centres []float32
}

func newSimulated() (*simulated, error) {
	data, err := assets.Model("digits", models.KindClient)
	if err != nil {
		return nil, err
	}
	s := &simulated{}
	if s.graph, err = serde.Unmarshal(data); err != nil {
		return nil, err
	}
	if s.f, err = models.ReadManifest(s.graph); err != nil {
		return nil, err
	}
	s.f.Digest = models.DigestBytes(data)
	s.centres = make([]float32, s.f.S*s.f.Dx)
	rng.Normal(rng.New(1, "centres"), s.centres)
	return s, nil
}

// upload returns the upload of one client, of two images a class, whose names are further classes by shift than the true ones.
func (s *simulated) upload(name string, shift int) ([]byte, error) {
	f := s.f
	set := &point.Set{N: f.S, Dx: f.Dx, C: f.C, Z: make([]float32, f.S*f.Dx), W: make([]float32, f.S), Y: make([]int32, f.S)}
	r := rng.New(1, name)
	for i := range set.Z {
		set.Z[i] = 0.2*s.centres[i] + 0.1*float32(r.NormFloat64())
	}
	for c := range f.S {
		set.W[c], set.Y[c] = 2, int32((c+shift)%f.C)
	}
	return (&federate.Upload{Round: benchRound, Client: name, Model: f.Digest, N: 2 * f.S, Points: set}).Encode()
}

// add merges the uploads of clients from to to-1.
func (s *simulated) add(ctx context.Context, m *merge.Merger, from, to int) error {
	for i := from; i < to; i++ {
		data, err := s.upload(fmt.Sprintf("client-%08d", i), 0)
		if err == nil {
			err = m.Add(data)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("bench serve: upload %d: %w", i, err)
		}
	}
	return nil
}

// run merges simulated uploads in a tree, on every processor, and pools the part.
func (res *mergedLoad) run(ctx context.Context, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	s, err := newSimulated()
	if err != nil {
		return err
	}
	start, cpu := time.Now(), serverCPU(dir)
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return err
	}
	by := merge.Merger{}
	if err := s.add(ctx, &by, 0, min(leafJudges, res.Clients)); err != nil {
		return err
	}
	options := pool.Options{Seed: 1, Level: -1}
	judge, err := pool.Judge(ctx, eng, by.Part(), s.graph, s.f, options)
	if err != nil {
		return err
	}
	sample, err := by.Part().Encode()
	if err != nil {
		return err
	}
	merger := func() *merge.Merger { return &merge.Merger{Judge: judge, Against: models.DigestBytes(sample)} }
	root, branches := merger(), make(chan *merge.Part)
	leaves, work := errgroup.WithContext(ctx)
	leaves.SetLimit(runtime.GOMAXPROCS(0))
	go func() {
		const each = leafUploads * branchParts
		for from := 0; from < res.Clients; from += each {
			leaves.Go(func() error {
				branch := merger()
				for at := from; at < min(from+each, res.Clients); at += leafUploads {
					leaf := merger()
					if err := s.add(work, leaf, at, min(at+leafUploads, res.Clients)); err != nil {
						return err
					}
					if err := branch.AddPart(leaf.Part()); err != nil {
						return err
					}
				}
				branches <- branch.Part()
				return nil
			})
		}
		err = leaves.Wait()
		close(branches)
	}()
	var failed error
	for p := range branches {
		if failed == nil {
			failed = root.AddPart(p)
		}
	}
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	p := root.Part()
	data, err := p.Encode()
	if err != nil {
		return err
	}
	res.Seconds, res.CPU = time.Since(start).Seconds(), serverCPU(dir)-cpu
	res.Kept, res.Summed, res.LeftOut, res.Part = len(p.Kept), p.Summed, p.LeftOut, len(data)
	if len(p.Kept) > 0 {
		res.Bytes = len(p.Kept[0].Data)
	}
	start = time.Now()
	if err := s.pool(ctx, eng, data, options); err != nil {
		return err
	}
	res.PoolSeconds, res.Memory = time.Since(start).Seconds(), serverMemory(dir, "VmHWM")
	return nil
}

// pool reads a part as fmp pool does, and makes its classifier.
func (s *simulated) pool(ctx context.Context, eng engine.Engine, data []byte, o pool.Options) error {
	p, err := merge.Decode(data, federate.Expect{Model: s.f.Digest})
	if err != nil {
		return err
	}
	uploads, rest, err := pool.Merged(p, false)
	if err != nil {
		return err
	}
	r, err := pool.New(uploads, s.graph, s.f, o)
	if err == nil {
		err = r.Join(rest)
	}
	if err != nil {
		return err
	}
	post, err := r.Posterior(ctx, eng)
	if err == nil {
		_, err = r.Classifier(ctx, post, true, false, "")
	}
	return err
}

func (res *mergedLoad) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "merged:  %d uploads of %d bytes in %.1f s (%.1f s of processors), %.0f a second\npart:    %d bytes, %d kept "+
		"whole, %d summed, %d left out of the sums\npooling: %.1f s\nmemory:  %.0f MiB at most\n", res.Clients, res.Bytes, res.Seconds, res.CPU,
		float64(res.Clients)/res.Seconds, res.Part, res.Kept, res.Summed, res.LeftOut, res.PoolSeconds, res.Memory)
	return err
}

func benchMerged(cmd *cobra.Command, clients int, asJSON bool) error {
	if clients < minMerged || clients > merge.MaxClients {
		return usageErrorf("bench serve: --clients %d with --merged; allowed are %d to %d", clients, minMerged, merge.MaxClients)
	}
	dir, err := os.MkdirTemp("", "fmp-bench-serve")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	res := mergedLoad{Clients: clients}
	if err := res.run(cmd.Context(), dir); err != nil {
		return err
	}
	return show(cmd.OutOrStdout(), asJSON, res, res.print)
}
