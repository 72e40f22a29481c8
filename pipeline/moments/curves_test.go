package moments

import (
	"math"
	"testing"
)

func TestTemperatures(t *testing.T) {
	if a, b := Temperature(0), Temperature(Temperatures-1); a != LowestTemperature || math.Abs(b-HighestTemperature) > 1e-12 {
		t.Errorf("the grid goes from %v to %v; want %v to %v", a, b, LowestTemperature, HighestTemperature)
	}
	for i := 2; i < Temperatures; i++ {
		if r, s := Temperature(i)/Temperature(i-1), Temperature(1)/Temperature(0); math.Abs(r-s) > 1e-12 {
			t.Errorf("temperature %d is %v times the one before; want %v", i, r, s)
		}
	}
}
