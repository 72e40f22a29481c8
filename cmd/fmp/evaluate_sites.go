package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/tally"
	sites "fmp/pipeline/tally/pooled"
)

// maxPooled is the maximum size of a pooled report: 64 MiB, of ten thousand sites.
const maxPooled = 64 << 20

// siteFlags are the flags of fmp evaluate for the reports of sites.
type siteFlags struct {
	reports        []string
	roster, pooled string
}

func (f *siteFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.reports, "pool", nil,
		"`REPORT` of a site (fmp-edge evaluate), to be pooled with others (repeatable)")
	cmd.Flags().StringVar(&f.roster, "roster", "",
		"`FILE` of the clients that may have signed the reports of --pool")
	cmd.Flags().StringVar(&f.pooled, "pooled", "",
		"`FILE` of the report that fmp serve pooled (/v1/rounds/N/evaluation)")
}

func (f *siteFlags) given() bool { return len(f.reports) > 0 || f.pooled != "" }

// pool reads the reports of sites about a classifier; nil if the flags name none.
func (f *siteFlags) pool(of *evaluate.Result) (*sites.Result, error) {
	switch {
	case len(f.reports) > 0 && f.pooled != "":
		return nil, errors.New("--pool and --pooled both say how the sites scored: give one")
	case (len(f.reports) > 0) != (f.roster != ""):
		return nil,
			errors.New("--pool REPORT and --roster FILE go together: the clients of the roster " +
				"signed the reports")
	case f.pooled != "":
		return f.read(of)
	case len(f.reports) == 0:
		return nil, nil
	}
	roster, err := identity.LoadRoster(f.roster)
	if err != nil {
		return nil, err
	}
	var reports []*tally.Report
	for _, path := range f.reports {
		data, err := regularfile.ReadFile(path, tally.MaxBytes)
		if err != nil {
			return nil, fmt.Errorf("reading report: %w", err)
		}
		r, err := tally.Read(data, roster)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		reports = append(reports, r)
	}
	origin, err := models.ReadOrigin(of.Manifest)
	if err != nil {
		return nil, err
	}
	about := sites.Of{Classifier: of.Model, Classes: of.Manifest.C}
	if origin.Sets != nil {
		about.Level = origin.Sets.Level
	}
	r, err := sites.Pool(about, reports)
	if err != nil {
		return nil, err
	}
	return r, isFor(of, r)
}

// read reads a pooled report.
func (f *siteFlags) read(of *evaluate.Result) (*sites.Result, error) {
	data, err := regularfile.ReadFile(f.pooled, maxPooled)
	if err != nil {
		return nil, fmt.Errorf("reading report: %w", err)
	}
	r := &sites.Result{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("%s is no pooled report of fmp serve: %w", f.pooled, err)
	}
	return r, isFor(of, r)
}

// isFor returns an error if a pooled report is of another classifier, or none of its reports give
// it.
func isFor(of *evaluate.Result, r *sites.Result) error {
	if r.Classifier != of.Model {
		return fmt.Errorf("the sites scored classifier %.64s, and this one is %s",
			r.Classifier, of.Model)
	}
	return r.Check(of.Manifest.C)
}
