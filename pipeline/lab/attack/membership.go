package attack

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/task"
)

// MembershipRow is how well an attacker who holds an upload of n images, and knows the distribution
// of the classes, tells whether an image was among them.
type MembershipRow struct {
	N int `json:"n"`
	// AUC is that of telling members from images of their class that no client holds
	// (score.Attacker): 0.5 is chance, 1 certainty.
	AUC float64 `json:"auc"`
}

// membershipPoints is the minimum number of members tested: an AUC of 0.5 from 1,000 members and
// many others has a standard error of about 0.01. It leaves out that the repeats of one size share
// a pool of images.
const membershipPoints = 1000

// RunMembership measures membership inference on the class means of a client with n images, for
// each n in sizes. Figures are means over members. A size of more than half of the images is left
// out, as too few others would remain. A size n takes about 1,000/n repeats, each a covariance and
// a whitening in O(N k^2) for N images. Class moments are estimated from the attacker's images
// alone, never from members. Too few images to estimate them are an error, and no earlier row is
// returned then.
func RunMembership(ctx context.Context, p *experiment.Prepared, o Options,
	sizes []int) ([]MembershipRow, error) {
	b, err := newBench(ctx, p, o)
	if err != nil {
		return nil, err
	}
	bank := b.p.Data.Clients
	all, err := b.of(ctx, bank.Features)
	if err != nil {
		return nil, err
	}
	k := len(all) / bank.Len()
	// The bank of mapped rows replaces the run's: an upload's means are in these coordinates.
	if bank, err = task.NewBank(all, k, bank.Labels, bank.C); err != nil {
		return nil, err
	}
	var out []MembershipRow
	for _, n := range sizes {
		if 2*n > bank.Len() {
			continue
		}
		var sum, members float64
		for repeat := 0; members < membershipPoints; repeat++ {
			// The first n of a random order are the client's images, the rest the attacker's.
			perm := rng.New(o.Seed, "membership", n, repeat).Perm(bank.Len())
			others, labels := bank.Points(perm[n:], nil).Labelled()
			attacker, err := score.NewAttacker(others, k, labels, bank.C)
			if err != nil {
				return nil, err
			}
			if attacker == nil {
				return nil, fmt.Errorf("membership: %d images are too few to know classes by; "+
					"enlarge dataset.splits.clients", len(labels))
			}
			own, of := bank.Points(perm[:n], nil).Labelled()
			auc, told, err := attacker.AUC(own, of)
			if err != nil {
				return nil, err
			}
			// Without this the loop would never reach its number of members.
			if told == 0 {
				return nil, fmt.Errorf("membership: the others have no class of the client's")
			}
			// Repeats are weighted by the members that could be tested.
			sum += float64(told) * auc
			members += float64(told)
		}
		out = append(out, MembershipRow{n, sum / members})
	}
	return out, nil
}
