// Package printable makes text of others, such as names of files and classes, and the texts of
// servers and models, fit to be shown: in a terminal, which obeys control characters, and in
// Markdown; and writes out a screen of errors at most.
package printable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// harmless reports whether a terminal shows a character and does nothing else: no control
// character, no mark that turns the direction of the text, no end of a line, no character of
// private use.
func harmless(r rune) bool {
	switch r {
	case '\u200c', '\u200d', '\u00ad': // joiners of scripts and of emoji, the soft hyphen
		return true
	case '\u2028', '\u2029':
		return false
	}
	return !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs)
}

// Line returns text as it may stand within a line: each character that is not harmless, ends of
// lines among them, is replaced by U+FFFD, as bytes are that are no UTF-8.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if !harmless(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// Is reports whether a name may stand within a line as it is.
func Is(name string) bool { return Line(name) == name }

// special are the characters that mean something in Markdown, or in the HTML within it.
const special = "\\`*_{}[]()<>#|&~!"

// Markdown returns text as it may stand within a line of Markdown, a cell of a table among them,
// where it means nothing but itself.
func Markdown(s string) string {
	var b strings.Builder
	for _, r := range Line(s) {
		if strings.ContainsRune(special, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// JSON returns a JSON text that says the same and has harmless characters alone: the others, which
// stand in its strings, are escaped.
func JSON(text []byte) []byte {
	if Is(string(text)) {
		return text
	}
	out := make([]byte, 0, len(text)+16)
	for _, r := range string(text) {
		switch {
		case harmless(r) || r == '\n' || r == '\t' || r == '\r':
			out = utf8.AppendRune(out, r)
		case r < 1<<16:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out
}

// WriteJSON writes v as [JSON], indented and with a final newline. Of strings the characters <, >
// and & stay as they are: the text is for people and programs, not for a page.
func WriteJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(JSON(b.Bytes()))
	return err
}

// writer passes harmless text on.
type writer struct {
	mu   sync.Mutex
	to   io.Writer
	part []byte // the beginning of a character
}

// Writer returns a writer to w by which no text of others reaches a terminal as anything but text:
// characters that are not harmless, but for ends of lines and tabs, become U+FFFD. A program prints
// through it alone; [Raw] is for bars and colours of its own.
func Writer(w io.Writer) io.Writer {
	if _, ok := w.(*writer); ok {
		return w
	}
	return &writer{to: w}
}

// Raw returns the writer behind one of [Writer]; others as they are.
func Raw(w io.Writer) io.Writer {
	if p, ok := w.(*writer); ok {
		return p.to
	}
	return w
}

func (p *writer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := append(p.part, text...)
	out := make([]byte, 0, len(rest))
	for len(rest) > 0 && utf8.FullRune(rest) {
		r, n := utf8.DecodeRune(rest)
		if !harmless(r) && r != '\n' && r != '\t' {
			r = utf8.RuneError
		}
		out, rest = utf8.AppendRune(out, r), rest[n:]
	}
	p.part = append([]byte(nil), rest...)
	if _, err := p.to.Write(out); err != nil {
		return 0, err
	}
	return len(text), nil
}
