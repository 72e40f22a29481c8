package attack

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/honesty"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
)

// Defences are the columns of the table of attacks, in order. The oracle knows the bad clients and
// leaves them out. A defence may pass it where bad clients tell the truth but for the mass.
var Defences = []string{"none", "median", "trimmed mean", "geometric median", "honesty", "oracle"}

// Multiples are the masses that bad clients claim, in units of the images of any other client.
var Multiples = []float64{2, 10, 100, 1000}

// Row is the accuracy of each defence under an attack, mean over repeats.
type Row struct {
	Attack string `json:"attack"`
	// Multiple is how many times the images of an honest client each bad one claims; 0 without an
	// attack.
	Multiple float64   `json:"multiple,omitempty"`
	Accuracy []float64 `json:"accuracy"`
	// Counted is the mean mass that honesty counts of a bad client's claim, in units of the images
	// of an honest client.
	Counted float64 `json:"counted,omitempty"`
	// Found is the mean P(honest) of bad clients, Kept that of the other clients.
	Found float64 `json:"p_honest_bad"`
	Kept  float64 `json:"p_honest_others"`
}

// Table is the loss of accuracy of each defence relative to a round without attack and without
// defence.
type Table struct {
	Peace float64 `json:"peace"`
	Rows  []Row   `json:"rows"`
	// Mean and Worst are the mean and the largest loss over the attacks.
	Mean  []float64 `json:"mean_loss"`
	Worst []float64 `json:"worst_loss"`
	// ByMultiple is the largest loss at each of Multiples, [multiple][defence].
	ByMultiple [][]float64 `json:"worst_loss_by_multiple"`
}

// RunAttacks measures the attacks, each at all of [Multiples]; the first row is without attack. The
// draws of an attack are the same at every multiple. A repeat scores each of 1 + 15 x 4 rounds
// under up to six defences. Uploads are compressed once a repeat, and attacks work on copies of
// their claims.
func RunAttacks(ctx context.Context, p *experiment.Prepared, o Options) (*Table, error) {
	b, err := newBench(ctx, p, o)
	if err != nil {
		return nil, err
	}
	t := &Table{Rows: []Row{{Attack: "no attack", Accuracy: make([]float64, len(Defences))}}}
	for _, a := range Attacks {
		for _, multiple := range Multiples {
			t.Rows = append(t.Rows, Row{Attack: a.Name, Multiple: multiple,
				Accuracy: make([]float64, len(Defences))})
		}
	}
	for repeat := range o.Repeats {
		good, err := b.uploads(ctx, repeat)
		if err != nil {
			return nil, err
		}
		claims, lambda, err := b.claims(good)
		if err != nil {
			return nil, err
		}
		// The oracle sees no attack, so that one score serves all rows of the repeat but peace.
		oracle, err := b.without(ctx, claims, o.Bad, repeat)
		if err != nil {
			return nil, err
		}
		for i := range t.Rows {
			// The first row is peace: nobody is bad, and the oracle is scored with the other
			// defences.
			u, bad, expected := claims, 0, 0.0
			if i > 0 {
				attack := (i - 1) / len(Multiples)
				bad, expected = o.Bad, oracle.ACC
				u = Attacks[attack].apply(claims, lambda, bad, t.Rows[i].Multiple*float64(o.Points),
					rng.New(o.Seed, "attack", repeat, attack))
			}
			if err := b.row(ctx, &t.Rows[i], u, bad, repeat, expected); err != nil {
				return nil, err
			}
			o.Report("attacks", repeat*len(t.Rows)+i+1, o.Repeats*len(t.Rows))
		}
	}
	t.summarise()
	return t, nil
}

// without returns the scores of the oracle, which pools the uploads of all but the bad clients.
// Their images count as claimed: none of the others is false.
func (b *bench) without(ctx context.Context, u honesty.Uploads, bad,
	repeat int) (metric.Scores, error) {
	all, err := b.sets(u)
	if err != nil {
		return metric.Scores{}, err
	}
	s, _, err := b.score(ctx, all[bad:], repeat, true)
	return s, err
}

// row adds the accuracies of one repeat to a row of the table; oracle is that of the oracle, 0
// without an attack. Defences that make one upload of all are scored as a round of one client.
func (b *bench) row(ctx context.Context, to *Row, u honesty.Uploads, bad, repeat int,
	oracle float64) error {
	all, err := b.sets(u)
	if err != nil {
		return err
	}
	for d, name := range Defences {
		round, trust := all, true
		switch name {
		case "median":
			round, err = b.sets(robust(u, coordinatewise(median)))
		case "trimmed mean":
			round, err = b.sets(robust(u, coordinatewise(trimmed)))
		case "geometric median":
			round, err = b.sets(robust(u, geometric))
		case "honesty":
			trust = false
		case "oracle":
			// In peace the oracle pools all clients as the column none does.
			if oracle > 0 {
				to.Accuracy[d] += oracle / float64(b.Repeats)
				continue
			}
		}
		if err != nil {
			return err
		}
		s, judged, err := b.score(ctx, round, repeat, trust)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", to.Attack, name, err)
		}
		to.Accuracy[d] += s.ACC / float64(b.Repeats)
		// Only the column honesty judges clients.
		if judged == nil {
			continue
		}
		b.addTrust(&to.Found, &to.Kept, judged.Honest, bad)
		for _, n := range judged.Counted[:bad] {
			to.Counted += n / float64(bad*b.Repeats*b.Points)
		}
	}
	return nil
}

// summarise computes mean and largest losses from the rows. Rows are attack by attack, with the
// multiples in turn: the i-th behind the first has Multiples[i mod 4]. A largest loss begins at 0,
// so that a defence that gains everywhere has none. Means are over all attacks and multiples alike.
func (t *Table) summarise() {
	t.Peace = t.Rows[0].Accuracy[0]
	t.Mean, t.Worst = make([]float64, len(Defences)), make([]float64, len(Defences))
	for range Multiples {
		t.ByMultiple = append(t.ByMultiple, make([]float64, len(Defences)))
	}
	for i, r := range t.Rows[1:] {
		for d, acc := range r.Accuracy {
			loss, of := t.Peace-acc, t.ByMultiple[i%len(Multiples)]
			t.Mean[d] += loss / float64(len(t.Rows)-1)
			t.Worst[d], of[d] = max(t.Worst[d], loss), max(of[d], loss)
		}
	}
}

// SizesRow is a round of honest clients of two sizes: a few large ones beside many small ones.
// Counting less than is claimed costs accuracy here, as the large clients' claims are true.
type SizesRow struct {
	Large        int `json:"large"` // images of each of the LargeClients
	Small        int `json:"small"` // images of each of the SmallClients
	LargeClients int `json:"large_clients"`
	SmallClients int `json:"small_clients"`
	// Claimed are the scores with every image counted as claimed, Counted those of the product.
	Claimed ScoreRow `json:"claimed"`
	Counted ScoreRow `json:"counted"`
}

// Sizes of the clients of [RunSizes].
const (
	largeClients, smallClients, smallImages = 10, 90, 10
	largeImages                             = 1000
)

// RunSizes measures the cost, to honest clients of unequal sizes, of counting less than is claimed.
// Large clients hold 1,000 images, or as many as the data set has for them. Images are drawn in
// blocks of 100 and laid end to end. Clients are cut from them in order, the large ones first. The
// options' number of clients and of points is not read. With all images there are 10,900, more than
// 9 in 10 of them of large clients. Fewer than 1,900 images are an error.
func RunSizes(ctx context.Context, p *experiment.Prepared, o Options) (*SizesRow, error) {
	o.Clients = largeClients + smallClients
	b, err := newBench(ctx, p, o)
	if err != nil {
		return nil, err
	}
	const each = 100 // images in a block of the partition
	// Whole blocks, of the images that the small clients leave.
	const small = smallClients * smallImages
	large := min(largeImages, (p.Data.Clients.Len()-small)/largeClients/each*each)
	if large < each {
		return nil, fmt.Errorf("clients of two sizes: the clients' part has %d images, and %d are the fewest; "+
			"enlarge dataset.splits.clients", p.Data.Clients.Len(), small+largeClients*each)
	}
	out := &SizesRow{Large: large, Small: smallImages, LargeClients: largeClients,
		SmallClients: smallClients}
	for repeat := range o.Repeats {
		blocks, err := p.Data.Clients.Partition(rng.New(o.Seed, "sizes", repeat),
			(largeClients*large+small)/each, each, 0)
		if err != nil {
			return nil, err
		}
		var images []int
		for _, block := range blocks {
			images = append(images, block...)
		}
		rows := make([][]int, 0, o.Clients)
		for m := range o.Clients {
			n := large
			if m >= largeClients {
				n = smallImages
			}
			rows, images = append(rows, images[:n]), images[n:]
		}
		var sets []*point.Set
		if sets, err = b.compress(ctx, rows); err != nil {
			return nil, err
		}
		// The order of a map does no harm: heads have a stream named by the repeat alone.
		for trust, to := range map[bool]*ScoreRow{true: &out.Claimed, false: &out.Counted} {
			s, _, err := b.score(ctx, sets, repeat, trust)
			if err != nil {
				return nil, err
			}
			to.add(s, o.Repeats)
		}
	}
	return out, nil
}
