// Package identity holds the identities of the parties of a federation: Ed25519 keys (RFC 8032) and
// their files, the roster of the clients that may send, and the statements that are signed.
//
// It depends on the standard library alone, as it is part of the program for small devices.
package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxName is the maximum length of a client's name in bytes, the same as in an upload.
	MaxName = 128
	// maxKeyBytes is the maximum size of a key file.
	maxKeyBytes = 16 << 10
	// pemType is the type of a key file's PEM block, and pemClient the header that holds the
	// client's name.
	pemType, pemClient = "PRIVATE KEY", "Client"
	// another is the remedy of a file that is no key.
	another = "give the file that fmp keys or fmp-edge key wrote"
)

// Key is the private key of a client, or of the server. No method changes it, so that goroutines
// may share one. The private key is unexported, so that JSON and other encoders leave it out.
type Key struct {
	// Name of the client.
	Name    string
	private ed25519.PrivateKey
}

// New generates a key from the system's source of randomness.
func New(name string) (*Key, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return &Key{name, private}, nil
}

// Public returns the public key, with which others verify signatures.
func (k *Key) Public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

// PublicText returns the public key in base64, as descriptions, receipts and statements have it. Of
// 32 bytes these are 44 characters.
func (k *Key) PublicText() string { return base64.StdEncoding.EncodeToString(k.Public()) }

// Sign returns the signature of a statement. It has 64 bytes. Ed25519 draws nothing to sign: one
// statement has one signature by a key (RFC 8032, section 5.1.6).
func (k *Key) Sign(s Statement) []byte { return ed25519.Sign(k.private, s.bytes()) }

// Line returns the key's line in a roster.
func (k *Key) Line() string { return line(k.Name, k.Public()) }

// String returns the key's roster line, which keeps the private key out of logs.
func (k *Key) String() string { return k.Line() }

// Format writes the key's roster line for every verb, which keeps the private key out of logs.
func (k *Key) Format(f fmt.State, _ rune) { io.WriteString(f, k.Line()) }

// CheckName returns an error unless the name is valid for a client: 1 to [MaxName] bytes of
// printable UTF-8 that neither begin nor end with a space and lead nowhere as a path: no part
// between slashes or backslashes is empty, . or .. . Names are parts of the paths of requests,
// where other programs resolve . and .. away. Control characters would change the terminal of an
// operator who lists clients.
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= MaxName && utf8.ValidString(name)
	for _, r := range name {
		ok = ok && unicode.IsPrint(r)
	}
	for part := range strings.SplitSeq(strings.ReplaceAll(name, "\\", "/"), "/") {
		ok = ok && part != "" && part != "." && part != ".."
	}
	if !ok || name[0] == ' ' || name[len(name)-1] == ' ' {
		return fmt.Errorf("the client's name is %q (%d bytes); allowed are 1 to %d bytes "+
			"of printable UTF-8 without spaces at the ends and that leads nowhere as a path",
			name[:min(len(name), MaxName)], len(name), MaxName)
	}
	return nil
}

// Save writes a new key file, readable by its owner alone: PKCS #8 in PEM, with the client's name
// in a header. If the file exists, it is left unchanged and Save returns an error, as a key that is
// overwritten cannot be recovered.
func (k *Key) Save(path string) error {
	text, err := k.Secret()
	if err == nil {
		err = SaveSecret(path, text)
	}
	if err != nil {
		return fmt.Errorf("writing key: %w", err)
	}
	return nil
}

// Secret returns the contents of the key's file, which its owner alone may know. The name is in
// base64: a PEM header is one line, and a name may hold any printable character.
func (k *Key) Secret() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType,
		Headers: map[string]string{pemClient: base64.StdEncoding.EncodeToString([]byte(k.Name))},
		Bytes:   der}), nil
}

// Load reads a key file, which its owner alone may read; see [ReadSecret].
func Load(path string) (*Key, error) {
	data, err := ReadSecret(path, maxKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("reading key: %w", err)
	}
	k, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	return k, nil
}

// Parse reads the contents of a key file. Its errors never quote them. The first PEM block is read,
// and anything behind it is passed over. A name that is none for a client is an error, also in a
// file that is otherwise right.
func Parse(data []byte) (*Key, error) {
	if len(data) > maxKeyBytes {
		return nil, fmt.Errorf("more than %d bytes; %s", maxKeyBytes, another)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemType {
		return nil, fmt.Errorf("no PEM block of type %s; %s", pemType, another)
	}
	name, err := base64.StdEncoding.DecodeString(block.Headers[pemClient])
	if err != nil {
		return nil, fmt.Errorf("the header %s is not base64; %s", pemClient, another)
	}
	if err := CheckName(string(name)); err != nil {
		return nil, err
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the PEM block is no PKCS #8 key; " + another)
	}
	private, ok := any.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T; only Ed25519 keys sign uploads", any)
	}
	return &Key{string(name), private}, nil
}
