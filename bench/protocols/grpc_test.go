package protocols

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // a client may compress
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// stub calls the methods that open_inference.proto declares.
type stub struct {
	conn    *grpc.ClientConn
	service protoreflect.ServiceDescriptor
}

func newStub(t *testing.T, address string, with credentials.TransportCredentials) *stub {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{}}
	files, err := compiler.Compile(t.Context(), "open_inference.proto")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(with))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &stub{conn, files[0].Services().Get(0)}
}

// call sends a request that is given as JSON, and returns the answer as JSON and as a message.
func (s *stub) call(ctx context.Context, method, request string,
	o ...grpc.CallOption) (string, *dynamicpb.Message, error) {
	m := s.service.Methods().ByName(protoreflect.Name(method))
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		return "", nil, err
	}
	err := s.conn.Invoke(ctx, "/"+string(s.service.FullName())+"/"+method, in, out, o...)
	text, _ := protojson.MarshalOptions{UseProtoNames: true}.Marshal(out)
	return strings.ReplaceAll(string(text), " ", ""), out, err
}

// images is a request for the classes of n images of digits, their pixels as contents or as raw
// bytes.
func images(n int, raw bool, more string) string {
	pixels := make([]byte, n*28*28)
	for i := range pixels {
		pixels[i] = byte(i * 7)
	}
	input := `{"name":"images","datatype":"UINT8","shape":[` + number(n) + `,28,28,1]`
	if raw {
		return `{"model_name":"classifier","inputs":[` + input + `}],"raw_input_contents":["` +
			base64Of(pixels) + `"]` + more + `}`
	}
	return `{"model_name":"classifier","inputs":[` + input + `,"contents":{"uint_contents":` +
		list(pixels) + `}}]` + more + `}`
}

// outputs returns the numbers of every output of a ModelInferResponse.
func outputs(t *testing.T, m *dynamicpb.Message) map[string][]float32 {
	t.Helper()
	fields := m.Descriptor().Fields()
	list, raw := m.Get(fields.ByName("outputs")).List(),
		m.Get(fields.ByName("raw_output_contents")).List()
	all := map[string][]float32{}
	for i := range list.Len() {
		o := list.Get(i).Message()
		of := o.Descriptor().Fields()
		var v []float32
		if raw.Len() > 0 {
			for b := raw.Get(i).Bytes(); len(b) > 0; b = b[4:] {
				v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
			}
		} else {
			c := o.Get(of.ByName("contents")).Message()
			l := c.Get(c.Descriptor().Fields().ByName("fp32_contents")).List()
			for k := range l.Len() {
				v = append(v, float32(l.Get(k).Float()))
			}
		}
		all[o.Get(of.ByName("name")).String()] = v
	}
	return all
}

// TestGRPC: grpc-go's client gets the predictions that JSON gets, and the codes that the protocol
// wants.
func TestGRPC(t *testing.T) {
	s := newStub(t, listening(t), insecure.NewCredentials())
	ctx := t.Context()
	for _, c := range []struct{ method, request, want string }{
		{"ServerLive", `{}`, `{"live":true}`},
		{"ServerReady", `{}`, `{"ready":true}`},
		{"ModelReady", `{"name":"classifier","version":"1"}`, `{"ready":true}`},
		{"ModelReady", `{"name":"other"}`, `{}`},
		{"ModelReady", `{"name":"classifier","version":"2"}`, `{}`},
		{"ServerMetadata", `{}`, `{"name":"fmpserve","version":"2"}`},
		{"ModelMetadata", `{"name":"classifier"}`,
			`{"name":"classifier","versions":["1"],"platform":"onnx_onnxv1","inputs":[{"name":"images",` +
				`"datatype":"UINT8","shape":["-1","28","28","1"]}],"outputs":[{"name":"probabilities","datatype":"FP32","shape":["-1","10"]},` + `{"name":"entropy","datatype":"FP32","shape":["-1"]},{"name":"mutual_information","datatype":"FP32","shape":["-1"]}]}`},
	} {
		if got, _, err := s.call(ctx, c.method, c.request); err != nil || got != c.want {
			t.Errorf("%s %s: %s %v; want %s", c.method, c.request, got, err, c.want)
		}
	}
	var last map[string][]float32
	for _, raw := range []bool{false, true} {
		_, m, err := s.call(ctx, "ModelInfer", images(3, raw, `,"id":"é 1"`))
		if err != nil {
			t.Fatal(err)
		}
		if id := m.Get(m.Descriptor().Fields().ByName("id")).String(); id != "é 1" {
			t.Errorf("id %q", id)
		}
		got := outputs(t, m)
		if len(got) != 3 || len(got["probabilities"]) != 30 || len(got["entropy"]) != 3 {
			t.Fatalf("raw %v: %v", raw, got)
		}
		sum := float32(0)
		for i, v := range got["probabilities"] {
			sum += v
			if last != nil && v != last["probabilities"][i] {
				t.Errorf("probability %d is %v in raw bytes, %v in contents", i, v,
					last["probabilities"][i])
			}
		}
		if sum < 2.999 || sum > 3.001 {
			t.Errorf("raw %v: the probabilities of three images sum to %v", raw, sum)
		}
		last = got
	}
	if _, m, err := s.call(ctx, "ModelInfer",
		images(2, true, `,"outputs":[{"name":"entropy"}]`)); err != nil || len(outputs(t, m)) != 1 ||
		len(outputs(t, m)["entropy"]) != 2 {
		t.Errorf("one output: %v %v", m, err)
	}
	fail(t, s)
}

// fail holds refusals to their codes.
func fail(t *testing.T, s *stub) {
	ctx := t.Context()
	gone, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	for name, c := range map[string]struct {
		ctx     context.Context
		method  string
		request string
		options []grpc.CallOption
		code    codes.Code
		text    string
	}{
		"another model": {ctx, "ModelInfer", strings.Replace(images(1, true, ""), "classifier", "x", 1),
			nil, codes.NotFound, "there is classifier"},
		"another version": {ctx, "ModelMetadata", `{"name":"classifier","version":"7"}`, nil,
			codes.NotFound, "version 1"},
		"no input": {ctx, "ModelInfer", `{"model_name":"classifier"}`, nil,
			codes.InvalidArgument, "want one"},
		"a shape of more": {ctx, "ModelInfer",
			strings.Replace(images(1, true, ""), "[1,", "[2,", 1), nil, codes.InvalidArgument,
			"for its shape"},
		"both forms": {ctx, "ModelInfer", images(1, false, `,"raw_input_contents":["AA=="]`), nil,
			codes.InvalidArgument, "one of them"},
		"compressed": {ctx, "ModelReady", `{"name":"classifier"}`,
			[]grpc.CallOption{grpc.UseCompressor("gzip")}, codes.Unimplemented, "grpc-encoding"},
		"too large": {ctx, "ModelReady", `{"name":"` + strings.Repeat("x", 5000) + `"}`, nil,
			codes.ResourceExhausted, "allowed are 4096"},
		"too late": {gone, "ModelInfer", images(1, true, ""), nil, codes.DeadlineExceeded, ""},
		"not ASCII": {ctx, "ModelInfer", images(1, true, `,"outputs":[{"name":"ä%"}]`), nil,
			codes.InvalidArgument, `"ä%"`},
		"no pixels": {ctx, "ModelInfer", images(0, true, ""), nil, codes.InvalidArgument,
			"want [-1 -1 -1 1]"},
		"wrong type": {ctx, "ModelInfer", strings.Replace(images(1, true, ""), "UINT8", "FP32", 1), nil,
			codes.InvalidArgument, "want UINT8"},
	} {
		_, _, err := s.call(c.ctx, c.method, c.request, c.options...)
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.text) {
			t.Errorf("%s: %v; want %v with %q", name, err, c.code, c.text)
		}
	}
	err := s.conn.Invoke(ctx, "/inference.GRPCInferenceService/RepositoryIndex",
		dynamicpb.NewMessage(s.service.Methods().Get(0).Input()),
		dynamicpb.NewMessage(s.service.Methods().Get(0).Output()))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that is not there: %v", err)
	}
}

// TestRoundGRPC: the server of a round answers behind TLS and its token, and is not ready before it
// has a classifier.
func TestRoundGRPC(t *testing.T) {
	r := serving(t)
	s := newStub(t, r.address, r.tls(t))
	ctx := t.Context()
	reader := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.token)
	if got, _, err := s.call(ctx, "ServerReady", `{}`); err != nil || got != "{}" {
		t.Errorf("before the first upload: %s %v", got, err)
	}
	if _, _, err := s.call(reader, "ModelInfer", images(1, true, "")); status.Code(err) != codes.Unavailable {
		t.Errorf("before the first upload: %v", err)
	}
	for _, method := range []string{"ServerMetadata", "ModelMetadata", "ModelInfer"} {
		if _, _, err := s.call(ctx, method, `{}`); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s without a token: %v", method, err)
		}
	}
	r.join(t)
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		got, _, err := s.call(within, "ModelReady", `{"name":"classifier"}`)
		if err != nil {
			t.Fatal(err)
		}
		if got == `{"ready":true}` {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	_, m, err := s.call(reader, "ModelInfer", images(2, true, ""))
	if err != nil || len(outputs(t, m)["probabilities"]) != 20 {
		t.Errorf("%v %v", m, err)
	}
}
