package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"fmp/assets"
	"fmp/featurize/yamlfile"
	"fmp/onnx/alloctest"
	"fmp/onnx/engine/ort"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(p, []byte(content), 0o644))
	return p
}

// resolved runs `fmp config --json` and is its answer by key.
func resolved(t *testing.T, args ...string) map[string]setting {
	t.Helper()
	list := answer[[]setting](t, append([]string{"config", "--json"}, args...)...)
	m := map[string]setting{}
	for _, s := range list {
		m[s.Key] = s
	}
	return m
}

func TestSettingsPrecedence(t *testing.T) {
	file := writeFile(t, "my.yaml",
		"erm: {l2: 1}\nseeds: 7\nfederation:\n  alpha: [0.5, 2]\n  clients: 3\n")
	t.Setenv("FMP_SEEDS", "8")
	t.Setenv("FMP_FEDERATION_CLIENTS", "4")
	m := resolved(t, "--config", file, "--clients", "5", "--set", "posterior.samples=9")
	for _, c := range []struct {
		key, source string
		value       any
	}{
		{"erm.tolerance", "default", 1e-8},
		{"erm.l2", "file " + file, 1.0},
		{"federation.alpha", "file " + file, []any{0.5, 2.0}},
		{"seeds", "environment FMP_SEEDS", 8.0},
		{"federation.clients", "flag --federation.clients", 5.0},
		{"posterior.samples", "flag --set", 9.0},
	} {
		if got := m[c.key]; got.Source != c.source || !cmp.Equal(got.Value, c.value) {
			t.Errorf("%s is %v from %q, want %v from %q", c.key, got.Value, got.Source,
				c.value, c.source)
		}
	}
}

func TestSettingsErrors(t *testing.T) {
	for _, c := range []struct {
		name, file, env string
		args            []string
		want            string
		code            int // 0: bad usage
	}{
		{name: "unknown key in the file", file: "erm: {l1: 3}", want: `unknown setting "erm.l1"`},
		{name: "misspelt key in the file", file: "fedaration: {clients: 3}",
			want: `did you mean "federation.clients"?`},
		{name: "key that is no text", file: "federation: {1: 2}", want: `unknown setting "federation.1"`},
		{name: "key that is no text beside one", file: "federation: {points: 13, true: 2}",
			want: `unknown setting "federation.true"`},
		{name: "no text at the top", file: "1: 2", want: `unknown setting "1"`},
		{name: "group as a value", file: "erm: 3", want: "its keys are erm.l2, erm.tolerance"},
		{name: "value as a group", file: "seed: {a: 3}", want: `did you mean "seed"?`},
		{name: "key without its group", file: "alpha: 3", want: `did you mean "federation.alpha"?`},
		{name: "empty value", file: "seed:", want: "seed in file"},
		{name: "fraction for a whole number", file: "seeds: 1.5", want: "is 1.5; want a whole number"},
		{name: "truth for a number", file: "erm: {l2: true}", want: "is true; want a number"},
		{name: "text for a number", file: "erm: {l2: much}", want: "is much; want a number"},
		{name: "list of texts for numbers", file: "federation: {alpha: [a]}",
			want: "want a list of numbers"},
		{name: "negative for unsigned", file: "seed: -1",
			want: "is -1; want a whole number of at least 0"},
		{name: "long list", file: "federation.alpha: [" + strings.Repeat("1,", 1000) + "1]",
			want: "list of 1001 values; allowed are 256"},
		{name: "large file", file: strings.Repeat("# comment\n", 10000), want: "at most 65536 bytes"},
		{name: "deep file", file: strings.Repeat("[", 20000), want: "max depth"},
		{name: "not YAML", file: "erm: [", want: "settings file"},
		{name: "out of range", file: "seeds: 0", want: "setting seeds is 0; allowed is 1 to 1000"},
		{name: "unknown variable", env: "FMP_ERM_LL2", want: "did you mean FMP_ERM_L2?"},
		{name: "unknown flag", args: []string{"--erm.l3", "1"}, want: "did you mean --erm.l2?"},
		{name: "mistyped short flag", args: []string{"--extracter", "x.onnx"},
			want: "did you mean --extractor?"},
		{name: "unknown key of --set", args: []string{"--set", "erm.lambda=1"},
			want: `unknown setting "erm.lambda"`},
		{name: "--set without a value", args: []string{"--set", "erm.l2"}, want: "want KEY=VALUE"},
		{name: "given twice", args: []string{"--set", "erm.l2=1", "--l2", "2"},
			want: "given by two flags"},
		{name: "beyond 63 bits", file: "federation: {clients: 18446744073709551614}",
			want: "is 18446744073709551614; want a whole number"},
		{name: "one flag twice", args: []string{"--points", "3", "--federation.points", "4"},
			want: "given by two flags"},
		{name: "no such file", args: []string{"--config", "gone.yaml"},
			want: "gone.yaml", code: exitMissing},
		{name: "unknown kind of file", args: []string{"--config", "x.ini"}, want: "allowed are .yaml"},
		{name: "no such name", args: []string{"--config", "dmeo"}, want: `did you mean "demo"?`},
		{name: "a folder", args: []string{"--config", "FOLDER"}, want: "want a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"config"}, c.args...)
			if i := slices.Index(args, "FOLDER"); i > 0 {
				args[i] = filepath.Join(t.TempDir(), "folder.yaml")
				must.Do(t, os.Mkdir(args[i], 0o755))
			}
			if c.file != "" {
				args = append(args, "--config", writeFile(t, "s.yaml", c.file))
			}
			if c.env != "" {
				t.Setenv(c.env, "1")
			}
			refused(t, max(c.code, exitUsage), c.want, args...)
		})
	}
}

// What `fmp config` prints is a settings file that gives the same settings again.
func TestConfigRoundTrip(t *testing.T) {
	args := []string{"config", "--dataset", "cifar10", "--alpha", "0.1,5", "--extractor",
		"a b: #c.onnx", "--methods", "FMP,MP"}
	out, _ := ran(t, args...)
	file := writeFile(t, "again.yaml", out)
	first, second := resolved(t, args[1:]...), resolved(t, "--config", file)
	for key, s := range first {
		if !cmp.Equal(s.Value, second[key].Value) {
			t.Errorf("%s: %v became %v", key, s.Value, second[key].Value)
		}
	}
}

func TestSettingsOfEveryFormat(t *testing.T) {
	for name, content := range map[string]string{
		"a.json": `{"erm": {"l2": 2}, "federation": {"alpha": [1]}, "dataset": {"classes": 20}}`,
		"a.toml": "[erm]\nl2 = 2\n[federation]\nalpha = [1.0]\n[dataset]\nclasses = 20\n",
		"a.yml":  "erm.l2: 2\nfederation.alpha: 1\ndataset.classes: 20\n",
	} {
		m := resolved(t, "--config", writeFile(t, name, content))
		if m["dataset.classes"].Value != "20" {
			t.Errorf("%s: dataset.classes is %v, want the text 20", name, m["dataset.classes"].Value)
		}
		if m["erm.l2"].Value != 2.0 || !cmp.Equal(m["federation.alpha"].Value, []any{1.0}) {
			t.Errorf("%s: erm.l2 is %v, federation.alpha %v", name, m["erm.l2"].Value,
				m["federation.alpha"].Value)
		}
	}
}

// TestLargeNumbers: whole numbers are those of the file, or refused, in every format.
func TestLargeNumbers(t *testing.T) {
	for name, content := range map[string]string{
		"a.json": `{"seed": 18446744073709551615}`, "a.yaml": "seed: 18446744073709551615",
		"b.json": `{"seed": 9007199254740993}`, "b.toml": "seed = 9007199254740993",
	} {
		want := strings.TrimFunc(content, func(r rune) bool { return !unicode.IsDigit(r) })
		out, _ := ran(t, "config", "--config", writeFile(t, name, content))
		if !strings.Contains(out, "seed: "+want+" ") {
			t.Errorf("%s: %s became\n%.200s", name, content, out)
		}
	}
}

// TestSettingsTwice: a file that says a thing twice is an error; the first was ignored in silence.
func TestSettingsTwice(t *testing.T) {
	for name, content := range map[string]string{
		"a.json": `{"erm": {"l2": 2}, "ERM": {"l2": 3}}`,
		"b.json": `{"federation": {"alpha": [1], "alpha": [2]}}`,
		"a.yaml": "erm.l2: 2\n---\nerm.l2: 3\n",
		"b.yaml": "erm.l2: 2\nerm.l2: 3\n",
		"a.toml": "[erm]\nl2 = 2\n[erm]\nl2 = 3\n",
		"b.toml": "seeds = 2\nSeeds = 3\n",
		"c.yaml": "federation.points: 12\nfederation:\n  points: 13\n",
		"d.yaml": "federation: {points: 13}\nFederation: {alpha: 1}\n",
		"e.yaml": "seeds: 2\nSeeds: 3\n",
		"c.json": `{"federation.points": 12, "federation": {"points": 13}}`,
	} {
		if _, err := parseConfig(name, []byte(content)); err == nil {
			t.Errorf("%s: %s is taken", name, content)
		}
	}
}

// Every alias leads to a key, and every key is explained; the help of methods names them all.
func TestSettingsAreDocumented(t *testing.T) {
	cfg := experiment.Default()
	s := bindSettings(&cobra.Command{}, &cfg, runAliases)
	for a, key := range runAliases {
		if !s.known(key) {
			t.Errorf("--%s stands for %s, which is no setting", a, key)
		}
	}
	for _, f := range s.fields {
		for _, v := range f.Choices() {
			if f.Key == "scores.other" && v == cfg.Dataset.Name {
				continue // it is no other one
			}
			ran(t, "config", "--set", f.Key+"="+strings.ReplaceAll(v, "SHARE", "0.9"))
		}
		for _, m := range rival.Names() {
			if f.Key == "methods" && !strings.Contains(f.Doc+f.Allowed(), m) {
				t.Errorf("the help of methods does not name %s", m)
			}
		}
		if f.Key == "engine.provider" && !slices.Equal(f.Choices(), ort.ProviderNames()) {
			t.Errorf("allowed providers are %v, and the engine's %v", f.Choices(), ort.ProviderNames())
		}
	}
}

// The settings that come with the program are valid.
func TestShippedSettings(t *testing.T) {
	for _, name := range assets.ConfigNames() {
		if m := resolved(t, "--config", name); len(m) == 0 {
			t.Errorf("%s: nothing was resolved", name)
		}
	}
}

// FuzzSettingsFile: what passes is valid, and a file takes at most 2,000 bytes of memory for each
// of its bytes and for each node that one may hold.
func FuzzSettingsFile(f *testing.F) {
	f.Add("erm: {l2: 1}\n")
	f.Add("federation.alpha: [0.1, .inf, .nan]\n")
	f.Add("a: &a [*a]\n")
	f.Add("seed: 99999999999999999999\nseeds: !!binary x\n")
	defaults := experiment.Default()
	var cfg experiment.Config
	// once: cobra keeps every flag's completion for good
	s := bindSettings(&cobra.Command{}, &cfg, runAliases)
	f.Fuzz(func(t *testing.T, content string) {
		if len(content) > 1<<11 { // FuzzCheck has those; here they take the fuzzer's time
			t.Skip()
		}
		cfg = defaults
		var err error
		alloctest.AtMost(t, 2000*(len(content)+yamlfile.MaxNodes), func() {
			file, parsed := parseConfig("f.yaml", []byte(content))
			if err = parsed; err == nil {
				err = s.merge(file)
			}
		})
		if err == nil {
			if err := cfg.Validate(); err != nil {
				t.Errorf("settings passed that are not valid: %v", err)
			}
		}
	})
}
