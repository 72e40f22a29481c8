package bench

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// Contenders take turns, the first turn does not count, and ratios are of neighbours.
func TestMeasure(t *testing.T) {
	var order []string
	contender := func(name string, ms ...int) Contender {
		turn := 0
		return Contender{Name: name, Once: func() (time.Duration, error) {
			order = append(order, name)
			d := time.Duration(ms[min(turn, len(ms)-1)]) * time.Millisecond
			turn++
			return d, nil
		}}
	}
	got, err := Measure(context.Background(), 7, 0,
		[]Contender{contender("a", 90, 1, 2, 2, 2, 2, 2, 4), contender("b", 90, 3, 4, 4, 4, 4, 4, 4)})
	must.Do(t, err)
	if s := strings.Join(order, ""); s != strings.Repeat("ab", 8) {
		t.Errorf("turns %s", s)
	}
	if want := (Spread{0.002, 0.001, 0.004}); got[0].Seconds != want {
		t.Errorf("seconds of a %v, want %v", got[0].Seconds, want)
	}
	if want := (Spread{2, 1, 3}); got[1].Ratio != want || got[0].Ratio != (Spread{1, 1, 1}) {
		t.Errorf("ratios %v and %v, want %v of b", got[0].Ratio, got[1].Ratio, want)
	}
	order = nil
	got, err = Measure(context.Background(), 7, 2, []Contender{contender("a", 9, 9, 9, 9, 9, 1), contender("b", 2)})
	if s := strings.Join(order, ""); err != nil || s != strings.Repeat("aaabbb", 8) || got[0].Seconds.Most != 0.001 {
		t.Errorf("turns with two runs before each: %s, %+v, %v", s, got, err)
	}
	must.Fail(Measure(context.Background(), 3, 0, nil))(t, "allowed are 7", "3 runs")
	got, err = Measure(context.Background(), 7, 0, []Contender{contender("a", 1), {Name: "b"}})
	if err != nil || len(got) != 2 || got[0].Missing || got[1] != (Result{Name: "b", Missing: true}) {
		t.Errorf("a contender that is not at hand: %+v, %v", got, err)
	}
	fails := Timed("c", func() error { return errors.New("no luck") })
	if _, err := Measure(context.Background(), 7, 0, []Contender{fails}); err == nil ||
		err.Error() != "c: no luck" {
		t.Errorf("a contender that fails: %v", err)
	}
}

// TestNetPeers: without other programs the engine of this process runs a net, and each of them is
// not at hand.
func TestNetPeers(t *testing.T) {
	b := &Bench{Peers: Peers(t.TempDir()), Engine: must.Get(pure.New(engine.Options{Threads: 1}))(t)}
	n := nets()[2]
	all := must.Get(n.others(t.Context(), b, must.Get(n.model())(t), peer{"net:tract", "tract"},
		peer{"net:openvino", "OpenVINO"}))(t)
	if len(all) != 3 || all[0].Once == nil || all[1].Once != nil || all[1].Name != "tract" ||
		all[2].Name != "OpenVINO" {
		t.Errorf("contenders are %+v", all)
	}
	must.Do(t, all[0].Close())
}

// Every work is done once, with nobody beside it; what is not at hand says so. Sizes that take
// seconds a turn are left out.
func TestWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := &Bench{Peers: Peers(t.TempDir()), Engine: orttest.New(t), Data: t.TempDir()}
	long := regexp.MustCompile("1000000 points|1000 classes|100000 uploads")
	for _, w := range Works() {
		if long.MatchString(w.Name) {
			continue
		}
		all, err := w.contenders(context.Background(), b)
		if err != nil {
			t.Fatalf("%s: %v", w.Name, err)
		}
		for i, c := range all {
			name := w.Name + ", " + c.Name
			switch {
			case i == 0 && !strings.HasPrefix(c.Name, "fmp"):
				t.Errorf("%s comes first", name)
			case c.Once == nil && strings.HasPrefix(c.Name, "fmp") &&
				!strings.HasPrefix(w.Name, "Table I"):
				t.Errorf("%s is not at hand", name)
			case c.Once != nil:
				if d, err := c.Once(); err != nil || d < 0 {
					t.Errorf("%s: %v, %v", name, d, err)
				}
			}
			if c.Close != nil {
				if err := c.Close(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// TestPhotos: a large JPEG is reduced and a small one is not, and every photograph has its times.
func TestPhotos(t *testing.T) {
	fit := imagefile.Fit{H: 32, W: 32, Ch: 3}
	photos, err := Photos(t.Context(), fit, []float64{0.01, 0.2}, MinRuns, func(int, int) {})
	if err != nil || len(photos) != 4 {
		t.Fatalf("%d photographs, %v", len(photos), err)
	}
	for i, covers := range [][2]float64{{1, 1}, {1, 1}, {4, 2}, {1, 1}} {
		p := photos[i]
		if p.Covers != covers || p.Bytes == 0 || p.All.Median < 0 || p.Width*3 > p.Height*4+4 {
			t.Errorf("%+v; want pixels of %v", p, covers)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Photos(ended, fit, []float64{0.01}, MinRuns, func(int, int) {}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// TestClasses: a round of more classes than heads are kept for goes from training to predictions:
// its classifier holds latents of a byte in place of heads, and tells classes apart.
func TestClasses(t *testing.T) {
	if testing.Short() {
		t.Skip("a training behind 520 features")
	}
	c := Classes{Dir: t.TempDir(), C: 520, Dx: 520, Rows: 4160, Clients: 12, Images: 300, Steps: 1,
		Samples: 40, Separation: 0.4, Engine: orttest.New(t)}
	must.Do(t, c.Train(t.Context()))
	if n, err := c.Upload(t.Context()); err != nil || n > 520*(520+16) {
		t.Fatalf("an upload of %d bytes, %v", n, err)
	}
	n, err := c.Pool(t.Context())
	if most := c.C*c.Dx*c.Samples + 6*4*c.C*c.Dx; err != nil || n > most {
		t.Fatalf("a classifier of %d bytes, %v; want at most %d", n, err, most)
	}
	m, f := must.Get2(models.Load(c.file("classifier.onnx")))(t)
	if l := m.Graph.Initializers["latent"]; f.S != c.Samples || l == nil || l.DType != onnx.Int8 {
		t.Errorf("%d samples, latents %v", f.S, l)
	}
	accuracy, nll, err := c.Predict(t.Context())
	if err != nil || accuracy < 0.5 || nll > math.Log(520)/2 {
		t.Errorf("accuracy %.3f, NLL %.3f, %v", accuracy, nll, err)
	}
}
