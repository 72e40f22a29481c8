package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"fmp/onnx/suggest"
	"fmp/pipeline/lab/rival"
)

// At is the tables of one run, and its value of the setting along the x-axis. Tables are read and
// not changed.
type At struct {
	Value  string
	Tables []Table
}

// Lines draws a figure of tables against a setting, a line for each method, a panel for each
// partition and protocol, each as wide as a column of a journal. Values that are numbers lie at
// their places, on a logarithmic axis where the largest is over twenty times the least; others side
// by side in the order of the runs. Two runs of one value, and an unknown column, are errors. There
// must be one run at least. Panels are in the order in which tables first have them. A run without
// a table for a panel has no mark in it.
func Lines(runs []At, setting, column string) (*Figure, error) {
	c := slices.IndexFunc(headings[:], func(h string) bool { return strings.EqualFold(h, column) })
	if c < 0 {
		return nil, fmt.Errorf("no column %q; there are %s%s", column,
			strings.Join(headings[:], ", "), suggest.DidYouMean(column, headings[:]))
	}
	x, err := newValueAxis(runs, setting)
	if err != nil {
		return nil, err
	}
	type panel struct{ partition, protocol string }
	var panels []panel
	for _, r := range runs {
		for _, t := range r.Tables {
			if k := (panel{t.Partition, t.Protocol}); !slices.Contains(panels, k) {
				panels = append(panels, k)
			}
		}
	}
	var plots []*plot.Plot
	most := 0
	for _, k := range panels {
		p := newPlot(k.partition+", "+k.protocol, x.setting, headings[c])
		n, err := x.draw(p, runs, c,
			func(t *Table) bool { return t.Partition == k.partition && t.Protocol == k.protocol })
		if err != nil {
			return nil, err
		}
		most, plots = max(most, n), append(plots, p)
	}
	if most == 0 {
		return nil, fmt.Errorf("no run has a figure %s", headings[c])
	}
	return &Figure{Name: "lines", Title: headings[c] + " against " + setting,
		Caption: "Mean over repeats. Dashed: centralised and local methods." + x.bars(),
		Plots:   [][]*plot.Plot{plots}, Panels: true, Width: columnWidth * vg.Length(len(plots)),
		Height: columnHeight(most)}, nil
}

// draw draws the lines of the tables that match into an empty plot, with the axes, and returns
// their number.
func (x *valueAxis) draw(to *plot.Plot, runs []At, column int,
	match func(t *Table) bool) (int, error) {
	p := &Drawing{Plot: to}
	narrowed(to)
	grid(to, false, true)
	n := x.lines(p, runs, column, match)
	x.set(to)
	room := 0.04 * (to.Y.Max - to.Y.Min) // of the marks: one at the end would part the axes
	to.Y.Min, to.Y.Max = to.Y.Min-room, to.Y.Max+room
	return n, p.Err
}

// valueAxis is the x-axis of a setting. One axis serves all panels, so that they can be compared.
type valueAxis struct {
	setting string             // its label
	at      map[string]float64 // places of the runs' values
	ticks   plot.ConstantTicks // ascending, one per run
	log     bool
	varied  bool // whether a figure that was drawn differs between its repeats
}

// bars is the end of a caption on the bars of the lines; empty where no figure has any.
func (x *valueAxis) bars() string {
	if !x.varied {
		return ""
	}
	return fmt.Sprintf(" Bars: %g%% t-intervals over the repeats.", 100*Level)
}

// newValueAxis places the values of the runs. Where all are finite numbers, they lie at themselves,
// else at 0, 1, 2 in the order of the runs. A value that is a path is labelled by its last part.
// The bound of twenty leaves a range of up to about one decade linear.
func newValueAxis(runs []At, setting string) (*valueAxis, error) {
	x := &valueAxis{setting: setting, at: map[string]float64{}, log: true}
	numbers := true
	for _, r := range runs {
		if _, ok := x.at[r.Value]; ok {
			return nil, fmt.Errorf("two runs have %s = %s: name runs that differ in this "+
				"setting alone", setting, r.Value)
		}
		v, err := strconv.ParseFloat(r.Value, 64)
		// ParseFloat also reads inf and nan, which have no place on an axis.
		numbers = numbers && err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
		x.at[r.Value] = v
	}
	for i, r := range runs {
		if !numbers {
			x.at[r.Value] = float64(i)
		}
		label := r.Value[strings.LastIndex(r.Value, "/")+1:]
		x.ticks = append(x.ticks, plot.Tick{Value: x.at[r.Value], Label: label})
	}
	slices.SortFunc(x.ticks, func(a, b plot.Tick) int { return cmp.Compare(a.Value, b.Value) })
	// Of a wider range a linear axis would lay the least values on top of each other.
	lo, hi := x.ticks[0].Value, x.ticks[len(x.ticks)-1].Value
	x.log = numbers && lo > 0 && hi > 20*lo
	return x, nil
}

// set gives a plot the axis, with room of 4% of its length at both ends. One value alone gets half
// a unit on both sides, since a range of 0 cannot be drawn. On a logarithmic axis room is a factor:
// (hi/lo)^0.04.
func (x *valueAxis) set(p *plot.Plot) {
	lo, hi := x.ticks[0].Value, x.ticks[len(x.ticks)-1].Value
	p.X.Tick.Marker = x.ticks
	if x.log {
		room := math.Pow(hi/lo, 0.04)
		p.X.Scale, p.X.Min, p.X.Max = plot.LogScale{}, lo/room, hi*room
		return
	}
	room := cmp.Or(0.04*(hi-lo), 0.5)
	p.X.Min, p.X.Max = lo-room, hi+room
}

// lines draws a line for each method of the tables that match, and returns their number. Methods
// are named beside the last mark of their lines. FMP's line is drawn last, above the others. A run
// without a figure in the column has no mark. Bars have the half widths of the intervals.
func (x *valueAxis) lines(p *Drawing, runs []At, column int, match func(t *Table) bool) int {
	type mark struct {
		plotter.XY
		half float64
	}
	type line struct {
		row   Row
		marks []mark
	}
	at := map[string]*line{}
	var order []*line
	for _, r := range runs {
		for i := range r.Tables {
			if !match(&r.Tables[i]) {
				continue
			}
			for _, row := range r.Tables[i].Rows {
				v := row.interval(column)
				if v.N == 0 {
					continue
				}
				if at[row.Method] == nil {
					at[row.Method] = &line{row: row}
					order = append(order, at[row.Method])
				}
				x.varied = x.varied || varies(v)
				l := at[row.Method]
				l.marks = append(l.marks, mark{plotter.XY{X: x.at[r.Value], Y: v.Mean}, v.Half})
			}
		}
	}
	slices.SortStableFunc(order,
		func(a, b *line) int { return subjectLast(&a.row) - subjectLast(&b.row) })
	var ends plotter.XYs
	var names []string
	for _, l := range order {
		slices.SortFunc(l.marks, func(a, b mark) int { return cmp.Compare(a.X, b.X) })
		var xys plotter.XYs
		var half []float64
		for _, m := range l.marks {
			xys, half = append(xys, m.XY), append(half, m.half)
		}
		p.Of = "figure of " + l.row.Method
		p.Bars(methodColor(l.row.Method), xys, half).CapWidth = vg.Points(3)
		p.series(&l.row, xys, l.row.Group == string(rival.Centralised) ||
			l.row.Group == string(rival.Local))
		ends, names = append(ends, xys[len(xys)-1]), append(names, l.row.label())
	}
	p.Legend = plot.NewLegend()
	if len(names) > 0 {
		p.Add(newSideLabels(p.Plot, ends, names))
	}
	return len(names)
}
