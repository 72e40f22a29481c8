package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/point"
)

// TestReceiptsVerify: a receipt holds with the key of the server that signed it, for the upload
// that it is of, and in no other case.
func TestReceiptsVerify(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, data, 0o644))
		return path
	}
	upload := func(client string, mean float32) []byte {
		t.Helper()
		s := point.New(1, 1, 2)
		copy(s.Row(0), []float32{mean, 1, 0})
		s.W[0] = 3
		return must.Get((&federate.Upload{Round: 7, Client: client, Model: strings.Repeat("ab", 32), N: 3,
			Points: s}).Encode())(t)
	}
	server := must.Get(identity.New("server"))(t)
	other := must.Get(identity.New("other"))(t)
	key := func(k *identity.Key) string { return base64.StdEncoding.EncodeToString(k.Public()) }
	own := upload("a", 0.5)
	receipt := func(name string, k *identity.Key, change func(*wire.Receipt)) string {
		t.Helper()
		r := &wire.Receipt{Round: 7, Client: "a", Graph: strings.Repeat("ab", 32), Upload: models.DigestBytes(own),
			Bytes: len(own), Time: time.Unix(1e9, 5).UTC()}
		if change != nil {
			change(r)
		}
		r.Sign(k)
		return write(name, must.Get(json.Marshal(r))(t))
	}
	message := write("a.upload", own)
	// edited writes a receipt again with another text in it.
	edited := func(path, old, text string) []string {
		t.Helper()
		data := string(must.Get(os.ReadFile(path))(t))
		if !strings.Contains(data, old) {
			t.Fatalf("%s lacks %s", data, old)
		}
		name := models.DigestBytes([]byte(path + text))
		return []string{write(name, []byte(strings.Replace(data, old, text, 1)))}
	}
	withdrawal := func(name string, k *identity.Key) string {
		t.Helper()
		w := &wire.Withdrawal{Round: 7, Client: "a", Graph: strings.Repeat("ab", 32),
			Upload: models.DigestBytes(own), Time: time.Unix(1e9, 5).UTC(), By: wire.ByClient,
			Held: []wire.VersionRef{{Version: 1, SHA256: strings.Repeat("cd", 32)}}, HeldVersions: 1,
			Remains: wire.Remains(1)}
		w.Sign(k)
		return write(name, must.Get(json.Marshal(w))(t))
	}
	signed, gone := receipt("signed", server, nil), withdrawal("gone", server)
	size := fmt.Sprintf(`"bytes":%d`, len(own))
	for name, c := range map[string]struct {
		code int
		want string
		args []string
	}{
		"signed":        {0, `holds; "a", round 7`, []string{signed}},
		"of the upload": {0, "holds", []string{signed, "--upload", message}},
		"by another":    {1, "is not signed", []string{receipt("3", other, nil)}},
		"changed":       {1, "is not signed", edited(signed, "01:46:40.", "01:46:41.")},
		"of another upload": {1, "sha256",
			[]string{signed, "--upload", write("b.upload", upload("a", 0.25))}},
		"of another round": {1, "in round 8",
			[]string{receipt("6", server, func(r *wire.Receipt) { r.Round = 8 }), "--upload", message}},
		"of another's client": {1, `of "b"`,
			[]string{receipt("7", server, func(r *wire.Receipt) { r.Client = "b" }), "--upload", message}},
		"size edited": {0, "upload:  sha256", edited(signed, size, `"bytes":999999`)},
		"size edited, of the upload": {1, "are not signed",
			append(edited(signed, size, `"bytes":999998`), "--upload", message)},
		"with its size": {0, fmt.Sprint(len(own), " bytes"), []string{signed, "--upload", message}},
		"another field": {1, "unknown field", edited(signed, `{`, `{"note":"x",`)},
		"more behind":   {2, "no receipt", edited(signed, `}`, `}{}`)},
		"another time zone": {0, "2001-09-09T01:46:40Z",
			edited(signed, "01:46:40.000000005Z", "03:46:40.000000005+02:00")},
		"584 years later": {1, "is not signed", // 2^64 ns
			edited(signed, "2001-09-09T01:46:40.000000005Z", "2586-03-30T01:21:13.709551621Z")},
		"withdrawal":               {0, "withdrawn: the upload of \"a\" from round 7, at 2001", []string{gone}},
		"withdrawal, remains":      {0, "remains:   predictions that were made", []string{gone}},
		"withdrawal of the upload": {0, "receipt:   holds", []string{gone, "--upload", message}},
		"withdrawal by another":    {1, "is not signed", []string{withdrawal("other", other)}},
		"withdrawal of another upload": {1, "not the receipt of",
			[]string{gone, "--upload", write("c.upload", upload("a", 0.125))}},
		"withdrawal, another field": {1, "unknown field", edited(gone, `{`, `{"bytes":7,`)},
		"withdrawal, edited":        {1, "is not signed", edited(gone, `handed out before`, `not handed out`)},
		"no receipt":                {2, "no receipt", []string{message}},
		"no file":                   {3, "no such file", []string{filepath.Join(dir, "none")}},
	} {
		code, out, errs := runFMP(t,
			append([]string{"receipts", "verify", "--server-key", key(server)}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) || (code == 0) != (errs == "") {
			t.Errorf("%s: exit code %d: %s%s; want %d and %q", name, code, out, errs, c.code, c.want)
		}
	}
	refused(t, exitUsage, "--server-key is missing", "receipts", "verify", message)
	out, _ := ran(t, "receipts", "verify", signed, "--server-key", key(server), "--json")
	var r wire.Receipt
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Verify(key(server)) != nil ||
		strings.Contains(out, `"bytes"`) {
		t.Errorf("JSON: %s, %v", out, err)
	}
	out, _ = ran(t, "receipts", "verify", gone, "--server-key", key(server), "--json")
	must.Get(wire.ReadWithdrawal([]byte(out), key(server)))(t)
}
