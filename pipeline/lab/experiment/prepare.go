package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"fmp/featurize"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/pipeline/compress"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/meta"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
	"fmp/pipeline/settings"
	"fmp/pipeline/shipped"
	"fmp/pipeline/task"
)

// Prepared is everything that a run needs: feature rows, and models loaded into their engine.
type Prepared struct {
	// Config is the settings, completed with what data and models decide.
	Config   Config
	Data     *Data
	Tools    Tools
	Manifest Manifest
	// Conjugate, Open, Predictor and Embedding are the models behind Tools; the first two are nil where there is none.
	Conjugate, Open, Predictor, Embedding *onnx.Model
	// Extractor is closed; only its description remains. Stats standardised its features; nil where it does
	// that itself.
	Extractor *extractor.Extractor
	Stats     *featurize.Stats
	// Images are the test images behind Data.Test, for pictures in reports.
	Images *dataset.Images

	conjugateFrom, openFrom string // the files from which Conjugate and Open were read
	close                   []func() error
}

// ConjugateIsTrained reports whether there is a conjugate predictor other than the moments of this run's corpus, so that
// a server can have the same one.
func (p *Prepared) ConjugateIsTrained() bool {
	return p.Conjugate != nil && p.conjugateFrom != untrainedSource
}

// OpenIsTrained reports the same for the open predictor.
func (p *Prepared) OpenIsTrained() bool { return p.Open != nil && p.openFrom != "(untrained)" }

// Close releases the models.
func (p *Prepared) Close() error {
	var errs []error
	for _, f := range p.close {
		errs = append(errs, f())
	}
	p.close = nil
	return errors.Join(errs...)
}

// Prepare loads the data set, turns its images into feature rows, and loads or builds predictor and
// embedding, for uses without clients. The engine must use one thread per operator, so that figures do not depend on the machine.
// versions are written to the manifest.
func Prepare(ctx context.Context, c Config, eng engine.Engine, versions map[string]string, progress Progress) (*Prepared, error) {
	return (*Shared)(nil).prepare(ctx, c, eng, versions, progress, func(*Data) error { return nil })
}

// Prepare is [Prepare] for a run that may share its data with others: the clients' part must have enough images for its clients.
func (s *Shared) Prepare(ctx context.Context, c Config, eng engine.Engine, versions map[string]string, progress Progress) (*Prepared, error) {
	return s.prepare(ctx, c, eng, versions, progress, func(d *Data) error {
		c.Suit()
		if need, have := c.Federation.Clients*c.Federation.Points, d.Clients.Len(); need > have {
			return fmt.Errorf("federation.clients and federation.points are %d clients of %d points and the clients' part has %d images; lower them, or enlarge dataset.splits.clients", c.Federation.Clients, c.Federation.Points, have)
		}
		return nil
	})
}

func (s *Shared) prepare(ctx context.Context, c Config, eng engine.Engine, versions map[string]string, progress Progress, suffices func(*Data) error) (_ *Prepared, err error) {
	if progress == nil {
		progress = func(Step) {}
	}
	c.Suit()
	l, err := s.load(c, func() (l *loaded, err error) {
		err = s.Do(ctx, c.threads(), func() error {
			l, err = load(ctx, c, eng, progress)
			return err
		})
		return l, err
	})
	if err != nil {
		return nil, err
	}
	ds, x, f := l.set, l.extractor, l.features
	p := &Prepared{Manifest: Manifest{Versions: versions, Classes: ds.Classes}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	p.Manifest.Notes = slices.Clone(f.Notes)
	p.Extractor, p.Stats, p.Data = x, f.Stats, l.data
	if err := suffices(p.Data); err != nil {
		return nil, err
	}
	p.Images = &ds.Test.Images

	behind := x.Manifest()
	behind.Dx, behind.C = f.Dx, len(ds.Classes)
	predictor, pm, err := p.model(models.KindPredictor, c.Predictor.Model, c.Dataset.Name, behind, func() (*onnx.Model, error) {
		return models.NewPredictor(models.PredictorConfig{Dx: f.Dx, C: len(ds.Classes), Fresh: c.Predictor.Fresh}, c.Seed)
	})
	if err != nil {
		return nil, err
	}
	embedding, em, err := p.model(models.KindEmbedding, c.Embedding.Model, c.Dataset.Name, behind, func() (*onnx.Model, error) {
		return models.NewEmbedding(models.EmbeddingConfig{Dx: f.Dx, C: len(ds.Classes), Size: c.Embedding.Size}, c.Seed)
	})
	if err != nil {
		return nil, err
	}
	if c.Embedding.Size != 0 && c.Embedding.Size != em.S {
		return nil, fmt.Errorf("setting embedding.size is %d and the embedding %s makes %d points; leave the setting at 0, or give another model", c.Embedding.Size, em.Source, em.S)
	}
	c.Embedding.Size = em.S

	d, err := sample.New(eng, predictor)
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, d.Close)
	k, err := compress.New(eng, embedding)
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, k.Close)
	p.Tools = Tools{Drawer: d, Compressor: k, Shared: s}
	p.Predictor, p.Embedding = predictor, embedding
	if c.Embedding.Weights == "constant" {
		p.Tools.Compressor = constantWeights{k}
	}

	om, err := p.open(c, behind)
	if err != nil {
		return nil, err
	}
	cm, err := p.conjugate(&c, eng, behind)
	if err != nil {
		return nil, err
	}
	vm, err := p.private(c, eng, behind)
	if err != nil {
		return nil, err
	}
	p.Config = c
	p.Manifest.Files = c.fileNames()
	p.Manifest.Models = map[string]string{"extractor": x.ModelDigest(), "predictor": pm.Digest, "embedding": em.Digest}
	for _, f := range []models.Manifest{pm, em, om, cm} {
		if f.Source == untrainedSource {
			p.Manifest.Untrained = append(p.Manifest.Untrained, f.Kind)
		}
	}
	if om.Digest != "" {
		p.Manifest.Models["open"] = om.Digest
	}
	if cm.Digest != "" {
		p.Manifest.Models["conjugate"] = cm.Digest
	}
	if vm.Digest != "" {
		p.Manifest.Models["private"] = vm.Digest
	}
	p.Manifest.Data = map[string]string{"images": ds.Digest, "features": f.Digest}
	if l.corpus != "" {
		p.Manifest.Data["corpus"] = l.corpus
	}
	for name, digest := range l.others {
		p.Manifest.Data["other: "+name] = digest
	}
	p.Manifest.Sizes = map[string]int{"dx": f.Dx, "classes": len(ds.Classes), "clients": p.Data.Clients.Len(), "test": len(p.Data.TestLabels), "upload": em.S, "noise": pm.D}
	if p.Data.Corpus != nil {
		p.Manifest.Sizes["corpus"] = p.Data.Corpus.Len()
	}
	if p.Manifest.Identity, err = Identity(c, p.Manifest.Models, p.Manifest.Data); err != nil {
		return nil, err
	}
	return p, nil
}

// load reads the data set, turns its images into feature rows and splits these into parts. In open scope the corpus
// has images of its own, passed through the same extractor.
func load(ctx context.Context, c Config, eng engine.Engine, progress Progress) (*loaded, error) {
	corpus := c.corpus()
	l, err := see(ctx, c, corpus, nil, eng, progress)
	if err != nil {
		return nil, err
	}
	defer func() { l.set.Train.Images, l.features.Train.Features = dataset.Images{}, nil }()
	if !c.OpenScope() {
		if l.data, err = banks(l.features, c.Dataset.Test); err == nil {
			l.data.Shifts = l.shifts
		}
		return l, err
	}
	d := c.Dataset
	d.Splits.Extractor, d.Splits.Corpus, d.Splits.Clients = 0, 0, 1
	t, err := see(ctx, c, d, l.features, eng, progress)
	if err != nil {
		return nil, err
	}
	if d.Name == corpus.Name {
		for _, name := range t.set.Classes {
			if slices.Contains(l.set.Classes, name) {
				return nil, fmt.Errorf("class %s is among the tasks' (dataset.classes %q) and the corpus's (corpus.classes %q); in open scope tasks are of classes that the corpus lacks", name, d.Classes, corpus.Classes)
			}
		}
	}
	if t.data, err = banks(t.features, d.Test); err != nil {
		return nil, err
	}
	t.data.Shifts = t.shifts
	part := l.features.Select(l.features.Splits.Corpus)
	if part.N > 0 {
		if t.data.Corpus, err = task.NewBank(part.Features, l.features.Dx, part.Labels, len(l.set.Classes)); err != nil {
			return nil, fmt.Errorf("corpus: %w", err)
		}
	}
	t.corpus = l.features.Digest
	t.features.Notes = append(t.features.Notes, fmt.Sprintf("open scope: the corpus is %d images of %d classes of %s, none of them the tasks'", part.N, len(l.set.Classes), corpus.Label()))
	t.set.Train.Images, t.features.Train.Features = dataset.Images{}, nil
	return t, nil
}

// see turns the images of a data set into feature rows, standardised with the statistics of before if that is given.
func see(ctx context.Context, c Config, d settings.Dataset, before *featurize.Features, eng engine.Engine, progress Progress) (*loaded, error) {
	stage := func(name string) func(int, int) {
		return func(done, total int) { progress(even(name, done, total)) }
	}
	// Images in folders are resized directly to the model's size.
	var fit imagefile.Fit
	if c.Extractor.Model != "default" {
		var err error
		if fit, err = extractor.Fit(c.Extractor.Model, extractorOptions(c)); err != nil {
			return nil, err
		}
	}
	ds, err := dataset.Load(ctx, dataset.Options{Name: d.Name, Dir: d.Dir, Classes: d.Classes, Test: d.Splits.Test, Fit: fit, Skip: d.Bad == "skip", Progress: stage("data")})
	if err != nil {
		return nil, err
	}
	x, err := openExtractor(eng, c, ds)
	if err != nil {
		return nil, err
	}
	cfg := featurize.Config{
		Fractions: dataset.Fractions{Extractor: d.Splits.Extractor, Corpus: d.Splits.Corpus, Clients: d.Splits.Clients},
		Test:      d.Test,
		Progress:  stage("features"),
	}
	if before != nil {
		cfg.Stats = before.Stats
	}
	// The run needs only the features; the extractor's sessions are closed as soon as they are computed.
	l := &loaded{set: ds, extractor: x}
	if l.features, err = featurize.Run(ctx, ds, x, cfg); err == nil && (before != nil || !c.OpenScope()) {
		l.shifts, l.others, err = c.Scores.shifts(ctx, c, ds, x, l.features.Stats, progress)
	}
	if err = errors.Join(err, x.Close()); err != nil {
		return nil, err
	}
	return l, nil
}

func extractorOptions(c Config) extractor.Options {
	x := c.Extractor
	o := extractor.Options{Batch: x.Batch, Mean: x.Mean, Std: x.Std, Scale: x.Scale, Channels: x.Channels, Resize: x.Resize, Preset: x.Preset, Layout: x.Layout, Output: x.Output, Workers: c.threads()}
	if len(o.Mean) == 0 {
		o.Mean, o.Std = nil, nil
	}
	return o
}

func openExtractor(eng engine.Engine, c Config, ds *dataset.Dataset) (*extractor.Extractor, error) {
	o := extractorOptions(c)
	if c.Extractor.Model != "default" {
		return extractor.Open(eng, c.Extractor.Model, o, ds.Train.Images)
	}
	m, f, err := shipped.Load(c.corpus().Name, models.KindExtractor)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: give an ONNX image model with --extractor FILE", err)
	}
	if err != nil {
		return nil, err
	}
	return extractor.New(eng, m, f, o, ds.Train.Images)
}

// untrainedSource is the Source of an untrained model.
const untrainedSource = "(untrained)"

// model returns a predictor or an embedding: a file, the shipped one, or an untrained one. A shipped model
// for another extractor or other classes is skipped, with a note; a file that does not fit is
// an error.
func (p *Prepared) model(kind, setting, dataset string, behind models.Manifest, untrained func() (*onnx.Model, error)) (*onnx.Model, models.Manifest, error) {
	switch setting {
	case "untrained":
	case "default":
		m, f, err := shipped.Load(dataset, kind)
		if err == nil {
			behind.Source = filepath.Base(behind.Source) // notes are shared, so they name no folder
			if err = models.Match(behind, f); err == nil {
				return m, f, nil
			}
			p.Manifest.Notes = append(p.Manifest.Notes, fmt.Sprintf("the shipped %s does not fit (%v): an untrained one is used; fmp train %s makes one that does", kind, err, kind))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, f, err
		}
	default:
		m, f, err := models.Load(setting)
		if err != nil {
			return nil, f, fmt.Errorf("setting %s.model: %w", kind, err)
		}
		if f.Kind != kind {
			return nil, f, fmt.Errorf("setting %s.model: %s is %q by its manifest; want %s", kind, setting, f.Kind, kind)
		}
		if err := models.Match(behind, f); err != nil {
			return nil, f, fmt.Errorf("setting %s.model: %w", kind, err)
		}
		return m, f, nil
	}
	m, err := untrained()
	if err != nil {
		return nil, models.Manifest{}, err
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, f, err
	}
	f.Source = untrainedSource
	f.Digest, err = models.Digest(m)
	return m, f, err
}

// conjugate finds and loads the conjugate predictor. Without one, the methods that need it are dropped from the list of all methods.
func (p *Prepared) conjugate(c *Config, eng engine.Engine, behind models.Manifest) (models.Manifest, error) {
	note := ""
	switch {
	case c.Conjugate.Model == "none":
		note = "no conjugate predictor (conjugate.model none)"
	case c.OpenScope():
		note = "no conjugate predictor: the corpus lacks the tasks' classes"
	case p.Data.Corpus == nil && c.Conjugate.Model == "untrained":
		note = "no conjugate predictor: there is no corpus to take its moments from (dataset.splits.corpus)"
	}
	if note == "" {
		m, f, err := p.model(models.KindConjugate, c.Conjugate.Model, c.Dataset.Name, behind, func() (*onnx.Model, error) {
			return meta.UntrainedConjugate(p.Data.Corpus)
		})
		if err != nil {
			return f, err
		}
		p.Conjugate, p.conjugateFrom = m, f.Source
		k, err := sample.NewConjugate(eng, m)
		if err != nil {
			return f, err
		}
		p.close = append(p.close, k.Close)
		k.Workers = c.threads()
		p.Tools.Conjugate = k
		return f, nil
	}
	if p.Tools.Open == nil && len(c.Methods) == 0 {
		for _, m := range rival.All() {
			if i := m.Info(); !i.Conjugate && !(i.Private && c.Privacy.Epsilon == 0) {
				c.Methods = append(c.Methods, m.Info().Name)
			}
		}
		p.Manifest.Notes = append(p.Manifest.Notes, note+"; FMP and FMP-mean are left out")
	}
	return models.Manifest{}, nil
}

// PrivatePredictor returns the private predictor that the settings name.
func (p *Prepared) PrivatePredictor() (*onnx.Model, error) {
	behind := p.Extractor.Manifest()
	behind.Dx = p.Manifest.Sizes["dx"]
	m, _, err := p.privateModel(p.Config, behind)
	return m, err
}

// privateModel returns the private predictor behind an extractor. A conjugate predictor beside it must share its coordinates.
func (p *Prepared) privateModel(c Config, behind models.Manifest) (m *onnx.Model, f models.Manifest, err error) {
	behind.C = 0 // its classes are the round's
	if c.Privacy.Model == "default" {
		if m, f, err = shipped.Load(c.corpus().Name, models.KindPrivate); err == nil {
			err = models.Match(behind, f)
		}
		if err != nil {
			return nil, f, fmt.Errorf("setting privacy.model: no private predictor comes with the program that fits (%w); fmp train private makes one", err)
		}
	} else {
		if m, f, err = models.Load(c.Privacy.Model); err != nil {
			return nil, f, fmt.Errorf("setting privacy.model: %w", err)
		}
		if f.Kind != models.KindPrivate {
			return nil, f, fmt.Errorf("setting privacy.model: %s is %q by its manifest; want %s", c.Privacy.Model, f.Kind, models.KindPrivate)
		}
		if err := models.Match(behind, f); err != nil {
			return nil, f, fmt.Errorf("setting privacy.model: %w", err)
		}
	}
	if p.Conjugate != nil {
		if err := models.SameCoordinates(m, p.Conjugate); err != nil {
			return nil, f, fmt.Errorf("setting privacy.model: %w", err)
		}
	}
	return m, f, nil
}

// private loads the private predictor if the settings ask for a private round.
func (p *Prepared) private(c Config, eng engine.Engine, behind models.Manifest) (models.Manifest, error) {
	if c.Privacy.Epsilon == 0 {
		return models.Manifest{}, nil
	}
	m, f, err := p.privateModel(c, behind)
	if err != nil {
		return f, err
	}
	v, err := sample.NewPrivate(eng, m)
	if err != nil {
		return f, err
	}
	p.close = append(p.close, v.Close)
	v.Workers = c.threads()
	p.Tools.Private = v
	return f, nil
}

// open finds the predictor for tasks on classes that the corpus lacks. In closed scope only a given file or a shipped one
// is used; in open scope one is required, or a corpus to build it from.
func (p *Prepared) open(c Config, behind models.Manifest) (models.Manifest, error) {
	switch c.Open.Model {
	case "none":
		return models.Manifest{}, nil
	case "default":
		if _, f, err := shipped.Load(c.Dataset.Name, models.KindOpen); !c.OpenScope() && (err != nil || models.Match(behind, f) != nil) {
			return models.Manifest{}, nil
		}
	}
	if p.Data.Corpus == nil && (c.Open.Model == "untrained" || c.Open.Model == "default") {
		return models.Manifest{}, nil
	}
	behind.C = 0 // its classes are the corpus's
	m, f, err := p.model(models.KindOpen, c.Open.Model, c.corpus().Name, behind, func() (*onnx.Model, error) {
		u, err := meta.UntrainedOpen(p.Data.Corpus, open.MostCoordinates)
		if err != nil {
			return nil, err
		}
		return u.Model()
	})
	if err != nil {
		return f, err
	}
	p.Open, p.openFrom = m, f.Source
	p.Tools.Open, err = open.FromModel(m)
	return f, err
}

// banks splits features into the parts of a run. At most test test images are used; 0 means all.
func banks(f *featurize.Features, test int) (*Data, error) {
	d := &Data{Test: f.Test.Features, TestLabels: f.Test.Labels}
	if test > 0 && test < f.Test.N {
		d.Test, d.TestLabels = d.Test[:test*f.Dx], d.TestLabels[:test]
	}
	if len(d.TestLabels) == 0 {
		return nil, fmt.Errorf("the data set has no test images, and figures come from them: add some")
	}
	c := len(f.Classes)
	part := f.Select(f.Splits.Clients)
	var err error
	if d.Clients, err = task.NewBank(part.Features, f.Dx, part.Labels, c); err != nil {
		return nil, fmt.Errorf("clients' part: %w", err)
	}
	if part = f.Select(f.Splits.Corpus); part.N > 0 {
		if d.Corpus, err = task.NewBank(part.Features, f.Dx, part.Labels, c); err != nil {
			return nil, fmt.Errorf("corpus: %w", err)
		}
	}
	return d, nil
}

// constantWeights replaces an upload's masses by the letter's constant n/s.
type constantWeights struct{ Compressor }

func (k constantWeights) Compress(ctx context.Context, clients []*point.Set) ([]*point.Set, error) {
	out, err := k.Compressor.Compress(ctx, clients)
	for i, u := range out {
		w := float32(clients[i].Mass() / float64(u.N))
		for j := range u.W {
			u.W[j] = w
		}
	}
	return out, err
}
