package statedict

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Values are printed by type alone: a few bytes make one that has no end in print.

// The values of a pickle beside int, bool, string, nil and tuples ([]any). Integers are int where
// an operation gives them 32 bits or fewer, and long where it states a length.
type (
	long   string // an integer of any length, little-endian
	global string // module and name
	list   struct{ items []any }
	dict   struct { // in the order of insertion; keys that are no strings are refused
		keys   []string
		values []any
		at     map[string]int
	}
	mark struct{}
)

// set puts a value under a key, in the place of an earlier one. A dictionary of Python keeps the
// first place of a key, and the last value.
func (d *dict) set(key, value any) error {
	k, ok := key.(string)
	if !ok {
		return fmt.Errorf("a dictionary's key is a %T; want a string", key)
	}
	if d.at == nil {
		d.at = map[string]int{}
	}
	if i, ok := d.at[k]; ok {
		d.values[i] = value
		return nil
	}
	d.at[k] = len(d.keys)
	d.keys, d.values = append(d.keys, k), append(d.values, value)
	return nil
}

// get returns the value under a key; nil for none.
func (d *dict) get(key string) any {
	if i, ok := d.at[key]; ok {
		return d.values[i]
	}
	return nil
}

// machine runs pickles of protocol 2 (Python's pickletools describes the operations). Its stack
// holds the values that operations take and push, and its memo those that they keep by number. Both
// are of one pickle; storages are of the whole file. data is never written. A machine is used by
// one goroutine.
type machine struct {
	data     []byte
	at       int
	stack    []any
	memo     map[uint32]any
	storages map[string]*storage
	tensors  int // so far
	copied   int // elements of tensors that are no runs
}

// take returns the next n bytes. The slice is of the file itself: callers copy it or do not change
// it. Lengths are bounded here, so that hostile ones allocate nothing.
func (m *machine) take(n int) ([]byte, error) {
	if n < 0 || n > len(m.data)-m.at {
		return nil, errors.New("the file is cut off")
	}
	b := m.data[m.at : m.at+n]
	m.at += n
	return b, nil
}

// uint reads an unsigned number of n bytes. n is 1, 2 or 4. Past the end it is 0, with the error.
func (m *machine) uint(n int) (uint32, error) {
	var b [4]byte
	v, err := m.take(n)
	copy(b[:], v)
	return binary.LittleEndian.Uint32(b[:]), err
}

// push puts a value on the stack.
func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// pop takes the value on top of the stack.
func (m *machine) pop() (any, error) {
	if len(m.stack) == 0 {
		return nil, errors.New("an operation finds nothing on the stack")
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// popMark takes the values above the last mark, and the mark. They are copied, since the stack is
// written over. Values that are passed over are taken off too, so that all calls together take
// O(operations) steps.
func (m *machine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		// Interfaces of other types are compared by type alone, so that lists and tuples do not
		// panic.
		if m.stack[i] == (mark{}) {
			items := append([]any(nil), m.stack[i+1:]...)
			m.stack = m.stack[:i]
			return items, nil
		}
	}
	return nil, errors.New("an operation finds no mark on the stack")
}

// run runs one pickle and returns its value. It reads from m.at on, up to STOP. Each operation
// pushes one value at most, so that maxSteps bounds the stack.
func (m *machine) run() (any, error) {
	m.stack, m.memo = nil, map[uint32]any{}
	for range maxSteps {
		b, err := m.take(1)
		if err != nil {
			return nil, err
		}
		if b[0] == '.' {
			return m.pop()
		}
		done, err := m.constant(b[0])
		if err == nil && !done {
			err = m.build(b[0])
		}
		if err != nil {
			return nil, fmt.Errorf("operation %q at byte %d: %w", b[0], m.at-1, err)
		}
	}
	return nil, fmt.Errorf("more than %d operations", maxSteps)
}

// constant runs an operation that pushes a value of its own or keeps one; done is false for others.
func (m *machine) constant(op byte) (done bool, err error) {
	var n uint32
	switch op {
	case '\x80': // PROTO
		// torch.save writes protocol 2 unless it is asked for another.
		if n, err = m.uint(1); err == nil && n != 2 {
			err = fmt.Errorf("pickle protocol %d; want 2", n)
		}
	// MARK
	case '(':
		m.push(mark{})
	// NONE
	case 'N':
		m.push(nil)
	// NEWTRUE, NEWFALSE
	case '\x88', '\x89':
		m.push(op == '\x88')
	// EMPTY_TUPLE
	case ')':
		m.push([]any(nil))
	// EMPTY_LIST
	case ']':
		m.push(&list{})
	// EMPTY_DICT
	case '}':
		m.push(&dict{})
	// The last one is signed; the others are shorter than 32 bits.
	case 'K', 'M', 'J': // BININT1, BININT2, BININT
		n, err = m.uint(map[byte]int{'K': 1, 'M': 2, 'J': 4}[op])
		m.push(int(int32(n)))
	case '\x8a': // LONG1
		var b []byte
		if n, err = m.uint(1); err == nil {
			b, err = m.take(int(n))
		}
		m.push(long(b))
	case 'X': // BINUNICODE
		var b []byte
		if n, err = m.uint(4); err == nil && n > maxString {
			err = fmt.Errorf("a string of %d bytes; allowed are %d", n, maxString)
		}
		if err == nil {
			b, err = m.take(int(n))
		}
		if err == nil && !utf8.Valid(b) {
			err = errors.New("a string that is not UTF-8")
		}
		m.push(string(b))
	case 'c': // GLOBAL: two lines
		// Where there is no first line, end is -1, and the second is looked for at the same place:
		// neither is taken.
		end := bytes.IndexByte(m.data[m.at:], '\n')
		next := bytes.IndexByte(m.data[m.at+end+1:], '\n')
		// end + next bounds both lines together.
		if end < 0 || next < 0 || end+next > maxString {
			return true, errors.New("a name without an end")
		}
		name := string(m.data[m.at:m.at+end]) + " " + string(m.data[m.at+end+1:m.at+end+1+next])
		m.at += end + next + 2
		switch name {
		case orderedDict, rebuild, floatStorage, longStorage:
			m.push(global(name))
		default:
			err = fmt.Errorf("it names %q; known are %s, %s, %s and %s", name, orderedDict, rebuild,
				floatStorage, longStorage)
		}
	case 'q', 'r', 'h', 'j': // BINPUT, LONG_BINPUT, BINGET, LONG_BINGET
		err = m.recall(op)
	default:
		return false, nil
	}
	return true, err
}

// recall keeps the top of the stack under a number, or pushes the value that was kept. The memo
// keeps the value itself, not a copy, as Python's does.
func (m *machine) recall(op byte) error {
	n, err := m.uint(map[byte]int{'q': 1, 'r': 4, 'h': 1, 'j': 4}[op])
	if err != nil {
		return err
	}
	if op == 'q' || op == 'r' {
		if len(m.stack) == 0 {
			return errors.New("nothing to keep")
		}
		m.memo[n] = m.stack[len(m.stack)-1]
		return nil
	}
	v, ok := m.memo[n]
	if !ok {
		return fmt.Errorf("nothing was kept under %d", n)
	}
	m.push(v)
	return nil
}

// build runs an operation that makes a value of others. Operations that would import, call or set
// anything else are refused by name.
func (m *machine) build(op byte) error {
	switch op {
	case 't', 'u', 'e': // TUPLE, SETITEMS, APPENDS
		items, err := m.popMark()
		if err != nil {
			return err
		}
		if op == 't' {
			m.push(items)
			return nil
		}
		return m.fill(items, op == 'u')
	// TUPLE1, TUPLE2, SETITEM, APPEND, BUILD, REDUCE
	case '\x85', '\x86', 's', 'a', 'b', 'R': // of one or two values
		// Two values are taken in the order of the stack: the last pushed is the second.
		two := op == '\x86' || op == 's' || op == 'R' || op == 'b'
		last, err := m.pop()
		if err != nil {
			return err
		}
		if !two {
			if op == 'a' {
				return m.fill([]any{last}, false)
			}
			m.push([]any{last})
			return nil
		}
		first, err := m.pop()
		if err != nil {
			return err
		}
		switch op {
		case '\x86':
			m.push([]any{first, last})
		case 's':
			return m.fill([]any{first, last}, true)
		case 'b': // attributes of the dictionary, which say nothing of its tensors
			m.push(first)
		default:
			return m.reduce(first, last)
		}
	// BINPERSID
	case 'Q':
		id, err := m.pop()
		if err != nil {
			return err
		}
		return m.persistent(id)
	default:
		return errors.New("it is none that tensors need, and is refused")
	}
	return nil
}

// fill adds items to the list, or pairs to the dictionary, on top of the stack. These are shared
// where the memo has them: a list may come to hold itself. Values are therefore never walked but by
// the code that knows their shape.
func (m *machine) fill(items []any, pairs bool) error {
	if len(m.stack) == 0 || pairs && len(items)%2 != 0 {
		return errors.New("nothing to add to, or half a pair")
	}
	top := m.stack[len(m.stack)-1]
	if l, ok := top.(*list); ok && !pairs {
		l.items = append(l.items, items...)
		return nil
	}
	d, ok := top.(*dict)
	if !ok || !pairs {
		return fmt.Errorf("items for a %T", top)
	}
	for i := 0; i < len(items); i += 2 {
		if err := d.set(items[i], items[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// reduce calls one of the two functions that are known. Nothing else can be called: no pickle runs
// code of its own. A call needs a global, and constant pushes four alone. The arguments of a tensor
// are checked, and its hooks are not looked at.
func (m *machine) reduce(f, args any) error {
	a, ok := args.([]any)
	name, _ := f.(global)
	switch {
	case ok && name == orderedDict && len(a) == 0:
		m.push(&dict{})
		return nil
	case ok && name == rebuild && len(a) == 6:
		// storage, offset, shape, strides, requires_grad, hooks
		v, err := m.tensor(a)
		if err != nil {
			return err
		}
		m.push(v)
		return nil
	}
	return fmt.Errorf("a call of %q with %d arguments is refused", name, len(a))
}

// tensor checks a tensor's description: its elements lie within its storage, and all tensors that
// are no runs of it, and are copied, have no more elements than the file has bytes. The last
// element that it names is at
//
//	offset + sum_i (shape_i - 1) strides_i
//
// Views are not expanded here: the elements come behind the pickles.
func (m *machine) tensor(a []any) (*view, error) {
	s, ok := a[0].(*storage)
	offset, ok1 := a[1].(int)
	shape, ok2 := a[2].([]any)
	strides, ok3 := a[3].([]any)
	if m.tensors++; !ok || !ok1 || !ok2 || !ok3 || len(shape) != len(strides) ||
		len(shape) > maxAxes || m.tensors > maxTensors {
		return nil, errors.New("a tensor is not described as storage, offset, shape and strides")
	}
	v := &view{of: s, offset: offset, shape: make([]int, len(shape)),
		strides: make([]int, len(shape)), run: true}
	n, last := 1, offset
	for i := len(shape) - 1; i >= 0; i-- {
		d, ok := shape[i].(int)
		stride, ok1 := strides[i].(int)
		// Empty axes and negative strides are refused with those that are too large. Strides of 0
		// are allowed, as Python's expand makes them: hence the bound on copies.
		if !ok || !ok1 || d < 1 || d > s.n || stride < 0 || stride > s.n {
			return nil, fmt.Errorf("axis %d of a tensor of %d axes is larger than its storage", i,
				len(shape))
		}
		// Rows lie one after another where each stride is the product of the sizes behind its axis.
		v.run = v.run && (d == 1 || stride == n)
		v.shape[i], v.strides[i] = d, stride
		last += (d - 1) * stride // below 2^56, as the file has at most 2^28 bytes
		if n *= d; n > s.n {
			return nil, errors.New("a tensor is larger than its storage")
		}
	}
	if offset < 0 || last >= s.n {
		return nil, fmt.Errorf("a tensor from element %d to %d of a storage of %d",
			offset, last, s.n)
	}
	if !v.run {
		if m.copied += n; m.copied > len(m.data) {
			return nil, errors.New("its tensors share elements, and copies of them are larger " +
				"than the file")
		}
	}
	return v, nil
}

// persistent pushes the storage that an id names: ("storage", type, key, "cpu", elements, None). A
// storage is made where it is first named. Its elements come behind the pickles. The place "cpu" is
// not looked at. The number of elements is bounded by the file's size, and memory is taken only
// when the elements have been read.
func (m *machine) persistent(id any) error {
	a, _ := id.([]any)
	if len(a) != 6 || a[0] != "storage" {
		return errors.New("an id that is not a storage's")
	}
	kind, _ := a[1].(global)
	key, ok := a[2].(string)
	n, ok1 := a[4].(int)
	if kind != floatStorage && kind != longStorage || !ok || !ok1 || n < 0 ||
		n > len(m.data) || a[5] != nil {
		return fmt.Errorf("a storage of %d elements of %q; want 32-bit floats or 64-bit "+
			"integers, within the file", n, kind)
	}
	s := m.storages[key]
	if s == nil {
		s = &storage{kind: string(kind), n: n}
		m.storages[key] = s
	}
	if s.n != n || s.kind != string(kind) {
		return fmt.Errorf("storage %s is described twice, differently", key)
	}
	m.push(s)
	return nil
}
