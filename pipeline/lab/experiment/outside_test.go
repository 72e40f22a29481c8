package experiment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/pipeline/lab/score"
)

func saved(t testing.TB, arrays map[string]*onnx.Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, npy.WriteArchive(&b, arrays))
	return b.Bytes()
}

// threeImages is what predictions of three test images are scored on.
func threeImages() *held {
	return &held{Test: score.Test{Features: []float32{1, 2, -1}, Labels: []int{0, 1, 1}}, dx: 1,
		classes: 2, order: []int{2, 0, 1}}
}

// FuzzPredictions reads predictions of two tasks of three test images: scores are finite, or there
// is an error.
func FuzzPredictions(f *testing.F) {
	p := onnx.NewTensor([]float64{.5, .5, 1, 0, .25, .75}, 3, 2)
	heads := onnx.NewTensor([]float64{1, -1, 0, .5, 2, 0, 1, 1}, 2, 2, 2)
	two := onnx.NewTensor([]float32{.5, .5, 1, 0, .25, .75, .5, .5, 0, 1, .5, .5}, 2, 3, 2)
	f.Add(saved(f, map[string]*onnx.Tensor{"homogeneous-0": p, "homogeneous-1": p}))
	f.Add(saved(f, map[string]*onnx.Tensor{"homogeneous-0-heads": heads, "homogeneous-1-heads": heads}))
	f.Add(saved(f, map[string]*onnx.Tensor{"homogeneous-0": two, "homogeneous-1": two}))
	f.Add(saved(f, map[string]*onnx.Tensor{"homogeneous-0": p, "homogeneous-1": two}))
	h := threeImages()
	tasks := []SplitTask{{Name: "homogeneous-0"}, {Name: "homogeneous-1"}}
	path := filepath.Join(f.TempDir(), "p.npz")
	f.Fuzz(func(t *testing.T, b []byte) {
		must.Do(t, os.WriteFile(path, b, 0o600))
		o := &Outside{Path: path, Name: "x"}
		arrays, _, err := o.read(h, tasks)
		if err != nil {
			return
		}
		for _, task := range tasks {
			r, err := o.score(t.Context(), h, arrays, task)
			if err == nil && !(r.NLL >= -1e-9 && !math.IsInf(r.NLL, 0) && r.ACC >= 0 && r.ACC <= 1 &&
				r.ECE >= 0 && r.ECE <= 1+1e-9) {
				t.Errorf("scores %+v", r.Scores)
			}
		}
	})
}

// TestKindsOfPredictions: predictions of one file are of one kind and one number of samples, in all tasks.
func TestKindsOfPredictions(t *testing.T) {
	p := onnx.NewTensor([]float64{.5, .5, 1, 0, .25, .75}, 3, 2)
	one := onnx.NewTensor(p.F64(), 1, 3, 2)
	two := onnx.NewTensor(append(p.F64(), p.F64()...), 2, 3, 2)
	heads := onnx.NewTensor(make([]float64, 8), 2, 2, 2)
	path := filepath.Join(t.TempDir(), "p.npz")
	for name, c := range map[string]struct {
		arrays map[string]*onnx.Tensor
		want   string
	}{
		"points":             {map[string]*onnx.Tensor{"a": p, "b": p}, ""},
		"a point of one":     {map[string]*onnx.Tensor{"a": p, "b": one}, ""},
		"samples":            {map[string]*onnx.Tensor{"a": two, "b": two}, ""},
		"heads":              {map[string]*onnx.Tensor{"a-heads": heads, "b-heads": heads}, ""},
		"samples and points": {map[string]*onnx.Tensor{"a": two, "b": p}, "task a has probabilities of S = 2, and task b"},
		"heads and samples":  {map[string]*onnx.Tensor{"a-heads": heads, "b": two}, "task b has probabilities of S = 2"},
		"a head fewer": {map[string]*onnx.Tensor{"a-heads": heads, "b-heads": onnx.NewTensor(make([]float64, 4), 2, 2)},
			"task b has heads of S = 1"},
	} {
		must.Do(t, npy.SaveArchive(path, c.arrays))
		_, _, err := (&Outside{Path: path}).read(threeImages(), []SplitTask{{Name: "a"}, {Name: "b"}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// FuzzHeld reads what predictions are scored on: labels are classes, the order a permutation, or
// there is an error.
func FuzzHeld(f *testing.F) {
	f.Add(saved(f, map[string]*onnx.Tensor{"features": onnx.NewTensor([]float32{1, 2, 3}, 3, 1),
		"labels": onnx.Vector[int64](0, 1, 1), "order": onnx.Vector[int64](2, 0, 1),
		"classes": onnx.Vector[int64](2), "limit": onnx.NewTensor(make([]float64, 4), 2, 2)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		arrays, err := npy.ReadArchive(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		h, err := parseHeld(arrays)
		if err != nil {
			return
		}
		seen := map[int]bool{}
		for i, o := range h.order {
			if seen[o] || o < 0 || o >= len(h.Labels) || h.Labels[i] < 0 || h.Labels[i] >= h.classes {
				t.Fatalf("row %d is image %d of class %d", i, o, h.Labels[i])
			}
			seen[o] = true
		}
	})
}

// TestHeadsOverflow: heads whose probabilities are no numbers are named with their array, and an end
// from outside is no fault of heads.
func TestHeadsOverflow(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	o := &Outside{Path: "p.npz", Name: "x"}
	for _, c := range []struct {
		name   string
		ctx    context.Context
		weight float64
		want   string
	}{
		{"overflow", t.Context(), 1e308, `^array "a-heads": prob.*; smaller weights do not overflow$`},
		{"cancelled", ended, 1, "^context canceled$"},
	} {
		w := c.weight
		a := map[string]*onnx.Tensor{"a-heads": onnx.NewTensor([]float64{w, -w, w, -w}, 2, 2)}
		_, err := o.score(c.ctx, threeImages(), a, SplitTask{Name: "a"})
		if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%s: %v; want %s", c.name, err, c.want)
		}
	}
}

// TestOutsideOrder scores rows in the order of the splits, each against its own image.
func TestOutsideOrder(t *testing.T) {
	h := threeImages()
	p := onnx.NewTensor([]float64{0, 1, 1, 0, 0, 1}, 3, 2) // right for images 2, 0 and 1
	r, err := (&Outside{Name: "x"}).score(t.Context(), h, map[string]*onnx.Tensor{"a": p},
		SplitTask{Name: "a"})
	if err != nil || r.ACC != 1 {
		t.Errorf("accuracy %v (%v), want 1", r.ACC, err)
	}
}

// TestTies: predictions with the digest of the run's test.npz are tied, those with another are refused,
// and heads alone have no rows to tie.
func TestTies(t *testing.T) {
	h := threeImages()
	sum := sha256.Sum256(saved(t, map[string]*onnx.Tensor{"features": onnx.NewTensor([]float32{-1, 1, 2}, 3, 1)}))
	p := onnx.NewTensor([]float64{.5, .5, 1, 0, .25, .75}, 3, 2)
	for name, x := range map[string]struct {
		with string
		tie  *onnx.Tensor
		tied bool
		want string
	}{
		"of this run":  {"a", onnx.Vector(sum[:]...), true, ""},
		"of another":   {"a", onnx.Vector(append([]uint8{^sum[0]}, sum[1:]...)...), false, "another run directory"},
		"part of it":   {"a", onnx.Vector(sum[:31]...), false, "another run directory"},
		"another type": {"a", onnx.Vector[int64](1), false, tieArray},
		"none":         {"a", nil, false, ""},
		"heads":        {"a-heads", nil, true, ""},
		"other heads":  {"a-heads", onnx.Vector(sum[1:]...), false, "another run directory"},
	} {
		arrays := map[string]*onnx.Tensor{x.with: p}
		if x.tie != nil {
			arrays[tieArray] = x.tie
		}
		tied, err := h.ties(arrays)
		if tied != x.tied || (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: tied %v, %v; want %v and %q", name, tied, err, x.tied, x.want)
		}
	}
}

// TestRecordsFromOutside refuses records that pass for a method of the program, or that state no
// origin.
func TestRecordsFromOutside(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"method":"MINE","group":"baseline","origin":"a.npz"}`: true,
		`{"method":"FMP","group":"baseline","origin":"a.npz"}`:  false,
		`{"method":"MINE","group":"baseline"}`:                  false,
		`{"method":"MINE","group":"other","origin":"a.npz"}`:    false,
	} {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, OutsideFile), []byte(line+"\n"), 0o600))
		if rs, err := readOutside(dir); (err == nil && len(rs) == 1) != ok {
			t.Errorf("%s: %v", line, err)
		}
	}
}
