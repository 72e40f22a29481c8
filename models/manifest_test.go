package models

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
	"fmp/onnx/serde"
)

func TestManifestRoundTrip(t *testing.T) {
	m := must.Get(NewPredictor(PredictorConfig{Dx: 4, C: 3}, 5))(t)
	m.Metadata["somebody"] = "else's"
	want := Manifest{
		Kind: KindPredictor, Dx: 4, C: 3, D: 71, Fresh: 50, Mean: []float32{0.1307},
		Std: []float32{0.3081}, Layout: "NCHW",
		Classes: []string{"a", "b", "c"}, Extractor: strings.Repeat("ab", 32), Licence: "MIT",
		TrainingData: "digits",
		Command:      "fmp train predictor", Seed: 1<<64 - 1, Config: "{}",
	}
	must.Do(t, want.Write(m))
	path := filepath.Join(t.TempDir(), "p.onnx")
	must.Do(t, serde.Save(path, m))
	read, got := must.Get2(Load(path))(t)
	want.Digest = must.Get(Digest(m))(t)
	want.Source = path
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the manifest changed on its way (-want +got):\n%s", diff)
	}
	if read.Metadata["somebody"] != "else's" {
		t.Error("another's metadata is gone")
	}
}

func TestManifestErrors(t *testing.T) {
	for key, v := range map[string]string{
		"fmp.dx": "-4", "fmp.seed": "x", "fmp.kind": "teapot", "fmp.layout": "CHWN", "fmp.std": "[0]",
		"fmp.mean": "[1]", "fmp.class_names": "{",
	} {
		m := onnx.NewModel(&onnx.Graph{})
		m.Metadata[key] = v
		if f, err := ReadManifest(m); err == nil {
			t.Errorf("%s = %q was read as %+v", key, v, f)
		}
	}
}

func TestMatch(t *testing.T) {
	x, y := strings.Repeat("1", 64), strings.Repeat("2", 64)
	predictor := Manifest{Kind: KindPredictor, Source: "p.onnx", Dx: 64, C: 10, Extractor: x}
	for _, c := range []struct {
		with Manifest
		want []string // what the error names; none for a match
	}{
		{Manifest{Kind: KindExtractor, Dx: 64, Digest: x}, nil},
		{Manifest{Digest: x}, nil},
		{Manifest{Kind: KindEmbedding, Dx: 64, C: 10, Extractor: x, Digest: y}, nil},
		{Manifest{Kind: KindEmbedding, Dx: 64, C: 10}, nil},
		{Manifest{Kind: KindEmbedding, Source: "e.onnx", Dx: 32, C: 10},
			[]string{"p.onnx", "64", "e.onnx", "32"}},
		{Manifest{Kind: KindEmbedding, Source: "e.onnx", Dx: 64, C: 20},
			[]string{"p.onnx", "10", "e.onnx", "20"}},
		{Manifest{Kind: KindExtractor, Source: "x.onnx", Dx: 64, Digest: y},
			[]string{"p.onnx", "111", "x.onnx", "222"}},
		{Manifest{Kind: KindEmbedding, Source: "e.onnx", Dx: 64, C: 10, Extractor: y},
			[]string{"p.onnx", "111", "e.onnx", "222"}},
	} {
		for _, err := range []error{Match(predictor, c.with), Match(c.with, predictor)} {
			if (err == nil) != (c.want == nil) {
				t.Errorf("match with %+v: %v", c.with, err)
				continue
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not name %q", err, w)
				}
			}
		}
	}
}

// FuzzManifest: a manifest that is read can be written and is then read the same, and takes at most
// 400 bytes of memory for each byte of its metadata.
func FuzzManifest(f *testing.F) {
	f.Add("extractor", "64", "10", "NHWC", "[0.5]", "[0.25]", `["a","b"]`, "7")
	f.Add("client", "-1", "99999999999999999999", "", "[]", "null", "[1]", "x")
	f.Add("", "", "3", "NCHW", "[0.1,0.2,0.3]", "[1,1,1e-45]", `["a","b","c"]`, "18446744073709551615")
	f.Add("predictor", "1", "1", "QQ", "[1e999]", "[0]", `[[[[[[[`, "0")
	f.Fuzz(func(t *testing.T, kind, dx, classes, layout, mean, std, names, seed string) {
		m := &onnx.Model{Metadata: map[string]string{}}
		size := 0
		for k, v := range map[string]string{"kind": kind, "dx": dx, "classes": classes, "layout": layout,
			"mean": mean, "std": std,
			"class_names": names, "seed": seed} {
			m.Metadata[keyPrefix+k] = v
			size += len(v)
		}
		var a Manifest
		var err error
		alloctest.AtMost(t, 400*size, func() { a, err = ReadManifest(m) })
		if err != nil {
			return
		}
		again := &onnx.Model{}
		if err := a.Write(again); err != nil {
			t.Fatalf("read and not written: %v", err)
		}
		b, err := ReadManifest(again)
		if err != nil {
			t.Fatalf("written and not read: %v", err)
		}
		if diff := cmp.Diff(a, b, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the manifest changed on its way:\n%s", diff)
		}
		_ = Match(a, b)
	})
}

// TestDigestBeside: the digest of a model is that of its file and of the tensors in files beside it,
// in the order of their places there, wherever the model has them; it is the file's of one that has
// none.
func TestDigestBeside(t *testing.T) {
	elsewhere := func(name, location, offset string) *onnxpb.TensorProto {
		return &onnxpb.TensorProto{Name: name, DataType: int32(onnx.Uint8), Dims: []int64{3}, DataLocation: 1,
			ExternalData: []*onnxpb.StringStringEntryProto{{Key: "location", Value: location},
				{Key: "offset", Value: offset}, {Key: "length", Value: "3"}}}
	}
	constant := &onnxpb.NodeProto{OpType: "Constant", Output: []string{"c"}, Attribute: []*onnxpb.AttributeProto{
		{Name: "value", Type: int32(onnx.AttrTensor), T: elsewhere("", "a", "0")}}}
	for name, c := range map[string]struct {
		graph  *onnxpb.GraphProto
		beside string
	}{
		"none": {&onnxpb.GraphProto{}, ""},
		"weights": {&onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{elsewhere("v", "b", "0"),
			elsewhere("w", "a", "4")}}, "567uvw"},
		"a constant": {&onnxpb.GraphProto{Node: []*onnxpb.NodeProto{constant}}, "123"},
		"all": {&onnxpb.GraphProto{Node: []*onnxpb.NodeProto{constant}, Initializer: []*onnxpb.TensorProto{
			elsewhere("v", "b", "0"), elsewhere("w", "a", "4")}}, "123567uvw"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "m.onnx")
			c.graph.Name = "m"
			data := must.Get(proto.Marshal(&onnxpb.ModelProto{IrVersion: 8, Graph: c.graph,
				OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 17}}}))(t)
			must.Do(t, errors.Join(os.WriteFile(path, data, 0o600),
				os.WriteFile(filepath.Join(dir, "a"), []byte("1234567"), 0o600),
				os.WriteFile(filepath.Join(dir, "b"), []byte("uvw"), 0o600)))
			want := DigestBytes(append(data, c.beside...))
			if _, f, err := Load(path); err != nil || f.Digest != want {
				t.Errorf("the digest is %s, %v, want %s", f.Digest, err, want)
			}
		})
	}
}

// TestDigestFile: the digest of a file's first bytes is that of the standard's example.
func TestDigestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	must.Do(t, os.WriteFile(path, []byte("abcd"), 0o600))
	// of FIPS 180-2
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got, err := DigestFile(path, 3); err != nil || got != abc {
		t.Errorf("the digest of the first three bytes is %s, %v", got, err)
	}
	if got, err := DigestFile(path, 9); err != nil || got == abc {
		t.Errorf("the digest of all bytes is %s, %v", got, err)
	}
	must.Fail(DigestFile(filepath.Dir(path), 9))(t, "", "a folder has a digest")
}
