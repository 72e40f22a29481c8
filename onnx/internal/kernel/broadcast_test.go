package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
)

// A broadcast result has, at every position, what the definition says, whichever operand is
// repeated and along which axes.
func TestBroadcastByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 38))
	for range 300 {
		shape := []int{1 + r.IntN(9), 1 + r.IntN(70), 1 + r.IntN(7)}[r.IntN(3):]
		operand := func() *onnx.Tensor {
			s := slices.Clone(shape[r.IntN(len(shape)):])
			for k := range s {
				if r.IntN(3) == 0 {
					s[k] = 1
				}
			}
			return normal(r, s...)
		}
		a, b := operand(), operand()
		out := evaluated(t, 1+r.IntN(3), &onnx.Node{Op: "Sub"}, nil, a, b)
		st := [2][]int{broadcastStrides(a.Shape, out.Shape), broadcastStrides(b.Shape, out.Shape)}
		at := make([]int, len(out.Shape))
		for i, got := range out.F32() {
			unravel(at, i, out.Shape)
			var from [2]int
			for k := range at {
				from[0], from[1] = from[0]+at[k]*st[0][k], from[1]+at[k]*st[1][k]
			}
			if want := a.F32()[from[0]] - b.F32()[from[1]]; got != want {
				t.Fatalf("%v less %v: element %d is %v, want %v", a.Shape, b.Shape, i, got, want)
			}
		}
	}
}
