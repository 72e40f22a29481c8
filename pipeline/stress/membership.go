package stress

import (
	"context"
	"fmt"
	"math"
	"slices"

	"fmp/models/rng"
	"fmp/pipeline/experiment"
	"fmp/pipeline/point"
)

// MembershipRow is how well somebody who holds an upload of n images, and knows what classes look like, tells whether an image
// was among them.
type MembershipRow struct {
	N int `json:"n"`
	// AUC of the likelihood ratio: 0.5 is a guess, 1 is certainty.
	AUC float64 `json:"auc"`
}

// membershipPairs is how many members and others are told apart, at least.
const membershipPairs = 1000

// RunMembership measures the best test that there is where a class's points are N(mu, I) in the upload's coordinates: for a mean m
// of N points and an image at x,
//
//	m ~ N(mu + (x - mu)/N, (N-1)/N^2 I)  with the image,  N(mu, I/N)  without,
//
// mu the corpus's mean of the class. Others are images of the same class in no client.
func RunMembership(ctx context.Context, p *experiment.Prepared, o Options, sizes []int) ([]MembershipRow, error) {
	b, err := newBench(ctx, p, o)
	if err != nil {
		return nil, err
	}
	if p.Data.Corpus == nil {
		return nil, fmt.Errorf("no corpus; the class means that an attacker knows are from it")
	}
	bank := b.data.Clients
	names := make([]int, bank.C)
	for i := range names {
		names[i] = i
	}
	claim := func(sets []*point.Set) (means, masses []float64, k int, err error) {
		up, err := b.k.Compress(ctx, sets)
		if err != nil {
			return nil, nil, 0, err
		}
		u, _, err := b.k.Claims(up)
		return u.Means, u.Masses, u.K, err
	}
	all := make([]int, p.Data.Corpus.Len())
	for i := range all {
		all[i] = i
	}
	mu, _, k, err := claim([]*point.Set{p.Data.Corpus.Points(all, names)})
	if err != nil {
		return nil, err
	}
	var out []MembershipRow
	for _, n := range sizes {
		if 2*n > bank.Len() {
			continue
		}
		var in, not []float64
		for repeat := 0; len(in) < membershipPairs; repeat++ {
			perm := rng.New(o.Seed, "membership", n, repeat).Perm(bank.Len())
			members, others := perm[:n], perm[n:2*n]
			mean, mass, _, err := claim([]*point.Set{bank.Points(members, names)})
			if err != nil {
				return nil, err
			}
			for list, rows := range map[*[]float64][]int{&in: members, &not: others} {
				single := make([]*point.Set, len(rows))
				for i, r := range rows {
					single[i] = bank.Points([]int{r}, names)
				}
				x, _, _, err := claim(single)
				if err != nil {
					return nil, err
				}
				for i, r := range rows {
					c := bank.Labels[r]
					if mass[c] == 0 {
						continue
					}
					*list = append(*list, ratio(mean[c*k:][:k], mu[c*k:][:k], x[(i*bank.C+c)*k:][:k], mass[c]))
				}
			}
		}
		out = append(out, MembershipRow{n, auc(in, not)})
	}
	return out, nil
}

// ratio is the log likelihood ratio of a member, up to a constant. One point behind a mean leaves no spread; a little stands for it.
func ratio(mean, mu, x []float64, n float64) float64 {
	spread := n * n / max(n-1, 0.01)
	var with, without float64
	for j := range mean {
		d := mean[j] - mu[j]
		e := d - (x[j]-mu[j])/n
		with, without = with+e*e, without+d*d
	}
	return 0.5*(n*without-spread*with) + 0.5*float64(len(mean))*math.Log(spread/n)
}

// auc is the probability that one of in is above one of not.
func auc(in, not []float64) float64 {
	slices.Sort(not)
	var wins float64
	for _, v := range in {
		at, _ := slices.BinarySearch(not, v)
		wins += float64(at)
	}
	return wins / float64(len(in)*len(not))
}
