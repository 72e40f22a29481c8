package service

import (
	"bytes"
	"encoding/binary"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"fmp/onnx/alloctest"
)

// frame is a message as gRPC sends it.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// grpcCall sends a frame to a method; the headers are pairs.
func (f *fixture) grpcCall(method string, body []byte, headers ...string) (code int, text string, message []byte) {
	r := httptest.NewRequest("POST", grpcPath+method, bytes.NewReader(body))
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Authorization", "Bearer for readers")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.srv.Handler().ServeHTTP(w, r)
	got := w.Result()
	status := got.Header.Get("Grpc-Status") + got.Trailer.Get("Grpc-Status")
	code, err := strconv.Atoi(status)
	if err != nil {
		return -w.Code, w.Body.String(), nil
	}
	text, _ = url.PathUnescape(got.Header.Get("Grpc-Message"))
	if message = w.Body.Bytes(); len(message) >= 5 {
		message = message[5:]
	}
	return code, text, message
}

// tensorOf is an InferInputTensor.
func tensorOf(name, datatype string, contents []byte, shape ...int) []byte {
	t := tensor{Name: name, Datatype: datatype}
	for _, d := range shape {
		t.Shape = append(t.Shape, int64(d))
	}
	b := t.header()
	if contents != nil {
		b = appendBytes(b, 5, contents)
	}
	return b
}

// TestGRPCRows: feature rows as packed floats, as single ones, in two pieces and as raw bytes give the probabilities that JSON gives.
func TestGRPCRows(t *testing.T) {
	f, dx := serving(t)
	body := `{"inputs":[{"name":"features","datatype":"FP32","shape":[2,` + strconv.Itoa(dx) + `],"data":` + rows(2, dx) + `}]}`
	want := f.ask(inferPath, "application/json", []byte(body)).Body.String()
	var packed, single []byte
	for range 2 * dx {
		packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(0.5))
		single = protowire.AppendFixed32(protowire.AppendTag(single, 6, protowire.Fixed32Type), math.Float32bits(0.5))
	}
	begin := appendText(nil, 1, modelName)
	for name, m := range map[string][]byte{
		"packed": appendBytes(begin, 5, tensorOf("features", "FP32", appendBytes(nil, 6, packed), 2, dx)),
		"single": appendBytes(begin, 5, tensorOf("features", "FP32", single, 2, dx)),
		"pieces": appendBytes(begin, 5, tensorOf("features", "FP32", appendBytes(appendBytes(nil, 6, packed[:8]), 6, packed[8:]), 2, dx)),
		"raw":    appendBytes(appendBytes(slices.Clone(begin), 5, tensorOf("features", "FP32", nil, 2, dx)), 7, packed),
	} {
		code, text, answer := f.grpcCall("ModelInfer", frame(m))
		if code != 0 {
			t.Fatalf("%s: %d %s", name, code, text)
		}
		var values []byte
		err := eachField(answer, func(f field) error {
			if f.number == 6 && values == nil {
				values = f.bytes
			}
			if f.number == 5 && values == nil {
				return eachField(f.bytes, func(f field) error {
					if f.number == 5 && values == nil {
						return eachField(f.bytes, func(f field) error { values = f.bytes; return nil })
					}
					return nil
				})
			}
			return nil
		})
		if err != nil || len(values) != 4*20 {
			t.Fatalf("%s: %d bytes of probabilities, %v", name, len(values), err)
		}
		for i := range 20 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
			if !strings.Contains(want, strconv.FormatFloat(float64(v), 'g', -1, 32)) {
				t.Errorf("%s: probability %v is not in %s", name, v, want)
			}
		}
	}
}

// TestGRPCRefusals: a call that is no good gets the code that the protocol has for it, and counts as what it is.
func TestGRPCRefusals(t *testing.T) {
	f, dx := serving(t)
	good := appendBytes(appendText(nil, 1, modelName), 5, tensorOf("features", "FP32", nil, 1, dx))
	raw := appendBytes(slices.Clone(good), 7, make([]byte, 4*dx))
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
		code    int
		want    string
	}{
		"HTTP/1.1's content": {"ModelInfer", frame(raw), []string{"Content-Type", "application/json"}, -http.StatusUnsupportedMediaType,
			"grpc"},
		"no token":              {"ModelInfer", frame(raw), []string{"Authorization", ""}, grpcUnauthenticated, "token"},
		"compressed":            {"ModelInfer", compressed, []string{"Grpc-Encoding", "gzip"}, grpcUnimplemented, "gzip"},
		"marked as compressed":  {"ModelInfer", compressed, nil, grpcInvalid, "without"},
		"longer than allowed":   {"ModelInfer", long, nil, grpcExhausted, "33554433"},
		"cut off":               {"ModelInfer", frame(raw)[:20], nil, grpcInvalid, "15 of"},
		"nothing":               {"ModelInfer", nil, nil, grpcInvalid, "without a message"},
		"two messages":          {"ModelInfer", append(frame(raw), 0), nil, grpcUnimplemented, "unary"},
		"no time left":          {"ModelInfer", frame(raw), []string{"Grpc-Timeout", "1n"}, grpcDeadline, "deadline"},
		"no time at all":        {"ModelInfer", frame(raw), []string{"Grpc-Timeout", "S"}, grpcInvalid, "grpc-timeout"},
		"a time of nine digits": {"ModelInfer", frame(raw), []string{"Grpc-Timeout", "123456789S"}, grpcInvalid, "grpc-timeout"},
		"not finite":            {"ModelInfer", frame(nan), nil, grpcInvalid, "finite"},
		"two inputs":            {"ModelInfer", frame(append(slices.Clone(good), good...)), nil, grpcInvalid, "more than one input"},
		"two raw contents":      {"ModelInfer", frame(appendBytes(slices.Clone(raw), 7, nil)), nil, grpcInvalid, "raw_input_contents"},
		"too many outputs":      {"ModelInfer", frame(many), nil, grpcInvalid, "16"},
		"an axis too many": {"ModelInfer", frame(appendBytes(nil, 5, tensorOf("features", "FP32", nil, make([]int, 9)...))), nil,
			grpcInvalid, "axes"},
		"no protobuf":     {"ModelInfer", frame([]byte{0xff}), nil, grpcInvalid, "cannot be read"},
		"of another type": {"ModelMetadata", frame([]byte{8, 1}), nil, grpcInvalid, "field 1"},
		"contents of INT64": {"ModelInfer", frame(appendBytes(nil, 5, tensorOf("features", "FP32", appendBytes(nil, 3, nil), 1, dx))), nil,
			grpcInvalid, "field 3"},
		"a pixel of 256": {"ModelInfer", frame(appendBytes(nil, 5, tensorOf("images", "UINT8", appendBytes(nil, 4, []byte{0x80, 2}), 1))), nil,
			grpcInvalid, "256"},
		"another method": {"ModelUnload", frame(nil), nil, grpcUnimplemented, "ModelUnload"},
	} {
		if code, text, _ := f.grpcCall(c.method, c.body, c.headers...); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %q; want %d with %q", name, code, text, c.code, c.want)
		}
	}
	_, data := f.request("GET", "/metrics", nil, reader)
	if !strings.Contains(string(data), `route="POST `+grpcPath+`{method}",status="501"} 3`) {
		t.Errorf("refusals are not counted by their status:\n%s", data)
	}
	long = append(long[:1], 0, 255, 255, 255) // 16 MiB are promised
	alloctest.AtMost(t, 64<<10, func() { f.grpcCall("ModelInfer", long) })
}

// TestGRPCTimeout: a deadline is of its unit, and never overflows.
func TestGRPCTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"5S": 5 * time.Second, "250m": 250 * time.Millisecond, "0n": 0,
		"99999999H": 24 * time.Hour,
		"2M":        2 * time.Minute, "99999999u": 99999999 * time.Microsecond, "1H": time.Hour} {
		if got, err := grpcTimeout(text); err != nil || got != want {
			t.Errorf("%s: %v %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"5", "-5S", "1.5S", "5s", "S", "123456789n"} {
		if got, err := grpcTimeout(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// FuzzGRPC: a frame that is read is no longer than what came, its tensor no longer than the message, and memory stays within a
// small multiple of both.
func FuzzGRPC(f *testing.F) {
	good := appendBytes(appendText(nil, 1, modelName), 5, tensorOf("features", "FP32", appendBytes(nil, 6, make([]byte, 8)), 1, 2))
	f.Add(frame(good), "")
	f.Add(frame(appendBytes(good, 7, []byte("raw"))), "gzip")
	f.Add(frame(appendBytes(nil, 5, tensorOf("images", "UINT8", appendBytes(nil, 4, []byte{1, 255, 1}), 1, 2))), "5S")
	f.Fuzz(func(t *testing.T, body []byte, text string) {
		if d, err := grpcTimeout(text + "S"); err == nil && (d < 0 || d > 24*time.Hour) {
			t.Fatalf("grpc-timeout %q is %v", text, d)
		}
		alloctest.AtMost(t, 16*len(body), func() {
			r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
			r.Header.Set("Grpc-Encoding", text)
			p := newPredictor(nil, nil, nil)
			held := lease{in: p.intake}
			defer held.release()
			message, err := p.grpcMessage(&held, httptest.NewRecorder(), r, 1<<20)
			if err != nil {
				return
			}
			if len(message)+5 != len(body) {
				t.Fatalf("%d bytes of %d", len(message), len(body))
			}
			_, _, _ = parseModel(message)
			if q, err := parseCall(message); err == nil && (len(q.Inputs) != 1 || len(q.Inputs[0].Binary) > len(message) ||
				len(q.Inputs[0].Shape) > maxAxes || len(q.Outputs) > maxOutputs) {
				t.Fatalf("%+v", q)
			}
		})
	})
}
