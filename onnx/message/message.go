// Package message decodes protobuf messages from outside. It stands before the protobuf library
// because of one thing that the library leaves open: a packed list may come in any number of
// pieces, and every piece copies those before it, so that 900 kB of pieces of one value take a
// minute and 300 GB.
package message

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxPieces is how many pieces a packed list may come in. Writers make one.
const maxPieces = 16

// maxDepth is how deep messages may lie in each other, unless [Unmarshal] is told otherwise.
const maxDepth = 100

// Unmarshal decodes data into m, which is emptied before. Lists in more pieces than 16 are an
// error, and so are messages that lie deeper in each other than depth; 0 is 100.
func Unmarshal(data []byte, m proto.Message, depth int) error {
	return Within(data, m, depth, math.MaxInt)
}

// Within is [Unmarshal] of data in at most a number of parts: messages, texts and byte strings
// count one each, and so do eight bytes of a packed list of whole numbers. In memory a part takes
// some hundred bytes where the data may have two.
func Within(data []byte, m proto.Message, depth, parts int) error {
	if depth <= 0 {
		depth = maxDepth
	}
	left := parts
	if err := (&seen{left: &left}).scan(data, m.ProtoReflect().Descriptor(), depth); err != nil {
		return err
	}
	if left < 0 {
		return fmt.Errorf("it has more than %d parts", parts)
	}
	return proto.UnmarshalOptions{RecursionLimit: depth}.Unmarshal(data, m)
}

// seen counts the fields of one message so far: the pieces of its packed lists, and the same of the
// single messages in it, since those are merged where they come more than once.
type seen struct {
	fields []fieldSeen
	left   *int // parts
}

type fieldSeen struct {
	number protowire.Number
	pieces int
	single *seen
}

// scan walks over the wire format of a message. A malformed part is left to the decoder, whose
// errors are better.
func (s *seen) scan(data []byte, md protoreflect.MessageDescriptor, depth int) error {
	if depth == 0 {
		return nil // the decoder refuses it
	}
	fields := md.Fields()
	for len(data) > 0 && *s.left >= 0 {
		num, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, kind, data); n < 0 {
				return nil
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return nil
		}
		data = data[n:]
		f := fields.ByNumber(num)
		switch {
		case f == nil || f.Kind() == protoreflect.FloatKind || f.Kind() == protoreflect.DoubleKind:
			// as large in memory
		case f.IsList() && f.IsPacked():
			*s.left -= 1 + len(value)/8
		default:
			*s.left--
		}
		switch {
		case f == nil || f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
		case f.Kind() == protoreflect.MessageKind:
			in := &seen{left: s.left}
			if !f.IsList() {
				of := s.of(num)
				if of.single == nil {
					of.single = in
				}
				in = of.single
			}
			if err := in.scan(value, f.Message(), depth-1); err != nil {
				return err
			}
		case f.IsList():
			of := s.of(num)
			if of.pieces++; of.pieces > maxPieces {
				return fmt.Errorf("field %s comes in more than %d pieces; write it in one",
					f.FullName(), maxPieces)
			}
		}
	}
	return nil
}

// of returns the counts of a field, valid until the next call.
func (s *seen) of(number protowire.Number) *fieldSeen {
	for i := range s.fields {
		if s.fields[i].number == number {
			return &s.fields[i]
		}
	}
	s.fields = append(s.fields, fieldSeen{number: number})
	return &s.fields[len(s.fields)-1]
}
