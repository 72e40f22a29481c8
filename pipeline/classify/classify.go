// Package classify runs images, or feature rows, through a classifier, the file that fmp pool
// writes. It is part of the program for small devices: images are streamed in small batches.
package classify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/cost"
	"fmp/onnx/engine"
	"fmp/onnx/pass"
)

// maxItems bounds the number of images of a source.
const maxItems = 1_000_000

// Limits bound a run of a classifier: the work of [cost.Foreign] an image, and 4 GiB, as a server
// runs the images of several requests at once.
var Limits = engine.Limits{Work: cost.Foreign.Work, Bytes: 4 << 30}

// Classifier is a classifier model, ready to run.
type Classifier struct {
	Manifest models.Manifest
	// Fit is the shape of its images; Fit.H is 0 for a classifier of feature rows.
	Fit imagefile.Fit
	// Batch is the number of images per call; OpenAt sets 8, as larger batches take more memory and
	// are hardly faster.
	Batch int

	session engine.Session
	outputs []string
	engine  engine.Engine
	whole   *onnx.Model // with all outputs, where it can be adapted
	shift   *onnx.Tensor
	seen    map[[sha256.Size]byte]bool // by [Classifier.Alone]; nil for others
}

// Outputs of a classifier, as models.NewClassifier names them; some may be missing.
const (
	probabilities     = "probabilities"
	entropy           = "entropy"
	mutualInformation = "mutual_information"
	low               = "low"
	high              = "high"
	set               = models.SetOutput
	uncalibrated      = models.UncalibratedOutput
	samples           = models.SamplesOutput
)

// OpenAt loads a classifier from the file path. Its prediction sets have a level, 0 the stored one.
func OpenAt(eng engine.Engine, path string, level float64) (*Classifier, error) {
	open, err := Read(path, level)
	if err != nil {
		return nil, err
	}
	return open(eng)
}

// Opener opens a classifier whose file was read on an engine.
type Opener func(engine.Engine) (*Classifier, error)

// Read is the part of [OpenAt] that needs no engine, which may start meanwhile.
func Read(path string, level float64) (Opener, error) {
	m, f, err := models.Load(path)
	if err != nil {
		return nil, err
	}
	if level != 0 {
		if m, f, err = models.AtLevel(m, f, level); err != nil {
			return nil, fmt.Errorf("classifier %s: %w", path, err)
		}
	}
	return opener(path, m, f, scored(m)...), nil
}

// opener opens a model that was read from a path, with further outputs.
func opener(path string, m *onnx.Model, f models.Manifest, further ...string) Opener {
	return func(eng engine.Engine) (*Classifier, error) {
		c, err := open(eng, m, f, further...)
		if err != nil {
			return nil, fmt.Errorf("classifier %s: %w", path, err)
		}
		return c, nil
	}
}

// New is OpenAt for a model in memory with its manifest.
func New(eng engine.Engine, m *onnx.Model, f models.Manifest) (*Classifier, error) {
	return open(eng, m, f, scored(m)...)
}

// scored returns the output that prediction sets are of, where a model has them: they have it
// computed.
func scored(m *onnx.Model) (further []string) {
	if _, ok := m.Graph.Output(set); ok {
		further = []string{uncalibrated}
	}
	return further
}

// open is New with further outputs.
func open(eng engine.Engine, m *onnx.Model, f models.Manifest,
	further ...string) (*Classifier, error) {
	if f.Kind != models.KindClassifier {
		kind := fmt.Sprintf("a %s", f.Kind)
		if f.Kind == "" {
			kind = "no model of this program's (it has no property fmp.kind)"
		}
		return nil, fmt.Errorf("it is %s; want the classifier that fmp pool writes", kind)
	}
	c := &Classifier{Manifest: f, Batch: 8, engine: eng}
	m, err := models.FixedSize(m, f) // images are resized here, and need not be resized twice
	if err != nil {
		return nil, err
	}
	in := m.Graph.Inputs
	if len(in) != 1 {
		return nil, fmt.Errorf("it has %d inputs; want one, images or features", len(in))
	}
	switch {
	case in[0].Name == "images":
		if c.Fit, err = imagefile.FitOf(in[0], f); err != nil {
			return nil, err
		}
	case in[0].Name != "features" || in[0].DType != onnx.Float32 || len(in[0].Shape) != 2:
		return nil, fmt.Errorf("its input is %v; want images or features", in[0])
	}
	for _, name := range append([]string{probabilities, entropy, mutualInformation, low, high,
		set}, further...) {
		if _, ok := m.Graph.Output(name); ok {
			c.outputs = append(c.outputs, name)
		}
	}
	if len(c.outputs) == 0 || c.outputs[0] != probabilities || f.C < 2 {
		return nil, fmt.Errorf("its outputs are %v, for %d classes; want %s, for 2 classes or more",
			m.Graph.Outputs, f.C, probabilities)
	}
	if _, ok := m.Graph.Output(models.ShiftOutput); ok {
		c.whole = m
	}
	if c.session, err = c.load(m, c.outputs...); err != nil {
		return nil, err
	}
	return c, nil
}

// ReadHeads is [Read] of a classifier whose predictions have the probabilities of each head.
func ReadHeads(path string) (Opener, error) {
	m, f, err := models.Load(path)
	if err != nil {
		return nil, err
	}
	if f.Kind == models.KindClassifier {
		if m, err = models.WithSamples(m); err != nil {
			return nil, fmt.Errorf("classifier %s: %w", path, err)
		}
	}
	return opener(path, m, f, uncalibrated, samples), nil
}

// Through returns the classifier with a session of the caller's between it and the model. The two
// share the model; it is not closed.
func (c *Classifier) Through(wrap func(engine.Session) engine.Session) *Classifier {
	through := *c
	through.session = wrap(c.session)
	return &through
}

// Alone returns the classifier for counts with noise: it sees each image by itself and once, and
// one that it cannot classify has no probabilities. An error would tell of it, and copies of a file
// would be in more counts than the noise is for.
func (c *Classifier) Alone() *Classifier {
	alone := *c
	alone.Batch, alone.seen = 1, map[[sha256.Size]byte]bool{}
	return &alone
}

// BeforeCalibration returns the classifier as it was before a calibration, or as it is where it
// had none. Intervals and entropies are those of the calibrated one, and left out.
func (c *Classifier) BeforeCalibration() *Classifier {
	if !slices.Contains(c.outputs, uncalibrated) {
		return c
	}
	before := *c
	before.outputs = slices.DeleteFunc(slices.Clone(c.outputs),
		func(name string) bool { return name != uncalibrated && name != set })
	return &before
}

// load returns a session for some outputs of a model: others need not be computed.
func (c *Classifier) load(m *onnx.Model, outputs ...string) (engine.Session, error) {
	m = onnx.Clone(m)
	m.Graph.Outputs = slices.DeleteFunc(m.Graph.Outputs,
		func(v onnx.ValueInfo) bool { return !slices.Contains(outputs, v.Name) })
	pass.RemoveUnused(m.Graph)
	return cost.Bounded(c.engine, Limits).Load(m)
}

// TakesRows reports whether the classifier takes feature rows instead of images.
func (c *Classifier) TakesRows() bool { return c.Fit.H == 0 }

// Close releases the session.
func (c *Classifier) Close() error { return c.session.Close() }

// Class returns the name of class i, or its number if it has none.
func (c *Classifier) Class(i int) string {
	return imagefile.Classes{Names: c.Manifest.Classes}.Name(i)
}

// Names returns the names of all classes of a model, numbers of those without one.
func Names(f models.Manifest) []string {
	names := make([]string, f.C)
	for i := range names {
		names[i] = imagefile.Classes{Names: f.Classes}.Name(i)
	}
	return names
}

// Prediction is the prediction for one image.
type Prediction struct {
	imagefile.Item
	Probabilities []float32 // one per class, summing to 1; none of [Classifier.Alone]'s failures
	// Scored are the probabilities that prediction sets are of: those before a calibration
	// (models.UncalibratedOutput), else Probabilities.
	Scored []float32
	// Samples are the probabilities of each head before a calibration, [S, C]; nil but after
	// [ReadHeads].
	Samples []float32
	// Entropy and MutualInformation are in nats: the total uncertainty, and the part due to
	// disagreement of the heads.
	Entropy, MutualInformation float32
	// Low and High are the ends of the 90% intervals of the probabilities; nil for a classifier
	// without intervals.
	Low, High []float32
	// Set reports for each class whether it is in the prediction set; nil for a classifier without
	// sets.
	Set []bool
	// Pixels are those that the classifier saw, [H, W, Ch], valid until the next batch; nil for
	// feature rows.
	Pixels []uint8
}

// finite reports whether all numbers are.
func (p *Prediction) finite() bool {
	for _, row := range [][]float32{p.Probabilities, p.Scored, p.Samples, p.Low, p.High,
		{p.Entropy, p.MutualInformation}} {
		if !finite(row) {
			return false
		}
	}
	return true
}

// finite reports whether all numbers are.
func finite(x []float32) bool {
	return !slices.ContainsFunc(x, func(v float32) bool { return v-v != 0 })
}

// Top returns the two most probable classes, of equals the one of lower number. It costs O(C), and
// wants two classes or more.
func (p *Prediction) Top() (first, second int) {
	second = 1
	if p.Probabilities[1] > p.Probabilities[0] {
		first, second = 1, 0
	}
	for i := 2; i < len(p.Probabilities); i++ {
		switch v := p.Probabilities[i]; {
		case v > p.Probabilities[first]:
			first, second = i, first
		case v > p.Probabilities[second]:
			second = i
		}
	}
	return first, second
}

// Images classifies the images of a source, in its order, and passes them to do one batch at a
// time. With skip, bad images are left out and returned; without it, the caller reports them as an
// error. They are those that cannot be read, and those of which the classifier makes numbers that
// are not finite. It is an error if no image remains. An error of anything but images comes alone.
func (c *Classifier) Images(ctx context.Context, src imagefile.Source, skip bool,
	do func([]Prediction) error) (bad []error, err error) {
	if c.TakesRows() {
		return nil, fmt.Errorf("the classifier takes feature rows; fmp pool without --rows makes " +
			"one that takes images")
	}
	used := 0
	var unclear []error
	bad, err = imagefile.Read(ctx, src, c.Fit, c.Batch, skip,
		func(pixels []uint8, items []imagefile.Item) error {
			ps, bad, err := c.run(onnx.NewTensor(pixels, len(items), c.Fit.H, c.Fit.W, c.Fit.Ch),
				"images", items, src)
			unclear, used = append(unclear, bad...), used+len(ps)
			if err != nil || len(unclear) > 0 && !skip || len(ps) == 0 {
				return err
			}
			return do(ps)
		})
	if err != nil {
		return nil, err
	}
	if bad = append(bad, unclear...); skip && len(bad) > 0 && used == 0 {
		err = fmt.Errorf("none of the images can be classified: %w", errors.Join(bad...))
	}
	return bad, err
}

// Rows classifies feature rows, [n, dx] of float32, which are named by their numbers. labels may be
// nil. Rows of which the classifier makes numbers that are not finite are an error that joins an
// [imagefile.BadImage] of each of the first ([imagefile.First]).
func (c *Classifier) Rows(ctx context.Context, rows *onnx.Tensor, labels []int,
	do func([]Prediction) error) error {
	if !c.TakesRows() {
		return fmt.Errorf("the classifier takes images of %dx%d pixels and %d channels; fmp pool "+
			"--rows makes one that takes feature rows", c.Fit.H, c.Fit.W, c.Fit.Ch)
	}
	x := rows.F32()
	if len(rows.Shape) != 2 || rows.Shape[1] != c.Manifest.Dx || x == nil {
		return fmt.Errorf("feature rows are %v; want float32 [n, %d]", rows, c.Manifest.Dx)
	}
	n, dx := rows.Shape[0], c.Manifest.Dx
	if labels != nil && len(labels) != n {
		return fmt.Errorf("there are %d labels for %d feature rows; the two files do not "+
			"belong together", len(labels), n)
	}
	var bad []error
	for from := 0; from < n; from += c.Batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+c.Batch, n)
		items := make([]imagefile.Item, to-from)
		for i := range items {
			row := x[(from+i)*dx : (from+i+1)*dx]
			items[i] = imagefile.Item{Name: fmt.Sprint(from + i), Label: imagefile.Unlabelled,
				Digest: rowDigest(row)}
			if labels != nil {
				items[i].Label = labels[from+i]
			}
		}
		ps, unclear, err := c.run(onnx.NewTensor(x[from*dx:to*dx], to-from, dx), "features",
			items, nil)
		if bad = append(bad, unclear...); err == nil && len(bad) == 0 && len(ps) > 0 {
			err = do(ps)
		}
		if err != nil {
			return err
		}
	}
	return imagefile.First(bad)
}

// rowDigest is the sha256 of a feature row, in place of that of an image.
func rowDigest(row []float32) [sha256.Size]byte {
	data := make([]byte, 0, 4*len(row))
	for _, v := range row {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return sha256.Sum256(data)
}

// run returns the predictions of images, and the errors of those of which the classifier makes
// numbers that are not finite. These are left out of the source's counts. A classifier of
// [Classifier.Alone] has no errors: failures are predictions without probabilities.
func (c *Classifier) run(in *onnx.Tensor, input string, items []imagefile.Item,
	src imagefile.Source) (good []Prediction, bad []error, err error) {
	if c.seen != nil {
		if c.seen[items[0].Digest] {
			return nil, nil, nil
		}
		c.seen[items[0].Digest] = true
	}
	ps, err := c.predict(in, input, items)
	if err != nil && c.seen != nil {
		ps, err = []Prediction{{Item: items[0], Pixels: in.U8()}}, nil // a batch of one
	}
	if err != nil || c.seen != nil {
		return ps, nil, err
	}
	for i := range ps {
		p := &ps[i]
		if p.Probabilities != nil {
			good = append(good, *p)
			continue
		}
		imagefile.LeaveOut(src, p.Item)
		bad = append(bad, c.unclear(p.Name))
	}
	return good, bad, nil
}

// unclear returns the error of an image or feature row, by its name, of which the classifier makes
// numbers that are not finite.
func (c *Classifier) unclear(name string) error {
	err := fmt.Errorf("%s: no finite probabilities: the extractor's features are NaN or too large",
		name)
	if c.TakesRows() {
		err = fmt.Errorf("feature row %s: no finite probabilities: its numbers are too large; "+
			"scale them as the extractor gives them", name)
	}
	return &imagefile.BadImage{Err: err}
}

// predict returns the predictions of images, without probabilities where a number is not finite.
func (c *Classifier) predict(in *onnx.Tensor, input string,
	items []imagefile.Item) ([]Prediction, error) {
	out, err := engine.Eval(c.session, map[string]*onnx.Tensor{input: in}, c.outputs...)
	if err != nil {
		return nil, err
	}
	n, classes := len(items), c.Manifest.C
	for _, name := range c.outputs {
		want := n * classes
		if name == entropy || name == mutualInformation {
			want = n
		}
		if name == samples {
			want *= max(c.Manifest.S, 1)
		}
		have := len(out[name].F32())
		if name == set {
			in, _ := out[name].Data.([]bool)
			have = len(in)
		}
		if have != want {
			return nil, fmt.Errorf("the classifier's %s is %v for %d images; want %d values", name,
				out[name], n, want)
		}
	}
	ps := make([]Prediction, n)
	for i := range ps {
		p := &ps[i]
		p.Item = items[i]
		row := func(name string) []float32 {
			if t := out[name]; t != nil {
				return t.F32()[i*classes : (i+1)*classes]
			}
			return nil
		}
		p.Probabilities, p.Low, p.High = row(probabilities), row(low), row(high)
		if p.Scored = row(uncalibrated); p.Scored == nil {
			p.Scored = p.Probabilities
		} else if p.Probabilities == nil {
			p.Probabilities = p.Scored
		}
		if pixels := in.U8(); pixels != nil {
			size := c.Fit.Size()
			p.Pixels = pixels[i*size : (i+1)*size]
		}
		if t := out[samples]; t != nil {
			size := t.Len() / n
			p.Samples = t.F32()[i*size : (i+1)*size]
		}
		if t := out[set]; t != nil {
			p.Set = t.Data.([]bool)[i*classes : (i+1)*classes]
		}
		if t := out[entropy]; t != nil {
			p.Entropy = t.F32()[i]
		}
		if t := out[mutualInformation]; t != nil {
			p.MutualInformation = t.F32()[i]
		}
		if !p.finite() {
			*p = Prediction{Item: p.Item, Pixels: p.Pixels}
		}
		for k, v := range p.Probabilities {
			if v < 0 || v > 1.0001 {
				return nil, fmt.Errorf(
					"the classifier's probability of class %s for %s is %v; check that the "+
						"file is whole", c.Class(k), p.Name, v)
			}
		}
	}
	return ps, nil
}

// Source opens the images at a path for the classifier; labels are optional unless o asks for them.
func (c *Classifier) Source(path string,
	o imagefile.Options) (imagefile.Source, imagefile.LeftOut, error) {
	o.Fit = c.Fit
	return imagefile.Open(path, Bounded(o, c.Manifest))
}

// Bounded adds to options how many images a source may have and which classes, for the classifier
// of a manifest or of a round. That a source opens can so be told before there is a classifier.
func Bounded(o imagefile.Options, m models.Manifest) imagefile.Options {
	o.MaxItems = maxItems
	o.Classes.Names, o.Classes.N = m.Classes, m.C
	return o
}
