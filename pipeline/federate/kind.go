package federate

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"google.golang.org/protobuf/proto"

	"fmp/onnx/message"
)

// Kind is a kind of message whose format is told by its first bytes.
// Its package sets it once, and nothing changes it.
type Kind struct {
	Name   string // in errors
	Format byte   // below 128, so that it is a varint of one byte
	Most   int    // bytes of a message
	Writer string // the command that writes it
	Remedy string // for another message in its place, after the writer
}

// formatted is a message with its format in field 1.
// Go's encoder writes fields in the order of their numbers, and so this one first.
type formatted interface {
	proto.Message
	GetFormat() uint32
}

// Is reports whether data are of the kind, by their first bytes. A message begins with field 1, a
// varint: the byte 0x08, and then the format.
// It reads two bytes, and says nothing of the rest of the message.
func (k *Kind) Is(data []byte) bool {
	return len(data) > 1 && data[0] == 0x08 && data[1] == k.Format
}

// Refuse returns the *[FieldError] for a field, with the values that are allowed.
func (k *Kind) Refuse(field string, value any, allowed string, args ...any) error {
	return &FieldError{Kind: k.Name, Field: field, Value: value,
		Allowed: fmt.Sprintf(allowed, args...)}
}

// Encode returns the bytes of a message, the same on every machine. More than Most are an error.
// Digests and signatures are of these bytes.
func (k *Kind) Encode(m proto.Message) ([]byte, error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", k.Name, err)
	}
	return data, k.checkSize(data)
}

// checkSize comes first on both ways, so that nothing is read that is beyond the bound.
func (k *Kind) checkSize(data []byte) error {
	if len(data) > k.Most {
		return k.Refuse("size", fmt.Sprintf("%d bytes", len(data)), "up to %d", k.Most)
	}
	return nil
}

// Decode reads a message of the kind into m. A field that this program does not know would be lost
// when the message is written again, and is refused. A format that comes again in the message, as
// another, is found once it is read.
func (k *Kind) Decode(data []byte, m formatted) error {
	if err := k.checkSize(data); err != nil {
		return err
	}
	if !k.Is(data) {
		return k.Refuse("format", "of another message", "%d, which %s writes%s", k.Format,
			k.Writer, k.Remedy)
	}
	if err := message.Unmarshal(data, m, 0); err != nil {
		return fmt.Errorf("%s: not a message of the type that %s writes: %w", k.Name, k.Writer, err)
	}
	if m.GetFormat() != uint32(k.Format) {
		return k.Refuse("format", m.GetFormat(), "%d, which %s writes", k.Format, k.Writer)
	}
	return k.Known("unknown fields", m)
}

// Known refuses a message with fields that this program does not know, by a name in errors.
// Fields are those of m itself: messages within it are the caller's to check.
func (k *Kind) Known(field string, m proto.Message) error {
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		return k.Refuse(field, fmt.Sprintf("%d bytes of fields that are not known", n),
			"none; use programs of one release on both sides")
	}
	return nil
}

// Bounded refuses a number of a message that is not from low to high.
// Both ends are allowed. A number below 0, converted by its caller, is too large.
func (k *Kind) Bounded(field string, value, low, high uint64) error {
	if value < low || value > high {
		return k.Refuse(field, value, "%d to %d", low, high)
	}
	return nil
}

// Sealed compares the checksum of a message with that of its content.
// The checksum finds damage, and no forgery: anyone can compute it anew.
func (k *Kind) Sealed(checksum, content []byte) error {
	if !bytes.Equal(checksum, content) {
		return k.Refuse("checksum", hex.EncodeToString(checksum[:min(len(checksum), len(content))]),
			"%s, that of the content; the %s was damaged on its way", hex.EncodeToString(content),
			k.Name)
	}
	return nil
}

// Matches compares the fields of a message with the reader's expectations.
// A field of want that is empty, 0 or nil matches any. is.Round must be given where want.Round is.
func (k *Kind) Matches(want, is Expect) error {
	if want.Model != "" && is.Model != want.Model {
		return k.Refuse("model", is.Model,
			"%s, the model of this federation; give every client the same file", want.Model)
	}
	for _, v := range []struct {
		field       string
		value, want int
	}{{"dx", is.Dx, want.Dx}, {"classes", is.C, want.C}, {"size", is.S, want.S}} {
		if v.want != 0 && v.value != v.want {
			return k.Refuse(v.field, v.value, "%d, as the other models have it", v.want)
		}
	}
	if want.Round != nil && *is.Round != *want.Round {
		return k.Refuse("round", *is.Round, "%d, the round that is being gathered", *want.Round)
	}
	return nil
}
