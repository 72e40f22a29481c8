package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx/must"
)

// Windows by masks have the bits of windows over phases with padding, at every length of a plane's
// last vector, and write nothing behind a plane.
func TestMaskedTaps(t *testing.T) {
	if !haveMasks() {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.New(rand.NewPCG(21, 22))
	done, lengths := 0, map[int]bool{}
	for range 3000 {
		in := []int{1 + r.IntN(12), 1 + r.IntN(40)}
		pair := func(low, n int) []int { return []int{low + r.IntN(n), low + r.IntN(n)} }
		win := window{size: pair(1, 5), stride: pair(1, 3), dilation: pair(1, 2), begin: pair(0, 4),
			end: pair(0, 4)}
		w, out, err := win.fit(in)
		if err != nil || out[0] < 1 || out[1] < 1 {
			continue
		}
		m := newMaskedTaps(w, in, out)
		if m == nil {
			continue
		}
		done, lengths[out[0]*out[1]%16] = done+1, true
		p := must.Get(newPhases(w, in, out))(t)
		plane, weights, ends := odd(r, in[0]*in[1]), tame(r, len(m.offsets)), tame(r, 3)
		f := finishing{ends[0], ends[1], ends[2], -1, 1}
		if r.IntN(2) == 0 {
			f.lo, f.hi = float32(math.Inf(-1)), float32(math.Inf(1))
		}
		split, run, want := make([]float32, p.len()), make([]float32, p.run()),
			make([]float32, out[0]*out[1])
		splitInto(p, split, plane, 0, p.high)
		tapSums(run, split, p.offsets, weights, f.start, false)
		for y := range out[0] {
			copy(want[y*out[1]:(y+1)*out[1]], run[y*p.wide:])
		}
		limit(want, want, f.scale, f.shift, f.lo, f.hi)
		src := plane
		if !m.direct {
			src = odd(r, m.len)
			m.phases(src, plane)
		}
		got := odd(r, len(want)+20)
		rest := slices.Clone(got[len(want):])
		tapSumsMasked(m, got[:len(want)], src, weights, &f)
		if !same(got[:len(want)], want) || !same(got[len(want):], rest) {
			t.Fatalf("%v by %+v: %v, want %v", in, w, got, slices.Concat(want, rest))
		}
	}
	if done < 300 || len(lengths) < 16 {
		t.Errorf("%d windows, of which last vectors had %v outputs", done, lengths)
	}
}

// Ends of rows have the same bits in vectors of 16, of 8 and without, at every length, and touch
// nothing beside the rows.
func TestEndsOfRows(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	type trial struct {
		a          after
		rows       matrix[float32]
		channel    int
		data, want []float32
	}
	var trials []trial
	last := swish
	if !vectorMath() {
		last = bounds // nothing else is asked of such a processor
	}
	for n := range 68 {
		for c := bounds; c <= last; c++ {
			a := after{lo: float32(math.Inf(-1)), hi: float32(math.Inf(1)), curve: c}
			if c == bounds {
				a.lo, a.hi = -0.5, 0.75
			}
			if r.IntN(2) == 0 {
				a.scale, a.shift = odd(r, 9), odd(r, 9)
			}
			stride := n + 1 + r.IntN(3)
			if n == 1 {
				stride = 1 // a column that lies as a row does
			}
			v := trial{a: a, channel: r.IntN(4), data: odd(r, 5*stride)}
			v.want = slices.Clone(v.data)
			v.rows = matrix[float32]{data: v.want, rows: 5, cols: n, stride: stride}
			v.a.apply(v.rows, v.channel)
			for i, x := range v.data {
				if i%stride >= n && !same(v.want[i:i+1], v.data[i:i+1]) {
					t.Fatalf("element %d beside rows of %d was %v and is %v", i, n, x, v.want[i])
				}
			}
			trials = append(trials, v)
		}
	}
	if !narrower(t) {
		t.Skip("this processor has no AVX-512")
	}
	for _, v := range trials {
		got := v.rows
		got.data = slices.Clone(v.data)
		if v.a.apply(got, v.channel); !same(got.data, v.want) {
			t.Fatalf("curve %d of rows of %d: %v in vectors of 8, %v in vectors of 16", v.a.curve, got.cols,
				got.data, v.want)
		}
	}
}

// A mean has the same bits with vectors and without, and is that of the numbers.
func TestMean(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	var in [][]float32
	var out []float64
	for n := 1; n < 140; n++ {
		v, sum := tame(r, n), 0.0
		for _, x := range v {
			sum += float64(x)
		}
		got := mean(v)
		if !(math.Abs(got-sum/float64(n)) <= 1e-14) {
			t.Errorf("the mean of %d numbers is %v, want %v", n, got, sum/float64(n))
		}
		in, out = append(in, v), append(out, got)
	}
	narrower(t)
	for i, v := range in {
		if got := mean(v); got != out[i] {
			t.Errorf("the mean of %d numbers is %v with AVX-512 and %v without", len(v), out[i], got)
		}
	}
}
