package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/npy"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
	"fmp/pipeline/settings"
)

// pooledPrivate is what fmp pool prints of a private round.
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

// privatePool is what fmp pool was asked.
type privatePool struct {
	graph             *onnx.Model
	client            models.Manifest
	want              federate.Expect
	options           pool.Options
	engine            settings.Engine
	out, ext          string
	rows, withSamples bool
	skip, asJSON      bool
}

// poolPrivate pools the uploads of a private round.
func poolPrivate(cmd *cobra.Command, args []string, o privatePool) error {
	releases, bad := pool.ReadReleases(args, o.want)
	if len(bad) > 0 && (!o.skip || len(releases) == 0) {
		return usageError(errors.Join(bad...))
	}
	p, err := pool.NewPrivate(releases, o.graph, o.client, o.options)
	if err != nil {
		return usageError(err)
	}
	res := pooledPrivate{Output: o.out, Model: releases[0].Model, Method: "FMP-DP", Classes: p.Client.Classes, Spent: p.Account}
	for _, err := range bad {
		fmt.Fprintln(cmd.ErrOrStderr(), "fmp pool: left out: "+err.Error())
		res.Skipped = append(res.Skipped, err.Error())
	}
	for _, r := range releases {
		res.Clients = append(res.Clients, r.Client)
	}
	eng, err := openEngine(cmd.Context(), o.engine, 1, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer eng.Close()
	totals, err := p.Totals(pool.SumFile(o.out+".sum"), nil)
	if err != nil {
		return usageError(err)
	}
	r, err := p.Posterior(cmd.Context(), eng, totals)
	if err != nil {
		return err
	}
	heads := r.Ensembles[0].Tensor()
	res.Shape, res.Counts = heads.Shape, totals.Counts
	if o.ext == ".npy" {
		err = npy.Save(o.out, heads)
	} else {
		var m *onnx.Model
		if m, err = p.Classifier(cmd.Context(), r, o.rows, o.withSamples, "fmp "+strings.Join(os.Args[1:], " ")); err != nil {
			return usageError(err)
		}
		var data []byte
		if data, err = serde.Marshal(m); err != nil {
			return err
		}
		res.Bytes = len(data)
		err = serde.Save(o.out, m)
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), res)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "classifier: %s (%d heads on %d numbers)\nfrom:       %d uploads of a private round\nspent:      %v (noise of %.3g times the sensitivity, %d times in the sum)\n",
		o.out, res.Shape[0], res.Shape[1]-1, len(res.Clients), p.Account.Budget, p.Account.Sigma, p.Account.Releases)
	return err
}
