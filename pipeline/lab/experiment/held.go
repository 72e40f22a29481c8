package experiment

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fmp/featurize/dataset"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/npy"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/posterior"
)

// HeldFile lies in a run directory, and methods from outside are scored on it: test features, their
// labels, the order in which the splits have them, and the heads that intervals are measured
// against. The splits themselves have no labels of test images. Labels of test images stay with the
// run: predictions are scored by it, and their author has features alone.
const HeldFile = "held.npz"

// held is the content of [HeldFile]. It is read-only once it is made.
type held struct {
	score.Test
	dx, classes int
	// order holds, for every row of the splits' test features, its index among the test images. It
	// is drawn from the run's seed: equal runs have equal ones on every processor, and images that
	// come class by class do not tell their labels.
	order []int
}

// hold writes [HeldFile], unless it is there, and returns its content. A file that is there has
// precedence, as predictions may have been made from its rows. Limits cost two fits or more to all
// rows, and are computed only where coverage is asked for.
func (p *Prepared) hold(ctx context.Context, dir *Directory) (*held, error) {
	if _, err := os.Stat(dir.file(HeldFile)); err == nil {
		return readHeld(dir.Path)
	}
	test, err := p.Data.test(p.Config)
	if err != nil {
		return nil, err
	}
	// The copy takes the class means that limits computes beside the heads of test.
	tools := p.Tools
	if p.Config.Scores.Coverage {
		if err := tools.limits(ctx, p.Data, test, p.Config.OpenScope()); err != nil {
			return nil, fmt.Errorf("limit of infinite data: %w", err)
		}
	}
	dx := p.Data.Clients.Dx
	order := rng.New(p.Config.Seed, "splits").Perm(len(test.Labels))
	arrays := map[string]*onnx.Tensor{"features": onnx.NewTensor(test.Features, len(test.Labels),
		dx), "labels": indices(test.Labels), "order": indices(order),
		"classes": onnx.Vector(int64(p.Data.Clients.C))}
	for name, head := range map[string]*posterior.Theta{"limit": test.Limit,
		"regression": test.Regression} {
		if head != nil {
			arrays[name] = onnx.NewTensor(head.W, head.D, head.C)
		}
	}
	h := &held{Test: *test, dx: dx, classes: p.Data.Clients.C, order: order}
	return h, npy.SaveArchive(dir.file(HeldFile), arrays)
}

// tests returns the arrays of the splits' test rows. The features are those that are held, as
// another processor may compute them with other bits.
func (h *held) tests() map[string]*onnx.Tensor {
	rows := make([]float32, 0, len(h.Features))
	for _, i := range h.order {
		rows = append(rows, h.Features[i*h.dx:(i+1)*h.dx]...)
	}
	return map[string]*onnx.Tensor{"features": onnx.NewTensor(rows, len(h.order), h.dx)}
}

// digest returns the sha256 digest of the splits' file of test rows, which is written anew to be
// hashed. The same rows give the same bytes. Nothing is written to disk: the archive goes into the
// hash.
func (h *held) digest() ([]byte, error) {
	sum := sha256.New()
	err := npy.WriteArchive(sum, h.tests())
	return sum.Sum(nil), err
}

// readHeld reads and checks [HeldFile] of a run directory.
func readHeld(dir string) (*held, error) {
	path := filepath.Join(dir, HeldFile)
	arrays, err := npy.LoadArchive(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run directory %s has no %s: give its `fmp run` once more with "+
			"--export-splits, which writes it, by the program and the models that made the "+
			"run, as others make another run: %w", dir, HeldFile, err)
	}
	if err != nil {
		return nil, err
	}
	h, err := parseHeld(arrays)
	if err != nil {
		return nil,
			fmt.Errorf(
				"%s: %w; remove it, and give the `fmp run` once more with --export-splits "+
					"and a new folder", path, err)
	}
	return h, nil
}

// parseHeld checks the arrays of [HeldFile]: shapes that agree, labels of the classes, finite
// numbers and an order that has each image once. The file lies where others can change it. features
// is [n, dx], labels and order are [n], and the optional heads [dx + 1, classes].
func parseHeld(arrays map[string]*onnx.Tensor) (*held, error) {
	h := &held{}
	features, err := array[float32](arrays, "features", 2)
	if err != nil {
		return nil, err
	}
	var of [3][]int64
	for i, name := range []string{"labels", "order", "classes"} {
		if of[i], err = array[int64](arrays, name, 1); err != nil {
			return nil, err
		}
	}
	labels, order, classes := of[0], of[1], of[2]
	n := arrays["features"].Shape[0]
	if h.dx = arrays["features"].Shape[1]; len(labels) != n || len(order) != n || n == 0 ||
		h.dx == 0 || len(classes) != 1 ||
		classes[0] < 2 || classes[0] > dataset.MaxClasses {
		return nil, fmt.Errorf("%d rows of %d features, %d labels, %d in order, classes %v", n,
			h.dx, len(labels), len(order), classes)
	}
	h.classes = int(classes[0])
	seen := make([]bool, n)
	for i := range n {
		if y := labels[i]; y < 0 || y >= classes[0] {
			return nil, fmt.Errorf("label %d of row %d; allowed are 0 to %d", y, i, classes[0]-1)
		}
		// n indices from 0 to n - 1, none of them twice, are a permutation.
		if o := order[i]; o < 0 || o >= int64(n) || seen[o] {
			return nil, fmt.Errorf("row %d of the splits is image %d; want each image once", i, o)
		}
		seen[order[i]] = true
		h.Labels, h.order = append(h.Labels, int(labels[i])), append(h.order, int(order[i]))
	}
	if h.Features = features; !finite(features) {
		return nil, fmt.Errorf("a feature is not finite")
	}
	for name, to := range map[string]**posterior.Theta{"limit": &h.Limit,
		"regression": &h.Regression} {
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
		return nil, fmt.Errorf("array %q is %v of shape %v; want %v of rank %d", name,
			t.DType, t.Shape, onnx.TypeOf[T](), rank)
	}
	return data, nil
}

// finite reports whether no number is NaN or infinite.
func finite[T float32 | float64](of []T) bool {
	for _, v := range of {
		if v-v != 0 { // NaN for NaN and infinities
			return false
		}
	}
	return true
}
