package service

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
)

// listVersions answers with all versions, those that are superseded among them, the latest last.
// No one is withheld here: a list tells which versions hold a withdrawn upload, and serves no
// file.
func (s *Server) listVersions(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	versions := s.listed()
	s.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{"versions": versions})
}

// find returns the version that a request names, by default the latest.
// Numbers are compared as text, so that 01 and +1 name no version.
// While there is no version, the refusal says when one is made.
// An error is a refusal with a code of package wire: NotYet may be asked again, NoVersion not.
func (s *Server) find(name string) (v VersionStatus, err error) {
	s.mu.Lock()
	versions, why := s.listed(), s.short()
	s.mu.Unlock()
	if len(versions) == 0 {
		if why == "" {
			why = fmt.Sprintf("it is made at %d uploads, or at the deadline", s.quorum)
		}
		return v, refusef(wire.NotYet, "round %d has no classifier yet: %s", s.Round.Round, why)
	}
	if name == "" {
		return versions[len(versions)-1], nil
	}
	for _, v := range versions {
		if strconv.Itoa(v.Number) == name {
			return v, nil
		}
	}
	return v, refusef(wire.NoVersion, "version %.20q is none of this round's; the latest is %d", name,
		versions[len(versions)-1].Number)
}

// withheld is the refusal of a request for the file of a version that holds an upload that was
// withdrawn, nil of others. The one that takes the place of the last is made at once.
// A request that names the version is told which one takes its place, if one does.
// A request for the latest is told to wait, or that fewer than min_uploads are left.
// Unavailable has a client ask again soon, and Superseded has it drop the version.
func (s *Server) withheld(v VersionStatus, named bool) error {
	sup := v.Superseded
	switch {
	case sup == nil || sup.Reason != withdrawn:
		return nil
	case named && sup.By > 0:
		return refusef(wire.Superseded,
			"version %d holds an upload that was withdrawn and is deleted; version %d "+
				"takes its place", v.Number, sup.By)
	case named:
		return refusef(wire.Superseded,
			"version %d holds an upload that was withdrawn; no version has taken its place yet",
			v.Number)
	case s.enough():
		return refusef(wire.Unavailable,
			"version %d holds an upload that was withdrawn; the next is being made without it",
			v.Number)
	}
	return refusef(wire.NotYet, "version %d holds an upload that was withdrawn, and a classifier "+
		"takes min_uploads, %d: fewer are left", v.Number, s.Round.MinUploads)
}

// version serves a version's record with the uploads in it.
// The record of a withheld version is served too: it holds digests and counts, and no features.
func (s *Server) version(w http.ResponseWriter, r *http.Request) error {
	v, err := s.find(r.PathValue("version"))
	if err != nil {
		return err
	}
	members, err := s.Store.Members(r.Context(), v.Number)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, struct {
		VersionStatus
		Members []store.Member `json:"members"`
	}{v, members})
	return nil
}

// asked returns the version of a request for the latest one, or for ?version=N, unless it is
// withheld.
// A parameter that is empty or given twice is refused.
// An empty parameter is more likely a script's empty variable than a wish for the latest.
func (s *Server) asked(r *http.Request) (v VersionStatus, err error) {
	name := ""
	if given := r.URL.Query()["version"]; len(given) > 0 {
		if len(given) > 1 || given[0] == "" {
			return v, refusef(wire.BadRequest,
				"version is given %d times or is empty; want one number, or leave it out "+
					"for the latest", len(given))
		}
		name = given[0]
	}
	if v, err = s.find(name); err == nil {
		err = s.withheld(v, name != "")
	}
	return v, err
}

// classifier serves the classifier file of the latest version, or of ?version=N.
// The latest is served from memory. Earlier ones are read from the store, within memory for all
// readers, of which a caller holds half at most.
// The half is of maxFiles. A listed version whose file is missing is the server's error, and not
// the caller's.
func (s *Server) classifier(w http.ResponseWriter, r *http.Request) error {
	v, err := s.asked(r)
	if err != nil {
		return err
	}
	s.predictions.mu.Lock()
	now := s.predictions.latest
	s.predictions.mu.Unlock()
	held := lease{in: s.files, of: caller(r)} // until its reader has it
	defer held.release()
	var data []byte
	if now != nil && now.version.Number == v.Number {
		data = now.data
	} else if err = held.take(r.Context(), min(int64(v.Bytes), maxFiles/2)); err != nil {
		return s.unread(err)
	} else if data, err = s.Store.File(r.Context(), v.Number); err != nil {
		if errors.Is(err, store.ErrNone) {
			err = fmt.Errorf("version %d is listed and its file is not there: %w", v.Number, err)
		}
		return err
	}
	// The name tells files of several rounds and versions in one folder apart.
	w.Header().Set("Content-Disposition",
		fmt.Sprintf(`attachment; filename="classifier-%d-%d.onnx"`, s.Round.Round, v.Number))
	serveModel(w, r, v.Digest, data)
	return nil
}
