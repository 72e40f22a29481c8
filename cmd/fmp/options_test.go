package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"fmp/onnx/must"
	"fmp/pipeline/conformal"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
)

// otherValue returns another value of a setting than its default, as a text.
func otherValue(t *testing.T, s option.Setting) string {
	t.Helper()
	was := showValue(s.Value.Interface())
	for _, text := range append(s.Choices(), "own.onnx", "true", "7", "0.25", "0.75", "0.001") {
		one := reflect.New(s.Value.Type()).Elem()
		if decodeSetting(text, one) == nil && text != was && text != "none" {
			if s := s; len(func() []error { s.Value = one; return s.Check() }()) == 0 && s.Given() {
				return text
			}
		}
	}
	t.Fatalf("%s: no other value than %s is known", s.Key, was)
	return ""
}

// TestOptionsOfARound: every option of a round is read alike from its flag, its short flag, its
// variable, a settings file and a round file, the command line over the round file, and is an error
// for uploads that do not read it.
func TestOptionsOfARound(t *testing.T) {
	const file = "round: 1\nclient_graph: c.onnx\nroster: r.txt\ndeadline: 2030-01-01T00:00:00Z\n"
	cfg := option.Default[poolSettings]()
	for _, s := range option.List(&cfg.Options) {
		text := otherValue(t, s)
		nested := func(name string) string { // a.b: text, as YAML
			parts := strings.Split(name, ".")
			return strings.Join(parts, ": {") + ": " + text + strings.Repeat("}", len(parts)-1) + "\n"
		}
		read := func(args ...string) any {
			cfg := option.Default[poolSettings]()
			cmd := &cobra.Command{}
			r := bindSettings(cmd, &cfg, engineAliases)
			must.Do(t, cmd.ParseFlags(args))
			must.Do(t, r.resolve())
			return optionValue(&cfg.Options, s.Name)
		}
		got := map[string]any{"flag": read("--" + s.Key + "=" + text),
			"settings": read("--config", writeFile(t, "s.yaml", nested(s.Key)))}
		if s.Flag != "" {
			got["short flag"] = read("--" + s.Flag + "=" + text)
		}
		f := must.Get(round.Parse([]byte(file + nested(s.Name))))(t)
		got["round file"] = optionValue(&f.Options, s.Name)
		t.Setenv(envName(s.Key), text)
		got["variable"] = read()
		want := got["flag"]
		for from, v := range got {
			if !reflect.DeepEqual(v, want) || !optionNamed(&f.Options, s.Name).Given() {
				t.Errorf("%s is %v from a %s, and %v from a flag", s.Name, v, from, want)
			}
		}
		over := option.Default[pool.Options]()
		cfg := option.Default[poolSettings]()
		if err := bindSettings(&cobra.Command{}, &cfg, engineAliases).resolveOver(&over, &cfg); err != nil ||
			!reflect.DeepEqual(optionValue(&over, s.Name), want) {
			t.Errorf("%s: a server reads %v over its round file, %v", s.Name,
				optionValue(&over, s.Name), err)
		}
		must.Do(t, os.Unsetenv(envName(s.Key)))
		kinds := strings.Fields(s.Tag.Get("rounds"))
		for _, kind := range []string{"points", "means", "moments", pool.OfPrivate} {
			if err := f.Unread(kind); (err == nil) != slices.Contains(kinds, kind) || err != nil &&
				!strings.Contains(err.Error(), s.Key) {
				t.Errorf("%s in a round of %s: %v", s.Name, kind, err)
			}
		}
		if s.Doc == "" || len(kinds) == 0 {
			t.Errorf("%s says neither what it is nor who reads it", s.Name)
		}
	}
}

func optionNamed(o *pool.Options, name string) *option.Setting {
	list := option.List(o)
	return &list[slices.IndexFunc(list, func(s option.Setting) bool { return s.Name == name })]
}

func optionValue(o *pool.Options, name string) any { return optionNamed(o, name).Value.Interface() }

// TestOptionDefaults: the tags state what the zero options do.
func TestOptionDefaults(t *testing.T) {
	o := option.Default[pool.Options]()
	var scores []string
	for _, s := range conformal.Scores {
		scores = append(scores, string(s))
	}
	if got := optionNamed(&o, "sets.score").Choices(); !slices.Equal(got, scores) {
		t.Errorf("scores %v are allowed, and there are %v", got, scores)
	}
	if o.Seed != pool.Seed || o.Tolerance != pool.Tolerance || *o.FalseShare != pool.FalseShare ||
		o.Anchor != pool.ShippedAnchor {
		t.Errorf("the defaults are %+v", o)
	}
	for text, ok := range map[string]bool{"0": true, "0.4999": true, "0.5": false, "-0.1": false} {
		cfg := option.Default[poolSettings]()
		cmd := &cobra.Command{}
		r := bindSettings(cmd, &cfg, engineAliases)
		must.Do(t, cmd.ParseFlags([]string{"--false-share", text}))
		if err := r.resolve(); (err == nil) != ok || err != nil &&
			!strings.Contains(err.Error(), "0 to less than 0.5") {
			t.Errorf("a share of %s: %v", text, err)
		}
	}
}

// TestOptionFiles: files in a round file are beside it, and words are no files.
func TestOptionFiles(t *testing.T) {
	for text, want := range map[string]string{"default": "default", "none": "none",
		"own.upload":  "FOLDER/own.upload",
		"/own.upload": "/own.upload"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "round.yaml")
		body := fmt.Sprintf(
			"round: 1\nclient_graph: %s\nroster: roster.txt\ndeadline: 2030-01-01T00:00:00Z\nanchor: %s\n",
			shippedFile(t, "client"), text)
		must.Do(t, os.WriteFile(path, []byte(body), 0o600))
		ran(t, "keys", "a", "--dir", dir, "--roster", filepath.Join(dir, "roster.txt"))
		r := must.Get(round.Load(path))(t)
		if want = strings.Replace(want, "FOLDER", dir, 1); r.Anchor != want {
			t.Errorf("anchor: %s is %q, want %q", text, r.Anchor, want)
		}
	}
}
