package stress

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/experiment"
	"fmp/pipeline/metric"
)

// MembershipRow is how well somebody who holds an upload of n images, and knows what classes look like, tells whether an image
// was among them.
type MembershipRow struct {
	N int `json:"n"`
	// AUC is of telling these from images of their class that are in no client (metric.Attacker): 0.5 is a guess, 1 is certainty.
	AUC float64 `json:"auc"`
}

// membershipPoints is how many members are told from others, at least.
const membershipPoints = 1000

// RunMembership measures the attack on the class means that one client of n images uploads.
func RunMembership(ctx context.Context, p *experiment.Prepared, o Options, sizes []int) ([]MembershipRow, error) {
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
	pick := func(at []int) (rows []float32, labels []int) {
		for _, r := range at {
			rows, labels = append(rows, all[r*k:(r+1)*k]...), append(labels, bank.Labels[r])
		}
		return rows, labels
	}
	var out []MembershipRow
	for _, n := range sizes {
		if 2*n > bank.Len() {
			continue
		}
		var sum, members float64
		for repeat := 0; members < membershipPoints; repeat++ {
			perm := rng.New(o.Seed, "membership", n, repeat).Perm(bank.Len())
			others, labels := pick(perm[n:])
			attacker, err := metric.NewAttacker(others, k, labels, bank.C)
			if err != nil {
				return nil, err
			}
			if attacker == nil {
				return nil, fmt.Errorf("membership: %d images are too few to know classes by; enlarge dataset.splits.clients", len(labels))
			}
			own, of := pick(perm[:n])
			auc, told, err := attacker.AUC(own, of)
			if err != nil {
				return nil, err
			}
			if told == 0 {
				return nil, fmt.Errorf("membership: the others have no class of the client's")
			}
			sum += float64(told) * auc
			members += float64(told)
		}
		out = append(out, MembershipRow{n, sum / members})
	}
	return out, nil
}
