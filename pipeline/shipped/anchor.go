package shipped

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"fmp/assets"
	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
)

// Anchor returns the upload of known images that comes with the program for the extractor and the
// classes of a client graph of class means, as if that graph had made it. The error wraps
// [fs.ErrNotExist] where none fits: behind another extractor, of a class that it has no images of,
// or in coordinates of another predictor.
func Anchor(client models.Manifest, graph *onnx.Model) (*federate.Upload, error) {
	for _, d := range assets.Datasets() {
		data, err := assets.Anchor(d)
		if errors.Is(err, fs.ErrNotExist) || !client.ClassMeans || client.Bytes > 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		of, f, err := Load(d, models.KindClient)
		if err != nil {
			return nil, err
		}
		if f.Extractor != client.Extractor || len(client.Classes) == 0 ||
			!models.SameSoftening(of, graph) {
			continue
		}
		u, err := federate.Decode(data, federate.Expect{Model: f.Digest, Dx: f.Dx, C: f.C})
		if err != nil {
			return nil, fmt.Errorf("the anchor of %s: %w", d, err)
		}
		if u.Points = named(u.Points, f.Classes, client, graph); u.Points != nil {
			u.Model = client.Digest
			return u, nil
		}
	}
	return nil,
		fmt.Errorf("no anchor of these classes behind extractor %.12s comes with the program: %w",
			client.Extractor, fs.ErrNotExist)
}

// named returns class means with their classes by the numbers that a client graph gives their
// names, in its coordinates; nil where a class is missing, or the coordinates are others.
func named(means *point.Set, names []string, f models.Manifest, graph *onnx.Model) *point.Set {
	row := means.Features
	if f.K != 0 {
		v, origin := graph.Graph.Initializers[models.ConjMap],
			graph.Graph.Initializers[models.ConjOrigin]
		if !isFloat(v, means.Dx, f.K) || !isFloat(origin, f.K) {
			return nil
		}
		row = func(i int) []float32 { return coordinates(means.Features(i), v.F32(), origin.F32()) }
	}
	of := map[string]int{}
	for i, y := range means.Indices() {
		of[names[y]] = i
	}
	out := &point.Set{Dx: f.PointWidth(), C: len(f.Classes)}
	for y, name := range f.Classes {
		i, ok := of[name]
		if !ok {
			return nil
		}
		out.N, out.Z, out.W, out.Y = out.N+1, append(out.Z, row(i)...), append(out.W, means.W[i]),
			append(out.Y, int32(y))
	}
	return out
}

func isFloat(t *onnx.Tensor, shape ...int) bool {
	return t != nil && t.DType == onnx.Float32 && slices.Equal(t.Shape, shape)
}

// coordinates returns phi V - m0, the coordinates of softened features (models.NewConjugate).
func coordinates(phi, v, origin []float32) []float32 {
	out := make([]float32, len(origin))
	for j := range out {
		sum := -float64(origin[j])
		for i, x := range phi {
			sum += float64(x) * float64(v[i*len(origin)+j])
		}
		out[j] = float32(sum)
	}
	return out
}
