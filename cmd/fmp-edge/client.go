package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/cost"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	// Quantised classifiers run on bytes; uploads are of float32, whose bits are those of every
	// processor.
	_ "fmp/onnx/integers"
	"fmp/pipeline/client"
	"fmp/pipeline/point"
)

// Bounds of this program.
const (
	// maxModel bounds a model file: 256 MiB.
	maxModel = 256 << 20
	// maxItems bounds the images or rows of an upload.
	maxItems = client.MaxItems
)

// boundedModel refuses a model file that is too large to load. Where the program chose its limit of
// memory, the model's bytes come on top. It looks at the size alone, so that a file too large is
// not opened. External data of a model do not count here: readModel takes a file that holds all of
// its own.
func boundedModel(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if st.Size() > maxModel {
		return fmt.Errorf("model %s has %d bytes; allowed are %d", path, st.Size(), maxModel)
	}
	if limited {
		debug.SetMemoryLimit(memoryLimit + st.Size())
	}
	return nil
}

// readModel loads a model of one of the given kinds; any other is refused by its stated kind. An
// embedding and a client graph both state dx, classes C and points S of an upload. The classes are
// two at least, as one class is nothing to tell apart.
func readModel(path string, kinds ...string) (*onnx.Model, models.Manifest, error) {
	if err := boundedModel(path); err != nil {
		return nil, models.Manifest{}, err
	}
	m, f, err := models.LoadClosed(path)
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return nil, f, err
	} else if err != nil {
		return nil, f, fmt.Errorf("%w; %s", err, wanted(kinds))
	}
	for _, k := range kinds {
		if f.Kind == k {
			if f.Dx < 1 || f.C < 2 || f.S < 1 {
				return nil, f, fmt.Errorf("model %s: its manifest says dx %d, %d classes and s "+
					"%d; want dx and s of at least 1 and 2 classes", path, f.Dx, f.C, f.S)
			}
			return m, f, nil
		}
	}
	what := fmt.Sprintf("is of kind %q", f.Kind)
	if f.Kind == "" {
		what = "does not say what it is (it has no property fmp.kind)"
	}
	return nil, f, fmt.Errorf("model %s %s; %s", path, what, wanted(kinds))
}

// wanted says which model a command wants: images a client graph, feature rows an embedding. It
// ends an error with the remedy.
func wanted(kinds []string) string {
	for _, k := range kinds {
		if k == models.KindClient {
			return "images want a client graph, the file that fmp fuse writes"
		}
	}
	return "feature rows want an embedding, the file that fmp train embedding writes"
}

// openClient takes a client graph apart and makes it ready to run. threads is of one operator, 0
// for one a core.
func openClient(path string, threads int) (*client.Client, error) {
	m, f, err := readModel(path, models.KindClient)
	if err != nil {
		return nil, err
	}
	c, err := client.New(m, f, threads)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	return c, nil
}

// compressRows makes the points of an upload from feature rows, [n, dx], with an embedding model.
// The embedding is of anybody's making, and runs under the bounds of package cost. The set has one
// point for each row, with the one-hot class behind its features: points [1, n, dx+C] and weights
// [1, n]. The outputs are checked by client.Set, as any other numbers of a foreign model.
func compressRows(path string, threads int, rows *onnx.Tensor,
	labels []int) (*point.Set, models.Manifest, error) {
	m, f, err := readModel(path, models.KindEmbedding)
	if err != nil {
		return nil, f, err
	}
	if len(rows.Shape) != 2 || rows.Shape[1] != f.Dx || rows.Shape[0] < 1 ||
		rows.Shape[0] > maxItems {
		return nil, f, fmt.Errorf("feature rows of shape %v; want 1 to %d rows of the "+
			"model's dx, %d", rows.Shape, maxItems, f.Dx)
	}
	set, err := point.FromLabelled(rows.F32(), f.Dx, labels, f.C)
	if err != nil {
		return nil, f, err
	}
	e, err := pure.New(engine.Options{Threads: threads, Bytes: cost.Foreign.Bytes})
	if err != nil {
		return nil, f, err
	}
	s, err := cost.Bounded(e, cost.Foreign).Load(m)
	if err != nil {
		return nil, f, fmt.Errorf("model %s: %w", path, err)
	}
	out, err := engine.Eval(s,
		map[string]*onnx.Tensor{"points": onnx.NewTensor(set.Z, 1, set.N, f.Dx+f.C),
			"weights": onnx.NewTensor(set.W, 1, set.N)}, "compressed", "masses")
	if err != nil {
		return nil, f, err
	}
	p, err := client.Set(out["compressed"], out["masses"], f)
	return p, f, err
}
