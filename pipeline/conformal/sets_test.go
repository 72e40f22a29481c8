package conformal

import (
	"reflect"
	"slices"
	"testing"

	"fmp/onnx/must"
)

// TestShares: shares are divided by their sum, which must be finite.
func TestShares(t *testing.T) {
	for text, want := range map[string][]float64{"a=1,b=3": {0.25, 0.75}, "equal": {0.5, 0.5},
		"a=1e308": {1, 0}, "a=1e308,b=1e308": nil, "a=Inf": nil, "a=-1": nil} {
		got, err := Shares(text, []string{"a", "b"}, 2)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
}

// TestSetsAreAnonymous: sets are the same in any order of the clients and of their points. A file
// without classes has the same thresholds where these do not depend on them.
func TestSetsAreAnonymous(t *testing.T) {
	sent := map[string][]struct {
		p []float32
		y int
	}{
		"a": {{[]float32{0.7, 0.2, 0.1}, 0}, {[]float32{0.1, 0.8, 0.1}, 1}, {[]float32{0.6, 0.3, 0.1}, 1}},
		"b": {{[]float32{0.9, 0.05, 0.05}, 0}, {[]float32{0.2, 0.2, 0.6}, 2}},
		"c": {{[]float32{0.7, 0.2, 0.1}, 0}, {[]float32{0.1, 0.75, 0.15}, 1}, {[]float32{0.4, 0.5, 0.1}, 1}},
		"d": {{[]float32{0.3, 0.3, 0.4}, 2}, {[]float32{0.5, 0.1, 0.4}, 2}},
	}
	of := map[string]int{"b": 1, "d": 1}
	for name, d := range map[string]Design{
		"alike":       {},
		"clients":     {Clients: true},
		"some false":  {Clients: true, Client: []int{}, False: []int{1}},
		"by class":    {Clients: true, ByClass: true},
		"shares":      {Clients: true, Proportions: []float64{0.5, 0.25, 0.25}},
		"groups":      {Clients: true, Group: []int{}},
		"both groups": {Clients: true, Group: []int{}, Client: []int{}, False: []int{1, 0}},
	} {
		var want any
		for _, order := range []string{"abcd", "dcba", "bdca"} {
			var x Points
			d := d
			for m, client := range order {
				points := slices.Clone(sent[string(client)])
				if m%2 == 1 {
					slices.Reverse(points)
				}
				for _, p := range points {
					must.Do(t, x.Add(p.p, p.y))
					if d.Client != nil {
						d.Client = append(d.Client, m)
					}
					if d.Group != nil {
						d.Group = append(d.Group, of[string(client)])
					}
				}
			}
			got := must.Get(x.Sets(d, 0.5, Probability, 3))(t)
			if want == nil {
				want = got
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, clients as %s: %+v; want %+v", name, order, got, want)
			}
			bare := *got
			if bare.Class = nil; d.ByClass || d.Proportions != nil {
				continue
			}
			if d.Clients {
				bare.Clients = len(sent)
			}
			if again := Thresholds(&bare, Probability, 3); !slices.Equal(again, got.Thresholds) {
				t.Errorf("%s: thresholds without classes %v; want %v", name, again, got.Thresholds)
			}
		}
	}
}
