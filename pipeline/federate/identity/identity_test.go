package identity

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fmp/onnx/must"
)

func key(t testing.TB, name string) *Key {
	t.Helper()
	return must.Get(New(name))(t)
}

// TestKeyFile: a key comes back from its file, which its owner alone can read, with its name; it is
// not overwritten, and its private half is in no text that is made of it.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	k := key(t, "Klinik für Ängste 7")
	path := filepath.Join(t.TempDir(), "keys", "a.key")
	must.Do(t, k.Save(path))
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", st.Mode(), err)
	}
	got, err := Load(path)
	if err != nil || got.Name != k.Name || !bytes.Equal(got.private, k.private) {
		t.Fatalf("read %v, %v; want %v", got, err, k)
	}
	must.Fail(k.Save(path))(t, "there already", "overwriting")
	secret := base64.StdEncoding.EncodeToString(k.private.Seed())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if s := fmt.Sprintf(verb, k); s != k.Line() || strings.Contains(s, secret) {
			t.Errorf("%s prints %s", verb, s)
		}
	}
}

func TestStatements(t *testing.T) {
	t.Parallel()
	k, other := key(t, "a"), key(t, "b")
	base := Statement{Upload, "server", 3, "a", "graph", "content", 5, ""}
	sig := k.Sign(base)
	if !Verify(k.Public(), base, sig) {
		t.Fatal("a key does not verify what it signed")
	}
	for name, s := range map[string]Statement{
		"purpose":  {Receipt, "server", 3, "a", "graph", "content", 5, ""},
		"server":   {Upload, "another", 3, "a", "graph", "content", 5, ""},
		"no one's": {Upload, "", 3, "a", "graph", "content", 5, ""},
		"round":    {Upload, "server", 4, "a", "graph", "content", 5, ""},
		"client":   {Upload, "server", 3, "b", "graph", "content", 5, ""},
		"graph":    {Upload, "server", 3, "a", "graph2", "content", 5, ""},
		"content":  {Upload, "server", 3, "a", "graph", "contents", 5, ""},
		"time":     {Upload, "server", 3, "a", "graph", "content", 6, ""},
		"spent":    {Upload, "server", 3, "a", "graph", "content", 5, "epsilon=1"},
		"moved":    {Upload, "server", 3, "ag", "raph", "content", 5, ""},
	} {
		if Verify(k.Public(), s, sig) {
			t.Errorf("%s: the signature holds for another statement", name)
		}
	}
	if Verify(other.Public(), base, sig) || Verify(nil, base, sig) ||
		Verify(k.Public(), base, sig[:10]) {
		t.Error("verified with another key, no key, or half a signature")
	}
}

func TestRoster(t *testing.T) {
	t.Parallel()
	a, b := key(t, "a b"), key(t, "c")
	r := must.Get(ParseRoster([]byte("# clients\n\n" + b.Line() + "\r\n  " + a.Line() + "\n")))(t)
	if r.Len() != 2 || r.Names()[0] != "a b" || !bytes.Equal(r.keys["a b"], a.Public()) {
		t.Errorf("roster %+v", r)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":     {"# nobody\n", "no clients"},
		"kind":      {"rsa x y", `line 1 begins with "rsa"`},
		"key":       {"ed25519 AAAA a", "line 1: the key"},
		"name":      {strings.TrimSuffix(a.Line(), " a b"), "name"},
		"name long": {line(strings.Repeat("x", MaxName+1), a.Public()), "128"},
		"twice":     {a.Line() + "\n" + line("a b", b.Public()), "line 2: client"},
		"shared":    {a.Line() + "\n" + line("z", a.Public()), "one key"},
	} {
		must.Fail(ParseRoster([]byte(c.text)))(t, c.want, name)
	}
}

// TestRosterDoesTheSameWork: a name that the roster lacks costs as many verifications as one that
// it has, of keys as long.
func TestRosterDoesTheSameWork(t *testing.T) {
	a := key(t, "a")
	r := must.Get(ParseRoster([]byte(a.Line())))(t)
	type work struct{ calls, key, message int }
	var done work
	real := verify
	t.Cleanup(func() { verify = real })
	verify = func(k ed25519.PublicKey, message, signature []byte) bool {
		done = work{done.calls + 1, len(k), len(message)}
		return real(k, message, signature)
	}
	statement := func(name string) Statement {
		return Statement{Upload, "server", 3, name, "graph", "content", 0, ""}
	}
	ok := r.Verify(statement("a"), a.Sign(statement("a")))
	known := done
	done = work{}
	if stranger := r.Verify(statement("z"), a.Sign(statement("z"))); !ok || stranger {
		t.Errorf("a's signature holds: %v; one under a name that the roster lacks: %v", ok, stranger)
	}
	if want := (work{1, ed25519.PublicKeySize, len(statement("a").bytes())}); known != want ||
		done != want {
		t.Errorf("work for a known name %v, for an unknown one %v; want %v", known, done, want)
	}
	if other := key(t, "b"); r.Verify(statement("a"), other.Sign(statement("a"))) ||
		r.decoy.Equal(a.Public()) {
		t.Error("another key's signature holds, or the decoy is a client's key")
	}
}

// TestSecrets: a file that other users can read or change is no secret, and the error says how to
// mend it.
func TestSecrets(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("permissions are no mode bits on Windows")
	}
	k := key(t, "a")
	path := filepath.Join(t.TempDir(), "a.key")
	must.Do(t, k.Save(path))
	group := os.Getuid() != 0 // root may hand a file to a group
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o700: false,
		0o644: true, 0o604: true, 0o602: true, 0o640: group, 0o620: true, 0o666: true} {
		must.Do(t, os.Chmod(path, mode))
		_, err := Load(path)
		if (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// FuzzKey: what is read is a key with a name that may be one, and an error does not quote the file.
func FuzzKey(f *testing.F) {
	path := filepath.Join(f.TempDir(), "k")
	must.Do(f, key(f, "a").Save(path))
	f.Add(must.Get(os.ReadFile(path))(f))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := Parse(data)
		if err == nil && (CheckName(k.Name) != nil || len(k.Public()) != ed25519.PublicKeySize) {
			t.Fatalf("read %v", k)
		}
	})
}

// FuzzRoster: what is read can be written and read again.
func FuzzRoster(f *testing.F) {
	f.Add([]byte(key(f, "a").Line() + "\n# b\n" + key(f, "c d").Line()))
	f.Add([]byte("ed25519 AAAA"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRoster(data)
		if err != nil {
			return
		}
		var text strings.Builder
		for _, n := range r.Names() {
			fmt.Fprintln(&text, line(n, r.keys[n]))
		}
		again, err := ParseRoster([]byte(text.String()))
		if err != nil || again.Len() != r.Len() {
			t.Fatalf("%d clients were read and %v again: %v", r.Len(), again, err)
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"shop-17": true, "d/e f": true, "Zoë": true, "a.b": true, strings.Repeat("a", MaxName): true,
		"": false, ".": false, "..": false, "a b/../c": false, `a\..\c`: false,
		"/a": false, "a/": false,
		"a//b": false, "a/./b": false,
		" a": false, "a ": false, "a\n": false,
		strings.Repeat("a", MaxName+1): false, "\xff": false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v; want allowed %v", name, err, ok)
		}
	}
}
