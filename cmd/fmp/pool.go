package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gonum.org/v1/gonum/floats"

	"fmp/cmd/internal/outputs"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/npy"
	"fmp/onnx/printable"
	"fmp/onnx/serde"
	"fmp/pipeline/conformal"
	"fmp/pipeline/honesty"
	"fmp/pipeline/merge"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
	"fmp/pipeline/settings"
)

// pooled is the output of fmp pool.
type pooled struct {
	Output  string   `json:"output"`
	Bytes   int      `json:"bytes,omitempty"`
	Shape   []int    `json:"shape"` // samples, k+1 (bias last), classes
	Classes []string `json:"classes,omitempty"`
	Clients []string `json:"clients"`
	Skipped []string `json:"skipped,omitempty"` // why, for each upload that was left out
	// Summed is the number of further clients that a part holds the sums of, and LeftOut of those
	// left out of them as not honest.
	Summed  int    `json:"summed,omitempty"`
	LeftOut int    `json:"left_out,omitempty"`
	Model   string `json:"model"` // sha256 of the client graph behind the uploads
	Points  int    `json:"points"`
	N       int    `json:"n"` // images behind them, calibration points among them
	// Calibration is how many of the images of each client, in the order of Clients, are
	// calibration points; none where no upload has any.
	Calibration []int  `json:"calibration,omitempty"`
	Method      string `json:"method"` // row of the table of methods
	// Without are the clients that withdrew, whose uploads were left out.
	Without []string `json:"without,omitempty"`
	// Scope is moments, or closed or open for uploads of class means: whether the predictor took
	// their classes for the corpus's. Novelty is the statistic behind it, about 1 for the corpus's
	// classes; none where there was no choice.
	Scope   string   `json:"scope,omitempty"`
	Novelty *float64 `json:"novelty,omitempty"`
	// Unknown are names of the round's classes that the corpus lacks.
	Unknown []string `json:"unknown,omitempty"`
	known   bool     // the corpus has all
	asked   bool     // the scope, by --scope
	judged  int      // calibration points that corrected the temperature of clients left out
	// Absent are the classes of which no upload has images; the classifier can still name them.
	Absent []string `json:"absent,omitempty"`
	// Named is the share, 0 to 1, of the corpus's images that counts as one more client's; none
	// where the predictor holds no images of the round's classes.
	Named *float64 `json:"named,omitempty"`
	// Unlike names the classes whose images of the corpus do not count, as the clients' lie
	// elsewhere.
	Unlike []string `json:"unlike,omitempty"`
	// Kappa of a round of moments, the temperature of its heads in units of the classes'
	// separation, and the standard deviation of its logarithm.
	Kappa []float64 `json:"kappa,omitempty"`
	// Unmeasured says why nothing told the temperature, so that kappa is a guess; none where
	// something did, or kappa was known.
	Unmeasured string `json:"temperature_unmeasured,omitempty"`
	// Tails is the factor of the temperature for the tails of images, and the standard deviation of
	// its logarithm, where the temperature is that of clients left out: kappa was not known.
	Tails []float64 `json:"tails,omitempty"`
	// Corpus is the log evidence of the corpus. Beside kappa prior odds are included, and it took
	// part where this is above 0; beside tails it has the share that clients left out are sure of.
	// None without one, nor where nothing weighed it, for which Unread is the reason.
	Corpus *float64 `json:"corpus,omitempty"`
	Unread string   `json:"corpus_unread,omitempty"`
	L2     float64  `json:"l2,omitempty"`    // 0: nothing is fitted
	Fresh  int      `json:"fresh,omitempty"` // 0: the limit of many
	// Honest is the probability of each client, in the order of Clients, that its upload is true,
	// Claimed the images that it claims, calibration points among them, and Counted how many of
	// them count if it is honest; none where honesty is not judged. Disputed are the classes of
	// which much was left out.
	Honest   []float64 `json:"p_honest,omitempty"`
	Claimed  []float64 `json:"claimed,omitempty"`
	Counted  []float64 `json:"counted,omitempty"`
	Disputed []string  `json:"disputed,omitempty"`
	// Anchor names the images by which clients are judged besides each other; none where nobody is
	// judged.
	Anchor string `json:"anchor,omitempty"`
	// Effects are, for each client, the length of the shift that all its class means have in common
	// against the others', in standard deviations within classes, 0 for none; none where no client
	// has one. For is the client whose images the classifier is for.
	Effects []float64 `json:"effects,omitempty"`
	For     string    `json:"for,omitempty"`
	// Chosen is the choice of calibration points in open scope; none where there were none.
	Chosen *pooledChoice `json:"chosen,omitempty"`
	// Sets is the calibration of prediction sets; none where the uploads have too few calibration
	// points, or none.
	Sets *pooledSets `json:"sets,omitempty"`
	// NoSets says why there are none where uploads have calibration points for them.
	NoSets string `json:"sets_missing,omitempty"`
	// Inputs and Outputs are those of the classifier.
	Inputs  []string `json:"inputs,omitempty"`
	Outputs []string `json:"outputs,omitempty"`
}

// poolSettings are those that fmp pool and fmp serve read.
type poolSettings struct {
	pool.Options `yaml:",inline"`
	Engine       settings.Engine `yaml:"engine" json:"engine"`
}

// poolRun is a run of fmp pool: its flags and settings, and the client graph that they name. check,
// resolve, checkOutput and open are called in this order before run or private.
type poolRun struct {
	merging
	// out is the file to write, and of the client that the classifier is for.
	out, of string
	// round is read where its flag is given; else it is that of the uploads.
	round                        uint64
	rows, withSamples, fixedSize bool
	redraw                       bool
	settings                     poolSettings
	poolSums

	command string // as it is recorded
	ext     string // of the output: .onnx or .npy
}

var poolHelp = `Read the uploads that fmp-edge wrote, check each, pool their points, draw unseen points with the
predictor, and fit a head to each draw: the server's side of the federated martingale posterior.
What comes out is classifier.onnx: images in (uint8, [n, height, width, channels]), class
probabilities out, with their entropy and the heads' disagreement. fmp predict, fmp evaluate,
fmp-edge predict and any ONNX Runtime run it.

The preprocessing and the extractor are those of the client graph that made the uploads
(--client-graph). Moments need no predictor. That of class means is the one that comes with the
program for the extractor (--predictor gives another; --set open.model=FILE the one for classes that
the corpus lacks). Of class means the uploads say themselves whether their classes are the corpus's
(closed scope) or new (open scope); --scope closed or open decides it for them. Where the corpus has
the round's classes by name, all of its own or some, its images count as one more client's; names
that it lacks are printed. Where the client graph comes with the program as well, neither is needed.
All uploads must come from one client graph, of one round, and from clients of different names. Of
more than ` + strconv.Itoa(pool.MaxPoints) + ` points, those of one class that are near each other are taken together:
masses and class means stay as they are.

A client whose class means differ from the others' by one shift, as with another camera, is treated
as shifted, not dishonest: the shift is subtracted. The classifier is for images of a client to
come, or of the one that --for names, whose shift is known.

The calibration points beside class means (fmp-edge compress --calibrate) are for prediction sets;
in open scope, and in uploads of moments, half of them are. The sets are output set, which holds the
class of a new image of these clients with a probability of at least --level (docs/sets.md).

A part, which fmp merge makes of many uploads, stands for its uploads, beside others or alone.

A client that withdraws is left out by --without: the classifier is then, to the byte, the one that
it never took part in. --state keeps the round's sums in place of its uploads. A late upload is
added to them without the others' files, and one that withdraws is subtracted.

Uploads of a private round (docs/privacy.md) are summed; where the server adds the noise, it is
drawn once and the noisy sum kept in OUTPUT.sum, which is what the same command reads again. Another
sum of some of the uploads, as when one is left out, spends their budget again and wants --redraw.
Their clients are not weighed by honesty, which needs single uploads without noise. The classifier's
metadata say what was spent.

--rows makes the smaller form, which takes feature rows (float32, [n, dx]). An output called .npy gets the heads alone,
float64, [samples, k+1, classes], the bias row last; a prediction is then the mean of softmax([w, 1] head), where w is
the features h (k = dx), or of a conjugate predictor their k coordinates, as its graph gives them. Of moments w is
sign(h) sqrt(|h| / sum|h|), times the client graph's tensor "basis" [dx, k] where it has one.`

// newPoolCommand declares fmp pool. It resolves its settings itself: flags that contradict each
// other are told before any file is read.
func newPoolCommand() *cobra.Command {
	o := poolRun{settings: option.Default[poolSettings]()}
	cmd := &cobra.Command{
		Use:   "pool UPLOAD...",
		Short: "Turn the uploads of clients into a classifier, one ONNX file",
		Long:  poolHelp,
		Example: `  fmp pool *.upload --client-graph client.onnx -o classifier.onnx
  fmp pool *.upload --client-graph client.onnx --predictor predictor.onnx --samples 50
  fmp pool *.upload --client-graph client.onnx --for ward-3 -o ward-3.onnx
  fmp pool *.upload --client-graph client.onnx --on-bad skip --json
  fmp pool all.part late.upload --client-graph client.onnx --against sample.part
  fmp pool *.upload --without ward-3 --key server.key --record ward-3.json --published classifier.onnx -o next.onnx
  fmp pool --state round.state late.upload --client-graph client.onnx`,
		Args: rangeArgs(0, pool.MaxUploads, "UPLOAD"),
	}
	s := bindSettings(cmd, &o.settings, engineAliases)
	cmd.PreRunE = nil
	o.flags(cmd)
	flags := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(args); err != nil {
			return err
		}
		if err := s.resolve(); err != nil {
			return err
		}
		if err := o.checkOutput(); err != nil {
			return err
		}
		var round *uint64
		if flags.Changed("round") {
			round = &o.round
		}
		if err := o.open(round); err != nil {
			return err
		}
		if o.state == "" && (o.against != "" || o.workers != "") && !pool.AnyPart(args) {
			return usageError(cmp.Or(pool.Readable(args), errors.New("--against and --signed-by "+
				"are of parts (fmp merge), and none is given: leave them out")))
		}
		var err error
		if o.command, err = o.acts(flags); err != nil {
			return usageError(err)
		}
		if len(args) > 0 && pool.IsPrivate(args[0]) {
			if o.state != "" || len(o.without) > 0 {
				return usageErrorf("--state and --without are of rounds that are not private: " +
					"leave the message's file out, whose noise then is of another round")
			}
			if o.of != "" {
				return usageErrorf("--for is of clients whose shift single uploads show, and a " +
					"private round is of sums alone: leave it out")
			}
			return o.private(cmd, args)
		}
		if o.redraw {
			return usageErrorf("--redraw is of private rounds, and these uploads are not of " +
				"one: leave it out")
		}
		return o.run(cmd, args)
	}
	return cmd
}

// flags declares those of the command.
func (o *poolRun) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.bind(flags)
	flags.Uint64Var(&o.round, "round", 0,
		"round that must be that of the uploads (default: that of most uploads)")
	flags.StringVarP(&o.out, "output", "o", "classifier.onnx",
		"`FILE` to write: .onnx, or .npy for the heads alone")
	outputs.Files(cmd.Flags(), "output")
	flags.BoolVar(&o.rows, "rows", false,
		"make the classifier of feature rows, without preprocessing and extractor")
	flags.BoolVar(&o.fixedSize, "fixed-size", false,
		"make the classifier of images of one size alone, which its callers must crop and resize "+
			"as fmp predict does (default: of any size, with cropping and resizing in the graph)")
	flags.BoolVar(&o.withSamples, "with-samples", false,
		"add an output: every head's probabilities, [n, samples, classes]")
	flags.StringVar(&o.of, "for", "", "`CLIENT` whose images the classifier is for, with the "+
		"shift of its camera; else it is for a client to come")
	flags.BoolVar(&o.redraw, "redraw", false, "draw noise again for uploads of a private round "+
		"of which another sum was made, which spends their budget again")
	o.poolSums.flags(flags)
	jsonFlag(cmd, "print what was made as JSON")
}

// checkOutput refuses flags of another output than --output names.
func (o *poolRun) checkOutput() error {
	o.ext = strings.ToLower(filepath.Ext(o.out))
	if o.ext != ".onnx" && o.ext != ".npy" {
		return usageErrorf("--output %s: the name must end in .onnx (a classifier) or "+
			".npy (its heads)", o.out)
	}
	if o.fixedSize && (o.rows || o.ext == ".npy") {
		return usageErrorf("--fixed-size is for classifiers of images, without --rows: write .onnx")
	}
	if o.withSamples && o.ext == ".npy" {
		return usageErrorf("--with-samples is an output of classifiers: leave it " +
			"out, or write .onnx")
	}
	return nil
}

// run pools the uploads of a round that is not private. The classifier is written before the record
// of a withdrawal and the state (finish): the record has its digest.
func (o *poolRun) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	res := pooled{Output: o.out, Without: o.without}
	o.bar = newLateProgress(cmd.ErrOrStderr())
	defer o.bar.close()
	prepare := o.fileRound
	if o.state != "" {
		prepare = o.stateRound
	}
	r, err := prepare(cmd, args, &res)
	if err != nil {
		return err
	}
	if err := o.withdrawn(r); err != nil {
		return err
	}
	if res.Points > pool.MaxPoints && r.Method() != "FMP" {
		warnPool(cmd, fmt.Sprintf("%d points: those of one class that are "+
			"near each other are taken together, to %d points with the same masses and class means",
			res.Points, pool.MaxPoints))
	}
	if heavy := r.Heavy(); heavy != "" {
		warnPool(cmd, heavy)
	}
	eng, err := openEngine(ctx, o.settings.Engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	r.Progress = o.bar.report
	p, err := r.Posterior(ctx, eng)
	o.bar.close()
	if err != nil {
		return err
	}
	res.describe(r, p)
	if res.Scope == posterior.ScopeOpen && o.ext == ".npy" {
		_, novelty := pool.Open(p)
		return usageErrorf("--output %s: heads of the open form (novelty %.2f) are on "+
			"coordinates of this round alone: write the classifier (.onnx), or give --scope closed",
			o.out, novelty)
	}
	if p.Effects.Any() && o.ext == ".npy" {
		return usageErrorf("--output %s: some clients have another camera, and heads of such a "+
			"round are on coordinates of its own: write the classifier (.onnx)", o.out)
	}
	// From here no other process changes the state, until it is written.
	release, err := o.take()
	if err != nil {
		return err
	}
	defer release()
	m, bytes, err := o.save(ctx, r, p)
	if err != nil {
		return err
	}
	if o.fixedSize {
		warnPool(cmd, fmt.Sprintf("--fixed-size: %s neither crops nor resizes; where callers do "+
			"so in another way than fmp predict, probabilities differ", o.out))
	}
	if err := o.finish(); err != nil {
		return err
	}
	if m != nil {
		res.Bytes, res.Inputs, res.Outputs = bytes, named(m.Graph.Inputs), named(m.Graph.Outputs)
	}
	return tell(cmd, res, res.print)
}

// fileRound prepares a round of uploads and parts in files. Uploads that no images give are left
// out where --on-bad is skip, and end the command else.
func (o *poolRun) fileRound(cmd *cobra.Command, args []string, res *pooled) (*pool.Round, error) {
	uploads, rest, err := o.uploads(cmd, args, res)
	if err != nil {
		return nil, usageError(err)
	}
	options, err := o.options()
	if err != nil {
		return nil, usageError(err)
	}
	r, err := pool.New(uploads, o.graph, o.manifest, options)
	if unfit := (*pool.UnfitError)(nil); o.skip && errors.As(err, &unfit) && len(unfit.Left) > 0 {
		res.Skipped = append(res.Skipped, leftOut(cmd, unfit.Errors)...)
		r, err = pool.New(unfit.Left, o.graph, o.manifest, options)
	}
	if err != nil {
		return nil, usageError(err)
	}
	res.count(r.Uploads)
	if err := r.Join(rest); err != nil {
		return nil, usageError(err)
	}
	return r, nil
}

// options are those of the round, with the contents of the files that they name. A client that is
// left out may stand in no group.
func (o *poolRun) options() (pool.Options, error) {
	options := o.settings.Options
	options.For, options.Threads = o.of, o.settings.Engine.Threads
	if options.Groups != "" {
		_, of, _ := conformal.Groups(options.Groups) // preparing the round says if they are none
		for _, name := range o.without {
			if _, in := of[name]; in {
				return options, fmt.Errorf("groups of clients: client %q is left out by "+
					"--without: take it out of --groups too", name)
			}
		}
	}
	return options, options.ReadFiles()
}

// uploads reads and counts the uploads, and warns of those that are left out or doubtful. Where a
// part is among the files all of them are merged first. rest is the part's sums, nil where there
// are none.
func (o *poolRun) uploads(cmd *cobra.Command, files []string,
	res *pooled) (uploads []pool.Upload, rest *pool.Rest, err error) {
	var bad []error
	if pool.AnyPart(files) {
		o.trust = o.settings.Trust
		options, err := o.options()
		if err != nil {
			return nil, nil, err
		}
		var p *merge.Part
		if p, bad, err = o.merge(cmd.Context(), files, nil, options); err != nil {
			return nil, nil, err
		}
		if uploads, rest, err = pool.Merged(p, o.settings.Trust); err != nil {
			return nil, nil, err
		}
	} else if uploads, bad = o.read(files); len(bad) > 0 && (!o.skip || len(uploads) == 0) {
		err = printable.Errors(bad)
		if len(o.without) > 0 {
			err = fmt.Errorf("%w; a damaged file does not tell its client: leave it off the "+
				"command line if that client withdraws", err)
		}
		return nil, nil, err
	}
	res.Skipped = leftOut(cmd, bad)
	if uploads, o.gone, err = pool.Without(uploads, o.without); err != nil {
		return nil, nil, err
	}
	if rest != nil {
		res.Summed, res.LeftOut, res.N = rest.Summed, rest.LeftOut, rest.N
	}
	res.Model = uploads[0].Model
	for _, twins := range pool.Twins(uploads) {
		warnPool(cmd, twins)
	}
	return uploads, rest, nil
}

// read reads uploads in files.
func (o *poolRun) read(files []string) ([]pool.Upload, []error) {
	defer o.bar.close()
	return pool.ReadUploads(files, o.want, o.without, o.bar.report)
}

// count adds the uploads of a round to its account. Calibration stays nil where no upload has a
// calibration point.
func (p *pooled) count(uploads []pool.Upload) {
	calibration, any := make([]int, len(uploads)), false
	for i, u := range uploads {
		p.Clients = append(p.Clients, u.Client)
		p.Points, p.N = p.Points+u.Points.N, p.N+u.Images()
		calibration[i] = u.Images() - u.N
		any = any || calibration[i] > 0
	}
	if any {
		p.Calibration = calibration
	}
}

// unlike names the classes whose images of the corpus do not count.
func unlike(post *posterior.Result, classes []string) (names []string) {
	for _, y := range post.Unlike {
		names = append(names, classes[y])
	}
	return names
}

// ofCalibration says that some of the images are calibration points.
func ofCalibration(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them calibration points", n)
}

// leftOut warns of each upload that was left out, and lists why.
func leftOut(cmd *cobra.Command, bad []error) (reasons []string) {
	for _, err := range bad {
		warnPool(cmd, "left out: "+err.Error())
		reasons = append(reasons, err.Error())
	}
	return reasons
}

func warnPool(cmd *cobra.Command, text string) {
	fmt.Fprintln(cmd.ErrOrStderr(), cmd.CommandPath()+": "+text)
}

// describe sets the posterior's account of the round: its form, shape, penalty and the honesty of
// its clients. Diagnostics of the posterior say which fields the form of the round has.
func (p *pooled) describe(r *pool.Round, post *posterior.Result) {
	if j := post.Judgement; j != nil {
		p.Honest, p.Disputed, p.Anchor = j.Honest, disputed(j, r.Client.Classes), r.Anchored(j)
		p.Claimed, p.Counted = r.Images(j)
	}
	if post.Effects.Any() {
		p.Effects = post.Effects.Size
	}
	p.For, p.Sets, p.Absent = r.For, setsOf(post.Sets, r.Client.Classes), r.Absent()
	p.NoSets = post.NoSets
	if r.Moments() {
		p.Scope, p.Kappa = scopeMoments,
			[]float64{post.Diagnostics["kappa"], post.Diagnostics["kappa deviation"]}
		p.Unmeasured = post.Unmeasured
		if post.Diagnostics[posterior.DiagnosticLeftOut] == 1 {
			p.Kappa, p.Tails = nil, p.Kappa
			p.judged = int(post.Diagnostics[posterior.DiagnosticPoints])
		}
		if e, ok := post.Diagnostics["corpus"]; ok {
			p.Corpus = &e
		} else if post.Unread != "" {
			p.Unread = post.Unread + ", and clients left out cannot weigh it"
			if r.Client.Kappa > 0 {
				p.Unread = "kappa is known, and " + post.Unread
			}
		}
	} else if r.Method() == "FMP" {
		open, novelty := pool.Open(post)
		if p.Scope = posterior.ScopeClosed; open {
			p.Scope = posterior.ScopeOpen
		}
		if !math.IsNaN(novelty) {
			p.Novelty = &novelty
		}
		p.Unknown, p.known, p.asked = r.Unknown(), r.Named(), r.Scope == p.Scope
		if w, ok := post.Diagnostics[posterior.DiagnosticNamed]; ok {
			p.Named, p.Unlike = &w, unlike(post, r.Client.Classes)
		}
		if n := post.Diagnostics[posterior.DiagnosticPoints]; n > 0 {
			p.Chosen = &pooledChoice{post.Diagnostics[posterior.DiagnosticTemperature],
				post.Diagnostics[posterior.DiagnosticPenalty], int(n)}
		}
	}
	p.Shape, p.Classes, p.Method, p.L2, p.Fresh = post.Ensembles[0].Shape(), r.Client.Classes,
		r.MethodOf(post), r.L2, r.Fresh
}

// scopeMoments is the Scope of a round of moments.
const scopeMoments = "moments"

// moments describes how moments were read; nothing of other uploads.
func (p *pooled) moments() string {
	corpus := "without a corpus"
	switch {
	case p.Unread != "":
		corpus = "the corpus was not read: " + p.Unread
	case p.Corpus == nil:
	case *p.Corpus > 0:
		corpus = fmt.Sprintf("with the corpus, log evidence %.1f", *p.Corpus)
	case p.Tails != nil: // candidates of little evidence have little weight, or none
		corpus = fmt.Sprintf("with little or nothing of the corpus, log evidence %.1f", *p.Corpus)
	default:
		corpus = fmt.Sprintf("without the corpus, log evidence %.1f", *p.Corpus)
	}
	switch {
	case p.Tails != nil:
		points := ""
		if p.judged > 0 {
			points = fmt.Sprintf(", corrected by %d calibration points", p.judged)
		}
		return fmt.Sprintf("form:       moments, %s; the temperature is "+
			"that of clients left out, times %s for the tails of images%s\n", corpus,
			kappaText(p.Tails[0], p.Tails[1]), points)
	case p.Kappa == nil:
		return ""
	}
	unmeasured := ""
	if p.Unmeasured != "" {
		unmeasured = "            " +
			guessed(p.Unmeasured, "fmp-edge compress --calibrate 10") + "\n"
	}
	return fmt.Sprintf("form:       moments, %s (kappa %s)\n%s", corpus,
		kappaText(p.Kappa[0], p.Kappa[1]), unmeasured)
}

// guessed says why nothing told the temperature, and the remedies: calibration
// points, got by an option.
func guessed(why, by string) string {
	return fmt.Sprintf("the temperature was not measured, and kappa is a guess: %s; calibration "+
		"points tell it (%s), as do labelled images (fmp fuse --dataset)", why, by)
}

// print describes the result for people.
func (p *pooled) print(b *strings.Builder) {
	if p.Bytes > 0 {
		fmt.Fprintf(b, "classifier: %s (%d bytes, %d heads on %d numbers)\n"+
			"input:      %s\noutputs:    %s\n", p.Output, p.Bytes, p.Shape[0], p.Shape[1]-1,
			strings.Join(p.Inputs, ", "), strings.Join(p.Outputs, ", "))
		fmt.Fprintf(b, "classes:    %s\n", clip(strings.Join(p.Classes, ", ")))
	} else {
		fmt.Fprintf(b, "posterior:  %s (%d samples of %d x %d)\n", p.Output, p.Shape[0],
			p.Shape[1], p.Shape[2])
	}
	uploads := "1 upload"
	if len(p.Clients) != 1 {
		uploads = fmt.Sprintf("%d uploads", len(p.Clients))
	}
	if p.Summed > 0 {
		uploads += fmt.Sprintf(" and the sums of %d clients (%d more were left out of them)",
			p.Summed, p.LeftOut)
	}
	calibration := 0
	for _, n := range p.Calibration {
		calibration += n
	}
	fmt.Fprintf(b, "from:       %s, %d points for n = %d%s\n", uploads, p.Points, p.N,
		ofCalibration(calibration))
	b.WriteString(p.moments())
	if p.Novelty != nil {
		of := "of the corpus's classes"
		switch {
		case p.asked:
			of = "by --scope"
		case p.Scope == posterior.ScopeOpen && p.known:
			of = "images unlike the corpus's of the same names"
		case p.Scope == posterior.ScopeOpen:
			of = "of classes that the corpus lacks"
		}
		fmt.Fprintf(b, "scope:      %s: %s (novelty %.2f, about 1 for the corpus's)\n",
			p.Scope, of, *p.Novelty)
	} else if p.asked {
		fmt.Fprintf(b, "scope:      %s: by --scope\n", p.Scope)
	}
	if len(p.Absent) > 0 {
		fmt.Fprintf(b, "absent:     no upload has images of %s, which the classifier can "+
			"still name\n", clip(strings.Join(p.Absent, ", ")))
	}
	if len(p.Unknown) > 0 {
		fmt.Fprintf(b, "names:      the corpus has no class %s\n",
			clip(strings.Join(p.Unknown, ", ")))
	}
	if p.Named != nil {
		fmt.Fprintf(b, "corpus:     %.0f%% of its images count as one more client's\n",
			100**p.Named)
		if len(p.Unlike) > 0 {
			fmt.Fprintf(b, "            not those of %s: the clients' lie elsewhere, as under "+
				"another name\n", clip(strings.Join(p.Unlike, ", ")))
		}
	}
	if p.Anchor != "" {
		fmt.Fprintf(b, "anchor:     %s\n", p.Anchor)
	}
	p.printClients(b)
	p.printEffects(b)
	if c := p.Chosen; c != nil {
		fmt.Fprintf(b, "chosen:     temperature %.2f and penalty %.2g times the corpus's, by %d "+
			"calibration points\n", c.Temperature, c.Penalty, c.Points)
	}
	p.Sets.print(b)
	if p.NoSets != "" {
		fmt.Fprintf(b, "sets:       none: %s\n", p.NoSets)
	}
	if len(p.Disputed) > 0 {
		fmt.Fprintf(b, "disputed:   %s\n", strings.Join(p.Disputed, ", "))
	}
}

// maxClients is how many clients the text names.
const maxClients = 20

// printClients lists the clients that were judged: those that are less likely honest than not, then
// those with the smallest counted share. Shares n/N and m/M, of counted and claimed images, are
// compared as n*M and m*N: a claim may be 0.
func (p *pooled) printClients(b *strings.Builder) {
	if len(p.Honest) == 0 {
		return
	}
	order := make([]int, len(p.Honest))
	for m := range order {
		order[m] = m
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(min(p.Honest[a], 0.5), min(p.Honest[b], 0.5)),
			cmp.Compare(p.Counted[a]*p.Claimed[b], p.Counted[b]*p.Claimed[a]))
	})
	fmt.Fprintf(b, "clients:    %9s %9s %9s\n", "P(honest)", "claimed", "counted")
	for _, m := range order[:min(len(order), maxClients)] {
		calibration := ""
		if p.Calibration != nil {
			calibration = ofCalibration(p.Calibration[m])
		}
		fmt.Fprintf(b, "            %9.2f %9.0f %9.0f  %s%s\n", p.Honest[m], p.Claimed[m],
			p.Counted[m], p.Clients[m], calibration)
	}
	if more := len(order) - maxClients; more > 0 {
		fmt.Fprintf(b, "            and %d more (--json lists all)\n", more)
	}
	if len(order) == 2 && slices.Equal(p.Claimed, p.Counted) { // copies count as one
		fmt.Fprintf(b, "            of two clients neither can be judged by the others: each "+
			"counts as it claims\n")
	}
	if claimed, counted := floats.Sum(p.Claimed), floats.Sum(p.Counted); counted < claimed/2 {
		fmt.Fprintf(b, "            %.0f of %.0f images count: the others' images bear no more "+
			"out; --trust counts all, of clients that you know\n", counted, claimed)
	}
	if at := slices.Index(p.Clients, p.For); at >= 0 && p.Honest[at] < 0.5 {
		fmt.Fprintf(b, "            the classifier is for %s, and hardly of its upload, as its "+
			"images are too unlike the others': for this client pool its upload alone\n", p.For)
	}
}

// disputed names the classes of which much was left out.
func disputed(j *posterior.Judgement, names []string) []string {
	var out []string
	for c, share := range j.Dispute {
		if share >= honesty.Contested {
			name := imagefile.Classes{Names: names}.Name(c)
			out = append(out, fmt.Sprintf("%s (%.0f%% left out)", name, 100*share))
		}
	}
	return out
}

// skipBad reads --on-bad.
func skipBad(s string) (bool, error) {
	switch s {
	case "skip", "fail":
		return s == "skip", nil
	}
	return false, usageErrorf("--on-bad is %q; allowed are fail and skip", s)
}

// sampledRound is a round, private or not, that makes classifiers of its posterior.
type sampledRound interface {
	Classifier(ctx context.Context, p *posterior.Result, rows, samples bool,
		command string) (*onnx.Model, error)
}

// save writes the heads of a posterior alone (.npy), or its classifier, which it returns with its
// size. Heads are [samples, k+1, classes] in float64. A classifier of images crops and resizes
// unless --fixed-size is given.
func (o *poolRun) save(ctx context.Context, r sampledRound,
	p *posterior.Result) (*onnx.Model, int, error) {
	if o.ext == ".npy" {
		return nil, 0, npy.Save(o.out, p.Ensembles[0].Tensor())
	}
	m, err := r.Classifier(ctx, p, o.rows, o.withSamples, o.command)
	if err != nil {
		return nil, 0, usageError(err)
	}
	if !o.rows && !o.fixedSize {
		if m, err = models.AnySize(m); err != nil {
			return nil, 0, usageError(err)
		}
	}
	data, err := serde.Marshal(m)
	if err != nil {
		return nil, 0, err
	}
	return m, len(data), atomicfile.WriteBytes(o.out, data)
}

// named lists values with their types and shapes.
func named(vs []onnx.ValueInfo) []string {
	var out []string
	for _, v := range vs {
		out = append(out, v.String())
	}
	return out
}

// printEffects names the clients whose images are shifted against the others', the furthest first.
func (p *pooled) printEffects(b *strings.Builder) {
	var shifted []int
	for m, size := range p.Effects {
		if size > 0 {
			shifted = append(shifted, m)
		}
	}
	if len(shifted) == 0 {
		return
	}
	slices.SortStableFunc(shifted,
		func(a, b int) int { return cmp.Compare(p.Effects[b], p.Effects[a]) })
	var names []string
	for _, m := range shifted[:min(len(shifted), maxClients)] {
		names = append(names, fmt.Sprintf("%s (%.1f)", p.Clients[m], p.Effects[m]))
	}
	if more := len(shifted) - maxClients; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	fmt.Fprintf(b, "cameras:    %d of %d clients differ from the others "+
		"in all classes alike, by so many standard deviations: %s\n", len(shifted), len(p.Clients),
		strings.Join(names, ", "))
}

// pooledSets is the calibration of a classifier's prediction sets.
type pooledSets struct {
	Level   float64 `json:"level"`
	Score   string  `json:"score"`
	Points  int     `json:"points"` // calibration points, held back from everything else
	Clients int     `json:"clients"`
	// Thresholds are the scores from which on a class is in a set: one, or with ByClass one a
	// class.
	Thresholds  []float32 `json:"thresholds"`
	ByClass     bool      `json:"by_class,omitempty"`
	Proportions []float64 `json:"proportions,omitempty"`
	Groups      []string  `json:"groups,omitempty"` // of clients, for each of which the level holds
	// classes in every set, as their points are too few
	Always []string `json:"always,omitempty"`
	// Highest is the highest level that the points prove, for the class with most of them where
	// ByClass.
	Highest float64 `json:"highest"`
	// False is the number of further clients, of each group, whose points may be false; LeftOut are
	// those whose points contradict the others'.
	False   []int    `json:"false,omitempty"`
	LeftOut []string `json:"left_out,omitempty"`

	survived string // conformal.Survived
}

// pooledChoice is the choice of calibration points (posterior.Calibration): temperature and penalty
// relative to the corpus's.
type pooledChoice struct {
	Temperature float64 `json:"temperature"`
	Penalty     float64 `json:"penalty"`
	Points      int     `json:"points"`
}

// setsOf is the account of prediction sets; nil where there are none. Highest is the level that the
// points of every group prove.
func setsOf(s *models.OriginSets, names []string) *pooledSets {
	if s == nil {
		return nil
	}
	out := &pooledSets{s.Level, s.Score, s.Images, s.Clients, s.Thresholds, s.ByClass,
		s.Proportions, s.Groups, always(s, names), 1, s.False, s.LeftOut, conformal.Survived(s)}
	if out.survived == "" {
		out.False = nil
	}
	d := conformal.FromOrigin(s)
	for _, counts := range d.Counts(s.Class, max(len(names), slices.Max(s.Class)+1)) {
		out.Highest = min(out.Highest, d.Highest(counts))
	}
	return out
}

// print describes the sets for people; nil, which stands for none, prints nothing.
func (s *pooledSets) print(b *strings.Builder) {
	if s == nil {
		return
	}
	clients := fmt.Sprintf("%d clients", s.Clients)
	if s.Clients == 1 {
		clients = "one client"
	}
	of := "of these clients"
	if s.ByClass || s.Proportions != nil {
		of += " " + held(s.ByClass, s.Proportions)
	}
	if len(s.Groups) > 0 {
		of += " of each group (" + clip(strings.Join(s.Groups, ", ")) + ")"
	}
	fmt.Fprintf(b, "sets:       hold the class of a new image %s with probability %g or "+
		"more, from %d calibration points of %s (fmp predict --level: up to %.3g)\n", of, s.Level,
		s.Points, clients, s.Highest)
	if s.survived != "" {
		fmt.Fprintf(b, "            whatever the points of %s are\n", clip(s.survived))
	}
	if len(s.LeftOut) > 0 {
		fmt.Fprintf(b, "            left out, as their points "+
			"contradict the others': %s (fmp pool --for CLIENT makes sets by a client's own)\n",
			clip(strings.Join(s.LeftOut, ", ")))
	}
	if len(s.Always) > 0 {
		fmt.Fprintf(b, "            in every set, as their points are too few: %s\n",
			clip(strings.Join(s.Always, ", ")))
	}
}

// pooledPrivate is the output of fmp pool for a private round.
type pooledPrivate struct {
	Output string `json:"output"`
	Bytes  int    `json:"bytes,omitempty"`
	// Shape is samples, k+1 (bias last) and classes.
	Shape   []int    `json:"shape"`
	Classes []string `json:"classes,omitempty"`
	Clients []string `json:"clients"`
	Skipped []string `json:"skipped,omitempty"`
	Model   string   `json:"model"`
	Method  string   `json:"method"`
	// Spent is the budget that all sums of these uploads have spent.
	Spent privacy.Account `json:"spent"`
	// Counts are the noisy numbers of images of the classes.
	Counts []float64 `json:"counts"`
}

// private pools the uploads of a private round. Noise that this server adds is drawn once for a set
// of uploads: the noisy sum is kept in OUTPUT.sum, and read again from there.
func (o *poolRun) private(cmd *cobra.Command, args []string) error {
	o.bar = newLateProgress(cmd.ErrOrStderr())
	releases, bad := pool.ReadReleases(args, o.want, o.bar.report)
	o.bar.close()
	if len(bad) > 0 && (!o.skip || len(releases) == 0) {
		return usageError(printable.Errors(bad))
	}
	p, err := pool.NewPrivate(releases, o.graph, o.manifest, o.settings.Options)
	if err != nil {
		return usageError(err)
	}
	res := pooledPrivate{Output: o.out, Model: releases[0].Model, Method: "FMP-DP",
		Classes: p.Client.Classes}
	res.Skipped = leftOut(cmd, bad)
	for _, r := range releases {
		res.Clients = append(res.Clients, r.Client)
	}
	eng, err := openEngine(cmd.Context(), o.settings.Engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	var keeper pool.SumFile
	if p.Account.Noise != privacy.Local {
		if keeper, err = pool.NewSumFile(o.out + ".sum"); err != nil {
			return usageError(err)
		}
	} else if o.redraw {
		return usageErrorf("--redraw is of noise that the server adds, and these clients add " +
			"their own: leave it out")
	}
	keeper.Redraw = o.redraw
	totals, err := p.Totals(keeper, nil)
	if err != nil {
		return usageError(err)
	}
	r, err := p.Posterior(cmd.Context(), eng, totals)
	if err != nil {
		return err
	}
	res.Shape, res.Counts, res.Spent = r.Ensembles[0].Shape(), totals.Counts, p.Account
	if _, res.Bytes, err = o.save(cmd.Context(), p, r); err != nil {
		return err
	}
	again := ""
	if n := p.Account.Draws; n > 0 {
		again = fmt.Sprintf("; drawn %d times for one upload", n)
	}
	return say(cmd, res, "classifier: %s (%d heads on %d numbers)\nfrom:       %d uploads "+
		"of a private round\nspent:      %v (noise of %.3g times the sensitivity, %d times "+
		"in the sum%s)\n", o.out, res.Shape[0], res.Shape[1]-1, len(res.Clients), p.Account.Budget,
		p.Account.Sigma, p.Account.Releases, again)
}
