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
	// AUC is of telling these from test images of their class (metric.Attacker): 0.5 is a guess, 1 is certainty.
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
	attacker, err := metric.NewAttacker(b.rows, len(b.rows)/len(b.labels), b.labels, bank.C)
	if err != nil {
		return nil, err
	}
	if attacker == nil {
		return nil, fmt.Errorf("membership: %d test images are too few to know classes by; raise dataset.test", len(b.labels))
	}
	all, err := b.of(ctx, bank.Features)
	if err != nil {
		return nil, err
	}
	k := len(all) / bank.Len()
	var out []MembershipRow
	for _, n := range sizes {
		if n > bank.Len() {
			continue
		}
		var sum, members float64
		for repeat := 0; members < membershipPoints; repeat++ {
			rows, labels := make([]float32, 0, n*k), make([]int, n)
			for i, r := range rng.New(o.Seed, "membership", n, repeat).Perm(bank.Len())[:n] {
				rows, labels[i] = append(rows, all[r*k:(r+1)*k]...), bank.Labels[r]
			}
			auc, of, err := attacker.AUC(rows, labels)
			if err != nil {
				return nil, err
			}
			if of == 0 {
				return nil, fmt.Errorf("membership: the test images have no class of the clients'")
			}
			sum += float64(of) * auc
			members += float64(of)
		}
		out = append(out, MembershipRow{n, sum / members})
	}
	return out, nil
}
