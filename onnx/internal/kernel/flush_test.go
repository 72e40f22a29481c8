package kernel

import (
	"errors"
	"testing"
)

// TestFlushed: operands and results below the normal range count as zeros where that is asked for
// and the processor can, on threads of pieces of work as well; afterwards, after an error too, they
// are numbers again.
func TestFlushed(t *testing.T) {
	tiny, small, half := float32(1e-39), float32(1e-30), float32(1e-9)
	product := func() (operand, result float32) { return tiny * 1e9, small * half } // 1e-30 and 1e-39
	failed := errors.New("failed")
	for _, flush := range []bool{false, true} {
		e := &Env{Flush: flush, Threads: 4, Pool: &Pool{}}
		var operand, result float32
		if err := e.Flushed(func() error { operand, result = product(); return failed }); !errors.Is(err, failed) {
			t.Error(err)
		}
		if zero := flush && canFlush; zero != (operand == 0) || zero != (result == 0) {
			t.Errorf("flush %v: %v and %v", flush, operand, result)
		}
		c := NewCall(e, 0, 0)
		out := make([]float32, 4*minWork)
		_ = e.Flushed(func() error {
			c.Parallel(len(out), 1, func(lo, hi int) {
				for i := lo; i < hi; i++ {
					out[i], _ = product()
				}
			})
			return nil
		})
		for i, v := range out {
			if zero := flush && canFlush; zero != (v == 0) {
				t.Fatalf("flush %v: number %d of %d is %v", flush, i, len(out), v)
			}
		}
		if operand, result := product(); operand == 0 || result == 0 {
			t.Fatalf("afterwards %v and %v", operand, result)
		}
	}
}
