package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/extractor"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/serde"
	"fmp/pipeline/corpus"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// fused is the output of fmp fuse. Digest is the SHA-256 of the file in hexadecimal, which servers
// state and clients approve. Bytes is the size of the file, and Image is in pixels.
type fused struct {
	Model  string `json:"model"`
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`
	Image  []int  `json:"image"` // height, width, channels
	// how images are brought there: stretch, crop, crop:SHARE or pad
	Resize string `json:"resize"`
	// Mean and Std of pixels of 0 to 1, in the extractor's order of channels; none where it is fed
	// 0 to 255. BGR says that it takes blue first.
	Mean   []float32 `json:"mean,omitempty"`
	Std    []float32 `json:"std,omitempty"`
	BGR    bool      `json:"bgr,omitempty"`
	Size   int       `json:"size"` // points of an upload, at most
	Upload string    `json:"upload"`
	// Kappa of uploads of moments and the standard deviation of its logarithm; none where nothing
	// is known of it.
	Kappa []float64 `json:"kappa,omitempty"`
	// Features names the layer they are taken from, and the nodes cut off behind it; none for
	// extractors of this program.
	Features *extractor.Layer `json:"features,omitempty"`
}

// front is a client graph's way from images to features. layer is for the output of the command
// alone: the graph does not hold it.
type front struct {
	models.Preprocessing
	layer *extractor.Layer // nil for an extractor of this program
}

// frontOf returns the part of a client graph before the embedding, with the statistics that its
// features are standardised by. mean and std are [dx], or nil. Without statistics features are left
// as the extractor gives them. The model is x's own, pruned to its features, and must not be
// changed. Features are standardised as (h - mean)/std, feature by feature. The layer is kept where
// somebody else's model was cut, so that a person can see where.
func frontOf(x *extractor.Extractor, mean, std []float32) (*onnx.Model, front) {
	m, pre := x.Client(mean, std)
	f := front{Preprocessing: pre}
	// Models of this program have a kind in their manifest, and no layers to choose from.
	if layer := x.Layer(); layer.Why != "" && x.Manifest().Kind == "" {
		f.layer = &layer
	}
	return m, f
}

// maxCut is how many layers that are cut off the text names. The JSON names all of them.
const maxCut = 4

// pixels returns how the extractor is fed, in words. Mean and deviation are of pixels scaled to
// 0..1. Without mean and deviation the text says how to name a preset, as published networks mostly
// have one. One number a channel is printed, in the extractor's order.
func (f front) pixels() string {
	order := ""
	if f.BGR {
		order = ", blue first"
	}
	switch {
	case f.Raw:
		return "as they are" + order
	case slices.Max(f.Mean) == 0 && slices.Min(f.Mean) == 0 && slices.Max(f.Std) == 1 &&
		slices.Min(f.Std) == 1:
		return "divided by 255" + order + ", without mean and deviation (--preset NAME if the " +
			"model was trained with others)"
	}
	return fmt.Sprintf("(pixel/255 - %.4g) / %.4g%s", f.Mean, f.Std, order)
}

// print returns how the extractor is fed and which layer the features are taken from, in words. Of
// many layers that are cut off it names maxCut. dx is the number of features. It is empty for an
// extractor of this program, whose images and features are documented. A crop of the whole image
// changes only images of another shape than the square asked for, and the text says so.
func (f front) print(dx int) string {
	if f.layer == nil {
		return ""
	}
	cut := "nothing"
	// The layers come in the order of the model, so that the first ones follow the features.
	if n := len(f.layer.Without); n > 0 {
		cut = strings.Join(f.layer.Without[:min(n, maxCut)], ", ")
		if n > maxCut {
			cut += fmt.Sprintf(" and %d more layers", n-maxCut)
		}
	}
	// A reason may go on in brackets, which the JSON alone has.
	why, _, _ := strings.Cut(f.layer.Why, " (")
	if f.layer.Over != "" {
		why += ", " + f.layer.Over
	}
	resize := cmp.Or(f.Resize, string(imagefile.Stretch))
	if share, _ := models.CropShare(resize); share == 1 {
		resize += ", for images of another shape"
	}
	return fmt.Sprintf("resize:       %s\n"+
		"pixels:       %s\nfeatures:     %d of %q, %s\ncut off:      %s (--layer NAME takes the "+
		"features of another layer)\n", resize, f.pixels(), dx,
		f.layer.Value, why, cut)
}

// Kinds of an upload.
const (
	// They are the values of --upload. Manifests do not hold them, and tell kinds by other fields.
	uploadClassMeans  = "class-means"
	uploadCoordinates = "coordinates"
	uploadPoints      = "points"
	uploadPrivate     = "private"
	uploadMoments     = "moments"
)

// parts are the elements of an upload of each kind. Its keys are the values that --upload takes.
// Calibration points and scatters of moments are beside them.
var parts = map[string]string{uploadClassMeans: "class means", uploadCoordinates: "class means",
	uploadPoints:  "points",
	uploadPrivate: "class sums", uploadMoments: "class means"}

// fuseSettings are those that fmp fuse reads. The keys are those of a run, so that one settings
// file does for both. Settings of which a kind of upload reads none have no effect on it, and stay
// out of the graph's manifest (fuseRun.acts).
type fuseSettings struct {
	Seed      uint64             `yaml:"seed" json:"seed" default:"1" doc:"seed that every random stream of the run is named under"`
	Dataset   settings.Dataset   `yaml:"dataset" json:"dataset"`
	Extractor settings.Extractor `yaml:"extractor" json:"extractor"`
	Conjugate settings.Conjugate `yaml:"conjugate" json:"conjugate"`
	Embedding settings.Embedding `yaml:"embedding" json:"embedding"`
	Open      settings.OpenModel `yaml:"open" json:"open"`
	Privacy   settings.Privacy   `yaml:"privacy" json:"privacy"`
	Engine    settings.Engine    `yaml:"engine" json:"engine"`
}

// FillDefaults sets defaults of the data set where no value was given. It returns the keys that it
// has filled.
func (c *fuseSettings) FillDefaults() []string { return option.FillDefaults(c, c.Dataset.Name) }

// fuseRun is a run of fmp fuse: its flags and settings. run settles the kind of uploads and the
// file first, and then makes the graph. names is nil where --class-names is not given. acts holds
// keys such as seed, and groups with a dot behind them. A fuseRun is for one run of the command.
type fuseRun struct {
	// upload is the kind of uploads; "" is settled by the models that there are.
	out, upload string
	names       []string // of the clients' classes
	acts        []string // keys and groups of settings that the graph depends on
	moments     momentsFlags
	settings    fuseSettings
}

// newFuseCommand declares fmp fuse. An upload of moments takes 2 MiB at most, unless --bytes says
// otherwise. The size is of the whole message. --upload has no default, as the kind follows from
// the models that are there.
func newFuseCommand() *cobra.Command {
	o := fuseRun{moments: momentsFlags{bytes: 2 << 20}, settings: option.Default[fuseSettings]()}
	cmd := &cobra.Command{
		Use:   "fuse",
		Short: "Fuse preprocessing, extractor and embedding into one client graph",
		Long: `Write the client graph: one ONNX file from raw images (uint8, [n, height, width, channels]) and
labels (int64, [n]) to an upload (points and masses), all that a client needs.

The images are those of the extractor's input size. Behind an extractor that comes with the program
none of the data set's is read, unless --dataset.dir names them. Where the extractor is somebody
else's, its features are standardised with the statistics of the data set's extractor part, which
become part of the graph.

--upload says what an upload is made of. class-means: of each class that the client holds the mean
of its softened features and how many images it is of, which conjugate and open predictors behind
this extractor read. coordinates: the same in the coordinates of one conjugate predictor (--set
conjugate.model=FILE), with the fewest bytes. points: what an embedding makes (--embedding), for the
predictor of fmp train predictor. private: class sums in whole numbers for a round with differential
privacy (docs/privacy.md), by the private predictor (--set privacy.model=FILE). Without the flag,
class-means where there is a trained conjugate or open predictor for the extractor, and points where
there is none or an --embedding is given.

moments: class means, the scatter of the features within the client's classes, and a curve; where
the owner grants them, a few single images' features too, as calibration points. The server reads
them without a corpus or a predictor. It
wants --extractor and --class-names, and is the default with them. Labelled images behind the
extractor, of any classes (--dataset), tell its kappa, the temperature of its classifiers; without
any, and without --kappa, clients left out tell the temperature, and calibration points correct it.
Features are taken from the layer
before the classes' scores; what is printed says which, and what is cut off behind it. --layer takes
another, by the name of the layer or of its value. --class-names says which classes the clients have
where these are some of the data set's, or others: the data set is then the corpus alone, and the
open predictor (--set open.model=FILE, of fmp train open) reads uploads of classes that the corpus
lacks.`,
		Example: `  fmp fuse --dataset mnist -o client.onnx
  fmp fuse --extractor extractor.onnx --preset imagenet --class-names larch,spruce,fir \
    -o client.onnx
  fmp fuse --extractor extractor.onnx --preset imagenet --class-names larch,spruce,fir \
    --dataset ./labelled -o client.onnx
  fmp fuse --extractor classifier.onnx --preset torchvision --layer /avgpool/GlobalAveragePool \
    --class-names larch,spruce -o client.onnx
  fmp fuse --dataset cifar10 --upload coordinates -o client.onnx
  fmp fuse --dataset ./photos --extractor extractor.onnx --set conjugate.model=conjugate.onnx \
    -o client.onnx
  fmp fuse --dataset ./photos --extractor extractor.onnx --set open.model=open.onnx \
    --class-names larch,spruce,fir -o client.onnx`,
		Args: noArgs,
	}
	s := bindSettings(cmd, &o.settings, runAliases, "seed", "dataset.", "extractor.",
		"conjugate.model", "open.", "privacy.model", "embedding.", "engine.")
	outFlag(cmd, &o.out, "model", "", "`FILE` to write (default DATASET-client.onnx)")
	cmd.Flags().StringVar(&o.upload, "upload", "", "what uploads are made of: moments, "+
		"class-means, coordinates, points or private (see above)")
	cmd.Flags().Var(&o.moments.bytes, "bytes", "`SIZE` of an upload of moments at most, 64k, "+
		"256k or 2m say: fewer take fewer coordinates of the features")
	cmd.Flags().Var(&classNames{&o.names}, "class-names",
		"`NAMES` of the clients' classes, 2 or more, where the data set has no images of them")
	jsonFlag(cmd, "print what was made as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd, s) }
	return cmd
}

// run makes and writes the client graph. The kind and the file are settled first. The graph is then
// made, gets the command in its manifest, is parsed as clients parse it, and is written. The file
// is written last and whole, so that an error leaves none and spares one that was there.
//
// The manifest records the settings that the graph depends on and no others: equal graphs have
// equal digests, on whichever machine they are made.
func (o *fuseRun) run(cmd *cobra.Command, s *resolver) error {
	// The kind is checked before the engine is opened.
	if o.upload != "" && parts[o.upload] == "" {
		return usageErrorf("--upload is %q; allowed are %s, %s, %s, %s and %s", o.upload,
			uploadMoments, uploadClassMeans, uploadCoordinates, uploadPoints, uploadPrivate)
	}
	eng, err := openEngine(cmd.Context(), o.settings.Engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	m, pre, err := o.client(cmd, s, eng)
	if err != nil {
		return err
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return err
	}
	// The manifest of the fused graph begins as the embedding's, and so has its command.
	f.Command = s.recorded(o.acts...) // the predictor's own may hold paths of this machine
	if err := f.Write(m); err != nil {
		return err
	}
	// The graph is taken apart as every client does, before it is written.
	if _, err := models.ParseClient(m, f); err != nil {
		return usageError(fmt.Errorf("every client would refuse it: %w", err))
	}
	// Saving marshals once more, to the same bytes: the digest is of the file.
	data, err := serde.Marshal(m)
	if err != nil {
		return err
	}
	if err := serde.Save(o.out, m); err != nil {
		return err
	}
	res := fused{Model: o.out, Digest: models.DigestBytes(data), Bytes: len(data),
		Image: []int{pre.Height, pre.Width, pre.Channels}, Resize: cmp.Or(pre.Resize, string(
			imagefile.Stretch)), Size: f.S, Upload: o.upload, Features: pre.layer, BGR: pre.BGR}
	// An extractor that takes raw bytes has no mean and deviation.
	if !pre.Raw {
		res.Mean, res.Std = pre.Mean, pre.Std
	}
	known := ""
	// 0 stands for a kappa of which nothing is known.
	if f.Kappa > 0 {
		res.Kappa = []float64{f.Kappa, f.KappaDeviation}
		known = fmt.Sprintf("kappa:        %s\n", kappaText(f.Kappa, f.KappaDeviation))
	}
	return say(cmd, res, "client graph: %s (%d bytes, sha256 %.12s)\nimages:       %dx%d, "+
		"%d channels\nupload:       %s, at most %d %s of %d numbers each\n%s%s", o.out,
		res.Bytes, res.Digest, pre.Height, pre.Width, pre.Channels, o.upload, f.S, parts[o.upload],
		f.PointWidth(), pre.print(f.Dx), known)
}

// client makes the client graph, and settles the kind of its uploads and the name of its file where
// nobody gave them. Refusals come before images are read: classes without names, flags of another
// kind of upload, names that no folder has, and an output that cannot be written. The kind is
// moments where only class names are known, points where an embedding is named, and else is settled
// by corpusClient.
func (o *fuseRun) client(cmd *cobra.Command, s *resolver,
	eng engine.Engine) (m *onnx.Model, pre front, err error) {
	cfg := &o.settings
	// The default data set would otherwise lend its classes to an extractor that it has nothing to
	// do with.
	if cfg.Extractor.Model != "default" && o.names == nil && !s.given("dataset.name") {
		return nil, pre, usageErrorf("--extractor %s comes without the clients' classes: name "+
			"them (--class-names larch,spruce), or give --dataset, whose classes they then are",
			cfg.Extractor.Model)
	}
	// Without a corpus nothing but moments can be read.
	if o.upload == "" && o.names != nil && cfg.Extractor.Model != "default" &&
		!s.given("open.model") {
		o.upload = uploadMoments
	}
	if o.out == "" {
		o.out = "client.onnx"
		if o.upload != uploadMoments {
			o.out = strings.Map(fileRune, cfg.Dataset.Label()) + "-client.onnx"
		}
		// A name that the program chose is checked as that of a flag is. The claim holds while
		// images are read, and ends before the file is written.
		release, err := outputs.Claim(o.out)
		if err != nil {
			return nil, pre, usageError(err)
		}
		defer release()
	}
	if o.upload == uploadMoments {
		if err := checkNames(o.names); err != nil {
			return nil, pre, usageError(fmt.Errorf("%w; --upload %s asks for them",
				err, uploadMoments))
		}
		// Kappa is learned from images that somebody named, and never from those of a default.
		o.moments.learn = s.given("dataset.name") && len(cfg.Extractor.Kappa) == 0
		return o.momentsClient(cmd, eng)
	}
	// Here the kind is known to be none of moments, so that both flags would be without effect.
	if cmd.Flags().Changed("bytes") || len(cfg.Extractor.Kappa) > 0 {
		return nil, pre, usageErrorf("--bytes and --kappa are of uploads of moments, which " +
			"--extractor with --class-names, or --upload moments, makes: leave them out")
	}
	if o.upload == "" && s.given("embedding.model") {
		o.upload = uploadPoints
	}
	if o.names != nil { // before images are read
		if err := checkNames(o.names); err != nil {
			return nil, pre, usageError(err)
		}
		if o.upload != "" && o.upload != uploadClassMeans {
			return nil, pre, usageError(errNamed)
		}
	}
	return o.corpusClient(cmd, eng)
}

// corpusClient makes the client graph of uploads that a predictor of some corpus reads, and settles
// the kind of its uploads. The data set's images are read where the extractor's statistics are not
// known without them. acts gathers the settings that the graph depends on, which its manifest
// records. The kind is class means where a conjugate or open predictor is at hand, and else points.
//
// Without images to be read the setting dataset.name alone acts, and with them all of dataset. The
// first class names that are known go into the manifest: those of --class-names, of the embedding,
// of the data set. All errors are of usage.
func (o *fuseRun) corpusClient(cmd *cobra.Command, eng engine.Engine) (*onnx.Model, front, error) {
	none, cfg := front{}, &o.settings
	o.acts = []string{"extractor.", "dataset.name"}
	from := source(cfg.Dataset, cfg.Extractor, cfg.Engine)
	// nil without an error says that the images must be read.
	images, err := from.Describe(eng)
	// Reading decodes every image, and computes all features or finds them cached.
	if err == nil && images == nil {
		o.acts = append(o.acts, "dataset.")
		bar := newProgress(cmd.ErrOrStderr())
		images, err = corpus.Read(cmd.Context(), from, eng, bar.report, nil)
		bar.close()
	}
	if err != nil {
		return nil, none, usageError(err)
	}
	remark(cmd, images.Set.Notes)
	// The predictors must have been trained behind this extractor, and are compared with it by its
	// digest.
	p := &predictors{cfg: cfg, behind: images.Behind(), classes: images.Set.Classes}
	if err := p.find(); err != nil {
		return nil, none, usageError(err)
	}
	if o.upload == "" {
		o.upload = uploadPoints
		if p.conjugate != nil || p.open != nil {
			o.upload = uploadClassMeans
		}
	}
	embedding, err := p.embedding(o.upload, o.names)
	if err != nil {
		return nil, none, usageError(err)
	}
	o.acts = append(o.acts, p.acts...)
	e, err := models.ReadManifest(embedding)
	if err != nil {
		return nil, none, usageError(err)
	}
	var mean, std []float32
	if stats := images.Features.Stats; stats != nil {
		mean, std = stats.Mean, stats.Std
	}
	// An extractor of this program standardises its features itself, and Stats is then nil.
	x, pre := frontOf(images.Extractor, mean, std)
	switch {
	case o.names != nil:
		e.Classes = o.names
	// The embedding of an open predictor is made for a number of classes, without names.
	case len(e.Classes) == 0:
		e.Classes = p.classes
	}
	f := images.Extractor.Manifest()
	if o.names != nil {
		f.C = 0 // the classes that it learned are not the clients'
	}
	m, err := models.ClientGraph(x, f, embedding, e, pre.Preprocessing)
	if err != nil {
		return nil, none, usageError(err)
	}
	return m, pre, nil
}

// classNames is the value of --class-names: names parted by commas, quoted as in CSV where they
// hold one. Given twice, the flag adds to the names that are there. It implements pflag.Value.
type classNames struct{ of *[]string }

func (n *classNames) String() string { return strings.Join(*n.of, ",") }
func (n *classNames) Type() string   { return "strings" }

// Set adds names. A line break would end the list unseen; spaces beside a comma are no part of a
// name. Empty names are kept here, and refused by checkNames. Quotes are those of RFC 4180. No more
// than one record is taken.
func (n *classNames) Set(text string) error {
	// An empty text is no record, and is refused as well.
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(lines) != 1 {
		return fmt.Errorf("%q is no line of names; part them by commas: larch,spruce", text)
	}
	for _, name := range lines[0] {
		*n.of = append(*n.of, strings.TrimSpace(name))
	}
	return nil
}

// maxFolder is the length in bytes that names of files end at. It is NAME_MAX of Linux, and the
// limit of ext4 and XFS.
const maxFolder = 255

// checkNames returns an error unless there are two names or more, each another and a folder's:
// labels are names of folders. A folder's name is 255 bytes at most on common file systems. The
// same rule is for labels at a client, where images lie in one folder a class. A name with a dot in
// front is a hidden folder, which readers pass over. Names that differ in case alone are allowed.
//
// nil is refused too. The text of the error quotes the names, so that control characters show.
func checkNames(names []string) error {
	for _, name := range names {
		if strings.ContainsAny(name, "/\\") || strings.HasPrefix(name, ".") ||
			len(name) > maxFolder {
			return fmt.Errorf("--class-names has %q, and no folder of a client's images can "+
				"be called so: give a name of %d bytes at most, without slashes, that does not "+
				"begin with a dot", name, maxFolder)
		}
	}
	if slices.Contains(names, "") || len(names) < 2 ||
		len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names) {
		return fmt.Errorf("--class-names are %q; want two names or more, each another", names)
	}
	return nil
}

// predictors are the trained models behind the extractor of a client graph. find loads them, and
// embedding makes of one of them the client's part. behind is the manifest of the extractor with
// the number of features and classes. classes are those of the data set, in the order of their
// numbers. The models are shared with nobody.
type predictors struct {
	cfg             *fuseSettings
	behind          models.Manifest
	classes         []string
	conjugate, open *onnx.Model // nil: none that was trained
	acts            []string    // keys of the settings that embedding read
}

// find loads the conjugate and the open predictor that the settings name. A model that a setting
// names must be of this extractor. Without one at hand the field stays nil. It is called once,
// before embedding. The open predictor that the program ships must be of the data set's classes,
// while one that a setting names may have others: it reads uploads of any classes.
func (p *predictors) find() error {
	var err error
	if p.cfg.Conjugate.Model != "none" {
		if p.conjugate, _, _, err = corpus.Model(models.KindConjugate, p.cfg.Conjugate.Model,
			p.cfg.Dataset.Name, p.behind); err != nil {
			return err
		}
	}
	// Uploads are then read by the conjugate predictor alone.
	if p.cfg.Open.Model == "none" {
		return nil
	}
	behind := p.behind
	if p.cfg.Open.Model != "default" {
		behind.C = 0 // its classes are the corpus's
	}
	p.open, _, _, err = corpus.Model(models.KindOpen, p.cfg.Open.Model, p.cfg.Dataset.Name, behind)
	return err
}

// embedding returns the graph from a client's features to an upload: for classes of these names or,
// where there are none, those of the data set. A graph of class means is read by both predictors,
// which must then soften features about one centre. With names, class means are the only kind: the
// open predictor comes first, as it reads classes that the corpus lacks, and then the conjugate one
// of some of its own classes. Without names the conjugate predictor comes before the open one. acts
// is set to the settings that were read.
//
// No upload can be changed once clients have sent it, so that centres that differ are refused here,
// and not by the server.
func (p *predictors) embedding(upload string, names []string) (*onnx.Model, error) {
	if names != nil {
		if upload == uploadClassMeans && p.open != nil {
			p.acts = []string{"open.model"}
			return models.OpenEmbedding(p.open, len(names))
		}
		return p.conjugateOf(upload, names)
	}
	switch {
	case upload == uploadPoints:
		return p.points()
	case upload == uploadPrivate:
		p.acts = []string{"privacy.model"}
		private, _, err := corpus.Private(p.cfg.Privacy.Model, p.cfg.Dataset.Name,
			p.behind, p.conjugate)
		if err != nil {
			return nil, err
		}
		return models.PrivateEmbedding(private, len(p.classes), p.classes)
	case p.conjugate != nil:
		p.acts = []string{"conjugate.model"}
		if upload == uploadClassMeans && p.open != nil &&
			!models.SameSoftening(p.conjugate, p.open) {
			return nil, fmt.Errorf("the conjugate predictor and the open one (open.model) soften " +
				"features about different centres, those of two corpora; train both on one, or " +
				"set open.model or conjugate.model to none")
		}
		return models.ConjugateEmbedding(p.conjugate, upload == uploadClassMeans)
	case upload == uploadClassMeans && p.open != nil:
		p.acts = []string{"open.model"}
		return models.OpenEmbedding(p.open, len(p.classes))
	}
	return nil, fmt.Errorf("--upload %s wants a conjugate predictor that was trained behind the "+
		"extractor; fmp train conjugate makes one, and --set conjugate.model=FILE names it", upload)
}

// conjugateOf returns the embedding of some of the conjugate predictor's classes. models.OfClasses
// returns nil for a name that the predictor lacks, and the error then tells of the open predictor.
// The classes come in the order of names, which is that of labels at the clients.
func (p *predictors) conjugateOf(upload string, names []string) (*onnx.Model, error) {
	if upload == uploadClassMeans && p.conjugate != nil {
		f, err := models.ReadManifest(p.conjugate)
		if err != nil {
			return nil, err
		}
		p.acts = []string{"conjugate.model"}
		// Parameters of the predictor know no single class, so that they fit any number of its
		// classes.
		if m, _, err := models.OfClasses(p.conjugate, f, names); m != nil || err != nil {
			if err != nil {
				return nil, err
			}
			return models.ConjugateEmbedding(m, true)
		}
	}
	return nil, errNamed
}

// errNamed refuses class names where nothing reads uploads of them. It is returned before images
// are read where --upload says another kind, and after it where the models decide.
var errNamed = errors.New("--class-names wants uploads of class means and, for names that the " +
	"corpus lacks, an open predictor that was trained behind the extractor; fmp train open " +
	"makes one, and --set open.model=FILE names it")

// points returns the embedding that the settings name; an untrained one only where they ask for it.
// A setting embedding.size beside a trained embedding must be its number of points. An embedding
// without training gives about the class means, and no shipped predictor was trained behind it. Its
// values are drawn by the seed, which then acts on the graph. Size 0 is the embedding's own
// default.
func (p *predictors) points() (*onnx.Model, error) {
	size := p.cfg.Embedding.Size
	p.acts = []string{"embedding.model"}
	m, f, _, err := corpus.Model(models.KindEmbedding, p.cfg.Embedding.Model,
		p.cfg.Dataset.Name, p.behind)
	switch {
	case err != nil:
		return nil, err
	case m == nil && p.cfg.Embedding.Model != "untrained":
		x := p.cfg.Extractor.Model
		return nil, fmt.Errorf("neither a predictor nor an embedding was trained behind the "+
			"extractor %s, and fmp pool could not read uploads of an untrained one: train one "+
			"first (fmp train conjugate --dataset CORPUS --extractor %s -o conjugate.onnx, then "+
			"--set conjugate.model=conjugate.onnx here), or give --embedding untrained to have "+
			"the graph all the same", x, x)
	case m == nil:
		p.acts = append(p.acts, "embedding.size", "seed")
		return models.NewEmbedding(models.EmbeddingConfig{Dx: p.behind.Dx, C: p.behind.C,
			Size: size}, p.cfg.Seed)
	case size != 0 && size != f.S:
		return nil, fmt.Errorf("setting embedding.size is %d and the embedding %s makes %d "+
			"points; leave the setting at 0, or give another model", size, f.Source, f.S)
	}
	return m, nil
}
