package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/store"
)

// quorumObject is the name of the object in the store that holds the quorum.
const quorumObject = "quorum"

// fixed is the quorum of a round as it is stored: from the round file, or else the size of the
// roster when the round opened.
type fixed struct {
	Quorum int  `json:"quorum"`
	Stated bool `json:"stated"`
}

// fixQuorum reads the quorum that was recorded when the round opened, and records it where none was
// or the round file states another, for which the roster must have clients. A roster that changes
// afterwards does not change it.
// Where the file once stated one, that of the file as it is takes its place. A quorum that was
// never stated stays the size of the roster at the opening.
func (s *Server) fixQuorum(ctx context.Context) error {
	next := fixed{cmp.Or(s.Round.Quorum, s.clients.Load().Len()), s.Round.Quorum != 0}
	unfit := s.Round.CheckRoster(s.clients.Load())
	var was fixed
	err := s.readObject(ctx, quorumObject, 1<<10, &was)
	switch {
	case errors.Is(err, store.ErrNone):
	case err != nil:
		return err
	case !was.Stated && !next.Stated, was == next:
		s.quorum = was.Quorum
		s.warnRoster(unfit)
		return nil
	default:
		s.Log.Warn("the round file states another quorum than when the round opened", "quorum",
			next.Quorum, "was", was.Quorum)
		if next.Quorum <= s.clients.Load().Len() && errors.Is(unfit, round.ErrRoster) {
			s.warnRoster(unfit)
			unfit = nil
		}
	}
	if unfit != nil {
		return unfit
	}
	s.quorum = next.Quorum
	return s.keepObject(ctx, quorumObject, next)
}

// warnRoster says that the roster of an open round no longer fits the round file, which keeps
// nobody on it.
func (s *Server) warnRoster(unfit error) {
	if unfit != nil {
		s.Log.Warn("the roster is taken, and the round file asks for clients that it lacks",
			"error", unfit)
	}
}

// answered reports whether every client of a round without a stated quorum has sent something: an
// upload that is in, or one that was refused. A client whose upload is refused so keeps nobody
// waiting until the deadline, and is in the next version once it sends a good one. A round of one
// classifier has no next version: it waits. The caller holds mu.
func (s *Server) answered() bool {
	n := len(s.in) + len(s.gone)
	if s.once() || s.Round.Quorum != 0 || len(s.in) < s.Round.MinUploads {
		return false
	}
	for client := range s.refused {
		if _, in := s.in[client]; !in {
			n++
		}
	}
	return n >= s.quorum
}

// faultBurst is the number of refused uploads of one client at once, faultEvery the interval at
// which one more is read after these.
const faultBurst, faultEvery = 16, time.Second

// fault counts a refused upload of a client. The caller holds mu.
func (s *Server) fault(client string) {
	if s.faults[client] == nil {
		s.faults[client] = rate.NewLimiter(rate.Every(faultEvery), faultBurst)
	}
	s.faults[client].Allow()
}

// patient reports whether another upload of a client is read.
func (s *Server) patient(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.faults[client]
	return l == nil || l.Tokens() >= 1
}
