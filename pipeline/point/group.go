package point

// Group returns a set of about most points at most (one a class at least) that stands for the union of sets: points of one class, by
// most probable label, that are near each other become their mean, with their mass. Masses and means, of features and of
// labels, of every class and of the whole are kept; spread within a group is lost. Sets of no more points than that
// together are pooled as they are.
//
// Groups are made by halving: again and again the points on both sides of the mean of the feature that varies most, until
// a class has its share of the groups. That takes time in proportion to N Dx log(most) and little memory beside the sets', and the
// same sets give the same groups.
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

type grouping struct {
	to          *Set
	sum, square []float64 // of a group's rows by weight: buffers
}

// split makes groups of points, which it reorders.
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
	if below == 0 || below == len(at) { // one group is asked for, or all points are alike
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
