package report

import (
	"fmt"
	"io"
	"strings"

	"fmp/onnx/printable"
	"fmp/pipeline/tally"
	"fmp/pipeline/tally/pooled"
)

// Sites writes the pooled report of sites' evaluations (docs/cross-site.md) in Markdown, with names
// of the classes; numbers where there are none. Bins of the curve with fewer images than a site may
// tell of are left out, unless sites gave a mean. Names of sites and classes are escaped for
// Markdown. Shares that hidden counts leave open are given as ranges.
func Sites(w io.Writer, r *pooled.Result, classes []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d images of %d sites, which scored the classifier on their own; "+
		"single images stayed there.\n\n", r.Images, len(r.Sites))
	b.WriteString("| site | images | accuracy | coverage of sets | mean set size | ECE " +
		"| hidden |\n| --- | ---: | --- | --- | ---: | ---: | --- |\n")
	// A figure that no count tells is an en dash.
	number := func(v *float64, format string) string {
		if v == nil {
			return "–"
		}
		return fmt.Sprintf(format, *v)
	}
	// a site that hides its bins has no ECE
	told := 0 // sites that tell of calibration
	for _, s := range r.Sites {
		// A classifier without sets has no coverage at any site.
		coverage := "–"
		if s.Coverage != nil {
			coverage = shareText(*s.Coverage)
		}
		if s.ECE != nil {
			told++
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s |\n", printable.Markdown(s.Name),
			s.Images, shareText(s.Accuracy), coverage, number(s.SetSize, "%.2f"),
			number(s.ECE, "%.3f"), hidden(s))
	}
	for _, l := range r.LeftOut {
		fmt.Fprintf(&b, "\n**Left out** is %s, whose report is of %s.\n",
			printable.Markdown(l.Site), printable.Markdown(l.Why))
	}
	b.WriteString("\n")
	overall(&b, "accuracy", r.Accuracy)
	if r.Coverage != nil {
		overall(&b, fmt.Sprintf("coverage of sets, stated %v", r.Level), *r.Coverage)
	}
	if r.ECE != nil {
		fmt.Fprintf(&b, "- **ECE** over the bins that the %d sites with means of bins have in "+
			"common: %.3f\n", told, *r.ECE)
	}
	if len(r.Curve) > 0 {
		b.WriteString("\n| confidence | images | mean | right |\n| --- | ---: | ---: | ---: |\n")
	}
	for _, c := range r.Curve {
		if c.N >= tally.MinLeast || c.N > 0 && c.Confidence != nil { // noise alone may make fewer
			fmt.Fprintf(&b, "| %.2f–%.2f | %d | %s | %.3f |\n", float64(c.From)/tally.Bins,
				float64(c.To)/tally.Bins, c.N, number(c.Confidence, "%.3f"),
				// Noise may put the right ones below 0 or above all; a share is held to 0 to 1.
				min(max(float64(c.Right)/float64(c.N), 0), 1))
		}
	}
	if len(r.ByClass) > 0 {
		b.WriteString("\n| class | sites that tell of it alone | images | accuracy |\n| " +
			"--- | ---: | ---: | --- |\n")
	}
	for _, c := range r.ByClass {
		name := fmt.Sprint(c.Class)
		// A list of names may be shorter than the report's classes.
		if c.Class < len(classes) {
			name = printable.Markdown(classes[c.Class])
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", name, c.Sites, c.Images, shareText(c.Share))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shareText is a share with its interval; the interval alone where the share is hidden. Values are
// shares from 0 to 1, with three decimals.
func shareText(s pooled.Share) string {
	if s.Value == nil {
		return fmt.Sprintf("%.3f–%.3f", s.Low, s.High)
	}
	return fmt.Sprintf("%.3f (%.3f–%.3f)", *s.Value, s.Low, s.High)
}

// hidden says which counts of a site are not told, or have noise. The noise is in images, and least
// is the number below which a site tells no count.
func hidden(s pooled.Site) string {
	sets := s.FewSets
	if sets == "any" {
		sets = "in some count of sets"
	}
	switch {
	case s.Sigma > 0:
		return fmt.Sprintf("noise of standard deviation %d", s.Sigma)
	case s.Few != "" && s.FewSets != "":
		return fmt.Sprintf("fewer than %d %s, fewer than %d %s", s.Least, s.Few, s.Least, sets)
	case s.Few != "" || s.FewSets != "":
		return fmt.Sprintf("fewer than %d %s", s.Least, s.Few+sets)
	}
	return fmt.Sprintf("counts below %d", s.Least)
}

// overall writes a share over sites and how much they differ. With hidden counts, I² and Q are
// lower bounds and p is an upper one. Q, I2 and p are left out where they could not be computed.
// I^2 = (Q - df)/Q is the share of the variance between sites that chance does not explain (Higgins
// and Thompson 2002).
func overall(b *strings.Builder, what string, o pooled.Overall) {
	median := "–"
	if o.Median != nil {
		median = fmt.Sprintf("%.3f", *o.Median)
	} else if m := o.MedianBounds; m != nil {
		median = fmt.Sprintf("%.3f–%.3f", m[0], m[1])
	}
	fmt.Fprintf(b, "- **%s**: %s of all images; typical site %s; median site %s", what,
		shareText(o.Pooled), shareText(o.Typical), median)
	if o.New != nil {
		fmt.Fprintf(b, "; a further site %.3f–%.3f", o.New.Low, o.New.High)
	}
	b.WriteString("\n")
	if o.Hidden > 0 {
		fmt.Fprintf(b, "- %d of %d sites hide their count: a range without a figure "+
			"before it begins with all of these at their least, and ends with all at their most\n",
			o.Hidden, o.Sites)
	}
	// The least Q goes with the greatest p, so that the words of p are the other way round.
	least, most := "", "="
	if o.Hidden > 0 {
		least, most = "at least ", "at most"
	}
	if o.DF > 0 && o.Q != nil && o.I2 != nil && o.P != nil {
		fmt.Fprintf(b, "- **do sites differ in %s?** I² %s%.0f%%, Cochran's Q %s%.1f with "+
			"%d degrees of freedom (p %s %.2g)\n", what, least, 100**o.I2, least, *o.Q,
			o.DF, most, *o.P)
	}
}
