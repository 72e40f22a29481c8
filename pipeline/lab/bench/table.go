package bench

import (
	"context"
	"errors"
	"os"

	"fmp/featurize/dataset"
	"fmp/pipeline/lab/experiment"
)

// tableI measures a run of every method in closed scope, clients homogeneous, from features that
// are at hand. It is not at hand without CIFAR-10's images. No peer does this work, so that the row
// has one contender. Its time includes the writing of records to a temporary folder, which is
// removed after each run. Features are prepared before.
func tableI(ctx context.Context, b *Bench) ([]Contender, error) {
	c := experiment.Default()
	c.Dataset.Name, c.Dataset.Dir, c.Engine.Threads, c.Seeds = "cifar10", b.Data, 1, 1
	p, err := experiment.Prepare(ctx, c, b.Engine, nil, nil)
	if errors.Is(err, dataset.ErrNotFound) {
		return []Contender{{Name: "fmp (no images of CIFAR-10; fmp data pull fetches them)"}}, nil
	} else if err != nil {
		return nil, err
	}
	ours := Timed("fmp", func() (err error) {
		path, err := os.MkdirTemp("", "fmp-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(path)
		dir, err := experiment.Open(path, p.Config, p.Manifest)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dir.Close()) }()
		_, err = experiment.Run(ctx, p.Config, p.Data, p.Tools, dir, nil)
		return err
	})
	ours.Close = p.Close
	return []Contender{ours}, nil
}
