// Package rival holds FMP and its rivals behind one interface: the methods that turn the points of
// a federation into samples of a head's posterior: the ten of the paper "Federated Martingale
// Posterior Sampling" (arXiv 2605.18554), FMP in closed form, baselines from the literature, and
// the prior-only control. paper.go holds nine methods of the paper, each other file one;
// registry.go lists them.
package rival

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"fmp/models"
	"fmp/onnx/suggest"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
)

// Input is one task.
type Input struct {
	// Clients holds each client's own points. A server that has only uploads leaves it empty:
	// methods that read class means or compressed points run without it.
	Clients []*point.Set
	// each client's compressed points with masses; needed by FMP-ISAB and PRIOR only
	Uploads []*point.Set
	Drawer  posterior.Drawer // needed by the martingale posteriors only
	// Conjugate and ClassMeans (each client's class means with masses) are needed by FMP and
	// FMP-mean. Latents is the number of FMP's samples, which require fits in open scope only;
	// default 100.
	Conjugate  posterior.Conjugate
	ClassMeans []*point.Set
	Latents    int
	// NoLatent disables the latent: FMP is then a single head, that of its posterior means.
	NoLatent bool
	// Open is needed by FMP and FMP-mean on classes that the corpus lacks; nil without an open
	// predictor. Scope chooses between the two: ScopeClosed (Conjugate), ScopeOpen (Open), or
	// ScopeAuto (default), which decides by the uploads.
	Open  *open.Predictor
	Scope string
	// Soft holds each client's class means of softened features (open.Predictor.Soften), which Open
	// reads; SoftLimits all available rows, softened. Both are nil without Open, and SoftLimits
	// where coverage is not measured.
	Soft       []*point.Set
	SoftLimits *point.Set
	// Calibration holds images by which FMP chooses in open scope; nil: none.
	Calibration *posterior.Calibration
	// Moments holds each client's moments of the features as Embedded has them, which FMP reads
	// where there is neither Conjugate nor Open. Kappa is the prior of its temperature; zero:
	// unknown.
	Moments  []discriminant.Client
	Embedded *posterior.Embedded
	Kappa    discriminant.Kappa

	// Named says that the corpus's classes are the task's, under the same indices.
	Named bool

	Samples int     // S, posterior samples of an ensemble of the other methods; default 20
	Fresh   int     // n', drawn points a sample; default 100
	Corpus  *Corpus // the server's knowledge of its own corpus; for the methods that say so only
	// Private and Privacy are needed by the methods of private rounds; nil without them.
	Private posterior.Private
	Privacy *privacy.Budget
	// Limits holds the class means of every row of corpus and clients' part, as Conjugate reads
	// them, from which FMP's limit of infinite data is computed; nil where coverage is not
	// measured.
	Limits  *point.Set
	Seed    uint64 // the run's seed, and
	Stream  string // the task's name in it: two tasks of one run need two names
	Threads int    // goroutines at most; 0: one a processor. Figures do not depend on it.
}

// Settings are the settings of a method. The zero value is not valid; start from DefaultSettings.
type Settings struct {
	// lambda of the fits and prior precision of the BNNs, > 0, in the sum form of package erm
	L2        float64
	Shrinkage float64 // discriminants: share of the covariance that is its mean variance, 0 to 1
	Beta      float64 // PredBayes: 0 mixes the clients' predictions, 1 multiplies them
	Weighting float64 // consensus: 1 weighs clients by the precision of their samples, 0 equally
	// Spread is the share of the between-class variances that discriminants of the corpus spread
	// evenly over all directions, 0 to 1: their allowance for classes that the corpus lacks.
	Spread float64
	// Scale multiplies the covariance of Laplace approximations, 0 to 16.
	Scale float64
	// Temperature, > 0, divides the heads of a method; 1 leaves them unchanged.
	Temperature float64
	Tolerance   float64 // of the fits, see erm.Options
	Sampler     string  // BNNs: "hmc" or "laplace"
	Covariance  string  // consensus: "diagonal" or "full" (with Ledoit-Wolf shrinkage)
	Chains      int     // HMC: chains, at least 2
	Warmup      int     // HMC: iterations per chain for adaptation, discarded
	// HMC: iterations kept per chain for R-hat; S of them, evenly spaced, make the ensemble
	Draws    int
	Shuffles int // PRIOR: shuffles of the labels
}

// Values of the enumerated settings and names of the tunable ones.
const (
	HMC      = "hmc"
	Laplace  = "laplace"
	Diagonal = "diagonal"
	Full     = "full"

	ParamL2        = "l2"
	ParamShrinkage = "shrinkage"
	ParamBeta      = "beta"
	ParamWeighting = "weighting"
	ParamSpread    = "spread"
	ParamScale     = "scale"
)

// DefaultSettings returns the shared protocol: lambda 3, shrinkage 0.3, temperature 1.
func DefaultSettings() Settings {
	return Settings{L2: 3, Shrinkage: 0.3, Beta: 0.5, Weighting: 1, Spread: 0.1, Scale: 1,
		Temperature: 1, Tolerance: erm.DefaultTolerance, Sampler: HMC, Covariance: Diagonal,
		Chains: 2, Warmup: 100, Draws: 200, Shuffles: 10}
}

// Check returns an error for the first invalid setting, or nil.
func (s Settings) Check() error {
	for _, of := range []struct {
		name    string
		is      bool
		value   any
		allowed string
	}{
		{"l2", s.L2 > 0 && !math.IsInf(s.L2, 0), s.L2, "finite numbers above 0"},
		{"shrinkage", s.Shrinkage >= 0 && s.Shrinkage <= 1, s.Shrinkage, "0 to 1"},
		{"beta", s.Beta >= 0 && s.Beta <= 1, s.Beta, "0 to 1"},
		{"spread", s.Spread >= 0 && s.Spread <= 1, s.Spread, "0 to 1"},
		{"scale", s.Scale >= 0 && s.Scale <= 16, s.Scale, "0 to 16"},
		{"weighting", s.Weighting == 0 || s.Weighting == 1, s.Weighting,
			"0 (equal) and 1 (by precision)"},
		{"temperature", s.Temperature > 0 && !math.IsInf(s.Temperature, 0), s.Temperature,
			"finite numbers above 0"},
		{"sampler", s.Sampler == HMC || s.Sampler == Laplace, s.Sampler, HMC + " and " + Laplace},
		{"covariance", s.Covariance == Diagonal || s.Covariance == Full, s.Covariance,
			Diagonal + " and " + Full},
		{"number of chains", s.Chains >= 2 && s.Chains <= 64, s.Chains,
			"2 to 64 (R-hat compares chains)"},
		{"number of warm-up iterations", s.Warmup >= 10 && s.Warmup <= 1e6, s.Warmup,
			"10 to 1000000"},
		{"number of draws of a chain", s.Draws >= minDraws && s.Draws <= 1e6, s.Draws,
			"4 to 1000000"},
		{"number of shuffles", s.Shuffles >= 1 && s.Shuffles <= 1000, s.Shuffles, "1 to 1000"},
	} {
		if !of.is {
			return fmt.Errorf("posterior: %s is %#v; allowed are %s", of.name, of.value, of.allowed)
		}
	}
	return nil
}

// tunable returns a pointer to the tunable setting name, a Param constant; nil for other names.
func (s *Settings) tunable(name string) *float64 {
	return map[string]*float64{ParamL2: &s.L2, ParamShrinkage: &s.Shrinkage, ParamBeta: &s.Beta,
		ParamWeighting: &s.Weighting, ParamSpread: &s.Spread, ParamScale: &s.Scale}[name]
}

// With returns the settings with the tunable setting name (a Param constant) set to value. An
// unknown name is an error.
func (s Settings) With(name string, value float64) (Settings, error) {
	p := s.tunable(name)
	if p == nil {
		return s, fmt.Errorf("posterior: no tunable setting %q; there are %q, %q, %q, "+
			"%q, %q and %q", name, ParamL2, ParamShrinkage, ParamBeta, ParamWeighting,
			ParamSpread, ParamScale)
	}
	*p = value
	return s, s.Check()
}

// Value returns the value of the tunable setting name; NaN for other names.
func (s Settings) Value(name string) float64 {
	if p := s.tunable(name); p != nil {
		return *p
	}
	return math.NaN()
}

// Group says where a method's data lie.
type Group string

// The groups, in the order of the paper's table.
const (
	Local       Group = "local"
	Centralised Group = "centralised"
	OneShot     Group = "one-shot federated"
	Baseline    Group = "baseline"
)

// Family groups related methods; figures draw each family in one colour.
type Family string

// The families.
const (
	Fits           Family = "fits"
	GaussianPriors Family = "Gaussian priors"
	Martingales    Family = "martingale posteriors"
	Federated      Family = "federated martingale posterior"
	Discriminants  Family = "discriminants"
)

// Info describes a method. It is the only source of such descriptions.
type Info struct {
	Name   string
	Title  string // what it does, in one line
	Group  Group
	Family Family // empty: none
	// Control marks a method that only shows the value of the clients' data and does not compete
	// with the others.
	Control bool
	// Keep marks a method with one ensemble that a server has or could have: fmp run --keep-models
	// writes its classifier.
	Keep bool
	// Cost is the expected cost before any timing, in units of one fit (digits, default settings,
	// one thread). 0 means 2.
	Cost  float64
	Cite  string // source
	Param string // the setting that the tuned protocol chooses; empty: only the temperature
	Grid  []float64
	// Wide is the grid of Param in hindsight, where more values harm nothing; nil: Grid.
	Wide []float64
	// Published is the authors' value of Param, where the run does not set it; nil: none.
	Published *float64
	// More lists further settings that the tuned protocol chooses, each with few values: all
	// combinations are tried.
	More []Param
	// Joint says that Param is a scale of the samples' spread, which the NLL of single points
	// hardly shows: it is chosen by NLL plus joint NLL.
	Joint bool
	// NeedsCorpus says that the method reads Input.Corpus.
	NeedsCorpus bool
	// ReadsCorpus says that the method reads Input.Corpus where there is one.
	ReadsCorpus bool
	// Names says that the method names the task's classes by those of Input.Corpus, which must have
	// as many.
	Names bool
	// Calibrated says that the method has no setting and tells its own temperature: it is not
	// tuned.
	Calibrated bool
	// Follows names the method whose tuned value this one takes; empty: its own.
	Follows string
	// Conjugate says that the method needs a conjugate predictor, or an open one.
	Conjugate bool
	// Fitted says that the method needs the open form, whose heads are fitted to the uploads.
	Fitted bool
	// Draws says that the method needs the predictor that draws points, Compresses that it needs
	// the embedding's uploads.
	Draws, Compresses bool
	// Private marks a method of private rounds: it needs Input.Private and Input.Privacy.
	Private bool
	// Least is the least Input.Samples that the method can do with; 0 means 1.
	Least int
}

// Models returns the kinds of model that the method reads; in open scope (open) the open predictor
// in place of the conjugate one.
func (i *Info) Models(open bool) []string {
	var out []string
	if i.Conjugate && open {
		out = append(out, models.KindOpen)
	} else if i.Conjugate {
		out = append(out, models.KindConjugate)
	}
	if i.Private {
		out = append(out, models.KindPrivate)
	}
	if i.Draws {
		out = append(out, models.KindPredictor)
	}
	if i.Compresses {
		out = append(out, models.KindEmbedding)
	}
	return out
}

// Param is a tunable setting and the values that are tried first.
type Param struct {
	Name string
	Grid []float64
}

// Raw returns the settings of the method without tuning: s with the published value, where there is
// one.
func (i *Info) Raw(s Settings) (Settings, error) {
	if i.Published == nil {
		return s, nil
	}
	return s.With(i.Param, *i.Published)
}

// Method turns points into posterior samples.
type Method interface {
	Info() Info
	// Run computes the ensemble. It reads the task and other methods' results in the task's memo;
	// the result does not depend on whether they ran before it.
	Run(ctx context.Context, t *Task, s Settings) (*posterior.Result, error)
}

// Task is a checked Input with a memo of values that several methods share (local fits, drawn
// points, local martingale posteriors), so that each is computed once. It is safe for concurrent
// use.
type Task struct {
	in     Input
	dx, c  int
	pooled func() *point.Set     // the clients' own points, pooled on first use
	memo   *memo.Memo            // by names that hold all settings that a value depends on
	means  *posterior.FMP        // FMP of the class means; nil without any
	drawn  *posterior.Martingale // posteriors of drawn points
}

// minDraws is the least number of draws per chain: two halves of two.
const minDraws = 4

// check returns an error unless there is a client or an upload, and one upload of each kind for
// each client.
func (in *Input) check() error {
	switch {
	case len(in.Clients)+len(in.Uploads)+len(in.ClassMeans)+len(in.Soft) == 0:
		return fmt.Errorf("posterior: no clients and no uploads; a task needs at least one")
	case in.Conjugate != nil && len(in.Clients) > 0 && len(in.ClassMeans) != len(in.Clients):
		return fmt.Errorf("posterior: class means of %d of %d clients; want one set each",
			len(in.ClassMeans), len(in.Clients))
	case in.Open != nil && len(in.Clients) > 0 && len(in.Soft) != len(in.Clients):
		return fmt.Errorf("posterior: class means of softened features of %d of %d clients; want "+
			"one set each", len(in.Soft), len(in.Clients))
	case len(in.Clients) > 0 && len(in.Uploads) != 0 && len(in.Uploads) != len(in.Clients):
		return fmt.Errorf("posterior: %d uploads of %d clients; want one each, or none",
			len(in.Uploads), len(in.Clients))
	}
	return nil
}

// checkSets returns an error unless every set of a kind has points, the task's dx and C, and finite
// numbers.
func (t *Task) checkSets(kind string, sets []*point.Set) error {
	for m, s := range sets {
		if s == nil || s.N == 0 {
			return fmt.Errorf("posterior: %s %d has no points; give each at least one", kind, m)
		}
		if s.Dx != t.dx || s.C != t.c {
			return fmt.Errorf("posterior: %s %d has dx %d and C %d, client 0 has %d and %d; a "+
				"task has one of each", kind, m, s.Dx, s.C, t.dx, t.c)
		}
		if err := erm.CheckSet(s); err != nil {
			return fmt.Errorf("posterior: %s %d: %w", kind, m, err)
		}
	}
	return nil
}

// NewTask checks in. It is an error if a set is empty, sets differ in dx or C, or a number is not
// finite or a weight negative.
func NewTask(in Input) (*Task, error) {
	in.Samples, in.Fresh, in.Latents = cmp.Or(in.Samples, 20), cmp.Or(in.Fresh, 100),
		cmp.Or(in.Latents, 100)
	if in.NoLatent {
		in.Latents = 1
	}
	if in.Threads <= 0 {
		in.Threads = runtime.GOMAXPROCS(0)
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	first := slices.Concat(in.Clients, in.Uploads, in.ClassMeans, in.Soft)[0]
	if first == nil {
		return nil, fmt.Errorf("posterior: client 0 has no set")
	}
	t := &Task{in: in, dx: first.Dx, c: first.C, memo: &memo.Memo{}}
	if err := t.checkSets("client", in.Clients); err != nil {
		return nil, err
	}
	if err := t.checkSets("upload", in.Uploads); err != nil {
		return nil, err
	}
	t.drawn = &posterior.Martingale{Drawer: in.Drawer, Samples: in.Samples, Fresh: in.Fresh,
		Seed: in.Seed, Stream: in.Stream, Threads: in.Threads}
	if err := t.drawn.Check(); err != nil {
		return nil, err
	}
	if len(in.ClassMeans)+len(in.Soft) > 0 {
		var err error
		if t.means, err = posterior.New(posterior.Input{
			Conjugate: in.Conjugate, ClassMeans: in.ClassMeans, Open: in.Open, Soft: in.Soft,
			Scope: in.Scope, Samples: in.Latents,
			NoLatent: in.NoLatent, Calibration: in.Calibration,
			Seed: in.Seed, Stream: in.Stream, Threads: in.Threads,
		}); err != nil {
			return nil, err
		}
	}
	t.pooled = sync.OnceValue(func() *point.Set {
		all, _ := point.Pool(in.Clients...) // the sets are known to match
		return all
	})
	return t, nil
}

// Clients returns the clients' own points, as given to NewTask.
func (t *Task) Clients() []*point.Set { return t.in.Clients }

// Uploads returns the clients' compressed points, as given to NewTask.
func (t *Task) Uploads() []*point.Set { return t.in.Uploads }

// Lookup returns the method with the given name, ignoring case. The error for an unknown name
// suggests the closest one.
func Lookup(name string) (Method, error) {
	for _, m := range registry {
		if strings.EqualFold(m.Info().Name, name) {
			return m, nil
		}
	}
	return nil, fmt.Errorf("posterior: no method %q; there are %s%s", name,
		strings.Join(Names(), ", "), suggest.DidYouMean(name, Names()))
}

// All returns the methods: those of the paper in the order of its table, then the others.
func All() []Method { return append([]Method(nil), registry...) }

// Names returns the names of All.
func Names() []string {
	var out []string
	for _, m := range registry {
		out = append(out, m.Info().Name)
	}
	return out
}
