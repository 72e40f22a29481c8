package pool

import (
	"fmt"
	"strings"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
)

// TestCovariance: what images give is a covariance in every precision, also where it is singular or
// features are nearly dead; a false one is none, whatever it claims.
func TestCovariance(t *testing.T) {
	const k, c = 48, 3
	r := rng.New(1, "covariance")
	for _, n := range []int{40, 60, 400} {
		rows, labels := make([]float32, n*k), make([]int, n)
		for i := range rows {
			labels[i/k] = i / k % c
			rows[i] = float32((float64(i%k%7) + r.NormFloat64()*float64(1+i%5)) / 200)
			if i%k == 3 {
				rows[i] = 0.1 // of no variance
			}
			if i%k > 44 {
				rows[i] *= 1e-3 // of a variance about the least step of float16
			}
		}
		means, w := must.Get2(moments.Parted(rows, k, labels, c, nil))(t)
		for _, p := range []federate.Precision{federate.Single, federate.Half, federate.Int8} {
			u := &federate.Upload{Client: "a", Model: strings.Repeat("ab", 32), N: n, Points: means, Within: w, Precision: p}
			u = must.Get(federate.Decode(must.Get(u.Encode())(t), federate.Expect{}))(t)
			if u.Precision != p {
				t.Fatalf("precision %s, was %s", u.Precision, p)
			}
			if err := checkCovariance(u.Within, u.Precision); err != nil || u.Within.Rank > 0 {
				t.Errorf("%d images in %s: %v, rank %d", n, p, err, u.Within.Rank)
			}
		}
	}
	at := func(set func(w *moments.Within)) *moments.Within {
		w := &moments.Within{K: k, Dof: 1, Data: make([]float32, k*(k+1)/2)}
		for i, j := 0, 0; i < k; i++ {
			w.Data[j] = 0.1
			j += k - i
		}
		set(w)
		return w
	}
	for i, tt := range []struct {
		w    *moments.Within
		none bool
	}{
		{at(func(*moments.Within) {}), false},
		{at(func(w *moments.Within) { clear(w.Data) }), false}, // images that are all alike
		{at(func(w *moments.Within) { w.Data[1] = 0.2 }), true},
		{at(func(w *moments.Within) { w.Data[1], w.Dof = 0.2, 1<<29 }), true},
		{at(func(w *moments.Within) { w.Data[0], w.Data[1] = 0, 1e-3 }), true},
		{&moments.Within{K: k}, false},
		{&moments.Within{K: k, Dof: 2, Rank: 1, Data: make([]float32, k)}, false},
	} {
		for _, p := range []federate.Precision{federate.Single, federate.Half, federate.Int8, ""} {
			if err := checkCovariance(tt.w, p); (err != nil) != tt.none {
				t.Errorf("scatter %d in %q: %v", i, fmt.Sprint(p), err)
			}
		}
	}
}
