package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
)

// withExternal writes a model whose first constant lies in the file ward-1.key beside it.
func withExternal(t *testing.T, path string, change func(p *onnxpb.ModelProto)) string {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	var p onnxpb.ModelProto
	must.Do(t, proto.Unmarshal(data, &p))
	w := p.Graph.Initializer[0]
	w.Dims, w.DataType, w.RawData, w.DataLocation = []int64{137}, int32(onnx.Uint8), nil,
		onnxpb.TensorProto_EXTERNAL
	w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: "ward-1.key"}}
	if change != nil {
		change(&p)
	}
	data = must.Get(proto.Marshal(&p))(t)
	to := filepath.Join(t.TempDir(), "model.onnx")
	write(t, to, data)
	return to
}

// TestNoOtherFile: a model that names the key file beside it is refused before that is opened,
// whatever it says that it is.
func TestNoOtherFile(t *testing.T) {
	images := photosOf(t, 10)
	kindless := func(p *onnxpb.ModelProto) { p.MetadataProps = nil }
	twice := func(p *onnxpb.ModelProto) {
		p.MetadataProps = append(p.MetadataProps,
			&onnxpb.StringStringEntryProto{Key: "fmp.kind", Value: models.KindExtractor})
	}
	for name, c := range map[string]struct {
		model  string
		change func(p *onnxpb.ModelProto)
		args   []string
	}{
		"client graph": {model(t, models.KindClient), nil,
			[]string{"compress", "--client", "a"}},
		"client graph without a kind": {model(t, models.KindClient), kindless,
			[]string{"compress", "--client", "a"}},
		"client graph of two kinds": {model(t, models.KindClient), twice,
			[]string{"compress", "--client", "a"}},
		"classifier":              {classifier(t), nil, []string{"predict"}},
		"client graph, inspected": {model(t, models.KindClient), nil, []string{"inspect"}},
	} {
		path := withExternal(t, c.model, c.change)
		for _, there := range []bool{false, true} {
			if there {
				write(t, filepath.Join(filepath.Dir(path), "ward-1.key"), make([]byte, 137))
			}
			args, out := c.args, filepath.Join(t.TempDir(), "upload")
			switch args[0] {
			case "inspect":
				args = []string{"inspect", path}
			case "compress":
				args = append(args[:3:3], "-o", out, "--model", path, images)
			default:
				args = append(args[:1:1], "--model", path, images)
			}
			code, log := said(t, args...)
			if _, err := os.Stat(out); code == exitOK || err == nil ||
				!strings.Contains(log, "lies in another file, which is not read") {
				t.Errorf("%s, the key there %v: exit code %d, %s", name, there, code, log)
			}
		}
	}
}

// TestBombClassifier: a classifier that takes much work is refused before an image is read, and
// nothing is printed of it.
func TestBombClassifier(t *testing.T) {
	images := photosOf(t, 3)
	m, _ := must.Get2(models.Load(classifier(t)))(t)
	g := m.Graph
	for _, n := range g.Nodes {
		for i, o := range n.Outputs {
			if o == "probabilities" {
				n.Outputs[i] = "honest"
			}
		}
		for i, in := range n.Inputs {
			if in == "probabilities" {
				n.Inputs[i] = "honest"
			}
		}
	}
	node := func(op, out string, in ...string) {
		g.Nodes = append(g.Nodes,
			&onnx.Node{Name: "bomb/" + out, Op: op, Inputs: in, Outputs: []string{out}})
	}
	g.Initializers["bomb/side"], g.Initializers["bomb/axis"] = onnx.Vector[int64](1, 12_000, 12_000),
		onnx.Vector[int64](0)
	node("ReduceMean", "one", "honest")
	node("Expand", "wide", "one", "bomb/side")
	node("MatMul", "product", "wide", "wide")
	node("ReduceMean", "mean", "product")
	node("Squeeze", "flat", "mean", "bomb/axis")
	node("Add", "probabilities", "honest", "flat")
	refuses(t, exitUsage, "multiply-adds", "predict", "--model", saved(t, m), images)
}
