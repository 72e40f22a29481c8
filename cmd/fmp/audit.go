package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/lab/audit"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// audited is the output of fmp audit for one partition of a run. Which fields are filled follows
// from the run: Parts from plain uploads, Private, Server and Time from a private round, Extractors
// from --server extractor alone. ReplyMS is in milliseconds, and 0 where no attack is by time.
type audited struct {
	Dataset   string `json:"dataset"`
	Partition string `json:"partition"`
	Clients   int    `json:"clients"`
	// Rounds were drawn and attacked. Parts are the attacks on parts of plain uploads, and Private
	// those on the release of a private one.
	Rounds  int            `json:"rounds"`
	Parts   []audit.Parts  `json:"parts,omitempty"`
	Private *audit.Private `json:"private,omitempty"`
	// Server are the attacks of a malicious server, in a private round in which one server is not
	// to see a client's sums.
	Server []audit.Crafted `json:"server,omitempty"`
	// Time are the attacks by the moment of a reply that comes after ReplyMS milliseconds.
	Time    []audit.Timed `json:"time,omitempty"`
	ReplyMS float64       `json:"reply_ms,omitempty"`
	// Extractors are the bits of an image that extractors get out through plain uploads.
	Extractors []audit.Leak `json:"extractors,omitempty"`
}

// attacks are those that are made where they are asked for. A run that is not private has none by
// time. runs counts the replies for each image or graph, and 0 means no attack by time. server is
// "extractor" or empty.
type attacks struct {
	runs   int           // by time
	after  time.Duration // to a reply in these
	server string        // extractor, or none
}

// check refuses flags of an audit that none can be made by. A reply comes after client.Settle and a
// tenth at least: work is stopped client.Settle before it. It looks at flags alone, before the
// run's settings are read. --server and --time exclude each other, since an audit of extractors
// ends before any attack by time. The minute is a bound on patience: N runs of each graph wait that
// long each. o is read and not changed.
func (t attacks) check(o *audit.Options) error {
	switch {
	case o.Rounds < 1 || o.Rounds > 10_000:
		return usageErrorf("--rounds is %d; allowed are 1 to 10000", o.Rounds)
	case o.Points < 0:
		return usageErrorf("--points is %d; allowed are 0 and more", o.Points)
	case o.Calibrate < 0 || o.Calibrate > federate.MaxCalibration:
		return usageErrorf("--calibrate is %d; allowed are 0 to %d", o.Calibrate,
			federate.MaxCalibration)
	case t.server != "" && (t.server != "extractor" || t.runs > 0):
		return usageErrorf("--server is %q and --time %d; allowed are extractor and no --time",
			t.server, t.runs)
	case t.runs < 0 || t.runs > 10_000:
		return usageErrorf("--time is %d; allowed are 0 to 10000", t.runs)
	case t.after < client.Settle+client.Settle/10 || t.after > time.Minute:
		return usageErrorf("--reply-after is %v; allowed are 1.1s to 1m", t.after)
	}
	return nil
}

// auditHelp is the long help of fmp audit. The first term of d'^2 = k/N + k(k+1)/2f is of the mean
// of N images. The second is of the scatter of f degrees of freedom. 1/sigma is the sensitivity
// over the deviation of the noise.
const auditHelp = `Draw rounds as those of a run directory, and attack them. Images and models must be the run's: a
run of a folder or of models of your own is audited where it was made.

Uploads without noise are attacked part by part, as a server decodes them: class means, with
calibration points (--calibrate), or moments: means, scatter, calibration points, in all features
and in fewer directions. The attacker knows mean and covariance of the classes from half of the
clients' images, and asks of an image whether it was behind an upload. Beside stands the theory for
two normal distributions, d'^2 = k/N + k(k+1)/2f for N images behind a mean, k coordinates and f
degrees of freedom of the scatter. It says besides of which share of a client's images the
coordinates can be read off whole, how far the others are from the nearest guess (0: known, 1: no
better than the class's mean), and how many bytes an upload has.

Of a private run the release is attacked by somebody who knows everything but, of each of twice as
many images (or clients) as the round has, a coin that decided whether it is in; beside stands the
best that anybody can do against the noise, d' = 1/sigma, and the lower bound on epsilon that the
right guesses prove (Steinke, Nasr and Jagielski 2023): it must not be above the epsilon that the
run states.

Of a round whose noise is local or of two servers the client is attacked by a malicious server as
well, with client graphs that it makes for the purpose: 50 releases a round, half of them with one
white image among drawn ones, of which the server knows all others. Graphs that the client refuses
are named.

--time N attacks a private run's client by the moment of its reply as well: N runs for each image or
graph made for the purpose, half of them with the image, once with replies that leave as soon as
they are made and once after --reply-after.

--server extractor audits extractors in place of all that, by the bits of an image that leave with
plain uploads: the run's own, one that the program does not know, and one that packs three pixels
into a number, after its owner said yes to it. Images are drawn; behind the run's own extractor the
bits are a lower bound, by a linear decoder.`

// newAuditCommand declares fmp audit. The run directory is read and stays as it is. Settings but
// those of the engine are the run's own, and so are its seed and sizes, where no flag says
// otherwise. The report comes whole at the end, so that an error leaves none.
func newAuditCommand() *cobra.Command {
	var o audit.Options
	var t attacks
	cmd := &cobra.Command{
		Use: "audit RUN",
		Short: "Attack what the clients of a run send: membership inference, and the epsilon " +
			"that it proves",
		Long: auditHelp,
		Example: `  fmp audit runs/cifar10-1a2b3c4d
  fmp audit runs/cifar10-1a2b3c4d --calibrate 10
  fmp audit docs/results/privacy/local-1 --rounds 50 --json
  fmp audit docs/results/privacy/local-1 --rounds 1 --time 200
  fmp audit docs/results/closed/cifar10 --server extractor`,
		Args: exactArgs("RUN"),
	}
	cfg := option.Default[engineSettings]()
	bindSettings(cmd, &cfg, engineAliases)
	cmd.Flags().IntVar(&o.Rounds, "rounds", 20, "rounds that are drawn and attacked, 1 to 10000")
	cmd.Flags().IntVar(&o.Points, "points", 0,
		"images per client in rounds without noise; 0 takes the run's own")
	cmd.Flags().IntVar(&o.Calibrate, "calibrate", 0,
		"calibration points that a client sends beside class means, 0 to 100")
	cmd.Flags().IntVar(&t.runs, "time", 0, "runs of a private client that are attacked by the "+
		"moment of the reply, for each image or graph; 0 is none")
	cmd.Flags().DurationVar(&t.after, "reply-after", 2*time.Second,
		"fixed time to a reply in these runs, 1.1s to a minute")
	cmd.Flags().StringVar(&t.server, "server", "",
		"extractor audits the extractors of a malicious server, and nothing else")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := t.check(&o); err != nil {
			return err
		}
		out, err := auditRun(cmd, args[0], cfg.Engine, o, t)
		if err != nil {
			return err
		}
		return tell(cmd, out, func(b *strings.Builder) {
			for i := range out {
				out[i].print(b)
			}
		})
	}
	return cmd
}

// auditRun attacks rounds like those of the run in a folder, partition by partition. The engine is
// this command's, and scores that an audit does not read are left out of the run's settings.
// Attacks by time are of no partition, and made once. The images and models are prepared as for the
// run, and compared with its manifest by their digests. It returns one entry for each partition of
// the run, in their order, or one in all for an audit of extractors.
//
// A note on stderr names models of the program's own that have changed since the run: uploads are
// then read in other coordinates than they were made for. A run without class means, moments or a
// private round has nothing that a client sends, and is refused.
func auditRun(cmd *cobra.Command, dir string, engine settings.Engine, o audit.Options,
	t attacks) ([]audited, error) {
	ctx := cmd.Context()
	c, err := experiment.ReadConfig(dir)
	if err != nil {
		return nil, usageError(err)
	}
	// Attacks take minutes, and so this is refused before any of them is prepared.
	if t.runs > 0 && c.Privacy.Epsilon == 0 {
		return nil, usageErrorf("--time %d: the run is not private, and its clients reply "+
			"when they are done", t.runs)
	}
	// Data sets and corruptions of further scores cost time to prepare, and no attack reads them.
	c.Engine, c.Scores.Other, c.Scores.Corruptions = engine, nil, false
	// One thread an operator, as in the run: digests and features must be the same numbers.
	eng, err := openEngine(ctx, c.Engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	p, err := experiment.Prepare(ctx, c, eng, nil, nil)
	if err != nil {
		return nil, usageError(err)
	}
	defer p.Close()
	// Digests are compared before any attack, since attacks take minutes.
	kept, err := experiment.ReadManifest(dir)
	if err != nil {
		return nil, usageError(err)
	}
	own, err := sameSources(dir, kept, &p.Manifest)
	if err != nil {
		return nil, err
	}
	if len(own) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: the program's own models have changed since "+
			"the run: %s\n", strings.Join(own, ", "))
	}
	if t.server != "" {
		a := audited{Dataset: p.Config.Dataset.Label()}
		// No partition is drawn for it: images are drawn, and their classes are taken in turn.
		a.Extractors, err = audit.RunExtractor(ctx, p, audit.Options{Seed: c.Seed})
		return []audited{a}, err
	}
	if k := p.Tools; k.Conjugate == nil && k.Open == nil && k.Embedded == nil &&
		c.Privacy.Epsilon == 0 {
		return nil, usageErrorf("%s: the run has neither class means, nor moments, nor a "+
			"private round", dir)
	}
	var out []audited
	for _, part := range c.Partitions() {
		a := audited{Dataset: p.Config.Dataset.Label(), Partition: part.Name(),
			Clients: p.Config.Federation.Clients, Rounds: o.Rounds}
		// Rounds are drawn by the run's seed, so that an audit made again gives the same figures.
		o.Seed = c.Seed
		if a.Parts, err = audit.RunParts(ctx, p, part.Alpha, o); err != nil {
			return nil, err
		}
		// An epsilon of 0 is a run without privacy.
		if c.Privacy.Epsilon > 0 {
			if a.Private, err = audit.RunPrivate(ctx, p, part.Alpha, o); err != nil {
				return nil, err
			}
			if a.Server, err = audit.RunServer(ctx, p, o); err != nil {
				return nil, err
			}
		}
		if t.runs > 0 && len(out) == 0 { // of no partition
			a.ReplyMS = float64(t.after.Milliseconds())
			if a.Time, err = audit.RunTime(ctx, p, o, t.runs, t.after); err != nil {
				return nil, err
			}
		}
		out = append(out, a)
	}
	return out, nil
}

// sameSources refuses to audit a run behind other images or models than it had: settings keep names
// of files, and another folder may have others of these names. It returns the further models that
// differ, the program's own, in whose coordinates a server reads an upload. kept is the manifest in
// the directory, and the other one is of the sources at hand. Images and corpus must agree by their
// digests, and so must models that were given as files. The extractor and the private predictor
// must agree also where they are the program's: they decide on the numbers that leave a client. own
// is sorted.
func sameSources(dir string, kept, now *experiment.Manifest) (own []string, err error) {
	var other []string
	for _, k := range []string{"images", "corpus"} {
		if kept.Data[k] != now.Data[k] {
			other = append(other, k)
		}
	}
	// Models that the kept manifest alone names are passed over.
	for _, k := range slices.Sorted(maps.Keys(now.Models)) {
		_, file := now.Files[k]
		switch {
		case kept.Models[k] == now.Models[k]:
		// Models that were given as files have no second place to be taken from.
		case file || k == "extractor" || k == "private":
			other = append(other, k)
		default:
			own = append(own, k)
		}
	}
	if len(other) > 0 {
		return nil, usageErrorf("auditing: %s: these are not the run's, by their digests: %s; "+
			"audit it in the folder in which it was made", dir, strings.Join(other, ", "))
	}
	return own, nil
}

// print writes the attacks on one partition, one a line. Columns are the area under the ROC curve,
// and the true positive rate at a false positive rate of 1%. Both follow in theory, with the
// distance d'. The second line of a part has means over clients. Of a private run the bound on
// epsilon holds with the stated confidence, and may be 0 where the guesses prove nothing.
func (a *audited) print(b *strings.Builder) {
	if len(a.Extractors) > 0 {
		a.printExtractors(b)
		return
	}
	fmt.Fprintf(b, "%s, %s, %d clients, %d rounds\n%-34s %6s %10s   %s\n", a.Dataset, a.Partition,
		a.Clients, a.Rounds, "", "AUC", "TPR at 1%", "in theory")
	line := func(name string, k audit.Attack) {
		fmt.Fprintf(b, "%-34s %6.3f %10.3f   %.3f, %.3f (d' = %.2f)\n", name, k.AUC, k.TPR,
			k.TheoryAUC, k.TheoryTPR, k.TheoryD)
	}
	// Parts ascend in one space of features: each has those of the one before and more.
	for _, p := range a.Parts {
		line(fmt.Sprintf("%s (%d)", p.Read, p.Coordinates), p.Attack)
		fmt.Fprintf(b, "  %.3g images behind a mean, %.0f bytes; %.1f%% of images known whole, "+
			"%.2f of the distance left\n", p.Behind, p.Bytes, 100*p.Whole, p.Error)
	}
	// The first line has the attack on all canaries, the second the bound by the surest guesses.
	if v := a.Private; v != nil {
		line(fmt.Sprintf("private, epsilon %g, %s", v.Budget.Epsilon, v.Budget.Unit), v.Attack)
		fmt.Fprintf(b, "%d of %d guesses on %d canaries are right: epsilon is at least %.3f "+
			"(confidence %g); stated is %g\n", v.Right, v.Guesses, v.Canaries, v.Epsilon,
			v.Confidence, v.Budget.Epsilon)
	}
	a.printServer(b)
	a.printTime(b)
}

// printExtractors writes the bits that extractors get out. The column average is over images, and
// one image is the image of which most is known. A row that the client refuses has its reason in
// place of numbers. The bits of an image stand in the heading, from the first row.
func (a *audited) printExtractors(b *strings.Builder) {
	fmt.Fprintf(b, "%s: bits of an image of %d that leave with a plain upload\n"+
		"%-52s %-36s %15s %9s %9s\n", a.Dataset, a.Extractors[0].Most, "extractor", "upload",
		"images a class", "average", "one image")
	for _, l := range a.Extractors {
		if l.Refused != "" {
			fmt.Fprintf(b, "%-52s %-36s %15d   %s\n", l.Extractor, l.Upload, l.PerClass, l.Refused)
			continue
		}
		fmt.Fprintf(b, "%-52s %-36s %15d %9.0f %9.0f\n", l.Extractor, l.Upload,
			l.PerClass, l.Bits, l.Best)
	}
}

// printTime writes the attacks by the moment of a reply. Pairs of numbers are medians in
// milliseconds, with the image and without it. The last column is of replies that wait for the
// fixed time, where an AUC of 0.5 says that the moment tells nothing.
func (a *audited) printTime(b *strings.Builder) {
	if len(a.Time) == 0 {
		return
	}
	fmt.Fprintf(b, "by the moment of a reply, %d runs each; medians with and without the image, "+
		"ms\n%-48s %6s %18s   %s\n", a.Time[0].Runs, "", "AUC", "when it is made",
		fmt.Sprintf("AUC, after %g ms", a.ReplyMS))
	for _, t := range a.Time {
		if t.Refused != "" {
			fmt.Fprintf(b, "%-48s refused: %s\n", t.Name, t.Refused)
			continue
		}
		fmt.Fprintf(b, "%-48s %6.3f %8.1f, %8.1f   %.3f (%.2f, %.2f)\n", t.Name, t.AtOnce.AUC,
			t.AtOnce.With, t.AtOnce.Without, t.Fixed.AUC, t.Fixed.With, t.Fixed.Without)
	}
}

// printServer writes the outcome of a malicious server's graphs. moved is the change of the sums by
// the image as a share of the sensitivity, which is 1 at most. best is the AUC in theory, and the
// last column the epsilon that the guesses prove. It is for private runs: the stated epsilon is
// that of a.Private.
func (a *audited) printServer(b *strings.Builder) {
	if len(a.Server) == 0 {
		return
	}
	fmt.Fprintf(b, "a malicious server's client graphs, epsilon %g stated\n%-64s %8s "+
		"%6s %6s   %s\n", a.Private.Budget.Epsilon, "", "moved", "AUC", "best", "epsilon at least")
	for _, c := range a.Server {
		if c.Refused != "" {
			fmt.Fprintf(b, "%-64s refused: %s\n", c.Name, c.Refused)
			continue
		}
		fmt.Fprintf(b, "%-64s %8.3f %6.3f %6.3f   %.3f (%d of %d guesses right)\n", c.Name, c.Moved,
			c.AUC, c.TheoryAUC, c.Epsilon, c.Right, c.Guesses)
	}
}
