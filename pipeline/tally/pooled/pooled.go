// Package pooled pools the reports of sites about one classifier: accuracy and coverage at each
// site, over all, for a further site, and by class; how much sites differ; and the calibration
// curve. Counts that sites hide are pooled at both of their bounds.
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
	// LeftOut are the sites whose reports cannot be pooled.
	LeftOut  []LeftOut `json:"left_out,omitempty"`
	Accuracy Overall   `json:"accuracy"`
	// Coverage is nil if no site tells of its sets.
	Coverage *Overall `json:"coverage,omitempty"`
	// Curve is the calibration curve over the bins that sites with bins have in common, and ECE its
	// expected calibration error; nil where no site has any. Sites with noise, which hides mean
	// confidences, are in the curve only where no other has bins; it then has no means and no ECE.
	Curve   []tally.Bin `json:"curve,omitempty"`
	ECE     *float64    `json:"ece,omitempty"`
	ByClass []Class     `json:"by_class"`
}

// LeftOut is a site whose report cannot be pooled, and why.
type LeftOut struct {
	Site string `json:"site"`
	Why  string `json:"why"`
}

// Share is a share of images with its 95% interval. Where counts are hidden, this ends at the low
// end of that of the lower bounds, and at the high end of that of the upper ones. Value is then
// nil.
type Share struct {
	Value *float64 `json:"value,omitempty"`
	Low   float64  `json:"low"`
	High  float64  `json:"high"`
}

// Site holds the figures of one site.
type Site struct {
	Name   string `json:"name"`
	Images int    `json:"images"`
	// Few says which images are fewer than Least, and FewSets for which the sets are, so that
	// Accuracy or Coverage is between its bounds; Sigma is that of the noise.
	Few      string   `json:"few,omitempty"`
	FewSets  string   `json:"few_sets,omitempty"`
	Least    int      `json:"least,omitempty"`
	Sigma    uint64   `json:"sigma,omitempty"`
	Accuracy Share    `json:"accuracy"`
	Coverage *Share   `json:"coverage,omitempty"`
	SetSize  *float64 `json:"mean_set_size,omitempty"`
	ECE      *float64 `json:"ece,omitempty"`
}

// Class is the accuracy in one class. Sites and Images are of the reports that tell of it alone;
// images that are merged with others' widen the interval.
type Class struct {
	Class  int   `json:"class"`
	Sites  int   `json:"sites"`
	Images int   `json:"images"`
	Share  Share `json:"accuracy"`
}

// Overall is a share over sites, and how much they differ.
type Overall struct {
	Sites int `json:"sites"`
	// Hidden is the number of sites that hide the count.
	Hidden int `json:"hidden_sites,omitempty"`
	// Pooled is the share of all images together.
	Pooled Share `json:"pooled"`
	// Typical is the mean over sites by random effects on the log-odds scale (DerSimonian and Laird
	// 1986), and New the 95% prediction interval of the true share at a further site (Higgins,
	// Thompson and Spiegelhalter 2009); nil with fewer than three sites.
	Typical Share  `json:"typical"`
	New     *Share `json:"new_site,omitempty"`
	// Median is that of the sites' shares, or MedianBounds where it depends on hidden counts.
	Median       *float64    `json:"median,omitempty"`
	MedianBounds *[2]float64 `json:"median_bounds,omitempty"`
	// Q is Cochran's (1954), with its degrees of freedom and p-value; I2 is the share of the
	// variance of sites' log-odds that is beyond chance (Higgins and Thompson 2002), Tau2 their
	// variance beyond chance. Where counts are hidden, Q is of the sites that tell theirs without
	// noise, as each further one only adds to it: Q and I2 are at least this, and P at most. Tau2
	// has no such bound. All are nil where fewer than two sites tell their count beside hidden
	// ones.
	Q    *float64 `json:"q,omitempty"`
	DF   int      `json:"df"`
	P    *float64 `json:"p,omitempty"`
	I2   *float64 `json:"i2,omitempty"`
	Tau2 *float64 `json:"tau2,omitempty"`
}

// share is a count as it is pooled: low and high are the bounds of the hidden count, which are
// alike where it is told. noise is the standard deviation of noise on the count, in images; 0:
// none.
type share struct{ n, low, high, noise float64 }

// logit returns the log-odds of a count and their variance, with half an image added to both sides
// (Anscombe 1956). With a = k + 1/2 and b = n - k + 1/2 they are log(a/b) and 1/a + 1/b. Counts
// that noise brings out of range stand for none or all.
func logit(k, n float64) (theta, variance float64) {
	a, b := max(k, 0)+0.5, max(n-k, 0)+0.5
	return math.Log(a / b), 1/a + 1/b
}

// plus adds the count of other images. Noise of independent counts adds up by squares.
func (s share) plus(o share) share {
	return share{s.n + o.n, s.low + o.low, s.high + o.high, math.Hypot(s.noise, o.noise)}
}

// logits returns the log-odds of sites' shares and their variances; none is hidden. A noisy count
// is taken nearest the share of the sites without noise, within a standard deviation, so that it
// tells no sites apart that may be alike.
func logits(of []share) (theta, variance []float64) {
	var noisy, plain share
	for _, s := range of {
		if s.noise > 0 {
			noisy = noisy.plus(s)
		} else {
			plain = plain.plus(s)
		}
	}
	if plain.n <= 0 {
		plain = noisy
	}
	n := max(plain.n, 0)
	p := (min(max(plain.low, 0), n) + 0.5) / (n + 1)
	for _, s := range of {
		t, v := logit(s.low, s.n)
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
// has. The noise of right images and that of wrong ones are independent. With n images and d = n p
// (1 - p) the linear form is log(p/(1 - p)) with variance 1/d + noise^2/d^2.
func (s share) noisy(k, p float64) (theta, variance float64) {
	if k == p*s.n {
		d := max(s.n, 1) * p * (1 - p)
		return math.Log(p / (1 - p)), 1/d + s.noise*s.noise/(d*d)
	}
	theta, variance = logit(k, s.n)
	a, b := max(k, 0)+0.5, max(s.n-k, 0)+0.5
	return theta, variance + s.noise*s.noise*(1/(a*a)+1/(b*b))
}

// expit is the inverse of log-odds.
func expit(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// interval returns a share with its 95% interval: from the lower end of the lower bound to the
// upper end of the upper one.
func (s share) interval() Share {
	out := Share{Low: s.end(s.low, -1), High: s.end(s.high, 1)}
	if s.low == s.high && s.n > 0 {
		value := min(max(s.low/s.n, 0), 1)
		out.Value = &value
	}
	return out
}

// end returns the end of the interval of k images on one side, by log-odds. Noise adds to its width
// by squares, on the scale of shares (Zou and Donner 2008). Of none, or of all, the end is 0 or 1,
// which log-odds never reach. With theta and v the log-odds and their variance, expit their inverse
// and side -1 or 1, it is
//
//	share + side hypot(expit(theta + side z sqrt(v)) - share, z noise/n),   share = expit(theta)
func (s share) end(k, side float64) float64 {
	if side < 0 && k <= 0 {
		return 0
	} else if side > 0 && k >= s.n {
		return 1
	}
	theta, variance := logit(k, s.n)
	at := expit(theta)
	d := math.Hypot(expit(theta+side*z*math.Sqrt(variance))-at, z*s.noise/max(s.n, 1))
	return min(max(at+side*d, 0), 1)
}

// fit is the model of random effects, on the scale of log-odds. se is the standard error of the
// mean, and q, i2 and tau2 are as in [Overall].
type fit struct{ mean, se, q, i2, tau2 float64 }

// fitted returns the model of shares, whose variance beyond chance is tau2 or more, with i2 by some
// degrees of freedom. With weights w_i = 1/v_i, mean mu of weights w_i, and d degrees of freedom,
// it is by the method of moments (DerSimonian and Laird 1986)
//
//	Q    = sum_i w_i (theta_i - mu)^2,   I2 = (Q - d)/Q
//	tau2 = (Q - d)/(sum_i w_i - sum_i w_i^2/sum_i w_i)
//
// where Q is above d, else 0. The mean is then of weights 1/(v_i + tau2).
func fitted(of []share, df int, tau2 float64) (f fit) {
	theta, variance := logits(of)
	mean, _, w, w2 := weighted(theta, variance, 0)
	for i, t := range theta {
		f.q += (t - mean) * (t - mean) / variance[i]
	}
	if excess := f.q - float64(df); len(of) > 1 && excess > 0 {
		f.i2, f.tau2 = excess/f.q, excess/(w-w2/w)
	}
	f.tau2 = max(f.tau2, tau2)
	f.mean, f.se, _, _ = weighted(theta, variance, f.tau2)
	return f
}

// overall pools the shares of sites. With k sites the interval of a further one is the mean -+ t
// sqrt(tau2 + se^2). t is a quantile of Student's distribution of k - 2 degrees of freedom. P is
// that of chi squared with k - 1 degrees of freedom.
func overall(of []share) Overall {
	o := Overall{Sites: len(of), DF: len(of) - 1}
	var all share
	var told []share
	lows, highs := slices.Clone(of), slices.Clone(of) // all hidden counts at a bound
	for i, s := range of {
		all = all.plus(s)
		lows[i].high, highs[i].low = s.low, s.high
		if s.low < s.high {
			o.Hidden++
		} else {
			told = append(told, s)
		}
	}
	o.Pooled = all.interval()
	low, high := median(lows, 0), median(highs, 1)
	if o.MedianBounds = &[2]float64{low, high}; low == high {
		o.Median, o.MedianBounds = &low, nil
	}
	ends := []fit{fitted(lows, o.DF, 0)}
	if o.Hidden > 0 {
		at := fitted(highs, o.DF, ends[0].tau2)
		// both as far apart as sites may be at one of them
		ends = []fit{fitted(lows, o.DF, at.tau2), at}
	}
	o.Typical = span(ends, func(f fit) float64 { return z * f.se })
	if o.Sites >= 3 {
		t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(o.Sites - 2)}.Quantile(0.975)
		further := span(ends, func(f fit) float64 { return t * math.Sqrt(f.tau2+f.se*f.se) })
		o.New = &further
	}
	if o.Hidden > 0 {
		// a noisy count is read beside the others' share, which hidden counts would move
		told = slices.DeleteFunc(told, func(s share) bool { return s.noise > 0 })
	}
	if o.Hidden == 0 || len(told) > 1 {
		f, p := fitted(told, o.DF, 0), 1.0
		if o.DF > 0 {
			p = distuv.ChiSquared{K: float64(o.DF)}.Survival(f.q)
		}
		o.Q, o.P, o.I2 = &f.q, &p, &f.i2
		if o.Hidden == 0 {
			o.Tau2 = &f.tau2
		}
	}
	return o
}

// span returns the interval that holds those of all fits, and the mean of one.
func span(of []fit, width func(fit) float64) Share {
	out := Share{Low: 1, High: 0}
	for _, f := range of {
		out.Low = min(out.Low, expit(f.mean-width(f)))
		out.High = max(out.High, expit(f.mean+width(f)))
	}
	if len(of) == 1 {
		value := expit(of[0].mean)
		out.Value = &value
	}
	return out
}

// median returns the median of the sites' shares, of which none is hidden. A site that noise leaves
// without images has the share empty.
func median(of []share, empty float64) float64 {
	var values []float64
	for _, s := range of {
		value := empty
		if s.n > 0 {
			value = min(max(s.low/s.n, 0), 1)
		}
		values = append(values, value)
	}
	sorting.By(values, cmp.Compare[float64])
	m := len(values)
	return (values[(m-1)/2] + values[m/2]) / 2
}

// weighted returns the mean by inverse variances, to each of which tau2 is added, its standard
// error, and the sums of weights and of their squares. With w_i = 1/(v_i + tau2) the standard error
// is 1/sqrt(sum_i w_i).
func weighted(theta, variance []float64, tau2 float64) (mean, se, w, w2 float64) {
	for i, t := range theta {
		k := 1 / (variance[i] + tau2)
		mean, w, w2 = mean+k*t, w+k, w2+k*k
	}
	return mean / w, math.Sqrt(1 / w), w, w2
}

// Of is the classifier that reports are about: its SHA-256, its number of classes, and the level of
// its prediction sets, 0 without any.
type Of struct {
	Classifier string
	Classes    int
	Level      float64
}

// Refuse returns an error for a report that is about another classifier.
func (of Of) Refuse(r *tally.Report) error {
	if r.Classifier != of.Classifier || r.Classes != of.Classes || r.Level != of.Level {
		return fmt.Errorf("classifier %.64s of %d classes with sets of level %v; "+
			"want %s of %d with %v",
			r.Classifier, r.Classes, r.Level, of.Classifier, of.Classes, of.Level)
	}
	return nil
}

// choose returns the reports that can be pooled. While they claim more images than sums hold, the
// largest is left out. Leaving the largest out first keeps the most sites.
func (out *Result) choose(of Of, reports []*tally.Report) (kept []*tally.Report) {
	leave := func(r *tally.Report, why string) {
		out.LeftOut = append(out.LeftOut, LeftOut{r.Site, why})
	}
	var size int64
	for _, r := range reports {
		if err := of.Refuse(r); err != nil {
			leave(r, err.Error())
			continue
		}
		kept, size = append(kept, r), size+r.Size()
	}
	if size <= tally.MaxSize {
		return kept
	}
	largest := slices.Clone(kept)
	sorting.By(largest, func(a, b *tally.Report) int { return cmp.Compare(b.Size(), a.Size()) })
	for _, r := range largest {
		if size > tally.MaxSize {
			leave(r, fmt.Sprintf("%d images, and all sites together may have %d", r.Size(),
				tally.MaxSize))
			size -= r.Size()
		}
	}
	return slices.DeleteFunc(kept, func(r *tally.Report) bool {
		return slices.ContainsFunc(out.LeftOut, func(l LeftOut) bool { return l.Site == r.Site })
	})
}

// Pool pools reports of a classifier, each of another site. Those that cannot be pooled are left
// out, and named.
func Pool(of Of, reports []*tally.Report) (*Result, error) {
	if len(reports) == 0 || len(reports) > MaxSites {
		return nil, fmt.Errorf("pooling evaluations: %d reports; want 1 to %d",
			len(reports), MaxSites)
	}
	reports = slices.Clone(reports)
	sorting.By(reports, func(a, b *tally.Report) int { return cmp.Compare(a.Site, b.Site) })
	for i, r := range reports[1:] {
		if r.Site == reports[i].Site {
			return nil, fmt.Errorf("pooling evaluations: two reports of %q; give one", r.Site)
		}
	}
	out := &Result{Classifier: of.Classifier, Level: of.Level}
	if reports = out.choose(of, reports); len(reports) == 0 {
		return nil, fmt.Errorf("pooling evaluations: no report can be pooled: "+
			"that of %q is about %s", out.LeftOut[0].Site, out.LeftOut[0].Why)
	}
	var right, held []share
	tells := false
	for _, r := range reports {
		s, accuracy, coverage := site(r)
		out.Sites, out.Images = append(out.Sites, s), out.Images+s.Images
		right, held = append(right, accuracy), append(held, coverage)
		tells = tells || s.Coverage != nil
	}
	out.Accuracy = overall(right)
	if tells {
		o := overall(held)
		out.Coverage = &o
	}
	out.curve(reports)
	out.byClass(reports)
	return out, nil
}

// figures returns the shares, and other figures that are from 0 to 1; nil where one is absent.
func (o *Overall) figures() (shares []*Share, numbers []*float64) {
	if o == nil {
		return nil, nil
	}
	numbers = []*float64{o.Median, o.P, o.I2}
	if b := o.MedianBounds; b != nil {
		numbers = append(numbers, &b[0], &b[1])
	}
	return []*Share{&o.Pooled, &o.Typical, o.New}, numbers
}

// Check returns an error for a pooled report that no reports about a classifier of that number of
// classes give. It is for reports that come from elsewhere, which may hold any numbers.
func (out *Result) Check(classes int) error {
	if len(out.Sites) == 0 || len(out.Sites) > MaxSites || out.Images < 0 {
		return fmt.Errorf("pooled report: %d images of %d sites; want 0 or more of 1 to %d sites",
			out.Images, len(out.Sites), MaxSites)
	}
	var shares []*Share
	numbers := []*float64{&out.Level, out.ECE}
	for _, o := range []*Overall{&out.Accuracy, out.Coverage} {
		ofShares, others := o.figures()
		shares, numbers = append(shares, ofShares...), append(numbers, others...)
	}
	for _, s := range out.Sites {
		if s.Images < 0 || s.SetSize != nil &&
			!(*s.SetSize >= 0 && *s.SetSize <= float64(classes)) {
			return fmt.Errorf("pooled report: site %.80q has %d images, or sets of a size that "+
				"no %d classes give", s.Name, s.Images, classes)
		}
		shares, numbers = append(shares, &s.Accuracy, s.Coverage), append(numbers, s.ECE)
	}
	for _, b := range out.Curve {
		if b.From < 0 || b.To <= b.From || b.To > tally.Bins {
			return fmt.Errorf("pooled report: the curve has a bin from %d to %d; want 0 to %d",
				b.From, b.To, tally.Bins)
		}
		numbers = append(numbers, b.Confidence)
	}
	for _, c := range out.ByClass {
		if c.Class < 0 || c.Class >= classes || c.Sites < 0 || c.Images < 0 {
			return fmt.Errorf("pooled report: class %d with %d images of %d sites; want classes "+
				"of 0 to %d, and no counts below 0", c.Class, c.Images, c.Sites, classes-1)
		}
		shares = append(shares, &c.Share)
	}
	for _, s := range shares {
		if s != nil {
			numbers = append(numbers, s.Value, &s.Low, &s.High)
		}
	}
	for _, v := range numbers {
		if v != nil && !(*v >= 0 && *v <= 1) {
			return fmt.Errorf("pooled report: a share, level or error of %v; want 0 to 1", *v)
		}
	}
	return nil
}

// right returns the bounds of the right images among n of a report. Where few are right a hidden
// count is 0 to Least - 1. Where few are wrong it is n - Least + 1 to n.
// The count of right images is the sum of two cells where there are sets, and of one without. The
// variance of its noise is as many times that of a cell.
func right(r *tally.Report, n int, told *int) share {
	s := share{float64(n), 0, float64(n), float64(r.Sigma)}
	if r.Level > 0 { // a count is the sum of two that have noise
		s.noise *= math.Sqrt2
	}
	switch {
	case told != nil:
		s.low, s.high = float64(*told), float64(*told)
	case r.Few == "wrong":
		s.low = float64(max(n-r.Least+1, 0))
	case r.Few == "right":
		s.high = float64(min(n, r.Least-1))
	}
	return s
}

// coverage returns the bounds of the images whose set holds their class, beside those of the right
// ones, and whether the report tells any.
func coverage(r *tally.Report, held int, right share) (s share, tells bool) {
	s = share{right.n, 0, max(right.n, 0), right.noise}
	few := float64(r.Least - 1)
	switch {
	case r.Level == 0:
		return s, false
	case r.Groups[0].Held != nil:
		s.low, s.high = float64(held), float64(held)
	case r.FewSets == "missed":
		s.low = s.n - few
	case r.FewSets == "held":
		s.high = few
	case r.FewSets == "wrong and held":
		s.low, s.high = max(right.low-few, 0), min(right.high+few, s.n)
	default:
		return s, false
	}
	return s, true
}

// site returns the figures of one site, and the shares that are pooled.
func site(r *tally.Report) (s Site, accuracy, sets share) {
	n, correct, held := r.Total()
	s = Site{Name: r.Site, Images: max(n, 0), Few: r.Few, FewSets: r.FewSets, Least: r.Least,
		Sigma: r.Sigma}
	told := &correct
	if r.Few != "" {
		told = nil
	}
	accuracy = right(r, n, told)
	accuracy.noise *= math.Sqrt(float64(len(r.Groups)))
	s.Accuracy = accuracy.interval()
	sets, tells := coverage(r, held, accuracy)
	if tells {
		c := sets.interval()
		s.Coverage = &c
	}
	if r.Groups[0].Size != nil && n > 0 {
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
	return s, accuracy, sets
}

// curve pools the bins over the edges that all sites with bins have. A bin's middle does not stand
// in for a mean that noise hides: it may be further off than the classifier's error. An edge that
// all sites have is an edge of the curve, so that no site's bin is divided.
// With n_b images, r_b right ones and the sum c_b of confidences in bin b, the error is sum_b |r_b
// - c_b|/sum_b n_b.
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

// byClass adds up the counts of classes that sites tell of alone. Of the images that are merged
// with those of other classes, any may be theirs: the interval is wide enough for all of the wrong
// ones alone, and for all of the right ones.
func (out *Result) byClass(reports []*tally.Report) {
	classes := reports[0].Classes
	alone, most := make([]share, classes), make([]share, classes)
	sites := make([]int, classes)
	for _, r := range reports {
		for _, g := range r.Groups {
			of := right(r, g.N, g.Right)
			for _, c := range g.Classes {
				if len(g.Classes) > 1 {
					most[c].low, most[c].high = most[c].low+of.n-of.low, most[c].high+of.high
					continue
				}
				alone[c] = alone[c].plus(of)
				sites[c]++
			}
		}
	}
	out.ByClass = []Class{}
	for c, s := range alone {
		if s.n < tally.MinLeast { // noise alone may make fewer
			continue
		}
		low, high := s, s
		low.n, high.n, high.high = s.n+most[c].low, s.n+most[c].high, s.high+most[c].high
		all := Share{s.interval().Value, low.interval().Low, high.interval().High}
		if most[c] != (share{}) {
			all.Value = nil
		}
		out.ByClass = append(out.ByClass, Class{c, sites[c], int(s.n), all})
	}
}
