package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx/engine"
	"fmp/onnx/serde"
	"fmp/pipeline/experiment"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/work"
	"fmp/pipeline/pool"
)

func newWorkerCommand() *cobra.Command {
	var o store.Options
	var tokenFile string
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "worker --nats URL",
		Short: "Sample posteriors for fmp serve --workers",
		Long: `Take sampling jobs of rounds (fmp serve --workers) from the queue on NATS servers, any number of workers on any machine. A job
whose worker is killed goes to another after a few seconds. What a worker makes is byte for byte what the server would make
itself, if both run the same release on the same engine.`,
		Example: `  fmp worker --nats nats://127.0.0.1:4222 --nats-token-file nats.token
  fmp worker --nats tls://n1:4222,tls://n2:4222,tls://n3:4222 --nats-creds fmp.creds --nats-replicas 3`,
		Args: noArgs,
	}
	s := bindSettings(cmd, &cfg, engineAliases, "engine.")
	bindStore(cmd, &o, &tokenFile)
	cmd.Flags().IntVar(&o.Replicas, "nats-replicas", 1, "on how many of the servers the queue is kept, as fmp serve has it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.resolve(); err != nil {
			return err
		}
		if o.URL == "" {
			return usageErrorf("worker: --nats is missing; it is the address that fmp serve has with --nats or --nats-listen")
		}
		if err := checkStore(&o, tokenFile); err != nil {
			return usageError(fmt.Errorf("worker: %w", err))
		}
		eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer eng.Close()
		conn, err := store.Connect(o, "fmp worker")
		if err != nil {
			return missingError(err)
		}
		defer conn.Close()
		w := &work.Worker{Conn: conn, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), Pool: func(ctx context.Context, uploads []pool.Upload, graph, predictor []byte, o pool.Options) (*service.Pooled, error) {
			return poolJob(ctx, eng, uploads, graph, predictor, o, cfg.Engine.Threads)
		}}
		return w.Run(cmd.Context(), o.Replicas)
	}
	return cmd
}

// poolJob pools what a job names, with its predictor in a file of its own.
func poolJob(ctx context.Context, eng engine.Engine, uploads []pool.Upload, graph, predictor []byte, o pool.Options, threads int) (made *service.Pooled, err error) {
	p := &pooling{eng: eng, options: o}
	p.options.Threads = threads
	if p.graph, err = serde.Unmarshal(graph); err != nil {
		return nil, err
	}
	if p.client, err = models.ReadManifest(p.graph); err != nil {
		return nil, err
	}
	p.client.Digest = models.DigestBytes(graph)
	if predictor != nil {
		dir, err := os.MkdirTemp("", "fmp-worker")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		p.options.Predictor = filepath.Join(dir, "predictor.onnx")
		if err := os.WriteFile(p.options.Predictor, predictor, 0o600); err != nil {
			return nil, err
		}
	}
	return p.pool(ctx, uploads)
}
