package service

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/store"
)

// serving is a fixture whose round has a classifier of images and one of feature rows, of heads
// drawn at random.
func serving(t testing.TB) (f *fixture, dx int) { return servingUnder(t, context.Background()) }

// servingUnder is serving with an engine whose runs end with a context.
func servingUnder(t testing.TB, ctx context.Context) (f *fixture, dx int) {
	f = newFixture(t, "")
	g := must.Get(serde.Unmarshal(f.round.GraphData))(t)
	m := f.round.Client
	features := must.Get(models.FeatureGraph(g, m))(t)
	heads := make([]float64, 3*(m.Dx+1)*m.C)
	r := rng.New(3, "heads")
	for i := range heads {
		heads[i] = 0.5 * r.NormFloat64()
	}
	var files [2][]byte
	for i, front := range []*onnx.Model{features, nil} {
		c := must.Get(models.NewClassifier(models.ClassifierParts{Features: front,
			Heads: onnx.NewTensor(heads, 3, m.Dx+1, m.C)}, models.Manifest{Classes: m.Classes}))(t)
		files[i] = must.Get(serde.Marshal(c))(t)
	}
	f.srv.predictions.engine = engine.Under(ctx, must.Get(pure.New(engine.Options{Threads: 1}))(t))
	must.Do(t, f.srv.predictions.serve(store.Version{Number: 1}, files[0], files[1]))
	return f, m.Dx
}

// ask sends a request for predictions as a reader.
func (f *fixture) ask(path, kind string, body []byte) *httptest.ResponseRecorder {
	return answer(f.srv.Handler(), "POST", path, body, "Content-Type", kind)
}

const inferPath = "/v2/models/classifier/infer"

func rows(n, dx int) string {
	return "[" + strings.TrimSuffix(
		strings.Repeat("["+strings.TrimSuffix(strings.Repeat("0.5,", dx), ",")+"],", n), ",") + "]"
}

// inferRows is a request of the Open Inference Protocol for feature rows.
func inferRows(n, dx int) []byte {
	return fmt.Appendf(nil,
		`{"inputs": [{"name": "features", "shape": [%d, %d], "datatype": "FP32", "data": %s}]}`, n, dx, rows(n, dx))
}

// counting counts the sessions of an engine that are open.
type counting struct {
	engine.Engine
	open int
}

func (c *counting) Load(m *onnx.Model) (engine.Session, error) {
	s, err := c.Engine.Load(m)
	if err == nil {
		c.open++
		s = &counted{s, c}
	}
	return s, err
}

type counted struct {
	engine.Session
	in *counting
}

func (c *counted) Close() error {
	c.in.open--
	return c.Session.Close()
}

// TestUnopened: a version of which a part cannot be opened leaves no session, and the one before it
// answers.
func TestUnopened(t *testing.T) {
	f, dx := serving(t)
	p := f.srv.predictions
	data := p.serving.data
	e := &counting{Engine: p.engine}
	p.engine = e
	m := must.Get(serde.Unmarshal(data))(t)
	m.Metadata["fmp.config"] = "["
	for name, c := range map[string]struct {
		data, rows []byte
		want       string
	}{
		"images":         {[]byte("no model"), data, "version 2"},
		"rows":           {data, []byte("no model"), "version 2"},
		"its provenance": {must.Get(serde.Marshal(m))(t), nil, "config"},
	} {
		must.Fail(p.serve(store.Version{Number: 2}, c.data, c.rows))(t, c.want, name)
		if e.open != 0 {
			t.Errorf("%s: %d sessions are open", name, e.open)
		}
	}
	if w := f.ask(inferPath, "application/json", inferRows(1, dx)); w.Code != http.StatusOK {
		t.Errorf("the version before: %d %s", w.Code, w.Body)
	}
}

// TestNoEngine: a server without an engine gives the file of its version, and answers questions of
// predictions as before the first.
func TestNoEngine(t *testing.T) {
	f := newFixture(t, "quorum: 2\n")
	f.in("a", "b")
	must.Do(t, f.srv.Pool(t.Context()))
	if status, _ := f.classifier(""); status != http.StatusOK {
		t.Errorf("the file: %d", status)
	}
	if st := f.srv.Status(); st.Unserved != "" {
		t.Errorf("its version is said to be out of use: %s", st.Unserved)
	}
	for _, c := range []struct {
		method, path, kind, body string
		want                     int
	}{
		{"POST", "/v1/predict", "image/png", "\x89PNG", 404},
		{"POST", "/v1/predict", "application/json", `{"features": [[1]]}`, 404},
		{"POST", inferPath, "application/json", string(inferRows(1, 1)), 404},
		{"GET", "/v2/models/classifier", "", "", 404},
		{"GET", "/v2/models/classifier/config", "", "", 404},
		{"GET", "/v2/models/classifier/stats", "", "", 200},
		{"GET", "/v2/health/ready", "", "", 503},
	} {
		w := answer(f.srv.Handler(), c.method, c.path, []byte(c.body), "Content-Type", c.kind)
		if w.Code != c.want || c.want == 404 && !strings.Contains(w.Body.String(), "no classifier yet") {
			t.Errorf("%s %s: %d %s; want %d", c.method, c.path, w.Code, w.Body, c.want)
		}
	}
	code, text, _ := f.grpcCall("ModelMetadata", frame(appendText(nil, 1, modelName)))
	if code != codes.Unavailable {
		t.Errorf("ModelMetadata: %v %s", code, text)
	}
}

// TestPredictions: images and rows get answers by both interfaces, with the same probabilities;
// what is neither is refused with its reason.
func TestPredictions(t *testing.T) {
	f, dx := serving(t)
	infer := func(shape, data string) []byte {
		return fmt.Appendf(nil,
			`{"id": "7", "inputs": [{"name": "features", "shape": %s, "datatype": "FP32", "data": %s}]}`,
			shape, data)
	}
	w := f.ask("/v1/predict", "application/json", []byte(`{"features": `+rows(2, dx)+`}`))
	var own struct {
		Model       string
		Predictions []struct{ Probabilities []float32 }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &own); err != nil || w.Code != 200 ||
		len(own.Predictions) != 2 || len(own.Model) != 64 {
		t.Fatalf("rows: %d %s, %v", w.Code, w.Body, err)
	}
	for _, data := range []string{rows(2, dx),
		strings.NewReplacer("[[", "[", "]]", "]", "],[", ",").Replace(rows(2, dx))} {
		w := f.ask(inferPath, "application/json", infer(fmt.Sprintf("[2, %d]", dx), data))
		var got struct {
			ID      string
			Outputs []struct {
				Name string
				Data []float32
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.ID != "7" ||
			got.Outputs[0].Name != "probabilities" {
			t.Fatalf("rows by the Open Inference Protocol: %d %s, %v", w.Code, w.Body, err)
		}
		for i, v := range own.Predictions[1].Probabilities {
			if got.Outputs[0].Data[len(own.Predictions[0].Probabilities)+i] != v {
				t.Errorf("probability %d is %v and %v", i, v, got.Outputs[0].Data)
			}
		}
	}
	var picture bytes.Buffer
	must.Do(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 28, 28))))
	if w := f.ask("/v1/predict", "image/png", picture.Bytes()); w.Code != 200 {
		t.Errorf("an image: %d %s", w.Code, w.Body)
	}
	grey := func(shape string, n int) []byte { // of one level, which no resizing changes
		return []byte(strings.NewReplacer(`"features"`, `"images"`, "FP32",
			"UINT8").Replace(string(infer(shape, "["+strings.Repeat("7, ", n-1)+"7]"))))
	}
	var flat []string
	for _, size := range []int{28, 40, 5} {
		w := f.ask(inferPath, "application/json", grey(fmt.Sprintf("[2, %d, 28, 1]", size), 2*size*28))
		if flat = append(flat, w.Body.String()); w.Code != 200 || flat[0] != w.Body.String() {
			t.Errorf("grey images of %d x 28: %d %s, of 28 x 28 %s", size, w.Code, w.Body, flat[0])
		}
	}
	refused := func(path, kind, body, want string) {
		t.Helper()
		if w := f.ask(path, kind, []byte(body)); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s %.60s: %d %s; want 400 and %q", path, body, w.Code, w.Body, want)
		}
	}
	refused("/v1/predict", "image/png", "x", "image")
	refused("/v1/predict", "text/plain", "x", "want image/png")
	refused("/v1/predict", "", "", "Content-Type")
	for _, c := range [][2]string{
		{`{"features": ` + rows(1, dx+1) + `}`, "want dx"},
		{`{"features": ` + rows(maxPredictItems+1, 1) + `}`, "more than 1024 rows"},
		{`{"features": []}`, "0 rows"},
		{`{"rows": []}`, "where features is wanted"},
		{`{"features": [[1]], "more": 1}`, "send nothing else"},
		{`{"features": [[1]]} {}`, "send nothing else"},
		{`{"features": [["x"]]}`, "cannot unmarshal"},
		{`{"features": [[1e39]]}`, "cannot unmarshal"},
		{`{"features": ` + strings.Replace(rows(1, dx), "0.5", "null", 1) + `}`, "is null"},
		{`{"features": [null]}`, "is null"},
	} {
		refused("/v1/predict", "application/json", c[0], c[1])
	}
	one := fmt.Sprintf("[1, %d]", dx)
	for _, c := range []struct {
		body []byte
		want string
	}{
		{infer("[1, 3]", "[1, 2, 3]"), "has shape [1 3]"},
		{infer(one, "[1]"), "1 numbers; want"},
		{infer(one, rows(2, dx)), "more than the"},
		{infer(one, `["x"]`), "is no number"},
		{infer(one, `{}`), "is no number"},
		{infer(one, `[1e300]`), "allowed are"},
		{infer(one, `[[[[[[[[[1]]]]]]]]]`), "want 32"},
		{grey("[1, 28, 28, 3]", 28*28*3), "has shape"},
		{grey("[1, 0, 28, 1]", 1), "has shape"},
		{bytes.ReplaceAll(grey("[1, 28, 28, 1]", 28*28), []byte("7"), []byte("0.7")), "0.7 is no whole number"},
		{bytes.ReplaceAll(grey("[1, 5, 5, 1]", 25), []byte("7,"), []byte("256,")), "256"},
		{grey("[1, 5, 5, 1]", 24), "24 numbers; want"},
		{grey("[1, 16000000, 2, 1]", 1), "allowed are 16000000 in all"},
		{grey("[1000, 400, 400, 1]", 1), "allowed are 33554432 bytes"},
		{[]byte(`{"inputs": []}`), "want one"},
		{infer(fmt.Sprintf("[2, %d]", dx), rows(1, dx)[:len(rows(1, dx))-1]+","+
			strings.ReplaceAll(rows(1, dx), "0.5", "3e38")[1:]),
			"feature row 1: no finite probabilities"},
	} {
		refused(inferPath, "application/json", string(c.body), c.want)
	}
	// What is over a bound is not parsed further, and takes no more memory than its buffer.
	long := []byte(`{"features": [` + strings.Repeat("[],", 1<<20))
	alloctest.AtMost(t, 4*len(long), func() { f.ask("/v1/predict", "application/json", long) })
	long = infer(one, "["+strings.Repeat("0,", 1<<20)+"0]")
	alloctest.AtMost(t, 5*len(long), func() { f.ask(inferPath, "application/json", long) })
}

// FuzzPredict: whatever a reader asks, the answer is a prediction or says what is wrong with the
// request.
func FuzzPredict(f *testing.F) {
	x, dx := serving(f)
	f.Add(false, "application/json", []byte(`{"features": `+rows(1, dx)+`}`))
	f.Add(true, "", inferRows(1, dx))
	f.Add(true, "",
		[]byte(
			`{"inputs": [{"name": "images", "shape": [1, 28, 28, 1], "datatype": "UINT8", "data": [255]}], "outputs": [{"name": "entropy"}]}`))
	f.Add(false, "multipart/form-data; boundary=x",
		[]byte("--x\r\nContent-Disposition: form-data; name=\"a\"; "+
			"filename=\"b\"\r\n\r\nGIF89a\r\n--x--\r\n"))
	f.Add(false, "image/png", []byte("\x89PNG\r\n\x1a\n"))
	f.Fuzz(func(t *testing.T, infer bool, kind string, body []byte) {
		path := map[bool]string{false: "/v1/predict", true: inferPath}[infer]
		w := x.ask(path, kind, body)
		if w.Code != 200 && w.Code != 400 && w.Code != 413 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: the answer is no JSON: %s", path, w.Body)
		}
	})
}

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
	infer := inferRows(n, dx)
	data := make([]byte, 4*n*dx)
	text := fmt.Sprintf(
		`{"inputs": [{"name": "features", "shape": [%d, %d], "datatype": "FP32", "parameters": {"binary_data_size": %d}}], `+`"parameters": {"binary_data_output": true}}`, n, dx, len(data))
	head := appendText(nil, 1, modelName)
	raw := rawRows(n, dx)
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
	alloctest.NoRace(t)
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

// TestMemoryOfPictures: an image takes as much memory as its decoder may, whatever its header says of its
// size, and is refused where that is more than all pictures may take.
func TestMemoryOfPictures(t *testing.T) {
	f, _ := serving(t)
	deep := image.NewNRGBA64(image.Rect(0, 0, 40, 30))
	saved := func(encode func(w io.Writer) error) []byte {
		var b bytes.Buffer
		must.Do(t, encode(&b))
		return b.Bytes()
	}
	for name, data := range map[string][]byte{
		"PNG":  saved(func(w io.Writer) error { return png.Encode(w, deep) }),
		"JPEG": saved(func(w io.Writer) error { return jpeg.Encode(w, deep, nil) }),
		"BMP":  saved(func(w io.Writer) error { return bmp.Encode(w, deep) }),
		"TIFF of 16 bits, deflated": saved(func(w io.Writer) error {
			return tiff.Encode(w, deep, &tiff.Options{Compression: tiff.Deflate})
		}),
		"TIFF of one pixel, a tile of a million": tiledTIFF(1024),
	} {
		h := must.Get(imagefile.Header(bytes.NewReader(data)))(t)
		needs := max(h.Memory, ofPixel*int64(h.Width)*int64(h.Height))
		for _, all := range []int64{needs - 1, needs} {
			f.srv.predictions.decoding = newPredicting(all)
			w := f.ask("/v1/predict", "image/png", data)
			if refused := w.Code == http.StatusRequestEntityTooLarge; refused != (all < needs) ||
				refused && !strings.Contains(w.Body.String(), "as PNG") {
				t.Errorf("%s, which takes %d bytes of %d: %d %s", name, needs, all, w.Code, w.Body)
			}
		}
	}
}

// tiledTIFF is a grey TIFF of one pixel, in one deflated tile of a side.
func tiledTIFF(side uint32) []byte {
	var tile bytes.Buffer
	z := zlib.NewWriter(&tile)
	_, _ = z.Write(make([]byte, side*side)) // a buffer takes all
	_ = z.Close()
	const long, short, deflate, entries = 4, 3, 8, 9
	at := uint32(8 + 2 + 12*entries + 4) // of the tile
	d := append([]byte("II*\x00\x08\x00\x00\x00"), entries, 0)
	for _, e := range [entries][3]uint32{{0x100, short, 1}, {0x101, short, 1}, {0x102, short, 8},
		{0x103, short, deflate}, {0x106, short, 1}, {0x142, long, side}, {0x143, long, side},
		{0x144, long, at}, {0x145, long, uint32(tile.Len())}} {
		d = binary.LittleEndian.AppendUint16(d, uint16(e[0]))
		d = binary.LittleEndian.AppendUint16(d, uint16(e[1]))
		d = binary.LittleEndian.AppendUint32(d, 1)
		d = binary.LittleEndian.AppendUint32(d, e[2])
	}
	return append(append(d, 0, 0, 0, 0), tile.Bytes()...)
}

// TestStopping: a run that the stop of the program ends is no failure, by whatever interface: its sender
// is told to come again.
func TestStopping(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	f, dx := servingUnder(t, ctx)
	stop(ErrStopping)
	for _, a := range f.askings(1, dx, 20) {
		status, text := a.do()
		if status != http.StatusServiceUnavailable && status != int(codes.Unavailable) ||
			!strings.Contains(text, "is stopping: send again") {
			t.Errorf("%s: %d %.200s", a.name, status, text)
		}
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
	const tables = 1 << 18 // those of one JPEG, and of a second no more
	in, pictures := limit(&p.intake, 1<<20), limit(&p.decoding, tables)
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
	if !in.memory.TryAcquire(1<<20) || !pictures.memory.TryAcquire(tables) {
		t.Error("memory is not given back")
	}
}
