// Package pooled pools the reports of sites about one classifier: accuracy and coverage at each
// site, over all, for a further site, and by class; how much sites differ; and the calibration
// curve.
package pooled

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"fmp/onnx/sorting"
	"fmp/pipeline/tally"
)

// MaxSites is the maximum number of reports that are pooled.
const MaxSites = 10_000

// z is the normal quantile of a 95% interval.
const z = 1.959963984540054

// Result is the pooled report.
type Result struct {
	Classifier string  `json:"classifier"`
	Images     int     `json:"images"`
	Level      float64 `json:"level,omitempty"` // of prediction sets, as stated
	Sites      []Site  `json:"sites"`           // sorted by name
	Accuracy   Overall `json:"accuracy"`
	// Coverage is of the sites that tell of their sets; nil if none does.
	Coverage *Overall `json:"coverage,omitempty"`
	// Curve is the calibration curve over the bins that sites with bins have in common, and ECE its
	// expected calibration error; nil where no site has any. Sites with noise, which hides mean
	// confidences, are in the curve only where no other has bins; it then has no means and no ECE.
	Curve   []tally.Bin `json:"curve,omitempty"`
	ECE     *float64    `json:"ece,omitempty"`
	ByClass []Class     `json:"by_class"`
}

// Share is a share of images with its 95% interval.
type Share struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Site holds the figures of one site.
type Site struct {
	Name   string `json:"name"`
	Images int    `json:"images"`
	// Few says which images are fewer than Least, so that Accuracy is between its bounds; Sigma is
	// that of the noise.
	Few      string   `json:"few,omitempty"`
	Least    int      `json:"least,omitempty"`
	Sigma    uint64   `json:"sigma,omitempty"`
	Accuracy Share    `json:"accuracy"`
	Coverage *Share   `json:"coverage,omitempty"`
	SetSize  *float64 `json:"mean_set_size,omitempty"`
	ECE      *float64 `json:"ece,omitempty"`
}

// Class is the accuracy in one class, from the sites that tell of it alone.
type Class struct {
	Class  int   `json:"class"`
	Sites  int   `json:"sites"`
	Images int   `json:"images"`
	Share  Share `json:"accuracy"`
}

// Overall is a share over sites, and how much they differ.
type Overall struct {
	Sites int `json:"sites"`
	// Pooled is the share of all images together.
	Pooled Share `json:"pooled"`
	// Typical is the mean over sites by random effects on the log-odds scale (DerSimonian and Laird
	// 1986), and New the 95% prediction interval of the true share at a further site (Higgins,
	// Thompson and Spiegelhalter 2009); nil with fewer than three sites.
	Typical Share   `json:"typical"`
	New     *Share  `json:"new_site,omitempty"`
	Median  float64 `json:"median"` // of the sites' shares
	// Q is Cochran's (1954), with its degrees of freedom and p-value; I2 is the share of the
	// variance of sites' log-odds that is beyond chance (Higgins and Thompson 2002), Tau2 their
	// variance beyond chance.
	Q    float64 `json:"q"`
	DF   int     `json:"df"`
	P    float64 `json:"p"`
	I2   float64 `json:"i2"`
	Tau2 float64 `json:"tau2"`
}

// share is a count as it is pooled: low and high are the bounds of the hidden count, which are
// alike where it is told.
type share struct{ n, low, high, noise float64 }

// logit returns the log-odds of a count and their variance, with half an image added to both sides
// (Anscombe 1956).
func logit(k, n float64) (theta, variance float64) {
	a, b := max(k, 0)+0.5, max(n-k, 0)+0.5
	return math.Log(a / b), 1/a + 1/b
}

// with adds a told count.
func (s share) with(n, k float64) share { return share{s.n + n, s.low + k, s.high + k, 0} }

// logits returns the log-odds of sites' shares and their variances. A hidden count is taken where
// its share is nearest the pooled one of the sites that tell theirs. A noisy one is taken nearest
// that of the sites without noise, within a standard deviation. Neither tells sites apart that may
// be alike.
func logits(of []share) (theta, variance []float64) {
	var told, noisy, plain share
	for _, s := range of {
		if s.noise > 0 {
			noisy = noisy.with(s.n, s.low)
		} else if s.low == s.high {
			told = told.with(s.n, s.low)
		}
	}
	if told.n <= 0 {
		told = noisy
	}
	at := make([]float64, len(of))
	for i, s := range of {
		if at[i] = (s.low + s.high) / 2; told.n > 0 && s.noise == 0 {
			at[i] = min(max(told.low/told.n*s.n, s.low), s.high)
		}
		if s.noise == 0 {
			plain = plain.with(s.n, at[i])
		}
	}
	if plain.n <= 0 {
		plain = noisy
	}
	n := max(plain.n, 0)
	p := (min(max(plain.low, 0), n) + 0.5) / (n + 1)
	for i, s := range of {
		t, v := logit(at[i], s.n)
		if s.noise > 0 {
			k := min(max(p*s.n, s.low-s.noise, 0), s.low+s.noise, s.n)
			t, v = s.noisy(k, p)
		}
		theta, variance = append(theta, t), append(variance, v)
	}
	return theta, variance
}

// noisy returns the log-odds, and their variance, of a noisy count that is taken at k, beside
// others of share p. Where it may be theirs, they are linear around p: its own share is mostly
// noise. Where it is not, they are those at k, as a line from p would lead to shares that nobody
// has. The noise of right images and that of wrong ones are independent.
func (s share) noisy(k, p float64) (theta, variance float64) {
	if k == p*s.n {
		d := max(s.n, 1) * p * (1 - p)
		return math.Log(p / (1 - p)), 1/d + s.noise*s.noise/(d*d)
	}
	theta, variance = logit(k, s.n)
	a, b := max(k, 0)+0.5, max(s.n-k, 0)+0.5
	return theta, variance + s.noise*s.noise*(1/(a*a)+1/(b*b))
}

func expit(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// interval returns a share with its 95% interval: from the lower end of the lower bound to the
// upper end of the upper one, on the scale of log-odds, and on that of the share where there is
// noise.
func (s share) interval() Share {
	value := 0.0
	if s.n > 0 {
		value = min(max((s.low+s.high)/2/s.n, 0), 1)
	}
	if s.noise > 0 {
		n := max(s.n, 1)
		d := z * math.Sqrt(value*(1-value)/n+s.noise*s.noise/(n*n))
		return Share{value, max(value-d, 0), min(value+d, 1)}
	}
	lo, vl := logit(s.low, s.n)
	hi, vh := logit(s.high, s.n)
	return Share{value, expit(lo - z*math.Sqrt(vl)), expit(hi + z*math.Sqrt(vh))}
}

// overall pools the shares of sites.
func overall(of []share) Overall {
	o := Overall{Sites: len(of), DF: len(of) - 1, P: 1}
	var all share
	var values []float64
	theta, variance := logits(of)
	for _, s := range of {
		all.n, all.low, all.high = all.n+s.n, all.low+s.low, all.high+s.high
		all.noise = math.Hypot(all.noise, s.noise)
		values = append(values, s.interval().Value)
	}
	o.Pooled = all.interval()
	sorting.By(values, cmp.Compare[float64])
	if m := len(values); m%2 == 1 {
		o.Median = values[m/2]
	} else {
		o.Median = (values[m/2-1] + values[m/2]) / 2
	}
	mean, _, w, w2 := weighted(theta, variance, 0)
	for i, t := range theta {
		o.Q += (t - mean) * (t - mean) / variance[i]
	}
	if o.DF > 0 {
		o.P = distuv.ChiSquared{K: float64(o.DF)}.Survival(o.Q)
		if excess := o.Q - float64(o.DF); excess > 0 {
			o.I2, o.Tau2 = excess/o.Q, excess/(w-w2/w)
		}
	}
	mean, se, _, _ := weighted(theta, variance, o.Tau2)
	o.Typical = Share{expit(mean), expit(mean - z*se), expit(mean + z*se)}
	if o.Sites >= 3 {
		t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(o.Sites - 2)}.Quantile(0.975)
		d := t * math.Sqrt(o.Tau2+se*se)
		o.New = &Share{expit(mean), expit(mean - d), expit(mean + d)}
	}
	return o
}

// weighted returns the mean by inverse variances, to each of which tau2 is added, its standard
// error, and the sums of weights and of their squares.
func weighted(theta, variance []float64, tau2 float64) (mean, se, w, w2 float64) {
	for i, t := range theta {
		k := 1 / (variance[i] + tau2)
		mean, w, w2 = mean+k*t, w+k, w2+k*k
	}
	return mean / w, math.Sqrt(1 / w), w, w2
}

// Pool pools reports of one classifier, each of another site.
func Pool(reports []*tally.Report) (*Result, error) {
	if len(reports) == 0 || len(reports) > MaxSites {
		return nil, fmt.Errorf("pooling evaluations: %d reports; want 1 to %d",
			len(reports), MaxSites)
	}
	reports = slices.Clone(reports)
	sorting.By(reports, func(a, b *tally.Report) int { return cmp.Compare(a.Site, b.Site) })
	first := reports[0]
	out := &Result{Classifier: first.Classifier, Level: first.Level}
	var right, held []share
	var size int64
	for i, r := range reports {
		size += r.Size()
		switch {
		case size > tally.MaxSize:
			return nil, fmt.Errorf("pooling evaluations: counts of more than %d in all: one of the sites "+
				"claims images that it has not", tally.MaxSize)
		case i > 0 && r.Site == reports[i-1].Site:
			return nil, fmt.Errorf("pooling evaluations: two reports of %q; give one", r.Site)
		case r.Classifier != first.Classifier || r.Classes != first.Classes || r.Level != first.Level:
			return nil, fmt.Errorf("pooling evaluations: %q scored classifier %s with %d classes and sets "+
				"of level %v, and %q %s with %d and %v: want one classifier", first.Site,
				first.Classifier, first.Classes, first.Level, r.Site, r.Classifier,
				r.Classes, r.Level)
		}
		s, accuracy, coverage := site(r)
		out.Sites, out.Images = append(out.Sites, s), out.Images+s.Images
		right = append(right, accuracy)
		if coverage != nil {
			held = append(held, *coverage)
		}
	}
	out.Accuracy = overall(right)
	if len(held) > 0 {
		o := overall(held)
		out.Coverage = &o
	}
	out.curve(reports)
	out.byClass(reports)
	return out, nil
}

// Check returns an error for a pooled report that no reports about a classifier of that number of
// classes give.
func (out *Result) Check(classes int) error {
	if len(out.Sites) == 0 || len(out.Sites) > MaxSites || out.Images < 0 {
		return fmt.Errorf("pooled report: %d images of %d sites; want 0 or more of 1 to %d sites",
			out.Images, len(out.Sites), MaxSites)
	}
	shares := []*Share{&out.Accuracy.Pooled, &out.Accuracy.Typical, out.Accuracy.New}
	numbers := []*float64{&out.Level, &out.Accuracy.Median, &out.Accuracy.P,
		&out.Accuracy.I2, out.ECE}
	if o := out.Coverage; o != nil {
		shares = append(shares, &o.Pooled, &o.Typical, o.New)
		numbers = append(numbers, &o.Median, &o.P, &o.I2)
	}
	for _, s := range out.Sites {
		if s.Images < 0 || s.SetSize != nil && !(*s.SetSize >= 0 && *s.SetSize <= float64(classes)) {
			return fmt.Errorf("pooled report: site %.80q has %d images, or sets of a size that no %d "+
				"classes give", s.Name, s.Images, classes)
		}
		shares, numbers = append(shares, &s.Accuracy, s.Coverage), append(numbers, s.ECE)
	}
	for _, b := range out.Curve {
		if b.From < 0 || b.To <= b.From || b.To > tally.Bins {
			return fmt.Errorf("pooled report: the curve has a bin from %d to %d; want 0 to %d", b.From,
				b.To, tally.Bins)
		}
		numbers = append(numbers, b.Confidence)
	}
	for _, c := range out.ByClass {
		if c.Class < 0 || c.Class >= classes || c.Sites < 0 || c.Images < 0 {
			return fmt.Errorf("pooled report: class %d with %d images of %d sites; want classes of 0 to "+
				"%d, and no counts below 0", c.Class, c.Images, c.Sites, classes-1)
		}
		shares = append(shares, &c.Share)
	}
	for _, s := range shares {
		if s != nil {
			numbers = append(numbers, &s.Value, &s.Low, &s.High)
		}
	}
	for _, v := range numbers {
		if v != nil && !(*v >= 0 && *v <= 1) {
			return fmt.Errorf("pooled report: a share, level or error of %v; want 0 to 1", *v)
		}
	}
	return nil
}

// noiseOf returns the standard deviation of the noise of a count of a group: with sets a count is
// the sum of two that have noise.
func noiseOf(r *tally.Report) float64 {
	if r.Level > 0 {
		return math.Sqrt2 * float64(r.Sigma)
	}
	return float64(r.Sigma)
}

// site returns the figures of one site, and the shares that are pooled.
func site(r *tally.Report) (s Site, accuracy share, coverage *share) {
	n, right, held := r.Total()
	s = Site{Name: r.Site, Images: max(n, 0), Few: r.Few, Least: r.Least, Sigma: r.Sigma}
	noise := noiseOf(r) * math.Sqrt(float64(len(r.Groups)))
	accuracy = share{float64(n), float64(right), float64(right), noise}
	switch r.Few {
	case "wrong":
		accuracy.low, accuracy.high = float64(n-r.Least+1), float64(n)
	case "right":
		accuracy.low, accuracy.high = 0, float64(r.Least-1)
	}
	s.Accuracy = accuracy.interval()
	if r.Groups[0].Held != nil {
		coverage = &share{float64(n), float64(held), float64(held), noise}
		c := coverage.interval()
		s.Coverage = &c
	}
	if r.Groups[0].Size != nil {
		sum := 0.0
		for _, g := range r.Groups {
			sum += *g.Size * float64(g.N)
		}
		sum /= float64(n)
		s.SetSize = &sum
	}
	if e := r.ECE(); !math.IsNaN(e) {
		s.ECE = &e
	}
	return s, accuracy, coverage
}

// curve pools the bins over the edges that all sites with bins have. A bin's middle does not stand
// in for a mean that noise hides: it may be further off than the classifier's error.
func (out *Result) curve(reports []*tally.Report) {
	reports = slices.DeleteFunc(slices.Clone(reports),
		func(r *tally.Report) bool { return len(r.Bins) == 0 })
	noisy := func(r *tally.Report) bool { return r.Bins[0].Confidence == nil }
	means := slices.DeleteFunc(slices.Clone(reports), noisy)
	if len(means) > 0 {
		reports = means
	}
	var shared [tally.Bins + 1]int
	for _, r := range reports {
		for _, b := range r.Bins {
			shared[b.To]++
		}
	}
	if len(reports) == 0 {
		return
	}
	var sums []float64 // of confidences
	from := 0
	for to := 1; to <= tally.Bins; to++ {
		if shared[to] == len(reports) {
			out.Curve, sums = append(out.Curve, tally.Bin{From: from, To: to}), append(sums, 0)
			from = to
		}
	}
	total, ece := 0, 0.0
	for _, r := range reports {
		at := 0
		for _, b := range r.Bins {
			for b.To > out.Curve[at].To {
				at++
			}
			c := &out.Curve[at]
			c.N, c.Right = c.N+b.N, c.Right+b.Right
			if b.Confidence != nil {
				sums[at] += *b.Confidence * float64(b.N)
			}
		}
	}
	if len(means) == 0 {
		return
	}
	for i := range out.Curve {
		c := &out.Curve[i]
		total += c.N
		ece += math.Abs(float64(c.Right) - sums[i])
		if c.N > 0 {
			mean := min(max(sums[i]/float64(c.N), float64(c.From)/tally.Bins),
				float64(c.To)/tally.Bins)
			c.Confidence = &mean
		}
	}
	if total > 0 {
		ece /= float64(total)
		out.ECE = &ece
	}
}

// byClass adds up the counts of classes that sites tell of alone.
func (out *Result) byClass(reports []*tally.Report) {
	of := make([]share, reports[0].Classes)
	sites := make([]int, len(of))
	for _, r := range reports {
		for _, g := range r.Groups {
			if len(g.Classes) != 1 || g.Right == nil {
				continue
			}
			s := &of[g.Classes[0]]
			s.n, s.low, s.high = s.n+float64(g.N), s.low+float64(*g.Right), s.high+float64(*g.Right)
			s.noise = math.Hypot(s.noise, noiseOf(r))
			sites[g.Classes[0]]++
		}
	}
	out.ByClass = []Class{}
	for c, s := range of {
		if s.n >= tally.MinLeast { // noise alone may make fewer
			out.ByClass = append(out.ByClass, Class{c, sites[c], int(s.n), s.interval()})
		}
	}
}
