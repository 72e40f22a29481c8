package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	// Packages of grpc-go's are in an old version of this module too, which an old requirement names:
	// a newer one has none of them.
	_ "google.golang.org/genproto/googleapis/type/latlng"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fmp/onnx/alloctest"
	pb "fmp/pipeline/federate/inferpb"
	"fmp/pipeline/pool"
)

// frame is a message as gRPC sends it.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendBytes(b []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
}

// grpcReply is the answer to a frame that is sent to a method; the headers are pairs.
func (f *fixture) grpcReply(method string, body []byte, headers ...string) *httptest.ResponseRecorder {
	return answer(f.srv.Handler(), "POST", grpcPath+method, body,
		append([]string{"Content-Type", "application/grpc"}, headers...)...)
}

// grpcCall is grpcReply as a client reads it.
func (f *fixture) grpcCall(method string, body []byte,
	headers ...string) (code codes.Code, text string, message []byte) {
	w := f.grpcReply(method, body, headers...)
	got := w.Result()
	status := got.Header.Get("Grpc-Status") + got.Trailer.Get("Grpc-Status")
	n, err := strconv.Atoi(status)
	if err != nil {
		return codes.Code(w.Code), w.Body.String(), nil // of HTTP
	}
	code = codes.Code(n)
	text, _ = url.PathUnescape(got.Header.Get("Grpc-Message") + got.Trailer.Get("Grpc-Message"))
	if message = w.Body.Bytes(); len(message) >= 5 {
		message = message[5:]
	}
	return code, text, message
}

// tensorOf is an InferInputTensor.
func tensorOf(name, datatype string, contents []byte, shape ...int) []byte {
	var sizes []byte
	for _, d := range shape {
		sizes = protowire.AppendVarint(sizes, uint64(d))
	}
	b := appendBytes(appendText(appendText(nil, 1, name), 2, datatype), 3, sizes)
	if contents != nil {
		b = appendBytes(b, 5, contents)
	}
	return b
}

// rawRows is a ModelInferRequest of feature rows, of zeros, as raw bytes.
func rawRows(n, dx int) []byte {
	return appendBytes(appendBytes(appendText(nil, 1, modelName), 5,
		tensorOf("features", "FP32", nil, n, dx)), 7, make([]byte, 4*n*dx))
}

// TestGRPCRows: feature rows as packed floats, as single ones, in two pieces and as raw bytes give
// the probabilities that JSON gives.
func TestGRPCRows(t *testing.T) {
	f, dx := serving(t)
	want := f.ask(inferPath, "application/json", inferRows(2, dx)).Body.String()
	var packed, single []byte
	for range 2 * dx {
		packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(0.5))
		single = protowire.AppendFixed32(protowire.AppendTag(single, 6, protowire.Fixed32Type),
			math.Float32bits(0.5))
	}
	begin := appendText(nil, 1, modelName)
	for name, m := range map[string][]byte{
		"packed": appendBytes(begin, 5,
			tensorOf("features", "FP32", appendBytes(nil, 6, packed), 2, dx)),
		"single": appendBytes(begin, 5, tensorOf("features", "FP32", single, 2, dx)),
		"pieces": appendBytes(begin, 5,
			tensorOf("features", "FP32", appendBytes(appendBytes(nil, 6, packed[:8]), 6, packed[8:]), 2,
				dx)),
		"raw": appendBytes(appendBytes(slices.Clone(begin), 5, tensorOf("features", "FP32", nil, 2, dx)),
			7, packed),
	} {
		code, text, answer := f.grpcCall("ModelInfer", frame(m))
		if code != 0 {
			t.Fatalf("%s: %d %s", name, code, text)
		}
		var m pb.ModelInferResponse
		if err := proto.Unmarshal(answer, &m); err != nil || len(m.Outputs) != 3 {
			t.Fatal(&m, err)
		}
		values := m.Outputs[0].GetContents().GetFp32Contents()
		if name == "raw" {
			for v := m.RawOutputContents[0]; len(v) > 0; v = v[4:] {
				values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(v)))
			}
		}
		if len(values) != 20 {
			t.Fatalf("%s: %d probabilities", name, len(values))
		}
		for _, v := range values {
			if !strings.Contains(want, strconv.FormatFloat(float64(v), 'g', -1, 32)) {
				t.Errorf("%s: probability %v is not in %s", name, v, want)
			}
		}
	}
}

// TestSupersededIsSaid: each interface says of its predictions that the version holds an upload
// that was withdrawn, and only then.
func TestSupersededIsSaid(t *testing.T) {
	f, dx := serving(t)
	raw := rawRows(1, dx)
	for _, void := range []bool{false, true} {
		f.srv.predictions.void = func(int) bool { return void }
		for name, w := range map[string]*httptest.ResponseRecorder{
			"gRPC": f.grpcReply("ModelInfer", frame(raw)),
			"/v1":  f.ask("/v1/predict", "application/json", []byte(`{"features":`+rows(1, dx)+`}`)),
			"/v2":  f.ask(inferPath, "application/json", inferRows(1, dx)),
		} {
			want := map[bool]string{true: withdrawn}[void]
			if got := w.Header().Get("Fmp-Superseded"); w.Code != http.StatusOK || got != want {
				t.Errorf("%s: %d, %q; want %q", name, w.Code, got, want)
			}
		}
	}
}

// TestGRPCRefusals: a call that is no good gets the code that the protocol has for it, and counts
// as what it is.
func TestGRPCRefusals(t *testing.T) {
	f, dx := serving(t)
	good := appendBytes(appendText(nil, 1, modelName), 5, tensorOf("features", "FP32", nil, 1, dx))
	raw := rawRows(1, dx)
	if code, text, _ := f.grpcCall("ModelInfer", frame(raw)); code != 0 {
		t.Fatalf("%d %s", code, text)
	}
	compressed := frame(raw)
	compressed[0] = 1
	long := frame(nil)
	binary.BigEndian.PutUint32(long[1:], maxPredictBytes+1)
	nan := slices.Clone(raw)
	binary.LittleEndian.PutUint32(nan[len(nan)-4:], 0x7fc00000)
	many := appendText(nil, 1, modelName)
	for range maxOutputs + 1 {
		many = appendBytes(many, 6, appendText(nil, 1, "entropy"))
	}
	for name, c := range map[string]struct {
		method  string
		body    []byte
		headers []string
		code    codes.Code
		want    string
	}{
		"HTTP/1.1's content": {"ModelInfer", frame(raw), []string{"Content-Type", "application/json"},
			http.StatusUnsupportedMediaType, "content-type"},
		"no token": {"ModelInfer", frame(raw), []string{"Authorization", ""},
			codes.Unauthenticated, "token"},
		"compressed": {"ModelInfer", compressed, []string{"Grpc-Encoding", "gzip"},
			codes.Unimplemented, "gzip"},
		"marked as compressed": {"ModelInfer", compressed, nil, codes.Internal, "compressed flag"},
		"longer than allowed":  {"ModelInfer", long, nil, codes.ResourceExhausted, "33554433"},
		"cut off":              {"ModelInfer", frame(raw)[:20], nil, codes.InvalidArgument, "EOF"},
		"nothing":              {"ModelInfer", nil, nil, codes.Internal, "no request message"},
		"two messages": {"ModelInfer", append(frame(raw), 0), nil, codes.InvalidArgument,
			"cannot be read"},
		"no time left": {"ModelInfer", frame(raw), []string{"Grpc-Timeout", "1n"},
			codes.DeadlineExceeded, "deadline"},
		"no time at all": {"ModelInfer", frame(raw), []string{"Grpc-Timeout", "S"},
			http.StatusBadRequest, "grpc-timeout"},
		"a time of nine digits": {"ModelInfer", frame(raw), []string{"Grpc-Timeout", "123456789S"},
			http.StatusBadRequest, "grpc-timeout"},
		"not finite": {"ModelInfer", frame(nan), nil, codes.InvalidArgument, "finite"},
		"two inputs": {"ModelInfer", frame(append(slices.Clone(good), good...)), nil,
			codes.InvalidArgument, "more than one input"},
		"two raw contents": {"ModelInfer", frame(appendBytes(slices.Clone(raw), 7, nil)), nil,
			codes.InvalidArgument, "raw_input_contents"},
		"too many outputs": {"ModelInfer", frame(many), nil, codes.InvalidArgument, "16"},
		"an axis too many": {"ModelInfer",
			frame(appendBytes(nil, 5, tensorOf("features", "FP32", nil, make([]int, 9)...))), nil,
			codes.InvalidArgument, "axes"},
		"no protobuf": {"ModelInfer", frame([]byte{0xff}), nil, codes.InvalidArgument,
			"cannot be read"},
		"of another type": {"ModelMetadata", frame([]byte{8, 1}), nil, codes.NotFound, "there is"},
		"contents of INT64": {"ModelInfer",
			frame(appendBytes(nil, 5, tensorOf("features", "FP32", appendBytes(nil, 3, nil), 1, dx))), nil,
			codes.InvalidArgument, "field 3"},
		"a pixel of 256": {"ModelInfer",
			frame(appendBytes(nil, 5, tensorOf("images", "UINT8", appendBytes(nil, 4, []byte{0x80, 2}), 1))),
			nil, codes.InvalidArgument, "256"},
		"an output's parameters": {"ModelInfer", frame(appendBytes(slices.Clone(raw), 6,
			appendBytes(appendText(nil, 1, "probabilities"), 2, appendText(nil, 1, "classification")))), nil,
			codes.InvalidArgument, "has parameters"},
		"an input's parameters": {"ModelInfer", frame(appendBytes(nil, 5,
			appendBytes(tensorOf("features", "FP32", nil, 1, dx), 4, appendText(nil, 1, "shared_memory_region")))),
			nil, codes.InvalidArgument, "has parameters"},
		"the request's parameters": {"ModelInfer", frame(appendBytes(slices.Clone(raw), 4,
			appendText(nil, 1, "priority"))), nil, codes.InvalidArgument, "the request has parameters"},
		"pixels as floats": {"ModelInfer",
			frame(appendBytes(nil, 5, tensorOf("images", "UINT8", appendBytes(nil, 6, make([]byte, 784)), 1,
				28, 28, 1))), nil, codes.InvalidArgument, "another type"},
		"numbers as bytes": {"ModelInfer",
			frame(appendBytes(nil, 5, tensorOf("features", "FP32", appendBytes(nil, 4, make([]byte, 4*dx)),
				1, dx))), nil, codes.InvalidArgument, "another type"},
		"pixels as both": {"ModelInfer",
			frame(appendBytes(nil, 5, tensorOf("images", "UINT8",
				appendBytes(appendBytes(nil, 4, make([]byte, 780)), 6, make([]byte, 4)), 1, 28, 28, 1))), nil,
			codes.InvalidArgument, "another type"},
		"an input of another type": {"ModelInfer", frame([]byte{0x28, 1}), nil,
			codes.InvalidArgument, "field 5"},
		"fields without end": {"ModelInfer", frame(bytes.Repeat([]byte{0x3a, 0}, maxFields+1)), nil,
			codes.InvalidArgument, "256"},
		"a shape without end": {"ModelInfer",
			frame(appendBytes(nil, 5, appendBytes(nil, 3, make([]byte, 100)))), nil,
			codes.InvalidArgument, "axes"},
		"another method": {"ModelUnload", frame(nil), nil, codes.Unimplemented, "ModelUnload"},
	} {
		if code, text, _ := f.grpcCall(c.method, c.body, c.headers...); code != c.code ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: %d %q; want %d with %q", name, code, text, c.code, c.want)
		}
	}
	_, data := f.request("GET", "/metrics", nil, reader)
	if !strings.Contains(string(data), `route="POST `+grpcPath+`{method}",status="501"} 2`) {
		t.Errorf("refusals are not counted by their status:\n%s", data)
	}
	long = append(long[:1], 0, 255, 255, 255) // 16 MiB are promised
	alloctest.AtMost(t, 64<<10, func() { f.grpcCall("ModelInfer", long) })
}

// FuzzGRPC: a message that is weighed takes, decoded, no more memory than a multiple of its size
// and what it is weighed as.
func FuzzGRPC(f *testing.F) {
	good := appendBytes(appendText(nil, 1, modelName), 5,
		tensorOf("features", "FP32", appendBytes(nil, 6, make([]byte, 8)), 1, 2))
	f.Add(good)
	f.Add(appendBytes(good, 7, []byte("raw")))
	f.Add(appendBytes(nil, 5, tensorOf("images", "UINT8", appendBytes(nil, 4, []byte{1, 255, 1}), 1, 2)))
	f.Add(bytes.Repeat([]byte{0x2a, 0}, 1000))
	f.Add(appendBytes(nil, 5, appendBytes(nil, 5, bytes.Repeat([]byte{0x20, 1}, 1000))))
	f.Fuzz(func(t *testing.T, message []byte) {
		var w weight
		if w.add(message, 0) != nil {
			return
		}
		alloctest.AtMost(t, 2*len(message)+int(w.contents)+maxFields*256, func() {
			var q pb.ModelInferRequest
			if proto.Unmarshal(message, &q) != nil {
				return
			}
			if r, _, err := inferOf(&q); err == nil &&
				(len(r.Inputs) != 1 || len(r.Inputs[0].Shape) > maxAxes ||
					len(r.Outputs) > maxOutputs) {
				t.Fatalf("%+v", r)
			}
		})
	})
}

// panics is a service whose methods panic.
type panics struct{ grpcService }

func (panics) ServerLive(context.Context, *emptypb.Empty) (*wrapperspb.BoolValue, error) {
	panic("a fault")
}

// TestGRPCPanic: a fault in a method is an error of its call, and its text stays in the log.
func TestGRPCPanic(t *testing.T) {
	f, _ := serving(t)
	p := f.srv.predictions
	p.calls = grpc.NewServer(grpc.UnaryInterceptor(p.grpcUnary))
	p.calls.RegisterService(&inferenceMethods, panics{})
	if code, text, _ := f.grpcCall("ServerLive", frame(nil)); code != codes.Internal ||
		strings.Contains(text, "fault") {
		t.Errorf("%v %q", code, text)
	}
}

// TestGRPCAfterWithdrawal: where a withdrawal leaves too few uploads, calls are answered; the version
// after it predicts.
func TestGRPCAfterWithdrawal(t *testing.T) {
	f, _ := serving(t)
	f.srv.Round.MinUploads = 2
	classifier := f.srv.predictions.version().data
	f.srv.Config.Pool = func(context.Context, []pool.Upload) (*Pooled, error) {
		return &Pooled{Classifier: classifier}, nil
	}
	check := func(when string, metadata codes.Code) {
		t.Helper()
		for method, want := range map[string]codes.Code{"ServerLive": codes.OK, "ModelMetadata": metadata} {
			name := appendText(nil, 1, modelName)
			if method == "ServerLive" {
				name = nil
			}
			if got, text, _ := f.grpcCall(method, frame(name)); got != want {
				t.Errorf("%s %s: %v %s; want %v", method, when, got, text, want)
			}
		}
	}
	uploads := f.in("a", "b")
	f.pool()
	check("before", codes.OK)
	f.gone("a", uploads["a"])
	check("meanwhile", codes.Unavailable)
	f.in("c")
	f.pool()
	check("afterwards", codes.OK)
}
