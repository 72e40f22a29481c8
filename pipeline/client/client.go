// Package client computes a client's part of a round: labelled images to an upload, by a client
// graph whose maker it need not trust.
//
// The graph is taken apart before an image is read (models.ParseClient): all but its extractor must
// be a graph of fmp fuse, and the extractor one that the owner of the images approved ([Approved]).
// Labels, counts, clipping and noise are this program's own. In private rounds one image at a time
// goes through the graph, so that none can move the row of another; an image of which the graph
// makes no finite row counts as a row of zeros, so that neither absence nor an error tells of it.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/cost"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/privacy"
)

const (
	// MaxItems bounds the images of an upload, so that memory stays below 64 MiB.
	MaxItems = 20_000
	// chunk is the largest number of images of a plain round that go through the extractor at once,
	// and chunkBytes bounds their pixels. The values of larger images leave the caches of a core,
	// and one at a time is faster (docs/speed.md) and takes less memory.
	chunk      = 8
	chunkBytes = 64 << 10
	// spots is the number of blocks of which one is checked.
	spots = 8
)

// Client is a client graph, taken apart and ready to run.
type Client struct {
	Manifest models.Manifest
	Fit      imagefile.Fit
	// Parsed describes the graph's extractor.
	Parsed *models.ParsedClient
	// Read counts the images of the last upload that could be read, Copies those of them that were
	// left out as copies, and Zeros those of which the graph made no finite row.
	Read, Copies, Zeros int
	// Few counts the classes left out of it, as they have too few images.
	Few int
	// Heavy is the feature that drowns the others in the last upload of moments, if one does.
	Heavy moments.Heavy

	alike     map[[sha256.Size]byte]*alike // of a file
	curve     *moments.ClientCurve         // of the last upload of moments
	features  engine.Session               // images to features
	embedding engine.Session               // set and present to points and masses
	now       *during
}

// alike are the images of equal pixels. The least digest of their files stands for each of them;
// labels are those of the ones that count.
type alike struct {
	least  [sha256.Size]byte
	labels []int
}

// during is the context of the call under way, which ends the runs of the graph.
type during struct{ context.Context }

// Options say which images go into an upload.
type Options struct {
	// Skip leaves out images that cannot be read; they are named. Otherwise they are an error, but
	// in private rounds.
	Skip bool
	// AtLeast leaves out classes of fewer images, 0 and 1 none. In private rounds that would tell
	// of single images, and is refused.
	AtLeast int
	// Calibrate is the maximum number of calibration points: single images, one in five at most,
	// that take no part in means and scatter. 0 sends none; private uploads have none.
	Calibrate int
	// Progress is told, of a plain upload, how many images of how many were read; nil: nobody asks.
	Progress func(done, total int)
	// Secret chooses the calibration points, so that neither server nor extractor can; wanted where
	// Calibrate is above 0.
	Secret *Secret
}

// New takes a client graph apart and prepares it for running on the given number of threads (0: one
// a core).
// The graph is run with bounds on memory and work (package cost), as its maker may want much of
// both. Products and convolutions have the same bits on every processor.
func New(m *onnx.Model, f models.Manifest, threads int) (*Client, error) {
	c := &Client{Manifest: f}
	var err error
	if c.Parsed, err = models.ParseClient(m, f); err != nil {
		return nil, err
	}
	images, _ := m.Graph.Input("images")
	if c.Fit, err = imagefile.FitOf(images, f); err != nil {
		return nil, err
	}
	c.now = &during{context.Background()}
	e, err := pure.New(engine.Options{Threads: threads, Reproducible: true, Flush: c.Private(),
		Bytes: cost.Foreign.Bytes})
	if err != nil {
		return nil, err
	}
	e = cost.Bounded(engine.Under(c.now, e), cost.Foreign)
	if c.features, err = e.Load(c.Parsed.Features); err != nil {
		return nil, err
	}
	if c.embedding, err = e.Load(c.Parsed.Embedding); err != nil {
		return nil, err
	}
	// Faults that every image shows are found with one that is nobody's.
	if _, err := c.rows(make([]uint8, c.Fit.Size()), 1); err != nil {
		return nil, fmt.Errorf("the client graph does not run on a black image: %w", err)
	}
	return c, nil
}

// Private reports whether the graph is one of private rounds.
func (c *Client) Private() bool { return c.Manifest.Clip > 0 }

// rows runs n images and returns their features, n x dx.
// Pixels are [n, height, width, channels]. The runs end with the context of the call under way.
func (c *Client) rows(pixels []uint8, n int) ([]float32, error) {
	out, err := engine.Eval(c.features,
		map[string]*onnx.Tensor{"images": onnx.NewTensor(pixels, n, c.Fit.H, c.Fit.W, c.Fit.Ch)},
		models.ValueFeatures)
	if err != nil {
		return nil, err
	}
	h := out[models.ValueFeatures]
	if h.DType != onnx.Float32 || h.Len() != n*c.Manifest.Dx {
		return nil, fmt.Errorf("the extractor gave %v for %d images; its manifest says dx %d", h,
			n, c.Manifest.Dx)
	}
	return h.F32(), nil
}

// row returns the features of one image, nil where the graph makes none that are finite.
func (c *Client) row(pixels []uint8) []float32 {
	if h, err := c.rows(pixels, 1); err == nil && finite(h) {
		return h
	}
	return nil
}

// settle returns n numbers, zeros where there are none.
func (c *Client) settle(v []float32, n int) []float32 {
	if v != nil {
		return v
	}
	c.Zeros++
	return make([]float32, n)
}

// finite reports whether all numbers are: x - x is NaN of NaN and of infinities alone.
func finite(v []float32) bool {
	return !slices.ContainsFunc(v, func(x float32) bool { return x-x != 0 }) // NaN or infinite
}

// chunk returns how many images of a plain round go through the extractor at once: 1 to chunk.
func (c *Client) chunk() int { return max(1, min(chunk, chunkBytes/c.Fit.Size())) }

// block returns the features of a block of images. Where check is set, one of them, drawn at
// random, is run alone, and a row that its neighbours moved is an error: the class means of such
// rows would not be averages over images.
// Where the graph does not run on the block, each image is run alone, so that one of them spoils no
// others.
func (c *Client) block(pixels []uint8, n int, check bool) ([]float32, error) {
	size, dx := c.Fit.Size(), c.Manifest.Dx
	if n == 1 {
		return c.settle(c.row(pixels), dx), nil
	}
	h, err := c.rows(pixels, n)
	if err != nil {
		h = nil
		for i := range n {
			h = append(h, c.settle(c.row(pixels[i*size:(i+1)*size]), dx)...)
		}
		return h, nil
	}
	if check {
		k, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
		if err != nil {
			return nil, fmt.Errorf("drawing an image to be checked: %w", err)
		}
		i := int(k.Int64())
		alone, err := c.rows(pixels[i*size:(i+1)*size], 1)
		if err != nil {
			return nil, fmt.Errorf("the extractor runs on %d images and not on one of "+
				"them: %w", n, err)
		}
		if !near(alone, h[i*dx:(i+1)*dx]) {
			return nil, fmt.Errorf("the extractor gives an image other features beside other " +
				"images than alone; the client graph is not used")
		}
	}
	for i := range n {
		if row := h[i*dx : (i+1)*dx]; !finite(row) {
			copy(row, c.settle(nil, dx))
		}
	}
	return h, nil
}

// near reports whether two rows are equal to within the rounding that the order of sums makes: a
// thousandth of their length.
// It asks for |a - b| <= 1e-3 |a| + 1e-6. Two rows that are not finite are equal.
func near(a, b []float32) bool {
	if !finite(a) || !finite(b) {
		return !finite(a) && !finite(b)
	}
	var size, off float64
	for i, x := range a {
		d := float64(x) - float64(b[i])
		size, off = size+float64(x)*float64(x), off+d*d
	}
	return math.Sqrt(off) <= 1e-3*math.Sqrt(size)+1e-6
}

// images reads labelled images, step at a time. Images that cannot be read are left out if skip is
// set, and named; else they are an error, as it is where none is left.
//
// Images of one class whose pixels are equal, as the graph would take them, are one image: copies
// are no further evidence, and a calibration point would be no image apart. Under two labels they
// are two, as labels err. In private rounds equal files are one image under whatever labels, the
// first, and no others are, as the ledger knows an image by its file: none is charged more than
// once.
func (c *Client) images(ctx context.Context, src imagefile.Source, step int, skip bool,
	use func(pixels []uint8, items []imagefile.Item) error) (bad []error, err error) {
	c.Read, c.Copies, c.Zeros, c.Few, c.alike = 0, 0, 0, 0, map[[sha256.Size]byte]*alike{}
	c.now.Context = ctx
	defer func() { c.now.Context = context.Background() }()
	if k := src.Len(); k < 1 || k > MaxItems {
		return nil, fmt.Errorf("%d images; allowed are 1 to %d", k, MaxItems)
	}
	seen := map[[sha256.Size]byte]*alike{}
	bad, err = imagefile.Read(ctx, src, c.Fit, step, skip,
		func(pixels []uint8, items []imagefile.Item) error {
			c.Read += len(items)
			if items = c.first(seen, src, pixels, items); len(items) == 0 {
				return nil
			}
			return use(pixels[:len(items)*c.Fit.Size()], items)
		})
	switch {
	case err != nil:
		return nil, err
	case len(bad) > 0 && !skip:
		return nil, imagefile.Unread(bad)
	case c.Read == 0:
		return nil, fmt.Errorf("none of the images can be read: %w", errors.Join(bad...))
	}
	return bad, nil
}

// first moves the images that were not seen before to the beginning, and returns their items.
func (c *Client) first(seen map[[sha256.Size]byte]*alike, src imagefile.Source, pixels []uint8,
	items []imagefile.Item) []imagefile.Item {
	size, n := c.Fit.Size(), 0
	for i, item := range items {
		image := pixels[i*size : (i+1)*size]
		key := item.Digest
		if !c.Private() {
			key = sha256.Sum256(image)
		}
		same, again := seen[key]
		if !again {
			same = &alike{least: item.Digest}
			seen[key] = same
		}
		c.alike[item.Digest] = same
		if bytes.Compare(item.Digest[:], same.least[:]) < 0 {
			same.least = item.Digest
		}
		if again && (c.Private() || slices.Contains(same.labels, item.Label)) {
			c.Copies++
			imagefile.LeaveOut(src, item)
			continue
		}
		same.labels = append(same.labels, item.Label)
		copy(pixels[n*size:], image)
		items[n] = item
		n++
	}
	return items[:n]
}

// labelled computes the features of labelled images of a plain upload, [n, dx], and names those
// left out, bad ones and classes of too few. The images that o makes calibration points are chosen.
func (c *Client) labelled(ctx context.Context, src imagefile.Source,
	o Options) (rows []float32, labels []int, chosen []bool, left []error, err error) {
	f := c.Manifest
	var h []float32
	var all []int
	var digests, kept [][sha256.Size]byte
	blocks := 0
	left, err = c.images(ctx, src, c.chunk(), o.Skip,
		func(pixels []uint8, items []imagefile.Item) error {
			rows, err := c.block(pixels, len(items), blocks%spots == 0)
			if err != nil {
				return err
			}
			blocks++
			h = append(h, rows...)
			for _, item := range items {
				all, digests = append(all, item.Label), append(digests, item.Digest)
			}
			if o.Progress != nil {
				o.Progress(c.Read, src.Len())
			}
			return nil
		})
	if err != nil {
		return nil, nil, nil, nil, err
	}
	keep, few := classes(all, f, o.AtLeast)
	left, c.Few = append(left, few...), len(few)
	for i, y := range all {
		if y >= 0 && y < f.C && keep[y] {
			rows, labels, kept = append(rows, h[i*f.Dx:(i+1)*f.Dx]...), append(labels, y),
				append(kept, c.alike[digests[i]].least)
		}
	}
	if len(labels) == 0 {
		if c.Copies > 0 {
			left = append(left,
				fmt.Errorf("copies of others, which do not count: %d images", c.Copies))
		}
		return nil, nil, nil, nil,
			fmt.Errorf("no class has %d images: %w", max(1, o.AtLeast), errors.Join(left...))
	}
	if o.Calibrate > 0 {
		if o.Secret == nil {
			return nil, nil, nil, nil,
				errors.New("calibration points are chosen by a secret of the client's, and " +
					"there is none")
		}
		chosen = o.Secret.choose(kept, labels, o.Calibrate, o.AtLeast)
	}
	return rows, labels, chosen, left, nil
}

// Points makes the points of a plain upload of n labelled images, and names those left out, bad
// ones and classes of too few.
func (c *Client) Points(ctx context.Context, src imagefile.Source,
	o Options) (set *point.Set, n int, left []error, err error) {
	rows, labels, _, left, err := c.labelled(ctx, src, o)
	if err != nil {
		return nil, 0, nil, err
	}
	set, err = c.embed(rows, labels)
	return set, len(labels), left, err
}

// Moments makes an upload of moments, and names the images left out as Points does.
// The rows are [n, k], the coordinates of single images.
func (c *Client) Moments(ctx context.Context, src imagefile.Source,
	o Options) (means *point.Set, within *moments.Within, left []error, err error) {
	if o.Calibrate > moments.MaxCalibration {
		return nil, nil, nil, fmt.Errorf("%d calibration points; moments have %d at most",
			o.Calibrate, moments.MaxCalibration)
	}
	h, labels, chosen, left, err := c.labelled(ctx, src, o)
	if err != nil {
		return nil, nil, nil, err
	}
	dx, k := c.Manifest.Dx, c.Manifest.PointWidth()
	c.Heavy = moments.HeavyRows(h, dx)
	rows := make([]float32, 0, len(labels)*k)
	for i := range labels {
		rows = append(rows, c.settle(c.coordinates(h[i*dx:(i+1)*dx]), k)...)
	}
	// The subset differs from round to round, and is that of the rows: no one chooses it.
	if c.curve, err = moments.CurveOf(rows, k, labels, c.Manifest.C,
		c.Manifest.Digest); err != nil {
		return nil, nil, nil, err
	}
	means, within, err = moments.Parted(rows, k, labels, c.Manifest.C, chosen)
	return means, within, left, err
}

// classes returns which classes have as many images as are wanted, and names the others that have
// any.
func classes(labels []int, f models.Manifest, atLeast int) (keep []bool, few []error) {
	count := make([]int, f.C)
	for _, y := range labels {
		if y >= 0 && y < f.C {
			count[y]++
		}
	}
	keep = make([]bool, f.C)
	for y, n := range count {
		if keep[y] = n > 0 && n >= atLeast; !keep[y] && n > 0 {
			name := fmt.Sprint(y)
			if len(f.Classes) == f.C {
				name = f.Classes[y]
			}
			few = append(few, fmt.Errorf("class %s, of which there are %d images: wanted "+
				"are at least %d", name, n, atLeast))
		}
	}
	return keep, few
}

// embed returns the points and masses of labelled rows, [n, dx]. Class means are made class by
// class: they are the same as those of all rows at once, and no table has a label's C numbers.
// Class means are the embedding of one class at a time. Other embeddings take all rows at once,
// with their labels as one-hot vectors.
func (c *Client) embed(rows []float32, labels []int) (*point.Set, error) {
	f := c.Manifest
	if !f.ClassMeans {
		points, err := point.FromLabelled(rows, f.Dx, labels, f.C)
		if err != nil {
			return nil, err
		}
		z, w, err := c.run(points.Z, points.N)
		if err != nil {
			return nil, err
		}
		return Set(z, w, f)
	}
	of := make([][]float32, f.C)
	for i, y := range labels {
		of[y] = append(of[y], rows[i*f.Dx:(i+1)*f.Dx]...)
	}
	set := &point.Set{Dx: f.PointWidth(), C: f.C}
	for y, held := range of {
		if held == nil {
			continue
		}
		mean, mass, err := c.mean(held)
		if err != nil {
			return nil, err
		}
		set.N, set.Z = set.N+1, append(set.Z, mean...)
		set.Y, set.W = append(set.Y, int32(y)), append(set.W, mass)
	}
	if set.Small() {
		set = set.Dense()
	}
	return set, nil
}

// run returns points and masses of n labelled points, as the embedding makes them.
func (c *Client) run(points []float32, n int) (z, w *onnx.Tensor, err error) {
	present := slices.Repeat([]float32{1}, n)
	out, err := engine.Eval(c.embedding,
		map[string]*onnx.Tensor{models.ValueSet: onnx.NewTensor(points, 1, n, len(points)/n),
			models.ValuePresent: onnx.NewTensor(present, 1, n)}, "points", "masses")
	return out["points"], out["masses"], err
}

// mean returns the mean of rows of one class and their number: the first of the two classes that
// the embedding of class means has.
func (c *Client) mean(rows []float32) (mean []float32, mass float32, err error) {
	dx, k := c.Manifest.Dx, c.Manifest.PointWidth()
	n := len(rows) / dx
	points := make([]float32, 0, n*(dx+2))
	for i := range n {
		points = append(append(points, rows[i*dx:(i+1)*dx]...), 1, 0)
	}
	z, w, err := c.run(points, n)
	if err != nil {
		return nil, 0, err
	}
	return z.F32()[:k], w.F32()[0], nil
}

// Set checks an embedding's outputs against its manifest. Of class means only those of classes that
// the client holds are worth sending.
func Set(points, masses *onnx.Tensor, f models.Manifest) (*point.Set, error) {
	z, w, dx := points.F32(), masses.F32(), f.PointWidth()
	if len(z) != f.S*(dx+f.C) || len(w) != f.S {
		return nil, fmt.Errorf("the model gave points %v and masses %v; its manifest says "+
			"%d points of %d numbers and %d classes", points, masses, f.S, dx, f.C)
	}
	set := &point.Set{N: f.S, Dx: dx, C: f.C, Z: z, W: w}
	if f.ClassMeans {
		return set.Held(), nil
	}
	return set, nil
}

// Labelled is the images of a private upload: their coordinates, [n, k], labels, and the digests of
// their files.
type Labelled struct {
	W       []float32
	Labels  []int
	Digests [][32]byte
}

// Coordinates computes the coordinates of labelled images for a private round, one image at a time,
// and names those that cannot be read, which are left out: an error would tell of one. Every other
// image of a class counts once, also where the graph changes it.
func (c *Client) Coordinates(ctx context.Context, src imagefile.Source,
	o Options) (*Labelled, []error, error) {
	f := c.Manifest
	if !c.Private() {
		return nil, nil, fmt.Errorf(
			"the client graph is not one of private rounds; make it with fmp fuse --upload private")
	}
	if o.AtLeast > 1 {
		return nil, nil, fmt.Errorf("--at-least %d: whether a class has as many images "+
			"would tell of single ones, which a private round protects; leave the class's folder "+
			"out instead, for a reason that does not depend on how many it holds", o.AtLeast)
	}
	out := &Labelled{}
	bad, err := c.images(ctx, src, 1, true, func(pixels []uint8, items []imagefile.Item) error {
		y := items[0].Label
		if y < 0 || y >= f.C {
			return nil
		}
		out.W, out.Labels, out.Digests = append(out.W,
			c.settle(c.coordinates(c.row(pixels)), f.K)...),
			append(out.Labels, y),
			append(out.Digests, items[0].Digest)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if len(out.Labels) == 0 {
		return nil, nil, fmt.Errorf("none of the images is of a class of the model")
	}
	return out, bad, nil
}

// coordinates returns the k coordinates of one feature row, the mean of a class of one image; nil
// where there are none that are finite.
func (c *Client) coordinates(h []float32) []float32 {
	if h == nil {
		return nil
	}
	if w, _, err := c.mean(h); err == nil && finite(w) {
		return w
	}
	return nil
}

// Release returns the message of a client of a name for a private round, with the noise where this
// client adds it, else with a new salt.
// Noise is from crypto/rand. After an error nothing may be sent, as some numbers may be without
// noise.
func (c *Client) Release(l *Labelled, b privacy.Budget, name string,
	round uint64) (*federate.Release, error) {
	sums, err := c.Sums(l, b)
	if err != nil {
		return nil, err
	}
	if b.Noise == privacy.Local {
		if err := sums.AddNoise(b.NoiseSteps(c.Manifest.C), rand.Reader); err != nil {
			return nil, err
		}
	}
	r := &federate.Release{Round: round, Client: name, Model: c.Manifest.Digest,
		Budget: b, Sums: sums}
	if b.Noise == privacy.Trusted {
		rand.Read(r.Salt[:]) // never fails
	}
	return r, nil
}

// Sums returns the class sums of a private upload before noise: coordinates clipped, rounded and
// counted. Where a client is the unit the whole vector is clipped, and for two servers each number.
func (c *Client) Sums(l *Labelled, b privacy.Budget) (*privacy.Release, error) {
	f := c.Manifest
	sums, err := privacy.Sum(l.W, l.Labels, f.C, f.K, f.Clip)
	if err != nil {
		return nil, err
	}
	if b.Unit == privacy.Client {
		sums.Clip(b.ClientNorm(f.C))
	}
	if b.Noise == privacy.TwoServers {
		sums.Bound(b.MaxNumber(f.C))
	}
	return sums, nil
}
