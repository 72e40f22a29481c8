package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"fmp/featurize"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/pipeline/compress"
	"fmp/pipeline/corpus"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/meta"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
	"fmp/pipeline/settings"
	"fmp/pipeline/shipped"
	"fmp/pipeline/task"
)

// Prepared is everything that a run needs: feature rows, and models loaded into their engine. Its
// data may be shared with other runs and are read-only; its models are its own until Close.
type Prepared struct {
	// Config is the settings, completed by data and models.
	Config   Config
	Data     *Data
	Tools    Tools
	Manifest Manifest
	// Conjugate, Open, Private, Predictor and Embedding are the models behind Tools; the first
	// three are nil where there is none.
	Conjugate, Open, Private, Predictor, Embedding *onnx.Model
	// Extractor is closed; only its description remains. Stats standardised its features; nil where
	// it does that itself.
	Extractor *extractor.Extractor
	Stats     *featurize.Stats
	// Images are the test images behind Data.Test, for pictures in reports.
	Images *dataset.Images

	close []func() error
}

// Close releases the models. It closes all of them, whatever fails, and may be called twice.
func (p *Prepared) Close() error {
	var errs []error
	for _, f := range p.close {
		errs = append(errs, f())
	}
	p.close = nil
	return errors.Join(errs...)
}

// Prepare loads the data set, turns its images into feature rows, and loads or builds predictor and
// embedding, for uses without clients. The engine must use one thread per operator, so that figures
// do not depend on the machine. versions are written to the manifest. The caller closes the result.
// c is copied, and its completed form is in the result.
func Prepare(ctx context.Context, c Config, eng engine.Engine, versions map[string]string,
	progress Progress) (*Prepared, error) {
	return (*Shared)(nil).prepare(ctx, c, eng, progress, versions, 0)
}

// Prepare is [Prepare] for a run that may share its data with others: the clients' part must have
// enough images for its clients.
func (s *Shared) Prepare(ctx context.Context, c Config, eng engine.Engine,
	versions map[string]string, progress Progress) (*Prepared, error) {
	c.FillDefaults()
	return s.prepare(ctx, c, eng, progress, versions, c.Federation.Clients*c.Federation.Points)
}

// prepare is [Prepare] for a clients' part of at least that many images. On an error the models
// that were opened are closed. The order is data, checks of sizes, models, checks of methods and
// settings, and the manifest. No run directory is touched.
func (s *Shared) prepare(ctx context.Context, c Config, eng engine.Engine, progress Progress,
	versions map[string]string, least int) (_ *Prepared, err error) {
	if progress == nil {
		progress = func(Step) {}
	}
	c.FillDefaults()
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
	p := &Prepared{Manifest: Manifest{Versions: versions, Classes: l.Set.Classes}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	p.Manifest.Notes = slices.Clone(l.Features.Notes)
	p.Extractor, p.Stats, p.Data = l.Extractor, l.Features.Stats, l.data
	if have := p.Data.Clients.Len(); least > have {
		part := c.TaskSplits().Clients
		return nil, fmt.Errorf("federation.clients and federation.points are %d clients "+
			"of %d points and the clients' part has %d images, %v of the training images: lower "+
			"them, take %.0f training images, or enlarge dataset.splits.clients",
			c.Federation.Clients, c.Federation.Points, have, part, math.Ceil(float64(least)/part))
	}
	p.Images = &l.Set.Test.Images
	p.Tools.Shared = s
	p.Config = c
	if n := unscored(p.Data.TestLabels, len(l.Set.Classes)); n != "" {
		p.Manifest.Notes = append(p.Manifest.Notes, n)
	}
	p.Manifest.Notes = append(p.Manifest.Notes, c.leftOut()...)
	if n := c.tunedOnSeen(p.Data.Corpus); n != "" {
		p.Manifest.Notes = append(p.Manifest.Notes, n)
	}
	// Read before the models are opened, which may name all methods but some in the settings.
	given := len(c.Methods) > 0
	from, err := p.models(eng, l)
	if err == nil {
		err = p.withNames(given)
	}
	if err == nil {
		err = p.checkUnread()
	}
	if err != nil {
		return nil, err
	}
	return p, p.describe(l, from)
}

// modelManifests are the manifests of a run's models; those of models that the run has not are
// empty.
type modelManifests struct{ predictor, embedding, open, conjugate, private models.Manifest }

// models finds the models of the run and opens them in their engine. The open predictor comes
// before the conjugate one: without the latter, the former decides how FMP reads its clients. Those
// that are open when another fails are closed by [Prepared.Close].
func (p *Prepared) models(eng engine.Engine, l *loaded) (from modelManifests, err error) {
	c, behind := &p.Config, l.Behind()
	dx, classes := l.Features.Dx, len(l.Set.Classes)
	p.Predictor, from.predictor, err = p.model(models.KindPredictor, c.Predictor.Model,
		c.Dataset.Name, behind, func() (*onnx.Model, error) {
			return models.NewPredictor(models.PredictorConfig{Dx: dx, C: classes,
				Fresh: c.Predictor.Fresh}, c.Seed)
		})
	if err != nil {
		return from, err
	}
	p.Embedding, from.embedding, err = p.model(models.KindEmbedding, c.Embedding.Model,
		c.Dataset.Name, behind, func() (*onnx.Model, error) {
			return models.NewEmbedding(models.EmbeddingConfig{Dx: dx, C: classes,
				Size: c.Embedding.Size}, c.Seed)
		})
	if err != nil {
		return from, err
	}
	if em := from.embedding; c.Embedding.Size != 0 && c.Embedding.Size != em.S {
		return from, fmt.Errorf("setting embedding.size is %d and the embedding %s "+
			"makes %d points; leave the setting at 0, or give another model", c.Embedding.Size,
			em.Source, em.S)
	}
	c.Embedding.Size = from.embedding.S

	d, err := sample.New(eng, p.Predictor)
	if err != nil {
		return from, err
	}
	p.close = append(p.close, d.Close)
	k, err := compress.New(eng, p.Embedding)
	if err != nil {
		return from, err
	}
	p.close = append(p.close, k.Close)
	p.Tools.Drawer, p.Tools.Compressor = d, k
	if c.Embedding.Weights == "constant" {
		p.Tools.Compressor = constantWeights{k}
	}
	if from.open, err = p.open(*c, behind); err != nil {
		return from, err
	}
	if from.conjugate, err = p.conjugate(c, eng, behind); err != nil {
		return from, err
	}
	from.private, err = p.private(*c, eng, behind)
	return from, err
}

// describe completes the manifest with models, data and sizes, and the identity that follows from
// these and the settings. The digests decide the identity: a model that is trained again makes
// another run, also under the same name.
func (p *Prepared) describe(l *loaded, from modelManifests) (err error) {
	m := &p.Manifest
	m.Files = p.Config.fileNames()
	m.Models = map[string]string{"extractor": l.Extractor.ModelDigest(),
		"predictor": from.predictor.Digest, "embedding": from.embedding.Digest}
	for _, f := range []models.Manifest{from.predictor, from.embedding, from.open, from.conjugate} {
		if f.Source == untrainedSource {
			m.Untrained = append(m.Untrained, f.Kind)
		}
	}
	// A model that the run has not has no digest, and no part in its identity.
	for name, f := range map[string]models.Manifest{"open": from.open, "conjugate": from.conjugate,
		"private": from.private} {
		if f.Digest != "" {
			m.Models[name] = f.Digest
		}
	}
	m.Data = map[string]string{"images": l.Set.Digest, "features": l.Features.Digest}
	if l.corpus != "" {
		m.Data["corpus"] = l.corpus
	}
	for name, digest := range l.others {
		m.Data["other: "+name] = digest
	}
	// Settings do not tell such a run from one whose manifest lacks this: there, spoiled images are
	// made of all test images.
	n := scored(l.Set.Test.N, p.Config.Dataset.Test)
	if n < l.Set.Test.N && p.Config.Scores.ofTest(l.Set.Name) {
		m.Data["spoiled"] = fmt.Sprintf("first %d", n)
	}
	m.Sizes = map[string]int{"dx": l.Features.Dx, "classes": len(l.Set.Classes),
		"clients": p.Data.Clients.Len(), "test": len(p.Data.TestLabels),
		"upload": from.embedding.S, "noise": from.predictor.D}
	// clients who take all images deal the same ones in every repeat
	f := p.Config.Federation
	m.SameImages = f.Clients*f.Points >= p.Data.Clients.Len()
	m.Notes = append(m.Notes, sharing(p.Config.Seeds, f.Clients*f.Points, p.Data.Clients.Len())...)
	if p.Data.Corpus != nil {
		m.Sizes["corpus"] = p.Data.Corpus.Len()
	}
	m.Identity, err = Identity(p.Config, m.Models, m.Data)
	return err
}

// sharing notes that clients who hold most of the images, held of all, share them between repeats.
// At all of them figures have no interval, which tables say; one repeat has none either.
func sharing(repeats, held, all int) []string {
	if repeats < 2 || 2*held <= all || held >= all {
		return nil
	}
	return []string{fmt.Sprintf("clients hold %d of the %d images that there are for them: repeats "+
		"share most of them, and ± is too narrow for other images", held, all)}
}

// load reads the data set, turns its images into feature rows and splits these into parts. In open
// scope the corpus has images of its own, passed through the same extractor. There it is read
// first, as the statistics of its features standardise the tasks' too. The training images and
// their rows, of which parts have been taken, are released before it returns.
func load(ctx context.Context, c Config, eng engine.Engine, progress Progress) (*loaded, error) {
	told := func(stage string, done, total int) { progress(even(stage, done, total)) }
	s := corpus.Source{Dataset: c.corpus(), Extractor: c.Extractor, Shipped: c.corpus().Name,
		Threads: c.threads()}
	var from *corpus.Images
	var err error
	if c.OpenScope() {
		if from, err = corpus.Read(ctx, s, eng, told, nil); err != nil {
			return nil, err
		}
		defer from.Release()
		s.Dataset, s.Stats = c.Dataset, from.Features.Stats
		s.Dataset.Splits = c.TaskSplits()
	}
	l := &loaded{}
	var shifts []score.Shift
	l.Images, err = corpus.Read(ctx, s, eng, told, func(r *corpus.Images) (err error) {
		shifts, l.others, err = c.Scores.shifts(ctx, c, r.Set, r.Extractor,
			r.Features.Stats, progress)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer l.Release()
	if from == nil {
		from = l.Images
	} else if err := c.checkClasses(l.Set.Classes, from.Set.Classes); err != nil {
		return nil, err
	}
	if l.data, err = banks(l.Images, c.Dataset.Test); err != nil {
		return nil, err
	}
	l.data.Shifts = shifts
	if l.data.Corpus, err = from.Bank(from.Features.Splits.Corpus); err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	if !c.OpenScope() {
		return l, nil
	}
	if err := l.tuning(ctx, c, s, from, eng, told); err != nil {
		return nil, err
	}
	l.corpus = from.Features.Digest
	images := 0
	if l.data.Corpus != nil {
		images = l.data.Corpus.Len()
	}
	l.Features.Notes = append(l.Features.Notes,
		fmt.Sprintf("open scope: the corpus is %d images of %d classes of %s, none of "+
			"them the tasks'", images, len(from.Set.Classes), c.corpus().Label()))
	return l, nil
}

// checkClasses returns an error where tasks and corpus are of one data set and share a class.
// Classes of two data sets may share a name and be unlike, and are not compared.
func (c *Config) checkClasses(tasks, known []string) error {
	if !c.sameSet(c.corpus().Name) {
		return nil
	}
	for _, name := range tasks {
		if slices.Contains(known, name) {
			return fmt.Errorf("class %s is among the tasks' (dataset.classes %q) and the corpus's "+
				"(corpus.classes %q); in open scope tasks are of classes that the corpus lacks",
				name, c.Dataset.Classes, c.corpus().Classes)
		}
	}
	return nil
}

// tuning reads the classes of tuning tasks where they are not the corpus's: all training images of
// these, behind the same extractor as the tasks' images.
func (l *loaded) tuning(ctx context.Context, c Config, s corpus.Source, from *corpus.Images,
	eng engine.Engine, told func(stage string, done, total int)) error {
	if c.Tuning.Classes == "" {
		return nil
	}
	s.Dataset = c.corpus()
	s.Dataset.Classes, s.Dataset.Splits = c.Tuning.Classes, settings.Splits{Clients: 1}
	own, err := corpus.Read(ctx, s, eng, told, nil)
	if err != nil {
		return fmt.Errorf("tuning.classes: %w", err)
	}
	defer own.Release()
	same := c.sameSet(s.Dataset.Name)
	for _, name := range own.Set.Classes {
		if slices.Contains(from.Set.Classes, name) || same && slices.Contains(l.Set.Classes, name) {
			return fmt.Errorf("class %s of tuning.classes %q is the corpus's (%q) or the "+
				"tasks' (%q); give classes that neither has", name, c.Tuning.Classes,
				c.Corpus.Classes, c.Dataset.Classes)
		}
	}
	if l.data.Tuning, err = own.Bank(own.Features.Splits.Clients); err != nil {
		return fmt.Errorf("tuning.classes: %w", err)
	}
	l.Features.Notes = append(l.Features.Notes,
		fmt.Sprintf(
			"settings are tuned on tasks of %d classes of %s, which neither corpus nor tasks have",
			len(own.Set.Classes), s.Dataset.Label()))
	return nil
}

// untrainedSource is the Source of an untrained model.
const untrainedSource = "(untrained)"

// model returns the model of a kind that a setting names ([corpus.Model]), or an untrained one. An
// untrained model's digest is of its own bytes.
func (p *Prepared) model(kind, setting, dataset string, behind models.Manifest,
	untrained func() (*onnx.Model, error)) (*onnx.Model, models.Manifest, error) {
	m, f, note, err := corpus.Model(kind, setting, dataset, behind)
	if note != "" {
		p.Manifest.Notes = append(p.Manifest.Notes, note)
	}
	if err != nil || m != nil {
		return m, f, err
	}
	m, err = untrained()
	if err != nil {
		return nil, models.Manifest{}, err
	}
	f, err = models.ReadManifest(m)
	if err != nil {
		return nil, f, err
	}
	f.Source = untrainedSource
	f.Digest, err = models.Digest(m)
	return m, f, err
}

// conjugate finds and loads the conjugate predictor. Without one, the methods that need it are
// dropped from the list of all methods. In open scope none is looked for. p.Conjugate is the model
// without the corpus's images, and the engine has the one with them.
func (p *Prepared) conjugate(c *Config, eng engine.Engine,
	behind models.Manifest) (models.Manifest, error) {
	note := ""
	switch {
	case c.Conjugate.Model == "none":
		note = "no conjugate predictor (conjugate.model none)"
	case c.OpenScope():
		note = "no conjugate predictor: the corpus lacks the tasks' classes"
	case p.Data.Corpus == nil && c.Conjugate.Model == "untrained":
		note = "no conjugate predictor: " + errNoCorpus.Error()
	}
	if note == "" {
		m, f, err := p.model(models.KindConjugate, c.Conjugate.Model, c.Dataset.Name, behind,
			func() (*onnx.Model, error) {
				if p.Data.Corpus == nil {
					return nil, errNoCorpus
				}
				return meta.UntrainedConjugate(p.Data.Corpus)
			})
		if errors.Is(err, errNoCorpus) {
			return models.Manifest{},
				p.withoutPredictor(c, "no conjugate predictor: none fits, and "+err.Error())
		}
		if err != nil {
			return f, err
		}
		p.Conjugate = m
		if b := p.Data.Corpus; b != nil && b.C == f.C && b.Dx == f.Dx { // of the tasks' classes
			if m, err = p.withImages(m, b); err != nil {
				return f, err
			}
		}
		k, err := sample.NewConjugate(eng, m)
		if err != nil {
			return f, err
		}
		p.close = append(p.close, k.Close)
		k.Threads = c.threads()
		p.Tools.Conjugate = k
		return f, nil
	}
	return models.Manifest{}, p.withoutPredictor(c, note)
}

// withImages returns a predictor with the corpus's images. Of fewer than a round wants FMP-one,
// which alone reads them, is left out: an error where it was asked for, and a note otherwise.
func (p *Prepared) withImages(m *onnx.Model, b *task.Bank) (*onnx.Model, error) {
	c := &p.Config
	v, _, err := models.ConjugateValues(m)
	if err != nil {
		return nil, err
	}
	if sample.ImagesFit(b.Len(), v.K, v.C) == nil {
		return models.WithImages(m, b.Features, b.Labels)
	}
	why := fmt.Sprintf("of the corpus's %d images in %d classes and %d coordinates it reads "+
		"fewer than %d of each class", b.Len(), v.C, v.K, models.LeastImages)
	return m, p.leave(len(c.Methods) > 0, func(i rival.Info) bool { return i.Name == "FMP-one" },
		why, "enlarge dataset.splits.corpus")
}

// leave takes methods out of a run of all, and notes why; where the settings name methods (given),
// one of these that is among them is an error, which states a remedy. p.Config.Methods then names
// those that stay, so that whether any were given is asked before.
func (p *Prepared) leave(given bool, out func(i rival.Info) bool, why, remedy string) error {
	all, err := p.Config.methods()
	if err != nil {
		return err
	}
	var rest, left []string
	for _, m := range all {
		if i := m.Info(); out(i) {
			left = append(left, i.Name)
		} else {
			rest = append(rest, i.Name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	if given {
		return fmt.Errorf("setting methods: %s: %s: %s, or leave the method out", left[0], why,
			remedy)
	}
	is := "is"
	if len(left) > 1 {
		is = "are"
	}
	p.Config.Methods = rest
	p.Manifest.Notes = append(p.Manifest.Notes,
		fmt.Sprintf("left out %s %s: %s", is, strings.Join(left, " and "), why))
	return nil
}

// withNames leaves out the methods that name a task's classes by the corpus's where these are
// fewer, and notes which; where the settings name methods (given), it is an error. In open scope
// tuning tasks take their classes from the corpus, and methods know the rest ([leaveOut]). A method
// that names n classes needs as many of the corpus, since no two share a name.
func (p *Prepared) withNames(given bool) error {
	c, d := &p.Config, p.Data
	if d.Corpus == nil {
		return nil
	}
	n, known, where, remedy := d.Clients.C, d.Corpus.C, "", ""
	if slices.Contains(c.Protocols(), "tuned") && c.OpenScope() && d.Tuning == nil && known-n >= 2 {
		known -= n
		where, remedy = " where settings are tuned", ", set protocol to shared"
	}
	if known >= n {
		return nil
	}
	return p.leave(given, func(i rival.Info) bool { return i.Names },
		fmt.Sprintf("%d classes are named by those of the corpus, and %d are known%s", n, known,
			where), "give corpus.classes more"+remedy)
}

// errNoCorpus says why an untrained conjugate predictor cannot be made.
var errNoCorpus = errors.New("there is no corpus to take its moments from (dataset.splits.corpus)")

// withoutPredictor makes FMP read moments where there is no open predictor either, drops the
// methods that a predictor or a corpus is for from the list of all methods, and notes which.
// Methods that the settings name are all kept, and one that cannot run says so itself.
func (p *Prepared) withoutPredictor(c *Config, note string) error {
	if p.Tools.Open != nil {
		if c.Conjugate.Model == "none" { // asked for, and yet there is a predictor behind FMP
			p.Manifest.Notes = append(p.Manifest.Notes,
				note+"; FMP and the control read by the open predictor (open.model)")
		}
		return nil
	}
	var mean, std []float32
	if p.Stats != nil {
		mean, std = p.Stats.Mean, p.Stats.Std
	}
	var err error
	p.Tools.Calibration = c.Federation.Calibration
	if p.Tools.Embedded, err = posterior.NewEmbedded(p.Data.Clients.Dx, nil, mean,
		std); err != nil {
		return err
	}
	note += "; FMP reads moments"
	if len(c.Methods) == 0 {
		var out []string
		for _, m := range rival.All() {
			switch i := m.Info(); {
			case i.NeedsCorpus && p.Data.Corpus == nil, i.Conjugate && i.Name != "FMP":
				out = append(out, i.Name)
			case c.lacks(i) == "":
				c.Methods = append(c.Methods, i.Name)
			}
		}
		note += "; left out are " + strings.Join(out, ", ")
	}
	p.Manifest.Notes = append(p.Manifest.Notes, note)
	return nil
}

// private loads the private predictor if the settings ask for a private round. It has to be of the
// extractor and, where there is one, of the conjugate predictor. The manifest is empty for rounds
// without privacy.
func (p *Prepared) private(c Config, eng engine.Engine,
	behind models.Manifest) (models.Manifest, error) {
	if c.Privacy.Epsilon == 0 {
		return models.Manifest{}, nil
	}
	m, f, err := corpus.Private(c.Privacy.Model, c.corpus().Name, behind, p.Conjugate)
	if err != nil {
		return f, err
	}
	v, err := sample.NewPrivate(eng, m)
	if err != nil {
		return f, err
	}
	p.close = append(p.close, v.Close)
	v.Threads = c.threads()
	p.Private, p.Tools.Private = m, v
	return f, nil
}

// open finds the predictor for tasks on classes that the corpus lacks. In closed scope only a given
// file or a shipped one is used; in open scope one is required, or a corpus to build it from. The
// setting none finds none in either scope. A shipped one that does not fit is left out without a
// note in closed scope.
func (p *Prepared) open(c Config, behind models.Manifest) (models.Manifest, error) {
	behind.C = 0 // its classes are the corpus's
	switch c.Open.Model {
	case "none":
		return models.Manifest{}, nil
	case "default":
		if _, f, err := shipped.Load(c.Dataset.Name, models.KindOpen); !c.OpenScope() &&
			(err != nil || models.Match(behind, f) != nil) {
			return models.Manifest{}, nil
		}
	}
	if p.Data.Corpus == nil && (c.Open.Model == "untrained" || c.Open.Model == "default") {
		return models.Manifest{}, nil
	}
	m, f, err := p.model(models.KindOpen, c.Open.Model, c.corpus().Name, behind,
		func() (*onnx.Model, error) {
			u, err := meta.UntrainedOpen(p.Data.Corpus, open.MaxCoordinates)
			if err != nil {
				return nil, err
			}
			return u.Model()
		})
	if err != nil {
		return f, err
	}
	p.Open = m
	p.Tools.Open, err = open.FromModel(m)
	return f, err
}

// scored is how many of n test images are used, the first: at most most of them, or all where that
// is 0.
func scored(n, most int) int {
	if most == 0 {
		return n
	}
	return min(n, most)
}

// unscored is a note of the classes without test images; empty where there are none.
func unscored(labels []int, classes int) string {
	seen := map[int]bool{}
	for _, y := range labels {
		seen[y] = true
	}
	if len(seen) == classes {
		return ""
	}
	return fmt.Sprintf("%d of %d classes have no test images: figures are of the others",
		classes-len(seen), classes)
}

// banks returns the clients' part and the test images, at most test of these, the first; 0 means
// all. Test rows are a slice of the features and are not copied. The corpus is the caller's to add.
func banks(r *corpus.Images, test int) (*Data, error) {
	f := r.Features
	d := &Data{Test: f.Test.Features, TestLabels: f.Test.Labels}
	n := scored(f.Test.N, test)
	d.Test, d.TestLabels = d.Test[:n*f.Dx], d.TestLabels[:n]
	if len(d.TestLabels) == 0 {
		return nil, fmt.Errorf("the data set has no test images, and figures come from " +
			"them: add some")
	}
	part := f.Select(f.Splits.Clients)
	var err error
	if d.Clients, err = task.NewBank(part.Features, f.Dx, part.Labels, len(f.Classes)); err != nil {
		return nil, fmt.Errorf("clients' part: %w", err)
	}
	return d, nil
}

// constantWeights replaces an upload's masses by the paper's constant n/s, for n images and s
// points: the total stays.
type constantWeights struct{ Compressor }

// Compress is the compressor's, with every weight of an upload replaced by the mean one. It
// overwrites the sets that the compressor made, which are nobody else's.
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
