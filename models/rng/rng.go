// Package rng derives a named stream from the run's seed for every use of randomness, so that the
// same seed gives the same figures in whatever order, and on however many threads, the streams are
// read.
package rng

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
)

// New returns the stream of seed with the given name. Parts of the name are joined by "/"; streams
// of different names are independent:
//
//	rng.New(seed, "task", 3, "noise")
func New(seed uint64, name ...any) *rand.Rand {
	h := sha256.New()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	h.Write(b[:])
	for _, p := range name {
		fmt.Fprintf(h, "/%v", p)
	}
	sum := h.Sum(nil)
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum),
		binary.LittleEndian.Uint64(sum[8:])))
}

// Normal fills dst with independent N(0, 1) draws.
func Normal(r *rand.Rand, dst []float32) {
	for i := range dst {
		dst[i] = float32(r.NormFloat64())
	}
}

// Bytes returns a stream as an io.Reader, for consumers of random bytes.
func Bytes(r *rand.Rand) io.Reader { return bytes{r} }

type bytes struct{ r *rand.Rand }

func (b bytes) Read(p []byte) (int, error) {
	for i := 0; i < len(p); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], b.r.Uint64())
		copy(p[i:], word[:])
	}
	return len(p), nil
}
