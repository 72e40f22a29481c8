package serving

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// classifier returns the file of a classifier of rows of 3 features, with 2 heads of the classes
// given.
func classifier(t *testing.T, classes ...string) []byte {
	t.Helper()
	heads := make([]float64, 2*4*len(classes))
	for i := range heads {
		heads[i] = float64(i%5) / 3
	}
	m := must.Get(models.NewClassifier(
		models.ClassifierParts{Heads: onnx.NewTensor(heads, 2, 4, len(classes)), Samples: true},
		models.Manifest{Classes: classes, Licence: "CC-BY-4.0", TrainingData: "none",
			Extractor: strings.Repeat("ab", 32)}))(t)
	return must.Get(serde.Marshal(m))(t)
}

func options() Options {
	return Options{Name: "birds", Version: "3", Batch: 16, Instances: 2,
		Delay: 1500 * time.Microsecond,
		Card:  []byte("# Birds\n"), Signature: []byte("{}")}
}

// written returns the folder of a package.
func written(t *testing.T, data []byte, o Options) (string, *Package) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "package")
	p := must.Get(Write(dir, data, o))(t)
	return dir, p
}

// modelConfig returns an empty message with the fields of Triton's ModelConfig that a configuration
// here may have, so that any other name, and a value of another type, is refused.
func modelConfig(t *testing.T) *dynamicpb.Message {
	t.Helper()
	// A type in lower case is a scalar; another is an enumeration of these, or a message. [] is for
	// a repeated field.
	enums := map[string][]string{
		"DataType": {"TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_INT32", "TYPE_INT64",
			"TYPE_FP32", "TYPE_FP64"},
		"Kind": {"KIND_AUTO", "KIND_GPU", "KIND_CPU"},
	}
	tensor := []string{"name string", "data_type DataType", "dims []int64", "label_filename string",
		"reshape ModelTensorReshape"}
	messages := map[string][]string{
		"ModelTensorReshape": {"shape []int64"}, "ModelInput": tensor, "ModelOutput": tensor,
		"ModelDynamicBatching": {"preferred_batch_size []int32", "max_queue_delay_microseconds uint64",
			"preserve_ordering bool"},
		"ModelInstanceGroup": {"count int32", "kind Kind"}, "Latest": {"num_versions uint32"},
		"ModelVersionPolicy": {"latest Latest"},
		"ModelConfig": {"name string", "backend string", "version_policy ModelVersionPolicy",
			"max_batch_size int32", "input []ModelInput", "output []ModelOutput",
			"dynamic_batching ModelDynamicBatching", "instance_group []ModelInstanceGroup",
			"default_model_filename string"},
	}
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("model_config.proto"), Package: proto.String("inference"),
		Syntax: proto.String("proto3"),
	}
	for name, values := range enums {
		e := &descriptorpb.EnumDescriptorProto{Name: &name}
		for i, v := range values {
			e.Value = append(e.Value,
				&descriptorpb.EnumValueDescriptorProto{Name: &v, Number: proto.Int32(int32(i))})
		}
		file.EnumType = append(file.EnumType, e)
	}
	for name, fields := range messages {
		m := &descriptorpb.DescriptorProto{Name: &name}
		for i, field := range fields {
			name, of, _ := strings.Cut(field, " ")
			f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: proto.Int32(int32(i + 1))}
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
			if strings.HasPrefix(of, "[]") {
				of, f.Label = of[2:], descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			}
			if v, ok := descriptorpb.FieldDescriptorProto_Type_value["TYPE_"+strings.ToUpper(of)]; ok {
				f.Type = descriptorpb.FieldDescriptorProto_Type(v).Enum()
			} else if f.TypeName = proto.String(".inference." + of); enums[of] != nil {
				f.Type = descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum()
			} else {
				f.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
			}
			m.Field = append(m.Field, f)
		}
		file.MessageType = append(file.MessageType, m)
	}
	d := must.Get(protodesc.NewFile(file, nil))(t)
	return dynamicpb.NewMessage(d.Messages().ByName("ModelConfig"))
}

// TestTriton: the configuration is one of Triton's, and says of every input and output what the
// graph says.
func TestTriton(t *testing.T) {
	data := classifier(t, "wren", "robin")
	dir, p := written(t, data, options())
	text := must.Get(os.ReadFile(filepath.Join(p.Repository, "birds", "config.pbtxt")))(t)
	m := modelConfig(t)
	if err := prototext.Unmarshal(text, m); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want := dynamicpb.NewMessage(m.Descriptor())
	must.Do(t, prototext.Unmarshal([]byte(`name: "birds" backend: "onnxruntime" default_model_filename: "model.onnx" max_batch_size: 16
		input { name: "features" data_type: TYPE_FP32 dims: 3 }
		output { name: "probabilities" data_type: TYPE_FP32 dims: 2 label_filename: "labels.txt" }
		output { name: "entropy" data_type: TYPE_FP32 dims: 1 reshape { } }
		output { name: "mutual_information" data_type: TYPE_FP32 dims: 1 reshape { } }
		output { name: "samples" data_type: TYPE_FP32 dims: 2 dims: 2 }
		dynamic_batching { max_queue_delay_microseconds: 1500 } instance_group { count: 2 kind: KIND_CPU }
		version_policy { latest { num_versions: 1 } }`), want))
	if !proto.Equal(m, want) {
		t.Errorf("the configuration is\n%s", text)
	}
	got, err := os.ReadFile(filepath.Join(dir, "triton", "birds", "3", "model.onnx"))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("the model in the repository is another: %v", err)
	}
	if names, err := os.ReadFile(filepath.Join(dir, "triton", "birds", "labels.txt")); err != nil ||
		string(names) != "wren\nrobin\n" {
		t.Errorf("labels %q: %v", names, err)
	}
}

// strict decodes JSON into a structure of the specification, without fields that it lacks.
func strict(t *testing.T, data []byte, to any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
}

// TestLayout: ORAS resolves the image by its tag, copies it whole with its documents, digest by
// digest, and the image's layer has the repository.
func TestLayout(t *testing.T) {
	ctx := t.Context()
	dir, p := written(t, classifier(t, "wren", "robin"), options())
	from := must.Get(oci.New(p.Layout))(t)
	to := must.Get(oci.New(t.TempDir()))(t)
	image := must.Get(oras.ExtendedCopy(ctx, from, "3", to, "3", oras.DefaultExtendedCopyOptions))(t)
	referrers := must.Get(to.Predecessors(ctx, image))(t)
	documents := map[string]string{}
	for _, r := range referrers {
		data := must.Get(content.FetchAll(ctx, to, r))(t)
		var m v1.Manifest
		strict(t, data, &m)
		documents[m.ArtifactType] = m.Layers[0].Annotations[v1.AnnotationTitle]
		if m.Subject.Digest != image.Digest || m.Layers[0].MediaType != m.ArtifactType {
			t.Errorf("a referrer of %s with a layer %s", m.Subject.Digest, m.Layers[0].MediaType)
		}
		a, err := content.FetchAll(ctx, to, m.Layers[0])
		if b, err2 := os.ReadFile(filepath.Join(dir, documents[m.ArtifactType])); err != nil ||
			err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs from the file: %v, %v", m.ArtifactType, err, err2)
		}
	}
	want := map[string]string{typeSBOM: "sbom.cdx.json", typeCard: "card.md",
		typeSignature: "model.onnx.sig"}
	if !maps.Equal(documents, want) {
		t.Errorf("documents %v, want %v", documents, want)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		d := must.Get(oras.Resolve(ctx, to, "3",
			oras.ResolveOptions{TargetPlatform: &v1.Platform{OS: "linux", Architecture: arch}}))(t)
		var m v1.Manifest
		var c v1.Image
		for _, step := range []struct {
			of v1.Descriptor
			to any
		}{{d, &m}, {v1.Descriptor{}, &c}} {
			if step.of.Digest == "" {
				step.of = m.Config
			}
			data := must.Get(content.FetchAll(ctx, to, step.of))(t)
			strict(t, data, step.to)
		}
		if c.Architecture != arch || len(m.Layers) != 1 || len(c.RootFS.DiffIDs) != 1 ||
			c.RootFS.DiffIDs[0] != m.Layers[0].Digest {
			t.Errorf("configuration %+v of layers %v", c, m.Layers)
		}
		data := must.Get(content.FetchAll(ctx, to, m.Layers[0]))(t)
		if got, want := untar(t, data), tree(t, p.Repository); !maps.Equal(got, want) {
			t.Errorf("the layer has %d files, the repository %d, or they differ", len(got), len(want))
		}
	}
}

// untar returns the files of an archive by their paths under models.
func untar(t *testing.T, data []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content := must.Get(io.ReadAll(r))(t)
		if h.Typeflag == tar.TypeReg {
			out[strings.TrimPrefix(h.Name, "models/")] = string(content)
		}
	}
}

// tree returns the files of a folder.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must.Do(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		out[path] = string(data)
		return err
	}))
	return out
}

// TestWhole: equal input gives equal bytes; what cannot be written leaves the place as it was.
func TestWhole(t *testing.T) {
	data := classifier(t, "a", "b")
	first, _ := written(t, data, options())
	second, _ := written(t, data, options())
	if !maps.Equal(tree(t, first), tree(t, second)) {
		t.Error("the same classifier gives two packages")
	}
	parent := filepath.Dir(first)
	for _, name := range []string{".again.fmp-package-1.tmp", ".other.fmp-package-1.tmp"} {
		killed, old := filepath.Join(parent, name), time.Now().Add(-2*time.Hour)
		must.Do(t, os.Mkdir(killed, 0o700))
		must.Do(t, os.Chtimes(killed, old, old))
	}
	must.Get(Write(filepath.Join(parent, "again"), data, options()))(t)
	if left, _ := filepath.Glob(filepath.Join(parent, ".*")); len(left) != 1 || filepath.Base(left[0])[:7] != ".other." {
		t.Errorf("left %v; want that of another package", left)
	}
	before := tree(t, first)
	must.Fail(Write(first, data, options()))(t, "has files", "written over a package")
	if !maps.Equal(before, tree(t, first)) {
		t.Error("a refused package changed the one that was there")
	}
	f := models.Manifest{Kind: models.KindExtractor, Dx: 2}
	m, err := serde.Unmarshal(data)
	if err == nil {
		err = f.Write(m)
	}
	other, err2 := serde.Marshal(m)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for name, c := range map[string]struct {
		data  []byte
		spoil func(*Options)
	}{
		"want the classifier": {other, func(*Options) {}},
		"name \"a/b\"":        {data, func(o *Options) { o.Name = "a/b" }},
		"name \"..\"":         {data, func(o *Options) { o.Name = ".." }},
		"version \"01\"":      {data, func(o *Options) { o.Version = "01" }},
		"version \"0\"":       {data, func(o *Options) { o.Version = "0" }},
		"batch 0":             {data, func(o *Options) { o.Batch = 0 }},
		"0 instances":         {data, func(o *Options) { o.Instances = 0 }},
		"delay 2s":            {data, func(o *Options) { o.Delay = 2 * time.Second }},
		"onnx":                {[]byte("no model"), func(*Options) {}},
	} {
		o := options()
		c.spoil(&o)
		parent := t.TempDir()
		if _, err := Write(filepath.Join(parent, "p"), c.data, o); err == nil ||
			!strings.Contains(strings.ToLower(err.Error()), name) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(parent); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}
