package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
)

// Difference is the paired difference, First less Second, of two methods' figures over repeats with the same tasks,
// with its confidence interval at [Level].
type Difference struct {
	Partition string `json:"partition"`
	Protocol  string `json:"protocol"`
	First     string `json:"first"`
	Second    string `json:"second"`
	Figures
}

type pairKey struct {
	partition, protocol, method string
	repeat                      int
}

// CompareMethods pairs method with every other method of the same partition, protocol and repeat.
func CompareMethods(rs []experiment.Record, method string) ([]Difference, error) {
	found := false
	for _, r := range rs {
		found = found || r.Method == method
	}
	if !found {
		return nil, fmt.Errorf("the run has no method %q; it has %s", method, strings.Join(methodsOf(rs), ", "))
	}
	return pair(rs, rs, func(a, b string) bool { return a == method && b != method })
}

// CompareRuns pairs each method of one run with the same method of another: the first less the second. Both must
// have drawn the same tasks: equal seeds, federations and data. keep selects the records to compare; nil
// keeps all.
func CompareRuns(aDir, bDir string, keep func([]experiment.Record) []experiment.Record) ([]Difference, error) {
	var rs [2][]experiment.Record
	var cs [2]experiment.Config
	var ms [2]*experiment.Manifest
	for i, d := range []string{aDir, bDir} {
		var err error
		if rs[i], err = experiment.ReadResults(d); err != nil {
			return nil, err
		}
		if keep != nil {
			rs[i] = keep(rs[i])
		}
		if cs[i], err = experiment.ReadConfig(d); err != nil {
			return nil, err
		}
		if ms[i], err = experiment.ReadManifest(d); err != nil {
			return nil, err
		}
	}
	if cs[0].Seed != cs[1].Seed || cs[0].Federation.Clients != cs[1].Federation.Clients ||
		cs[0].Federation.Points != cs[1].Federation.Points ||
		cs[0].Dataset.Splits != cs[1].Dataset.Splits || cs[0].Dataset.Test != cs[1].Dataset.Test || ms[0].Data["images"] != ms[1].Data["images"] {
		return nil, fmt.Errorf("runs %s and %s did not draw the same tasks (seed, clients, points, splits "+
			"and images must agree); their figures cannot be paired: see `fmp results list` for their means", aDir, bDir)
	}
	return pair(rs[0], rs[1], func(a, b string) bool { return a == b })
}

func methodsOf(rs []experiment.Record) []string {
	var out []string
	for _, r := range rs {
		if !slices.Contains(out, r.Method) {
			out = append(out, r.Method)
		}
	}
	return out
}

// pair computes the differences between records of a and b of one partition, protocol and repeat whose methods match.
func pair(a, b []experiment.Record, match func(a, b string) bool) ([]Difference, error) {
	byKey := map[pairKey]experiment.Record{}
	for _, r := range a {
		byKey[pairKey{r.Partition, r.Protocol, r.Method, r.Repeat}] = r
	}
	type group struct{ partition, protocol, first, second string }
	var order []group
	values := map[group]*[columns][2][]float64{}
	firsts := methodsOf(a)
	for _, r := range b {
		for _, m := range firsts {
			if !match(m, r.Method) {
				continue
			}
			o, ok := byKey[pairKey{r.Partition, r.Protocol, m, r.Repeat}]
			if !ok {
				continue
			}
			g := group{r.Partition, r.Protocol, m, r.Method}
			if values[g] == nil {
				values[g] = &[columns][2][]float64{}
				order = append(order, g)
			}
			v := values[g]
			mine, other := measured(&o), measured(&r)
			for c := range v {
				if !math.IsNaN(mine[c]) && !math.IsNaN(other[c]) {
					v[c][0], v[c][1] = append(v[c][0], mine[c]), append(v[c][1], other[c])
				}
			}
		}
	}
	if len(order) == 0 {
		return nil, fmt.Errorf("nothing to compare: no partition, protocol and repeat is in both")
	}
	var out []Difference
	for _, g := range order {
		d := Difference{Partition: g.partition, Protocol: g.protocol, First: g.first, Second: g.second}
		for c, v := range values[g] {
			if len(v[0]) == 0 {
				continue
			}
			var err error
			if *d.interval(c), err = metric.Paired(values[g][c][0], values[g][c][1], Level); err != nil {
				return nil, fmt.Errorf("comparing %s and %s: %w", g.first, g.second, err)
			}
		}
		out = append(out, d)
	}
	return out, nil
}

// DifferencesText writes differences for a terminal: all columns if wide, else those of a table. A star
// marks an interval that does not contain zero.
func DifferencesText(w io.Writer, ds []Difference, wide bool) error {
	var b strings.Builder
	last := ""
	var shown []int
	for _, d := range ds {
		if head := d.Partition + ", " + d.Protocol; head != last {
			last = head
			shown = nil
			for c := range columns {
				if slices.ContainsFunc(ds, func(o Difference) bool { return o.interval(c).N > 0 }) {
					shown = append(shown, c)
				}
			}
			shown = narrow(shown, wide)
			fmt.Fprintf(&b, "%s, %d repeats\n  %-18s", head, d.ACC.N, "")
			for _, c := range shown {
				fmt.Fprintf(&b, "  %13s", headings[c])
			}
			b.WriteByte('\n')
		}
		name := d.First + " - " + d.Second
		if d.First == d.Second {
			name = d.First
		}
		fmt.Fprintf(&b, "  %-18s", name)
		for _, c := range shown {
			i := d.interval(c)
			s := "-"
			if i.N > 0 {
				s = fmt.Sprintf("%+.4f", i.Mean)
			}
			if i.N > 1 {
				s += "±" + spread(i.Half)
				if i.Lo() > 0 || i.Hi() < 0 {
					s += "*"
				} else {
					s += " "
				}
			}
			fmt.Fprintf(&b, "  %13s", s)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "Paired differences over repeats; ± is the half-width of the %g%% t-interval, * an interval without zero.\n", Level*100)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing differences: %w", err)
	}
	return nil
}
