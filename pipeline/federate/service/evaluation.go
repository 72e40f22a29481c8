package service

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"fmp/models"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/tally"
	"fmp/pipeline/tally/pooled"
)

// evaluationName is the name of the object that holds a client's report about a version. Names of
// clients are encoded, so that one is no beginning of another.
// A name is evaluation-HEX-NUMBER.
func evaluationName(client string, version int) string {
	return fmt.Sprintf("%s%d", evaluationsOf(client), version)
}

// evaluationsOf begins the names of a client's reports. In hexadecimal no name holds the dash that
// ends it.
func evaluationsOf(client string) string {
	return "evaluation-" + hex.EncodeToString([]byte(client)) + "-"
}

// evaluation stores a client's signed counts of how a version of the classifier does on its own
// images: one report a classifier, as two of nearly the same images would tell their difference.
// The same report again is answered with 204, so that a client may repeat a request whose answer
// was lost. Reports about versions that hold a withdrawn upload are refused.
// The signature covers the digest of the report, and is verified before the report is read.
// Checks go from cheap to costly: signature, a request at a time of a client, size, content.
// Nothing is stored before all have passed.
func (s *Server) evaluation(w http.ResponseWriter, r *http.Request) error {
	client, digest, _, err := s.stated(r, identity.Evaluated, "report")
	if err != nil {
		return err
	}
	if !s.take(client) {
		return refusef(wire.TooMany, "another request of %q is being taken", client)
	}
	defer s.release(client)
	if gone := s.goneOf(client); gone != nil {
		return s.refuseGone(gone)
	}
	held := lease{in: s.intake}
	defer held.release()
	data, err := held.read(w, r, tally.MaxBytes, 1)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return refusef(wire.TooLarge, "a report of more than %d bytes", tally.MaxBytes)
	} else if err != nil {
		return s.unread(err)
	}
	if err := asStated("report", digest, data); err != nil {
		return err
	}
	report, err := tally.Read(data, s.clients.Load())
	if err == nil && (report.Site != client || report.Round != s.Round.Round ||
		report.Server != s.Key.PublicText() ||
		report.Classes != s.Round.Client.C) {
		err = fmt.Errorf("report of %q for round %d of %d classes and server %q; want "+
			"it of %q for this server and round %d of %d classes", report.Site, report.Round,
			report.Classes, report.Server, client, s.Round.Round, s.Round.Client.C)
	}
	if err != nil {
		return refusef(wire.BadUpload, "%v", err)
	}
	version := s.versionOf(report.Classifier)
	if version == 0 {
		return refusef(wire.NoVersion, "no version that is in use has sha256 %s; take the last",
			report.Classifier)
	}
	of, err := s.about(r.Context(), version, report.Classifier)
	if err != nil {
		return err
	}
	if err := of.Refuse(report); err != nil {
		return refusef(wire.BadUpload, "report of %q: %v", client, err)
	}
	r = carried(r)
	was, err := s.reported(r.Context(), client, report.Classifier)
	switch {
	case errors.Is(err, store.ErrNone):
		if err := s.Store.PutObject(r.Context(), evaluationName(client, version),
			data); err != nil {
			return err
		}
		s.Log.Info("evaluation taken", "client", client, "version", version)
	case err != nil:
		return err
	case !slices.Equal(was, data):
		return refusef(wire.OtherUpload,
			"another report of %q about version %d is in: two of nearly the same images "+
				"would tell their difference", client, version)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// goneOf returns the record of a client that withdrew, nil of others.
// The record is shared, and its reader changes nothing.
func (s *Server) goneOf(client string) *store.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[client]
}

// about returns the classifier that reports of a version are about.
// The level is remembered by SHA-256, so that a file of up to 2 GiB is not read for each report.
// Requests may come here at once: two may read one file, and both remember the same level.
func (s *Server) about(ctx context.Context, version int, digest string) (pooled.Of, error) {
	of := pooled.Of{Classifier: digest, Classes: s.Round.Client.C}
	if level, ok := s.levels.Load(digest); ok {
		of.Level = level.(float64)
		return of, nil
	}
	data, err := s.Store.File(ctx, version)
	if err == nil {
		of.Level, err = s.sets(data)
	}
	if err != nil {
		return of, fmt.Errorf("version %d: %w", version, err)
	}
	s.levels.Store(digest, of.Level)
	return of, nil
}

// setsOf returns the level of the prediction sets of a classifier's file; 0 if it makes none.
// The file is read whole, as its manifest lies within it.
func setsOf(classifier []byte) (float64, error) {
	m, err := serde.Closed(classifier)
	if err != nil {
		return 0, err
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return 0, err
	}
	o, err := models.ReadOrigin(f)
	if err != nil || o.Sets == nil {
		return 0, err
	}
	return o.Sets.Level, nil
}

// numbersOf returns the numbers of all versions of a SHA-256. One that is made again, without a
// late upload that was withdrawn, has the bytes of an earlier one.
// The order is that of the versions, oldest first.
func (s *Server) numbersOf(digest string) (out []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.versions {
		if v.Digest == digest {
			out = append(out, v.Number)
		}
	}
	return out
}

// reported returns the report of a client that is stored about a classifier, by whichever of its
// numbers.
// It is ErrNone where no version has one.
func (s *Server) reported(ctx context.Context, client, digest string) (was []byte, err error) {
	err = store.ErrNone
	for _, n := range s.numbersOf(digest) {
		was, err = s.Store.Object(ctx, evaluationName(client, n), tally.MaxBytes)
		if !errors.Is(err, store.ErrNone) {
			break
		}
	}
	return was, err
}

// versionOf returns the number of the version of a SHA-256 that holds no withdrawn upload; 0 if
// there is none.
// Of several with the same bytes it is the latest.
func (s *Server) versionOf(digest string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range slices.Backward(s.versions) {
		if _, void := s.void[v.Number]; v.Digest == digest && !void {
			return v.Number
		}
	}
	return 0
}

// evaluations serves the pooled report about the latest version, or of ?version=N.
// It is pooled anew for each request: rosters, withdrawals and reports may have changed.
// A version that nobody has reported on is wire.NotYet: the caller may ask again.
func (s *Server) evaluations(w http.ResponseWriter, r *http.Request) error {
	v, err := s.asked(r)
	if err != nil {
		return err
	}
	reports, err := s.reports(r.Context(), v)
	if err != nil {
		return err
	}
	if len(reports) == 0 {
		return refusef(wire.NotYet,
			"no client has evaluated version %d yet (fmp-edge evaluate --report-to)", v.Number)
	}
	of, err := s.about(r.Context(), v.Number, v.Digest)
	if err != nil {
		return err
	}
	all, err := pooled.Pool(of, reports)
	if err != nil {
		s.Log.Error("evaluations", "version", v.Number, "error", err)
		return refusef(wire.ServerFailed, "the reports cannot be pooled; the server's log says why")
	}
	for _, l := range all.LeftOut {
		s.Log.Warn("an evaluation is left out", "client", l.Site, "version", v.Number, "of", l.Why)
	}
	reply(w, http.StatusOK, all)
	return nil
}

// maxReports bounds the reports that are pooled at once: 256 MiB.
// Beyond it the request fails, and reports stay stored.
const maxReports = 256 << 20

// reports reads the stored reports about a version and others of the same bytes, in the order of
// their names. One whose client the roster lacks by now is left out, and logged.
// Of two reports of a client about the same bytes the one of the lower number counts.
// It costs a read of each report, and O(n log n) comparisons of n names.
func (s *Server) reports(ctx context.Context, v VersionStatus) (out []*tally.Report, err error) {
	names, err := s.Store.Objects(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(names, func(a, b string) int { // of one client by number: 9 is before 10
		x, y := strings.LastIndex(a, "-")+1, strings.LastIndex(b, "-")+1
		return cmp.Or(cmp.Compare(a[:x], b[:y]), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	clients, bytes, numbers := s.clients.Load(), 0, s.numbersOf(v.Digest)
	// the client's names; an earlier program took more than one report about the same bytes
	last := ""
	for _, name := range names {
		at := strings.LastIndex(name, "-") + 1
		n, _ := strconv.Atoi(name[at:])
		if !strings.HasPrefix(name, "evaluation-") || !slices.Contains(numbers, n) ||
			name[:at] == last {
			continue
		}
		data, err := s.Store.Object(ctx, name, tally.MaxBytes)
		if errors.Is(err, store.ErrNone) { // withdrawn meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		if bytes += len(data); bytes > maxReports {
			return nil, fmt.Errorf("the reports about version %d have more than %d bytes",
				v.Number, maxReports)
		}
		report, err := tally.Read(data, clients)
		if err != nil {
			s.Log.Warn("an evaluation is left out", "object", name, "error", err)
			continue
		}
		if s.goneOf(report.Site) == nil { // what could not be deleted yet is not told
			out, last = append(out, report), name[:at]
		}
	}
	return out, nil
}

// dropEvaluations deletes the reports of all clients that withdrew.
// It costs O(objects log(withdrawals)). A report that cannot be deleted is part of the error, and
// the others are deleted.
// Reports tell of a client's images, and a withdrawal takes them with the upload.
func (s *Server) dropEvaluations(ctx context.Context) error {
	s.mu.Lock()
	var of []string
	for client := range s.gone {
		of = append(of, evaluationsOf(client))
	}
	s.mu.Unlock()
	if len(of) == 0 {
		return nil
	}
	names, err := s.Store.Objects(ctx)
	if err != nil {
		return err
	}
	slices.Sort(of)
	for _, name := range names {
		// no beginning is one of another, so that the last that is not behind the name is the only
		// one that may begin it
		at, exact := slices.BinarySearch(of, name)
		if !exact && at > 0 && strings.HasPrefix(name, of[at-1]) {
			err = errors.Join(err, s.Store.DeleteObject(ctx, name))
		}
	}
	return err
}
