package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fmp/models"
	"fmp/onnx/printable"
	"fmp/pipeline/conformal"
	"fmp/pipeline/evaluate"
)

// setScore is the coverage of prediction sets on all images. r must have sets and images.
func setScore(r *evaluate.Result) evaluationScore {
	q := r.Sets
	sizes := fmt.Sprintf("mean size %.2f", q.MeanSize)
	for _, k := range slices.Sorted(maps.Keys(q.MeanSizes)) {
		if k != q.Score {
			sizes += fmt.Sprintf(" (with score %s %.2f)", k, q.MeanSizes[k])
		}
	}
	return evaluationScore{fmt.Sprintf("%g%% sets", 100*q.Level),
		fmt.Sprintf("%.4f", float64(q.Held)/float64(r.Images)),
		fmt.Sprintf("share of images whose set holds their class, 95%% interval %.3f to %.3f; %s",
			q.Low, q.High, sizes)}
}

// setColumns are the columns of setRows.
var setColumns = []string{"sets hold", "images", "share", "95% interval"}

// setShare is a coverage with its interval. The cells follow the first two of [setColumns].
func setShare(images, held int, low, high float64) []string {
	return []string{fmt.Sprintf("%.3f", float64(held)/float64(images)),
		fmt.Sprintf("%.3f to %.3f", low, high)}
}

// setRows are the coverage of prediction sets on the images of each class and of each client; none
// without sets. Classes and clients without images have none. Names are as files have them: each
// form of an evaluation escapes them for itself.
func setRows(r *evaluate.Result) (rows [][]string) {
	add := func(name string, images, held int, low, high float64) {
		if images > 0 {
			rows = append(rows, append([]string{name, fmt.Sprint(images)},
				setShare(images, held, low, high)...))
		}
	}
	if r.Sets == nil {
		return nil
	}
	for _, c := range r.ByClass {
		add(c.Name, c.Images, c.Held, *c.HeldLow, *c.HeldHigh)
	}
	for _, c := range r.Sets.ByClient {
		add("client "+c.Client, c.Images, c.Held, c.Low, c.High)
	}
	return rows
}

// guarantee states for a model card the promise of a classifier's prediction sets, its assumption
// and its limits; empty for a classifier without sets. A negative threshold of a class, of too few
// points, means that the class is in every set. survived names the clients whose points may be
// false, from package conformal. Each promise is by a theorem of docs/sets.md, and the text states
// no more than it proves.
func guarantee(r *evaluate.Result) string {
	q := r.Origin.Sets
	if q == nil {
		return ""
	}
	var b strings.Builder
	// Three theorems give three promises: points of one owner, of clients that differ, and of
	// clients some of which send false points.
	survived := printable.Markdown(conformal.Survived(q))
	points := fmt.Sprintf("%d calibration images of %s", q.Images, printable.Markdown(q.From))
	if q.Clients > 0 {
		points = fmt.Sprintf("%d calibration points of %s, single images that took no part in "+
			"the classifier", q.Images, printable.Markdown(q.From))
	}
	by := "split conformal prediction"
	switch {
	case survived != "":
		by += " that bounds what each client's points change"
	case q.Clients > 1:
		by += " for clients that differ, by Hoeffding's bound"
	}
	fmt.Fprintf(&b, "\n## Guarantee of the sets\n\n- **Promise**: the set of %s holds its class "+
		"with a probability of at least %g, over the draw of calibration points and image (%s), "+
		"from %s. Sets of another level are had by the input level.\n", promised(r, survived != ""),
		q.Level, by, points)
	fmt.Fprintf(&b, "- **Assumption**: %s.\n", assumed(q, survived))
	voids := "another camera or light, "
	if !q.ByClass {
		voids += "other shares of the classes, "
	}
	voids += "images of none of the classes"
	switch {
	case survived != "":
		voids = "a client that took no part, " + voids + ", and false points of more " +
			"clients than that"
	case q.Clients > 0:
		voids = "a client that took no part, " + voids + ", and clients that send false points"
	}
	fmt.Fprintf(&b, "- **Voids it**: %s.\n", voids)
	if len(q.LeftOut) > 0 {
		fmt.Fprintf(&b, "- **Left out**, as their points contradict the others': %s. Nothing is "+
			"promised for their images.\n", printable.Markdown(strings.Join(q.LeftOut, ", ")))
	}
	var always []string
	for c, t := range q.Thresholds {
		if t < 0 && c < len(r.Classes) && q.ByClass {
			always = append(always, printable.Markdown(r.Classes[c]))
		}
	}
	if len(always) > 0 {
		fmt.Fprintf(&b, "- In every set, as their calibration points are too few for "+
			"the level: %s.\n", strings.Join(always, ", "))
	}
	of := "Single classes and clients may be held less often."
	if q.ByClass {
		of = "A single client's images may be held less often."
	}
	b.WriteString("- The level is held on average over calibrations: this one may hold somewhat " +
		"less or more. " + of + "\n")
	return b.String()
}

// promised says for which images a card promises that sets hold their class. It stands behind the
// words "the set of", and so begins with an article.
func promised(r *evaluate.Result, survives bool) string {
	q := r.Origin.Sets
	image := "a new image"
	switch {
	case survives:
		image += " of the honest ones of these clients"
	case q.Clients > 0:
		image += " of these clients"
	}
	switch {
	case q.ByClass:
		image += " of any class"
	case q.Proportions != nil:
		var of []string
		for c, v := range q.Proportions {
			if v > 0 && c < len(r.Classes) {
				of = append(of, fmt.Sprintf("%s %.3g", printable.Markdown(r.Classes[c]), v))
			}
		}
		image += " whose class has the shares " + strings.Join(of, ", ")
	}
	if len(q.Groups) > 0 {
		image += fmt.Sprintf(", in each group of clients (%s),",
			printable.Markdown(strings.Join(q.Groups, ", ")))
	}
	return image
}

// assumed is the assumption of the theorem (docs/sets.md) that a promise is by.
func assumed(q *models.OriginSets, survived string) string {
	client, of := "the client", ""
	if len(q.Groups) > 0 {
		client, of = "the client of a group", " of a group"
	}
	switch {
	case survived != "":
		return fmt.Sprintf("the points of %s may be false, whatever they are. The "+
			"honest clients%s draw their points and new images alike, or differ so little that "+
			"none of them is above its bound (docs/sets.md), and none of them is left "+
			"out", survived, of)
	case q.Clients > 0:
		return fmt.Sprintf("each client's new images are drawn as its points were, and %s in "+
			"proportion to its points; clients may differ in any way", client)
	}
	return "new images are drawn as those were"
}
