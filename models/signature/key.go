package signature

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	"fmp/onnx/regularfile"
)

// maxKey is the maximum size of a key file in bytes. A key on P-256 has about 240 bytes in PEM.
const maxKey = 16 << 10

// NewKey returns a new key with its two files' contents: the private half (PKCS #8) and the public
// one (SubjectPublicKeyInfo), in PEM. The caller writes the private half where others cannot read
// it.
func NewKey() (private, public []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	public, err = publicPEM(&k.PublicKey)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), public, err
}

// LoadPrivate reads a private key (PEM: PKCS #8, or SEC 1 as OpenSSL writes it). The error of
// another curve names P-256.
func LoadPrivate(path string) (*ecdsa.PrivateKey, error) { return load(path, parsePrivate) }

// load reads a key file.
func load[K any](path string, parse func([]byte) (*K, error)) (*K, error) {
	data, err := regularfile.ReadFile(path, maxKey)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	k, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	return k, nil
}

// parsePrivate returns the first private key of a file. Encrypted keys are an error with the
// remedy, as no passphrase is asked for.
func parsePrivate(data []byte) (*ecdsa.PrivateKey, error) {
	for {
		var b *pem.Block
		b, data = pem.Decode(data)
		if b == nil {
			return nil, errors.New("holds no private key in PEM; fmp sign --new-key makes one")
		}
		var k any
		var err error
		switch b.Type {
		case "EC PRIVATE KEY":
			if len(b.Headers) > 0 {
				return nil, errors.New("is encrypted: decrypt it with openssl pkcs8 -topk8 " +
					"-nocrypt")
			}
			k, err = x509.ParseECPrivateKey(b.Bytes)
		case "PRIVATE KEY":
			k, err = x509.ParsePKCS8PrivateKey(b.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("is encrypted: decrypt it with openssl pkcs8 -topk8 -nocrypt")
		default: // OpenSSL writes EC PARAMETERS before the key
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("holds no private key: %w", err)
		}
		e, ok := k.(*ecdsa.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("is a %T; want ECDSA on P-256", k)
		}
		return e, checkCurve(&e.PublicKey)
	}
}

// LoadPublic reads a public key (PEM: SubjectPublicKeyInfo).
func LoadPublic(path string) (*ecdsa.PublicKey, error) { return load(path, parsePublic) }

// parsePublic returns the public key of a file's first block. Later blocks are not read.
func parsePublic(data []byte) (*ecdsa.PublicKey, error) {
	b, _ := pem.Decode(data)
	if b == nil || b.Type != "PUBLIC KEY" {
		return nil, errors.New("holds no public key in PEM (a block PUBLIC KEY)")
	}
	k, err := x509.ParsePKIXPublicKey(b.Bytes)
	if err != nil {
		return nil, fmt.Errorf("holds no public key: %w", err)
	}
	e, ok := k.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("is a %T; want ECDSA on P-256", k)
	}
	return e, checkCurve(e)
}

// checkCurve refuses keys of other curves than P-256. Signatures are over a SHA-256, which P-256
// goes with.
func checkCurve(k *ecdsa.PublicKey) error {
	if k.Curve != elliptic.P256() {
		return fmt.Errorf("is on curve %s; want P-256", k.Curve.Params().Name)
	}
	return nil
}

// publicPEM returns the PEM block of a public key, as OpenSSL writes it.
func publicPEM(k *ecdsa.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		return nil, fmt.Errorf("encoding the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// hintOf names a key as bundles do. It is the SHA-256 of the PEM block, line ends included.
func hintOf(k *ecdsa.PublicKey) (string, error) {
	p, err := publicPEM(k)
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:]), err
}
