package service

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
)

func (s *Server) listVersions(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	versions := s.listed()
	s.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{"versions": versions})
}

// find returns the version that a request names, by default the latest. If there is none, it
// refuses the request.
func (s *Server) find(w http.ResponseWriter, name string) (VersionStatus, bool) {
	s.mu.Lock()
	versions, why := s.listed(), s.short()
	s.mu.Unlock()
	if len(versions) == 0 {
		if why == "" {
			why = fmt.Sprintf("it is made at %d uploads, or at the deadline", s.quorum)
		}
		s.refuse(w, wire.NotYet, "round %d has no classifier yet: %s", s.Round.Round, why)
		return VersionStatus{}, false
	}
	if name == "" {
		return versions[len(versions)-1], true
	}
	for _, v := range versions {
		if strconv.Itoa(v.Number) == name {
			return v, true
		}
	}
	s.refuse(w, wire.NoVersion, "version %.20q; there are 1 to %d", name,
		versions[len(versions)-1].Number)
	return VersionStatus{}, false
}

// withheld refuses a request for the file of a version that holds an upload that was withdrawn, and
// reports whether it did. The one that takes the place of the last is made at once.
func (s *Server) withheld(w http.ResponseWriter, v VersionStatus, named bool) bool {
	sup := v.Superseded
	switch {
	case sup == nil || sup.Reason != withdrawn:
		return false
	case named && sup.By > 0:
		s.refuse(w, wire.Superseded,
			"version %d holds an upload that was withdrawn and is deleted; version %d takes its place",
			v.Number, sup.By)
	case named:
		s.refuse(w, wire.Superseded,
			"version %d holds an upload that was withdrawn; no version has taken its place yet",
			v.Number)
	case s.enough():
		s.refuse(w, wire.Unavailable,
			"version %d holds an upload that was withdrawn; the next is being made without it",
			v.Number)
	default:
		s.refuse(w, wire.NotYet, "version %d holds an upload that was withdrawn, and a classifier "+
			"takes min_uploads, %d: fewer are left", v.Number, s.Round.MinUploads)
	}
	return true
}

// version serves a version's record with the uploads in it.
func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	v, ok := s.find(w, r.PathValue("version"))
	if !ok {
		return
	}
	members, err := s.Store.Members(r.Context(), v.Number)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply(w, http.StatusOK, struct {
		VersionStatus
		Members []store.Member `json:"members"`
	}{v, members})
}

// asked returns the version of a request for the latest one, or for ?version=N. If there is none, or it is
// withheld, it refuses the request.
func (s *Server) asked(w http.ResponseWriter, r *http.Request) (v VersionStatus, ok bool) {
	name := ""
	if given := r.URL.Query()["version"]; len(given) > 0 {
		if len(given) > 1 || given[0] == "" {
			s.refuse(w, wire.BadRequest,
				"version is given %d times or is empty; want one number, or leave it out for the latest",
				len(given))
			return v, false
		}
		name = given[0]
	}
	v, ok = s.find(w, name)
	return v, ok && !s.withheld(w, v, name != "")
}

// classifier serves the classifier file of the latest version, or of ?version=N.
func (s *Server) classifier(w http.ResponseWriter, r *http.Request) {
	v, ok := s.asked(w, r)
	if !ok {
		return
	}
	s.predictions.mu.Lock()
	now := s.predictions.latest
	s.predictions.mu.Unlock()
	held := lease{in: s.files, of: caller(r)} // until its reader has it
	defer held.release()
	var data []byte
	var err error
	if now != nil && now.version.Number == v.Number {
		data = now.data
	} else if err = held.take(r.Context(), min(int64(v.Bytes), maxFiles/2)); err != nil { // one of any size
		s.unread(w, err)
		return
	} else if data, err = s.Store.File(r.Context(), v.Number); err != nil {
		if errors.Is(err, store.ErrNone) {
			err = fmt.Errorf("version %d is listed and its file is not there: %w", v.Number, err)
		}
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Disposition",
		fmt.Sprintf(`attachment; filename="classifier-%d-%d.onnx"`, s.Round.Round, v.Number))
	serveModel(w, r, v.Digest, data)
}
