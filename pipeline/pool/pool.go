// Package pool implements the server's side of a round: it turns checked uploads and a predictor
// into a classifier.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"fmp/assets"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/sorting"
	"fmp/pipeline/conformal"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
	"fmp/pipeline/shipped"
	"fmp/pipeline/stats"
)

// Round is the checked uploads with all that is needed to pool them.
//
// It is made by [New]. Options are resolved in place: a caller reads the defaults that were taken
// from it.
type Round struct {
	Options // resolved
	// Uploads are in the order of their clients' names. Their points are read, and never changed.
	Uploads []Upload
	// Rest are the further clients that a part holds the sums of; nil where there are none.
	Rest *Rest
	// Graph is the client graph (or the embedding) behind the uploads, Client its manifest.
	Graph  *onnx.Model
	Client models.Manifest
	// Progress is told how far a posterior is that is sampled here, from any goroutine; nil: nobody
	// asks.
	Progress func(stage string, done, total int)

	predictor *onnx.Model     // nil if there is only an open one, or of moments
	drawer    models.Manifest // the predictor's manifest
	open      *onnx.Model     // nil if there is none
	openFrom  models.Manifest // the open predictor's manifest
	named     bool            // the predictor is of the round's classes, by their names
	unknown   []string        // names of the round's classes that the predictor lacks
	// behind uploads that are folds of a state; nil: uploads are single clients'
	members []stats.Client
	design  conformal.Design // of the prediction sets, without points
	// falseShare is the share of the clients whose calibration points may be false.
	falseShare float64
	reach      *sample.Reach // bounds class means; nil of other uploads
	groups     []string      // names of groups of clients that the sets hold for
	group      []int         // of each upload; nil: none is named
	anchored   anchoring
}

// ErrNoGraph is wrapped by the error for uploads whose client graph is not known. A caller that can
// get a graph from elsewhere tests for it with errors.Is.
var ErrNoGraph = errors.New("give the client graph that made the uploads (--client-graph)")

// New prepares a round of at least one upload, in the order of their clients' names: the order in
// which they are given makes no difference. graph and client are the client graph behind them
// and its manifest; if graph is nil, it is looked up among those shipped with the program. A
// predictor that was trained behind another extractor is refused. So are options that the kind of
// uploads does not read.
//
// Uploads that no images give are an [UnfitError], which holds the others. All checks come before
// any sampling, so that a server can make its settings sure by a round without points.
//
// The slice of uploads is copied and sorted in O(n log n); the uploads themselves are shared with
// the caller.
func New(uploads []Upload, graph *onnx.Model, client models.Manifest, o Options) (*Round, error) {
	if len(uploads) == 0 {
		return nil, errors.New("pool: no uploads; give at least one")
	}
	r := &Round{Options: o, Uploads: uploads, Graph: graph, Client: client}
	var err error
	if graph == nil {
		r.Graph, r.Client, err = shipped.Model(uploads[0].Model)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("pool: the client graph behind the uploads has the sha256 "+
				"%.12s, and none that comes with the program does: %w",
				uploads[0].Model, ErrNoGraph)
		} else if err != nil {
			return nil, err
		}
	}
	r.Uploads = slices.Clone(uploads)
	sorting.By(r.Uploads, func(a, b Upload) int { return strings.Compare(a.Client, b.Client) })
	if err := o.Unread(r.kind()); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	if err := r.ReadFiles(); err != nil {
		return nil, err
	}
	if r.Moments() {
		// A server makes its settings sure before it has a point.
		if c, u := r.CorpusMoments, uploads[0].Points; c != nil && u != nil && c.Within.K != u.Dx {
			return nil, fmt.Errorf("pool: the corpus has rows of %d numbers, and the uploads "+
				"have %d: make both behind one extractor, with the same --bytes", c.Within.K, u.Dx)
		}
	} else if err := r.openPredictor(); err != nil {
		return nil, err
	}
	if _, err := r.client(); err != nil {
		return nil, err
	}
	if err := r.anchors(); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	if err := r.bound(); err != nil {
		return nil, err
	}
	if r.design, err = r.setDesign(); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	return r, r.settle()
}

// client returns the number of the client that Options.For names, from 1; 0 where it names none.
// Package posterior counts clients so: 0 stands for a client to come.
func (r *Round) client() (int, error) {
	if r.For == "" {
		return 0, nil
	}
	at := slices.IndexFunc(r.Uploads, func(u Upload) bool { return u.Client == r.For })
	if at < 0 {
		return 0,
			fmt.Errorf(
				"pool: the classifier is to be for client %q: none of the %d uploads is from this "+
					"client", r.For, len(r.Uploads))
	}
	if !r.Moments() && r.open == nil {
		return 0, fmt.Errorf("pool: a classifier for client %q: shifts of clients are found from "+
			"moments, or from class means of all features behind an extractor with an open "+
			"predictor, and these uploads are other", r.For)
	}
	return at + 1, nil
}

// kind returns the kind of the round's uploads, as the tag rounds of [Options] names it. The client
// graph decides, so that a round without uploads has one.
func (r *Round) kind() string {
	switch {
	case r.Moments():
		return ofMoments
	case r.Client.ClassMeans:
		return ofMeans
	}
	return ofPoints
}

// Moments reports whether clients of the round send moments. Their graphs alone bound the bytes of
// an upload, by which they are told.
func (r *Round) Moments() bool { return r.Client.Bytes > 0 }

// openPredictor loads the predictors that read the uploads, and refuses those that do not go with
// them. A shipped predictor that is missing is no error yet: an open one may serve.
func (r *Round) openPredictor() (err error) {
	switch r.Predictor {
	case "", "default":
		r.predictor, r.drawer, err = shipped.Predictor(r.Client)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	case "untrained":
		return r.bootstrap()
	default:
		err = r.loadPredictor()
	}
	if err != nil {
		return err
	}
	if r.predictor != nil && r.drawer.Kind != models.KindConjugate {
		return models.Match(r.Client, r.drawer)
	}
	if err := r.openOpen(); err != nil {
		return err
	}
	if err := r.byName(); err != nil {
		return err
	}
	for _, m := range []*onnx.Model{r.predictor, r.open} {
		if m != nil && r.Client.K == 0 && !models.SameSoftening(r.Graph, m) {
			return errors.New("pool: the client graph and the predictor soften features about " +
				"different centres, those of two corpora; fuse the client graph anew with the " +
				"predictor at hand (fmp fuse)")
		}
	}
	return r.checkScope()
}

// bootstrap makes the untrained predictor, a smoothed bootstrap of the uploads. It depends on the
// sizes and the round's seed alone.
func (r *Round) bootstrap() (err error) {
	if r.Client.ClassMeans {
		return errors.New("pool: the uploads are class means, and the conjugate predictor that " +
			"reads them takes its moments from a corpus: give one with --predictor FILE (fmp " +
			"train conjugate makes it)")
	}
	c := models.PredictorConfig{Dx: r.Client.Dx, C: r.Client.C}
	if r.predictor, err = models.NewPredictor(c, r.Seed); err != nil {
		return err
	}
	r.drawer, err = models.ReadManifest(r.predictor)
	return err
}

// loadPredictor loads the file of the option Predictor; an open predictor takes the place of the
// option Open. Its errors say which kind of predictor the uploads want, and the command that makes
// it.
func (r *Round) loadPredictor() (err error) {
	if r.predictor, r.drawer, err = models.Load(r.Predictor); err != nil {
		return err
	}
	switch kind := r.drawer.Kind; {
	case kind == models.KindOpen:
		if r.Open != "" && r.Open != "default" && r.Open != "none" {
			return fmt.Errorf("pool: %s and %s are both open predictors; give one of them",
				r.Predictor, r.Open)
		}
		r.Open, r.predictor, r.drawer = r.Predictor, nil, models.Manifest{}
	case kind != models.KindPredictor && kind != models.KindConjugate:
		return fmt.Errorf("pool: %s is %q by its manifest; --predictor wants a predictor, the "+
			"file that fmp train conjugate, open or predictor writes", r.Predictor, kind)
	case kind == models.KindConjugate && !r.Client.ClassMeans:
		return fmt.Errorf("pool: %s is a conjugate predictor, which reads class means, and the "+
			"uploads are an embedding's points: give a predictor of fmp train predictor, or new "+
			"client graphs (fmp fuse --upload class-means)", r.Predictor)
	case kind == models.KindPredictor && r.Client.ClassMeans:
		return fmt.Errorf("pool: %s reads an embedding's points, and the uploads are class "+
			"means: give a conjugate predictor (fmp train conjugate), or new client graphs (fmp "+
			"fuse --upload points)",
			r.Predictor)
	case kind == models.KindConjugate && r.Client.K != 0 && r.Client.K != r.drawer.K:
		return fmt.Errorf("pool: the uploads have %d coordinates and the predictor %s has %d; use "+
			"models that were made for each other", r.Client.K, r.Predictor, r.drawer.K)
	}
	return nil
}

// byName takes of the conjugate predictor the round's classes, in their order, where it has all
// names. It leaves a round of another number of classes to the open predictor where no option names
// the conjugate one. Classes that it lacks are kept for a note.
func (r *Round) byName() error {
	if r.predictor == nil {
		return nil
	}
	for _, name := range r.Client.Classes {
		if len(r.drawer.Classes) > 0 && !slices.Contains(r.drawer.Classes, name) {
			r.unknown = append(r.unknown, name)
		}
	}
	if min(len(r.Client.Classes), len(r.drawer.Classes)) > 0 && r.unknown == nil {
		m, f, err := models.OfClasses(r.predictor, r.drawer, r.Client.Classes)
		if err != nil {
			return fmt.Errorf("pool: %w", err)
		}
		r.predictor, r.drawer, r.named = m, f, true
	}
	err := models.Match(r.Client, r.drawer)
	given := r.Predictor != "" && r.Predictor != "default"
	if err != nil && r.open != nil && !given {
		r.predictor, r.drawer, err = nil, models.Manifest{}, nil
	}
	return err
}

// checkScope refuses a scope without the predictor that reads it: closed wants a predictor of the
// round's classes, open an open one, and auto either.
func (r *Round) checkScope() error {
	switch {
	case r.Scope == posterior.ScopeOpen && r.open == nil:
		return errors.New("pool: posterior.scope is open, and there is no open predictor for " +
			"these uploads: give one with --set open.model=FILE (fmp train open makes it)")
	case r.Scope == posterior.ScopeClosed && r.predictor == nil,
		r.predictor == nil && r.open == nil:
		kind, orElse := "conjugate", ""
		if r.Client.ClassMeans && r.open == nil {
			orElse = " where the corpus has the clients' classes, fmp train open where it lacks " +
				"them"
		} else if !r.Client.ClassMeans {
			kind, orElse = "predictor",
				", or take --predictor untrained, a smoothed bootstrap of the uploads"
		}
		return fmt.Errorf("pool: no predictor comes with the program for the extractor behind "+
			"these uploads: give one with --predictor FILE (fmp train %s makes it%s)", kind, orElse)
	}
	return nil
}

// openOpen loads the open predictor, which reads class means of softened features. A shipped one
// that is missing, or softens about another centre than the client graph, is passed over: the
// conjugate predictor may serve. One that was asked for is an error then.
func (r *Round) openOpen() (err error) {
	means := r.Client.ClassMeans && r.Client.K == 0
	switch r.Open {
	case "none":
		return nil
	case "", "default":
		if !means || r.Scope == posterior.ScopeClosed {
			return nil
		}
		if r.open, r.openFrom, err = shipped.Open(r.Client); errors.Is(err, fs.ErrNotExist) ||
			err == nil && !models.SameSoftening(r.Graph, r.open) {
			r.open, err = nil, nil
		}
		return err
	}
	if r.open, r.openFrom, err = models.Load(r.Open); err != nil {
		return err
	}
	if r.openFrom.Kind != models.KindOpen {
		return fmt.Errorf(
			"pool: %s is %q by its manifest; open.model wants the file that fmp train open writes",
			r.Open,
			r.openFrom.Kind)
	}
	if !means {
		return fmt.Errorf("pool: the open predictor %s reads class means of all features, and "+
			"these uploads are other points; make new client graphs (fmp fuse --upload "+
			"class-means)", r.Open)
	}
	client := r.Client
	client.C = 0 // its classes are the corpus's
	return models.Match(client, r.openFrom)
}

// closedForm reports whether heads are computed in closed form, from class means. A round without a
// predictor is one of moments, or of an open predictor alone.
func (r *Round) closedForm() bool {
	return r.predictor == nil || r.drawer.Kind == models.KindConjugate
}

// Defaults of the options.
const (
	ConjugateSamples = 100 // S of a predictor in closed form
	DrawnSamples     = 20  // S of a predictor that draws points
	Tolerance        = 1e-8
	Seed             = 1
)

// settle sets the options that were not given: for a shipped predictor, those suited to its data
// set, where the penalty need not be that of its training; for another, those of its manifest.
// Samples of moments are bounded by the size of their heads. Values of zero stand for options that
// were not given, and the first that is not zero counts. The order is: option, predictor's
// manifest, defaults. For the penalty of a shipped predictor, its data set's defaults replace the
// manifest.
func (r *Round) settle() error {
	if most := discriminant.MaxSamples(r.Client.Dx, r.Client.C); r.Moments() && r.Samples > most {
		return fmt.Errorf("pool: %d samples of heads of %d features and %d classes; allowed are "+
			"%d, which take 128 MiB: give fewer, or 0 for as many as suit",
			r.Samples, r.Client.Dx, r.Client.C, most)
	}
	if r.closedForm() { // no point is drawn, and no head fitted with a penalty that a setting names
		// There are fewer where many classes and coordinates make a wide classifier.
		samples := ConjugateSamples
		c := models.ConjugateConfig{Dx: r.drawer.Dx, C: r.drawer.C, K: r.drawer.K}
		if r.predictor != nil && c.Wide(samples) {
			samples = c.WideSamples(samples)
		}
		r.L2, r.Fresh, r.Samples = 0, 0, cmp.Or(r.Samples, samples)
		return nil
	}
	// The digest tells whether a predictor is shipped, also where a file was given.
	l2 := r.drawer.L2
	dataset, err := shipped.Dataset(r.drawer.Digest)
	if err == nil {
		l2 = assets.DefaultsFor(dataset).L2
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	suits := assets.DefaultsFor(dataset) // those of no data set for a predictor that is not shipped
	r.L2 = cmp.Or(r.L2, l2, suits.L2)
	r.Fresh = cmp.Or(r.Fresh, r.drawer.Fresh, suits.Fresh)
	r.Tolerance = cmp.Or(r.Tolerance, Tolerance)
	r.Samples = cmp.Or(r.Samples, DrawnSamples)
	return nil
}

// Method returns the name in the registry of the method that uses the predictor. A head in closed
// form needs no draws of points, which FMP-ISAB takes from its predictor.
func (r *Round) Method() string {
	if r.closedForm() {
		return "FMP"
	}
	return "FMP-ISAB"
}

// MethodOf returns the name in the registry of the method that a posterior of the round is of:
// FMP-one where a corpus of the round's classes counts as one more client.
func (r *Round) MethodOf(p *posterior.Result) string {
	if _, one := p.Diagnostics[posterior.DiagnosticNamed]; one {
		return "FMP-one"
	}
	return r.Method()
}

// Posterior samples the posterior given the uploads. The same round gives the same samples. It is
// one posterior of [Round.Sampling], which is closed afterwards.
func (r *Round) Posterior(ctx context.Context, eng engine.Engine) (*posterior.Result, error) {
	s, err := r.Sampling(eng)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Posterior(ctx, nil)
}

// Open reports whether a posterior of the round is of the open form, for classes that the corpus
// lacks, and returns the novelty of the uploads that decided it (NaN if it was not measured).
func Open(p *posterior.Result) (open bool, novelty float64) {
	novelty, ok := p.Diagnostics["novelty"]
	if !ok {
		novelty = math.NaN()
	}
	return p.Diagnostics["open"] == 1, novelty
}

// Unknown returns the names of the round's classes that the corpus of its predictor lacks.
func (r *Round) Unknown() []string { return r.unknown }

// Named reports whether the corpus of the round's predictor has all of its classes, by name.
func (r *Round) Named() bool { return r.named }

// featureGraph returns the graph from images to feature rows; nil where rows are asked for. A nil
// graph has the classifier take feature rows.
func featureGraph(graph *onnx.Model, client models.Manifest, rows bool) (*onnx.Model, error) {
	if rows {
		return nil, nil
	}
	return models.FeatureGraph(graph, client)
}

// Classifier returns the classifier of a posterior of the round: the heads behind the client
// graph's preprocessing and extractor or, if rows is set, the smaller form that takes feature rows.
// samples adds an output with the probabilities of each single head. command is recorded in the
// manifest. The provenance names every client with its upload's digest and images: those behind the
// folds of a state, and clients whose uploads were merged as one.
//
// The predictor that is named is the one that decided: the open one in open scope. Sets, where
// there are some, become outputs of the same graph.
func (r *Round) Classifier(ctx context.Context, p *posterior.Result, rows, samples bool,
	command string) (*onnx.Model, error) {
	if r.Client.Kind == models.KindEmbedding && !rows {
		return nil, errors.New("pool: the uploads were made from feature rows, by an embedding; " +
			"add --rows for the classifier of feature rows")
	}
	features, err := featureGraph(r.Graph, r.Client, rows)
	if err != nil {
		return nil, err
	}
	from := r.drawer
	if open, _ := Open(p); open {
		from = r.openFrom
	}
	o := models.Origin{
		Method: r.MethodOf(p), Client: r.Client.Digest, Predictor: from.Digest, Protocol: "shared",
		L2: r.L2, Fresh: r.Fresh, Round: r.Uploads[0].Round,
	}
	// Folds of a state are no clients: those behind them are named.
	for _, c := range r.members {
		o.Clients = append(o.Clients, models.OriginClient{Name: c.Name, Upload: c.Upload, N: c.N})
	}
	for _, u := range r.Uploads {
		if r.members == nil {
			o.Clients = append(o.Clients,
				models.OriginClient{Name: u.Client, Upload: u.Digest, N: u.Images()})
		}
	}
	if r.Rest != nil {
		o.Clients = append(o.Clients, models.OriginClient{
			Name: fmt.Sprint(r.Rest.Summed, mergedClients), Upload: r.Rest.Digest, N: r.Rest.N})
	}
	f := r.Client
	f.Seed, f.Command = r.Seed, command
	m, err := p.Classifier(ctx, features, samples, f, o)
	if err != nil || p.Sets == nil {
		return m, err
	}
	m, err = models.WithSets(m, *p.Sets, p.Sets.Score == string(conformal.Adaptive))
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	return m, nil
}
