package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/onnx/suggest"
	"fmp/pipeline/lab/attack"
	"fmp/pipeline/lab/coverage"
	"fmp/pipeline/lab/domains"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/martingale"
	"fmp/pipeline/pool"
)

// measuredRound is the output of fmp bench round. Accuracies are shares of test images from 0 to 1,
// means over Repeats. Defences are the columns of the table that is filled: each of the three kinds
// of table has columns of its own. Attacks, Lost, Precisions, Rivals and Membership are filled
// together, or Moments, or Colluders.
type measuredRound struct {
	drawnRounds
	Open     bool          `json:"open"` // classes that neither extractor nor corpus has seen
	Bad      int           `json:"bad"`
	Defences []string      `json:"defences"`
	Attacks  *attack.Table `json:"attacks"`
	// honest clients of two sizes; of homogeneous clients alone
	Sizes      *attack.SizesRow  `json:"sizes,omitempty"`
	Lost       []attack.ScoreRow `json:"lost"`
	Precisions []attack.ScoreRow `json:"precisions"`
	// Rivals send something else: Bytes are those of their numbers, without a message around them.
	Rivals []attack.ScoreRow `json:"rivals"`
	// Membership measures the leak of an upload on single images.
	Membership []attack.MembershipRow `json:"membership"`
	// Moments are the attacks on uploads of moments, in place of all other tables.
	Moments []attack.MomentsRow `json:"moments,omitempty"`
	// Colluders are rounds of which 10 to 50% collude, in place of all other tables.
	Colluders []attack.CollusionRow `json:"colluders,omitempty"`
}

// benchRoundHelp is the long help of fmp bench round.
const benchRoundHelp = `Draw rounds of clients from a data set, let some of them attack, and print the accuracy that is
left: without defence, with the median, the trimmed mean (20% off each end) and the geometric median
of the clients' class means, with honesty as part of the posterior (fmp serve and fmp pool), and for
an oracle that knows the bad clients. Each attack is made at 2, 10, 100 and 1000 times the images of
an honest client.

Further tables: honest clients of two sizes (a few large ones beside many small ones), each image
counted as claimed or as honesty counts it; rounds of which 0 to 50% of the clients never come;
uploads of each element type, and methods that send something else (shared settings; bytes of their
numbers alone); how well an upload tells whether an image was among a client's (area under the ROC
curve of the likelihood ratio; 0.5 is chance).

With a corpus of other classes (corpus.classes, or corpus.dataset) all is measured in open scope.
Without a corpus and a predictor (dataset.splits.corpus 0) clients send moments: printed are
accuracy and NLL under each attack, at 10 times the images, and under false scatters.

With --colluders 10 to 50% of the clients collude and claim no more images than they have: printed
is the accuracy where all are taken for honest, where they are judged, and where they are judged by
images that the server knows, ten of each class; with the largest loss of a round against its honest
clients alone, and how many rounds lost more than .1.`

// drawnRounds says which rounds a benchmark draws. It is embedded in the output of each benchmark,
// so that figures never stand without the rounds that they are of. Clients, Points and Repeats are
// settings, and are filled in before anything is measured.
type drawnRounds struct {
	Dataset string  `json:"dataset"`
	Clients int     `json:"clients"`
	Points  int     `json:"points"` // images of a client
	Alpha   float64 `json:"alpha"`  // 0: homogeneous
	// Repeats are rounds that are drawn anew, over which figures are means.
	Repeats int `json:"repeats"`
}

// bind declares the settings and flags of drawn rounds, with the settings that the command reads
// besides. Their sizes are settings, but for alpha: it is one number here, and a list in a run.
// reads are keys and groups of settings as bindSettings takes them. cfg is filled when the command
// runs, and r by its flags and by measure.
func (r *drawnRounds) bind(cmd *cobra.Command, cfg *experiment.Config, reads ...string) {
	bindSettings(cmd, cfg, runAliases, append(reads, "engine.", "dataset.", "corpus.", "extractor.",
		"federation.points", "seeds", "seed")...)
	cmd.Flags().Float64Var(&r.Alpha, "alpha", 0,
		"Dirichlet parameter of the partition; 0 for homogeneous clients")
	jsonFlag(cmd, "print JSON")
}

// measure prepares the data of an experiment and measures rounds of it. r has the sizes of the
// prepared experiment when do is called, and so have the rounds that do is given. The steps are:
// alpha is checked, an engine is opened, the data set becomes features, and do measures. The data,
// the models, the engine and the bar of progress are closed before it returns, and the caller
// prints afterwards. do must not keep them.
//
// Prepared features are cached as those of a run are, so that a second benchmark begins faster.
// cfg.Methods says which models are prepared, and the caller sets it.
func (r *drawnRounds) measure(cmd *cobra.Command, cfg experiment.Config,
	do func(p *experiment.Prepared, of experiment.Rounds) error) error {
	// The negation refuses NaN. Beyond 1000 shares of classes are nearly equal, as alpha 0 makes
	// them.
	if !(r.Alpha >= 0 && r.Alpha <= 1000) {
		return usageErrorf("%s: --alpha is %v; allowed are 0 to 1000",
			strings.TrimPrefix(cmd.CommandPath(), "fmp "), r.Alpha)
	}
	// Figures must not depend on the number of threads of an operator.
	eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	p, err := experiment.Prepare(cmd.Context(), cfg, eng, nil, nil)
	if err != nil {
		return usageError(err)
	}
	defer p.Close()
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.close()
	c := p.Config
	r.Dataset, r.Clients, r.Points, r.Repeats = c.Dataset.Name, c.Federation.Clients,
		c.Federation.Points, c.Seeds
	return do(p, experiment.Rounds{Clients: r.Clients, Points: r.Points, Repeats: r.Repeats,
		Alpha: r.Alpha, Samples: c.Conjugate.Samples, Seed: c.Seed, Threads: c.Engine.Threads,
		Progress: bar.report})
}

// closedFormHelp is the help of the flag by which a corpus's images do not count. The flag is of
// the benchmarks of rounds and of domains.
const closedFormHelp = "the closed form alone: images of the corpus do not count " +
	"as one more client's"

// errNoClosedForm says that a benchmark's rounds have no closed form. It is known only when the
// models are prepared: the data set and its corpus decide on it. command is the command's name
// without fmp.
func errNoClosedForm(command string) error {
	return usageErrorf("%s: --closed-form is for rounds of the corpus's classes, and these have "+
		"no conjugate predictor: leave it out", command)
}

// newBenchRoundCommand declares fmp bench round. Fewer than half of the clients attack. A majority
// could pass for the honest ones, and no defence is made for it. With --colluders the number of
// attackers is the table's own, from 1 to 5 clients in 10, and --bad is not read.
//
// The number of test images bounds the time: every round is scored on all of them, under each
// attack and defence.
func newBenchRoundCommand() *cobra.Command {
	var res measuredRound
	var test int
	var colluders, closedForm bool
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "round",
		Short: "Measure what bad clients, lost clients and narrow types do to a round's classifier",
		Long:  benchRoundHelp,
		Example: `  fmp bench round --dataset cifar10
  fmp bench round --dataset mnist --alpha 0.1 --json
  fmp bench round --dataset cifar10 --clients 100 --bad 20 --seeds 2
  fmp bench round --dataset cifar100 --classes 40-59 --set corpus.classes=0-39 --extractor x.onnx \
    --set open.model=open.onnx`,
		Args: noArgs,
	}
	res.bind(cmd, &cfg, "open.", "federation.clients", "federation.calibration", "conjugate.")
	f := cmd.Flags()
	f.IntVar(&res.Bad, "bad", 2, "clients that attack, fewer than half")
	f.IntVar(&test, "test", 2000, "test images at most; 0 takes all")
	f.BoolVar(&colluders, "colluders", false,
		"measure rounds of which 10 to 50% of the clients collude")
	f.BoolVar(&closedForm, "closed-form", false, closedFormHelp)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Models of other methods are not prepared.
		cfg.Methods = []string{"FMP"}
		if colluders {
			res.Bad = 1 // of them it makes rounds of its own
		}
		// Half of the clients could not be told from the other half.
		if res.Bad < 1 || 2*res.Bad >= cfg.Federation.Clients || test < 0 {
			return usageErrorf("bench round: --bad %d and --test %d; allowed are 1 to less than "+
				"half of the %d clients, and from 0", res.Bad, test, cfg.Federation.Clients)
		}
		if err := res.measure(cmd, cfg, func(p *experiment.Prepared,
			of experiment.Rounds) (err error) {
			if closedForm && p.Tools.Conjugate == nil {
				return errNoClosedForm("bench round")
			}
			o := attack.Options{Rounds: of, Bad: res.Bad, ClosedForm: closedForm, Test: test}
			res.Open, res.Defences = p.Config.OpenScope(), attack.Defences
			if colluders {
				res.Defences = attack.CollusionDefences
				res.Colluders, err = attack.RunColluders(cmd.Context(), p, o)
			} else {
				err = res.attack(cmd.Context(), p, o)
			}
			return err
		}); err != nil {
			return err
		}
		return say(cmd, res, "%s", res.text())
	}
	return cmd
}

// attack fills the tables. Uploads of moments have a table of their own, and none of the others. Of
// skewed clients there is no table of two sizes, since it compares clients that differ in size
// alone. The first table that fails ends the measurement, and none is reported then. Sizes of
// membership are about equal steps of the logarithm, from 10 to 1000 images.
func (r *measuredRound) attack(ctx context.Context, p *experiment.Prepared,
	o attack.Options) (err error) {
	// Embedded is set where clients send moments.
	if p.Tools.Embedded != nil {
		r.Defences = attack.MomentsDefences
		r.Moments, err = attack.RunMoments(ctx, p, o)
		return err
	}
	// Sizes are compared among clients with equal shares of the classes. They come before the long
	// table of attacks, as they refuse a small part of clients.
	if o.Alpha == 0 {
		if r.Sizes, err = attack.RunSizes(ctx, p, o); err != nil {
			return err
		}
	}
	if r.Attacks, err = attack.RunAttacks(ctx, p, o); err != nil {
		return err
	}
	if r.Lost, err = attack.RunLost(ctx, p, o); err != nil {
		return err
	}
	if r.Precisions, err = attack.RunPrecisions(ctx, p, o); err != nil {
		return err
	}
	if r.Rivals, err = attack.RunRivals(ctx, p, o); err != nil {
		return err
	}
	r.Membership, err = attack.RunMembership(ctx, p, o, []int{10, 35, 100, 350, 1000})
	return err
}

// momentsText writes the table of uploads of moments. The first row is without an attack, so that
// there is nobody to find. A cell has accuracy and NLL in nats. The last columns are mean
// probabilities of being honest, of bad clients and of the others: 0 and 1 are perfect.
func (r *measuredRound) momentsText(b *strings.Builder) {
	fmt.Fprintf(b, "| ACC / NLL under | %s | P(honest) bad | others |\n|%s\n",
		strings.Join(r.Defences, " | "), strings.Repeat(" --- |", len(r.Defences)+3))
	for i, a := range r.Moments {
		fmt.Fprintf(b, "| %s |", a.Attack)
		for d := range r.Defences {
			fmt.Fprintf(b, " %.3f / %.3f |", a.ACC[d], a.NLL[d])
		}
		// Without an attack nobody is bad, and the mean over none means nothing.
		found := fmt.Sprintf("%.2f", a.Found)
		if i == 0 {
			found = "-"
		}
		fmt.Fprintf(b, " %s | %.2f |\n", found, a.Kept)
	}
}

// partition names that of the clients. Alpha is the concentration of the Dirichlet distribution
// that a client's shares of classes come from: the smaller, the fewer classes a client has.
func (r *measuredRound) partition() string {
	if r.Alpha > 0 {
		return fmt.Sprintf("Dirichlet %g", r.Alpha)
	}
	return "homogeneous"
}

// text is the tables in Markdown. A multiple is printed as ×, in images of an honest client: first
// the claim, then the mass that honesty counts of it. Losses are differences of accuracy from a
// round without attack and without defence. Bytes are of one client's message, and of rivals those
// of their numbers alone. The first row is without an attack, so that it has neither claim nor
// attackers.
func (r *measuredRound) text() string {
	var b strings.Builder
	if r.Colluders != nil {
		return r.colludersText()
	}
	scope := ""
	if r.Open {
		scope = " (open scope)"
	}
	fmt.Fprintf(&b, "%s%s, %s, %d clients of %d images, %d of them bad, mean of %d\n\n", r.Dataset,
		scope, r.partition(), r.Clients, r.Points, r.Bad, r.Repeats)
	if r.Moments != nil {
		r.momentsText(&b)
		return b.String()
	}
	fmt.Fprintf(&b, "| accuracy under | claimed | %s | counted | P(honest) bad | others |\n|%s\n",
		strings.Join(r.Defences, " | "), strings.Repeat(" --- |", len(r.Defences)+5))
	line := func(name, claimed string, x []float64, more string) {
		fmt.Fprintf(&b, "| %s | %s |", name, claimed)
		for _, v := range x {
			fmt.Fprintf(&b, " %.3f |", v)
		}
		fmt.Fprintln(&b, more)
	}
	for i, a := range r.Attacks.Rows {
		if i == 0 {
			line(a.Attack, "", a.Accuracy, fmt.Sprintf(" - | - | %.2f |", a.Kept))
			continue
		}
		line(a.Attack, fmt.Sprintf("%g ×", a.Multiple), a.Accuracy,
			fmt.Sprintf(" %.1f × | %.2f | %.2f |", a.Counted, a.Found, a.Kept))
	}
	line("**mean loss**", "", r.Attacks.Mean, " | | |")
	line("**largest loss**", "", r.Attacks.Worst, " | | |")
	for i, worst := range r.Attacks.ByMultiple {
		line("largest loss", fmt.Sprintf("%g ×", attack.Multiples[i]), worst, " | | |")
	}
	if s := r.Sizes; s != nil {
		fmt.Fprintf(&b, "\n| %d clients of %d images, %d of %d | ACC | NLL | ECE |\n"+
			"| --- | --- | --- | --- |\n", s.LargeClients, s.Large, s.SmallClients, s.Small)
		fmt.Fprintf(&b, "| as claimed | %.4f | %.4f | %.4f |\n"+
			"| as counted | %.4f | %.4f | %.4f |\n", s.Claimed.ACC, s.Claimed.NLL, s.Claimed.ECE,
			s.Counted.ACC, s.Counted.NLL, s.Counted.ECE)
	}
	// Precisions are copied, as append could write rivals into the memory behind them.
	for _, t := range []struct {
		title string
		rows  []attack.ScoreRow
	}{{"clients", r.Lost}, {"upload", append(slices.Clone(r.Precisions), r.Rivals...)}} {
		fmt.Fprintf(&b, "\n| %s | bytes | ACC | NLL | ECE |\n| --- | --- | --- | --- | --- |\n",
			t.title)
		for _, s := range t.rows {
			bytes := "-"
			if s.Bytes > 0 {
				bytes = fmt.Sprintf("%.0f", s.Bytes)
			}
			fmt.Fprintf(&b, "| %s | %s | %.4f | %.4f | %.4f |\n", s.Name, bytes, s.ACC,
				s.NLL, s.ECE)
		}
	}
	fmt.Fprintf(&b, "\n| images of a client | AUC of membership |\n| --- | --- |\n")
	for _, m := range r.Membership {
		fmt.Fprintf(&b, "| %d | %.2f |\n", m.N, m.AUC)
	}
	return b.String()
}

// colludersText writes the table of colluders. Each cell has the mean accuracy, the largest loss,
// and the number of draws that lost more than .1. The column of honest clients is the accuracy of a
// round without the colluders, by which losses are measured.
func (r *measuredRound) colludersText() string {
	var b strings.Builder
	form := "class means"
	if r.Open {
		form = "class means in open scope"
	}
	fmt.Fprintf(&b, "%s, %s, %s, %d clients of %d images, %d draws: accuracy, "+
		"largest loss against the honest clients, draws that lost more than .1\n\n| colluders | "+
		"honest clients |", r.Dataset, form, r.partition(), r.Clients, r.Points, r.Repeats)
	for _, d := range r.Defences {
		fmt.Fprintf(&b, " %s |", d)
	}
	fmt.Fprintf(&b, "\n|%s\n", strings.Repeat(" --- |", len(r.Defences)+2))
	for _, c := range r.Colluders {
		fmt.Fprintf(&b, "| %s, %d | %.3f |", c.Attack, c.Colluders, c.Oracle)
		for i := range r.Defences {
			fmt.Fprintf(&b, " %.3f, %.3f, %d |", c.ACC[i], c.Worst[i], c.Fallen[i])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// measuredDomains is the output of fmp bench domains. Severities are those of each kind, as the
// family counts them, and of rotation quarter turns. Rows are means over repeats, kinds and
// severities.
type measuredDomains struct {
	drawnRounds               // Clients are of each domain
	Family      string        `json:"family"`
	Kinds       []string      `json:"kinds"`
	Severities  []int         `json:"severities"`
	Rows        []domains.Row `json:"rows"`
}

// benchDomainsLong is the long help of fmp bench domains.
const benchDomainsLong = `Draw rounds of clients whose images come from domains of their own, and print
accuracy and NLL on images of the clients' domains and on those that no client has, each left out in
turn. --domains names them:

  corruptions  ten clients, each with a kind and severity of corruption of its own (noise, blur,
               contrast, brightness, pixels; two severities); a kind is left out in turn
  rotation     images turned by 0, 90, 180 and 270 degrees, two clients each
  digits       three sources of digits, three clients each: mnist, digits and digits8x8
               (scikit-learn's; see docs/digits8x8); --dataset is the source that extractor and
               corpus have

FMP is measured in the scope that the uploads show and in closed scope (without predictors: of
uploads of moments): with all clients taken for alike, for a client to come, and for each client of
the round (fmp pool --for). Rivals are a softmax regression on all features, FedCGS, Fed3R, FedPFT
and the clients' own fits, each also with every client's features less their mean, and test features
less the mean of 50 unlabelled images of their domain; and all but the last with clients' and test
features moved towards the barycenter of the clients' Gaussians (SLOT-Align). Rivals have the
setting, strength and temperature that are best on the test images.`

// newBenchDomainsCommand declares fmp bench domains. The family says how many clients there are, so
// that federation.clients is not read. The number of clients that is reported is of each domain.
// Names of families come from package domains, in whose order the help lists them, and the first is
// the default. The name is checked before an engine is opened.
func newBenchDomainsCommand() *cobra.Command {
	var res measuredDomains
	var closedForm bool
	family := domains.Families[0].Name
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use: "domains",
		Short: "Measure clients whose images come from domains of their own: other cameras, " +
			"light or sharpness",
		Long: benchDomainsLong,
		Example: `  fmp bench domains --dataset cifar10
  fmp bench domains --dataset cifar10 --alpha 0.3 --points 40 --seeds 3 --json
  fmp bench domains --dataset mnist --domains digits --points 20`,
		Args: noArgs,
	}
	var names []string
	for _, f := range domains.Families {
		names = append(names, f.Name)
	}
	res.bind(cmd, &cfg, "open.", "federation.calibration", "conjugate.")
	f := cmd.Flags()
	f.StringVar(&family, "domains", family, "domains of clients: "+suggest.Or(names...))
	f.BoolVar(&closedForm, "closed-form", false, closedFormHelp)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at := slices.Index(names, family)
		if at < 0 {
			return usageErrorf("bench domains: --domains is %q; allowed are %s", family,
				suggest.Or(names...))
		}
		// Spoiled test images are made while the run is prepared, domains.Images of each domain.
		from := domains.Families[at]
		cfg.Methods, cfg.Scores.Domains, cfg.Scores.Images = []string{"FMP"}, from.Domains(),
			domains.Images
		if err := res.measure(cmd, cfg, func(p *experiment.Prepared,
			of experiment.Rounds) (err error) {
			if closedForm && p.Tools.Conjugate == nil {
				return errNoClosedForm("bench domains")
			}
			res.Family, res.Kinds, res.Severities, res.Clients = family, from.Kinds,
				from.Severities, from.Clients
			res.Rows, err = domains.Run(cmd.Context(), p, domains.Options{Rounds: of,
				Family: from, Named: !closedForm, Rivals: domains.Rivals})
			return err
		}); err != nil {
			return err
		}
		return tell(cmd, res, res.print)
	}
	return cmd
}

// print leaves the last two columns of a row out where no kind was unknown to it. A method that is
// fitted to clients of the round has nothing for a kind that none of them has. NLL is in nats.
func (r *measuredDomains) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %s, %d images a client, alpha %g, %d repeats\n%-40s %17s %17s\n"+
		"%-40s %8s %8s %8s %8s\n", r.Dataset, r.Family, r.Points, r.Alpha, r.Repeats, "",
		"known domain", "unknown kind", "", "ACC", "NLL", "ACC", "NLL")
	for _, row := range r.Rows {
		fmt.Fprintf(b, "%-40s %8.3f %8.3f", row.Name, row.Known.ACC, row.Known.NLL)
		// The heading stays, and the two columns are left blank.
		if row.Unknown != nil {
			fmt.Fprintf(b, " %8.3f %8.3f", row.Unknown.ACC, row.Unknown.NLL)
		}
		b.WriteByte('\n')
	}
}

// measuredSets is the output of fmp bench sets. Level is the probability that sets are made for.
// FalseShare is the share of clients whose false points sets survive, and is filled with False.
type measuredSets struct {
	drawnRounds
	Level float64        `json:"level"`
	Rows  []coverage.Row `json:"rows,omitempty"`
	// False are the rows of clients that send false points, for sets that survive such a share of
	// them.
	False      []coverage.FalseRow `json:"false,omitempty"`
	FalseShare float64             `json:"false_share,omitempty"`
}

// newBenchSetsCommand declares fmp bench sets. Clients have at least twice as many images as the
// largest number of calibration points: half at least go into class means. The numbers 10 and 40
// are fixed, so that tables of several data sets compare. 0.5 and 0.999 are the bounds of levels in
// fmp calibrate too, and the negated test refuses NaN. Both checks come before an engine is opened.
func newBenchSetsCommand() *cobra.Command {
	var res measuredSets
	var falsePoints bool
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "sets",
		Short: "Measure prediction sets from calibration points of clients: coverage and size",
		Long: `Draw rounds of ten clients that hold some images back as calibration points, 10 or 40 each, and
print how often sets of the level hold the class: of images that are drawn as the points are, of
test images with the classes' shares of the clients and with equal shares, and of the class that is
held least. Sets are those of the clients' mixture, by class, and for equal shares (docs/sets.md),
under both scores and under the adaptive one as it is published, with a random number for each
image.

Beside FMP are the same sets of a softmax regression on all images of all clients, with the penalty
and the temperature whose sets are smallest on the test images.

With --false some clients send false calibration points beside true class means, 0 to 4 in 10. The
sets are those of fmp pool, which survive false points of two clients in ten, beside sets that
survive none; they are scored on new images of the honest clients.`,
		Example: `  fmp bench sets --dataset cifar10 --points 200
  fmp bench sets --dataset cifar10 --points 200 --alpha 0.1 --seeds 20 --json
  fmp bench sets --dataset cifar10 --points 200 --false`,
		Args: noArgs,
	}
	res.bind(cmd, &cfg, "federation.clients", "conjugate.")
	f := cmd.Flags()
	f.Float64Var(&res.Level, "level", 0.9,
		"probability with which a set holds the class, 0.5 to 0.999")
	f.BoolVar(&falsePoints, "false", false,
		"measure rounds in which clients send false calibration points")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !(res.Level >= 0.5 && res.Level <= 0.999) {
			return usageErrorf("bench sets: --level is %v; allowed are 0.5 to 0.999", res.Level)
		}
		// The points are held back from the images that a client has, and never used for class
		// means.
		calibrate := []int{10, 40}
		if least := 2 * calibrate[1]; cfg.Federation.Points < least {
			return usageErrorf("bench sets: --points is %d; want %d or more, of which %d are "+
				"calibration points", cfg.Federation.Points, least, calibrate[1])
		}
		cfg.Methods = []string{"FMP"}
		if err := res.measure(cmd, cfg, func(p *experiment.Prepared,
			of experiment.Rounds) (err error) {
			o := coverage.Options{Rounds: of, Calibrate: calibrate, Level: res.Level}
			if falsePoints {
				res.FalseShare = pool.FalseShare
				res.False, err = coverage.RunFalse(cmd.Context(), p, o, res.FalseShare)
			} else {
				res.Rows, err = coverage.Run(cmd.Context(), p, o)
			}
			return err
		}); err != nil {
			return err
		}
		return tell(cmd, res, res.print)
	}
	return cmd
}

// print writes a line for each row, or the table of false points. Columns are shares of images
// whose set holds their class, and the mean size of sets. A row whose points prove the level in no
// repeat has its number of repeats alone.
func (r *measuredSets) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %d clients of %d images, alpha %g, %d repeats, sets of %g\n", r.Dataset,
		r.Clients, r.Points, r.Alpha, r.Repeats, r.Level)
	if r.False != nil {
		r.printFalse(b)
		return
	}
	fmt.Fprintf(b, "%-52s %8s %8s %8s %8s %8s %8s %12s\n", "", "repeats", "alike", "held", "equal",
		"least", "size", "regression's")
	for _, row := range r.Rows {
		name := fmt.Sprintf("%d points each, %s, %s", row.Calibrate, row.Sets, row.Score)
		m := row.FMP
		// No repeat had points enough for the level, so that there are no means.
		if m.Repeats == 0 {
			fmt.Fprintf(b, "%-52s %8d\n", name, 0)
			continue
		}
		fmt.Fprintf(b, "%-52s %8d %8.3f %8.3f %8.3f %8.3f %8.2f %12.2f\n", name, m.Repeats, m.Alike,
			m.Held, m.Equal, slices.Min(m.Classes), m.Size, row.Regression.Size)
	}
}

// printFalse writes the rows of false calibration points. The names of attacks are explained first.
// held is of new images of the honest clients, and error the standard error of it. left out is the
// share of bad clients that were, and of others the share of honest ones: 1 and 0 are perfect. The
// last columns are of sets that are to survive no false point.
func (r *measuredSets) printFalse(b *strings.Builder) {
	for _, a := range coverage.FalseAttacks {
		fmt.Fprintf(b, "%-6s %s\n", a.Name, a.Does)
	}
	fmt.Fprintf(b, "%-30s %8s %8s %8s %10s %10s %12s %12s\n", "", "held", "error", "size",
		"left out", "of others", "plain: held", "size")
	for _, row := range r.False {
		fmt.Fprintf(b, "%-30s %8.3f %8.3f %8.2f %10.2f %10.3f %12.3f %12.2f\n",
			fmt.Sprintf("%d points each, %s of %d", row.Calibrate, row.Attack, row.Bad), row.Held,
			row.HeldError, row.Size, row.LeftOut, row.Honest, row.PlainHeld, row.PlainSize)
	}
}

// measuredPaths is the output of fmp bench martingale. Every path begins at the round's own
// posterior.
type measuredPaths struct {
	drawnRounds
	// Paths are drawn for each round, and Rows are by method.
	Paths int              `json:"paths"`
	Rows  []martingale.Row `json:"rows"`
}

// newBenchMartingaleCommand declares fmp bench martingale. The method FMP-ISAB is prepared for its
// predictor, by which points are drawn. For a martingale E[p_{t+1} | p_1 .. p_t] = p_t, so that the
// mean drift is 0 but for the noise of paths. The method is that of Fong, Holmes and Walker 2023
// (Martingale posterior distributions), whose draws are from the prediction. 500 test images are
// followed, as each costs a prediction for every path and batch.
//
// Two paths are the fewest with a standard error. All bounds are checked before an engine is
// opened.
func newBenchMartingaleCommand() *cobra.Command {
	var res measuredPaths
	o := martingale.Options{Test: 500}
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "martingale",
		Short: "Measure predictive resampling: the drift of predictions as draws are appended",
		Long: `Draw images from a method's own prediction, append them to what the round knows, make the head
again, and so on. A posterior of a martingale keeps its mean prediction: the drift is the change of
the mean probability, over paths and test images, of the class that the start takes for the most
probable. Moved is how far the mean of a single image goes from its start.

FMP-ISAB draws points by the paper's predictor, given all points before them (--l2 is the penalty of
its fits). FMP-one draws images of the discriminant of most weight, without a corpus and at a fixed
temperature. Spread is the standard deviation over paths, and of the method's own samples.`,
		Example: `  fmp bench martingale --dataset mnist
  fmp bench martingale --dataset cifar10 --alpha 0.1 --paths 100 --batches 20 --json`,
		Args: noArgs,
	}
	res.bind(cmd, &cfg, "federation.clients", "predictor.", "embedding.")
	f := cmd.Flags()
	f.IntVar(&o.Paths, "paths", 40, "paths of a round, 2 to 1000")
	f.IntVar(&o.Batches, "batches", 10, "batches of a path, 1 to 100")
	f.IntVar(&o.Batch, "batch", 50, "draws of a batch, 1 to 1000")
	f.Float64Var(&o.L2, "l2", 1,
		"penalty of the fits to points, in units of the objective; above 0 to 1e6")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Paths < 2 || o.Paths > 1000 || o.Batches < 1 || o.Batches > 100 || o.Batch < 1 ||
			o.Batch > 1000 || !(o.L2 > 0 && o.L2 <= 1e6) {
			return usageErrorf("bench martingale: --paths is %d, --batches %d, --batch %d and "+
				"--l2 %v; allowed are 2 to 1000, 1 to 100, 1 to 1000, and above 0 to 1e6", o.Paths,
				o.Batches, o.Batch, o.L2)
		}
		cfg.Methods = []string{"FMP-ISAB"}
		if err := res.measure(cmd, cfg, func(p *experiment.Prepared,
			of experiment.Rounds) (err error) {
			res.Paths, o.Rounds = o.Paths, of
			res.Rows, err = martingale.Run(cmd.Context(), p, o)
			return err
		}); err != nil {
			return err
		}
		return tell(cmd, res, res.print)
	}
	return cmd
}

// print writes a block for each method, with a line for the start and one for each batch. Columns
// are the draws so far, the mean probability, its drift with the standard error over paths, the
// distance moved, and the spread. A drift within two errors of 0 is in keeping with a martingale.
func (r *measuredPaths) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %d clients of %d images, alpha %g, %d repeats, %d paths\n", r.Dataset,
		r.Clients, r.Points, r.Alpha, r.Repeats, r.Paths)
	for _, row := range r.Rows {
		fmt.Fprintf(b, "%-10s %6s %12s %19s %8s %8s\n", row.Method, "drawn", "probability", "drift",
			"moved", "spread")
		for _, s := range row.Steps {
			fmt.Fprintf(b, "%-10s %6.0f %12.4f %+9.4f +- %.4f %8.4f %8.4f\n", "",
				s.Drawn, s.Probability, s.Drift, s.DriftError, s.Moved, s.Spread)
		}
		fmt.Fprintf(b, "%-10s %59s %8.4f\n", "", "its own samples", row.Spread)
	}
}
