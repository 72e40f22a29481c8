package onnx

import (
	"fmt"
	"math"
	"reflect"
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
	Float8E4M3FN: "float8e4m3fn", Float8E4M3FNUZ: "float8e4m3fnuz", Float8E5M2: "float8e5m2",
	Float8E5M2FNUZ: "float8e5m2fnuz",
	Uint4:          "uint4", Int4: "int4", Float4E2M1: "float4e2m1", Float8E8M0: "float8e8m0",
	Uint2: "uint2", Int2: "int2",
}

// DTypeOf returns the element type of a number in a file, Undefined where it names none.
func DTypeOf(v int64) DType {
	if _, ok := dtypeNames[DType(v)]; !ok || v != int64(DType(v)) {
		return Undefined
	}
	return DType(v)
}

// String gives the name in messages, and dtype(N) of a number that names no type.
func (d DType) String() string {
	if s, ok := dtypeNames[d]; ok {
		return s
	}
	return fmt.Sprintf("dtype(%d)", int32(d))
}

// Known reports whether d is an element type that a tensor can have.
func (d DType) Known() bool { return d != Undefined && dtypeNames[d] != "" }

// Size returns the number of bytes of one element in memory; 0 for String and unknown types.
func (d DType) Size() int {
	switch d {
	case Bool, Uint8, Int8, Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E5M2FNUZ, Uint4, Int4,
		Float4E2M1, Float8E8M0, Uint2, Int2:
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
// has as many elements as the product of Shape; a scalar has an empty shape and one element. The
// data of a tensor that was loaded may lie in a file that is mapped, and are not changed in place.
type Tensor struct {
	DType DType
	Shape []int
	Data  any
	// External is where the data lie in a file, as they were loaded; nil where they lie in none, or
	// only in part of one.
	External *External
}

// External is a place in a file of tensor data.
type External struct {
	Folder   string // of the model
	Location string // of the file, below the folder
	Offset   int64
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
func TypeOf[T Element]() DType { return dtypes[reflect.TypeFor[[]T]()] }

// TypeOfSlice returns the DType whose elements a slice of Go's holds, Undefined where none does.
func TypeOfSlice(data any) DType { return dtypes[reflect.TypeOf(data)] }

// SliceType returns the Go type of the data of an element type, nil where there is none.
func (d DType) SliceType() reflect.Type { return sliceTypes[d] }

// sliceTypes holds the Go type of the data of each element type; dtypes is its inverse, without the
// halves and narrow types, whose elements are their bits.
var sliceTypes = map[DType]reflect.Type{
	Float32:        reflect.TypeFor[[]float32](),
	Float64:        reflect.TypeFor[[]float64](),
	Float16:        reflect.TypeFor[[]uint16](),
	BFloat16:       reflect.TypeFor[[]uint16](),
	Int8:           reflect.TypeFor[[]int8](),
	Int16:          reflect.TypeFor[[]int16](),
	Int32:          reflect.TypeFor[[]int32](),
	Int64:          reflect.TypeFor[[]int64](),
	Uint8:          reflect.TypeFor[[]uint8](),
	Uint16:         reflect.TypeFor[[]uint16](),
	Uint32:         reflect.TypeFor[[]uint32](),
	Uint64:         reflect.TypeFor[[]uint64](),
	Bool:           reflect.TypeFor[[]bool](),
	String:         reflect.TypeFor[[]string](),
	Float8E4M3FN:   reflect.TypeFor[[]uint8](),
	Float8E4M3FNUZ: reflect.TypeFor[[]uint8](),
	Float8E5M2:     reflect.TypeFor[[]uint8](),
	Float8E5M2FNUZ: reflect.TypeFor[[]uint8](),
	Uint4:          reflect.TypeFor[[]uint8](),
	Int4:           reflect.TypeFor[[]int8](),
	Float4E2M1:     reflect.TypeFor[[]uint8](),
	Float8E8M0:     reflect.TypeFor[[]uint8](),
	Uint2:          reflect.TypeFor[[]uint8](),
	Int2:           reflect.TypeFor[[]int8](),
}

var dtypes = func() map[reflect.Type]DType {
	m := map[reflect.Type]DType{}
	for d, t := range sliceTypes {
		if d != Float16 && d != BFloat16 && !d.IsNarrow() {
			m[t] = d
		}
	}
	return m
}()

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
	typ, ok := sliceTypes[d]
	if !ok {
		return nil, fmt.Errorf("no tensor of element type %v", d)
	}
	return &Tensor{DType: d, Shape: append([]int{}, shape...),
		Data: reflect.MakeSlice(typ, n, n).Interface()}, nil
}

// ZerosF32 allocates a float32 tensor of zeros; it panics on an impossible shape.
func ZerosF32(shape ...int) *Tensor {
	t, err := Zeros(Float32, shape...)
	if err != nil {
		panic("onnx.ZerosF32: " + err.Error())
	}
	return t
}

// Len returns the number of elements. It trusts the shape, whose product [CheckTensor] bounds.
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

// Ints returns the elements of an Int64 or Int32 tensor as ints, as shapes and axes are given. On a
// machine of 32 bits a number beyond an int, such as the end of an open slice, becomes the largest
// or smallest int.
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

// At returns element i of a tensor of numbers or booleans; of text it is not a number. Integers
// beyond 2^53 are rounded.
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
		if t.DType.IsNarrowFloat() {
			return float64(NarrowToFloat32(t.DType)[d[i]])
		}
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

// Clone copies a tensor and its data. External is left out, as the copy lies in no file.
func (t *Tensor) Clone() *Tensor {
	c := &Tensor{DType: t.DType, Shape: append([]int{}, t.Shape...)}
	if d := reflect.ValueOf(t.Data); d.IsValid() {
		own := reflect.MakeSlice(d.Type(), d.Len(), d.Len())
		reflect.Copy(own, d)
		c.Data = own.Interface()
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
		return nil, fmt.Errorf("cannot reshape %v (%d elements) to %v (%d elements)", t.Shape,
			t.Len(), shape, n)
	}
	return &Tensor{DType: t.DType, Shape: append([]int{}, shape...), Data: t.Data}, nil
}

// String gives type and shape, and no elements.
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
	want, ok := dtypes[reflect.TypeOf(t.Data)]
	if !ok {
		return fmt.Errorf("tensor data is a %T, which holds no ONNX element type", t.Data)
	}
	if sliceTypes[t.DType] != sliceTypes[want] {
		return fmt.Errorf("tensor says %v but holds %v", t.DType, want)
	}
	have := reflect.ValueOf(t.Data).Len()
	if have != n {
		return fmt.Errorf("tensor of shape %v needs %d elements and holds %d", t.Shape, n, have)
	}
	return nil
}
