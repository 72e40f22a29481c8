package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"fmp/models"
	"fmp/onnx/printable"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/metric"
	"fmp/pipeline/privacy"
)

// matrixClasses bounds the classes of a confusion matrix; with more, the most frequent confusions
// are listed. A matrix of more is wider than a page.
const matrixClasses = 20

// coverages are the shares of images for which error rates are reported.
var coverages = []float64{0.5, 0.8, 0.9, 1}

// evaluationSummary returns an evaluation in one sentence: accuracy and ECE, in percent, and the
// direction of the error. A calibration error is told beside that of chance, as of few images a
// perfect classifier has one too.
func evaluationSummary(r *evaluate.Result) string {
	classes := fmt.Sprintf("%d classes", len(r.Classes))
	return fmt.Sprintf("Right on %.1f%% of %d images of %s (95%% interval %.1f to "+
		"%.1f); its stated probabilities are %.1f points off on average%s.%s",
		100*r.ACC, r.Images, classes, 100*r.ACCLow, 100*r.ACCHigh, 100*r.ECE, beside(r.Calibration),
		direction(r.File, r.Calibration))
}

// direction says in which direction stated probabilities err, where that is beyond chance, and the
// command that mends it. The gap is mean confidence less accuracy: positive is too confident. Of a
// negative gap the ends of the interval change sign and places. Within c.Chance nothing is said, so
// that nobody calibrates against noise.
func direction(file string, c metric.Calibration) string {
	too, gap, low, high := "confident", c.Gap, c.GapLow, c.GapHigh
	switch {
	case c.Gap < -c.Chance:
		too, gap, low, high = "cautious", -c.Gap, -c.GapHigh, -c.GapLow
	case !(c.Gap > c.Chance):
		return ""
	}
	return fmt.Sprintf(" It is too %s by %.1f points (95%% interval %.1f to %.1f). Other labelled "+
		"images mend that: fmp calibrate %s LABELLED -o calibrated.onnx", too, 100*gap,
		100*low, 100*high, cmp.Or(file, "CLASSIFIER"))
}

// beside returns the error of a perfectly calibrated classifier, for the end of a sentence.
func beside(c metric.Calibration) string {
	return fmt.Sprintf(", where a perfectly calibrated classifier would read %.1f (%.1f to %.1f) "+
		"on as many images", 100*c.Perfect, 100*c.Low, 100*c.High)
}

// evaluationScore is a score of an evaluation in words.
type evaluationScore struct{ Name, Value, Meaning string }

// evaluationScores are the scores of an evaluation, in the order in which all its forms list them.
// Terminal, page and card thereby agree in names, digits and order.
func evaluationScores(r *evaluate.Result) []evaluationScore {
	f := func(v float64) string { return fmt.Sprintf("%.4f", v) }
	u := r.Uncertainty
	scores := []evaluationScore{
		{"ACC", f(r.ACC), "share of images whose most probable class is the true one"},
		{"ECE", f(r.ECE), fmt.Sprintf("expected calibration error, %d bins of confidence",
			metric.Bins)},
		{"perfect ECE", f(r.Calibration.Perfect), fmt.Sprintf("ECE of a perfectly calibrated "+
			"classifier on %d images, mean (95%% read %.4f to %.4f)", r.Images, r.Calibration.Low,
			r.Calibration.High)},
		{"debiased RMSCE", f(r.Calibration.Debiased),
			"root mean square calibration error less what chance adds to it (Kumar et al. 2019)"},
		{"class-wise ECE", f(u.ClassECE),
			"the same of every class's probability, mean over classes"},
		{"NLL", f(r.NLL), "mean negative log probability of the true class, in nats"},
		{"Brier", f(r.Brier), "mean squared distance of the probabilities from the truth, 0 to 2"},
		{"AURC", f(u.AURC), "error rate of the surest images, mean over how many are answered"},
		{"disagreement", f(u.Disagreement), "mutual information of class and head, mean, in nats"},
	}
	if r.Sets != nil {
		scores = append(scores, setScore(r))
	}
	return scores
}

// answering returns the error rates at the coverages; of few images several are one. The threshold
// of each is the least probability of an image that is answered.
func answering(r *evaluate.Result) (out []metric.Risk) {
	for _, c := range coverages {
		out = append(out, r.RiskAt(c))
	}
	return slices.Compact(out)
}

// ratio prints a share; - where it is of nothing.
func ratio(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *v)
}

// EvaluationText writes an evaluation for a terminal. Up to ten classes have a confusion matrix,
// more a list of the ten most frequent mistakes.
func EvaluationText(w io.Writer, r *evaluate.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", evaluationSummary(r))
	for _, s := range evaluationScores(r) {
		fmt.Fprintf(&b, "  %-14s  %s  %s\n", s.Name, s.Value, s.Meaning)
	}
	b.WriteString("\nanswering only the surest\n")
	for _, p := range answering(r) {
		fmt.Fprintf(&b, "  %3.0f%%  (probability from %.3f)  is wrong on %.2f%%\n", 100*p.Coverage,
			p.Confidence, 100*p.Risk)
	}
	width := len("class")
	for _, c := range r.Classes {
		width = min(max(width, len([]rune(c))), 20)
	}
	fmt.Fprintf(&b, "\n  %-*s  %7s  %7s  %9s\n", width, "class", "images", "recall", "precision")
	for _, c := range r.ByClass {
		fmt.Fprintf(&b, "  %-*s  %7d  %7s  %9s\n", width, short(c.Name), c.Images,
			ratio(c.Recall), ratio(c.Precision))
	}
	if rows := setRows(r); rows != nil {
		fmt.Fprintf(&b, "\n  %-*s  %7s  %7s  %s\n", width+7, setColumns[0], setColumns[1],
			setColumns[2], setColumns[3])
		for _, row := range rows {
			fmt.Fprintf(&b, "  %-*s  %7s  %7s  %s\n", width+7, row[0], row[1], row[2], row[3])
		}
	}
	if n := len(r.Classes); n <= 10 {
		fmt.Fprintf(&b, "\nconfusion (rows: the true class; columns: what it says, in the "+
			"same order)\n")
		for i, row := range r.Confusion {
			fmt.Fprintf(&b, "  %-*s ", width, short(r.Classes[i]))
			for _, k := range row {
				fmt.Fprintf(&b, " %5d", k)
			}
			b.WriteByte('\n')
		}
	} else if cs := r.Confusions(10); len(cs) > 0 {
		b.WriteString("\nmost frequent mistakes\n")
		for _, c := range cs {
			fmt.Fprintf(&b, "  %5d  %s called %s\n", c.Images, c.Truth, c.Says)
		}
	}
	for _, l := range []struct {
		title string
		of    []evaluate.Example
	}{{"surest", r.Sure}, {"least sure", r.Unsure}, {"surest mistakes", r.Mistakes}} {
		if len(l.of) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", l.title)
		for _, e := range l.of {
			mark := ""
			if e.Says != e.Truth {
				mark = ", is " + e.Truth
			}
			fmt.Fprintf(&b, "  %.3f  %s%s  %s\n", e.Probability, e.Says, mark, e.File)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// riskPlot returns the plot of the risk-coverage curve: the error rate among the surest share of
// the images, by that share. The axis of rates begins at 0 and reaches at least 1%. AURC is the
// area under this curve (Geifman et al. 2019, "Bias-reduced uncertainty estimation for deep neural
// classifiers").
func riskPlot(r *evaluate.Result) (*plot.Plot, error) {
	p := &Drawing{Plot: newPlot(fmt.Sprintf("Errors among the answered  AURC %.4f",
		r.Uncertainty.AURC), "share of images answered, the surest first", "error rate"),
		Of: "figure of risk and coverage"}
	p.Title.TextStyle.Font.Size = vg.Points(10)
	grid(p.Plot, false, true)
	var xys plotter.XYs
	for _, k := range r.Risk {
		xys = append(xys, plotter.XY{X: k.Coverage, Y: k.Risk})
	}
	p.Line(methodColor("FMP"), 1.5, xys...)
	p.X.Min, p.X.Max, p.Y.Min = 0, 1, 0
	p.Y.Max = max(p.Y.Max*1.1, 0.01)
	return p.Plot, p.Err
}

// EvaluationPage writes the self-contained page of an evaluation. It loads nothing: plots and
// images are in it. Names from files are escaped as text.
func EvaluationPage(w io.Writer, title string, r *evaluate.Result) error {
	// The row stands for the classifier, which is no method of a table.
	reliability, err := reliabilityPlot(&Row{Method: "FMP", Group: string(rival.OneShot)}, r.Curve)
	if err != nil {
		return err
	}
	reliability.Title.Text = fmt.Sprintf("Stated and true  ECE %.4f", r.ECE)
	reliability.X.Label.Text, reliability.Y.Label.Text = "stated probability", "share that is right"
	risk, err := riskPlot(r)
	if err != nil {
		return err
	}
	figure, err := inlinedAll([]*Figure{{Title: "Are the probabilities to be believed?",
		Panels: true, Plots: [][]*plot.Plot{{reliability, risk}}, Width: 8 * vg.Inch,
		Height: 3.2 * vg.Inch, Caption: fmt.Sprintf("Left: accuracy against confidence in %d "+
			"bins, with 95%% Wilson intervals; on the diagonal the classifier is right as often "+
			"as it says. Bars: the share of the images in each bin. Right: the error rate where "+
			"only the surest images are answered and the rest is left to people.", metric.Bins)}},
		h.H2)
	if err != nil {
		return err
	}
	columns := []string{"class", "images", "recall", "precision"}
	if r.Sets != nil {
		columns = append(columns, "sets hold", "95% interval")
	}
	prose := h.Style("text-align:left;white-space:normal")
	body := g.Group{
		table("", []string{"score", "", "what it is"},
			h.TBody(g.Map(evaluationScores(r), func(s evaluationScore) g.Node {
				return row(td(s.Name), td(s.Value), h.Td(prose, g.Text(s.Meaning)))
			}))),
		figure,
		h.H2(g.Text("By class")),
		table("", columns, rows(r.ByClass, func(c evaluate.Class) []string {
			out := []string{c.Name, fmt.Sprint(c.Images), ratio(c.Recall), ratio(c.Precision)}
			// A class without images has no share of sets: its row has the first four cells alone.
			if r.Sets != nil && c.Images > 0 {
				out = append(out, setShare(c.Images, c.Held, *c.HeldLow, *c.HeldHigh)...)
			}
			return out
		})),
	}
	if len(r.Classes) <= matrixClasses {
		body = append(body, confusionMatrix(r))
	} else if cs := r.Confusions(20); len(cs) > 0 {
		body = append(body, h.H2(g.Text("Most frequent mistakes")),
			table("", []string{"true class", "called", "images"},
				rows(cs, func(c evaluate.Confused) []string {
					return []string{c.Truth, c.Says, fmt.Sprint(c.Images)}
				})))
	}
	for _, l := range []struct {
		title string
		of    []evaluate.Example
	}{{"Surest mistakes", r.Mistakes}, {"Least sure", r.Unsure}, {"Surest", r.Sure}} {
		if len(l.of) > 0 {
			body = append(body, h.H2(g.Text(l.title)),
				h.Div(h.Class("examples"), g.Map(l.of, evaluatedImage)))
		}
	}
	body = append(body, h.H2(g.Text("What the classifier was made from")),
		folded(true, g.Text("Clients, models and settings"), factList(originFacts(r))))
	if err := document(title, evaluationSummary(r), body).Render(w); err != nil {
		return fmt.Errorf("report of the evaluation: %w", err)
	}
	return nil
}

// confusionMatrix returns the table of true and predicted classes; cells are darker the larger
// their share of the true class. Opacity is 0.1 for next to nothing and 0.6 for all. Classes
// without images have rows of zeros, and no shade.
func confusionMatrix(r *evaluate.Result) g.Node {
	var lines g.Group
	for i, counts := range r.Confusion {
		cells := g.Group{td(r.Classes[i])}
		for j, k := range counts {
			shade := "transparent"
			if k > 0 && r.ByClass[i].Images > 0 {
				rgb := "213,94,0" // vermillion for mistakes, blue for correct predictions
				if i == j {
					rgb = "0,114,178"
				}
				shade = fmt.Sprintf("rgba(%s,%.2f)", rgb,
					0.1+0.5*float64(k)/float64(r.ByClass[i].Images))
			}
			cells = append(cells, h.Td(h.Style("background:"+shade), g.Text(fmt.Sprint(k))))
		}
		lines = append(lines, row(cells))
	}
	return g.Group{h.H2(g.Text("Confusion")),
		h.P(g.Text("Rows: the true class; columns: what the classifier says.")),
		table("matrix", append([]string{""}, r.Classes...), h.TBody(lines))}
}

// evaluatedImage returns an image beside its class and the classifier's prediction. Without a
// picture its file's name stands alone.
func evaluatedImage(e evaluate.Example) g.Node {
	var shown g.Node
	if e.PNG != nil {
		shown = image(e.PNG, "image of class "+e.Truth)
	}
	return h.Div(h.Class("example"), shown, h.Div(h.Style("grid-column:auto"),
		g.Text("true: "), h.B(g.Text(e.Truth)), h.Br(), g.Text("says: "),
		h.B(g.If(e.Says != e.Truth, h.Class("wrong")), g.Text(e.Says)),
		g.Text(fmt.Sprintf(" (%.1f%%)", 100*e.Probability)), h.Br(),
		h.Small(g.Text(fmt.Sprintf("%s, disagreement %.3f nats", e.File, e.Disagreement)))))
}

// originFacts returns the sources of a classifier. At most twenty clients are named. A fact that
// the classifier does not state is left out. A long list of clients would push all other facts off
// the card.
func originFacts(r *evaluate.Result) []pageFact {
	o := r.Origin
	n := 0
	var names []string
	for _, c := range o.Clients {
		n += c.N
		name := c.Name
		if c.N > 0 {
			name = fmt.Sprintf("%s (%d)", name, c.N)
		}
		// Later clients are counted, and not named.
		if len(names) < 20 {
			names = append(names, name)
		}
	}
	images := fmt.Sprintf("%d images", n)
	if n == 0 { // a private round's uploads must not tell it
		images = "numbers of images that are not stated"
	}
	if more := len(o.Clients) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	facts := []pageFact{{"classifier", "sha256 " + r.Model}}
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, pageFact{name, value})
		}
	}
	if o.Method != "" {
		add("method", fmt.Sprintf("%s, %d heads on %d features", o.Method, r.Manifest.S,
			r.Manifest.Dx))
		add("clients (images)", fmt.Sprintf("%d clients with %s: %s", len(o.Clients), images,
			strings.Join(names, ", ")))
		add("round", fmt.Sprint(o.Round))
	}
	add("differential privacy", spent(o))
	if o.L2 > 0 {
		add("settings", fmt.Sprintf("%s: L2 penalty %g, %d points drawn for a sample, seed %d",
			o.Protocol, o.L2, o.Fresh, r.Manifest.Seed))
	}
	add("client graph", o.Client)
	add("predictor", o.Predictor)
	add("extractor", r.Manifest.Extractor)
	add("training data of the models", r.Manifest.TrainingData)
	add("licence", r.Manifest.Licence)
	return facts
}

// spent returns the privacy account of a private round in words; nothing for other rounds. A
// manifest is hostile input: an account that is not consistent is told as unreadable, and never
// printed.
func spent(o models.Origin) string {
	if len(o.Private) == 0 {
		return ""
	}
	var a privacy.Account
	if err := json.Unmarshal(o.Private, &a); err != nil || a.Check() != nil {
		return "the account in the manifest cannot be read"
	}
	return a.String()
}

// cardPrivacy returns the limit of a model card on privacy. Budgets of several releases are to be
// added up by the reader, as a card knows one.
func cardPrivacy(o models.Origin) string {
	of := spent(o)
	if of == "" {
		return "- Nothing is promised about what the uploads reveal of the clients' images: no " +
			"noise was added.\n"
	}
	return fmt.Sprintf("- The uploads' promise of privacy is that of this release alone "+
		"(%s). Several releases of the same images add up.\n", printable.Markdown(of))
}

// cardScores writes the section of a model card on the scores.
func cardScores(b *strings.Builder, on string, r *evaluate.Result) {
	// The name of the file, in the command that mends the calibration, is anybody's.
	named := *r
	named.File = printable.Markdown(r.File)
	fmt.Fprintf(b, "\n## Scores\n\nOn %s. %s\n\n| score | | |\n| --- | ---: | --- |\n",
		printable.Markdown(on), evaluationSummary(&named))
	for _, s := range evaluationScores(r) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", s.Name, s.Value, s.Meaning)
	}
	b.WriteString("\n| answered, the surest first | from probability | wrong |\n| ---: | " +
		"---: | ---: |\n")
	for _, p := range answering(r) {
		fmt.Fprintf(b, "| %.0f%% | %.3f | %.2f%% |\n", 100*p.Coverage, p.Confidence, 100*p.Risk)
	}
	b.WriteString("\n| class | images | recall | precision |\n| --- | ---: | ---: | ---: |\n")
	for _, c := range r.ByClass {
		fmt.Fprintf(b, "| %s | %d | %s | %s |\n", printable.Markdown(c.Name), c.Images,
			ratio(c.Recall), ratio(c.Precision))
	}
}

// cardScaling writes the section of a model card on the calibration of the probabilities. Scores
// after it are by cross-validation: a fit scored on its own images would look better than it is.
func cardScaling(b *strings.Builder, r *evaluate.Result) {
	s := r.Origin.Scaling
	if s == nil {
		return
	}
	what := fmt.Sprintf("a %s of the classes", printable.Markdown(s.Kind))
	if s.Kind == models.Temperature && len(s.Factor) == 1 {
		what = fmt.Sprintf("a temperature of %.3g", 1/s.Factor[0])
	}
	fmt.Fprintf(b, "\n## Calibration\n\nIts probabilities were calibrated on %d labelled images "+
		"of %s by %s, in the graph. Scores on these images, after by fits that left a "+
		"fifth out:\n\n| | NLL | ECE | ECE by chance | confidence less accuracy |\n| --- | ---: "+
		"| ---: | ---: | ---: |\n", s.Images, printable.Markdown(s.From), what)
	for _, row := range []struct {
		name string
		of   models.ScalingScores
	}{{"before", s.Before}, {"after", s.After}} {
		fmt.Fprintf(b, "| %s | %.4f | %.4f | %.4f | %+.4f |\n", row.name, row.of.NLL, row.of.ECE,
			row.of.Perfect, row.of.Gap)
	}
	b.WriteString("\nIt holds for images like those. Images of another camera or of other shares " +
		"of the classes want a calibration of their own.\n")
}

// Card writes a model card in Markdown (Mitchell et al. 2019, arXiv 1810.03993): data, clients,
// settings, scores, limits. on describes the data that the scores are for. Names that come from
// files are escaped, so that they mean nothing in Markdown. Limits are stated always, whether or
// not there are scores.
func Card(w io.Writer, title, on string, r *evaluate.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nAn image classifier of %d classes: %s.\n\n",
		printable.Markdown(title), len(r.Classes),
		printable.Markdown(strings.Join(r.Classes, ", ")))
	fmt.Fprintf(&b, "It was made by federated martingale posterior sampling: each client sent one "+
		"small upload made from its images and no image left it. The classifier's probabilities "+
		"are the mean of %d samples of the posterior.\n\n", r.Manifest.S)
	fmt.Fprintf(&b, "## Intended use\n\nTo tell these %d classes apart in images like "+
		"those of the clients, and to leave to people those that it is unsure of. It is not for "+
		"images that hold none of the classes, nor for decisions about persons.\n\n## What it "+
		"was made from\n\n", len(r.Classes))
	for _, f := range originFacts(r) {
		fmt.Fprintf(&b, "- **%s**: %s\n", f.Name, printable.Markdown(f.Value))
	}
	cardScaling(&b, r)
	// A card can be written of a classifier that nobody has scored.
	if r.Images > 0 {
		cardScores(&b, on, r)
	}
	if r.Pooled != nil {
		b.WriteString("\n## At the sites\n\n")
		if err := Sites(&b, r.Pooled, r.Classes); err != nil {
			return err
		}
	}
	b.WriteString(`
## Limits

- It knows these classes and no other: an image of something else gets one of them, often, but
  not always, with little confidence.
- The scores are of images like those above. On others, taken with another camera, say, it may
  be less often right and its probabilities further off.
- The extractor is frozen and was trained on data of its own; what its features do not tell
  apart, the classifier does not.
`)
	b.WriteString(cardPrivacy(r.Origin))
	if m := r.Origin.Method; m == "FMP" || m == "FMP-one" {
		b.WriteString("- The outputs low and high are 90% credible intervals of the probability " +
			"that images without end would lead to, not of the next label. How often they hold " +
			"it, on which images, and where they do not, is measured on the program's page " +
			"on intervals (docs/intervals.md).\n")
		if e := r.Origin.Ends; e != nil {
			fmt.Fprintf(&b, "- Their ends were learned on simulated tasks: at an image's "+
				"most probable class they reach %.2f half widths down and %.2f up.\n", e.Down, e.Up)
		}
	}
	b.WriteString(guarantee(r))
	if rows := setRows(r); rows != nil {
		fmt.Fprintf(&b, "\n| %s |\n| --- | ---: | ---: | --- |\n", strings.Join(setColumns, " | "))
		for _, row := range rows {
			fmt.Fprintf(&b, "| %s | %s |\n", printable.Markdown(row[0]),
				strings.Join(row[1:], " | "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
