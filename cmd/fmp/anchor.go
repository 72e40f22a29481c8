package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"fmp/featurize/dataset"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
	"fmp/pipeline/shipped"
)

// mostAnchor bounds the images of a class in an anchor.
const mostAnchor = 1000

// anchorSettings are those that fmp anchor reads.
type anchorSettings struct {
	Seed    uint64           `yaml:"seed" json:"seed" default:"1" doc:"seed that every random stream of the run is named under"`
	Dataset settings.Dataset `yaml:"dataset" json:"dataset"`
	Engine  settings.Engine  `yaml:"engine" json:"engine"`
}

// FillDefaults sets defaults of the data set where no value was given.
func (c *anchorSettings) FillDefaults() []string { return option.FillDefaults(c, c.Dataset.Name) }

// anchorMade is the output of fmp anchor.
type anchorMade struct {
	Output string `json:"output"`
	Bytes  int    `json:"bytes"`
	Model  string `json:"model"` // sha256 of the client graph
	N      int    `json:"n"`     // images
}

// newAnchorCommand declares fmp anchor. The client of the upload is called anchor, and its round is
// 0.
func newAnchorCommand() *cobra.Command {
	cfg := option.Default[anchorSettings]()
	var graph, out string
	var each int
	cmd := &cobra.Command{
		Use: "anchor",
		Short: "Make an anchor: an upload of images that the server knows, by which " +
			"clients are judged",
		Long: `Draw a few images of each class from the corpus of a data set, whose images no client holds, and
pass them through the client graph of a round: the upload is an anchor (fmp pool --anchor, anchor of
a round file). It tells which clients are honest where many collude, and counts nowhere else
(docs/federate.md).

The data set has a class of each of the client graph's names. Where no client graph is named, it
is the one that comes with the program. fmp-edge compress makes an anchor of a folder without a
corpus.`,
		Example: `  fmp anchor --dataset cifar10 -o anchor.upload
  fmp anchor --dataset cifar10 --client-graph client.onnx --images 20 -o anchor.upload`,
		Args: noArgs,
	}
	bindSettings(cmd, &cfg, runAliases)
	f := cmd.Flags()
	f.StringVar(&graph, "client-graph", "", "client `GRAPH` of the round (default: the one that "+
		"comes with the program for the data set)")
	f.IntVar(&each, "images", 10, "images of each class")
	outFlag(cmd, &out, "output", "anchor.upload", "`FILE` to write")
	jsonFlag(cmd, "print what was made as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if each < 1 || each > mostAnchor {
			return usageErrorf("anchor: --images %d; allowed are 1 to %d", each, mostAnchor)
		}
		u, err := drawAnchor(cmd.Context(), cfg, graph, each)
		if err != nil {
			return err
		}
		data, err := u.Encode()
		if err != nil {
			return fmt.Errorf("anchor: %w", err)
		}
		if err := atomicfile.WriteBytes(out, data); err != nil {
			return err
		}
		res := anchorMade{Output: out, Bytes: len(data), Model: u.Model, N: u.N}
		return say(cmd, res, "anchor: %s (%d bytes), %d images behind the client graph %.12s\n",
			out, res.Bytes, res.N, res.Model)
	}
	return cmd
}

// drawAnchor returns the upload of some images of each class of a data set's corpus. Images of a
// class are those that come first in a random order of the seed, each at most. A class of the graph
// without one is an error. The upload states n images of C classes behind the graph whose sha256 it
// holds.
func drawAnchor(ctx context.Context, cfg anchorSettings, graph string,
	each int) (*federate.Upload, error) {
	var m *onnx.Model
	var f models.Manifest
	var err error
	if graph == "" {
		m, f, err = shipped.Load(cfg.Dataset.Name, models.KindClient)
	} else {
		m, f, err = models.Load(graph)
	}
	if err != nil {
		return nil, usageError(fmt.Errorf("anchor: client graph: %w", err))
	}
	if f.Clip > 0 || !f.ClassMeans {
		return nil, usageErrorf("anchor: the client graph makes no class means or moments, whose " +
			"clients alone are judged")
	}
	c, err := client.New(m, f, cfg.Engine.Threads)
	if err != nil {
		return nil, usageError(fmt.Errorf("anchor: %w", err))
	}
	d := cfg.Dataset
	set, err := dataset.Load(ctx, dataset.Options{Name: d.Name, Dir: d.Dir, Classes: d.Classes,
		Test: d.Splits.Test, Fit: c.Fit, Skip: d.Bad == "skip", Hold: dataset.MaxBytes})
	if err != nil {
		return nil, err
	}
	part, err := set.Splits(dataset.Fractions{Extractor: d.Splits.Extractor,
		Corpus: d.Splits.Corpus, Clients: d.Splits.Clients})
	if err != nil {
		return nil, usageError(fmt.Errorf("anchor: %w", err))
	}
	src := &drawnImages{images: &set.Train.Images}
	held := make([]int, f.C)
	for _, i := range rng.New(cfg.Seed, "anchor").Perm(part.Corpus.Len()) {
		at := part.Corpus.From + i
		y := slices.Index(f.Classes, set.Classes[set.Train.Labels[at]])
		if y >= 0 && held[y] < each {
			held[y]++
			src.rows, src.labels = append(src.rows, at), append(src.labels, y)
		}
	}
	if y := slices.Index(held, 0); y >= 0 {
		return nil, usageErrorf("anchor: the corpus of data set %s has no image of class %q of "+
			"the client graph", d.Name, f.Classes[y])
	}
	if got, want := src.images, c.Fit; got.H != want.H || got.W != want.W || got.Ch != want.Ch {
		return nil, usageErrorf("anchor: images of %dx%d pixels and %d channels, and "+
			"the client graph takes %dx%d and %d: give the round's data set", got.H, got.W, got.Ch,
			want.H, want.W, want.Ch)
	}
	u, _, err := c.Upload(ctx, src, client.Options{}, "anchor")
	return u, err
}

// drawnImages are some images of a data set, as a source. rows are places in the training images,
// labels classes of the graph, and at is the next one.
type drawnImages struct {
	images       *dataset.Images
	rows, labels []int
	at           int
}

func (s *drawnImages) Len() int     { return len(s.rows) }
func (s *drawnImages) Close() error { return nil }

// Next decodes one image, where the data set is of files. dst has room for one image.
func (s *drawnImages) Next(ctx context.Context, dst []uint8) (imagefile.Item, error) {
	i := s.at
	s.at++
	item := imagefile.Item{Name: fmt.Sprint("image ", s.rows[i]), Label: s.labels[i]}
	im, bad, err := s.images.Load(ctx, s.rows[i], s.rows[i]+1)
	switch {
	case err != nil:
		return item, err
	case len(bad) > 0:
		return item, &imagefile.BadImage{Err: bad[0].Err}
	}
	copy(dst, im.At(0))
	return item, nil
}
