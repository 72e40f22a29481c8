package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// TestAgree: a leader tells a helper that is away from one that has another round or another secret.
func TestAgree(t *testing.T) {
	b := privacy.Budget{Epsilon: 1, Noise: privacy.TwoServers}
	r := &round.Round{File: round.File{Round: 7, Privacy: &b}}
	r.Client.Digest = "g"
	for name, c := range map[string]struct {
		server, problem string
		asked           int // status of the second question
		away, want      string
		logged          string
	}{
		"agrees":          {server: wire.Helper, asked: 200},
		"another secret":  {wire.Helper, wire.NoToken, 401, "", "--servers-secret-file", ""},
		"goes away":       {wire.Helper, "", 502, "502", "", ""},
		"fails":           {wire.Helper, wire.Unavailable, 503, wire.Unavailable, "", ""},
		"is a leader":     {wire.Leader, "", 200, "", "--as-helper", ""},
		"cannot tell":     {wire.Helper, "", 405, "", "", "one release of fmp"},
		"has no such way": {wire.Helper, "", 404, "", "", "one release of fmp"},
	} {
		var log bytes.Buffer
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var answer any = wire.Description{Round: 7, Graph: "g", Privacy: &b, Server: c.server}
			if strings.HasSuffix(r.URL.Path, "/sum") {
				answer = wire.Problem{Code: c.problem, Status: c.asked, Detail: c.problem}
				w.WriteHeader(c.asked)
			}
			_ = json.NewEncoder(w).Encode(answer)
		}))
		away, err := agree(t.Context(), must.Get(service.NewHelper(s.URL, "", "a secret of both servers"))(t), r,
			slog.New(slog.NewTextHandler(&log, nil)))
		s.Close()
		is := func(err error, want string) bool {
			return (err == nil) == (want == "") && (err == nil || strings.Contains(err.Error(), want))
		}
		if (log.Len() > 0) != (c.logged != "") || !strings.Contains(log.String(), c.logged) {
			t.Errorf("%s: logged %q; want %q", name, &log, c.logged)
		}
		if !is(away, c.away) || !is(err, c.want) {
			t.Errorf("%s: away %v, differs %v; want %q, %q", name, away, err, c.away, c.want)
		}
	}
}

// TestAwaitHelper: a helper that was away at the leader's start is asked until it answers, and what
// differs then is in the log.
func TestAwaitHelper(t *testing.T) {
	var log bytes.Buffer
	asked := 0
	awaitHelper(t.Context(), time.Millisecond, func(context.Context) (away, err error) {
		if asked++; asked < 3 {
			return errors.New("away"), nil
		}
		return nil, service.ErrSecret
	}, slog.New(slog.NewTextHandler(&log, nil)))
	if asked != 3 || strings.Count(log.String(), "--servers-secret-file") != 1 {
		t.Errorf("asked %d times: %s", asked, log.String())
	}
}

// TestHelperWaitsForDisk: the state of a helper waits for the disk, asked or not, and another where asked.
func TestHelperWaitsForDisk(t *testing.T) {
	for _, c := range []struct{ helper, sync, want bool }{
		{false, false, false}, {false, true, true}, {true, false, true}, {true, true, true},
	} {
		o := serveFlags{file: "round.yaml", address: "127.0.0.1:0", asHelper: c.helper}
		o.nats.Replicas, o.nats.Sync = 1, c.sync
		if must.Do(t, o.check()); o.nats.Sync != c.want {
			t.Errorf("%+v: it waits: %v", c, o.nats.Sync)
		}
	}
}
