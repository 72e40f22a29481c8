package point

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx/must"
)

func TestFromLabelled(t *testing.T) {
	t.Parallel()
	s := must.Get(FromLabelled([]float32{1, 2, 3, 4}, 2, []int{2, 0}, 3))(t)
	want := &Set{N: 2, Dx: 2, C: 3, Z: []float32{1, 2, 0, 0, 1, 3, 4, 1, 0, 0}, W: []float32{1, 1}}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if s.Mass() != 2 {
		t.Errorf("mass %v, want 2", s.Mass())
	}
	s.Row(1)[0] = 9
	if s.Z[5] != 9 {
		t.Error("a row does not share memory with its set")
	}
	for _, c := range []struct {
		features []float32
		labels   []int
		want     string
	}{
		{[]float32{1, 2, 3}, []int{0, 1}, "want 4"}, {[]float32{1, 2}, []int{3}, "allowed are 0 to 2"},
		{[]float32{1, 2}, []int{-1}, "label -1 of point 0"},
	} {
		must.Fail(FromLabelled(c.features, 2, c.labels, 3))(t, c.want)
	}
}

func TestPool(t *testing.T) {
	t.Parallel()
	a, b := New(2, 1, 2), New(1, 1, 2)
	for i := range a.Z {
		a.Z[i] = float32(i)
	}
	b.W[0] = 3
	p := must.Get(Pool(a, b))(t)
	want := &Set{N: 3, Dx: 1, C: 2, Z: []float32{0, 1, 2, 3, 4, 5, 0, 0, 0}, W: []float32{1, 1, 3}}
	if d := cmp.Diff(want, p); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	p.Z[0] = 9
	if a.Z[0] == 9 {
		t.Error("the pool shares memory with its parts")
	}
	must.Fail(Pool())(t, "", "nothing was pooled without an error")
	must.Fail(Pool(a, New(1, 2, 2)))(t, "set 1 has dx 2")
}
