// Package evaluate scores a classifier on labelled images that it has not seen: how often it is
// right, and whether its probabilities are calibrated.
package evaluate

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/sorting"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
	"fmp/pipeline/metric"
	"fmp/pipeline/tally/pooled"
)

// Points of the risk-coverage curve, and example images kept of each kind.
const (
	places   = 100
	examples = 6
)

// Result is the result of an evaluation.
type Result struct {
	File    string   `json:"file,omitempty"` // name of the classifier's
	Model   string   `json:"model"`          // sha256
	Classes []string `json:"classes"`
	Images  int      `json:"images"`
	// Bad is the number of unreadable images that were left out.
	Bad int `json:"bad,omitempty"`
	metric.Scores
	// Calibration compares the calibration error with that of a calibrated classifier at this
	// number of images.
	Calibration metric.Calibration `json:"calibration"`
	// ACCLow and ACCHigh are the ends of the 95% Wilson interval of ACC (Wilson 1927).
	ACCLow    float64       `json:"acc_low"`
	ACCHigh   float64       `json:"acc_high"`
	ByClass   []Class       `json:"by_class"`
	Confusion [][]int       `json:"confusion"` // images by true (row) and called class (column)
	Risk      []metric.Risk `json:"risk_coverage"`
	// Sure holds the images of highest confidence, Unsure those of lowest, and Mistakes the wrong
	// ones of highest confidence.
	Sure     []Example `json:"sure"`
	Unsure   []Example `json:"unsure"`
	Mistakes []Example `json:"mistakes"`
	// Sets is the coverage of the prediction sets; nil for a classifier without sets.
	Sets *Sets `json:"sets,omitempty"`
	// Pooled is the report of sites that scored the classifier on their own images; nil if there is
	// none.
	Pooled *pooled.Result `json:"sites,omitempty"`
	// Origin describes the sources of the classifier; Manifest is the classifier's own.
	Origin   models.Origin   `json:"origin"`
	Manifest models.Manifest `json:"-"`
}

// Class holds the scores of one class.
type Class struct {
	Name   string `json:"name"`
	Images int    `json:"images"`
	// Recall is the share of its images that are classified as it, Precision that of the images
	// classified as the class that belong to it; nil where there are none.
	Recall    *float64 `json:"recall"`
	Precision *float64 `json:"precision"`
	// Held is the number of its images whose prediction set holds it.
	Held int `json:"held,omitempty"`
	// HeldLow and HeldHigh are the ends of the 95% interval of the share held (Clopper and Pearson
	// 1934); none without sets.
	HeldLow  *float64 `json:"held_low,omitempty"`
	HeldHigh *float64 `json:"held_high,omitempty"`
}

// Sets is the coverage of prediction sets.
type Sets struct {
	Level float64 `json:"level"` // stated
	Held  int     `json:"held"`  // images whose set holds their class
	// Low and High are the ends of the 95% interval of the coverage (Clopper and Pearson 1934).
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	MeanSize float64 `json:"mean_size"`
	// Score is the classifier's conformity score; MeanSizes are the mean sizes that sets of the
	// same calibration have under each score.
	Score     string             `json:"score"`
	MeanSizes map[string]float64 `json:"mean_sizes,omitempty"`
	ByClient  []ClientSets       `json:"by_client,omitempty"`
}

// ClientSets is the coverage of prediction sets on the images of one client.
type ClientSets struct {
	Client   string  `json:"client"`
	Images   int     `json:"images"`
	Held     int     `json:"held"`
	Low      float64 `json:"low"` // as in [Sets]
	High     float64 `json:"high"`
	MeanSize float64 `json:"mean_size"`
	size     int
}

// Example is an image with the classifier's prediction.
type Example struct {
	File        string  `json:"file"`
	Truth       string  `json:"truth"`
	Says        string  `json:"says"`
	Probability float64 `json:"probability"`
	// Disagreement is the mutual information of label and head, in nats.
	Disagreement float64 `json:"disagreement"`
	PNG          []byte  `json:"-"` // nil for feature rows
}

// Evaluation collects predictions on labelled images.
type Evaluation struct {
	Client string // whose images are added; "" for none

	c        *classify.Classifier
	origin   models.Origin
	sizes    map[conformal.Score]int
	at       map[conformal.Score][]float32 // thresholds
	clients  []ClientSets
	p        metric.Probabilities
	labels   []int
	within   []float64 // mean entropy of the heads
	held     []int     // images of each class whose set holds it
	size     int       // of all sets
	sure     keeper
	unsure   keeper
	mistakes keeper
}

// New starts an evaluation.
// Thresholds of all scores are computed once; a score that the calibration lacks stays out. The
// origin of the manifest must be readable, and no image is read.
func New(c *classify.Classifier) (*Evaluation, error) {
	e := &Evaluation{c: c, p: metric.Probabilities{C: c.Manifest.C}, within: []float64{},
		held:  make([]int, c.Manifest.C),
		sizes: map[conformal.Score]int{}, at: map[conformal.Score][]float32{},
		sure: keeper{sign: 1}, unsure: keeper{sign: -1}, mistakes: keeper{sign: 1}}
	var err error
	if e.origin, err = models.ReadOrigin(c.Manifest); err != nil {
		return nil, err
	}
	if e.origin.Sets != nil {
		for _, k := range conformal.Scores {
			if t := conformal.Thresholds(e.origin.Sets, k, e.p.C); t != nil {
				e.at[k] = t
			}
		}
		if t := e.at[conformal.Score(e.origin.Sets.Score)]; t != nil {
			e.origin.Sets.Thresholds = t // of this level
		}
	}
	return e, nil
}

// addSet counts the prediction set of an image.
func (e *Evaluation) addSet(p *classify.Prediction) {
	// Sizes are counted under every score, though sets are of one: the report compares the scores.
	for k, t := range e.at {
		e.sizes[k] += k.Size(p.Scored, p.Probabilities, t)
	}
	// Images of one client follow each other: another name begins the next client's counts.
	if n := len(e.clients); e.Client != "" && (n == 0 || e.clients[n-1].Client != e.Client) {
		e.clients = append(e.clients, ClientSets{Client: e.Client})
	}
	var of ClientSets
	for c, in := range p.Set {
		if in {
			of.size++
			if c == p.Label {
				e.held[c]++
				of.Held++
			}
		}
	}
	e.size += of.size
	if e.Client != "" {
		k := &e.clients[len(e.clients)-1]
		k.Images, k.Held, k.size = k.Images+1, k.Held+of.Held, k.size+of.size
	}
}

// coverage returns the coverage of the prediction sets, and sets that of each class.
// Intervals are of 95%, each for itself: none is widened for their number.
func (e *Evaluation) coverage(r *Result) *Sets {
	sets := r.Origin.Sets
	out := &Sets{Level: sets.Level, Score: sets.Score, MeanSize: float64(e.size) / float64(e.p.N),
		MeanSizes: map[string]float64{}, ByClient: e.clients}
	for c, n := range e.held {
		out.Held += n
		low, high := conformal.ClopperPearson(n, r.ByClass[c].Images, 0.95)
		r.ByClass[c].HeldLow, r.ByClass[c].HeldHigh = &low, &high
	}
	out.Low, out.High = conformal.ClopperPearson(out.Held, r.Images, 0.95)
	for k, n := range e.sizes {
		out.MeanSizes[string(k)] = float64(n) / float64(e.p.N)
	}
	for i := range out.ByClient {
		c := &out.ByClient[i]
		c.Low, c.High = conformal.ClopperPearson(c.Held, c.Images, 0.95)
		c.MeanSize = float64(c.size) / float64(c.Images)
	}
	return out
}

// Add adds predictions. Each must have a label.
// Predictions before one that is in error stay added.
func (e *Evaluation) Add(ps []classify.Prediction) error {
	for i := range ps {
		p := &ps[i]
		if p.Label < 0 || p.Label >= e.p.C {
			return fmt.Errorf("%s has no label that the classifier knows; want one of "+
				"its %d classes", p.Name, e.p.C)
		}
		var sum float64
		for _, v := range p.Probabilities {
			sum += float64(v)
		}
		for _, v := range p.Probabilities { // float32 probabilities sum to 1 up to rounding
			e.p.P = append(e.p.P, float64(v)/sum)
		}
		if p.Set != nil {
			e.addSet(p)
		}
		e.p.N++
		e.labels = append(e.labels, p.Label)
		// Mutual information is H(mean) less the mean of H, so that this is the mean entropy.
		e.within = append(e.within, float64(p.Entropy-p.MutualInformation))
		first, _ := p.Top()
		confidence := float64(p.Probabilities[first])
		// Encoding a picture costs more than all else here, so that it is left to those that are
		// kept.
		example := func() (Example, error) {
			data, err := picture(p.Pixels, e.c.Fit)
			return Example{p.Name, e.c.Class(p.Label), e.c.Class(first), confidence,
				float64(p.MutualInformation), data}, err
		}
		keepers := []*keeper{&e.sure, &e.unsure}
		if first != p.Label {
			keepers = append(keepers, &e.mistakes)
		}
		for _, k := range keepers {
			if err := k.offer(confidence, example); err != nil {
				return err
			}
		}
	}
	return nil
}

// Result scores the collected predictions. bad is the number of images that were left out.
func (e *Evaluation) Result(bad int) (*Result, error) {
	if e.p.N == 0 {
		return nil, fmt.Errorf("no labelled images to evaluate on")
	}
	scores, err := metric.ScoreAll(&metric.Answers{Heads: max(e.c.Manifest.S, 1), Mean: &e.p,
		Entropy: e.within}, e.labels, nil)
	if err != nil {
		return nil, err
	}
	r := &Result{Model: e.c.Manifest.Digest, Images: e.p.N, Bad: bad, Scores: scores,
		Confusion: metric.Confusion(&e.p, e.labels),
		Sure:      e.sure.kept, Unsure: e.unsure.kept, Mistakes: e.mistakes.kept,
		Manifest: e.c.Manifest}
	r.Calibration = scores.Curve.Calibration()
	r.Origin = e.origin
	if r.Risk, err = metric.RiskCoverage(&e.p, e.labels, places); err != nil {
		return nil, err
	}
	right := 0
	for c, row := range r.Confusion {
		// A row of the confusion is of one true class, a column of one that was called.
		called, images := 0, 0
		for k := range row {
			images += row[k]
			called += r.Confusion[k][c]
		}
		k := Class{Name: e.c.Class(c), Images: images, Held: e.held[c],
			Recall: share(row[c], images), Precision: share(row[c], called)}
		right += row[c]
		r.ByClass, r.Classes = append(r.ByClass, k), append(r.Classes, k.Name)
	}
	if r.Origin.Sets != nil {
		r.Sets = e.coverage(r)
	}
	r.ACCLow, r.ACCHigh = metric.Wilson(right, r.Images, 0.95)
	return r, nil
}

// share returns some of all; nil where all are none.
func share(some, all int) *float64 {
	if all == 0 {
		return nil
	}
	v := float64(some) / float64(all)
	return &v
}

// RiskAt returns the error rate when the given share of the images is answered, most confident
// first.
// It is the first point of the curve of at least that coverage, up to rounding, and else the last.
func (r *Result) RiskAt(coverage float64) metric.Risk {
	for _, p := range r.Risk {
		if p.Coverage >= coverage-1e-9 {
			return p
		}
	}
	return r.Risk[len(r.Risk)-1]
}

// Confused is one kind of mistake: images of class Truth classified as Says.
type Confused struct {
	Truth, Says string
	Images      int
}

// Confusions returns the most frequent mistakes, at most n kinds.
// At ties the order is that of true classes, then of called ones.
func (r *Result) Confusions(n int) []Confused {
	var out []Confused
	for y, row := range r.Confusion {
		for c, k := range row {
			if c != y && k > 0 {
				out = append(out, Confused{r.Classes[y], r.Classes[c], k})
			}
		}
	}
	sorting.Stably(out, func(a, b Confused) int { return cmp.Compare(b.Images, a.Images) })
	return out[:min(n, len(out))]
}

// keeper keeps the few examples of largest sign x value, the earliest at ties.
// Values and examples are in one order. A keeper of sign -1 keeps the smallest values.
type keeper struct {
	sign   float64
	values []float64
	kept   []Example
}

// offer keeps an example if its value is among the first, and calls for it only then. An error of
// the example leaves the keeper as it was.
func (k *keeper) offer(value float64, example func() (Example, error)) error {
	value *= k.sign
	// Values descend. One that equals others goes behind these, which came first.
	at, _ := slices.BinarySearchFunc(k.values, value, func(have, v float64) int {
		if have >= v {
			return -1
		}
		return 1
	})
	if at == examples {
		return nil
	}
	x, err := example()
	if err != nil {
		return err
	}
	k.values, k.kept = slices.Insert(k.values, at, value), slices.Insert(k.kept, at, x)
	if len(k.kept) > examples {
		k.values, k.kept = k.values[:examples], k.kept[:examples]
	}
	return nil
}

// picture returns a PNG of an image as the classifier sees it.
// Pixels are [H, W, Ch], row by row, and those of one channel are shown grey. It is nil without
// pixels.
func picture(pix []uint8, f imagefile.Fit) ([]byte, error) {
	if pix == nil {
		return nil, nil
	}
	im := image.NewNRGBA(image.Rect(0, 0, f.W, f.H))
	for i := range f.H * f.W {
		v := pix[i*f.Ch:]
		c := color.NRGBA{v[0], v[0], v[0], 255}
		if f.Ch == 3 {
			c.G, c.B = v[1], v[2]
		}
		im.SetNRGBA(i%f.W, i/f.W, c)
	}
	var b bytes.Buffer
	err := png.Encode(&b, im)
	return b.Bytes(), err
}
