package pool

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
)

// record is a signed record of a withdrawal, with the roster of its key.
func record(t testing.TB) ([]byte, *identity.Roster) {
	t.Helper()
	key := must.Get(identity.New("server"))(t)
	roster := must.Get(identity.ParseRoster([]byte(key.Line() + "\n")))(t)
	w := Withdrawal{Round: 3, Graph: strings.Repeat("ab", 32), Classifier: strings.Repeat("cd", 32),
		Time:      time.Unix(1, 0).UTC(),
		Withdrawn: []models.OriginClient{{Name: "a", Upload: strings.Repeat("ef", 32), N: 7}},
		Unknown:   []Version{{File: "all.onnx", SHA256: strings.Repeat("01", 32)}}}
	return must.Get(w.Sign(key))(t), roster
}

// TestWithdrawalSignature: every field is signed, and another key's records are not taken.
func TestWithdrawalSignature(t *testing.T) {
	data, roster := record(t)
	if w, err := VerifyWithdrawal(data, roster); err != nil || w.Withdrawn[0].N != 7 {
		t.Fatalf("%+v, %v", w, err)
	}
	for from, to := range map[string]string{`"round": 3`: `"round": 4`, `"n": 7`: `"n": 8`,
		`"unknown"`: `"free"`, "all.onnx": "one.onnx",
		strings.Repeat("cd", 32): strings.Repeat("ce", 32), `"server"`: `"other"`, "1970": "1971"} {
		changed := bytes.Replace(data, []byte(from), []byte(to), 1)
		if bytes.Equal(changed, data) {
			t.Fatalf("the record has no %s", from)
		}
		if _, err := VerifyWithdrawal(changed, roster); !errors.Is(err, ErrWithdrawal) {
			t.Errorf("%s for %s: %v", to, from, err)
		}
	}
	must.Fail(VerifyWithdrawal(append(bytes.Clone(data), data...), roster))(
		t, "", "two records are taken for one")
	_, others := record(t)
	if _, err := VerifyWithdrawal(data, others); !errors.Is(err, ErrWithdrawal) {
		t.Errorf("another key: %v", err)
	}
	must.Fail(VerifyWithdrawal(make([]byte, MaxWithdrawal+1), roster))(
		t, "", "a record of any size is taken")
}

// FuzzWithdrawal: no record but the signed one is taken.
func FuzzWithdrawal(f *testing.F) {
	data, roster := record(f)
	want := must.Get(VerifyWithdrawal(data, roster))(f)
	f.Add(data)
	f.Add([]byte(`{"round":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := VerifyWithdrawal(data, roster)
		if err == nil && (w.Round != want.Round || w.Classifier != want.Classifier || len(w.Withdrawn) != 1 ||
			w.Withdrawn[0] != want.Withdrawn[0]) {
			t.Errorf("%+v is taken", w)
		}
	})
}
