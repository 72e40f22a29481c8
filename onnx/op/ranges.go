package op

import (
	"fmt"
	"strings"

	"fmp/onnx"
)

// Integer attributes that are at least 1, and those that are at least 0. Names stand between
// spaces, so that one is found whole by a search.
const (
	counts = " strides dilations kernel_shape pooled_shape output_height output_width blocksize group groups " +
		"offset_group num_groups size num_outputs hidden_size q_num_heads kv_num_heads num_heads "
	mayBeNone = " block_size batch_dims "
)

// Ranges reports an attribute of a node of g, or of a graph within it, that is out of the range
// which its name has, whether or not the operator is known: runtimes divide by them, and some end
// the process where one is 0. It reports a word that no operator of the given operator sets has
// there as well. The error is of the first such node, and names it. It costs O(attributes of all
// nodes).
func Ranges(g *onnx.Graph, opsets map[string]int64) error {
	for _, n := range g.Nodes {
		err := ranges(n)
		if s := Find(n, opsets); err == nil && s != nil {
			err = s.words(n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.Label(), err)
		}
		for _, s := range n.Subgraphs() {
			if err := Ranges(s, opsets); err != nil {
				return err
			}
		}
	}
	return nil
}

// ranges is Ranges of one node; an attribute that refers to one of a function's is not known yet,
// and passes.
func ranges(n *onnx.Node) error {
	for _, a := range n.Attrs {
		name := " " + a.Name + " "
		none := strings.Contains(mayBeNone, name)
		if a.Ref != "" || !none && !strings.Contains(counts, name) {
			continue
		}
		least := int64(1)
		if none || n.Op == "RotaryEmbedding" { // whose heads a shape may tell
			least = 0
		}
		list := a.Ints
		if a.Kind == onnx.AttrInt {
			list = []int64{a.Int}
		}
		for _, v := range list {
			if v < least || v > 1<<28 {
				return fmt.Errorf("%s holds %d; allowed are %d to %d", a.Name, v, least, 1<<28)
			}
		}
	}
	return nil
}
