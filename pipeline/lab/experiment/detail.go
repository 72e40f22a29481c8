package experiment

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"fmp/featurize/dataset"
	"fmp/models/rng"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// DetailFile holds the data of a report's figures of individual images and points.
const DetailFile = "detail.json"

// Detail describes one task, the first of a run: the posterior's predictions of individual test
// images, and where a client's points, its upload and the drawn points lie. Pages are drawn from it
// without models or images.
type Detail struct {
	Partition string   `json:"partition"`
	Classes   []string `json:"classes"`
	// Easy are the test images of least predictive entropy, of different classes, and Hard those on
	// which the posterior samples disagree most.
	Easy []Example `json:"easy"`
	Hard []Example `json:"hard"`
	View View      `json:"view"`
}

// Example is a test image with the class probabilities of every posterior sample of FMP.
type Example struct {
	Index int    `json:"index"` // among the test images
	PNG   []byte `json:"png"`
	Label int    `json:"label"`
	// Mean holds the C probabilities of the ensemble, Top the classes with the largest of them, and
	// Samples one row per posterior sample with the probabilities of the classes in Top.
	Mean    []float64   `json:"mean"`
	Top     []int       `json:"top"`
	Samples [][]float64 `json:"samples"`
	// Disagreement is the mutual information of label and posterior sample, in nats: the entropy of
	// the mean less the mean of the entropies (Houlsby et al. 2011, arXiv 1112.5745).
	Disagreement float64 `json:"disagreement"`
	Entropy      float64 `json:"entropy"`
}

// View holds points in the plane of the two leading principal components of the clients' part.
type View struct {
	// Explained are the shares of the variance along the two axes.
	Explained [2]float64 `json:"explained"`
	// Sets are "background" (some rows of the clients' part), "client" (the first client's points),
	// "upload" (its upload) and "drawn" (points drawn for one posterior sample given all uploads).
	Sets map[string][]Placed `json:"sets"`
}

// Placed is one point of a View: its position, most probable class and weight.
type Placed struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Class  int     `json:"class"`
	Weight float64 `json:"weight"`
}

// Sizes of details, which keep the file and the page small.
const (
	examples        = 6    // easy images, and as many hard ones
	topClasses      = 3    // classes shown per image
	backgroundRows  = 400  // rows shown in the view
	componentsLimit = 2000 // rows from which the components are computed
)

// Inspect writes [DetailFile] into the run directory, unless it exists. An error leaves no file,
// and the run as it was.
func Inspect(ctx context.Context, p *Prepared, dir *Directory) error {
	path := dir.file(DetailFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	// One task is at work, which has all threads of this run's share.
	_, threads := p.Tools.Shared.plan(p.Config.threads(), 1)
	var d *Detail
	err := p.Tools.Shared.Do(ctx, threads, func() (err error) {
		d, err = inspect(ctx, p, threads)
		return err
	})
	if err != nil {
		return fmt.Errorf("details of the first task: %w", err)
	}
	return writeJSON(path, d)
}

// ReadDetail reads a run's details; nil where it has none.
func ReadDetail(dir string) (*Detail, error) {
	b, err := readOptional(filepath.Join(dir, DetailFile), "details")
	if b == nil {
		return nil, err
	}
	d, err := parseDetail(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove the file and run again",
			filepath.Join(dir, DetailFile), err)
	}
	return d, nil
}

// parseDetail reads details whose labels and top classes are among the classes, since pages index
// names by them. The file may have been edited by hand, and a page must not fail by it.
func parseDetail(b []byte) (*Detail, error) {
	d := new(Detail)
	if err := parseJSON(b, d); err != nil {
		return nil, err
	}
	for _, e := range append(slices.Clone(d.Easy), d.Hard...) {
		for _, c := range append([]int{e.Label}, e.Top...) {
			if c < 0 || c >= len(d.Classes) || len(e.Mean) != len(d.Classes) {
				return nil, fmt.Errorf("image %d has class %d of %d", e.Index, c, len(d.Classes))
			}
		}
	}
	return d, nil
}

// inspect runs FMP on the first partition's first repeat, with shared settings. FMP-ISAB stands in
// for FMP where no model that FMP reads is there. Its stream is the task's own, so that heads are
// those that the run scored with shared settings.
func inspect(ctx context.Context, p *Prepared, threads int) (*Detail, error) {
	c := p.Config
	first := c.Partitions()[0]
	t, _, err := p.Tools.drawn(ctx, &c, p.Data.Clients, first, 0, threads)
	if err != nil {
		return nil, err
	}
	name := "FMP"
	if p.Tools.Conjugate == nil && p.Tools.Open == nil && p.Tools.Embedded == nil {
		name = "FMP-ISAB"
	}
	m, err := rival.Lookup(name)
	if err != nil {
		return nil, err
	}
	res, err := m.Run(ctx, t, c.settings())
	if err != nil {
		return nil, err
	}
	d := &Detail{Partition: first.Name(), Classes: p.Manifest.Classes}
	if err := d.pick(ctx, res, p, threads); err != nil {
		return nil, err
	}
	return d, d.view(ctx, p, t, first.stream(0))
}

// pick chooses the easy and the hard images and keeps the probabilities of every posterior sample
// for them. Probabilities by sample are kept for these alone, so that memory does not grow with the
// test set times the ensemble. Images of one class are taken once in each list, in the order of
// entropy or of disagreement. Sorting is stable, so that ties fall alike on every machine.
func (d *Detail) pick(ctx context.Context, res *posterior.Result, p *Prepared, threads int) error {
	e := res.Ensembles[0]
	rows, err := res.Rows(ctx, p.Data.Test)
	if err != nil {
		return err
	}
	a, err := metric.Examine(ctx, e, rows, nil, threads)
	if err != nil {
		return err
	}
	entropy, disagreement := a.Entropies()
	n, classes := len(p.Data.TestLabels), len(d.Classes)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	// At most as many images as there are classes.
	firsts := func() (out []int) { // of different classes
		seen := map[int]bool{}
		for _, i := range order {
			if y := p.Data.TestLabels[i]; !seen[y] && len(out) < examples {
				seen[y] = true
				out = append(out, i)
			}
		}
		return out
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(entropy[a], entropy[b]) })
	easy := firsts()
	slices.SortStableFunc(order,
		func(a, b int) int { return cmp.Compare(disagreement[b], disagreement[a]) })
	hard := firsts()
	chosen := append(slices.Clone(easy), hard...)
	var few []float32
	width := len(rows) / n
	for _, i := range chosen {
		few = append(few, rows[i*width:(i+1)*width]...)
	}
	said, err := metric.Said(ctx, e, few, 1)
	if err != nil {
		return err
	}
	out := make([]Example, len(chosen))
	for k, i := range chosen {
		x := Example{Index: i, Label: p.Data.TestLabels[i], Mean: a.Mean.Row(i),
			Entropy: entropy[i], Disagreement: disagreement[i], Samples: make([][]float64, len(e))}
		x.Top = make([]int, classes)
		for j := range x.Top {
			x.Top[j] = j
		}
		slices.SortStableFunc(x.Top,
			func(a, b int) int { return cmp.Compare(x.Mean[b], x.Mean[a]) })
		x.Top = x.Top[:min(topClasses, classes)]
		for s := range e {
			for _, c := range x.Top {
				// The probabilities said are [image, class, sample].
				x.Samples[s] = append(x.Samples[s], said[(k*classes+c)*len(e)+s])
			}
		}
		if x.PNG, err = encodePNG(ctx, p.Images, i); err != nil {
			return err
		}
		out[k] = x
	}
	d.Easy, d.Hard = out[:len(easy)], out[len(easy):]
	return nil
}

// encodePNG returns image i as PNG: grey for one channel, else RGB, of values from 0 to 255. Of
// images in files it decodes that one alone.
func encodePNG(ctx context.Context, all *dataset.Images, i int) ([]byte, error) {
	im, _, err := all.Load(ctx, i, i+1)
	if err != nil {
		return nil, err
	}
	var picture image.Image
	box := image.Rect(0, 0, im.W, im.H)
	if im.Ch == 1 {
		picture = &image.Gray{Pix: im.At(0), Stride: im.W, Rect: box}
	} else {
		rgba := image.NewNRGBA(box)
		for k := range im.H * im.W {
			copy(rgba.Pix[4*k:], im.At(0)[3*k:3*k+3])
			rgba.Pix[4*k+3] = 255
		}
		picture = rgba
	}
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		return nil, fmt.Errorf("test image %d: %w", i, err)
	}
	return b.Bytes(), nil
}

// view places the first client's points, its upload and drawn points in the plane: x'v_1 and x'v_2,
// with v the leading eigenvectors of the covariance of at most componentsLimit rows. Rows are not
// centred, which moves all points alike. Signs of eigenvectors are arbitrary, so that two machines
// may mirror the plane. Without a plane or uploads the view stays empty.
func (d *Detail) view(ctx context.Context, p *Prepared, t *rival.Task, stream string) error {
	clients, uploads := t.Clients(), t.Uploads()
	bank := p.Data.Clients
	n := min(bank.Len(), componentsLimit)
	if n < 3 || bank.Dx < 2 || len(uploads) == 0 {
		return nil // no plane to draw in, or nothing that a method of the run sends
	}
	var pc stat.PC
	if !pc.PrincipalComponents(moment.Rows(bank.Features[:n*bank.Dx], bank.Dx), nil) {
		return fmt.Errorf("the principal components of %d feature rows did not converge", n)
	}
	var basis mat.Dense
	pc.VectorsTo(&basis)
	vars := pc.VarsTo(nil)
	// Otherwise all rows are equal, and no axis explains anything.
	if sum := floats.Sum(vars); sum > 0 {
		for k := range d.View.Explained {
			d.View.Explained[k] = vars[k] / sum
		}
	}
	place := func(s *point.Set) []Placed {
		_, labels := s.Labelled()
		out := make([]Placed, s.N)
		for i := range out {
			out[i] = Placed{Class: labels[i], Weight: float64(s.W[i])}
			for j, v := range s.Row(i)[:s.Dx] {
				out[i].X += float64(v) * basis.At(j, 0)
				out[i].Y += float64(v) * basis.At(j, 1)
			}
		}
		return out
	}
	pooled, err := point.Pool(uploads...)
	if err != nil {
		return err
	}
	noise, err := p.Tools.Drawer.Noise(rng.New(p.Config.Seed, "view", stream), 1,
		p.Config.Predictor.Fresh)
	if err != nil {
		return err
	}
	drawn, err := p.Tools.Drawer.Draw(ctx, pooled, noise, 1)
	if err != nil {
		return err
	}
	some := make([]int, min(bank.Len(), backgroundRows))
	for i := range some {
		some[i] = i
	}
	d.View.Sets = map[string][]Placed{
		"background": place(bank.Points(some, nil)), "client": place(clients[0]),
		"upload": place(uploads[0]), "drawn": place(drawn[0]),
	}
	return nil
}
