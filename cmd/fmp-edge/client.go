package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/point"
	"fmp/pipeline/privacy"
)

// Bounds of this program.
const (
	// maxModel bounds a model file: 256 MiB.
	maxModel = 256 << 20
	// maxItems bounds the images or rows of an upload, so that memory stays below 64 MiB.
	maxItems = 20_000
	// chunk is the number of images that go through the extractor at once: more would take more memory and are
	// no faster.
	chunk = 8
)

// boundedModel refuses a model file that is too large to load.
func boundedModel(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if st.Size() > maxModel {
		return fmt.Errorf("model %s has %d bytes; allowed are %d", path, st.Size(), maxModel)
	}
	return nil
}

// readModel loads a model of one of the given kinds; any other is refused by what it says it is.
func readModel(path string, kinds ...string) (*onnx.Model, models.Manifest, error) {
	if err := boundedModel(path); err != nil {
		return nil, models.Manifest{}, err
	}
	m, f, err := models.Load(path)
	if err != nil {
		return nil, f, err
	}
	for _, k := range kinds {
		if f.Kind == k {
			if f.Dx < 1 || f.C < 2 || f.S < 1 {
				return nil, f, fmt.Errorf("model %s: its manifest says dx %d, %d classes and s %d; want dx and s of at least 1 and 2 classes", path, f.Dx, f.C, f.S)
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

func wanted(kinds []string) string {
	for _, k := range kinds {
		if k == models.KindClient {
			return "images want a client graph, the file that fmp fuse writes"
		}
	}
	return "feature rows want an embedding, the file that fmp train embedding writes"
}

// client is a client graph, ready to run.
type client struct {
	manifest  models.Manifest
	fit       imagefile.Fit
	engine    engine.Engine
	extractor engine.Session // images and labels to set and present; nil where the graph does not come apart
	whole     engine.Session // the graph in one piece otherwise
	embedding engine.Session // set and present to points and masses
}

// openClient loads a client graph. The graph is run in two parts, the extractor on a few images at a time and
// the embedding on the whole set, so that memory does not grow with the number of images.
func openClient(path string, threads int) (*client, error) {
	m, f, err := readModel(path, models.KindClient)
	if err != nil {
		return nil, err
	}
	images, ok := m.Graph.Input("images")
	labels, ok2 := m.Graph.Input("labels")
	if !ok || !ok2 || labels.DType != onnx.Int64 {
		return nil, fmt.Errorf("model %s: its inputs are %v; want images (uint8, [n, H, W, Ch]) and labels (int64, [n])", path, m.Graph.Inputs)
	}
	c := &client{manifest: f}
	if c.fit, err = imagefile.FitOf(images, f); err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	if c.engine, err = pure.New(engine.Options{Threads: threads}); err != nil {
		return nil, err
	}
	extractor, embedding := models.SplitClient(m, f)
	if extractor == nil {
		if c.whole, err = c.engine.Load(m); err != nil {
			return nil, fmt.Errorf("model %s: %w", path, err)
		}
		return c, nil
	}
	if c.extractor, err = c.engine.Load(extractor); err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	if c.embedding, err = c.engine.Load(embedding); err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	return c, nil
}

// images reads labelled images, step at a time, and hands each lot to use as the graph takes it. Images that cannot be read are left
// out if skip is set, and named; else they are an error, as it is where none is left.
func (c *client) images(ctx context.Context, src imagefile.Source, step int, skip bool, use func(feeds map[string]*onnx.Tensor, items []imagefile.Item) error) (bad []error, err error) {
	if k := src.Len(); k < 1 || k > maxItems {
		return nil, fmt.Errorf("%d images; allowed are 1 to %d", k, maxItems)
	}
	n := 0
	bad, err = imagefile.Read(ctx, src, c.fit, step, skip, func(pixels []uint8, items []imagefile.Item) error {
		labels := make([]int64, len(items))
		for i, item := range items {
			labels[i] = int64(item.Label)
		}
		n += len(items)
		return use(map[string]*onnx.Tensor{"images": onnx.NewTensor(pixels, len(items), c.fit.H, c.fit.W, c.fit.Ch), "labels": onnx.NewTensor(labels, len(items))}, items)
	})
	switch {
	case err != nil:
		return nil, err
	case len(bad) > 0 && !skip:
		return nil, errors.Join(bad...)
	case n == 0:
		return nil, fmt.Errorf("none of the images can be read: %w", errors.Join(bad...))
	}
	return bad, nil
}

// compress makes the points of an upload from a source of labelled images, n of them, and names those left out.
func (c *client) compress(ctx context.Context, src imagefile.Source, skip bool) (set *point.Set, n int, bad []error, err error) {
	step := chunk
	if c.extractor == nil {
		step = src.Len()
	}
	d := c.manifest.Dx + c.manifest.C
	var points, present []float32
	bad, err = c.images(ctx, src, step, skip, func(feeds map[string]*onnx.Tensor, items []imagefile.Item) error {
		n += len(items)
		if c.extractor == nil {
			out, err := engine.Eval(c.whole, feeds, "points", "masses")
			if err != nil {
				return err
			}
			set, err = upload(out["points"], out["masses"], c.manifest)
			return err
		}
		out, err := engine.Eval(c.extractor, feeds, models.ValueSet, models.ValuePresent)
		if err != nil {
			return err
		}
		points, present = append(points, out[models.ValueSet].F32()...), append(present, out[models.ValuePresent].F32()...)
		return nil
	})
	switch {
	case err != nil:
		return nil, 0, nil, err
	case c.extractor == nil:
		return set, n, bad, nil
	case len(points) != n*d || len(present) != n:
		return nil, 0, nil, fmt.Errorf("the extractor gave %d numbers for %d images of dx %d and %d classes; want %d", len(points), n, c.manifest.Dx, c.manifest.C, n*d)
	}
	out, err := engine.Eval(c.embedding, map[string]*onnx.Tensor{models.ValueSet: onnx.NewTensor(points, 1, n, d), models.ValuePresent: onnx.NewTensor(present, 1, n)}, "points", "masses")
	if err != nil {
		return nil, 0, nil, err
	}
	set, err = upload(out["points"], out["masses"], c.manifest)
	return set, n, bad, err
}

// release makes the class sums of a private round from a source of labelled images. Coordinates are those that the embedding gives a set
// of one image; they are clipped, rounded and summed here, whatever the graph says of masses.
func (c *client) release(ctx context.Context, src imagefile.Source, skip bool) (sums *privacy.Release, n int, bad []error, err error) {
	f := c.manifest
	if c.extractor == nil || f.K < 1 {
		return nil, 0, nil, fmt.Errorf("the client graph does not come apart into extractor and coordinates; make it with fmp fuse --upload private")
	}
	var w []float32
	var classes []int
	d := f.Dx + f.C
	bad, err = c.images(ctx, src, chunk, skip, func(feeds map[string]*onnx.Tensor, items []imagefile.Item) error {
		out, err := engine.Eval(c.extractor, feeds, models.ValueSet)
		if err != nil {
			return err
		}
		rows := out[models.ValueSet].F32()
		if len(rows) != len(items)*d {
			return fmt.Errorf("the extractor gave %d numbers for %d images of dx %d and %d classes; want %d", len(rows), len(items), f.Dx, f.C, len(items)*d)
		}
		for i, item := range items {
			if item.Label < 0 || item.Label >= f.C {
				continue
			}
			out, err := engine.Eval(c.embedding, map[string]*onnx.Tensor{models.ValueSet: onnx.NewTensor(rows[i*d:(i+1)*d], 1, 1, d), models.ValuePresent: onnx.NewTensor([]float32{1}, 1, 1)}, "points")
			if err != nil {
				return err
			}
			z := out["points"].F32()
			if len(z) != f.C*(f.K+f.C) {
				return fmt.Errorf("the model gave points %v; its manifest says %d coordinates and %d classes", out["points"], f.K, f.C)
			}
			w, classes = append(w, z[item.Label*(f.K+f.C):][:f.K]...), append(classes, item.Label)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, 0, nil, err
	case len(classes) == 0:
		return nil, 0, nil, fmt.Errorf("none of the images is of a class of the model")
	}
	sums, err = privacy.Sum(w, classes, f.C, f.K, f.Clip)
	return sums, len(classes), bad, err
}

// upload checks what a graph gave against its manifest. Of class means only those of classes that the client holds are
// worth sending.
func upload(points, masses *onnx.Tensor, f models.Manifest) (*point.Set, error) {
	z, w, dx := points.F32(), masses.F32(), f.PointWidth()
	if len(z) != f.S*(dx+f.C) || len(w) != f.S {
		return nil, fmt.Errorf("the model gave points %v and masses %v; its manifest says %d points of %d numbers and %d classes", points, masses, f.S, dx, f.C)
	}
	set := &point.Set{N: f.S, Dx: dx, C: f.C, Z: z, W: w}
	if f.ClassMeans {
		return set.Held(), nil
	}
	return set, nil
}

// compressRows makes the points of an upload from feature rows, [n, dx], with an embedding model.
func compressRows(path string, threads int, rows *onnx.Tensor, labels []int) (*point.Set, models.Manifest, error) {
	m, f, err := readModel(path, models.KindEmbedding)
	if err != nil {
		return nil, f, err
	}
	if len(rows.Shape) != 2 || rows.Shape[1] != f.Dx || rows.Shape[0] < 1 || rows.Shape[0] > maxItems {
		return nil, f, fmt.Errorf("feature rows of shape %v; want 1 to %d rows of the model's dx, %d", rows.Shape, maxItems, f.Dx)
	}
	set, err := point.FromLabelled(rows.F32(), f.Dx, labels, f.C)
	if err != nil {
		return nil, f, err
	}
	e, err := pure.New(engine.Options{Threads: threads})
	if err != nil {
		return nil, f, err
	}
	s, err := e.Load(m)
	if err != nil {
		return nil, f, fmt.Errorf("model %s: %w", path, err)
	}
	out, err := engine.Eval(s, map[string]*onnx.Tensor{"points": onnx.NewTensor(set.Z, 1, set.N, f.Dx+f.C), "weights": onnx.NewTensor(set.W, 1, set.N)}, "compressed", "masses")
	if err != nil {
		return nil, f, err
	}
	p, err := upload(out["compressed"], out["masses"], f)
	return p, f, err
}
