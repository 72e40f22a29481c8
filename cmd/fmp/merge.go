package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/merge"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
	"fmp/pipeline/shipped"
)

// merged is the output of fmp merge.
type merged struct {
	Output  string   `json:"output"`
	Bytes   int      `json:"bytes"`
	Clients int      `json:"clients"`
	Kept    int      `json:"kept"`     // uploads that are kept whole
	Summed  int      `json:"summed"`   // in the sums
	LeftOut int      `json:"left_out"` // of the sums, as not honest
	N       int      `json:"n"`        // images behind the sums
	Against string   `json:"against,omitempty"`
	Skipped []string `json:"skipped,omitempty"`
}

// newMergeCommand declares fmp merge. A setting that --against alone reads is refused as a flag
// without it. The part's owner alone can read it, as it holds uploads.
func newMergeCommand() *cobra.Command {
	o := mergeRun{round: new(uint64)}
	cfg := option.Default[poolSettings]()
	cmd := &cobra.Command{
		Use:   "merge UPLOAD... -o PART",
		Short: "Add uploads up: many files become one, which fmp pool reads in their place",
		Long: `Add the uploads of a round up, class means or moments, and parts that were merged before. Order and
grouping do not matter: a tree of merges gives the same part, byte for byte. A part keeps a sample
of its uploads whole, ` + fmt.Sprint(merge.Judges) + ` or up to ` + fmt.Sprint(merge.MaxPoints) +
			` class means, and the sums of the others. With fewer it
keeps all, and fmp pool reads it as these.

An upload that is summed is judged beforehand, by those that the part of --against keeps: one that
is less likely honest than not is left out, and one that claims more images than most counts as
these. All parts of a round are merged against the same part, which fmp merge makes of some hundred
uploads, and with the same options. --trust sums every upload that images can give, as it is.

--without takes a client's upload out: the part is then, byte for byte, the one that it never took
part in. A part of which another upload would take its place whole is refused; merge the round's
uploads again.

Points of an embedding, and messages of private rounds, are refused: they do not add up, or no
server may add them up but the round's own.`,
		Example: `  fmp merge sample/*.upload -o sample.part
  fmp merge site-1/*.upload --against sample.part --client-graph client.onnx -o site-1.part
  fmp merge site-*.part --against sample.part --client-graph client.onnx -o all.part
  fmp merge all.part --without site-3.upload --trust -o without-3.part
  fmp pool all.part --client-graph client.onnx`,
		Args: rangeArgs(1, 0, "UPLOAD"),
	}
	s := bindSettings(cmd, &cfg, engineAliases,
		append([]string{"trust", "engine.threads"}, ofJudging...)...)
	flags := cmd.Flags()
	outFlag(cmd, &o.out, "output", "", "`PART` to write")
	flags.StringArrayVar(&o.without, "without", nil, "`UPLOAD` of a client that withdraws, which "+
		"is passed over, and taken out of parts (repeatable)")
	flags.Uint64Var(o.round, "round", 0,
		"round that must be that of the uploads (default: that of most clients)")
	flags.StringVar(&o.key, "key", "",
		"`FILE` with a worker's key (fmp keys), which signs the part, in PART.sig")
	o.bind(flags)
	jsonFlag(cmd, "print what was made as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !flags.Changed("round") {
			o.round = nil
		}
		if err := o.checkJudging(s.list); err != nil {
			return err
		}
		cfg.Threads, o.trust = cfg.Engine.Threads, cfg.Trust
		if err := cfg.ReadFiles(); err != nil {
			return usageError(err)
		}
		return o.run(cmd, args, cfg.Options)
	}
	return cmd
}

// ofJudging are the settings that --against alone reads.
var ofJudging = []string{"seed", "predictor.model", "open.model", "posterior.scope", "anchor"}

// judgement names how uploads are judged: by the digest of the part to judge by, and of the options
// of ofJudging where one is not its default. Uploads that were judged otherwise are not in the sums
// as they would be now. Two parts are merged only where theirs are equal. With options at their
// defaults the name is the digest of the part alone.
func judgement(part []byte, o pool.Options) (string, error) {
	as := option.Default[pool.Options]()
	defaults, err := as.Digest()
	if err != nil {
		return "", err
	}
	as.Seed, as.Predictor, as.Open, as.Scope, as.Anchor = o.Seed, o.Predictor, o.Open, o.Scope,
		o.Anchor
	options, err := as.Digest()
	// h(part), or h(h(part) + digest of the options), with h for sha256.
	by := models.DigestBytes(part)
	if options != defaults {
		by = models.DigestBytes([]byte(by + options))
	}
	return by, err
}

// checkJudging refuses flags of a judgement that nobody makes. A settings file, which other
// commands share, may hold them. It tells the first such flag in the order of the settings.
func (o *mergeRun) checkJudging(given []setting) error {
	for _, v := range given {
		if o.against == "" && slices.Contains(ofJudging, v.Key) &&
			strings.HasPrefix(v.Source, "flag ") {
			return usageErrorf("setting %s (%s) says how uploads are judged, and without "+
				"--against none is: give a part to judge by, or leave it out", v.Key, v.Source)
		}
	}
	return nil
}

// mergeRun is a run of fmp merge. checkJudging comes before run. round is nil without --round, as 0
// is a round's number.
type mergeRun struct {
	merging
	out, key string
	round    *uint64  // nil: that of most clients
	without  []string // files of uploads that are taken out
}

// run merges and writes the part. The place of its signature is claimed before any upload is read.
// The order is: flags, client graph, the signature's place, key, uploads, part.
func (o *mergeRun) run(cmd *cobra.Command, args []string, options pool.Options) (err error) {
	if o.out == "" {
		return usageErrorf("merge: no --output: name the part to write, -o all.part")
	}
	if err := o.open(o.round); err != nil {
		return err
	}
	release, err := claimSignature(o.out)
	if err != nil {
		return usageError(err)
	}
	defer release()
	var key *identity.Key
	if o.key != "" {
		if key, err = identity.Load(o.key); err != nil {
			return usageError(err)
		}
	}
	o.bar = newLateProgress(cmd.ErrOrStderr())
	p, bad, err := o.merge(cmd.Context(), args, o.without, options)
	o.bar.close()
	if err != nil {
		return usageError(err)
	}
	res := merged{Output: o.out, Clients: p.Clients(), Kept: len(p.Kept), Summed: p.Summed,
		LeftOut: p.LeftOut, N: p.N, Against: p.Against,
		Skipped: leftOut(cmd, bad)}
	data, err := p.Encode()
	if err != nil {
		return err
	}
	if err := o.write(data, key); err != nil {
		return err
	}
	res.Bytes = len(data)
	return say(cmd, res, "part:    %s (%d bytes)\nclients: %d: %d kept whole, %d summed, %d left "+
		"out of the sums\n", o.out, res.Bytes, res.Clients, res.Kept, res.Summed, res.LeftOut)
}

// claimSignature keeps the place of a part's signature for it: from then on no file that is there
// can be read as an input. One that is no signature would be lost, and is an error. Only the form
// is looked at: the name of a worker, and a signature of 64 bytes (Ed25519).
func claimSignature(part string) (release func(), err error) {
	path := part + ".sig"
	if release, err = outputs.Claim(path); err != nil {
		return nil, fmt.Errorf("merge: signature of the part: %w", err)
	}
	data, err := regularfile.ReadOutput(path, merge.MaxSignature)
	var is struct {
		Worker    string
		Signature []byte
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) ||
		err == nil && (json.Unmarshal(data, &is) != nil || is.Worker == "" ||
			len(is.Signature) != ed25519.SignatureSize) {
		release()
		return nil, fmt.Errorf("merge: %s: it is no signature of a part, and would be "+
			"overwritten by that of %s: give the part another name", path, part)
	}
	return release, nil
}

// write writes the part, and its signature where there is a key. Without one none stays, which
// would be another part's. The part takes its place while the signature is written but not yet in
// its own: a full disk leaves both as they were. A program that is killed between the two leaves
// a part whose signature fails, and never a false one that holds.
func (o *mergeRun) write(part []byte, key *identity.Key) error {
	if key == nil {
		if err := atomicfile.WritePrivate(o.out, part); err != nil {
			return err
		}
		if err := os.Remove(o.out + ".sig"); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	signature, err := merge.Sign(key, part, "")
	if err != nil {
		return err
	}
	return atomicfile.Write(o.out+".sig", func(w io.Writer) error {
		if _, err := w.Write(signature); err != nil {
			return err
		}
		return atomicfile.WritePrivate(o.out, part)
	})
}

// merging is how uploads are merged. fmp pool and fmp merge share it: pool merges where a part is
// among its files.
type merging struct {
	client  string // file of the client graph
	against string // file
	workers string // file of the roster; "": parts need no signature
	// onBad is the text of --on-bad, and skip its meaning.
	onBad       string
	trust, skip bool // skip: uploads that cannot be used are left out
	// want is checked of every upload and part.
	want     federate.Expect
	graph    *onnx.Model // the client graph; nil: the one of the program that made the uploads
	manifest models.Manifest
	bar      *progress
}

// bind declares the flags that say how uploads and parts are read. --trust is a setting and no flag
// of these.
func (o *merging) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.client, "client-graph", "", "client `GRAPH` that made the uploads "+
		"(default: the one that comes with the program, if it did)")
	flags.StringVar(&o.against, "against", "",
		"`PART` by whose uploads those that are summed are judged (fmp merge)")
	flags.StringVar(&o.workers, "signed-by", "",
		"`ROSTER` of workers (fmp keys), of whom one must have signed each part, in PART.sig")
	flags.StringVar(&o.onBad, "on-bad", "fail",
		"what to do about uploads that cannot be used: fail or skip; all are named")
}

// open checks the flags and loads the client graph, for uploads of a round; nil: that of most
// clients. A client graph of the program is not loaded here: the uploads' digest names it later.
func (o *merging) open(round *uint64) (err error) {
	if o.skip, err = skipBad(o.onBad); err != nil {
		return err
	}
	if o.client != "" {
		if o.graph, o.manifest, err = models.Load(o.client); err != nil {
			return usageError(err)
		}
		o.want = pool.Expect(o.manifest)
	}
	o.want.Round = round
	return nil
}

// checker returns the check of uploads before they are summed. The client graph that comes with the
// program is found by the first of them. Behind an unknown one none is summed (--trust), and those
// that stay whole are checked when they are pooled. It is made once for each client graph. corpus
// is the round's own moments; nil: it has none. The returned function is not safe for concurrent
// use, as it fills a map.
func (o *merging) checker(corpus *discriminant.Client) func(*federate.Upload) error {
	checks := map[string]func(*federate.Upload) error{} // by the client graph
	return func(u *federate.Upload) error {
		check := checks[u.Model]
		if check == nil {
			var err error
			// The error is kept as the check, so that it is found once a graph and told for each
			// upload.
			if check, err = o.checkerOf(u.Model, corpus); err != nil {
				check = func(*federate.Upload) error { return err }
			}
			checks[u.Model] = check
		}
		return check(u)
	}
}

// checkerOf returns the check of uploads behind the client graph of a digest. A graph that is given
// is taken for every upload, whose digest is compared when it is read.
// Behind an unknown graph the check takes everything, unless uploads are to be trusted: then it is
// an error.
func (o *merging) checkerOf(digest string,
	corpus *discriminant.Client) (_ func(*federate.Upload) error, err error) {
	graph, client := o.graph, o.manifest
	if graph == nil {
		graph, client, err = shipped.Model(digest)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && !o.trust:
		return func(*federate.Upload) error { return nil }, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the client graph behind the uploads has the sha256 %.12s, and "+
			"none that comes with the program does: %w", digest, pool.ErrNoGraph)
	case err != nil:
		return nil, err
	}
	return pool.Checker(graph, client, corpus)
}

// noGraph returns the error that uploads share whose client graph is not known; nil: there is none.
// It is told alone: uploads behind one graph would all repeat it. bad may be in any order; the
// first such error is told.
func noGraph(bad []error) error {
	for _, err := range bad {
		if errors.Is(err, pool.ErrNoGraph) {
			return err
		}
	}
	return nil
}

// judges makes a merger judge by the uploads of the part in --against, which it returns; nil: there
// is none. The part is read within merge.MaxBytes, and must be of the wanted graph and round. A
// worker signs it as any other part, since it says who is left out. m is changed: its Judge and its
// Against.
func (o *merging) judges(ctx context.Context, m *merge.Merger, workers *identity.Roster,
	options pool.Options) (*merge.Part, error) {
	if o.against == "" {
		return nil, nil
	}
	if o.trust {
		return nil, errors.New("--against judges clients, and --trust takes all for " +
			"honest; give one of them")
	}
	data, err := pool.ReadSigned(o.against, workers)
	// An error of the file system has the path already.
	if named := (*fs.PathError)(nil); errors.As(err, &named) {
		return nil, fmt.Errorf("reading part: %w", err)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", o.against, err)
	}
	by, err := merge.Decode(data, o.want)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.against, err)
	}
	// The same judgement on every machine: one engine, in one thread.
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	if m.Judge, err = pool.Judge(ctx, eng, by, o.graph, o.manifest, options); err != nil {
		return nil, err
	}
	if m.Against, err = judgement(data, options); err != nil {
		return nil, err
	}
	return by, nil
}

// stays returns an error where a client that withdraws would go on judging the others: by the
// anchor, or by the part of --against. gone is the upload's bytes, and by the part to judge by, nil
// for none.
func (o *merging) stays(by *merge.Part, gone []byte, options pool.Options) error {
	if by == nil {
		return nil
	}
	u, err := federate.Decode(gone, o.want)
	if err != nil {
		return err
	}
	if err := options.Withdrawn(u.Client, models.DigestBytes(gone), u.Round, u.Model); err != nil {
		return err
	}
	if by.Holds(u.Client) {
		return fmt.Errorf("--against %s holds client %q, by whom the others are judged: merge "+
			"that part without it first, and the round's uploads anew against the new one",
			o.against, u.Client)
	}
	return nil
}

// merge merges files, and takes uploads in files out. bad are the errors of those that were left
// out. After an error no part is of use. The order of files does not act on the part, nor does
// their grouping. Withdrawals come last, so that an upload within a part is taken out as well.
func (o *merging) merge(ctx context.Context, files, without []string,
	options pool.Options) (p *merge.Part, bad []error, err error) {
	m := merge.Merger{Want: o.want, Trust: o.trust, Check: o.checker(options.CorpusMoments)}
	var workers *identity.Roster
	if o.workers != "" {
		if workers, err = identity.LoadRoster(o.workers); err != nil {
			return nil, nil, err
		}
	}
	by, err := o.judges(ctx, &m, workers, options)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range files {
		if strings.HasSuffix(name, ".sum") || pool.IsPrivate(name) {
			return nil, nil, fmt.Errorf("%s: it is of a private round, whose messages the "+
				"round's own server adds up (fmp pool)", name)
		}
	}
	gone := make([][]byte, len(without))
	m.Without = map[[sha256.Size]byte]bool{}
	for i, name := range without {
		if gone[i], err = regularfile.ReadFile(name, federate.MaxBytes); err != nil {
			return nil, nil, fmt.Errorf("reading upload: %w", err)
		}
		if err := o.stays(by, gone[i], options); err != nil {
			return nil, nil, fmt.Errorf("--without %s: %w", name, err)
		}
		// Files with these digests are passed over as they are read.
		m.Without[sha256.Sum256(gone[i])] = false
	}
	bad, err = pool.ReadMerged(files, &m, workers, o.bar.report)
	o.bar.close()
	if err != nil {
		return nil, nil, printable.Errors(append(bad, err))
	}
	// All bad files are told at once, also where the first would end the command.
	if m.Part() == nil || len(bad) > 0 && !o.skip {
		if err := noGraph(bad); err != nil && m.Part() == nil {
			return nil, nil, err
		}
		return nil, nil, cmp.Or(printable.Errors(bad), errors.New("no upload is left"))
	}
	for i, data := range gone {
		if err := m.Remove(data); err != nil {
			return nil, nil, fmt.Errorf("--without %s: %w", without[i], err)
		}
	}
	// An interrupt while files were read makes the part of no use.
	return m.Part(), bad, ctx.Err()
}
