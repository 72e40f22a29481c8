package service

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fmp/pipeline/classify"
	"fmp/pipeline/federate/store"
)

// Status codes of gRPC (github.com/grpc/grpc/blob/master/doc/statuscodes.md).
const (
	grpcCancelled       = 1
	grpcInvalid         = 3
	grpcDeadline        = 4
	grpcNotFound        = 5
	grpcExhausted       = 8
	grpcUnimplemented   = 12
	grpcInternal        = 13
	grpcUnavailable     = 14
	grpcUnauthenticated = 16
)

// grpcStatuses are the statuses of HTTP that the metrics count calls of gRPC under.
var grpcStatuses = map[int]int{grpcCancelled: 499, grpcInvalid: http.StatusBadRequest, grpcDeadline: http.StatusGatewayTimeout,
	grpcNotFound: http.StatusNotFound, grpcExhausted: http.StatusRequestEntityTooLarge, grpcUnimplemented: http.StatusNotImplemented,
	grpcInternal: http.StatusInternalServerError, grpcUnavailable: http.StatusServiceUnavailable,
	grpcUnauthenticated: http.StatusUnauthorized}

// grpcError is an error with its status code.
type grpcError struct {
	code int
	text string
}

func (e *grpcError) Error() string { return e.text }

func grpcErrorf(code int, format string, args ...any) error {
	return &grpcError{code, fmt.Sprintf(format, args...)}
}

// grpcPath begins the path of each method of the service. maxGRPCQuestion is the maximum size of a request without tensors.
const (
	grpcPath        = "/inference.GRPCInferenceService/"
	maxGRPCQuestion = 4 << 10
)

// grpcMethods are the methods of the service by name: whether readers alone may call one, its largest message, and its handler.
var grpcMethods = map[string]struct {
	readers bool
	most    int
	answer  func(p *predictor, ctx context.Context, held *lease, message []byte) ([]byte, error)
}{
	"ServerLive":     {false, maxGRPCQuestion, (*predictor).grpcLive},
	"ServerReady":    {false, maxGRPCQuestion, (*predictor).grpcReady},
	"ModelReady":     {false, maxGRPCQuestion, (*predictor).grpcModelReady},
	"ServerMetadata": {true, maxGRPCQuestion, (*predictor).grpcServer},
	"ModelMetadata":  {true, maxGRPCQuestion, (*predictor).grpcModel},
	"ModelInfer":     {true, maxPredictBytes, (*predictor).grpcInfer},
}

// grpc answers one unary call of gRPC over HTTP/2 (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
func (p *predictor) grpc(w http.ResponseWriter, r *http.Request) {
	kind := r.Header.Get("Content-Type")
	if kind != "application/grpc" && kind != "application/grpc+proto" {
		http.Error(w, "the Content-Type is not application/grpc", http.StatusUnsupportedMediaType)
		return
	}
	if r.ProtoMajor < 2 {
		http.Error(w, "gRPC wants HTTP/2", http.StatusHTTPVersionNotSupported)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Grpc-Accept-Encoding", "identity")
	message, err := p.grpcCall(w, r)
	if err != nil {
		code := p.grpcCode(r, err)
		text := err.Error()
		if code == grpcInternal {
			text = "the classifier failed; the server's log says why"
		}
		// Without a body these headers are the trailers.
		h.Set("Grpc-Status", strconv.Itoa(code))
		h.Set("Grpc-Message", percentEncoded(text))
		if o, ok := w.(*watched); ok {
			o.status = grpcStatuses[code]
		}
		return
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	_, _ = w.Write(append(frame, message...)) // it fails if the client has gone
	h.Set(http.TrailerPrefix+"Grpc-Status", "0")
}

// grpcCall reads the message of a call and returns that of the answer.
func (p *predictor) grpcCall(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	name := r.PathValue("method")
	m, ok := grpcMethods[name]
	if !ok {
		return nil, grpcErrorf(grpcUnimplemented, "no method %.40q", name)
	}
	if m.readers && !p.permits(r) {
		return nil, grpcErrorf(grpcUnauthenticated, "give the readers' token, as the metadata authorization: Bearer TOKEN")
	}
	ctx := r.Context()
	if text := r.Header.Get("Grpc-Timeout"); text != "" {
		limit, err := grpcTimeout(text)
		if err != nil {
			return nil, err
		}
		within, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = within
	}
	held := lease{in: p.intake}
	defer held.release()
	message, err := p.grpcMessage(&held, w, r.WithContext(ctx), m.most)
	if err != nil {
		return nil, err
	}
	out, err := m.answer(p, ctx, &held, message)
	if err == nil {
		err = ctx.Err()
	}
	return out, err
}

// grpcCode returns the status code of an error, and logs one of the server's own.
func (p *predictor) grpcCode(r *http.Request, err error) int {
	var own *grpcError
	var input *errInput
	var beyond *errBeyond
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &beyond), errors.Is(err, errBusy):
		return grpcExhausted
	case errors.Is(err, errSlow):
		return grpcDeadline
	case errors.As(err, &input):
		return grpcInvalid
	case errors.Is(err, errNotYet):
		return grpcUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return grpcDeadline
	case errors.Is(err, context.Canceled):
		return grpcCancelled
	}
	p.log.Error("prediction failed", "path", r.URL.Path, "error", err)
	return grpcInternal
}

// grpcHead is the size of the prefix of a message: a byte that tells whether it is compressed, and four of its length.
const grpcHead = 5

// grpcMessage reads the one message of a unary call.
func (p *predictor) grpcMessage(held *lease, w http.ResponseWriter, r *http.Request, most int) ([]byte, error) {
	data, err := p.receive(held, w, r, most+grpcHead, ofBinary)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, grpcErrorf(grpcExhausted,
			"a message of more than the allowed bytes, or more than one message; allowed are %d, and the methods are unary", most)
	}
	if err != nil {
		return nil, err
	}
	if len(data) < grpcHead {
		return nil, grpcErrorf(grpcInvalid, "a call without a message")
	}
	encoding := r.Header.Get("Grpc-Encoding")
	message, n := data[grpcHead:], int64(binary.BigEndian.Uint32(data[1:]))
	switch {
	case data[0] == 1 && encoding != "" && encoding != "identity":
		return nil, grpcErrorf(grpcUnimplemented, "grpc-encoding is %.20q; send messages as they are", encoding)
	case data[0] != 0:
		return nil, grpcErrorf(grpcInvalid, "the message is marked as compressed, without a grpc-encoding")
	case n > int64(most):
		return nil, grpcErrorf(grpcExhausted, "a message of %d bytes; allowed are %d", n, most)
	case int64(len(message)) < n:
		return nil, grpcErrorf(grpcInvalid, "%d of the message's %d bytes came", len(message), n)
	case int64(len(message)) > n:
		return nil, grpcErrorf(grpcUnimplemented, "more than one message; the methods are unary")
	}
	return message, nil
}

// grpcTimeout parses the time that a caller waits: at most eight digits and a unit.
func grpcTimeout(text string) (time.Duration, error) {
	digits, unit := text[:len(text)-1], text[len(text)-1]
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond,
		'n': time.Nanosecond}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || len(digits) > 8 || units[unit] == 0 {
		return 0, grpcErrorf(grpcInvalid, "grpc-timeout is %.20q; want up to eight digits and one of H, M, S, m, u, n", text)
	}
	// Nobody waits longer than a day; 99,999,999 hours would overflow.
	return min(time.Duration(n), 24*time.Hour/units[unit]) * units[unit], nil
}

// percentEncoded returns a text as grpc-message has it: bytes that are not printable ASCII, and percent signs, as %XX.
func percentEncoded(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (p *predictor) grpcLive(context.Context, *lease, []byte) ([]byte, error) {
	return boolMessage(true), nil
}

func (p *predictor) grpcReady(context.Context, *lease, []byte) ([]byte, error) {
	return boolMessage(p.version() != nil), nil
}

func (p *predictor) grpcModelReady(_ context.Context, _ *lease, message []byte) ([]byte, error) {
	name, version, err := parseModel(message)
	if err != nil {
		return nil, err
	}
	v := p.version()
	return boolMessage(v != nil && isModel(v.version, name, version) == nil), nil
}

func (p *predictor) grpcServer(context.Context, *lease, []byte) ([]byte, error) {
	return serverMessage(), nil
}

func (p *predictor) grpcModel(_ context.Context, _ *lease, message []byte) ([]byte, error) {
	name, version, err := parseModel(message)
	if err != nil {
		return nil, err
	}
	v, inputs, outputs, err := p.current()
	if err == nil {
		err = isModel(v.version, name, version)
	}
	if err != nil {
		return nil, err
	}
	return modelMessage(v.version.Number, inputs, outputs), nil
}

func (p *predictor) grpcInfer(ctx context.Context, held *lease, message []byte) ([]byte, error) {
	call, err := parseCall(message)
	if err != nil {
		return nil, err
	}
	if v := p.version(); v != nil {
		if err := isModel(v.version, call.model, call.version); err != nil {
			return nil, err
		}
	}
	var answer *inferAnswer
	err = p.run(ctx, held, call.rows(), call.build, func(v store.Version, c *classify.Classifier, ps []classify.Prediction) (err error) {
		if err = isModel(v, call.model, call.version); err == nil { // a newer one may have come since
			answer, err = call.answer(v, c, ps)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer.message(call.raw), nil
}

// isModel returns an error where a caller names another model, or another version; an empty version is any.
func isModel(v store.Version, name, version string) error {
	if name != modelName || (version != "" && version != strconv.Itoa(v.Number)) {
		return grpcErrorf(grpcNotFound, "model %.40q version %.20q; there is %s version %d", name, version, modelName, v.Number)
	}
	return nil
}
