package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/npy"
	"fmp/onnx/printable"
	"fmp/onnx/serde"
	"fmp/pipeline/conformal"
	"fmp/pipeline/merge"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
	"fmp/pipeline/settings"
)

// poolSettings are those that fmp pool and fmp serve read. Settings of the options stand at the top
// level, as a round file has them.
type poolSettings struct {
	pool.Options `yaml:",inline"`
	Engine       settings.Engine `yaml:"engine" json:"engine"`
}

// poolRun is a run of fmp pool: its flags and settings, and the client graph that they name. check,
// resolve, checkOutput and open are called in this order before run or private. It is used once:
// the steps fill in graph, manifest, sums and bar.
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

--rows makes the smaller form, which takes feature rows (float32, [n, dx]). An output called .npy
gets the heads alone, float64, [samples, k+1, classes], the bias row last; a prediction is then the
mean of softmax([w, 1] head), where w is the features h (k = dx), or of a conjugate predictor their
k coordinates, as its graph gives them. Of moments w is sign(h) sqrt(|h| / sum|h|), times the client
graph's tensor "basis" [dx, k] where it has one.`

// newPoolCommand declares fmp pool. It resolves its settings itself: flags that contradict each
// other are told before any file is read. The order is: flags, settings, output, client graph,
// recorded command, and the uploads last.
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
  fmp pool *.upload --without ward-3 --key server.key --record ward-3.json \
    --published classifier.onnx -o next.onnx
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
		// A file that cannot be read may be a part, and its own error is the better one.
		if o.state == "" && (o.against != "" || o.workers != "") && !pool.AnyPart(args) {
			return usageError(cmp.Or(pool.Readable(args), errors.New("--against and --signed-by "+
				"are of parts (fmp merge), and none is given: leave them out")))
		}
		var err error
		if o.command, err = o.acts(flags); err != nil {
			return usageError(err)
		}
		// The first file decides the kind of round, and the others must be of it.
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

// flags declares those of the command. Flags of clients that withdraw are poolSums', and those of
// parts merging's.
func (o *poolRun) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.bind(flags)
	flags.Uint64Var(&o.round, "round", 0,
		"round that must be that of the uploads (default: that of most uploads)")
	outFlag(cmd, &o.out, "output", "classifier.onnx",
		"`FILE` to write: .onnx, or .npy for the heads alone")
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

// checkOutput refuses flags of another output than --output names. It reads no file. Heads alone
// have no images, no size and no further output.
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
// of a withdrawal and the state (finish): the record has its digest. Nothing is written before the
// posterior is there, and the output is known to suit it.
func (o *poolRun) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	res := pooled{Output: o.out, Without: o.without}
	o.bar = newLateProgress(cmd.ErrOrStderr())
	defer o.bar.close()
	prepare := o.fileRound
	if o.state != "" {
		prepare = o.stateRound
	}
	// res is filled in as the uploads are read: clients, points and images.
	r, err := prepare(cmd, args, &res)
	if err != nil {
		return err
	}
	if err := o.withdrawn(r); err != nil {
		return err
	}
	// Class means, the method FMP, need no merging of points.
	if res.Points > pool.MaxPoints && r.Method() != "FMP" {
		warnPool(cmd, fmt.Sprintf("%d points: those of one class that are "+
			"near each other are taken together, to %d points with the same masses and class means",
			res.Points, pool.MaxPoints))
	}
	// Such a round is pooled nevertheless: the remedy is another client graph.
	if heavy := r.Heavy(); heavy != "" {
		warnPool(cmd, heavy)
	}
	eng, err := openEngine(ctx, o.settings.Engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	r.Progress = o.bar.report
	// It is the long step, and nothing has been written before it.
	p, err := r.Posterior(ctx, eng)
	o.bar.close()
	if err != nil {
		return err
	}
	res.describe(r, p)
	// Only the posterior tells the form of a round, so that the refusal comes this late.
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
// out where --on-bad is skip, and end the command else. Under --on-bad skip the round is prepared
// twice, and the second time of those that are left.
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
	// An upload that decodes may still hold numbers that no images of the graph give.
	if unfit := (*pool.UnfitError)(nil); o.skip && errors.As(err, &unfit) && len(unfit.Left) > 0 {
		res.Skipped = append(res.Skipped, leftOut(cmd, unfit.Errors)...)
		r, err = pool.New(unfit.Left, o.graph, o.manifest, options)
	}
	if err != nil {
		return nil, usageError(err)
	}
	res.count(r.Uploads)
	// Sums of a part come after the uploads that were kept whole.
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
// are none. Twins are told and not refused: two clients may hold the same images by right.
// Without a part the faults of all files are told together.
func (o *poolRun) uploads(cmd *cobra.Command, files []string,
	res *pooled) (uploads []pool.Upload, rest *pool.Rest, err error) {
	var bad []error
	if pool.AnyPart(files) {
		// merging has the setting in a field of its own.
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
	// These clients are counted and not named: a part does not give their uploads.
	if rest != nil {
		res.Summed, res.LeftOut, res.N = rest.Summed, rest.LeftOut, rest.N
	}
	// All uploads are of one model by this point, which reading has seen to.
	res.Model = uploads[0].Model
	for _, twins := range pool.Twins(uploads) {
		warnPool(cmd, twins)
	}
	return uploads, rest, nil
}

// read reads uploads in files. Those that cannot be used have an error each, in the order of the
// files. Uploads of --without are read too, as their clients must be known.
func (o *poolRun) read(files []string) ([]pool.Upload, []error) {
	defer o.bar.close()
	return pool.ReadUploads(files, o.want, o.without, o.bar.report)
}

// skipBad reads --on-bad. true is skip. Another text is a usage error.
func skipBad(s string) (bool, error) {
	switch s {
	case "skip", "fail":
		return s == "skip", nil
	}
	return false, usageErrorf("--on-bad is %q; allowed are fail and skip", s)
}

// sampledRound is a round, private or not, that makes classifiers of its posterior. It lets save
// and the server write classifiers of either kind.
type sampledRound interface {
	Classifier(ctx context.Context, p *posterior.Result, rows, samples bool,
		command string) (*onnx.Model, error)
}

// save writes the heads of a posterior alone (.npy), or its classifier, which it returns with its
// size. Heads are [samples, k+1, classes] in float64. A classifier of images crops and resizes
// unless --fixed-size is given. A file is there whole or not at all. The model is nil for heads.
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
	// The model is encoded once, so that the size which is told is that of the file.
	data, err := serde.Marshal(m)
	if err != nil {
		return nil, 0, err
	}
	return m, len(data), atomicfile.WriteBytes(o.out, data)
}

// private pools the uploads of a private round. Noise that this server adds is drawn once for a set
// of uploads: the noisy sum is kept in OUTPUT.sum, and read again from there. Another draw for
// uploads that were summed before is refused without --redraw. No noise is drawn before messages
// and options are checked.
// An error after the noise is drawn leaves OUTPUT.sum, from which the same command goes on.
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
	// Clients that add their own noise need no file: their sum is the same each time.
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
	// No second server opens a sum here, which is why the function is nil.
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
