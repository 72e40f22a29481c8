package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/work"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/merge"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
	"fmp/pipeline/settings"
)

// newWorkerCommand declares fmp worker. Operators run in one thread, as at the server: samples must
// be the same bits on both. Any number of workers may run, and each does one job at a time.
// Files of a job lie in a folder of its own, which is removed with it.
func newWorkerCommand() *cobra.Command {
	var o workerFlags
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use: "worker --nats URL",
		Short: "Sample posteriors or merge uploads for fmp serve, and make runs for " +
			"fmp grid --workers",
		Long: `Take sampling jobs of rounds (fmp serve --workers) from the queue on NATS servers, any number of workers on any
machine. One round's sampling is several jobs: chains of who is honest, and samples ten at a time. A
job whose worker is killed goes to another after a few seconds; servers that are away are waited
for. The posterior is sample for sample what the server would make itself, if both run the same
release on the same engine.

Runs of fmp grid --workers are taken too. Data sets and models are this machine's, found as fmp run
finds them.

With --merge a worker takes other jobs alone: it adds up a thousand uploads of a round at a time
(fmp serve --merge), where they are stored, and gives the server a part. It may be connected to a
leaf node. --key signs its parts.

OTEL_EXPORTER_OTLP_ENDPOINT names a collector of OpenTelemetry for traces, as for fmp serve.`,
		Example: `  fmp worker --nats nats://127.0.0.1:4222 --nats-token-file nats.token
  fmp worker --nats tls://n1:4222,tls://n2:4222,tls://n3:4222 --nats-creds fmp.creds \
    --nats-replicas 3
  fmp worker --merge --key worker-1.key --nats tls://leaf:4222 --nats-creds fmp.creds \
    --nats-replicas 3`,
		Args: noArgs,
	}
	bindSettings(cmd, &cfg, engineAliases)
	bindStore(cmd, &o.store, &o.token)
	cmd.Flags().IntVar(&o.store.Replicas, "nats-replicas", 1,
		"on how many of the servers a queue is made where there is none, as fmp serve has it")
	cmd.Flags().BoolVar(&o.merges, "merge", false, "merge uploads, for fmp serve --merge")
	cmd.Flags().StringVar(&o.key, "key", "",
		"`FILE` with the worker's key (fmp keys), which signs the parts of --merge")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd, cfg.Engine) }
	return cmd
}

// workerFlags are the flags of fmp worker that are no settings. merges leaves sampling and runs to
// others.
type workerFlags struct {
	store      store.Options
	token, key string // files
	merges     bool
}

// run does jobs until the context ends. Flags and the key are checked before the engine is opened,
// and servers that are away are waited for with the engine open. An interrupt while it waits for
// servers is no error, as there is no job to lose.
func (o *workerFlags) run(cmd *cobra.Command, cfg settings.Engine) error {
	if o.store.URL == "" {
		return usageErrorf("worker: --nats is missing; it is the address that fmp serve has " +
			"with --nats or --nats-listen")
	}
	if err := checkStore(&o.store, o.token, true); err != nil {
		return usageError(fmt.Errorf("worker: %w", err))
	}
	key, err := o.partKey()
	if err != nil {
		return usageError(fmt.Errorf("worker: %w", err))
	}
	eng, err := openEngine(cmd.Context(), cfg, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	conn, err := connectPatiently(cmd.Context(), o.store, log)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return missingError(err)
	}
	defer conn.Close()
	tracer, closeTracer, err := openTracer("fmp worker", log)
	if err != nil {
		return err
	}
	defer closeTracer()
	w := &work.Worker{Conn: conn, Log: log, Tracer: tracer, Key: key,
		// A job has no threads of its own; these are the worker's.
		Open: func(uploads []pool.Upload, m work.Models, o pool.Options) (work.Sampler, error) {
			o.Threads = cfg.Threads
			return openSampling(eng, uploads, m, o)
		},
		Experiment: func(ctx context.Context, settings []byte) (map[string][]byte, error) {
			return runRemote(ctx, settings, cfg, cmd.ErrOrStderr())
		}}
	if o.merges {
		w.Judge = judging
	}
	defer w.Close()
	return w.Run(cmd.Context(), o.store.Replicas)
}

// partKey reads the key that signs parts, if a file of one is given. nil without an error means
// that parts go unsigned.
// A key without --merge is refused, as nothing would be signed by it.
func (o *workerFlags) partKey() (*identity.Key, error) {
	if o.key == "" {
		return nil, nil
	}
	if !o.merges {
		return nil, errors.New("--key signs the parts of --merge; give both")
	}
	return identity.Load(o.key)
}

// connectPatiently connects to the servers, and waits for those that are away. It tries again every
// second until the context ends; any other fault is returned at once. Each failed attempt is a line
// of the log.
func connectPatiently(ctx context.Context, o store.Options, log *slog.Logger) (*nats.Conn, error) {
	for {
		conn, err := store.Connect(o, "fmp worker")
		if !away(err) {
			return conn, err
		}
		log.Warn("waiting for the servers", "error", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// away reports whether servers could not be reached, or ended while they were: they may be started
// after a worker, or again. A refusal of the token is no absence, and ends the worker. net.OpError
// is a refused or broken connection.
func away(err error) bool {
	var network *net.OpError
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, io.EOF) || errors.As(err, &network)
}

// openSampling makes the sampling of a job ready. The engine is the worker's, and outlives the
// sampling. Uploads come in the order of the job, which decides the draws. After an error there is
// nothing to close.
func openSampling(eng engine.Engine, uploads []pool.Upload, m work.Models,
	o pool.Options) (s *pool.Sampling, err error) {
	err = withModels(m, o, func(g *onnx.Model, client models.Manifest, o pool.Options) error {
		r, err := pool.New(uploads, g, client, o)
		if err == nil {
			s, err = r.Sampling(eng)
		}
		return err
	})
	return s, err
}

// judging makes the judgement of uploads by those of a part ready. It is the same on every machine:
// one engine, in one thread. The engine is not closed here, as the judgement goes on running on it.
func judging(ctx context.Context, by *merge.Part, m work.Models,
	o pool.Options) (judge func(*federate.Upload) (float64, error), err error) {
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	err = withModels(m, o, func(g *onnx.Model, client models.Manifest, o pool.Options) error {
		var err error
		judge, err = pool.Judge(ctx, eng, by, g, client, o)
		return err
	})
	return judge, err
}

// withModels calls a function with the client graph of a job, and with its predictors in files of
// their own. The files are removed when it returns, so that it reads them before. The graph must
// hold all its data ([serde.Closed]): a job names no file. Files have mode 0600 in a folder of
// their own, as predictors may hold images.
func withModels(m work.Models, o pool.Options,
	do func(*onnx.Model, models.Manifest, pool.Options) error) error {
	g, err := serde.Closed(m.Graph)
	if err != nil {
		return err
	}
	client, err := models.ReadManifest(g)
	if err != nil {
		return err
	}
	client.Digest = models.DigestBytes(m.Graph)
	// It comes as the bytes of an upload.
	if m.Anchor != nil {
		if o.AnchorUpload, err = federate.Decode(m.Anchor, federate.Expect{}); err != nil {
			return fmt.Errorf("anchor: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "fmp-worker")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, f := range map[string]struct {
		data []byte
		to   *string
	}{"predictor.onnx": {m.Predictor, &o.Predictor}, "open.onnx": {m.Open, &o.Open}} {
		if f.data == nil {
			continue
		}
		*f.to = filepath.Join(dir, name)
		if err := os.WriteFile(*f.to, f.data, 0o600); err != nil {
			return err
		}
	}
	return do(g, client, o)
}

// runRemote makes a run for a grid elsewhere, with this machine's data, library and threads. Its
// files are returned in memory by their names, and the folder of the run is removed. The grid
// compares the identity of the run with its own and refuses other data or models. Settings are
// hostile input: they are parsed as a file's would be. The context's end stops it between methods,
// and leaves nothing behind.
func runRemote(ctx context.Context, settings []byte, own settings.Engine,
	stderr io.Writer) (files map[string][]byte, err error) {
	cfg, err := experiment.ParseConfig(settings)
	if err != nil {
		return nil, err
	}
	// The grid has taken its own out of the job.
	cfg.Engine.Library, cfg.Engine.Threads = own.Library, own.Threads
	r, err := newRunner(ctx, cfg.Engine, stderr)
	if err != nil {
		return nil, err
	}
	defer r.eng.Close()
	tmp, err := os.MkdirTemp("", "fmp-worker")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	// shared is nil: a worker makes one run at a time.
	p, err := r.shared.Prepare(ctx, cfg, r.eng, r.versions, nil)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	dir, err := experiment.Open(filepath.Join(tmp, "run"), p.Config, p.Manifest)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if _, err := experiment.Run(ctx, p.Config, p.Data, p.Tools, dir, nil); err != nil {
		return nil, err
	}
	return dir.Files()
}
