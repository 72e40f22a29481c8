package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
)

func notice(t testing.TB) (*Notice, *identity.Key) {
	t.Helper()
	k := must.Get(identity.New("server"))(t)
	n := &Notice{Round: 7, Graph: strings.Repeat("a", 64),
		Time:       time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		Superseded: []VersionRef{{1, strings.Repeat("b", 64)}, {2, strings.Repeat("c", 64)}},
		Latest:     &VersionRef{3, strings.Repeat("d", 64)}}
	n.Sign(k)
	return n, k
}

// TestReadNotice: a notice is believed only as its server signed it, and names what it names.
func TestReadNotice(t *testing.T) {
	n, k := notice(t)
	data := must.Get(json.Marshal(n))(t)
	for _, key := range []string{"", k.PublicText()} {
		got := must.Get(ReadNotice(data, key))(t)
		if err := got.Heed(n.Superseded[1].SHA256); !errors.Is(err, ErrSuperseded) ||
			!strings.Contains(err.Error(), "take version 3") {
			t.Errorf("a classifier that the notice names: %v", err)
		}
		must.Do(t, got.Heed(n.Latest.SHA256))
	}
	other := must.Get(identity.New("another"))(t)
	must.Fail(ReadNotice(data, other.PublicText()))(t, "", "a notice of another server is taken")
	for name, change := range map[string]func(string) string{
		"another digest": func(s string) string { return strings.Replace(s, "bbbb", "bbbc", 1) },
		"none superseded": func(s string) string {
			return strings.Replace(s, `"superseded":[`,
				`"superseded":[],"x":[`, 1)
		},
		"another round": func(s string) string {
			return strings.Replace(s, `"round":7`,
				`"round":8`, 1)
		},
		"another latest": func(s string) string { return strings.Replace(s, "dddd", "dddc", 1) },
		"another time":   func(s string) string { return strings.Replace(s, "03:04", "03:05", 1) },
		"no key":         func(s string) string { return strings.Replace(s, k.PublicText(), "", 1) },
		"no signature":   func(s string) string { return strings.Replace(s, n.Signature, "", 1) },
		"more behind":    func(s string) string { return s + "{}" },
		"cut":            func(s string) string { return s[:len(s)/2] },
		"too large":      func(s string) string { return s + strings.Repeat(" ", MaxNotice) },
		"nothing":        func(string) string { return "" },
	} {
		must.Fail(ReadNotice([]byte(change(string(data))), ""))(t, "", name)
	}
}

// FuzzReadNotice: a notice that is read says the same when it is written again, and no input makes
// the reader fail.
func FuzzReadNotice(f *testing.F) {
	n, _ := notice(f)
	data := must.Get(json.Marshal(n))(f)
	f.Add(data)
	f.Add([]byte(`{"superseded":[{"version":-1,"sha256":"` + "\x00" + `"}],"latest":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ReadNotice(data, "")
		if err != nil {
			return
		}
		again := must.Get(json.Marshal(got))(t)
		must.Get(ReadNotice(again, got.Server))(t)
	})
}

// TestPrinted: no text of a withdrawal's receipt steers the terminal that it is printed on.
func TestPrinted(t *testing.T) {
	const steers = "\x1b[2J\n"
	text := Printed(&Withdrawal{Client: steers, By: steers, Upload: steers, HeldVersions: 1,
		Without: &VersionRef{2, steers}, Remains: []string{steers}})
	if strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 5 {
		t.Errorf("%q", text)
	}
}
