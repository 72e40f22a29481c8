package store

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fmp/onnx/must"
)

// TestStartGivenUp: where the embedded server cannot start, the program ends at once, with the cause.
func TestStartGivenUp(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for _, c := range []struct {
		name   string
		change func(t *testing.T, o *Options)
		says   string
	}{
		{"the folder of its files is a file", func(t *testing.T, o *Options) {
			must.Do(t, os.Mkdir(filepath.Join(o.Dir, "nats"), 0o700))
			must.Do(t, os.WriteFile(filepath.Join(o.Dir, "nats", "jetstream"), nil, 0o600))
		}, "not a directory"},
		{"its address is taken", func(_ *testing.T, o *Options) {
			o.Listen, o.Token = fmt.Sprint(taken.Addr()), "secret"
		}, "listening on port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Dir: t.TempDir()}
			c.change(t, &o)
			start := time.Now()
			must.Fail(Open(t.Context(), "fmp-1", o))(t, c.says, c.name)
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
