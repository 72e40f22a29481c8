package stats

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"fmp/pipeline/federate"
	"fmp/pipeline/federate/serverpb"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/moments"
)

const (
	// Format is the version of the message.
	Format = 8
	// MaxBytes is the maximum size of a state.
	MaxBytes = 1 << 30
)

var kind = federate.Kind{Name: "state", Format: Format, Most: MaxBytes,
	Writer: "fmp pool --state"}

var refuse = kind.Refuse

// Encode returns the state as a message. The same state has the same bytes on every machine. It is
// an error if a digest is not hexadecimal, or the message exceeds [MaxBytes].
// A fold has 16 bytes for each whole number: h (2 + dx) of h classes that it holds, and dx (dx +
// 1)/2 second moments.
func (s *State) Encode() ([]byte, error) {
	model, err := hex.DecodeString(s.Model)
	if err != nil {
		return nil, refuse("model", s.Model, "a sha256 in hexadecimal")
	}
	m := &serverpb.State{Format: Format, Round: s.Round, Model: model, Dx: uint32(s.Dx),
		Classes: uint32(s.C)}
	for _, c := range s.client {
		digest, err := hex.DecodeString(c.Upload)
		if err != nil || len(digest) != sha256.Size {
			return nil, refuse("clients", c.Upload, "a sha256 in hexadecimal of each upload")
		}
		m.Clients = append(m.Clients,
			&serverpb.Client{Name: c.Name, Upload: digest, N: uint64(c.N)})
	}
	for _, f := range s.fold { // also those of no clients, as their place is their number
		m.Folds = append(m.Folds, f.message())
	}
	m.Checksum = checksum(m)
	return kind.Encode(m)
}

// message returns the sum for a state: classes that are held, ascending, each with mass, squares
// and sums, then second moments and curve. Numbers of clients and images are left out, as the
// state's clients tell them.
func (s *Sum) message() *serverpb.Sum {
	m := &serverpb.Sum{Curved: uint64(s.Curved), Rows: uint64(s.rows),
		Second: whole.Append(nil, s.second)}
	for _, y := range s.held() {
		m.Held, m.Sums = append(m.Held, uint32(y)), whole.Append(m.Sums, s.classes[y])
	}
	if s.Curved > 0 {
		m.Curve = s.curve[:]
	}
	return m
}

// checksum returns the SHA-256 of all other fields in their order: numbers as little-endian uint64,
// texts and bytes after their length, lists after their number.
func checksum(m *serverpb.State) []byte {
	h := sha256.New()
	h.Write([]byte("fmp.stats.State\n"))
	whole.Hash(h, uint64(m.Format), m.Round)
	whole.HashText(h, m.Model)
	whole.Hash(h, uint64(m.Dx), uint64(m.Classes), uint64(len(m.Clients)))
	for _, c := range m.Clients {
		whole.HashText(h, []byte(c.GetName()))
		whole.HashText(h, c.GetUpload())
		whole.Hash(h, c.GetN())
	}
	whole.Hash(h, uint64(len(m.Folds)))
	for _, f := range m.Folds {
		whole.Hash(h, f.GetCurved(), f.GetRows(), uint64(len(f.GetHeld())))
		for _, y := range f.GetHeld() {
			whole.Hash(h, uint64(y))
		}
		whole.HashText(h, f.GetSums())
		whole.HashText(h, f.GetSecond())
		whole.Hash(h, uint64(len(f.GetCurve())))
		whole.Hash(h, f.GetCurve()...)
	}
	return h.Sum(nil)
}

// Decode decodes a state and checks it: every number against its bounds, clients in order and each
// once, sums against the images of the fold's clients, the checksum, and the expectations in want.
// Names ascend, which makes the order of clients part of the content. Numbers of images of a fold
// are the sums of its clients', and not read.
func Decode(data []byte, want federate.Expect) (*State, error) {
	var m serverpb.State
	if err := kind.Decode(data, &m); err != nil {
		return nil, err
	}
	if err := checkFields(&m, want); err != nil {
		return nil, err
	}
	if err := kind.Sealed(m.Checksum, checksum(&m)); err != nil {
		return nil, err
	}
	s := &State{Round: m.Round, Model: hex.EncodeToString(m.Model), Dx: int(m.Dx),
		C: int(m.Classes)}
	for i := range s.fold {
		s.fold[i] = &Sum{Dx: s.Dx, C: s.C}
	}
	for i, c := range m.Clients {
		if err := federate.CheckClient(c.GetName()); err != nil {
			return nil, fmt.Errorf("state: clients[%d]: %w", i, err)
		}
		if n := c.GetN(); n < 1 || n > maxImages || len(c.GetUpload()) != sha256.Size {
			return nil, refuse(fmt.Sprintf("clients[%d]", i),
				fmt.Sprintf("of %d images and a digest of %d bytes", n, len(c.GetUpload())),
				"1 to %d images, and %d bytes", maxImages, sha256.Size)
		}
		if i > 0 && c.Name <= m.Clients[i-1].Name {
			return nil, refuse(fmt.Sprintf("clients[%d]", i),
				fmt.Sprintf("%q, not after the one before it", c.Name),
				"ascending names, each once")
		}
		s.client = append(s.client, Client{c.Name, hex.EncodeToString(c.Upload), int(c.N)})
		f := s.fold[FoldOf(c.Name)]
		f.Clients, f.N = f.Clients+1, f.N+int64(c.N)
	}
	for i, f := range m.Folds {
		if err := s.fold[i].read(f); err != nil {
			return nil, fmt.Errorf("state: fold %d: %w", i, err)
		}
	}
	return s, nil
}

// checkFields checks numbers and lengths, before memory is allocated. A field that this program
// does not know would be lost when the state is written again, and is refused. Sizes come before
// the lengths that follow from them, so that no product of sizes overflows.
func checkFields(m *serverpb.State, want federate.Expect) error {
	if err := kind.Matches(want, federate.Expect{Model: hex.EncodeToString(m.Model),
		Round: &m.Round, Dx: int(m.Dx), C: int(m.Classes)}); err != nil {
		return err
	}
	if err := cmp.Or(
		kind.Bounded("dx", uint64(m.Dx), 1, federate.MaxWidth),
		kind.Bounded("classes", uint64(m.Classes), 2, federate.MaxWidth),
		kind.Bounded("clients", uint64(len(m.Clients)), 1, MaxClients),
		kind.Bounded("folds", uint64(len(m.Folds)), Folds, Folds),
		kind.Bounded("bytes of model", uint64(len(m.Model)), sha256.Size, sha256.Size),
		kind.Bounded("bytes of checksum", uint64(len(m.Checksum)), sha256.Size, sha256.Size),
	); err != nil {
		return err
	}
	for i, f := range m.Folds {
		if err := checkFold(i, f, int(m.Dx)); err != nil {
			return err
		}
	}
	for i, c := range m.Clients {
		if err := kind.Known(fmt.Sprintf("clients[%d]", i), c); err != nil {
			return err
		}
	}
	return nil
}

// checkFold compares the lengths of fold i with its numbers of classes and coordinates. Of h
// classes held and k coordinates there are h (2 + k) numbers of sums. Second moments have k (k +
// 1)/2, or none where rows are too wide or no client is in. Rows and curves are bounded before they
// become signed numbers.
func checkFold(i int, f *serverpb.Sum, k int) error {
	second := len(f.Second)
	if second != 0 && (k > federate.MaxMoments || second != whole.Bytes*(k*(k+1)/2)) {
		return refuse(fmt.Sprintf("folds[%d].second", i), fmt.Sprintf("%d bytes", second),
			"those of a triangle, or none")
	}
	if len(f.Sums) != len(f.Held)*(first+k)*whole.Bytes {
		return refuse(fmt.Sprintf("folds[%d].sums", i), fmt.Sprintf("%d bytes", len(f.Sums)),
			"%d for %d classes", len(f.Held)*(first+k)*whole.Bytes, len(f.Held))
	}
	if err := kind.Known(fmt.Sprintf("folds[%d]", i), f); err != nil {
		return err
	}
	if n := len(f.Curve); n != 0 && n != moments.Temperatures || (n > 0) != (f.Curved > 0) {
		return refuse(fmt.Sprintf("folds[%d].curve", i),
			fmt.Sprintf("%d numbers of %d clients", n, f.Curved), "%d, or none of no client",
			moments.Temperatures)
	}
	if f.Rows > MaxClients*(maxImages+federate.MaxSize) || f.Curved > MaxClients {
		return refuse(fmt.Sprintf("folds[%d]", i),
			fmt.Sprintf("%d rows, and curves of %d clients", f.Rows, f.Curved),
			"no more than images have")
	}
	return nil
}

// read sets a sum whose clients and images are known from a message whose lengths are checked. Its
// numbers are held against the bounds of [Sum.check] at the end. Numbers of held classes lie one
// class after another, 2 + k each.
func (s *Sum) read(m *serverpb.Sum) error {
	s.Curved, s.rows, s.classes = int(m.Curved), int64(m.Rows), map[int][]whole.Number{}
	size := (first + s.Dx) * whole.Bytes
	for i, y := range m.Held {
		if int64(y) >= int64(s.C) || i > 0 && y <= m.Held[i-1] {
			return refuse(fmt.Sprintf("held[%d]", i), y, "ascending classes, below %d", s.C)
		}
		s.classes[int(y)] = whole.Read(m.Sums[i*size : (i+1)*size])
	}
	if len(m.Second) > 0 {
		s.second = whole.Read(m.Second)
	}
	copy(s.curve[:], m.Curve)
	return s.check()
}
