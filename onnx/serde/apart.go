package serde

import (
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of fields in onnx.proto: the way from a model to an initializer's bytes.
const (
	fieldGraph       protowire.Number = 7
	fieldInitializer protowire.Number = 5
	fieldRawData     protowire.Number = 9
)

// apartFrom is the number of bytes from which on an initializer's data are left where they lie.
const apartFrom = 1 << 14

// takeApart returns a model's message without the larger raw data of its initializers, and these by
// the initializers' places in the graph: those of at least from bytes. They are parts of data: a
// decoder would copy them. A message of another form, which gives a graph or an initializer's data
// more than once or is malformed, is returned whole.
//
// The parts are moved by up to seven bytes within data, over the heads of their own fields, so that
// they lie as this machine holds numbers: data is no message afterwards.
func takeApart(data []byte, from int) (rest []byte, raw map[int][]byte) {
	var graph []byte
	graphs := 0
	if !eachField(data, func(num protowire.Number, kind protowire.Type, _, value []byte) {
		if num == fieldGraph && kind == protowire.BytesType {
			graph, graphs = value, graphs+1
		}
	}) || graphs != 1 {
		return data, nil
	}
	small, fields, ok := thinGraph(graph, from)
	if !ok || len(fields) == 0 {
		return data, nil
	}
	rest = make([]byte, 0, len(data)-len(graph)+len(small)+16)
	eachField(data, func(num protowire.Number, kind protowire.Type, whole, _ []byte) {
		if num == fieldGraph && kind == protowire.BytesType {
			whole, rest = small, protowire.AppendTag(rest, fieldGraph, protowire.BytesType)
			rest = protowire.AppendVarint(rest, uint64(len(small)))
		}
		rest = append(rest, whole...)
	})
	raw = make(map[int][]byte, len(fields))
	for i, field := range fields {
		raw[i] = aligned(field)
	}
	return rest, raw
}

// thinGraph returns a graph without the larger raw data of its initializers, and the fields of
// these, with their heads, by the initializers' places.
func thinGraph(graph []byte, from int) (small []byte, fields map[int][]byte, ok bool) {
	fields = map[int][]byte{}
	ok = true
	at := 0
	whole := eachField(graph, func(num protowire.Number, kind protowire.Type, field, value []byte) {
		if num != fieldInitializer || kind != protowire.BytesType {
			small = append(small, field...)
			return
		}
		head, large, tail, good := split(value, from)
		if ok = ok && good; large == nil {
			small = append(small, field...)
		} else {
			small = protowire.AppendTag(small, fieldInitializer, protowire.BytesType)
			small = protowire.AppendVarint(small, uint64(len(head)+len(tail)))
			small = append(append(small, head...), tail...)
			fields[at] = large
		}
		at++
	})
	return small, fields, ok && whole
}

// split returns a tensor's message before and after the field of its raw data; large is nil where
// these are small. A tensor that is malformed or has raw data twice is not ok.
func split(tensor []byte, from int) (head, large, tail []byte, ok bool) {
	times, at := 0, 0
	ok = eachField(tensor, func(num protowire.Number, kind protowire.Type, field, value []byte) {
		if num == fieldRawData && kind == protowire.BytesType {
			if times++; len(value) >= from {
				head, large, tail = tensor[:at], field, tensor[at+len(field):]
			}
		}
		at += len(field)
	})
	if times > 1 {
		return nil, nil, nil, false
	}
	return head, large, tail, ok
}

// eachField calls a function with each field of a message: all of it, and the value of one of
// bytes. It reports whether the message is well formed to its end.
func eachField(data []byte, do func(num protowire.Number, kind protowire.Type, field, value []byte)) bool {
	for len(data) > 0 {
		num, kind, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return false
		}
		n := protowire.ConsumeFieldValue(num, kind, data[tag:])
		if n < 0 {
			return false
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(data[tag:])
		}
		do(num, kind, data[:tag+n], value)
		data = data[tag+n:]
	}
	return true
}

// aligned moves the bytes of a field towards its head, so that they begin at a multiple of eight
// bytes, or of four where the head is too short, and returns them.
func aligned(field []byte) []byte {
	_, _, tag := protowire.ConsumeTag(field)
	value, n := protowire.ConsumeBytes(field[tag:])
	head := tag + n - len(value)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(value)))
	for _, unit := range []uintptr{8, 4} {
		if by := int(at % unit); by <= head {
			to := field[head-by:][:len(value):len(value)]
			copy(to, value)
			return to
		}
	}
	return value
}
