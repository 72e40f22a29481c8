package conformal

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"fmp/models"
	"fmp/onnx/sorting"
)

// Design says how calibration points were drawn, and for which images sets are.
type Design struct {
	// Clients says that several clients sent the points, which may differ from each other in any
	// way; otherwise all points are drawn alike.
	Clients bool
	// ByClass gives every class a threshold of its own, by its own points: the level holds for the
	// images of each class, with any shares of the classes (Vovk 2012, "Conditional validity of
	// inductive conformal predictors", proposition 3).
	ByClass bool
	// Proportions are the shares of the classes among new images, which sum to 1; nil: those among
	// the points. Points weigh by them as in Tibshirani et al. (2019, "Conformal prediction under
	// covariate shift"), given the points' classes.
	Proportions []float64
	// Names are those of the classes in errors; nil: their numbers.
	Names []string
	// Group is each point's group of clients, from 0; nil: all are one. The level then holds for
	// the images of each group, as thresholds are the lowest over groups, and so with any shares of
	// the groups (Romano, Barber, Sabatti and Candès 2020, "With malice toward none", where an
	// image's group is known).
	Group []int
	// Client is each point's client, from 0, and False the number of clients of each group that may
	// send false points (see false.go); nil: none may. The level of sets by class and for named
	// shares does not survive them.
	Client []int
	False  []int
}

// Survives reports whether the level survives false points.
func (d Design) Survives() bool {
	return !d.ByClass && d.Proportions == nil &&
		slices.ContainsFunc(d.False, func(n int) bool { return n > 0 })
}

func (d Design) groupOf(point int) int {
	if d.Group == nil {
		return 0
	}
	return d.Group[point]
}

// Counts returns the number of points of each class that prove a level, for each group, given the
// points' classes. Where false points are survived they are the honest clients' at least, of all
// classes together.
func (d Design) Counts(of []int, classes int) [][]int {
	groups := 1
	if d.Group != nil {
		groups = slices.Max(d.Group) + 1
	}
	out := make([][]int, groups)
	for g := range out {
		out[g] = make([]int, classes)
	}
	for i, c := range of {
		out[d.groupOf(i)][c]++
	}
	if !d.Survives() {
		return out
	}
	points := make([][]int, groups)
	for g := range points {
		points[g] = make([]int, slices.Max(d.Client)+1)
	}
	for i, m := range d.Client {
		points[d.groupOf(i)][m]++
	}
	for g, own := range points {
		own = slices.DeleteFunc(own, func(n int) bool { return n == 0 })
		out[g] = []int{total(fewest(own, d.False[g]))}
	}
	return out
}

// held returns the level of a threshold that is the j-th largest of n scores: j/(n + 1) of points
// that all are drawn alike.
func (d Design) held(n, j int) float64 {
	if d.Clients {
		return heldByClients(n, j)
	}
	return float64(j) / float64(n+1)
}

// Highest returns the highest level that points of a group prove, by their number in each class;
// with ByClass for the class with most.
func (d Design) Highest(counts []int) float64 {
	all := total(counts)
	var most float64
	for c, n := range counts {
		switch {
		case d.ByClass && n > 0:
			most = max(most, d.held(n, n))
		case d.Proportions != nil && d.Proportions[c] > 0:
			most = max(most, d.Proportions[c]/float64(n)) // +Inf without points
		}
	}
	switch {
	case all == 0:
		return 0
	case d.ByClass:
		return most
	case d.Proportions != nil:
		return 1 / (1 + most)
	}
	return d.held(all, all)
}

// rounding is the share of a threshold that float32 may lose in a graph.
const rounding = 1e-5

// maxRows bounds the thresholds of a table: beyond, levels are taken at even distances.
const maxRows = 1000

// Table returns the thresholds by level of points with the given scores and classes, 0 to
// classes-1.
func (d Design) Table(scores []float32, of []int, classes int) *models.SetTable {
	if d.Group != nil {
		return d.lowest(scores, of, classes)
	}
	if d.Survives() {
		return table([][]rank{surviving(scores, d.Client, d.False[0], models.MinLevel)}, rounding)
	}
	order := descending(scores)
	counts := count(of, classes)
	if d.ByClass {
		columns := make([][]rank, classes)
		for _, i := range order {
			c := of[i]
			columns[c] = append(columns[c], rank{d.held(counts[c], len(columns[c])+1), scores[i]})
		}
		return table(columns, rounding)
	}
	var weight []float64
	var most float64
	for c, share := range d.Proportions {
		weight = append(weight, share/float64(max(counts[c], 1)))
		most = max(most, weight[c])
	}
	var all []rank
	var theta float64
	for j, i := range order {
		if weight == nil {
			all = append(all, rank{d.held(len(order), j+1), scores[i]})
		} else if theta += weight[of[i]]; weight[of[i]] > 0 && theta >= models.MinLevel {
			// the level is below theta
			all = append(all, rank{heldByWeights(theta, most), scores[i]})
		}
	}
	return table([][]rank{all}, rounding)
}

// lowest returns, for every level, the lowest of the groups' thresholds.
func (d Design) lowest(scores []float32, of []int, classes int) *models.SetTable {
	groups := slices.Max(d.Group) + 1
	own, class, client := make([][]float32, groups), make([][]int, groups), make([][]int, groups)
	for i, g := range d.Group {
		own[g], class[g] = append(own[g], scores[i]), append(class[g], of[i])
		if d.Client != nil {
			client[g] = append(client[g], d.Client[i])
		}
	}
	bad := d.False
	d.Group = nil
	var tables []*models.SetTable
	var columns [][]rank
	for g := range groups {
		if d.Client = client[g]; bad != nil {
			d.False = bad[g : g+1]
		}
		t := d.Table(own[g], class[g], classes)
		tables, columns = append(tables, t), make([][]rank, t.Columns)
	}
	for _, t := range tables {
		for i, level := range t.Levels {
			columns[i%t.Columns] = append(columns[i%t.Columns],
				rank{float64(level), models.NoThreshold})
		}
	}
	for c, ranks := range columns {
		sorting.By(ranks, func(a, b rank) int { return cmp.Compare(a.level, b.level) })
		ranks = slices.CompactFunc(ranks, func(a, b rank) bool { return a.level == b.level })
		for i := range ranks {
			least := float32(math.Inf(1))
			for _, t := range tables {
				least = min(least, t.At(ranks[i].level)[c])
			}
			ranks[i].score = least
		}
		// Beyond the highest level of a group there is none.
		columns[c] = slices.DeleteFunc(ranks,
			func(r rank) bool { return r.score == models.NoThreshold })
	}
	return table(columns, 0)
}

// count returns the number of points of each class.
func count(of []int, classes int) []int {
	counts := make([]int, classes)
	for _, c := range of {
		counts[c]++
	}
	return counts
}

// rank is a score and the level of sets whose threshold it is.
type rank struct {
	level float64
	score float32
}

// table writes columns of ranks, of ascending levels, side by side, with thresholds below the
// scores by the rounding of float32: a share of them, and a tenth of it at least.
func table(columns [][]rank, rounding float32) *models.SetTable {
	t := &models.SetTable{Columns: len(columns)}
	rows := 0
	for c, ranks := range columns {
		// Levels below the least that is taken are not asked for, but for the last of them.
		first, _ := slices.BinarySearchFunc(ranks, models.MinLevel,
			func(r rank, level float64) int { return cmp.Compare(r.level, level) })
		ranks = ranks[min(first, max(len(ranks)-1, 0)):]
		if n := len(ranks); n > maxRows {
			// The last rank of each of maxRows equal parts: the highest level stays. Of the levels
			// between, a set has the next higher one's threshold, which holds for them too.
			thin := make([]rank, maxRows)
			for i := range thin {
				thin[i] = ranks[(i+1)*n/maxRows-1]
			}
			ranks = thin
		}
		columns[c], rows = ranks, max(rows, len(ranks))
	}
	for i := range rows {
		for _, ranks := range columns {
			level, score := models.NoLevel, models.NoThreshold
			if i < len(ranks) {
				// The graph computes in float32: room for its rounding keeps the point itself in
				// its set.
				level, score = float32(ranks[i].level),
					ranks[i].score-rounding*(0.1+max(ranks[i].score, 0))
			}
			t.Levels, t.Thresholds = append(t.Levels, level), append(t.Thresholds, score)
		}
	}
	return t
}

// Enough returns an error where points of a group, by their number in each class, prove no sets of
// a level.
func (d Design) Enough(counts []int, level float64) error {
	if err := CheckLevel(level); err != nil {
		return err
	}
	all := total(counts)
	switch {
	case float32(d.Highest(counts)) >= float32(level): // as tables compare
		return nil
	case d.ByClass:
		return fmt.Errorf("conformal: level %v by class wants at least %d calibration points of a "+
			"class, and there are %d in all: give more, or a lower level", level,
			d.least(level), all)
	case d.Proportions != nil:
		return d.lacks(counts, level)
	}
	return fmt.Errorf("conformal: level %v wants at least %d calibration points, and there are "+
		"%d: give more, or a lower level", level, d.least(level), all)
}

// lacks returns an error that names the class whose points prove the lowest level for its share.
func (d Design) lacks(counts []int, level float64) error {
	worst, most := 0, 0.
	for c, share := range d.Proportions {
		if w := share / float64(counts[c]); w > most { // not of a class without share and points
			worst, most = c, w
		}
	}
	name := strconv.Itoa(worst)
	if worst < len(d.Names) {
		name = d.Names[worst]
	}
	const rounding = 1e-9 // of shares that were divided by their sum
	return fmt.Errorf("conformal: level %v for the given shares of classes wants at least %.0f "+
		"calibration points of class %s, and there are %d: give more, or a lower level", level,
		math.Ceil(d.Proportions[worst]*level/(1-level)-rounding), name, counts[worst])
}

// least returns the least number of points for a level.
func (d Design) least(level float64) int {
	if d.Clients {
		return ImagesOfClients(level)
	}
	return Images(level)
}
