package meta

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/train"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
)

// PredictorConfig configures the training of a predictor.
type PredictorConfig struct {
	Config
	// Joint is the weight of the joint score of batches of held-out points (metric.NearBatches),
	// added to the score of single points, which cannot tell a posterior from its mean. Default 1;
	// negative means none.
	Joint float64
	// Alone is the weight of the score of the fit to the drawn points alone, added to that of the
	// fit to context and drawn points; default 0.3; negative means none.
	Alone float64
	// Local is the share of tasks whose context is one client's points; in the others it is the
	// pool of all clients' points. Default 0.5; negative means none.
	Local float64
	// Coupling is the weight of the relative distance between the heads drawn for a pooled context
	// and those drawn, from the same noise, for its compression by Compressor. Without it a
	// predictor may pick out single points of its context, and its draws for an upload then differ
	// from those for the data. Default 1; negative means none.
	Coupling float64
	// Compressor is the embedding for Coupling; default an untrained one, which returns class
	// means.
	Compressor *onnx.Model
}

// TrainPredictor trains a copy of the predictor m and returns it. The loss of a task is the
// negative log score of the ensemble of Samples heads on held-out points of the task, plus Joint
// times their joint score, plus Alone times both scores of the heads fitted to the drawn points
// alone, plus Coupling times the coupling distance. Metrics: loss, score, joint, alone, coupling;
// in validation acc, ece, nll and joint of MP, the same of FMP with Compressor (fmp_acc and so on),
// and gap (the relative distance of the heads). With S heads a_s for a task's points, b_s for its
// compression, and nll and joint of a, and nll' and joint' of the heads without the task's points
//
//	loss = nll + Joint joint + Alone (nll' + Joint joint') + Coupling mean_s |b_s - a_s|/|a_s|
//
// A task of one client, a share Local of them, is not coupled.
func TrainPredictor(ctx context.Context, m *onnx.Model, c PredictorConfig) (*onnx.Model, error) {
	f, err := c.prepare(m)
	if err != nil {
		return nil, err
	}
	small, err := c.checkModel(c.Compressor, models.KindEmbedding)
	if err != nil {
		return nil, err
	}
	t, err := newTrainee(c.Engine, m, c.optim(), c.Threads)
	if err != nil {
		return nil, fmt.Errorf("training predictor: %w", err)
	}
	defer t.Close()
	session, err := c.Engine.Load(c.Compressor)
	if err != nil {
		return nil, fmt.Errorf("training predictor: %w", err)
	}
	defer session.Close()
	compress := compressed(func(in map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error) {
		return engine.Eval(session, in)
	}, small)
	draw := func(in map[string]*onnx.Tensor) ([]*point.Set, error) { return drawn(t.run, in, f) }

	sampler := c.sampler(c.Corpus, targetPoints)
	step := func(ctx context.Context, r *rand.Rand) ([]map[string]*onnx.Tensor,
		train.Metrics, error) {
		clients := c.Clients
		if r.Float64() < c.Local {
			clients = 1
		}
		tk, err := sampler.Draw(r, clients)
		if err != nil {
			return nil, nil, err
		}
		seen, err := point.Pool(tk.Clients...)
		if err != nil {
			return nil, nil, err
		}
		p := predictorTask{c: &c, t: t, f: f, seen: seen, target: tk.Target}
		e := noise(r, f, c.Samples, c.Fresh)
		if c.Joint > 0 {
			rows, _ := tk.Target.Labelled()
			p.batches = metric.NearBatches(r, rows, f.Dx, jointBatches)
		}
		// The context and its compression share the noise e: their heads differ by the compression
		// alone.
		p.in = contextFeeds(seen, e)
		if err := c.crew.all(2, func(part int) (err error) {
			if part == 1 {
				p.drawn, err = draw(p.in)
			} else if clients > 1 && c.Coupling > 0 {
				var up *point.Set
				if up, err = compress(tk.Clients); err == nil {
					p.compressed = contextFeeds(up, e)
					p.coupled, err = draw(p.compressed)
				}
			}
			return err
		}); err != nil {
			return nil, nil, err
		}
		return p.gradients(ctx)
	}
	validate := func(ctx context.Context, _ int) (train.Metrics, error) {
		return c.validate(ctx, f, draw, compress)
	}
	run, err := c.identity("predictor", []*onnx.Model{m, c.Compressor}, c.Joint, c.Alone, c.Local,
		c.Coupling)
	if err != nil {
		return nil, err
	}
	if err := c.loop(ctx, t, "predictor", run, step, validate); err != nil {
		return nil, err
	}
	return t.trained(), nil
}

// prepare checks the configuration and the model, and sets defaults. Weights below 0 stay: they
// mean none, as 0 means the default.
func (c *PredictorConfig) prepare(m *onnx.Model) (models.Manifest, error) {
	var f models.Manifest
	c.Joint = cmp.Or(c.Joint, 1)
	c.Alone = cmp.Or(c.Alone, 0.3)
	c.Local = cmp.Or(c.Local, 0.5)
	c.Coupling = cmp.Or(c.Coupling, 1)
	if sum := c.Alone + c.Joint + c.Coupling; !(c.Local <= 1) || math.IsInf(sum, 0) ||
		math.IsNaN(sum) {
		return f, fmt.Errorf("training predictor: local %v, alone %v, joint %v, coupling %v; "+
			"allowed are 1 at most, and numbers", c.Local, c.Alone, c.Joint, c.Coupling)
	}
	if c.Corpus == nil {
		return f, fmt.Errorf("training predictor: no corpus given")
	}
	f, err := c.checkModel(m, models.KindPredictor)
	if err != nil {
		return f, err
	}
	c.Fresh = cmp.Or(c.Fresh, f.Fresh)
	if err = c.fill(4, 2, 1e-3); err != nil || c.Compressor != nil {
		return f, err
	}
	c.Compressor, err = models.NewEmbedding(models.EmbeddingConfig{Dx: f.Dx, C: f.C}, c.Seed)
	return f, err
}

// jointBatches is the number of batches that the joint score of a task is measured on.
const jointBatches = 40

// drawn returns the points that a predictor draws, one set a sample. The points of a set have
// weight 1. Numbers that are not finite are an error.
func drawn(run func(in map[string]*onnx.Tensor) (map[string]*onnx.Tensor, error),
	in map[string]*onnx.Tensor, f models.Manifest) ([]*point.Set, error) {
	out, err := run(in)
	if err != nil {
		return nil, err
	}
	if err := finite("drawn", out["drawn"]); err != nil {
		return nil, err
	}
	all := out["drawn"] // [k, n, dx+c]
	sets := make([]*point.Set, all.Shape[0])
	for i := range sets {
		sets[i] = point.New(all.Shape[1], f.Dx, f.C)
		copy(sets[i].Z, all.F32()[i*all.Shape[1]*(f.Dx+f.C):])
	}
	return sets, nil
}

// predictorTask is a training task: points are drawn, and scored on target.
type predictorTask struct {
	c       *PredictorConfig
	t       *trainee
	f       models.Manifest
	seen    *point.Set
	target  *point.Set
	batches [][]int
	// in is the context, from which drawn come; compressed is its compression, and coupled are the
	// draws from it and the same noise, if any.
	in, compressed map[string]*onnx.Tensor
	drawn, coupled []*point.Set
}

// gradients returns the gradients of the loss and its metrics. Heads with the context and heads
// without it are fitted at the same time where a worker is free. Their derivatives by the drawn
// points are added up.
func (p *predictorTask) gradients(ctx context.Context) ([]map[string]*onnx.Tensor,
	train.Metrics, error) {
	c := p.c
	fresh, alone := p.cotangents(), p.cotangents()
	var out []map[string]*onnx.Tensor
	var metrics, more train.Metrics
	err := c.crew.all(2, func(part int) (err error) {
		if part == 1 {
			out, metrics, err = p.together(ctx, fresh)
		} else if c.Alone > 0 {
			more, err = p.alone(ctx, alone)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	floats.Add(fresh, alone)
	for k, v := range more {
		metrics[k] += v
	}
	g, err := p.gradient(p.in, fresh)
	return append(out, g), metrics, err
}

// cotangents returns zeros for all drawn points, [S, n', dx+c], to which derivatives are added.
// Parts of a task that run at the same time have one each.
func (p *predictorTask) cotangents() []float64 {
	return make([]float64, p.c.Samples*p.c.Fresh*(p.f.Dx+p.f.C))
}

// gradient returns the parameters' gradients for the cotangents of the draws given in. They are a
// task's share of its batch: the loop adds them up.
func (p *predictorTask) gradient(in map[string]*onnx.Tensor,
	fresh []float64) (map[string]*onnx.Tensor, error) {
	return p.t.Gradient(shard(in,
		map[string]*onnx.Tensor{"drawn": narrow(fresh, 1/float64(p.c.Batch), p.c.Samples, p.c.Fresh,
			p.f.Dx+p.f.C)}))
}

// together fits heads to the context and the draws, scores and couples them. It adds the
// derivatives with respect to the drawn points to fresh and returns the gradients of the coupled
// draws, if any.
func (p *predictorTask) together(ctx context.Context,
	fresh []float64) ([]map[string]*onnx.Tensor, train.Metrics, error) {
	c := p.c
	both, heads, err := c.fits(ctx, p.seen, p.drawn, nil)
	if err != nil {
		return nil, nil, err
	}
	defer both.Close()
	nll, joint, cots := score(heads, p.target, p.batches, c.Joint)
	metrics := train.Metrics{"score": nll, "loss": nll}
	if c.Joint > 0 {
		metrics["joint"] = joint
		metrics["loss"] += c.Joint * joint
	}
	if p.coupled == nil {
		return nil, metrics, c.pullBack(both, cots, nil, nil, fresh)
	}
	other, back, mean, err := p.couple(ctx, both, heads, cots)
	if err != nil {
		return nil, nil, err
	}
	defer other.Close()
	metrics["coupling"] = mean
	metrics["loss"] += c.Coupling * mean
	out := make([]map[string]*onnx.Tensor, 1)
	err = c.crew.all(2, func(part int) (err error) {
		if part == 1 {
			return c.pullBack(both, cots, nil, nil, fresh)
		}
		fresh := p.cotangents()
		if err = c.pullBack(other, back, nil, nil, fresh); err == nil {
			out[0], err = p.gradient(p.compressed, fresh)
		}
		return err
	})
	return out, metrics, err
}

// couple fits heads b to the context's own points and the draws from its compression, and returns
// the fits, the derivative of Coupling times |b - a| / |a| with respect to b, and this distance
// from the heads a drawn for the context. It adds the derivative with respect to a to cots, with
// |a| held constant. Fits b share the rows of fits a, and start at heads a.
func (p *predictorTask) couple(ctx context.Context, both *erm.Fits, heads,
	cots []erm.Theta) (*erm.Fits, []erm.Theta, float64, error) {
	own, err := p.c.problems(p.coupled, heads)
	if err != nil {
		return nil, nil, 0, err
	}
	f, err := both.With(own)
	if err != nil {
		return nil, nil, 0, err
	}
	f, other, err := p.c.solve(ctx, f, len(own))
	if err != nil {
		return nil, nil, 0, err
	}
	k := float64(len(heads))
	var mean float64
	back := make([]erm.Theta, len(heads))
	for i := range heads {
		gap, norm, cot := distance(other[i], heads[i])
		mean += gap / norm / k
		scaled(p.c.Coupling/(norm*k), cot)
		back[i] = cot
		// With |a| held constant, the derivative by a is minus that by b.
		floats.Sub(cots[i].W, cot.W)
	}
	return f, back, mean, nil
}

// alone scores the heads fitted to the drawn points alone, and adds the derivatives of Alone times
// the scores to fresh.
func (p *predictorTask) alone(ctx context.Context, fresh []float64) (train.Metrics, error) {
	fits, heads, err := p.c.fits(ctx, nil, p.drawn, nil)
	if err != nil {
		return nil, err
	}
	defer fits.Close()
	nll, joint, cots := score(heads, p.target, p.batches, p.c.Joint)
	// A negative Joint means none.
	m := train.Metrics{"alone": nll, "loss": p.c.Alone * (nll + max(p.c.Joint, 0)*joint)}
	return m, p.c.pullBack(fits, scaled(p.c.Alone, cots...), nil, nil, fresh)
}

// validate measures MP and FMP on fixed tasks: the means of acc, ece, nll and joint of each, and of
// the relative gap of the heads. Both methods have the same noise, so that their gap is that of the
// compression alone.
func (c *Config) validate(ctx context.Context, f models.Manifest,
	draw func(map[string]*onnx.Tensor) ([]*point.Set, error),
	compress compresses) (train.Metrics, error) {
	// Held-out points follow the clients': as many as the validation rows allow, up to
	// validationPoints.
	s := c.sampler(c.Validation, min(validationPoints, c.Validation.Len()-c.Clients*c.Points))
	all := make([]train.Metrics, c.ValidationTasks)
	err := c.tasks(ctx, c.ValidationTasks, func(ctx context.Context, i int) error {
		r := rng.New(c.Seed, "validation", i)
		tk, err := s.Draw(r, c.Clients)
		if err != nil {
			return err
		}
		seen, err := point.Pool(tk.Clients...)
		if err != nil {
			return err
		}
		up, err := compress(tk.Clients)
		if err != nil {
			return err
		}
		e := noise(r, f, c.ValidationSamples, c.Fresh)
		m := train.Metrics{}
		rows, labels := tk.Target.Labelled()
		batches := metric.NearBatches(r, rows, tk.Target.Dx, jointBatches)
		var heads [2][]erm.Theta
		for k, seen := range []*point.Set{seen, up} {
			drawn, err := draw(contextFeeds(seen, e))
			if err != nil {
				return err
			}
			fits, fitted, err := c.fits(ctx, seen, drawn, nil)
			if err != nil {
				return err
			}
			fits.Close()
			heads[k] = fitted
			says, err := metric.Examine(ctx, heads[k], rows, labels, 1)
			if err != nil {
				return err
			}
			sc, err := metric.Score(says.Mean, labels)
			if err != nil {
				return err
			}
			prefix := []string{"", "fmp_"}[k]
			m[prefix+"joint"] = metric.JointNLL(says.Likelihood, batches)
			m[prefix+"acc"], m[prefix+"ece"], m[prefix+"nll"] = sc.ACC, sc.ECE, sc.NLL
		}
		for k := range heads[0] {
			gap, norm, _ := distance(heads[1][k], heads[0][k])
			m["gap"] += gap / norm / float64(len(heads[0]))
		}
		all[i] = m
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Sums go in the order of tasks, whichever ended first, so that equal trainings have equal
	// figures.
	mean := train.Metrics{}
	for _, m := range all {
		for k, v := range m {
			mean[k] += v / float64(len(all))
		}
	}
	return mean, nil
}
