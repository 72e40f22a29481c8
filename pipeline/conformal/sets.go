package conformal

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fmp/models"
)

// Sets returns the calibration of prediction sets of a level by the points. It is an error where
// they prove none.
// x and d stay as they are. All scores are stored and not score alone, so that another may take
// its place later ([Thresholds]).
func (x *Points) Sets(d Design, level float64, score Score,
	classes int) (*models.OriginSets, error) {
	for _, counts := range d.Counts(x.Class, classes) {
		if err := d.Enough(counts, level); err != nil {
			return nil, err
		}
	}
	x, d = x.anonymous(d)
	t := d.Table(x.True[score], x.Class, classes)
	sets := &models.OriginSets{
		Level: level, Score: string(score), Thresholds: t.At(level), Table: t, ByClass: d.ByClass,
		Proportions: d.Proportions, Group: d.Group,
		Client: d.Client, False: d.False, Images: len(x.Class), Class: x.Class,
		Scores: map[string][]float32{}, Top: x.Top, Right: x.Right,
	}
	for s, v := range x.True {
		sets.Scores[string(s)] = v
	}
	return sets, nil
}

// anonymous returns the points in the order of their scores, client by client, and clients in that
// of their points. The numbers and places of a classifier's points then do not name their senders.
// Sorting by values leaves nothing of the order in which uploads came.
func (x *Points) anonymous(d Design) (*Points, Design) {
	own := map[int][]int{}
	for i := range x.Class {
		m := 0
		if d.Client != nil {
			m = d.Client[i]
		}
		own[m] = append(own[m], i)
	}
	compare := func(a, b int) int {
		return cmp.Or(cmp.Compare(d.groupOf(a), d.groupOf(b)),
			cmp.Compare(x.True[Probability][a], x.True[Probability][b]),
			cmp.Compare(x.Top[a], x.Top[b]), cmp.Compare(x.True[Adaptive][a], x.True[Adaptive][b]),
			cmp.Compare(x.Class[a], x.Class[b]))
	}
	var clients [][]int
	for _, points := range own {
		slices.SortFunc(points, compare)
		clients = append(clients, points)
	}
	slices.SortFunc(clients, func(a, b []int) int { return slices.CompareFunc(a, b, compare) })
	x, d = x.of(d, slices.Concat(clients...))
	// Clients get their numbers anew, by their place in the order.
	if d.Client != nil {
		d.Client = nil
		for m, points := range clients {
			d.Client = append(d.Client, slices.Repeat([]int{m}, len(points))...)
		}
	}
	return x, d
}

// Size returns the number of classes in the set of an image, at the thresholds of a
// [models.SetTable] for the score. Scores are of the probabilities scored, and the most probable
// class is that of stated: the two differ where the classifier has a [models.Scaling].
// thresholds have one number for all classes or one for each. It costs O(classes), and for
// Adaptive a sort.
func (s Score) Size(scored, stated, thresholds []float32) int {
	n, top := 0, slices.Max(stated)
	for c, v := range s.Compute(scored) {
		// the most probable class always is
		if v >= thresholds[min(c, len(thresholds)-1)] || stated[c] == top {
			n++
		}
	}
	return n
}

// FromOrigin returns the design of the calibration of sets.
// Slices are shared with the origin, which the caller must not change meanwhile.
func FromOrigin(o *models.OriginSets) Design {
	return Design{Clients: o.Clients > 1, ByClass: o.ByClass, Proportions: o.Proportions,
		Group: o.Group, Client: o.Client, False: o.False}
}

// Survived returns in words how many clients, of which group, may send false points without that
// the level falls; nothing where none may.
// The text names groups, and never clients.
func Survived(o *models.OriginSets) string {
	if !FromOrigin(o).Survives() {
		return ""
	}
	var out []string
	for g, n := range o.False {
		switch {
		case n == 0:
		case g < len(o.Groups):
			out = append(out, fmt.Sprintf("%d of the clients of %s", n, o.Groups[g]))
		default:
			out = append(out, fmt.Sprintf("%d of the clients", n))
		}
	}
	return strings.Join(out, " and ")
}

// numbers reports whether there are none, or one of each of n images, from 0 and fewer than these.
// nil stands for a field that the file leaves out.
func numbers(of []int, n int) bool {
	return of == nil || len(of) == n &&
		!slices.ContainsFunc(of, func(v int) bool { return v < 0 || v >= n })
}

// Thresholds returns those of a classifier's sets under any score, at their level; nil where its
// calibration does not tell. The calibration comes from a file, so that lengths and numbers are
// checked before any of them is an index.
// No slice of the origin is changed.
func Thresholds(o *models.OriginSets, s Score, classes int) []float32 {
	class := o.Class
	if class == nil && !o.ByClass && o.Proportions == nil {
		class = make([]int, len(o.Scores[string(s)])) // they matter not
	}
	n := len(class)
	if len(o.Scores[string(s)]) != n || n == 0 || o.Proportions != nil &&
		len(o.Proportions) != classes || !numbers(o.Group, n) || !numbers(o.Client, n) ||
		o.False != nil && (o.Client == nil ||
			slices.Min(o.False) < 0 ||
			len(o.False) <= slices.Max(slices.Concat(o.Group, []int{0}))) {
		return nil
	}
	for _, c := range class {
		if c < 0 || c >= classes {
			return nil
		}
	}
	return FromOrigin(o).Table(o.Scores[string(s)], class, classes).At(o.Level)
}

// Groups reads groups of clients, NAME=CLIENT,CLIENT separated by semicolons, and returns their
// names and the number of each client's. A client is in one group at most.
// Neither name is trimmed: a space belongs to it.
func Groups(text string) (names []string, of map[string]int, err error) {
	of = map[string]int{}
	// Groups have numbers in the order in which they are named.
	for part := range strings.SplitSeq(text, ";") {
		name, clients, ok := strings.Cut(part, "=")
		if !ok || name == "" || clients == "" || slices.Contains(names, name) {
			return nil, nil, fmt.Errorf("conformal: groups of clients: %q is not "+
				"NAME=CLIENT,CLIENT, with each name once", part)
		}
		for c := range strings.SplitSeq(clients, ",") {
			if _, twice := of[c]; twice || c == "" {
				return nil, nil, fmt.Errorf("conformal: groups of clients: client %q is empty, "+
					"or in two groups", c)
			}
			of[c] = len(names)
		}
		names = append(names, name)
	}
	return names, of, nil
}

// Shares reads the shares of classes among new images: "equal", or NAME=SHARE for each class that
// there is, separated by commas, by its name or, where classes have no names, its number. They are
// divided by their sum. The number of a class that has a name is no name. Names may hold "=", as
// the last one in a part divides it. Classes that no part names have the share 0.
// The result has one share a class, of sum 1, in the order of the classes' numbers.
func Shares(text string, names []string, classes int) ([]float64, error) {
	out := make([]float64, classes)
	if text == "equal" {
		for c := range out {
			out[c] = 1 / float64(classes)
		}
		return out, nil
	}
	// Names come after numbers: a class called 3 is not the class of number 3.
	number := map[string]int{}
	for c := range classes {
		if number[strconv.Itoa(c)] = c; c < len(names) {
			delete(number, strconv.Itoa(c))
		}
	}
	for c, n := range names {
		number[n] = c
	}
	var sum float64
	for part := range strings.SplitSeq(text, ",") {
		at := strings.LastIndex(part, "=")
		share, err := strconv.ParseFloat(part[at+1:], 64)
		c, known := number[part[:max(at, 0)]]
		switch {
		// A share of 0 is written by leaving the class out, so that a typing error does not pass
		// for one.
		case at < 0 || err != nil || !(share > 0) || math.IsInf(share, 0):
			return nil, fmt.Errorf("conformal: shares of classes: %q is not NAME=SHARE with a "+
				"share above 0", part)
		case !known:
			return nil, fmt.Errorf("conformal: shares of classes: %q is none of the classes %s",
				part[:at], strings.Join(names, ", "))
		case out[c] > 0:
			return nil, fmt.Errorf("conformal: shares of classes: %q is given twice", part[:at])
		}
		out[c], sum = share, sum+share
	}
	// Finite shares may have an infinite sum, by which all would become 0.
	if math.IsInf(sum, 0) {
		return nil, fmt.Errorf("conformal: shares of classes: the sum of %s is infinite", text)
	}
	for c := range out {
		out[c] /= sum
	}
	return out, nil
}
