package identity

import (
	"crypto/ed25519"
	"encoding/binary"
)

// Statement is what is signed. No two different statements have the same bytes, and one about an upload is never one about
// a receipt.
type Statement struct {
	// Purpose keeps signatures of one kind from being used as those of another.
	Purpose Purpose
	Round   uint64
	Client  string
	// Graph is the digest of the round's client graph, and Content that of what is signed (sha256, hexadecimal).
	Graph, Content string
	// Time, in nanoseconds since 1970, is when the server took an upload; 0 elsewhere.
	Time int64
	// Spent is what a receipt of a private round says of its budget; empty elsewhere.
	Spent string
}

// Purpose of a statement.
type Purpose string

// The purposes: a client sends an upload; a client asks for its receipt; the server has an upload and says since when.
const (
	Upload  Purpose = "upload"
	Ask     Purpose = "ask for receipt"
	Receipt Purpose = "receipt"
)

// bytes are a title and each field, texts after their length, numbers as little-endian uint64; what is spent comes last, and only where there is any.
func (s Statement) bytes() []byte {
	b := []byte("fmp federation statement 1\n")
	for _, t := range []string{string(s.Purpose), s.Client, s.Graph, s.Content} {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(t)))
		b = append(b, t...)
	}
	b = binary.LittleEndian.AppendUint64(b, s.Round)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Time))
	if s.Spent != "" {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s.Spent)))
		b = append(b, s.Spent...)
	}
	return b
}

// Verify reports whether signature is that of the statement by the private half of key.
func Verify(key ed25519.PublicKey, s Statement, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, s.bytes(), signature)
}
