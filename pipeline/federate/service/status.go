package service

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
)

// maxListed bounds the clients that a status lists of each kind.
const maxListed = 1000

// Status is who is in, who is missing, and what was refused and why.
type Status struct {
	wire.Description
	Clients int `json:"clients"`
	In      int `json:"in"`
	Quorum  int `json:"quorum"`
	// Members, Missing and Refused list at most 1,000 clients each, in the order of their names; those least honest first.
	Members []MemberStatus  `json:"members"`
	Missing []string        `json:"missing"`
	Refused []store.Refusal `json:"refused"`
	// Versions of the classifier, the last last; Failure says why there is no newer one, where pooling failed.
	Versions []store.Version `json:"versions"`
	Failure  string          `json:"failure,omitempty"`
}

// MemberStatus is a client whose upload is in.
type MemberStatus struct {
	Client string    `json:"client"`
	Time   time.Time `json:"time"`
	N      int       `json:"n"`
	Upload string    `json:"upload"`
	// Honest is the probability of the last version; null where the upload is not in it.
	Honest *float64 `json:"p_honest"`
}

// Status reads the round's.
func (s *Server) Status() Status {
	st := Status{Description: s.description(), Clients: s.clients.Load().Len(), Quorum: s.quorum(), Members: []MemberStatus{}, Missing: []string{}, Refused: []store.Refusal{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.In, st.Versions, st.Failure = len(s.in), slices.Clone(s.versions), s.failure
	for client, h := range s.in {
		m := MemberStatus{Client: client, Time: h.time, N: h.n, Upload: h.upload}
		if s.pooled[client] == h.upload {
			p := s.honest[client]
			m.Honest = &p
		}
		st.Members = append(st.Members, m)
	}
	honest := func(m MemberStatus) float64 {
		if m.Honest == nil {
			return 2
		}
		return *m.Honest
	}
	// Those above one half are told apart by their names alone.
	slices.SortFunc(st.Members, func(a, b MemberStatus) int {
		return cmp.Or(cmp.Compare(min(honest(a), 0.5), min(honest(b), 0.5)), cmp.Compare(a.Client, b.Client))
	})
	st.Members = st.Members[:min(len(st.Members), maxListed)]
	for _, name := range s.clients.Load().Names() {
		if _, ok := s.in[name]; !ok && len(st.Missing) < maxListed {
			st.Missing = append(st.Missing, name)
		}
	}
	for _, r := range s.refused {
		st.Refused = append(st.Refused, r)
	}
	slices.SortFunc(st.Refused, func(a, b store.Refusal) int { return cmp.Compare(a.Client, b.Client) })
	st.Refused = st.Refused[:min(len(st.Refused), maxListed)]
	return st
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	if s.isRound(w, r) {
		reply(w, http.StatusOK, s.Status())
	}
}
