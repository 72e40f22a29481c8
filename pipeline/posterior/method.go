package posterior

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// method is a Method made of a description and a function.
type method struct {
	info Info
	run  func(ctx context.Context, t *Task, s Settings) (*Result, error)
}

func (m method) Info() Info { return m.info }

func (m method) Run(ctx context.Context, t *Task, s Settings) (*Result, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.info.Name, err)
	}
	r, err := m.run(ctx, t, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.info.Name, err)
	}
	return r, nil
}

// Citations that several methods share.
const (
	citeFMP       = "Federated Martingale Posterior Sampling, arXiv:2605.18554"
	citeZinkevich = "Zinkevich, Weimer, Li and Smola 2010, Parallelized stochastic gradient descent, NeurIPS 23"
	citeScott     = "Scott et al. 2016, Bayes and big data: the consensus Monte Carlo algorithm, Int. J. Management Science and Engineering Management 11(2)"
	citeFedCGS    = "FedCGS: Guan, Zhou and Gu 2025, Capture global feature statistics for one-shot federated learning, arXiv:2503.06962"
)

// gridL2 is what the tuned protocol tries for lambda and prior precisions.
var gridL2 = []float64{0.03, 0.1, 0.3, 1, 3, 10, 30}

// parallel calls do for 0 to n-1, at most threads at a time.
func parallel(ctx context.Context, n, threads int, do func(ctx context.Context, i int) error) error {
	g, work := errgroup.WithContext(ctx)
	g.SetLimit(max(threads, 1))
	for i := range n {
		g.Go(func() error {
			if err := work.Err(); err != nil {
				return err
			}
			return do(work, i)
		})
	}
	return g.Wait()
}

// float32Bytes is the size of n numbers on the wire.
func float32Bytes(n int) float64 { return 4 * float64(n) }

// headBytes is the size of k heads on the wire.
func (t *Task) headBytes(k int) float64 { return float32Bytes(k * (t.dx + 1) * t.c) }

// rawBytes is the mean size of a client's own feature rows and class indices on the wire.
func (t *Task) rawBytes() float64 {
	return float32Bytes(t.pooled.N*(t.dx+1)) / float64(len(t.in.Clients))
}
