// Package extractor turns images into feature rows by running an ONNX image model, our own or a
// third party's: any input size, 1 or 3 channels, NCHW or NHWC, float32 or uint8 pixels, a fixed or
// open batch.
package extractor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"fmp/featurize/dataset"
	"fmp/featurize/imagefile"
	"fmp/featurize/published"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/engine"
	"fmp/onnx/shape"
)

// Extractor is a model ready to turn images into features. Its sessions are of one engine, one for
// each thread or one for all. Calls of Features must follow one another where a session serves one
// goroutine: each call uses all sessions.
type Extractor struct {
	opt      Options
	sig      signature
	fit      imagefile.Fit // shape that images are brought to
	bgr      bool          // blue first
	manifest models.Manifest
	model    *onnx.Model // pruned to the features
	inside   bool        // the model of the file computes in half precision behind a float32 input
	spelt    bool        // the model is spelt otherwise than that of the file
	sessions []engine.Session
	shared   bool // all threads use sessions[0]
	mean     []float32
	std      []float32
	name     string
	dx       int
	digest   string
	notes    []string
	layer    Layer
}

// Open loads the model file at path, or the published extractor of that name ([published.Find]),
// with its manifest and side-car file, for images of the given size, and runs it once on a blank
// image, so that a model that cannot work is refused here. Options of o go before those of the
// side-car file, and these before the manifest's. The caller closes the result.
func Open(eng engine.Engine, path string, o Options, images dataset.Images) (*Extractor, error) {
	var x *Extractor
	err := fromFile(path, func(m *onnx.Model, f models.Manifest, side Options, from string) error {
		o, err := o.over(side)
		if err != nil {
			return err
		}
		if x, err = New(eng, m, f, o, images); err == nil && from != "" {
			x.notes = append(x.notes, "preprocessing is read from "+filepath.Base(from))
		}
		return err
	})
	return x, err
}

// fromFile loads the model at path, or the published extractor of that name ([published.Find]), and
// its side-car file. It calls use with both, the manifest, and the path of the side-car file.
// Errors of use say which file they are of.
func fromFile(path string,
	use func(m *onnx.Model, f models.Manifest, side Options, from string) error) error {
	path, err := published.Find(path)
	if err != nil {
		return err
	}
	m, manifest, err := models.Load(path)
	if err != nil {
		return err
	}
	side, from, err := Sidecar(path)
	if err != nil {
		return err
	}
	if err := use(m, manifest, side, from); err != nil {
		return fmt.Errorf("extractor %s: %w", path, err)
	}
	return nil
}

// New is Open for a model in memory. Of images only the size and channels are used. Steps: settle
// options, make the model plain, find input and features, prune, check, load, try on a blank image,
// try images beside each other. An error closes the sessions that were opened.
func New(eng engine.Engine, m *onnx.Model, manifest models.Manifest, o Options,
	images dataset.Images) (*Extractor, error) {
	err := isExtractor(manifest)
	if err != nil {
		return nil, err
	}
	if o, err = o.settle(fromManifest(manifest)); err != nil {
		return nil, err
	}
	inside := halfInside(m)
	if m, err = plain(m); err != nil {
		return nil, err
	}
	sig, err := read(m, o, images.Ch)
	if err != nil {
		return nil, err
	}
	x := &Extractor{opt: o, sig: sig, manifest: manifest,
		name: cmp.Or(manifest.Source, m.Graph.Name), inside: inside}
	// Nodes behind the features play no part: they are cut off before they could be refused.
	pruned := prune(m, sig.output)
	x.layer = Layer{Value: sig.output, Why: sig.why, Without: without(m.Graph, pruned.Graph)}
	x.model, x.spelt = portable(pruned)
	if err := x.shape(images); err != nil {
		return nil, err
	}
	if err := evaluates(x.model); err != nil {
		return nil, err
	}
	if err := x.setScale(); err != nil {
		return nil, err
	}
	if x.digest, err = x.makeDigest(m, eng.Name()); err != nil {
		return nil, err
	}
	if err := x.load(eng); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	if err := x.try(images); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	if err := x.beside(); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// isExtractor refuses models that say of themselves that they are something else. A model without a
// manifest may be one.
func isExtractor(f models.Manifest) error {
	if f.Kind != "" && f.Kind != models.KindExtractor {
		return fmt.Errorf("the model is a %s, not an extractor", f.Kind)
	}
	return nil
}

// Body returns the model without the layers behind its features, and the name of these. Of o the
// output alone is used. m is not changed, and shares its weights with the result. The shapes in the
// result are inferred.
func Body(m *onnx.Model, o Options) (*onnx.Model, string, error) {
	value, _, err := featureValue(m.Graph, o.Output)
	if err != nil {
		return nil, "", err
	}
	body := prune(m, value)
	return body, value, shape.Infer(body)
}

// Feeder returns a function that makes the input of the model at path of images, as [Extractor]
// does: for a model that is trained. All images are of one size; where the model's batch is fixed,
// images must fill it. The model becomes the one that an [Extractor] runs: in float32, with weights
// that are standardised beforehand. Each call of the function makes a tensor of its own.
func Feeder(
	path string, m *onnx.Model, manifest models.Manifest, o Options, images dataset.Images,
) (func(*dataset.Images) (map[string]*onnx.Tensor, error), []string, error) {
	side, _, err := Sidecar(path)
	if err != nil {
		return nil, nil, err
	}
	if o, err = o.settle(side, fromManifest(manifest)); err != nil {
		return nil, nil, err
	}
	simple, err := plain(m)
	if err != nil {
		return nil, nil, err
	}
	*m = *simple
	sig, err := readInput(m, o, images.Ch)
	if err != nil {
		return nil, nil, err
	}
	x := &Extractor{opt: o, sig: sig}
	if err := errors.Join(x.shape(images), x.setScale()); err != nil {
		return nil, nil, err
	}
	return func(im *dataset.Images) (map[string]*onnx.Tensor, error) {
		t, err := x.feed(im, 0, im.N, x.buffer())
		return map[string]*onnx.Tensor{sig.input: t}, err
	}, x.notes, nil
}

// shape settles the shape that images are brought to, and how many of them go through the model at
// once. A batch that the model fixes goes before that of the options.
func (x *Extractor) shape(images dataset.Images) error {
	batch := x.sig.batch
	x.sig.h, x.sig.w = cmp.Or(x.sig.h, images.H), cmp.Or(x.sig.w, images.W)
	if x.sig.h < 1 || x.sig.w < 1 || x.sig.h > maxInputSide || x.sig.w > maxInputSide {
		return fmt.Errorf("images of %dx%d pixels; allowed are 1 to %d a side", x.sig.h,
			x.sig.w, maxInputSide)
	}
	if x.bgr = x.opt.Channels == BGR; x.bgr && x.sig.ch != 3 {
		return fmt.Errorf("extractor.channels is bgr and the model takes %d "+
			"channel; want 3", x.sig.ch)
	}
	x.fit = imagefile.Fit{H: x.sig.h, W: x.sig.w, Ch: x.sig.ch,
		Resize: imagefile.Resize(x.opt.Resize)}
	x.opt.Batch = cmp.Or(x.opt.Batch, batchOf(x.sig.h, x.sig.w))
	if batch > 0 {
		x.opt.Batch = batch
	}
	return nil
}

// load opens the sessions of all threads.
func (x *Extractor) load(eng engine.Engine) error {
	// Sessions of the ONNX Runtime take calls from several goroutines; other engines get one a
	// worker.
	x.shared = eng.Name() == "ort"
	x.opt.Threads = max(1, x.opt.Threads)
	for i := 0; i < x.opt.Threads && (i == 0 || !x.shared); i++ {
		s, err := eng.Load(x.model)
		if err != nil {
			// the check's error names the remedy; an engine's may not
			if why := check.Model(x.model); why != nil {
				err = fmt.Errorf("%w (%w)", err, why)
			}
			return err
		}
		x.sessions = append(x.sessions, s)
	}
	return nil
}

// try runs the model on a blank image and takes the number of features from it. The note on where
// they come from is for models without a manifest, for which it was guessed. The blank image is
// black in the data set's own size.
func (x *Extractor) try(images dataset.Images) error {
	blank := &dataset.Images{N: 1, H: images.H, W: images.W, Ch: images.Ch,
		Pix: make([]uint8, images.H*images.W*images.Ch)}
	probe, over, err := x.batch(x.sessions[0], blank, 0, 1, x.buffer())
	if err != nil {
		return fmt.Errorf("trying the model on a blank image: %w", err)
	}
	if x.manifest.Kind == "" {
		// First, as the most important note.
		x.notes = append([]string{fmt.Sprintf("features are %q, %s%s", x.sig.output,
			x.sig.why, over)}, x.notes...)
	}
	// Every later batch must give as many features.
	x.dx, x.layer.Over = len(probe), strings.TrimPrefix(over, ", ")
	if x.manifest.Dx != 0 && x.manifest.Dx != x.dx {
		return fmt.Errorf("its manifest says dx %d and it gives %d features", x.manifest.Dx, x.dx)
	}
	return nil
}

// Layer is where features are taken from a model.
type Layer struct {
	Value string `json:"value"`
	Why   string `json:"why"`
	// Over names the pixels or tokens that are averaged over; empty where there are none.
	Over string `json:"over,omitempty"`
	// Without are the layers that the features do not need and that are cut off, each by its
	// operator and the value that it gives, in the order of the model. Constants are not listed.
	Without []string `json:"cut_off"`
}

// Layer returns where the features are taken from.
func (x *Extractor) Layer() Layer { return x.layer }

// without lists the nodes of all that are not among some. Nodes are compared by identity: pruning
// copies none.
func without(all, some *onnx.Graph) []string {
	kept := map[*onnx.Node]bool{}
	for _, n := range some.Nodes {
		kept[n] = true
	}
	out := []string{}
	for _, n := range all.Nodes {
		if !kept[n] && n.Op != "Constant" && len(n.Outputs) > 0 {
			out = append(out, n.Op+" "+n.Outputs[0])
		}
	}
	return out
}

// setScale resolves mean and std to one number per channel. A model of bytes has neither, and is
// fed the pixels themselves. An empty list is 0 for the mean and 1 for the deviation; one number is
// for all channels.
func (x *Extractor) setScale() error {
	ch := x.sig.ch
	if x.sig.dtype == onnx.Uint8 {
		if x.opt.Mean != nil || x.opt.Std != nil {
			return fmt.Errorf("the model takes uint8 pixels as they are; leave " +
				"extractor.mean, extractor.std and extractor.preset out")
		}
		return nil
	}
	if x.opt.Mean == nil && x.opt.Std == nil {
		x.notes = append(x.notes, "no mean and std were given: pixels are fed scaled to 0..1")
	}
	spread := func(name string, v []float64, def float32) ([]float32, error) {
		out := make([]float32, ch)
		for i := range out {
			switch {
			case len(v) == 0:
				out[i] = def
			case len(v) == 1:
				out[i] = float32(v[0])
			case len(v) == ch:
				out[i] = float32(v[i])
			default:
				return nil, fmt.Errorf("extractor.%s has %d numbers and the model %d channels; "+
					"give one number, or one a channel", name, len(v), ch)
			}
		}
		return out, nil
	}
	var err error
	if x.mean, err = spread("mean", x.opt.Mean, 0); err != nil {
		return err
	}
	x.std, err = spread("std", x.opt.Std, 1)
	return err
}

// makeDigest hashes all that the features of an image depend on. It is the SHA-256 of a JSON
// object. Threads are not in it, as features do not depend on them. The fields' names and their
// order are part of it. The batch is in it, as engines may sum otherwise for another.
func (x *Extractor) makeDigest(m *onnx.Model, engineName string) (string, error) {
	model := x.manifest.Digest
	if model == "" {
		var err error
		if model, err = models.Digest(m); err != nil {
			return "", err
		}
	}
	s := x.sig
	key, err := json.Marshal(struct {
		Version                    int
		Model, Engine, Output      string
		Mean, Std                  []float32
		NHWC                       bool
		Batch, Height, Width, Chan int
		Uint8                      bool
		BGR                        bool   `json:",omitempty"`
		Resize                     string `json:",omitempty"`
		// These two are written for such models alone, so that kept features of others stay good.
		HalfInside bool `json:",omitempty"`
		Spelt      bool `json:",omitempty"`
	}{1, model, engineName, s.output, x.mean, x.std, s.nhwc, x.opt.Batch, s.h, s.w, s.ch,
		s.dtype == onnx.Uint8, x.bgr, x.manifestResize(), x.inside, x.spelt && engineName == "ort"})
	if err != nil {
		return "", fmt.Errorf("digest of extractor: %w", err)
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:]), nil
}

// manifestResize returns the resize mode as manifests state it: "" for stretch.
func (x *Extractor) manifestResize() string {
	if x.fit.Resize == imagefile.Stretch {
		return ""
	}
	return string(x.fit.Resize)
}

// Fit returns the shape of the images that the model at path takes, with its side-car file applied;
// height and width are 0 where one of them is open. Nothing is computed by the model, so that no
// engine is needed.
func Fit(path string, o Options) (of imagefile.Fit, err error) {
	err = fromFile(path, func(m *onnx.Model, f models.Manifest, side Options, _ string) error {
		of, err = fit(m, f, side, o)
		return err
	})
	return of, err
}

// fit is [Fit] for a model in memory. Three channels are assumed where the model leaves them open.
func fit(m *onnx.Model, manifest models.Manifest, side, o Options) (imagefile.Fit, error) {
	none := imagefile.Fit{}
	err := isExtractor(manifest)
	if err != nil {
		return none, err
	}
	if o, err = o.settle(side, fromManifest(manifest)); err != nil {
		return none, err
	}
	if m, err = plain(m); err != nil {
		return none, err
	}
	sig, err := readInput(m, o, 3)
	if err != nil || sig.h == 0 || sig.w == 0 {
		return none, err
	}
	return imagefile.Fit{H: sig.h, W: sig.w, Ch: sig.ch, Resize: imagefile.Resize(o.Resize)}, nil
}

// Dx returns the number of features of an image.
func (x *Extractor) Dx() int { return x.dx }

// Batch returns the number of images per call.
func (x *Extractor) Batch() int { return x.opt.Batch }

// Digest returns a digest of the model, its preprocessing, batch and engine.
func (x *Extractor) Digest() string { return x.digest }

// ModelDigest returns the SHA-256 of the model file and of its tensors in files beside it
// ([models.Load]), which predictors and embeddings trained behind it record.
func (x *Extractor) ModelDigest() string { return x.manifest.Digest }

// Manifest returns the model's manifest; its Kind is empty for a third-party model.
func (x *Extractor) Manifest() models.Manifest { return x.manifest }

// Standardised reports whether the model standardises its features itself: our extractors do, with
// the statistics of the part that they were trained on.
func (x *Extractor) Standardised() bool { return x.manifest.Kind == models.KindExtractor }

// Notes returns the decisions made for the user: which output holds the features, which scaling was
// assumed.
func (x *Extractor) Notes() []string { return x.notes }

// Close releases the sessions. The extractor cannot be used after. A second call does nothing.
func (x *Extractor) Close() error {
	var errs []error
	for _, s := range x.sessions {
		errs = append(errs, s.Close())
	}
	x.sessions = nil
	return errors.Join(errs...)
}

// Features computes the features of all images: [N, dx], row-major. Progress, if not nil, is called
// with the number of images done, possibly from several goroutines. Features that are not finite
// are an error. Of files ([dataset.Images.Lazy]) each worker holds the pixels of one batch; the
// features of an image that cannot be decoded, where that is no error, are NaN. On an error of one
// batch the others are stopped at their next, and no features are returned.
func (x *Extractor) Features(ctx context.Context, images *dataset.Images,
	progress func(done, total int)) ([]float32, error) {
	n := images.N
	// The product is bounded before memory is taken for it.
	if int64(n)*int64(x.dx) > onnx.MaxElements {
		return nil, fmt.Errorf("%d images of %d features are more than %d numbers", n, x.dx,
			onnx.MaxElements)
	}
	out := make([]float32, n*x.dx)
	batches := (n + x.opt.Batch - 1) / x.opt.Batch
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for w := range min(x.opt.Threads, max(batches, 1)) {
		s := x.sessions[0]
		if !x.shared {
			s = x.sessions[w]
		}
		g.Go(func() error {
			buf := x.buffer()
			for {
				if err := ctx.Err(); err != nil {
					return err
				}
				// Workers take batches as they are done with the one before. Rows go to their
				// images' places.
				from := int(next.Add(1)-1) * x.opt.Batch
				if from >= n {
					return nil
				}
				to := min(from+x.opt.Batch, n)
				rows, err := x.some(ctx, s, images, from, to, buf)
				if err != nil {
					return fmt.Errorf("extractor %s: images %d to %d: %w", x.name, from, to-1, err)
				}
				copy(out[from*x.dx:], rows)
				if k := int(done.Add(int64(to - from))); progress != nil {
					progress(k, n)
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

// some returns the features of images from..to-1, which it loads. Of images in memory only a slice
// is taken.
func (x *Extractor) some(ctx context.Context, s engine.Session, images *dataset.Images, from,
	to int, buf *buffer) ([]float32, error) {
	held, bad, err := images.Load(ctx, from, to)
	if err != nil {
		return nil, err
	}
	rows, _, err := x.batch(s, held, 0, held.N, buf)
	if err != nil {
		return nil, err
	}
	if len(rows) != held.N*x.dx {
		return nil, fmt.Errorf("they give %d numbers; a blank image gave %d features",
			len(rows), x.dx)
	}
	// Black images have features too, which must not be taken for theirs.
	for _, b := range bad {
		for k := range x.dx {
			rows[b.Index*x.dx+k] = float32(math.NaN())
		}
	}
	return rows, nil
}

// batch runs images from..to-1 and returns their pooled features, and the axes they were averaged
// over, in words. Rows of the copies that fill a fixed batch are cut off. The rows may be the
// memory of the engine's output. An error for features that are not finite counts images from the
// first of the batch.
func (x *Extractor) batch(s engine.Session, images *dataset.Images, from, to int,
	buf *buffer) (rows []float32, over string, err error) {
	n := to - from
	in, err := x.feed(images, from, to, buf)
	if err != nil {
		return nil, "", err
	}
	fetch, err := engine.Eval(s, map[string]*onnx.Tensor{x.sig.input: in}, x.sig.output)
	if err != nil {
		return nil, "", err
	}
	rows, over, err = x.pool(fetch[x.sig.output], in.Shape[0])
	if err != nil {
		return nil, "", err
	}
	dx := len(rows) / in.Shape[0]
	rows = rows[:n*dx]
	for i, v := range rows {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, "", fmt.Errorf("feature %d of the image %d after the first is %v; "+
				"features must be finite: check extractor.mean and extractor.std, and the model",
				i%dx, i/dx, v)
		}
	}
	return rows, over, nil
}

// pool brings the model's output to [n, dx]: a map of features is averaged over its pixels (the
// last two axes, or the middle two for an NHWC model), a sequence of tokens over the tokens. For a
// map or tokens v [n, inner, d] it is
//
//	features_ik = 1/inner sum_j v_ijk
//
// summed in float64 and rounded once. Sums are in the order of the pixels, so that they do not
// depend on threads.
func (x *Extractor) pool(t *onnx.Tensor, n int) (features []float32, over string, err error) {
	if t == nil {
		return nil, "", fmt.Errorf("the model gave no %q", x.sig.output)
	}
	v, err := float32s(t)
	if err != nil {
		return nil, "", fmt.Errorf("output %q: %w", x.sig.output, err)
	}
	if len(t.Shape) == 0 || t.Shape[0] != n || t.Len() == 0 {
		return nil, "", fmt.Errorf("output %q is %v for %d images; its first dimension "+
			"must be theirs", x.sig.output, t.Shape, n)
	}
	// v is [n, inner, d] with the pixels on axis 1, or [n, d, inner] where last
	inner, d := 1, 0
	last := false
	switch len(t.Shape) {
	case 2:
		return v, "", nil
	case 3:
		inner, d = t.Shape[1], t.Shape[2]
		over = fmt.Sprintf(", averaged over %d tokens", inner)
	case 4:
		// other are the axes that would be averaged over if the layout were the other one.
		rows, cols := t.Shape[2], t.Shape[3]
		other := t.Shape[1:3]
		if d, last = t.Shape[1], !x.sig.nhwc; x.sig.nhwc {
			rows, cols, d, other = t.Shape[1], t.Shape[2], t.Shape[3], t.Shape[2:]
		}
		if !x.shapedLikeImages(rows, cols) && x.shapedLikeImages(other[0], other[1]) {
			return nil, "", fmt.Errorf("output %q is %v for images of %dx%d pixels: its channels "+
				"are not on the axis of the input's, so that others would be averaged over; name "+
				"a value of the input's layout with extractor.output, next to a Transpose, or "+
				"export the network with its average", x.sig.output, t.Shape, x.sig.h, x.sig.w)
		}
		inner = rows * cols
		over = fmt.Sprintf(", averaged over %d x %d pixels", rows, cols)
	default:
		return nil, "", fmt.Errorf("output %q is %v; features are [batch, dx], [batch, "+
			"tokens, dx] or a map of 4 dimensions: name another value with extractor.output",
			x.sig.output, t.Shape)
	}
	out := make([]float32, n*d)
	for i := range n {
		for k := range d {
			var sum float64
			for j := range inner {
				if last {
					sum += float64(v[(i*d+k)*inner+j])
				} else {
					sum += float64(v[(i*inner+j)*d+k])
				}
			}
			out[i*d+k] = float32(sum / float64(inner))
		}
	}
	return out, over, nil
}

// shapedLikeImages reports whether the pixels of a map have the proportions of the images', but for
// a rounded side. These are rows / cols and h / w: they agree where |rows w - cols h| is at most
// max(h, w). A map of h/s x w/s pixels with a stride s that does not divide them has rounded sides.
func (x *Extractor) shapedLikeImages(rows, cols int) bool {
	h, w := x.sig.h, x.sig.w
	return max(rows*w-cols*h, cols*h-rows*w) <= max(h, w)
}

// float32s returns a tensor's elements as float32. Elements of float32 are not copied; others are
// rounded to the nearest.
func float32s(t *onnx.Tensor) ([]float32, error) {
	if v := t.F32(); v != nil {
		return v, nil
	}
	if !t.DType.IsFloat() {
		return nil, fmt.Errorf("elements are %v; features are float32, float64, "+
			"float16 or bfloat16", t.DType)
	}
	out := make([]float32, t.Len())
	for i := range out {
		out[i] = float32(t.At(i))
	}
	return out, nil
}

// Client returns the model, pruned to its features, and the preprocessing that a fused client graph
// puts before it (models.ClientGraph); the graph takes images of the model's own input size. mean
// and std, where given, are those of each feature. The model is the extractor's own: callers clone
// it before they change it.
func (x *Extractor) Client(mean, std []float32) (*onnx.Model, models.Preprocessing) {
	return x.model, models.Preprocessing{
		Height: x.sig.h, Width: x.sig.w, Channels: x.sig.ch, Mean: x.mean,
		Std: x.std, NHWC: x.sig.nhwc,
		Raw: x.sig.dtype == onnx.Uint8, BGR: x.bgr, Resize: x.manifestResize(), Input: x.sig.input,
		Output: x.sig.output, FeatureMean: mean,
		FeatureStd: std,
	}
}
