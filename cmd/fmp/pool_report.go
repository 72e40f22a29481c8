package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gonum.org/v1/gonum/floats"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/conformal"
	"fmp/pipeline/honesty"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
)

// pooled is the output of fmp pool. Slices by client have the order of Clients, which is that of
// their names. fmp serve fills one in as well, by describe, for its summary.
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

// count adds the uploads of a round to its account. Calibration stays nil where no upload has a
// calibration point. Images of an upload are its own and its calibration points.
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

// unlike names the classes whose images of the corpus do not count. post.Unlike has numbers of
// classes.
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

// leftOut warns of each upload that was left out, and lists why. The warnings come at once, in the
// order of the files. The reasons are also in the output, as JSON skipped.
func leftOut(cmd *cobra.Command, bad []error) (reasons []string) {
	for _, err := range bad {
		warnPool(cmd, "left out: "+err.Error())
		reasons = append(reasons, err.Error())
	}
	return reasons
}

// warnPool writes a line about the round on standard error.
func warnPool(cmd *cobra.Command, text string) {
	fmt.Fprintln(cmd.ErrOrStderr(), cmd.CommandPath()+": "+text)
}

// describe sets the posterior's account of the round: its form, shape, penalty and the honesty of
// its clients. Diagnostics of the posterior say which fields the form of the round has. r and post
// stay as they are; slices of post are shared.
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
			// The posterior has both under the same names of diagnostics.
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

// moments describes how moments were read; nothing of other uploads. A log evidence above 0 speaks
// for the corpus.
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

// guessed says why nothing told the temperature, and the remedies: calibration points, got by an
// option. by is the remedy of the command at hand.
func guessed(why, by string) string {
	return fmt.Sprintf("the temperature was not measured, and kappa is a guess: %s; calibration "+
		"points tell it (%s), as do labelled images (fmp fuse --dataset)", why, by)
}

// print describes the result for people. Lines of fields that a round lacks are left out.
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

// maxClients is how many clients the text names. The rest is counted; --json has all.
const maxClients = 20

// printClients lists the clients that were judged: those that are less likely honest than not, then
// those with the smallest counted share. Shares n/N and m/M, of counted and claimed images, are
// compared as n*M and m*N: a claim may be 0. Clients with probabilities of one half and more are
// ordered by share alone: min(P, 1/2) ties them.
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

// disputed names the classes of which much was left out. The threshold of the share that was left
// out is honesty.Contested. A class without a name has its number.
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

// named lists values with their types and shapes.
func named(vs []onnx.ValueInfo) []string {
	var out []string
	for _, v := range vs {
		out = append(out, v.String())
	}
	return out
}

// printEffects names the clients whose images are shifted against the others', the furthest first.
// Sizes are in standard deviations within classes. Ties keep the order of the clients.
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
// points of every group prove. Of n exchangeable points no level above n/(n+1) can be proved, as
// the new image is one of n+1.
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

// print describes the sets for people; nil, which stands for none, prints nothing. The promise is
// marginal over images and calibration points, unless it is by class or group.
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
