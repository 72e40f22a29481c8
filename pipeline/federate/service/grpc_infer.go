package service

import (
	"context"
	"encoding/binary"
	"math"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fmp/pipeline/classify"
	pb "fmp/pipeline/federate/inferpb"
	"fmp/pipeline/federate/store"
)

// Bounds on a ModelInferRequest: its axes, its outputs, and its fields but for numbers, each of
// which takes memory however short it is.
const (
	maxAxes    = 8
	maxOutputs = 16
	maxFields  = 256
)

// ofUint and ofFloat are the bytes of memory that a byte of uint_contents or fp32_contents takes
// beyond those of the body: numbers of four bytes may have come as two.
// A packed varint of one byte becomes a uint32 of 4 bytes, and a byte of the tensor.
const ofUint, ofFloat = 6, 3

const wantContents = "want uint_contents for UINT8, fp32_contents for FP32"

// weight is the number of a message's fields, and the memory of its contents in bytes.
// It is filled before the message is decoded, as decoding is the step that takes the memory.
type weight struct {
	fields   int
	contents int64
}

// add counts the fields of a ModelInferRequest (level 0), of its inputs (1) or of their contents
// (2), all in field 5 of the level above.
// It walks over the wire format (protobuf.dev/programming-guides/encoding) before anything is
// decoded, in O(bytes) and without memory. Fields of contents other than numbers of UINT8 and FP32
// are refused, as is a known field of another type.
// Unknown fields count too, since decoding keeps them. The recursion ends at level 2, so that
// nested messages cost no stack.
func (w *weight) add(message []byte, level int) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			return status.Errorf(codes.InvalidArgument, "the message cannot be read: %v",
				protowire.ParseError(n))
		}
		var value []byte
		if _, _, tag := protowire.ConsumeTag(message); kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[tag:n])
		}
		message = message[n:]
		// Numbers may come packed or one by one, and protobuf has readers accept both.
		switch packed := kind == protowire.BytesType; {
		case level == 2 && number == 4 && (packed || kind == protowire.VarintType):
			w.contents += ofUint * int64(n)
			continue
		case level == 2 && number == 6 && (packed || kind == protowire.Fixed32Type):
			w.contents += ofFloat * int64(n)
			continue
		case level == 2:
			return status.Errorf(codes.InvalidArgument,
				"contents in field %d; %s", number, wantContents)
		case level == 1 && number == 3 && len(value) > maxAxes*binary.MaxVarintLen64:
			return status.Errorf(codes.InvalidArgument, "a shape of more than %d axes", maxAxes)
		case number <= 7 && !packed && (level != 1 || number != 3):
			return status.Errorf(codes.InvalidArgument,
				"the message cannot be read: field %d is not of its type", number)
		}
		if w.fields++; w.fields > maxFields {
			return status.Errorf(codes.InvalidArgument, "a message of more than %d "+
				"fields", maxFields)
		}
		if number == 5 {
			if err := w.add(value, level+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// inferOf returns a request as the other interfaces have it; raw tells that its tensor is in
// raw_input_contents, and the answer's too.
// Numbers of contents become bytes, little-endian, as raw contents are. Pixels of contents are
// 32-bit numbers in the protocol, of which 0 to 255 are allowed.
// Types and sizes are compared with the classifier's later, by build. Raw contents share the
// memory of the message.
func inferOf(q *pb.ModelInferRequest) (r *inferRequest, raw bool, err error) {
	invalid := func(format string, args ...any) error {
		return status.Errorf(codes.InvalidArgument, format, args...)
	}
	if len(q.Inputs) > 1 || len(q.RawInputContents) > 1 {
		return nil, false, invalid(
			"more than one input, or more raw_input_contents than inputs; want one, " +
				"images or features")
	}
	if len(q.Outputs) > maxOutputs {
		return nil, false, invalid("more than %d outputs", maxOutputs)
	}
	// Unknown fields of the protocol's messages are their parameters.
	if len(q.ProtoReflect().GetUnknown()) > 0 {
		return nil, false, invalid("the request has parameters; none are known")
	}
	r = &inferRequest{ID: q.Id, Parameters: requestParameters{Binary: true}}
	for _, o := range q.Outputs {
		if len(o.ProtoReflect().GetUnknown()) > 0 {
			return nil, false, invalid("output %.40q has parameters; none are known", o.Name)
		}
		r.Outputs = append(r.Outputs, requestedOutput{Name: o.Name})
	}
	for _, in := range q.Inputs {
		t := tensor{Name: in.Name, Datatype: in.Datatype, Shape: in.Shape,
			Parameters: &binarySize{new(int64)}}
		if len(in.Shape) > maxAxes {
			return nil, false, invalid("a shape of more than %d axes", maxAxes)
		}
		if len(in.ProtoReflect().GetUnknown()) > 0 {
			return nil, false, invalid("input %.40q has parameters; none are known", in.Name)
		}
		integers, floats := in.GetContents().GetUintContents(), in.GetContents().GetFp32Contents()
		if len(integers) > 0 && in.Datatype != "UINT8" || len(floats) > 0 && in.Datatype != "FP32" {
			return nil, false, invalid("contents of another type than datatype, %.20q; %s",
				in.Datatype, wantContents)
		}
		for _, v := range integers {
			if v > math.MaxUint8 {
				return nil, false, invalid("contents: %d; allowed are 0 to 255", v)
			}
			t.Binary = append(t.Binary, uint8(v))
		}
		for _, v := range floats {
			t.Binary = binary.LittleEndian.AppendUint32(t.Binary, math.Float32bits(v))
		}
		r.Inputs = append(r.Inputs, t)
	}
	if err := r.check(); err != nil {
		return nil, false, inputf("%w", err)
	}
	// Its bytes are little-endian and row-major in the protocol, as tensors of the other
	// interfaces are.
	if raw = len(q.RawInputContents) > 0; raw {
		if r.Inputs[0].Binary != nil {
			return nil, false, invalid("both contents and raw_input_contents; want one of them")
		}
		r.Inputs[0].Binary = q.RawInputContents[0]
	}
	return r, raw, nil
}

// grpcService answers the methods of the Open Inference Protocol.
type grpcService struct{ p *predictor }

// ServerLive answers while the program runs. It and the two below need no token.
func (grpcService) ServerLive(context.Context, *emptypb.Empty) (*wrapperspb.BoolValue, error) {
	return wrapperspb.Bool(true), nil
}

// ServerReady tells whether a version makes predictions.
func (s grpcService) ServerReady(context.Context,
	*emptypb.Empty) (*wrapperspb.BoolValue, error) {
	return wrapperspb.Bool(s.p.version() != nil), nil
}

// ModelReady tells whether it is the one that the caller names. Another is not ready, and no error.
func (s grpcService) ModelReady(_ context.Context,
	q *pb.Named) (*wrapperspb.BoolValue, error) {
	v := s.p.version()
	return wrapperspb.Bool(v != nil && isModel(v.version, q.Name, q.Version) == nil), nil
}

// ServerMetadata names the program and the version of the protocol.
func (grpcService) ServerMetadata(context.Context, *emptypb.Empty) (*pb.Named, error) {
	return &pb.Named{Name: serverName, Version: protocolVersion}, nil
}

// ModelMetadata describes inputs and outputs of the version that makes predictions. NotFound is
// another model or version, and Unavailable none at all.
func (s grpcService) ModelMetadata(_ context.Context, q *pb.Named) (*pb.Model, error) {
	v, inputs, outputs, err := s.p.current()
	if err == nil {
		err = isModel(v.version, q.Name, q.Version)
	}
	if err != nil {
		return nil, err
	}
	of := func(tensors []tensor) (out []*pb.Tensor) {
		for _, t := range tensors {
			out = append(out, &pb.Tensor{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape})
		}
		return out
	}
	return &pb.Model{Name: modelName, Versions: []string{strconv.Itoa(v.version.Number)},
		Platform: modelPlatform, Inputs: of(inputs), Outputs: of(outputs)}, nil
}

// ModelInfer classifies one tensor. The version is compared before the work, and again with the one
// that did it. Headers say where that holds an upload that was withdrawn.
// The lease of the call holds the memory of the answer until it is sent.
func (s grpcService) ModelInfer(ctx context.Context,
	q *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	call, raw, err := inferOf(q)
	if err != nil {
		return nil, err
	}
	if v := s.p.version(); v != nil {
		if err := isModel(v.version, q.ModelName, q.ModelVersion); err != nil {
			return nil, err
		}
	}
	held := &ctx.Value(calling{}).(*grpcCall).held
	var answer *inferAnswer
	call.decoding = s.p.decoding
	err = s.p.run(ctx, held, call.rows(), call.build,
		func(v store.Version, c *classify.Classifier, ps []classify.Prediction) (err error) {
			// a newer one may have come since
			if err = isModel(v, q.ModelName, q.ModelVersion); err == nil {
				s.p.sayVoid(v, func(name, value string) {
					err = grpc.SetHeader(ctx, metadata.Pairs(name, value))
				})
			}
			if err == nil {
				answer, err = call.answer(v, c, ps)
			}
			return err
		})
	if err != nil {
		return nil, err
	}
	return answer.message(raw), nil
}

// message returns the answer, with raw_output_contents or the contents of each tensor.
// The answer is in the form of the request: a client reads the one that it writes.
// All outputs are float32: contents of 4 bytes a number. Raw contents are in the order of the
// outputs.
func (a *inferAnswer) message(raw bool) *pb.ModelInferResponse {
	m := &pb.ModelInferResponse{ModelName: a.Model, ModelVersion: a.Version, Id: a.ID}
	for _, t := range a.Outputs {
		o := &pb.Tensor{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape}
		if raw {
			m.RawOutputContents = append(m.RawOutputContents, t.Binary)
		} else {
			v := make([]float32, len(t.Binary)/4)
			for i := range v {
				v[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Binary[4*i:]))
			}
			o.Contents = &pb.InferTensorContents{Fp32Contents: v}
		}
		m.Outputs = append(m.Outputs, o)
	}
	return m
}

// isModel returns an error where a caller names another model, or another version; an empty version
// is any.
// Names are cut in the error, as callers choose them.
func isModel(v store.Version, name, version string) error {
	if name != modelName || (version != "" && version != strconv.Itoa(v.Number)) {
		return status.Errorf(codes.NotFound, "model %.40q version %.20q; there is %s version %d",
			name, version, modelName, v.Number)
	}
	return nil
}
