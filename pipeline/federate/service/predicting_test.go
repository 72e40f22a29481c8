package service

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// asking is one request for predictions, by one of the interfaces.
type asking struct {
	name string
	do   func() (status int, text string) // of gRPC its code
	busy int                              // the status of one that finds no memory
	// body is the memory of the request's body, n the images or rows, pixels those of the largest
	// image.
	body, n, pixels int
}

// answer is the memory that a request takes beyond its body.
func (a *asking) answer(classes int) int { return a.n * (ofItem + ofNumber*classes) }

// askings are requests by each interface, of n rows or images, and of one picture of a side.
func (f *fixture) askings(n, dx, side int) []asking {
	f.t.Helper()
	httpCall := func(path, kind string, body []byte) func() (int, string) {
		return func() (int, string) {
			w := f.ask(path, kind, body)
			if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
				f.t.Errorf("%s: no Retry-After", path)
			}
			return w.Code, w.Body.String()
		}
	}
	grpcCall := func(message []byte) func() (int, string) {
		return func() (int, string) {
			code, text, _ := f.grpcCall("ModelInfer", frame(message))
			return int(code), text
		}
	}
	own := []byte(`{"features": ` + rows(n, dx) + `}`)
	infer := fmt.Appendf(nil,
		`{"inputs": [{"name": "features", "shape": [%d, %d], "datatype": "FP32", "data": %s}]}`, n,
		dx, rows(n, dx))
	data := make([]byte, 4*n*dx)
	text := fmt.Sprintf(
		`{"inputs": [{"name": "features", "shape": [%d, %d], "datatype": "FP32", "parameters": {"binary_data_size": %d}}], `+`"parameters": {"binary_data_output": true}}`, n, dx, len(data))
	head := appendText(nil, 1, modelName)
	raw := appendBytes(appendBytes(head, 5, tensorOf("features", "FP32", nil, n, dx)), 7, data)
	contents := appendBytes(head, 5, tensorOf("features", "FP32", appendBytes(nil, 6, data), n, dx))
	picture := image.NewNRGBA64(image.Rect(0, 0, side, side))
	for i := range side {
		picture.SetNRGBA64(i, i, color.NRGBA64{R: uint16(i), G: 7, B: 9, A: 30000})
	}
	var deep, photo, form bytes.Buffer
	must.Do(f.t, png.Encode(&deep, picture))
	must.Do(f.t, jpeg.Encode(&photo, picture, nil))
	m := multipart.NewWriter(&form)
	for range 3 {
		w, err := m.CreateFormFile("image", "a.png")
		if err == nil {
			_, err = w.Write(deep.Bytes())
		}
		must.Do(f.t, err)
	}
	must.Do(f.t, m.Close())
	const busy, exhausted = http.StatusServiceUnavailable, int(codes.ResourceExhausted)
	return []asking{
		{"rows", httpCall("/v1/predict", "application/json", own), busy, ofJSON * len(own), n, 0},
		{"a PNG of 16 bits", httpCall("/v1/predict", "image/png", deep.Bytes()), busy,
			ofBinary * deep.Len(), 1, side * side},
		{"a JPEG", httpCall("/v1/predict", "image/jpeg", photo.Bytes()), busy, ofBinary * photo.Len(),
			1, side * side},
		{"a JPEG by another name", httpCall("/v1/predict", "image/webp", photo.Bytes()), busy, ofBinary * photo.Len(),
			1, side * side},
		{"a form", httpCall("/v1/predict", m.FormDataContentType(), form.Bytes()), busy,
			ofBinary * form.Len(), 3, side * side},
		{"tensors as JSON", httpCall(inferPath, "application/json", infer), busy,
			ofJSON * len(infer), n, 0},
		{"binary tensors", func() (int, string) {
			w := f.binaryRequest(text, data)
			return w.Code, w.Body.String()
		}, busy, ofBinary * (len(text) + len(data)), n, 0},
		{"gRPC, raw", grpcCall(raw), exhausted, ofBinary * (len(raw) + grpcHead), n, 0},
		{"gRPC, contents", grpcCall(contents), exhausted,
			ofBinary*(len(contents)+grpcHead) + ofFloat*(1+protowire.SizeBytes(len(data))), n, 0},
	}
}

// TestPredictingMemory: no request allocates more, in all, than the memory that it holds while it
// is under way.
func TestPredictingMemory(t *testing.T) {
	f, dx := serving(t)
	for _, a := range f.askings(maxPredictItems, dx, 700) {
		// what is made at the first request is made
		if status, text := a.do(); status != 200 && status != 0 {
			t.Fatalf("%s: %d %.200s", a.name, status, text)
		}
		bound := a.body + a.answer(f.round.Client.C) + a.n*ofPixel*a.pixels // one picture after another
		alloctest.AtMost(t, bound, func() { a.do() })
	}
}

// TestPredictionsUnderWay: what requests under way take together is bounded, by whatever interface
// they come. One that finds no memory is told to come again, one that could never have it is told
// so, and all memory is given back.
func TestPredictionsUnderWay(t *testing.T) {
	f, dx := serving(t)
	limit := func(to **intake, all int64) *intake {
		*to = newPredicting(all)
		(*to).wait = time.Millisecond
		return *to
	}
	p := f.srv.predictions
	for _, a := range f.askings(20, dx, 200) {
		whole := int64(a.body + a.answer(f.round.Client.C))
		in, pictures := limit(&p.intake, whole), limit(&p.decoding, ofPixel*int64(a.pixels))
		if a.pixels > 0 && pictures.memory.TryAcquire(1) {
			// no second picture is tried
			if status, text := a.do(); status != a.busy || strings.Count(text, "under way") != 1 {
				t.Errorf("%s, beside another picture: %d %.200s", a.name, status, text)
			}
			pictures.memory.Release(1)
		}
		other := lease{in: in}
		// Too little is left for the body, for the answer, or for the end of it.
		for _, left := range []int64{1, int64(a.body), whole - 1} {
			must.Do(t, other.take(t.Context(), whole-left))
			if status, text := a.do(); status != a.busy || !strings.Contains(text, "under way") {
				t.Errorf("%s, %d bytes left: %d %.200s; want %d", a.name, left, status, text, a.busy)
			}
			other.release()
			if status, text := a.do(); status != 200 && status != 0 {
				t.Errorf("%s, all left: %d %.200s", a.name, status, text)
			}
		}
		if !in.memory.TryAcquire(whole) {
			t.Errorf("%s: memory is not given back", a.name)
		}
		limit(&p.intake, 100)
		if status, text := a.do(); status != http.StatusRequestEntityTooLarge &&
			status != int(codes.ResourceExhausted) ||
			!strings.Contains(text, "fewer") {
			t.Errorf("%s, never enough: %d %.200s", a.name, status, text)
		}
	}
	in, pictures := limit(&p.intake, 1<<20), limit(&p.decoding, ofPixel*400)
	in.wait, pictures.wait = time.Minute, time.Minute
	var group sync.WaitGroup
	for range 8 {
		for _, a := range f.askings(1, dx, 20) {
			group.Go(func() {
				if status, text := a.do(); status != 200 && status != 0 {
					t.Errorf("%s, with others: %d %.200s", a.name, status, text)
				}
			})
		}
	}
	group.Wait()
	if !in.memory.TryAcquire(1<<20) || !pictures.memory.TryAcquire(ofPixel*400) {
		t.Error("memory is not given back")
	}
}
