package experiment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fmp/featurize/yamlfile"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

func TestGridIsAllCombinations(t *testing.T) {
	g := must.Get(ParseGrid([]byte("settings:\n  seeds: 2\n  erm: {l2: 7}\nvary:\n  dataset.name: " +
		"[mnist, cifar10]\n  federation.points: [5, 10, 20]\n")))(t)
	runs := must.Get(g.Runs())(t)
	seen := map[string]bool{}
	for _, r := range runs {
		seen[r.Name] = true
		if r.Config.Seeds != 2 || r.Config.ERM.L2 != 7 ||
			r.Config.ERM.Tolerance != Default().ERM.Tolerance {
			t.Errorf("%s: shared settings are %d seeds, l2 %g", r.Name, r.Config.Seeds, r.Config.ERM.L2)
		}
	}
	if len(runs) != 6 || len(seen) != 6 || runs[1].Name != "name=mnist,points=10" ||
		runs[1].Config.Federation.Points != 10 ||
		runs[5].Config.Dataset.Name != "cifar10" {
		t.Errorf("runs are %v", runs)
	}
}

func TestGridRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "empty"},
		{"unknown section", "varry: {}\n", `unknown key "varry"; did you mean vary?`},
		{"unknown setting", "settings: {erm: {l3: 1}}\n", `unknown key "l3"; did you mean l2?`},
		{"unknown varied setting", "vary: {erm.l3: [1]}\n", "did you mean erm.l2?"},
		{"no values", "vary: {erm.l2: []}\n", "no values"},
		{"out of range", "vary: {erm.l2: [1, -1]}\n", "erm.l2 is -1"},
		{"wrong type", "vary: {seeds: [many]}\n", "many"},
		{"output", "vary: {output.dir: [a]}\n", `"output.dir", and output is the grid's own`},
		{"output as a setting", "settings: {output: {dir: a}}\nvary: {seeds: [1]}\n", "the grid's own"},
		{"a value twice", "vary: {seeds: [1, 2, 1]}\n", "has 1 twice"},
		{"set and varied", "settings: {erm: {l2: 7}}\nvary: {erm.l2: [1]}\n", "under settings and under vary"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := ParseGrid([]byte(c.text))
			if err == nil {
				_, err = g.Runs()
			}
			must.Fail(err)(t, c.want)
		})
	}
}

// TestParseGridOfManyKeys: thousands of unknown keys are one error of a few lines, without much
// work.
func TestParseGridOfManyKeys(t *testing.T) {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	data := []byte(b.String())
	begun := time.Now()
	alloctest.AtMost(t, 2000*(len(data)+yamlfile.MaxNodes), func() {
		if _, err := ParseGrid(data); err == nil || !strings.Contains(err.Error(), "more") ||
			len(err.Error()) > 1000 {
			t.Errorf("error %v", err)
		}
	})
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

// FuzzParseGrid: a grid has runs, and reading one takes at most 2,000 bytes of memory for each of
// its bytes and for each node that it may hold. Longer ones are [TestParseGridOfManyKeys]'s: they
// take the fuzzer's time.
func FuzzParseGrid(f *testing.F) {
	f.Add([]byte("settings: {seeds: 1}\nvary: {erm.l2: [1, 3], methods: [[FMP], [MP]]}\n"))
	f.Add([]byte("vary: {seeds: [&a [*a]]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<11 {
			t.Skip()
		}
		var g *Grid
		var err error
		alloctest.AtMost(t, 2000*(len(data)+yamlfile.MaxNodes), func() { g, err = ParseGrid(data) })
		if err != nil {
			return
		}
		combinations := 1
		for _, v := range g.Vary {
			combinations *= len(v)
		}
		if combinations > 8 { // more of them tell nothing more
			return
		}
		runs, err := g.Runs()
		if err == nil && len(runs) == 0 {
			t.Error("a grid without runs")
		}
	})
}
