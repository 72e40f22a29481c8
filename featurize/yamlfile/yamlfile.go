// Package yamlfile guards YAML files that users write, before they are decoded into settings. The decoder compares every
// key of a mapping with every other and keeps a message for each pair that is equal, so that ten kilobytes of one key
// repeated take a gigabyte; aliases multiply what a file holds. Neither passes [Check].
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

const (
	// MaxNodes bounds the keys, values, lists and mappings of a file, counted as often as aliases repeat them.
	MaxNodes = 20_000
	// MaxDepth bounds how deeply they are nested.
	MaxDepth = 100
)

// Check reports whether the documents in data are YAML with at most [MaxNodes] nodes and no key twice in a mapping. It
// takes at most about 1,000 bytes of memory for each of data's; the caller bounds the size of data.
func Check(data []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	w := walker{size: map[*yaml.Node]int{}}
	for {
		var n yaml.Node
		switch err := d.Decode(&n); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if _, err := w.count(&n, 0); err != nil {
			return err
		}
	}
}

// walker counts nodes. size holds the count of each that has an anchor; 0 while it is being counted.
type walker struct {
	size  map[*yaml.Node]int
	total int
}

func (w *walker) count(n *yaml.Node, depth int) (int, error) {
	if depth > MaxDepth {
		return 0, fmt.Errorf("line %d: nested more than %d deep", n.Line, MaxDepth)
	}
	if n.Kind == yaml.AliasNode {
		size := w.size[n.Alias]
		if size == 0 {
			return 0, fmt.Errorf("line %d: the alias *%s refers to what it stands in", n.Line, n.Value)
		}
		return size, w.add(n, size)
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
				return 0, fmt.Errorf("line %d: the key %.80q stands on line %d already", c.Line, c.Value, line)
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

func (w *walker) add(n *yaml.Node, size int) error {
	if w.total += size; w.total > MaxNodes {
		return fmt.Errorf("line %d: more than %d keys and values, aliases counted each time", n.Line, MaxNodes)
	}
	return nil
}
