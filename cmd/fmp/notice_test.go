package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/option"
)

// TestListenHeeds: predictions end where a notice that comes later names their classifier, and go on
// beside one that names another, or that cannot be read.
func TestListenHeeds(t *testing.T) {
	r := newMadeRound(t, 3)
	path := r.path("c.onnx")
	ran(t, append([]string{"pool", "--engine.name", "pure", "--samples", "2", "-o", path}, r.uploads...)...)
	data := r.read("c.onnx")
	_, f := must.Get2(models.Load(path))(t)
	o := must.Get(models.ReadOrigin(f))(t)
	key := must.Get(identity.New("server"))(t)
	notice := func(digest string) []byte {
		n := &wire.Notice{Round: o.Round, Graph: o.Client,
			Superseded: []wire.VersionRef{{Version: 1, SHA256: digest}}}
		n.Sign(key)
		return must.Get(json.Marshal(n))(t)
	}
	for name, c := range map[string]struct {
		notice []byte
		ends   bool
		logged int // lines of a notice that is not read
	}{
		"named":   {notice(models.DigestBytes(data)), true, 0},
		"another": {notice(strings.Repeat("b", 64)), false, 0},
		"half":    {notice(models.DigestBytes(data))[:99], false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(path + ".notice")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			cmd, cfg := newPredictCommand(), option.Default[engineSettings]()
			from, to := io.Pipe()
			log := must.Get(os.Create(r.path("log")))(t)
			defer log.Close()
			cmd.SetContext(ctx)
			cmd.SetOut(to)
			cmd.SetErr(log)
			cfg.Engine.Name = "pure"
			ended := make(chan error, 1)
			go func() {
				ended <- servePredictions(cmd, cfg, path, data,
					listening{address: "127.0.0.1:0", every: 100 * time.Microsecond})
			}()
			line := must.Get(bufio.NewReader(from).ReadString('\n'))(t)
			_, address, _ := strings.Cut(strings.TrimSpace(line), " on ")
			must.Do(t, atomicfile.WriteBytes(path+".notice", c.notice))
			if !c.ends {
				// a hundred requests take many times as long as the notice stays unread
				for n := 0; n < 100 || bytes.Count(r.read("log"), []byte("is not read")) < c.logged; n++ {
					must.Do(t, must.Get(http.Get(address+"/v2/health/ready"))(t).Body.Close())
				}
				stop()
			}
			if err := <-ended; errors.Is(err, wire.ErrSuperseded) != c.ends || !c.ends && err != nil {
				t.Errorf("ended with %v", err)
			}
			if got := r.read("log"); bytes.Count(got, []byte("is not read")) != c.logged {
				t.Errorf("logged %s; want %d lines of the notice", got, c.logged)
			}
		})
	}
}
