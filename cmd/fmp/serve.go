package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fmp/cmd/buildinfo"
	"fmp/onnx/engine"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/loopback"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/trace"
	"fmp/pipeline/federate/work"
	"fmp/pipeline/option"
	"fmp/pipeline/page"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
	"fmp/pipeline/settings"
)

// maxToken bounds a file with a token, and maxLow the threshold of low disk space: 1 PiB in MiB.
// The bound on low keeps MiB shifted by 20 bits within an int64.
const maxToken, maxLow = 4 << 10, 1 << 30

// serveFlags are those of fmp serve that are no settings. check fills in defaults, and reads the
// tokens that files hold. serveRound copies them into its server, which may change its own.
type serveFlags struct {
	// file, cert, key and token are files, and state is a folder.
	file, address, state, cert, key, token string
	// helper is an address, and helperCA and secret are files.
	helper, helperCA, secret                      string
	page                                          string
	selfSigned, jsonLog, workers, merge, asHelper bool
	hosts                                         []string
	nats                                          store.Options
	natsToken                                     string
	readers                                       string // token of --token-file
	low                                           int    // MiB
	// reject is a probability, 0 for none.
	reject float64
}

// bindStore declares the flags that say where NATS is, for the server and for workers. The token's
// file is read by checkStore.
func bindStore(cmd *cobra.Command, o *store.Options, token *string) {
	f := cmd.Flags()
	f.StringVar(&o.URL, "nats",
		"", "`URL` of NATS servers elsewhere, several separated by commas, with TLS unless on "+
			"loopback; passwords belong in --nats-creds or --nats-token-file")
	f.StringVar(&o.Credentials, "nats-creds", "", "`FILE` of credentials (.creds) for them")
	f.StringVar(&o.CA, "nats-ca", "", "`FILE` of certificates to trust for them")
	f.StringVar(token, "nats-token-file", "",
		"`FILE` with the token of NATS servers, or of workers that --nats-listen lets in")
}

// bindHosts declares the flag of the names under which a proxy passes requests on. It guards
// against DNS rebinding: a page of another site cannot reach a loopback server by its own name.
func bindHosts(f *pflag.FlagSet, to *[]string) {
	f.StringSliceVar(to, "host", nil, "`NAME` that a proxy's clients ask for, where --listen is "+
		"loopback: requests for other names than localhost are refused")
}

const serveHelp = `Open the round of a round file over HTTPS: clients (fmp-edge join) fetch the client graph, send one
signed upload each and get a signed receipt. At quorum, at the deadline and when late uploads come,
what is in is pooled into classifier.onnx. The page at / says who is in, who is missing and what was
refused; with --page clients take part in a browser, at /join/.

State is kept in --state, by a NATS JetStream server inside this program, or on NATS servers
elsewhere (--nats). A receipt is given only for what is kept: the program may be killed at any time
and started again. --sync outlives a power cut as well.

A round file that states privacy makes the round private (docs/privacy.md): uploads are noisy class
sums that keep to its epsilon. With noise: two-servers it takes two servers of one round file, run
by people who do not share what they hold: --as-helper, and --helper with the address of that one.
Neither sees a client's sums; what is opened is the sum of all, with the noise of both.

Options of pooling (--samples, FMP_SETS_LEVEL ...) take the place of the round file's.

On a loopback address plain HTTP is allowed, for a test or behind a proxy. Elsewhere --tls-cert,
--tls-key and --token-file (what readers of status, classifier and predictions must give) are
needed. A roster is needed everywhere.

OTEL_EXPORTER_OTLP_ENDPOINT names a collector of OpenTelemetry for traces (docs/federate.md).`

// newServeCommand declares fmp serve. Its settings are resolved once the round file is read, as
// they are over the file's. Nothing is opened and no address taken before flags, round file and
// settings hold.
// A fault of the roster is a usage error, though it shows up only when the round is served.
func newServeCommand() *cobra.Command {
	var o serveFlags
	cfg := option.Default[poolSettings]()
	cmd := &cobra.Command{
		Use: "serve --round FILE",
		Short: "Serve a round of a federation: take uploads, pool them, give the classifier and " +
			"predictions",
		Long: serveHelp,
		Example: `  fmp serve --round round.yaml
  fmp serve --round round.yaml --tls-self-signed
  fmp serve --round round.yaml --listen :8443 --tls-cert server.crt --tls-key server.key \
    --token-file readers.token
  fmp serve --round round.yaml --as-helper --servers-secret-file pair.secret --listen :8444 \
    --tls-cert h.crt --tls-key h.key \
      --token-file readers.token
  fmp serve --round round.yaml --helper https://helper:8444 --servers-secret-file pair.secret \
    --tls-self-signed
  fmp serve --round round.yaml --nats tls://n1:4222,tls://n2:4222,tls://n3:4222 \
    --nats-creds fmp.creds --nats-replicas 3`,
		Args: noArgs,
	}
	s := bindSettings(cmd, &cfg, engineAliases)
	cmd.PreRunE = nil // they are over those of the round file
	f := cmd.Flags()
	f.StringVar(&o.file, "round", "", "round `FILE` (docs/federate.md)")
	f.StringVar(&o.address, "listen", "127.0.0.1:8443",
		"`HOST:PORT` to listen on; port 0 takes a free one")
	f.StringVar(&o.state, "state", "",
		"`FOLDER` for state, the server's key among it (default: state beside the round file)")
	f.StringVar(&o.cert, "tls-cert", "", "`FILE` with the certificate chain (PEM)")
	f.StringVar(&o.key, "tls-key", "", "`FILE` with its private key (PEM)")
	f.BoolVar(&o.selfSigned, "tls-self-signed", false,
		"make a certificate for loopback at the first start, in --state (server.crt)")
	f.StringVar(&o.token, "token-file", "", "`FILE` with the token that readers give")
	bindStore(cmd, &o.nats, &o.natsToken)
	f.IntVar(&o.nats.Replicas, "nats-replicas", 1,
		"on how many of the servers of --nats everything is kept: 1 to 5")
	f.StringVar(&o.nats.Listen, "nats-listen", "", "loopback `HOST:PORT` on which the NATS "+
		"server inside lets workers in (with --nats-token-file)")
	f.BoolVar(&o.nats.Sync, "sync", false,
		"give receipts only once the disk has the upload, so that they outlive a power cut; "+
			"--as-helper always does")
	f.IntVar(&o.low, "low-space", 1024,
		"`MIB` of free space on the disk of --state below which the server warns (log, /metrics)")
	f.BoolVar(&o.workers, "workers", false, "leave the sampling to fmp worker")
	f.BoolVar(&o.merge, "merge", false, "leave the adding up of uploads to fmp worker --merge, "+
		"for rounds too large for this machine")
	f.StringVar(&o.helper, "helper", "", "`URL` of the helper of a private round with noise: "+
		"two-servers, of which this server is then the leader")
	f.StringVar(&o.helperCA, "helper-ca", "", "`FILE` of certificates to trust for it")
	f.BoolVar(&o.asHelper, "as-helper", false,
		"be the helper of such a round: hold the other shares, and open nothing")
	f.StringVar(&o.secret, "servers-secret-file", "",
		"`FILE` with the secret that leader and helper both know, and clients do not")
	f.StringVar(&o.page, "page", "",
		"`FOLDER` that make page wrote: the client for browsers, at /join/ (docs/browser.md)")
	bindHosts(f, &o.hosts)
	f.Float64Var(&o.reject, "reject", 0, "mark as unsure, and count under /metrics as left to "+
		"people, what has less than this `PROBABILITY` for its most probable class")
	f.BoolVar(&o.jsonLog, "log-json", false, "write the log as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return usageError(err)
		}
		r, err := round.Load(o.file)
		if err != nil {
			return usageError(err)
		}
		if err := s.resolveOver(&r.Options, &cfg); err != nil {
			return err
		}
		if err = serveRound(cmd, r, cfg.Engine, o); errors.Is(err, round.ErrRoster) {
			err = usageError(fmt.Errorf("serve: round %s: %w", o.file, err))
		}
		return err
	}
	return cmd
}

// resolveOver reads settings over the options of a round file. The file's values take the place of
// defaults, and flags and environment that of the file's. o is changed, and cfg is only the place
// of the resolving.
func (s *resolver) resolveOver(o *pool.Options, cfg *poolSettings) error {
	cfg.Options = *o
	if err := s.resolve(); err != nil {
		return err
	}
	cfg.Threads = cfg.Engine.Threads
	*o = cfg.Options
	return nil
}

// readToken reads a secret from the file that a flag names. An empty path is an empty secret.
// Spaces around it are no part of it, and less than 16 bytes are too few to be drawn at random. The
// error names the file and its length, and nothing of its content.
func readToken(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := identity.ReadSecret(path, maxToken+2) // a line's end besides
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < 16 || len(token) > maxToken {
		return "", fmt.Errorf("--%s %s: %d bytes; want 16 to %d, drawn at random (openssl "+
			"rand -hex 24)", flag, path, len(token), maxToken)
	}
	return token, nil
}

// check reports missing flags, fills in defaults, and reads the readers' token. Off loopback it
// asks for a certificate and a token: the status, the classifier and predictions would be
// anybody's. It reads the files of tokens, which must be their owner's alone to read, and no other
// file. It is called once, as it changes the flags.
func (o *serveFlags) check() error {
	if o.file == "" {
		return errors.New("serve: --round is missing; docs/federate.md shows a round file")
	}
	o.state = cmp.Or(o.state, filepath.Join(filepath.Dir(o.file), "state"))
	if (o.cert == "") != (o.key == "") || (o.cert != "" && o.selfSigned) {
		return errors.New("serve: give --tls-cert with --tls-key, or --tls-self-signed alone")
	}
	if o.low < 0 || o.low > maxLow {
		return fmt.Errorf("serve: --low-space %d; allowed are 0 to %d MiB", o.low, maxLow)
	}
	if err := classify.CheckReject(o.reject); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	o.nats.LowSpace = int64(o.low) << 20
	// a helper that lost the sum that it gave would give another, with other noise
	o.nats.Sync = o.nats.Sync || o.asHelper
	if err := checkStore(&o.nats, o.natsToken, o.workers || o.merge); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	if !loopback.Address(o.address) && (o.cert == "" || o.token == "") {
		return fmt.Errorf("serve: --listen %s is not loopback; there give --tls-cert, --tls-key "+
			"and --token-file", o.address)
	}
	// A private key that others can read is refused before it is used.
	if o.key != "" {
		if err := identity.CheckSecret(o.key); err != nil {
			return fmt.Errorf("serve: --tls-key: %w", err)
		}
	}
	var err error
	o.readers, err = readToken("token-file", o.token)
	return err
}

// checkStore returns a fault in the flags of NATS, for a server that leaves work to workers or does
// not, and reads the token. Passwords in an address would stand in lists of processes. o gets the
// token. --nats-listen is on loopback alone, as its server has no TLS.
func checkStore(o *store.Options, tokenFile string, workers bool) error {
	if o.Replicas < 1 || o.Replicas > 5 || (o.Replicas > 1 && o.URL == "") {
		return fmt.Errorf("--nats-replicas %d; allowed are 1 to 5, and more than 1 with --nats",
			o.Replicas)
	}
	if l := o.Listen; l != "" && (!loopback.Address(l) || o.URL != "" || tokenFile == "") {
		return fmt.Errorf("--nats-listen %s; want an address of loopback, with --nats-token-file "+
			"and without --nats: workers elsewhere need NATS servers of their own, with TLS", l)
	}
	if workers && o.URL == "" && o.Listen == "" {
		return errors.New("--workers and --merge want --nats-listen or --nats, " +
			"where workers come in")
	}
	if o.URL != store.Redact(o.URL) {
		return errors.New("--nats holds a password; give it with --nats-creds or --nats-token-file")
	}
	var err error
	o.Token, err = readToken("nats-token-file", tokenFile)
	return err
}

// server is a round's server while it is put together: the parts that its handlers and its sampling
// need. Fields are set by serveRound in its order, and read alone once the service runs.
type server struct {
	serveFlags
	round   *round.Round
	signer  *identity.Key           // of receipts
	eng     engine.Engine           // of pooling, which ends with the context
	stop    context.CancelCauseFunc // of predictions
	log     *slog.Logger
	store   *store.Store
	lost    <-chan error // the state went to another server
	pooling *pooling
	helper  *service.Helper // nil: this server is no leader
}

// serveRound runs the server until the context ends. Files of the round are read and its options
// tried before the address is taken, so that a client meets no server that cannot pool. Their
// faults are usage errors. Everything that is opened is closed in the opposite order when it ends.
func serveRound(cmd *cobra.Command, r *round.Round, cfg settings.Engine, o serveFlags) (err error) {
	ctx := cmd.Context()
	var handler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), nil)
	if o.jsonLog {
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), nil)
	}
	s := &server{serveFlags: o, round: r, log: slog.New(handler)}
	s.warnLate(time.Now())
	if err := os.MkdirAll(o.state, 0o700); err != nil { // it will hold uploads
		return fmt.Errorf("serve: %w", err)
	}
	if s.signer, err = serverKey(filepath.Join(o.state, "server.key")); err != nil {
		return usageError(err)
	}
	// One thread an operator: a classifier must not depend on the number of cores.
	var running context.Context
	running, s.stop = outlasting(ctx)
	defer s.stop(nil)
	eng, err := openEngine(running, cfg, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	s.eng = engine.Under(ctx, eng)
	if err := o.checkWork(s.round.Privacy != nil); err != nil {
		return usageError(err)
	}
	secret := ""
	if s.helper, secret, err = o.twoServers(s.round.Privacy); err != nil {
		return usageError(err)
	}
	if s.pooling, err = newPooling(s.round, s.eng); err == nil {
		err = o.checkLabelled(s.round)
	}
	if err != nil {
		return usageError(err)
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	defer s.store.Close()
	if err := s.openQueue(ctx); err != nil {
		return err
	}
	if err := s.meetHelper(ctx); err != nil {
		return usageError(err)
	}
	join, err := page.Handler(o.page)
	if err != nil {
		return usageError(fmt.Errorf("serve: --page: %w", err))
	}
	tracer, closeTracer, err := openTracer("fmp serve", s.log)
	if err != nil {
		return err
	}
	defer closeTracer()
	svc, err := service.New(ctx, service.Config{Tracer: tracer, Page: join, Round: s.round,
		Key: s.signer, Store: s.store, Token: o.readers, Log: s.log, Options: s.pooling.digest,
		Pool: s.pool, Merge: s.merging(), Private: s.private, Secret: secret,
		Sweep: s.pooling.sweep, Withdrawn: s.pooling.options.Withdrawn, Helper: s.helper,
		Withdrawals: filepath.Join(o.state, s.store.Name()+".withdrawals"),
		Check:       s.pooling.check, Engine: eng, Reject: o.reject})
	if err != nil {
		return err
	}
	defer svc.Close()
	return s.listen(cmd, svc, slog.NewLogLogger(handler, slog.LevelDebug))
}

// warnLate warns of a round whose deadline has passed. Such a round may be opened on purpose, to
// hand out its classifier.
func (s *server) warnLate(now time.Time) {
	d := s.round.Deadline.Time
	if !now.After(d) {
		return
	}
	uploads := "uploads are refused, and the classifier is of those that are in; accept_late: " +
		"true takes more"
	if s.round.AcceptLate {
		uploads = "uploads are late, and count (accept_late)"
	}
	s.log.Warn("round file", "file", s.file, "warning",
		"the deadline, "+d.Format(time.RFC3339)+", has passed: "+uploads)
}

// checkWork refuses work that a round does not leave to workers. --workers and --merge need a store
// that workers reach, which check has seen to.
func (o *serveFlags) checkWork(private bool) error {
	switch {
	case (o.workers || o.merge) && private:
		return errors.New("serve: --workers and --merge are of rounds that are not private; a " +
			"private one is sampled here in a moment")
	case o.workers && o.merge:
		return errors.New("serve: give --workers or --merge: a merged round is sampled here, as " +
			"its sample is small")
	}
	return nil
}

// openStore opens the round's state and holds it, as one process at a time works on one. After an
// error the store is closed.
func (s *server) openStore(ctx context.Context) (err error) {
	s.nats.Dir, s.nats.Largest, s.nats.Log = s.state, int64(s.round.Bounds.Bytes), s.log
	s.store, err = store.Open(ctx, store.Name(s.round.Round, s.round.Client.Digest), s.nats)
	if err != nil {
		return err
	}
	// The hold is renewed while the server runs; lost tells where another server took it.
	if s.lost, err = s.store.Hold(ctx, s.signer.PublicText(), s.log); err == nil {
		err = s.store.Alone(ctx, s.round.Round, s.signer.PublicText())
		if errors.Is(err, store.ErrGraph) {
			err = usageError(err)
		}
	}
	if err != nil {
		s.store.Close()
	}
	return err
}

// openTracer returns the tracer that the variables of OpenTelemetry ask for, and a function that
// sends the spans that wait. It takes two seconds at most.
func openTracer(program string, log *slog.Logger) (*trace.Tracer, func(), error) {
	t, err := trace.New(program, buildinfo.Read().Version, log)
	if err != nil {
		return nil, nil, usageError(err)
	}
	return t, func() {
		end, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		t.Close(end)
	}, nil
}

// openQueue gives the sampling to workers, where the server leaves it to them. Predictors go to
// them as bytes, as workers have no files of this machine. An option that is a word names no file.
// Work that adds up is of class means and moments: points of an embedding have no sum. The queue
// has the round's graph as bytes, and its options without paths.
func (s *server) openQueue(ctx context.Context) (err error) {
	if !s.workers && !s.merge {
		return nil
	}
	if s.round.Corpus != "" && s.workers {
		return usageErrorf("serve: round: corpus does not go with --workers: moments are pooled " +
			"here, leave --workers out")
	}
	// Bytes is set in client graphs of moments alone.
	if c := s.pooling.client; s.merge && !c.ClassMeans && c.Bytes == 0 {
		return usageErrorf("serve: --merge is of rounds of class means or moments, and the " +
			"client graph makes points of an embedding, which do not add up; leave --merge out")
	}
	m := work.Models{Graph: s.round.GraphData}
	for _, f := range []struct {
		path string
		to   *[]byte
	}{{s.round.Predictor, &m.Predictor}, {s.round.Open, &m.Open}} {
		if slices.Contains([]string{"", "default", "untrained", "none"}, f.path) {
			continue
		}
		if *f.to, err = regularfile.ReadFile(f.path, serde.MaxFileBytes); err != nil {
			return usageError(err)
		}
	}
	o := s.pooling.options
	if o.AnchorUpload != nil {
		if m.Anchor, err = o.AnchorUpload.Encode(); err != nil {
			return err
		}
	}
	o.Corpus, o.CorpusMoments = "", nil // those who merge do not read it
	q, err := work.NewQueue(ctx, s.store, s.round.Round, m, o)
	if err != nil {
		return err
	}
	if q.Signers, q.Server = s.round.Signers, s.signer.PublicText(); s.merge {
		s.pooling.mergers = q
	} else {
		s.pooling.queue = q
	}
	return nil
}

// merging returns the sampling of a round whose uploads workers merge; nil of another. A nil
// function has the service call pool in its place.
func (s *server) merging() func(context.Context, []store.Member) (*service.Pooled, error) {
	if !s.merge {
		return nil
	}
	return func(ctx context.Context, members []store.Member) (*service.Pooled, error) {
		made, err := s.pooling.merged(ctx, members)
		return s.measured(ctx, made, err)
	}
}

// pool samples a round of plain uploads.
// Its classifier is scored on the server's own images where the round file names some.
func (s *server) pool(ctx context.Context, uploads []pool.Upload) (*service.Pooled, error) {
	made, err := s.pooling.pool(ctx, uploads, nil)
	return s.measured(ctx, made, err)
}

// private samples a private round. With two servers open returns the noisy sum. With a trusted one
// the store keeps it, so that its noise is drawn once.
func (s *server) private(ctx context.Context, releases []pool.Release,
	open func() (*privacy.Release, error)) (*service.Pooled, error) {
	made, err := s.pooling.private(ctx, releases, open, service.Sums{Ctx: ctx, Store: s.store})
	return s.measured(ctx, made, err)
}
