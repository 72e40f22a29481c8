package pooled

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"math"
	mrand "math/rand/v2"
	"strings"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/tally"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9*max(1, math.Abs(b)) }

// binomial returns how many of n images have a probability.
func binomial(r *mrand.Rand, n int, p float64) (k int) {
	for range n {
		if r.Float64() < p {
			k++
		}
	}
	return k
}

// TestTwoSites: of two sites Q, tau² and I² have closed forms.
func TestTwoSites(t *testing.T) {
	a, b := share{200, 180, 180, 0}, share{200, 120, 120, 0}
	o := overall([]share{a, b})
	ta, va := math.Log(180.5/20.5), 1/180.5+1/20.5
	tb, vb := math.Log(120.5/80.5), 1/120.5+1/80.5
	q := (ta - tb) * (ta - tb) / (va + vb)
	w, w2 := 1/va+1/vb, 1/(va*va)+1/(vb*vb)
	tau2 := (q - 1) / (w - w2/w)
	if !near(*o.Q, q) || o.DF != 1 || !near(*o.I2, (q-1)/q) || !near(*o.Tau2, tau2) ||
		!near(*o.P, math.Erfc(math.Sqrt(q/2))) || o.New != nil {
		t.Errorf("%+v; want Q %v, tau² %v", o, q, tau2)
	}
	mean := (ta/(va+tau2) + tb/(vb+tau2)) / (1/(va+tau2) + 1/(vb+tau2))
	if !near(*o.Typical.Value, 1/(1+math.Exp(-mean))) || !near(*o.Median, 0.75) ||
		!near(*o.Pooled.Value, 0.75) {
		t.Errorf("typical %v, median %v, pooled %v", o.Typical, o.Median, o.Pooled)
	}
	if o := overall([]share{a, a, a}); *o.I2 != 0 || *o.Tau2 != 0 || *o.P < 0.99 || !near(*o.Median, 0.9) {
		t.Errorf("of equal sites: %+v", o)
	}
}

// TestHeld: 95% intervals hold the pooled share, and prediction intervals the share of a further
// site, about as often as stated.
func TestHeld(t *testing.T) {
	r := mrand.New(mrand.NewPCG(1, 2))
	const times, sites = 600, 8
	for _, tau := range []float64{0, 0.5} {
		held, further, differ := 0, 0, 0
		for range times {
			var of []share
			truth := func() float64 { return expit(1.5 + tau*r.NormFloat64()) }
			sum, n := 0.0, 0.0
			for range sites {
				p, images := truth(), 150+r.IntN(300)
				k := binomial(r, images, p)
				sum, n = sum+p*float64(images), n+float64(images)
				of = append(of, share{float64(images), float64(k), float64(k), 0})
			}
			o := overall(of)
			if mean := sum / n; o.Pooled.Low <= mean && mean <= o.Pooled.High {
				held++
			}
			if p := truth(); o.New.Low <= p && p <= o.New.High {
				further++
			}
			if *o.P < 0.05 {
				differ++
			}
		}
		t.Logf("tau %v: %d and %d of %d intervals hold the truth; %d say that sites differ", tau, held,
			further, times, differ)
		if held < 560 || further < 540 || tau == 0 && differ > 50 || tau > 0 && differ < 500 {
			t.Errorf("tau %v: pooled %d, further %d, differ %d of %d", tau, held,
				further, differ, times)
		}
	}
}

// TestNoise: the interval of a noisy share holds the share of the site's images about as often as
// stated.
func TestNoise(t *testing.T) {
	r := mrand.New(mrand.NewPCG(3, 4))
	const times, n, right, sd = 1000, 400, 388, 22
	held := 0
	for range times {
		s := share{n, right + sd*r.NormFloat64(), 0, sd}
		s.high = s.low
		if i := s.interval(); i.Low <= right/float64(n) && right/float64(n) <= i.High {
			held++
		}
	}
	if held < 930 {
		t.Errorf("%d of %d intervals hold the share", held, times)
	}
	if o := overall([]share{{400, 410, 410, 22}, {400, 380, 380, 0},
		{400, 370, 370, 0}}); o.Typical.Low < 0.8 || o.New.Low < 0.4 {
		t.Errorf("a noisy site beside two others: %+v", o)
	}
}

// differ reports whether sites differ at the level .05.
func differ(o Overall) bool { return o.P != nil && *o.P < 0.05 }

// pool pools reports about the classifier of the first.
func pool(reports []*tally.Report) (*Result, error) {
	about := Of{Classes: 3}
	if len(reports) > 0 {
		about = Of{reports[0].Classifier, reports[0].Classes, reports[0].Level}
	}
	return Pool(about, reports)
}

// TestNoiseWidens: an interval with noise holds that without, also of hidden counts, and so does that of
// all images beside a site with noise.
func TestNoiseWidens(t *testing.T) {
	holds := func(name string, wide, narrow Share) {
		t.Helper()
		if wide.Low > narrow.Low || wide.High < narrow.High {
			t.Errorf("%s: %v is no part of %v", name, narrow, wide)
		}
	}
	for _, s := range []share{{100, 0, 0, 0}, {100, 91, 100, 0}, {1000, 995, 995, 0}, {300, 150, 150, 0}, {50, 0, 9, 0}} {
		low, vl := logit(s.low, s.n)
		high, vh := logit(s.high, s.n)
		last := Share{nil, expit(low - z*math.Sqrt(vl)), expit(high + z*math.Sqrt(vh))}
		for _, noise := range []float64{0.5, 4, 30} {
			s.noise = noise
			wide := s.interval()
			if holds("noise", wide, last); wide.Low == last.Low && last.Low > 0 {
				t.Errorf("noise of %v: %v as %v", noise, wide, last)
			}
			last = wide
		}
	}
	hidden := []share{{100, 91, 100, 0}, {100, 91, 100, 0}, {100, 91, 100, 0}}
	beside := overall(append(hidden, share{100, 99, 99, 4})).Pooled
	holds("beside a site with noise", beside, Share{nil, 0.93, 0.998})
	holds("a site whose noise leaves no images", share{-5, -3, -3, 9}.interval(), Share{nil, 0.1, 0.9})
}

// of is a report of some counts.
func of(site string, n, right, least int, bins ...tally.Bin) *tally.Report {
	r := &tally.Report{Site: site, Classifier: strings.Repeat("a", 64), Classes: 3,
		Least: least, Bins: bins, Groups: []tally.Group{{Classes: []int{0}, N: n, Right: &right}}}
	return r
}

func bin(from, to, n, right int, mean float64) tally.Bin {
	return tally.Bin{From: from, To: to, N: n, Right: right, Confidence: &mean}
}

// TestPool: hidden counts widen the interval, bins are pooled over common edges, and a site counts
// once.
func TestPool(t *testing.T) {
	few := &tally.Report{Site: "c", Classifier: strings.Repeat("a", 64), Classes: 3,
		Least: 10, Few: "wrong", Groups: []tally.Group{{Classes: []int{0, 1}, N: 100}}}
	r := must.Get(pool([]*tally.Report{few, of("b", 100, 60, 10, bin(0, 6, 40, 15, 0.3), bin(6, 15, 60, 45, 0.8)),
		of("a", 100, 80, 10, bin(0, 3, 30, 12, 0.1), bin(3, 6, 20, 18, 0.35), bin(6, 15, 50, 50, 0.9))}))(t)
	if len(r.Sites) != 3 || r.Sites[0].Name != "a" || r.Images != 300 || len(r.Curve) != 2 ||
		r.Curve[0].N != 90 || r.Curve[0].Right != 45 {
		t.Errorf("%+v", r)
	}
	want := (math.Abs(45-(30*0.1+20*0.35+40*0.3)) + math.Abs(95-(50*0.9+60*0.8))) / 200
	if r.ECE == nil || !near(*r.ECE, want) {
		t.Errorf("ECE %v; want %v", r.ECE, want)
	}
	c := r.Sites[2].Accuracy
	if c.Low > expit(math.Log(91.5/9.5)) || c.High < expit(math.Log(100.5/0.5)) ||
		c.Value != nil {
		t.Errorf("a site that hides its wrong images: %+v", c)
	}
	if len(r.ByClass) != 1 || r.ByClass[0].Sites != 2 || r.ByClass[0].Images != 200 ||
		r.ByClass[0].Share.Value != nil || r.ByClass[0].Share.Low > 140/209. || r.ByClass[0].Share.High < 0.8 {
		t.Errorf("by class %+v", r.ByClass)
	}
	for name, reports := range map[string][]*tally.Report{"none": nil, "one site twice": {few, few}} {
		must.Fail(pool(reports))(t, "", name)
	}
}

// TestLeftOut: a report that cannot be pooled with the others is left out and named, and the others are
// pooled as without it.
func TestLeftOut(t *testing.T) {
	alone := must.Get(pool([]*tally.Report{of("b", 100, 60, 10)}))(t)
	for name, change := range map[string]func(*tally.Report){
		"another classifier": func(r *tally.Report) { r.Classifier = strings.Repeat("b", 64) },
		"sets of a level":    func(r *tally.Report) { r.Level = 0.5 },
		"too few classes":    func(r *tally.Report) { r.Classes = 2 },
		"billions":           func(r *tally.Report) { r.Groups[0].N, *r.Groups[0].Right = tally.MaxSize, 5 },
	} {
		for _, site := range []string{"a", "c"} { // before and behind the other
			other := of(site, 100, 60, 10)
			change(other)
			r := must.Get(Pool(Of{alone.Classifier, 3, 0}, []*tally.Report{of("b", 100, 60, 10), other}))(t)
			if len(r.LeftOut) != 1 || r.LeftOut[0].Site != site || r.LeftOut[0].Why == "" {
				t.Errorf("%s: left out is %+v", name, r.LeftOut)
			}
			r.LeftOut = nil
			if got, want := must.Get(json.Marshal(r))(t), must.Get(json.Marshal(alone))(t); !bytes.Equal(got, want) {
				t.Errorf("%s: %s; want %s", name, got, want)
			}
		}
	}
}

// made is a report of images of four classes, of which each is right with one probability, and its set,
// of a level of 0.9, holds its class with another.
func made(r *mrand.Rand, site string, n int, accuracy, coverage, noise float64) *tally.Report {
	m := &tally.Images{C: 4, Level: 0.9}
	for i := range n {
		class, other, u := i%4, (i+1)%4, r.Float64()
		set := make([]bool, 4)
		set[class], set[other] = u < coverage, u > accuracy || r.Float64() < 0.3
		top := class
		if u > min(accuracy, coverage) {
			top = other
		}
		if err := m.Add(class, top, 0.5+0.5*r.Float64(), set); err != nil {
			panic(err)
		}
	}
	out, err := m.Report(10)
	if noise > 0 {
		out, err = m.Noisy(noise, 1e-5, rand.Reader)
	}
	if err != nil {
		panic(err)
	}
	out.Site, out.Classifier = site, strings.Repeat("a", 64)
	return out
}

// TestHiddenHeld: where sites hide counts, all intervals hold the truth at least as often as stated,
// and no figure is between them. A site with noise changes neither.
func TestHiddenHeld(t *testing.T) {
	const rounds, sites = 100, 8
	random := mrand.New(mrand.NewPCG(7, 8))
	for _, c := range []struct {
		n                    int
		accuracy, tau, noise float64
	}{{100, 0.97, 0, 0}, {100, 0.99, 0, 0}, {300, 0.97, 0, 0}, {300, 0.995, 0, 0}, {100, 0.99, 0, 1}, {300, 0.97, 0, 5},
		{100, 0.9, 0, 0}, {100, 0.97, 0.5, 0}, {300, 0.95, 0.5, 0}, {300, 0.98, 0.5, 0}, {400, 0.93, 0, 0}} {
		missed, intervals := map[string]int{}, map[string]int{}
		check := func(name string, s *Share, truth float64, hidden bool) {
			intervals[name]++
			if s.Low > truth || truth > s.High {
				missed[name]++
			}
			if hidden && s.Value != nil {
				t.Fatalf("%+v: %s has the figure %v of hidden counts", c, name, *s.Value)
			}
		}
		for range rounds {
			draw := func() float64 { return expit(math.Log(c.accuracy/(1-c.accuracy)) + c.tau*random.NormFloat64()) }
			var reports []*tally.Report
			for i := range sites {
				p, noise := draw(), 0.0
				if i == 0 {
					noise = c.noise
				}
				reports = append(reports, made(random, string(rune('a'+i)), c.n, p, (1+p)/2, noise))
			}
			o := must.Get(pool(reports))(t)
			held := o.Coverage
			if c.tau == 0 {
				check("pooled", &o.Accuracy.Pooled, c.accuracy, o.Accuracy.Hidden > 0)
				check("pooled coverage", &held.Pooled, (1+c.accuracy)/2, held.Hidden > 0)
				check("typical coverage", &held.Typical, (1+c.accuracy)/2, held.Hidden > 0)
				for _, class := range o.ByClass {
					check("by class", &class.Share, c.accuracy, false)
				}
			}
			check("typical", &o.Accuracy.Typical, c.accuracy, o.Accuracy.Hidden > 0)
			check("further", o.Accuracy.New, draw(), o.Accuracy.Hidden > 0)
			if o.Accuracy.Hidden == sites && (o.Accuracy.Q != nil || o.Accuracy.P != nil || o.Accuracy.I2 != nil) {
				t.Fatalf("%+v: sites differ by counts that nobody told", c)
			}
			if m := o.Accuracy; m.Hidden == sites && m.Median != nil {
				t.Fatalf("%+v: a median %v of hidden counts", c, *m.Median)
			}
		}
		t.Logf("%+v: missed %v of %v", c, missed, intervals)
		for name, n := range missed {
			if 100*n > 12*intervals[name] {
				t.Errorf("%+v: %d of %d intervals (%s) lack the truth", c, n, intervals[name], name)
			}
		}
	}
}

// TestOlder: reports of 0.1.0, which do not say why they do not tell of sets, are pooled with any coverage
// between none and all, and a pooled report of 0.1.0 is read.
func TestOlder(t *testing.T) {
	older := of("a", 100, 80, 10)
	older.Level = 0.9
	newer := of("b", 900, 80, 10)
	newer.Level, newer.FewSets = 0.9, "missed"
	if r := must.Get(pool([]*tally.Report{older}))(t); r.Coverage != nil {
		t.Errorf("coverage of what nobody tells: %+v", r.Coverage)
	}
	r := must.Get(pool([]*tally.Report{older, newer}))(t)
	if r.Coverage == nil || r.Sites[0].Coverage != nil || r.Sites[1].Coverage == nil ||
		r.Coverage.Pooled.Low > 0.891 || r.Coverage.Pooled.Low < 0.85 || r.Coverage.Pooled.High < 0.99 {
		t.Errorf("%+v of %+v", r.Coverage, r.Sites)
	}
	d := json.NewDecoder(strings.NewReader(`{"classifier": "a", "images": 100, "sites": [{"name": "a", "images": 100,
		"few": "wrong", "least": 10, "accuracy": {"value": 0.955, "low": 0.8, "high": 1}}], "accuracy": {"sites": 1,
		"pooled": {"value": 0.955, "low": 0.8, "high": 1}, "typical": {"value": 0.955, "low": 0.8, "high": 1},
		"median": 0.955, "q": 0, "df": 0, "p": 1, "i2": 0, "tau2": 0}, "by_class": []}`))
	d.DisallowUnknownFields()
	var was Result
	must.Do(t, d.Decode(&was))
	must.Do(t, was.Check(3))
}

// TestCurveOfNoise: a mean confidence that noise hides is in no curve and no ECE, also beside sites
// that tell theirs.
func TestCurveOfNoise(t *testing.T) {
	noisy := of("n", 100, 100, 0)
	noisy.Sigma, noisy.Epsilon, noisy.Delta = 4, 1, 1e-5
	for i := range tally.Bins {
		noisy.Bins = append(noisy.Bins, tally.Bin{From: i, To: i + 1, N: 2, Right: 3})
	}
	noisy.Bins[tally.Bins-1].N, noisy.Bins[tally.Bins-1].Right = 200, 201
	plain := of("p", 100, 60, 10, bin(0, 6, 40, 16, 0.3), bin(6, 15, 60, 48, 0.8))
	for name, c := range map[string]struct {
		reports []*tally.Report
		bins, n int
		ece     float64
	}{
		"noise alone":           {[]*tally.Report{noisy}, tally.Bins, 228, math.NaN()},
		"noise beside means":    {[]*tally.Report{noisy, plain}, 2, 100, 0.04},
		"means alone":           {[]*tally.Report{plain}, 2, 100, 0.04},
		"noise beside no bins":  {[]*tally.Report{noisy, of("q", 100, 60, 10)}, tally.Bins, 228, math.NaN()},
		"neither means nor any": {[]*tally.Report{of("q", 100, 60, 10)}, 0, 0, math.NaN()},
	} {
		r := must.Get(pool(c.reports))(t)
		n := 0
		for _, b := range r.Curve {
			n += b.N
			if (b.Confidence == nil) != math.IsNaN(c.ece) {
				t.Errorf("%s: a mean of %v", name, b.Confidence)
			}
		}
		if len(r.Curve) != c.bins || n != c.n || (r.ECE == nil) != math.IsNaN(c.ece) ||
			r.ECE != nil && !near(*r.ECE, c.ece) {
			t.Errorf("%s: %d bins of %d images, ECE %v", name, len(r.Curve), n, r.ECE)
		}
		for _, s := range r.Sites {
			if (s.ECE != nil) != (s.Name == "p") {
				t.Errorf("%s: ECE %v of site %s", name, s.ECE, s.Name)
			}
		}
	}
}

// TestHostilePool: a pooled report whose figures no reports give is refused, and those of reports are
// not.
func TestHostilePool(t *testing.T) {
	size := 1.5
	fine := func() *Result {
		plain, noisy := of("a", 100, 60, 10, bin(0, 6, 40, 16, 0.3), bin(6, 15, 60, 44, 0.8)), of("n", 90, 95, 0)
		held := 70
		plain.Level, plain.Groups[0].Held, plain.Groups[0].Size = 0.9, &held, &size
		noisy.Level, noisy.Sigma, noisy.Groups[0].Held = 0.9, 4, &held
		few := of("f", 40, 0, 10)
		few.Level, few.Few, few.Groups[0].Right = 0.9, "wrong", nil
		return must.Get(pool([]*tally.Report{plain, noisy, few}))(t)
	}
	must.Do(t, fine().Check(3))
	high, low := 1.5, -0.5
	for name, change := range map[string]func(*Result){
		"no sites":             func(r *Result) { r.Sites = nil },
		"images below 0":       func(r *Result) { r.Images = -1 },
		"a site's images":      func(r *Result) { r.Sites[0].Images = -1 },
		"size of sets":         func(r *Result) { v := 3.5; r.Sites[0].SetSize = &v },
		"a site's accuracy":    func(r *Result) { r.Sites[1].Accuracy.Value = &high },
		"a site's coverage":    func(r *Result) { r.Sites[0].Coverage.Low = low },
		"a site's ECE":         func(r *Result) { r.Sites[0].ECE = &high },
		"class -1":             func(r *Result) { r.ByClass[0].Class = -1 },
		"a class too many":     func(r *Result) { r.ByClass[0].Class = 3 },
		"a class's sites":      func(r *Result) { r.ByClass[0].Sites = -1 },
		"a class's images":     func(r *Result) { r.ByClass[0].Images = -1 },
		"a class's share":      func(r *Result) { r.ByClass[0].Share.High = high },
		"level":                func(r *Result) { r.Level = high },
		"ECE":                  func(r *Result) { r.ECE = &low },
		"pooled accuracy":      func(r *Result) { r.Accuracy.Pooled.Value = &high },
		"accuracy, new site":   func(r *Result) { r.Accuracy.New = &Share{nil, low, 1} },
		"p-value":              func(r *Result) { r.Accuracy.P = &low },
		"bounds of a median":   func(r *Result) { r.Accuracy.MedianBounds = &[2]float64{0, high} },
		"I2":                   func(r *Result) { r.Accuracy.I2 = &high },
		"typical coverage":     func(r *Result) { r.Coverage.Typical.High = high },
		"median of coverage":   func(r *Result) { v := math.Inf(1); r.Coverage.Median = &v },
		"a bin below 0":        func(r *Result) { r.Curve[0].From = -1 },
		"a bin beyond the end": func(r *Result) { r.Curve[1].To = tally.Bins + 1 },
		"a bin of no width":    func(r *Result) { r.Curve[0].To = 0 },
		"a bin's confidence":   func(r *Result) { r.Curve[0].Confidence = &high },
	} {
		r := fine()
		change(r)
		must.Fail(r.Check(3))(t, "pooled report: ", name)
	}
}

// TestPoolSize: sites that together claim more images than 32 bits count lose the largest, also where
// what they claim cancels.
func TestPoolSize(t *testing.T) {
	var reports []*tally.Report
	for i, n := range []int{900_000_000, -900_000_001, 900_000_000} {
		right := n
		reports = append(reports,
			&tally.Report{Format: tally.Format, Site: strings.Repeat("x", i+1), Classes: 2,
				Groups: []tally.Group{{Classes: []int{0}, N: n, Right: &right}}})
	}
	if r := must.Get(pool(reports[:2]))(t); len(r.LeftOut) != 0 {
		t.Errorf("1.8 billion images: left out %v", r.LeftOut)
	}
	if r := must.Get(pool(reports))(t); len(r.LeftOut) != 1 || r.LeftOut[0].Site != "xx" || len(r.Sites) != 2 {
		t.Errorf("2.7 billion images: left out %v", r.LeftOut)
	}
}

// TestHiddenCountsAlarmNobody: sites that draw alike are told apart no more often than the level of
// the test says, also where some hide their few wrong images.
func TestHiddenCountsAlarmNobody(t *testing.T) {
	const rounds, sites, n, least = 1000, 5, 60, 10
	r := rng.New(1, "hidden")
	for _, accuracy := range []float64{0.8, 0.85, 0.92} {
		apart := 0
		for range rounds {
			var reports []*tally.Report
			for i := range sites {
				right := binomial(r, n, accuracy)
				own := of(string(rune('a'+i)), n, right, least)
				if n-right < least {
					own.Few, own.Groups[0].Right = "wrong", nil
				}
				reports = append(reports, own)
			}
			pooled := must.Get(pool(reports))(t)
			if differ(pooled.Accuracy) {
				apart++
			}
		}
		if t.Logf("accuracy %v: %d of %d told apart", accuracy, apart, rounds); apart > 80 {
			t.Errorf("accuracy %v: %d of %d rounds of sites that are alike are told apart at the level .05",
				accuracy, apart, rounds)
		}
	}
}

// TestHiddenBounds: where sites hide counts, Q and I² are at least the figures and the p-value is at most the
// one of the true counts. It is not without power.
func TestHiddenBounds(t *testing.T) {
	r := mrand.New(mrand.NewPCG(1, 2))
	const times, least = 1500, 10
	apart, truly := 0, 0
	for range times {
		var hidden, told []share
		for range 3 + r.IntN(6) {
			n := 50 + r.IntN(1500)
			right := float64(binomial(r, n, expit(2.5+1.5*r.NormFloat64())))
			s := share{float64(n), right, right, 0}
			if r.IntN(4) == 0 {
				s.noise = float64(1 + r.IntN(20))
			}
			told = append(told, s)
			if s.noise == 0 && s.n-right < least {
				s.low, s.high = s.n-least+1, s.n
			}
			hidden = append(hidden, s)
		}
		o, all := overall(hidden), overall(told)
		if o.Q == nil || o.Hidden == 0 {
			continue
		}
		const rounding = 1e-9
		if *o.Q > *all.Q+rounding || *o.I2 > *all.I2+rounding || *o.P < *all.P-rounding || o.Tau2 != nil {
			t.Fatalf("%v: Q %v, I² %v, p %v, tau² %v; of the true counts %v, %v, %v", hidden, *o.Q, *o.I2, *o.P,
				o.Tau2, *all.Q, *all.I2, *all.P)
		}
		if truly++; differ(o) {
			apart++
		}
	}
	if truly < times/3 || apart < truly/2 {
		t.Errorf("%d of %d differ", apart, truly)
	}
	hides := share{1000, 991, 1000, 0}
	if o := overall([]share{{200, 180, 180, 0}, hides}); o.Q != nil || o.P != nil || o.I2 != nil {
		t.Errorf("one site differs from a count that nobody tells: %+v", o)
	}
}

// TestEndOfAll: the interval of none, or of all, holds the share of none, or of all.
func TestEndOfAll(t *testing.T) {
	for _, noise := range []float64{0, 4} {
		if s := (share{120, 120, 120, noise}).interval(); s.High != 1 || s.Low < 0.8 || s.Low >= 1 {
			t.Errorf("all of 120: %+v", s)
		}
		if s := (share{120, 0, 0, noise}).interval(); s.Low != 0 || s.High > 0.2 || s.High <= 0 {
			t.Errorf("none of 120: %+v", s)
		}
	}
}

// TestNoiseAlarmsNobody: sites that are alike are told apart no more often than the level of the test
// says, also where one has noise; sites that differ by more than the noise are.
func TestNoiseAlarmsNobody(t *testing.T) {
	r := mrand.New(mrand.NewPCG(5, 6))
	const rounds, sd, least = 1000, 31, 10
	for _, c := range []struct {
		plain, n       int
		accuracy, last float64
		apart          bool
	}{{1, 60, 0.98, 0.98, false}, {1, 120, 0.98, 0.98, false}, {4, 120, 0.98, 0.98, false}, {4, 400, 0.98, 0.98, false},
		{1, 60, 0.9, 0.9, false}, {1, 400, 0.9, 0.9, false}, {1, 120, 0.8, 0.8, false}, {0, 120, 0.98, 0.98, false},
		{1, 2000, 0.95, 0.8, true}, {4, 2000, 0.8, 0.95, true}} {
		for _, hide := range []bool{false, true} {
			apart := 0
			for range rounds {
				var of []share
				for i := range max(c.plain+1, 2) {
					at := c.accuracy
					if i == c.plain {
						at = c.last
					}
					right := float64(binomial(r, c.n, at))
					s := share{float64(c.n), right, right, 0}
					if wrong := s.n - right; i >= c.plain {
						right += math.Round(sd * r.NormFloat64())
						s = share{right + wrong + math.Round(sd*r.NormFloat64()), right, right, sd}
					} else if hide && wrong < least {
						s.low, s.high = s.n-least+1, s.n
					}
					of = append(of, s)
				}
				if differ(overall(of)) {
					apart++
				}
			}
			if c.apart != (apart > rounds*19/20) || !c.apart && apart > rounds/20 {
				t.Errorf("%+v, counts hidden: %v: %d of %d told apart", c, hide, apart, rounds)
			}
		}
	}
}

// TestNoiseBeside: a noisy count that lies far from the others' is taken near its own share, as with no
// noise, and not where a line from theirs leads.
func TestNoiseBeside(t *testing.T) {
	many := func(n int, s share, others ...share) []share {
		for range n {
			others = append(others, s)
		}
		return others
	}
	for name, c := range map[string]struct {
		of   []share
		last float64 // the share at which the last site is taken
	}{
		"a small site of no errors": {many(3, share{1000, 850, 850, 3}, share{20, 20, 20, 0}), 0.85},
		"a worse site":              {[]share{{1000, 950, 950, 0}, {1000, 800, 800, 8}}, 0.8},
		"a better site":             {many(1, share{3000, 2850, 2850, 8}, many(2, share{300, 180, 180, 0})...), 0.95},
		"all noisy":                 {many(1, share{1000, 800, 800, 5}, many(9, share{1000, 990, 990, 5})...), 0.8},
	} {
		theta, variance := logits(c.of)
		at, width := expit(theta[len(theta)-1]), variance[len(variance)-1]
		if math.Abs(at-c.last) > 0.01 || width > 0.02 {
			t.Errorf("%s: the last site is taken at %.3f with variance %.3f; want %v", name, at, width, c.last)
		}
		var told []share
		for _, s := range c.of {
			s.noise = 0
			told = append(told, s)
		}
		if with, without := overall(c.of), overall(told); math.Abs(*with.Typical.Value-*without.Typical.Value) > 0.01 ||
			(*with.P < 0.05) != (*without.P < 0.05) {
			t.Errorf("%s: typical %.3f, P %.3g; without noise %.3f, %.3g", name, *with.Typical.Value, *with.P,
				*without.Typical.Value, *without.P)
		}
	}
	if theta, _ := logits([]share{{-50, -20, -20, 30}, {100, 90, 90, 0}}); theta[0] != 0 {
		t.Errorf("a site of fewer than no images tells of a share of %v", expit(theta[0]))
	}
	if _, variance := logits([]share{{10000, 8000, 8000, 500}, {100, 80, 80, 0}}); variance[0] < variance[1] {
		t.Errorf("a count with much noise weighs more than a told one: %v", variance)
	}
}
