package kernel

import (
	"reflect"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// TestUnusedBuffers: a value takes the smallest unused buffer that is not far too large, however
// many of one capacity there are, which have one place in the list.
func TestUnusedBuffers(t *testing.T) {
	for _, c := range []struct {
		unused      []int // capacities
		n, got      int   // elements wanted, and the capacity that they come with
		kept, sizes int   // elements kept after that, and their capacities
	}{
		{nil, 5, 5, 0, 0},
		{[]int{4, 4, 4, 4}, 4, 4, 12, 1},
		{[]int{8, 4, 4}, 3, 4, 12, 2},
		{[]int{8, 4, 8, 4}, 6, 8, 16, 2},
		{[]int{4, 8}, 3, 4, 8, 1},
		{[]int{4, 4, 9000, 9000}, 5, 5, 18004, 2}, // one of 4 is given up
		{[]int{9000, 4}, 4, 4, 9000, 1},
	} {
		p := &Pool{}
		var taken []any
		for _, n := range c.unused {
			taken = append(taken, must.Get(p.Get(onnx.Float32, n))(t))
		}
		for _, b := range taken {
			p.Put(b)
		}
		b := must.Get(p.Get(onnx.Float32, c.n))(t).([]float32)
		if len(b) != c.n || cap(b) != c.got {
			t.Errorf("%v: %d elements of %d where %d of %d are expected", c.unused, len(b), cap(b), c.n, c.got)
		}
		list := p.free[reflect.TypeFor[[]float32]()]
		held := 0
		for _, e := range list {
			held += e.one.Cap() * (1 + len(e.more))
		}
		if p.live != int64(4*c.got) || p.kept != int64(4*c.kept) || held != c.kept || len(list) != c.sizes {
			t.Errorf("%v: %d bytes live, %d kept, %d elements in %d sizes; %d, %d, %d and %d are expected", c.unused,
				p.live, p.kept, held, len(list), 4*c.got, 4*c.kept, c.kept, c.sizes)
		}
	}
}
