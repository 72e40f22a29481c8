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

// anchorSettings are those that fmp anchor reads. The seed chooses the images, the data set holds
// them, and the engine computes their features.
type anchorSettings struct {
	Seed    uint64           `yaml:"seed" json:"seed" default:"1" doc:"seed that every random stream of the run is named under"`
	Dataset settings.Dataset `yaml:"dataset" json:"dataset"`
	Engine  settings.Engine  `yaml:"engine" json:"engine"`
}

// FillDefaults sets defaults of the data set where no value was given. It returns the keys that it
// has filled.
func (c *anchorSettings) FillDefaults() []string { return option.FillDefaults(c, c.Dataset.Name) }

// anchorMade is the output of fmp anchor. Bytes is the size of the file. Model is as in the upload,
// by which a server finds that an anchor is of another round's graph.
type anchorMade struct {
	Output string `json:"output"`
	Bytes  int    `json:"bytes"`
	Model  string `json:"model"` // sha256 of the client graph
	N      int    `json:"n"`     // images
}

// newAnchorCommand declares fmp anchor. The client of the upload is called anchor, and its round is
// 0. The upload is not signed: the server makes it for itself. It is encoded before the file is
// touched, and written atomically, so that an error leaves a file of that name as it was.
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
// holds. Images come from the corpus part of the training images, whose images no client draws in a
// run. Where a class has fewer than each, all of its images are taken. Classes are matched by name,
// and images of classes that the graph lacks are passed over.
//
// The graph is loaded and parsed before images are read, and wrong kinds of graph are refused
// there: private rounds clip points and judge nobody. Images are decoded one by one where the data
// set is of files, so that memory is that of the pixels that dataset.MaxBytes holds.
func drawAnchor(ctx context.Context, cfg anchorSettings, graph string,
	each int) (*federate.Upload, error) {
	var m *onnx.Model
	var f models.Manifest
	var err error
	// The program's client graph of the data set, if there is one.
	if graph == "" {
		m, f, err = shipped.Load(cfg.Dataset.Name, models.KindClient)
	} else {
		m, f, err = models.Load(graph)
	}
	if err != nil {
		return nil, usageError(fmt.Errorf("anchor: client graph: %w", err))
	}
	// Uploads of moments have class means too, by which they are judged.
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
	// The stream has a name of its own, so that the images are not those that another use of the
	// seed draws first.
	for _, i := range rng.New(cfg.Seed, "anchor").Perm(part.Corpus.Len()) {
		at := part.Corpus.From + i
		y := slices.Index(f.Classes, set.Classes[set.Train.Labels[at]])
		// Labels of the graph go with the images: its order of classes may differ from the data
		// set's.
		if y >= 0 && held[y] < each {
			held[y]++
			src.rows, src.labels = append(src.rows, at), append(src.labels, y)
		}
	}
	// A class without images could judge no client's mean of it. The first such class is named.
	if y := slices.Index(held, 0); y >= 0 {
		return nil, usageErrorf("anchor: the corpus of data set %s has no image of class %q of "+
			"the client graph", d.Name, f.Classes[y])
	}
	// Images of a folder were resized to the graph's size, while those of a data set have their
	// own.
	if got, want := src.images, c.Fit; got.H != want.H || got.W != want.W || got.Ch != want.Ch {
		return nil, usageErrorf("anchor: images of %dx%d pixels and %d channels, and "+
			"the client graph takes %dx%d and %d: give the round's data set", got.H, got.W, got.Ch,
			want.H, want.W, want.Ch)
	}
	u, _, err := c.Upload(ctx, src, client.Options{}, "anchor")
	return u, err
}

// drawnImages are some images of a data set, as a source. rows are places in the training images,
// labels classes of the graph, and at is the next one. It implements the source that package client
// reads, once and from one goroutine. The labels are those of the graph, which may number the same
// classes in another order than the data set.
type drawnImages struct {
	images       *dataset.Images
	rows, labels []int
	at           int
}

func (s *drawnImages) Len() int     { return len(s.rows) }
func (s *drawnImages) Close() error { return nil }

// Next decodes one image, where the data set is of files. dst has room for one image. Pixels are
// [H, W, Ch] of the graph's size, which drawAnchor has compared. A file that cannot be decoded is
// an imagefile.BadImage, and one that cannot be read is an error of its own.
func (s *drawnImages) Next(ctx context.Context, dst []uint8) (imagefile.Item, error) {
	i := s.at
	s.at++
	item := imagefile.Item{Name: fmt.Sprint("image ", s.rows[i]), Label: s.labels[i]}
	// Load of one image: those in memory share it, and others are decoded.
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
