package serde

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
)

// openings are ways in which a file can say more than one reader reads of it, or otherwise than
// another reads it.
var openings = map[string]func(p *onnxpb.ModelProto){
	"an unknown field of the model": func(p *onnxpb.ModelProto) { unknown(p) },
	"an unknown field of the graph": func(p *onnxpb.ModelProto) { unknown(p.Graph) },
	"an unknown field of a node":    func(p *onnxpb.ModelProto) { unknown(p.Graph.Node[0]) },
	"an unknown field of a tensor":  func(p *onnxpb.ModelProto) { unknown(p.Graph.Initializer[0]) },
	"an unknown field of a type":    func(p *onnxpb.ModelProto) { unknown(p.Graph.Input[0].Type) },
	"an unknown field of a function": func(p *onnxpb.ModelProto) {
		p.Functions = []*onnxpb.FunctionProto{{}}
		unknown(p.Functions[0])
	},
	"a function": func(p *onnxpb.ModelProto) {
		p.Functions = []*onnxpb.FunctionProto{{Domain: "own", Name: "F", Input: []string{"x"},
			Output: []string{"y"},
			Node: []*onnxpb.NodeProto{{OpType: "Identity", Input: []string{"x"},
				Output: []string{"y"}}}}}
	},
	"a graph within a node": func(p *onnxpb.ModelProto) {
		attribute(p, &onnxpb.AttributeProto{Name: "then_branch", Type: int32(onnx.AttrGraph),
			G: &onnxpb.GraphProto{Name: "g"}})
	},
	"data in another file": func(p *onnxpb.ModelProto) {
		p.Graph.Initializer[0].RawData = nil
		elsewhere(p.Graph.Initializer[0])
	},
	"data here and in another file": func(p *onnxpb.ModelProto) { elsewhere(p.Graph.Initializer[0]) },
	"an attribute's data in another file": func(p *onnxpb.ModelProto) {
		t := &onnxpb.TensorProto{DataType: 1, Dims: []int64{1}}
		elsewhere(t)
		attribute(p, &onnxpb.AttributeProto{Name: "value", Type: int32(onnx.AttrTensor), T: t})
	},
	"a place without the mark of another file": func(p *onnxpb.ModelProto) {
		elsewhere(p.Graph.Initializer[0])
		p.Graph.Initializer[0].DataLocation = 0
	},
	"numbers that stand twice": func(p *onnxpb.ModelProto) {
		t := p.Graph.Initializer[0]
		t.FloatData = make([]float32, len(t.RawData)/4)
	},
	"numbers in a field of their own": func(p *onnxpb.ModelProto) {
		t := p.Graph.Initializer[0]
		t.FloatData, t.RawData = make([]float32, len(t.RawData)/4), nil
	},
	"bytes behind a tensor's end": func(p *onnxpb.ModelProto) {
		t := p.Graph.Initializer[0]
		t.RawData = append(t.RawData, 1)
	},
	"a truth value of 2": func(p *onnxpb.ModelProto) {
		p.Graph.Initializer[0].Dims, p.Graph.Initializer[0].DataType, p.Graph.Initializer[0].RawData =
			[]int64{1}, int32(onnx.Bool), []byte{2}
	},
	"bits behind a narrow tensor's end": func(p *onnxpb.ModelProto) {
		p.Graph.Initializer[0].Dims, p.Graph.Initializer[0].DataType, p.Graph.Initializer[0].RawData =
			[]int64{1}, int32(onnx.Int4), []byte{0x31}
	},
	"a tensor more": func(p *onnxpb.ModelProto) {
		p.Graph.Initializer = append(p.Graph.Initializer, p.Graph.Initializer[0])
	},
	"a sparse tensor": func(p *onnxpb.ModelProto) { p.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{{}} },
	"an operator set twice": func(p *onnxpb.ModelProto) {
		p.OpsetImport = append(p.OpsetImport, &onnxpb.OperatorSetIdProto{Version: 20})
	},
	"the domain's other name": func(p *onnxpb.ModelProto) { p.OpsetImport[0].Domain = "ai.onnx" },
	"a node in the domain's other name": func(p *onnxpb.ModelProto) {
		p.Graph.Node[0].Domain = "ai.onnx"
	},
	"metadata twice": func(p *onnxpb.ModelProto) {
		p.MetadataProps = append(p.MetadataProps, &onnxpb.StringStringEntryProto{Key: "k", Value: "1"},
			&onnxpb.StringStringEntryProto{Key: "k"})
	},
	"a constant that is an input": func(p *onnxpb.ModelProto) {
		t := p.Graph.Initializer[0]
		p.Graph.Input = append(p.Graph.Input, &onnxpb.ValueInfoProto{Name: t.Name})
	},
	"an attribute of two values": func(p *onnxpb.ModelProto) {
		attribute(p, &onnxpb.AttributeProto{Name: "a", Type: int32(onnx.AttrInt),
			I: proto.Int64(1),
			F: proto.Float32(2)})
	},
	"an attribute of no kind": func(p *onnxpb.ModelProto) {
		attribute(p, &onnxpb.AttributeProto{Name: "a", I: proto.Int64(1)})
	},
	"a size below 0": func(p *onnxpb.ModelProto) {
		p.Graph.Input[0].Type.TensorType.Shape.Dim[0].DimValue = proto.Int64(-1)
	},
	"a size and a name": func(p *onnxpb.ModelProto) {
		p.Graph.Input[0].Type.TensorType.Shape.Dim[1].DimParam = proto.String("n")
	},
	"a format of old": func(p *onnxpb.ModelProto) { p.IrVersion = 3 },
	"a part of a tensor": func(p *onnxpb.ModelProto) {
		p.Graph.Initializer[0].Segment = &onnxpb.TensorProto_Segment{}
	},
}

// edited returns a model's file with a change.
func edited(t testing.TB, data []byte, change func(p *onnxpb.ModelProto)) []byte {
	t.Helper()
	var p onnxpb.ModelProto
	must.Do(t, proto.Unmarshal(data, &p))
	change(&p)
	return must.Get(proto.Marshal(&p))(t)
}

func unknown(m proto.Message) {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1))
}

func elsewhere(t *onnxpb.TensorProto) {
	t.DataLocation = dataElsewhere
	t.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: "ward-1.key"}}
}

func attribute(p *onnxpb.ModelProto, a *onnxpb.AttributeProto) {
	p.Graph.Node[0].Attribute = append(p.Graph.Node[0].Attribute, a)
}

// TestClosed: what Marshal writes is one closed file; whatever is added that goes unread, or that
// two readers could read in two ways, is refused, and no other file is looked for.
func TestClosed(t *testing.T) {
	data := must.Get(Marshal(modeltest.Linear(t, "m", "image", "features", 2, 2)))(t)
	must.Get(Closed(data))(t)
	many := bytes.Repeat([]byte{14<<3 | 2, 0}, maxClosedParts+1) // entries of metadata
	must.Fail(Closed(append(many, data...)))(t, "parts", "a file of many parts")
	whole := func(map[string]string) bool { return true }
	for name, open := range openings {
		changed := edited(t, data, open)
		if _, err := Closed(changed); err == nil || strings.Contains(err.Error(), "no such file") {
			t.Errorf("%s: error %v", name, err)
		}
		for _, there := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "m.onnx")
			if there {
				must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(path), "ward-1.key"), make([]byte, 4096),
					0o600))
			}
			if _, err := LoadOwn(path, changed, whole, io.Discard); err == nil ||
				strings.Contains(err.Error(), "no such file") {
				t.Errorf("%s, the file there %v: error %v", name, there, err)
			}
		}
	}
}

// FuzzClosed: a model that is taken for one closed file is written as it was read, and read again
// as it was written.
func FuzzClosed(f *testing.F) {
	data := must.Get(Marshal(modeltest.Linear(f, "m", "image", "features", 2, 2)))(f)
	f.Add(data)
	for _, open := range openings {
		f.Add(edited(f, data, open))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Closed(data)
		if err != nil {
			return
		}
		again := must.Get(Marshal(m))(t)
		var p, q onnxpb.ModelProto
		if proto.Unmarshal(data, &p) != nil || proto.Unmarshal(again, &q) != nil || !proto.Equal(&p, &q) {
			t.Fatal("a closed file was written otherwise than it was read")
		}
		must.Get(Closed(again))(t)
		for _, n := range m.Graph.Nodes {
			for _, a := range n.Attrs {
				if a.Kind == onnx.AttrGraph || a.Kind == onnx.AttrGraphs {
					t.Fatal("a closed file holds a graph within a node")
				}
			}
		}
	})
}
