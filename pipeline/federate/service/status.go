package service

import (
	"cmp"
	"net/http"
	"time"

	"fmp/onnx/sorting"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
)

// maxListed is the maximum number of clients in each list of a status.
const maxListed = 1000

// Status is the status of a round: whose uploads are in, whose are missing, and the refused uploads
// with the reason.
type Status struct {
	wire.Description
	// Clients is the size of the roster, In the number of uploads that are in, and Quorum the
	// number for the first classifier.
	Clients int `json:"clients"`
	In      int `json:"in"`
	Quorum  int `json:"quorum"`
	// Members, Missing and Refused list at most 1,000 clients each, sorted by name; Members lists
	// the least honest first.
	Members []MemberStatus  `json:"members"`
	Missing []string        `json:"missing"`
	Refused []store.Refusal `json:"refused"`
	// Withdrawn are the clients that withdrew, at most 1,000, sorted by name.
	Withdrawn []WithdrawnStatus `json:"withdrawn"`
	// Unerased says that bytes of withdrawn or replaced uploads are still to be erased from the
	// state, or withdrawals to be recorded, for want of space, of an answer of the store, or of the
	// record's file.
	Unerased bool `json:"unerased,omitempty"`
	// Versions are the versions of the classifier, the latest last; Failure says why there is no
	// newer one, if pooling failed or too few uploads were in at the deadline.
	Versions []VersionStatus `json:"versions"`
	Failure  string          `json:"failure,omitempty"`
	// Unserved says why the latest version makes no predictions; those of an earlier one, if any
	// did, go on.
	Unserved string `json:"unserved,omitempty"`
}

// MemberStatus is a client whose upload is in.
// It has nothing of the upload's content.
type MemberStatus struct {
	// Client sent the upload with digest Upload, for N real points, at Time.
	Client string    `json:"client"`
	Time   time.Time `json:"time"`
	N      int       `json:"n"`
	Upload string    `json:"upload"`
	// Honest is the probability of honesty in the latest version; null if the upload is not in it.
	Honest *float64 `json:"p_honest"`
	// Counted is how many of the N images count in that version if the client is honest; null if
	// that was not judged.
	Counted *float64 `json:"counted"`
}

// Status returns the current status of the round.
// It costs O(n log n) for n clients, under mu. Lists are sorted before they are cut, so that they
// are of the first names.
func (s *Server) Status() Status {
	st := Status{Description: s.description(), Clients: s.clients.Load().Len(), Quorum: s.quorum,
		Members: []MemberStatus{},
		Missing: []string{}, Refused: []store.Refusal{}, Withdrawn: []WithdrawnStatus{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.In, st.Versions, st.Failure = len(s.in), s.listed(), cmp.Or(s.failure, s.short())
	st.Unserved, st.Unerased = s.unserved, s.owes()
	for client, h := range s.in {
		m := MemberStatus{Client: client, Time: h.time, N: h.n, Upload: h.upload}
		if p, ok := s.weighed[client]; ok && p.Upload == h.upload {
			m.Honest, m.Counted = &p.Honest, p.Counted
		}
		st.Members = append(st.Members, m)
	}
	honest := func(m MemberStatus) float64 {
		if m.Honest == nil {
			return 2
		}
		return *m.Honest
	}
	// Those above one half are sorted by name alone.
	sorting.By(st.Members, func(a, b MemberStatus) int {
		return cmp.Or(cmp.Compare(min(honest(a), 0.5), min(honest(b), 0.5)),
			cmp.Compare(a.Client, b.Client))
	})
	st.Members = st.Members[:min(len(st.Members), maxListed)]
	for _, name := range s.clients.Load().Names() {
		if _, ok := s.in[name]; !ok && s.gone[name] == nil && len(st.Missing) < maxListed {
			st.Missing = append(st.Missing, name)
		}
	}
	for client, r := range s.gone {
		st.Withdrawn = append(st.Withdrawn, WithdrawnStatus{client, r.Gone.Time, r.Gone.By})
	}
	sorting.By(st.Withdrawn,
		func(a, b WithdrawnStatus) int { return cmp.Compare(a.Client, b.Client) })
	st.Withdrawn = st.Withdrawn[:min(len(st.Withdrawn), maxListed)]
	for _, r := range s.refused {
		st.Refused = append(st.Refused, r)
	}
	sorting.By(st.Refused, func(a, b store.Refusal) int { return cmp.Compare(a.Client, b.Client) })
	st.Refused = st.Refused[:min(len(st.Refused), maxListed)]
	return st
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, s.Status())
}
