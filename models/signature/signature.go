// Package signature signs models and verifies who signed them, in the format of OpenSSF Model
// Signing (OMS v1.0, https://github.com/ossf/model-signing-spec) with ECDSA keys on P-256 and
// SHA-256.
//
// A signature is a Sigstore bundle (v0.3, JSON). It holds a DSSE envelope, whose payload is an
// in-toto statement (v1) with the predicate https://model_signing/signature/v1.0: the SHA-256 of
// every file of the model, by its path. It covers one file, with those that hold data of it, or a
// folder, and is kept beside it.
//
// Bundles come from outside. [Verify] believes only the part of one that the key signed.
// Certificates, Sigstore's transparency log, other curves, and hashes by shards are refused by
// name. The package is part of the program for small devices.
package signature

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"fmp/onnx/sorting"
)

const (
	// MaxBundle is the maximum size of a bundle in bytes.
	MaxBundle = 4 << 20
	// maxFiles is the maximum number of files that a bundle covers.
	maxFiles = 10_000

	mediaType     = "application/vnd.dev.sigstore.bundle.v0.3+json"
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://model_signing/signature/v1.0"
	method        = "files"
	algorithm     = "sha256"
	// single is the path of a model that is one file.
	single = "."
)

// GitPaths are the paths that the format's reference implementation leaves out of a folder, unless
// it is told otherwise.
var GitPaths = []string{".git", ".gitattributes", ".github", ".gitignore"}

// ErrInvalid means that a bundle is no signature of a model by the key. A caller must not use the
// model then.
var ErrInvalid = errors.New("no valid signature")

// invalid makes an error that wraps [ErrInvalid].
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// bundle is a Sigstore bundle as far as OMS uses it with keys.
type bundle struct {
	MediaType string    `json:"mediaType"`
	Material  material  `json:"verificationMaterial"`
	Envelope  *envelope `json:"dsseEnvelope"`
}

type material struct {
	PublicKey *publicKey        `json:"publicKey"`
	Log       []json.RawMessage `json:"tlogEntries"`
}

// publicKey names the key: Hint is the SHA-256 of its PEM block, in hex. It proves nothing. A wrong
// hint gives a clearer error than a signature that fails.
type publicKey struct {
	Hint string `json:"hint,omitempty"`
}

// envelope is a DSSE envelope (https://github.com/secure-systems-lab/dsse, v1.0).
type envelope struct {
	Payload    string          `json:"payload"` // base64
	Type       string          `json:"payloadType"`
	Signatures []dsseSignature `json:"signatures"`
}

type dsseSignature struct {
	Signature string `json:"sig"` // base64
	KeyID     string `json:"keyid"`
}

// statement is an in-toto statement with the predicate of OMS.
type statement struct {
	Type      string    `json:"_type"`
	Subject   []subject `json:"subject"`
	Kind      string    `json:"predicateType"`
	Predicate predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type predicate struct {
	Serialization serialization `json:"serialization"`
	Resources     []resource    `json:"resources"`
}

type serialization struct {
	Method   string   `json:"method"`
	Hash     string   `json:"hash_type"`
	Symlinks bool     `json:"allow_symlinks"`
	Ignored  []string `json:"ignore_paths"`
}

type resource struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Digest    string `json:"digest"`
}

// Manifest holds the statements of a signature on a model.
type Manifest struct {
	// Name of the file or folder when it was signed.
	Name string
	// Digest is the SHA-256 of the digests of all files, in their order: one number for the model.
	Digest string
	// Ignored are the paths within the folder that the signature leaves out, with all below them.
	Ignored []string

	files map[string]string // SHA-256 in hex, by path
}

// Files returns the number of files that the signature covers.
func (m *Manifest) Files() int { return len(m.files) }

// Sign returns the bundle that covers the file or folder at path, but for the paths within a folder
// that are ignored (slashes). Every file of a folder is read once, and a single one at most twice.
// The key is used once, at the end.
func Sign(key *ecdsa.PrivateKey, path string, ignored []string) (_ []byte, err error) {
	if err := checkCurve(&key.PublicKey); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("signing %s: %w", path, err)
		}
	}()
	files, err := digests(path, ignored)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	s := statement{Type: statementType, Kind: predicateType, Predicate: predicate{
		Serialization: serialization{Method: method, Hash: algorithm,
			Ignored: append([]string{}, ignored...)}}}
	for _, file := range sorted(files) {
		s.Predicate.Resources = append(s.Predicate.Resources,
			resource{file, algorithm, files[file]})
	}
	root, err := digestOf(s.Predicate.Resources)
	if err != nil {
		return nil, err
	}
	s.Subject = []subject{{filepath.Base(name), map[string]string{algorithm: root}}}
	// The statement must pass the checks of a verifier before it is signed.
	if _, err := s.manifest(); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(preAuthentication(payload))
	signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		return nil, err
	}
	b64 := base64.StdEncoding.EncodeToString
	hint, err := hintOf(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return json.Marshal(bundle{mediaType, material{&publicKey{hint}, []json.RawMessage{}},
		&envelope{b64(payload), payloadType, []dsseSignature{{b64(signature), ""}}}})
}

// preAuthentication is the encoding that DSSE signs: the type and the payload, each with its
// length. The lengths keep two pairs of type and payload from having one encoding.
func preAuthentication(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType,
		len(payload), payload)
}

// Verify returns the bundle's statements on a model, after checking that it is signed with the key.
// Every error wraps [ErrInvalid]. The signature is checked before the statement is parsed. A bundle
// that passes says nothing of the files at hand: see [Manifest.Check].
func Verify(key *ecdsa.PublicKey, data []byte) (*Manifest, error) {
	if err := checkCurve(key); err != nil {
		return nil, invalid("%v", err)
	}
	want, err := hintOf(key)
	if err != nil {
		return nil, err
	}
	hint, payload, signature, err := decode(data)
	if err != nil {
		return nil, err
	}
	if hint != "" && hint != want {
		return nil,
			invalid("it was made with key %.64q; the one given is %s (SHA-256 of the public "+
				"key's PEM block)", hint, want)
	}
	sum := sha256.Sum256(preAuthentication(payload))
	if !ecdsa.VerifyASN1(key, sum[:], signature) {
		return nil, invalid("the key given did not make it, or the statement was changed")
	}
	return manifest(payload)
}

// Covers reports whether a bundle, from any signer, is about a single file of a SHA-256 (hex). It
// verifies no signature: it is for servers that hand bundles on.
func Covers(data []byte, name, digest string) error {
	_, payload, _, err := decode(data)
	if err != nil {
		return err
	}
	m, err := manifest(payload)
	if err != nil {
		return err
	}
	return m.CheckDigest(name, digest)
}

// decode returns the name of a bundle's key, the statement and the signature; none of them is
// verified. Sizes and types are checked, as the bundle may be anybody's. JSON fields that are not
// known are passed over.
func decode(data []byte) (hint string, payload, signature []byte, err error) {
	if len(data) > MaxBundle {
		return "", nil, nil, invalid("the bundle has %d bytes; allowed are %d",
			len(data), MaxBundle)
	}
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return "", nil, nil, invalid("the bundle: %v", err)
	}
	e := b.Envelope
	switch {
	case b.MediaType != mediaType:
		err = invalid("the bundle is of type %.80q; want %s", b.MediaType, mediaType)
	case b.Material.PublicKey == nil:
		err = invalid("the bundle is not signed with a bare key; certificates and Sigstore " +
			"identities are not verified here")
	case e == nil || len(e.Signatures) != 1:
		err = invalid("the bundle has no DSSE envelope with one signature")
	case e.Type != payloadType:
		err = invalid("the payload is of type %.80q; want %s", e.Type, payloadType)
	}
	if err != nil {
		return "", nil, nil, err
	}
	if payload, err = base64.StdEncoding.DecodeString(e.Payload); err != nil {
		return "", nil, nil, invalid("the payload: %v", err)
	}
	if signature, err = base64.StdEncoding.DecodeString(e.Signatures[0].Signature); err != nil {
		return "", nil, nil, invalid("the signature: %v", err)
	}
	return b.Material.PublicKey.Hint, payload, signature, nil
}

// manifest parses and checks a statement. Of a payload whose signature is not verified the result
// is not to be believed.
func manifest(payload []byte) (*Manifest, error) {
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return nil, invalid("the statement: %v", err)
	}
	return s.manifest()
}

// manifest checks a statement. Each path is in it once, stays within the model, and is not left out
// as well. The subject's digest must be that of the files' digests.
func (s *statement) manifest() (*Manifest, error) {
	p := s.Predicate
	switch z := p.Serialization; {
	case s.Type != statementType || s.Kind != predicateType:
		return nil, invalid("the statement is a %.80q about %.80q; want %s about %s",
			s.Type, s.Kind, statementType, predicateType)
	case len(s.Subject) != 1:
		return nil, invalid("the statement has %d subjects; want 1", len(s.Subject))
	case z.Method != method || z.Hash != algorithm:
		return nil, invalid("files are hashed with method %.40q and %.40q; want %s and %s",
			z.Method, z.Hash, method, algorithm)
	case len(p.Resources) < 1 || len(p.Resources) > maxFiles:
		return nil, invalid("the statement covers %d files; allowed are 1 to %d",
			len(p.Resources), maxFiles)
	}
	m := &Manifest{Name: s.Subject[0].Name, Ignored: p.Serialization.Ignored,
		files: map[string]string{}}
	for _, name := range m.Ignored {
		if !local(name) || name == single {
			return nil, invalid("it leaves out %.200q, which is no path within the model", name)
		}
	}
	for _, r := range p.Resources {
		switch raw, err := hex.DecodeString(r.Digest); {
		case !local(r.Name):
			return nil, invalid("it covers %.200q, which is no path within the model", r.Name)
		case r.Name == single && len(p.Resources) > 1:
			return nil, invalid("it covers a single file, and %d others", len(p.Resources)-1)
		case m.files[r.Name] != "":
			return nil, invalid("it covers %.200q twice", r.Name)
		case below(r.Name, m.Ignored):
			return nil, invalid("it both covers and leaves out %.200q", r.Name)
		case r.Algorithm != algorithm || err != nil || len(raw) != sha256.Size:
			return nil, invalid("the digest of %.200q is not a SHA-256 in hex", r.Name)
		}
		m.files[r.Name] = strings.ToLower(r.Digest)
	}
	var err error
	if m.Digest, err = digestOf(p.Resources); err != nil {
		return nil, err
	}
	if want := s.Subject[0].Digest[algorithm]; !strings.EqualFold(want, m.Digest) {
		return nil, invalid("the digest of the model is %.64q; those of its files give %s", want,
			m.Digest)
	}
	return m, nil
}

// local reports whether a path of slashes stays within a folder, on every system. Names that
// Windows reserves, such as CON, are refused on Windows alone.
func local(name string) bool {
	return fs.ValidPath(name) && filepath.IsLocal(filepath.FromSlash(name))
}

// below reports whether a path is one of the folders or files, or within one.
func below(name string, of []string) bool {
	return slices.ContainsFunc(of,
		func(p string) bool { return name == p || strings.HasPrefix(name, p+"/") })
}

// sorted returns the paths in the order of OMS: by folder, then name. Paths are compared folder by
// folder, so that a/b comes before a-b/c.
func sorted(files map[string]string) []string {
	names := slices.Collect(maps.Keys(files))
	sorting.By(names, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	return names
}

// digestOf returns the SHA-256 of the files' digests, in hex. They are hashed as bytes, in the
// order of the list, as the specification's reference does. The order matters: [Sign] lists files
// in that of [sorted].
func digestOf(files []resource) (string, error) {
	h := sha256.New()
	for _, f := range files {
		raw, err := hex.DecodeString(f.Digest)
		if err != nil {
			return "", invalid("the digest of %.200q: %v", f.Name, err)
		}
		h.Write(raw)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// CheckDigest reports whether the signature covers one file alone, of the name and SHA-256 (hex)
// given. Of a file that was signed by itself the name says nothing. The file's folder plays no
// part.
func (m *Manifest) CheckDigest(name, digest string) error {
	got, ok := m.files[single]
	if !ok {
		got, ok = m.files[path.Base(filepath.ToSlash(name))]
	}
	switch {
	case !ok || len(m.files) != 1:
		return invalid("it covers %d files of folder %.200q, and not %s alone",
			len(m.files), m.Name, name)
	case !strings.EqualFold(got, digest):
		return invalid("%s has sha256 %s; signed is %s", name, digest, got)
	}
	return nil
}

// Check reports whether the file or folder at path has every file that the signature covers,
// unchanged, and no other that it does not leave out. The files of a model's file are itself and
// those that it says hold its data. Links and devices are refused. It tells of five faults at most,
// by name. Files are read whole. Names in errors are quoted.
func (m *Manifest) Check(path string) error {
	files, err := digests(path, m.Ignored)
	if err != nil {
		return fmt.Errorf("verifying %s: %w", path, err)
	}
	if sum, ok := files[single]; ok {
		return m.CheckDigest(path, sum)
	}
	var faults []string
	for _, name := range sorted(m.files) {
		switch sum, ok := files[name]; {
		case !ok:
			faults = append(faults, fmt.Sprintf("%q is missing", name))
		case sum != m.files[name]:
			faults = append(faults, fmt.Sprintf("%q was changed", name))
		}
	}
	for _, name := range sorted(files) {
		if m.files[name] == "" {
			faults = append(faults, fmt.Sprintf("%q is not covered", name))
		}
	}
	if len(faults) > 0 {
		more := ""
		if n := len(faults) - 5; n > 0 {
			faults, more = faults[:5], fmt.Sprintf(" and %d more", n)
		}
		return invalid("%s is not what was signed: %s%s", path, strings.Join(faults, ", "), more)
	}
	return nil
}
