package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/privacy"
	"fmp/pipeline/tally"
)

// scored is the report of a site on its way out.
type scored struct {
	*scoring
	key    *identity.Key
	server string // its public key, where the report is sent
	log    io.Writer

	digests [][sha256.Size]byte
	labels  []int
	made    *tally.Report
}

// report scores the images and returns the signed report, which it writes where that is asked for.
// Noise is spent before, wherever the report goes then.
func (s *scored) report(ctx context.Context, f *pflag.FlagSet, path string) ([]byte, error) {
	scores, err := s.score(ctx, f, path, s.log, func(ps []classify.Prediction) {
		for i := range ps {
			s.digests, s.labels = append(s.digests, ps[i].Digest), append(s.labels, ps[i].Label)
		}
	})
	if err != nil {
		return nil, err
	}
	if s.made, err = scores.Report(s.least, s.epsilon, s.delta); err != nil {
		return nil, refused("evaluate", err)
	}
	s.made.Round, s.made.Server = s.round, s.server
	if s.epsilon > 0 {
		return s.spent()
	}
	data, err := s.made.Sign(s.key)
	if err == nil && s.output != "" {
		err = put("evaluate", []content{{s.output, data, aReport}})
	}
	return data, err
}

// spent charges a report with noise to the ledger and writes it, unless it was made before: then
// that one is given, as noise that is drawn again over the same counts averages out.
func (s *scored) spent() ([]byte, error) {
	ledger, err := ledgerOf(s.ledger)
	if err != nil {
		return nil, err
	}
	spending, err := privacy.NewCountsSpending(s.epsilon, s.delta, s.made.Classes,
		s.digests, s.labels)
	if err != nil {
		return nil, refused("evaluate", err)
	}
	spending.Time, spending.Client, spending.Round, spending.Graph = time.Now().UTC(), s.key.Name,
		s.round, s.made.Classifier
	earlier, err := ledger.FindAll(spending)
	if err != nil {
		return nil, refused("evaluate", err)
	}
	if kept := keeps(earlier, s.redraw, s.output, tally.MaxBytes); kept != nil {
		return s.again(kept, spending, digestsOf(earlier))
	}
	data, err := s.made.Sign(s.key)
	if err != nil {
		return nil, err
	}
	output, err := filepath.Abs(s.output)
	if err != nil {
		return nil, err
	}
	spending.Files = []privacy.Written{{Path: output, Sha256: models.DigestBytes(data)}}
	p := payment{ledger, spending, s.maxEpsilon, s.redraw, s.log}
	files, err := p.pay("evaluate", []content{{output, data, aReport}}, earlier)
	if err != nil {
		return nil, err
	}
	return data, files.paid(files.place())
}

// again gives the counts of before, for the server of now. They may replace files with digests of mine.
func (s *scored) again(kept *privacy.Spending, asked privacy.Spending, mine []string) ([]byte, error) {
	gone := func() ([]byte, error) {
		return nil, usagef("evaluate: the report with noise about these images was made on %s, and it "+
			"is not there any more as it was (%v): noise that is drawn again spends epsilon %g again; "+
			"bring the file back, or give --redraw", kept.Time.Format(time.RFC3339), kept.Files,
			kept.Budget.Epsilon)
	}
	if len(kept.Files) != 1 {
		return gone()
	}
	paid := paidFor(kept.Files[0], tally.MaxBytes)
	if paid == nil {
		return gone()
	}
	names := s.made.Names
	s.made = &tally.Report{}
	if err := json.Unmarshal(paid, s.made); err != nil {
		return gone()
	}
	givenAgain(s.log, "the report with noise about these images", kept, asked)
	s.made.Server, s.made.Names = s.server, names
	data, err := s.made.Sign(s.key)
	if err != nil {
		return nil, err
	}
	output, err := filepath.Abs(s.output)
	if err != nil {
		return nil, err
	}
	out := data
	if output == kept.Files[0].Path {
		out = paid // the ledger's own stays as the ledger knows it
	}
	return data, put("evaluate", []content{{output, out, aReport}}, append(mine, s.copied(data))...)
}

// copied is the digest of the file in the report's place where it has the report's counts, for any
// server.
func (s *scored) copied(report []byte) string {
	var there tally.Report
	data, err := regularfile.ReadOutput(s.output, tally.MaxBytes)
	if err != nil || json.Unmarshal(data, &there) != nil {
		return ""
	}
	there.Server = s.server
	if again, err := there.Sign(s.key); err != nil || !bytes.Equal(again, report) {
		return ""
	}
	return models.DigestBytes(data)
}

// ledgerOf returns the ledger at a path, or the default one.
func ledgerOf(path string) (l privacy.Ledger, err error) {
	if path == "" {
		path, err = client.DefaultFile("spent.jsonl", "--ledger")
	}
	return privacy.Ledger{Path: path}, err
}
