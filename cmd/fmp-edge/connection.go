package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/models"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// sent is the output of join and send. Of a round with two servers it is of the leader alone: the
// helper's receipt is a file beside the key. Receipt is as the server signed it.
type sent struct {
	Upload      string        `json:"upload"`       // its file
	ReceiptFile string        `json:"receipt_file"` // likewise
	Receipt     *wire.Receipt `json:"receipt"`
}

// connection is the flags of the commands that speak to a server. The pointers are set when the
// command line is parsed. first and second are set by open, in rounds that it accepts. join embeds
// it, and send has one. The flags are one set for both, so that a round's limits are stated alike
// in either.
type connection struct {
	// They are the files of the key, of certificates, and of the receipt; "" is the default.
	key, ca, receipt *string
	// helper is the address of the second server, "" for none.
	helper *string
	// wait bounds how long a server that does not answer is asked again. It is 1 s to 366 days.
	wait *time.Duration
	// private refuses rounds that are not.
	private *bool
	// maxEpsilon, maxDelta and noise are the least privacy that a round may give.
	maxEpsilon *float64
	maxDelta   *float64
	deltaAsked func() bool // whether --max-delta is given
	noise      *string
	asJSON     *bool

	// ledger charges an upload for the server that it is sent to; nil where that is done.
	ledger *string
	log    io.Writer

	first  *server // of the round, once it is known
	second *server // the helper of a private round with two servers; nil in other rounds
}

// server is a server and its round. round is the description as it was when the server was asked.
type server struct {
	*sender.Client
	round *wire.Description
}

// connectionFlags declares the flags that join and send share. Faults of values are told by open.
func connectionFlags(f *pflag.FlagSet) *connection {
	c := &connection{
		key: f.String("key", "", "key file of this client, as fmp-edge key or fmp keys writes it"),
		ca:  f.String("ca", "", "file of certificates to trust in place of the system's"),
		helper: f.String("helper", "", "address of the helper of a private round with two "+
			"servers, from elsewhere than the first server"),
		receipt: f.String("receipt", "", "receipt to write (default: KEY.ROUND.receipt.json)"),
		wait: f.Duration("wait", 24*time.Hour, "how long to wait for a server that does not "+
			"answer, before the deadline is known or, with late uploads, after it"),
		private:    f.Bool("private", false, "send to a private round alone (docs/privacy.md)"),
		maxEpsilon: f.Float64("max-epsilon", 0, maxEpsilonHelp),
		maxDelta: f.Float64("max-delta", privacy.DefaultDelta,
			"largest delta of a private round, also where --max-epsilon alone is given: an "+
				"epsilon says less at a larger one; refuses plain rounds too"),
		deltaAsked: func() bool { return f.Changed("max-delta") },
		noise: f.String("noise", "", "refuse plain rounds, and noise from elsewhere: local "+
			"(this client) or two-servers; without it also trusted (the server, which sees the "+
			"sums without noise)"),
		asJSON: f.Bool("json", false, "print JSON"),
	}
	outputs.Files(f, "receipt")
	return c
}

// beside is the name of a file of a round beside the key's. kind is the end of the name, such as
// receipt.json.
func (c *connection) beside(round uint64, kind string) string {
	return besideKey(*c.key, round, kind)
}

// besideKey is the name of a file of a round beside a key file. KEY.key becomes KEY.ROUND.KIND; a
// name that ends otherwise is kept whole. Files of several rounds of one key so lie side by side.
func besideKey(key string, round uint64, kind string) string {
	return fmt.Sprintf("%s.%d.%s", strings.TrimSuffix(key, ".key"), round, kind)
}

// open reads the key and asks the server for its round. Flags and files are checked before the
// server is asked, and the round before anything is sent. By its end nothing but requests for
// descriptions has left this machine. Faults of flags and of the key are usage errors; those of the
// servers are the sender's. The returned three are for use without an error alone.
func (c *connection) open(ctx context.Context, command, url string,
	log io.Writer) (*sender.Client, *identity.Key, *wire.Description, error) {
	if *c.key == "" {
		return nil, nil, nil, usagef("%s: --key is missing; fmp-edge key makes one", command)
	}
	if err := checkMaxEpsilon(command, *c.maxEpsilon); err != nil {
		return nil, nil, nil, err
	}
	if allowed := []string{"", privacy.Local, privacy.TwoServers,
		privacy.Trusted}; !slices.Contains(allowed, *c.noise) {
		return nil, nil, nil, usagef("%s: --noise %q; allowed are local, two-servers and trusted",
			command, *c.noise)
	}
	if err := checkWait(command, *c.wait); err != nil {
		return nil, nil, nil, err
	}
	key, err := identity.Load(*c.key)
	if err != nil {
		return nil, nil, nil, refused(command, err)
	}
	var helper *sender.Client
	if *c.helper != "" {
		if helper, err = sender.New(*c.helper, *c.ca); err != nil {
			return nil, nil, nil, &usageError{fmt.Errorf("%s: --helper: %w", command, err)}
		}
	}
	s, d, err := dial(ctx, command, url, *c.ca, *c.wait, log)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := c.allows(command, d); err != nil {
		return nil, nil, nil, err
	}
	if d.Privacy != nil {
		s.Log("round %d is private: %v", d.Round, d.Privacy)
	}
	if !d.Withdrawal {
		s.Log("an upload to round %d cannot be withdrawn%s", d.Round, hidden(d))
	}
	c.first, c.log = &server{s, d}, log
	return s, key, d, c.openHelper(ctx, command, s, helper, d)
}

// hidden says why nothing can be withdrawn from a round, where its noise is the reason. It is ""
// for a round whose noise the clients add, and for a plain one.
func hidden(d *wire.Description) string {
	if d.Privacy == nil || d.Privacy.Noise == privacy.Local {
		return ""
	}
	return ": one noisy sum hides it among the others"
}

// checkWait refuses a --wait that is out of bounds, before any file is read. The bounds are a
// second and a leap year.
func checkWait(command string, wait time.Duration) error {
	if wait < time.Second || wait > 366*24*time.Hour {
		return usagef("%s: --wait %v; allowed are 1s to a year", command, wait)
	}
	return nil
}

// dial asks the server at an address for its round. wait bounds how long a server that does not
// answer is asked again. The sender's lines go to log, with the program's name. Errors of the
// address are usage errors, and those of the server the sender's own. No request but that for the
// description is made.
func dial(ctx context.Context, command, url, ca string, wait time.Duration,
	log io.Writer) (*sender.Client, *wire.Description, error) {
	s, err := sender.New(url, ca)
	if err != nil {
		return nil, nil, &usageError{fmt.Errorf("%s: %w", command, err)}
	}
	s.Wait = wait
	s.Log = func(format string, args ...any) { fmt.Fprintf(log, "fmp-edge: "+format+"\n", args...) }
	d, err := s.Describe(ctx)
	return s, d, err
}

// allows returns an error where a round gives less privacy than the flags ask for. The round's
// numbers are compared as its server states them, before any image is read. A limit on epsilon
// limits delta too: an epsilon says less at a larger one. A delta that is no number is beyond every
// limit. Trusted noise is the weakest, so that --noise trusted allows all three.
func (c *connection) allows(command string, d *wire.Description) error {
	switch b := d.Privacy; {
	case b == nil && (*c.private || *c.maxEpsilon > 0 || *c.noise != "" || c.deltaAsked()):
		return usagef("%s: round %d is not private, and --private, --max-epsilon, --max-delta or "+
			"--noise asks for one that is; nothing was sent", command, d.Round)
	case b == nil:
	case *c.maxEpsilon > 0 && b.Epsilon > *c.maxEpsilon:
		return usagef("%s: epsilon of round %d is %v; --max-epsilon allows %v; nothing was sent",
			command, d.Round, b.Epsilon, *c.maxEpsilon)
	case (*c.maxEpsilon > 0 || c.deltaAsked()) && !(b.Delta <= *c.maxDelta):
		return usagef("%s: delta of round %d is %v; --max-delta allows %v; nothing was sent",
			command, d.Round, b.Delta, *c.maxDelta)
	case *c.noise != "" && *c.noise != privacy.Trusted && b.Noise != *c.noise:
		return usagef("%s: the noise of round %d is %s; --noise allows %s; nothing was sent",
			command, d.Round, b.Noise, *c.noise)
	}
	return nil
}

// openHelper asks the helper for its round where there are two servers, and reports where the two
// do not agree. Its address is not asked of the leader, which could name itself. The two must have
// one round, one client graph and one budget, and keys that differ. A party with both shares of an
// upload reads the client's sums. Two servers of one key are one party.
func (c *connection) openHelper(ctx context.Context, command string, leader, helper *sender.Client,
	d *wire.Description) error {
	two := d.Server != ""
	switch {
	case !two && helper == nil:
		return nil
	case !two:
		return fmt.Errorf("%s: --helper is given and round %d has one server alone; "+
			"nothing was sent", command, d.Round)
	case helper == nil:
		return usagef("%s: round %d has two servers (noise: %s); give --helper with the address "+
			"of the other, from elsewhere than this one", command, d.Round, d.Privacy.Noise)
	}
	helper.Wait, helper.Log = leader.Wait, leader.Log
	h, err := helper.Describe(ctx)
	if err != nil {
		return fmt.Errorf("--helper: %w", err)
	}
	if d.Server != wire.Leader || h.Server != wire.Helper || h.ServerKey == d.ServerKey ||
		h.Round != d.Round || h.Graph != d.Graph || h.Privacy == nil || *h.Privacy != *d.Privacy {
		return fmt.Errorf("%s: the first server is %q of round %d with client graph %s "+
			"and privacy %v, and --helper is %q of round %d with %s and %v; want the leader and "+
			"the helper of one round, with keys of their own: nothing was sent", command, d.Server,
			d.Round, d.Graph, d.Privacy, h.Server, h.Round, h.Graph, h.Privacy)
	}
	c.second = &server{helper, h}
	return nil
}

// give sends an upload and returns its receipt. From a server that had it before, the receipt alone
// is asked for. Either receipt is verified: signature, client, round and the digest of data.
func (s *server) give(ctx context.Context, key *identity.Key, data []byte,
	had bool) (*wire.Receipt, error) {
	if !had {
		return s.Send(ctx, s.round, key, data)
	}
	r, err := s.Receipt(ctx, s.round, key)
	if err != nil {
		return nil, err
	}
	return r, s.round.Accept(r, key.Name, models.DigestBytes(data))
}

// lacks reports whether an error says that a server has no upload of a client. Other problems, and
// errors of the network, say nothing of that. The problem's code tells it, and not its text.
func lacks(err error) bool {
	var p *wire.Problem
	return errors.As(err, &p) && p.Code == wire.NoReceipt
}

// had reports whether the first server has a private upload of a round that takes nothing new. It
// is charged no more, and not sent: a receipt alone is asked for. An error means that it is not
// known.
func (c *connection) had(ctx context.Context, key *identity.Key, data []byte) (bool, error) {
	if c.ledger == nil || !federate.IsRelease(data) ||
		!errors.Is(c.takes("", 0), sender.ErrClosed) {
		return false, nil
	}
	r, err := c.first.Receipt(ctx, c.first.round, key)
	if lacks(err) {
		return false, nil
	}
	return err == nil && r.Upload == models.DigestBytes(data), err
}

// sendHelper sends the helper's share of an upload, which the leader asks the helper about, and
// keeps its receipt. It comes before the leader's. Both shares are read and compared before either
// is sent. The leader refuses a share whose counterpart the helper lacks, hence the order.
func (c *connection) sendHelper(ctx context.Context, command string, key *identity.Key,
	upload string, had bool) error {
	if c.second == nil {
		return nil
	}
	data, err := readShares(upload, c.second.round, key)
	if err != nil {
		return err
	}
	r, err := c.second.give(ctx, key, data, had)
	if err != nil {
		return fmt.Errorf("the helper: %w", err)
	}
	return saveReceipt(command, c.beside(c.second.round.Round, "helper.receipt.json"), r,
		receiptOf(c.second.round, key.Name, false))
}

// readShares reads the two shares of a round with two servers, and returns the helper's. Two shares
// are of one upload where their nonces are equal. The leader's file is upload itself, and the
// helper's beside it.
func readShares(upload string, d *wire.Description, key *identity.Key) ([]byte, error) {
	leader, _, err := readUpload(upload)
	if err != nil {
		return nil, err
	}
	path := helperFile(upload)
	helper, data, err := readUpload(path)
	if err != nil {
		return nil, err
	}
	if err := belongs(helper, d, key); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if leader.Share == nil || leader.Share.Server != prio.Leader ||
		helper.Share.Server != prio.Helper || helper.Share.Nonce != leader.Share.Nonce {
		return nil, fmt.Errorf("%s and %s are not the shares of one upload for leader and helper",
			upload, path)
	}
	return data, nil
}

// receiptsFree settles where the receipt goes. It returns an error where one would take the place
// of anything but an earlier one of the same server and client, before anything is sent. It settles
// --receipt for the rest of the command.
func (c *connection) receiptsFree(command, client string) error {
	*c.receipt = cmp.Or(*c.receipt, c.beside(c.first.round.Round, "receipt.json"))
	_, err := free(command,
		content{path: *c.receipt, own: receiptOf(c.first.round, client, false)})
	if err == nil && c.second != nil {
		_, err = free(command, content{path: c.beside(c.second.round.Round, "helper.receipt.json"),
			own: receiptOf(c.second.round, client, false)})
	}
	if err != nil {
		return fmt.Errorf("%w; nothing was sent", err)
	}
	return nil
}

// saveReceipt writes a receipt, of an upload or of a withdrawal, as JSON. own tells an earlier
// receipt of the same purpose, which it may replace. It is indented JSON with an end of line. A
// file of any other kind in that place is an error, and stays.
func saveReceipt(command, path string, r any, own func(was []byte) bool) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return put(command, []content{{path, append(data, '\n'), own}})
}

// ofServer returns an error unless the extractor behind an upload that is there is approved for the
// server: it was made for another one, perhaps. The upload is not made again for that: approval is
// asked for alone.
func ofServer(ctx context.Context, d *wire.Description, making *pflag.FlagSet, graph string,
	log io.Writer) error {
	cl, err := openClient(graph, 1)
	if err != nil {
		return refused("join", err)
	}
	approved, yes := making.Lookup("approved").Value.String(), making.Lookup(yesFlag).Value.String()
	return refused("join", trust(ctx, cl, client.ServerScope(d.ServerKey), approved, yes, log))
}

// servers are the public keys of those that get an upload. The leader's is the first of two, which
// a space parts, as in [privacy.Spending]. It is the text by which the ledger tells whether these
// servers have had an upload.
func (c *connection) servers() string {
	if c.second == nil {
		return c.first.round.ServerKey
	}
	return c.first.round.ServerKey + " " + c.second.round.ServerKey
}

// takes returns an error where a private round may take no upload that comes a time from this
// moment. It is asked before images are read, and before each line of the ledger. 0 asks about this
// moment.
func (c *connection) takes(command string, after time.Duration) error {
	for _, s := range []*server{c.first, c.second} {
		switch {
		case s == nil || s.round.State != wire.Closed && !s.round.TooLate(after):
		case after > 0 && s.round.State != wire.Closed:
			return usagef("%s: round %d takes uploads until %s, and the reply would come %v after "+
				"now: give a shorter --reply-after; nothing was spent and nothing sent", command,
				s.round.Round, s.round.Deadline.Format(time.RFC3339),
				after.Round(100*time.Millisecond))
		default:
			return fmt.Errorf("%s: %w: round %d, with the deadline %s, takes nothing new; nothing "+
				"was spent and nothing sent: ask its operator for the next round", command,
				sender.ErrClosed, s.round.Round, s.round.Deadline.Format(time.RFC3339))
		}
	}
	return nil
}

// charge writes down that an upload goes to these servers, where they add the noise. Plain uploads,
// and those whose noise this client added, cost nothing here. Each server draws noise of its own,
// so that every further one is charged for the same images. It comes before the sending: a crash
// between them spends and does not send, which is the safe side.
func (c *connection) charge(command, path string, data []byte) error {
	if c.ledger == nil || !federate.IsRelease(data) {
		return nil
	}
	r, err := federate.DecodeRelease(data, federate.Expect{Unsalted: true})
	if err != nil || r.Budget.Noise == privacy.Local {
		return err
	}
	l, err := ledgerOf(*c.ledger)
	if err != nil {
		return err
	}
	l.Allowed = func() error { return c.takes(command, 0) }
	s := privacy.NewSpending(r.Budget, r.Sums.Classes, r.Sums.K, nil, nil)
	s.Time, s.Client, s.Round, s.Graph, s.Server = time.Now().UTC(), r.Client, r.Round, r.Model,
		c.servers()
	if s.Files, err = absolute(path, [][]byte{data}); err != nil {
		return err
	}
	return hand(command, l, s, *c.maxEpsilon, c.log)
}

// deliver sends an upload, keeps the receipt, and says so. The steps come in an order in which a
// failure loses nothing: places of receipts, ledger, helper, leader, receipt. The same command goes
// on after any of them. A server that has the upload is charged no more, and its receipt is the
// same. The receipt of the leader is printed, as JSON where that is asked for. path is the file
// that data are from.
func (c *connection) deliver(ctx context.Context, command string, key *identity.Key, path string,
	data []byte, out io.Writer) error {
	if err := c.receiptsFree(command, key.Name); err != nil {
		return err
	}
	had, err := c.had(ctx, key, data)
	if err != nil {
		return err
	}
	if !had {
		err = c.charge(command, path, data)
	}
	if err != nil {
		return err
	}
	if err := c.sendHelper(ctx, command, key, path, had); err != nil {
		return err
	}
	r, err := c.first.give(ctx, key, data, had)
	if err != nil {
		return err
	}
	if err := saveReceipt(command, *c.receipt, r,
		receiptOf(c.first.round, key.Name, false)); err != nil {
		return fmt.Errorf("the server has the upload: %w", err)
	}
	if *c.asJSON {
		return printable.WriteJSON(out, sent{path, *c.receipt, r})
	}
	_, err = fmt.Fprintf(out, "sent:    %s (%d bytes) as %q to round %d\nreceipt: %s, of %s\n",
		path, len(data), r.Client, r.Round, *c.receipt, r.Time.Format(time.RFC3339))
	return err
}

// message is the part that both kinds of upload share. A plain one has N, and a private one Budget,
// Share and Unsalted. N is 0 of a private one.
type message struct {
	Round         uint64
	Client, Model string
	N             int             // images, where it says
	Budget        *privacy.Budget // of a private round
	Share         *prio.Share     // of one with two servers
	Unsalted      bool            // [federate.Expect]
}

// belongs reports whether an upload is one of a client for a round. Budgets are compared by
// [privacy.Budget.Effective], which drops fields that have no effect. The order of tests is that of
// the most telling error first.
func belongs(u *message, d *wire.Description, key *identity.Key) error {
	switch {
	case u.Round != d.Round:
		return fmt.Errorf("the upload is for round %d; the server's round is %d", u.Round, d.Round)
	case u.Model != d.Graph:
		return fmt.Errorf("the upload was made by model %s; the round's client graph is %s",
			u.Model, d.Graph)
	case u.Client != key.Name:
		return fmt.Errorf("the upload is of client %q; the key is %q's", u.Client, key.Name)
	case u.Budget == nil && d.Privacy != nil:
		return fmt.Errorf("the upload is a plain one and round %d is private (%v); it is not "+
			"sent: compress with the round's budget, or join", d.Round, d.Privacy)
	case u.Budget != nil && d.Privacy == nil:
		return fmt.Errorf("the upload is of a private round (%v) and round %d is not private",
			u.Budget, d.Round)
	case u.Budget != nil && u.Budget.Effective() != d.Privacy.Effective():
		return fmt.Errorf("the upload's budget is %v; that of round %d is %v", u.Budget,
			d.Round, d.Privacy)
	}
	return nil
}

// readUpload reads and checks an upload. Bytes of a private one are of the form that IsRelease
// tells; a message without a salt is read too. The file is untrusted, and is read within
// federate.MaxBytes.
func readUpload(path string) (*message, []byte, error) {
	data, err := regularfile.ReadFile(path, federate.MaxBytes)
	if err != nil {
		return nil, nil, fmt.Errorf("reading upload: %w", err)
	}
	if federate.IsRelease(data) {
		r, err := federate.DecodeRelease(data, federate.Expect{Unsalted: true})
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		return &message{r.Round, r.Client, r.Model, 0, &r.Budget, r.Share, unsalted(r)}, data, nil
	}
	u, err := federate.Decode(data, federate.Expect{})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return &message{u.Round, u.Client, u.Model, u.N, nil, nil, false}, data, nil
}

// wantsSalt reports whether an upload of an earlier program is to be salted, as the server has none
// of this client: one that it has counts as it is, and it takes no other. A closed round is not
// asked, as it takes nothing new. An error of the network is returned, as either answer could be
// wrong.
func (c *connection) wantsSalt(ctx context.Context, u *message, key *identity.Key) (bool, error) {
	if !u.Unsalted || c.first.round.State == wire.Closed {
		return false, nil
	}
	_, err := c.first.Receipt(ctx, c.first.round, key)
	if lacks(err) {
		return true, nil
	}
	return false, err
}
