// Package statedict reads the state dictionaries of PyTorch: tensors by name, as torch.save wrote
// them before its version 1.6 and still does on request (torch/serialization.py, _legacy_save).
// Such a file is a sequence of pickles (magic number, protocol, sizes of C types, the dictionary,
// the keys of its storages) and then each storage: its number of elements and the elements
// themselves, little-endian.
//
// A pickle is a program, and loading one in Python runs it. Here only the operations that tensors
// need are known, and only four names: collections.OrderedDict, torch._utils._rebuild_tensor_v2,
// torch.FloatStorage and torch.LongStorage; anything else is refused.
package statedict

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"fmp/onnx"
)

// Bounds on a file.
const (
	// MaxBytes bounds the size of a file: 256 MiB.
	MaxBytes     = 256 << 20
	maxSteps     = 1 << 20 // operations of one pickle
	maxString    = 4096
	maxTensors   = 1 << 16
	maxAxes      = 8
	floatStorage = "torch FloatStorage"
	longStorage  = "torch LongStorage"
	orderedDict  = "collections OrderedDict"
	rebuild      = "torch._utils _rebuild_tensor_v2"
)

// protocol and magic are PROTOCOL_VERSION and, little-endian, MAGIC_NUMBER of
// torch/serialization.py.
const (
	protocol = 1001
	magic    = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
)

// storage is a run of elements that tensors are views of. float is nil until the storage is read,
// and of integers for good.
type storage struct {
	kind  string // floatStorage or longStorage
	n     int
	float []float32
}

// view is a tensor as the pickle describes it.
type view struct {
	of     *storage
	offset int
	shape  []int
	// strides are the steps of the axes in the storage, in elements; run says that they are those
	// of rows one after another.
	strides []int
	run     bool
}

// elements returns the tensor's elements, row by row: the storage's own where they are a run of it.
// The element at index (i_0, i_1, ...) lies at offset + i_0 strides_0 + i_1 strides_1 + ... of the
// storage.
func (v *view) elements() []float32 {
	n := 1
	for _, d := range v.shape {
		n *= d
	}
	if v.run {
		return v.of.float[v.offset : v.offset+n : v.offset+n]
	}
	out := make([]float32, 0, n)
	index := make([]int, len(v.shape))
	for range n {
		at := v.offset
		for k, i := range index {
			at += i * v.strides[k]
		}
		out = append(out, v.of.float[at])
		for k := len(index) - 1; k >= 0; k-- {
			if index[k]++; index[k] < v.shape[k] {
				break
			}
			index[k] = 0
		}
	}
	return out
}

// Read returns the float32 tensors of a state dictionary by name; counters of 64-bit integers are
// left out. Tensors share memory where they are views of one storage.
func Read(data []byte) (map[string]*onnx.Tensor, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("state dictionary: %d bytes; allowed are %d", len(data), MaxBytes)
	}
	out, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("state dictionary: %w", err)
	}
	return out, nil
}

// decode runs the five pickles of a file, and gives its tensors the elements of the storages behind
// them.
func decode(data []byte) (map[string]*onnx.Tensor, error) {
	m := &machine{data: data, storages: map[string]*storage{}}
	head, err := m.run()
	if err != nil {
		return nil, err
	}
	if v, ok := head.(long); !ok || string(v) != magic {
		return nil, errors.New("its magic number is not that of PyTorch's files")
	}
	if v, err := m.run(); err != nil {
		return nil, err
	} else if v != protocol {
		return nil, fmt.Errorf("its protocol is not %d", protocol)
	}
	sizes, err := m.run()
	if err != nil {
		return nil, err
	}
	if d, ok := sizes.(*dict); !ok || d.get("little_endian") != true {
		return nil, errors.New("it is not little-endian")
	}
	object, err := m.run()
	if err != nil {
		return nil, err
	}
	tensors, ok := object.(*dict)
	if !ok {
		return nil, fmt.Errorf("it holds a %T; want a dictionary of tensors", object)
	}
	keys, err := m.run()
	if err != nil {
		return nil, err
	}
	if err := m.readStorages(keys); err != nil {
		return nil, err
	}
	out := map[string]*onnx.Tensor{}
	for i, k := range tensors.keys {
		v, ok := tensors.values[i].(*view)
		if !ok {
			return nil, fmt.Errorf("%q is a %T; want a tensor", k, tensors.values[i])
		}
		if v.of.kind != floatStorage {
			continue
		}
		if v.of.float == nil {
			return nil, fmt.Errorf("the elements of %q are not in the file", k)
		}
		out[k] = onnx.NewTensor(v.elements(), v.shape...)
	}
	return out, nil
}

// readStorages reads the elements of all storages, in the order of their keys. Each is its number
// of elements in eight bytes, and the elements. Nothing may follow the last.
func (m *machine) readStorages(keys any) error {
	l, ok := keys.(*list)
	if !ok {
		return fmt.Errorf("the keys of its storages are a %T; want a list", keys)
	}
	for _, k := range l.items {
		key, _ := k.(string)
		s := m.storages[key]
		if s == nil || s.float != nil {
			return fmt.Errorf("storage %q is of no tensor, or there twice", key)
		}
		head, err := m.take(8)
		if err != nil {
			return err
		}
		size := map[string]int{floatStorage: 4, longStorage: 8}[s.kind]
		if n := binary.LittleEndian.Uint64(head); n != uint64(s.n) {
			return fmt.Errorf("storage %s has %d elements; its tensors say %d", key, n, s.n)
		}
		b, err := m.take(s.n * size) // n is at most the file's size
		if err != nil {
			return err
		}
		if s.kind == floatStorage {
			s.float = make([]float32, s.n)
			for i := range s.float {
				s.float[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
			}
		}
	}
	if m.at != len(m.data) {
		return fmt.Errorf("%d bytes follow its last storage", len(m.data)-m.at)
	}
	return nil
}
