package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"fmp/models/rng"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

// Choice is what the tuned protocol chose for one method on one kind of partition.
type Choice struct {
	Partition string    `json:"partition"`
	Method    string    `json:"method"`
	Param     string    `json:"param"`
	Grid      []float64 `json:"grid"`
	NLL       []float64 `json:"nll"` // mean over the tuning tasks, for each value of Grid
	Value     float64   `json:"value"`
}

// Tuned is tuning.json.
type Tuned struct {
	Choices []Choice `json:"choices"`
}

func (t *Tuned) value(partition, method string) (float64, error) {
	for _, c := range t.Choices {
		if c.Partition == partition && c.Method == method {
			return c.Value, nil
		}
	}
	return 0, fmt.Errorf("tuning chose no value for %s on %s; remove %s from the run directory and run again", method, partition, TuningFile)
}

// tune chooses every method's hyper-parameter by NLL on held-out rows of tasks drawn from the corpus, of the
// same size and partition as the run's. Test images take no part. What an earlier run of the same directory
// chose is read back.
func tune(ctx context.Context, c Config, data *Data, tools Tools, dir *Directory, threads int, progress Progress) (*Tuned, error) {
	out := &Tuned{}
	if !slices.Contains(c.Protocols(), "tuned") {
		return out, nil
	}
	b, err := os.ReadFile(dir.file(TuningFile))
	if err == nil {
		if err := json.Unmarshal(b, out); err != nil {
			return nil, fmt.Errorf("%s: %w; remove it and run again", dir.file(TuningFile), err)
		}
		return out, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tuning: %w", err)
	}
	if data.Corpus == nil {
		return nil, fmt.Errorf("tuning: this data set has no meta-training corpus: set dataset.splits.corpus above 0 or protocol to shared")
	}
	methods, err := c.methods()
	if err != nil {
		return nil, err
	}
	methods = slices.DeleteFunc(methods, func(m posterior.Method) bool { return m.Info().Param == "" })
	partitions := c.Partitions()
	// score[p][t][m] is the NLL at every value of the grid; tasks fill their own place, sums are taken after.
	score := make([][][][]float64, len(partitions))
	total := len(partitions) * c.Tuning.Tasks * len(methods)
	done := 0
	var mu sync.Mutex
	workers := max(1, min(threads, len(partitions)*c.Tuning.Tasks))
	inner := max(1, threads/workers)
	progress(0, total, "tuning")
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for pi, p := range partitions {
		score[pi] = make([][][]float64, c.Tuning.Tasks)
		for ti := range c.Tuning.Tasks {
			score[pi][ti] = make([][]float64, len(methods))
			g.Go(func() error {
				stream := fmt.Sprintf("tuning/%s/%d", p.Name(), ti)
				s := task.Sampler{Bank: data.Corpus, Points: c.Federation.Points, Alphas: []float64{p.Alpha}, Target: c.Tuning.Points, FixedLabels: true}
				drawn, err := s.Draw(rng.New(c.Seed, "clients", stream), c.Federation.Clients)
				if err != nil {
					return fmt.Errorf("tuning: %w", err)
				}
				t, err := newTask(ctx, c, tools, data.Corpus, drawn.Rows, stream, inner)
				if err != nil {
					return fmt.Errorf("tuning: %w", err)
				}
				features, labels := drawn.Target.Labelled()
				for mi, m := range methods {
					for _, v := range m.Info().Grid {
						if err := ctx.Err(); err != nil {
							return err
						}
						with, err := c.settings().With(m.Info().Param, v)
						if err != nil {
							return err
						}
						res, err := m.Run(ctx, t, with)
						if err != nil {
							return fmt.Errorf("tuning %s at %s %g: %w", m.Info().Name, m.Info().Param, v, err)
						}
						sc, err := posterior.Evaluate(ctx, res, features, labels, inner)
						if err != nil {
							return fmt.Errorf("tuning %s at %s %g: %w", m.Info().Name, m.Info().Param, v, err)
						}
						score[pi][ti][mi] = append(score[pi][ti][mi], sc.NLL)
					}
					mu.Lock()
					done++
					progress(done, total, "tuning")
					mu.Unlock()
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for pi, p := range partitions {
		for mi, m := range methods {
			info := m.Info()
			ch := Choice{Partition: p.Name(), Method: info.Name, Param: info.Param, Grid: info.Grid, NLL: make([]float64, len(info.Grid))}
			best := 0
			for k := range info.Grid {
				for ti := range c.Tuning.Tasks {
					ch.NLL[k] += score[pi][ti][mi][k] / float64(c.Tuning.Tasks)
				}
				if ch.NLL[k] < ch.NLL[best] {
					best = k
				}
			}
			ch.Value = info.Grid[best]
			out.Choices = append(out.Choices, ch)
		}
	}
	return out, writeJSON(dir.file(TuningFile), out)
}
