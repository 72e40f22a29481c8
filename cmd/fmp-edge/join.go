package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/onnx/regularfile"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// sent is the output of join and send.
type sent struct {
	Upload      string        `json:"upload"`       // its file
	ReceiptFile string        `json:"receipt_file"` // likewise
	Receipt     *wire.Receipt `json:"receipt"`
}

// connection is the flags of the commands that speak to a server. The pointers are set when the
// command line is parsed. first and second are set by open, in rounds that it accepts.
type connection struct {
	key, ca, receipt *string
	helper           *string
	// wait bounds how long a server that does not answer is asked again.
	wait    *time.Duration
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

// server is a server and its round.
type server struct {
	*sender.Client
	round *wire.Description
}

// connectionFlags declares the flags that join and send share.
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

// beside is the name of a file of a round beside the key's.
func (c *connection) beside(round uint64, kind string) string {
	return besideKey(*c.key, round, kind)
}

// besideKey is the name of a file of a round beside a key file.
func besideKey(key string, round uint64, kind string) string {
	return fmt.Sprintf("%s.%d.%s", strings.TrimSuffix(key, ".key"), round, kind)
}

// open reads the key and asks the server for its round. Flags and files are checked before the
// server is asked, and the round before anything is sent. By its end nothing but requests for
// descriptions has left this machine. Faults of flags and of the key are usage errors; those of the
// servers are the sender's.
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

// hidden says why nothing can be withdrawn from a round, where its noise is the reason.
func hidden(d *wire.Description) string {
	if d.Privacy == nil || d.Privacy.Noise == privacy.Local {
		return ""
	}
	return ": one noisy sum hides it among the others"
}

// checkWait refuses a --wait that is out of bounds, before any file is read.
func checkWait(command string, wait time.Duration) error {
	if wait < time.Second || wait > 366*24*time.Hour {
		return usagef("%s: --wait %v; allowed are 1s to a year", command, wait)
	}
	return nil
}

// dial asks the server at an address for its round. wait bounds how long a server that does not
// answer is asked again.
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
// limit.
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
// upload reads the client's sums.
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

// sendHelper sends the helper's share of an upload, which the leader asks the helper about, and
// keeps its receipt. It comes before the leader's.
func (c *connection) sendHelper(ctx context.Context, command string, key *identity.Key,
	upload string) error {
	if c.second == nil {
		return nil
	}
	data, err := readShares(upload, c.second.round, key)
	if err != nil {
		return err
	}
	r, err := c.second.Send(ctx, c.second.round, key, data)
	if err != nil {
		return fmt.Errorf("the helper: %w", err)
	}
	return saveReceipt(command, c.beside(c.second.round.Round, "helper.receipt.json"), r,
		receiptOf(c.second.round, key.Name, false))
}

// readShares reads the two shares of a round with two servers, and returns the helper's. Two shares
// are of one upload where their nonces are equal.
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

// receiptsFree returns an error where a receipt would take the place of anything but an earlier one
// of the same server and client. It is asked before anything is sent.
func (c *connection) receiptsFree(command, client string) error {
	_, err := free(command, content{path: cmp.Or(*c.receipt, c.beside(c.first.round.Round,
		"receipt.json")), own: receiptOf(c.first.round, client, false)})
	if err == nil && c.second != nil {
		_, err = free(command, content{path: c.beside(c.second.round.Round, "helper.receipt.json"),
			own: receiptOf(c.second.round, client, false)})
	}
	if err != nil {
		return fmt.Errorf("%w; nothing was sent", err)
	}
	return nil
}

// saveReceipt writes a receipt, of an upload or of a withdrawal, as JSON.
func saveReceipt(command, path string, r any, own func(was []byte) bool) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return put(command, []content{{path, append(data, '\n'), own}})
}

// ofServer returns an error unless the extractor behind an upload that is there is approved for the
// server: it was made for another one, perhaps.
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
// a space parts, as in [privacy.Spending].
func (c *connection) servers() string {
	if c.second == nil {
		return c.first.round.ServerKey
	}
	return c.first.round.ServerKey + " " + c.second.round.ServerKey
}

// takes returns an error where a private round may take no upload that comes a time from this
// moment. It is asked before images are read, and before each line of the ledger.
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
				"was spent and nothing sent", command, sender.ErrClosed, s.round.Round,
				s.round.Deadline.Format(time.RFC3339))
		}
	}
	return nil
}

// charge writes down that an upload goes to these servers, where they add the noise. Plain uploads,
// and those whose noise this client added, cost nothing here. Each server draws noise of its own,
// so that every further one is charged for the same images.
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
// same.
func (c *connection) deliver(ctx context.Context, command string, key *identity.Key, path string,
	data []byte, out io.Writer) error {
	if err := c.receiptsFree(command, key.Name); err != nil {
		return err
	}
	if err := c.charge(command, path, data); err != nil {
		return err
	}
	if err := c.sendHelper(ctx, command, key, path); err != nil {
		return err
	}
	r, err := c.first.Send(ctx, c.first.round, key, data)
	if err != nil {
		return err
	}
	if *c.receipt == "" {
		*c.receipt = c.beside(c.first.round.Round, "receipt.json")
	}
	if err := saveReceipt(command, *c.receipt, r,
		receiptOf(c.first.round, key.Name, false)); err != nil {
		return fmt.Errorf("the server has the upload: %w", err)
	}
	if *c.asJSON {
		return printJSON(out, sent{path, *c.receipt, r})
	}
	_, err = fmt.Fprintf(out, "sent:    %s (%d bytes) as %q to round %d\nreceipt: %s, of %s\n",
		path, len(data), r.Client, r.Round, *c.receipt, r.Time.Format(time.RFC3339))
	return err
}

// sendCommand asks the ledger too: a server that adds the noise, and has not had the upload, is
// charged for before anything is sent.
var sendCommand = command{
	name: "send", args: "URL --key FILE UPLOAD",
	short: "Send an upload that compress wrote to the server of its round",
	example: `  fmp-edge send https://server:8443 --key shop-17.key shop-17.upload

It comes back, at growing intervals, until the server has the upload or the round takes no more
(exit code 4). The same upload may be sent again at any time: the receipt is the same.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		c := connectionFlags(f)
		c.ledger = f.String("ledger", "", ledgerHelp)
		return func(ctx context.Context, args []string, out, log io.Writer) error {
			if len(args) != 2 {
				return usagef("send: %d arguments; want the server's address "+
					"and an upload", len(args))
			}
			u, data, err := readUpload(args[1])
			if err != nil {
				return refused("send", err)
			}
			_, key, d, err := c.open(ctx, "send", args[0], log)
			if err != nil {
				return err
			}
			if err := belongs(u, d, key); err != nil {
				return usagef("%s: %w", args[1], err)
			}
			return c.deliver(ctx, "send", key, args[1], data, out)
		}
	},
}

// message is the part that both kinds of upload share. A plain one has N, and a private one Budget,
// Share and Unsalted.
type message struct {
	Round         uint64
	Client, Model string
	N             int             // images, where it says
	Budget        *privacy.Budget // of a private round
	Share         *prio.Share     // of one with two servers
	Unsalted      bool            // [federate.Expect]
}

// belongs reports whether an upload is one of a client for a round. Budgets are compared by
// [privacy.Budget.Effective], which drops fields that have no effect.
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

// readUpload reads and checks an upload.
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
// asked, as it takes nothing new.
func (c *connection) wantsSalt(ctx context.Context, u *message, key *identity.Key) (bool, error) {
	if !u.Unsalted || c.first.round.State == wire.Closed {
		return false, nil
	}
	_, err := c.first.Receipt(ctx, c.first.round, key)
	var p *wire.Problem
	if errors.As(err, &p) && p.Code == wire.NoReceipt {
		return true, nil
	}
	return false, err
}

// decided are the flags of compress that the round decides, or that join has no use for.
var decided = append([]string{"model", "client", "round", "output", "rows", "json", "scope"},
	budgetNames[:len(budgetNames)-3]...)

// joinCommand makes an upload of a private round once. A second one of the same images would spend
// a second budget, so that the owner has to move the first away.
var joinCommand = command{
	name: "join", args: "URL --key FILE SOURCE",
	short: "Take part in a round: fetch the client graph, compress the images, send the upload, " +
		"keep the receipt",
	example: `  fmp-edge join https://server:8443 --key shop-17.key photos/
  fmp-edge join https://server:8443 --key shop-17.key --ca server.crt list.csv
  fmp-edge join https://server:8443 --key shop-17.key --private --max-epsilon 2 photos/
  fmp-edge join https://server:8443 --helper https://helper.example:8443 --key shop-17.key photos/

SOURCE is as for compress. The graph is fetched once and kept; it is used only if its sha256 is the
round's. The upload is kept beside the key: after a restart it is sent as it is, and --fresh makes
it anew. The command comes back, at growing intervals, until the server has the upload or the
round takes no more (exit code 4).

In a private round the upload is noisy class sums that keep to the epsilon that the round states,
and the noise is added here unless the round says that servers do (noise: trusted, two-servers).
--private refuses a round that is not private. Where there are two servers each gets a share of the
sums, which says nothing without the other's: give the address of the second with --helper.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		j := &joining{connection: connectionFlags(f),
			cache: f.String("cache", "",
				"folder for client graphs (default: fmp/graphs in the user's folder for caches)"),
			fresh:  f.Bool("fresh", false, "make the upload anew even if it is there"),
			making: pflag.NewFlagSet("compress", pflag.ContinueOnError)}
		j.compress = compressFlags(j.making)
		j.ledger = j.compress.private.ledger
		j.making.VisitAll(func(flag *pflag.Flag) {
			if !slices.Contains(decided, flag.Name) {
				f.AddFlag(flag)
			}
		})
		return j.run
	},
}

// joining is a command that takes part in a round.
type joining struct {
	*connection
	cache    *string
	fresh    *bool
	making   *pflag.FlagSet // those of compress, which are settled by the round or given here
	compress *compressing

	sender *sender.Client
	owner  *identity.Key
	round  *wire.Description
	path   string // of the upload, beside the key
}

// earlier is the upload that lies in the place of the new one.
type earlier struct {
	*message
	data []byte
	made bool // it is of this round, graph, client and budget, and whole
	salt bool // the server wants its table of classes salted, and it is not
}

func (j *joining) run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	if len(args) != 2 {
		return usagef("join: %d arguments; want the server's address and one folder, "+
			".csv or IDX file of images", len(args))
	}
	if j.sender, j.owner, j.round, err = j.open(ctx, "join", args[0], log); err != nil {
		return err
	}
	if err := checkRound(j.making, j.round); err != nil {
		return err
	}
	if *j.cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no folder for caches: %w; give one with --cache", err)
		}
		*j.cache = filepath.Join(base, "fmp", "graphs")
	}
	if err := j.receiptsFree("join", j.owner.Name); err != nil {
		return err
	}
	j.path = j.beside(j.round.Round, "upload")
	old, err := j.earlier(ctx, log)
	if err != nil {
		return err
	}
	closed := j.round.State == wire.Closed
	// Another private upload in this place would be a second release of the images. The owner moves
	// the first away where that is meant.
	if j.round.Privacy != nil && old.message != nil && old.Budget != nil &&
		(*j.fresh || *j.compress.private.redraw || !old.made && !closed) {
		return usagef("%s is an upload of a private round already (round %d, %v), which may have "+
			"been sent: another of the same images spends a budget a second time; if that is "+
			"meant, or it never left this machine, move the file away", j.path, old.Round, old.Budget)
	}
	switch {
	case closed && old.made: // it may be in, with a reply that was lost
		return j.deliver(ctx, "join", j.owner, j.path, old.data, out)
	case closed && j.round.Now.Before(j.round.Deadline):
		return fmt.Errorf("%w: its one classifier is made, or is being made", sender.ErrClosed)
	case closed:
		return fmt.Errorf("%w since %s", sender.ErrClosed, j.round.Deadline.Format(time.RFC3339))
	case old.made && !*j.fresh && !old.salt:
		anew := "; --fresh makes it anew"
		if j.round.Privacy != nil {
			anew = ""
		}
		fmt.Fprintf(log, "fmp-edge: sending %s as it was made earlier, of the images and "+
			"by the flags that were given then%s\n", j.path, anew)
		return j.deliver(ctx, "join", j.owner, j.path, old.data, out)
	}
	data, err := j.make(ctx, args[1], log)
	if err != nil {
		return err
	}
	return j.deliver(ctx, "join", j.owner, j.path, data, out)
}

// earlier reads the upload that is there. One that can be sent counts where the graph is approved.
func (j *joining) earlier(ctx context.Context, log io.Writer) (old earlier, err error) {
	u, data, err := readUpload(j.path)
	if err != nil {
		return old, nil // none, or of something else: it is made anew
	}
	old = earlier{message: u, data: data, made: belongs(u, j.round, j.owner) == nil}
	if !old.made {
		return old, nil
	}
	graph, err := j.sender.Graph(ctx, j.round, *j.cache)
	if err != nil {
		return old, err
	}
	if err := ofServer(ctx, j.round, j.making, graph, log); err != nil {
		return old, err
	}
	// Both shares are needed: one without the other is no upload.
	if j.second != nil {
		_, e := readShares(j.path, j.second.round, j.owner)
		old.made = e == nil
	}
	if old.made {
		old.salt, err = j.wantsSalt(ctx, u, j.owner)
	}
	return old, err
}

// make compresses the images of a source to an upload for the round, and returns its bytes.
func (j *joining) make(ctx context.Context, source string, log io.Writer) ([]byte, error) {
	if err := j.takes("join", *j.compress.private.reply); err != nil {
		return nil, err
	}
	graph, err := j.sender.Graph(ctx, j.round, *j.cache)
	if err != nil {
		return nil, err
	}
	if err := j.settle(graph, log); err != nil {
		return nil, err
	}
	// compress charges the upload to these servers as it is made, so that deliver does not.
	compress := j.compress
	compress.mostImages, compress.server, j.ledger = j.round.MaxPoints, j.servers(), nil
	compress.takes = func(after time.Duration) error { return j.takes("join", after) }
	if compress.mostBytes = j.round.MaxBytes; j.second != nil {
		compress.mostBytes = min(j.round.MaxBytes, j.second.round.MaxBytes)
	}
	if err := compress.run(ctx, []string{source}, io.Discard, log); err != nil {
		return nil, err
	}
	u, data, err := readUpload(j.path)
	if err != nil {
		return nil, err
	}
	return data, belongs(u, j.round, j.owner)
}

// settle gives compress the flags that the round decides, which is why join has none of them.
func (j *joining) settle(graph string, log io.Writer) error {
	d := j.round
	set := map[string]string{"model": graph, "client": j.owner.Name,
		"round": fmt.Sprint(d.Round), "output": j.path, "scope": client.ServerScope(d.ServerKey)}
	if p := j.making.Lookup("precision"); !p.Changed && d.Privacy == nil && len(d.Precisions) > 0 {
		set["precision"] = d.Precisions[0]
	}
	if p := j.making.Lookup("calibrate"); !p.Changed && d.Calibrate > 0 {
		fmt.Fprintf(log, "fmp-edge: the round asks for %d calibration points, "+
			"features of single images (docs/sets.md); none are sent: --calibrate "+
			"N grants N\n", d.Calibrate)
	}
	if b := d.Privacy; b != nil {
		set["epsilon"], set["delta"], set["points"] = fmt.Sprint(b.Epsilon),
			fmt.Sprint(b.Delta), fmt.Sprint(b.Points)
		set["unit"], set["relation"], set["noise"] = b.Unit, b.Relation, b.Noise
		set["max-epsilon"] = fmt.Sprint(*j.maxEpsilon)
	}
	for name, value := range set {
		if err := j.making.Set(name, value); err != nil {
			return fmt.Errorf("join: --%s %s: %w", name, value, err)
		}
	}
	return nil
}

// keyCommand makes a key where it is given a name, and else prints the line of the one in the file.
var keyCommand = command{
	name: "key", args: "[--client NAME] FILE",
	short: "Make this client's key; print its line for the server's roster",
	example: `  fmp-edge key --client shop-17 shop-17.key

The key stays on this machine, in a file that its owner alone can read. The line that is printed
holds the public half: send it to the server's people, who add it to the roster. Without --client the
line of a key that is there is printed again.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		name := f.String("client", "", "name of this client, 1 to 128 bytes")
		return func(_ context.Context, args []string, out, _ io.Writer) error {
			if len(args) != 1 {
				return usagef("key: want --client NAME and the FILE to write, or the " +
					"FILE of a key alone")
			}
			var k *identity.Key
			var err error
			if *name == "" {
				if k, err = identity.Load(args[0]); err != nil {
					err = fmt.Errorf("%w (--client NAME makes a key)", err)
				}
			} else if k, err = identity.New(*name); err == nil {
				err = k.Save(args[0])
			}
			if err != nil {
				return &usageError{fmt.Errorf("key: %w", err)}
			}
			_, err = fmt.Fprintln(out, k.Line())
			return err
		}
	},
}

// withdrawCommand checks the place of its receipt before it asks for the withdrawal, which cannot
// be taken back.
var withdrawCommand = command{
	name: "withdraw", args: "URL --key FILE",
	short: "Withdraw this client's upload from a round, whether it is open or closed",
	example: `  fmp-edge withdraw https://server:8443 --key shop-17.key
  fmp-edge withdraw https://server:8443 --key shop-17.key --ca server.crt --json

The server deletes the upload and makes at once a classifier without it: byte for byte the one that
this client never took part in. Versions that held it are handed out no more, and a signed notice
names them. The receipt, which the server signs, says which versions these are, which one takes
their place, and what cannot be undone. The same command says later which one that is.

It is for good: nothing of this client is taken in this round again. Rounds whose servers add the
noise take nothing out, as one noisy sum hides the uploads; join says so before anything is sent.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		path := f.String("key", "", "key file of this client")
		ca := f.String("ca", "", "file of certificates to trust in place of the system's")
		server := f.String("server-key", "",
			"public key that the server must have (base64), as its operators give it")
		receipt := f.String("receipt", "", "receipt to write (default: KEY.ROUND.withdrawal.json)")
		outputs.Files(f, "receipt")
		wait := f.Duration("wait", time.Hour, "how long to wait for a server that does not answer")
		asJSON := f.Bool("json", false, "print JSON")
		return func(ctx context.Context, args []string, out, log io.Writer) error {
			if len(args) != 1 || *path == "" {
				return usagef("withdraw: give the server's address and --key FILE; see fmp-edge " +
					"withdraw --help")
			}
			if err := checkWait("withdraw", *wait); err != nil {
				return err
			}
			key, err := identity.Load(*path)
			if err != nil {
				return refused("withdraw", err)
			}
			s, d, err := dial(ctx, "withdraw", args[0], *ca, *wait, log)
			if err != nil {
				return err
			}
			if *server != "" && d.ServerKey != *server {
				return fmt.Errorf("withdraw: the server's key is %s; --server-key is %s",
					d.ServerKey, *server)
			}
			file := cmp.Or(*receipt, besideKey(*path, d.Round, "withdrawal.json"))
			own := receiptOf(d, key.Name, true)
			if _, err := free("withdraw", content{path: file, own: own}); err != nil {
				return fmt.Errorf("%w; nothing was withdrawn", err)
			}
			w, err := s.Withdraw(ctx, d, key)
			if err != nil {
				return err
			}
			if err := saveReceipt("withdraw", file, w, own); err != nil {
				return fmt.Errorf("the upload is withdrawn: %w", err)
			}
			if *asJSON {
				return printJSON(out, w)
			}
			_, err = fmt.Fprintf(out, "%sreceipt:   %s\n", wire.Printed(w), file)
			return err
		}
	},
}
