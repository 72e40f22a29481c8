package identity

import (
	"crypto/ed25519"
	"encoding/binary"
)

// Statement is the message of a signature. Two different statements never have the same bytes,
// whatever their purposes.
type Statement struct {
	// Purpose keeps signatures of one kind from being used as those of another.
	Purpose Purpose
	// Server is the public key (base64) of the server that the statement is for, or that makes it:
	// no other server can use it. It is empty in the statement of a part that no server asked for.
	Server string
	Round  uint64
	Client string
	// Graph is the digest of the round's client graph, and Content that of the content that is
	// signed (SHA-256, hexadecimal).
	Graph, Content string
	// Time is when the server accepted an upload, in nanoseconds since 1970; 0 for other purposes.
	Time int64
	// Spent is the privacy budget that a receipt of a private round states; empty otherwise.
	Spent string
}

// Purpose is the kind of a statement. Its text is part of the bytes that are signed: to change one
// is to void every signature of its kind.
type Purpose string

// Purposes: a client sends an upload; a client asks for its receipt; the server certifies that it
// has an upload, and since when; a worker certifies that it merged a part; a client withdraws its
// upload, or the server's operator does it for a client; a server certifies that it took uploads
// out; a server says which versions of its classifier are superseded; a site evaluated a
// classifier.
const (
	Upload      Purpose = "upload"
	Ask         Purpose = "ask for receipt"
	Receipt     Purpose = "receipt"
	Merged      Purpose = "merged part"
	Withdraw    Purpose = "withdraw"
	WithdrawFor Purpose = "withdraw for a client"
	Withdrawn   Purpose = "withdrawal"
	Noticed     Purpose = "notice"
	Evaluated   Purpose = "evaluation"
)

// bytes returns the canonical encoding: a title and each field, strings preceded by their length,
// numbers as little-endian uint64; Spent comes last, and only if it is not empty. Lengths in front
// make it injective: no field can run on into the next. Statements without a budget end with the
// time. The title separates these messages from any others that a key may sign.
func (s Statement) bytes() []byte {
	b := []byte("fmp federation statement 2\n")
	for _, t := range []string{string(s.Purpose), s.Server, s.Client, s.Graph, s.Content} {
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

// Verify reports whether signature is a valid signature of the statement under the public key. The
// length is tested first, since [ed25519.Verify] panics at a key of another one.
func Verify(key ed25519.PublicKey, s Statement, signature []byte) bool {
	return len(key) == ed25519.PublicKeySize && verify(key, s.bytes(), signature)
}

// verify is a variable so that a test can count the verifications.
var verify = ed25519.Verify
