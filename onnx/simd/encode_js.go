package simd

import (
	"math"
	"slices"
)

// Opcodes of WebAssembly, with their names in the specification's text format.
const (
	opLoop   = 0x03
	opIf     = 0x04
	opElse   = 0x05
	opEnd    = 0x0b
	opBrIf   = 0x0d
	localGet = 0x20
	localSet = 0x21
	i32Load  = 0x28
	i32Const = 0x41
	i32Eq    = 0x46
	i32Add   = 0x6a
	i32And   = 0x71
	i32Shl   = 0x74
)

// vector is the number of an instruction behind the prefix 0xfd.
type vector uint32

const (
	v128Load        vector = 0x00
	v128Load32Splat vector = 0x09
	v128Store       vector = 0x0b
	i8x16Shuffle    vector = 0x0d
	v128Store32Lane vector = 0x5b - 1
	f32x4Splat      vector = 0x13
	f32x4Add        vector = 0xe4
	f32x4Sub        vector = 0xe5
	f32x4Mul        vector = 0xe6
	f32x4Div        vector = 0xe7
	f32x4Pmin       vector = 0xea // b < a ? b : a
	f32x4Pmax       vector = 0xeb // a < b ? b : a
)

// Types of values, and the empty type of a block.
const (
	typeI32, typeV128 = 0x7f, 0x7b
	typeEmpty         = 0x40
	typeFunction      = 0x60
)

// local is a local variable of a function. That of number 0 is its parameter, the address of its
// arguments.
type local uint32

const arguments local = 0

// function writes a function's code: instructions of a stack machine, in order.
type function struct {
	name   string
	locals []byte // types
	code   []byte
}

func unsigned(b []byte, v uint32) []byte {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

func signed(b []byte, v int32) []byte {
	for {
		low := byte(v) & 0x7f
		if v >>= 7; v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

// new declares a variable.
func (f *function) new(kind byte) local {
	f.locals = append(f.locals, kind)
	return local(len(f.locals))
}

// number declares an integer; numbers declares vectors in rows.
func (f *function) number() local { return f.new(typeI32) }

func (f *function) vectors(n int) []local {
	out := make([]local, n)
	for i := range out {
		out[i] = f.new(typeV128)
	}
	return out
}

func (f *function) op(codes ...byte) { f.code = append(f.code, codes...) }

func (f *function) get(v ...local) {
	for _, v := range v {
		f.op(localGet)
		f.code = unsigned(f.code, uint32(v))
	}
}

func (f *function) set(v local) {
	f.op(localSet)
	f.code = unsigned(f.code, uint32(v))
}

func (f *function) constant(v int) {
	f.op(i32Const)
	f.code = signed(f.code, int32(v))
}

// vector writes a vector instruction.
func (f *function) vector(v vector) {
	f.op(0xfd)
	f.code = unsigned(f.code, uint32(v))
}

// at writes the operands of an access to memory: no alignment, and the offset from the address in
// bytes.
func (f *function) at(offset int) {
	f.op(0)
	f.code = unsigned(f.code, uint32(offset))
}

// load pushes the vector, or by v128Load32Splat a number four times, that lies offset bytes behind
// an address.
func (f *function) load(v vector, address local, offset int) {
	f.get(address)
	f.vector(v)
	f.at(offset)
}

// store pops a vector.
func (f *function) store(address local, offset int, value local) {
	f.get(address, value)
	f.vector(v128Store)
	f.at(offset)
}

// integer sets a variable to the low half of an address or integer of Go, of 64 bits, that lies
// offset bytes behind an address.
func (f *function) integer(v, address local, offset uintptr) {
	f.get(address)
	f.op(i32Load)
	f.at(int(offset))
	f.set(v)
}

// argument declares a variable and sets it to an argument.
func (f *function) argument(offset uintptr) local {
	v := f.number()
	f.integer(v, arguments, offset)
	return v
}

// advance adds bytes to an address.
func (f *function) advance(v local, by int) {
	f.get(v)
	f.constant(by)
	f.op(i32Add)
	f.set(v)
}

// sum sets a variable to the sum of two.
func (f *function) sum(v, a, b local) {
	f.get(a, b)
	f.op(i32Add)
	f.set(v)
}

// copy sets a variable to another.
func (f *function) copy(to, from local) {
	f.get(from)
	f.set(to)
}

// scale multiplies a variable by a power of two.
func (f *function) scale(v local, bits int) {
	f.get(v)
	f.constant(bits)
	f.op(i32Shl)
	f.set(v)
}

// count repeats body until the variable, by which it is lowered after each turn, is zero, at least
// once.
func (f *function) count(v local, by int, body func()) {
	f.op(opLoop, typeEmpty)
	body()
	f.advance(v, -by)
	f.get(v)
	f.op(opBrIf, 0, opEnd)
}

// masked sets v to n with a mask, and repeats body while that, lowered by as much after each turn,
// is not zero.
func (f *function) masked(v, n local, mask, by int, body func()) {
	f.get(n)
	f.constant(mask)
	f.op(i32And)
	f.set(v)
	f.get(v)
	f.when(func() { f.count(v, by, body) }, nil)
}

// when runs body where the number on the stack is not zero; otherwise has the code in its place,
// where it is not nil.
func (f *function) when(body, otherwise func()) {
	f.op(opIf, typeEmpty)
	body()
	if otherwise != nil {
		f.op(opElse)
		otherwise()
	}
	f.op(opEnd)
}

// module returns the kernels as a WebAssembly module, which imports the memory go.mem and exports
// each under its name.
func module() []byte {
	functions := kernels()
	section := func(b []byte, id byte, content []byte) []byte {
		return append(unsigned(append(b, id), uint32(len(content))), content...)
	}
	text := func(b []byte, s string) []byte { return append(unsigned(b, uint32(len(s))), s...) }
	n := uint32(len(functions))
	out := []byte("\x00asm\x01\x00\x00\x00")
	// types: one, of an integer and no result
	out = section(out, 1, []byte{1, typeFunction, 1, typeI32, 0})
	// imports: a memory of any size
	out = section(out, 2, append(text(text([]byte{1}, "go"), "mem"), 0x02, 0x00, 0x00))
	out = section(out, 3, append(unsigned(nil, n), slices.Repeat([]byte{0}, len(functions))...))
	exports, code := unsigned(nil, n), unsigned(nil, n)
	for i, f := range functions {
		exports = unsigned(append(text(exports, f.name), 0x00), uint32(i))
		body := unsigned(nil, uint32(len(f.locals)))
		for _, kind := range f.locals {
			body = append(body, 1, kind)
		}
		body = append(append(body, f.code...), opEnd)
		code = append(unsigned(code, uint32(len(body))), body...)
	}
	return section(section(out, 7, exports), 10, code)
}

// float returns the immediate bytes of a number.
func float(v float32) []byte {
	b := math.Float32bits(v)
	return []byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)}
}
