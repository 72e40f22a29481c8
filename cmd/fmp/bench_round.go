package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/pipeline/lab/attack"
	"fmp/pipeline/lab/experiment"
)

// measuredRound is the output of fmp bench round.
type measuredRound struct {
	Dataset    string            `json:"dataset"`
	Open       bool              `json:"open"` // classes that neither extractor nor corpus has seen
	Clients    int               `json:"clients"`
	Points     int               `json:"points"`
	Bad        int               `json:"bad"`
	Alpha      float64           `json:"alpha"` // 0: homogeneous
	Repeats    int               `json:"repeats"`
	Defences   []string          `json:"defences"`
	Attacks    *attack.Table     `json:"attacks"`
	Sizes      *attack.SizesRow  `json:"sizes,omitempty"` // honest clients of two sizes; of homogeneous clients alone
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

// closedFormHelp is the help of the flag by which a corpus's images do not count.
const closedFormHelp = "the closed form alone: images of the corpus do not count as one more client's"

// errNoClosedForm says that a benchmark's rounds have no closed form.
func errNoClosedForm(command string) error {
	return usageErrorf("%s: --closed-form is for rounds of the corpus's classes, and these have no "+
		"conjugate predictor: leave it out", command)
}

func newBenchRoundCommand() *cobra.Command {
	var alpha float64
	var bad, test int
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
	bindSettings(cmd, &cfg, runAliases, "engine.", "dataset.", "corpus.", "extractor.", "open.",
		"federation.clients", "federation.points", "federation.calibration", "conjugate.",
		"seeds", "seed")
	f := cmd.Flags()
	f.Float64Var(&alpha, "alpha", 0, "Dirichlet parameter of the partition; 0 for homogeneous clients")
	f.IntVar(&bad, "bad", 2, "clients that attack, fewer than half")
	f.IntVar(&test, "test", 2000, "test images at most; 0 takes all")
	f.BoolVar(&colluders, "colluders", false,
		"measure rounds of which 10 to 50% of the clients collude")
	f.BoolVar(&closedForm, "closed-form", false, closedFormHelp)
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg.Methods = []string{"FMP"}
		if colluders {
			bad = 1 // of them it makes rounds of its own
		}
		if !(alpha >= 0 && alpha <= 1000) || bad < 1 || 2*bad >= cfg.Federation.Clients || test < 0 {
			return usageErrorf("bench round: --alpha %v, --bad %d, --test %d; allowed are 0 to 1000, 1 to "+
				"less than half of the %d clients, and from 0", alpha, bad, test,
				cfg.Federation.Clients)
		}
		return benched(cmd, cfg, func(p *experiment.Prepared, bar *progress) (err error) {
			if closedForm && p.Tools.Conjugate == nil {
				return errNoClosedForm("bench round")
			}
			c := p.Config
			o := attack.Options{Clients: c.Federation.Clients, Points: c.Federation.Points, Alpha: alpha,
				Bad: bad, Repeats: c.Seeds, ClosedForm: closedForm,
				Samples: c.Conjugate.Samples, Test: test, Seed: c.Seed, Threads: c.Engine.Threads}
			o.Progress = bar.report
			res := measuredRound{Dataset: c.Dataset.Name, Open: c.OpenScope(), Clients: o.Clients,
				Points: o.Points, Bad: bad, Alpha: alpha,
				Repeats: o.Repeats, Defences: attack.Defences}
			if colluders {
				res.Defences = attack.CollusionDefences
				res.Colluders, err = attack.RunColluders(cmd.Context(), p, o)
			} else {
				err = res.measure(cmd.Context(), p, o)
			}
			if err != nil {
				return err
			}
			return say(cmd, res, "%s", res.text())
		})
	}
	return cmd
}

// measure fills the tables.
func (r *measuredRound) measure(ctx context.Context, p *experiment.Prepared,
	o attack.Options) (err error) {
	if p.Tools.Embedded != nil {
		r.Defences = attack.MomentsDefences
		r.Moments, err = attack.RunMoments(ctx, p, o)
		return err
	}
	if r.Attacks, err = attack.RunAttacks(ctx, p, o); err != nil {
		return err
	}
	if o.Alpha == 0 {
		if r.Sizes, err = attack.RunSizes(ctx, p, o); err != nil {
			return err
		}
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

// momentsText writes the table of uploads of moments.
func (r *measuredRound) momentsText(b *strings.Builder) {
	fmt.Fprintf(b, "| ACC / NLL under | %s | P(honest) bad | others |\n|%s\n",
		strings.Join(r.Defences, " | "), strings.Repeat(" --- |", len(r.Defences)+3))
	for i, a := range r.Moments {
		fmt.Fprintf(b, "| %s |", a.Attack)
		for d := range r.Defences {
			fmt.Fprintf(b, " %.3f / %.3f |", a.ACC[d], a.NLL[d])
		}
		found := fmt.Sprintf("%.2f", a.Found)
		if i == 0 {
			found = "-"
		}
		fmt.Fprintf(b, " %s | %.2f |\n", found, a.Kept)
	}
}

// partition names that of the clients.
func (r *measuredRound) partition() string {
	if r.Alpha > 0 {
		return fmt.Sprintf("Dirichlet %g", r.Alpha)
	}
	return "homogeneous"
}

// text is the tables in Markdown.
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
		fmt.Fprintf(&b,
			"\n| %d clients of %d images, %d of %d | ACC | NLL | ECE |\n| --- | --- | --- | --- |\n",
			s.LargeClients, s.Large, s.SmallClients, s.Small)
		fmt.Fprintf(&b, "| as claimed | %.4f | %.4f | %.4f |\n| as counted | %.4f | %.4f | %.4f |\n",
			s.Claimed.ACC, s.Claimed.NLL, s.Claimed.ECE, s.Counted.ACC, s.Counted.NLL,
			s.Counted.ECE)
	}
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

// colludersText writes the table of colluders.
func (r *measuredRound) colludersText() string {
	var b strings.Builder
	form := "class means"
	if r.Open {
		form = "class means in open scope"
	}
	fmt.Fprintf(&b, "%s, %s, %s, %d clients of %d images, %d draws: accuracy, largest loss against "+
		"the honest clients, draws that lost more than .1\n\n| colluders | honest clients |", r.Dataset,
		form, r.partition(), r.Clients, r.Points, r.Repeats)
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
