package privacy

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestCountsNoise: the noise is that of the stated formulas, and no smaller whole number would do.
func TestCountsNoise(t *testing.T) {
	for _, epsilon := range []float64{0.01, 0.1, 1, 4, 20} {
		for _, delta := range []float64{1e-12, 1e-5, 0.01} {
			s := must.Get(CountsNoise(epsilon, delta))(t)
			of := func(sigma float64) float64 {
				rho := 2 / (2 * sigma * sigma)
				return rho + 2*math.Sqrt(rho*math.Log(1/delta))
			}
			if of(float64(s)) > epsilon || s > 1 && of(float64(s-1)) <= epsilon {
				t.Errorf("epsilon %v, delta %v: sigma %d gives %v", epsilon, delta, s, of(float64(s)))
			}
		}
	}
	for _, bad := range [][2]float64{{0, 1e-5}, {21, 1e-5}, {1, 0}, {1, 0.5}, {math.NaN(), 1e-5},
		{1, math.NaN()}} {
		must.Fail(CountsNoise(bad[0], bad[1]))(t, "", "epsilon and delta", bad)
	}
}

// TestCountsSpending: a report of counts is charged the epsilon that it states, and adds to uploads
// of the same images and to reports about them; those of other images are free. A changed line is
// an error.
func TestCountsSpending(t *testing.T) {
	digests := [][sha256.Size]byte{sha256.Sum256([]byte("a")), sha256.Sum256([]byte("b"))}
	counts := func(epsilon float64, digests ...[sha256.Size]byte) Spending {
		s := must.Get(NewCountsSpending(epsilon, 1e-5, 3, digests, make([]int, len(digests))))(t)
		s.Client = "a"
		return s
	}
	upload := NewSpending(usual, 3, 4, digests, []int{0, 1})
	upload.Client = "a"
	other := counts(1, sha256.Sum256([]byte("c")))
	for _, c := range []struct {
		past           []Spending
		next           Spending
		least, most    float64
		earlier, lines int
	}{
		{nil, counts(1, digests...), 0.999, 1, 0, 1},
		{nil, counts(0.3, digests...), 0.299, 0.3, 0, 1},
		{[]Spending{other}, counts(1, digests...), 0.999, 1, 0, 2},
		{[]Spending{counts(1, digests...)}, counts(1, digests[:1]...), 1.3, 1.5, 1, 2},
		{[]Spending{upload}, counts(1, digests...), 1.3, 1.5, 1, 2},
		{[]Spending{counts(1, digests...)}, upload, 1.3, 1.5, 1, 2},
		{nil, counts(1, digests[0], digests[0]), 2, 2.5, 0, 1}, // an image that is there twice
	} {
		var lines []byte
		var line []byte
		for _, s := range append(c.past, c.next) {
			var err error
			line, _, _, err = Spend(lines, s, 0, true)
			must.Do(t, err)
			lines = append(lines, line...)
		}
		past := lines[:len(lines)-len(line)]
		_, total, earlier, err := Spend(past, c.next, c.most, true)
		if err != nil || total < c.least || total > c.most || earlier != c.earlier {
			t.Errorf("%d earlier, epsilon %v: total %v, %d earlier, %v; want %v to %v, %d", len(c.past),
				c.next.Budget.Epsilon, total, earlier, err, c.least, c.most, c.earlier)
		}
		if _, _, _, err := Spend(past, c.next, c.least, true); err == nil {
			t.Errorf("%d earlier, epsilon %v: a limit of %v is passed", len(c.past),
				c.next.Budget.Epsilon, c.least)
		}
	}
	line := must.Get(json.Marshal(other))(t)
	for _, change := range [][2]string{{`"noise_steps":`, `"noise_steps":1`},
		{`"epsilon":1`, `"epsilon":0.5`}, {`"counts":true,`, ""},
		{`"coordinates":0`, `"coordinates":2`}, {`"unit":"example"`, `"unit":"client"`}} {
		changed := strings.Replace(string(line), change[0], change[1], 1)
		if changed == string(line) {
			t.Fatalf("no %s in %s", change[0], line)
		}
		if _, _, _, err := Spend([]byte(changed+"\n"), other, 0, true); err == nil {
			t.Errorf("a ledger with %s is read", change[1])
		}
	}
}
