package posterior

import (
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/candidate"
	"fmp/pipeline/discriminant"
)

// TestClientsLeftOut: the temperature is that of clients left out where nothing tells kappa and a
// class is held by two clients, and there alone; it is nearer to the best than that of an unknown
// kappa.
func TestClientsLeftOut(t *testing.T) {
	const many = 6
	w := &cameras{k: 12, c: 4, mean: make([]float32, 12*4),
		shift: func(int) [3]float64 { return [3]float64{} }}
	rng.Normal(rng.New(1, "mean"), w.mean)
	at := identity(t, w.k)
	all := w.clients(t, many)
	plain := withoutPoints(all)
	x, y := w.images(many, 2000, "test")
	w.shift = func(m int) [3]float64 { return [3]float64{2 * rng.New(2, "shift", m).NormFloat64()} }
	shifted := withoutPoints(w.clients(t, many))
	found := map[string]float64{}
	for name, c := range map[string]struct {
		clients []discriminant.Client
		change  func(o *MomentsOptions)
		left    bool
	}{
		"unknown":            {plain, func(*MomentsOptions) {}, true},
		"clients are judged": {plain, func(o *MomentsOptions) { o.Honesty = true }, true},
		"a corpus":           {plain, func(o *MomentsOptions) { o.Corpus = &all[0] }, true},
		"kappa":              {plain, func(o *MomentsOptions) { o.Kappa = discriminant.Unknown }, false},
		"points":             {all, func(*MomentsOptions) {}, false},
		"few points":         {withPoints(all, candidate.FewestPoints-1), func(*MomentsOptions) {}, true},
		"enough points":      {withPoints(all, candidate.FewestPoints), func(*MomentsOptions) {}, false},
		"one client":         {plain[:1], func(*MomentsOptions) {}, false},
		"no class is shared": {[]discriminant.Client{only(plain[0], 0, 2), only(plain[1], 2, 4)},
			func(*MomentsOptions) {}, false},
		"one class is shared": {[]discriminant.Client{only(plain[0], 0, 3), only(plain[1], 2, 4)},
			func(*MomentsOptions) {}, true},
		"cameras": {shifted, func(*MomentsOptions) {}, false},
		"merged":  {plain[1:], func(o *MomentsOptions) { o.Rest = &plain[0] }, false},
	} {
		o := MomentsOptions{Options: discriminant.Options{Samples: 20, Seed: 1, Stream: "test"},
			Threads: 1}
		c.change(&o)
		r := must.Get(Moments(t.Context(), c.clients, at, o))(t)
		if got := r.Diagnostics[DiagnosticLeftOut] == 1; got != c.left {
			t.Errorf("%s: the temperature is of clients left out: %v, want %v", name, got, c.left)
		}
		found[name] = nll(t, r, x, y)
	}
	if found["a corpus"] == found["unknown"] {
		t.Errorf("NLL %v: a corpus takes no part", found)
	}
	if !(found["unknown"] < found["kappa"]) || !(found["clients are judged"] < found["kappa"]) {
		t.Errorf("NLL %v: with clients left out it is not below that of an unknown kappa", found)
	}
	t.Logf("NLL %v", found)
}

// only returns a client with the class means of classes from one to below another.
func only(c discriminant.Client, from, to int) discriminant.Client {
	means := *c.Means
	means.W = slices.Clone(means.W)
	for i := range means.N {
		means.Shares(i, func(y int, share float32) {
			if share > 0 && (y < from || y >= to) {
				means.W[i] = 0
			}
		})
	}
	c.Means = &means
	return c
}

// withPoints returns clients of which the first have n calibration points in all.
func withPoints(clients []discriminant.Client, n int) []discriminant.Client {
	out := slices.Clone(clients)
	for m := range out {
		within := *out[m].Within
		some := min(n, len(within.Labels))
		within.Labels, within.Calibration = within.Labels[:some], within.Calibration[:some*within.K]
		out[m].Within, n = &within, n-some
	}
	return out
}

// withoutPoints returns clients without their calibration points.
func withoutPoints(clients []discriminant.Client) []discriminant.Client {
	out := slices.Clone(clients)
	for m := range out {
		within := *out[m].Within
		within.Labels, within.Calibration = nil, nil
		out[m].Within = &within
	}
	return out
}
