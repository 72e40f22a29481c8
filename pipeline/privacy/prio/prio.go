// Package prio splits the class sums of a client of a private round into two shares, one for each
// of two servers, with a proof that every number is in range, and aggregates shares: Prio3SumVec of
// the VDAF draft (draft-irtf-cfrg-vdaf-14; Corrigan-Gibbs and Boneh 2017, Prio), as implemented by
// github.com/cloudflare/circl v1.6. A single share is uniformly random; the servers learn that each
// client's numbers are in range, and the sum over all clients, to which each server has added noise
// before it is opened.
//
// It is part of the program for small devices.
package prio

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/cloudflare/circl/vdaf/prio3/arith/fp128"
	"github.com/cloudflare/circl/vdaf/prio3/sumvec"

	"fmp/pipeline/privacy"
)

// The two servers, by their names in the aggregation draft (draft-ietf-ppm-dap). The message to the
// leader is long, that to the helper short.
const (
	Leader  = 0
	Helper  = 1
	servers = 2
)

// Sizes in bytes.
const (
	NonceSize  = 16
	PublicSize = servers * seedSize
	seedSize   = 32
)

// maxElements is the maximum number of field elements, of 16 bytes each, in a leader's share.
const maxElements = 1 << 20

// noiseOffset is added by each server with its noise, so that the opened sum is not negative: noise
// is at most 2^50 steps, as standard deviations are at most 2^40.
const noiseOffset = 1 << 50

// Key is the verification key that the servers share and clients do not know: it determines the
// points at which proofs are checked.
type Key = sumvec.VerifyKey

// KeyOf derives the servers' key for a round from their shared secret and the SHA-256 of the
// round's client graph.
func KeyOf(secret string, round uint64, graph string) (*Key, error) {
	b, err := hkdf.Key(sha256.New, []byte(secret), nil,
		fmt.Sprintf("fmp prio3 verify key round %d graph %s", round, graph), len(Key{}))
	if err != nil {
		return nil, fmt.Errorf("two servers: %w", err)
	}
	return (*Key)(b), nil
}

// Scheme is the secret sharing of the sums of one client in one round. Numbers are in [-2^(Bits-1),
// 2^(Bits-1)).
type Scheme struct {
	Classes, K int
	// Bits is the number of bits of a number.
	Bits int

	vdaf *sumvec.SumVec
}

// New returns the scheme for a client's sums under a budget, whose Points bounds the numbers.
// Shares are bound to the context, which names the round and the client, and are refused under any
// other.
func New(b privacy.Budget, classes, k int, context string) (*Scheme, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	if b.Noise != privacy.TwoServers {
		return nil, fmt.Errorf("two servers: the noise of the round is %s", b.Noise)
	}
	s := &Scheme{Classes: classes, K: k, Bits: 1 + bits.Len64(b.MaxNumber(classes))}
	return s, s.open(context, chunkLength(s.numbers()*s.Bits))
}

// open makes the sharing of a context. The size is bounded before memory is taken.
// A share has C (K + 1) Bits field elements besides its proof, one for each bit of a number.
func (s *Scheme) open(context string, chunk int) error {
	if n := s.numbers() * s.Bits; s.Classes < 1 || s.K < 1 || n > maxElements {
		return fmt.Errorf(
			"two servers: %d classes of %d coordinates, %d bits each; allowed are %d bits in all",
			s.Classes,
			s.K, s.Bits, maxElements)
	}
	var err error
	if s.vdaf, err = sumvec.New(servers, uint(s.numbers()), uint(s.Bits), uint(chunk),
		[]byte(context)); err != nil {
		return fmt.Errorf("two servers: %w", err)
	}
	return nil
}

// chunkLength balances the two parts of the proof, as the draft recommends.
func chunkLength(n int) int { return max(int(math.Sqrt(float64(n))), 1) }

// numbers is how many numbers the sums have, K sums and a count for each class. offset is half of
// the range, which makes them nonnegative.
func (s *Scheme) numbers() int  { return s.Classes * (s.K + 1) }
func (s *Scheme) offset() int64 { return 1 << (s.Bits - 1) }

// WorstNorm returns the largest L2 norm, in steps, of numbers in range: how far a dishonest client
// can move the sum.
func (s *Scheme) WorstNorm() float64 {
	return float64(s.offset()) * math.Sqrt(float64(s.numbers()))
}

// Share is a client's message to one of the servers.
type Share struct {
	// Server is [Leader] or [Helper].
	Server int
	// Nonce is chosen by the client and is the same in both shares, as is Public, with which each
	// server checks the other's part of the proof's randomness.
	Nonce  [NonceSize]byte
	Public []byte
	// Input is the share of numbers and proof, or the seed from which it is expanded.
	Input []byte
}

// LeaderBytes returns the size of the leader's share in bytes.
func (s *Scheme) LeaderBytes() int {
	p := s.vdaf.Params()
	return int(p.MeasurementLength()+p.ProofLength())*fp128.Size + seedSize
}

// Check returns an error unless a share has the lengths that the scheme requires.
func (s *Scheme) Check(sh *Share) error {
	if sh.Server != Leader && sh.Server != Helper {
		return fmt.Errorf("two servers: a share for server %d; want %d (leader) or %d (helper)",
			sh.Server, Leader, Helper)
	}
	want := 2 * seedSize
	if sh.Server == Leader {
		want = s.LeaderBytes()
	}
	if len(sh.Public) != PublicSize || len(sh.Input) != want {
		return fmt.Errorf(
			"two servers: a share of %d and %d bytes; want %d and %d for %d numbers of %d bits",
			len(sh.Public), len(sh.Input), PublicSize, want, s.numbers(), s.Bits)
	}
	return nil
}

// Split splits sums into shares with randomness from a reader (crypto/rand's). Sums that are out of
// range are refused. Numbers are moved to 0 to 2^Bits - 1 by the offset, as field elements have no
// sign. Randomness of a weak reader would let one server learn the sums.
func (s *Scheme) Split(sums *privacy.Release, random io.Reader) (*[servers]Share, error) {
	if err := sums.Check(); err != nil {
		return nil, err
	}
	if sums.Classes != s.Classes || sums.K != s.K {
		return nil, fmt.Errorf("two servers: sums of %d classes and %d coordinates; want %d and %d",
			sums.Classes, sums.K, s.Classes, s.K)
	}
	numbers := make([]uint64, len(sums.Values))
	for i, v := range sums.Values {
		if v < -s.offset() || v >= s.offset() {
			return nil, fmt.Errorf("two servers: number %d of the sums is %d; "+
				"%d bits allow %d to %d", i, v, s.Bits, -s.offset(), s.offset()-1)
		}
		numbers[i] = uint64(v + s.offset())
	}
	var nonce [NonceSize]byte
	p := s.vdaf.Params()
	seeds := make([]byte, p.RandSize())
	for _, b := range [][]byte{nonce[:], seeds} {
		if _, err := io.ReadFull(random, b); err != nil {
			return nil, fmt.Errorf("two servers: no randomness: %w", err)
		}
	}
	return s.split(numbers, nonce, seeds)
}

// split is Split with given randomness, for the vectors of the draft.
func (s *Scheme) split(numbers []uint64, nonce [NonceSize]byte,
	seeds []byte) (*[servers]Share, error) {
	public, inputs, err := s.vdaf.Shard(numbers, (*sumvec.Nonce)(&nonce), seeds)
	if err != nil {
		return nil, fmt.Errorf("two servers: sharing: %w", err)
	}
	var out [servers]Share
	for i := range out {
		input, err := inputs[i].MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("two servers: sharing: %w", err)
		}
		out[i] = Share{i, nonce, public, input}
	}
	return &out, nil
}

// ErrProof means that the two servers' parts do not prove that every number is in range.
var ErrProof = errors.New("the shares do not prove that every number is in range")

// Checking is a share whose proof is being verified.
type Checking struct {
	scheme *Scheme
	server int
	state  *sumvec.PrepState
	own    *sumvec.PrepShare
}

// Begin starts the verification of a share's proof, under the servers' key.
func (s *Scheme) Begin(key *Key, sh *Share) (*Checking, error) {
	if err := s.Check(sh); err != nil {
		return nil, err
	}
	p := s.vdaf.Params()
	var input sumvec.InputShare
	if err := input.New(&p, uint(sh.Server)).UnmarshalBinary(sh.Input); err != nil {
		return nil, fmt.Errorf("two servers: the share: %w", ErrProof)
	}
	c := &Checking{scheme: s, server: sh.Server}
	nonce := sumvec.Nonce(sh.Nonce)
	var err error
	c.state, c.own, err = s.vdaf.PrepInit(key, &nonce, uint8(sh.Server), sh.Public, input)
	if err != nil {
		return nil, fmt.Errorf("two servers: %w (%w)", ErrProof, err)
	}
	return c, nil
}

// Message returns the message for the other server.
func (c *Checking) Message() ([]byte, error) { return c.own.MarshalBinary() }

// Finish completes the verification with the other server's [Checking.Message] and returns this
// server's share of the client's numbers. A share that fails must not be added: [ErrProof] says so.
func (c *Checking) Finish(other []byte) (*sumvec.OutShare, error) {
	p := c.scheme.vdaf.Params()
	theirs := new(sumvec.PrepShare).New(&p)
	if err := theirs.UnmarshalBinary(other); err != nil {
		return nil, fmt.Errorf("two servers: the other server's part of the proof has %d bytes: %w",
			len(other), ErrProof)
	}
	parts := []sumvec.PrepShare{*c.own, *theirs}
	if c.server == Helper {
		parts[0], parts[1] = parts[1], parts[0]
	}
	m, err := c.scheme.vdaf.PrepSharesToPrep(parts)
	if err != nil {
		return nil, fmt.Errorf("two servers: %w (%w)", ErrProof, err)
	}
	out, err := c.scheme.vdaf.PrepNext(c.state, m)
	if err != nil {
		return nil, fmt.Errorf("two servers: %w (%w)", ErrProof, err)
	}
	return out, nil
}

// Sum is one server's share of the sum of clients' numbers.
type Sum struct {
	scheme  *Scheme
	share   sumvec.AggShare
	clients int
}

// NewSum returns a share of zeros.
func (s *Scheme) NewSum() *Sum { return &Sum{scheme: s, share: s.vdaf.AggregateInit()} }

// Add adds a client's share.
func (a *Sum) Add(out *sumvec.OutShare) {
	a.scheme.vdaf.AggregateUpdate(&a.share, out)
	a.clients++
}

// AddNoise adds this server's discrete Gaussian noise of standard deviation sigma to every number.
// Call it once, before the share leaves the server.
func (a *Sum) AddNoise(sigma uint64, random io.Reader) error {
	noise := privacy.NewRelease(a.scheme.Classes, a.scheme.K)
	if err := noise.AddNoise(sigma, random); err != nil {
		return err
	}
	return a.shift(noise.Values)
}

// shift adds the integers given, and noiseOffset to each number.
func (a *Sum) shift(values []int64) error {
	raw := make([]byte, 0, len(values)*fp128.Size)
	for _, v := range values {
		if v < -noiseOffset || v > noiseOffset {
			return fmt.Errorf("two servers: noise of %d steps; allowed are up to 2^50", v)
		}
		// a field element is 16 bytes, little-endian
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v+noiseOffset))
		raw = binary.LittleEndian.AppendUint64(raw, 0)
	}
	p := a.scheme.vdaf.Params()
	out := new(sumvec.OutShare).New(&p)
	if err := out.UnmarshalBinary(raw); err != nil {
		return fmt.Errorf("two servers: %w", err)
	}
	a.scheme.vdaf.AggregateUpdate(&a.share, out)
	return nil
}

// Bytes returns the encoded share.
func (a *Sum) Bytes() ([]byte, error) { return a.share.MarshalBinary() }

// Open adds the other server's share to this one and returns the noisy sum. Both shares must
// contain noise. Offsets of all clients and of both servers' noise are taken off.
// With M clients, B bits and the field's sum t of a number it is t - M 2^(B-1) - 2 2^50.
func (a *Sum) Open(other []byte) (*privacy.Release, error) {
	s := a.scheme
	p := s.vdaf.Params()
	theirs := new(sumvec.AggShare).New(&p)
	if err := theirs.UnmarshalBinary(other); err != nil {
		return nil, fmt.Errorf("two servers: the other server's share of the sum has %d bytes: %w",
			len(other), err)
	}
	total, err := s.vdaf.Unshard([]sumvec.AggShare{a.share, *theirs}, uint(a.clients))
	if err != nil {
		return nil, fmt.Errorf("two servers: the shares of the sum do not go together: %w", err)
	}
	out := privacy.NewRelease(s.Classes, s.K)
	for i, v := range *total {
		out.Values[i] = int64(v) - int64(a.clients)*s.offset() - servers*noiseOffset
	}
	if err := out.Check(); err != nil {
		return nil, fmt.Errorf("two servers: the shares of the sum do not go together: %w", err)
	}
	return out, nil
}
