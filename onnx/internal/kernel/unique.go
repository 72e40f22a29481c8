package kernel

import (
	"cmp"
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/sorting"
)

// Unique: axis = all elements, flattened; sorted = 1. Slices along the axis that are equal count
// once; y holds them in ascending order, by their first elements first, or in the order in which
// they come. NaN equals NaN and stands last. The other outputs are the first occurrence of each,
// the place of every slice in y, and how often each occurs. With s slices of e elements a
// comparison costs up to e steps; the stable sort makes O(s log² s) moves.
func newUnique(s *Spec) (Kernel, error) {
	whole, axis, sorted := !s.hasAttr("axis"), 0, s.bool("sorted")
	if !whole {
		axis = s.int("axis")
	}
	return func(c *Call) error {
		in := c.In[0].Shape
		if whole {
			in = []int{c.In[0].Len()}
		}
		ax := try.Get(axisOf(axis, len(in)))
		n, outer, inner := in[ax], product(in[:ax]), product(in[ax+1:])
		// Slices without elements would all be equal, while their number is not bounded by memory.
		if n > 0 && outer*inner == 0 {
			return fmt.Errorf("a tensor of shape %v has no elements to tell apart on axis %d", in,
				ax)
		}
		// Slice a's element (o, e) lies at (o n + a) inner + e of the row-major input.
		element := try.Get(ordering(c.In[0].Data))
		compare := func(a, b int) int {
			for o := range outer {
				for e := range inner {
					if d := element((o*n+a)*inner+e, (o*n+b)*inner+e); d != 0 {
						return d
					}
				}
			}
			return 0
		}
		u := distinct(n, sorted, compare)
		shape := append([]int{}, in...)
		shape[ax] = len(u.first)
		y := try.Get(c.New(0, c.In[0].DType, shape))
		for o := range outer {
			for k, f := range u.first {
				copyRange(y.Data, (o*len(u.first)+k)*inner, c.In[0].Data, (o*n+int(f))*inner, inner)
			}
		}
		for i, v := range [][]int64{u.first, u.inverse, u.count} {
			// Outputs 1 to 3 are made where a node reads them alone.
			if !c.wants(i + 1) {
				continue
			}
			out := try.Get(c.New(i+1, onnx.Int64, []int{len(v)}))
			copy(out.I64(), v)
		}
		return nil
	}, nil
}

// groups are the distinct ones of some items: where each comes first and how often, and which one
// every item is. first and count have one element a group; inverse has one an item, the number of
// its group.
type groups struct{ first, inverse, count []int64 }

// distinct groups the items 0..n-1 that compare as equal: in ascending order, or in that of their
// first occurrence. The sort is stable, so that the first item of a group is also the first that
// occurs. The order of occurrence is made afterwards by renumbering groups, O(n).
func distinct(n int, sorted bool, compare func(a, b int) int) groups {
	order := upTo(n)
	sorting.Stably(order, compare)
	u := groups{inverse: make([]int64, n)}
	for i, item := range order {
		if i == 0 || compare(order[i-1], item) != 0 {
			u.first, u.count = append(u.first, int64(item)), append(u.count, 0)
		}
		g := len(u.first) - 1
		u.inverse[item] = int64(g)
		u.count[g]++
	}
	if sorted {
		return u
	}
	// A group's first item is the least of its items, since the sort was stable.
	place := map[int64]int64{} // of a group, in the order of first occurrence
	came := groups{inverse: u.inverse}
	for item, g := range u.inverse {
		if u.first[g] == int64(item) {
			place[g] = int64(len(came.first))
			came.first, came.count = append(came.first, int64(item)), append(came.count, u.count[g])
		}
		u.inverse[item] = place[g]
	}
	return came
}

// ordering compares elements of a slice of any type by their indices; NaN is above all others. -0
// and 0 compare as equal, and count as one.
func ordering(d any) (func(i, j int) int, error) {
	switch d := d.(type) {
	case []float32:
		return ascending(d), nil
	case []float64:
		return ascending(d), nil
	case []int8:
		return ascending(d), nil
	case []int16:
		return ascending(d), nil
	case []int32:
		return ascending(d), nil
	case []int64:
		return ascending(d), nil
	case []uint8:
		return ascending(d), nil
	case []uint16:
		return ascending(d), nil
	case []uint32:
		return ascending(d), nil
	case []uint64:
		return ascending(d), nil
	case []string:
		return ascending(d), nil
	case []bool:
		// false stands before true, as NumPy has it.
		number := func(b bool) int {
			if b {
				return 1
			}
			return 0
		}
		return func(i, j int) int { return number(d[i]) - number(d[j]) }, nil
	}
	return nil, fmt.Errorf("elements of %T have no order", d)
}

// ascending compares without cmp's tests for NaN where both elements are numbers.
func ascending[T cmp.Ordered](d []T) func(i, j int) int {
	return func(i, j int) int {
		a, b := d[i], d[j]
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		case a == b:
			return 0
		}
		return -cmp.Compare(a, b) // one is NaN, which cmp puts first
	}
}
