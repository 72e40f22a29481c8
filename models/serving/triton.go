package serving

import (
	"fmt"
	"strings"

	"fmp/models"
	"fmp/onnx"
)

// tritonTypes are the names that Triton's model configuration has for element types. Types that
// classifiers do not have are left out.
var tritonTypes = map[onnx.DType]string{
	onnx.Bool: "TYPE_BOOL", onnx.Uint8: "TYPE_UINT8", onnx.Int32: "TYPE_INT32",
	onnx.Int64:   "TYPE_INT64",
	onnx.Float32: "TYPE_FP32", onnx.Float64: "TYPE_FP64",
}

// labelsFile holds the names of the classes in a model's folder, one a line.
const labelsFile = "labels.txt"

// tritonConfig returns config.pbtxt of a model, from its inputs and outputs: the text form of
// ModelConfig (github.com/triton-inference-server/common, protobuf/model_config.proto). Every
// tensor has the batch as its first axis, which dims leave out. labels says that the folder has
// [labelsFile]. Names are quoted as Go quotes them, and that of the model has been checked.
func tritonConfig(g *onnx.Graph, o Options, labels bool) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b,
		"name: %q\nbackend: \"onnxruntime\"\ndefault_model_filename: %q\nmax_batch_size: %d\n",
		o.Name, modelFile, o.Batch)
	for _, side := range []struct {
		field   string
		tensors []onnx.ValueInfo
	}{{"input", g.Inputs}, {"output", g.Outputs}} {
		for _, v := range side.tensors {
			if v.Name == models.ShiftOutput { // of a batch, which Triton makes of several requests
				continue
			}
			// The names of classes go with the one output that has a number for each of them.
			labelled := labels && v.Name == "probabilities"
			if err := tritonTensor(&b, side.field, v, labelled); err != nil {
				return nil, err
			}
		}
	}
	fmt.Fprintf(&b, "dynamic_batching { max_queue_delay_microseconds: %d }\n",
		o.Delay.Microseconds())
	kind := "KIND_CPU"
	if o.GPU {
		kind = "KIND_GPU"
	}
	fmt.Fprintf(&b,
		"instance_group [ { count: %d kind: %s } ]\n"+
			"version_policy { latest { num_versions: 1 } }\n", o.Instances, kind)
	return []byte(b.String()), nil
}

// tritonTensor writes an input or output. An unknown size is -1. A tensor of the batch axis alone
// has dims 1, and reshape takes that off again. The batch axis must be open, as Triton makes
// batches of its own size.
func tritonTensor(b *strings.Builder, field string, v onnx.ValueInfo, labels bool) error {
	typ, ok := tritonTypes[v.DType]
	if !ok || len(v.Shape) == 0 || v.Shape[0].IsKnown() {
		return fmt.Errorf(
			"%s %v; want a batch of any size as its first axis, of a type that Triton names",
			field, v)
	}
	var dims []string
	for _, d := range v.Shape[1:] {
		n := -1
		if d.IsKnown() {
			n = d.Size
		}
		dims = append(dims, fmt.Sprint(n))
	}
	reshape := ""
	if len(dims) == 0 { // dims may not be empty; the model's own shape is without the axis
		dims, reshape = []string{"1"}, " reshape { shape: [ ] }"
	}
	file := ""
	if labels {
		file = fmt.Sprintf(" label_filename: %q", labelsFile)
	}
	fmt.Fprintf(b, "%s [ { name: %q data_type: %s dims: [ %s ]%s%s } ]\n", field, v.Name, typ,
		strings.Join(dims, ", "), reshape, file)
	return nil
}
