package service

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
)

// TestOldState: whenever the copy of the state was made that is put back, a client that withdrew since
// stays out with the receipt that it got, also of an upload that replaced another; the notice names each
// version that held it, and no number of these is given again.
func TestOldState(t *testing.T) {
	for at, when := range []string{"before it joined", "before a version", "before the last version",
		"before it withdrew"} {
		f := newFixture(t, "quorum: 2\naccept_late: true\nrebuild_interval: 1s\nreplace: true\n")
		copied := filepath.Join(t.TempDir(), "copy")
		keep := func(now int) {
			if now == at {
				f.keep(copied)
			}
		}
		uploads := f.in("a", "b")
		keep(0)
		f.wants("an upload to replace", http.StatusCreated, "")(f.put("c", f.made("c", 2, nil)))
		keep(1)
		uploads["c"] = f.in("c")["c"]
		f.pool()
		_, first := f.classifier("")
		keep(2)
		f.in("d/e f")
		f.pool()
		_, second := f.classifier("")
		keep(3)
		was := f.gone("c", uploads["c"])
		f.putBack(copied)
		f.wants(when, http.StatusGone, wire.Withdrawn)(f.put("c", uploads["c"]))
		n := f.notices()
		if len(n.Superseded) != 2 || n.Heed(digestOf(first)) == nil || n.Heed(digestOf(second)) == nil {
			t.Errorf("%s: notice %+v", when, n)
		}
		f.pool()
		if n := f.notices(); n.Latest == nil || n.Latest.Version != 3 || len(n.Superseded) != 2 {
			t.Errorf("%s: next notice %+v", when, n)
		}
		w := f.gone("c", uploads["c"])
		if w.Without == nil || w.Without.Version != 3 || len(w.Held) != 2 {
			t.Errorf("%s: receipt %+v", when, w)
		}
		w.Without, w.Signature, was.Signature = nil, "", ""
		if !reflect.DeepEqual(w, was) {
			t.Errorf("%s: receipt %+v; was %+v", when, w, was)
		}
		if data := must.Get(os.ReadFile(f.srv.Withdrawals))(t); strings.Count(string(data), "\n") != 1 {
			t.Errorf("%s: record %s", when, data)
		}
	}
}

// TestRecordWanted: no receipt of a withdrawal is given that is not recorded, and the line that is
// missing is written by the request that comes again, or by the next start.
func TestRecordWanted(t *testing.T) {
	f := newFixture(t, "quorum: 3\n")
	uploads := f.in("a", "b", "c")
	must.Do(t, os.Remove(f.srv.Withdrawals))
	must.Do(t, os.Mkdir(f.srv.Withdrawals, 0o700))
	for range 2 {
		f.wants("no place for the record", http.StatusServiceUnavailable, wire.Unavailable,
			"noted and in force", "could not write its record")(
			f.delete("a", digestOf(uploads["a"]), f.keys["a"], nil))
	}
	must.Do(t, os.Remove(f.srv.Withdrawals))
	f.gone("a", uploads["a"])
	record := must.Get(os.ReadFile(f.srv.Withdrawals))(t)
	must.Do(t, os.Remove(f.srv.Withdrawals))
	f.restart()
	if again := must.Get(os.ReadFile(f.srv.Withdrawals))(t); len(again) != len(record) {
		t.Errorf("recorded at the start: %s; want %s", again, record)
	}
	for says, line := range map[string]string{
		"not a receipt": "{}{}\n",
		"is not signed": strings.Replace(string(record), `"by":"client"`, `"by":"operator"`, 1),
		"is of another": other(t, f, record),
		"line 2: ":      string(record) + "{\"round\":3}\n",
	} {
		must.Fail(f.srv.receipts([]byte(line)))(t, says, line)
	}
}

// other is a line of the record of another round.
func other(t *testing.T, f *fixture, record []byte) string {
	w := must.Get(wire.ReadWithdrawal(record, f.key.PublicText()))(t)
	w.Round++
	w.Sign(f.key)
	return string(must.Get(json.Marshal(w))(t)) + "\n"
}
