package meta

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/train"
	"fmp/pipeline/compress"
	"fmp/pipeline/erm"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// EmbeddingConfig configures the training of an embedding.
type EmbeddingConfig struct {
	Config
	// Predictor draws the fresh points for both sides; it is not trained here.
	Predictor *onnx.Model
	// Relative makes the loss the gap divided by the norm of the MP head; by default it is the gap
	// itself.
	Relative bool
	// Score is the weight, added to the loss, of the negative log score of the FMP heads' ensemble
	// on held-out points of the task. The gap weights all directions of the head equally, including
	// those in which no features vary; the score emphasises those that predictions depend on.
	// Default 2; negative means none.
	Score float64
}

// TrainEmbedding trains a copy of the embedding m and returns it. The loss of a task is the mean
// over Samples noises E of |theta_MP - theta_FMP|, where the heads are fitted to the clients' own
// points and to their uploads, each together with the points that the predictor draws for them from
// the same E (arXiv:2605.18554). theta_MP is the target and carries no gradient. The score,
// weighted by Score, is added. Metrics: loss, gap (relative), score; in validation those of
// [TrainPredictor].
//
// Both manifests are checked before anything is loaded, and the two models must match each other.
// With a negative Score no held-out points are drawn.
func TrainEmbedding(ctx context.Context, m *onnx.Model, c EmbeddingConfig) (*onnx.Model, error) {
	if c.Corpus == nil || c.Predictor == nil {
		return nil, fmt.Errorf("training embedding: it needs a corpus and a predictor")
	}
	f, err := c.checkModel(m, models.KindEmbedding)
	if err != nil {
		return nil, err
	}
	pf, err := c.checkModel(c.Predictor, models.KindPredictor)
	if err != nil {
		return nil, err
	}
	if err := models.Match(pf, f); err != nil {
		return nil, fmt.Errorf("training embedding: %w", err)
	}
	c.Fresh = cmp.Or(c.Fresh, pf.Fresh)
	c.Score = cmp.Or(c.Score, 2)
	if err := c.fill(4, 1, 2e-3); err != nil {
		return nil, err
	}
	t, err := newTrainee(c.Engine, m, c.optim(), c.Threads)
	if err != nil {
		return nil, fmt.Errorf("training embedding: %w", err)
	}
	defer t.Close()
	predictor, err := newFrozen(c.Engine, c.Predictor, "points", "weights")
	if err != nil {
		return nil, fmt.Errorf("training embedding: %w", err)
	}
	defer predictor.Close()
	target := 0
	if c.Score > 0 {
		target = targetPoints
	}
	e := &embedder{EmbeddingConfig: &c, t: t, predictor: predictor, f: f, pf: pf,
		sampler: c.sampler(c.Corpus, target)}
	validate := func(ctx context.Context, _ int) (train.Metrics, error) {
		return c.validate(ctx, pf, e.draw, compressed(t.run, f))
	}
	run, err := c.identity("embedding", []*onnx.Model{m, c.Predictor}, c.Relative, c.Score)
	if err != nil {
		return nil, err
	}
	if err := c.loop(ctx, t, "embedding", run, e.step, validate); err != nil {
		return nil, err
	}
	return t.trained(), nil
}

// embedder is the training of an embedding: its models with their manifests, and the source of its
// tasks. Of two manifests f is that of the embedding, and pf that of the predictor.
type embedder struct {
	*EmbeddingConfig
	t         *trainee
	predictor *frozen
	f, pf     models.Manifest
	sampler   *task.Sampler
}

// draw returns the points that the predictor draws, one set a sample.
func (e *embedder) draw(in map[string]*onnx.Tensor) ([]*point.Set, error) {
	return drawn(e.predictor.run, in, e.f)
}

// step draws a task and returns the gradient of its loss with respect to the embedding. The two
// sides are computed at the same time where a worker is free. Heads of the uploads start at the
// targets, which they are near to.
func (e *embedder) step(ctx context.Context,
	r *rand.Rand) ([]map[string]*onnx.Tensor, train.Metrics, error) {
	tk, err := e.sampler.Draw(r, e.Clients)
	if err != nil {
		return nil, nil, err
	}
	seen, err := point.Pool(tk.Clients...)
	if err != nil {
		return nil, nil, err
	}
	noise := noise(r, e.pf, e.Samples, e.Fresh)
	var targets []erm.Theta
	var up *point.Set
	var in map[string]*onnx.Tensor
	var uploaded []*point.Set
	own := clientFeeds(tk.Clients)
	if err := e.crew.all(2, func(part int) error {
		if part == 0 {
			out, err := e.t.run(own)
			if err != nil {
				return err
			}
			if up, err = uploads(out, e.f); err != nil {
				return err
			}
			in = contextFeeds(up, noise)
			uploaded, err = e.draw(in)
			return err
		}
		drawn, err := e.draw(contextFeeds(seen, noise))
		if err != nil {
			return err
		}
		var fits *erm.Fits
		if fits, targets, err = e.fits(ctx, seen, drawn, nil); err == nil {
			fits.Close()
		}
		return err
	}); err != nil {
		return nil, nil, err
	}
	fits, heads, err := e.fits(ctx, up, uploaded, targets)
	if err != nil {
		return nil, nil, err
	}
	defer fits.Close()
	cots, metrics := e.loss(heads, targets, tk.Target)
	g, err := e.gradient(fits, cots, in, own)
	if err != nil {
		return nil, nil, err
	}
	return []map[string]*onnx.Tensor{g}, metrics, nil
}

// loss returns the gradient of the loss with respect to the heads, and its parts as metrics. The
// gap of head i is |a_i - b_i|, Frobenius, of S samples:
//
//	loss = sum_i gap_i/S + Score nll,   with gap_i/|b_i| in place of gap_i where Relative
//
// The metric gap is the relative one in either case. points are those held out, of the score alone.
func (e *embedder) loss(heads, targets []erm.Theta,
	points *point.Set) ([]erm.Theta, train.Metrics) {
	metrics := train.Metrics{}
	cots := make([]erm.Theta, len(heads))
	k := float64(len(heads))
	for i := range heads {
		gap, norm, cot := distance(heads[i], targets[i])
		metrics["gap"] += gap / norm / k
		loss := gap
		if e.Relative {
			loss = gap / norm
			scaled(1/norm, cot)
		}
		metrics["loss"] += loss / k
		cots[i] = scaled(1/k, cot)[0]
	}
	if e.Score > 0 {
		nll, _, scoreCots := score(heads, points, nil, 0)
		metrics["score"] = nll
		metrics["loss"] += e.Score * nll
		for i, g := range scaled(e.Score, scoreCots...) {
			for j, v := range g.W {
				cots[i].W[j] += v
			}
		}
	}
	return cots, metrics
}

// gradient carries the gradient with respect to the heads back through the fits, the drawn points
// and the uploads to the embedding, a task's share 1/Batch of it. The heads depend on the uploads
// in two ways: by the fits, and by the points that the predictor draws for them. Both cotangents
// are added up: for M clients of s points, those of points [M s, dx+c] and of masses [M s].
func (e *embedder) gradient(fits *erm.Fits, cots []erm.Theta, in,
	own map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
	dz, pool := e.f.Dx+e.f.C, e.Clients*e.f.S
	zBar, wBar := make([]float64, pool*dz), make([]float64, pool)
	fresh := make([]float64, e.Samples*e.Fresh*dz)
	if err := e.pullBack(fits, cots, zBar, wBar, fresh); err != nil {
		return nil, err
	}
	// The uploads also affect the heads through the points drawn for them.
	g, err := e.predictor.vjp(in,
		map[string]*onnx.Tensor{"drawn": narrow(fresh, 1, e.Samples, e.Fresh, dz)})
	if err != nil {
		return nil, err
	}
	for i, v := range g["points"].F32() {
		zBar[i] += float64(v)
	}
	for i, v := range g["weights"].F32() {
		wBar[i] += float64(v)
	}
	by := 1 / float64(e.Batch)
	return e.t.Gradient(shard(own, map[string]*onnx.Tensor{
		"compressed": narrow(zBar, by, e.Clients, e.f.S, dz),
		"masses":     narrow(wBar, by, e.Clients, e.f.S),
	}))
}

// clientFeeds returns the embedding's inputs for a batch of M clients, one per row: points [M, n,
// dx+C] and weights [M, n], with n the points of the largest. Shorter clients are padded with
// points of weight 0.
func clientFeeds(clients []*point.Set) map[string]*onnx.Tensor {
	widest := 0
	for _, s := range clients {
		widest = max(widest, s.N)
	}
	points, weights := compress.Pad(clients, widest)
	return map[string]*onnx.Tensor{"points": points, "weights": weights}
}

// uploads returns the pooled outputs of an embedding for its clients. Numbers that are not finite
// are an error, as no fit could take them.
func uploads(out map[string]*onnx.Tensor, f models.Manifest) (*point.Set, error) {
	z, w := out["compressed"], out["masses"]
	if err := finite("compressed", z); err != nil {
		return nil, err
	}
	if err := finite("masses", w); err != nil {
		return nil, err
	}
	return &point.Set{N: w.Len(), Dx: f.Dx, C: f.C, Z: z.F32(), W: w.F32()}, nil
}

// compresses turns clients into one pooled upload: the compressed points of all of them, one client
// after the other.
type compresses func(clients []*point.Set) (*point.Set, error)

// compressed returns the compression by a function that runs an embedding.
// The function may be a trainee's, so that each call is at its parameters of that moment.
func compressed(run func(map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error),
	f models.Manifest) compresses {
	return func(clients []*point.Set) (*point.Set, error) {
		out, err := run(clientFeeds(clients))
		if err != nil {
			return nil, err
		}
		return uploads(out, f)
	}
}
