// Package yamlfile checks YAML files that users write before they are decoded into settings. The
// decoder compares every key of a mapping with every other and keeps a message for each equal pair,
// so that ten kilobytes of one repeated key take a gigabyte; aliases multiply the contents of a
// file. [Check] rejects both.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"fmp/onnx/suggest"
)

const (
	// MaxNodes bounds the number of keys, values, lists and mappings of a file, counted as often as
	// aliases repeat them.
	MaxNodes = 20_000
	// MaxDepth bounds the nesting depth of nodes.
	MaxDepth = 100
)

// Check returns an error unless data is one document of YAML or none, with at most [MaxNodes]
// nodes, no duplicate key in a mapping, and no number but a decimal one without zeros before it. It
// uses at most about 1,000 bytes of memory per byte of data; the caller bounds the size of data. It
// takes O(size of data) steps, as every node is visited once.
func Check(data []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	w := walker{size: map[*yaml.Node]int{}}
	for documents := 0; ; documents++ {
		var n yaml.Node
		switch err := d.Decode(&n); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case documents == 1:
			return errors.New("there is more than one document (a line of ---); want one")
		}
		if _, err := w.count(&n, 0); err != nil {
			return err
		}
	}
}

// Decode runs [Check], and then decodes the document in data into the struct that v points to;
// fields that it does not name keep their values. Data without a document return [io.EOF]; a second
// document and a key that the struct has no field for are errors, on one line and without the names
// of Go types.
func Decode(data []byte, v any) error {
	if err := Check(data); err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		return plain(err, reflect.TypeOf(v).Elem())
	}
	return nil
}

// The decoder's messages for an unknown key and for a value of another type.
var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongType    = regexp.MustCompile("cannot unmarshal !!(\\S+)(?: `(.*)`)? into (.+)")
)

// plain rewrites the decoder's errors about a document for t on one line, with the likeliest key.
func plain(err error, t reflect.Type) error {
	var date *time.ParseError
	if errors.As(err, &date) {
		return fmt.Errorf("%q; want %s", date.Value, wanted("time.Time"))
	}
	var complaint *yaml.TypeError
	if !errors.As(err, &complaint) {
		return err
	}
	known := keys(t, nil)
	// Further complaints are counted.
	const shown = 5
	var parts []string
	for i, l := range complaint.Errors {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more", len(complaint.Errors)-i))
			break
		}
		l = unknownField.ReplaceAllStringFunc(l, func(m string) string {
			name := unknownField.FindStringSubmatch(m)[1]
			return fmt.Sprintf("unknown key %q%s", name, suggest.DidYouMean(name, known))
		})
		l = wrongType.ReplaceAllStringFunc(l, func(m string) string {
			p := wrongType.FindStringSubmatch(m)
			if p[2] != "" {
				return fmt.Sprintf("%q; want %s", p[2], wanted(p[3]))
			}
			return fmt.Sprintf("%s; want %s",
				map[string]string{"seq": "a list", "map": "a group of keys"}[p[1]], wanted(p[3]))
		})
		parts = append(parts, l)
	}
	return errors.New(strings.Join(parts, "; "))
}

// wanted describes a Go type to the writer of a file. t is its name in the decoder's message.
func wanted(t string) string {
	switch {
	case strings.HasPrefix(t, "[]"):
		return "a list"
	case strings.HasPrefix(t, "int"):
		return "a whole number"
	case strings.HasPrefix(t, "uint"):
		return "a whole number of at least 0"
	case strings.HasPrefix(t, "float"):
		return "a number"
	case t == "bool":
		return "true or false"
	case t == "time.Time":
		return "a time, such as 2030-01-31T18:00:00Z"
	case t == "string":
		return "a text"
	}
	return "a group of keys"
}

// keys returns the names of t's fields in a file, and those of the structs in it. They are for
// suggestions alone.
func keys(t reflect.Type, out []string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		switch name, how, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case how == "inline":
			out = keys(f.Type, out)
		case name != "" && name != "-":
			out = keys(f.Type, append(out, name))
		}
	}
	return out
}

// notDecimal are numbers that flags and variables read otherwise, or not at all: 010 is 8 in YAML.
var notDecimal = regexp.MustCompile(`^[-+]?0[0-9XxOoBb_]|_`)

// walker counts nodes. size holds the count of each that has an anchor; 0 while it is being
// counted.
type walker struct {
	size  map[*yaml.Node]int
	total int
}

// count returns the nodes of a tree, aliases at their full size, and refuses it where a rule of
// [Check] is broken. Every node is visited once: an alias costs a look-up. Keys are compared by
// their text, so that two spellings of one number are two keys.
func (w *walker) count(n *yaml.Node, depth int) (int, error) {
	if depth > MaxDepth {
		return 0, fmt.Errorf("line %d: nested more than %d deep", n.Line, MaxDepth)
	}
	if n.Kind == yaml.AliasNode {
		size := w.size[n.Alias]
		// It is still being counted: it would hold itself.
		if size == 0 {
			return 0, fmt.Errorf("line %d: the alias *%s refers to what it stands in",
				n.Line, n.Value)
		}
		return size, w.add(n, size)
	}
	if tag := n.ShortTag(); n.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float") &&
		notDecimal.MatchString(n.Value) {
		return 0, fmt.Errorf("line %d: YAML takes %.80s for a number of another base or with "+
			"separators: write it with digits alone, or in quotes for a text", n.Line, n.Value)
	}
	size := 1
	if n.Anchor != "" {
		w.size[n] = 0
	}
	if err := w.add(n, 1); err != nil {
		return 0, err
	}
	keys := map[string]int{}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.Kind == yaml.ScalarNode {
			if line, twice := keys[c.Value]; twice {
				return 0, fmt.Errorf("line %d: the key %.80q stands on line %d already", c.Line,
					c.Value, line)
			}
			keys[c.Value] = c.Line
		}
		s, err := w.count(c, depth+1)
		if err != nil {
			return 0, err
		}
		size += s
	}
	if n.Anchor != "" {
		w.size[n] = size
	}
	return size, nil
}

// add adds to the nodes of the file, and refuses more than [MaxNodes] at the line of n.
func (w *walker) add(n *yaml.Node, size int) error {
	if w.total += size; w.total > MaxNodes {
		return fmt.Errorf("line %d: more than %d keys and values, aliases counted each time",
			n.Line, MaxNodes)
	}
	return nil
}
