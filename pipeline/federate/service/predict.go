package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc"

	"fmp/featurize/imagefile"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/trace"
	"fmp/pipeline/federate/wire"
)

// Bounds on one request for predictions.
const (
	maxPredictBytes  = 32 << 20
	maxPredictItems  = 1024
	maxPredictPixels = 16_000_000 // per image
	// maxPredicting bounds the memory of all requests under way, by the bounds below of the memory
	// of each, and maxDecoding that of pictures while they are decoded: apart, as a request holds
	// its body meanwhile.
	maxPredicting, maxDecoding = 512 << 20, 384 << 20
	// maxArriving bounds the memory of bodies that have not come whole.
	maxArriving = 256 << 20
	// Multiples of a body's size that it takes in bytes, or as JSON, its parse included; bytes for
	// each pixel of an image that is decoded, for each image or row, and for each number of its
	// answer.
	ofBinary, ofJSON, ofPixel, ofItem, ofNumber = 6, 12, 24, 4 << 10, 80
	// predictRate is the least bytes a second of a request's body after ten seconds, and bodyTime
	// the longest that it may come.
	predictRate, bodyTime = 8 << 10, 2 * time.Minute
	// predictWait is how long a request waits for memory.
	predictWait = 15 * time.Second
	// decodeTime is how long the decoding of one picture may take, predictTime the answer to a
	// request that has come, and then its reader.
	decodeTime, predictTime = 10 * time.Second, 2 * time.Minute
)

// served is the version that makes predictions: a classifier of images and one of feature rows. A
// classifier runs one batch at a time, as not every engine can run several.
// A version is made once, and only its classifiers go when it is closed. data are the bytes that
// are downloaded, and are not changed.
type served struct {
	version store.Version
	data    []byte
	mu      sync.RWMutex         // held for reading by requests, for writing by close
	images  *classify.Classifier // not nil while it makes predictions
	rows    *classify.Classifier // nil if there is none
	// ofImages and ofRows are the queues of the two.
	ofImages, ofRows *batches
	// drift is the version's own test: images that it answers late are not the next one's.
	drift *conformal.Drift

	statistics statistics
}

// open loads the version's classifier, and that of feature rows where rows is not nil. After an
// error the caller closes the version, which may hold one of the two.
func (v *served) open(eng engine.Engine, rows []byte) (err error) {
	if v.images, err = classify.Parse(eng, v.data); err != nil {
		return err
	}
	if v.drift, err = newDrift(v.images.Manifest); err == nil && rows != nil {
		v.rows, err = classify.Parse(eng, rows)
	}
	return err
}

// predictor makes predictions with the classifier of the latest version.
// mu guards serving and latest. It is held for a moment, and never while a classifier runs.
type predictor struct {
	engine engine.Engine // nil: no version makes predictions
	log    *slog.Logger
	tracer *trace.Tracer
	refuse func(w http.ResponseWriter, code, detail string, args ...any)
	// permits reports whether a call of gRPC is a reader's.
	permits func(r *http.Request) bool
	// void reports whether a version holds an upload that was withdrawn.
	void func(version int) bool
	// arriving bounds the memory of bodies until they are whole, intake that of requests from then
	// on, decoding that of pictures.
	arriving, intake, decoding *intake

	watch *watch
	calls *grpc.Server

	mu      sync.Mutex
	serving *served
	latest  *served // serving, or the one that is being opened
}

// newPredicting bounds the requests of one server, to an amount of memory.
// The bounds of a body's size and rate are those of every request; all is in bytes.
func newPredicting(all int64) *intake {
	in := newIntake(&round.Bounds{Bytes: maxPredictBytes, Rate: predictRate}, all)
	in.wait, in.taking = predictWait, predictTime
	return in
}

// newPredictor returns a predictor with the bounds of one server.
func newPredictor(eng engine.Engine, log *slog.Logger, t *trace.Tracer) *predictor {
	p := &predictor{engine: eng, log: log, tracer: t, refuse: refuse,
		permits: func(*http.Request) bool { return true },
		void:    func(int) bool { return false }, watch: newWatch(),
		arriving: newPredicting(maxArriving), intake: newPredicting(maxPredicting),
		decoding: newPredicting(maxDecoding)}
	// A caller has half of this memory at most, so that one that sends slowly leaves room for
	// others.
	p.arriving.total, p.arriving.shares = bodyTime, newShares(maxArriving/2)
	p.calls = p.newGRPC()
	return p
}

// receive reads the body of a request whole, and only then takes memory for its parts and its
// answer, a multiple of its size: a body that comes slowly holds its own bytes and nothing else.
func (p *predictor) receive(held *lease, w http.ResponseWriter, r *http.Request, most,
	times int) ([]byte, error) {
	coming := lease{in: p.arriving, of: caller(r)}
	defer coming.release()
	data, err := coming.read(w, r, most, 1)
	if err == nil {
		err = held.take(r.Context(), int64(times)*int64(len(data)))
	}
	return data, err
}

// routes returns the paths under which predictions are made.
// The second field says whether a path is for readers with a token alone. Probes of health are
// not, and calls of gRPC are checked by grpcBody.
func (p *predictor) routes() []route {
	out := []route{
		{"POST /v1/predict", true, p.predict},
		{"GET /v2", true, p.inferServer},
		{"GET /v2/health/live", false, p.inferLive},
		{"GET /v2/health/ready", false, p.inferReady},
		{"GET /v2/models/stats", true, p.inferStatistics},
		{"GET " + elsewhere, false, inferNowhere},
		{"POST " + elsewhere, false, inferNowhere},
		{"POST " + grpcPath + "{method}", false, p.grpc},
	}
	for _, r := range []route{
		{"GET %s", true, p.inferModel},
		{"GET %s/ready", false, p.inferReady},
		{"GET %s/config", true, p.inferConfig},
		{"GET %s/stats", true, p.inferStatistics},
		{"POST %s/infer", true, p.infer},
	} {
		for _, model := range []string{"/v2/models/classifier",
			"/v2/models/classifier/versions/{version}"} {
			out = append(out, route{fmt.Sprintf(r.pattern, model), r.readers,
				p.ofVersion(r.handle)})
		}
	}
	return out
}

// close closes the classifier, and ends calls of gRPC.
// Requests are then told that there is no version.
func (p *predictor) close() {
	p.calls.Stop()
	p.replace(nil)
}

// replace makes a version the one that makes predictions, nil: none, and closes the last. It waits
// for the requests that the last one still answers; new ones are answered by the next meanwhile.
func (p *predictor) replace(next *served) {
	p.mu.Lock()
	last := p.serving
	p.serving, p.latest = next, next
	if next != nil {
		p.watch.show(next.drift)
	}
	p.mu.Unlock()
	if last != nil {
		last.close()
	}
}

// serve makes a version the one that makes predictions.
// On an error the version before it goes on making predictions. Without an engine none does.
// Loading takes place outside the lock, so that requests go on meanwhile. Downloads of the latest
// version come from data from the start.
func (p *predictor) serve(v store.Version, data, rows []byte) error {
	next := &served{version: v, data: data}
	p.mu.Lock()
	p.latest = next
	p.mu.Unlock()
	if p.engine == nil {
		return nil
	}
	if err := next.open(p.engine, rows); err != nil {
		next.close()
		return fmt.Errorf("version %d: %w", v.Number, err)
	}
	next.ofImages, next.ofRows = &batches{statistics: &next.statistics},
		&batches{statistics: &next.statistics}
	p.replace(next)
	return nil
}

// close waits for the requests that hold the version for reading.
// New requests cannot get it: it has left serving before.
func (v *served) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range []*classify.Classifier{v.images, v.rows} {
		if c != nil {
			c.Close()
		}
	}
	v.images, v.rows = nil, nil
}

// memory is an image source over the images of a request. Each is written to its destination by a
// function.
// A function may wait for memory, and is called once, in the order of the images.
type memory struct {
	names []string
	write []func(ctx context.Context, dst []uint8) error
	at    int // the next image
}

var _ imagefile.Source = (*memory)(nil)

func (m *memory) Len() int     { return len(m.write) }
func (m *memory) Close() error { return nil }

// Next is [imagefile.Source]. An image that cannot be read is a BadImage of its request. Want of
// memory and the end of the request are errors of the whole.
func (m *memory) Next(ctx context.Context, dst []uint8) (imagefile.Item, error) {
	i := m.at
	m.at++
	item := imagefile.Item{Name: m.names[i], Label: imagefile.Unlabelled}
	err := m.write[i](ctx, dst)
	if err != nil && !errors.Is(err, errBusy) && ctx.Err() == nil {
		err = &imagefile.BadImage{Err: fmt.Errorf("%s: %w", m.names[i], err)}
	}
	return item, err
}

// add appends an image, which takes memory while it is decoded: ofPixel bytes a pixel, or more where
// its decoder does, as for a tile that is larger than the image. The header is read first, so that
// no memory is taken for an image that is too large.
// data is shared until the image is decoded. The bound by division cannot overflow.
func (m *memory) add(name string, data []byte, fit imagefile.Fit, in *intake) {
	m.names = append(m.names, name)
	m.write = append(m.write, func(ctx context.Context, dst []uint8) error {
		h, err := imagefile.Header(bytes.NewReader(data))
		if err != nil {
			return err
		}
		if h.Width > maxPredictPixels/max(h.Height, 1) {
			return fmt.Errorf("an image of %dx%d pixels; allowed are %d in all", h.Width, h.Height,
				maxPredictPixels)
		}
		held := lease{in: in}
		defer held.release()
		var beyond *errBeyond
		err = held.take(ctx, max(ofPixel*int64(h.Width)*int64(h.Height), h.Memory))
		if errors.As(err, &beyond) {
			err = fmt.Errorf("%w, and save an image that takes it alone as PNG", err)
		}
		if err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, decodeTime)
		defer cancel()
		err = fit.Decode(within, data, dst)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("an image that takes more than %v to decode; save it "+
				"anew", decodeTime)
		}
		return err
	})
}

// errInput marks an error in a request's images or rows.
// Interfaces turn it into a refusal of the request, and others into a failure of the server.
type errInput struct{ err error }

func (e *errInput) Error() string { return e.err.Error() }
func (e *errInput) Unwrap() error { return e.err }

func inputf(format string, args ...any) error { return &errInput{fmt.Errorf(format, args...)} }

// errNotYet means that there is no version yet.
var errNotYet = errors.New("no classifier yet")

// ErrStopping is the cause that ends the context of a server's engine when the program stops:
// requests that still run are told to come again.
var ErrStopping = errors.New("the server is stopping: send again")

// version returns the version that makes predictions; nil if there is none.
func (p *predictor) version() *served {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serving
}

// acquire returns the version that makes predictions, locked for reading, so that a newer one does
// not close it; errNotYet if there is none. Between the look and the lock another version may have
// taken its place and closed it: it looks again.
func (p *predictor) acquire() (*served, error) {
	for {
		v := p.version()
		if v == nil {
			return nil, errNotYet
		}
		v.mu.RLock()
		if p.version() == v {
			return v, nil
		}
		v.mu.RUnlock()
	}
}

// run classifies the input that build makes from a request, with the classifier that the request
// names. The request takes memory for its answer: for n images and C classes it is
// n (ofItem + ofNumber C) bytes.
// Waiting for memory and for the classifier ends with ctx, or after predictTime. Where an image
// cannot be read or classified the error is an *errInput, and nothing is answered. use is called while the
// version is held open.
// On return nothing of the classifier is in use. use gets predictions that are its to keep.
func (p *predictor) run(ctx context.Context, held *lease, rows bool,
	build func(c *classify.Classifier) (*memory, *onnx.Tensor, error),
	use func(v store.Version, c *classify.Classifier, ps []classify.Prediction) error) (err error) {
	at := &stages{start: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, predictTime)
	defer cancel()
	ctx, span := p.tracer.Start(ctx, "classify", trace.Internal)
	defer func() { trace.End(span, err != nil) }()
	v, err := p.acquire()
	if err != nil {
		return err
	}
	defer v.mu.RUnlock()
	var all []classify.Prediction
	defer func() { v.statistics.add(at, len(all), err) }()
	c, queue := v.images, v.ofImages
	if rows {
		c, queue = v.rows, v.ofRows
	}
	if c == nil {
		return inputf("there is no classifier that takes feature rows")
	}
	images, x, err := build(c)
	if err != nil {
		return err
	}
	n := 0
	if rows {
		n = x.Shape[0]
	} else {
		n = images.Len()
	}
	if err := held.take(ctx, int64(n)*(ofItem+ofNumber*int64(c.Manifest.C))); err != nil {
		return err
	}
	// Its session joins inputs of several requests into batches, and ends with the request's
	// context.
	c = c.Through(func(s engine.Session) engine.Session { return &batched{s, queue, ctx, at} })
	keep := func(ps []classify.Prediction) error { all = append(all, ps...); return nil }
	if rows {
		err = c.Rows(ctx, x, nil, keep)
	} else {
		var bad []error
		if bad, err = c.Images(ctx, images, false, keep); err == nil {
			err = imagefile.First(bad)
		}
	}
	var one *imagefile.BadImage
	if errors.As(err, &one) {
		return &errInput{err}
	}
	if err != nil {
		return err
	}
	at.computed = time.Now()
	span.SetAttributes(attribute.Int("fmp.images", len(all)),
		attribute.Int64("fmp.queue_us", at.queue.Microseconds()),
		attribute.Int64("fmp.run_us", at.infer.Microseconds()))
	// Only predictions of whole requests count, so that a bad image leaves no trace in the
	// metrics.
	p.watch.add(v, c, all)
	return use(v.version, c, all)
}

// predict answers with the classes of images (of any format that is read, one as the body or
// several as multipart/form-data), or of feature rows (JSON), in the format of fmp predict --json.
// The answer is made in memory before a byte is sent, so that an error still has its own status.
func (p *predictor) predict(w http.ResponseWriter, r *http.Request) {
	given := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(given)
	// the first bytes of an image say of which format it is
	image := strings.HasPrefix(kind, "image/") || kind == "application/octet-stream"
	form, rows := kind == "multipart/form-data", kind == "application/json"
	if err != nil || !image && !form && !rows {
		p.refuse(w, wire.BadRequest, "the Content-Type is %.80q; want image/png, image/jpeg or "+
			"another image format that is read, multipart/form-data or application/json", given)
		return
	}
	held := lease{in: p.intake}
	defer held.release()
	times := ofBinary
	if rows {
		times = ofJSON
	}
	data, err := p.receive(&held, w, r, maxPredictBytes, times)
	var build func(c *classify.Classifier) (*memory, *onnx.Tensor, error)
	if err == nil && rows {
		build, err = buildRows(data)
	} else if err == nil {
		names, files := []string{"image"}, [][]byte{data}
		if form {
			if names, files, err = parts(bytes.NewReader(data), params["boundary"]); err != nil {
				err = inputf("%w", err)
			}
		}
		build = func(c *classify.Classifier) (*memory, *onnx.Tensor, error) {
			m := &memory{}
			for i, data := range files {
				m.add(names[i], data, c.Fit, p.decoding)
			}
			return m, nil, nil
		}
	}
	var text bytes.Buffer
	if err == nil {
		err = p.run(r.Context(), &held, rows, build, func(v store.Version, c *classify.Classifier,
			ps []classify.Prediction) error {
			w.Header().Set("Fmp-Version", fmt.Sprint(v.Number))
			p.sayVoid(v, w.Header().Set)
			out, err := classify.NewPrinter(&text, c, classify.JSON, p.watch.reject)
			if err != nil {
				return err
			}
			if err := out.Print(ps); err != nil {
				return err
			}
			return out.Close()
		})
	}
	if err != nil {
		p.badPrediction(func(code, detail string, args ...any) {
			p.refuse(w, code, detail, args...)
		}, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	held.send(w, text.Bytes())
}

// sayVoid sets a header where a version that predicts holds an upload that was withdrawn.
func (p *predictor) sayVoid(v store.Version, set func(name, value string)) {
	if p.void(v.Number) {
		set("Fmp-Superseded", withdrawn)
	}
}

// buildRows returns the input of feature rows, which are JSON.
// The rows are put together in one tensor, [n, dx], once the classifier is known.
func buildRows(data []byte) (func(c *classify.Classifier) (*memory, *onnx.Tensor, error), error) {
	rows, err := featureRows(bytes.NewReader(data))
	if err != nil {
		return nil, inputf("%w", err)
	}
	return func(c *classify.Classifier) (*memory, *onnx.Tensor, error) {
		for i, row := range rows {
			if len(row) != c.Manifest.Dx {
				return nil, nil, inputf("features[%d] has %d numbers; want dx, %d", i,
					len(row), c.Manifest.Dx)
			}
		}
		return nil, onnx.NewTensor(slices.Concat(rows...), len(rows), c.Manifest.Dx), nil
	}, nil
}

// featureRows parses {"features": [[...], ...]}, 1 to maxPredictItems rows, and stops at the first
// beyond that.
// Tokens are read one at a time, so that no row beyond the bound is parsed. Other keys are
// refused.
func featureRows(body io.Reader) (rows [][]float32, err error) {
	d := json.NewDecoder(body)
	for _, want := range []json.Token{json.Delim('{'), "features", json.Delim('[')} {
		if t, err := d.Token(); err != nil {
			return nil, err
		} else if t != want {
			return nil, fmt.Errorf("%.40v where %v is wanted; send {\"features\": [[...], ...]}", t,
				want)
		}
	}
	for d.More() {
		if len(rows) == maxPredictItems {
			return nil, fmt.Errorf("features has more than %d rows", maxPredictItems)
		}
		var row numberRow
		if err := d.Decode(&row); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	for _, want := range []json.Token{json.Delim(']'), json.Delim('}')} {
		if t, err := d.Token(); err != nil {
			return nil, err
		} else if t != want {
			return nil, fmt.Errorf("%.40v after the rows of features; send nothing else", t)
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the object of features; send nothing else")
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("features has 0 rows; allowed are 1 to %d", maxPredictItems)
	}
	return rows, nil
}

// numberRow is a list of numbers that takes no more memory than it needs.
type numberRow []float32

// UnmarshalJSON counts the commas first: a slice that grows would take up to twice the memory.
// A row of c commas has c + 1 numbers at most.
func (r *numberRow) UnmarshalJSON(text []byte) error {
	if bytes.Contains(text, []byte("null")) { // which JSON has in place of NaN, and is read as 0
		return errors.New("features: a number is null; want all of them, finite")
	}
	*r = make([]float32, 0, bytes.Count(text, []byte(","))+1)
	return json.Unmarshal(text, (*[]float32)(r))
}

// parts returns the names and contents of the files in a multipart form.
// A part without a file name is named by its number. The body has come whole, so that its size
// bounds them.
// The form is the one of RFC 7578.
func parts(body io.Reader, boundary string) (names []string, files [][]byte, err error) {
	if boundary == "" {
		return nil, nil, errors.New("the form has no boundary")
	}
	form := multipart.NewReader(body, boundary)
	for {
		p, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		if len(files) == maxPredictItems {
			return nil, nil, fmt.Errorf("more than %d images", maxPredictItems)
		}
		data, err := io.ReadAll(p)
		if err != nil {
			return nil, nil, err
		}
		name := cmp.Or(p.FileName(), fmt.Sprint(len(files)))
		names, files = append(names, name), append(files, data)
	}
	if len(files) == 0 {
		return nil, nil, errors.New("the form holds no image")
	}
	return names, files, nil
}

// refuses writes a refusal, in the form of an interface.
type refuses func(code, detail string, args ...any)

// badPrediction refuses a request whose body or input could not be read or classified.
// Cases are in the order of their precedence: an error of input may wrap that of a context.
func (p *predictor) badPrediction(refuse refuses, r *http.Request, err error) {
	var input *errInput
	var large *http.MaxBytesError
	var beyond *errBeyond
	switch {
	case errors.Is(err, errNotYet):
		refuse(wire.NotYet, "there is no classifier yet")
	case errors.As(err, &large):
		refuse(wire.TooLarge, "a request of more than %d bytes", large.Limit)
	case errors.As(err, &beyond):
		refuse(wire.TooLarge, "%v", err)
	case errors.Is(err, errBusy):
		refuse(wire.Unavailable, "%v", err)
	case errors.Is(err, ErrStopping):
		refuse(wire.Unavailable, "%v", ErrStopping)
	case errors.Is(err, errSlow):
		refuse(wire.TooSlow, "fewer than %d bytes a second came", predictRate)
	case errors.As(err, &input):
		refuse(wire.BadRequest, "%v", err)
	case r.Context().Err() != nil: // the client has gone
	case errors.Is(err, context.DeadlineExceeded):
		refuse(wire.Unavailable, "the answer took more than %v; ask for fewer at a time",
			predictTime)
	default:
		p.log.Error("prediction failed", "path", r.URL.Path, "error", err)
		refuse(wire.ServerFailed, "the classifier failed; the server's log says why")
	}
}
