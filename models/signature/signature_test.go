package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

func key(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	return must.Get(ecdsa.GenerateKey(curve, rand.Reader))(t)
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

// folder writes a model of three files, whose order by path is another than by name.
func folder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	for name, text := range map[string]string{"a.onnx": "one\n", "part/b.onnx": "two\n", "part.json": "three\n"} {
		put(t, filepath.Join(dir, name), text)
	}
	return dir
}

func put(t testing.TB, path, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestReference: bundles that the format's reference implementation (model-signing 1.1.1) made are
// verified, of a file and of a folder.
func TestReference(t *testing.T) {
	t.Parallel()
	public := must.Get(LoadPublic("testdata/reference/public.pem"))(t)
	for _, c := range []struct {
		bundle, model, name string
		files               int
	}{
		{"model.sig", "model", "model", 3},
		{"a.onnx.sig", "model/a.onnx", "a.onnx", 1},
		{"ignoring.sig", "model", "model", 2},
	} {
		m := must.Get(Verify(public, read(t, "testdata/reference/"+c.bundle)))(t)
		if m.Name != c.name || m.Files() != c.files {
			t.Errorf("%s: %q of %d files; want %q of %d", c.bundle, m.Name, m.Files(), c.name, c.files)
		}
		if err := m.Check(filepath.Join("testdata/reference", c.model)); err != nil {
			t.Errorf("%s: %v", c.bundle, err)
		}
	}
	// The digest of the folder is the one that the reference computed, so the order of files is.
	k := key(t, elliptic.P256())
	data := must.Get(Sign(k, "testdata/reference/model", GitPaths))(t)
	ours := must.Get(Verify(&k.PublicKey, data))(t)
	theirs, err := Verify(public, read(t, "testdata/reference/model.sig"))
	if err != nil || ours.Digest != theirs.Digest {
		t.Errorf("digest %s, the reference has %s (%v)", ours.Digest, theirs.Digest, err)
	}
	must.Fail(LoadPublic("testdata/reference/p384.pem"))(t, "P-384; want P-256", "a key on P-384")
	if _, err := Verify(public, read(t, "testdata/reference/p384.sig")); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), "it was made with key") {
		t.Errorf("the bundle of another key: %v", err)
	}
}

// TestInterop: the reference implementation verifies what is signed here, and refuses it once it is
// changed; and the other way round.
func TestInterop(t *testing.T) {
	t.Parallel()
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	run := func(args ...string) (string, error) {
		out, err := exec.Command(python,
			append([]string{"-m", "model_signing"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if _, err := run("--version"); err != nil {
		t.Skip("needs Python's model-signing (pip install model-signing pyOpenSSL; PYTHON names " +
			"the interpreter)")
	}
	dir := folder(t)
	at := func(name string) string { return filepath.Join(filepath.Dir(dir), name) }
	private, public := must.Get2(NewKey())(t)
	put(t, at("k.pem"), string(private))
	put(t, at("p.pem"), string(public))
	k := must.Get(LoadPrivate(at("k.pem")))(t)
	for _, model := range []string{dir, filepath.Join(dir, "part", "b.onnx")} {
		put(t, at("ours.sig"), string(must.Get(Sign(k, model, GitPaths))(t)))
		if out, err := run("verify", "key", model, "--signature", at("ours.sig"), "--public_key",
			at("p.pem")); err != nil {
			t.Errorf("the reference refuses %s: %v\n%s", model, err, out)
		}
		if out, err := run("sign", "key", model, "--signature", at("theirs.sig"), "--private_key",
			at("k.pem")); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		m, err := Verify(&k.PublicKey, read(t, at("theirs.sig")))
		if err == nil {
			err = m.Check(model)
		}
		if err != nil {
			t.Errorf("the reference's signature of %s: %v", model, err)
		}
	}
	put(t, filepath.Join(dir, "part", "b.onnx"), "changed")
	if out, err := run("verify", "key", filepath.Join(dir, "part", "b.onnx"), "--signature",
		at("ours.sig"), "--public_key",
		at("p.pem")); err == nil {
		t.Errorf("the reference takes a changed file:\n%s", out)
	}
}

// TestCheck: a model is as signed only where every file is there, unchanged, and no other is.
func TestCheck(t *testing.T) {
	t.Parallel()
	k := key(t, elliptic.P256())
	for _, c := range []struct {
		name, want string
		change     func(dir string)
	}{
		{"nothing", "", func(string) {}},
		{"what is left out", "", func(dir string) { put(t, filepath.Join(dir, ".git", "HEAD"), "x") }},
		{"a changed file", `"part/b.onnx" was changed`,
			func(dir string) { put(t, filepath.Join(dir, "part", "b.onnx"), "twO\n") }},
		{"a missing file", `"a.onnx" is missing`,
			func(dir string) { _ = os.Remove(filepath.Join(dir, "a.onnx")) }},
		{"an extra file", `"part/c" is not covered`,
			func(dir string) { put(t, filepath.Join(dir, "part", "c"), "") }},
		{"two that changed places", `"a.onnx" was changed, "part/b.onnx" was changed`,
			func(dir string) {
				put(t, filepath.Join(dir, "a.onnx"), "two\n")
				put(t, filepath.Join(dir, "part", "b.onnx"), "one\n")
			}},
		{"a link", "link", func(dir string) {
			if err := os.Symlink("a.onnx", filepath.Join(dir, "l")); err != nil {
				t.Skip("needs links")
			}
		}},
		{"many extra files", "and 2 more", func(dir string) {
			for _, n := range []string{"1", "2", "3", "4", "5", "6", "7"} {
				put(t, filepath.Join(dir, n), "")
			}
		}},
		{"another folder", `"a.onnx" is missing`,
			func(dir string) { _ = os.RemoveAll(dir); put(t, filepath.Join(dir, "z"), "") }},
		{"no folder", "no such file", func(dir string) { _ = os.RemoveAll(dir) }},
	} {
		dir := folder(t)
		m := must.Get(Verify(&k.PublicKey, must.Get(Sign(k, dir, GitPaths))(t)))(t)
		c.change(dir)
		err := m.Check(dir)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// TestFile: a file's signature covers its content, whatever its name; a folder's covers a file
// where it has that one alone.
func TestFile(t *testing.T) {
	t.Parallel()
	k, dir := key(t, elliptic.P256()), folder(t)
	file := filepath.Join(dir, "a.onnx")
	digest := "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806" // of one\n
	manifest := func(path string, ignored ...string) *Manifest {
		return must.Get(Verify(&k.PublicKey, must.Get(Sign(k, path, ignored))(t)))(t)
	}
	single, whole, one := manifest(file), manifest(dir), manifest(dir, "part", "part.json")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a file":               {single.CheckDigest("b.onnx", digest), ""},
		"a file, by path":      {single.Check(file), ""},
		"another file":         {single.Check(filepath.Join(dir, "part.json")), "has sha256"},
		"a folder of it":       {single.Check(dir), `"." is missing`},
		"a folder's only file": {one.CheckDigest("elsewhere/a.onnx", digest), ""},
		"by path":              {one.Check(file), ""},
		"of another name":      {one.CheckDigest("b.onnx", digest), "and not b.onnx alone"},
		"unverified":           {Covers(read(t, "testdata/reference/p384.sig"), "a.onnx", digest), ""},
		"unverified, another": {Covers(read(t, "testdata/reference/p384.sig"), "a.onnx",
			strings.Repeat("0", 64)), "has sha256"},
		"unverified, broken":         {Covers([]byte("{}"), "a.onnx", digest), "is of type"},
		"changed":                    {one.CheckDigest("a.onnx", strings.Repeat("0", 64)), "signed is " + digest},
		"one of a folder's files":    {whole.CheckDigest("a.onnx", digest), "covers 3 files"},
		"one of a folder's, by path": {whole.Check(file), "covers 3 files"},
	} {
		if (c.err == nil) != (c.want == "") || c.err != nil &&
			(!strings.Contains(c.err.Error(), c.want) || !errors.Is(c.err, ErrInvalid)) {
			t.Errorf("%s: %v; want %q", name, c.err, c.want)
		}
	}
	for _, ignored := range []string{"../a.onnx", "/a", ".", ""} {
		must.Fail(Sign(k, dir, []string{ignored}))(t, "", ignored)
	}
	must.Fail(Sign(key(t, elliptic.P384()), file, nil))(t, "", "signed on P-384")
	must.Fail(Sign(k, t.TempDir(), nil))(t, "", "signed an empty folder")
}

// signed is the bundle of a statement, whatever it says.
func signed(t testing.TB, k *ecdsa.PrivateKey, payload []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(preAuthentication(payload))
	sig := must.Get(ecdsa.SignASN1(rand.Reader, k, sum[:]))(t)
	hint := must.Get(hintOf(&k.PublicKey))(t)
	b64 := base64.StdEncoding.EncodeToString
	data := must.Get(json.Marshal(bundle{mediaType, material{PublicKey: &publicKey{hint}},
		&envelope{b64(payload), payloadType, []dsseSignature{{b64(sig), ""}}}}))(t)
	return data
}

// TestHostileBundles: of what the key did not sign nothing is believed.
func TestHostileBundles(t *testing.T) {
	t.Parallel()
	k := key(t, elliptic.P256())
	good := must.Get(Sign(k, folder(t), nil))(t)
	for name, c := range map[string]struct {
		want   string
		change func(b *bundle)
	}{
		"media type":   {"is of type", func(b *bundle) { b.MediaType = "application/json" }},
		"no key":       {"not signed with a bare key", func(b *bundle) { b.Material.PublicKey = nil }},
		"other hint":   {"was made with key", func(b *bundle) { b.Material.PublicKey.Hint = "00" }},
		"no envelope":  {"no DSSE envelope", func(b *bundle) { b.Envelope = nil }},
		"no signature": {"no DSSE envelope", func(b *bundle) { b.Envelope.Signatures = nil }},
		"two signatures": {"no DSSE envelope", func(b *bundle) {
			b.Envelope.Signatures = append(b.Envelope.Signatures, b.Envelope.Signatures[0])
		}},
		"payload type": {"the payload is of type", func(b *bundle) { b.Envelope.Type = "text/plain" }},
		"bad base64": {"the payload: illegal base64",
			func(b *bundle) { b.Envelope.Payload = "*" + b.Envelope.Payload[1:] }},
		"bad base64 too": {"the signature: illegal base64",
			func(b *bundle) { b.Envelope.Signatures[0].Signature += "=" }},
		"no ASN.1": {"did not make it", func(b *bundle) { b.Envelope.Signatures[0].Signature = "AAAA" }},
		"changed payload": {"did not make it", func(b *bundle) {
			p, _ := base64.StdEncoding.DecodeString(b.Envelope.Payload)
			b.Envelope.Payload = base64.StdEncoding.EncodeToString(bytes.Replace(p, []byte("a.onnx"),
				[]byte("b.onnx"), 1))
		}},
	} {
		var b bundle
		must.Do(t, json.Unmarshal(good, &b))
		c.change(&b)
		data := must.Get(json.Marshal(b))(t)
		if _, err := Verify(&k.PublicKey, data); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	// as earlier releases of the reference wrote it
	unhinted := bytes.Replace(good, []byte(`"hint"`), []byte(`"rawBytes"`), 1)
	if _, err := Verify(&k.PublicKey, unhinted); err != nil {
		t.Errorf("without a hint: %v", err)
	}
	if _, err := Verify(&key(t, elliptic.P256()).PublicKey, unhinted); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), "did not make it") {
		t.Errorf("wrong key without a hint: %v", err)
	}
	for name, data := range map[string][]byte{"empty": {}, "null": []byte("null"), "array": []byte("[]"),
		"deep": bytes.Repeat([]byte("["), 1<<20), "large": make([]byte, MaxBundle+1)} {
		if _, err := Verify(&k.PublicKey, data); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostileStatements: a statement that the key did sign is checked, too.
func TestHostileStatements(t *testing.T) {
	t.Parallel()
	k := key(t, elliptic.P256())
	sum := strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		want   string
		change func(s *statement)
	}{
		"other statement": {"the statement is a",
			func(s *statement) { s.Type = "https://in-toto.io/Statement/v0.1" }},
		"other predicate": {"the statement is a",
			func(s *statement) { s.Kind = "https://slsa.dev/provenance/v1" }},
		"two subjects": {"2 subjects",
			func(s *statement) { s.Subject = append(s.Subject, s.Subject[0]) }},
		"no subject": {"0 subjects", func(s *statement) { s.Subject = nil }},
		"shards": {`method "shards"`,
			func(s *statement) { s.Predicate.Serialization.Method = "shards" }},
		"other hash": {`"blake3"`, func(s *statement) { s.Predicate.Serialization.Hash = "blake3" }},
		"no files":   {"0 files", func(s *statement) { s.Predicate.Resources = nil }},
		"many files": {"10001 files",
			func(s *statement) { s.Predicate.Resources = make([]resource, maxFiles+1) }},
		"out of it": {"no path within",
			func(s *statement) { s.Predicate.Resources[0].Name = "../etc/passwd" }},
		"rooted": {"no path within",
			func(s *statement) { s.Predicate.Resources[0].Name = "/etc/passwd" }},
		"dots":    {"no path within", func(s *statement) { s.Predicate.Resources[0].Name = "a/../b" }},
		"no name": {"no path within", func(s *statement) { s.Predicate.Resources[0].Name = "" }},
		"twice":   {`"a" twice`, func(s *statement) { s.Predicate.Resources[1].Name = "a" }},
		"file and folder": {"a single file, and 1 others",
			func(s *statement) { s.Predicate.Resources[0].Name = "." }},
		"other algorithm": {"not a SHA-256",
			func(s *statement) { s.Predicate.Resources[0].Algorithm = "md5" }},
		"short digest": {"not a SHA-256",
			func(s *statement) { s.Predicate.Resources[0].Digest = "abcd" }},
		"no hex": {"not a SHA-256",
			func(s *statement) { s.Predicate.Resources[0].Digest = strings.Repeat("x", 64) }},
		"left out": {"both covers and leaves out",
			func(s *statement) { s.Predicate.Serialization.Ignored = []string{"b"} }},
		"all left out": {"leaves out \".\"",
			func(s *statement) { s.Predicate.Serialization.Ignored = []string{"."} }},
		"other digest": {"the digest of the model",
			func(s *statement) { s.Subject[0].Digest[algorithm] = sum }},
		"no digest": {"the digest of the model", func(s *statement) { s.Subject[0].Digest = nil }},
		"other order": {"the digest of the model",
			func(s *statement) { slices.Reverse(s.Predicate.Resources) }},
	} {
		s := statement{Type: statementType, Kind: predicateType, Predicate: predicate{
			Serialization: serialization{Method: method, Hash: algorithm},
			Resources: []resource{{"a", algorithm, sum},
				{"b/c", algorithm, strings.Repeat("cd", 32)}}}}
		root := must.Get(digestOf(s.Predicate.Resources))(t)
		s.Subject = []subject{{"m", map[string]string{algorithm: root}}}
		for _, changed := range []bool{false, true} {
			if changed {
				c.change(&s)
			}
			if _, err := Verify(&k.PublicKey, signed(t, k, must.Get(json.Marshal(s))(t))); changed &&
				(!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want)) ||
				!changed && err != nil {
				t.Errorf("%s: %v; want %q", name, err, c.want)
			}
		}
	}
	if _, err := Verify(&k.PublicKey, signed(t, k, []byte("{"))); !errors.Is(err, ErrInvalid) {
		t.Errorf("no JSON: %v", err)
	}
}

// TestKeys: keys come back from their files; those of other kinds are refused by name.
func TestKeys(t *testing.T) {
	t.Parallel()
	private, public := must.Get2(NewKey())(t)
	k := must.Get(parsePrivate(append(
		[]byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"),
		private...)))(t)
	if p, err := parsePublic(public); err != nil || !p.Equal(&k.PublicKey) {
		t.Errorf("%v, %v", p, err)
	}
	ed :=
		"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n"
	for text, want := range map[string]string{
		"": "no private key", string(public): "no private key",
		ed: "ed25519.PrivateKey; want ECDSA on P-256",
		"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n": "is encrypted",
		"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n":               "no private key",
	} {
		must.Fail(parsePrivate([]byte(text)))(t, want, text)
	}
	for text, want := range map[string]string{"": "no public key", string(private): "no public key",
		"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n": "no public key"} {
		must.Fail(parsePublic([]byte(text)))(t, want, text)
	}
}

// FuzzBundle: a bundle is refused, or says what the key signed.
func FuzzBundle(f *testing.F) {
	k := key(f, elliptic.P256())
	dir := folder(f)
	good := must.Get(Sign(k, dir, GitPaths))(f)
	want := must.Get(Verify(&k.PublicKey, good))(f)
	f.Add(good)
	f.Add(
		[]byte(
			`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"publicKey":{}},` + `"dsseEnvelope":{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"MAA="}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Verify(&k.PublicKey, data)
		if err == nil && m.Digest != want.Digest || err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("%v, %v", m, err)
		}
	})
}

// FuzzStatement: paths of a statement that is taken stay within the model, and checking it against
// a folder ends.
func FuzzStatement(f *testing.F) {
	dir := folder(f)
	for _, name := range []string{"model.sig", "a.onnx.sig", "ignoring.sig"} {
		var b bundle
		must.Do(f, json.Unmarshal(read(f, "testdata/reference/"+name), &b))
		payload := must.Get(base64.StdEncoding.DecodeString(b.Envelope.Payload))(f)
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := manifest(payload)
		if err != nil {
			return
		}
		for name := range m.files {
			if !filepath.IsLocal(name) || below(name, m.Ignored) {
				t.Fatalf("took %q", name)
			}
		}
		if err := m.Check(dir); err == nil && m.files["a.onnx"] == "" && !below("a.onnx", m.Ignored) {
			t.Fatal("a folder is as signed and its file is not covered")
		}
	})
}

// FuzzKey: a key file is refused, or is a key on P-256.
func FuzzKey(f *testing.F) {
	private, public := must.Get2(NewKey())(f)
	f.Add(private)
	f.Add(public)
	f.Add(read(f, "testdata/reference/p384.pem"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if k, err := parsePrivate(data); err == nil && k.Curve != elliptic.P256() {
			t.Fatal("took a key of another curve")
		}
		if k, err := parsePublic(data); err == nil && k.Curve != elliptic.P256() {
			t.Fatal("took a public key of another curve")
		}
	})
}
