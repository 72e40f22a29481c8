// Package selfsigned creates a self-signed certificate for loopback, for tests of a server on one
// machine.
package selfsigned

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"

	"fmp/onnx/atomicfile"
	"fmp/pipeline/federate/identity"
)

// Ensure creates a certificate and its key if they do not exist, for localhost, 127.0.0.1 and ::1,
// valid for a year. An existing certificate is left unchanged while it is valid; an expired one is
// an error.
// Where one of the two files is missing both are made anew.
// The key is of ECDSA on P-256. The serial number is of 120 random bits, below the 20 bytes that
// RFC 5280 allows. The certificate begins an hour ago, for clocks that are behind.
// The time is the caller's, so that tests can set it. The key is written first, readable by its
// owner alone, so that an error leaves no new certificate without one.
func Ensure(cert, key string, now time.Time) error {
	pair, err := tls.LoadX509KeyPair(cert, key)
	switch {
	case err == nil:
		if now.After(pair.Leaf.NotAfter) {
			return fmt.Errorf("certificate %s ended at %s; remove it and %s, and new ones are made",
				cert, pair.Leaf.NotAfter.Format(time.RFC3339), key)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("certificate: %w", err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	// The certificate signs itself, so that clients must be given it as a root.
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "fmp serve, for loopback"},
		NotBefore:   now.Add(-time.Hour),
		NotAfter:    now.AddDate(1, 0, 0),
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, private.Public(), private)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	// SaveSecret refuses a file that is there.
	// a key without a certificate
	if err := os.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("certificate: %w", err)
	}
	if err := identity.SaveSecret(key,
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	return atomicfile.WriteBytes(cert,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
