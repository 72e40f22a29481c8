package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"fmp/featurize/dataset"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
)

// records are made-up figures of every method: two partitions and homogeneous clients, three
// repeats.
func records(dataset string) []experiment.Record {
	var out []experiment.Record
	r := rng.New(1, "records")
	for _, p := range []experiment.Partition{{}, {Alpha: 0.1}, {Alpha: 1}} {
		for rep := range 3 {
			for i, m := range rival.All() {
				rec := experiment.Record{Dataset: dataset, Alpha: p.Alpha,
					Group: string(m.Info().Group), UploadBytes: float64(i * 300),
					Cell: experiment.Cell{Partition: p.Name(), Repeat: rep, Protocol: "shared",
						Method: m.Info().Name}}
				rec.ACC, rec.ECE, rec.NLL, rec.Brier = 0.3+0.02*float64(i)+0.01*r.Float64(),
					0.1*r.Float64(),
					1+r.Float64(), r.Float64()
				for b := range rec.Curve {
					rec.Curve[b] = metric.Bin{Count: float64(10 * b),
						Confidence: (float64(b) + 0.5) / metric.Bins, Accuracy: r.Float64()}
				}
				rec.Uncertainty = &metric.Uncertainty{Joint: &metric.Joint{Near: r.Float64(),
					Random: r.Float64()}, AURC: r.Float64(), Disagreement: 0.01}
				rec.Shifted = []score.Shifted{{Name: "noise", Entropy: 0.75, Disagreement: 0.25},
					{Name: "jpeg", Severity: 1, ACC: 0.6, ECE: 0.1, NLL: 1},
					{Name: "contrast", Severity: 1, ACC: 0.2, ECE: 0.3, NLL: 2}}
				if i%2 == 0 {
					rec.BySamples = []score.Prefix{{Samples: 1, ECE: 0.2, NLL: 2},
						{Samples: 5, ECE: 0.1, NLL: 1}}
				}
				out = append(out, rec)
			}
		}
	}
	return out
}

// record is one of a one-shot method on homogeneous clients, without figures.
func record(method string, repeat int) experiment.Record {
	return experiment.Record{Group: string(rival.OneShot), Cell: experiment.Cell{
		Partition: "homogeneous", Repeat: repeat, Protocol: "shared", Method: method}}
}

// tables are those of made-up figures of ten classes.
func tables(t *testing.T, dataset string) []Table {
	t.Helper()
	return must.Get(Tables(records(dataset), &experiment.Manifest{Sizes: map[string]int{"classes": 10}}))(t)
}

// fits checks the width of lines against that of a terminal.
func fits(t *testing.T, text string) {
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestTablesSumUpAndMarkTheBestOfAGroup(t *testing.T) {
	mnist, _ := dataset.Lookup("mnist")
	ts := tables(t, "mnist")
	if len(ts) != 3 || ts[0].Repeats != 3 || ts[0].Chance != 0.1 {
		t.Fatalf("%d tables, %d repeats, chance %g", len(ts), ts[0].Repeats, ts[0].Chance)
	}
	same, err := Tables(records("mnist"), &experiment.Manifest{SameImages: true})
	if err != nil || !same[0].Same || same[0].Rows[0].ACC.N != 1 ||
		same[0].Rows[0].ACC.Mean != ts[0].Rows[0].ACC.Mean ||
		strings.Contains(spreadNote(true), "±") {
		t.Errorf("repeats that share all images: %+v, %v", same[0].Rows[0].ACC, err)
	}
	for _, tab := range ts {
		best := map[string]float64{}
		for _, r := range tab.Rows {
			if !r.Control() {
				best[r.Group] = math.Max(best[r.Group], r.ACC.Mean)
			}
		}
		marks := map[string]int{}
		for _, r := range tab.Rows {
			if r.best[columnACC] {
				marks[r.Group]++
			}
			if r.Control() && (r.best[columnACC] || r.best[columnECE]) {
				t.Error("the control competes")
			}
			if !r.Control() && r.ACC.Mean == best[r.Group] && !r.best[columnACC] {
				t.Errorf("%s: %s has the best ACC of its group and is not marked",
					tab.title(), r.Method)
			}
			if (r.Printed != nil) != (tab.Alpha == 0 && mnist.Paper[r.Method] != dataset.Figures{}) {
				t.Errorf("%s, %s: printed figures %v", tab.title(), r.Method, r.Printed)
			}
			if r.ACC.N != 3 || r.ACC.Half <= 0 {
				t.Errorf("%s: interval %+v of three repeats", r.Method, r.ACC)
			}
		}
		for _, g := range []rival.Group{rival.Local, rival.Centralised, rival.OneShot} {
			if marks[string(g)] == 0 {
				t.Errorf("%s: no best of %s", tab.title(), g)
			}
		}
	}
}

// TestUntrainedStandsInTheRow: of the methods that read such a model, and within 80 columns.
func TestUntrainedStandsInTheRow(t *testing.T) {
	ts := must.Get(Tables(records("digits"), &experiment.Manifest{Sizes: map[string]int{"classes": 10},
		Untrained: []string{"predictor", "conjugate"}}))(t)
	for _, r := range ts[0].Rows {
		want := slices.Contains([]string{"LMP", "MP", "CFMP", "FMP", "FMP-mean", "FMP-joint",
			"FMP-Laplace", "FMP-ISAB", "FMP-named"}, r.Method)
		if r.Untrained != want || strings.Contains(r.label(), "(untrained)") != want {
			t.Errorf("%s is untrained: %v, want %v", r.label(), r.Untrained, want)
		}
	}
	var b, page bytes.Buffer
	must.Do(t, errors.Join(Text(&b, ts, false, false), Markdown(&page, ts)))
	fits(t, b.String())
	if !regexp.MustCompile(`(?m)^> FMP \(untrained\) +\d`).MatchString(b.String()) ||
		!strings.Contains(page.String(), "| **FMP (untrained)** |") ||
		strings.Count(b.String(), untrainedNote[:20]) != 1 {
		t.Errorf("the table is\n%s", b.String())
	}
}

// TestSamplesFigureDoesNotFlattenFMP: methods far from FMP and MP get panels of their own.
func TestSamplesFigureDoesNotFlattenFMP(t *testing.T) {
	var rs []experiment.Record
	for method, nll := range map[string]float64{"FMP": 0.16, "MP": 0.18, "FMP-ISAB": 0.19, "CBNN": 0.5} {
		r := record(method, 0)
		r.BySamples = []score.Prefix{{Samples: 1, ECE: 0.02, NLL: nll + 0.01},
			{Samples: 20, ECE: 0.02 + nll/100, NLL: nll}}
		rs = append(rs, r)
	}
	ts := must.Get(Tables(rs, &experiment.Manifest{}))(t)
	f := must.Get(samplesFigure(&ts[0], rs))(t)
	if len(f.Plots) != 2 || len(f.Plots[0]) != 2 {
		t.Fatalf("%d rows of panels, want 2 of 2", len(f.Plots))
	}
	if lo, hi := f.Plots[0][1].Y.Min, f.Plots[0][1].Y.Max; lo < 0.1 || hi > 0.25 {
		t.Errorf("NLL of FMP and MP is drawn on %g to %g", lo, hi)
	}
	if hi := f.Plots[1][1].Y.Max; hi < 0.5 {
		t.Errorf("NLL of CBNN is drawn up to %g", hi)
	}
}

func TestTextIsPlainWithoutBold(t *testing.T) {
	ts := tables(t, "digits")
	var plain, bold bytes.Buffer
	must.Do(t, errors.Join(Text(&plain, ts, false, false), Text(&bold, ts, false, true)))
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("escapes in plain text")
	}
	if !strings.Contains(bold.String(), "\x1b[1m") {
		t.Error("no bold")
	}
	stripped := regexp.MustCompile("\x1b\\[[01]m").ReplaceAllString(bold.String(), "")
	if !strings.HasPrefix(stripped, plain.String()[:len(plain.String())-1]) {
		t.Error("bold changes more than the weight")
	}
	fits(t, plain.String())
	for _, w := range []string{"LANN", "prior only", "chance 0.10", "one-shot federated", "±"} {
		if !strings.Contains(plain.String(), w) {
			t.Errorf("no %q", w)
		}
	}
}

// In every format each method's tuned value stands beside its figures, and a shared table has no
// such column.
func TestTunedTablesNameTheValues(t *testing.T) {
	rs := records("digits")
	for _, protocol := range []string{"shared", "tuned"} {
		for i := range rs {
			rs[i].Protocol, rs[i].Param, rs[i].Value, rs[i].Shifted = protocol, "l2", 0.0123, nil
		}
		ts := must.Get(Tables(rs, &experiment.Manifest{Sizes: map[string]int{"classes": 10}}))(t)
		rows := 0
		for _, x := range ts {
			rows += len(x.Rows)
		}
		var text, md, tex bytes.Buffer
		must.Do(t, errors.Join(Text(&text, ts, true, false), Markdown(&md, ts), LaTeX(&tex, ts)))
		want := 0
		if protocol == "tuned" {
			want = rows
		}
		for name, s := range map[string]string{"text": text.String(), "Markdown": md.String(),
			"LaTeX": tex.String()} {
			if n := strings.Count(s, "l2 0.0123"); n != want {
				t.Errorf("%s, %s: %d values of %d rows", name, protocol, n, want)
			}
		}
		for line := range strings.Lines(tex.String()) {
			wantCells := len(ts[0].columns()) + 1 + want/max(want, 1)
			if n := strings.Count(strings.ReplaceAll(line, `\\&`, ""), "&"); n > 0 && n != wantCells {
				t.Errorf("LaTeX: %d columns in %s", n+1, line)
			}
		}
		cells := map[int]bool{}
		for line := range strings.Lines(md.String()) {
			if n := strings.Count(line, "|"); n > 0 {
				cells[n] = true
			}
		}
		if len(cells) != 1 {
			t.Errorf("Markdown: rows of different lengths: %v", cells)
		}
	}
}

// TestSettingsThatDiffer: settings that differ between repeats stand as ranges, and none as the
// row's own. Their column on a terminal is as wide as the longest.
func TestSettingsThatDiffer(t *testing.T) {
	var rs, others []experiment.Record
	for rep, v := range []float64{0.5, 0.25, 2} {
		r := record("FMP", rep)
		r.Protocol, r.Param, r.Value, r.Temperature = "calibrated", "l2", v, 3*v
		r.More = map[string]float64{"shrinkage": 1}
		other := record("CANN", rep)
		other.Protocol, other.Param, other.Value = "calibrated", "l2", 0.5
		rs, others = append(rs, r), append(others, other)
	}
	ts := must.Get(Tables(slices.Concat(rs, others), &experiment.Manifest{}))(t)
	row := ts[0].Rows[slices.IndexFunc(ts[0].Rows, func(r Row) bool { return r.Method == "FMP" })]
	const want = "l2 0.25 to 2, shrinkage 1, T 0.75 to 6"
	if got := setting(row.Settings); got != want || row.Value != 0 || row.Temperature != 0 ||
		row.More != nil {
		t.Errorf("%q, %+v; want %q", got, row, want)
	}
	var text, md, tex bytes.Buffer
	must.Do(t, errors.Join(Text(&text, ts, true, false), Markdown(&md, ts), LaTeX(&tex, ts)))
	for _, s := range []string{text.String(), md.String(), tex.String()} {
		if !strings.Contains(s, want) || strings.Contains(s, "0.5,") {
			t.Errorf("want %q in\n%s", want, s)
		}
	}
	var ends []int // of the lines with settings and of their heading
	for line := range strings.Lines(text.String()) {
		if line = strings.TrimRight(line, "\n"); strings.HasSuffix(line, " setting") ||
			strings.HasSuffix(line, " l2 0.5") || strings.HasSuffix(line, want) {
			ends = append(ends, utf8.RuneCountInString(line))
		}
	}
	if len(ends) != 3 || ends[0] != ends[1] || ends[0] != ends[2] {
		t.Errorf("lines of %v columns in\n%s", ends, &text)
	}
	if row := must.Get(Tables(rs[:1], &experiment.Manifest{}))(t)[0].Rows[0]; row.Value != 0.5 ||
		row.Temperature != 1.5 || row.More["shrinkage"] != 1 {
		t.Errorf("%+v", row)
	}
}

// TestCaptionsOfBars: captions of lines promise intervals where some figure has one.
func TestCaptionsOfBars(t *testing.T) {
	all := records("digits")
	once := slices.DeleteFunc(slices.Clone(all), func(r experiment.Record) bool { return r.Repeat > 0 })
	for _, x := range []struct {
		name    string
		records []experiment.Record
		same    bool
		bars    bool
	}{{"three repeats", all, false, true}, {"repeats of the same images", all, true, false},
		{"one repeat", once, false, false}} {
		ts := must.Get(Tables(x.records, &experiment.Manifest{SameImages: x.same}))(t)
		alpha := must.Get(alphaFigure(ts, "shared"))(t)
		lines := must.Get(Lines([]At{{"1", ts}, {"2", ts}}, "setting", "ACC"))(t)
		for _, f := range []*Figure{alpha, lines} {
			if got := strings.HasSuffix(f.Caption, ". Bars: 95% t-intervals over the repeats."); got != x.bars ||
				strings.Contains(f.Caption, "interval") != x.bars {
				t.Errorf("%s, %s: caption %q", x.name, f.Name, f.Caption)
			}
		}
	}
}

// TestShiftedImages: other images by name, spoiled ones by severity, mean over the corruptions; in
// all formats but LaTeX.
func TestShiftedImages(t *testing.T) {
	ts := tables(t, "digits")
	for _, s := range ts[0].Shifted {
		if s.Severity == 1 && math.Abs(s.ACC.Mean-0.4) > 1e-12 || s.Severity == 0 &&
			s.Entropy.Mean != 0.75 {
			t.Errorf("%+v", s)
		}
	}
	if n := len(ts[0].Shifted); n != 2*len(rival.All()) {
		t.Errorf("%d figures of %d methods", n, len(rival.All()))
	}
	var text, md bytes.Buffer
	must.Do(t, errors.Join(Text(&text, ts, true, false), Markdown(&md, ts)))
	for name, s := range map[string]string{"text": text.String(), "Markdown": md.String()} {
		for _, want := range []string{"0.7500 / 0.2500", "0.400 / 0.200 / 1.500", "noise"} {
			if !strings.Contains(s, want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
	}
}

func TestLaTeXEscapes(t *testing.T) {
	ts := tables(t, "my_data & more%")
	every := metric.Interval{N: 2, Mean: 0.5, Half: 0.1} // headings of all columns stand in the table
	for i := range ts[0].Rows {
		for c := range columns {
			*ts[0].Rows[i].interval(c) = every
		}
	}
	var b bytes.Buffer
	must.Do(t, LaTeX(&b, ts))
	for _, line := range strings.Split(b.String(), "\n")[1:] {
		if bare := regexp.MustCompile(`(^|[^\\])[%#<>|"]`).FindString(line); bare != "" {
			t.Errorf("%q stands as it is in %s", bare, line)
		}
	}
	if !strings.Contains(b.String(), `90\% of top`) {
		t.Error("no column of coverage")
	}
	typeset(t, b.String())
	if !strings.Contains(b.String(), `my\_data \& more\%`) {
		t.Errorf("%s", b.String()[:300])
	}
	if o, c := strings.Count(b.String(), "{"), strings.Count(b.String(), "}"); o != c {
		t.Errorf("%d braces open and %d close", o, c)
	}
}

// TestLaTeXWidths: three figures fit a journal's column, more take both, and more than a page holds
// is said.
func TestLaTeXWidths(t *testing.T) {
	ts := tables(t, "cifar10")
	for chosen, want := range map[string]string{"ACC,ECE,NLL": "table", "ACC,ECE,NLL,Brier": "table*"} {
		few := must.Get(Choose(ts, strings.Split(chosen, ","), nil))(t)
		var b strings.Builder
		must.Do(t, LaTeX(&b, few))
		n, of := strings.Count(b.String(), "\\begin{"+want+"}"), len(few)
		if closed := strings.Count(b.String(), "\\end{"+want+"}"); n != of || closed != of {
			t.Errorf("%s: %d tables open as %s and %d close; want %d", chosen, n, want, closed, of)
		}
		if strings.Contains(b.String(), "wider") {
			t.Errorf("%s are said to be wider than a page", chosen)
		}
		typeset(t, b.String())
	}
	var b strings.Builder
	must.Do(t, LaTeX(&b, ts))
	if n := len(ts[0].columns()); (n > pageFits) != strings.Contains(b.String(), "wider") {
		t.Errorf("%d figures; the head says %q", n, strings.SplitN(b.String(), "\n", 2)[0])
	}
}

// typeset compiles tables where a TeX is at hand.
func typeset(t *testing.T, tables string) {
	tex := ""
	for _, name := range []string{"tectonic", "pdflatex"} {
		if path, err := exec.LookPath(name); err == nil {
			tex = path
			break
		}
	}
	if tex == "" {
		t.Log("neither tectonic nor pdflatex is here: the tables are not compiled (apt-get install " +
			"texlive-latex-recommended)")
		return
	}
	dir := t.TempDir()
	text :=
		"\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{booktabs}\n\\begin{document}\n" + tables + "\\end{document}\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "t.tex"), []byte(text), 0o600))
	cmd := exec.Command(tex, "t.tex")
	if filepath.Base(tex) == "pdflatex" {
		cmd = exec.Command(tex, "-halt-on-error", "-interaction=nonstopmode", "t.tex")
	}
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// made-up choices of the tuned protocol: one of them at the end of what was tried.
const madeUpTuning = `{"choices":[
{"partition":"homogeneous","method":"FMP","param":"l2","value":1,"grid":[0.3,1,3],"nll":[0.72,0.61,0.7]},
{"partition":"homogeneous","method":"CANN","param":"l2","value":0.3,"grid":[0.3,1,3],"nll":[0.72,0.81,0.9]}]}`

// madeUp makes a run directory with made-up figures, and its report.
func madeUp(t *testing.T, dir string) {
	t.Helper()
	c := experiment.Default()
	c.Dataset.Name = "cifar10"
	c.Federation.Partition, c.Seeds = "both", 3
	c.Federation.Alpha = []float64{0.1, 1}
	m := experiment.Manifest{Identity: "x", Sizes: map[string]int{"classes": 10, "test": 100},
		Notes: []string{"<script>alert(1)</script>"}}
	d := must.Get(experiment.Open(dir, c, m))(t)
	defer d.Close()
	var cells []experiment.Cell
	for _, r := range records("cifar10") {
		cells = append(cells, r.Cell)
		must.Do(t, d.Add(r, experiment.Took{Clock: time.Second}))
	}
	must.Get(d.Finish(cells))(t)
	must.Do(t, os.WriteFile(filepath.Join(dir, experiment.TuningFile), []byte(madeUpTuning), 0o644))
	must.Get(Write(dir))(t)
}

// A page must not need the network, whatever the names in the data say.
func TestWriteMakesAWholePageAndPlots(t *testing.T) {
	dir := t.TempDir()
	madeUp(t, dir)
	s := string(must.Get(os.ReadFile(filepath.Join(dir, PageFile)))(t))
	if strings.Contains(s, "<script>alert") {
		t.Error("a note is not escaped")
	}
	if m := regexp.MustCompile(`(?i)(src|href)\s*=\s*"(https?:|//)[^"]*"|url\(`).FindString(s); m != "" {
		t.Errorf("the page loads %s", m)
	}
	if strings.Count(s, "(l2 at the end of what was tried)") != 1 ||
		!strings.Contains(s, "3 values, 0.3 to 3") || !strings.Contains(s, "0.6100") {
		t.Error("the page does not say what the tuned settings were chosen from")
	}
	for _, w := range []string{"What each method cost", "prefers-color-scheme: dark", "FedCGS",
		"0.7891 / 0.0572", "Figure 2", "var(--ink)"} {
		if !strings.Contains(s, w) {
			t.Errorf("the page has no %q", w)
		}
	}
	if strings.Contains(s, "#-") || strings.Contains(s, "NaN") {
		t.Error("a colour or a number of a plot is broken")
	}
	svgs, err := filepath.Glob(filepath.Join(dir, PlotsDir, "*.svg"))
	if err != nil || len(svgs) < 10 {
		t.Fatalf("%d plots, %v", len(svgs), err)
	}
	for _, p := range svgs {
		b := must.Get(os.ReadFile(p))(t)
		for x := xml.NewDecoder(bytes.NewReader(b)); ; {
			if _, err := x.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("%s: %v", p, err)
				break
			}
		}
		f := must.Get(os.Open(strings.TrimSuffix(p, ".svg") + ".png"))(t)
		if _, err := png.Decode(f); err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		}
		f.Close()
	}
}

// TestRoundTicks: ticks are few, of different labels and without a negative zero.
func TestRoundTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   string
	}{
		{0, 1, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{.31, .36, "0.31 0.32 0.33 0.34 0.35 0.36"},
		{-2, 700, "0 200 400 600"},
		{0, 1e-6, "0.0000000 0.0000002 0.0000004 0.0000006 0.0000008 0.0000010"},
		{-.1, .1, "-0.10 -0.05 0.00 0.05 0.10"},
		{1, 1, ""},
		{0, math.Inf(1), ""},
	} {
		var labels []string
		for _, k := range (roundTicks{}).Ticks(c.lo, c.hi) {
			labels = append(labels, k.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v: %s; want %s", c.lo, c.hi, got, c.want)
		}
	}
}

// TestApartBy: names are a line's height apart, within the plot, in the order of their marks, and
// one in the open stays at its own.
func TestApartBy(t *testing.T) {
	at := []float64{1, 1, 1.5, 2, 50, 99, 99.5}
	got := apartBy(at, 5, 0, 100)
	for i, v := range got {
		if v < 0 || v > 100 || i > 0 && v < got[i-1]+5-1e-9 {
			t.Errorf("position %d is %v after %v", i, v, got[max(i-1, 0)])
		}
	}
	if got[4] != 50 {
		t.Errorf("a name in the open moved to %v", got[4])
	}
}

// TestChoose: columns and rows stand as asked for, in every form of a table, and unknown names are
// errors.
func TestChoose(t *testing.T) {
	m := &experiment.Manifest{Sizes: map[string]int{"classes": 10}}
	ts := must.Get(Tables(records("digits"), m))(t)
	few := must.Get(Choose(ts, []string{"nll", "ACC", "upload"}, []string{"fmp", "ANN"}))(t)
	few[0].Varied = "l2 = 3"
	var b, tex strings.Builder
	must.Do(t, Markdown(&b, few))
	must.Do(t, LaTeX(&tex, few))
	if !strings.Contains(b.String(), "| group | method | NLL | ACC | upload |\n") ||
		strings.Contains(b.String(), "CANN") ||
		!strings.Contains(b.String(), ", l2 = 3, ") || !strings.Contains(b.String(), "**FMP**") {
		t.Errorf("Markdown:\n%s", b.String())
	}
	if !strings.Contains(tex.String(), "Method & NLL & ACC & Upload \\\\") ||
		!strings.Contains(tex.String(), "l2 = 3") {
		t.Errorf("LaTeX:\n%s", tex.String())
	}
	for i, name := range ColumnNames() {
		if i < len(headings) {
			one := must.Get(Choose(ts, []string{name}, nil))(t)
			if got := one[0].chosen.figures; strings.Contains(name, ",") || !slices.Equal(got, []int{i}) {
				t.Errorf("column %q: %v; want %d", name, got, i)
			}
			must.Get(Choose(ts, []string{headings[i]}, nil))(t)
		}
	}
	must.Get(Choose(ts, []string{"joint random", "90% p < 0.9"}, nil))(t)
	for _, bad := range [][2][]string{{{"ACCC"}, nil}, {nil, {"FMPP"}}, {{"ACC", "setting"}, nil}} {
		must.Fail(Choose(ts, bad[0], bad[1]))(t, "", fmt.Sprintf("%v is no error", bad))
	}
}

// TestDirection: the summary says in which direction probabilities err, and says nothing of chance.
func TestDirection(t *testing.T) {
	for _, c := range []struct {
		gap  float64
		want string
	}{{0.131, "too confident by 13.1 points (95% interval 8.1 to 18.1)"},
		{-0.131, "too cautious by 13.1 points (95% interval 8.1 to 18.1)"}, {0.02, ""}, {-0.02, ""}} {
		got := direction("a.onnx",
			metric.Calibration{Gap: c.gap, Chance: 0.03, GapLow: c.gap - 0.05, GapHigh: c.gap + 0.05})
		if !strings.Contains(got, c.want) ||
			c.want != "" && !strings.Contains(got, "fmp calibrate a.onnx LABELLED") ||
			c.want == "" && got != "" {
			t.Errorf("gap %v: %q, want %q", c.gap, got, c.want)
		}
	}
}

// TestSharesOfNothing: a class without images has no recall, one that is never said no precision,
// and a coverage of few images is told once.
func TestSharesOfNothing(t *testing.T) {
	half := 0.5
	r := &evaluate.Result{Images: 3, Classes: []string{"a", "b"}, ByClass: []evaluate.Class{
		{Name: "a", Images: 3, Recall: &half, Precision: &half}, {Name: "b"}}}
	r.Uncertainty = &metric.Uncertainty{}
	r.Risk = []metric.Risk{{Coverage: 2. / 3, Confidence: 0.9}, {Coverage: 1, Confidence: 0.6, Risk: 0.25}}
	var card, text strings.Builder
	must.Do(t, Card(&card, "a classifier", "images", r))
	must.Do(t, EvaluationText(&text, r))
	for _, x := range []struct{ of, want string }{
		{card.String(), "| a | 3 | 0.500 | 0.500 |"}, {card.String(), "| b | 0 | - | - |"},
		{card.String(), "| 100% | 0.600 | 25.00% |"},
		{text.String(), "0        -          -"}, {text.String(), "is wrong on 25.00%"},
	} {
		if strings.Count(x.of, x.want) != 1 {
			t.Errorf("want %q once:\n%s", x.want, x.of)
		}
	}
}

// TestMarksAreExplained: every form of tables says in its own words what ± and bold figures are.
func TestMarksAreExplained(t *testing.T) {
	const spread, paired, best, same = "± is the half-width of the 95% t-interval over repeats.",
		"Bold: the best of its group, and those whose paired difference from it has an interval " +
			"that holds zero.", "Bold: the best of its group.", "repeats share them"
	all := []string{spread, paired, best, same}
	for _, x := range []struct {
		repeats int
		same    bool
		want    []string
	}{{3, false, all[:2]}, {3, true, all[2:]}, {1, false, []string{best}}} {
		var rs []experiment.Record
		for rep := range x.repeats {
			r := record("FMP", rep)
			r.ACC += .01 * float64(rep)
			rs = append(rs, r)
		}
		ts := must.Get(Tables(rs, &experiment.Manifest{SameImages: x.same}))(t)
		var text, md, tex bytes.Buffer
		must.Do(t, errors.Join(Text(&text, ts, false, true), Markdown(&md, ts), LaTeX(&tex, ts)))
		for form, b := range map[string]*bytes.Buffer{"text": &text, "Markdown": &md, "LaTeX": &tex} {
			said := strings.Join(strings.Fields(b.String()), " ")
			said = strings.NewReplacer(`$\pm$ is`, "± is", `\%`, "%").Replace(said)
			for _, s := range all {
				if strings.Contains(said, s) != slices.Contains(x.want, s) {
					t.Errorf("%d repeats, same %t: %q in\n%s", x.repeats, x.same, s, b)
				}
			}
			if form == "LaTeX" && strings.Contains(b.String(), "±") {
				t.Errorf("± stands as it is in\n%s", b)
			}
		}
	}
}

// TestHostileDataset: a data set's name means nothing in Markdown but itself.
func TestHostileDataset(t *testing.T) {
	ts := tables(t, "we_i<r>d")
	var md strings.Builder
	must.Do(t, Markdown(&md, ts))
	if !strings.HasPrefix(md.String(), `### we\_i\<r\>d, `) || strings.Contains(md.String(), "<r>") {
		t.Errorf("Markdown:\n%.300s", md.String())
	}
}
