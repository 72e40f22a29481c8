package pool

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/pipeline/conformal"
	"fmp/pipeline/moments"
	"fmp/pipeline/posterior"
)

// Level is the coverage of the prediction sets of a round where none is asked for.
const Level = 0.9

// mostScored bounds the calibration points that a threshold is computed from.
const mostScored = 10_000

// calibrationPoint is a calibration point that took no part in a round's posterior: its embedded row and class.
type calibrationPoint struct {
	row    []float32
	class  int
	client int
}

// calibration holds points for prediction sets back: every second one of each client, at random. The others choose the temperature and
// count as images; those held back do neither, so that the sets' guarantee is exact. Where they are too few for the level none are, and a
// level that was asked for is an error.
func (s *Sampling) calibration() error {
	r := s.round
	level := cmp.Or(r.Level, Level)
	if level < 0 {
		return nil
	}
	least, total := conformal.ImagesOfClients(level), 0
	for _, c := range s.clients {
		total += (len(c.Within.Labels) + 1) / 2
	}
	if total < least {
		if r.Level == 0 {
			return nil
		}
		return fmt.Errorf("pool: sets of level %v want %d calibration points, one in two of those in the uploads, and there are %d: pool more "+
			"uploads, or give a lower level", level, least, total)
	}
	share := min(1, float64(mostScored)/float64(total))
	for m := range s.clients {
		own := s.clients[m].Within
		random := rng.New(r.Seed, stream, "sets", r.Uploads[m].Client)
		order := random.Perm(len(own.Labels))
		if random.Float64() >= share {
			continue
		}
		s.clients[m].Within = s.holdBack(m, order[:(len(order)+1)/2])
	}
	return nil
}

// calibrate takes the calibration points of uploads of class means, all of them, as they choose nothing. A classifier for one client
// has the sets of that client's points alone.
func (s *Sampling) calibrate() error {
	r := s.round
	level := cmp.Or(r.Level, Level)
	if level < 0 {
		return nil
	}
	total := 0
	own := func(u Upload) bool { return u.Calibration != nil && (r.For == "" || r.For == u.Client) }
	for _, u := range r.Uploads {
		if own(u) {
			total += u.Calibration.N
		}
	}
	least := conformal.ImagesOfClients(level)
	if r.For != "" {
		least = conformal.Images(level)
	}
	if total < least {
		if r.Level == 0 {
			return nil
		}
		return fmt.Errorf("pool: sets of level %v want %d calibration points, and there are %d in the uploads: make these with more (fmp-edge "+
			"compress --calibrate), or give a lower level", level, least, total)
	}
	share := min(1, float64(mostScored)/float64(total))
	for m, u := range r.Uploads {
		if !own(u) || rng.New(r.Seed, stream, "sets", u.Client).Float64() >= share {
			continue
		}
		for i := range u.Calibration.N {
			s.held = append(s.held, calibrationPoint{u.Calibration.Features(i), int(u.Calibration.Y[i]), m})
		}
	}
	return nil
}

// features returns feature rows that have softened features z, of centre c and radius r: z = (h - c)/sqrt(1 + |h - c|²/r²) is solved for h.
func features(z, c []float32, r float64) []float32 {
	var square float64
	for _, v := range z {
		square += float64(v) * float64(v)
	}
	// |z| < r but for the rounding of an upload.
	scale := 1 / math.Sqrt(max(1-square/(r*r), 1e-4))
	h := make([]float32, len(z))
	for j, v := range z {
		h[j] = float32(float64(c[j]) + scale*float64(v))
	}
	return h
}

// ontoHeads maps calibration points from the coordinates of class means to those of the heads, by the same graph that maps an image's
// features.
func (s *Sampling) ontoHeads(ctx context.Context, p *posterior.Result) error {
	r := s.round
	if len(s.held) == 0 || r.Client.K > 0 { // the heads' own coordinates
		return nil
	}
	centre, radius := r.Graph.Graph.Initializers[models.ConjCentre], r.Graph.Graph.Initializers[models.ConjRadius]
	if centre == nil || radius == nil || centre.DType != onnx.Float32 || radius.DType != onnx.Float32 || centre.Len() != r.Client.Dx ||
		radius.Len() != 1 {
		return fmt.Errorf("pool: the client graph has no centre and radius of its features (%s, %s), and calibration points want them: give "+
			"the graph of fmp fuse", models.ConjCentre, models.ConjRadius)
	}
	var h []float32
	for _, c := range s.held {
		h = append(h, features(c.row, centre.F32(), float64(radius.F32()[0]))...)
	}
	rows, err := p.Rows(ctx, h)
	if err != nil {
		return fmt.Errorf("pool: calibration points: %w", err)
	}
	k := len(rows) / len(s.held)
	for i := range s.held {
		s.held[i].row = rows[i*k : (i+1)*k]
	}
	return nil
}

// holdBack returns a client's upload without some of its calibration points, which it keeps for sets.
func (s *Sampling) holdBack(client int, out []int) *moments.Within {
	w := s.clients[client].Within
	kept := *w
	kept.Calibration, kept.Labels = nil, nil
	held := make([]bool, len(w.Labels))
	for _, i := range out {
		held[i] = true
	}
	for i, y := range w.Labels {
		row := w.Calibration[i*w.K : (i+1)*w.K]
		if held[i] {
			s.held = append(s.held, calibrationPoint{row, y, client})
			continue
		}
		kept.Calibration, kept.Labels = append(kept.Calibration, row...), append(kept.Labels, y)
	}
	return &kept
}

// threshold returns the calibration of prediction sets by the points that were taken for them; nil where there were none. Points count
// whose client is more likely honest than not, and there are no sets where too few are left.
func (s *Sampling) threshold(p *posterior.Result) (*models.OriginSets, error) {
	if len(s.held) == 0 {
		return nil, nil
	}
	var scores []float64
	trusted := map[int]bool{}
	for _, c := range s.held {
		if j := p.Judgement; j == nil || s.round.For != "" || j.Honest[c.client] >= 0.5 {
			scores, trusted[c.client] = append(scores, probability(p.Ensembles[0], c)), true
		}
	}
	level := cmp.Or(s.round.Level, Level)
	of, least, from := conformal.ThresholdOfClients, conformal.ImagesOfClients(max(level, 0.5)), fmt.Sprintf("%d clients", len(trusted))
	if s.round.For != "" {
		of, least, from = ofOne, conformal.Images(max(level, 0.5)), fmt.Sprintf("client %q", s.round.For)
	}
	if len(scores) < least {
		return nil, nil
	}
	threshold, err := of(scores, level)
	if err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	// The graph computes in float32: one unit in the last place of room keeps the point itself in its set.
	return &models.OriginSets{Level: level, Score: string(conformal.Probability), Threshold: float32(threshold * (1 - 1e-5)),
		Images:  len(scores),
		Clients: len(trusted), From: from}, nil
}

// ofOne is the threshold of one client's points, which are drawn alike.
func ofOne(scores []float64, level float64) (float64, error) {
	narrow := make([]float32, len(scores))
	for i, v := range scores {
		narrow[i] = float32(v)
	}
	t, err := conformal.Threshold(narrow, level)
	return float64(t), err
}

// probability returns that of a calibration point's class: the mean over heads, as the classifier computes it.
func probability(heads posterior.Ensemble, c calibrationPoint) float64 {
	var p float64
	logit := make([]float64, heads[0].C)
	for _, h := range heads {
		copy(logit, h.Row(len(c.row)))
		for j, v := range c.row {
			floats.AddScaled(logit, float64(v), h.Row(j))
		}
		p += math.Exp(logit[c.class]-floats.LogSumExp(logit)) / float64(len(heads))
	}
	return p
}

// withSets adds the output set to a classifier of a round with calibrated sets.
func withSets(m *onnx.Model, p *posterior.Result, err error) (*onnx.Model, error) {
	if err != nil || p.Sets == nil {
		return m, err
	}
	if m, err = models.WithSets(m, *p.Sets, false); err != nil {
		return nil, fmt.Errorf("pool: %w", err)
	}
	return m, nil
}
