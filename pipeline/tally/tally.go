// Package tally is cross-site evaluation: each site scores a classifier on its own labelled images
// and sends signed counts, and a server pools them. Counts below a bound are in no report, and
// cannot be had from a report by subtraction: classes and bins of confidence are merged until every
// count, and every difference of two that are nested, reaches the bound.
//
// It links nothing of the server, as it is part of the program for small devices.
package tally

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	// Bins is the number of equal bins of confidence (Guo et al. 2017) before any are merged.
	Bins = 15
)

// Least, MinLeast and MaxLeast are the default of the bound on counts, and its own bounds.
const (
	Least    = 10
	MinLeast = 2
	MaxLeast = 1000
)

// Images is the scores of a site's images, by which a report is made. The zero value with C and
// Level is ready for use.
type Images struct {
	// C is the number of classes, and Level that of the prediction sets; 0 where the classifier has
	// none.
	C     int
	Level float64
	// by class: whether the most probable class is right (2), and whether the set holds the class
	// (1)
	cells [][4]int
	sizes []int // of the sets, by class
	bins  [Bins][2]int
	sums  [Bins]float64 // of confidences
}

// Add adds an image of a class: the class that is most probable, with its probability, and the
// prediction set, nil where there is none.
// A confidence may pass 1 by rounding. After an error nothing is added.
func (m *Images) Add(class, top int, confidence float64, set []bool) error {
	if class < 0 || class >= m.C || top < 0 || top >= m.C ||
		!(confidence >= 0 && confidence <= 1.0001) {
		return fmt.Errorf(
			"an image of class %d, taken for class %d with probability %v; there are %d classes",
			class, top,
			confidence, m.C)
	}
	if m.cells == nil {
		m.cells, m.sizes = make([][4]int, m.C), make([]int, m.C)
	}
	cell, right := 0, 0
	if top == class {
		cell, right = 2, 1
	}
	if set != nil && set[class] {
		cell++
	}
	for _, in := range set {
		if in {
			m.sizes[class]++
		}
	}
	m.cells[class][cell]++
	b := min(int(confidence*Bins), Bins-1)
	m.bins[b][right]++
	m.sums[b] += min(confidence, 1)
	return nil
}

// Group is the counts of the images of some classes.
type Group struct {
	Classes []int `json:"classes"`
	N       int   `json:"n"`
	// Right is the number of images whose most probable class is theirs, and Held that of images
	// whose prediction set holds it; absent where they are hidden.
	Right *int `json:"right,omitempty"`
	Held  *int `json:"held,omitempty"`
	// Size is the mean size of the sets, to steps of the bound over N; absent where Held is.
	Size *float64 `json:"mean_set_size,omitempty"`
}

// Bin is the counts of the images whose confidence is in [From, To)/15, the last bin with 1.
type Bin struct {
	From  int `json:"from"`
	To    int `json:"to"`
	N     int `json:"n"`
	Right int `json:"right"`
	// Confidence is the mean confidence, rounded to thousandths; absent in a report with noise.
	Confidence *float64 `json:"confidence,omitempty"`
}

// count is the three numbers of a group that conditions are on.
type count struct{ n, right, held, size int }

// of returns the counts of a class. Cells are 0 to 3: right images have the second bit, and held
// ones the first.
func (m *Images) of(class int) count {
	c := m.cells[class]
	return count{c[0] + c[1] + c[2] + c[3], c[2] + c[3], c[1] + c[3], m.sizes[class]}
}

// plus adds the counts of other images.
func (a count) plus(b count) count {
	return count{a.n + b.n, a.right + b.right, a.held + b.held, a.size + b.size}
}

// The numbers of a group that a report has.
const (
	onlyN    = iota // the number of images
	andRight        // and of those that are right
	andHeld         // and of those whose set holds the class
)

// fits reports whether no number, and no difference of two that are nested, is below the bound.
// Right images are, but for empty sets, among the held: their difference is the number that is
// wrong and held. Of n images r are right and h held. With sets it asks that n, r, n - r, h, n - h
// and |h - r| reach the bound.
func (a count) fits(tells, least int) bool {
	ok := a.n >= least
	if tells >= andRight {
		ok = ok && a.right >= least && a.n-a.right >= least
	}
	if tells >= andHeld {
		between := a.held - a.right
		ok = ok && a.held >= least && a.n-a.held >= least && max(between, -between) >= least
	}
	return ok
}

// few says which number of sets is below the bound, of images whose right ones are told or not. It
// is "any" where a word would tell more than that. Where as many are wrong as the bound, none that
// is wrong is held unless few are missed; beside hidden right ones, "wrong and held" bounds these.
func (a count) few(told bool, least int) string {
	switch {
	case told && a.n-a.right <= least:
		return "any"
	case a.n-a.held < least:
		return "missed"
	case a.held < least:
		return "held"
	case told:
		return "wrong and held"
	}
	return "any"
}

// meanSize returns the mean size of sets, with their sum to steps of the bound: the exact sum would
// tell how many sets are not the smallest. Steps begin at the least sum that the told numbers give,
// and the last ends at the most, so that none is narrower.
// With n images, h held and r right, the least sum is n + h - r, of sets that hold the most
// probable class. The value is the middle of the step.
func (a count) meanSize(classes, least int) float64 {
	lowest := a.n + a.held - a.right
	steps := (a.n*(classes-2) + a.right) / least
	at := min(max(a.size-lowest, 0)/least, steps-1)
	return math.Round(100*(float64(lowest)+(float64(at)+0.5)*float64(least))/float64(a.n)) / 100
}

// ErrFew means that there are too few images for any count.
var ErrFew = errors.New("too few images")

// Report returns the counts that may be told with a bound: those of fewer images are merged with
// others, or left out. It tells of images, right ones and sets as far as all images together allow,
// and of the same in every group.
// It tells the most that all images together allow: first sets, then right images, then numbers of
// images alone. It costs O(classes).
func (m *Images) Report(least int) (*Report, error) {
	var all count
	for c := range m.cells {
		all = all.plus(m.of(c))
	}
	// of as many as the bound, that the right ones are few means that there are none
	if all.n <= least {
		return nil, fmt.Errorf("%w: %d; want more than the bound of %d on counts",
			ErrFew, all.n, least)
	}
	r := &Report{Format: Format, Classes: m.C, Level: m.Level, Least: least}
	tells := andHeld
	for tells > onlyN && (!all.fits(tells, least) || tells == andHeld && m.Level == 0) {
		tells--
	}
	if tells == onlyN {
		r.Few = "right"
		if all.n-all.right < least {
			r.Few = "wrong"
		}
	}
	if tells < andHeld && m.Level > 0 {
		r.FewSets = all.few(tells == andRight, least)
	}
	r.Groups = m.groups(tells, least)
	if tells > onlyN {
		r.Bins = m.merged(least)
	}
	return r, nil
}

// part is classes that are merged.
type part struct {
	classes []int
	of      count
}

// with merges two parts. It may write into the memory of p's classes.
func (p part) with(q part) part { return part{append(p.classes, q.classes...), p.of.plus(q.of)} }

// groups merges each class that does not fit alone, also one without images, with those that follow
// until they fit together, and the last with those before. No count chooses which: beside the
// smallest of the others, say, whose number is below all that are told, the rest of a sum may be
// known.
func (m *Images) groups(tells, least int) (out []Group) {
	var parts []part
	var open part
	for c := range m.cells {
		open = open.with(part{[]int{c}, m.of(c)})
		if open.of.fits(tells, least) {
			parts, open = append(parts, open), part{}
		}
	}
	parts = append(parts, open)
	for last := len(parts) - 1; last > 0 && !parts[last].of.fits(tells, least); last-- {
		parts = append(parts[:last-1], parts[last-1].with(parts[last]))
	}
	for _, p := range parts {
		g := Group{Classes: p.classes, N: p.of.n}
		if tells >= andRight {
			g.Right = &p.of.right
		}
		if tells >= andHeld {
			size := p.of.meanSize(m.C, least)
			g.Held, g.Size = &p.of.held, &size
		}
		out = append(out, g)
	}
	return out
}

// merged merges neighbouring bins, from the highest confidence downwards, until both counts of each
// reach the bound.
func (m *Images) merged(least int) (out []Bin) {
	var wrong, right int
	var sum float64
	to := Bins
	for b := Bins - 1; b >= 0; b-- {
		wrong, right, sum = wrong+m.bins[b][0], right+m.bins[b][1], sum+m.sums[b]
		if wrong >= least && right >= least {
			out = append(out, bin(b, to, wrong, right, sum))
			wrong, right, sum, to = 0, 0, 0, b
		}
	}
	if last := len(out) - 1; to > 0 { // what is left is merged with the bin above
		above := out[last]
		n := above.N + wrong + right
		sum += *above.Confidence * float64(above.N)
		out[last] = bin(0, above.To, n-above.Right-right, above.Right+right, sum)
	}
	slices.Reverse(out)
	return out
}

// bin returns a bin with its mean confidence to thousandths. It is of one image at least.
func bin(from, to, wrong, right int, sum float64) Bin {
	mean := math.Round(1000*sum/float64(wrong+right)) / 1000
	return Bin{From: from, To: to, N: wrong + right, Right: right, Confidence: &mean}
}
