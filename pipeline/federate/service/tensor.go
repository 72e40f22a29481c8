package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"fmp/featurize/imagefile"
	"fmp/onnx"
	"fmp/pipeline/classify"
	"fmp/pipeline/federate/store"
)

// headerLength is the header with the length of the JSON that precedes binary tensors.
// Its value is a decimal number of bytes.
const headerLength = "Inference-Header-Content-Length"

// tensor is a tensor of the protocol, its data as JSON or, in Binary, as bytes that follow the
// JSON.
// Shape is of images [n, height, width, channels], of features [n, dx]. A request has either Data
// or Binary.
// Images are row-major with the channels last, 0 to 255.
type tensor struct {
	Name       string          `json:"name"`
	Shape      bounded[int64]  `json:"shape"`
	Datatype   string          `json:"datatype"`
	Parameters *binarySize     `json:"parameters,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	Binary     []byte          `json:"-"`
}

// binarySize is the parameter of a tensor in bytes; nil where its data are JSON.
// Bytes is a pointer, so that 0 bytes differ from no size.
type binarySize struct {
	Bytes *int64 `json:"binary_data_size,omitempty"`
}

// UnmarshalJSON refuses parameters that are not heeded, such as a region of shared memory: the data
// beside them would not be the ones that were meant.
func (p *binarySize) UnmarshalJSON(text []byte) error {
	type plain binarySize
	return parameters(text, (*plain)(p), "an input", "binary_data_size")
}

// parameters decodes the parameters of a tensor or a request, which have one alone.
func parameters(text []byte, to any, of, has string) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("parameters of %s: %w; there is %s", of, err, has)
	}
	return nil
}

// inferRequest is a request for inference.
// Fields beside these are ignored, as encoding/json does it.
type inferRequest struct {
	ID         string                   `json:"id"`
	Parameters requestParameters        `json:"parameters"`
	Inputs     bounded[tensor]          `json:"inputs"`
	Outputs    bounded[requestedOutput] `json:"outputs"`

	decoding *intake // memory of one image while it is resized
}

// requestParameters are those of the whole request.
type requestParameters struct {
	Binary bool `json:"binary_data_output"` // outputs are binary unless they say otherwise
}

// UnmarshalJSON refuses parameters that are not heeded, such as Triton's priority, timeout and
// sequence_id: Triton's clients send them only where a caller sets them.
func (p *requestParameters) UnmarshalJSON(text []byte) error {
	type plain requestParameters
	return parameters(text, (*plain)(p), "the request", "binary_data_output")
}

// bounded is a list of at most maxOutputs elements: empty ones of JSON would take a hundred times
// their text.
// It bounds inputs, outputs and axes.
type bounded[T any] []T

// UnmarshalJSON counts the commas of the list, outside of texts and inner lists, before it takes
// memory.
// encoding/json passes it valid JSON, so that brackets match. It costs O(bytes).
func (l *bounded[T]) UnmarshalJSON(text []byte) error {
	depth, quoted, n := 0, false, 0 // commas of the list itself
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	if n >= maxOutputs {
		return fmt.Errorf("a list of %d elements; allowed are %d", n+1, maxOutputs)
	}
	return json.Unmarshal(text, (*[]T)(l))
}

// requestedOutput is an output that a request names. Without any all are sent.
type requestedOutput struct {
	Name       string           `json:"name"`
	Parameters outputParameters `json:"parameters"`
}

// outputParameters say whether an output is sent in bytes; nil is as the request says.
type outputParameters struct {
	Binary *bool `json:"binary_data"`
}

// UnmarshalJSON refuses parameters that are not heeded, such as Triton's classification: the answer
// would not be the one that was asked for.
func (p *outputParameters) UnmarshalJSON(text []byte) error {
	type plain outputParameters
	return parameters(text, (*plain)(p), "an output", "binary_data")
}

// parseInfer parses a request: JSON, then the binary data of the inputs that state a size, in their
// order.
// Every byte after the JSON must be some input's. Tensors share the memory of the body, and their
// capacity ends with them.
// The header's number counts from the first byte of the body. Sizes are compared with the bytes
// that came, so that no size takes memory.
func parseInfer(body []byte, header http.Header) (*inferRequest, error) {
	if e := header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, fmt.Errorf("Content-Encoding is %.20q; send the request as it is", e)
	}
	text, rest := body, []byte(nil)
	if h := header.Get(headerLength); h != "" {
		n, err := strconv.ParseUint(h, 10, 31)
		if err != nil || n > uint64(len(body)) {
			return nil,
				fmt.Errorf("%s is %.20q; want the length of the JSON, up to the %d bytes of the "+
					"body", headerLength, h, len(body))
		}
		text, rest = body[:n], body[n:]
	}
	req := &inferRequest{}
	if err := json.Unmarshal(text, req); err != nil {
		return nil, err
	}
	for i := range req.Inputs {
		in := &req.Inputs[i]
		if in.Parameters == nil || in.Parameters.Bytes == nil {
			continue
		}
		n := *in.Parameters.Bytes
		if n < 0 || n > int64(len(rest)) || in.Data != nil {
			return nil, fmt.Errorf("%.40q has binary_data_size %d; %d bytes follow the "+
				"JSON, and there may be no data beside them", in.Name, n, len(rest))
		}
		// A third index keeps an append to one tensor out of the next.
		in.Binary, rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes follow the JSON that no input's binary_data_size "+
			"accounts for", len(rest))
	}
	return req, req.check()
}

// check checks the names of inputs and outputs.
// A request of gRPC is checked by it too. Types and shapes wait until the classifier is known.
func (q *inferRequest) check() error {
	if len(q.Inputs) != 1 || (q.Inputs[0].Name != "images" && q.Inputs[0].Name != "features") {
		return fmt.Errorf("%d inputs; want one, images or features", len(q.Inputs))
	}
	for _, o := range q.Outputs {
		if !slices.Contains(inferOutputs, o.Name) {
			return fmt.Errorf("output %.40q is not known; there are %v", o.Name, inferOutputs)
		}
	}
	return nil
}

// rows reports whether the input is feature rows.
func (q *inferRequest) rows() bool { return q.Inputs[0].Name == "features" }

// build makes the classifier's input.
// It returns images as a source, or rows as a tensor [n, dx]; the other is nil.
// It is called with the version locked for reading. The images read the request's bytes later.
func (q *inferRequest) build(c *classify.Classifier) (*memory, *onnx.Tensor, error) {
	in := &q.Inputs[0]
	if q.rows() {
		n, err := in.check([]int64{-1, int64(c.Manifest.Dx)}, "FP32")
		if err != nil {
			return nil, nil, err
		}
		x, err := in.floats(n * c.Manifest.Dx)
		if err != nil {
			return nil, nil, err
		}
		return nil, onnx.NewTensor(x, n, c.Manifest.Dx), nil
	}
	m, err := q.pictures(c.Fit)
	return m, nil, err
}

// pictures returns the images of a request, which are of any one size: those of another one than
// the classifier's are resized as its graph resizes them.
// Sizes are bounded one after another, so that no product of them overflows. An image of another
// size takes memory while it is resized.
// All images of a request have one shape, since they are one tensor.
func (q *inferRequest) pictures(fit imagefile.Fit) (*memory, error) {
	in := &q.Inputs[0]
	n, err := in.check([]int64{-1, -1, -1, int64(fit.Ch)}, "UINT8")
	if err != nil {
		return nil, err
	}
	h, w := int(in.Shape[1]), int(in.Shape[2])
	if w > maxPredictPixels/h {
		return nil, inputf("%s has images of %dx%d pixels; allowed are %d in all", in.Name, w, h,
			maxPredictPixels)
	}
	size := h * w * fit.Ch
	if n > maxPredictBytes/size {
		return nil, inputf("%s has %d images of %d bytes; allowed are %d bytes", in.Name, n, size,
			maxPredictBytes)
	}
	x, err := in.bytes(n * size)
	if err != nil {
		return nil, err
	}
	m := &memory{}
	for i := range n {
		m.names = append(m.names, fmt.Sprint(i))
		m.write = append(m.write, func(ctx context.Context, dst []uint8) error {
			pix := x[i*size : (i+1)*size]
			if h == fit.H && w == fit.W {
				copy(dst, pix)
				return nil
			}
			held := lease{in: q.decoding}
			defer held.release()
			if err := held.take(ctx, ofPixel*int64(h)*int64(w)); err != nil {
				return err
			}
			fit.Pixels(imagefile.Raw(pix, h, w, fit.Ch), dst)
			return nil
		})
	}
	return m, nil
}

// inferAnswer is the answer to a request: JSON, then the binary data of the outputs that state a
// size, in their order.
// Its tensors are in the order of inferOutputs.
type inferAnswer struct {
	Model   string   `json:"model_name"`
	Version string   `json:"model_version"`
	ID      string   `json:"id,omitempty"`
	Outputs []tensor `json:"outputs"`
}

// answer makes the answer from predictions.
// Shapes are [n, classes] of probabilities, and [n] of entropy and mutual information, both in
// nats.
// Outputs come in the order of inferOutputs, and not in that of the request.
// Numbers of JSON are float32 in the fewest digits that read back alike.
func (q *inferRequest) answer(v store.Version, c *classify.Classifier,
	ps []classify.Prediction) (*inferAnswer, error) {
	n := int64(len(ps))
	data := make([][]float32, len(inferOutputs))
	for i := range ps {
		data[0] = append(data[0], ps[i].Probabilities...)
		data[1], data[2] = append(data[1], ps[i].Entropy), append(data[2], ps[i].MutualInformation)
	}
	a := &inferAnswer{Model: modelName, Version: fmt.Sprint(v.Number), ID: q.ID}
	for i, name := range inferOutputs {
		wanted, inBytes := q.output(name)
		if !wanted {
			continue
		}
		t := tensor{Name: name, Shape: []int64{n}, Datatype: "FP32"}
		if i == 0 {
			t.Shape = []int64{n, int64(c.Manifest.C)}
		}
		var err error
		if inBytes {
			for _, x := range data[i] {
				t.Binary = binary.LittleEndian.AppendUint32(t.Binary, math.Float32bits(x))
			}
			size := int64(len(t.Binary))
			t.Parameters = &binarySize{&size}
		} else if t.Data, err = json.Marshal(data[i]); err != nil {
			return nil, err
		}
		a.Outputs = append(a.Outputs, t)
	}
	return a, nil
}

// output reports whether a request wants an output, and whether as bytes.
// The binary_data of an output goes before the binary_data_output of its request.
// An output that is named twice is sent once, as its first mention says.
func (q *inferRequest) output(name string) (wanted, inBytes bool) {
	if len(q.Outputs) == 0 {
		return true, q.Parameters.Binary
	}
	for _, o := range q.Outputs {
		if o.Name == name {
			if o.Parameters.Binary != nil {
				return true, *o.Parameters.Binary
			}
			return true, q.Parameters.Binary
		}
	}
	return false, false
}

// write writes the answer: the JSON, and then the bytes of the outputs in their order.
// Where bytes follow, the header says how long the JSON is.
// The lease holds the answer until it is sent.
func (a *inferAnswer) write(w http.ResponseWriter, held *lease) {
	text, err := json.Marshal(a)
	if err != nil {
		inferError(w, http.StatusInternalServerError, "%v", err)
		return
	}
	kind := "application/json"
	n := len(text)
	for _, t := range a.Outputs {
		if t.Parameters != nil {
			kind = "application/octet-stream"
			text = append(text, t.Binary...)
		}
	}
	w.Header().Set("Content-Type", kind)
	if len(text) > n {
		w.Header().Set(headerLength, strconv.Itoa(n))
	}
	held.send(w, text)
}

// bytes returns exactly n values of a UINT8 tensor.
// Binary data are shared with the body, and JSON is parsed into a new slice.
func (t *tensor) bytes(n int) ([]uint8, error) {
	if t.Parameters == nil || t.Parameters.Bytes == nil {
		return numbers[uint8](t.Data, n, 0, math.MaxUint8)
	}
	if len(t.Binary) != n {
		return nil, inputf("%s: %d bytes of binary data; want %d for its shape", t.Name,
			len(t.Binary), n)
	}
	return t.Binary, nil
}

// floats returns exactly n values of an FP32 tensor, which are finite. Bytes are little-endian.
// Both forms refuse NaN and infinities, which would spread to every output.
func (t *tensor) floats(n int) ([]float32, error) {
	if t.Parameters == nil || t.Parameters.Bytes == nil {
		return numbers[float32](t.Data, n, -math.MaxFloat32, math.MaxFloat32)
	}
	if len(t.Binary) != 4*n {
		return nil, inputf("%s: %d bytes of binary data; want %d for its shape", t.Name,
			len(t.Binary), 4*n)
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Binary[4*i:]))
		if v := float64(x[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, inputf("%s: number %d is %v; allowed are finite numbers", t.Name, i, v)
		}
	}
	return x, nil
}

// check checks a tensor's type and its shape against the wanted shape (-1: any size) and returns
// the size of the first axis.
// Wanted are 1 to maxPredictItems along it, and up to maxPredictPixels along others of any size.
// An axis that is wanted as -1 may have any size within its bound.
func (t *tensor) check(want []int64, kind string) (int, error) {
	if t.Datatype != kind {
		return 0, inputf("%s has datatype %.20q; want %s", t.Name, t.Datatype, kind)
	}
	ok := len(t.Shape) == len(want) && t.Shape[0] >= 1 && t.Shape[0] <= maxPredictItems
	for i := 1; ok && i < len(want); i++ {
		ok = t.Shape[i] == want[i] || want[i] < 0 && t.Shape[i] >= 1 &&
			t.Shape[i] <= maxPredictPixels
	}
	if !ok {
		shape := t.Shape
		if len(shape) > 8 {
			shape = shape[:8]
		}
		return 0, inputf("%s has shape %v; want %v, the first 1 to %d", t.Name, shape, want,
			maxPredictItems)
	}
	return int(t.Shape[0]), nil
}

// numbers parses exactly n numbers between two bounds, flat or in nested lists, from data that is
// JSON, and stops at the first beyond that.
// The shape is given apart, so that nested lists are read as flat ones. It takes memory for n
// numbers, or for as many as the text may have.
// Numbers are parsed in float64 and rounded once. A number beyond float64 is infinite, and so out
// of bounds.
func numbers[T uint8 | float32](data json.RawMessage, n int, low, high float64) ([]T, error) {
	const between = "[], \t\r\n"
	out := make([]T, 0, min(n, len(data)/2+1))
	_, whole := any(T(0)).(uint8)
	for {
		data = bytes.TrimLeft(data, between)
		if len(data) == 0 {
			break
		}
		end := bytes.IndexAny(data, between)
		if end < 0 {
			end = len(data)
		}
		v, err := strconv.ParseFloat(string(data[:end]), 64)
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			return nil, inputf("data: %.40s is no number", data[:end])
		case !(v >= low && v <= high):
			return nil, inputf("data: %v; allowed are %v to %v", v, low, high)
		case whole && v != math.Trunc(v):
			return nil, inputf("data: %v is no whole number", v)
		case len(out) == n:
			return nil, inputf("data: more than the %d numbers of its shape", n)
		}
		out, data = append(out, T(v)), data[end:]
	}
	if len(out) != n {
		return nil, inputf("data: %d numbers; want %d for its shape", len(out), n)
	}
	return out, nil
}
