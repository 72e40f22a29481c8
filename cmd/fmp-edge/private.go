package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"fmp/featurize/imagefile"
	"fmp/onnx/atomicfile"
	"fmp/pipeline/federate"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// released is what compress prints of a private round: no number of images, which nobody outside is to know.
type released struct {
	Upload string `json:"upload"`
	Bytes  int    `json:"bytes"`
	// HelperUpload is the helper's share, of a round with two servers, of which Upload is then the leader's.
	HelperUpload string         `json:"helper_upload,omitempty"`
	HelperBytes  int            `json:"helper_bytes,omitempty"`
	Client       string         `json:"client"`
	Round        uint64         `json:"round"`
	Model        string         `json:"model"`
	Classes      int            `json:"classes"`
	Coordinates  int            `json:"coordinates"`
	Budget       privacy.Budget `json:"budget"`
	// Noise is the standard deviation, in steps, of what this client added; 0 where servers add it.
	Noise uint64 `json:"noise_steps"`
}

// budgetNames are the names of the flags of a private round.
var budgetNames = []string{"epsilon", "delta", "unit", "relation", "noise", "points"}

// budgetFlags are those of a private round.
func budgetFlags(f *pflag.FlagSet) *privacy.Budget {
	b := &privacy.Budget{}
	f.Float64Var(&b.Epsilon, "epsilon", 0, "epsilon of a private round; a client graph of one (fmp fuse --upload private) wants it")
	f.Float64Var(&b.Delta, "delta", privacy.DefaultDelta, "delta of a private round")
	f.StringVar(&b.Unit, "unit", privacy.Example, "what a private round protects: example or client")
	f.StringVar(&b.Relation, "relation", privacy.AddRemove, "neighbours of a private round: add-remove or replace-one")
	f.StringVar(&b.Noise, "noise", privacy.Local, "who adds the noise of a private round: local (this client), trusted (the server, which then sees the sums) or two-servers (each adds its own; writes a share for each)")
	f.IntVar(&b.Points, "points", 0, "most images of one client of a private round, where a client is the unit or there are two servers")
	return b
}

// release makes a message of a private round and writes it.
func (c *client) writeRelease(ctx context.Context, src imagefile.Source, skip bool, b privacy.Budget, w released, stdout, log io.Writer, asJSON bool) error {
	if err := b.Check(); err != nil {
		return &usageError{fmt.Errorf("compress: %w", err)}
	}
	sums, n, bad, err := c.release(ctx, src, skip)
	if err != nil {
		return refused("compress", err)
	}
	for _, err := range bad {
		fmt.Fprintf(log, "fmp-edge: left out: %v\n", err)
	}
	if b.Points > 0 && n > b.Points {
		return usagef("compress: %d images; the round allows %d of a client: give fewer", n, b.Points)
	}
	f := c.manifest
	if b.Unit == privacy.Client {
		sums.Clip(b.ClientNorm(f.C))
	}
	if b.Noise == privacy.Local {
		w.Noise = b.NoiseSteps(f.C)
		if err := sums.AddNoise(w.Noise, rand.Reader); err != nil {
			return err
		}
	}
	out := []*federate.Release{{Round: w.Round, Client: w.Client, Model: f.Digest, Budget: b, Sums: sums}}
	if b.Noise == privacy.TwoServers {
		if out, err = out[0].Split(rand.Reader); err != nil {
			return err
		}
		w.HelperUpload = helperFile(w.Upload)
	}
	messages := make([][]byte, len(out))
	for i, r := range out {
		if messages[i], err = r.Encode(); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.HelperUpload != "" { // the leader's is there last, so that where it is both are
		w.HelperBytes = len(messages[prio.Helper])
		if err := atomicfile.WriteBytes(w.HelperUpload, messages[prio.Helper]); err != nil {
			return err
		}
	}
	data := messages[0]
	if err := atomicfile.WriteBytes(w.Upload, data); err != nil {
		return err
	}
	w.Bytes, w.Model, w.Classes, w.Coordinates, w.Budget = len(data), f.Digest, f.C, f.K, b
	if asJSON {
		return printJSON(stdout, w)
	}
	if w.HelperUpload != "" {
		if _, err := fmt.Fprintf(stdout, "for the helper: %s (%d bytes)\n", w.HelperUpload, w.HelperBytes); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "private upload: %s (%d bytes; %d classes of %d coordinates)\nspent:          %v\n", w.Upload, w.Bytes, w.Classes, w.Coordinates, b)
	return err
}

// helperFile is where the helper's share stands beside the leader's.
func helperFile(upload string) string { return upload + ".helper" }
