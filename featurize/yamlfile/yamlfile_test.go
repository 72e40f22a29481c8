package yamlfile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"fmp/onnx/alloctest"
)

// bomb is eight levels of lists of n aliases each.
func bomb(n int) string {
	var b strings.Builder
	b.WriteString("a: &a [0, 0]\n")
	for i, prev := 0, "a"; i < 8; i++ {
		name := fmt.Sprintf("b%d", i)
		fmt.Fprintf(&b, "%s: &%s [*%s%s]\n", name, name, prev, strings.Repeat(", *"+prev, n-1))
		prev = name
	}
	return b.String()
}

func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"settings", "seed: 1\nmethods: [ANN, MP]\nerm: {l2: 3}\n", ""},
		{"an anchor", "a: &x [1, 2]\nb: *x\nc: *x\n", ""},
		{"two documents", "a: 1\n---\na: 2\n", "more than one document"},
		{"a key twice", "a: 1\nb: {c: 1, c: 2}\n", `line 2: the key "c" stands on line 2 already`},
		{"a bomb", bomb(9), "more than 20000"},
		{"itself", "a: &a [1, *a]\n", "refers to what it stands in"},
		{"deep", strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested more than 100 deep"},
		{"brackets", strings.Repeat("[", 60_000), "yaml"},
		{"many", "a: [" + strings.Repeat("1,", 30_000) + "1]", "more than 20000"},
		{"numbers", "a: [0, -0, 0.5, 10, 1e3, 0e3, -0.1e-3, .5, .inf, +7]\n", ""},
		{"texts like numbers", "a: ['010', \"0x10\", !!str 010, 0ab1, 0e1f, 1_a, 2030-01-02]\n", ""},
		{"octal", "a: 1\nround: 010\n", "line 2: YAML takes 010"},
		{"octal below zero", "a: [1, -007]", "-007"},
		{"no octal", "a: 08", "08"},
		{"hexadecimal", "a: 0x10", "0x10"},
		{"binary", "a: 0b11", "0b11"},
		{"new octal", "a: 0o17", "0o17"},
		{"separators", "a: 1_000", "1_000"},
		{"separators of a fraction", "a: 1_0.5", "1_0.5"},
		{"said to be a number", "a: !!int 010", "010"},
		{"no YAML", "a: [", "yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Check([]byte(c.text))
			if c.want == "" && err != nil || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v; want %q", err, c.want)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	type inner struct {
		L2 float64 `yaml:"l2"`
	}
	for text, want := range map[string]string{
		"seed: 3\nerm: {l2: 2}\n":     "",
		"":                            "EOF",
		"sed: 3\n":                    `line 1: unknown key "sed"; did you mean seed?`,
		"erm: {l3: 3}\ncolour: red\n": `line 1: unknown key "l3"; did you mean l2?; line 2: unknown key "colour"`,
		"seed: -1\n":                  `line 1: "-1"; want a whole number of at least 0`,
		"late: maybe\nerm: 3\nmethods: ANN\n": `line 1: "maybe"; want true or false; line 2: "3"; want a group of keys; ` +
			`line 3: "ANN"; want a list`,
		"title: [a]\nerm: {l2: {}}\n":          `line 1: a list; want a text; line 2: a group of keys; want a number`,
		"date: tomorrow\n":                     `"tomorrow"; want a time, such as 2030-01-31T18:00:00Z`,
		"seed: 1\n---\nseed: 2\n":              "more than one document",
		"seed: 1\nseed: 2\n":                   "stands on line 1 already",
		"a: 1\nb: 1\nc: 1\nd: 1\ne: 1\nf: 1\n": "and 1 more",
	} {
		v := struct {
			Seed    uint64    `yaml:"seed"`
			Late    bool      `yaml:"late"`
			Title   string    `yaml:"title"`
			Date    time.Time `yaml:"date"`
			Methods []string  `yaml:"methods"`
			ERM     *inner    `yaml:"erm"`
		}{Title: "kept"}
		err := Decode([]byte(text), &v)
		if want == "" && (err != nil || v.Seed != 3 || v.ERM.L2 != 2 || v.Title != "kept") {
			t.Errorf("%q: %+v, %v", text, v, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: error %v; want %q on one line", text, err, want)
		}
	}
}

// One key many times takes the decoder itself a gigabyte for twelve kilobytes.
func TestCheckIsCheap(t *testing.T) {
	for name, text := range map[string]string{
		"one key": strings.Repeat("a: 1\n", 12_000), "anchors": strings.Repeat("a: &a\n", 10_000),
		"questions": strings.Repeat("? ", 9_000),
		"lists":     strings.Repeat("- ", 9_000), "mappings": strings.Repeat("{", 60_000),
		"nested": strings.Repeat("{a: ", 15_000),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			alloctest.AtMost(t, 1000*len(text), func() { _ = Check([]byte(text)) })
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("%d bytes took %v", len(text), d)
			}
		})
	}
}

// FuzzCheck: at most 1,000 bytes of memory for each byte to check; and what passes, the decoder
// takes in 2,000 for each byte and for each of MaxNodes nodes.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"a: 1\nb: [1, {c: 2}]\n", bomb(2), "a: &a [*a]", "? [1]: 2",
		"<<: {a: 1}\na: 2\n", "---\n---\n",
		"a: !!binary aGk=\n", "!!x {a, b}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		alloctest.AtMost(t, 1000*len(data), func() { err = Check(data) })
		if err != nil {
			return
		}
		alloctest.AtMost(t, 2000*(len(data)+MaxNodes), func() {
			var v any
			_ = yaml.Unmarshal(data, &v)
		})
	})
}
