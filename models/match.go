package models

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"fmp/onnx"
)

// matching compares a part of a graph with the graph that this package builds for it, node by node,
// from outputs to inputs. Operators, attributes, wiring and constants must be equal; of parameters
// ([Parameters]) element type and shape must be, and their numbers are free. It defends an owner
// who did not make the graph: only the extractor may compute anything, and its digest is approved.
type matching struct {
	want, got           *onnx.Graph
	wantMaker, gotMaker map[string]*onnx.Node
	free                map[string]bool
	// bound maps the values of want to those of got.
	bound map[string]string
	// seen holds the nodes of got that have been compared.
	seen map[*onnx.Node]bool
}

// newMatching prepares the comparison of two graphs. maker has the nodes of got by their outputs.
// want is the graph that this package builds, and got the one of a stranger. seen may be replaced
// by the caller's, to collect the nodes of several comparisons.
func newMatching(want *onnx.Model, got *onnx.Graph, maker map[string]*onnx.Node) *matching {
	u := &matching{want: want.Graph, got: got, wantMaker: want.Graph.Makers(), gotMaker: maker,
		free:  map[string]bool{},
		bound: map[string]string{}, seen: map[*onnx.Node]bool{}}
	for _, name := range Parameters(want) {
		u.free[name] = true
	}
	return u
}

// value compares the nodes that compute a value of want with those that compute a value of got.
// Inputs of want are bound to any value. Each value of want is compared once, so that the time is
// linear in its nodes. The error names the first node that differs. Operands are compared in their
// order: an Add with its operands exchanged differs. It recurses as deep as want, which this
// package builds.
func (u *matching) value(want, got string) error {
	if to, ok := u.bound[want]; ok {
		if to != got {
			return fmt.Errorf("%s stands where %s is wanted, which other nodes read",
				u.describe(got), u.describe(to))
		}
		return nil
	}
	// It is bound before its inputs are compared, so that a value which several nodes read is
	// walked once.
	u.bound[want] = got
	if t, ok := u.want.Initializers[want]; ok {
		return u.constant(want, t, got)
	}
	n := u.wantMaker[want]
	if n == nil || want == "" { // an input, or an optional value left out
		if (want == "") != (got == "") {
			return fmt.Errorf("%s stands where %q is wanted", u.describe(got), want)
		}
		return nil
	}
	m := u.gotMaker[got]
	if m == nil {
		return fmt.Errorf("%s stands where %s is wanted", u.describe(got), operation(n))
	}
	if n.Op != m.Op || n.Domain != m.Domain || len(n.Outputs) != len(m.Outputs) ||
		operation(n) != operation(m) { // with the number of inputs
		return fmt.Errorf("%s is %s; want %s", m.Label(), operation(m), operation(n))
	}
	if slices.Index(n.Outputs, want) != slices.Index(m.Outputs, got) {
		return fmt.Errorf("%s: output %q is read, want another", m.Label(), got)
	}
	u.seen[m] = true
	for i, in := range n.Inputs {
		if err := u.value(in, m.Inputs[i]); err != nil {
			return err
		}
	}
	return nil
}

// constant compares an initializer. A parameter may be stored as float16 and converted. A parameter
// in float16 is bound to the Cast that widens it, which counts as compared. Other constants must be
// equal in every bit.
func (u *matching) constant(name string, want *onnx.Tensor, got string) error {
	if m := u.gotMaker[got]; m != nil && u.free[name] && m.Op == "Cast" && m.Domain == "" &&
		len(m.Inputs) == 1 {
		t := u.got.Initializers[m.Inputs[0]]
		if to, ok := m.Attr("to"); ok && t != nil && t.DType == onnx.Float16 &&
			onnx.DTypeOf(to.Int) == want.DType &&
			slices.Equal(t.Shape, want.Shape) {
			u.seen[m] = true
			return nil
		}
	}
	t := u.got.Initializers[got]
	switch {
	case t == nil:
		return fmt.Errorf("%s stands where a constant %v is wanted", u.describe(got), want)
	case t.DType != want.DType || !slices.Equal(t.Shape, want.Shape):
		return fmt.Errorf("the constant %q is %v; want %v", got, t, want)
	case !u.free[name] && tensorDigest(t) != tensorDigest(want):
		return fmt.Errorf("the constant %q has other numbers than the %v that is wanted", got, want)
	}
	return nil
}

// describe names a value and the node that computes it.
func (u *matching) describe(name string) string {
	if m := u.gotMaker[name]; m != nil {
		return fmt.Sprintf("%s with %s", m.Label(), operation(m))
	}
	if t, ok := u.got.Initializers[name]; ok {
		return fmt.Sprintf("the constant %q %v", name, t)
	}
	if _, ok := u.got.Input(name); ok {
		return fmt.Sprintf("the graph's input %q", name)
	}
	return fmt.Sprintf("%q, which nothing computes,", name)
}

// operation writes a node's operator with its attributes and the number of inputs. Equal texts are
// equal operations: attributes are in the order of their names, and floats have digits enough to
// tell them apart.
func operation(n *onnx.Node) string {
	var attrs []string
	for _, a := range n.Attrs {
		attrs = append(attrs, attribute(a))
	}
	slices.Sort(attrs)
	return fmt.Sprintf("%v(%s) of %d inputs", onnx.OpName{Domain: n.Domain, Name: n.Op},
		strings.Join(attrs, ", "), len(n.Inputs))
}

// attribute writes an attribute; of a tensor its digest. The kind is part of the text, so that 1
// and 1.0 differ.
func attribute(a onnx.Attr) string {
	var v any
	switch a.Kind {
	case onnx.AttrFloat:
		v = a.Float
	case onnx.AttrInt:
		v = a.Int
	case onnx.AttrString:
		v = fmt.Sprintf("%q", a.Str)
	case onnx.AttrFloats:
		v = a.Floats
	case onnx.AttrInts:
		v = a.Ints
	case onnx.AttrStrings:
		v = fmt.Sprintf("%q", a.Strs)
	case onnx.AttrTensor:
		v = fmt.Sprintf("%x", tensorDigest(a.Tensor))
	default:
		v = fmt.Sprintf("a value of kind %d", a.Kind)
	}
	return fmt.Sprintf("%s:%d=%v", a.Name, a.Kind, v)
}

// tensorDigest returns the sha256 of a tensor's element type, shape and numbers. Type and shape
// come first, so that tensors of equal bytes and other shapes differ. Elements are hashed in
// pieces, little-endian.
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
		buf, _ = binary.Append(buf[:0], binary.LittleEndian,
			v.Slice(i, min(i+chunk, v.Len())).Interface())
		h.Write(buf)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
