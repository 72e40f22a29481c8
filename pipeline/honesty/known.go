package honesty

import (
	"fmt"
	"math"
)

// mostContradict is the share of clients above which known class means that may be of other images
// contradict too many.
const mostContradict = 2.0 / 3

// Contradicted reports whether more than two thirds of the clients are bad by known class means
// alone; copies count together. Then these are rather of other images than the clients'. A third of
// the clients, honest and of such images, keep them.
// lambda are the variances of class means in each coordinate, [k]. It costs one evaluation of each
// client against a state of the known means alone.
func (u *Uploads) Contradicted(lambda []float64) (bool, error) {
	k := u.Known
	if k == nil {
		return false, nil
	}
	// The known means take the place of one client, who is honest: then the others are judged by
	// them.
	one := Uploads{Clients: 1, Classes: u.Classes, K: u.K, Masses: k.Masses,
		Means: k.Means, Wide: u.Wide}
	h, err := newModel(one, lambda)
	if err != nil {
		return false, fmt.Errorf("honesty: known class means: %w", err)
	}
	h.everywhere()
	z := []bool{true}
	// This limit caps no claim.
	a := &Against{Limit: math.MaxFloat64, st: h.start(z)}
	a.weights, _ = a.st.contamination(z, 2)
	bad, all := 0, 0
	for m := range u.Clients {
		if u.Copy != nil && u.Copy[m] != m {
			continue
		}
		masses, means := u.Client(m)
		honest, err := a.Honest(masses, means, 0)
		if err != nil {
			return false, err
		}
		if all++; !honest {
			bad++
		}
	}
	return float64(bad) > mostContradict*float64(all), nil
}
