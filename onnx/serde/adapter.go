package serde

import (
	"encoding/binary"
	"fmt"
	"math"

	"fmp/onnx"
	"fmp/onnx/onnxpb"
	"fmp/onnx/regularfile"
)

// An adapter is a FlatBuffer. Its tables, as onnxruntime/lora/adapter_format/adapter_schema.fbs has
// them, number their fields:
const (
	adapterMark = "TORT" // bytes 4 to 8 of the file

	adapterFormat     = 0 // int32, of which 1 is known
	adapterParameters = 3 // a vector of parameters

	parameterName = 0
	parameterDims = 1 // int64s
	parameterType = 2 // int32, of onnx.TensorProto.DataType
	parameterData = 3 // bytes, little endian
)

// LoadAdapter reads an adapter of the ONNX Runtime (.onnx_adapter): tensors of a LoRA adaptation by
// the names of a model's inputs, most often optional ones. Runs fed with these tensors equal the
// runtime's with the adapter active. The file may be from anybody.
func LoadAdapter(path string) (map[string]*onnx.Tensor, error) {
	data, err := regularfile.ReadFile(path, MaxFileBytes)
	if err == nil {
		var tensors map[string]*onnx.Tensor
		if tensors, err = adapter(data); err == nil {
			return tensors, nil
		}
		err = fmt.Errorf("%s: %w", path, err)
	}
	return nil, fmt.Errorf("loading adapter: %w", err)
}

// adapter reads the parameters of a file of format version 1. The tensors may lie in data, which
// the caller gives up.
func adapter(data []byte) (map[string]*onnx.Tensor, error) {
	f := &flat{data: data, left: len(data)}
	if len(data) < 8 || string(data[4:8]) != adapterMark {
		return nil, fmt.Errorf("it is no adapter: bytes 4 to 8 are not %q; give an "+
			".onnx_adapter file", adapterMark)
	}
	root := f.table(f.follow(0))
	if version := f.int32(f.field(root, adapterFormat)); f.err == nil && version != 1 {
		return nil, onnx.Unknownf("it is of format version %d and 1 is known; export it for that",
			version)
	}
	at, n := f.vector(f.field(root, adapterParameters), 4)
	tensors := map[string]*onnx.Tensor{}
	for i := 0; i < n && f.err == nil; i++ {
		name, t, err := f.parameter(f.table(f.follow(at + 4*i)))
		switch {
		case f.err != nil:
		case err != nil:
			return nil, err
		case name == "" || tensors[name] != nil:
			return nil, fmt.Errorf("parameter %d: the name %q is empty or given twice", i, name)
		default:
			tensors[name] = t
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	if n == 0 {
		return nil, fmt.Errorf("it has no parameters")
	}
	return tensors, nil
}

// flat reads a FlatBuffer that may be hostile. The first error stays, and reads after it give
// zeros. A table points back to the offsets of its fields, of two bytes each; a vector begins with
// its length.
type flat struct {
	data []byte
	left int // bytes that vectors may still have: a file cannot point many of them at the same bytes
	err  error
}

// table is a table's place and where its fields lie from there, two bytes each.
type table struct {
	at     int
	fields []byte
}

// bytes returns n bytes at a place of the file. After an error it gives up to eight zeros, enough
// for the reads of one number.
func (f *flat) bytes(at, n int) []byte {
	if f.err == nil && (at < 0 || n < 0 || at > len(f.data) || n > len(f.data)-at) {
		f.err = fmt.Errorf("it is cut short or damaged: %d bytes at %d of %d", n, at, len(f.data))
	}
	if f.err != nil {
		return make([]byte, 8)[:min(max(n, 0), 8)]
	}
	return f.data[at : at+n]
}

// follow returns the place that an offset at a place points to, which is after it.
func (f *flat) follow(at int) int {
	offset := binary.LittleEndian.Uint32(f.bytes(at, 4))
	// beyond 31 bits a sum is negative where an int has 32
	return at + int(min(offset, math.MaxInt32-1))
}

// table finds a vtable at the table's place less a signed offset; its first two bytes are its own
// length.
func (f *flat) table(at int) table {
	back := int(int32(binary.LittleEndian.Uint32(f.bytes(at, 4))))
	size := int(binary.LittleEndian.Uint16(f.bytes(at-back, 2)))
	return table{at: at, fields: f.bytes(at-back+4, max(size-4, 0))}
}

// field returns the place of a table's field, 0 where it is left out.
func (f *flat) field(t table, number int) int {
	if f.err != nil || len(t.fields) < 2*number+2 {
		return 0
	}
	// An offset of 0 is a field with its default, which is not written.
	if offset := int(binary.LittleEndian.Uint16(t.fields[2*number:])); offset != 0 {
		return t.at + offset
	}
	return 0
}

// int32 returns the number at a field's place, 0 where it is left out.
func (f *flat) int32(at int) int32 {
	if at == 0 {
		return 0
	}
	return int32(binary.LittleEndian.Uint32(f.bytes(at, 4)))
}

// vector returns the place and number of the elements of a field that is a vector or a text.
func (f *flat) vector(at, size int) (first, n int) {
	if at == 0 || f.err != nil {
		return 0, 0
	}
	at = f.follow(at)
	count := binary.LittleEndian.Uint32(f.bytes(at, 4))
	if f.err == nil && uint64(count) > uint64(f.left/size) {
		f.err = fmt.Errorf("it is damaged: %d elements of %d bytes at %d, of %d bytes that are left",
			count, size, at, f.left)
	}
	if f.err != nil {
		return 0, 0
	}
	n = int(count)
	f.left -= n * size
	f.bytes(at+4, n*size)
	return at + 4, n
}

// parameter reads a named tensor. Errors of the file itself stay in f.
func (f *flat) parameter(t table) (string, *onnx.Tensor, error) {
	at, n := f.vector(f.field(t, parameterName), 1)
	p := &onnxpb.TensorProto{Name: string(f.bytes(at, n)),
		DataType: f.int32(f.field(t, parameterType))}
	at, n = f.vector(f.field(t, parameterDims), 8)
	for i := range n {
		p.Dims = append(p.Dims, int64(binary.LittleEndian.Uint64(f.bytes(at+8*i, 8))))
	}
	at, n = f.vector(f.field(t, parameterData), 1)
	if p.RawData = f.bytes(at, n); f.err != nil {
		return "", nil, f.err
	}
	if p.DataType == int32(onnx.String) {
		return "", nil, fmt.Errorf("tensor %q is of text, which no adapter holds", p.Name)
	}
	tensor, err := TensorFromProto(p)
	return p.Name, tensor, err
}
