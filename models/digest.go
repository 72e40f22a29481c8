package models

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
)

// digestForm begins the bytes that a network's digest is computed over.
const digestForm = "fmp network 1\n"

// networkDigest returns the sha256, in hexadecimal, of the part of a graph that computes output from input: of operators, their versions,
// attributes, wiring and constants. Names, the order of nodes, and other outputs of the graph do not matter, so that one network has one
// digest in every client graph that it is part of (docs/formats.md).
func networkDigest(m *onnx.Model, input, output string) (string, error) {
	d := &digester{model: m, maker: makers(m.Graph), number: map[string]string{input: "input"}, at: map[*onnx.Node]int{}}
	last, err := d.value(output)
	if err != nil {
		return "", err
	}
	d.text = append(d.text, "output", last)
	h := sha256.New()
	h.Write([]byte(digestForm))
	for _, t := range d.text {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(t))))
		h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// digester numbers the nodes of a network in the order in which a walk from its output, inputs from first to last, is done with them.
type digester struct {
	model  *onnx.Model
	maker  map[string]*onnx.Node
	number map[string]string // of a value
	at     map[*onnx.Node]int
	text   []string
	depth  int
}

// maxChain bounds the nodes of a network one behind another.
const maxChain = 20_000

func (d *digester) value(name string) (string, error) {
	if s, ok := d.number[name]; ok || name == "" {
		return s, nil
	}
	if t, ok := d.model.Graph.Initializers[name]; ok {
		d.number[name] = fmt.Sprintf("constant %x", tensorDigest(t))
		return d.number[name], nil
	}
	n := d.maker[name]
	if n == nil {
		return "", fmt.Errorf("it reads %q, which is neither its input nor one of its constants", name)
	}
	if d.depth++; d.depth > maxChain {
		return "", fmt.Errorf("more than %d nodes one behind another", maxChain)
	}
	defer func() { d.depth-- }()
	line := []string{"node", n.Domain, n.Op, version(n, d.model)}
	for _, in := range n.Inputs {
		s, err := d.value(in)
		if err != nil {
			return "", err
		}
		line = append(line, "in", s)
	}
	var attrs []string
	for _, a := range n.Attrs {
		if a.Kind == onnx.AttrGraph || a.Kind == onnx.AttrGraphs || a.Kind == onnx.AttrTensors || a.Ref != "" {
			return "", fmt.Errorf("%s has an attribute %q of a kind that networks have no use for", n.Label(), a.Name)
		}
		attrs = append(attrs, attribute(a))
	}
	slices.Sort(attrs)
	if _, ok := d.at[n]; !ok {
		d.at[n] = len(d.at)
		d.text = append(d.text, append(line, attrs...)...)
	}
	for i, o := range n.Outputs {
		d.number[o] = fmt.Sprintf("node %d output %d", d.at[n], i)
	}
	return d.number[name], nil
}

// version returns the operator set that introduced the operator as the model means it; of an operator outside the standard, the
// set that the model imports.
func version(n *onnx.Node, m *onnx.Model) string {
	if s := op.Of(n, m.Opsets); s != nil {
		return fmt.Sprint(s.Since)
	}
	return fmt.Sprint(m.Opsets[n.Domain])
}

// tensorDigest returns the sha256 of a tensor's element type, shape and numbers.
func tensorDigest(t *onnx.Tensor) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%v %v\n", t.DType, t.Shape)
	if texts, ok := t.Data.([]string); ok {
		fmt.Fprintf(h, "%q", texts)
		return [sha256.Size]byte(h.Sum(nil))
	}
	const chunk = 1 << 12 // so that large tensors are not copied
	var buf []byte
	for v, i := reflect.ValueOf(t.Data), 0; i < v.Len(); i += chunk {
		buf, _ = binary.Append(buf[:0], binary.LittleEndian, v.Slice(i, min(i+chunk, v.Len())).Interface())
		h.Write(buf)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
