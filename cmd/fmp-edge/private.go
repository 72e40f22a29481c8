package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/printable"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// released is the output of compress of a private round: no number of images, which nobody outside
// is to know. Sizes are public: they follow from the graph and the round.
type released struct {
	Upload string `json:"upload"`
	Bytes  int    `json:"bytes"`
	// HelperUpload is the helper's share, of a round with two servers, of which Upload is then the
	// leader's.
	HelperUpload string         `json:"helper_upload,omitempty"`
	HelperBytes  int            `json:"helper_bytes,omitempty"`
	Client       string         `json:"client"`
	Round        uint64         `json:"round"`
	Model        string         `json:"model"`
	Classes      int            `json:"classes"`
	Coordinates  int            `json:"coordinates"`
	Budget       privacy.Budget `json:"budget"`
	// Noise is the standard deviation, in steps, of this client's noise; 0 where servers add it.
	Noise uint64 `json:"noise_steps"`
}

// budgetNames are the names of the flags of a private round. join has the last three as flags of
// its own, and sets the others.
var budgetNames = []string{"epsilon", "delta", "unit", "relation", "noise", "points", "max-epsilon",
	"ledger", "redraw", "reply-after"}

// privateFlags are the flags of a private round. A client graph of a private round wants --epsilon,
// and fits refuses it without. Pointers are set when the command line is parsed.
type privateFlags struct {
	// budget is that of the round, which the flags state or join sets.
	budget *privacy.Budget
	// maxEpsilon is the most that may be spent on any image in all, 0 for any.
	maxEpsilon *float64
	ledger     *string
	redraw     *bool
	// reply is the fixed time from the start of the work to the upload.
	reply *time.Duration
}

// newPrivateFlags declares the flags of a private round. Their defaults are those of a round file,
// so that a client states the numbers that differ alone.
func newPrivateFlags(f *pflag.FlagSet) privateFlags {
	b := &privacy.Budget{}
	f.Float64Var(&b.Epsilon, "epsilon", 0,
		"epsilon of a private round; a client graph of one (fmp fuse --upload private) wants it")
	f.Float64Var(&b.Delta, "delta", privacy.DefaultDelta, "delta of a private round")
	f.StringVar(&b.Unit, "unit", privacy.Example,
		"what a private round protects: example or client")
	f.StringVar(&b.Relation, "relation", privacy.AddRemove,
		"neighbours of a private round: add-remove or replace-one")
	f.StringVar(&b.Noise, "noise", privacy.Local,
		"who adds the noise of a private round: local (this client), trusted (the server, which "+
			"then sees the sums) or two-servers (each adds its own; writes a share for each)")
	f.IntVar(&b.Points, "points", 0, "images of one client of a private round that count in "+
		"full, where a client is the unit or there are two servers; sums of more are shortened")
	return privateFlags{
		budget:     b,
		maxEpsilon: f.Float64("max-epsilon", 0, mostSpentHelp),
		ledger:     f.String("ledger", "", ledgerHelp),
		redraw: f.Bool("redraw", false, "draw the noise of a private upload that was made before "+
			"a second time, and spend its budget a second time"),
		reply: f.Duration("reply-after", replyAfter, "fixed time from the start of the work to "+
			"a private upload, or to the error in its place, so that time tells nothing of the "+
			"images: more than their work takes at most; 0 does not wait"),
	}
}

// replyAfter is the time to a private reply where its owner states none; tests do not wait.
var replyAfter = client.DefaultReply

// mostSpentHelp is the help of --max-epsilon where no plain round is refused by it.
const mostSpentHelp = "largest epsilon that private rounds and reports with noise may spend on " +
	"any image in all, this one and those of the ledger together; 0 is any"

const maxEpsilonHelp = mostSpentHelp + "; above 0 refuses plain rounds too"

// ledgerHelp is the help of --ledger of every command that spends a budget.
const ledgerHelp = "file of what private rounds and reports with noise spent on each image " +
	"(default: fmp/spent.jsonl in the user's folder for configuration)"

// fits returns an error where a private round's flags are missing, or given with a graph of another
// round: an upload that is taken for a private one is the worst that can happen. private says of
// which kind the graph is, and model is its file, for errors. It is asked before the extractor is
// approved. Both directions are refused: a private graph without a budget, and a budget without a
// private graph. No ledger is opened by it.
func (p privateFlags) fits(f *pflag.FlagSet, model string, private bool) error {
	if private && !f.Changed("epsilon") {
		return usagef("compress: %s is the client graph of a private round: give --epsilon, and "+
			"--delta, --unit, --relation, --noise and --points as the round has them", model)
	}
	for _, name := range budgetNames {
		if !private && f.Changed(name) {
			return usagef("compress: --%s is of private rounds, and %s is not the "+
				"client graph of one (fmp fuse --upload private makes that): its upload would "+
				"be a plain one", name, model)
		}
	}
	if !private {
		return nil
	}
	if b := f.Lookup("on-bad"); b.Changed && b.Value.String() != "skip" {
		return usagef("compress: --on-bad %v: an error would tell of the image that cannot be "+
			"read; a private round leaves it out", b.Value)
	}
	if n := f.Lookup("at-least").Value.String(); n != "1" {
		return usagef("compress: --at-least %s: whether a class has as many images would tell of "+
			"single ones, which a private round protects: leave it out", n)
	}
	if f.Changed("precision") {
		return usagef("compress: --precision is of plain uploads: %s makes whole numbers", model)
	}
	if err := checkMaxEpsilon("compress", *p.maxEpsilon); err != nil {
		return err
	}
	for _, err := range []error{p.budget.Check(), client.CheckReply(*p.reply)} {
		if err != nil {
			return &usageError{fmt.Errorf("compress: %w", err)}
		}
	}
	return nil
}

// checkMaxEpsilon refuses a --max-epsilon that is no limit: a number below 0, infinity, or NaN; 0
// is any. The negated test refuses NaN, with which no comparison holds.
func checkMaxEpsilon(command string, epsilon float64) error {
	if !(epsilon >= 0) || math.IsInf(epsilon, 0) {
		return usagef("%s: --max-epsilon %v; allowed are numbers above 0, and 0 for any", command,
			epsilon)
	}
	return nil
}

// compressPrivate makes a message of a private round and writes it, at a fixed time after the
// start. Remarks on the images are printed then. The time of the reply and of each line before it
// depends on the clock alone ([client.Reply]). Errors of the work come at that time too, since an
// early one would tell of the images. Of a command that is stopped the remarks are dropped: their
// writer may be at work still.
func (c *compressing) compressPrivate(ctx context.Context, cl *client.Client, source string, stdout,
	log io.Writer) error {
	if *c.calibrate > 0 {
		return usagef("compress: --calibrate %d: calibration points are single images, which a "+
			"private round protects: leave it out", *c.calibrate)
	}
	after := *c.private.reply
	if err := c.takes(after); err != nil {
		return err
	}
	c.due = time.Now().Add(after)
	if after == 0 {
		fmt.Fprintln(log, "fmp-edge: --reply-after 0: the upload is there as soon as it is made, "+
			"and who sees when learns of the images")
	} else {
		fmt.Fprintf(log, "fmp-edge: the reply comes after %v, however long the images take "+
			"(--reply-after)\n", after)
	}
	var said bytes.Buffer
	stop := countDown(log, after)
	err := client.Reply(ctx, after, func(ctx context.Context) (client.Answer, error) {
		return c.answer(ctx, cl, source, stdout, &said)
	})
	stop()
	var late *client.LateError
	switch {
	case errors.As(err, &late):
		return usagef("compress: --reply-after %v: %w", after, err)
	case errors.Is(err, context.Canceled): // work may go on, and say more
		return err
	}
	if _, e := log.Write(said.Bytes()); e != nil {
		return errors.Join(err, e)
	}
	return err
}

// countDown writes to log how long it is until a private reply, until it is stopped. The lines
// depend on the clock alone: how far the work is would tell of the images. A line comes every ten
// seconds, or every hundredth of the time where that is more. stop returns once the last line is
// written.
func countDown(log io.Writer, after time.Duration) (stop func()) {
	end := time.Now().Add(after)
	lines := time.NewTicker(max(10*time.Second, after/100))
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stopped:
				return
			case <-lines.C:
			}
			if left := time.Until(end).Round(time.Second); left > 0 {
				fmt.Fprintf(log, "fmp-edge: the reply comes in %v\n", left)
			}
		}
	}()
	return func() {
		lines.Stop()
		close(stopped)
		<-done
	}
}

// answer is the upload of a private round. answer makes the messages. Record holds them aside and
// spends the budget, and Give places them at the fixed time. Record comes before Give.
type answer struct {
	*compressing
	spending privacy.Spending
	ledger   privacy.Ledger
	messages [][]byte
	files    *holding           // the messages, the leader's last, before they are in their places
	made     bool               // before, and spent
	kept     *privacy.Spending  // the release that is given again
	earlier  []privacy.Spending // the same releases, whose messages this one's may replace
	released
	stdout, log io.Writer
}

// answer makes a message of a private round, unless it was made before: then that one is kept, as
// noise that is drawn again over the same sums averages out. Its time is hidden by client.Reply,
// and so may depend on the images. The ledger asks again, as each line is written, whether the
// round still takes the upload. Nothing is spent or written here: Record and Give do that.
func (c *compressing) answer(ctx context.Context, cl *client.Client, source string, stdout,
	log io.Writer) (client.Answer, error) {
	b, f := *c.private.budget, cl.Manifest
	ledger, err := ledgerOf(*c.private.ledger)
	if err != nil {
		return nil, err
	}
	ledger.Allowed = func() error { return c.takes(max(0, time.Until(c.due))) }
	src, _, err := c.source(cl, source, log)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	im, bad, err := cl.Coordinates(ctx, src, client.Options{})
	if err != nil {
		return nil, refused("compress", err)
	}
	tell(log, cl, bad)
	c.mapped = imagefile.MappingOf(src)
	if (b.Unit == privacy.Client || b.Noise == privacy.TwoServers) && len(im.Labels) > b.Points {
		fmt.Fprintf(log, "fmp-edge: %d images; of more than the round's %d sums may be shortened "+
			"(--points)\n", len(im.Labels), b.Points)
	}
	a := &answer{compressing: c, ledger: ledger, stdout: stdout, log: log,
		released: released{Upload: *c.output,
			Client: *c.client, Round: *c.round, Model: f.Digest, Classes: f.C,
			Coordinates: f.K, Budget: b}}
	if b.Noise == privacy.Local {
		a.Noise = b.NoiseSteps(f.C)
	}
	s := privacy.NewSpending(b, f.C, f.K, im.Digests, im.Labels)
	s.Time, s.Client, s.Round, s.Graph = time.Now().UTC(), a.Client, a.Round, a.Model
	if b.Noise != privacy.Local {
		s.Server = c.server
	}
	// The digests of the images are the ledger's, and stay on this machine.
	a.spending = s
	if a.earlier, err = a.ledger.FindAll(s); err != nil {
		return nil, err
	}
	if kept := keeps(a.earlier, *c.private.redraw, a.Upload, federate.MaxBytes); kept != nil {
		return a, a.keep(kept)
	}
	if a.messages, err = messages(cl, im, a.released, c.mostBytes); err != nil {
		return nil, err
	}
	a.spending.Files, err = absolute(a.Upload, a.messages)
	return a, err
}

// Record is [client.Answer]. All that Give needs space for is on the disk before. A release that is
// given again is held without payment, and one that was salted is paid for as a line without
// images. A server that has not had the release is charged besides. After an error nothing was
// spent, or the ledger counts the files that are kept. Files are held in the order in which they
// are placed: table, helper's share, leader's.
func (a *answer) Record() error {
	var files []content
	for i, data := range slices.Backward(a.messages) {
		files = append(files, content{fileOf(a.Upload, i), data, anUpload})
	}
	files, err := withTable(a.Upload, a.mapped, files...)
	if err != nil {
		return err
	}
	if a.made {
		a.files, err = hold("compress", files, digestsOf(a.earlier)...)
	} else {
		p := payment{a.ledger, a.spending, *a.private.maxEpsilon,
			*a.private.redraw || len(a.spending.Images) == 0, a.log}
		if a.files, err = p.pay("compress", files, a.earlier); err == nil {
			a.files.made = nil
		}
	}
	if err != nil || a.kept == nil || a.server == "" {
		return err
	}
	s := *a.kept
	s.Time, s.Server = a.spending.Time, a.server
	if err := hand("compress", a.ledger, s, *a.private.maxEpsilon, a.log); err != nil {
		a.files.drop()
		return err
	}
	return nil
}

// hand charges a message for a server that has not had it, before it is sent there. limit is the
// epsilon that may be spent on any image in all, 0 for any. A limit that would be passed is an
// error before the message is sent.
func hand(command string, l privacy.Ledger, s privacy.Spending, limit float64,
	log io.Writer) error {
	total, earlier, err := l.Hand(s, limit)
	if errors.Is(err, sender.ErrClosed) { // it says so itself
		return err
	}
	if err != nil {
		return usagef("%s: the upload of round %d is not sent: %w", command, s.Round, err)
	}
	if earlier > 0 {
		fmt.Fprintf(log, "fmp-edge: another server has this upload, and each adds noise of its "+
			"own: with %d earlier releases epsilon %.4g has been spent on the same images (%s)\n",
			earlier, total, l.Path)
	}
	return nil
}

// messages makes the messages of a private upload: one, or a share for each of two servers. most
// bounds each in bytes, 0 for no bound; it is checked before any budget is spent. Of two shares the
// first is the leader's (prio.Leader), and the second the helper's. Either share alone tells
// nothing of the sums. Noise of the client's own is drawn here, from crypto/rand.
func messages(cl *client.Client, im *client.Labelled, w released, most int) ([][]byte, error) {
	whole, err := cl.Release(im, w.Budget, w.Client, w.Round)
	if err != nil {
		return nil, refused("compress", err)
	}
	out := []*federate.Release{whole}
	if w.Budget.Noise == privacy.TwoServers {
		if out, err = whole.Split(rand.Reader); err != nil {
			return nil, err
		}
	}
	messages := make([][]byte, len(out))
	for i, r := range out {
		if messages[i], err = r.Encode(); err != nil {
			return nil, err
		}
		if n := len(messages[i]); most > 0 && n > most {
			return nil, usagef("compress: the upload has %d bytes; the round allows "+
				"%d (bounds.bytes of the server's round file): nothing was made and "+
				"nothing spent", n, most)
		}
	}
	return messages, nil
}

// absolute returns where messages will stand, whole paths, with their digests. Paths are whole, so
// that the same command in another folder finds them. Digests are of the bytes that will be
// written. The ledger keeps them, by which a later call finds its message again.
func absolute(upload string, messages [][]byte) ([]privacy.Written, error) {
	var out []privacy.Written
	for i, data := range messages {
		path, err := filepath.Abs(fileOf(upload, i))
		if err != nil {
			return nil, err
		}
		out = append(out, privacy.Written{Path: path, Sha256: models.DigestBytes(data)})
	}
	return out, nil
}

// keep takes the upload that was made before of the same images, for the same round. Its files are
// read from their places or from beside them. One that is gone is an error: the noise cannot be had
// again without spending. No noise is drawn for it.
func (a *answer) keep(s *privacy.Spending) error {
	for _, f := range s.Files {
		data := paidFor(f, federate.MaxBytes)
		if data == nil {
			return usagef("compress: the upload of these images for round "+
				"%d was made on %s, and %s is not there any more as it was: noise that is drawn "+
				"again spends epsilon %g again; bring the file back, or give --redraw", s.Round,
				s.Time.Format(time.RFC3339), f.Path, s.Budget.Epsilon)
		}
		a.messages = append(a.messages, data)
	}
	givenAgain(a.log,
		fmt.Sprintf("the upload of these images for round %d", s.Round), s, a.spending)
	a.made, a.kept, a.spending.Server = true, s, ""
	return a.salt()
}

// unsalted reports whether a message of an earlier program lacks the salt that servers ask for.
// The salt keeps the published digest from telling exact sums ([federate.Release]).
func unsalted(r *federate.Release) bool {
	return r.Budget.Noise == privacy.Trusted && r.Salt == [prio.NonceSize]byte{}
}

// salt puts a salt on a message of an earlier program that has none, and that no server takes.
// Nothing is drawn again: the ledger counts the message, with no image beside it. The salt is
// NonceSize random bytes. Salts are of rounds with trusted noise, which have one message.
func (a *answer) salt() error {
	r, err := federate.DecodeRelease(a.messages[0], federate.Expect{Unsalted: true})
	if err != nil || !unsalted(r) {
		return err
	}
	rand.Read(r.Salt[:]) // never fails
	if a.messages[0], err = r.Encode(); err != nil {
		return err
	}
	a.made, a.spending.Images = false, nil
	a.spending.Files, err = absolute(a.Upload, a.messages)
	return err
}

// Give is [client.Answer]: it writes a private upload and prints its spent budget. The leader's
// share is there last, so that where it is both are. The files are on the disk: renames and lines
// of output are left to do. An error of printing comes after the files are placed: the upload is
// there nevertheless.
func (a *answer) Give() error {
	w := a.released
	if err := a.files.paid(a.files.place()); err != nil {
		return err
	}
	w.Bytes = len(a.messages[0])
	if len(a.messages) > 1 {
		w.HelperUpload, w.HelperBytes = helperFile(w.Upload), len(a.messages[1])
	}
	if *a.asJSON {
		return printable.WriteJSON(a.stdout, w)
	}
	if w.HelperUpload != "" {
		if _, err := fmt.Fprintf(a.stdout, "for the helper: %s (%d bytes)\n", w.HelperUpload,
			w.HelperBytes); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.stdout, "private upload: %s (%d bytes; %d classes of %d "+
		"coordinates)\nspent:          %v\n", w.Upload, w.Bytes, w.Classes, w.Coordinates, w.Budget)
	return err
}

// fileOf is where the message for a server, 0 the first or only one, stands.
func fileOf(upload string, server int) string {
	if server == prio.Helper {
		return helperFile(upload)
	}
	return upload
}

// helperFile is where the helper's share stands beside the leader's. Its name follows from the
// upload's, so that send needs one path for both.
func helperFile(upload string) string { return upload + ".helper" }
