package main

import (
	"encoding/base64"
	"encoding/json"
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
		data := must.Get((&federate.Upload{Round: 7, Client: client, Model: strings.Repeat("ab", 32), N: 3,
			Points: s}).Encode())(t)
		return data
	}
	server := must.Get(identity.New("server"))(t)
	other := must.Get(identity.New("other"))(t)
	key := func(k *identity.Key) string { return base64.StdEncoding.EncodeToString(k.Public()) }
	own := upload("a", 0.5)
	receipt := func(name string, k *identity.Key, change func(*wire.Receipt),
		after func(*wire.Receipt)) string {
		t.Helper()
		r := &wire.Receipt{Round: 7, Client: "a", Graph: strings.Repeat("ab", 32),
			Upload: models.DigestBytes(own), Bytes: len(own),
			Time: time.Unix(1e9, 5).UTC()}
		if change != nil {
			change(r)
		}
		r.Sign(k)
		if after != nil {
			after(r)
		}
		data := must.Get(json.Marshal(r))(t)
		return write(name, data)
	}
	message := write("a.upload", own)
	for name, c := range map[string]struct {
		code int
		want string
		args []string
	}{
		"signed":        {0, `holds; "a", round 7`, []string{receipt("1", server, nil, nil)}},
		"of the upload": {0, "holds", []string{receipt("2", server, nil, nil), "--upload", message}},
		"by another":    {1, "is not signed", []string{receipt("3", other, nil, nil)}},
		"changed": {1, "is not signed", []string{receipt("4", server, nil,
			func(r *wire.Receipt) { r.Time = r.Time.Add(time.Second) })}},
		"of another upload": {1, "sha256",
			[]string{receipt("5", server, nil, nil), "--upload", write("b.upload", upload("a", 0.25))}},
		"of another round": {1, "in round 8",
			[]string{receipt("6", server, func(r *wire.Receipt) { r.Round = 8 }, nil),
				"--upload", message}},
		"of another's client": {1, `of "b"`,
			[]string{receipt("7", server, func(r *wire.Receipt) { r.Client = "b" }, nil),
				"--upload", message}},
		"no receipt": {2, "no receipt", []string{message}},
		"no file":    {3, "no such file", []string{filepath.Join(dir, "none")}},
	} {
		code, out, errs := runFMP(t,
			append([]string{"receipts", "verify", "--server-key", key(server)}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) || (code == 0) != (errs == "") {
			t.Errorf("%s: exit code %d: %s%s; want %d and %q", name, code, out, errs, c.code, c.want)
		}
	}
	if code, _, errs := runFMP(t, "receipts", "verify", message); code != exitUsage ||
		!strings.Contains(errs, "--server-key is missing") {
		t.Errorf("without a key: exit code %d: %s", code, errs)
	}
	code, out, _ := runFMP(t, "receipts", "verify", filepath.Join(dir, "1"), "--server-key",
		key(server), "--json")
	var r wire.Receipt
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 ||
		r.Verify(key(server)) != nil {
		t.Errorf("JSON: %d %s, %v", code, out, err)
	}
}
