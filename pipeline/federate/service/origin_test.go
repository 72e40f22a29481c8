package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
)

// listening serves a handler as the commands do, on a loopback address, and returns its HOST:PORT.
func listening(t testing.TB, h http.Handler, hosts ...string) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	srv := HTTPServer(h, nil, hosts...)
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return l.Addr().String()
}

// overHTTP2 is a transport of HTTP/2 without TLS.
func overHTTP2(t *testing.T) *http.Transport {
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)
	return h2
}

// TestOtherSites: a page of another site reaches no server on loopback, by a name of its own (DNS
// rebinding) or by a request across sites, over HTTP/1.1 and HTTP/2; the server's own page,
// programs and a named proxy do.
func TestOtherSites(t *testing.T) {
	f, _ := serving(t)
	alone, end := must.Get2(Classifier(f.srv.Engine, f.srv.predictions.serving.data, nil, 0, f.srv.Log, nil))(t)
	defer end()
	h2 := overHTTP2(t)
	for served, h := range map[string]http.Handler{"serve": f.srv.Handler(), "predict --listen": alone} {
		at := listening(t, h, "fmp.example")
		_, port, _ := net.SplitHostPort(at)
		for _, c := range []struct {
			name, method, path, host, origin, site string
			// the code of a refusal; empty: none of these two
			want string
		}{
			{"the address", "POST", "/v1/predict", at, "", "", ""},
			{"localhost", "POST", "/v1/predict", "localhost:" + port, "", "", ""},
			{"IPv6", "POST", "/v1/predict", "[::1]:" + port, "", "", ""},
			{"the own page", "POST", "/v1/predict", at, "http://" + at, "same-origin", ""},
			{"the own page of an older browser", "POST", "/v1/predict", at, "http://" + at, "", ""},
			{"a proxy", "POST", "/v1/predict", "fmp.example", "https://fmp.example", "same-origin", ""},
			{"rebound", "POST", "/v1/predict", "evil.example:" + port, "http://evil.example:" + port,
				"same-origin", wire.WrongHost},
			{"rebound, to read", "GET", "/classifier.onnx", "evil.example:" + port, "", "",
				wire.WrongHost},
			{"rebound, to read what is ready", "GET", "/v2/health/ready",
				"127.0.0.1.evil.example", "", "", wire.WrongHost},
			{"a name that ends alike", "GET", "/v2", "notlocalhost", "", "", wire.WrongHost},
			{"any address", "GET", "/v2", "0.0.0.0:" + port, "", "", wire.WrongHost},
			{"across sites", "POST", "/v1/predict", at, "https://evil.example", "cross-site",
				wire.CrossSite},
			{"across sites, of an older browser", "POST", "/v1/predict", at, "https://evil.example", "",
				wire.CrossSite},
			{"of a file", "POST", "/v1/predict", at, "null", "", wire.CrossSite},
			{"of another port", "POST", "/v1/predict", at, "http://127.0.0.1:1", "same-site",
				wire.CrossSite},
			{"as tensors", "POST", "/v2/models/classifier/infer", at, "https://evil.example", "",
				wire.CrossSite},
			{"as gRPC", "POST", grpcPath + "ModelInfer", at, "https://evil.example", "",
				wire.CrossSite},
			{"an upload", "PUT", "/v1/rounds/3/uploads/a", at, "https://evil.example", "",
				wire.CrossSite},
		} {
			for version, client := range map[string]*http.Client{"HTTP/1.1": {}, "HTTP/2": {Transport: h2}} {
				req := must.Get(http.NewRequest(c.method, "http://"+at+c.path, bytes.NewReader(nil)))(t)
				req.Host = c.host
				for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
					if value != "" {
						req.Header.Set(name, value)
					}
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatalf("%s, %s: %v", served, c.name, err)
				}
				var p wire.Problem
				data, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				_ = json.Unmarshal(data, &p) // other replies have no code
				got := p.Code
				if got != wire.WrongHost && got != wire.CrossSite {
					got = ""
				}
				if got != c.want {
					t.Errorf("%s over %s: %s: %d %s; want %q", served, version, c.name,
						resp.StatusCode, data, c.want)
				}
				if resp.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
					t.Errorf("%s: %s: another site's page may embed the reply", served, c.name)
				}
			}
		}
	}
}

// TestOtherNamesElsewhere: a listener that is not on loopback answers by any name, as it has TLS
// and a token.
func TestOtherNamesElsewhere(t *testing.T) {
	srv := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }), nil)
	for address, want := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true,
		"0.0.0.0:80": false, "192.0.2.1:80": false} {
		a := must.Get(net.ResolveTCPAddr("tcp", address))(t)
		if got := srv.BaseContext(&listener{addr: a}).Value(onLoopback{}); got != want {
			t.Errorf("%s is on loopback: %v; want %v", address, got, want)
		}
	}
}

// listener is one of an address alone.
type listener struct {
	net.Listener
	addr net.Addr
}

func (l *listener) Addr() net.Addr { return l.addr }

// TestManyStreams: one connection of HTTP/2 has no more requests under way than is stated, so that
// what bounds connections bounds requests.
func TestManyStreams(t *testing.T) {
	began, end := make(chan bool, 4*maxStreams), make(chan bool)
	at := listening(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { began <- true; <-end }))
	h2 := overHTTP2(t)
	h2.MaxConnsPerHost, h2.HTTP2 = 1, &http.HTTP2Config{StrictMaxConcurrentRequests: true}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer close(end)
	for range 3 * maxStreams {
		go func() {
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+at, nil)
			if resp, err := (&http.Client{Transport: h2}).Do(req); err == nil {
				resp.Body.Close()
			}
		}()
	}
	n := 0
	// streams beyond the bound may be refused before the client knows it, and some not begin again
	for quiet := false; !quiet; {
		select {
		case <-began:
			n++
		case <-time.After(time.Second):
			quiet = true
		}
	}
	if n == 0 || n > maxStreams {
		t.Errorf("%d requests at once on one connection; want 1 to %d", n, maxStreams)
	}
}
