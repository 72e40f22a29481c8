package coverage

import (
	"context"
	"fmt"
	"math"

	"fmp/models/rng"
	"fmp/pipeline/conformal"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/point"
)

// FalseAttacks are calibration points of bad clients, beside true class means; probabilities are
// the classifier's. Easy points raise the thresholds, and sets become too small. Wrong ones lower
// them, and sets become too large. Edge ones are as false as [conformal.MaxPassing] lets pass.
var FalseAttacks = []struct{ Name, Does string }{
	{"wrong", "true images under the next class's name"},
	{"half", "the same for half of the points, and the truth of the rest"},
	{"easy", "points whose own class has probability 1"},
	{"edge", "points whose own class has probability 0, as many as are not left out, " +
		"and easy ones"},
}

// FalseRow holds the measures of sets of the mixture where some clients send false points, means
// over repeats. Bad clients are the first, of all clients of a round.
type FalseRow struct {
	Calibrate int    `json:"calibrate"`
	Attack    string `json:"attack"`
	Bad       int    `json:"bad"`
	// Held is the share of new images of the honest clients whose set holds their class, Size the
	// mean number of classes in a set.
	Held      float64 `json:"held"`
	HeldError float64 `json:"held_error"`
	Size      float64 `json:"size"`
	// LeftOut is the share of bad clients that are left out, Honest that of the others.
	LeftOut float64 `json:"left_out"`
	Honest  float64 `json:"left_out_honest"`
	// PlainHeld and PlainSize are those of sets that are to survive no false points.
	PlainHeld float64 `json:"plain_held"`
	PlainSize float64 `json:"plain_size"`
	squares   float64
}

// fresh is the number of each client's images on which its sets are scored. They are new in that
// neither class means nor calibration points have them. A client needs more images than these and
// its calibration points.
const fresh = 20

// RunFalse measures sets whose calibration points are false of 0 to 4 clients in 10, with sets that
// survive the given share of false clients beside sets that survive none. The error of a share held
// is sqrt(v / (n - 1)), with its variance v over n repeats of denominator n. Rows of one number of
// calibration points share their rounds, so that attacks differ by their points alone. The share of
// clients is rounded down to a number. A repeat and a number of points costs one posterior; attacks
// are computed from its probabilities.
func RunFalse(ctx context.Context, p *experiment.Prepared, o Options,
	share float64) ([]FalseRow, error) {
	if err := needed(p); err != nil {
		return nil, err
	}
	var out []FalseRow
	for _, each := range o.Calibrate {
		out = append(out, FalseRow{Calibrate: each, Attack: "none"})
		for _, a := range FalseAttacks {
			for tenths := 1; tenths <= 4; tenths++ {
				out = append(out, FalseRow{Calibrate: each, Attack: a.Name,
					Bad: tenths * o.Clients / 10})
			}
		}
	}
	for repeat := range o.Repeats {
		for k, each := range o.Calibrate {
			f := &falseRound{Options: o, p: p, each: each, share: share}
			if err := f.draw(ctx, repeat); err != nil {
				return nil, err
			}
			for i := range out {
				if out[i].Calibrate == each {
					if err := f.add(&out[i]); err != nil {
						return nil, err
					}
				}
			}
			o.Report("rounds", repeat*len(o.Calibrate)+k+1, o.Repeats*len(o.Calibrate))
		}
	}
	for i := range out {
		r, n := &out[i], float64(o.Repeats)
		for _, v := range []*float64{&r.Held, &r.Size, &r.LeftOut, &r.Honest, &r.PlainHeld,
			&r.PlainSize, &r.squares} {
			*v /= n
		}
		r.HeldError = math.Sqrt(max(r.squares-r.Held*r.Held, 0) / max(n-1, 1))
	}
	return out, nil
}

// falseRound is a round whose clients have calibration points and new images, [clients][images],
// with the classifier's probabilities. Attacks read it and change none of its probabilities.
type falseRound struct {
	Options
	p          *experiment.Prepared
	each       int           // calibration points of a client
	share      float64       // of the clients, whose false points sets are to survive
	stated, on [][][]float32 // probabilities of calibration points, and of new images
	labels, of [][]int       // the classes of both
}

// draw draws a round. A client's first images are calibration points, the next are new, and the
// others are in class means. The stream does not name the number of points: numbers share their
// partition. Rows of a partition are drawn one by one, so that any of them is as good as another.
func (f *falseRound) draw(ctx context.Context, repeat int) error {
	bank := f.p.Data.Clients
	drawn, err := bank.Partition(rng.New(f.Seed, "coverage", "false", repeat), f.Clients,
		f.Points, f.Alpha)
	if err != nil {
		return err
	}
	var clients []*point.Set
	for _, own := range drawn {
		clients = append(clients, bank.Points(own[f.each+fresh:], nil))
	}
	r, err := f.sampled(ctx, f.p, clients, fmt.Sprint("coverage/false/", repeat))
	if err != nil {
		return err
	}
	f.stated, f.on, f.labels, f.of = nil, nil, nil, nil
	for _, own := range drawn {
		rows, labels := bank.Points(own[:f.each+fresh], nil).Labelled()
		p, err := f.predicted(ctx, r, r.Ensembles[0], rows)
		if err != nil {
			return err
		}
		f.stated, f.on = append(f.stated, p[:f.each]), append(f.on, p[f.each:])
		f.labels, f.of = append(f.labels, labels[:f.each]), append(f.of, labels[f.each:])
	}
	return nil
}

// points returns the calibration points under an attack of the first bad clients, with the design
// of sets that survive bad clients. Points stand client by client, and Design.Client says whose
// each is. Bad clients have the true number of points.
func (f *falseRound) points(attack string, bad int) (*conformal.Points, conformal.Design, error) {
	x := &conformal.Points{}
	// a product of a share and a number may lie a rounding below a whole one
	d := conformal.Design{Clients: true, False: []int{int(f.share*float64(f.Clients) + 1e-9)}}
	for m, own := range f.stated {
		// The edge attack sends as many points below the threshold as keep a client in.
		pass := conformal.MaxPassing(f.each, f.Level)
		for i, p := range own {
			y := f.labels[m][i]
			if m < bad {
				// It states probability 1 for the class that lies other behind the point's own.
				certain := func(other int) []float32 {
					out := make([]float32, len(p))
					out[(y+other)%len(p)] = 1
					return out
				}
				switch {
				case attack == "wrong", attack == "half" && i < f.each/2:
					y = (y + 1) % len(p)
				case attack == "easy", attack == "edge" && i >= pass:
					p = certain(0)
				case attack == "edge":
					p = certain(1)
				}
			}
			if err := x.Add(p, y); err != nil {
				return nil, d, err
			}
			d.Client = append(d.Client, m)
		}
	}
	return x, d, nil
}

// add adds a repeat to a row. Clients are left out by their points before the sets that are to
// survive false ones are made. A round whose points prove no sets is an error, unlike in [Run]: the
// caller asks for more points.
func (f *falseRound) add(to *FalseRow) error {
	x, d, err := f.points(to.Attack, to.Bad)
	if err != nil {
		return err
	}
	classes := len(f.stated[0][0])
	// The same points without a defence, for comparison.
	plain, err := x.Sets(conformal.Design{Clients: true}, f.Level, conformal.Probability, classes)
	if err != nil {
		return err
	}
	held, size := f.score(plain.Thresholds, to.Bad)
	to.PlainHeld, to.PlainSize = to.PlainHeld+held, to.PlainSize+size
	x, d, left := x.Without(d, f.Level, conformal.Probability)
	sets, err := x.Sets(d, f.Level, conformal.Probability, classes)
	if err != nil {
		return err
	}
	held, size = f.score(sets.Thresholds, to.Bad)
	to.Held, to.Size, to.squares = to.Held+held, to.Size+size, to.squares+held*held
	for _, m := range left {
		if m < to.Bad {
			to.LeftOut += 1 / float64(to.Bad)
		} else {
			to.Honest += 1 / float64(f.Clients-to.Bad)
		}
	}
	return nil
}

// score returns the share held and the mean size on the new images of all but the first bad
// clients. Guarantees are for the honest clients: bad ones have no claim to them.
func (f *falseRound) score(thresholds []float32, bad int) (held, size float64) {
	n := float64((f.Clients - bad) * fresh)
	for m := bad; m < f.Clients; m++ {
		for i, p := range f.on[m] {
			size += float64(conformal.Probability.Size(p, p, thresholds)) / n
			if in(p, f.of[m][i], thresholds) {
				held += 1 / n
			}
		}
	}
	return held, size
}

// in reports whether a class is in the set of an image. The most probable class always is. Sets of
// the mixture have one threshold for all classes, and the score is the probability.
func in(p []float32, y int, thresholds []float32) bool {
	for _, v := range p {
		if v > p[y] {
			return p[y] >= thresholds[0]
		}
	}
	return true
}
