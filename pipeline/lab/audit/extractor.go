package audit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/lab/experiment"
)

// Leak is how much of a client's images an extractor gets out through a plain upload: images are
// drawn, every pixel one of 256 values alike, so that a pixel has 8 bits, and no other knowledge of
// them helps the server that reads the upload. The server may make the extractor here, unlike in
// [RunParts], where it reads uploads alone.
type Leak struct {
	// Extractor describes the extractor, Upload the parts of the upload that are read.
	Extractor string `json:"extractor"`
	Upload    string `json:"upload"`
	// PerClass is the number of images of each of the client's classes.
	PerClass int `json:"images_of_a_class"`
	// Refused is the reason for which nothing is sent; the rest is then 0.
	Refused string `json:"refused,omitempty"`
	// Bits are those of its pixels, one by one, that the server knows of an image, on average over
	// all; an image has Most.
	Bits float64 `json:"bits_an_image"`
	Most int     `json:"bits_of_an_image"`
	// Best are the bits known of the image that most is known of.
	Best float64 `json:"bits_of_the_best_known"`
}

// leaking is an extractor and an upload that are audited.
type leaking struct {
	extractor, upload string
	// the extractor is the run's own, behind which the server decodes by linear regression
	approved         bool
	asked            bool // the owner was asked, and said yes
	gate             bool // features are zeros but for one image in 40, about
	moments          bool
	perClass, points int
}

// leaks are the rows of an audit of extractors. A mean of many images hides them from a packing
// extractor, unless a gate lets one image through.
var leaks = []leaking{
	{extractor: "the run's, known to the program", upload: "class means", approved: true,
		perClass: 1},
	{extractor: "the run's, known to the program", upload: "class means", approved: true,
		perClass: 5},
	{extractor: "the run's, known to the program", upload: "class means",
		approved: true, perClass: 40},
	{extractor: "unknown", upload: "class means", perClass: 40},
	{extractor: "packing, after a yes", upload: "class means", asked: true, perClass: 1},
	{extractor: "packing, after a yes", upload: "class means", asked: true, perClass: 40},
	{extractor: "packing, after a yes", upload: "class means, 10 calibration points", asked: true,
		perClass: 40, points: 10},
	{extractor: "packing, after a yes", upload: "moments, 10 calibration points", asked: true,
		moments: true, perClass: 40, points: 10},
	{extractor: "packing, zeros but for one image in 40, after a yes", upload: "class means",
		asked: true, gate: true, perClass: 40},
	{extractor: "packing, zeros but for one image in 40, after a yes", upload: "moments",
		asked: true, gate: true, moments: true, perClass: 40},
}

const (
	// classes of a client, and regressed uploads from which the server learns to decode an approved
	// extractor's features.
	leakClasses, regressed = 10, 60
	// reference is the feature beside those that pack pixels, by which a normalised row is scaled
	// back. Three bytes are below it, and a float32 holds integers up to it exactly.
	reference = 1 << 24
)

// RunExtractor audits extractors by the bits of an image that leave with plain uploads, made by the
// client's own program. Rows of an unknown extractor that the owner did not confirm are the
// defence: the client refuses before it reads an image.
func RunExtractor(ctx context.Context, p *experiment.Prepared, o Options) ([]Leak, error) {
	x, pre := p.Extractor.Client(nil, nil)
	var out []Leak
	for i, k := range leaks {
		l := Leak{Extractor: k.extractor, Upload: k.upload, PerClass: k.perClass,
			Most: 8 * pre.Height * pre.Width * pre.Channels}
		g, at, dx := x, pre, p.Data.Clients.Dx
		if !k.approved {
			at = models.Preprocessing{Height: pre.Height, Width: pre.Width, Channels: pre.Channels,
				Raw: true, NHWC: true}
			var err error
			if g, dx, err = packing(at, k.gate, k.moments); err != nil {
				return nil, fmt.Errorf("audit: %w", err)
			}
		}
		cl, err := plainClient(g, at, dx, k.moments)
		if err != nil {
			return nil, fmt.Errorf("audit: %s: %w", k.extractor, err)
		}
		// The owner's list of known extractors is empty but for those that were asked about.
		approvals := &client.Memory{}
		if k.asked {
			if err := approvals.Add(cl.Parsed.Extractor, client.Files); err != nil {
				return nil, err
			}
		}
		var unknown *client.UnknownError
		switch err := cl.Trust(approvals, client.Files); {
		case errors.As(err, &unknown):
			l.Refused = "the extractor is unknown: nothing is read and nothing sent"
		case err != nil:
			return nil, err
		default:
			if k.approved {
				err = l.regress(ctx, cl, k, o.Seed)
			} else {
				err = l.unpack(ctx, cl, k, o.Seed+uint64(i))
			}
			if err != nil {
				return nil, fmt.Errorf("audit: %s: %w", k.extractor, err)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// packing returns an extractor whose features are three pixels each, p + 256 q + 65536 r, which a
// float32 holds exactly; with gate zeros unless the first pixel is 250 or more. In front of
// moments, which take roots and scale rows to length 1, features are squares. Missing pixels of the
// last feature are zeros. With squares the last feature is that of the reference. A gate of 250
// passes 6 bytes of 256, about one image in 43. The second result is the number of features.
func packing(p models.Preprocessing, gate, squares bool) (*onnx.Model, int, error) {
	n := p.Height * p.Width * p.Channels
	dx := (n + 2) / 3
	b := build.New("packing")
	pixels := b.Reshape(b.Cast(b.Input("image", onnx.Uint8, "n", p.Height, p.Width, p.Channels),
		onnx.Float32), 0, n)
	rows := b.Op("Pad", []build.Ref{pixels, b.Const(onnx.Vector[int64](0, 0, 0, int64(3*dx-n)))})
	h := b.ReduceSum(b.Mul(b.Reshape(rows, 0, dx, 3),
		b.Const(onnx.Vector[float32](1, 1<<8, 1<<16))), false, -1)
	if squares {
		h = b.Op("Pad", []build.Ref{h, b.Const(onnx.Vector[int64](0, 0, 0, 1)), b.F32(reference)})
		h, dx = b.Mul(h, h), dx+1
	}
	if gate {
		bright := b.Op("Greater", []build.Ref{b.Slice(pixels, 1, 0, 1), b.F32(249.5)})
		h = b.Mul(h, b.Cast(bright, onnx.Float32))
	}
	// a client graph has numbers enough for the sizes that it states
	ones := onnx.Vector(slices.Repeat([]float32{1}, dx)...)
	b.Output("h", b.Mul(h, b.Const(ones)))
	m, err := b.Model()
	return m, dx, err
}

// plainClient returns a client that sends class means or moments behind an extractor. The radius of
// 1e30 leaves features as they are, so that packed pixels survive.
func plainClient(x *onnx.Model, p models.Preprocessing, dx int,
	moments bool) (*client.Client, error) {
	var e *onnx.Model
	var err error
	if moments {
		e, err = models.MomentsEmbedding(models.MomentsConfig{Dx: dx, C: leakClasses,
			Bytes: federate.MaxBytes})
	} else {
		e, err = models.ClassMeansEmbedding(dx, leakClasses, 1e30)
	}
	if err != nil {
		return nil, err
	}
	ef, err := models.ReadManifest(e)
	if err != nil {
		return nil, err
	}
	m, err := models.ClientGraph(x, models.Manifest{}, e, ef, p)
	if err != nil {
		return nil, err
	}
	f, err := manifestOf(m)
	if err != nil {
		return nil, err
	}
	return client.New(m, f, 1)
}

// manifestOf returns the manifest of a client graph, with a digest, which its file would have. Any
// digest serves, since nothing is read from a file to be checked against it.
func manifestOf(m *onnx.Model) (models.Manifest, error) {
	f, err := models.ReadManifest(m)
	f.Digest = fmt.Sprintf("%064x", 1)
	return f, err
}

// send returns an upload of drawn images, as a server decodes it. It is coded in float32, within
// the bytes that the client graph states. The images are returned beside it, to be compared with
// guesses. Their classes go in turn: image i is of class i mod leakClasses.
func send(ctx context.Context, cl *client.Client, k leaking,
	seed uint64) (*federate.Upload, *drawnImages, error) {
	src := &drawnImages{n: leakClasses * k.perClass, classes: leakClasses,
		draw: func(dst []uint8, at int) { // of independent pixels
			r := rng.New(seed, "audit", "pixels", at)
			for i := range dst {
				dst[i] = uint8(r.UintN(256))
			}
		}}
	// The secret chooses calibration points: a fixed one makes audits repeatable.
	o := client.Options{Calibrate: k.points, Secret: &client.Secret{1}}
	u, _, err := cl.Upload(ctx, src, o, "client")
	if err != nil {
		return nil, nil, err
	}
	u.Precision = federate.Single
	data, err := u.EncodeWithin(cl.Manifest.Bytes)
	if err != nil {
		return nil, nil, err
	}
	u, err = federate.Decode(data, federate.Expect{})
	return u, src, err
}

// unpack reads pixels out of the rows of an upload: class means times the number of images, of
// which a gate lets one through, and calibration points. Each image is compared with every row of
// its class, and the best counts: a server would tell by itself which guess is no picture.
func (l *Leak) unpack(ctx context.Context, cl *client.Client, k leaking, seed uint64) error {
	u, src, err := send(ctx, cl, k, seed)
	if err != nil {
		return err
	}
	h, labels := u.Points.Labelled()
	rows, width := map[int][][]float32{}, cl.Manifest.PointWidth()
	for i, y := range labels {
		row := slices.Clone(h[i*width : (i+1)*width])
		for j := range row {
			row[j] *= u.Points.W[i]
		}
		rows[y] = append(rows[y], row)
	}
	points, of := []float32(nil), []int(nil)
	if u.Calibration != nil {
		points, of = u.Calibration.Labelled()
	}
	if u.Within != nil {
		points, of = u.Within.Calibration, u.Within.Labels
	}
	for i, y := range of {
		rows[y] = append(rows[y], points[i*width:(i+1)*width])
	}
	size := cl.Fit.Size()
	for i, image := range src.images {
		best := 0.0
		for _, row := range rows[i%leakClasses] {
			best = max(best, known(unpacked(row, size, k.moments), image))
		}
		l.Bits += best / float64(len(src.images))
		l.Best = max(l.Best, best)
	}
	return nil
}

// unpacked returns the pixels that a row packs. A row that was scaled has its factor in the last
// number. Of squares the upload has the roots, so that numbers are packed ones again. Features
// outside of the range give zeros.
func unpacked(row []float32, size int, scaled bool) []uint8 {
	scale := 1.0
	if scaled {
		scale = reference / float64(row[len(row)-1])
	}
	out := make([]uint8, size)
	for i := range out {
		v := math.Round(float64(row[i/3]) * scale)
		if !(v >= 0 && v < reference) {
			continue // of no single image
		}
		out[i] = uint8(int(v) >> (8 * (i % 3)))
	}
	return out
}

// known returns the bits of an image's pixels that a guess has right: 0 of as many as a guess at
// random may have, all of all. With r right of n pixels and c = n/256 + 4 sqrt(n/256) it is 8 n (r
// - c)/(n - c). Here c is the mean of a guess at random and four of its standard deviations. guess
// and image have alike many pixels. Each wrong pixel loses its 8 bits in full.
func known(guess, image []uint8) float64 {
	right := 0
	for i, p := range image {
		if guess[i] == p {
			right++
		}
	}
	n := float64(len(image))
	chance := n/256 + 4*math.Sqrt(n/256)
	return 8 * n * max(0, float64(right)-chance) / (n - chance)
}

// regress measures an approved extractor: the server learns from images of its own to tell an
// image's pixels from the class mean that the image is behind, by ridge regression, and the bits
// are those of a channel with normal noise, a half log2(variance/mean square error) added over the
// pixels, which are independent, less those of a decoder that learned from wrong images. It is a
// lower bound, by a linear decoder. Images to learn from and to be measured on are drawn from
// different seeds. With n examples the decoder solves W = (X'X + r I)^-1 X'Y, in O(n d^2 + d^3 + n
// d p) for d features and p pixels. The second pass estimates the bias of the first, as a decoder
// with no knowledge has some bits by chance.
func (l *Leak) regress(ctx context.Context, cl *client.Client, k leaking, seed uint64) error {
	size, dx := cl.Fit.Size(), cl.Manifest.PointWidth()
	var x, y [2]*mat.Dense // to learn from, and to be measured on
	for part := range x {
		x[part], y[part] = mat.NewDense(regressed*leakClasses, dx+1, nil),
			mat.NewDense(regressed*leakClasses, size, nil)
		for i := range regressed {
			u, src, err := send(ctx, cl, k, seed+uint64(1000*(part+1)+i))
			if err != nil {
				return err
			}
			h, labels := u.Points.Labelled()
			for j, c := range labels {
				at := i*leakClasses + j
				x[part].Set(at, dx, 1)
				for d, v := range h[j*dx : (j+1)*dx] {
					x[part].Set(at, d, float64(v))
				}
				for d, v := range src.images[c] { // the first of its class
					y[part].Set(at, d, float64(v)-127.5)
				}
			}
		}
	}
	var gram mat.SymDense
	gram.SymOuterK(1, x[0].T())
	trace := mat.Trace(&gram)
	// The ridge is a thousandth of the mean diagonal of X'X.
	for d := range dx + 1 {
		gram.SetSym(d, d, gram.At(d, d)+1e-3*trace/float64(dx+1))
	}
	var chol mat.Cholesky
	if !chol.Factorize(&gram) {
		return errors.New("the features' covariance is singular")
	}
	wrong := mat.NewDense(regressed*leakClasses, size, nil)
	for i := range regressed * leakClasses {
		wrong.SetRow((i+1)%(regressed*leakClasses), y[0].RawRowView(i))
	}
	for k, from := range []*mat.Dense{y[0], wrong} {
		sign := 1 - 2*float64(k)
		var right, w, guess mat.Dense
		right.Mul(x[0].T(), from)
		if err := chol.SolveTo(&w, &right); err != nil {
			return err
		}
		guess.Mul(x[1], &w)
		for d := range size {
			var variance, missed float64
			for i := range regressed * leakClasses {
				v := y[1].At(i, d)
				variance, missed = variance+v*v, missed+(v-guess.At(i, d))*(v-guess.At(i, d))
			}
			l.Bits += sign * math.Log2(variance/missed) / 2
		}
	}
	l.Bits = max(0, l.Bits)
	l.Best = l.Bits
	return nil
}

// drawnImages is a source of n images, of the classes in turn, which it keeps: draw writes the
// pixels of the one at a place. It is for one pass, and for one goroutine.
type drawnImages struct {
	n, classes int
	draw       func(dst []uint8, at int)
	images     [][]uint8
}

// Len is the number of images; there is nothing to close.
func (s *drawnImages) Len() int     { return s.n }
func (s *drawnImages) Close() error { return nil }

// Next draws the next image into dst, and keeps a copy of it. dst is the caller's buffer, which it
// uses again.
func (s *drawnImages) Next(_ context.Context, dst []uint8) (imagefile.Item, error) {
	at := len(s.images)
	s.draw(dst, at)
	s.images = append(s.images, slices.Clone(dst))
	return imagefile.Item{Label: at % s.classes, Digest: sha256.Sum256(dst)}, nil
}
