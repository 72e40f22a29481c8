package ort

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	ortgo "github.com/yalue/onnxruntime_go"

	"fmp/onnx"
)

// value is a tensor of the ONNX Runtime over the memory of a Go tensor, which stays pinned as long
// as the ONNX Runtime may use it.
type value struct {
	ort   ortgo.Value
	pin   runtime.Pinner
	data  unsafe.Pointer // first element; nil where the elements were copied
	n     int
	dtype onnx.DType
	shape []int
	refs  int    // runs that use it now
	used  uint64 // when it was last asked for
}

// destroy unpins after the tensor is gone, as the runtime may hold the memory until then.
func (v *value) destroy() {
	v.ort.Destroy()
	v.pin.Unpin()
}

// wraps compares type and shape too: one memory may be fed in another form.
func (v *value) wraps(p unsafe.Pointer, t *onnx.Tensor) bool {
	return v.data != nil && v.data == p && v.dtype == t.DType && slices.Equal(v.shape, t.Shape)
}

// pool keeps, for every input and output by name, the last few tensors of the ONNX Runtime, so that
// calls that come back with the same Go memory (or swap two of them) find theirs ready.
// mu guards all fields, and refs and used of the tensors kept. clock counts calls of get, and so
// orders tensors by their last use.
type pool struct {
	mu    sync.Mutex
	clock uint64
	kept  map[string][]*value
}

// keep is how many tensors a name keeps: two for buffers that are swapped. Their Go memory lives on
// as long as they are kept.
const keep = 2

// get finds or makes the tensor over t; put gives it back. The lock is not held while a tensor is
// made. Two runs may thus wrap the same memory; put lets the older go. It may be called from
// several goroutines.
func (p *pool) get(name string, t *onnx.Tensor) (*value, error) {
	ptr := firstElement(t)
	p.mu.Lock()
	p.clock++
	if ptr != nil {
		for _, v := range p.kept[name] {
			if v.wraps(ptr, t) {
				v.refs++
				v.used = p.clock
				p.mu.Unlock()
				return v, nil
			}
		}
	}
	now := p.clock
	p.mu.Unlock()
	v, err := wrap(t, ptr)
	if err != nil {
		return nil, err
	}
	v.refs, v.used = 1, now
	if v.data == nil {
		return v, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[name] = append(p.kept[name], v)
	return v, nil
}

// put returns a tensor after a run and lets go of those that nobody asked for lately. Tensors of
// copied elements are of one run, and are destroyed at once. One that a run still uses is never
// destroyed, so that more than keep may be there.
func (p *pool) put(name string, v *value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v.refs--
	if v.data == nil {
		v.destroy()
		return
	}
	vs := p.kept[name]
	// The least recently used goes first.
	for len(vs) > keep {
		oldest := -1
		for i, v := range vs {
			if v.refs == 0 && (oldest < 0 || v.used < vs[oldest].used) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		vs[oldest].destroy()
		vs = append(vs[:oldest], vs[oldest+1:]...)
	}
	p.kept[name] = vs
}

// close destroys every tensor; no run may be under way.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, vs := range p.kept {
		for _, v := range vs {
			v.destroy()
		}
	}
	p.kept = map[string][]*value{}
}

// firstElement is where the elements of t lie, nil where there are none or they cannot be shared: a
// string's bytes, and a scalar's element, which onnxruntime_go copies.
func firstElement(t *onnx.Tensor) unsafe.Pointer {
	if len(t.Shape) == 0 || t.DType == onnx.String {
		return nil
	}
	return reflect.ValueOf(t.Data).UnsafePointer()
}

// wrap makes a tensor of the ONNX Runtime from t. t has been checked. Of no elements nothing is
// pinned, and the tensor is not kept. On an error nothing stays pinned.
func wrap(t *onnx.Tensor, ptr unsafe.Pointer) (*value, error) {
	// The shape is copied, since the tensor may be kept beyond the call.
	v := &value{data: ptr, n: t.Len(), dtype: t.DType, shape: append([]int{}, t.Shape...)}
	if v.n == 0 {
		v.data = nil
	}
	if v.data != nil {
		v.pin.Pin((*byte)(v.data))
	}
	var err error
	switch {
	case t.DType == onnx.String:
		v.ort, err = wrapStrings(t)
	case t.DType == onnx.Float16 || t.DType == onnx.BFloat16:
		v.ort, err = wrapBytes(t, func() []byte { return unsafe.Slice((*byte)(ptr), 2*v.n) },
			&v.pin)
	case t.DType.IsNarrow():
		v.data = nil // packed, which is a copy
		v.ort, err = wrapBytes(t, func() []byte { return onnx.PackedData(t) }, &v.pin)
	default:
		err = fmt.Errorf("elements of type %T cannot be handed to the ONNX Runtime", t.Data)
		for _, k := range kinds {
			if k.holds(t.Data) {
				v.ort, err = k.wrap(t)
			}
		}
	}
	if err != nil {
		v.pin.Unpin()
		return nil, err
	}
	return v, nil
}

// kind is an element type that Go and onnxruntime_go share.
type kind interface {
	holds(data any) bool
	wrap(t *onnx.Tensor) (ortgo.Value, error) // of data that it holds
	unwrap(v ortgo.Value) any                 // nil where v is of another type
}

var kinds = []kind{elements[float32]{}, elements[float64]{}, elements[int8]{}, elements[int16]{},
	elements[int32]{}, elements[int64]{}, elements[uint8]{}, elements[uint16]{}, elements[uint32]{},
	elements[uint64]{}, elements[bool]{}}

// elements is the kind of T.
type elements[T ortgo.TensorData] struct{}

func (elements[T]) holds(data any) bool { _, ok := data.([]T); return ok }

func (elements[T]) wrap(t *onnx.Tensor) (ortgo.Value, error) {
	data := t.Data.([]T)
	if len(t.Shape) == 0 {
		return ortgo.NewScalar(data[0])
	}
	return ortgo.NewTensor(ortShape(t.Shape), data)
}

// The slice is onnxruntime_go's copy, and becomes the caller's.
func (elements[T]) unwrap(v ortgo.Value) any {
	if t, ok := v.(*ortgo.Tensor[T]); ok {
		return t.GetData()
	}
	return nil
}

// wrapStrings copies the strings, as the runtime holds them in a form of its own.
func wrapStrings(t *onnx.Tensor) (ortgo.Value, error) {
	if len(t.Shape) == 0 {
		return nil, fmt.Errorf("a scalar string cannot be handed to the ONNX Runtime; give it shape [1]")
	}
	s, err := ortgo.NewStringTensor(ortShape(t.Shape))
	if err != nil {
		return nil, err
	}
	if err := s.SetContents(t.Data.([]string)); err != nil {
		s.Destroy()
		return nil, err
	}
	return s, nil
}

// wrapBytes makes a tensor of a type that Go lacks from its bytes, which stay pinned. bytes is
// called behind the check for scalars, which have no address here.
func wrapBytes(t *onnx.Tensor, bytes func() []byte, pin *runtime.Pinner) (ortgo.Value, error) {
	if len(t.Shape) == 0 {
		return nil, fmt.Errorf("a scalar of %v cannot be handed to the ONNX Runtime; give it shape [1]",
			t.DType)
	}
	raw := bytes()
	if len(raw) == 0 {
		raw = make([]byte, 1) // onnxruntime_go wants a byte, even of nothing
	}
	pin.Pin(&raw[0])
	return ortgo.NewCustomDataTensor(ortShape(t.Shape), raw, toRuntime(t.DType))
}

func ortShape(shape []int) ortgo.Shape {
	s := make(ortgo.Shape, len(shape))
	for i, d := range shape {
		s[i] = int64(d)
	}
	return s
}

// unwrap takes the Go memory of a tensor that the ONNX Runtime allocated and onnxruntime_go copied,
// and destroys the tensor.
func unwrap(v ortgo.Value) (*onnx.Tensor, error) {
	defer v.Destroy()
	shape := []int{}
	for _, d := range v.GetShape() {
		shape = append(shape, int(d))
	}
	out := &onnx.Tensor{Shape: shape}
	if texts, ok := v.(*ortgo.StringTensor); ok {
		s, err := texts.GetContents()
		if err != nil {
			return nil, err
		}
		out.Data = s
	}
	for _, k := range kinds {
		if data := k.unwrap(v); data != nil {
			out.Data = data
		}
	}
	if out.Data == nil {
		return nil, fmt.Errorf("a value of kind %T, which is not supported", v)
	}
	out.DType = onnx.TypeOfSlice(out.Data)
	return out, onnx.CheckTensor(out)
}

// copyInto copies the elements of src to dst, which has the same type and as many elements.
func copyInto(dst, src *onnx.Tensor) error {
	d, s := reflect.ValueOf(dst.Data), reflect.ValueOf(src.Data)
	if d.Type() != s.Type() || d.Len() != s.Len() {
		return fmt.Errorf("%v does not fit a tensor of %d elements of %v", src, d.Len(),
			d.Type().Elem())
	}
	reflect.Copy(d, s)
	return nil
}
