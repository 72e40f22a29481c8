package wire

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/privacy"
)

// described is a server's list of a private round that ends after a time.
func described(t *testing.T, now time.Time, left time.Duration) []byte {
	return must.Get(json.Marshal(map[string]any{"rounds": []Description{{Round: 1, State: Open,
		Now: now, Deadline: now.Add(left), Graph: strings.Repeat("0", 64), GraphBytes: 1, MaxBytes: 1,
		ServerKey: base64.StdEncoding.EncodeToString(make([]byte, 32)),
		Privacy: &privacy.Budget{Epsilon: 4, Delta: 1e-5, Unit: privacy.Example,
			Relation: privacy.AddRemove, Noise: privacy.Local}}}}))(t)
}

// TestTooLate: the time since a description was asked for counts, whatever this machine's clock says.
func TestTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().AddDate(-20, 0, 0) // by the server's clock
		d := must.Get(One(described(t, now, time.Minute), time.Now()))(t)
		for _, c := range []struct {
			waits, after time.Duration
			want         bool
		}{{0, time.Minute, false}, {0, time.Minute + 1, true}, {0, math.MaxInt64, true},
			{40 * time.Second, 20 * time.Second, false}, {0, 25 * time.Second, true},
			{0, math.MaxInt64, true}, {20 * time.Second, 0, false}, {1, 0, true}} {
			<-time.After(c.waits)
			if got := d.TooLate(c.after); got != c.want {
				t.Errorf("%+v: %t", c, got)
			}
		}
	})
}

// TestAge: each of the two clocks may stand still or be set back, and the other counts then.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := time.Now()
		list := described(t, asked, time.Minute)
		for _, c := range []struct{ ticks, sleeps, want time.Duration }{
			{0, 0, 0}, {time.Second, 0, time.Second}, {0, 2 * time.Second, 3 * time.Second},
			{0, math.MaxInt64, math.MaxInt64}, {time.Second, -time.Hour, 2 * time.Second},
		} {
			<-time.After(c.ticks)
			d := must.Get(One(list, asked))(t)
			d.askedWall = d.askedWall.Add(-c.sleeps) // the wall clock alone went on
			if got := d.age(); got != c.want {
				t.Errorf("%+v: %v", c, got)
			}
			if got := d.TooLate(0); got != (c.want > time.Minute) {
				t.Errorf("%+v: too late %t", c, got)
			}
		}
	})
}
