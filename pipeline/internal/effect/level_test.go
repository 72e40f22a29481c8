package effect

import (
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

// TestLevel: of rounds of clients that are alike, at most one in twenty has an effect, also where
// the covariance within classes is known so badly that coordinates differ in their variance by
// orders, and differ from client to client in the number of images.
func TestLevel(t *testing.T) {
	const rounds = 200
	for _, clients := range []int{3, 5} {
		for _, k := range []int{16, 128} {
			for _, power := range []float64{0, 0.5, 1, 1.5} {
				wrong := 0
				for i := range rounds {
					r := rng.New(uint64(i), "level", fmt.Sprint(clients, k, power))
					one := mat.NewDense(k, k, nil)
					for j := range k {
						one.Set(j, j, 1)
					}
					const classes = 5
					var sets []*point.Set
					class := make([]float64, classes*k)
					for j := range class {
						class[j] = 2 * r.NormFloat64() * math.Pow(float64(j%k+1), -power/2)
					}
					for m := range clients {
						s := point.New(classes, k, classes)
						for c := range classes {
							n := float64(10 + 10*m)
							for j := range k {
								s.Row(c)[j] = float32(class[c*k+j] + r.NormFloat64()*math.Pow(float64(j+1),
									-power/2)/math.Sqrt(n))
							}
							s.Row(c)[k+c], s.W[c] = 1, float32(n)
						}
						sets = append(sets, s)
					}
					e := must.Get(Estimate(sets, one, one))(t)
					if e.Any() {
						wrong++
					}
				}
				t.Logf("%d clients, %d coordinates of variances j^-%.1f: %d of %d", clients, k,
					power, wrong, rounds)
				if wrong > rounds*8/100 {
					t.Errorf("%d clients, %d coordinates of variances j^-%.1f: %d of %d rounds "+
						"have an effect; want at most one in twenty", clients, k, power, wrong, rounds)
				}
			}
		}
	}
}
