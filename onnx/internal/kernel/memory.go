package kernel

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"sync"

	"fmp/onnx"
)

// Bounds on the memory that a model may ask for when it runs, so that a hostile shape is an error
// and not an exhausted machine.
const (
	// maxTensorBytes bounds one intermediate tensor: 2 GiB.
	maxTensorBytes = 2 << 30
	// MaxLiveBytes bounds all intermediate tensors of a session, those kept for later included,
	// unless its engine has another bound: 8 GiB.
	MaxLiveBytes = 8 << 30
)

// Pool keeps the buffers of values that are no longer needed for those that come. It is safe for
// concurrent use.
type Pool struct {
	Most int64 // bytes handed out and kept; 0: MaxLiveBytes

	mu   sync.Mutex
	live int64 // bytes handed out
	kept int64 // bytes of unused buffers
	free map[reflect.Type]freeList
}

// freeList holds unused buffers of one type by their capacity, smallest first: the turns of a loop
// leave very many of one. It is one program for all types, which would otherwise be compiled twelve
// times.
type freeList []equals

// equals are unused buffers of one capacity.
type equals struct {
	one  reflect.Value
	more []reflect.Value
}

// get takes the smallest buffer that holds n elements, the zero value where there is none. One that
// is far too large is left for a larger value; where none fits, the largest that is too small is
// given up, so that a growing batch does not pile up buffers of every size it has had. gone is the
// capacity that left the list. Four times the size, and 1024 elements, count as not too large.
func (l *freeList) get(n int) (b reflect.Value, gone int) {
	i := l.from(n)
	if i < len(*l) && (*l)[i].one.Cap() <= 4*n+1024 {
		b = l.remove(i)
		return b.Slice(0, n), b.Cap()
	}
	if i > 0 {
		gone = l.remove(i - 1).Cap()
	}
	return b, gone
}

// remove takes one of the buffers at a place. The last of several buffers is taken, which no other
// has to move for.
func (l *freeList) remove(i int) reflect.Value {
	e := &(*l)[i]
	b, last := e.one, len(e.more)-1
	if last < 0 {
		*l = slices.Delete(*l, i, i+1)
		return b
	}
	b, e.more[last] = e.more[last], reflect.Value{}
	e.more = e.more[:last]
	return b
}

// add puts a buffer in its place. A new capacity costs O(capacities) moves.
func (l *freeList) add(b reflect.Value) {
	i := l.from(b.Cap())
	if i < len(*l) && (*l)[i].one.Cap() == b.Cap() {
		(*l)[i].more = append((*l)[i].more, b)
		return
	}
	*l = slices.Insert(*l, i, equals{one: b})
}

// from returns the place of the smallest buffers that hold n elements. It is a binary search, O(log
// capacities).
func (l freeList) from(n int) int {
	return sort.Search(len(l), func(i int) bool { return l[i].one.Cap() >= n })
}

// take returns n elements from the pool's list of a type of slices, or new ones within its limit,
// for which it gives up unused buffers where it must.
func (p *Pool) take(slice reflect.Type, n int) (any, error) {
	size := int64(slice.Elem().Size())
	l := p.free[slice]
	b, gone := l.get(n)
	p.keep(slice, l)
	p.kept -= int64(gone) * size
	if !b.IsValid() {
		limit, need := cmp.Or(p.Most, MaxLiveBytes), int64(n)*size
		if p.live+p.kept+need > limit {
			p.free, p.kept = nil, 0
		}
		if p.live+need > limit {
			return nil, fmt.Errorf("intermediate values take more than %d bytes; run a smaller batch", limit)
		}
		b = reflect.MakeSlice(slice, n, n)
	}
	p.live += int64(b.Cap()) * size
	return b.Interface(), nil
}

// keep stores a type's list, which may have grown. p.mu is held, as in take and leave.
func (p *Pool) keep(slice reflect.Type, l freeList) {
	if p.free == nil {
		p.free = map[reflect.Type]freeList{}
	}
	p.free[slice] = l
}

// Get returns a slice of n elements of the Go type that holds d, with arbitrary contents. A string
// counts as 16 bytes, those of its header. An error says that n is over the bound of one tensor, or
// the pool over its limit.
func (p *Pool) Get(d onnx.DType, n int) (any, error) {
	size := int64(d.Size())
	if d == onnx.String {
		size = 16
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < 0 || int64(n)*size > maxTensorBytes {
		return nil, fmt.Errorf("a tensor of %d elements of %v is over the bound of %d bytes", n, d,
			int64(maxTensorBytes))
	}
	slice := d.SliceType()
	if slice == nil {
		return nil, fmt.Errorf("no buffer of element type %v", d)
	}
	return p.take(slice, n)
}

// Put returns a buffer from Get to the pool. The caller must not use it afterwards.
func (p *Pool) Put(b any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(b)
	p.kept += bufferBytes(b)
	if v := reflect.ValueOf(b); v.IsValid() && v.Cap() > 0 {
		l := p.free[v.Type()]
		l.add(v)
		p.keep(v.Type(), l)
	}
}

// Forget says that a buffer from Get leaves the pool for good: it belongs to the caller now.
func (p *Pool) Forget(b any) {
	p.mu.Lock()
	p.leave(b)
	p.mu.Unlock()
}

// leave takes a buffer from those handed out. A kernel may have made it by itself.
func (p *Pool) leave(b any) { p.live = max(0, p.live-bufferBytes(b)) }

// bufferBytes is the size of a slice's capacity; of text, of its headers alone.
func bufferBytes(b any) int64 {
	v := reflect.ValueOf(b)
	if !v.IsValid() {
		return 0
	}
	return int64(v.Cap()) * int64(v.Type().Elem().Size())
}
