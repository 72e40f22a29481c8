package service

import (
	"context"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"fmp/pipeline/federate/loopback"
	"fmp/pipeline/federate/wire"
)

// HTTPServer returns a server of a handler for HTTP/1.1 and HTTP/2, without TLS as well, as gRPC
// has it on loopback. It answers no page of another site: see [guard]. hosts are the names, beside
// those of loopback, under which a proxy passes requests on to a loopback address.
func HTTPServer(h http.Handler, complaints *log.Logger, hosts ...string) *http.Server {
	srv := &http.Server{Handler: guard(h, hosts), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: complaints,
		Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	// The deadline of an answer ends nothing behind a frame that the peer does not read: the
	// connection ends then.
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: predictTime}
	srv.BaseContext = func(l net.Listener) context.Context {
		return context.WithValue(context.Background(), onLoopback{},
			loopback.Address(l.Addr().String()))
	}
	return srv
}

// maxStreams is the maximum number of requests under way on one connection of HTTP/2.
const maxStreams = 64

// onLoopback is the key under which a request's context says whether its listener is on loopback.
type onLoopback struct{}

// guard keeps pages of other sites from using a browser to reach the server. On a loopback listener
// the request must name a host of loopback, or one of hosts: a name that a site owns and lets
// resolve to 127.0.0.1 (DNS rebinding) is refused. Everywhere a request that may change something
// must not be another site's, by Sec-Fetch-Site or Origin ([http.CrossOriginProtection]); programs
// send neither.
func guard(next http.Handler, hosts []string) http.Handler {
	sites := http.NewCrossOriginProtection()
	for _, host := range hosts {
		_ = sites.AddTrustedOrigin("https://" + host) // a host that is no origin is none
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = &limited{ResponseWriter: w}
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
			// It may have stated a length too, by which a proxy took the rest for its body: nothing
			// follows on this connection.
			w.Header().Set("Connection", "close")
		}
		if local, _ := r.Context().Value(onLoopback{}).(bool); local && !reachedAs(r.Host, hosts) {
			refuse(w, wire.WrongHost, "the request is for %.80q; this server is on loopback: ask "+
				"localhost or its address, or name the proxy's host with --host", r.Host)
			return
		}
		if sites.Check(r) != nil {
			refuse(w, wire.CrossSite,
				"the request is of a page of another site (Origin %.80q); open this server's own "+
					"page", r.Header.Get("Origin"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// limited gives the reader of an answer a limit, by its length: one that nobody reads would hold
// its connection, and its memory, without end. An answer may have a limit of its own.
type limited struct {
	http.ResponseWriter
	set bool
}

// The limit is two minutes, and a second more for each 8 KiB of the stated length.
func (w *limited) limit() {
	if w.set {
		return
	}
	bytes, _ := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64) // none: some KiB
	// it fails where there is no connection, as in tests
	_ = w.SetWriteDeadline(time.Now().Add(predictTime +
		time.Duration(bytes)*time.Second/predictRate))
}

// SetWriteDeadline is for [http.ResponseController].
func (w *limited) SetWriteDeadline(t time.Time) error {
	w.set = true
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

func (w *limited) WriteHeader(status int) {
	w.limit()
	w.ResponseWriter.WriteHeader(status)
}

func (w *limited) Write(data []byte) (int, error) {
	w.limit()
	return w.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *limited) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// reachedAs reports whether the host of a request, with or without a port, is one of loopback or of
// hosts.
func reachedAs(host string, hosts []string) bool {
	name := (&url.URL{Host: host}).Hostname()
	return loopback.Host(name) || slices.ContainsFunc(hosts, func(known string) bool {
		return strings.EqualFold(known, name) || strings.EqualFold(known, host)
	})
}
