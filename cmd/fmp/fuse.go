package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/serde"
	"fmp/pipeline/lab/experiment"
)

// fused is what fmp fuse prints.
type fused struct {
	Model  string `json:"model"`
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`
	Image  []int  `json:"image"` // height, width, channels
	Size   int    `json:"size"`  // points of an upload, at most
	Upload string `json:"upload"`
}

// What an upload is made of.
const (
	uploadClassMeans  = "class-means"
	uploadCoordinates = "coordinates"
	uploadPoints      = "points"
	uploadPrivate     = "private"
)

// parts are what an upload of each kind is a list of.
var parts = map[string]string{uploadClassMeans: "class means", uploadCoordinates: "class means", uploadPoints: "points", uploadPrivate: "class sums"}

func newFuseCommand() *cobra.Command {
	var out, upload string
	var names []string
	var asJSON bool
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "fuse",
		Short: "Fuse preprocessing, extractor and embedding into one client graph",
		Long: `Write the client graph: one ONNX file from raw images (uint8, [n, height, width, channels]) and labels (int64,
[n]) to an upload (points and masses), all that a client needs.

The images are those of the extractor's input size. Where the extractor is somebody else's, its features are
standardised with the statistics of the data set's extractor part, which become part of the graph.

--upload says what an upload is made of. class-means: of each class that the client holds the mean of its softened
features and how many images it is of, which conjugate and open predictors behind this extractor read. coordinates: the same
in the coordinates of one conjugate predictor (--set conjugate.model=FILE), with the fewest bytes. points: what an
embedding makes (--embedding), for the predictor of fmp train predictor. private: class sums in whole numbers for a round with
differential privacy (docs/privacy.md), by the private predictor (--set privacy.model=FILE). Without the flag, class-means where there is a
trained conjugate or open predictor for the extractor, and points where there is none or an --embedding is given.

--class-names says which classes the clients have where the server has no image of them: the data set is then the corpus
alone, and the open predictor (--set open.model=FILE, of fmp train open) reads the uploads.`,
		Example: `  fmp fuse --dataset mnist -o client.onnx
  fmp fuse --dataset cifar10 --upload coordinates -o client.onnx
  fmp fuse --dataset ./photos --extractor extractor.onnx --set conjugate.model=conjugate.onnx -o client.onnx
  fmp fuse --dataset ./photos --extractor extractor.onnx --set open.model=open.onnx --class-names larch,spruce,fir -o client.onnx`,
		Args: noArgs,
	}
	s := bindSettings(cmd, &cfg, runAliases, "seed", "dataset.", "extractor.", "conjugate.model", "open.", "privacy.model", "embedding.", "engine.")
	cmd.Flags().StringVarP(&out, "model", "o", "", "`FILE` to write (default DATASET-client.onnx)")
	wantFolders(cmd, "model")
	cmd.Flags().StringVar(&upload, "upload", "", "what uploads are made of: class-means, coordinates, points or private (see above)")
	cmd.Flags().StringSliceVar(&names, "class-names", nil, "`NAMES` of the clients' classes, 2 or more, where the data set has no images of them")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what was made as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.resolve(); err != nil {
			return err
		}
		if upload != "" && !slices.Contains([]string{uploadClassMeans, uploadCoordinates, uploadPoints, uploadPrivate}, upload) {
			return usageErrorf("--upload is %q; allowed are %s, %s, %s and %s", upload, uploadClassMeans, uploadCoordinates, uploadPoints, uploadPrivate)
		}
		cfg.Predictor.Model = "untrained" // a client has none
		eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer eng.Close()
		bar := newProgress(cmd.ErrOrStderr())
		defer bar.close()
		p, err := experiment.Prepare(cmd.Context(), cfg, eng, nil, bar.step)
		if err != nil {
			return usageError(err)
		}
		defer p.Close()
		bar.close()
		if out == "" {
			out = strings.Map(fileRune, p.Config.Dataset.Label()) + "-client.onnx"
		}
		if upload == "" {
			upload = uploadPoints
			if (p.ConjugateIsTrained() || p.OpenIsTrained()) && !s.given("embedding.model") {
				upload = uploadClassMeans
			}
		}
		embedding, err := clientEmbedding(p, upload, names)
		if err != nil {
			return usageError(err)
		}
		e, err := models.ReadManifest(embedding)
		if err != nil {
			return usageError(err)
		}
		var mean, std []float32
		if p.Stats != nil {
			mean, std = p.Stats.Mean, p.Stats.Std
		}
		x, pre := p.Extractor.Client(mean, std)
		switch {
		case names != nil:
			e.Classes = names
		case len(e.Classes) == 0:
			e.Classes = p.Manifest.Classes
		}
		f := p.Extractor.Manifest()
		if names != nil {
			f.C = 0 // the classes that it learned are not the clients'
		}
		m, err := models.ClientGraph(x, f, embedding, e, pre)
		if err != nil {
			return usageError(err)
		}
		if f, err = models.ReadManifest(m); err != nil {
			return err
		}
		f.Command = strings.TrimPrefix(f.Command+"; fmp "+strings.Join(os.Args[1:], " "), "; ")
		if err := f.Write(m); err != nil {
			return err
		}
		data, err := serde.Marshal(m)
		if err != nil {
			return err
		}
		if err := serde.Save(out, m); err != nil {
			return err
		}
		res := fused{Model: out, Digest: models.DigestBytes(data), Bytes: len(data), Image: []int{pre.Height, pre.Width, pre.Channels}, Size: f.S, Upload: upload}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), res)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "client graph: %s (%d bytes, sha256 %.12s)\nimages:       %dx%d, %d channels\nupload:       %s, at most %d %s of %d numbers each\n",
			out, res.Bytes, res.Digest, pre.Height, pre.Width, pre.Channels, upload, f.S, parts[upload], f.PointWidth())
		return err
	}
	return cmd
}

// clientEmbedding is what makes uploads of a client's features: for classes of these names or, where there are none, those of the data set.
func clientEmbedding(p *experiment.Prepared, upload string, names []string) (*onnx.Model, error) {
	if names != nil {
		if slices.Contains(names, "") || len(names) < 2 || len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names) {
			return nil, fmt.Errorf("--class-names are %q; want two names or more, each another", names)
		}
		if upload != uploadClassMeans || !p.OpenIsTrained() {
			return nil, fmt.Errorf("--class-names wants uploads of class means and an open predictor that was trained behind the extractor; fmp train open makes one, and --set open.model=FILE names it")
		}
		return models.OpenEmbedding(p.Open, len(names))
	}
	switch {
	case upload == uploadPoints:
		return p.Embedding, nil
	case upload == uploadPrivate:
		private, err := p.PrivatePredictor()
		if err != nil {
			return nil, err
		}
		return models.PrivateEmbedding(private, len(p.Manifest.Classes), p.Manifest.Classes)
	case p.ConjugateIsTrained():
		if upload == uploadClassMeans && p.OpenIsTrained() && !models.SameSoftening(p.Conjugate, p.Open) {
			return nil, fmt.Errorf("the conjugate predictor and the open one (open.model) soften features about different centres, those of two corpora; train both on one, or set open.model or conjugate.model to none")
		}
		return models.ConjugateEmbedding(p.Conjugate, upload == uploadClassMeans)
	case upload == uploadClassMeans && p.OpenIsTrained():
		return models.OpenEmbedding(p.Open, len(p.Manifest.Classes))
	}
	return nil, fmt.Errorf("--upload %s wants a conjugate predictor that was trained behind the extractor; fmp train conjugate makes one, and --set conjugate.model=FILE names it", upload)
}
