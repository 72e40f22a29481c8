package tally

import (
	"io"

	"fmp/pipeline/privacy"
)

// Noisy returns all counts with noise, which protects each image whatever else is known: nothing is
// merged or left out, and means, which noise does not protect, are not told. Negative counts stay,
// so that sums over sites are right on average. Each cell of a class, and each half of a bin, has
// noise of its own. Sums of cells have the noise of several. One image changes one cell and one
// half of a bin, which is the sensitivity that [privacy.CountsNoise] is for. random must be
// cryptographic.
// A failure of random is an error, and no report may be used then. It costs O(classes) draws.
func (m *Images) Noisy(epsilon, delta float64, random io.Reader) (*Report, error) {
	sigma, err := privacy.CountsNoise(epsilon, delta)
	if err != nil {
		return nil, err
	}
	s, err := privacy.NewSampler(sigma, random)
	if err != nil {
		return nil, err
	}
	var failed error
	noisy := func(n int) int {
		e, err := s.Next()
		if err != nil {
			failed = err
		}
		return n + int(e)
	}
	r := &Report{Format: Format, Classes: m.C, Level: m.Level, Epsilon: epsilon,
		Delta: delta, Sigma: sigma}
	for class := range m.C {
		var c [4]int
		if m.cells != nil {
			c = m.cells[class]
		}
		if m.Level == 0 { // without sets two counts say all
			c = [4]int{noisy(c[0] + c[1]), 0, noisy(c[2] + c[3]), 0}
		} else {
			for i := range c {
				c[i] = noisy(c[i])
			}
		}
		// Cells 0 and 1 are of wrong images, 2 and 3 of right ones; the set holds the class in 1
		// and 3.
		right, held := c[2]+c[3], c[1]+c[3]
		g := Group{Classes: []int{class}, N: c[0] + c[1] + right, Right: &right}
		if m.Level != 0 {
			g.Held = &held
		}
		r.Groups = append(r.Groups, g)
	}
	for b, c := range m.bins {
		wrong, right := noisy(c[0]), noisy(c[1])
		r.Bins = append(r.Bins, Bin{From: b, To: b + 1, N: wrong + right, Right: right})
	}
	return r, failed
}
