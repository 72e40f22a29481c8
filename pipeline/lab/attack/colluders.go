package attack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"

	"fmp/models"
	"fmp/models/rng"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/shipped"
)

// colluding are the attacks of the table of colluders, who claim no more images than they have. In
// each of them all colluders err alike, which is the hard case for a judgement by agreement.
var colluding = []string{"sign", "flip", "collapse"}

// NoAttack names the row of rounds of honest clients alone.
const NoAttack = "no attack"

const (
	// known is the number of images of each class that the server knows in an anchored round, of
	// those that no client holds.
	known = 10
	// fall is the loss of accuracy, against the honest clients alone, from which on a round has
	// fallen.
	fall = 0.1
)

// CollusionDefences are the columns of the table of colluders: clients that are taken for honest;
// judged; and judged by images that the server knows, those that come with the program where they
// fit the round. Half of the clients can outvote the rest. Only knowledge from outside of the round
// tells which half is honest.
var CollusionDefences = []string{"none", "honesty", "anchored"}

// CollusionRow holds a number of colluders under an attack: for each of [CollusionDefences] the
// mean accuracy over draws and its largest loss against the honest clients alone, and the number of
// draws that have fallen.
type CollusionRow struct {
	Attack    string    `json:"attack"`
	Colluders int       `json:"colluders"` // of 10 clients
	Oracle    float64   `json:"oracle"`    // accuracy of the honest clients alone
	ACC       []float64 `json:"acc"`
	Worst     []float64 `json:"worst_loss"`
	Fallen    []int     `json:"fallen"`
	// Found is the mean P(honest) of colluders, Kept that of the others.
	Found []float64 `json:"p_honest_colluders"`
	Kept  []float64 `json:"p_honest_others"`
}

// colluded is a draw of a round, of which the first clients collude.
type colluded struct {
	// score scores the uploads that an attack of some colluders makes, under a defence. They are
	// the same for all defences: generator names the random numbers.
	score func(ctx context.Context, attack Attack, colluders int,
		defence string) (metric.Scores, *posterior.Judgement, error)
	// oracle scores the clients that do not collude, and trusts them.
	oracle func(ctx context.Context, colluders int) (metric.Scores, error)
}

// generator returns that of an attack on the draw of a repeat. The defence is not in the stream's
// name: all defences meet the same uploads.
func (b *bench) generator(repeat int, attack Attack, colluders int) *rand.Rand {
	return rng.New(b.Seed, "colluders", repeat, attack.Name, colluders)
}

// newRow returns a row without draws.
func newRow(attack string, colluders int) CollusionRow {
	n := len(CollusionDefences)
	return CollusionRow{Attack: attack, Colluders: colluders, ACC: make([]float64, n),
		Worst: make([]float64, n), Fallen: make([]int, n),
		Found: make([]float64, n), Kept: make([]float64, n)}
}

// RunColluders measures rounds without colluders, and 1 to 5 among 10 clients. The oracle of a draw
// is scored once for each number of colluders, since no attack enters it. Other numbers of clients
// have the same shares of colluders, rounded down. With an embedding clients send moments, and
// without it class means.
func RunColluders(ctx context.Context, p *experiment.Prepared, o Options) ([]CollusionRow, error) {
	out := []CollusionRow{newRow(NoAttack, 0)}
	for _, name := range colluding {
		for tenths := 1; tenths <= 5; tenths++ {
			out = append(out, newRow(name, tenths*o.Clients/10))
		}
	}
	var b interface {
		colluded(ctx context.Context, repeat int) (*colluded, error)
	}
	var err error
	if p.Tools.Embedded != nil {
		b, err = newMomentsBench(ctx, p, o)
	} else {
		b, err = newBench(ctx, p, o)
	}
	if err != nil {
		return nil, err
	}
	for repeat := range o.Repeats {
		d, err := b.colluded(ctx, repeat)
		if err != nil {
			return nil, err
		}
		// By the number of colluders: attacks of as many share an oracle.
		oracles := map[int]float64{}
		for i := range out {
			r := &out[i]
			if _, ok := oracles[r.Colluders]; !ok {
				s, err := d.oracle(ctx, r.Colluders)
				if err != nil {
					return nil, err
				}
				oracles[r.Colluders] = s.ACC
			}
			if err := r.add(ctx, d, oracles[r.Colluders], &o); err != nil {
				return nil, fmt.Errorf("%s of %d: %w", r.Attack, r.Colluders, err)
			}
			o.Report("colluders", repeat*len(out)+i+1, o.Repeats*len(out))
		}
	}
	return out, nil
}

// add adds a draw to a row. Means take a share of 1/Repeats. A largest loss begins at 0: a gain is
// no loss.
func (r *CollusionRow) add(ctx context.Context, d *colluded, oracle float64, o *Options) error {
	n := float64(o.Repeats)
	r.Oracle += oracle / n
	// Its function is nil, and is never called, as the row has no colluders.
	attack := Attack{Name: NoAttack} // of nobody
	if at := slices.IndexFunc(Attacks, func(a Attack) bool { return a.Name == r.Attack }); at >= 0 {
		attack = Attacks[at]
	}
	for i, defence := range CollusionDefences {
		s, j, err := d.score(ctx, attack, r.Colluders, defence)
		if err != nil {
			return fmt.Errorf("%s: %w", defence, err)
		}
		r.ACC[i] += s.ACC / n
		r.Worst[i] = max(r.Worst[i], oracle-s.ACC)
		if oracle-s.ACC > fall {
			r.Fallen[i]++
		}
		if j != nil {
			o.addTrust(&r.Found[i], &r.Kept[i], j.Honest, r.Colluders)
		}
	}
	return nil
}

// anchor returns images that no client holds, [known] of each class. They are taken in a random
// order of the repeat; a class with fewer has all that are left. A class of which clients hold
// every image is missing from the anchor.
func (b *bench) anchor(rows [][]int, repeat int) []int {
	bank := b.p.Data.Clients
	// held marks images of clients, and of counts the anchor's images of each class.
	held := make([]bool, bank.Len())
	for _, own := range rows {
		for _, i := range own {
			held[i] = true
		}
	}
	of := make([]int, bank.C)
	var out []int
	for _, i := range rng.New(b.Seed, "anchor", repeat).Perm(bank.Len()) {
		if y := bank.Labels[i]; !held[i] && of[y] < known {
			of[y]++
			out = append(out, i)
		}
	}
	return out
}

// shipped returns the class means that come with the program for the bench's extractor and classes;
// nil where none do. Their absence is no error, and the caller draws an anchor. In open scope there
// are none.
func (b *bench) shipped() (*point.Set, error) {
	if b.white != nil {
		return nil, nil
	}
	f, err := models.ReadManifest(b.p.Conjugate)
	if err != nil {
		return nil, err
	}
	f.ClassMeans, f.Classes, f.Extractor = true, b.p.Manifest.Classes,
		b.p.Manifest.Models["extractor"]
	u, err := shipped.Anchor(f, b.p.Conjugate)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return u.Points, nil
}

// colluded draws a round of class means, and the images that its server knows: those that come with
// the program, which yield to the clients, or ten of each class.
func (b *bench) colluded(ctx context.Context, repeat int) (*colluded, error) {
	rows, err := b.partition(repeat)
	if err != nil {
		return nil, err
	}
	// The anchor is compressed as one more client: a server that knows images sees their class
	// means.
	sets, err := b.compress(ctx, append(slices.Clone(rows), b.anchor(rows, repeat)))
	if err != nil {
		return nil, err
	}
	known, err := b.shipped()
	if err != nil {
		return nil, err
	}
	yields := known != nil
	if !yields {
		known = sets[len(rows)]
	}
	honest, lambda, err := b.claims(sets[:len(rows)])
	return &colluded{
		score: func(ctx context.Context, attack Attack, colluders int,
			defence string) (metric.Scores, *posterior.Judgement, error) {
			sets, err := b.sets(attack.apply(honest, lambda, colluders, float64(b.Points),
				b.generator(repeat, attack, colluders)))
			if err != nil {
				return metric.Scores{}, nil, err
			}
			anchor := known
			if defence != "anchored" {
				anchor = nil
			}
			return b.anchored(ctx, sets, anchor, yields, repeat, defence == "none")
		},
		oracle: func(ctx context.Context, colluders int) (metric.Scores, error) {
			return b.without(ctx, honest, colluders, repeat)
		},
	}, err
}

// colluded draws a round of moments; the images that the server knows make the last client's. No
// moments come with the program, so that the anchor is always drawn. It counts in no pool:
// all[:len(rows)] are the clients.
func (b *momentsBench) colluded(ctx context.Context, repeat int) (*colluded, error) {
	rows, err := b.partition(repeat)
	if err != nil {
		return nil, err
	}
	all, err := b.p.Tools.Moments(ctx,
		b.p.Data.Clients.Clients(append(slices.Clone(rows), b.anchor(rows, repeat))),
		fmt.Sprint("stress/", repeat))
	if err != nil {
		return nil, err
	}
	clients := all[:len(rows)]
	return &colluded{
		score: func(ctx context.Context, attack Attack, colluders int,
			defence string) (metric.Scores, *posterior.Judgement, error) {
			var anchor *discriminant.Client
			if defence == "anchored" {
				anchor = &all[len(rows)]
			}
			uploads := b.mislead(attack, clients, colluders, float64(b.Points),
				b.generator(repeat, attack, colluders))
			return b.anchored(ctx, uploads, anchor, repeat, defence != "none")
		},
		oracle: func(ctx context.Context, colluders int) (metric.Scores, error) {
			s, _, err := b.anchored(ctx, clients[colluders:], nil, repeat, false)
			return s, err
		},
	}, nil
}
