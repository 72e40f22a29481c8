package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"fmp/onnx/must"
)

// hostile are texts that a terminal would obey.
var hostile = []string{"\x1b[2J", "\x1b]0;title\x07", "\u009b31m", "a\rb", "\u202eexe.jpg",
	"\u2066x\u2069", "\x00", "\x7f", "\xff\xfe", "\ue000", "a\u2028b", "\x9b1m", "\U000e0041"}

// TestHostile: nothing of a hostile text reaches a terminal but text, whole or in parts; harmless
// text passes as it is.
func TestHostile(t *testing.T) {
	for _, s := range append(hostile, "a\nb", "a\tb") {
		if Is(s) || !Is(Line(s)) || !Is(Line(Line(s))) {
			t.Errorf("%q becomes %q", s, Line(s))
		}
	}
	for _, s := range hostile {
		var b strings.Builder
		w := Writer(&b)
		for i := range len(s) {
			if n, err := w.Write([]byte{s[i]}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		w.Write([]byte("\n"))
		if !Is(strings.TrimSuffix(b.String(), "\n")) {
			t.Errorf("%q byte by byte: %q", s, b.String())
		}
	}
	const good = "Größe 東京 \u0928\u0940 👩\u200d🔬 │█ a b\n\tc\n"
	var b strings.Builder
	if n, err := Writer(&b).Write([]byte(good)); n != len(good) || err != nil || b.String() != good {
		t.Errorf("%q becomes %q, %d, %v", good, b.String(), n, err)
	}
	if Raw(Writer(Writer(&b))) != &b || Raw(&b) != &b {
		t.Error("the writer behind is another")
	}
}

// TestMarkdown: a name is itself in Markdown: no element, link, cell, heading or line of its own.
func TestMarkdown(t *testing.T) {
	for in, want := range map[string]string{"a|b": `a\|b`, "<img src=x>": `\<img src=x\>`,
		"[a](javascript:b)": `\[a\]\(javascript:b\)`,
		"a\n# b":            "a\ufffd\\# b", "&lt;": `\&lt;`, "`x`": "\\`x\\`", "cat": "cat"} {
		if got := Markdown(in); got != want {
			t.Errorf("%q becomes %q; want %q", in, got, want)
		}
	}
}

// TestPrintedJSON: names in JSON are as users wrote them.
func TestPrintedJSON(t *testing.T) {
	var b strings.Builder
	must.Do(t, WriteJSON(&b, []string{"a<b & c>d\u202e"}))
	if want := "[\n  \"a<b & c>d\\u202e\"\n]\n"; b.String() != want {
		t.Errorf("%q; want %q", b.String(), want)
	}
}

// FuzzPrintable: any bytes become harmless UTF-8, JSON says the same as before, and a writer's
// output does not depend on how it is cut.
func FuzzPrintable(f *testing.F) {
	for _, s := range hostile {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		s := string(data)
		if l := Line(s); !utf8.ValidString(l) || !Is(l) || strings.ContainsAny(l, "\n\r\x1b") {
			t.Fatalf("%q", l)
		}
		text := must.Get(json.Marshal(s))(t)
		var was, is string
		if json.Unmarshal(text, &was) != nil || json.Unmarshal(JSON(text), &is) != nil || was != is ||
			!Is(string(JSON(text))) {
			t.Fatalf("%q became %q", was, is)
		}
		cut = max(0, min(cut, len(data)))
		var whole, parts bytes.Buffer
		Writer(&whole).Write(data)
		w := Writer(&parts)
		w.Write(data[:cut])
		w.Write(data[cut:])
		if !bytes.Equal(whole.Bytes(), parts.Bytes()) {
			t.Fatalf("%q in parts, %q whole", parts.Bytes(), whole.Bytes())
		}
	})
}

// TestErrors: a thousand errors are written as twenty lines, and all of them are found.
func TestErrors(t *testing.T) {
	var all []error
	for i := range 1000 {
		all = append(all, fmt.Errorf("file %d: %w", i, fs.ErrNotExist))
	}
	all[999] = io.ErrUnexpectedEOF
	for n, want := range map[int]int{1: 1, 20: 20, 21: 20, 1000: 20} {
		if got := strings.Split(Errors(all[:n]).Error(), "\n"); len(got) != want || got[0] != "file 0: file does not exist" ||
			(n > 20) != (got[len(got)-1] == fmt.Sprintf("and %d more", n-19)) {
			t.Errorf("%d errors are written as %d lines, want %d:\n%s", n, len(got), want, strings.Join(got, "\n"))
		}
	}
	if err := Errors(all); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, fs.ErrNotExist) {
		t.Error("an error is lost")
	}
	if err := Errors(nil); err != nil {
		t.Errorf("no errors are %v", err)
	}
}
