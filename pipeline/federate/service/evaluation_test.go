package service

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/tally"
	"fmp/pipeline/tally/pooled"
)

// counted is a site's signed report about the last version, changed before it is signed.
func (f *fixture) counted(client string, wrong int, change func(*tally.Report)) []byte {
	f.t.Helper()
	m := &tally.Images{C: f.round.Client.C}
	for i := range 200 {
		top := 0
		if i < wrong {
			top = 1
		}
		must.Do(f.t, m.Add(0, top, 0.8, nil))
	}
	r := must.Get(m.Report(10))(f.t)
	r.Round, r.Server = 3, f.key.PublicText()
	if n := len(f.srv.versions); n > 0 {
		r.Classifier = f.srv.versions[n-1].Digest
	}
	if change != nil {
		change(r)
	}
	return must.Get(r.Sign(f.keys[client]))(f.t)
}

// report sends a report as a client.
func (f *fixture) report(client string, data []byte) (int, []byte) {
	f.t.Helper()
	return f.request("PUT", wire.EvaluationPath(3, client), data,
		f.signed(f.keys[client], identity.Evaluated, data,
			func(s *identity.Statement) { s.Content = digestOf(data) }))
}

// TestEvaluations: reports of clients about a version are stored once each, over a restart, and
// pooled; those of a client that withdraws are deleted, and what no client of the round signed for
// it is refused.
func TestEvaluations(t *testing.T) {
	f := newFixture(t, "quorum: 2\n")
	uploads := f.in("a", "b", "c")
	f.pool()
	path := wire.RoundPath(3) + "/evaluation"
	f.wants("before any report", 404, wire.NotYet)(f.request("GET", path, nil, reader))
	for i, c := range []string{"a", "b", "c"} {
		data := f.counted(c, 20*(i+1), nil)
		for range 2 {
			f.wants(c, http.StatusNoContent, "")(f.report(c, data))
		}
		f.wants(c+", one image more", 409, wire.OtherUpload)(f.report(c, f.counted(c, 20*(i+1)+1, nil)))
	}
	for name, data := range map[string][]byte{
		"of another site": f.counted("b", 20, nil),
		"for another server": f.counted("a", 20,
			func(r *tally.Report) { r.Server = f.keys["b"].PublicText() }),
		"for another round": f.counted("a", 20, func(r *tally.Report) { r.Round = 4 }),
		"below its bound":   f.counted("a", 20, func(r *tally.Report) { r.Least = 1 }),
		"of another model": f.counted("a", 20,
			func(r *tally.Report) { r.Classifier = strings.Repeat("0", 64) }),
		"of too few classes":  f.counted("a", 20, func(r *tally.Report) { r.Classes-- }),
		"of a hostile length": []byte(strings.Repeat(" ", tally.MaxBytes+1)),
		"no report":           []byte("{}"),
	} {
		if status, answer := f.report("a", data); status < 400 || status >= 500 || status == 409 {
			t.Errorf("a report %s: %d %s", name, status, answer)
		}
	}
	f.wants("without a signature", 401, "")(
		f.request("PUT", wire.EvaluationPath(3, "a"), f.counted("a", 20, nil), reader))
	f.wants("without the readers' token", 401, "")(f.request("GET", path, nil, nil))
	f.restart()
	pool := func(sites int) {
		t.Helper()
		r := read[pooled.Result](t, 200)(f.request("GET", path, nil, reader))
		if len(r.Sites) != sites || r.Images != 200*sites || r.Sites[0].Name != "a" ||
			r.Sites[0].Accuracy.Value == nil || *r.Sites[0].Accuracy.Value != 0.9 {
			t.Fatalf("pooled: %+v", r)
		}
	}
	pool(3)
	f.gone("b", uploads["b"])
	names := must.Get(f.store.Objects(t.Context()))(t)
	for _, name := range names {
		if strings.HasPrefix(name, evaluationsOf("b")) {
			t.Errorf("%s is there after the withdrawal", name)
		}
	}
	f.pool()
	f.wants("about the next version", 404, "")(f.request("GET", path, nil, reader))
	f.wants("about a superseded version", 410, "")(f.request("GET", path+"?version=1", nil, reader))
	f.wants("about the next version", http.StatusNoContent, "")(
		f.report("a", f.counted("a", 20, nil)))
	pool(1)
}

// TestEvaluationsOfTheGone: a client that withdrew scores nothing, also a version from before its
// upload, nor does its report come back where it is sent again or the server was killed before it
// was deleted.
func TestEvaluationsOfTheGone(t *testing.T) {
	f := newFixture(t, "quorum: 2\naccept_late: true\nrebuild_interval: 1s\n")
	f.in("a", "c")
	f.pool()
	reports := map[string][]byte{}
	for _, c := range []string{"a", "b"} {
		reports[c] = f.counted(c, 20, nil)
		f.wants(c, http.StatusNoContent, "")(f.report(c, reports[c]))
	}
	late := f.made("b", 1, nil)
	f.put("b", late)
	f.pass(time.Hour)
	f.pool()
	f.gone("b", late)
	f.pool()
	alone := func(when string) {
		t.Helper()
		r := read[pooled.Result](t, 200)(
			f.request("GET", wire.RoundPath(3)+"/evaluation?version=1", nil, reader))
		if len(r.Sites) != 1 || r.Sites[0].Name != "a" {
			t.Errorf("%s: %+v", when, r)
		}
	}
	alone("after the withdrawal")
	for name, data := range map[string][]byte{"the same report": reports["b"],
		"one of the last version": f.counted("b", 20, nil)} {
		f.wants(name, http.StatusGone, wire.Withdrawn)(f.report("b", data))
	}
	must.Do(t, f.store.PutObject(t.Context(), evaluationName("b", 1), reports["b"]))
	alone("not deleted yet")
	f.restart()
	if names, err := f.store.Objects(t.Context()); err != nil ||
		slices.Contains(names, evaluationName("b", 1)) {
		t.Errorf("after a start there are %q, %v", names, err)
	}
	alone("after a start")
}

// TestEvaluationCannotBePooled: no report ends the pooling of others: what cannot be pooled with them is
// refused, and where it was taken by an earlier version of the program it is left out and named.
func TestEvaluationCannotBePooled(t *testing.T) {
	f := newFixture(t, "quorum: 2\n")
	f.in("a", "b", "c")
	f.pool()
	f.wants("a's", http.StatusNoContent, "")(f.report("a", f.counted("a", 20, nil)))
	bad := f.counted("c", 20, func(r *tally.Report) { r.Level = 0.5 })
	f.wants("sets of a level", http.StatusUnprocessableEntity, wire.BadUpload)(f.report("c", bad))
	must.Do(t, f.store.PutObject(t.Context(), evaluationName("c", 1), bad))
	r := read[pooled.Result](t, 200)(f.request("GET", wire.RoundPath(3)+"/evaluation", nil, reader))
	if len(r.Sites) != 1 || len(r.LeftOut) != 1 || r.LeftOut[0].Site != "c" {
		t.Errorf("%+v", r)
	}
	f.wants("the last", http.StatusNoContent, "")(f.report("b", f.counted("b", 20, nil)))
	w := httptest.NewRecorder()
	if reply(w, http.StatusOK, math.NaN()); w.Code != http.StatusInternalServerError {
		t.Errorf("a reply that is no JSON: %d", w.Code)
	}
}

// TestEvaluationOfSameBytes: a version with the bytes of an earlier one has its reports. A client's second
// report about these bytes is refused, and left out where an earlier program took it.
func TestEvaluationOfSameBytes(t *testing.T) {
	f := newFixture(t, "quorum: 2\naccept_late: true\nrebuild_interval: 1s\n")
	f.in("a", "b")
	f.pool()
	f.wants("a's", http.StatusNoContent, "")(f.report("a", f.counted("a", 20, nil)))
	late := f.made("c", 1, nil)
	f.put("c", late)
	f.pass(time.Hour)
	f.pool()
	f.gone("c", late)
	f.pool()
	if numbers := f.srv.numbersOf(f.srv.versions[2].Digest); !slices.Equal(numbers, []int{1, 3}) {
		t.Fatalf("versions of the same bytes: %v", numbers)
	}
	second := f.counted("a", 21, nil)
	f.wants("a's second", 409, wire.OtherUpload)(f.report("a", second))
	f.wants("a's first again", http.StatusNoContent, "")(f.report("a", f.counted("a", 20, nil)))
	f.wants("b's", http.StatusNoContent, "")(f.report("b", f.counted("b", 30, nil)))
	must.Do(t, f.store.PutObject(t.Context(), evaluationName("a", 3), second))
	path := wire.RoundPath(3) + "/evaluation"
	for query, want := range map[string]int{"": 200, "?version=1": 200, "?version=3": 200, "?version=2": 410,
		"?version=": 400, "?version=1&version=3": 400} {
		status, data := f.request("GET", path+query, nil, reader)
		var r pooled.Result
		if status == 200 {
			must.Do(t, json.Unmarshal(data, &r))
		}
		if status != want || want == 200 && (len(r.Sites) != 2 || r.Images != 400) {
			t.Errorf("%s: %d %s", query, status, data)
		}
	}
	const d = "d/e f"
	kept := f.counted(d, 20, nil)
	for n, data := range map[int][]byte{9: kept, 10: f.counted(d, 30, nil)} {
		again := f.srv.versions[2]
		again.Number = n
		f.srv.versions = append(f.srv.versions, again)
		must.Do(t, f.store.PutObject(t.Context(), evaluationName(d, n), data))
	}
	slices.SortFunc(f.srv.versions, func(a, b store.Version) int { return a.Number - b.Number })
	f.wants("the one that counts, again", http.StatusNoContent, "")(f.report(d, kept))
	r := read[pooled.Result](t, 200)(f.request("GET", path+"?version=1", nil, reader))
	if len(r.Sites) != 3 || r.Sites[2].Name != d || *r.Sites[2].Accuracy.Value != 0.9 {
		t.Errorf("reports on versions 9 and 10: %+v", r.Sites)
	}
}

// TestSetsOf: the level of prediction sets is read from the classifier's file.
func TestSetsOf(t *testing.T) {
	f, _ := serving(t)
	data := f.srv.predictions.serving.data
	for _, c := range []struct {
		classifier []byte
		level      float64
	}{{data, 0}, {calibrated(t, data), 0.9}} {
		if level := must.Get(setsOf(c.classifier))(t); level != c.level {
			t.Errorf("sets of level %v; want %v", level, c.level)
		}
	}
	must.Fail(setsOf([]byte("text")))(t, "", "no classifier")
}
