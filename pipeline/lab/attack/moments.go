package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"fmp/models/rng"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/honesty"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// MomentsDefences are the columns of the table of attacks on uploads of moments. Medians of
// scatters are missing, as a median of matrices by coordinates need not be a covariance.
var MomentsDefences = []string{"none", "honesty", "oracle"}

// MomentsRow holds the scores of each of [MomentsDefences] under an attack, mean over repeats.
type MomentsRow struct {
	Attack string `json:"attack"`
	ACC    Scores `json:"acc"`
	NLL    Scores `json:"nll"`
	// Found is the mean P(honest) of bad clients, Kept that of the other clients.
	Found float64 `json:"p_honest_bad"`
	Kept  float64 `json:"p_honest_others"`
}

// Scores are means over repeats; NaN where a repeat had no classifier.
type Scores []float64

// MarshalJSON writes NaN, which JSON lacks, as null. A NaN of one repeat makes the mean NaN, which
// says that the round failed at least once.
func (s Scores) MarshalJSON() ([]byte, error) {
	out := make([]*float64, len(s))
	for i := range s {
		if !math.IsNaN(s[i]) {
			out[i] = &s[i]
		}
	}
	return json.Marshal(out)
}

// momentsMultiple is how many times the images of an honest client each bad one claims: the cap
// counts every claim above the median alike. One multiple therefore suffices here, where the
// attacks on means have four.
const momentsMultiple = 10

// scatterAttacks falsify the scatter, and leave class means as they are.
var scatterAttacks = []struct {
	name string
	// make may replace w.Data and w.Rank, and must not write into the old Data, which the true
	// upload shares.
	make func(b *momentsBench, w *moments.Within)
}{
	// all of a scatter's bound along the first class mean
	{"scatter along", func(b *momentsBench, w *moments.Within) {
		w.Rank, w.Data = 1, slices.Clone(b.toward)
		for j := range w.Data {
			w.Data[j] *= float32(math.Sqrt(float64(w.Dof)))
		}
	}},
	{"scatter of nothing", func(_ *momentsBench, w *moments.Within) {
		w.Data = make([]float32, len(w.Data))
	}},
	// variances as they may be, and covariances that no rows have
	{"scatter, negative", func(_ *momentsBench, w *moments.Within) {
		// With the mean variance t the matrix is t (2I - 11'), whose trace stays kt. Its eigenvalue
		// along 1 is t (2 - k), below 0 for k > 2.
		t, k := w.Trace()/float64(w.K), w.K
		// The upper triangle by rows: row i begins with its diagonal and has k - i numbers.
		w.Rank, w.Data = 0, make([]float32, k*(k+1)/2)
		for i := range w.Data {
			w.Data[i] = -float32(t)
		}
		for i, at := 0, 0; i < k; i++ {
			w.Data[at] = float32(t)
			at += k - i
		}
	}},
}

// momentsBench is a prepared run whose clients send moments.
type momentsBench struct {
	bench
	rows   []float32 // embedded test rows
	toward []float32 // the direction of length 1 of false scatters
}

// newMomentsBench returns a bench for uploads of moments, whose test rows are embedded once. Heads
// of moments have the same coordinates in every round, unlike those of the open form. p must have
// an embedding.
func newMomentsBench(ctx context.Context, p *experiment.Prepared,
	o Options) (b *momentsBench, err error) {
	b = &momentsBench{bench: begin(p, o)}
	b.rows, err = p.Tools.Embedded.Map(ctx, b.test())
	return b, err
}

// RunMoments measures attacks on uploads of moments: those on class means, with calibration points
// under the next class's name, and on the scatter. The first row is without attack. Clients are
// compressed once a repeat. A row under attack costs two posteriors, and the oracle one for all
// rows of a repeat.
func RunMoments(ctx context.Context, p *experiment.Prepared, o Options) ([]MomentsRow, error) {
	b, err := newMomentsBench(ctx, p, o)
	if err != nil {
		return nil, err
	}
	out := []MomentsRow{{Attack: "no attack"}}
	for _, a := range Attacks {
		out = append(out, MomentsRow{Attack: a.Name})
	}
	for _, a := range scatterAttacks {
		out = append(out, MomentsRow{Attack: a.name})
	}
	for repeat := range o.Repeats {
		rows, err := b.partition(repeat)
		if err != nil {
			return nil, err
		}
		clients, err := p.Tools.Moments(ctx, p.Data.Clients.Clients(rows),
			fmt.Sprint("stress/", repeat))
		if err != nil {
			return nil, err
		}
		oracle, _, err := b.anchored(ctx, clients[o.Bad:], nil, repeat, false)
		if err != nil {
			return nil, err
		}
		for i := range out {
			if err := b.attacked(ctx, &out[i], i, clients, repeat, oracle); err != nil {
				return nil, fmt.Errorf("%s: %w", out[i].Attack, err)
			}
			o.Report("attacks", repeat*len(out)+i+1, o.Repeats*len(out))
		}
	}
	return out, nil
}

// attacked adds the scores of one repeat of attack i, 0 for none, to a row.
func (b *momentsBench) attacked(ctx context.Context, to *MomentsRow, i int,
	clients []discriminant.Client, repeat int, oracle metric.Scores) error {
	bad := b.Bad
	if i == 0 {
		bad = 0
	}
	clients = b.attack(i, clients, repeat)
	if to.ACC == nil {
		to.ACC, to.NLL = make(Scores, len(MomentsDefences)), make(Scores, len(MomentsDefences))
	}
	for d, name := range MomentsDefences {
		// In peace the oracle pools all clients, and is scored like the others.
		s, j := oracle, (*posterior.Judgement)(nil)
		if name != "oracle" || bad == 0 {
			var err error
			// A false scatter can leave a pooled covariance with no inverse. Without a defence that
			// is an outcome, and with one an error.
			if s, j, err = b.anchored(ctx, clients, nil, repeat, name == "honesty"); err != nil &&
				name == "none" {
				s.ACC, s.NLL = math.NaN(), math.NaN() // there is no classifier
			} else if err != nil {
				return err
			}
		}
		to.ACC[d] += s.ACC / float64(b.Repeats)
		to.NLL[d] += s.NLL / float64(b.Repeats)
		if j != nil {
			b.addTrust(&to.Found, &to.Kept, j.Honest, bad)
		}
	}
	return nil
}

// attack returns the uploads under attack i of the table: 0 is none, then come those on means and
// those on the scatter. toward points along the first class mean of the first honest client.
func (b *momentsBench) attack(i int, clients []discriminant.Client,
	repeat int) []discriminant.Client {
	clients = slices.Clone(clients)
	// An attack on means has the random numbers that [RunAttacks] gives it.
	r := rng.New(b.Seed, "attack", repeat, i-1)
	b.toward = slices.Clone(clients[b.Bad].Means.Row(0)[:clients[0].Means.Dx])
	length := float32(point.Norm(b.toward))
	for j := range b.toward {
		b.toward[j] /= length
	}
	switch at := i - 1 - len(Attacks); {
	case i == 0:
	case at >= 0:
		for m := range b.Bad {
			w := *clients[m].Within
			if scatterAttacks[at].make(b, &w); w.Dof > 0 {
				clients[m].Within = &w
			}
		}
	default:
		return b.mislead(Attacks[i-1], clients, b.Bad, float64(b.Points*momentsMultiple), r)
	}
	return clients
}

// mislead returns the uploads with the class means of the first bad clients under an attack, and
// their calibration points under the next class's name. Attacks that leave means true, or copy
// them, leave these names as they are. The first bad clients get new values; no set of the caller
// is written.
func (b *momentsBench) mislead(attack Attack, clients []discriminant.Client, bad int,
	claimed float64, r *rand.Rand) []discriminant.Client {
	clients = slices.Clone(clients)
	u, lambda, centre, scale := standardised(clients)
	u = attack.apply(u, lambda, bad, claimed, r)
	for m := range bad {
		clients[m].Means = means(u, m, centre, scale)
		if name := attack.Name; name != "overclaim" && name != "copy" && name != "repeat" {
			w := *clients[m].Within
			w.Labels = slices.Clone(w.Labels)
			for at := range w.Labels {
				w.Labels[at] = (w.Labels[at] + 1) % u.Classes
			}
			clients[m].Within = &w
		}
	}
	return clients
}

// standardised returns the clients' class means, with the mean of all taken away and each
// coordinate in its standard deviation within classes, and the variances of class means in these
// coordinates, in which attacks are made. The scale of coordinate j is sqrt(S_jj / f), with the
// sums S of the scatters and f of the degrees of freedom: the variance within classes is 1 then. It
// costs O(clients (classes k + k^2)).
func standardised(clients []discriminant.Client) (u honesty.Uploads, lambda, centre,
	scale []float64) {
	k, c := clients[0].Means.Dx, clients[0].Means.C
	u = honesty.Uploads{Clients: len(clients), Classes: c, K: k,
		Masses: make([]float64, len(clients)*c), Means: make([]float64, len(clients)*c*k)}
	centre, scale, lambda = make([]float64, k), make([]float64, k), make([]float64, k)
	var total, dof float64
	for m, o := range clients {
		rows, labels := o.Means.Labelled()
		for i, y := range labels {
			n := float64(o.Means.W[i])
			u.Masses[m*c+y], total = n, total+n
			for j := range k {
				v := float64(rows[i*k+j])
				u.Means[(m*c+y)*k+j] = v
				centre[j] += n * v
			}
		}
		raw := o.Within.Whole()
		for j := range k {
			scale[j] += raw[j*k+j]
		}
		dof += float64(o.Within.Dof)
	}
	// centre was the sum over clients and classes of n mu.
	floats.Scale(1/total, centre)
	for j := range scale {
		scale[j] = math.Sqrt(scale[j]/max(dof, 1)) + 1e-9
	}
	for i, n := range u.Masses {
		if n > 0 {
			row := u.Means[i*k : (i+1)*k]
			floats.Sub(row, centre)
			floats.Div(row, scale)
		}
	}
	// lambda_j is the variance over classes of their pooled means, of denominator C - 1. A class
	// that nobody holds counts with the mean 0, which is the mean of all here.
	_, pool := pooled(u)
	of := make([]float64, c)
	for j := range lambda {
		for y := range of {
			of[y] = pool[y*k+j]
		}
		lambda[j] = stat.Variance(of, nil)
	}
	return u, lambda, centre, scale
}

// means returns a client's class means in the coordinates of uploads, of length 1 at most, as a
// server takes them. A row z of the attack becomes z scale + centre.
func means(u honesty.Uploads, m int, centre, scale []float64) *point.Set {
	// The pool of one client is its own class means, of the classes that it holds.
	set := u.Pool(func(client int) bool { return client == m })
	for i := range set.N {
		row := set.Row(i)[:u.K]
		for j := range row {
			row[j] = float32(float64(row[j])*scale[j] + centre[j])
		}
		if length := point.Norm(row); length > 1 {
			for j := range row {
				row[j] /= float32(length)
			}
		}
	}
	return set
}

// anchored returns the scores of the posterior of uploads of moments, whose clients are judged by
// known moments if any are; without honesty a client's images count as claimed.
func (b *momentsBench) anchored(ctx context.Context, clients []discriminant.Client,
	known *discriminant.Client, repeat int,
	judged bool) (metric.Scores, *posterior.Judgement, error) {
	o := posterior.MomentsOptions{Known: known,
		Options: discriminant.Options{Kappa: b.p.Config.Kappa(), Samples: b.Samples, Seed: b.Seed,
			Stream: fmt.Sprint("stress/", repeat)}, Honesty: judged, Threads: b.Threads}
	r, err := posterior.Moments(ctx, clients, b.p.Tools.Embedded, o)
	if err != nil {
		return metric.Scores{}, nil, err
	}
	s, err := b.judge(ctx, r, b.rows)
	return s, r.Judgement, err
}
