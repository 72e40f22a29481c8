package meta

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/optim"
	"fmp/onnx/train"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
)

// PredictorConfig configures the training of a predictor.
type PredictorConfig struct {
	Config
	// Joint is the weight of the joint score of batches of held-out points (metric.NearBatches), added to the score of single points,
	// which cannot tell a posterior from its mean. Default 1; negative means none.
	Joint float64
	// Alone is the weight of the score of the fit to the drawn points alone, added to that of the fit to context and drawn points;
	// default 0.3.
	Alone float64
	// Local is the share of tasks whose context is one client's points; in the others it is the pool of all clients' points. Default
	// 0.5.
	Local float64
	// Coupling is the weight of the relative distance between the heads drawn for a pooled context and those drawn, from the same
	// noise, for its compression by Compressor. Without it a predictor may pick out single points of its context, and its draws for an
	// upload then differ from those for the data. Default 1; negative means none.
	Coupling float64
	// Compressor is the embedding for Coupling; default an untrained one, which returns class means.
	Compressor *onnx.Model
}

// TrainPredictor trains a copy of the predictor m and returns it. The loss of a task is the negative log score of the ensemble of
// Samples heads on held-out points of the task, plus Joint times their joint score, plus Alone times both scores of the heads fitted
// to the drawn points alone, plus Coupling times the coupling distance. Metrics: loss, score, joint, alone, coupling; in validation
// acc, ece, nll and joint of MP, the same of FMP with Compressor (fmp_acc and so on), and gap (the relative distance of the heads).
func TrainPredictor(ctx context.Context, m *onnx.Model, c PredictorConfig) (*onnx.Model, error) {
	f, err := c.prepare(m)
	if err != nil {
		return nil, err
	}
	if c.Compressor == nil {
		if c.Compressor, err = models.NewEmbedding(models.EmbeddingConfig{Dx: f.Dx, C: f.C}, c.Seed); err != nil {
			return nil, err
		}
	}
	if _, err := c.checkModel(c.Compressor, models.KindEmbedding); err != nil {
		return nil, err
	}
	t, err := newTrainee(c.Engine, m, optim.Options{ClipNorm: c.Clip, EMA: c.EMA}, c.Workers)
	if err != nil {
		return nil, fmt.Errorf("training predictor: %w", err)
	}
	defer t.Close()
	small, err := newCompressor(c.Engine, c.Compressor)
	if err != nil {
		return nil, fmt.Errorf("training predictor: %w", err)
	}
	defer small.Close()

	sampler := c.sampler(c.Corpus, targetPoints)
	step := func(ctx context.Context, r *rand.Rand) ([]map[string]*onnx.Tensor, train.Metrics, error) {
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
		e := noise(r, f, c.Samples, c.Fresh)
		in := contextFeeds(seen, e)
		drawn, err := t.draw(in, f)
		if err != nil {
			return nil, nil, err
		}
		both, heads, err := c.fits(ctx, seen, drawn, nil)
		if err != nil {
			return nil, nil, err
		}
		var batches [][]int
		if c.Joint > 0 {
			rows, _ := tk.Target.Labelled()
			batches = metric.NearBatches(r, rows, f.Dx, jointBatches)
		}
		nll, joint, cots := score(heads, tk.Target, batches, c.Joint)
		metrics := train.Metrics{"score": nll}
		if c.Joint > 0 {
			metrics["joint"] = joint
			nll += c.Joint * joint
		}
		metrics["loss"] = nll
		by := 1 / float64(c.Batch)
		fresh := make([]float64, c.Samples*c.Fresh*(f.Dx+f.C))

		var shards []map[string]*onnx.Tensor
		if clients > 1 && c.Coupling > 0 {
			s, coupling, err := c.couple(ctx, t, small, f, tk.Clients, seen, e, heads, cots)
			if err != nil {
				return nil, nil, err
			}
			shards = append(shards, s)
			metrics["coupling"] = coupling
			metrics["loss"] += c.Coupling * coupling
		}
		if err := pullBack(ctx, both, heads, cots, seen.N, nil, nil, fresh); err != nil {
			return nil, nil, err
		}
		if c.Alone > 0 {
			alone, heads, err := c.fits(ctx, nil, drawn, nil)
			if err != nil {
				return nil, nil, err
			}
			nll, joint, cots := score(heads, tk.Target, batches, c.Joint)
			if err := pullBack(ctx, alone, heads, scaled(c.Alone, cots...), 0, nil, nil, fresh); err != nil {
				return nil, nil, err
			}
			metrics["alone"] = nll
			metrics["loss"] += c.Alone * (nll + max(c.Joint, 0)*joint)
		}
		shards = append(shards, shard(in, map[string]*onnx.Tensor{"drawn": narrow(fresh, by, c.Samples, c.Fresh, f.Dx+f.C)}))
		return shards, metrics, nil
	}
	validate := func(ctx context.Context, _ int) (train.Metrics, error) {
		return c.validate(ctx, f, func(in map[string]*onnx.Tensor) ([]*point.Set, error) { return t.draw(in, f) }, small)
	}
	if err := c.loop(ctx, t, "predictor", f.Config+fmt.Sprint(c.Joint, c.Alone, c.Local, c.Coupling), step, validate); err != nil {
		return nil, err
	}
	return t.trained(), nil
}

// prepare checks the configuration and the model, and sets defaults.
func (c *PredictorConfig) prepare(m *onnx.Model) (models.Manifest, error) {
	var f models.Manifest
	if c.Joint == 0 {
		c.Joint = 1
	}
	if c.Alone == 0 {
		c.Alone = 0.3
	}
	if c.Local == 0 {
		c.Local = 0.5
	}
	if c.Coupling == 0 {
		c.Coupling = 1
	}
	if !(c.Local >= 0 && c.Local <= 1 && c.Alone >= 0) || math.IsInf(c.Alone+c.Joint+c.Coupling, 0) || math.IsNaN(c.Joint+c.Coupling) {
		return f, fmt.Errorf("training predictor: local %v, alone %v, joint %v, coupling %v; allowed are 0 to 1, numbers from 0, and numbers", c.Local, c.Alone, c.Joint, c.Coupling)
	}
	if c.Corpus == nil {
		return f, fmt.Errorf("training predictor: no corpus given")
	}
	f, err := c.checkModel(m, models.KindPredictor)
	if err != nil {
		return f, err
	}
	if c.Fresh == 0 {
		c.Fresh = f.Fresh
	}
	return f, c.fill(4, 2, 1e-3)
}

// jointBatches is the number of batches that the joint score of a task is measured on.
const jointBatches = 40

// draw runs the predictor being trained and checks what it drew.
func (t *trainee) draw(in map[string]*onnx.Tensor, f models.Manifest) ([]*point.Set, error) {
	out, err := t.run(in)
	if err != nil {
		return nil, err
	}
	if err := finite("drawn", out["drawn"]); err != nil {
		return nil, err
	}
	return sets(out["drawn"], f.Dx, f.C), nil
}

// couple draws points for the compressed context from the same noise, fits heads b to the context's own points and these draws, and
// measures |b - a| / |a| against the heads a drawn for the context. It adds Coupling times its derivative with respect to a to cots,
// with |a| held constant, and returns the shard of the derivative with respect to b, and the distance.
func (c *PredictorConfig) couple(ctx context.Context, t *trainee, small *compressor, f models.Manifest, clients []*point.Set, seen *point.Set, e *onnx.Tensor, heads, cots []erm.Theta) (map[string]*onnx.Tensor, float64, error) {
	up, err := small.compress(clients)
	if err != nil {
		return nil, 0, err
	}
	in := contextFeeds(up, e)
	drawn, err := t.draw(in, f)
	if err != nil {
		return nil, 0, err
	}
	ps, other, err := c.fits(ctx, seen, drawn, heads)
	if err != nil {
		return nil, 0, err
	}
	k := float64(len(heads))
	var mean float64
	back := make([]erm.Theta, len(heads))
	for i := range heads {
		gap, norm, cot := distance(other[i], heads[i])
		mean += gap / norm / k
		scaled(c.Coupling/(norm*k), cot)
		back[i] = cot
		for j, v := range cot.W {
			cots[i].W[j] -= v
		}
	}
	fresh := make([]float64, c.Samples*c.Fresh*(f.Dx+f.C))
	if err := pullBack(ctx, ps, other, back, seen.N, nil, nil, fresh); err != nil {
		return nil, 0, err
	}
	return shard(in, map[string]*onnx.Tensor{"drawn": narrow(fresh, 1/float64(c.Batch), c.Samples, c.Fresh, f.Dx+f.C)}), mean, nil
}

// compresses turns clients into one pooled upload.
type compresses interface {
	compress(clients []*point.Set) (*point.Set, error)
}

// validate measures MP and FMP on fixed tasks: the means of acc, ece, nll and joint of each, and of the relative gap of the heads.
func (c *Config) validate(ctx context.Context, f models.Manifest, draw func(map[string]*onnx.Tensor) ([]*point.Set, error), small compresses) (train.Metrics, error) {
	// Held-out points follow the clients': as many as the validation rows allow, up to validationPoints.
	s := c.sampler(c.Validation, min(validationPoints, c.Validation.Len()-c.Clients*c.Points))
	all := make([]train.Metrics, c.ValidationTasks)
	err := parallel(ctx, c.Workers, c.ValidationTasks, func(ctx context.Context, i int) error {
		r := rng.New(c.Seed, "validation", i)
		tk, err := s.Draw(r, c.Clients)
		if err != nil {
			return err
		}
		seen, err := point.Pool(tk.Clients...)
		if err != nil {
			return err
		}
		up, err := small.compress(tk.Clients)
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
			if _, heads[k], err = c.fits(ctx, seen, drawn, nil); err != nil {
				return err
			}
			says, err := metric.Examine(ctx, heads[k], rows, labels, 1)
			if err != nil {
				return err
			}
			sc, err := metric.Score(says.Mean, labels)
			if err != nil {
				return err
			}
			prefix := []string{"", "fmp_"}[k]
			m[prefix+"joint"] = metric.JointNLL(says.LogLikelihood, batches)
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
	mean := train.Metrics{}
	for _, m := range all {
		for k, v := range m {
			mean[k] += v / float64(len(all))
		}
	}
	return mean, nil
}
