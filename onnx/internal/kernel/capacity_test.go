package kernel

import "testing"

func TestCapacity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data any
		want int
	}{
		{make([]float32, 2, 5), 5}, {make([]uint16, 0, 3), 3}, {make([]bool, 4), 4},
		{make([]string, 1, 2), 2}, {[]int64(nil), 0}, {nil, 0},
	} {
		if got := Capacity(c.data); got != c.want {
			t.Errorf("%T of %d elements: %d", c.data, c.want, got)
		}
	}
}
