package wire

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/privacy"
)

// TestTooLate: the time since a description was read counts, whatever this machine's clock says.
func TestTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().AddDate(-20, 0, 0) // by the server's clock
		d := must.Get(One(must.Get(json.Marshal(map[string]any{"rounds": []Description{{Round: 1, State: Open,
			Now: now, Deadline: now.Add(time.Minute), Graph: strings.Repeat("0", 64), GraphBytes: 1, MaxBytes: 1,
			ServerKey: base64.StdEncoding.EncodeToString(make([]byte, 32)),
			Privacy: &privacy.Budget{Epsilon: 4, Delta: 1e-5, Unit: privacy.Example,
				Relation: privacy.AddRemove, Noise: privacy.Local}}}}))(t)))(t)
		for _, c := range []struct {
			waits, after time.Duration
			want         bool
		}{{0, time.Minute, false}, {0, time.Minute + 1, true}, {40 * time.Second, 20 * time.Second, false},
			{0, 25 * time.Second, true}, {20 * time.Second, 0, false}, {1, 0, true}} {
			<-time.After(c.waits)
			if got := d.TooLate(c.after); got != c.want {
				t.Errorf("%+v: %t", c, got)
			}
		}
	})
}
