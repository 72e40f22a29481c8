package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"fmp/onnx/printable"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

// pooledPrivate is the output of fmp pool for a private round.
type pooledPrivate struct {
	Output  string          `json:"output"`
	Bytes   int             `json:"bytes,omitempty"`
	Shape   []int           `json:"shape"`
	Classes []string        `json:"classes,omitempty"`
	Clients []string        `json:"clients"`
	Skipped []string        `json:"skipped,omitempty"`
	Model   string          `json:"model"`
	Method  string          `json:"method"`
	Spent   privacy.Account `json:"spent"`
	// Counts are the noisy numbers of images of the classes.
	Counts []float64 `json:"counts"`
}

// private pools the uploads of a private round.
func (o *poolRun) private(cmd *cobra.Command, args []string) error {
	o.bar = newLateProgress(cmd.ErrOrStderr())
	releases, bad := pool.ReadReleases(args, o.want, o.bar.report)
	o.bar.close()
	if len(bad) > 0 && (!o.skip || len(releases) == 0) {
		return usageError(printable.Errors(bad))
	}
	p, err := pool.NewPrivate(releases, o.graph, o.manifest, o.settings.Options)
	if err != nil {
		return usageError(err)
	}
	res := pooledPrivate{Output: o.out, Model: releases[0].Model, Method: "FMP-DP",
		Classes: p.Client.Classes}
	res.Skipped = leftOut(cmd, bad)
	for _, r := range releases {
		res.Clients = append(res.Clients, r.Client)
	}
	eng, err := openEngine(cmd.Context(), o.settings.Engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	var keeper pool.SumFile
	if p.Account.Noise != privacy.Local {
		if keeper, err = pool.NewSumFile(o.out + ".sum"); err != nil {
			return usageError(err)
		}
	} else if o.redraw {
		return usageErrorf("--redraw is of noise that the server adds, and these clients add their own: leave " +
			"it out")
	}
	keeper.Redraw = o.redraw
	totals, err := p.Totals(keeper, nil)
	if err != nil {
		return usageError(err)
	}
	r, err := p.Posterior(cmd.Context(), eng, totals)
	if err != nil {
		return err
	}
	res.Shape, res.Counts, res.Spent = r.Ensembles[0].Shape(), totals.Counts, p.Account
	if _, res.Bytes, err = o.save(cmd.Context(), p, r); err != nil {
		return err
	}
	again := ""
	if n := p.Account.Draws; n > 0 {
		again = fmt.Sprintf("; drawn %d times for one upload", n)
	}
	return say(cmd, res, "classifier: %s (%d heads on %d numbers)\nfrom:       "+
		"%d uploads of a private round\nspent:      %v (noise of %.3g times the sensitivity, %d times "+
		"in the sum%s)\n", o.out, res.Shape[0], res.Shape[1]-1, len(res.Clients), p.Account.Budget,
		p.Account.Sigma, p.Account.Releases, again)
}
