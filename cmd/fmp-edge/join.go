package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"fmp/pipeline/client"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
)

// sendCommand asks the ledger too: a server that adds the noise, and has not had the upload, is
// charged for before anything is sent. The file is read before the server is asked, and nothing is
// sent that does not belong to the round.
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

// decided are the flags of compress that the round decides, or that join has no use for. The others
// become flags of join too.
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

// joining is a command that takes part in a round. compress has its flags in making, of which join
// shows those that are not decided.
type joining struct {
	*connection
	// cache is a folder of client graphs; "" is the user's.
	cache    *string
	fresh    *bool
	making   *pflag.FlagSet // those of compress, which are settled by the round or given here
	compress *compressing

	// These are known once open has asked the server.
	sender *sender.Client
	owner  *identity.Key
	round  *wire.Description
	path   string // of the upload, beside the key
}

// earlier is the upload that lies in the place of the new one. message is nil where no upload can
// be read there.
type earlier struct {
	*message
	data []byte
	made bool // it is of this round, graph, client and budget, and whole
	salt bool // the server wants its table of classes salted, and it is not
}

// Nothing is made before the places of upload and receipts are known to be free. The order is:
// round, signature of its graph, places of receipts, the earlier upload, images, sending.
// A closed round ends it before an image is read. An upload that was made for it before is sent
// once more, as it may be in.
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
	// The state is that of the description, some moments ago.
	closed := j.round.State == wire.Closed
	// Another private upload in this place would be a second release of the images. The owner moves
	// the first away where that is meant.
	if j.round.Privacy != nil && old.message != nil && old.Budget != nil &&
		(*j.fresh || *j.compress.private.redraw || !old.made && !closed) {
		return usagef("%s is an upload of a private round already (round %d, %v), which may have "+
			"been sent: another of the same images spends a budget a second time; if that is "+
			"meant, or it never left this machine, move the file away", j.path, old.Round,
			old.Budget)
	}
	switch {
	// A round that is closed gives receipts for uploads that are in.
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
// A file that is no upload counts as none here; put refuses to write over it later.
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

// make compresses the images of a source to an upload for the round, and returns its bytes. Images
// are compressed by the command compress itself, so that both give the same bytes. The upload is
// read back from its file, so that the bytes which are sent are those that are kept.
// The round must still take an upload, which is asked before the graph is fetched. After an error
// of compress there are no bytes to send.
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
	// compress charges the upload to these servers as it is made, so that deliver does not. Its
	// fields are set for this run, through the pointer that join keeps.
	c := j.compress
	c.mostImages, c.server, j.ledger = j.round.MaxPoints, j.servers(), nil
	c.takes = func(after time.Duration) error { return j.takes("join", after) }
	if c.mostBytes = j.round.MaxBytes; j.second != nil {
		c.mostBytes = min(j.round.MaxBytes, j.second.round.MaxBytes)
	}
	if err := c.run(ctx, []string{source}, io.Discard, log); err != nil {
		return nil, err
	}
	u, data, err := readUpload(j.path)
	if err != nil {
		return nil, err
	}
	return data, belongs(u, j.round, j.owner)
}

// settle gives compress the flags that the round decides, which is why join has none of them.
// Precision is the round's first, unless the owner gives one. Calibration points are the owner's to
// grant: the round's wish for them is told alone. The flags are set by name, as if the owner had
// given them.
func (j *joining) settle(graph string, log io.Writer) error {
	d := j.round
	set := [][2]string{{"model", graph}, {"client", j.owner.Name}, {"round", fmt.Sprint(d.Round)},
		{"output", j.path}, {"scope", client.ServerScope(d.ServerKey)}}
	if p := j.making.Lookup("precision"); !p.Changed && d.Privacy == nil && len(d.Precisions) > 0 {
		set = append(set, [2]string{"precision", d.Precisions[0]})
	}
	if p := j.making.Lookup("calibrate"); !p.Changed && d.Calibrate > 0 {
		fmt.Fprintf(log, "fmp-edge: the round asks for %d calibration points, "+
			"features of single images (docs/sets.md); none are sent: --calibrate "+
			"N grants N\n", d.Calibrate)
	}
	if b := d.Privacy; b != nil {
		set = append(set, [][2]string{{"epsilon", fmt.Sprint(b.Epsilon)},
			{"delta", fmt.Sprint(b.Delta)}, {"points", fmt.Sprint(b.Points)}, {"unit", b.Unit},
			{"relation", b.Relation}, {"noise", b.Noise},
			{"max-epsilon", fmt.Sprint(*j.maxEpsilon)}}...)
	}
	for _, v := range set {
		if err := j.making.Set(v[0], v[1]); err != nil {
			return fmt.Errorf("join: --%s %s: %w", v[0], v[1], err)
		}
	}
	return nil
}
