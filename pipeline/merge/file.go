package merge

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"fmp/pipeline/federate"
	"fmp/pipeline/federate/serverpb"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/moments"
)

// Format is the version of the message.
// A reader takes this number alone: parts are made and pooled within a round.
const Format = 6

// maxHigh bounds the upper halves of sums, so that sums of parts stay within 128 bits.
// An upper half of 2^60 is 2^124 steps of 2^-40. Seven such parts add up within a signed number of
// 128 bits.
const maxHigh = 1 << 60

var kind = federate.Kind{Name: "part", Format: Format, Most: MaxBytes, Writer: "fmp merge",
	Remedy: "; uploads are merged first"}

var refuse = kind.Refuse

// IsPart reports whether data are a part, by their first bytes.
func IsPart(data []byte) bool { return kind.Is(data) }

// Encode returns the part as a message. The same part has the same bytes on every machine. Kept
// uploads stand in it as they came, byte for byte. It is an error if a digest is not hexadecimal,
// or the message exceeds [MaxBytes].
// Sums are 16 bytes each, in steps of 2^-40. With C classes of dx coordinates they have 16 C (1 +
// dx) bytes, and a triangle 8 dx (dx + 1) more.
// It changes nothing of the part, and keeps no slice of it.
func (p *Part) Encode() ([]byte, error) {
	model, err := hex.DecodeString(p.Model)
	if err != nil {
		return nil, refuse("model", p.Model, "a sha256 in hexadecimal")
	}
	against, err := hex.DecodeString(p.Against)
	if err != nil {
		return nil, refuse("against", p.Against, "a sha256 in hexadecimal")
	}
	// A digest of the judge would make two equal parts differ, of which neither was judged.
	if p.limit == nil {
		against = nil // nobody was judged
	}
	m := &serverpb.Part{Format: Format, Round: p.Round, Model: model, Dx: uint32(p.Dx),
		Classes: uint32(p.C), Moments: p.Moments,
		Limit: p.limit, Summed: uint64(p.Summed), LeftOut: uint64(p.LeftOut), N: uint64(p.N),
		Sums: whole.Append(nil, p.sums), Against: against}
	for i := range p.Kept {
		m.Kept = append(m.Kept, p.Kept[i].Data)
	}
	m.Clients = make([]byte, 0, len(p.clients)*entryBytes)
	for _, e := range p.clients {
		m.Clients = append(m.Clients, e[:]...)
	}
	if p.Moments && p.sums != nil {
		m.Dof = whole.Append(nil, []whole.Number{p.dof})
	}
	m.Checksum = checksum(m)
	return kind.Encode(m)
}

// checksum returns the SHA-256 of all other fields in their order: numbers as little-endian uint64,
// bytes after their length, lists after their number. A length before each field keeps two messages
// of shifted bytes from having one hash.
// It costs O(bytes).
func checksum(m *serverpb.Part) []byte {
	h := sha256.New()
	h.Write([]byte("fmp.merge.Part\n"))
	moments := uint64(0)
	if m.Moments {
		moments = 1
	}
	whole.Hash(h, uint64(m.Format), m.Round, uint64(m.Dx), uint64(m.Classes), moments, m.Summed,
		m.LeftOut, m.N, uint64(len(m.Kept)))
	for _, b := range append(slices.Clone(m.Kept), m.Model, m.Limit, m.Clients, m.Sums, m.Dof,
		m.Against) {
		whole.HashText(h, b)
	}
	return h.Sum(nil)
}

// Decode decodes a part and checks it: every number against its bounds, kept uploads as ordinary
// ones, their keys in order and below the limit, clients in order and among them those kept, sums
// against masses, masses against images, and the checksum. Parts come from workers that may err or
// lie. Lengths are compared before memory is taken, and every error names its field.
// Of a valid part the checksum proves only that it came whole; [Verify] tells who made it. want
// need not state all fields.
func Decode(data []byte, want federate.Expect) (*Part, error) {
	var m serverpb.Part
	if err := kind.Decode(data, &m); err != nil {
		return nil, err
	}
	if err := checkFields(&m, want); err != nil {
		return nil, err
	}
	if err := kind.Sealed(m.Checksum, checksum(&m)); err != nil {
		return nil, err
	}
	p := &Part{Round: m.Round, Model: hex.EncodeToString(m.Model), Dx: int(m.Dx), C: int(m.Classes),
		Moments: m.Moments, Summed: int(m.Summed), LeftOut: int(m.LeftOut), N: int(m.N),
		Against: hex.EncodeToString(m.Against), limit: bytes.Clone(m.Limit)}
	if len(m.Limit) == 0 {
		p.limit = nil
	}
	p.clients = make([]entry, len(m.Clients)/entryBytes)
	for i := range p.clients {
		p.clients[i] = entry(m.Clients[i*entryBytes:])
		if i > 0 && byKey(p.clients[i-1], p.clients[i]) >= 0 {
			return nil, refuse(fmt.Sprintf("clients[%d]", i), "not after the one before it",
				"ascending keys, each once")
		}
	}
	if err := p.readKept(m.Kept); err != nil {
		return nil, err
	}
	if len(m.Sums) > 0 {
		p.sums = whole.Read(m.Sums)
		if p.Moments {
			p.dof = whole.Read(m.Dof)[0]
		}
	}
	return p, p.checkSums()
}

// Matches returns an error unless a part has the fields that are expected.
// It compares headers, and reads no upload again.
func (p *Part) Matches(want federate.Expect) error {
	return kind.Matches(want,
		federate.Expect{Model: p.Model, Round: &p.Round, Dx: p.Dx, C: p.C})
}

// checkFields checks numbers and lengths, before memory is allocated. Every upload is either kept,
// summed or left out, so that these three add up to the clients. Sizes of sums follow from dx and
// classes alone. These are bounded first, so that no product of them overflows.
// A limit is there where an upload is summed or left out, and a judge only beside a limit.
// n is bounded by the summed clients: each has at least one image, and at most those of an upload
// with its calibration points.
func checkFields(m *serverpb.Part, want federate.Expect) error {
	if err := kind.Matches(want, federate.Expect{Model: hex.EncodeToString(m.Model),
		Round: &m.Round, Dx: int(m.Dx), C: int(m.Classes)}); err != nil {
		return err
	}
	most := uint64(federate.MaxWidth)
	if m.Moments {
		most = federate.MaxMoments
	}
	clients := uint64(len(m.Clients) / entryBytes)
	everyone := uint64(len(m.Kept)) + m.Summed + m.LeftOut
	if err := cmp.Or(
		kind.Bounded("dx", uint64(m.Dx), 1, most),
		kind.Bounded("classes", uint64(m.Classes), 2, federate.MaxWidth),
		kind.Bounded("clients", clients, 1, MaxClients),
		kind.Bounded("kept", uint64(len(m.Kept)), 0, clients),
		kind.Bounded("summed", m.Summed, 0, clients),
		kind.Bounded("left_out", m.LeftOut, 0, clients),
		kind.Bounded("kept, summed and left_out", everyone, clients, clients),
		kind.Bounded("n", m.N, m.Summed, m.Summed*(federate.MaxN+moments.MaxCalibration)),
	); err != nil {
		return err
	}
	sums := 0
	if m.Summed > 0 {
		sums = whole.Bytes * sizeOf(int(m.Dx), int(m.Classes), m.Moments)
	}
	dof, limit := 0, 0
	if m.Moments && sums > 0 {
		dof = whole.Bytes
	}
	if m.Summed+m.LeftOut > 0 {
		limit = sha256.Size
	}
	for _, v := range []struct {
		field     string
		bytes, is int
	}{{"model", len(m.Model), sha256.Size}, {"checksum", len(m.Checksum), sha256.Size},
		{"limit", len(m.Limit), limit},
		{"clients", len(m.Clients), int(clients) * entryBytes}, {"sums", len(m.Sums), sums},
		{"dof", len(m.Dof), dof}} {
		if v.bytes != v.is {
			return refuse(v.field, fmt.Sprintf("%d bytes", v.bytes), "%d", v.is)
		}
	}
	if n := len(m.Against); n != 0 && (n != sha256.Size || limit == 0) {
		return refuse("against", fmt.Sprintf("%d bytes", n),
			"%d of a part with sums, else none", sha256.Size)
	}
	return nil
}

// readKept reads the uploads that are kept. want ties them to the round, graph and sizes of the
// part. Each must be listed among the clients by its digest, and no more are kept than [Merger]
// would keep.
// Bytes are copied, so that the part does not hold on to the whole message. A place in the order
// shows that no key stands twice.
func (p *Part) readKept(uploads [][]byte) error {
	round := p.Round
	want := federate.Expect{Model: p.Model, Dx: p.Dx, C: p.C, Round: &round}
	for i, data := range uploads {
		field := fmt.Sprintf("kept[%d]", i)
		u, err := federate.Decode(data, want)
		if err != nil {
			return fmt.Errorf("part: %s: %w", field, err)
		}
		if (u.Within != nil) != p.Moments || u.Points.Indices() == nil {
			return refuse(field, "an upload of another kind",
				"class means, with moments in a part of moments")
		}
		k := Kept{Upload: u, Data: bytes.Clone(data), key: key(u.Round, u.Model, u.Client)}
		if i > 0 && compare(p.Kept[i-1], k) >= 0 || p.limit != nil &&
			bytes.Compare(k.key[:], p.limit) >= 0 {
			return refuse(field, fmt.Sprintf("of client %q, out of place", u.Client),
				"uploads in the order of their keys, below limit")
		}
		// The digest is of the bytes as they came, so that an upload cannot be swapped within a
		// part.
		e := entryOf(k.key, sha256.Sum256(data))
		if at, ok := slices.BinarySearchFunc(p.clients, e, byKey); !ok || p.clients[at] != e {
			return refuse(field, fmt.Sprintf("of client %q", u.Client),
				"uploads whose digests are among clients")
		}
		p.Kept = append(p.Kept, k)
	}
	// A part with more kept uploads than its size allows was made by another rule.
	if n := kept(p.Kept); n < len(p.Kept) {
		return refuse("kept", fmt.Sprintf("%d uploads", len(p.Kept)), "%d at most of this size", n)
	}
	return nil
}

// checkSums checks the sums: no masses below 0 or beyond the images, no mean beyond the largest
// coordinate, and no scatter that as many rows of length 1 cannot have. With n_c the mass, s_c the
// sums of class c, N the images and t the trace of the scatter it asks for
//
//	n_c >= 0,   |s_cj| <= most n_c,   0 < sum_c n_c <= 1.01 N,   t <= 1.05 N,   |scatter_ij| <= t
//
// of which the last two are of moments. Their rows have length 1, so that most is 1 but for
// rounding; of class means it is maxCoordinate. The bounds do not prove that uploads give the sums:
// they keep a false part from moving a mean beyond any image's.
// Numbers are compared in float64, whose rounding is far within the slack of 1%.
func (p *Part) checkSums() error {
	total := 0.0
	for i, s := range p.sums {
		if s.High > maxHigh || s.High < -maxHigh {
			return refuse(fmt.Sprintf("sums[%d]", i), s.Float(), "up to 2^84")
		}
	}
	// A row of sums is [mass, dx sums] of one class.
	for y := 0; y < p.C && p.sums != nil; y++ {
		s := p.sums[y*(1+p.Dx):][:1+p.Dx]
		mass := s[0].Float()
		if s[0].High < 0 {
			return refuse(fmt.Sprintf("mass of class %d", y), mass, "at least 0")
		}
		most := maxCoordinate * mass
		if p.Moments {
			most = 1.05 * mass // rows of length 1, rounded
		}
		for j, v := range s[1:] {
			// 1e-6 is room for rounding where the mass is 0 or tiny.
			if f := v.Float(); math.Abs(f) > most+1e-6 {
				return refuse(fmt.Sprintf("sum %d of class %d", j, y), f,
					"%v at most, for a mass of %v", most, mass)
			}
		}
		total += mass
	}
	images := 1.01 * float64(p.N) // masses in float16 are rounded
	if p.Moments {
		images += 10 * float64(p.Summed) // calibration points, which earlier releases did not count
	}
	if total > images || p.sums != nil && total <= 0 {
		return refuse("masses", total, "above 0, and n at most, %d", p.N)
	}
	if !p.Moments || p.sums == nil {
		return nil
	}
	if f := p.dof.Float(); !(f >= 0 && f <= images) {
		return refuse("dof", f, "0 to n, %d", p.N)
	}
	// The triangle lies row by row: the diagonal of row i comes dx - i numbers before the next.
	trace, at := 0.0, p.C*(1+p.Dx)
	for i := range p.Dx {
		d := p.sums[at].Float()
		if trace += d; d < 0 {
			return refuse(fmt.Sprintf("scatter of coordinate %d", i), d, "at least 0")
		}
		at += p.Dx - i
	}
	if trace > 1.05*images {
		return refuse("scatter", fmt.Sprintf("of trace %.4g", trace), "n at most, %d", p.N)
	}
	// By Cauchy and Schwarz |S_ij| <= sqrt(S_ii S_jj) <= trace.
	for i, v := range p.sums[p.C*(1+p.Dx):] {
		if f := v.Float(); math.Abs(f) > trace+1e-6 {
			return refuse(fmt.Sprintf("scatter[%d]", i), f, "no more than its trace, %.4g", trace)
		}
	}
	return nil
}
