package message_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fmp/onnx/alloctest"
	"fmp/onnx/message"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
)

// field is one field that holds bytes.
func field(num protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), value)
}

// Numbers of fields in onnx.proto: TensorProto.dims, and the path to it from a model.
const dims, attributeTensor, nodeAttribute, graphNode, modelGraph = 1, 5, 5, 1, 7

func TestPieces(t *testing.T) {
	piece := field(dims, []byte{1, 2})
	deep := func(tensor []byte) []byte {
		return field(modelGraph, field(graphNode, field(nodeAttribute, field(attributeTensor, tensor))))
	}
	const pieces = 16 // that the package allows
	many := bytes.Repeat(piece, pieces)
	for name, c := range map[string]struct {
		data []byte
		into proto.Message
		good bool
	}{
		"one":                     {piece, &onnxpb.TensorProto{}, true},
		"as many as there may be": {many, &onnxpb.TensorProto{}, true},
		"one more":                {append(many[:len(many):len(many)], piece...), &onnxpb.TensorProto{}, false},
		"values that are not packed": {
			bytes.Repeat(protowire.AppendVarint(protowire.AppendTag(nil, dims, protowire.VarintType), 3),
				1000), &onnxpb.TensorProto{}, true},
		"in a tensor of a model": {deep(append(many[:len(many):len(many)], piece...)),
			&onnxpb.ModelProto{}, false},
		"in a tensor that is merged": {field(modelGraph,
			field(graphNode, field(nodeAttribute, bytes.Repeat(field(attributeTensor, piece), pieces+1)))),
			&onnxpb.ModelProto{}, false},
		"in as many nodes, one each": {field(modelGraph,
			bytes.Repeat(field(graphNode, field(nodeAttribute, field(attributeTensor, piece))), 1000)),
			&onnxpb.ModelProto{}, true},
		"of a field that is bytes": {bytes.Repeat(field(9, []byte("raw")), 1000),
			&onnxpb.TensorProto{}, true},
		"of a field that nobody knows of": {bytes.Repeat(field(999, []byte("?")), 1000),
			&onnxpb.TensorProto{}, true},
	} {
		err := message.Unmarshal(c.data, c.into, 0)
		if (err == nil) != c.good || err != nil &&
			!strings.Contains(err.Error(), "onnx.TensorProto.dims comes in more than 16 pieces") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Lists in pieces took the square of their length: this one a minute and 300 GB.
func TestPiecesTakeNothing(t *testing.T) {
	data := bytes.Repeat(field(dims, []byte{1}), 300_000)
	began := time.Now()
	alloctest.AtMost(t, 0, func() {
		if message.Unmarshal(data, &onnxpb.TensorProto{}, 0) == nil {
			t.Error("300,000 pieces passed")
		}
	})
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestDepth(t *testing.T) {
	// Attribute g (6) holds a graph, whose nodes hold attributes.
	m := func(depth int) []byte {
		var graph []byte
		for range depth {
			graph = field(graphNode, field(nodeAttribute, field(6, graph)))
		}
		return field(modelGraph, graph)
	}
	for _, c := range []struct {
		graphs, depth int
		good          bool
	}{{30, 0, true}, {40, 0, false}, {40, 200, true}, {80, 200, false}} {
		if err := message.Unmarshal(m(c.graphs), &onnxpb.ModelProto{}, c.depth); (err == nil) != c.good {
			t.Errorf("%d graphs in each other, %d messages allowed: %v", c.graphs, c.depth, err)
		}
	}
}

// FuzzUnmarshal: what the library decodes is decoded alike, or it is in pieces; and it takes at
// most 400 bytes of memory for each byte.
func FuzzUnmarshal(f *testing.F) {
	f.Add(bytes.Repeat(field(dims, []byte{1}), 20))
	f.Add(field(modelGraph, field(graphNode,
		field(nodeAttribute, field(attributeTensor, field(dims, []byte{1, 2}))))))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, into := range []func() proto.Message{func() proto.Message { return &onnxpb.TensorProto{} },
			func() proto.Message { return &onnxpb.ModelProto{} }} {
			got, want := into(), into()
			var err error
			alloctest.AtMost(t, 400*len(data), func() { err = message.Unmarshal(data, got, 0) })
			if len(data) > 4096 {
				continue // the library's own way may be too long
			}
			plain := proto.Unmarshal(data, want)
			switch {
			case err == nil && (plain != nil || !proto.Equal(got, want)):
				t.Errorf("read %v, and the library %v (%v)", got, want, plain)
			case err != nil && plain == nil && !strings.Contains(fmt.Sprint(err), "pieces"):
				t.Errorf("the library reads what fails with %v", err)
			}
		}
	})
}

// TestParts: data of many small parts, which take hundreds of times their size in memory, are
// refused before they are decoded.
func TestParts(t *testing.T) {
	const most = 1000
	for name, part := range map[string][]byte{
		"nodes":    field(modelGraph, field(graphNode, nil)),
		"names":    field(modelGraph, field(graphNode, field(1, nil))),
		"metadata": field(14, nil), "texts": field(6, nil),
	} {
		if err := message.Within(bytes.Repeat(part, most/4), &onnxpb.ModelProto{}, 0, most); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		data := bytes.Repeat(part, 200*most)
		alloctest.AtMost(t, 1<<16, func() {
			must.Fail(message.Within(data, &onnxpb.ModelProto{}, 0, most))(t, "more than 1000 parts", name)
		})
	}
	for bytes, good := range map[int]bool{8 * (most - 10): true, 8 * (most + 10): false} {
		if err := message.Within(field(dims, make([]byte, bytes)), &onnxpb.TensorProto{}, 0,
			most); (err == nil) != good {
			t.Errorf("a list of %d bytes: %v", bytes, err)
		}
	}
	// float_data
	must.Do(t, message.Within(field(4, make([]byte, 40*most)), &onnxpb.TensorProto{}, 0, most))
}
