package experiment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fmp/featurize/dataset"
	"fmp/onnx"
	"fmp/onnx/npy"
	"fmp/onnx/sorting"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/posterior"
)

// HeldFile lies in a run directory, and methods from outside are scored on it: test features, their
// labels, the order in which the splits have them, and the heads that intervals are measured
// against. The splits themselves have no labels of test images.
const HeldFile = "held.npz"

// held is the content of [HeldFile].
type held struct {
	score.Test
	dx, classes int
	// order holds, for every row of the splits' test features, its index among the test images.
	order []int
}

// hold writes [HeldFile], unless it is there, and returns the order of the splits' test rows.
func (p *Prepared) hold(ctx context.Context, dir *Directory) ([]int, error) {
	if _, err := os.Stat(dir.file(HeldFile)); err == nil {
		h, err := readHeld(dir.Path)
		if err != nil {
			return nil, err
		}
		return h.order, nil
	}
	test, err := p.Data.test(p.Config)
	if err != nil {
		return nil, err
	}
	tools := p.Tools
	if p.Config.Scores.Coverage {
		if err := tools.limits(ctx, p.Data, test, p.Config.OpenScope()); err != nil {
			return nil, fmt.Errorf("limit of infinite data: %w", err)
		}
	}
	dx := p.Data.Clients.Dx
	order := rowOrder(test.Features, dx)
	arrays := map[string]*onnx.Tensor{"features": onnx.NewTensor(test.Features, len(test.Labels), dx),
		"labels": indices(test.Labels), "order": indices(order),
		"classes": onnx.Vector(int64(p.Data.Clients.C))}
	for name, head := range map[string]*posterior.Theta{"limit": test.Limit, "regression": test.Regression} {
		if head != nil {
			arrays[name] = onnx.NewTensor(head.W, head.D, head.C)
		}
	}
	return order, npy.SaveArchive(dir.file(HeldFile), arrays)
}

// rowOrder returns the indices of rows in the order of their digests. It depends on the rows alone:
// equal runs have equal splits, and images that come class by class do not tell their labels.
func rowOrder(rows []float32, dx int) []int {
	digests, order := make([][sha256.Size]byte, len(rows)/dx), make([]int, len(rows)/dx)
	h := sha256.New()
	for i := range order {
		h.Reset()
		_ = binary.Write(h, binary.LittleEndian, rows[i*dx:(i+1)*dx]) // a hash takes every byte
		order[i] = i
		h.Sum(digests[i][:0])
	}
	sorting.Stably(order, func(a, b int) int { return bytes.Compare(digests[a][:], digests[b][:]) })
	return order
}

// readHeld reads and checks [HeldFile] of a run directory.
func readHeld(dir string) (*held, error) {
	path := filepath.Join(dir, HeldFile)
	arrays, err := npy.LoadArchive(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run directory %s has no %s: give its `fmp run` once more with "+
			"--export-splits, which writes it: %w", dir, HeldFile, err)
	}
	if err != nil {
		return nil, err
	}
	h, err := parseHeld(arrays)
	if err != nil {
		return nil,
			fmt.Errorf(
				"%s: %w; remove it, and give the `fmp run` once more with --export-splits and a new folder",
				path, err)
	}
	return h, nil
}

func parseHeld(arrays map[string]*onnx.Tensor) (*held, error) {
	h := &held{}
	features, err := array[float32](arrays, "features", 2)
	if err != nil {
		return nil, err
	}
	labels, err := array[int64](arrays, "labels", 1)
	if err != nil {
		return nil, err
	}
	order, err := array[int64](arrays, "order", 1)
	if err != nil {
		return nil, err
	}
	classes, err := array[int64](arrays, "classes", 1)
	if err != nil {
		return nil, err
	}
	n := arrays["features"].Shape[0]
	if h.dx = arrays["features"].Shape[1]; len(labels) != n || len(order) != n || n == 0 ||
		h.dx == 0 || len(classes) != 1 ||
		classes[0] < 2 || classes[0] > dataset.MaxClasses {
		return nil, fmt.Errorf("%d rows of %d features, %d labels, %d in order, classes %v", n, h.dx,
			len(labels), len(order), classes)
	}
	h.classes = int(classes[0])
	seen := make([]bool, n)
	for i := range n {
		if y := labels[i]; y < 0 || y >= classes[0] {
			return nil, fmt.Errorf("label %d of row %d; allowed are 0 to %d", y, i, classes[0]-1)
		}
		if o := order[i]; o < 0 || o >= int64(n) || seen[o] {
			return nil, fmt.Errorf("row %d of the splits is image %d; want each image once", i, o)
		}
		seen[order[i]] = true
		h.Labels, h.order = append(h.Labels, int(labels[i])), append(h.order, int(order[i]))
	}
	if h.Features = features; !finite(features) {
		return nil, fmt.Errorf("a feature is not finite")
	}
	for name, to := range map[string]**posterior.Theta{"limit": &h.Limit, "regression": &h.Regression} {
		if arrays[name] == nil {
			continue
		}
		w, err := array[float64](arrays, name, 2)
		if err != nil {
			return nil, err
		}
		if s := arrays[name].Shape; s[0] != h.dx+1 || s[1] != h.classes || !finite(w) {
			return nil, fmt.Errorf("array %q has shape %v; want finite numbers, %d x %d", name, s,
				h.dx+1, h.classes)
		}
		*to = &posterior.Theta{D: h.dx + 1, C: h.classes, W: w}
	}
	return h, nil
}

// array returns the elements of the array of the given name, type and rank.
func array[T onnx.Element](arrays map[string]*onnx.Tensor, name string, rank int) ([]T, error) {
	t := arrays[name]
	if t == nil {
		return nil, fmt.Errorf("array %q is missing", name)
	}
	data, ok := t.Data.([]T)
	if !ok || len(t.Shape) != rank {
		return nil, fmt.Errorf("array %q is %v of shape %v; want %v of rank %d", name, t.DType, t.Shape,
			onnx.TypeOf[T](), rank)
	}
	return data, nil
}

// finite reports whether no number is NaN or infinite.
func finite[T float32 | float64](of []T) bool {
	for _, v := range of {
		if v-v != 0 {
			return false
		}
	}
	return true
}
