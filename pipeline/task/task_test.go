package task

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// bank has per rows of each of c classes; row i holds the number i as its first feature.
func bank(t *testing.T, per, c int) *Bank {
	t.Helper()
	const dx = 3
	f := make([]float32, per*c*dx)
	y := make([]int, per*c)
	for i := range y {
		f[i*dx] = float32(i)
		y[i] = i % c
	}
	return must.Get(NewBank(f, dx, y, c))(t)
}

func TestPartitionNeverSharesARow(t *testing.T) {
	for _, tc := range []struct {
		name  string
		per   int
		m, n  int
		alpha float64
	}{
		{"homogeneous", 100, 10, 20, 0},
		{"skewed", 100, 10, 20, 0.1},
		{"extreme skew", 100, 10, 20, 0.001},
		{"every row used, so every class runs dry", 20, 10, 20, 0.1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := bank(t, tc.per, 10)
			rows := must.Get(b.Partition(rng.New(1, tc.name), tc.m, tc.n, tc.alpha))(t)
			seen := map[int]bool{}
			for _, c := range rows {
				if len(c) != tc.n {
					t.Fatalf("client of %d points; want %d", len(c), tc.n)
				}
				for _, i := range c {
					if seen[i] {
						t.Fatalf("row %d twice", i)
					}
					seen[i] = true
				}
			}
			if len(seen) != tc.m*tc.n {
				t.Errorf("%d rows; want %d", len(seen), tc.m*tc.n)
			}
		})
	}
}

// TestPartitionBeside: the clients are those of Partition; further rows are of the clients' own
// classes, none of them twice.
func TestPartitionBeside(t *testing.T) {
	b := bank(t, 100, 10)
	want := must.Get(b.Partition(rng.New(1, "beside"), 10, 20, 0.001))(t)
	rows, further, err := b.PartitionBeside(rng.New(1, "beside"), 10, 20, 5, 0.001)
	if err != nil || !cmp.Equal(rows, want) {
		t.Fatalf("clients are not those of Partition (%v)", err)
	}
	seen := map[int]bool{}
	for m, own := range further {
		if len(own) != 5 {
			t.Fatalf("client %d has %d further rows", m, len(own))
		}
		for _, i := range append(slices.Clone(rows[m]), own...) {
			if seen[i] {
				t.Fatalf("row %d twice", i)
			}
			seen[i] = true
			if b.Labels[i] != b.Labels[rows[m][0]] {
				t.Errorf("client %d of one class has a row of class %d", m, b.Labels[i])
			}
		}
	}
	must.Fail(b.PartitionBeside(rng.New(1), 10, 90, 11, 0))(t, "need 1010 images, and this part of the data has 1000")
}

func TestDirichletMoments(t *testing.T) {
	// Var p_i of a symmetric Dirichlet is (1/C)(1-1/C)/(C alpha + 1).
	const c, draws = 4, 20000
	even := make([]float64, c)
	if proportions(nil, 0, even); !slices.Equal(even, []float64{0.25, 0.25, 0.25, 0.25}) {
		t.Errorf("homogeneous clients have proportions %v", even)
	}
	for _, alpha := range []float64{0.05, 0.5, 3} {
		r := rng.New(3, alpha)
		p := make([]float64, c)
		var m, v float64
		for range draws {
			proportions(r, alpha, p)
			m += p[0]
			v += (p[0] - 0.25) * (p[0] - 0.25)
		}
		want := 0.25 * 0.75 / (c*alpha + 1)
		if m /= draws; math.Abs(m-0.25) > 0.012 {
			t.Errorf("alpha %g: mean %.4f; want 0.25", alpha, m)
		}
		if v /= draws; math.Abs(v-want) > 0.05*want+0.001 {
			t.Errorf("alpha %g: variance %.4f; want %.4f", alpha, v, want)
		}
	}
}

func TestSamplerRenamesAndHoldsOut(t *testing.T) {
	b := bank(t, 50, 5)
	s := &Sampler{Bank: b, Points: 8, Target: 40}
	a := must.Get(s.Draw(rng.New(1, "task", 0), 4))(t)
	again := must.Get(s.Draw(rng.New(1, "task", 0), 4))(t)
	if d := cmp.Diff(a, again); d != "" {
		t.Errorf("the same stream gave another task:\n%s", d)
	}
	held := map[float32]bool{}
	for i, rows := range a.Rows {
		for j, r := range rows {
			z := a.Clients[i].Row(j)
			if z[0] != float32(r) || z[b.Dx+a.Names[b.Labels[r]]] != 1 {
				t.Fatalf("point %d of client %d is not row %d under its task's name", j, i, r)
			}
			held[z[0]] = true
		}
	}
	for i := range a.Target.N {
		if held[a.Target.Row(i)[0]] {
			t.Fatalf("target point %d is held by a client", i)
		}
	}
	changed := 0
	for k := range 10 {
		u := must.Get(s.Draw(rng.New(1, "task", k), 1))(t)
		if cmp.Diff(u.Names, []int{0, 1, 2, 3, 4}) != "" {
			changed++
		}
	}
	if changed < 8 {
		t.Errorf("%d of 10 tasks renamed their classes; want nearly all", changed)
	}
	s.FixedLabels = true
	f := must.Get(s.Draw(rng.New(1), 1))(t)
	if d := cmp.Diff(f.Names, []int{0, 1, 2, 3, 4}); d != "" {
		t.Error(d)
	}
}

func TestNewBankRefuses(t *testing.T) {
	nan := float32(math.NaN())
	for _, tc := range []struct {
		name string
		f    []float32
		y    []int
		want string
	}{
		{"wrong count", []float32{1, 2, 3}, []int{0, 1}, "want 4"},
		{"NaN", []float32{1, 2, nan, 4}, []int{0, 1}, "feature 0 of row 1"},
		{"label", []float32{1, 2, 3, 4}, []int{0, 2}, "label 2 of row 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewBank(tc.f, 2, tc.y, 2)
			must.Fail(err)(t, tc.want)
		})
	}
}

// TestAmong: tasks of some classes draw rows of these alone, under their new numbers.
func TestAmong(t *testing.T) {
	all := bank(t, 30, 7)
	b := all.Among([]int{5, 2, 6})
	tk := must.Get((&Sampler{Bank: b, Points: 10, Alphas: []float64{0}, Target: 8,
		FixedLabels: true}).Draw(rng.New(1, "among"), 4))(t)
	for _, set := range append(tk.Clients, tk.Target) {
		for i := range set.N {
			row := int(set.Row(i)[0])
			if y := top(set.Row(i)[set.Dx:]); []int{5, 2, 6}[y] != all.Labels[row] || set.C != 3 {
				t.Fatalf("row %d of class %d has label %d of %d", row, all.Labels[row], y, set.C)
			}
		}
	}
	must.Fail((&Sampler{Bank: b, Points: 10, Alphas: []float64{0}, Target: 8}).Draw(rng.New(1), 9))(t, "has 90")
}

func top(label []float32) (y int) {
	for c, p := range label {
		if p > label[y] {
			y = c
		}
	}
	return y
}

// TestWithout: a bank without some rows has the others in order, and is none where less than half of
// them, or fewer than two of a class, would be left.
func TestWithout(t *testing.T) {
	b := must.Get(NewBank([]float32{0, 1, 2, 3, 4, 5, 6, 7}, 1, []int{0, 0, 0, 0, 1, 1, 1, 0}, 2))(t)
	for _, c := range []struct {
		rows []int
		want []float32
	}{
		{nil, b.Features},
		{[]int{7, 0, 4}, []float32{1, 2, 3, 5, 6}},
		{[]int{0, 1, 2, 3}, nil}, // one of the first class is left
		{[]int{0, 1, 2, 4, 5}, nil},
		{[]int{4, 5}, nil},
		{[]int{0, 1, 2, 4}, []float32{3, 5, 6, 7}},
	} {
		got := must.Get(b.Without(c.rows))(t)
		if (got == nil) != (c.want == nil) || got != nil && !slices.Equal(got.Features, c.want) {
			t.Errorf("without %v: %+v, want %v", c.rows, got, c.want)
		}
	}
}
