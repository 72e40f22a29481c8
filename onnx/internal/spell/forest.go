package spell

import (
	"fmt"
	"math"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Bounds of an ensemble of trees. A table of a row a node has at most a number of elements, and a
// number more for each number that the node's own lists hold.
const (
	// A level of the deepest tree costs some nodes of the graph, and boosted trees have tens of
	// levels.
	maxTreeDepth = 1000
	leastTable   = 1 << 22
	perNumber    = 1 << 7
)

// room checks a table of the node against the length of its lists. The product of both is compared
// by division, which cannot overflow. A file can thus ask for memory in proportion to its own size
// alone, and for 2^22 elements besides.
func (s *speller) room(rows, columns int) error {
	most := leastTable
	for _, a := range s.node.Attrs {
		n := len(a.Ints) + len(a.Floats) + len(a.Strs)
		if a.Tensor != nil {
			n += a.Tensor.Len()
		}
		most += perNumber * n
	}
	if rows < 1 || columns < 1 || columns > most/rows {
		return fmt.Errorf("a table of %d by %d; at least one of each, and at most %d of their product, "+
			"are supported for lists of such lengths", rows, columns, most)
	}
	return nil
}

// A node's branch, as TreeEnsemble numbers them: to its first child where the comparison with the
// split holds.
const (
	branchLeq = iota
	branchLt
	branchGte
	branchGt
	branchEq
	branchNeq
	branchMember // the value is one of a list
	leaf
)

// branchNames are the modes of the older operators, which have no branch by membership.
var branchNames = map[string]int{"BRANCH_LEQ": branchLeq, "BRANCH_LT": branchLt,
	"BRANCH_GTE": branchGte, "BRANCH_GT": branchGt, "BRANCH_EQ": branchEq,
	"BRANCH_NEQ": branchNeq, "LEAF": leaf}

// comparisons are the operators of the first branches.
var comparisons = []string{"LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal"}

// forest is an ensemble of decision trees in tables of one row a node. The children of a leaf are
// itself, so that all rows walk as many steps as the deepest tree has.
type forest struct {
	roots, feature, yes, no, mode []int64
	split                         []float64
	missing                       []bool // NaN goes to the first child
	members                       map[int][]float64
	// [nodes, targets]; none where a leaf says nothing of a target
	weight    []float64
	none      float64
	targets   int
	aggregate string
	depth     int
}

// newForest makes nodes that are all leaves, with the neutral number of the aggregate as weights.
func (s *speller) newForest(nodes, targets int, aggregate string) *forest {
	if err := s.room(nodes, targets); err != nil {
		try.Fail("its nodes and targets: %w", err)
	}
	f := &forest{targets: targets, aggregate: aggregate, weight: make([]float64, nodes*targets),
		members: map[int][]float64{}}
	switch aggregate {
	case "MIN":
		f.none = math.Inf(1)
	case "MAX":
		f.none = math.Inf(-1)
	}
	for i := range f.weight {
		f.weight[i] = f.none
	}
	for _, v := range []*[]int64{&f.feature, &f.yes, &f.no, &f.mode} {
		*v = make([]int64, nodes)
	}
	f.split, f.missing = make([]float64, nodes), make([]bool, nodes)
	for i := range f.mode {
		f.mode[i], f.yes[i], f.no[i] = leaf, int64(i), int64(i)
	}
	return f
}

// weigh gives a leaf's weight to a target. Weights of one leaf for one target add up; of MIN and
// MAX the last one counts.
func (f *forest) weigh(node, target int, w float64) {
	if target < 0 || target >= f.targets {
		try.Fail("a leaf weighs target %d of %d", target, f.targets)
	}
	at := &f.weight[node*f.targets+target]
	if f.none != 0 || math.IsInf(*at, 0) {
		*at = w
	} else {
		*at += w
	}
}

// measure finds the depth; a branch that two others lead to, or none, is an error. A branch is
// visited once, so that it takes O(nodes) however the file links them. depth is the number of steps
// from a root to the deepest leaf; of trees that are leaves alone it is 0.
func (f *forest) measure() {
	seen := make([]bool, len(f.mode))
	level := append([]int64{}, f.roots...)
	for ; len(level) > 0; f.depth++ {
		if f.depth > maxTreeDepth {
			try.Fail("a tree is deeper than %d", maxTreeDepth)
		}
		var next []int64
		for _, i := range level {
			if i < 0 || int(i) >= len(seen) || seen[i] {
				try.Fail("node %d of its trees does not exist or has two parents", i)
			}
			if f.mode[i] == leaf {
				continue
			}
			if seen[i] = true; f.feature[i] < 0 {
				try.Fail("a node reads feature %d", f.feature[i])
			}
			next = append(next, f.yes[i], f.no[i])
		}
		level = next
	}
	// The deepest leaves are a level, and no step.
	f.depth--
	for i, m := range f.mode {
		if m != leaf && !seen[i] {
			try.Fail("no root leads to node %d of its trees", i)
		}
	}
}

// flat reads the trees of TreeEnsembleRegressor and TreeEnsembleClassifier: nodes by tree and
// number. kind names the leaves' attributes, target or class. A node without a parent is a root,
// and each tree has one. Numbers of nodes need not be dense, so that rows are found by tree and
// number.
func (s *speller) flat(kind string, targets int, aggregate string) *forest {
	trees, ids := s.attrs.Ints("nodes_treeids"), s.attrs.Ints("nodes_nodeids")
	modes, features, splits := s.attrs.Strs("nodes_modes"), s.attrs.Ints("nodes_featureids"),
		s.numbers("nodes_values")
	yes, no := s.attrs.Ints("nodes_truenodeids"), s.attrs.Ints("nodes_falsenodeids")
	n := len(ids)
	for _, l := range []int{len(trees), len(modes), len(features), len(splits), len(yes), len(no)} {
		if l != n {
			try.Fail("the lists of its nodes differ in length: %d and %d", n, l)
		}
	}
	f := s.newForest(n, targets, aggregate)
	at, child := map[[2]int]int{}, make([]bool, n)
	for i := range ids {
		at[[2]int{trees[i], ids[i]}] = i
	}
	missing := s.attrs.Ints("nodes_missing_value_tracks_true")
	for i := range ids {
		mode, ok := branchNames[modes[i]]
		if !ok {
			try.Fail("a node's mode is %q, which is not known", modes[i])
		}
		if mode == leaf {
			continue
		}
		y, found := at[[2]int{trees[i], yes[i]}]
		o, also := at[[2]int{trees[i], no[i]}]
		if !found || !also {
			try.Fail("a child of node %d of tree %d does not exist", ids[i], trees[i])
		}
		child[y], child[o] = true, true
		f.mode[i], f.yes[i], f.no[i], f.feature[i], f.split[i] = int64(mode), int64(y), int64(o),
			int64(features[i]), splits[i]
		f.missing[i] = i < len(missing) && missing[i] != 0
	}
	rooted := map[int]bool{}
	for i := range ids {
		if !child[i] {
			f.roots, rooted[trees[i]] = append(f.roots, int64(i)), true
		}
	}
	// A tree without a root is a cycle, which measure finds.
	if len(f.roots) != len(rooted) {
		try.Fail("it has %d roots in %d trees", len(f.roots), len(rooted))
	}
	leaves, targetIDs := s.attrs.Ints(kind+"_nodeids"), s.attrs.Ints(kind+"_ids")
	leafTrees, weights := s.attrs.Ints(kind+"_treeids"), s.numbers(kind+"_weights")
	if len(leaves) != len(targetIDs) || len(leaves) != len(leafTrees) || len(leaves) != len(weights) {
		try.Fail("the lists of its leaves' weights differ in length")
	}
	for i, w := range weights {
		node, ok := at[[2]int{leafTrees[i], leaves[i]}]
		if !ok {
			try.Fail("a weight is of node %d of tree %d, which does not exist",
				leaves[i], leafTrees[i])
		}
		f.weigh(node, targetIDs[i], w)
	}
	f.measure()
	return f
}

// nested reads the trees of TreeEnsemble: branches first, then leaves. Leaf i is row n + i of the
// tables, behind the n branches. Lists of members belong to the branches that read one, in their
// order.
func (s *speller) nested() *forest {
	modes, splits := s.numbers("nodes_modes"), s.numbers("nodes_splits")
	features, yes, no := s.attrs.Ints("nodes_featureids"), s.attrs.Ints("nodes_truenodeids"),
		s.attrs.Ints("nodes_falsenodeids")
	yesLeaf, noLeaf := s.attrs.Ints("nodes_trueleafs"), s.attrs.Ints("nodes_falseleafs")
	n := len(modes)
	for _, l := range []int{len(splits), len(features), len(yes), len(no), len(yesLeaf), len(noLeaf)} {
		if l != n {
			try.Fail("the lists of its nodes differ in length: %d and %d", n, l)
		}
	}
	targets, weights := s.attrs.Ints("leaf_targetids"), s.numbers("leaf_weights")
	aggregate := s.attrs.Int("aggregate_function")
	if len(targets) != len(weights) || aggregate < 0 || aggregate > 3 {
		try.Fail("the lists of its leaves differ in length, or aggregate_function is %d "+
			"and not 0 to 3", aggregate)
	}
	f := s.newForest(n+len(weights), s.attrs.Int("n_targets"),
		[]string{"AVERAGE", "SUM", "MIN", "MAX"}[aggregate])
	child := func(i, isLeaf int) int64 {
		if isLeaf != 0 {
			return int64(n + i)
		}
		return int64(i)
	}
	missing, lists := s.attrs.Ints("nodes_missing_value_tracks_true"), s.memberships()
	for i := range modes {
		if modes[i] < branchLeq || modes[i] > branchMember {
			try.Fail("a node's mode is %v, which is not known", modes[i])
		}
		f.mode[i], f.feature[i], f.split[i] = int64(modes[i]), int64(features[i]), splits[i]
		f.yes[i], f.no[i] = child(yes[i], yesLeaf[i]), child(no[i], noLeaf[i])
		f.missing[i] = i < len(missing) && missing[i] != 0
		if f.mode[i] == branchMember {
			if len(lists) == 0 {
				try.Fail("it has fewer lists in membership_values than nodes that read one")
			}
			f.members[i], lists = lists[0], lists[1:]
		}
	}
	for i, w := range weights {
		f.weigh(n+i, targets[i], w)
	}
	f.roots = int64s(s.attrs.Ints("tree_roots"))
	f.measure()
	return f
}

// memberships splits membership_values at NaN. A last list without a NaN behind it is none. NaN can
// end a list, since it is a member of none.
func (s *speller) memberships() (lists [][]float64) {
	var list []float64
	for _, v := range s.numbers("membership_values") {
		if !math.IsNaN(v) {
			list = append(list, v)
			continue
		}
		lists, list = append(lists, list), nil
	}
	return lists
}

// scores lets every row of x [n, features] walk through every tree and adds the weights of the
// leaves: [n, targets]. Rows and trees walk together: depth steps of a few nodes on [n, trees]
// positions. A row that has come to a leaf stays there for the remaining steps.
func (s *speller) scores(f *forest, x string) string {
	rows := s.op("Slice", []string{s.un("Shape", x), s.ints(0), s.ints(1)})
	trees := int64(len(f.roots))
	// at [n, trees] is the node where each row stands in each tree, at first the root.
	at := s.bi("Expand", s.ints(f.roots...), s.opInt("Concat", []string{rows, s.ints(trees)}, "axis", 0))
	tables := map[string]string{"feature": s.ints(f.feature...), "yes": s.ints(f.yes...),
		"no": s.ints(f.no...), "mode": s.ints(f.mode...), "split": s.table(f.split, len(f.split)),
		"missing": s.constant(onnx.Vector(f.missing...))}
	if len(f.members) > 0 {
		members := s.memberTable(f)
		tables["members"] = members
	}
	for range f.depth {
		look := func(name string) string { return s.bi("Gather", tables[name], at) }
		v := s.opInt("GatherElements", []string{x, look("feature")}, "axis", 1)
		at = s.op("Where", []string{s.branch(f, v, look), look("yes"), look("no")})
	}
	y := s.bi("Gather", s.table(f.weight, len(f.mode), f.targets), at) // [n, trees, targets]
	switch f.aggregate {
	// A target that no leaf of a row's walk weighs gets 0.
	case "MIN", "MAX":
		y = s.reduced("Reduce"+map[string]string{"MIN": "Min", "MAX": "Max"}[f.aggregate], y, 1, 0)
		return s.op("Where", []string{s.bi("Equal", y, s.table([]float64{f.none}, 1)), s.num(0), y})
	case "AVERAGE":
		return s.bi("Div", s.reduced("ReduceSum", y, 1, 0), s.num(float64(trees)))
	}
	return s.reduced("ReduceSum", y, 1, 0)
}

// branch reports whether values go to the first child. Where all branches are of one kind, as in
// most files, the modes are not looked at. Leaves have both children in themselves, so that it does
// not matter which way they say.
func (s *speller) branch(f *forest, v string, look func(string) string) string {
	used := map[int64]bool{}
	missing := false
	for i, m := range f.mode {
		used[m] = true
		missing = missing || f.missing[i]
	}
	split, yes := look("split"), ""
	for m := int64(branchLeq); m < leaf; m++ {
		if !used[m] {
			continue
		}
		var holds string
		switch m {
		default:
			holds = s.bi(comparisons[m], v, split)
		case branchNeq:
			holds = s.un("Not", s.bi("Equal", v, split))
		case branchMember:
			holds = s.cast(s.reduced("ReduceMax", s.cast(s.matches(v, look("members")), onnx.Int32), -1, 0),
				onnx.Bool)
		}
		if yes == "" {
			yes = holds
		} else {
			yes = s.op("Where", []string{s.bi("Equal", look("mode"), s.constant(onnx.Scalar(m))), holds, yes})
		}
	}
	if missing {
		yes = s.bi("Or", yes, s.bi("And", s.un("IsNaN", v), look("missing")))
	}
	return yes
}

// memberTable holds a list a node, as long as the longest; NaN, which equals nothing, fills it up.
func (s *speller) memberTable(f *forest) string {
	width := 1
	for _, list := range f.members {
		width = max(width, len(list))
	}
	if err := s.room(len(f.mode), width); err != nil {
		try.Fail("its nodes and membership_values: %w", err)
	}
	table := make([]float64, len(f.mode)*width)
	for i := range table {
		table[i] = math.NaN()
	}
	for i, list := range f.members {
		copy(table[i*width:], list)
	}
	return s.table(table, len(f.mode), width)
}

// walked returns the scores of the node's trees with its base values. One base value serves all
// targets by broadcasting.
func (s *speller) walked(f *forest) string {
	y := s.scores(f, s.reals())
	base := s.numbers("base_values")
	switch len(base) {
	case 0:
		return y
	case 1, f.targets:
		return s.add(y, s.table(base, len(base)))
	}
	try.Fail("it has %d base values for %d targets", len(base), f.targets)
	return ""
}

// spellTreeRegressor: TreeEnsembleRegressor, and TreeEnsemble, whose result has the type of its
// input.
func spellTreeRegressor(s *speller) []string {
	var f *forest
	post := s.attrs.Str("post_transform")
	if s.node.Op == "TreeEnsemble" {
		// The names are by number, as the operator's page lists them; a number beyond either end is
		// held to it.
		names := []string{"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"}
		post = names[min(max(s.attrs.Int("post_transform"), 0), 4)]
		f = s.nested()
	} else {
		f = s.flat("target", s.attrs.Int("n_targets"), s.attrs.Str("aggregate_function"))
	}
	y := s.transformed(s.walked(f), post)
	if s.node.Op != "TreeEnsemble" {
		y = s.cast(y, onnx.Float32)
	}
	return []string{y}
}

// spellTreeClassifier: the label of the largest sum of weights, and the sums.
func spellTreeClassifier(s *speller) []string {
	labels, classes := s.labels("classlabels_int64s")
	ids, positive := s.attrs.Ints("class_ids"), true
	for _, w := range s.numbers("class_weights") {
		positive = positive && w >= 0
	}
	one := classes == 2 && len(ids) > 0 // all weights are of one class
	for _, c := range ids {
		one = one && c == ids[0]
	}
	f := s.flat("class", classes, "SUM")
	if one {
		f = f.only(ids[0])
	}
	y := s.walked(f)
	y, post := s.cast(y, onnx.Float32), s.attrs.Str("post_transform")
	s.d = onnx.Float32
	if one {
		// Weights without a negative one are taken for probabilities, whose bound is 1/2; others
		// for log-odds, whose bound is 0.
		bound := 0.
		if positive {
			bound = .5
		}
		outs := s.second(labels, y, bound, positive)
		if positive && post != "NONE" {
			try.Fail("post_transform %s of two classes with the weights of one, all "+
				"positive, is not supported", post)
		}
		outs[1] = s.transformed(outs[1], post)
		return outs
	}
	at := s.op("ArgMax", []string{y}, onnx.IntAttr("axis", 1), onnx.IntAttr("keepdims", 0))
	y = s.transformed(y, post)
	return []string{s.bi("Gather", labels, at), y}
}

// only keeps the weights of one target. The tables of branches are shared with f; the weights are
// new.
func (f *forest) only(target int) *forest {
	out := *f
	out.targets, out.weight = 1, nil
	for i := target; i < len(f.weight); i += f.targets {
		out.weight = append(out.weight, f.weight[i])
	}
	return &out
}
