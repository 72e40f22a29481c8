package main

import (
	"context"
	"encoding/json"
	"errors"

	"fmp/featurize/imagefile"
	"fmp/pipeline/client"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/tally"
)

// signedRequest is the path and the headers of a signed request, which the page sends. The
// signature is in the headers, so that the page needs no key.
type signedRequest struct {
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
}

// ask returns the request for the key's own receipt: the server refuses it where it does not know
// the key. The page sends it, as the network is the page's.
func (s *session) ask(*request) (any, []byte, error) {
	return signedRequest{wire.ReceiptPath(s.round.Round, s.key.Name),
		map[string]string{"Authorization": wire.Authorization(s.round.Ask(s.key))}}, nil, nil
}

// withdraw returns the request that withdraws the upload. It cannot be taken back once the page has
// sent it.
func (s *session) withdraw(*request) (any, []byte, error) {
	return signedRequest{wire.UploadPath(s.round.Round, s.key.Name),
		s.round.Withdraw(s.key)}, nil, nil
}

// withdrawn verifies the reply to a withdrawal, and returns the receipt in lines and its file.
// Receipts of other clients and other servers are refused.
func (s *session) withdrawn(q *request) (any, []byte, error) {
	w := &wire.Withdrawal{}
	if err := wire.Unmarshal(q.data, w); err != nil {
		return nil, nil, err
	}
	if err := s.round.Gone(w, s.key.Name); err != nil {
		return nil, nil, err
	}
	file, err := json.MarshalIndent(w, "", "  ")
	return map[string]any{"text": wire.Printed(w)}, append(file, '\n'), err
}

// evaluate scores the classifier on labelled photographs, and returns the signed counts. It also
// returns the files left out and the number of copies, which count once. Where there is a round,
// the request that sends the counts is there too. An image that cannot be read is an error, as the
// counts would not be of all images.
// Counts are told from tally.Least on, without noise.
func (s *session) evaluate(q *request, p struct{ Paths []string }) (any, []byte, error) {
	if s.key == nil || s.classifier == nil {
		return nil, nil, errors.New("a key and a classifier are needed")
	}
	f := s.classifier.Manifest
	src, others, err := imagefile.OpenFiles(p.Paths, q.read,
		imagefile.Options{Fit: s.classifier.Fit, MaxItems: client.MaxItems,
			Classes: imagefile.Classes{Names: f.Classes, N: f.C}})
	if err != nil {
		return nil, nil, err
	}
	scores, err := s.classifier.Scores()
	if err != nil {
		return nil, nil, err
	}
	bad, err := s.classifier.Images(context.Background(), &counted{Source: src, tell: q.progress},
		false, scores.Add)
	if err := errors.Join(append(bad, err)...); err != nil {
		return nil, nil, err
	}
	r, err := scores.Report(tally.Least, 0, 0)
	if err != nil {
		return nil, nil, err
	}
	if s.round != nil {
		r.Round, r.Server = s.round.Round, s.round.ServerKey
	}
	data, err := r.Sign(s.key)
	if err != nil {
		return nil, nil, err
	}
	out := struct {
		signedRequest
		Report *tally.Report     `json:"report"`
		Others imagefile.LeftOut `json:"others"`
		Copies int               `json:"copies"` // of other images of their class
	}{Report: r, Others: others, Copies: *scores.Copies}
	if s.round != nil {
		out.signedRequest = signedRequest{wire.EvaluationPath(s.round.Round, s.key.Name),
			s.round.Report(s.key, data)}
	}
	return out, data, nil
}
