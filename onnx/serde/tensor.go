package serde

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"fmp/onnx"
	"fmp/onnx/onnxpb"
)

// TensorFromProto reads a TensorProto with its data inside (raw or typed fields). Every count is
// checked before memory is taken, so that a hostile file cannot ask for more than its own size
// allows.
func TensorFromProto(p *onnxpb.TensorProto) (*onnx.Tensor, error) {
	if p == nil {
		return nil, fmt.Errorf("tensor: missing")
	}
	fail := func(format string, args ...any) (*onnx.Tensor, error) {
		return nil, fmt.Errorf("tensor %q: %w", p.Name, fmt.Errorf(format, args...))
	}
	if p.Segment != nil {
		return fail("%w", onnx.Unknownf("segmented tensors are not supported; save the model in one piece"))
	}
	if p.DataLocation == dataElsewhere {
		return fail("its data lies in another file; load the model from its own folder so that " +
			"it can be found")
	}
	d := onnx.DType(p.DataType)
	if !d.Known() {
		return fail("%w", onnx.Unknownf(
			"element type %d is not supported; complex numbers are not held", p.DataType))
	}
	shape, n, err := sizes(p)
	if err != nil {
		return fail("%w", err)
	}
	if d.IsNarrow() {
		return narrowFromProto(p, d, shape, n)
	}
	// The count is compared before memory is taken for the elements.
	have := storedElements(p, d)
	if have != n {
		return fail("shape %v needs %d elements of %v and the file holds %d", shape, n, d, have)
	}
	if data := inPlace(d, p.RawData, n); data != nil {
		return &onnx.Tensor{DType: d, Shape: shape, Data: data}, nil
	}
	t, err := onnx.Zeros(d, shape...)
	if err != nil {
		return fail("%w", err)
	}
	// Strings have no raw form (onnx.proto, TensorProto).
	if p.RawData == nil || d == onnx.String {
		fillTyped(t, p)
		return t, nil
	}
	if len(p.RawData) != n*d.Size() {
		return fail("%d bytes of raw data for %d elements of %v", len(p.RawData), n, d)
	}
	if _, err := binary.Decode(p.RawData, binary.LittleEndian, t.Data); err != nil {
		return fail("%w", err)
	}
	return t, nil
}

// sizes are a tensor's shape and number of elements.
func sizes(p *onnxpb.TensorProto) (shape []int, n int, err error) {
	shape = make([]int, len(p.Dims))
	for i, v := range p.Dims {
		// The size is bounded in 64 bits, before it becomes an int.
		if v < 0 || v > onnx.MaxElements {
			return nil, 0, fmt.Errorf("dimension %d is %d; allowed are 0 to %d", i, v, onnx.MaxElements)
		}
		shape[i] = int(v)
	}
	n, err = onnx.Elements(shape)
	return shape, n, err
}

// fillTyped copies the elements from the field of their type, which holds as many. Small types
// share a field, as onnx.proto's TensorProto says: int32_data has all of 16 bits and less, halves
// by their bits.
func fillTyped(t *onnx.Tensor, p *onnxpb.TensorProto) {
	switch out := t.Data.(type) {
	case []float32:
		copy(out, p.FloatData)
	case []float64:
		copy(out, p.DoubleData)
	case []int64:
		copy(out, p.Int64Data)
	case []uint64:
		copy(out, p.Uint64Data)
	case []uint32:
		convert(out, p.Uint64Data)
	case []int32:
		copy(out, p.Int32Data)
	case []int16:
		convert(out, p.Int32Data)
	case []int8:
		convert(out, p.Int32Data)
	case []uint16:
		convert(out, p.Int32Data)
	case []uint8:
		convert(out, p.Int32Data)
	case []bool:
		for i := range out {
			out[i] = p.Int32Data[i] != 0
		}
	case []string:
		for i := range out {
			out[i] = string(p.StringData[i])
		}
	}
}

// convert narrows numbers to the type that they are stored for. Higher bits are cut without an
// error.
func convert[T int8 | int16 | uint8 | uint16 | uint32, F int32 | uint64](out []T, from []F) {
	for i := range out {
		out[i] = T(from[i])
	}
}

// littleEndian reports whether this machine holds numbers as files do.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// inPlace is n elements in the bytes that hold them, which are not copied; nil where they do not
// lie as this machine holds them. Booleans are copied, as a byte other than 0 and 1 is no bool of
// Go. An address that is no multiple of the element's size is copied too, since not every processor
// reads it.
func inPlace(d onnx.DType, raw []byte, n int) any {
	if n == 0 || d.Bits() < 8 || int64(len(raw)) != d.RawBytes(n) || !littleEndian || d == onnx.Bool {
		return nil
	}
	at := unsafe.Pointer(unsafe.SliceData(raw))
	if uintptr(at)%uintptr(d.Size()) != 0 {
		return nil
	}
	return reflect.SliceAt(d.SliceType().Elem(), at, n).Interface()
}

// narrowFromProto reads elements of 8 bits and less: packed raw bytes, or the same bytes in
// int32_data. Elements of 4 and 2 bits lie several to a byte, the first in the lowest bits.
func narrowFromProto(p *onnxpb.TensorProto, d onnx.DType, shape []int,
	n int) (*onnx.Tensor, error) {
	raw := p.RawData
	if raw == nil {
		raw = make([]byte, len(p.Int32Data))
		for i, v := range p.Int32Data {
			raw[i] = byte(v)
		}
	}
	if int64(len(raw)) != d.RawBytes(n) {
		return nil, fmt.Errorf("tensor %q: shape %v needs %d bytes of %v and the file holds %d", p.Name,
			shape, d.RawBytes(n), d, len(raw))
	}
	if data := inPlace(d, p.RawData, n); data != nil {
		return &onnx.Tensor{DType: d, Shape: shape, Data: data}, nil
	}
	t, err := onnx.Zeros(d, shape...)
	if err == nil {
		err = onnx.UnpackData(t, raw)
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", p.Name, err)
	}
	return t, nil
}

// storedElements is the number of elements that the field of a type holds; raw bytes are cut to
// whole ones. Raw bytes go before the typed fields where a file has both.
func storedElements(p *onnxpb.TensorProto, d onnx.DType) int {
	if p.RawData != nil && d != onnx.String {
		return len(p.RawData) / d.Size()
	}
	switch d {
	case onnx.Float32:
		return len(p.FloatData)
	case onnx.Float64:
		return len(p.DoubleData)
	case onnx.Int64:
		return len(p.Int64Data)
	case onnx.Uint64, onnx.Uint32:
		return len(p.Uint64Data)
	case onnx.String:
		return len(p.StringData)
	}
	return len(p.Int32Data)
}

// TensorToProto writes a tensor as a TensorProto with raw little-endian data (strings in
// string_data).
func TensorToProto(name string, t *onnx.Tensor) (*onnxpb.TensorProto, error) {
	p, err := sharedTensor(name, t)
	if err == nil {
		p.RawData = slices.Clone(p.RawData)
	}
	return p, err
}

// sharedTensor is TensorToProto with the tensor's own bytes where these are as files have them. The
// message must not outlive a change of the tensor.
func sharedTensor(name string, t *onnx.Tensor) (*onnxpb.TensorProto, error) {
	if err := onnx.CheckTensor(t); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	p := header(name, t)
	var err error
	if v, ok := t.Data.([]string); ok {
		for _, s := range v {
			p.StringData = append(p.StringData, []byte(s))
		}
	} else if t.DType.Bits() < 8 {
		p.RawData = onnx.PackedData(t)
	} else if p.RawData = ownBytes(t); p.RawData == nil {
		p.RawData, err = binary.Append(make([]byte, 0, t.Len()*t.DType.Size()),
			binary.LittleEndian, t.Data)
	}
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	return p, nil
}

// header is a tensor without its data. The list of sizes is the message's own.
func header(name string, t *onnx.Tensor) *onnxpb.TensorProto {
	p := &onnxpb.TensorProto{Name: name, DataType: int32(t.DType), Dims: make([]int64, len(t.Shape))}
	for i, d := range t.Shape {
		p.Dims[i] = int64(d)
	}
	return p
}

// ownBytes is a tensor's numbers as files have them, where they lie; nil where this machine holds
// them otherwise, and where there are none. The slice has the tensor's own memory and is not to be
// written to.
func ownBytes(t *onnx.Tensor) []byte {
	v := reflect.ValueOf(t.Data)
	if !littleEndian || v.Kind() != reflect.Slice || v.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))
}
