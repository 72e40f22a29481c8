package onnx

import (
	"fmt"
	"math"
)

// DType is an element type, with the numbers of ONNX's TensorProto.DataType.
type DType int32

// Element types. Float16 and BFloat16 elements are held as their bits in a []uint16.
const (
	Undefined DType = 0
	Float32   DType = 1
	Uint8     DType = 2
	Int8      DType = 3
	Uint16    DType = 4
	Int16     DType = 5
	Int32     DType = 6
	Int64     DType = 7
	String    DType = 8
	Bool      DType = 9
	Float16   DType = 10
	Float64   DType = 11
	Uint32    DType = 12
	Uint64    DType = 13
	BFloat16  DType = 16
)

var dtypeNames = map[DType]string{
	Undefined: "undefined", Float32: "float32", Uint8: "uint8", Int8: "int8", Uint16: "uint16",
	Int16: "int16", Int32: "int32", Int64: "int64", String: "string", Bool: "bool",
	Float16: "float16", Float64: "float64", Uint32: "uint32", Uint64: "uint64", BFloat16: "bfloat16",
}

// DTypeOf returns the element type of a number in a file, Undefined where it names none.
func DTypeOf(v int64) DType {
	if _, ok := dtypeNames[DType(v)]; !ok || v != int64(DType(v)) {
		return Undefined
	}
	return DType(v)
}

func (d DType) String() string {
	if s, ok := dtypeNames[d]; ok {
		return s
	}
	return fmt.Sprintf("dtype(%d)", int32(d))
}

// Known reports whether d is an element type that a tensor can have.
func (d DType) Known() bool { return d != Undefined && dtypeNames[d] != "" }

// Size returns the number of bytes of one element; 0 for String and unknown types.
func (d DType) Size() int {
	switch d {
	case Bool, Uint8, Int8:
		return 1
	case Uint16, Int16, Float16, BFloat16:
		return 2
	case Float32, Int32, Uint32:
		return 4
	case Float64, Int64, Uint64:
		return 8
	}
	return 0
}

// IsFloat reports whether d is a floating-point type.
func (d DType) IsFloat() bool {
	return d == Float32 || d == Float64 || d == Float16 || d == BFloat16
}

// Element lists the Go types that hold tensor elements.
type Element interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool | string
}

// Tensor is a dense array in row-major order. Data is a slice of the Go type that matches DType and
// has as many elements as the product of Shape; a scalar has an empty shape and one element.
type Tensor struct {
	DType DType
	Shape []int
	Data  any
}

// Elements multiplies the dimensions of shape. It fails on a negative dimension and on a product
// over [MaxElements].
func Elements(shape []int) (int, error) {
	n := 1
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if d != 0 && n > MaxElements/d {
			return 0, fmt.Errorf("shape %v has more than %d elements", shape, MaxElements)
		}
		n *= d
	}
	return n, nil
}

// TypeOf returns the DType that holds elements of type T.
func TypeOf[T Element]() DType {
	var z T
	switch any(z).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case bool:
		return Bool
	}
	return String
}

// NewTensor wraps data (not copied) in a tensor. It panics where the shape does not fit the data:
// use it for data the program made itself, [CheckTensor] for data from outside.
func NewTensor[T Element](data []T, shape ...int) *Tensor {
	t := &Tensor{DType: TypeOf[T](), Shape: append([]int{}, shape...), Data: data}
	if err := CheckTensor(t); err != nil {
		panic("onnx.NewTensor: " + err.Error())
	}
	return t
}

// Scalar returns a tensor of rank 0.
func Scalar[T Element](v T) *Tensor { return NewTensor([]T{v}) }

// Vector returns a tensor of rank 1.
func Vector[T Element](v ...T) *Tensor { return NewTensor(v, len(v)) }

// Zeros allocates a tensor of zero elements (empty strings).
func Zeros(d DType, shape ...int) (*Tensor, error) {
	n, err := Elements(shape)
	if err != nil {
		return nil, err
	}
	t := &Tensor{DType: d, Shape: append([]int{}, shape...)}
	switch d {
	case Float32:
		t.Data = make([]float32, n)
	case Float64:
		t.Data = make([]float64, n)
	case Int8:
		t.Data = make([]int8, n)
	case Int16:
		t.Data = make([]int16, n)
	case Int32:
		t.Data = make([]int32, n)
	case Int64:
		t.Data = make([]int64, n)
	case Uint8:
		t.Data = make([]uint8, n)
	case Uint16, Float16, BFloat16:
		t.Data = make([]uint16, n)
	case Uint32:
		t.Data = make([]uint32, n)
	case Uint64:
		t.Data = make([]uint64, n)
	case Bool:
		t.Data = make([]bool, n)
	case String:
		t.Data = make([]string, n)
	default:
		return nil, fmt.Errorf("no tensor of element type %v", d)
	}
	return t, nil
}

// ZerosF32 allocates a float32 tensor of zeros; it panics on an impossible shape.
func ZerosF32(shape ...int) *Tensor {
	t, err := Zeros(Float32, shape...)
	if err != nil {
		panic("onnx.ZerosF32: " + err.Error())
	}
	return t
}

// Len returns the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// F32 returns the elements of a Float32 tensor, nil for another type.
func (t *Tensor) F32() []float32 { d, _ := t.Data.([]float32); return d }

// F64 returns the elements of a Float64 tensor, nil for another type.
func (t *Tensor) F64() []float64 { d, _ := t.Data.([]float64); return d }

// I64 returns the elements of an Int64 tensor, nil for another type.
func (t *Tensor) I64() []int64 { d, _ := t.Data.([]int64); return d }

// U8 returns the elements of a Uint8 tensor, nil for another type.
func (t *Tensor) U8() []uint8 { d, _ := t.Data.([]uint8); return d }

// Ints returns the elements of an Int64 or Int32 tensor as ints, as shapes and axes are given. On a machine of
// 32 bits a number beyond an int, such as the end of an open slice, becomes the largest or smallest int.
func (t *Tensor) Ints() ([]int, error) {
	switch d := t.Data.(type) {
	case []int64:
		out := make([]int, len(d))
		for i, v := range d {
			out[i] = ClampInt(v)
		}
		return out, nil
	case []int32:
		out := make([]int, len(d))
		for i, v := range d {
			out[i] = int(v)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a tensor of %v where int64 or int32 was expected", t.DType)
}

// At returns element i of a tensor of numbers or booleans; of text it is not a number.
func (t *Tensor) At(i int) float64 {
	switch d := t.Data.(type) {
	case []float32:
		return float64(d[i])
	case []float64:
		return d[i]
	case []int8:
		return float64(d[i])
	case []int16:
		return float64(d[i])
	case []int32:
		return float64(d[i])
	case []int64:
		return float64(d[i])
	case []uint8:
		return float64(d[i])
	case []uint16:
		if t.DType == Uint16 {
			return float64(d[i])
		}
		return float64(HalfToFloat32(t.DType, d[i]))
	case []uint32:
		return float64(d[i])
	case []uint64:
		return float64(d[i])
	case []bool:
		if d[i] {
			return 1
		}
		return 0
	}
	return math.NaN()
}

// ClampInt returns v as an int: the nearest one where it is beyond an int on a machine of 32 bits.
func ClampInt(v int64) int { return int(min(max(v, math.MinInt), math.MaxInt)) }

// Clone copies a tensor and its data.
func (t *Tensor) Clone() *Tensor {
	c := &Tensor{DType: t.DType, Shape: append([]int{}, t.Shape...)}
	switch d := t.Data.(type) {
	case []float32:
		c.Data = append([]float32{}, d...)
	case []float64:
		c.Data = append([]float64{}, d...)
	case []int8:
		c.Data = append([]int8{}, d...)
	case []int16:
		c.Data = append([]int16{}, d...)
	case []int32:
		c.Data = append([]int32{}, d...)
	case []int64:
		c.Data = append([]int64{}, d...)
	case []uint8:
		c.Data = append([]uint8{}, d...)
	case []uint16:
		c.Data = append([]uint16{}, d...)
	case []uint32:
		c.Data = append([]uint32{}, d...)
	case []uint64:
		c.Data = append([]uint64{}, d...)
	case []bool:
		c.Data = append([]bool{}, d...)
	case []string:
		c.Data = append([]string{}, d...)
	}
	return c
}

// Reshape returns the same data under another shape of as many elements; the data is shared.
func (t *Tensor) Reshape(shape ...int) (*Tensor, error) {
	n, err := Elements(shape)
	if err != nil {
		return nil, err
	}
	if n != t.Len() {
		return nil, fmt.Errorf("cannot reshape %v (%d elements) to %v (%d elements)", t.Shape, t.Len(), shape, n)
	}
	return &Tensor{DType: t.DType, Shape: append([]int{}, shape...), Data: t.Data}, nil
}

func (t *Tensor) String() string { return fmt.Sprintf("%v%v", t.DType, t.Shape) }

// CheckTensor reports whether DType, Shape and Data of a tensor agree.
func CheckTensor(t *Tensor) error {
	if t == nil {
		return fmt.Errorf("nil tensor")
	}
	n, err := Elements(t.Shape)
	if err != nil {
		return err
	}
	var have int
	var want DType
	switch d := t.Data.(type) {
	case []float32:
		have, want = len(d), Float32
	case []float64:
		have, want = len(d), Float64
	case []int8:
		have, want = len(d), Int8
	case []int16:
		have, want = len(d), Int16
	case []int32:
		have, want = len(d), Int32
	case []int64:
		have, want = len(d), Int64
	case []uint8:
		have, want = len(d), Uint8
	case []uint16:
		have, want = len(d), Uint16
		if t.DType == Float16 || t.DType == BFloat16 {
			want = t.DType
		}
	case []uint32:
		have, want = len(d), Uint32
	case []uint64:
		have, want = len(d), Uint64
	case []bool:
		have, want = len(d), Bool
	case []string:
		have, want = len(d), String
	default:
		return fmt.Errorf("tensor data is a %T, which holds no ONNX element type", t.Data)
	}
	if want != t.DType {
		return fmt.Errorf("tensor says %v but holds %v", t.DType, want)
	}
	if have != n {
		return fmt.Errorf("tensor of shape %v needs %d elements and holds %d", t.Shape, n, have)
	}
	return nil
}
