package report

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"image/png"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fmp/onnx/sorting"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/metric"
)

// suffix distinguishes the figures of a table from those of the run's other tables.
func (t *Table) suffix() string { return t.Partition + "-" + t.Protocol }

// intervalPlot shows one column of a table, one method per line, as a mean with its interval. It
// leaves out the control, which is so far from the others that it would compress them. The first
// row stands at the top: row i of n is at height n-1-i. Intervals are cut at 0, those of accuracy
// at 1 also, since t-intervals of shares may leave that range. Rings of printed figures are on the
// columns ACC and ECE alone.
func intervalPlot(t *Table, column int, title string) (*plot.Plot, error) {
	p := &Drawing{Plot: newPlot(title, "", "")}
	grid(p.Plot, true, false)
	rows := slices.DeleteFunc(slices.Clone(t.Rows), func(r Row) bool { return r.Control() })
	labels := make([]string, len(rows))
	for i, r := range rows {
		y := float64(len(rows) - 1 - i)
		labels[len(rows)-1-i] = r.label()
		iv := r.interval(column)
		lo, hi := math.Max(0, iv.Lo()), iv.Hi()
		if column == columnACC {
			hi = math.Min(1, hi)
		}
		p.Of = "figure of " + r.Method
		p.Line(methodColor(r.Method), 2, plotter.XY{X: lo, Y: y}, plotter.XY{X: hi, Y: y})
		p.Dots(glyph(r.Method, r.Group, vg.Points(4)), plotter.XY{X: iv.Mean, Y: y})
		if r.Printed != nil && column <= columnECE {
			// The first two columns are ACC and ECE, and their numbers are places of this pair.
			v := [2]float64{r.Printed.ACC, r.Printed.ECE}[column]
			p.Dots(draw.GlyphStyle{Color: ink, Shape: draw.RingGlyph{}, Radius: vg.Points(3)},
				plotter.XY{X: v, Y: y})
		}
	}
	if p.Err != nil {
		return nil, p.Err
	}
	p.NominalY(labels...)
	p.Y.Tick.Label.Color = ink
	p.Y.Width = 0
	p.Y.Min, p.Y.Max = -0.6, float64(len(rows))-0.4
	room := 0.03 * (p.X.Max - p.X.Min)
	p.X.Min, p.X.Max = math.Max(0, p.X.Min-room), p.X.Max+room
	switch column {
	case columnECE:
		p.X.Min = 0
	case columnACC:
		p.X.Max = math.Min(p.X.Max, 1.02)
	}
	return p.Plot, nil
}

// methodsFigure shows ACC and ECE by method, side by side; its height grows with the rows.
func methodsFigure(t *Table, _ []experiment.Record) (*Figure, error) {
	a, err := intervalPlot(t, columnACC, "Accuracy (more is better)")
	if err != nil {
		return nil, err
	}
	e, err := intervalPlot(t, columnECE, "Expected calibration error (less is better)")
	if err != nil {
		return nil, err
	}
	caption := "Means and 95% intervals over the repeats. Triangles: local; squares: " +
		"centralised; discs: one-shot federated."
	if t.showsPrinted() {
		caption += " Rings: the figures printed in the paper."
	}
	return &Figure{Name: "methods-" + t.suffix(), Title: "Accuracy and calibration by method",
		Caption: caption, Plots: [][]*plot.Plot{{a, e}}, Panels: true, Width: 8 * vg.Inch,
		Height: vg.Length(len(t.Rows))*0.23*vg.Inch + 0.7*vg.Inch}, nil
}

// reliabilityFigure shows small multiples of reliability diagrams, one per method, four to a line.
// Curves are means over repeats, bin by bin, by [metric.Mean]. The last line of tiles is filled up
// with nil plots, which are left blank.
func reliabilityFigure(t *Table, rs []experiment.Record) (*Figure, error) {
	var plots []*plot.Plot
	images := 0.0
	for _, row := range t.Rows {
		var scores []metric.Scores
		for _, r := range rs {
			if r.Method == row.Method && r.Partition == t.Partition && r.Protocol == t.Protocol {
				scores = append(scores, r.Scores)
			}
		}
		m, err := metric.Mean(scores)
		if err != nil {
			return nil, err
		}
		n := 0.0
		for _, b := range m.Curve {
			n += b.Count
		}
		images = math.Max(images, n)
		p, err := reliabilityPlot(&row, m.Curve)
		if err != nil {
			return nil, err
		}
		plots = append(plots, p)
	}
	const cols = 4
	var rows [][]*plot.Plot
	for row := range slices.Chunk(plots, cols) {
		rows = append(rows, append(row, make([]*plot.Plot, cols-len(row))...))
	}
	return &Figure{Name: "reliability-" + t.suffix(), Title: "Reliability", Tiles: true,
		Caption: fmt.Sprintf("Accuracy against confidence in %d bins, over all repeats, "+
			"with the 95%% Wilson interval of one repeat's images; on the diagonal a method is "+
			"right as often as it says. Bars: the share of the %.0f test images in each bin.",
			metric.Bins, images),
		Plots: rows, Width: 7.5 * vg.Inch, Height: vg.Length(len(rows)) * 1.9 * vg.Inch}, nil
}

// reliabilityPlot draws one reliability diagram: accuracy against mean confidence, bin by bin, with
// Wilson intervals at [Level]. Their counts are those of a mean repeat, rounded, at least 1. Empty
// bins are left out. Bin i holds confidences from i/Bins to (i+1)/Bins; its bar is as high as its
// share of the images. Repeats share test images, so that their counts must not be added up: the
// intervals would be too short. A curve without images has neither bars nor points.
func reliabilityPlot(row *Row, curve metric.Curve) (*plot.Plot, error) {
	p := &Drawing{Plot: newPlot(fmt.Sprintf("%s  ECE %.3f", row.label(), row.ECE.Mean), "", ""),
		Of: "reliability of " + row.Method}
	p.Title.TextStyle.Font.Size = vg.Points(10)
	var total float64
	for _, b := range curve {
		total += b.Count
	}
	var line plotter.XYs
	for i, b := range curve {
		if b.Count == 0 {
			continue
		}
		x0, x1 := float64(i)/metric.Bins, float64(i+1)/metric.Bins
		share := b.Count / total
		bar, err := plotter.NewPolygon(plotter.XYs{{X: x0, Y: 0}, {X: x1, Y: 0}, {X: x1, Y: share},
			{X: x0, Y: share}})
		if p.Failed(err) {
			break
		}
		bar.Color, bar.LineStyle.Width = faint, 0
		p.Add(bar)
		// Bins with less than a thousandth of the images are too noisy to show.
		if share >= 0.001 {
			line = append(line, plotter.XY{X: b.Confidence, Y: b.Accuracy})
			n := max(1, int(math.Round(b.Count)))
			lo, hi := metric.Wilson(min(n, int(math.Round(b.Accuracy*float64(n)))), n, Level)
			p.Line(methodColor(row.Method), 0.75, plotter.XY{X: b.Confidence, Y: lo},
				plotter.XY{X: b.Confidence, Y: hi})
		}
	}
	p.Line(grey, 1, plotter.XY{}, plotter.XY{X: 1, Y: 1}).Dashes =
		[]vg.Length{vg.Points(3), vg.Points(3)}
	if len(line) > 0 {
		p.Line(methodColor(row.Method), 1.5, line...)
		p.Dots(glyph(row.Method, row.Group, vg.Points(2.5)), line...)
	}
	ticks := plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 0.5, Label: "0.5"},
		{Value: 1, Label: "1"}}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks, ticks
	return p.Plot, p.Err
}

// series draws a line with points and adds it to the legend. An error is kept in d, with the method
// as its subject.
func (d *Drawing) series(row *Row, xys plotter.XYs, dashed bool) {
	d.Of = "figure of " + row.Method
	l := d.Line(methodColor(row.Method), 1.5, xys...)
	if dashed {
		l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	d.Legend.Add(row.label(), l, d.Dots(glyph(row.Method, row.Group, vg.Points(3)), xys...))
}

// legend takes the legend away, or makes room for it beside the lines on a logarithmic axis, as a
// power of the axis's range. Its end max becomes max (max/min)^room. Call it when the axis has its
// range.
func (d *Drawing) legend(shown bool, room float64) {
	if !shown {
		d.Legend = plot.NewLegend()
		return
	}
	d.X.Max *= math.Pow(d.X.Max/d.X.Min, room)
	d.Legend.Top = true
}

// alphaFigure shows ACC and ECE against the concentration of the Dirichlet partitions: the paper's
// Figure 2. It is nil for fewer than two concentrations; local methods and the control are left
// out. The homogeneous partition is the limit of a large alpha, and has no place on a logarithmic
// axis.
func alphaFigure(ts []Table, protocol string) (*Figure, error) {
	var runs []At
	for _, t := range ts {
		if t.Protocol == protocol && t.Alpha > 0 {
			t.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(r Row) bool {
				return r.Group == string(rival.Local) || r.Control()
			})
			runs = append(runs, At{fmt.Sprintf("%g", t.Alpha), []Table{t}})
		}
	}
	// One concentration makes no line.
	if len(runs) < 2 {
		return nil, nil
	}
	x, err := newValueAxis(runs, "alpha (skewed to even)")
	if err != nil {
		return nil, err
	}
	// Concentrations are compared by ratios, however near to each other they lie.
	x.log = true
	lines := 0
	var panels []*plot.Plot
	for column, title := range []string{columnACC: "Accuracy", columnECE: "Expected " +
		"calibration error"} {
		p := newPlot(title, x.setting, "")
		if lines, err = x.draw(p, runs, column, func(*Table) bool { return true }); err != nil {
			return nil, err
		}
		panels = append(panels, p)
	}
	return &Figure{Name: "alpha-" + protocol, Title: "Heterogeneous clients (the paper's Figure 2)",
		Caption: "Classes are spread over clients by Dirichlet(alpha): the smaller " +
			"alpha, the fewer classes a client has. Solid: one-shot federated; " +
			"dashed: centralised." + x.bars(),
		Plots: [][]*plot.Plot{panels}, Panels: true, Width: 2 * columnWidth,
		Height: columnHeight(lines)}, nil
}

// bytesFigure shows ACC against the bytes that a client sends, as wide as a column of a journal. It
// is nil where nothing is sent. Bytes are on a logarithmic axis, so methods that send none have no
// place. FMP is drawn last and larger. Intervals are cut to 0 and 1, as in [intervalPlot].
func bytesFigure(t *Table, _ []experiment.Record) (*Figure, error) {
	p := &Drawing{Plot: newPlot("", "bytes that one client sends", "accuracy")}
	narrowed(p.Plot)
	grid(p.Plot, true, true)
	var marks plotter.XYs
	var names []string
	lo, hi, bottom, top := math.Inf(1), 0.0, math.Inf(1), 0.0
	// The clone keeps the table in its order.
	rows := slices.Clone(t.Rows)
	sorting.Stably(rows, func(a, b Row) int {
		return cmp.Compare(subjectLast(&a), subjectLast(&b))
	})
	for _, r := range rows {
		if r.UploadBytes <= 0 || r.Control() {
			continue
		}
		at := plotter.XY{X: r.UploadBytes, Y: r.ACC.Mean}
		low, high := math.Max(0, r.ACC.Lo()), math.Min(1, r.ACC.Hi())
		lo, hi, bottom, top = math.Min(lo, at.X), math.Max(hi, at.X), math.Min(bottom, low),
			math.Max(top, high)
		p.Of = "figure of " + r.Method
		p.Line(methodColor(r.Method), 1, plotter.XY{X: at.X, Y: low}, plotter.XY{X: at.X, Y: high})
		size := vg.Points(2.5)
		if r.Subject() {
			size = vg.Points(4)
		}
		p.Dots(glyph(r.Method, r.Group, size), at)
		marks, names = append(marks, at), append(names, r.label())
	}
	if len(marks) == 0 || p.Err != nil {
		return nil, p.Err
	}
	p.Add(newSideLabels(p.Plot, marks, names))
	// Ends at powers of two and twentieths: tables of one run mostly have the same.
	p.X.Min, p.X.Max = math.Exp2(math.Floor(math.Log2(lo)-0.2)),
		math.Exp2(math.Ceil(math.Log2(hi)+0.2))
	// The 1e-9 moves an end that lies at a twentieth to the next one, off the marks.
	p.Y.Min, p.Y.Max = math.Floor(20*bottom-1e-9)/20, math.Ceil(20*top+1e-9)/20
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powersOfTwo{}
	return &Figure{Name: "bytes-" + t.suffix(), Title: "Accuracy against communication",
		Caption: "Each client's upload, float32, one round. Centralised methods (squares) send " +
			"the feature rows themselves, which one-shot methods keep at home.",
		Plots: [][]*plot.Plot{{p.Plot}}, Width: columnWidth, Height: columnHeight(len(names))}, nil
}

// columnWidth is that of a column of an IEEE journal.
const columnWidth = 3.5 * vg.Inch

// columnHeight returns the height of a figure of that width, by the number of names in its margin.
// A name has 0.135 inch, which holds a line of 7-point letters with its gap.
func columnHeight(names int) vg.Length { return max(2.4, 0.7+0.135*vg.Length(names)) * vg.Inch }

// narrowed gives a plot axes that meet, and letters for a figure as wide as a column.
func narrowed(p *plot.Plot) {
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding, a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = 0, vg.Points(8),
			vg.Points(7)
	}
	p.Title.TextStyle.Font.Size = vg.Points(8)
}

// subjectLast is 1 for FMP, whose mark covers others.
func subjectLast(r *Row) int {
	if r.Subject() {
		return 1
	}
	return 0
}

// powersOfTwo ticks an axis of bytes. Every power within the range has a mark; beyond five, labels
// are thinned so that at most six remain.
type powersOfTwo struct{}

// Ticks places them at 2^e, labelled as sizes in bytes. lo must be above 0.
func (powersOfTwo) Ticks(lo, hi float64) []plot.Tick {
	var out []plot.Tick
	for e := math.Floor(math.Log2(lo)); e <= math.Ceil(math.Log2(hi)); e++ {
		if v := math.Exp2(e); v >= lo && v <= hi {
			out = append(out, plot.Tick{Value: v, Label: strings.Replace(byteSize(v), ".0", "", 1)})
		}
	}
	for i := range out {
		if every := 1 + len(out)/6; i%every != 0 {
			out[i].Label = ""
		}
	}
	return out
}

// sampled holds a method's figures by the number of its posterior samples: ECE, NLL and joint NLL,
// each a line.
type sampled struct {
	row   *Row
	lines [3]plotter.XYs
}

// bySamples returns the methods of a table that have samples, averaged over repeats. joint reports
// whether joint NLL was measured. A method with figures at one number of samples only has no line
// and is left out. Each number of samples is averaged over the repeats that have it.
func bySamples(t *Table, rs []experiment.Record) (out []sampled, joint bool) {
	for i := range t.Rows {
		row := &t.Rows[i]
		if row.Control() {
			continue
		}
		// Sums over the repeats, of ECE, NLL and joint NLL, by number of samples.
		sums := map[int]*[3]float64{}
		counts := map[int]float64{}
		for _, r := range rs {
			if r.Method != row.Method || r.Partition != t.Partition || r.Protocol != t.Protocol {
				continue
			}
			for _, p := range r.BySamples {
				if sums[p.Samples] == nil {
					sums[p.Samples] = &[3]float64{}
				}
				s := sums[p.Samples]
				s[0], s[1] = s[0]+p.ECE, s[1]+p.NLL
				if p.Joint != nil {
					joint = true
					s[2] += p.Joint.Near
				}
				counts[p.Samples]++
			}
		}
		if len(sums) < 2 {
			continue
		}
		m := sampled{row: row}
		for _, k := range slices.Sorted(maps.Keys(sums)) {
			for l := range m.lines {
				m.lines[l] = append(m.lines[l],
					plotter.XY{X: float64(k), Y: sums[k][l] / counts[k]})
			}
		}
		out = append(out, m)
	}
	return out, joint
}

// span returns the range of the methods' lines in the l-th panel. It is of the vertical axis, and
// ms has one method at least.
func span(ms []sampled, l int) (lo, hi float64) {
	var all plotter.XYs
	for _, m := range ms {
		all = append(all, m.lines[l]...)
	}
	_, _, lo, hi = plotter.XYRange(all)
	return lo, hi
}

// split splits methods into those that can be drawn together with FMP and MP, and those that would
// stretch the range of some panel to more than three times the range of FMP and MP. Without FMP and
// MP all are near. A method of the core fits always, as its range is within the core's. Both lists
// keep the order of ms.
func split(ms []sampled, panels int) (near, far []sampled) {
	of := func(names ...string) (out []sampled) {
		for _, m := range ms {
			if slices.Contains(names, m.row.Method) {
				out = append(out, m)
			}
		}
		return out
	}
	core := of("FMP", "MP")
	if len(core) == 0 {
		return ms, nil
	}
	for _, m := range ms {
		fits := true
		for l := range panels {
			lo, hi := span(core, l)
			mine, my := span([]sampled{m}, l)
			fits = fits && math.Max(hi, my)-math.Min(lo, mine) <= 3*(hi-lo)
		}
		if fits {
			near = append(near, m)
		} else {
			far = append(far, m)
		}
	}
	return near, far
}

// samplesFigure shows ECE, NLL and, where measured, joint NLL against the number of posterior
// samples: a row of panels for FMP, MP and methods close to them, and one for methods that would
// flatten them. It is nil where no method has samples. The axis of samples is logarithmic, with a
// tick at each number of them. The legend stands in the last panel, and takes 55% more of its
// logarithmic range.
func samplesFigure(t *Table, rs []experiment.Record) (*Figure, error) {
	all, joint := bySamples(t, rs)
	if len(all) == 0 {
		return nil, nil
	}
	titles := []string{"Expected calibration error", "Negative log-likelihood",
		"Joint negative log-likelihood"}
	if !joint {
		titles = titles[:2]
	}
	var ticks plot.ConstantTicks
	most := slices.MaxFunc(all,
		func(a, b sampled) int { return len(a.lines[0]) - len(b.lines[0]) })
	for _, p := range most.lines[0] {
		// Ticks are those of the method with the most numbers of samples.
		ticks = append(ticks, plot.Tick{Value: p.X, Label: fmt.Sprint(p.X)})
	}
	near, far := split(all, len(titles))
	var plots [][]*plot.Plot
	lines := 0 // lines of the longest legend
	for _, ms := range [][]sampled{near, far} {
		if len(ms) == 0 {
			continue
		}
		lines = max(lines, len(ms))
		var row []*plot.Plot
		for l, title := range titles {
			p := &Drawing{Plot: newPlot(title, "posterior samples S", "")}
			for _, m := range ms {
				p.series(m.row, m.lines[l], m.row.Group == string(rival.Centralised))
			}
			if p.Err != nil {
				return nil, p.Err
			}
			grid(p.Plot, false, true)
			calm(&p.Y, l == 0)
			p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks
			p.X.Min, p.X.Max = ticks[0].Value/1.1, ticks[len(ticks)-1].Value*1.1
			p.legend(l == len(titles)-1, 0.55)
			row = append(row, p.Plot)
		}
		plots = append(plots, row)
	}
	caption := "The predictions of the first S samples of each method's ensemble, mean over the " +
		"repeats. Dashed: centralised."
	if len(plots) > 1 {
		caption += " Below: methods that would flatten the lines of FMP and MP, on " +
			"scales of their own."
	}
	return &Figure{Name: "samples-" + t.suffix(),
		Title: "Calibration against the number of posterior samples", Caption: caption,
		Plots: plots, Panels: true, Width: vg.Length(len(titles)) * 3.75 * vg.Inch,
		Height: vg.Length(len(plots)) *
			max(3, 0.8+0.16*vg.Length(lines)) * vg.Inch}, nil
}

// calm widens an axis that would magnify noise: it begins at 0 or spans at least a fifth of its
// largest value.
func calm(a *plot.Axis, fromZero bool) {
	if fromZero {
		a.Min, a.Max = 0, max(1.1*a.Max, 0.01)
		return
	}
	if lack := 0.2*math.Abs(a.Max) - (a.Max - a.Min); lack > 0 {
		a.Min, a.Max = a.Min-lack/2, a.Max+lack/2
	}
}

// viewFigure shows a client's points, its upload and the drawn points in the plane, on one scale.
// It is nil without a view. A mark of the upload has a radius that grows with the root of its mass:
// area stands for mass. The range is common to all panels, so that places can be compared between
// them.
func viewFigure(d *experiment.Detail) (*Figure, error) {
	if d == nil || len(d.View.Sets) == 0 {
		return nil, nil
	}
	var all plotter.XYs
	for _, s := range d.View.Sets {
		all = append(all, XYs(s)...)
	}
	xmin, xmax, ymin, ymax := plotter.XYRange(all)
	var row []*plot.Plot
	for _, panel := range []struct{ set, title string }{
		{"client", "one client's points"}, {"upload", "its upload (area: mass)"},
		{"drawn", "points drawn by the server"},
	} {
		p := &Drawing{Plot: newPlot(panel.title, "", ""), Of: "view"}
		p.Dots(draw.GlyphStyle{Color: faint, Shape: draw.CircleGlyph{}, Radius: vg.Points(1.5)},
			XYs(d.View.Sets["background"])...)
		set := d.View.Sets[panel.set]
		p.Dots(draw.GlyphStyle{}, XYs(set)...).GlyphStyleFunc = func(i int) draw.GlyphStyle {
			q := set[i]
			size := 3.0
			if panel.set == "upload" {
				size = 2 + 2.2*math.Sqrt(math.Max(q.Weight, 0))
			}
			return draw.GlyphStyle{Color: classColor(q.Class), Shape: classShape(q.Class),
				Radius: vg.Points(size)}
		}
		if p.Err != nil {
			return nil, p.Err
		}
		frame(p.Plot, xmin, xmax, ymin, ymax)
		row = append(row, p.Plot)
	}
	key, err := classKey(d.Classes)
	if err != nil {
		return nil, err
	}
	row = append(row, key)
	return &Figure{Name: "view", Title: "What a client sends, and what the server draws from it",
		Tiles: true,
		Caption: fmt.Sprintf("The plane of the two leading principal components of the features "+
			"(%.0f%% and %.0f%% of the variance). Colour and shape: class. Small and pale: "+
			"other images of the clients' part.", 100*d.View.Explained[0], 100*d.View.Explained[1]),
		Plots: [][]*plot.Plot{row}, Width: 9 * vg.Inch, Height: 2.4 * vg.Inch}, nil
}

// keyRows is the number of classes in one column of the key.
const keyRows = 10

// classKey shows the colours and shapes of the classes, as many as fit into two columns. Twenty
// fit; of more the last line says how many are left. Names are cut to ten letters.
func classKey(classes []string) (*plot.Plot, error) {
	more := len(classes) - 2*keyRows
	if more > 0 {
		classes = classes[:2*keyRows-1]
	}
	p := &Drawing{Plot: newPlot("classes", "", ""), Of: "key of the classes"}
	var marks plotter.XYs
	var words plotter.XYLabels
	word := func(column, row int, name string) {
		words.XYs = append(words.XYs, plotter.XY{X: float64(column) + 0.15, Y: -float64(row)})
		words.Labels = append(words.Labels, name)
	}
	for i, name := range classes {
		marks = append(marks, plotter.XY{X: float64(i/keyRows) + 0.06, Y: -float64(i % keyRows)})
		word(i/keyRows, i%keyRows, short(name))
	}
	if more > 0 {
		word(1, keyRows-1, fmt.Sprintf("and %d more", more+1))
	}
	p.Dots(draw.GlyphStyle{}, marks...).GlyphStyleFunc = func(i int) draw.GlyphStyle {
		return draw.GlyphStyle{Color: classColor(i), Shape: classShape(i), Radius: vg.Points(3)}
	}
	l, err := plotter.NewLabels(words)
	if p.Failed(err) || p.Err != nil {
		return nil, p.Err
	}
	for i := range l.TextStyle {
		l.TextStyle[i].Color, l.TextStyle[i].Font, l.TextStyle[i].YAlign = ink,
			p.X.Tick.Label.Font, draw.YCenter
	}
	p.Add(l)
	frame(p.Plot, 0, 2, 0.5-keyRows, 0.5)
	return p.Plot, nil
}

// XYs are the places of points, in their order.
func XYs(ps []experiment.Placed) plotter.XYs {
	out := make(plotter.XYs, len(ps))
	for i, q := range ps {
		out[i] = plotter.XY{X: q.X, Y: q.Y}
	}
	return out
}

// classColor is the colour of class c: colours return after seven classes, with another shape. c
// must not be negative.
func classColor(c int) color.Color { return classColors[c%len(classColors)] }

// classShape is the shape of class c; colour and shape together tell 28 classes apart.
func classShape(c int) draw.GlyphDrawer {
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{},
		draw.CrossGlyph{}}
	return shapes[c/len(classColors)%len(shapes)]
}

// spreadPlot shows the posterior samples' probabilities of the most probable classes of one image.
// The most probable class is at the top. Samples of e are rows of probabilities for e.Top.
func spreadPlot(e *experiment.Example, classes []string) (*plot.Plot, error) {
	p := &Drawing{Plot: newPlot("", "", ""), Of: fmt.Sprintf("spread of image %d", e.Index)}
	names := make([]string, len(e.Top))
	for k, c := range e.Top {
		y := len(e.Top) - 1 - k
		names[y] = short(classes[c])
		var dots plotter.XYs
		for i, s := range e.Samples {
			// A deterministic jitter across the line, so that samples of equal probability remain
			// distinguishable: fractional parts of multiples of the golden ratio spread evenly.
			dots = append(dots, plotter.XY{X: s[k], Y: float64(y) +
				0.5*(math.Mod(float64(i)*0.6180339887, 1)-0.5)})
		}
		style := draw.GlyphStyle{Color: blue, Shape: draw.CircleGlyph{}, Radius: vg.Points(1.8)}
		if c == e.Label {
			style.Color, style.Shape = vermillion, draw.PyramidGlyph{}
		}
		p.Dots(style, dots...)
	}
	grid(p.Plot, true, false)
	p.NominalY(names...)
	p.Y.Width = 0
	p.X.Min, p.X.Max = -0.03, 1.03
	p.Y.Min, p.Y.Max = -0.6, float64(len(e.Top))-0.4
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 0.5, Label: "0.5"},
		{Value: 1, Label: "1"}}
	return p.Plot, p.Err
}

// imagesFigure shows the images of which the posterior is least and most certain, each beside its
// spreadPlot, for the folder of plots; the page lays them out itself. It is nil without images. A
// picture that is no PNG is an error, as the file may have been edited.
func imagesFigure(d *experiment.Detail) (*Figure, error) {
	if d == nil || len(d.Hard)+len(d.Easy) == 0 {
		return nil, nil
	}
	rows := make([][]*plot.Plot, max(len(d.Hard), len(d.Easy)))
	for i := range rows {
		rows[i] = make([]*plot.Plot, 4)
		for k, list := range [][]experiment.Example{d.Hard, d.Easy} {
			if i >= len(list) {
				continue
			}
			e := &list[i]
			im, err := png.Decode(bytes.NewReader(e.PNG))
			if err != nil {
				return nil, fmt.Errorf("picture of test image %d: %w", e.Index, err)
			}
			p := newPlot("", "", "")
			if i == 0 {
				p.Title.Text = []string{"unsure", "sure"}[k]
			}
			p.Add(plotter.NewImage(im, 0, 0, 1, 1))
			frame(p, -0.75, 1.75, 0, 1) // approximately square in the tile
			rows[i][2*k] = p
			if rows[i][2*k+1], err = spreadPlot(e, d.Classes); err != nil {
				return nil, err
			}
			rows[i][2*k+1].Title.Text = "true: " + short(d.Classes[e.Label])
		}
	}
	return &Figure{Name: "images", Title: "Images that the posterior is least and most sure of",
		Plots: rows, Width: 8 * vg.Inch, Height: vg.Length(len(rows)) * 1.4 * vg.Inch}, nil
}

// short shortens a class's name to the margin of a small plot.
func short(s string) string {
	r := []rune(s)
	if len(r) > 10 {
		return string(r[:9]) + "…"
	}
	return s
}
