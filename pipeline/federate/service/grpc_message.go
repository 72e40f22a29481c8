package service

import (
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of open_inference.proto, read and written field by field, as few of their fields are.

// Largest numbers of axes and of inputs or requested outputs.
const (
	maxAxes    = 8
	maxOutputs = 16
)

// field is one field of a message: a number, or the bytes of a text, a message or a packed list.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  uint64
	bytes  []byte
}

// eachField passes the fields of a message to do, in their order. Fields that do does not know are its to leave out.
func eachField(message []byte, do func(f field) error) error {
	for len(message) > 0 {
		f, n := field{}, 0
		f.number, f.kind, n = protowire.ConsumeTag(message)
		if n >= 0 {
			message = message[n:]
			switch f.kind {
			case protowire.VarintType:
				f.value, n = protowire.ConsumeVarint(message)
			case protowire.BytesType:
				f.bytes, n = protowire.ConsumeBytes(message)
			default:
				if n = protowire.ConsumeFieldValue(f.number, f.kind, message); n >= 0 {
					f.bytes = message[:n]
				}
			}
		}
		if n < 0 {
			return grpcErrorf(grpcInvalid, "the message cannot be read: %v", protowire.ParseError(n))
		}
		message = message[n:]
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

// text sets a string from a field.
func (f *field) text(to *string) error {
	if f.kind != protowire.BytesType || !utf8.Valid(f.bytes) {
		return f.wrong()
	}
	*to = string(f.bytes)
	return nil
}

func (f *field) wrong() error {
	return grpcErrorf(grpcInvalid, "the message cannot be read: field %d is not of its type", f.number)
}

// varints passes the values of a repeated field of varints, packed or one by one, to do.
func (f *field) varints(do func(v uint64) error) error {
	if f.kind == protowire.VarintType {
		return do(f.value)
	}
	if f.kind != protowire.BytesType {
		return f.wrong()
	}
	for rest := f.bytes; len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return f.wrong()
		}
		rest = rest[n:]
		if err := do(v); err != nil {
			return err
		}
	}
	return nil
}

// parseModel parses ModelReadyRequest and ModelMetadataRequest.
func parseModel(message []byte) (name, version string, err error) {
	err = eachField(message, func(f field) error {
		switch f.number {
		case 1:
			return f.text(&name)
		case 2:
			return f.text(&version)
		}
		return nil
	})
	return name, version, err
}

// call is a ModelInferRequest. raw tells that its tensor was in raw_input_contents; the answer's are then so too.
type call struct {
	inferRequest
	model, version string
	raw            bool
}

// parseCall parses a ModelInferRequest of one input.
func parseCall(message []byte) (*call, error) {
	q := &call{}
	q.Parameters.Binary = true
	var raw []byte
	err := eachField(message, func(f field) error {
		switch f.number {
		case 1:
			return f.text(&q.model)
		case 2:
			return f.text(&q.version)
		case 3:
			return f.text(&q.ID)
		case 5:
			if len(q.Inputs) == 1 {
				return grpcErrorf(grpcInvalid, "more than one input; want one, images or features")
			}
			in, err := parseInput(f)
			q.Inputs = append(q.Inputs, in)
			return err
		case 6:
			return q.addOutput(f)
		case 7:
			if q.raw || f.kind != protowire.BytesType {
				return grpcErrorf(grpcInvalid, "more raw_input_contents than inputs")
			}
			q.raw, raw = true, f.bytes
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := q.check(); err != nil {
		return nil, inputf("%w", err)
	}
	if q.raw && q.Inputs[0].Binary != nil {
		return nil, grpcErrorf(grpcInvalid, "both contents and raw_input_contents; want one of them")
	}
	if q.raw {
		q.Inputs[0].Binary = raw
	}
	q.Inputs[0].Parameters = &binarySize{new(int64)}
	return q, nil
}

// parseInput parses an InferInputTensor; its contents become those that raw_input_contents would hold.
func parseInput(f field) (t tensor, err error) {
	if f.kind != protowire.BytesType {
		return t, f.wrong()
	}
	return t, eachField(f.bytes, func(f field) error {
		switch f.number {
		case 1:
			return f.text(&t.Name)
		case 2:
			return f.text(&t.Datatype)
		case 3:
			return f.varints(func(v uint64) error {
				if len(t.Shape) == maxAxes {
					return grpcErrorf(grpcInvalid, "a shape of more than %d axes", maxAxes)
				}
				t.Shape = append(t.Shape, int64(v))
				return nil
			})
		case 5:
			if f.kind != protowire.BytesType {
				return f.wrong()
			}
			return eachField(f.bytes, t.addContents)
		}
		return nil
	})
}

// addContents appends a field of InferTensorContents.
func (t *tensor) addContents(f field) error {
	switch {
	case f.number == 4:
		return f.varints(func(v uint64) error {
			if v > math.MaxUint8 {
				return grpcErrorf(grpcInvalid, "contents: %d; allowed are 0 to 255", v)
			}
			t.Binary = append(t.Binary, uint8(v))
			return nil
		})
	case f.number == 6 && (f.kind == protowire.BytesType || f.kind == protowire.Fixed32Type):
		t.Binary = append(t.Binary, f.bytes...) // little-endian in the message too
		return nil
	case f.number <= 8:
		return grpcErrorf(grpcInvalid, "contents in field %d; want uint_contents for UINT8, fp32_contents for FP32", f.number)
	}
	return nil
}

// addOutput appends an InferRequestedOutputTensor.
func (q *call) addOutput(f field) error {
	if len(q.Outputs) == maxOutputs || f.kind != protowire.BytesType {
		return grpcErrorf(grpcInvalid, "more than %d outputs", maxOutputs)
	}
	var o requestedOutput
	q.Outputs = append(q.Outputs, o)
	return eachField(f.bytes, func(f field) error {
		if f.number == 1 {
			return f.text(&q.Outputs[len(q.Outputs)-1].Name)
		}
		return nil
	})
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendBytes(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

// boolMessage returns ServerLiveResponse, ServerReadyResponse or ModelReadyResponse.
func boolMessage(v bool) []byte {
	if !v {
		return nil
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
}

// serverMessage returns the ServerMetadataResponse.
func serverMessage() []byte {
	return appendText(appendText(nil, 1, serverName), 2, protocolVersion)
}

// modelMessage returns the ModelMetadataResponse.
func modelMessage(version int, inputs, outputs []tensor) []byte {
	b := appendText(appendText(appendText(nil, 1, modelName), 2, strconv.Itoa(version)), 3, modelPlatform)
	for _, t := range inputs {
		b = appendBytes(b, 4, t.header())
	}
	for _, t := range outputs {
		b = appendBytes(b, 5, t.header())
	}
	return b
}

// header returns name, type and shape: TensorMetadata, and the beginning of InferOutputTensor.
func (t *tensor) header() []byte {
	var shape []byte
	for _, d := range t.Shape {
		shape = protowire.AppendVarint(shape, uint64(d))
	}
	return appendBytes(appendText(appendText(nil, 1, t.Name), 2, t.Datatype), 3, shape)
}

// message returns the ModelInferResponse, with raw_output_contents or the contents of each tensor.
func (a *inferAnswer) message(raw bool) []byte {
	b := appendText(appendText(appendText(nil, 1, a.Model), 2, a.Version), 3, a.ID)
	for _, t := range a.Outputs {
		h := t.header()
		if !raw {
			h = appendBytes(h, 5, appendBytes(nil, 6, t.Binary)) // fp32_contents
		}
		b = appendBytes(b, 5, h)
	}
	if raw {
		for _, t := range a.Outputs {
			b = appendBytes(b, 6, t.Binary)
		}
	}
	return b
}
