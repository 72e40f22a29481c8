package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
	"fmp/pipeline/settings"
)

// Difference is the paired difference, First less Second, of two methods' figures over repeats with
// the same tasks, with its confidence interval at [Level], for itself or together with others.
type Difference struct {
	Partition string `json:"partition"`
	Protocol  string `json:"protocol"`
	First     string `json:"first"`
	Second    string `json:"second"`
	// Other names the run of Second, where there are several beside the first.
	Other string `json:"other,omitempty"`
	// Of is the number of differences that the intervals are corrected for; 1: they are not.
	Of int `json:"corrected_for"`
	// Same says that all repeats have the same images: differences have no intervals.
	Same bool `json:"same_images,omitempty"`
	Figures
}

// CompareMethods pairs method with every other method of the same partition, protocol and repeat.
// Corrected intervals are those of Bonferroni, over the differences of one partition and protocol.
// m is the run's.
func CompareMethods(rs []experiment.Record, m *experiment.Manifest, method string,
	corrected bool) ([]Difference, error) {
	if has := experiment.MethodsOf(rs); !slices.Contains(has, method) {
		return nil, fmt.Errorf("the run has no method %q; it has %s", method,
			strings.Join(has, ", "))
	}
	ps, err := pair(rs, rs, func(a, b string) bool { return a == method && b != method })
	if err != nil {
		return nil, err
	}
	return differences(ps, m.SameImages, corrected)
}

// CompareRuns pairs each method of the first run with the same method of each other run: the first
// less the other. All must have drawn the same tasks: equal seeds, federations and data. keep
// selects the records to compare; nil keeps all. Corrected intervals are those of Bonferroni, over
// all differences of one partition and protocol.
func CompareRuns(dirs []string, keep func([]experiment.Record) []experiment.Record,
	corrected bool) ([]Difference, error) {
	rs := make([][]experiment.Record, len(dirs))
	var first tasksOf
	same := false
	for i, d := range dirs {
		var err error
		if rs[i], err = experiment.ReadResults(d); err != nil {
			return nil, err
		}
		if keep != nil {
			rs[i] = keep(rs[i])
		}
		drawn, m, err := drawnBy(d)
		if err != nil {
			return nil, err
		}
		// One run of the same images is enough to leave the intervals out.
		same = same || m.SameImages
		if i == 0 {
			first = drawn
		}
		if drawn != first {
			return nil, fmt.Errorf("runs %s and %s did not draw the same tasks (seed, clients, "+
				"points, images and the part that clients draw from must agree); their figures "+
				"cannot be paired: see `fmp results list` for their means", dirs[0], d)
		}
	}
	keys, values, err := experiment.Varied(dirs)
	if err != nil {
		return nil, err
	}
	var all []paired
	for i := 1; i < len(dirs); i++ {
		ps, err := pair(rs[0], rs[i], func(a, b string) bool { return a == b })
		if err != nil {
			return nil, fmt.Errorf("runs %s and %s: %w", dirs[0], dirs[i], err)
		}
		for k := range ps {
			if len(dirs) > 2 {
				// Runs that differ in no setting that is named are told apart by their folders.
				ps[k].Other = cmp.Or(experiment.Brief(keys, values[i]), dirs[i])
			}
		}
		all = append(all, ps...)
	}
	return differences(all, same, corrected)
}

// tasksOf is all that decides which tasks a run draws.
type tasksOf struct {
	seed            uint64
	clients, points int
	splits          settings.Splits
	test            int    // images
	images          string // their digest in the run's manifest
}

// drawnBy reads which tasks the run in dir draws, and its manifest.
func drawnBy(dir string) (tasksOf, *experiment.Manifest, error) {
	c, err := experiment.ReadConfig(dir)
	if err != nil {
		return tasksOf{}, nil, err
	}
	m, err := experiment.ReadManifest(dir)
	if err != nil {
		return tasksOf{}, nil, err
	}
	return tasksOf{c.Seed, c.Federation.Clients, c.Federation.Points, c.TaskSplits(),
		c.Dataset.Test, m.Data["images"]}, m, nil
}

// paired are the figures of two methods, repeat by repeat, column by column: values[c][0] is the
// first's, values[c][1] the second's, of equal length.
type paired struct {
	Difference
	values [columns][2][]float64
}

// pair pairs records of a and b of one partition, protocol and repeat whose methods match. A column
// counts repeats in which both have it. Nothing to pair is an error. A record of b meets each
// method of a that matches, in the cell of the same partition, protocol and repeat. It costs
// O(records of b · methods of a).
func pair(a, b []experiment.Record, match func(a, b string) bool) ([]paired, error) {
	byCell := map[experiment.Cell]experiment.Record{}
	for _, r := range a {
		byCell[r.Cell] = r
	}
	type group struct{ partition, protocol, first, second string }
	at := map[group]int{}
	var out []paired
	// Methods of a are tried in their order, so that equal runs have equal tables.
	firsts := experiment.MethodsOf(a)
	for _, r := range b {
		for _, m := range firsts {
			o, ok := byCell[experiment.Cell{Partition: r.Partition, Repeat: r.Repeat,
				Protocol: r.Protocol, Method: m}]
			if !match(m, r.Method) || !ok {
				continue
			}
			g := group{r.Partition, r.Protocol, m, r.Method}
			i, ok := at[g]
			if !ok {
				i = len(out)
				at[g] = i
				out = append(out, paired{Difference: Difference{Partition: r.Partition,
					Protocol: r.Protocol, First: m, Second: r.Method}})
			}
			v, mine, other := &out[i].values, measured(&o), measured(&r)
			for c := range v {
				// A figure that a record lacks is NaN; its repeat drops out for both methods of
				// this column.
				if !math.IsNaN(mine[c]) && !math.IsNaN(other[c]) {
					v[c][0], v[c][1] = append(v[c][0], mine[c]), append(v[c][1], other[c])
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("nothing to compare: no partition, protocol and repeat is in both")
	}
	return out, nil
}

// differences computes paired differences with their intervals: at [Level], or corrected for the
// number m of differences of the same partition and protocol, at 1 - (1 - Level)/m. Those of
// repeats with the same images have none. Those of one family follow each other, as one table has
// them: records of methods from outside come after all others, and runs one after another.
func differences(all []paired, same, corrected bool) ([]Difference, error) {
	family, place := map[[2]string]int{}, map[[2]string]int{}
	for i, p := range all {
		of := [2]string{p.Partition, p.Protocol}
		if family[of]++; family[of] == 1 {
			place[of] = i
		}
	}
	slices.SortStableFunc(all, func(a, b paired) int {
		return place[[2]string{a.Partition, a.Protocol}] - place[[2]string{b.Partition, b.Protocol}]
	})
	var out []Difference
	for i := range all {
		p := &all[i]
		d := p.Difference
		if d.Of, d.Same = 1, same; corrected && !same {
			d.Of = family[[2]string{p.Partition, p.Protocol}]
		}
		for c, v := range p.values {
			if len(v[0]) == 0 {
				continue
			}
			var err error
			if *d.interval(c), err = metric.Paired(v[0], v[1],
				1-(1-Level)/float64(d.Of)); err != nil {
				return nil, fmt.Errorf("comparing %s and %s: %w", d.First, d.Second, err)
			}
			if same {
				// An N of 1 is a mean without a spread.
				*d.interval(c) = metric.Interval{N: 1, Mean: d.interval(c).Mean}
			}
		}
		out = append(out, d)
	}
	return out, nil
}

// head names the table of a difference.
func (d *Difference) head() string { return d.Partition + ", " + d.Protocol }

// repeats says of how many repeats the differences at the head of ds are, those of one table.
func repeats(ds []Difference) string {
	if ds[0].Same {
		return "repeats of the same images"
	}
	least, most := ds[0].ACC.N, ds[0].ACC.N
	for _, d := range ds {
		if d.head() != ds[0].head() {
			break
		}
		least, most = min(least, d.ACC.N), max(most, d.ACC.N)
	}
	if least < most {
		return fmt.Sprintf("%d to %d repeats", least, most)
	}
	return fmt.Sprintf("%d repeats", most)
}

// families says at which confidence intervals hold together: a line for all tables, or one for each
// where they have different numbers of differences.
func families(ds []Difference) string {
	differ := slices.ContainsFunc(ds, func(d Difference) bool { return d.Of != ds[0].Of })
	var lines []string
	for _, d := range ds {
		of := ""
		if differ {
			of = " in " + d.head()
		}
		line := fmt.Sprintf("Intervals of a column%s hold together (Bonferroni: each at %.4g%% "+
			"for %d differences).\n", of, 100*(1-(1-Level)/float64(d.Of)), d.Of)
		if d.Of > 1 && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// DifferencesText writes differences for a terminal: all columns if wide, else those of a table. A
// star marks an interval that does not contain zero. Means have four decimals and a sign; half
// widths stand behind them.
func DifferencesText(w io.Writer, ds []Difference, wide bool) error {
	var b strings.Builder
	last, vary, same := "", false, false
	var shown []int
	for c := range columns {
		if slices.ContainsFunc(ds, func(o Difference) bool { return o.interval(c).N > 0 }) {
			shown = append(shown, c)
		}
	}
	shown = narrow(shown, wide)
	for i, d := range ds {
		if head := d.head(); head != last {
			last = head
			fmt.Fprintf(&b, "%s, %s\n  %-18s", head, repeats(ds[i:]), "")
			for _, c := range shown {
				fmt.Fprintf(&b, "  %13s", headings[c])
			}
			b.WriteByte('\n')
		}
		name := d.First + " - " + d.Second
		if d.First == d.Second {
			name = d.First
		}
		if d.Other != "" {
			name += " - " + d.Other
		}
		fmt.Fprintf(&b, "  %-18s", name)
		for _, c := range shown {
			i := d.interval(c)
			s := "-"
			if i.N > 0 {
				s = fmt.Sprintf("%+.4f", i.Mean)
			}
			switch {
			case i.N > 1 && !varies(i):
				same = true
				s += strings.Repeat(" ", len(".0000*")+1) // what others have behind the mean
			case i.N > 1:
				vary = true
				s += "±" + spread(i.Half)
				// a difference that is shown
				if (i.Lo() > 0 || i.Hi() < 0) && math.Abs(i.Mean) >= 0.00005 {
					s += "*"
				} else {
					s += " "
				}
			}
			fmt.Fprintf(&b, "  %13s", s)
		}
		b.WriteByte('\n')
	}
	b.WriteString("Paired differences over repeats")
	if vary {
		fmt.Fprintf(&b, "; ± is the half-width of the %g%% t-interval, * an interval without zero",
			Level*100)
	}
	if same {
		b.WriteString("; without ±, all repeats give the same")
	}
	b.WriteString(".\n")
	if len(ds) > 0 && ds[0].Same {
		b.WriteString(wrapped(spreadNote(true), terminal) + "\n")
	}
	b.WriteString(families(ds))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing differences: %w", err)
	}
	return nil
}
