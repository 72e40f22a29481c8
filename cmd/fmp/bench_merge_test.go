package main

import (
	"encoding/json"
	"testing"
)

// TestBenchMerged: all simulated uploads are in the part, none of them is taken for a lie, and a figure stands for each cost.
func TestBenchMerged(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of judging")
	}
	code, out, errs := runFMP(t, "bench", "serve", "--clients", "1200", "--merged", "--json")
	var res mergedLoad
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %s, %v", code, errs, err)
	}
	if res.Kept+res.Summed != 1200 || res.LeftOut != 0 || res.Summed == 0 || res.Part < 1200*32 || !(res.Seconds > 0) || res.PoolSeconds <= 0 {
		t.Errorf("%+v", res)
	}
	if code, _, _ := runFMP(t, "bench", "serve", "--clients", "10", "--merged"); code != exitUsage {
		t.Errorf("ten clients: exit code %d", code)
	}
}
