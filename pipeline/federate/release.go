package federate

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"

	"fmp/pipeline/federate/uploadpb"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// ReleaseFormat is the version of the message of a private round that Encode writes and
// DecodeRelease reads.
const ReleaseFormat = 2

// Release is the message that a client sends to a private round.
type Release struct {
	// Round, Client and Model are as in [Upload].
	Round  uint64
	Client string
	Model  string
	// Budget is the privacy budget of the release. With local noise, Sums already contains the
	// noise.
	Budget privacy.Budget
	Sums   *privacy.Release
	// Salt is random where a trusted server adds the noise, so that the message's digest, which is
	// published, tells nothing of the sums. Zeros are none, as in a message of an earlier program,
	// which [Expect] refuses unless it says otherwise.
	Salt [prio.NonceSize]byte
	// Share is set if the noise is added by two servers; Sums then holds the dimensions alone.
	Share *prio.Share
}

// Scheme returns the secret sharing of the release's sums between two servers. Shares are bound to
// round, client, client graph and budget.
func (r *Release) Scheme() (*prio.Scheme, error) {
	return prio.New(r.Budget, r.Sums.Classes, r.Sums.K, r.context())
}

// context is the text that shares are bound to. Another text ends the rounds that are running:
// it takes nothing from texts for people, which change.
func (r *Release) context() string {
	b, unit, relation := r.Budget, "one image", "added or removed"
	if b.Unit == privacy.Client {
		unit = "a whole client"
	}
	if b.Relation == privacy.ReplaceOne {
		relation = "replaced"
	}
	return fmt.Sprintf("fmp private round %d\nclient %q\ngraph %s\n"+
		"epsilon %g, delta %g for %s %s, noise: %s, points: %d", r.Round, r.Client, r.Model,
		b.Epsilon, b.Delta, unit, relation, b.Noise, b.Points)
}

// Split returns the releases for the leader and the helper, in this order, each with its share of
// the sums. Either share alone tells nothing of the sums, where random is a cryptographic source.
func (r *Release) Split(random io.Reader) ([]*Release, error) {
	s, err := r.Scheme()
	if err != nil {
		return nil, err
	}
	shares, err := s.Split(r.Sums, random)
	if err != nil {
		return nil, err
	}
	var out []*Release
	for i := range shares {
		own := *r
		own.Sums, own.Share = &privacy.Release{Classes: r.Sums.Classes, K: r.Sums.K}, &shares[i]
		out = append(out, &own)
	}
	return out, nil
}

// ofPrivate is the kind of a release.
var ofPrivate = Kind{Name: "upload", Format: ReleaseFormat, Most: MaxBytes,
	Writer: "fmp-edge with the client graph of a private round (fmp fuse --upload private)"}

// IsRelease reports whether a message belongs to a private round, judged by its format field alone.
func IsRelease(data []byte) bool { return ofPrivate.Is(data) }

// Encode returns the encoded release, after the same checks that [DecodeRelease] makes.
// With two servers Values are none, and the share is in their place.
func (r *Release) Encode() ([]byte, error) {
	model, err := hex.DecodeString(r.Model)
	if err != nil {
		return nil, refuse("model", fmt.Sprintf("%q", r.Model), "a sha256 in hexadecimal")
	}
	if r.Sums == nil {
		return nil, refuse("values", "missing", "a release")
	}
	b := r.Budget
	m := &uploadpb.Release{Format: ReleaseFormat, Round: r.Round, Client: r.Client, Model: model,
		Classes: uint32(r.Sums.Classes), Coordinates: uint32(r.Sums.K),
		Epsilon: b.Epsilon, Delta: b.Delta, Unit: b.Unit, Relation: b.Relation, Noise: b.Noise,
		Points: uint32(b.Points)}
	for _, v := range r.Sums.Values {
		m.Values = binary.LittleEndian.AppendUint64(m.Values, uint64(v))
	}
	if b.Noise == privacy.Trusted && r.Salt != [prio.NonceSize]byte{} {
		m.Nonce = r.Salt[:]
	}
	if h := r.Share; h != nil {
		m.Server, m.Nonce, m.PublicShare, m.InputShare = uint32(h.Server), h.Nonce[:],
			h.Public, h.Input
	}
	m.Checksum = releaseChecksum(m)
	data, err := ofPrivate.Encode(m)
	if err != nil {
		return nil, err
	}
	// Never send a message that a reader would reject.
	if _, err := DecodeRelease(data, Expect{Unsalted: true}); err != nil {
		return nil, err
	}
	return data, nil
}

// DecodeRelease decodes a message of a private round and checks it: size, checksum, every number
// against its bounds, the budget, and the expectations in want, where Dx is the number of
// coordinates. The values are C (K+1) integers of 8 bytes, little endian: K sums and a count for
// each class. With two servers they are none, and the share is checked against the scheme.
func DecodeRelease(data []byte, want Expect) (*Release, error) {
	var m uploadpb.Release
	if err := ofPrivate.Decode(data, &m); err != nil {
		return nil, err
	}
	if len(m.Model) != sha256.Size {
		return nil, refuse("model", fmt.Sprintf("a digest of %d bytes", len(m.Model)),
			"%d", sha256.Size)
	}
	if err := cmp.Or(kind.Bounded("classes", uint64(m.Classes), 2, MaxWidth),
		kind.Bounded("coordinates", uint64(m.Coordinates), 1, MaxWidth)); err != nil {
		return nil, err
	}
	n := 8 * uint64(m.Classes) * (uint64(m.Coordinates) + 1)
	if m.Noise == privacy.TwoServers {
		n = 0
	}
	if err := checkShare(&m, want.Unsalted); err != nil {
		return nil, err
	}
	if uint64(len(m.Values)) != n {
		return nil, refuse("values", fmt.Sprintf("%d bytes", len(m.Values)),
			"%d for %d classes and %d coordinates, noise: %s", n, m.Classes, m.Coordinates, m.Noise)
	}
	if err := ofPrivate.Sealed(m.Checksum, releaseChecksum(&m)); err != nil {
		return nil, err
	}
	if err := CheckClient(m.Client); err != nil {
		return nil, err
	}
	r := &Release{Round: m.Round, Client: m.Client, Model: hex.EncodeToString(m.Model),
		Budget: privacy.Budget{Epsilon: m.Epsilon, Delta: m.Delta, Unit: m.Unit,
			Relation: m.Relation, Noise: m.Noise, Points: int(m.Points)},
		Sums: &privacy.Release{Classes: int(m.Classes), K: int(m.Coordinates)}}
	if err := r.Budget.Check(); err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	if m.Noise == privacy.TwoServers {
		r.Share = &prio.Share{Server: int(m.Server), Nonce: [prio.NonceSize]byte(m.Nonce),
			Public: m.PublicShare, Input: m.InputShare}
		s, err := r.Scheme()
		if err == nil {
			err = s.Check(r.Share)
		}
		if err != nil {
			return nil, fmt.Errorf("upload: %w", err)
		}
	} else {
		copy(r.Salt[:], m.Nonce)
		r.Sums.Values = make([]int64, n/8)
		for i := range r.Sums.Values {
			r.Sums.Values[i] = int64(binary.LittleEndian.Uint64(m.Values[8*i:]))
		}
		if err := r.Sums.Check(); err != nil {
			return nil, fmt.Errorf("upload: %w", err)
		}
	}
	return r, r.Matches(want)
}

// checkShare returns an error for a share or nonce of another noise than the message's. The nonce
// of a trusted server's noise may be missing where unsalted is set.
// Nonces have 16 bytes with two servers and with a trusted one. With local noise there is none, as
// the noise makes each message another.
func checkShare(m *uploadpb.Release, unsalted bool) error {
	two := m.Noise == privacy.TwoServers
	if !two && (m.Server != 0 || len(m.PublicShare)+len(m.InputShare) > 0) {
		return refuse("share", "there", "none with noise %.20q", m.Noise)
	}
	size := 0
	if two || m.Noise == privacy.Trusted && !(unsalted && len(m.Nonce) == 0) {
		size = prio.NonceSize
	}
	if len(m.Nonce) != size {
		return refuse("nonce", fmt.Sprintf("%d bytes", len(m.Nonce)),
			"%d with noise %.20q; use programs of one release on both sides", size, m.Noise)
	}
	return nil
}

// Matches returns an error unless the message is as the reader expects it.
func (r *Release) Matches(want Expect) error {
	return ofPrivate.Matches(want, Expect{Model: r.Model, Round: &r.Round, Dx: r.Sums.K,
		C: r.Sums.Classes})
}

// releaseChecksum returns the SHA-256 of every field but the checksum, in the order of the field
// numbers, encoded as for [Upload].
func releaseChecksum(m *uploadpb.Release) []byte {
	h := sha256.New()
	h.Write([]byte("fmp.federate.Release\n"))
	whole.Hash(h, uint64(m.Format), m.Round)
	whole.HashText(h, []byte(m.Client))
	whole.HashText(h, m.Model)
	whole.Hash(h, uint64(m.Classes), uint64(m.Coordinates))
	whole.HashText(h, m.Values)
	whole.Hash(h, math.Float64bits(m.Epsilon), math.Float64bits(m.Delta))
	for _, s := range []string{m.Unit, m.Relation, m.Noise} {
		whole.HashText(h, []byte(s))
	}
	whole.Hash(h, uint64(m.Points))
	if len(m.Nonce) > 0 {
		whole.Hash(h, uint64(m.Server))
		for _, b := range [][]byte{m.Nonce, m.PublicShare, m.InputShare} {
			whole.HashText(h, b)
		}
	}
	return h.Sum(nil)
}
