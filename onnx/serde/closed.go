package serde

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fmp/onnx"
	"fmp/onnx/onnxpb"
)

// Closed decodes a model that is one closed file: all of it lies in the data, and nothing in the
// data goes unread. [Marshal] must write the same message again, field by field, so that no reader
// finds more in it than this one: data in other files, unknown or unused fields, numbers that are
// stored twice or beyond a tensor's end, names and operator sets that are given twice, annotations.
// Functions of the model's own and graphs within nodes are refused.
func Closed(data []byte) (*onnx.Model, error) { return closed(data, decode) }

// ClosedOwn is [Closed] of data that the model takes over, as [LoadOwn] does.
func ClosedOwn(data []byte) (*onnx.Model, error) { return closed(data, decodeOwn) }

// closed takes the decoder of data that stays the caller's, or of data that the model takes over.
func closed(data []byte, decode func(data []byte, parts int) (*onnxpb.ModelProto, error)) (*onnx.Model,
	error) {
	p, err := decode(data, maxClosedParts)
	if err != nil {
		return nil, err
	}
	m, err := closedModel(p)
	if err != nil {
		return nil, fmt.Errorf("it is not one closed file, as fmp writes it: %w", err)
	}
	return m, nil
}

// closedModel looks for data elsewhere first, then for functions and graphs, and compares with the
// model written again last.
func closedModel(p *onnxpb.ModelProto) (*onnx.Model, error) {
	if what := outside(p.ProtoReflect()); what != "" {
		return nil, fmt.Errorf("%s", what)
	}
	m, err := modelFromProto(p)
	if err != nil {
		return nil, err
	}
	if len(m.Functions) > 0 {
		return nil, fmt.Errorf("it defines functions of its own")
	}
	for _, n := range m.Graph.Nodes {
		if len(n.Subgraphs()) > 0 {
			return nil, fmt.Errorf("%s holds a graph", n.Label())
		}
	}
	q, err := modelToProto(m)
	if err != nil {
		return nil, err
	}
	if where := difference(p, q); where != "" {
		return nil, fmt.Errorf("%s says more, or otherwise, than what is read of it: two readers could "+
			"take it for different models", where)
	}
	return m, nil
}

// outside describes a part of a message that lies in another file or in a field that is not read;
// "" where there is none.
func outside(p protoreflect.Message) (what string) {
	eachMessage(p, func(m protoreflect.Message) bool {
		t, ok := m.Interface().(*onnxpb.TensorProto)
		switch {
		case len(m.GetUnknown()) > 0:
			what = fmt.Sprintf("its %s has a field that is not read", m.Descriptor().Name())
		case ok && (t.DataLocation != 0 || len(t.ExternalData) > 0):
			what = fmt.Sprintf("the data of its tensor %q lies in another file, which is not read", t.Name)
		}
		return what == ""
	})
	return what
}

// difference names the part of a model in which two messages differ; "" where they are equal. It
// empties the messages. Parts are compared one by one, so that an error names the first that
// differs.
func difference(p, q *onnxpb.ModelProto) string {
	g, h := p.Graph, q.Graph
	for _, part := range []struct {
		name string
		at   int
	}{
		{"its node %d", first(g.Node, h.Node)},
		{"its initializer %d", first(g.Initializer, h.Initializer)},
		{"its input %d", first(g.Input, h.Input)}, {"its output %d", first(g.Output, h.Output)},
		{"what it says of value %d", first(g.ValueInfo, h.ValueInfo)},
		{"its operator set %d", first(p.OpsetImport, q.OpsetImport)},
		{"its metadata entry %d", first(p.MetadataProps, q.MetadataProps)},
	} {
		if part.at >= 0 {
			return fmt.Sprintf(part.name, part.at)
		}
	}
	// The parts that were compared are taken out and not compared again: the messages are not used
	// any more.
	for _, m := range []*onnxpb.ModelProto{p, q} {
		m.OpsetImport, m.MetadataProps = nil, nil
		g := m.Graph
		g.Node, g.Initializer, g.Input, g.Output, g.ValueInfo = nil, nil, nil, nil, nil
	}
	if !proto.Equal(p, q) {
		return "its head"
	}
	return ""
}

// first returns the place of the first message that another list does not have there, -1 where
// there is none.
func first[M proto.Message](p, q []M) int {
	for i := range max(len(p), len(q)) {
		if i >= len(p) || i >= len(q) || !proto.Equal(p[i], q[i]) {
			return i
		}
	}
	return -1
}
