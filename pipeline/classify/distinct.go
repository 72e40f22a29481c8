package classify

import "crypto/sha256"

// Distinct passes predictions on without copies: images of one label whose pixels, as the
// classifier saw them, are those of an earlier one. Intervals and guarantees count images that were
// drawn apart, of which copies are none. Under two labels an image counts twice, as labels err.
// Every feature row counts, as different images may have equal ones. copies is the number left out
// so far.
func Distinct(do func([]Prediction) error) (distinct func([]Prediction) error, copies *int) {
	type key struct {
		pixels [sha256.Size]byte
		label  int
	}
	seen := map[key]bool{}
	copies = new(int)
	return func(ps []Prediction) error {
		kept := make([]Prediction, 0, len(ps)) // the caller's stay as they are
		for _, p := range ps {
			if p.Pixels != nil {
				k := key{sha256.Sum256(p.Pixels), p.Label}
				again := seen[k]
				seen[k] = true
				if again {
					*copies++
					continue
				}
			}
			kept = append(kept, p)
		}
		return do(kept)
	}, copies
}
