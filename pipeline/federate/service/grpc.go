package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// grpcStatuses are the statuses of HTTP that the metrics count calls of gRPC under; others are
// errors of the server.
// 499 is nginx's number for a request that its client closed; RFC 9110 has none for it.
var grpcStatuses = map[codes.Code]int{codes.OK: http.StatusOK, codes.Canceled: 499,
	codes.InvalidArgument: http.StatusBadRequest, codes.DeadlineExceeded: http.StatusGatewayTimeout,
	codes.NotFound: http.StatusNotFound, codes.ResourceExhausted: http.StatusRequestEntityTooLarge,
	codes.Unimplemented:   http.StatusNotImplemented,
	codes.Unavailable:     http.StatusServiceUnavailable,
	codes.Unauthenticated: http.StatusUnauthorized}

// grpcPath begins the path of each method of the service. maxGRPCQuestion is the maximum size of a
// request without tensors, grpcHead the size of the prefix of a message.
// A message comes behind one byte that says whether it is compressed and four of its length
// ("Length-Prefixed-Message", doc/PROTOCOL-HTTP2.md of grpc/grpc).
const (
	grpcPath        = "/inference.GRPCInferenceService/"
	maxGRPCQuestion = 4 << 10
	grpcHead        = 5
)

// calling is the key under which a call's context has its *grpcCall.
// A type of this package's own keeps the key apart from those of other packages.
type calling struct{}

// grpcCall is a call of gRPC: its request, the writer of its answer, and the memory that it holds.
// One goroutine serves a call, and the lease is released when it ends.
type grpcCall struct {
	r    *http.Request
	w    http.ResponseWriter
	held lease
}

// newGRPC returns the server of the service's methods.
// The limit of grpc-go is a second one: grpcBody has bounded the body before.
func (p *predictor) newGRPC() *grpc.Server {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxPredictBytes), grpc.UnaryInterceptor(p.grpcUnary))
	s.RegisterService(&inferenceMethods, grpcService{p: p})
	return s
}

// grpc answers a call over HTTP/2. Its body has come whole before grpc-go sees it: a body is
// bounded in size, rate and memory as those of other interfaces are.
func (p *predictor) grpc(w http.ResponseWriter, r *http.Request) {
	c := &grpcCall{r: r, w: w, held: lease{in: p.intake}}
	defer c.held.release()
	if err := p.grpcBody(c, w); err != nil {
		// An answer without a message is one block of headers ("Trailers-Only").
		st, _ := status.FromError(p.grpcError(r, err))
		w.Header().Set("Content-Type", "application/grpc")
		// without a body headers are trailers
		w.Header().Set("Grpc-Status", strconv.Itoa(int(st.Code())))
		w.Header().Set("Grpc-Message", url.PathEscape(st.Message()))
	} else {
		// Without the request's end in the context this returns when the call has, not before: its
		// memory is held until then.
		p.calls.ServeHTTP(w, c.r.WithContext(context.WithValue(context.WithoutCancel(r.Context()),
			calling{}, c)))
	}
	// gRPC answers every call with 200 in HTTP, and has its own status in a trailer. Metrics and
	// spans would else call each failed call a success.
	if o, ok := w.(*watched); ok && o.status == http.StatusOK {
		code, err := strconv.Atoi(w.Header().Get("Grpc-Status"))
		if o.status = grpcStatuses[codes.Code(code)]; err != nil || o.status == 0 {
			o.status = http.StatusInternalServerError
		}
	}
}

// grpcBody reads the body of a call, which becomes that of c.r.
// The token is checked before a byte of the body is read. A body beyond its limit, or one of more
// than one message, is ResourceExhausted.
func (p *predictor) grpcBody(c *grpcCall, w http.ResponseWriter) error {
	name, most := c.r.PathValue("method"), maxGRPCQuestion
	if name != "ServerLive" && name != "ServerReady" && name != "ModelReady" && !p.permits(c.r) {
		return status.Error(codes.Unauthenticated,
			"give the readers' token, as the metadata authorization: Bearer TOKEN")
	}
	// memory is held by the size of the messages that come
	if e := c.r.Header.Get("Grpc-Encoding"); e != "" && e != "identity" {
		return status.Errorf(codes.Unimplemented,
			"grpc-encoding is %.20q; send messages as they are", e)
	}
	infer := name == "ModelInfer"
	if infer {
		most = maxPredictBytes
	}
	body, err := p.receive(&c.held, w, c.r, most+grpcHead, ofBinary)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return status.Errorf(codes.ResourceExhausted,
			"a message of more than the allowed bytes, or more than one message; allowed "+
				"are %d, and the methods are unary", most)
	}
	if err == nil && infer && len(body) > grpcHead {
		var of weight // its memory is bounded, and that of its contents taken, before it is decoded
		if err = of.add(body[grpcHead:], 0); err == nil {
			err = c.held.take(c.r.Context(), of.contents)
		}
	}
	// The request of net/http is left as it was, and only its copy has the body.
	c.r = c.r.Clone(c.r.Context())
	c.r.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

// grpcUnary calls a method until its caller has gone. A panic is an error of the call alone.
// An answer made after its caller has gone is thrown away as an error. The lease grows by the
// answer and its bytes before grpc-go encodes it.
func (p *predictor) grpcUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
	next grpc.UnaryHandler) (out any, err error) {
	call := ctx.Value(calling{}).(*grpcCall)
	r := call.r
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.Context(), cancel)()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
		err = p.grpcError(r, err)
	}()
	if out, err = next(ctx, req); err == nil {
		err = ctx.Err()
	}
	if m, ok := out.(proto.Message); ok && err == nil {
		call.held.answering(call.w, 2*proto.Size(m)) // and as bytes
	}
	return out, err
}

// grpcError returns an error with its status code, and logs one of the server's own.
// Errors that callers can mend go out with their text. Others go to the log alone, since they may
// name files and addresses of the server.
func (p *predictor) grpcError(r *http.Request, err error) error {
	var input *errInput
	var beyond *errBeyond
	code := codes.Internal
	if _, ok := status.FromError(err); ok { // nil too
		return err
	}
	switch {
	case errors.As(err, &beyond), errors.Is(err, errBusy):
		code = codes.ResourceExhausted
	case errors.Is(err, errSlow), errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.As(err, &input):
		code = codes.InvalidArgument
	case errors.Is(err, ErrStopping):
		return status.Error(codes.Unavailable, ErrStopping.Error())
	case errors.Is(err, errNotYet):
		code = codes.Unavailable
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	default:
		p.log.Error("prediction failed", "path", r.URL.Path, "error", err)
		return status.Error(code, "the classifier failed; the server's log says why")
	}
	return status.Error(code, err.Error())
}
