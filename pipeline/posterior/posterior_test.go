package posterior

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fmp/models/rng"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
)

// bootstrap is a Drawer without a model: each drawn point is a seen one, chosen by mass, with noisy features.
type bootstrap struct {
	d     int
	calls *int
}

func (b bootstrap) NoiseDim() int { return b.d }

func (b bootstrap) Draw(_ context.Context, seen *point.Set, noise []float32, samples int) ([]*point.Set, error) {
	if b.calls != nil {
		*b.calls++
	}
	fresh := len(noise) / samples / b.d
	out := make([]*point.Set, samples)
	for s := range out {
		out[s] = point.New(fresh, seen.Dx, seen.C)
		for i := range fresh {
			e := noise[(s*fresh+i)*b.d:][:b.d]
			u := seen.Mass() * (1 + math.Erf(float64(e[0])/math.Sqrt2)) / 2
			j := 0
			for ; j < seen.N-1 && u > float64(seen.W[j]); j++ {
				u -= float64(seen.W[j])
			}
			row := out[s].Row(i)
			copy(row, seen.Row(j))
			for k := range seen.Dx {
				row[k] += 0.5 * e[1+k%(b.d-1)]
			}
		}
	}
	return out, nil
}

// world draws labelled features: class means of length about spread in dx dimensions, unit noise.
type world struct {
	dx, c int
	means []float64
}

func newWorld(seed uint64, dx, c int, spread float64) world {
	w := world{dx, c, make([]float64, dx*c)}
	r := rng.New(seed, "means")
	for i := range w.means {
		w.means[i] = spread * r.NormFloat64() / math.Sqrt(float64(dx))
	}
	return w
}

func (w world) draw(r *rand.Rand, n int) ([]float32, []int) {
	x, y := make([]float32, n*w.dx), make([]int, n)
	for i := range n {
		y[i] = r.IntN(w.c)
		for j := range w.dx {
			x[i*w.dx+j] = float32(w.means[y[i]*w.dx+j] + r.NormFloat64())
		}
	}
	return x, y
}

// input has m clients of n points, whose uploads are class means with masses.
func (w world) input(t testing.TB, seed uint64, m, n int) Input {
	t.Helper()
	in := Input{Drawer: bootstrap{d: w.dx + 1}, Samples: 20, Fresh: 100, Seed: seed, Stream: "test"}
	r := rng.New(seed, "points")
	for range m {
		x, y := w.draw(r, n)
		s, err := point.FromLabelled(x, w.dx, y, w.c)
		if err != nil {
			t.Fatal(err)
		}
		up := point.New(w.c, w.dx, w.c)
		clear(up.W)
		for i := range n {
			row := up.Row(y[i])
			up.W[y[i]]++
			for j, v := range s.Row(i) {
				row[j] += v
			}
		}
		for c := range w.c {
			row := up.Row(c)
			if up.W[c] == 0 {
				row[w.dx+c] = 1
				continue
			}
			for j := range row {
				row[j] /= up.W[c]
			}
		}
		in.Clients, in.Uploads = append(in.Clients, s), append(in.Uploads, up)
	}
	return in
}

func newTestTask(t testing.TB, in Input) *Task {
	t.Helper()
	task, err := NewTask(in)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// TestMethodsOnGaussianClasses runs the table on classes that a head can tell apart, and checks its orderings.
func TestMethodsOnGaussianClasses(t *testing.T) {
	w := newWorld(1, 64, 10, 5)
	in := w.input(t, 2, 10, 20)
	task := newTestTask(t, in)
	x, y := w.draw(rng.New(3, "test"), 2000)
	got := map[string]metric.Scores{}
	for _, m := range All() {
		start := time.Now()
		r, err := m.Run(context.Background(), task, DefaultSettings())
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		s, err := Evaluate(context.Background(), r, x, y, 2)
		if err != nil {
			t.Fatal(err)
		}
		got[m.Info().Name] = s
		t.Logf("%-6s acc %.3f ece %.3f nll %.3f brier %.3f upload %6.0f %v %v", m.Info().Name, s.ACC, s.ECE, s.NLL, s.Brier, r.UploadBytes, took.Round(time.Millisecond), r.Diagnostics)
	}
	for _, k := range [][2]string{{"ANN", "LANN"}, {"BNN", "LBNN"}, {"MP", "LMP"}, {"FMP", "LMP"}, {"CANN", "LANN"}, {"FedCGS", "LANN"}} {
		if got[k[0]].ACC < got[k[1]].ACC+0.05 {
			t.Errorf("ACC of %s is %.3f, of %s %.3f; all clients' data should do clearly better than one client's", k[0], got[k[0]].ACC, k[1], got[k[1]].ACC)
		}
	}
	if a := got["PRIOR"].ACC; math.Abs(a-0.1) > 0.01 {
		t.Errorf("ACC of PRIOR is %.3f; shuffled labels should give chance, 0.1", a)
	}
}

// TestThreadsDoNotMatter compares every number of every method between 1 and 2 threads.
func TestThreadsDoNotMatter(t *testing.T) {
	w := newWorld(1, 6, 3, 4)
	in := w.input(t, 2, 4, 8)
	in.Samples, in.Fresh = 6, 10
	for _, covariance := range []string{Diagonal, Full} {
		s := DefaultSettings()
		s.Covariance, s.Warmup, s.Draws = covariance, 20, 20
		var tasks [2]*Task
		for i := range tasks {
			in.Threads = i + 1
			tasks[i] = newTestTask(t, in)
		}
		for _, m := range All() {
			var r [2]*Result
			for i := range r {
				var err error
				if r[i], err = m.Run(context.Background(), tasks[i], s); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(r[0], r[1]); d != "" {
				t.Errorf("%s with 1 and 2 threads differ: %s", m.Info().Name, d)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	for _, k := range []struct{ name, want, err string }{
		{"FMP", "FMP", ""},
		{"fedcgs", "FedCGS", ""},
		{"CBN", "", "did you mean CBNN?"},
	} {
		m, err := Lookup(k.name)
		if k.err != "" {
			if err == nil || !strings.Contains(err.Error(), k.err) {
				t.Errorf("Lookup(%q): error %v, want one with %q", k.name, err, k.err)
			}
			continue
		}
		if err != nil || m.Info().Name != k.want {
			t.Errorf("Lookup(%q) = %v, %v; want %s", k.name, m, err, k.want)
		}
	}
}

func ExampleLookup() {
	m, err := Lookup("fmp")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Info().Name, "-", m.Info().Title)
	// Output: FMP - martingale posterior of the clients' compressed points
}
