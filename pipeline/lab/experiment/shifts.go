package experiment

import (
	"context"
	"fmt"
	"slices"

	"fmp/featurize"
	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models/rng"
	"fmp/pipeline/lab/internal/corrupt"
	"fmp/pipeline/lab/score"
)

// shifts returns the features of the other and corrupted images that the settings ask for, from the
// extractor of the data set, standardised like its own. digests identify their images, those of
// data sets alone: others are made of the test images. At most Images of each kind are taken. All
// corruptions are made of the same test images, so that severities can be compared. Shifts are in
// the order of the settings: others, domains, then corruptions by kind and severity. Test images,
// and those of none of the classes, are taken evenly spaced. No setting for any returns nothing,
// and reads no image. The first data set that cannot be read ends it. Features go through the
// extractor one shift at a time, so that the pixels of one are in memory beside those of the test
// images.
func (s Scores) shifts(ctx context.Context, c Config, ds *dataset.Dataset, x *extractor.Extractor,
	stats *featurize.Stats,
	progress Progress) (out []score.Shift, digests map[string]string, err error) {
	digests = map[string]string{}
	domains := slices.Clone(s.Domains)
	if s.Corruptions {
		for _, name := range corrupt.Names() {
			for severity := 1; severity <= corrupt.Severities; severity++ {
				domains = append(domains, Domain{name, severity})
			}
		}
	}
	if len(s.Other)+len(domains) == 0 {
		return nil, nil, nil
	}
	test, err := inMemory(ctx, &ds.Test, spread(scored(ds.Test.N, c.Dataset.Test), s.Images))
	if err != nil {
		return nil, nil, err
	}
	total := len(s.Other) + len(domains)
	add := func(name string, severity int, images *dataset.Images, labels []int) error {
		rows, err := featurize.Rows(ctx, images, x, stats, "", nil)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, score.Shift{Name: name, Severity: severity, Features: rows,
			Labels: labels})
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
			other, err := dataset.Load(ctx,
				dataset.Options{Name: name, Dir: c.Dataset.Dir, Skip: c.Dataset.Bad == "skip"})
			if err != nil {
				return nil, nil, fmt.Errorf("setting scores.other: %w", err)
			}
			some, err := other.Test.Subset(spread(other.Test.N, s.Images))
			if err != nil {
				return nil, nil, err
			}
			images = corrupt.Shaped(&some.Images, &ds.Test.Images)
			digests[label(name)] = other.Digest
		}
		if err := add(label(name), 0, images, nil); err != nil {
			return nil, nil, err
		}
	}
	for _, d := range domains {
		images, digest, err := d.of(ctx, c, ds, test)
		if err != nil {
			return nil, nil, err
		}
		if digest != "" {
			digests[d.Kind] = digest
		}
		if err := add(d.Kind, d.Severity, &images.Images, images.Labels); err != nil {
			return nil, nil, err
		}
	}
	return out, digests, nil
}

// Domain is a kind of images with the task's classes: a corruption (package corrupt) of a severity
// from 1, rotation by 90° times the severity (0 is none), or a data set with the same classes,
// whose severity is 0. Images of a domain keep the labels of those that they are made of.
type Domain struct {
	Kind     string
	Severity int
}

// Rotation is the kind of the domains of turned images.
const Rotation = "rotation"

// ofTest reports whether shifts are made of the test images of the data set of that name.
func (s *Scores) ofTest(name string) bool {
	return s.Corruptions || slices.Contains(s.Other, "inverted") ||
		slices.Contains(s.Other, "noise") ||
		slices.ContainsFunc(s.Domains, func(d Domain) bool {
			return d.Severity > 0 || d.Kind == Rotation || d.Kind == name
		})
}

// of returns the domain's images, made of test or read, in random order where a file may hold them
// by class, and a data set's digest. The stream of a corruption names its kind and severity: one
// domain more leaves the pixels of the others.
func (d Domain) of(ctx context.Context, c Config, ds *dataset.Dataset,
	test *dataset.Labelled) (*dataset.Labelled, string, error) {
	var images *dataset.Images
	var err error
	if d.Kind == Rotation {
		images, err = corrupt.Rotated(&test.Images, d.Severity)
	} else if d.Severity > 0 {
		images, err = corrupt.Apply(&test.Images, d.Kind, d.Severity,
			rng.New(c.Seed, "corruption", d.Kind, d.Severity))
	}
	if err != nil {
		return nil, "", err
	}
	if images != nil {
		return &dataset.Labelled{Images: *images, Labels: test.Labels}, "", nil
	}
	other := ds
	if d.Kind != ds.Name {
		if other, err = dataset.Load(ctx,
			dataset.Options{Name: d.Kind, Dir: c.Dataset.Dir,
				Skip: c.Dataset.Bad == "skip"}); err != nil {
			return nil, "", fmt.Errorf("domain: %w", err)
		}
		if !slices.Equal(other.Classes, ds.Classes) {
			return nil, "", fmt.Errorf("domain %s: its classes are %q, those of %s %q; "+
				"want the same", d.Kind, other.Classes, ds.Name, ds.Classes)
		}
	}
	// A data set without test images lends its training images.
	part := other.Test
	if part.N == 0 {
		part = other.Train
	}
	n := part.N
	if other == ds {
		// Of the run's own data set no image is taken that is not scored.
		n = scored(n, c.Dataset.Test)
	}
	order := rng.New(c.Seed, "domain", d.Kind).Perm(n)
	some, err := inMemory(ctx, &part, order[:min(n, c.Scores.Images)])
	if err != nil {
		return nil, "", err
	}
	return &dataset.Labelled{Images: *corrupt.Shaped(&some.Images, &test.Images),
		Labels: some.Labels}, other.Digest, nil
}

// inMemory returns images of a part with their pixels. Images of files are decoded here, and an
// image that fails is the error.
func inMemory(ctx context.Context, p *dataset.Labelled, idx []int) (*dataset.Labelled, error) {
	some, err := p.Subset(idx)
	if err != nil {
		return nil, err
	}
	return some.Load(ctx)
}

// spread returns at most most of n indices, evenly spaced: files may hold images by class. Indices
// ascend and are all different.
func spread(n, most int) []int {
	out := make([]int, min(n, most))
	for i := range out {
		out[i] = i * n / len(out)
	}
	return out
}
