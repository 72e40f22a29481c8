package attack

import (
	"encoding/json"
	"math"
	"testing"
)

// TestScores: a round without a classifier has no score, which JSON writes as null.
func TestScores(t *testing.T) {
	got, err := json.Marshal(MomentsRow{Attack: "scatter", ACC: Scores{0.5, math.NaN()},
		NLL: Scores{math.NaN(), 1}})
	if want :=
		`{"attack":"scatter","acc":[0.5,null],"nll":[null,1],"p_honest_bad":0,"p_honest_others":0}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
