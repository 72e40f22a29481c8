// Package compress turns each client's points into its upload: s synthetic points with masses, by
// an embedding graph (arXiv:2605.18554, the step Z̃ = h(Z)).
package compress

import (
	"context"
	"fmt"
	"math"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/pipeline/point"
)

// Clients are processed in batches of at most batchSize and at most batchPoints points with
// padding: fixed, so that a client's upload does not depend on the machine.
const (
	batchSize   = 32
	batchPoints = 1 << 16
	// manyClasses is the number of classes from which class means are made class by class.
	manyClasses = 1 << 10
)

// Compressor runs an embedding model. It is safe for concurrent use if its engine's sessions are.
// For bitwise identical uploads on every machine, create the engine with one thread per operator.
type Compressor struct {
	session  engine.Session
	manifest models.Manifest
	means    *Compressor // of two classes, in place of a session for many
}

// New prepares an embedding model for running. The model must carry the manifest of an embedding.
func New(e engine.Engine, m *onnx.Model) (*Compressor, error) {
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, fmt.Errorf("embedding: %w", err)
	}
	if f.Kind != models.KindEmbedding || f.Dx < 1 || f.C < 2 || f.S < 1 {
		return nil, fmt.Errorf("embedding: the model's manifest says kind %q, dx %d, classes %d, s %d; "+
			"want an embedding with all three, as fmp train embedding writes it",
			f.Kind, f.Dx, f.C, f.S)
	}
	if f.ClassMeans && f.C > manyClasses {
		two, err := models.OfTwoClasses(m)
		if err != nil {
			return nil, fmt.Errorf("embedding: %w", err)
		}
		means, err := New(e, two)
		return &Compressor{manifest: f, means: means}, err
	}
	s, err := e.Load(m)
	if err != nil {
		return nil, fmt.Errorf("embedding: %w", err)
	}
	return &Compressor{session: s, manifest: f}, nil
}

// Close releases the session.
func (c *Compressor) Close() error {
	if c.means != nil {
		return c.means.Close()
	}
	return c.session.Close()
}

// Compress returns one upload of s points per client, in the clients' order. The masses of an
// upload sum to the client's weights. Clients may have different numbers of points, at least one
// each. Of class means of many classes an upload holds those of the client's classes alone.
func (c *Compressor) Compress(ctx context.Context, clients []*point.Set) ([]*point.Set, error) {
	for i, s := range clients {
		if s == nil || s.N < 1 {
			return nil, fmt.Errorf("compress: client %d has no points; leave it out", i)
		}
		if s.Dx != c.manifest.Dx || s.C != c.manifest.C {
			return nil, fmt.Errorf("compress: client %d has dx %d and %d classes, the embedding has dx %d "+
				"and %d; use models that were made for each other", i, s.Dx, s.C,
				c.manifest.Dx, c.manifest.C)
		}
	}
	uploads := make([]*point.Set, 0, len(clients))
	if c.means != nil {
		for _, s := range clients {
			u, err := c.byClass(ctx, s)
			if err != nil {
				return nil, err
			}
			uploads = append(uploads, u)
		}
		return uploads, nil
	}
	for len(clients) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
		n, widest := 0, 0
		for n < len(clients) && n < batchSize {
			w := max(widest, clients[n].N)
			if n > 0 && w*(n+1) > batchPoints {
				break
			}
			n, widest = n+1, w
		}
		batch, err := c.run(clients[:n], widest)
		if err != nil {
			return nil, fmt.Errorf("compress: clients %d to %d: %w", len(uploads),
				len(uploads)+n-1, err)
		}
		uploads = append(uploads, batch...)
		clients = clients[n:]
	}
	return uploads, nil
}

// byClass makes the upload of a client class by class, each a client of the embedding of two classes.
func (c *Compressor) byClass(ctx context.Context, s *point.Set) (*point.Set, error) {
	of := make([]point.Set, s.C)
	for i := range s.N {
		s.Shares(i, func(y int, p float32) {
			o := &of[y]
			o.N, o.Z, o.W = o.N+1, append(append(o.Z, s.Features(i)...), p, 0), append(o.W, s.W[i])
		})
	}
	out := &point.Set{Dx: c.manifest.PointWidth(), C: s.C}
	var held []*point.Set
	for y := range of {
		if o := &of[y]; o.N > 0 {
			o.Dx, o.C = s.Dx, 2
			held, out.Y = append(held, o), append(out.Y, int32(y))
		}
	}
	means, err := c.means.Compress(ctx, held)
	for _, m := range means {
		out.N, out.Z, out.W = out.N+1, append(out.Z, m.Features(0)...), append(out.W, m.W[0])
	}
	return out, err
}

func (c *Compressor) run(clients []*point.Set, widest int) ([]*point.Set, error) {
	f := c.manifest
	points, weights := Pad(clients, widest)
	out, err := engine.Eval(c.session, map[string]*onnx.Tensor{"points": points, "weights": weights},
		"compressed", "masses")
	if err != nil {
		return nil, err
	}
	z, w := out["compressed"].F32(), out["masses"].F32()
	dx := f.PointWidth()
	dz := dx + f.C
	if len(z) != len(clients)*f.S*dz || len(w) != len(clients)*f.S {
		return nil,
			fmt.Errorf("the embedding gave compressed %v and masses %v; want %d x %d x %d and %d x %d",
				out["compressed"], out["masses"], len(clients), f.S, dz, len(clients), f.S)
	}
	for i, v := range z {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, fmt.Errorf("the embedding gave %v in upload %d; check the model and the features "+
				"for numbers out of range", v, i/(f.S*dz))
		}
	}
	uploads := make([]*point.Set, len(clients))
	for i := range uploads {
		uploads[i] = &point.Set{N: f.S, Dx: dx, C: f.C, Z: z[i*f.S*dz : (i+1)*f.S*dz : (i+1)*f.S*dz],
			W: w[i*f.S : (i+1)*f.S : (i+1)*f.S]}
	}
	return uploads, nil
}

// Pad returns the tensors points [len(sets), n, dx+C] and weights [len(sets), n]. Sets of fewer
// than n points are padded with zero points of weight 0. All sets must have the dx and C of the
// first.
func Pad(sets []*point.Set, n int) (points, weights *onnx.Tensor) {
	dz := sets[0].Dx + sets[0].C
	points, weights = onnx.ZerosF32(len(sets), n, dz), onnx.ZerosF32(len(sets), n)
	for i, s := range sets {
		copy(points.F32()[i*n*dz:], s.Z)
		copy(weights.F32()[i*n:], s.W)
	}
	return points, weights
}
