package tally

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes a report for people: all that would leave. Its owner reads it before it is sent.
// Hidden numbers are dashes: they are absent, and not 0. A report with noise has no bound, and
// one with a bound has no noise, so that one of the two is printed.
func (r *Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "site:        %s\nclassifier:  %s\n", r.Site, r.Classifier)
	if r.Sigma > 0 {
		fmt.Fprintf(w,
			"noise:       standard deviation %d on every count: epsilon %v, delta %v for each "+
				"image\n", r.Sigma, r.Epsilon, r.Delta)
	} else {
		fmt.Fprintf(w, "least count: %d\n", r.Least)
	}
	if r.Few != "" {
		fmt.Fprintf(w, "hidden:      fewer than %d images are %s\n", r.Least, r.Few)
	}
	switch r.FewSets {
	case "":
	case "any":
		fmt.Fprintf(w, "hidden:      counts of sets, of which one is or may be below %d\n", r.Least)
	default:
		fmt.Fprintf(w, "hidden:      fewer than %d images are %s, by their sets\n",
			r.Least, r.FewSets)
	}
	fmt.Fprintln(w, "classes\timages\tright\tin the set\tmean size")
	number := func(n *int) string {
		if n == nil {
			return "–"
		}
		return strconv.Itoa(*n)
	}
	for _, g := range r.Groups {
		size := "–"
		if g.Size != nil {
			size = strconv.FormatFloat(*g.Size, 'f', 2, 64)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", r.classes(g.Classes), g.N, number(g.Right),
			number(g.Held), size)
	}
	if len(r.Bins) > 0 {
		fmt.Fprintln(w, "confidence\timages\tright\tmean")
	}
	for _, b := range r.Bins {
		mean := "–"
		if b.Confidence != nil {
			mean = strconv.FormatFloat(*b.Confidence, 'f', 3, 64)
		}
		fmt.Fprintf(w, "%.2f–%.2f\t%d\t%d\t%s\n", float64(b.From)/Bins, float64(b.To)/Bins,
			b.N, b.Right, mean)
	}
	return w.Flush()
}

// shown is the number of classes of a group that are named.
const shown = 6

// classes returns the names of a group's classes, or their numbers where the report has no names.
// Six are named, and the others counted.
func (r *Report) classes(of []int) string {
	var names []string
	for _, c := range of[:min(len(of), shown)] {
		if c < len(r.Names) {
			names = append(names, r.Names[c])
		} else {
			names = append(names, strconv.Itoa(c))
		}
	}
	if more := len(of) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
