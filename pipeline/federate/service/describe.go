package service

import (
	"bytes"
	"net/http"
	"time"

	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// It is made anew for each request, as the state of the round depends on the clock.
// Slices are shared with the round and written to by nobody.
func (s *Server) description() wire.Description {
	f := s.Round
	now := s.Now()
	state := s.state(now)
	d := wire.Description{
		Round: f.Round, Title: f.Title, State: state, Now: now.UTC(), Deadline: f.Deadline.UTC(),
		AcceptLate: f.AcceptLate && state != wire.Closed, Graph: f.Client.Digest,
		GraphBytes: int64(len(f.GraphData)), GraphSignature: f.GraphSignature,
		Classes: f.Client.Classes, MaxPoints: f.Bounds.Points, MaxBytes: f.Bounds.Bytes,
		Calibrate: f.Calibrate, Replace: f.Replace,
		Withdrawal: !s.once(), Honesty: f.Privacy == nil && !f.Trust, Privacy: f.Privacy,
		Server: s.role(), ServerKey: s.Key.PublicText(),
	}
	for _, p := range f.Precisions {
		d.Precisions = append(d.Precisions, string(p))
	}
	return d
}

// once reports whether the round ends with its first classifier, as it does if servers add the
// noise: a second one, from other uploads, would spend the budget again.
// It does not change while the server runs.
func (s *Server) once() bool {
	return s.Round.Privacy != nil && s.Round.Privacy.Noise != privacy.Local
}

// state returns the state of the round at a time.
// The caller must not hold mu.
func (s *Server) state(now time.Time) string {
	if s.once() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.versions) > 0 || s.settled {
			return wire.Closed
		}
	}
	return s.Round.Now(now)
}

// rounds lists the server's only round.
func (s *Server) rounds(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string][]wire.Description{"rounds": {s.description()}})
}

// describe answers with the description of the round. It is for everybody, as clients read it
// first.
func (s *Server) describe(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, s.description())
}

// graph serves the client graph, whole or in ranges; its ETag is its digest.
// Clients need no token for it, as they cannot sign before they know the round.
func (s *Server) graph(w http.ResponseWriter, r *http.Request) {
	serveModel(w, r, s.Round.Client.Digest, s.Round.GraphData)
}

// serveModel serves an ONNX file, which is immutable under its digest.
// ServeContent answers ranges and If-None-Match by the ETag (RFC 9110). no-cache has a cache ask
// again, which then costs 304 and no bytes.
func serveModel(w http.ResponseWriter, r *http.Request, digest string, data []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+digest+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}
