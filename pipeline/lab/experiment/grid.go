package experiment

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"fmp/featurize/yamlfile"
	"fmp/onnx/suggest"
	"fmp/pipeline/option"
)

// Grid is a set of runs: settings that all runs share, and keys that take several values each. The
// runs are all combinations of the values.
//
//	settings:
//	  seeds: 10
//	  federation: {partition: both, alpha: [0.1, 1]}
//	vary:
//	  dataset.name: [mnist, cifar10]
//	  erm.l2: [1, 3]
//
// Every run starts from the defaults, and settings and varied values are laid over these in this
// order.
type Grid struct {
	Settings map[string]any   `yaml:"settings"`
	Vary     map[string][]any `yaml:"vary"`
}

// GridRun is one combination. Its name, made of the values that vary, is the name of its run
// directory.
type GridRun struct {
	Name   string
	Config Config
}

// Bounds on the size of a grid file, in bytes, and on the number of its runs.
const (
	MaxGridBytes = 1 << 20
	maxGridRuns  = 10_000
)

// ParseGrid reads a grid from YAML. Unknown keys, and varied keys without values, are errors.
// Values are not yet checked: [Grid.Runs] does that for each combination.
func ParseGrid(data []byte) (*Grid, error) {
	if len(data) > MaxGridBytes {
		return nil, fmt.Errorf("grid of %d bytes; at most %d are read", len(data), MaxGridBytes)
	}
	var g Grid
	if err := yamlfile.Decode(data, &g); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("grid: the file is empty; give settings and vary")
		}
		return nil, fmt.Errorf("grid: allowed are settings and vary: %w", err)
	}
	known := option.Keys[Config]()
	if _, set := valueAt(g.Settings, []string{"output", "dir"}); set {
		return nil, errors.New("grid: settings: output.dir is the grid's own, given by " +
			"--out: leave it out")
	}
	// The number of combinations, bounded before any of them is made.
	total := 1
	for _, k := range slices.Sorted(maps.Keys(g.Vary)) {
		if strings.HasPrefix(k, "output.") {
			return nil, fmt.Errorf("grid: vary has %q, and output is the grid's own, given by "+
				"--out: leave it out", k)
		}
		if !slices.Contains(known, k) {
			return nil, fmt.Errorf("grid: vary has no setting %q; `fmp config` lists them%s", k,
				suggest.DidYouMean(k, known))
		}
		if _, set := valueAt(g.Settings, strings.Split(k, ".")); set {
			return nil, fmt.Errorf("grid: %s stands under settings and under vary, which would "+
				"take its place: leave one out", k)
		}
		seen := map[string]bool{}
		for _, v := range g.Vary[k] {
			text := fmt.Sprint(v)
			if seen[text] {
				return nil, fmt.Errorf("grid: vary %s has %v twice: each run once", k, v)
			}
			seen[text] = true
		}
		n := len(g.Vary[k])
		if n == 0 {
			return nil, fmt.Errorf("grid: vary %s has no values; give at least one", k)
		}
		if total *= n; total > maxGridRuns {
			return nil, fmt.Errorf("grid: more than %d runs; vary fewer settings", maxGridRuns)
		}
	}
	return &g, nil
}

// valueAt returns the value of a setting in a tree of them, whose keys may be paths. A key may hold
// several words of the path, joined by dots, at any level.
func valueAt(tree map[string]any, path []string) (any, bool) {
	for n := 1; n <= len(path); n++ {
		v, ok := tree[strings.Join(path[:n], ".")]
		if !ok {
			continue
		}
		if n == len(path) {
			return v, true
		}
		if below, is := v.(map[string]any); is {
			return valueAt(below, path[n:])
		}
	}
	return nil, false
}

// lineNumber matches the position in the decoder's messages, which is that of a part of the file.
var lineNumber = regexp.MustCompile(`(?m)\bline \d+: `)

// Runs returns the combinations, keys in alphabetical order and the last one varying fastest. Every
// configuration is validated before any is returned. Without varied keys there is one run, named
// run. A name that occurs twice gets the number of its run. The first invalid run is the error.
func (g *Grid) Runs() ([]GridRun, error) {
	keys := slices.Sorted(maps.Keys(g.Vary))
	base, err := yaml.Marshal(g.Settings)
	if err != nil {
		return nil, fmt.Errorf("grid: settings: %w", err)
	}
	var out []GridRun
	// the last key is the lowest digit
	at := make([]int, len(keys)) // digits of a counter, of base len(g.Vary[keys[i]]) each
	names := map[string]bool{}
	for {
		r := GridRun{Config: Default()}
		if err := strictYAML(base, &r.Config); err != nil {
			return nil, fmt.Errorf("grid: settings: %w", err)
		}
		var parts []string
		for i, k := range keys {
			v := g.Vary[k][at[i]]
			var tree any = v
			path := strings.Split(k, ".")
			for _, p := range slices.Backward(path) {
				tree = map[string]any{p: tree}
			}
			b, err := yaml.Marshal(tree)
			if err != nil {
				return nil, fmt.Errorf("grid: %s: %w", k, err)
			}
			if err := strictYAML(b, &r.Config); err != nil {
				return nil, fmt.Errorf("grid: vary %s is %v: %w", k, v, err)
			}
			parts = append(parts, ending(k, keys)+"="+fmt.Sprint(v))
		}
		if r.Name = safeName(strings.Join(parts, ",")); r.Name == "" {
			r.Name = "run"
		}
		if names[r.Name] {
			r.Name = fmt.Sprintf("%s,%d", r.Name, len(out))
		}
		names[r.Name] = true
		if err := r.Config.Validate(); err != nil {
			return nil, fmt.Errorf("grid: run %s: %w", r.Name, err)
		}
		out = append(out, r)
		i := len(keys) - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < len(g.Vary[keys[i]]) {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return out, nil
		}
	}
}

// strictYAML decodes data on top of c; unknown keys are errors.
func strictYAML(data []byte, c *Config) error {
	if err := yamlfile.Decode(data, c); err != nil && !errors.Is(err, io.EOF) {
		// Line numbers refer to a re-encoded part of the file and would mislead.
		return fmt.Errorf("%s; `fmp config` lists the settings",
			lineNumber.ReplaceAllString(err.Error(), ""))
	}
	return nil
}

// safeName replaces the characters of a name that some file system refuses by _ and cuts it to 120
// bytes. All characters that stay are of one byte, so that the cut splits none.
func safeName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9',
			strings.ContainsRune("-.,=", r):
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 120)]
}
