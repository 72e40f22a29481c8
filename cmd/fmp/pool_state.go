package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
	"fmp/pipeline/stats"
)

// poolSums are the flags of fmp pool for clients that come late or withdraw. Texts are flags, and
// the fields behind them are filled in by check and the round. before tells at the end whether
// another process has changed the state.
type poolSums struct {
	state, record, key string
	without, published []string

	sums       *stats.State     // of --state, after the run's uploads
	before     []byte           // of --state; nil where there is none yet
	gone       []pool.Upload    // those of --without
	by         *identity.Key    // of --key
	withdrawal *pool.Withdrawal // of --record
}

// They are of rounds that are not private.
func (o *poolSums) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.state, "state", "", "`FILE` of the round's sums, by folds of its clients: "+
		"uploads are added to it, and all clients taken for honest; made where there is none")
	flags.StringArrayVar(&o.without, "without", nil,
		"`CLIENT` that withdraws, whose upload is left out, or taken out of --state (repeatable)")
	flags.StringVar(&o.record, "record", "", "`FILE` to write: who withdrew, and which "+
		"--published versions still hold it, signed by --key")
	outputs.Files(flags, "record")
	flags.StringVar(&o.key, "key", "", "`FILE` with the key (fmp keys) that signs --record")
	flags.StringArrayVar(&o.published, "published", nil,
		"`CLASSIFIER` that was published before, for --record (repeatable)")
}

// check checks the flags, and reads the key before any work is done. files are the arguments of the
// command. A key that cannot be read is told here, before hours of sampling.
func (o *poolSums) check(files []string) (err error) {
	switch {
	case (o.record != "") != (o.key != ""):
		return usageErrorf("--record is signed by --key: give both or neither")
	case o.record != "" && len(o.without) == 0:
		return usageErrorf("--record tells of clients that withdraw: name them (--without CLIENT)")
	case len(o.published) > 0 && o.record == "":
		return usageErrorf("--published versions are named in the record of a withdrawal: give " +
			"--record FILE and --key FILE")
	case len(files) == 0 && o.state == "":
		return usageErrorf("pool wants uploads and was given none; fmp pool --help " +
			"shows how to use it")
	case len(o.without) > 0 && o.state == "" && pool.AnyPart(files):
		return usageErrorf("--without CLIENT leaves out one of several uploads, and a part holds " +
			"sums: take it out of the part first (fmp merge --without UPLOAD)")
	}
	if o.key != "" {
		if o.by, err = identity.Load(o.key); err != nil {
			return usageError(err)
		}
	}
	return nil
}

// stateRound prepares a round of the sums in --state and of uploads. A state that is there says
// which model, sizes and round uploads must have. After an error the state on the disk is as it
// was.
func (o *poolRun) stateRound(cmd *cobra.Command, files []string, res *pooled) (*pool.Round, error) {
	if o.against != "" || o.workers != "" || pool.AnyPart(files) {
		return nil, usageErrorf("--state adds up single uploads: give no parts, and no --against " +
			"and --signed-by")
	}
	if err := atomicfile.Ready(o.state); err != nil {
		return nil, usageError(fmt.Errorf("--state: %w", err))
	}
	var err error
	if o.before, err = readState(o.state); err != nil {
		return nil, usageError(err)
	}
	if o.before != nil {
		if o.sums, err = stats.Decode(o.before, o.want); err != nil {
			return nil, usageError(fmt.Errorf("%s: %w", o.state, err))
		}
		// The flags' own expectations were compared by stats.Decode.
		o.want.Model, o.want.Dx, o.want.C, o.want.Round = o.sums.Model, o.sums.Dx,
			o.sums.C, &o.sums.Round
	}
	options, err := o.options()
	if err != nil {
		return nil, usageError(err)
	}
	uploads, bad := o.read(files)
	uploads, bad = o.fit(uploads, bad, options.CorpusMoments)
	if err := noGraph(bad); err != nil {
		return nil, usageError(err)
	}
	if len(bad) > 0 && !o.skip {
		return nil, usageError(printable.Errors(bad))
	}
	res.Skipped = leftOut(cmd, bad)
	sums, gone, err := pool.Update(o.sums, uploads, o.without)
	if err != nil {
		return nil, usageError(err)
	}
	o.sums, o.gone = sums, gone
	r, err := pool.NewState(o.sums, o.graph, o.manifest, options)
	if err != nil {
		return nil, usageError(err)
	}
	res.Model = o.sums.Model
	// Clients of the state are named in the account, and all are taken for honest.
	for _, c := range o.sums.Clients() {
		res.Clients, res.N = append(res.Clients, c.Name), res.N+c.N
	}
	for _, u := range r.Uploads {
		res.Points += u.Points.N
	}
	return r, nil
}

// readState returns the contents of a state; nil where there is none. A state is bounded by
// stats.MaxBytes. A file that is there and is no state is refused by stats.Decode.
func readState(path string) ([]byte, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	data, err := regularfile.ReadFile(path, stats.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("reading state: %w", err)
	}
	return data, nil
}

// take takes the folder of --state until release is called. It is an error if the state is not the
// one that was read any more: another process would lose its clients, or bring back one that
// withdrew. A link to the state is followed, as two names of it must be one lock. The lock is on
// the folder, and so on all states within it. Contents are compared byte by byte, and not by time
// or size.
func (o *poolSums) take() (release func(), err error) {
	if o.state == "" {
		return func() {}, nil
	}
	path := o.state
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	lock, err := atomicfile.Take(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	now, err := readState(path)
	if err == nil && ((now == nil) != (o.before == nil) || !bytes.Equal(now, o.before)) {
		err = fmt.Errorf("--state %s: another process changed it meanwhile, and nothing was "+
			"written: run the command again", o.state)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// fit moves uploads that the client graph makes of no images to the bad ones: once they are in a
// sum, nobody tells whose they were. So it does with another upload of a client that the state has.
// Those that are taken out are the ones that were added, as they are. good shares no memory with
// uploads. An upload that the state has under the same digest is good, and adds nothing.
func (o *poolRun) fit(uploads []pool.Upload, bad []error,
	corpus *discriminant.Client) (good []pool.Upload, _ []error) {
	// trust makes an unknown client graph an error, as sums cannot be checked later.
	by := merging{graph: o.graph, manifest: o.manifest, trust: true}
	check := by.checker(corpus)
	for _, u := range uploads {
		if !slices.Contains(o.without, u.Client) {
			err := check(u.Upload)
			if in, ok := o.inState(u.Client); err == nil && ok && in.Upload != u.Digest {
				err = fmt.Errorf("it is in already, by the upload %.12s: take that out first, with "+
					"--without and the file that was added", in.Upload)
			}
			if err != nil {
				bad = append(bad, fmt.Errorf("%s: of client %q: %w", u.Path, u.Client, err))
				continue
			}
		}
		good = append(good, u)
	}
	return good, bad
}

// inState returns the client of a name in the state, before the run's uploads. Names are those of
// the uploads, as the clients wrote them.
// Without a state no client is in it.
func (o *poolSums) inState(client string) (in stats.Client, ok bool) {
	if o.sums == nil {
		return in, false
	}
	return o.sums.Client(client)
}

// withdrawn refuses a corpus or an anchor of a client that withdraws, and prepares the record:
// published versions are read before any work is done. The record's time is that of the command, in
// UTC.
func (o *poolRun) withdrawn(r *pool.Round) error {
	for _, u := range o.gone {
		if err := r.Withdrawn(u.Client, u.Digest, u.Round, u.Model); err != nil {
			return usageError(err)
		}
	}
	if o.record == "" {
		return nil
	}
	o.withdrawal = &pool.Withdrawal{Round: r.Uploads[0].Round, Graph: r.Uploads[0].Model,
		Time: time.Now().UTC()}
	for _, u := range o.gone {
		o.withdrawal.Withdrawn = append(o.withdrawal.Withdrawn,
			models.OriginClient{Name: u.Client, Upload: u.Digest, N: u.Images()})
	}
	// The record of another withdrawal is not written over.
	if err := o.withdrawal.Replaces(o.record); err != nil {
		return usageError(fmt.Errorf("--record: %w", err))
	}
	for _, path := range o.published {
		if err := o.withdrawal.Add(path); err != nil {
			return usageError(err)
		}
	}
	return nil
}

// finish writes the state and the record of a withdrawal, after the classifier. The record has its
// bytes beside its place before the state is replaced, and is put there after it, so that it tells
// of no withdrawal that the state lacks. Where the state cannot be written the temporary file of
// the record is removed.
func (o *poolRun) finish() error {
	record, err := o.signed()
	if err != nil {
		return err
	}
	if record == nil {
		return o.saveState()
	}
	var failed error // of the state
	stored := false
	err = atomicfile.Write(o.record, func(w io.Writer) error {
		if _, err := w.Write(record); err != nil {
			return err
		}
		failed = o.saveState()
		stored = failed == nil && o.sums != nil
		return failed
	})
	switch {
	case failed != nil:
		return fmt.Errorf("%w; no record is written, and the state still holds %s: run the command "+
			"again before another", failed, strings.Join(o.without, ", "))
	case err != nil && stored:
		return fmt.Errorf("%w; the state is without %s by now: for the record add the same uploads "+
			"to it, and run the command again", err, strings.Join(o.without, ", "))
	}
	return err
}

// saveState writes the state where there is one. Its owner alone can read it: it holds sums of
// clients' features.
// It is called with the folder's lock held (take), and replaces the file whole.
func (o *poolRun) saveState() error {
	if o.sums == nil {
		return nil
	}
	data, err := o.sums.Encode()
	if err != nil {
		return err
	}
	return atomicfile.WritePrivate(o.state, data)
}

// signed returns the record of a withdrawal; nil where none is wanted. The classifier is read again
// from its file, so that the digest is that of its bytes there. It must come after save.
func (o *poolRun) signed() ([]byte, error) {
	if o.withdrawal == nil {
		return nil, nil
	}
	data, err := os.ReadFile(o.out)
	if err != nil {
		return nil, err
	}
	o.withdrawal.Classifier = models.DigestBytes(data)
	return o.withdrawal.Sign(o.by)
}

// acting are the flags beside the settings that act on the classifier. Ascending names make equal
// calls equal texts.
var acting = []string{"against", "fixed-size", "for", "rows", "state", "with-samples"}

// acts returns the command with the flags and settings that act on the classifier alone, so that
// the same uploads are recorded alike in any files, summed or single, and without a trace of
// clients that withdrew. Files are named by their digests, as a path tells of this machine and of
// clients. Settings of threads and of the library leave the classifier as it is, and are left out.
// A flag or setting at its default is left out, whether or not it was given.
// A file that cannot be read for its digest is an error, with the flag's name.
func (o *poolRun) acts(flags *pflag.FlagSet) (string, error) {
	words := []string{"fmp", "pool"}
	for _, name := range acting {
		f := flags.Lookup(name)
		value := f.Value.String()
		if value == f.DefValue {
			continue
		}
		var err error
		switch name {
		// The state's contents change with each client, and its path is of this machine.
		case "state":
			value = "FILE"
		case "against":
			value, err = models.DigestFile(value, math.MaxInt64)
		}
		if err != nil {
			return "", fmt.Errorf("--%s: %w", name, err)
		}
		words = append(words, "--"+name+"="+value)
	}
	given, usual := o.settings, option.Default[poolSettings]()
	given.Engine.Threads, given.Engine.Library = usual.Engine.Threads, usual.Engine.Library
	was := option.List(&usual)
	for i, s := range option.List(&given) {
		value := s.Value.Interface()
		if reflect.DeepEqual(value, was[i].Value.Interface()) {
			continue
		}
		text := showValue(value)
		if s.NamesFile() {
			var err error
			if text, err = models.DigestFile(value.(string), math.MaxInt64); err != nil {
				return "", fmt.Errorf("--%s: %w", s.Key, err)
			}
		}
		words = append(words, "--"+s.Key+"="+text)
	}
	return strings.Join(words, " "), nil
}
