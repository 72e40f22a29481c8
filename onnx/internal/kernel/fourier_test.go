package kernel

import (
	"errors"
	"math"
	"math/cmplx"
	"testing"

	"fmp/onnx/must"
)

// TestTransform: transforms of short and long lengths of all kinds of factors are the sums of their
// definition, and their inverses give the line back.
func TestTransform(t *testing.T) {
	for _, n := range []int{1, 2, 60, 61, 67, 134, 1009, 4096, 1 << 17, 1<<17 + 29} {
		c := NewCall(&Env{Pool: &Pool{}, Threads: 1}, 0, 0)
		must.Do(t, c.Do(func(c *Call) error {
			f := newTransform(c, n)
			clear(f.line)
			at := []int{0, n / 3, n - 1}
			for i, k := range at {
				f.line[k] += complex(float64(i+1), 2-float64(i))
			}
			line := append([]complex128{}, f.line...)
			f.run(false)
			for _, k := range []int{0, 1 % n, n / 2, n - 1} {
				var sum complex128
				for i, j := range at {
					turn := float64(j) * float64(k) / float64(n)
					sum += complex(float64(i+1), 2-float64(i)) * cmplx.Rect(1, -2*math.Pi*(turn-math.Floor(turn)))
				}
				if cmplx.Abs(f.line[k]-sum) > 1e-8 {
					t.Errorf("length %d, frequency %d: %v; want %v", n, k, f.line[k], sum)
				}
			}
			f.run(true)
			for k, v := range line {
				if cmplx.Abs(f.line[k]-v) > 1e-8 {
					t.Fatalf("length %d, position %d: %v came back as %v", n, k, v, f.line[k])
				}
			}
			return nil
		}))
	}
}

// TestTransformIsBounded: the memory of a transform is the pool's, and its steps look whether the
// run is to end.
func TestTransformIsBounded(t *testing.T) {
	for _, n := range []int{1 << 22, 4_000_037} {
		asked, enough := 0, errors.New("enough")
		env := &Env{Pool: &Pool{}, Threads: 1, Stopped: func() error {
			if asked++; asked > 2 {
				return enough
			}
			return nil
		}}
		try := func(c *Call) error { newTransform(c, n).run(false); return nil }
		if err := NewCall(env, 0, 0).Do(try); !errors.Is(err, enough) {
			t.Errorf("length %d: the run ended with %v", n, err)
		}
		env = &Env{Pool: &Pool{Most: 32 << 20}, Threads: 1}
		must.Fail(NewCall(env, 0, 0).Do(try))(t, "intermediate values take more than", n)
	}
}
