package tally

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
)

// drawn is a site's images: how right it is, how often sets hold the class, and how uneven its
// classes are, differ with the seed.
func drawn(seed uint64, n, classes int, sets bool) *Images {
	r := mrand.New(mrand.NewPCG(seed, 1))
	m := &Images{C: classes}
	if sets {
		m.Level = 0.9
	}
	accuracy, skew := 0.3+0.7*r.Float64(), r.Float64()
	for range n {
		class := min(int(float64(classes)*math.Pow(r.Float64(), 1+3*skew)), classes-1)
		top := class
		if r.Float64() > accuracy {
			top = r.IntN(classes)
		}
		var set []bool
		if sets {
			set = make([]bool, classes)
			set[top] = r.Float64() < 0.99
			set[class] = set[class] || r.Float64() < 0.6
		}
		if err := m.Add(class, top, 0.2+0.8*r.Float64(), set); err != nil {
			panic(err)
		}
	}
	return m
}

// TestNothingBelowTheBound: whatever a site's images are, no count of a report, no complement and
// no nested difference is below the bound, nothing is counted twice, and the counts are those of
// the images.
func TestNothingBelowTheBound(t *testing.T) {
	told := [3]int{}
	for seed := range uint64(400) {
		least := []int{2, 5, 10}[seed%3]
		m := drawn(seed, 5+int(seed)*3, 2+int(seed)%9, seed%2 == 0)
		r, err := m.Report(least)
		if errors.Is(err, ErrFew) {
			continue
		}
		must.Do(t, err)
		r.Classifier = strings.Repeat("a", 64)
		if err := r.check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var all count
		seen := make([]bool, m.C)
		for _, g := range r.Groups {
			var of count
			for _, c := range g.Classes {
				if seen[c] {
					t.Fatalf("seed %d: class %d is in two groups", seed, c)
				}
				seen[c], of = true, of.plus(m.of(c))
			}
			if g.N != of.n || g.N < least {
				t.Fatalf("seed %d: %d images; there are %d", seed, g.N, of.n)
			}
			told[onlyN]++
			all = all.plus(of)
			if g.Right == nil {
				continue
			}
			told[andRight]++
			wrong := g.N - *g.Right
			if *g.Right != of.right || *g.Right < least || wrong < least {
				t.Fatalf("seed %d: %d right and %d wrong with a bound of %d", seed,
					*g.Right, wrong, least)
			}
			if g.Held == nil {
				continue
			}
			told[andHeld]++
			between := *g.Held - *g.Right
			if *g.Held != of.held || g.N-*g.Held < least || max(between, -between) < least {
				t.Fatalf("seed %d: %d held of %d, %d right, with a bound of %d", seed, *g.Held, g.N,
					*g.Right, least)
			}
		}
		for c, in := range seen {
			if !in {
				t.Fatalf("seed %d: class %d is in no group", seed, c)
			}
		}
		if len(r.Bins) == 0 && (all.fits(andRight, least)) {
			t.Fatalf("seed %d: no bins", seed)
		}
		if len(r.Bins) > 0 && math.Abs(r.ECE()-0) > 1 {
			t.Fatalf("seed %d: ECE %v", seed, r.ECE())
		}
	}
	if slices.Min(told[:]) < 100 {
		t.Errorf("groups that tell of images, right ones, and sets: %v; too few for a test", told)
	}
}

// TestNoneOrFew: a report with a bound says the same where there are fewer than that and where there
// are none: images of a class, and right images whose set is of two classes.
func TestNoneOrFew(t *testing.T) {
	const least, right = 10, 30
	groups := func(rare int) (classes string) {
		m := &Images{C: 3}
		for i := range 60 {
			must.Do(t, m.Add(1+i%2, 1+i/2%2, 0.8, nil))
		}
		for i := range rare {
			must.Do(t, m.Add(0, 2*(i%2), 0.8, nil))
		}
		for _, g := range must.Get(m.Report(least))(t).Groups {
			classes += fmt.Sprint(g.Classes)
		}
		return classes
	}
	for rare, want := range map[int]string{0: "[0 1][2]", 1: "[0 1][2]", 9: "[0 1][2]", 40: "[0][1][2]"} {
		if got := groups(rare); got != want {
			t.Errorf("%d images of a class: groups %s; want %s", rare, got, want)
		}
	}
	size := func(both int) float64 {
		m := &Images{C: 2, Level: 0.9}
		for i := range 25 { // wrong, of which 15 are held
			must.Do(t, m.Add(i%2, 1-i%2, 0.6, []bool{i < 15 || i%2 == 1, i < 15 || i%2 == 0}))
		}
		for i := range right {
			must.Do(t, m.Add(i%2, i%2, 0.8, []bool{i < both || i%2 == 0, i < both || i%2 == 1}))
		}
		r := must.Get(m.Report(least))(t)
		if g := r.Groups[0]; len(r.Groups) != 1 || *g.Right != right || *g.Held != right+15 {
			t.Fatalf("%+v", g)
		}
		return *r.Groups[0].Size
	}
	for both := range right + 1 {
		if as := min(both/least*least, right-least); size(both) != size(as) {
			t.Errorf("%d right images with a set of both: mean size %v; of %d it is %v", both, size(both), as,
				size(as))
		}
	}
	if size(0) == size(least) {
		t.Error("the mean size says nothing")
	}
}

// TestFewSets: a report that does not tell of sets says why.
func TestFewSets(t *testing.T) {
	for name, c := range map[string]struct {
		of   count
		want string
	}{
		"missed":         {count{n: 100, right: 80, held: 95}, "missed"},
		"held":           {count{n: 100, right: 20, held: 5}, "held"},
		"wrong and held": {count{n: 100, right: 80, held: 85}, "wrong and held"},
		"ten are wrong":  {count{n: 100, right: 90, held: 95}, "any"},
		"right, missed":  {count{n: 100, right: 5, held: 95}, "missed"},
		"right alone":    {count{n: 100, right: 5, held: 50}, "any"},
		"right and held": {count{n: 100, right: 5, held: 12}, "any"},
		"wrong alone":    {count{n: 100, right: 95, held: 70}, "any"},
	} {
		if got := c.of.few(min(c.of.right, c.of.n-c.of.right) >= 10, 10); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	m := drawn(6, 200, 3, true)
	r := must.Get(m.Report(100))(t)
	r.Classifier = strings.Repeat("a", 64)
	if r.Groups[0].Held != nil || r.FewSets == "" || r.check() != nil {
		t.Errorf("%+v: %v", r, r.check())
	}
	r.FewSets = "none"
	must.Fail(0, r.check())(t, "few sets", "few of something")
	r.FewSets = "any"
	must.Do(t, r.check())
	var out strings.Builder
	must.Do(t, r.Print(&out))
	if !strings.Contains(out.String(), "one is or may be below 100") {
		t.Error(out.String())
	}
}

// fixed is the values that the images behind each report have.
type fixed map[string]map[string]map[int]bool

// add adds images and their values.
func (f fixed) add(m *Images, least int, values map[string]int) {
	r, err := m.Report(least)
	if err != nil {
		return
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	of := f[string(data)]
	if of == nil {
		of = map[string]map[int]bool{}
		f[string(data)] = of
	}
	for name, v := range values {
		if of[name] == nil {
			of[name] = map[int]bool{}
		}
		of[name][v] = true
	}
}

// check fails if a report whose images are all among those that were added leaves one value alone, below the
// bound.
func (f fixed) check(t *testing.T, most, least int) {
	complete := 0
	for report, of := range f {
		var r Report
		must.Do(t, json.Unmarshal([]byte(report), &r))
		if slices.ContainsFunc(r.Groups, func(g Group) bool { return g.N > most }) {
			continue
		}
		complete++
		for name, values := range of {
			for v := range values {
				if len(values) == 1 && v < least {
					t.Errorf("%s is of %s %d alone", report, name, v)
				}
			}
		}
	}
	if complete < 50 {
		t.Errorf("%d reports; too few for a test", complete)
	}
}

// every calls f with all vectors of values up to a maximum.
func every(x []int, most int, f func()) {
	if len(x) == 0 {
		f()
		return
	}
	for x[0] = range most + 1 {
		every(x[1:], most, f)
	}
}

// TestNoReportFixesACount: of all that a site's images may be, no report leaves one number of them alone that
// is below the bound.
func TestNoReportFixesACount(t *testing.T) {
	const most, least = 5, 2
	found, sets := fixed{}, fixed{}
	x := make([]int, 6) // right and wrong ones of three classes
	every(x, most, func() {
		m := &Images{C: 3, cells: make([][4]int, 3), sizes: make([]int, 3)}
		values := map[string]int{}
		for c := range 3 {
			right, wrong := x[2*c], x[2*c+1]
			m.cells[c] = [4]int{wrong, 0, right, 0}
			m.bins[7][0], m.bins[7][1] = m.bins[7][0]+wrong, m.bins[7][1]+right
			values[fmt.Sprint("images ", c)] = right + wrong
			values[fmt.Sprint("right ", c)], values[fmt.Sprint("wrong ", c)] = right, wrong
		}
		found.add(m, least, values)
	})
	found.check(t, most, least)
	every(x, most+1, func() { // right, wrong and held, and missed ones of two classes
		m := &Images{C: 2, Level: 0.9, sizes: make([]int, 2)}
		values := map[string]int{}
		for c := range 2 {
			right, held, missed := x[3*c], x[3*c+1], x[3*c+2]
			m.cells = append(m.cells, [4]int{missed, held, 0, right})
			m.bins[7][0], m.bins[7][1] = m.bins[7][0]+held+missed, m.bins[7][1]+right
			m.sizes[c] = right + 2*held + missed
			values[fmt.Sprint("images ", c)] = right + held + missed
			values["right"] += right
			values["wrong and held"] += held
			values["missed"] += missed
		}
		sets.add(m, least, values)
	})
	sets.check(t, most+1, least)
}

// TestOlderReport: a report of 0.1.0 is read: a class without images is in no group, sizes are to
// hundredths, and none says why it does not tell of sets.
func TestOlderReport(t *testing.T) {
	k := must.Get(identity.New("site 1"))(t)
	sites := must.Get(identity.ParseRoster([]byte(k.Line() + "\n")))(t)
	size, held := 1.37, 60
	for name, r := range map[string]*Report{
		"with sets":    {Level: 0.9, Groups: []Group{{Classes: []int{0, 1}, N: 100, Held: &held, Size: &size}}},
		"without sets": {Level: 0.9, Groups: []Group{{Classes: []int{1}, N: 100}}},
	} {
		right, mean := 40, 0.5
		r.Format, r.Classifier, r.Classes, r.Least = 1, strings.Repeat("a", 64), 3, 10
		r.Groups[0].Right = &right
		r.Bins = []Bin{{0, Bins, 100, right, &mean}}
		if _, err := Read(must.Get(r.Sign(k))(t), sites); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFew: where fewer wrong images than the bound are among them, it says so and no number that
// leads to them.
func TestFew(t *testing.T) {
	m := &Images{C: 3}
	for i := range 90 {
		must.Do(t, m.Add(i%3, i%3, 0.99, nil))
	}
	must.Do(t, m.Add(0, 1, 0.99, nil))
	r, err := m.Report(10)
	if err != nil || r.Few != "wrong" || len(r.Bins) != 0 || len(r.Groups) != 3 ||
		r.Groups[0].Right != nil || r.Groups[0].N != 31 {
		t.Errorf("%+v: %v", r, err)
	}
	if _, err := (&Images{C: 3}).Report(10); !errors.Is(err, ErrFew) {
		t.Errorf("of no images: %v", err)
	}
}

// TestNoisy: noise is on every count, also of classes without images, and right on average; one
// image more changes two counts by one.
func TestNoisy(t *testing.T) {
	m := drawn(3, 2000, 4, true)
	n, right, held := 0, 0, 0
	const times = 60
	for range times {
		r := must.Get(m.Noisy(1, 1e-5, rand.Reader))(t)
		r.Classifier = strings.Repeat("a", 64)
		must.Do(t, r.check())
		a, b, c := r.Total()
		n, right, held = n+a, right+b, held+c
	}
	var all count
	for c := range m.cells {
		all = all.plus(m.of(c))
	}
	sd := 7 * math.Sqrt(16*times)
	for name, v := range map[string][2]int{"images": {n, all.n}, "right": {right, all.right},
		"held": {held, all.held}} {
		if off := math.Abs(float64(v[0] - times*v[1])); off > 5*sd {
			t.Errorf("%s: %d of %d reports; want %d", name, v[0], times, times*v[1])
		}
	}
	same := 0
	for range 8 {
		r := must.Get((&Images{C: 2}).Noisy(0.1, 1e-5, rand.Reader))(t)
		if r.Groups[0].N == 0 && r.Groups[1].N == 0 {
			same++
		}
	}
	if same == 8 {
		t.Error("classes without images have no noise")
	}
}

// signed is a report of some images as a file, and the roster of its site.
func signed(t testing.TB, noise bool) ([]byte, *identity.Roster, *identity.Key) {
	t.Helper()
	k := must.Get(identity.New("site 1"))(t)
	sites := must.Get(identity.ParseRoster([]byte(k.Line() + "\n")))(t)
	m := drawn(8, 1500, 5, true)
	r, err := m.Report(10)
	if noise {
		r, err = m.Noisy(2, 1e-5, rand.Reader)
	}
	must.Do(t, err)
	r.Classifier, r.Round = strings.Repeat("c", 64), 4
	return must.Get(r.Sign(k))(t), sites, k
}

// TestHostileReports: a report that no images give is refused, whoever signed it.
func TestHostileReports(t *testing.T) {
	for _, noise := range []bool{false, true} {
		data, sites, k := signed(t, noise)
		must.Get(Read(data, sites))(t)
		other := must.Get(identity.New("site 1"))(t)
		minus, many := -5, maxCount+1
		changes := map[string]func(*Report){
			"no groups":           func(r *Report) { r.Groups = nil },
			"a group twice":       func(r *Report) { r.Groups = append(r.Groups, r.Groups[0]) },
			"no classes":          func(r *Report) { r.Groups[0].Classes = nil },
			"class out of bounds": func(r *Report) { r.Groups[0].Classes = []int{5} },
			"negative class":      func(r *Report) { r.Groups[0].Classes = []int{-1} },
			"more than a billion": func(r *Report) { r.Groups[0].N = many },
			"sums beyond 32 bits": func(r *Report) {
				for i := range r.Bins { // of which a report with noise may have any
					r.Bins[i].N, r.Bins[i].Right = maxCount, maxCount
				}
			},
			"right without end":    func(r *Report) { r.Groups[0].Right = &many },
			"no bins":              func(r *Report) { r.Bins = nil },
			"bins out of order":    func(r *Report) { slices.Reverse(r.Bins) },
			"a bin too many":       func(r *Report) { r.Bins = append(r.Bins, r.Bins[0]) },
			"a bin beyond":         func(r *Report) { r.Bins[len(r.Bins)-1].To = 16 },
			"another format":       func(r *Report) { r.Format = 2 },
			"no classifier":        func(r *Report) { r.Classifier = "" },
			"too many classes":     func(r *Report) { r.Classes = maxClasses + 1 },
			"level above":          func(r *Report) { r.Level = 1.5 },
			"hidden and told":      func(r *Report) { r.Few = "wrong" },
			"few of something":     func(r *Report) { r.Few = "all" },
			"noise of less":        func(r *Report) { r.Sigma++ },
			"bound of one":         func(r *Report) { r.Least = 1 },
			"sets without a level": func(r *Report) { r.Level = 0 },
			"a size behind noise": func(r *Report) {
				for i := range r.Groups {
					v := 1.5
					if r.Groups[i].Size = &v; !noise {
						r.Groups[i].Size = nil
					}
				}
			},
			"few and told sets": func(r *Report) { r.FewSets = "missed" },
		}
		if !noise {
			maps.Copy(changes, map[string]func(*Report){
				"below the bound":     func(r *Report) { r.Groups[0].N = *r.Groups[0].Right + 1 },
				"more right than all": func(r *Report) { r.Groups[0].Right = &r.Groups[0].N },
				"negative":            func(r *Report) { r.Groups[0].Held = &minus },
				"bins of others":      func(r *Report) { r.Bins[0].N += 20 },
				"confidence outside":  func(r *Report) { v := 1.5; r.Bins[0].Confidence = &v },
				"size above":          func(r *Report) { v := 6.0; r.Groups[0].Size = &v },
			})
		}
		resigned := func(change func(*Report), by *identity.Key) []byte {
			var r Report
			must.Do(t, json.Unmarshal(data, &r))
			change(&r)
			return must.Get(r.Sign(by))(t)
		}
		for name, change := range changes {
			must.Fail(Read(resigned(change, k), sites))(t, "", "noise", noise, name)
		}
		must.Fail(Read(bytes.Replace(data, []byte(`"round": 4`), []byte(`"round": 5`), 1), sites))(
			t, "", "a report that was changed is taken")
		must.Fail(Read(resigned(func(*Report) {}, other), sites))(
			t, "", "a report that another key signed is taken")
	}
}

// FuzzReport: a report of any contents is refused, or has sums, an ECE and a text; signatures are
// left out.
func FuzzReport(f *testing.F) {
	for _, noise := range []bool{false, true} {
		data, _, _ := signed(f, noise)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		var r Report
		if json.Unmarshal(data, &r) != nil || r.check() != nil {
			return
		}
		n, right, held := r.Total()
		if n > MaxSize || right > MaxSize || held < -MaxSize || r.ECE() < 0 {
			t.Errorf("%d images, %d right, %d held, ECE %v", n, right, held, r.ECE())
		}
		var out bytes.Buffer
		if err := r.Print(&out); err != nil || out.Len() == 0 {
			t.Error(err)
		}
	})
}
