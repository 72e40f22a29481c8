package experiment

import (
	"context"
	"fmt"

	"fmp/featurize"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models/rng"
	"fmp/pipeline/lab/internal/corrupt"
	"fmp/pipeline/lab/score"
)

// shifts returns the features of the other and corrupted images that the settings ask for, from the extractor of the
// data set, standardised like its own. digests identify their images.
func (s Scores) shifts(ctx context.Context, c Config, ds *dataset.Dataset, x *extractor.Extractor, stats *featurize.Stats,
	progress Progress) (out []score.Shift, digests map[string]string, err error) {
	digests = map[string]string{}
	if len(s.Other) == 0 && !s.Corruptions {
		return nil, nil, nil
	}
	test, err := ds.Test.Subset(spread(ds.Test.N, s.Images))
	if err != nil {
		return nil, nil, err
	}
	total := len(s.Other)
	if s.Corruptions {
		total += corrupt.Severities * len(corrupt.Names())
	}
	add := func(name string, severity int, images *dataset.Images, labels []int) error {
		rows, err := featurize.Rows(ctx, images, x, stats, "", nil)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, score.Shift{Name: name, Severity: severity, Features: rows, Labels: labels})
		progress(even("other images", len(out), total))
		return nil
	}
	for _, name := range s.Other {
		var images *dataset.Images
		switch name {
		case "inverted":
			images = corrupt.Inverted(&test.Images)
		case "noise":
			images = corrupt.Noise(&test.Images, test.N, rng.New(c.Seed, "noise"))
		default:
			other, err := dataset.Load(ctx, dataset.Options{Name: name, Dir: c.Dataset.Dir, Skip: c.Dataset.Bad == "skip"})
			if err != nil {
				return nil, nil, fmt.Errorf("setting scores.other: %w", err)
			}
			some, err := other.Test.Subset(spread(other.Test.N, s.Images))
			if err != nil {
				return nil, nil, err
			}
			images, digests[name] = corrupt.Shaped(&some.Images, &ds.Test.Images), other.Digest
		}
		if err := add(name, 0, images, nil); err != nil {
			return nil, nil, err
		}
	}
	if s.Corruptions {
		for _, name := range corrupt.Names() {
			for severity := 1; severity <= corrupt.Severities; severity++ {
				images, err := corrupt.Apply(&test.Images, name, severity, rng.New(c.Seed, "corruption", name, severity))
				if err != nil {
					return nil, nil, err
				}
				if err := add(name, severity, images, test.Labels); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	return out, digests, nil
}

// spread returns at most most of n indices, evenly spaced: files may hold images by class.
func spread(n, most int) []int {
	out := make([]int, min(n, most))
	for i := range out {
		out[i] = i * n / len(out)
	}
	return out
}
