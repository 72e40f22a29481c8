package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"image/png"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"fmp/cmd/internal/interrupt"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	pb "fmp/pipeline/federate/inferpb"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/option"
)

// TestStopAnswers: a request that was accepted before the stop is answered, by every interface of both
// servers. One that takes longer than the time for it is told to come again.
func TestStopAnswers(t *testing.T) {
	t.Run("predict", func(t *testing.T) {
		r := newMadeRound(t, 3)
		path := r.path("c.onnx")
		ran(t, append([]string{"pool", "--engine.name", "pure", "--samples", "2", "-o", path}, r.uploads...)...)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		cmd, cfg := newPredictCommand(), option.Default[engineSettings]()
		from, to := io.Pipe()
		var log bytes.Buffer
		cmd.SetContext(ctx)
		cmd.SetOut(to)
		cmd.SetErr(&log)
		cfg.Engine.Name = "pure"
		ended := make(chan error, 1)
		go func() {
			ended <- servePredictions(cmd, cfg, path, r.read("c.onnx"), listening{address: "127.0.0.1:0",
				every: time.Minute})
		}()
		line := must.Get(bufio.NewReader(from).ReadString('\n'))(t)
		_, address, _ := strings.Cut(strings.TrimSpace(line), "on http://")
		answeredAfter(t, address, stop)
		if err := <-ended; err != nil || strings.Contains(log.String(), "ERROR") {
			t.Errorf("ended with %v, logged %s", err, &log)
		}
	})
	t.Run("serve", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("Windows has no such signal")
		}
		f := newFederation(t, 1, "deadline: 2100-01-01T00:00:00Z\nquorum: 1\nsamples: 2\n")
		f.serve()
		f.joins("c000")
		f.published(1)
		f.until("/v2/health/ready", http.StatusOK)
		answeredAfter(t, f.address, func() { must.Do(t, f.server.Process.Signal(syscall.SIGTERM)) })
		must.Do(t, f.server.Wait())
		f.server = nil
		if log := read(t, f.path("server.log")); bytes.Contains(log, []byte("ERROR")) {
			t.Errorf("logged %s", log)
		}
	})
}

// answeredAfter has each interface of a server accept a request, stops the server, and sends the
// bodies once it takes no connection.
func answeredAfter(t *testing.T, address string, stop func()) {
	t.Helper()
	const side = 28
	var picture bytes.Buffer
	must.Do(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, side, side))))
	tensor := strings.Repeat("7,", side*side-1) + "7"
	call := must.Get(proto.Marshal(&pb.ModelInferRequest{ModelName: "classifier",
		Inputs:           []*pb.Tensor{{Name: "images", Datatype: "UINT8", Shape: []int64{1, side, side, 1}}},
		RawInputContents: [][]byte{make([]byte, side*side)}}))(t)
	calls := []*heldCall{
		{path: "/v1/predict", kind: "image/png", body: picture.Bytes()},
		{path: "/v2/models/classifier/infer", kind: "application/json", body: fmt.Appendf(nil, `{"inputs":[{"name":`+
			`"images","shape":[1,%d,%d,1],"datatype":"UINT8","data":[%s]}]}`, side, side, tensor)},
		{path: "/inference.GRPCInferenceService/ModelInfer", kind: "application/grpc",
			body: append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(call))), call...)},
	}
	for _, c := range calls {
		c.begin(t, address)
	}
	stopped := time.Now()
	stop()
	for {
		l, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		l.Close()
		if time.Since(stopped) > time.Minute {
			t.Fatal("it takes connections a minute after the stop")
		}
	}
	for _, c := range calls {
		go c.to.Write(c.body)
	}
	for _, c := range calls {
		status, text := c.end()
		// 0 is a connection that was cut at the end of the grace
		late := time.Since(stopped) >= interrupt.Grace/2 && (status == http.StatusServiceUnavailable || status == 0)
		if status != http.StatusOK && !late {
			t.Errorf("%s: %d %s, %v after the stop", c.path, status, text, time.Since(stopped))
		}
	}
}

// blocked is an engine whose runs wait, once ready, until they are freed or their context ends.
type blocked struct {
	engine.Engine
	ready       *atomic.Bool
	begun, free chan struct{}
}

func (b blocked) Load(m *onnx.Model) (engine.Session, error) {
	s, err := b.Engine.Load(m)
	return blockedRuns{s, b}, err
}

type blockedRuns struct {
	engine.Session
	by blocked
}

func (s blockedRuns) Run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	if s.by.ready.Load() {
		close(s.by.begun)
		select {
		case <-s.by.free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.Session.Run(ctx, feeds, fetch)
}

// TestDrain: a run that ends in time is answered, and one that does not is ended, and its client told to come again.
func TestDrain(t *testing.T) {
	r := newMadeRound(t, 3)
	ran(t, append([]string{"pool", "--engine.name", "pure", "--samples", "2", "-o", r.path("c.onnx")}, r.uploads...)...)
	const side = 28
	var picture bytes.Buffer
	must.Do(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, side, side))))
	for _, c := range []struct {
		name   string
		within time.Duration
		freed  bool
		status int
		again  bool
	}{
		{"long", time.Millisecond, false, http.StatusServiceUnavailable, true},
		{"in time", time.Minute, true, http.StatusOK, false},
	} {
		running, stop := outlasting(t.Context())
		b := blocked{must.Get(pure.New(engine.Options{Threads: 1}))(t), new(atomic.Bool), make(chan struct{}),
			make(chan struct{})}
		h, closeAll, err := service.Classifier(engine.Under(running, b), r.read("c.onnx"), http.NotFoundHandler(), 0,
			slog.New(slog.DiscardHandler), nil)
		must.Do(t, err)
		b.ready.Store(true)
		srv := service.HTTPServer(h, nil)
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		go srv.Serve(l)
		answered := make(chan *http.Response, 1)
		go func() {
			resp, err := http.Post("http://"+l.Addr().String()+"/v1/predict", "image/png", bytes.NewReader(picture.Bytes()))
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			answered <- resp
		}()
		<-b.begun
		if c.freed {
			srv.RegisterOnShutdown(sync.OnceFunc(func() { close(b.free) }))
		}
		drain(srv, stop, c.within)
		if resp := <-answered; resp != nil {
			resp.Body.Close()
			if again := resp.Header.Get("Retry-After"); resp.StatusCode != c.status || (again != "") != c.again {
				t.Errorf("%s: %d, Retry-After %q", c.name, resp.StatusCode, again)
			}
		}
		closeAll()
	}
}

// heldCall is a request whose body is held back.
type heldCall struct {
	path, kind string
	body       []byte
	to         *io.PipeWriter
	answer     chan *http.Response
	err        error
}

// begin sends a request without its body, and returns once the server asks for that.
func (c *heldCall) begin(t *testing.T, address string) {
	t.Helper()
	from, to := io.Pipe()
	c.to, c.answer = to, make(chan *http.Response, 1)
	accepted := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{Got100Continue: func() { close(accepted) }})
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+c.path, from))(t)
	r.ContentLength = int64(len(c.body))
	r.Header.Set("Content-Type", c.kind)
	r.Header.Set("Expect", "100-continue")
	by := &http.Transport{ExpectContinueTimeout: time.Hour, Protocols: new(http.Protocols)}
	t.Cleanup(by.CloseIdleConnections)
	rpc := c.kind == "application/grpc"
	by.Protocols.SetUnencryptedHTTP2(rpc)
	by.Protocols.SetHTTP1(!rpc)
	if rpc {
		r.Header.Set("Te", "trailers")
	}
	go func() {
		resp, err := by.RoundTrip(r)
		c.err = err
		c.answer <- resp
	}()
	select {
	case <-accepted:
	case resp := <-c.answer:
		t.Fatalf("%s: answered before its body came: %+v, %v", c.path, resp, c.err)
	case <-time.After(time.Minute):
		t.Fatalf("%s: not accepted", c.path)
	}
}

// end waits for the answer. Codes of gRPC are returned as the status of HTTP that says the same.
func (c *heldCall) end() (status int, text string) {
	resp := <-c.answer
	if resp == nil {
		return 0, fmt.Sprint(c.err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	status, text = resp.StatusCode, string(data)
	if code := resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status"); c.kind == "application/grpc" {
		text = code + " " + resp.Trailer.Get("Grpc-Message") + resp.Header.Get("Grpc-Message")
		status = map[string]int{fmt.Sprint(uint32(codes.OK)): http.StatusOK,
			fmt.Sprint(uint32(codes.Unavailable)): http.StatusServiceUnavailable}[code]
		if status == 0 {
			status = http.StatusInternalServerError
		}
	}
	return status, text
}
