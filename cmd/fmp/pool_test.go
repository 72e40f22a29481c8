package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
)

// shipped writes a shipped model of the digits to a file.
func shippedFile(t *testing.T, kind string) string { return assetstest.File(t, "digits", kind) }

// centres are where the classes of made-up uploads lie.
func centres(f models.Manifest) []float32 {
	out := make([]float32, f.C*f.Dx)
	rng.Normal(rng.New(1, "centres"), out)
	return out
}

// madeUpload writes an upload with one point a class near twice its centre, two images behind each.
func madeUpload(t *testing.T, f models.Manifest, path, client, model string, round uint64) string {
	t.Helper()
	centre := centres(f)
	s := point.New(f.C, f.Dx, f.C)
	noise := make([]float32, f.Dx)
	for c := range f.C {
		row := s.Row(c)
		rng.Normal(rng.New(1, "noise", client, c), noise)
		for k := range f.Dx {
			if row[k] = 2*centre[c*f.Dx+k] + 0.3*noise[k]; f.ClassMeans {
				row[k] *= 0.02 // classes that nobody is sure of
			}
		}
		row[f.Dx+c] = 1
		s.W[c] = 2
	}
	u := federate.Upload{Round: round, Client: client, Model: model, N: 2 * f.C, Points: s}
	data := must.Get(u.Encode())(t)
	must.Do(t, os.WriteFile(path, data, 0o644))
	return path
}

// TestPool: uploads whose classes lie apart become heads that know them apart, the same for the
// same seed; uploads that do not belong together are refused, and nothing is written.
func TestPool(t *testing.T) {
	predictor, client := shippedFile(t, models.KindPredictor), shippedFile(t, models.KindEmbedding)
	_, f := must.Get2(models.Load(client))(t)
	dir := t.TempDir()
	centre := centres(f)
	made := func(name, file, model string, round uint64) string {
		return madeUpload(t, f, filepath.Join(dir, file), name, model, round)
	}
	var uploads []string
	for i := range 4 {
		uploads = append(uploads, made(fmt.Sprint("client ", i), fmt.Sprint(i), f.Digest, 2))
	}
	pool := func(out string, args ...string) []string {
		return append([]string{"pool", "--engine.name", "pure", "--predictor", predictor, "-o", out},
			args...)
	}
	out := filepath.Join(dir, "posterior.npy")
	ran(t, pool(out, append(slices.Clone(uploads), "--client-graph", client, "--round", "2", "--set",
		"posterior.samples=6")...)...)
	heads := must.Get(npy.Load(out))(t)
	if want := []int{6, f.Dx + 1, f.C}; !slices.Equal(heads.Shape, want) {
		t.Fatalf("heads of shape %v, want %v", heads.Shape, want)
	}
	for s := range 6 {
		theta := heads.F64()[s*(f.Dx+1)*f.C:]
		for c := range f.C {
			best, top := -1, math.Inf(-1)
			for k := range f.C {
				v := theta[f.Dx*f.C+k]
				for j := range f.Dx {
					v += 2 * float64(centre[c*f.Dx+j]) * theta[j*f.C+k]
				}
				if v > top {
					best, top = k, v
				}
			}
			if best != c {
				t.Errorf("sample %d takes class %d for %d", s, c, best)
			}
		}
	}
	first := must.Get(os.ReadFile(out))(t)
	ran(t, pool(out, append(slices.Clone(uploads), "--threads", "1", "--set", "posterior.samples=6")...)...)
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the same uploads and seed gave another posterior (%v)", err)
	}

	other := strings.Repeat("ab", 32)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"both of client", []string{uploads[0], uploads[0]}},
		{"model is", []string{uploads[0], made("x", "x", other, 2)}},
		{"model is", []string{filepath.Join(dir, "x"), "--client-graph", client}},
		{"round is 3", []string{uploads[0], made("y", "y", f.Digest, 3)}},
		{"round is 2", []string{uploads[0], "--round", "1"}},
	} {
		out := filepath.Join(t.TempDir(), "posterior.npy")
		refused(t, exitUsage, c.want, pool(out, c.args...)...)
		absent(t, out)
	}
}

// TestPoolUnfit: an upload with class means that no images give ends a pool with its name, or is
// left out where that is asked for.
func TestPoolUnfit(t *testing.T) {
	r := newMadeRound(t, 3)
	u := decoded(t, r.uploads[1])
	for i := range u.Points.N {
		for j := range u.Points.Features(i) {
			u.Points.Features(i)[j] *= 1e6
		}
	}
	must.Do(t, os.WriteFile(r.uploads[1], must.Get(u.Encode())(t), 0o600))
	out := r.path("c.onnx")
	args := append([]string{"pool", "--rows", "--json", "--engine.name", "pure", "-o", out}, r.uploads...)
	refused(t, exitUsage, "1.upload", args...)
	refused(t, exitUsage, "far out", args...)
	absent(t, out)
	p := answer[pooled](t, append(args, "--on-bad", "skip")...)
	if len(p.Clients) != 2 || len(p.Skipped) != 1 || p.N != 4*u.Points.C {
		t.Errorf("%+v", p)
	}
}
