package point

// Group returns a set of about most points at most (but at least one per class) that represents the
// union of sets: nearby points of one class (the most probable label) are replaced by their mean,
// with their mass. Masses and means, of features and of labels, are preserved per class and in
// total; the spread within a group is lost. Sets of at most that many points together are pooled
// unchanged.
//
// Groups are made by halving: the points are split repeatedly at the mean of the feature with the
// largest variance, until a class has its share of the groups. This takes time proportional to N Dx
// log(most) and little memory beyond the sets'. The result is deterministic.
// A class's share is by its number of points, and not by mass. Points of weight 0 are left out
// where groups are made. Sets are not changed.
func Group(most int, sets ...*Set) (*Set, error) {
	n := 0
	for _, s := range sets {
		n += s.N
	}
	if n <= most {
		return Pool(sets...)
	}
	if err := alike(sets); err != nil {
		return nil, err
	}
	dx, c := sets[0].Dx, sets[0].C
	classes := make([][]weighted, c)
	for _, s := range sets {
		for i, w := range s.W {
			if w > 0 {
				y := top(s.Row(i)[dx:])
				classes[y] = append(classes[y], weighted{s.Row(i), w})
			}
		}
	}
	g := &grouping{to: &Set{Dx: dx, C: c}, sum: make([]float64, dx+c), square: make([]float64, dx)}
	for _, rows := range classes {
		if len(rows) > 0 {
			g.split(rows, max(1, int(float64(most)*float64(len(rows))/float64(n))))
		}
	}
	return g.to, nil
}

// weighted is one point of a set.
type weighted struct {
	row []float32
	w   float32
}

// grouping collects the groups in to, one point each.
type grouping struct {
	to          *Set
	sum, square []float64 // of a group's rows by weight: buffers
}

// split divides points, which it reorders, into groups.
// A group's point is the mean by weight of its rows, features and label. The variance is E x^2 - (E
// x)^2 in float64, by feature; labels are never split at. Both halves take a group at least, so
// that the recursion is at most as deep as there are groups.
func (g *grouping) split(at []weighted, groups int) {
	clear(g.sum)
	clear(g.square)
	var mass float64
	for _, p := range at {
		w := float64(p.w)
		mass += w
		for j, v := range p.row {
			g.sum[j] += w * float64(v)
			if j < len(g.square) {
				g.square[j] += w * float64(v) * float64(v)
			}
		}
	}
	widest, most := 0, 0.0
	for j, v := range g.square {
		if spread := v - g.sum[j]*g.sum[j]/mass; spread > most {
			widest, most = j, spread
		}
	}
	mean := g.sum[widest] / mass
	below := 0
	if groups > 1 && most > 0 {
		for k, p := range at {
			if float64(p.row[widest]) < mean {
				at[below], at[k] = p, at[below]
				below++
			}
		}
	}
	if below == 0 || below == len(at) { // one group is left, or all points are equal
		for _, v := range g.sum {
			g.to.Z = append(g.to.Z, float32(v/mass))
		}
		g.to.W = append(g.to.W, float32(mass))
		g.to.N++
		return
	}
	left := min(max(1, int(float64(groups)*float64(below)/float64(len(at))+0.5)), groups-1)
	g.split(at[:below], left)
	g.split(at[below:], groups-left)
}
