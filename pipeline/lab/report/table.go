// Package report turns the records of a run into readable reports: tables for the terminal,
// Markdown and LaTeX, plots, and one self-contained page.
package report

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/featurize/dataset"
	"fmp/onnx/sorting"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/metric"
)

// Level is the confidence level of every interval in the reports.
const Level = 0.95

// Table holds the figures of all methods on one partition under one protocol.
type Table struct {
	Dataset   string  `json:"dataset"`
	Partition string  `json:"partition"`
	Alpha     float64 `json:"alpha"`
	Protocol  string  `json:"protocol"`
	Repeats   int     `json:"repeats"`
	// Same says that all repeats have the same images: their spread is not that over images, and
	// figures have none.
	Same bool `json:"same_images,omitempty"`
	// Chance is the accuracy of guessing, 1/C, to which the prior-only row must be close.
	Chance float64 `json:"chance"`
	Rows   []Row   `json:"rows"`
	// Shifted holds figures on other and on corrupted images, where the run has them.
	Shifted []Shifted `json:"shifted,omitempty"`
	// Varied names the values of the settings in which the run differs from others beside it;
	// empty: none.
	Varied string `json:"varied,omitempty"`

	chosen *chosen // nil: all columns
}

// Figures are the measurements of a method, each a mean over repeats with its interval. One that a
// run did not measure has 0 repeats.
type Figures struct {
	ACC         metric.Interval `json:"acc"`
	ECE         metric.Interval `json:"ece"`
	NLL         metric.Interval `json:"nll"`
	Brier       metric.Interval `json:"brier"`
	JointNear   metric.Interval `json:"joint_nll_near,omitzero"`   // batches of two neighbourhoods
	JointRandom metric.Interval `json:"joint_nll_random,omitzero"` // batches of random points
	AURC        metric.Interval `json:"aurc,omitzero"`
	ClassECE    metric.Interval `json:"class_ece,omitzero"`
	AdaptiveECE metric.Interval `json:"adaptive_ece,omitzero"`
	// CoverTop, CoverUncertain and CoverWeights are the shares of nominal 90% intervals that
	// contain the value in the limit of infinite data: of the top class's probability, the same
	// where that is below 0.9, and of head weights.
	CoverTop       metric.Interval `json:"coverage_top,omitzero"`
	CoverUncertain metric.Interval `json:"coverage_uncertain,omitzero"`
	CoverWeights   metric.Interval `json:"coverage_weights,omitzero"`
	// Membership is the area under the ROC curve of membership inference from the class means that
	// a client uploads.
	Membership metric.Interval `json:"membership_auc,omitzero"`
	// RawNLL is, in a table of tuned settings, the NLL with the shared settings and without
	// temperature.
	RawNLL metric.Interval `json:"raw_nll,omitzero"`
	// HindsightNLL is the NLL with the settings that are best on the scored images.
	HindsightNLL metric.Interval `json:"hindsight_nll,omitzero"`
	// Disagreement is the mutual information of label and posterior sample, in nats; neither high
	// nor low is better.
	Disagreement metric.Interval `json:"disagreement,omitzero"`
}

// Columns of the figures.
const (
	columnACC = iota
	columnECE
	columnNLL
	columnBrier
	columnJointNear
	columnJointRandom
	columnAURC
	columnClassECE
	columnAdaptiveECE
	columnRawNLL
	columnHindsight
	columnCoverTop
	columnCoverUncertain
	columnCoverWeights
	columnMembership
	columnDisagreement
	columns
)

// headings name the columns for readers, in the order of the constants.
var headings = [columns]string{"ACC", "ECE", "NLL", "Brier", "joint NLL", "joint, random", "AURC",
	"class ECE", "adaptive ECE", "raw NLL", "hindsight NLL", "90% of top", "90%, p < 0.9",
	"90% of weights", "membership", "disagreement"}

// interval is the figure of a column, in place.
func (f *Figures) interval(column int) *metric.Interval {
	return [columns]*metric.Interval{&f.ACC, &f.ECE, &f.NLL, &f.Brier, &f.JointNear, &f.JointRandom,
		&f.AURC, &f.ClassECE, &f.AdaptiveECE, &f.RawNLL, &f.HindsightNLL, &f.CoverTop,
		&f.CoverUncertain, &f.CoverWeights, &f.Membership, &f.Disagreement}[column]
}

// keys are the columns' names in [experiment.Columns]; empty where it has none.
var keys = [columns]string{"acc", "ece", "nll", "brier", "joint_nll_near", "joint_nll_random",
	"aurc", "class_ece", "adaptive_ece", "", "", "coverage_top", "coverage_uncertain",
	"coverage_weights", "membership_auc", "disagreement"}

// measured returns the figures of one record by column; NaN where it lacks one.
func measured(r *experiment.Record) (out [columns]float64) {
	for c := range out {
		out[c] = math.NaN()
	}
	if r.Hindsight != nil {
		out[columnHindsight] = *r.Hindsight
	}
	for _, column := range experiment.Columns {
		if c := slices.Index(keys[:], column.Name); c >= 0 {
			switch v := column.Value(r).(type) {
			case float64:
				out[c] = v
			case *float64:
				if v != nil {
					out[c] = *v
				}
			}
		}
	}
	return out
}

// Row holds one method's figures over the repeats.
type Row struct {
	Method string `json:"method"`
	Group  string `json:"group"`
	Figures
	// Calibration compares FMP's ECE with that of a calibrated classifier at the number of test
	// images, mean over repeats; nil for other methods.
	Calibration *metric.Calibration `json:"calibration,omitempty"`
	// UploadBytes is the size of one client's upload, in bytes, mean over repeats; 0 for nothing.
	UploadBytes float64 `json:"upload_bytes"`
	// Param is the hyper-parameter that the protocol chooses, and Settings are all that it chose.
	Param    string    `json:"param,omitempty"`
	Settings []Setting `json:"settings,omitempty"`
	// Value is Param's, Temperature divides the heads, and More are further settings, where all
	// repeats have the same settings; zero where not, or where none was chosen.
	Value       float64            `json:"value,omitempty"`
	Temperature float64            `json:"temperature,omitempty"`
	More        map[string]float64 `json:"more,omitempty"`
	// Printed holds the paper's figures, where it has them for this data set and partition.
	Printed *dataset.Figures `json:"printed,omitempty"`
	// Untrained is true if a model that the method reads was not trained for this data and
	// extractor.
	Untrained bool `json:"untrained,omitempty"`
	// Origin names the file of predictions of a method from outside; empty for the program's own.
	Origin string `json:"origin,omitempty"`
	// best marks the columns (Column constants) in which the method is the best of its group, or
	// not separable from it by the interval of their paired difference.
	best [columns]bool
	// byRepeat are the figures of each repeat.
	byRepeat map[int][columns]float64
}

// Setting is the least and the largest value, over the repeats, of a setting that the protocol
// chose. That of the temperature is T.
type Setting struct {
	Name  string  `json:"name"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// settingsOf are the settings that the protocol chose for a method in these repeats.
func settingsOf(rs []experiment.Record) (out []Setting) {
	put := func(name string, v float64) {
		i := slices.IndexFunc(out, func(s Setting) bool { return s.Name == name })
		if i < 0 {
			out = append(out, Setting{name, v, v})
			return
		}
		out[i].Least, out[i].Most = min(out[i].Least, v), max(out[i].Most, v)
	}
	for i := range rs {
		r := &rs[i]
		if r.Param != "" {
			put(r.Param, r.Value)
		}
		for _, k := range slices.Sorted(maps.Keys(r.More)) {
			put(k, r.More[k])
		}
		if r.Temperature != 0 {
			put("T", r.Temperature)
		}
	}
	return out
}

// cooled reports whether the protocol chose a temperature.
func (r *Row) cooled() bool {
	return slices.ContainsFunc(r.Settings, func(s Setting) bool { return s.Name == "T" })
}

// Control reports whether the method only shows the value of the clients' data and does not compete
// with the others.
func (r *Row) Control() bool { return info(r.Method).Control }

// Subject reports whether the row is FMP, the program's own method.
func (r *Row) Subject() bool { return r.Method == "FMP" }

// Tables summarises the records of a run, in the order in which the run writes them, over their
// repeats.
func Tables(rs []experiment.Record, m *experiment.Manifest) ([]Table, error) {
	type key struct{ partition, protocol string }
	var order []key
	parts := map[key][]experiment.Record{}
	for _, r := range rs {
		k := key{r.Partition, r.Protocol}
		if _, ok := parts[k]; !ok {
			order = append(order, k)
		}
		parts[k] = append(parts[k], r)
	}
	sorting.Stably(order, func(a, b key) int {
		return protocolRank(a.protocol) - protocolRank(b.protocol)
	})
	var out []Table
	for _, k := range order {
		t, err := newTable(parts[k], m)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	for i := range out {
		t := &out[i]
		for k := range t.Rows {
			if r := &t.Rows[k]; t.tuned() && r.cooled() {
				r.RawNLL = rawNLL(out, t.Partition, r.Method)
			}
		}
		if err := t.group(); err != nil {
			return nil, fmt.Errorf("table of %s: %w", t.Partition, err)
		}
	}
	return out, nil
}

// newTable summarises the records of one partition and protocol. The paper's figures are
// given for homogeneous clients alone.
func newTable(part []experiment.Record, m *experiment.Manifest) (t Table, err error) {
	t = Table{Dataset: part[0].Dataset, Partition: part[0].Partition, Alpha: part[0].Alpha,
		Protocol: part[0].Protocol, Same: m.SameImages}
	if classes := m.Sizes["classes"]; classes > 0 {
		t.Chance = 1 / float64(classes)
	}
	methods, byMethod := experiment.MethodsOf(part), map[string][]experiment.Record{}
	for _, r := range part {
		byMethod[r.Method] = append(byMethod[r.Method], r)
	}
	if t.Shifted, err = shifted(part, methods, m); err != nil {
		return t, fmt.Errorf("table of %s: %w", t.Partition, err)
	}
	for _, method := range methods {
		row, err := newRow(byMethod[method], m)
		if err != nil {
			return t, fmt.Errorf("table of %s, %s: %w", t.Partition, method, err)
		}
		t.Repeats = max(t.Repeats, len(byMethod[method]))
		if set, _ := dataset.Lookup(t.Dataset); t.Alpha == 0 {
			if p, ok := set.Paper[method]; ok {
				row.Printed = &p
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// newRow summarises the records of one method. Each figure is over the repeats that measured it.
func newRow(rs []experiment.Record, m *experiment.Manifest) (Row, error) {
	first := &rs[0]
	row := Row{Method: first.Method, Group: first.Group, Param: first.Param,
		Settings: settingsOf(rs), Origin: first.Origin, byRepeat: map[int][columns]float64{}}
	if !slices.ContainsFunc(row.Settings, func(s Setting) bool { return s.Least != s.Most }) {
		row.Value, row.Temperature, row.More = first.Value, first.Temperature, first.More
	}
	// a run of an earlier version may have other methods
	if method, err := rival.Lookup(first.Method); err == nil {
		info := method.Info()
		row.Untrained = slices.ContainsFunc(info.Models(first.Diagnostics["open"] == 1),
			func(kind string) bool { return slices.Contains(m.Untrained, kind) })
	}
	var values [columns][]float64
	var calibrations []metric.Calibration
	for i := range rs {
		r := &rs[i]
		row.byRepeat[r.Repeat] = measured(r)
		for c, v := range row.byRepeat[r.Repeat] {
			if !math.IsNaN(v) {
				values[c] = append(values[c], v)
			}
		}
		if row.Subject() {
			calibrations = append(calibrations, r.Scores.Curve.Calibration())
		}
		row.UploadBytes += r.UploadBytes
	}
	row.UploadBytes /= float64(len(rs))
	if len(calibrations) > 0 {
		c := metric.MeanCalibration(calibrations)
		row.Calibration = &c
	}
	for c := range columns {
		if len(values[c]) == 0 {
			continue
		}
		var err error
		if *row.interval(c), err = estimate(values[c], m); err != nil {
			return row, err
		}
	}
	return row, nil
}

// estimate is the mean of a figure over repeats with its t-interval at [Level]. Repeats with the
// same images are no sample of images: of them the mean alone remains.
func estimate(values []float64, m *experiment.Manifest) (metric.Interval, error) {
	i, err := metric.Estimate(values, Level)
	if m.SameImages {
		i = metric.Interval{N: 1, Mean: i.Mean}
	}
	return i, err
}

// rawNLL returns a method's NLL under the shared protocol; it has 0 repeats where the run did not
// use that protocol.
func rawNLL(ts []Table, partition, method string) metric.Interval {
	for _, t := range ts {
		for _, r := range t.Rows {
			if !t.tuned() && t.Partition == partition && r.Method == method {
				return r.NLL
			}
		}
	}
	return metric.Interval{}
}

// columns returns the columns that some row has, in order.
func (t *Table) columns() []int {
	var out []int
	if t.chosen != nil {
		return t.chosen.figures
	}
	for c := range columns {
		if slices.ContainsFunc(t.Rows, func(r Row) bool { return r.interval(c).N > 0 }) {
			out = append(out, c)
		}
	}
	return out
}

// showsPrinted reports whether some row has the paper's figures.
func (t *Table) showsPrinted() bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Printed != nil })
}

// protocolRank puts the shared protocol's tables before the tuned one's.
func protocolRank(p string) int {
	if p == "shared" {
		return 0
	}
	return 1
}

// group sorts the rows by group and marks the best of each group, the control apart. Columns from
// raw NLL on are no competition and have no best.
func (t *Table) group() error {
	rank := map[string]int{string(rival.Local): 0, string(rival.Centralised): 1,
		string(rival.OneShot): 2, string(rival.Baseline): 3}
	sorting.Stably(t.Rows, func(a, b Row) int { return rank[a.Group] - rank[b.Group] })
	groups := map[string][]*Row{}
	for i := range t.Rows {
		if r := &t.Rows[i]; !r.Control() {
			groups[r.Group] = append(groups[r.Group], r)
		}
	}
	for _, rows := range groups {
		for c := range columnRawNLL {
			if err := markBest(rows, c, t.Same); err != nil {
				return err
			}
		}
	}
	return nil
}

// markBest marks, among competing rows, the best one in a column, those with the same displayed
// figure, and, unless repeats have the same images, those whose paired difference from it has an
// interval that contains zero. Pairs are of repeats that both rows have. A row alone in its group
// has no mark.
func markBest(rows []*Row, column int, same bool) error {
	if len(rows) < 2 {
		return nil
	}
	var best *Row
	for _, r := range rows {
		if r.interval(column).N > 0 &&
			(best == nil || better(column, r.interval(column).Mean, best.interval(column).Mean)) {
			best = r
		}
	}
	for _, r := range rows {
		if r.interval(column).N == 0 {
			continue
		}
		r.best[column] = !better(column, best.interval(column).Mean, r.interval(column).Mean)
		var mine, its []float64
		for _, repeat := range slices.Sorted(maps.Keys(r.byRepeat)) {
			v := r.byRepeat[repeat]
			o, ok := best.byRepeat[repeat]
			if ok && !math.IsNaN(v[column]) && !math.IsNaN(o[column]) {
				mine, its = append(mine, v[column]), append(its, o[column])
			}
		}
		if same || len(mine) < 2 { // no interval
			continue
		}
		d, err := metric.Paired(mine, its, Level)
		if err != nil {
			return fmt.Errorf("comparing %s and %s: %w", r.Method, best.Method, err)
		}
		r.best[column] = r.best[column] || d.Lo() <= 0 && d.Hi() >= 0
	}
	return nil
}

// better reports whether figure a is better than b by more than the displayed precision, four
// decimals. More is better of accuracy, less of all else.
func better(column int, a, b float64) bool {
	a, b = math.Round(a*1e4), math.Round(b*1e4)
	if column == columnACC {
		return a > b
	}
	return a < b
}
