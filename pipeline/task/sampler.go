package task

import (
	"fmt"
	"math/rand/v2"

	"fmp/pipeline/point"
)

// Task is one federated task: its clients' points and, apart from those, points to score a model
// on.
type Task struct {
	// Clients holds each client's points, of weight 1; Rows their row numbers in the bank.
	Clients []*point.Set
	Rows    [][]int
	// Target holds points of the same classes and names that no client holds; nil where none were
	// asked for.
	Target *point.Set
	// Held are the row numbers of Target in the bank.
	Held []int
	// Names renames classes: points of the bank's class c carry the label Names[c].
	Names []int
}

// Sampler draws meta-training tasks from a bank.
type Sampler struct {
	Bank *Bank
	// Points is n, the number of points per client.
	Points int
	// Alphas are the concentrations of the partitions, one of which is picked for each task; 0
	// means homogeneous. Empty means [DefaultAlphas].
	Alphas []float64
	// Target is the number of held-out points of a task; 0 for none.
	Target int
	// FixedLabels keeps the bank's class names. Otherwise every task renames the classes by a
	// random permutation, so that a model cannot know a class by its index and has to read the
	// clients' points.
	FixedLabels bool
}

// DefaultAlphas makes a third of the tasks homogeneous; the rest use the concentrations of the
// paper's Figure 2 (arXiv 2605.18554).
var DefaultAlphas = []float64{0, 0, 0.1, 0.5, 1, 5}

// Draw returns a task with the given number of clients. All its randomness comes from r, a named
// stream.
func (s *Sampler) Draw(r *rand.Rand, clients int) (*Task, error) {
	alphas := s.Alphas
	if len(alphas) == 0 {
		alphas = DefaultAlphas
	}
	alpha := alphas[r.IntN(len(alphas))]
	t := &Task{Names: r.Perm(s.Bank.C)}
	if s.FixedLabels {
		for i := range t.Names {
			t.Names[i] = i
		}
	}
	rows, rest, err := s.Bank.draw(r, clients, s.Points, alpha, s.Target)
	if err != nil {
		return nil, fmt.Errorf("meta-training task: %w", err)
	}
	t.Rows = rows
	for _, c := range rows {
		t.Clients = append(t.Clients, s.Bank.Points(c, t.Names))
	}
	if s.Target > 0 {
		t.Held, t.Target = rest, s.Bank.Points(rest, t.Names)
	}
	return t, nil
}
