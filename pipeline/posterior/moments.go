package posterior

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/internal/effect"
	"fmp/pipeline/point"
)

// MomentsOptions are those of a posterior from moments.
type MomentsOptions struct {
	discriminant.Options
	// Honesty makes each sample draw which clients are honest, and use only their uploads.
	Honesty bool
	// Alike takes all clients for alike: none has an effect. For is the number, from 1, of the
	// client whose images the result is for; 0 for a client to come.
	Alike bool
	For   int
	// Rest is the sum of further clients' moments, which were judged elsewhere or are trusted; nil
	// where there are none.
	Rest *discriminant.Client
	// Known are moments that nobody doubts: they anchor who is honest (honesty.Known), and count
	// nowhere else; nil: none.
	Known   *discriminant.Client
	Threads int     // goroutines at most; 0: one a processor
	limit   float64 // images up to which a client that is judged counts unconfirmed; 0: none is
	// Progress is told how far the work is, from any goroutine; nil: nobody asks.
	Progress func(stage string, done, total int)
}

// report tells Progress.
func (o *MomentsOptions) report(stage string, done, total int) {
	if o.Progress != nil {
		o.Progress(stage, done, total)
	}
}

// Stages of the work. The first has a step for shifts and, where clients are judged, one for their
// judges.
const (
	readingMoments   = "reading moments"
	confirmingClaims = "claims of many images"
	makingSamples    = "samples"
)

// Moments computes FMP's posterior from uploads of moments (package discriminant), which needs no
// corpus; c is how features are embedded. Where clients have effects (package effect), class means
// and calibration points are read less these. For a client to come the covariance within classes is
// wider by that of effects; for a client of the round all rows are shifted by its effect. A client
// whose shift cannot be told from classes that lie nearer together (effect.Effects.Near) is not
// honest: counted, its shift would widen the temperature for all.
func Moments(ctx context.Context, clients []discriminant.Client, c *Embedded,
	o MomentsOptions) (*Result, error) {
	judged, steps := o.Honesty && len(clients) > 1, 1
	if judged {
		steps = 2
	}
	o.report(readingMoments, 0, steps)
	effects, err := momentsEffects(clients, o)
	if err != nil {
		return nil, err
	}
	o.report(readingMoments, 1, steps)
	if effects.Any() {
		clients = withShifts(clients, effects, o.For)
		if o.For == 0 {
			o.Effects = effects.ToCome().Covariance()
		}
	}
	var j *Judgement
	all := make([]int, len(clients))
	for m := range all {
		all[m] = m
	}
	states := []momentsState{{all, o.Samples}}
	if judged {
		o.limit, _ = unconfirmed(clients)
		if clients, states, j, err = judgeMoments(ctx, clients, effects, o); err != nil {
			return nil, err
		}
	}
	var e Ensemble
	var first *statePosterior
	before := 0 // samples of earlier states
	o.report(makingSamples, 0, o.Samples)
	for i, s := range states {
		of := o.Options
		of.Drawn = func(done, all int) {
			o.report(makingSamples, before+s.samples*done/all, o.Samples)
		}
		if of.Samples = s.samples; i > 0 {
			of.Stream = fmt.Sprintf("%s/state %d", o.Stream, i)
		}
		honest := make([]discriminant.Client, 0, len(s.clients)+1)
		for _, m := range s.clients {
			honest = append(honest, clients[m])
		}
		if o.Rest != nil {
			honest = append(honest, *o.Rest)
		}
		if i == 0 && o.unasked(honest) == "" { // candidates take images that are all alike
			if err := discriminant.CheckScatter(honest); err != nil {
				return nil, err
			}
		}
		p, err := o.state(ctx, honest, of)
		if err != nil {
			return nil, err
		}
		before += s.samples
		if e = append(e, p.heads...); i == 0 {
			first = p
		}
	}
	r := &Result{Ensembles: []Ensemble{e}, Coordinates: c, Means: c, Regression: true,
		Intervals: &headIntervals{c, e, math.Sqrt((1 + 1/float64(len(e))) / first.tempering),
			first.beyond},
		UploadBytes: momentsBytes(clients), Judgement: j, Effects: effects,
		Diagnostics: first.diagnostics, Unread: first.unread, Unmeasured: first.unmeasured}
	if effects.Any() {
		var sets []*point.Set
		for _, m := range states[0].clients {
			sets = append(sets, clients[m].Means)
		}
		r.Shift = newShift(effects, o.For, first.means, e, sets)
	}
	return r, nil
}

// statePosterior is the posterior of one state of who is honest.
type statePosterior struct {
	heads Ensemble
	// means of classes, [C, k]; nil where the temperature is that of clients left out
	means       *mat.Dense
	tempering   float64   // factor of the variance that heads are drawn with
	beyond      []float64 // variance of log-odds beyond that of heads, [C]
	diagnostics map[string]float64
	unread      string // why nothing weighed the corpus
	unmeasured  string // why nothing told the temperature
}

// state computes the posterior of the honest clients of a state. Where kappa is not known it is
// one posterior, whose temperature is that of clients left out, who weigh a corpus too.
func (o *MomentsOptions) state(ctx context.Context, honest []discriminant.Client,
	of discriminant.Options) (*statePosterior, error) {
	why := o.unasked(honest)
	if why == "" {
		r, err := One(ctx, honest, nil,
			MomentsOptions{Options: of, Threads: o.Threads, limit: o.limit})
		if err != nil {
			return nil, err
		}
		if of.Drawn != nil {
			of.Drawn(len(r.Ensembles[0]), len(r.Ensembles[0]))
		}
		return &statePosterior{r.Ensembles[0], nil, 1, beyond(honest), r.Diagnostics, "", ""}, nil
	}
	p, err := discriminant.Compute(ctx, honest, of)
	if err != nil {
		return nil, err
	}
	d := map[string]float64{"moments": 1, "kappa": p.Kappa.Median,
		"kappa deviation": p.Kappa.Deviation, "spread": p.Spread}
	if of.Corpus != nil && p.Unread == "" {
		d["corpus"] = p.Corpus
	}
	if o.Kappa != (discriminant.Kappa{}) || p.Points > 0 {
		why = ""
	}
	return &statePosterior{p.Heads, p.Means, discriminant.Tempering, beyond(honest), d,
		p.Unread, why}, nil
}

// leastAsked is the least share of the images that clients could be asked about, were all classes
// held alike. Where classes are of one client each, but for a few images, these would tell the
// temperature for all: a single further image took NLL from .530 to .614 (docs/notes/moments.md).
const leastAsked = 0.25

// unasked says why the temperature is not that of clients left out, and of calibration points where
// there are enough. It is "" where it is: kappa is not known, and clients can be asked about enough
// images. With n_mc images of class c that count of client m, n_m in all, others can be asked about
//
//	sum_mc min(n_mc, n_c - n_mc)   of   sum_m min(n_m, n - n_m)
//
// so that a client that claims many counts as many as the others have. A sum of merged clients
// cannot be left out. Clients with effects keep the discriminant, whose temperature knows the
// covariance of these.
func (o *MomentsOptions) unasked(clients []discriminant.Client) string {
	switch {
	case o.Kappa != (discriminant.Kappa{}):
		return "kappa is known"
	case o.Rest != nil:
		return "a client whose upload is summed cannot be left out"
	case len(clients) < 2:
		return "one client alone counts, and nobody else can be asked about its images"
	}
	total := make([]float64, clients[0].Means.C)
	for _, c := range clients {
		if c.Shift != nil {
			return "clients differ by a shift, as of another camera"
		}
		addImages(total, c)
	}
	own, all, asked, most := make([]float64, len(total)), floats.Sum(total), 0.0, 0.0
	for _, c := range clients {
		clear(own)
		addImages(own, c)
		for y, n := range own {
			asked += min(n, total[y]-n)
		}
		n := floats.Sum(own)
		most += min(n, all-n)
	}
	if !(asked > 0 && asked >= leastAsked*most) {
		return "others hold the classes of less than a quarter of the images"
	}
	return ""
}

// addImages adds a client's images of each class that count, [C]: its masses times the share of its
// images that counts. The mass of a soft label is spread over its classes.
func addImages(to []float64, c discriminant.Client) {
	for i := range c.Means.N {
		c.Means.Shares(i, func(y int, share float32) {
			to[y] += cmp.Or(c.Share, 1) * float64(share*c.Means.W[i])
		})
	}
}

// momentsEffects estimates the clients' effects; nil where none has one.
func momentsEffects(clients []discriminant.Client, o MomentsOptions) (*effect.Effects, error) {
	if o.Alike || o.Rest != nil || len(clients) < 3 {
		return nil, nil
	}
	white, back, err := discriminant.Whitening(clients)
	if err != nil {
		return nil, err
	}
	sets := make([]*point.Set, len(clients))
	for m, c := range clients {
		sets[m] = c.Means
	}
	return effect.Estimate(sets, white, back)
}

// withShifts returns the clients with their effects as shifts, less that of the client with a
// number from 1.
func withShifts(clients []discriminant.Client, effects *effect.Effects,
	number int) []discriminant.Client {
	out := slices.Clone(clients)
	for m := range out {
		b := make([]float64, out[m].Within.K)
		if own := effects.Shift[m]; own != nil {
			floats.Add(b, own)
		}
		if number > 0 && effects.Shift[number-1] != nil {
			floats.Sub(b, effects.Shift[number-1])
		}
		out[m].Shift = b
	}
	return out
}

// momentsBytes returns the mean size of an upload in float32, without framing: 4 bytes for each
// number of class means, labels, counts, scatter and calibration points. The curve is left out.
func momentsBytes(clients []discriminant.Client) float64 {
	var n int
	for _, u := range clients {
		n += u.Means.N*(u.Means.Dx+2) + len(u.Within.Data) + len(u.Within.Calibration) +
			len(u.Within.Labels)
	}
	return 4 * float64(n) / float64(len(clients))
}

// Embedded are the coordinates of heads from moments: embedded features.
type Embedded struct {
	graph   *onnx.Model
	session engine.Session
	dx      int
}

// NewEmbedded prepares the graph of models.MomentsCoordinates.
func NewEmbedded(dx int, basis *onnx.Tensor, mean, std []float32) (*Embedded, error) {
	graph, err := models.MomentsCoordinates(dx, basis, mean, std)
	if err != nil {
		return nil, err
	}
	return embedded(graph, dx)
}

// embedded prepares a graph from features to coordinates.
func embedded(graph *onnx.Model, dx int) (*Embedded, error) {
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	s, err := eng.Load(graph) // holds memory alone, and need not be closed
	if err != nil {
		return nil, err
	}
	return &Embedded{graph, s, dx}, nil
}

// Dx returns the number of features of a row.
func (c *Embedded) Dx() int { return c.dx }

// Graph returns the graph of Map.
func (c *Embedded) Graph() *onnx.Model { return c.graph }

// Map maps feature rows to embedded ones.
func (c *Embedded) Map(ctx context.Context, features []float32) ([]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := map[string]*onnx.Tensor{c.graph.Graph.Inputs[0].Name: onnx.NewTensor(features,
		len(features)/c.dx, c.dx)}
	out, err := engine.Eval(c.session, in, models.ConjCoordinates)
	if err != nil {
		return nil, err
	}
	return out[models.ConjCoordinates].F32(), nil
}

// headIntervals are intervals from the heads. With mean and sd of a probability's log-odds over the
// S heads, an interval of a level is
//
//	logistic(mean -+ q sqrt(widening^2 sd^2 + beyond)),   q the normal's quantile of 1/2 + level/2
//
// where widening is sqrt((1 + 1/S)/tempering): 1/S is the error of the mean, and heads are drawn
// with the factor tempering on their variance. Beyond is the variance that they lack. Log-odds are
// at most those that a classifier in float32 tells from certainty (models.MinOther).
type headIntervals struct {
	at       Coordinates
	heads    Ensemble
	widening float64   // of the standard deviation
	beyond   []float64 // of the variance, [C]; nil: none
}

// Heads returns the heads on which intervals of weights are computed.
func (k *headIntervals) Heads(context.Context) (Ensemble, error) { return k.heads, nil }

// Compute returns the ends of the intervals of class probabilities, n x C each.
func (k *headIntervals) Compute(ctx context.Context, features []float32,
	level float64) (low, high []float64, err error) {
	rows, err := k.at.Map(ctx, features)
	if err != nil {
		return nil, nil, err
	}
	d, c := k.heads[0].D-1, k.heads[0].C
	q := distuv.UnitNormal.Quantile(0.5 + level/2)
	odds := make([][]float64, c)
	logit, space := make([]float64, c), make([]float64, c)
	for i := 0; i < len(rows); i += d {
		for y := range odds {
			odds[y] = odds[y][:0]
		}
		for _, h := range k.heads {
			h.Logits(rows[i:i+d], logit)
			logOdds(logit, space)
			for y, v := range logit {
				odds[y] = append(odds[y], min(v, -math.Log(models.MinOther)))
			}
		}
		for y, o := range odds {
			mean, v := stat.PopMeanVariance(o, nil)
			if v *= k.widening * k.widening; k.beyond != nil {
				v += k.beyond[y]
			}
			reach := q * math.Sqrt(v)
			low, high = append(low, logistic(mean-reach)), append(high, logistic(mean+reach))
		}
	}
	return low, high, nil
}

// logOdds replaces logits by log-odds, logit_y - log sum_{c != y} exp(logit_c). The sum is of those
// before y and those after it: less y's own it would be rounding where y is nearly certain. space
// is as long as logits.
func logOdds(logit, space []float64) {
	top, after := slices.Max(logit), 0.0
	for y := len(logit) - 1; y >= 0; y-- {
		space[y] = after
		after += math.Exp(logit[y] - top)
	}
	before := 0.0
	for y, v := range logit {
		logit[y] = v - top - math.Log(before+space[y])
		before += math.Exp(v - top)
	}
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
