package serde

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// stored is an adapter that onnxruntime 1.32 wrote (onnxruntime.AdapterFormat), of layer.lora_A of
// 4 x 2 and layer.lora_B of 2 x 3.
var stored = filepath.Join("testdata", "lora.onnx_adapter")

func TestAdapter(t *testing.T) {
	got := must.Get(LoadAdapter(stored))(t)
	for name, shape := range map[string][]int{"layer.lora_A": {4, 2}, "layer.lora_B": {2, 3}} {
		if got[name] == nil || got[name].DType != onnx.Float32 || !slices.Equal(got[name].Shape, shape) {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	// By numpy.random.default_rng(0), after 12 numbers of the model's.
	if a, b := got["layer.lora_A"].F32()[0], got["layer.lora_B"].F32()[5]; len(got) != 2 ||
		a != -2.3250308 || b != .0940123 {
		t.Errorf("%d tensors, %v and %v", len(got), a, b)
	}
}

// flatAdapter writes an adapter of one parameter for each name, which all point at the same bytes
// of data where they are given once.
func flatAdapter(version int32, dtype onnx.DType, dims []int64, raw []byte, names ...string) []byte {
	out := append(binary.LittleEndian.AppendUint32(nil, 24), adapterMark...)
	put := func(vs ...uint32) int {
		at := len(out)
		for _, v := range vs {
			out = binary.LittleEndian.AppendUint32(out, v)
		}
		return at
	}
	half := func(a, b int) uint32 { return uint32(a) | uint32(b)<<16 }
	put(half(12, 12), half(4, 0), half(0, 8), 0) // the adapter's fields, at 8
	put(24-8, uint32(version), 4, uint32(len(names)))
	first := put(make([]uint32, len(names))...)
	point := func(from int) { binary.LittleEndian.PutUint32(out[from:], uint32(len(out)-from)) }
	fields := put(half(12, 20), half(4, 8), half(12, 16))
	var tables []int
	for i := range names {
		point(first + 4*i)
		tables = append(tables, put(uint32(len(out)-fields), 0, 0, uint32(dtype), 0))
	}
	for i, name := range names {
		point(tables[i] + 4)
		put(uint32(len(name)))
		out = append(out, name...)
		out = append(out, make([]byte, -len(out)&3)...)
	}
	for _, at := range tables {
		point(at + 8)
	}
	put(uint32(len(dims)))
	for _, d := range dims {
		put(uint32(d), uint32(d>>32))
	}
	for _, at := range tables {
		point(at + 16)
	}
	put(uint32(len(raw)))
	return append(out, raw...)
}

func TestDamagedAdapters(t *testing.T) {
	whole := must.Get(os.ReadFile(stored))(t)
	eight := make([]byte, 8)
	if got, err := adapter(flatAdapter(1, onnx.Float32, []int64{2}, eight, "a")); err != nil ||
		got["a"].Len() != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	for _, c := range []struct {
		what, want string
		data       []byte
	}{
		{"nothing", "it is no adapter", nil},
		{"a model", "it is no adapter", []byte("\x08\x07\x12\x04onnx....")},
		{"half a file", "cut short or damaged", whole[:len(whole)/2]},
		{"another version", "format version 2", flatAdapter(2, onnx.Float32, []int64{2}, eight, "a")},
		{"no parameters", "no parameters", flatAdapter(1, onnx.Float32, nil, nil)},
		{"no name", "empty or given twice", flatAdapter(1, onnx.Float32, []int64{2}, eight, "")},
		{"one name twice", "empty or given twice",
			flatAdapter(1, onnx.Float32, []int64{2}, eight, "a", "a")},
		{"text", "which no adapter holds", flatAdapter(1, onnx.String, []int64{2}, eight, "a")},
		{"a negative size", "dimension 0 is -1", flatAdapter(1, onnx.Float32, []int64{-1}, eight, "a")},
		{"too few elements", "needs 3 elements", flatAdapter(1, onnx.Float32, []int64{3}, eight, "a")},
		{"no such type", "element type 99", flatAdapter(1, 99, []int64{2}, eight, "a")},
		// Each name costs some bytes, and would have a tensor of all of them.
		{"the same bytes for all", "bytes that are left",
			flatAdapter(1, onnx.Float32, []int64{64}, make([]byte, 256), "a", "b", "c")},
	} {
		must.Fail(adapter(c.data))(t, c.want, c.what)
	}
	if _, err := LoadAdapter(filepath.Join("testdata", "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// FuzzAdapter: whatever the bytes, there is an error or tensors that are whole, of no more bytes
// together than the file.
func FuzzAdapter(f *testing.F) {
	if data, err := os.ReadFile(stored); err == nil {
		f.Add(data)
	}
	f.Add(flatAdapter(1, onnx.Int4, []int64{3}, []byte{0x21, 3}, "packed"))
	f.Add(flatAdapter(1, onnx.Float32, []int64{2}, make([]byte, 8), "a", "b", "c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := adapter(data)
		if (err == nil) != (len(got) > 0) {
			t.Fatalf("%d tensors and the error %v", len(got), err)
		}
		total := int64(0)
		for name, x := range got {
			must.Do(t, onnx.CheckTensor(x))
			total += int64(len(name)) + x.DType.RawBytes(x.Len())
		}
		if total > int64(len(data)) {
			t.Fatalf("%d bytes of a file of %d", total, len(data))
		}
	})
}
