package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
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
		c := NewCall(&Env{Pool: &Pool{}, Threads: 1 + r.IntN(3)}, 2, 1)
		c.Want[0] = true
		c.In[0], c.In[1] = operand(), operand()
		must.Do(t, c.Do(binaryOf(vectors(differences, subRow[float32]))))
		out := c.Out[0]
		st := [2][]int{broadcastStrides(c.In[0].Shape, out.Shape),
			broadcastStrides(c.In[1].Shape, out.Shape)}
		at := make([]int, len(out.Shape))
		for i, got := range out.F32() {
			unravel(at, i, out.Shape)
			var from [2]int
			for k := range at {
				from[0], from[1] = from[0]+at[k]*st[0][k], from[1]+at[k]*st[1][k]
			}
			if want := c.In[0].F32()[from[0]] - c.In[1].F32()[from[1]]; got != want {
				t.Fatalf("%v less %v: element %d is %v, want %v", c.In[0].Shape, c.In[1].Shape, i, got, want)
			}
		}
	}
}
