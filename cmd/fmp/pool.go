package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/npy"
	"fmp/pipeline/experiment"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
)

// maxUploads bounds the clients of one pool.
const maxUploads = 10_000

// pooled is what fmp pool prints.
type pooled struct {
	Posterior string   `json:"posterior"`
	Shape     []int    `json:"shape"` // samples, dx+1 (bias last), classes
	Clients   []string `json:"clients"`
	Model     string   `json:"model"` // sha256 of the client graph behind the uploads
	Points    int      `json:"points"`
	N         int      `json:"n"` // real points behind them
}

func newPoolCommand() *cobra.Command {
	var predictor, client, out string
	var round uint64
	var asJSON bool
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "pool UPLOAD...",
		Short: "Turn the uploads of clients into samples of the posterior",
		Long: `Read the uploads that fmp-edge wrote, check each, pool their points, draw unseen points with the predictor,
and fit a head to each draw: the server's side of the federated martingale posterior.

All uploads must come from one client graph (--client-graph says which), of one round, and from clients of
different names. The heads are written as .npy, float64, [samples, dx+1, classes], the bias row last; a
prediction is the mean of softmax([features, 1] head) over the samples.`,
		Example: `  fmp pool *.upload --predictor predictor.onnx --client-graph client.onnx -o posterior.npy
  fmp pool a.upload b.upload --predictor predictor.onnx --set posterior.samples=50 -o posterior.npy`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > maxUploads {
				return usageErrorf("pool wants 1 to %d uploads and was given %d; fmp pool --help shows how to use it", maxUploads, len(args))
			}
			return nil
		},
	}
	s := bindSettingsUnder(cmd, "engine.", &cfg, map[string]string{"threads": "engine.threads", "provider": "engine.provider", "library": "engine.library"})
	flags := cmd.Flags()
	flags.StringVar(&predictor, "predictor", "", "predictor `MODEL`, as fmp train predictor writes it")
	flags.StringVar(&client, "client-graph", "", "client `GRAPH` that must have made the uploads")
	flags.Uint64Var(&round, "round", 0, "round that must be that of the uploads (default: the first upload's)")
	flags.StringVarP(&out, "output", "o", "posterior.npy", "`FILE` to write")
	flags.BoolVar(&asJSON, "json", false, "print what was made as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.resolve(); err != nil {
			return err
		}
		if predictor == "" {
			return usageErrorf("pool: --predictor is missing; fmp train predictor writes one")
		}
		m, pm, err := models.Load(predictor)
		if err != nil {
			return usageError(err)
		}
		want := federate.Expect{Dx: pm.Dx, C: pm.C}
		if client != "" {
			_, f, err := models.Load(client)
			if err != nil {
				return usageError(err)
			}
			if err := models.Match(f, pm); err != nil {
				return usageError(err)
			}
			want.Model = f.Digest
		}
		if flags.Changed("round") {
			want.Round = &round
		}
		uploads, err := readUploads(args, want)
		if err != nil {
			return usageError(err)
		}
		eng, err := openEngine(cfg.Engine, 1, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer eng.Close()
		drawer, err := sample.New(eng, m)
		if err != nil {
			return usageError(err)
		}
		defer drawer.Close()
		res := pooled{Posterior: out, Model: uploads[0].Model}
		var sets []*point.Set
		for _, u := range uploads {
			sets = append(sets, u.ToSet())
			res.Clients = append(res.Clients, u.Client)
			res.Points, res.N = res.Points+u.Points.N, res.N+u.N
		}
		// The clients' own points stay with the clients: the method that runs here reads their uploads alone.
		task, err := posterior.NewTask(posterior.Input{
			Clients: sets, Uploads: sets, Drawer: drawer, Samples: cfg.Posterior.Samples, Fresh: cfg.Predictor.Fresh, Seed: cfg.Seed, Stream: "pool", Threads: cfg.Engine.Threads,
		})
		if err != nil {
			return usageError(err)
		}
		method, err := posterior.Lookup("FMP")
		if err != nil {
			return err
		}
		settings := posterior.DefaultSettings()
		settings.L2, settings.Tolerance = cfg.ERM.L2, cfg.ERM.Tolerance
		r, err := method.Run(cmd.Context(), task, settings)
		if err != nil {
			return err
		}
		var heads []float64
		for _, theta := range r.Ensembles[0] {
			heads = append(heads, theta.W...)
		}
		res.Shape = []int{len(r.Ensembles[0]), sets[0].Dx + 1, sets[0].C}
		if err := npy.Save(out, onnx.NewTensor(heads, res.Shape...)); err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), res)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "posterior: %s (%d samples of %d x %d)\nfrom:      %d uploads, %d points for n = %d\n", out, res.Shape[0], res.Shape[1], res.Shape[2], len(uploads), res.Points, res.N)
		return err
	}
	return cmd
}

// readUploads reads and checks the uploads of one round, each of another client, all made by one model.
func readUploads(paths []string, want federate.Expect) ([]*federate.Upload, error) {
	from := map[string]string{}
	var out []*federate.Upload
	for _, path := range paths {
		u, err := readUpload(path, want)
		if err != nil {
			return nil, err
		}
		if other, ok := from[u.Client]; ok {
			return nil, fmt.Errorf("%s and %s are both of client %q; pool one upload of each", other, path, u.Client)
		}
		from[u.Client] = path
		// What the caller did not say, the first upload says.
		want.Model, want.Round = u.Model, &u.Round
		want.Dx, want.C = u.Points.Dx, u.Points.C
		out = append(out, u)
	}
	return out, nil
}

// readUpload reads and checks one upload.
func readUpload(path string, want federate.Expect) (*federate.Upload, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading upload: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, federate.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading upload %s: %w", path, err)
	}
	u, err := federate.Decode(data, want)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return u, nil
}
