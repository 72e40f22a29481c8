package simd

import (
	"unsafe"

	"fmp/onnx/internal/kernel"
)

// kernels are the functions of the module. Offsets of arguments are those of kernel's structs in
// Go's memory.
func kernels() []*function {
	return []*function{panels(), taps(), finish(), pairs(), deinterleave()}
}

// panels writes the kernel of [kernel.PanelArgs]: 4 x 8 sums in eight vectors, of each row two,
// over the inner axis; tiles go down the rows of a panel of B, which stays in the first-level
// cache, and then to the next panel. The struct counts strides in float32, and the module's
// addresses are in bytes.
func panels() *function {
	const rows, halves, bytes = 4, 2, 16
	var p kernel.PanelArgs
	f := &function{name: "panels"}
	a0, b0 := f.argument(unsafe.Offsetof(p.A)), f.argument(unsafe.Offsetof(p.B))
	c0, from0 := f.argument(unsafe.Offsetof(p.C)), f.argument(unsafe.Offsetof(p.From))
	k, rows0 := f.argument(unsafe.Offsetof(p.K)), f.argument(unsafe.Offsetof(p.Rows))
	panels, stride := f.argument(unsafe.Offsetof(p.Panels)), f.argument(unsafe.Offsetof(p.Stride))
	f.scale(stride, 2)
	a, b, from, left, n := f.number(), f.number(), f.number(), f.number(), f.number()
	c := []local{f.number(), f.number(), f.number(), f.number()}
	sums, low, high, one := f.vectors(rows*halves), f.vectors(1)[0], f.vectors(1)[0],
		f.vectors(1)[0]
	f.count(panels, 1, func() {
		f.copy(a, a0)
		f.copy(c[0], c0)
		f.copy(from, from0)
		f.copy(left, rows0)
		f.count(left, rows, func() {
			for r := 1; r < rows; r++ {
				f.sum(c[r], c[r-1], stride)
			}
			// With from each row's sums begin at its number there, and else they go on from c. from
			// moves on by a tile's rows.
			f.get(from)
			f.when(func() {
				for i, s := range sums {
					f.load(v128Load32Splat, from, 4*(i/halves))
					f.set(s)
				}
				f.advance(from, 4*rows)
			}, func() {
				for i, s := range sums {
					f.load(v128Load, c[i/halves], bytes*(i%halves))
					f.set(s)
				}
			})
			f.copy(b, b0)
			f.copy(n, k)
			f.count(n, 1, func() {
				f.load(v128Load, b, 0)
				f.set(low)
				f.load(v128Load, b, bytes)
				f.set(high)
				for r := range rows {
					f.load(v128Load32Splat, a, 4*r)
					f.set(one)
					for i, half := range []local{low, high} {
						s := sums[r*halves+i]
						f.get(s, one, half)
						// A product and its sum are rounded apart, as in the kernel in plain Go.
						f.vector(f32x4Mul)
						f.vector(f32x4Add)
						f.set(s)
					}
				}
				f.advance(a, 4*rows)
				f.advance(b, bytes*halves)
			})
			for i, s := range sums {
				f.store(c[i/halves], bytes*(i%halves), s)
			}
			f.sum(c[0], c[rows-1], stride)
		})
		// Behind the last tile b has run through its panel, and stands where the next begins.
		f.copy(b0, b)
		f.advance(c0, bytes*halves)
	})
	return f
}

// taps writes the kernel of [kernel.TapArgs]: 32 numbers at a time, in eight vectors, over the
// taps.
func taps() *function {
	const vectors, bytes = 8, 16
	var p kernel.TapArgs
	f := &function{name: "taps"}
	dst := f.argument(unsafe.Offsetof(p.Dst))
	src := f.argument(unsafe.Offsetof(p.Src))
	offsets0 := f.argument(unsafe.Offsetof(p.Offsets))
	weights0 := f.argument(unsafe.Offsetof(p.Weights))
	n := f.argument(unsafe.Offsetof(p.N))
	taps0 := f.argument(unsafe.Offsetof(p.Taps))
	offsets, weights, taps, at := f.number(), f.number(), f.number(), f.number()
	start, weight, sums := f.vectors(1)[0], f.vectors(1)[0], f.vectors(vectors)
	f.load(v128Load32Splat, arguments, int(unsafe.Offsetof(p.Start)))
	f.set(start)
	f.count(n, 4*vectors, func() {
		for _, s := range sums {
			f.copy(s, start)
		}
		f.copy(offsets, offsets0)
		f.copy(weights, weights0)
		f.copy(taps, taps0)
		f.count(taps, 1, func() {
			// Offsets are Go's ints, of eight bytes, and count float32.
			f.integer(at, offsets, 0)
			f.scale(at, 2)
			f.sum(at, at, src)
			f.load(v128Load32Splat, weights, 0)
			f.set(weight)
			for i, s := range sums {
				f.get(s, weight)
				f.load(v128Load, at, bytes*i)
				f.vector(f32x4Mul)
				f.vector(f32x4Add)
				f.set(s)
			}
			f.advance(offsets, 8)
			f.advance(weights, 4)
		})
		for i, s := range sums {
			f.store(dst, bytes*i, s)
		}
		f.advance(dst, bytes*vectors)
		f.advance(src, bytes*vectors)
	})
	return f
}

// finish writes the kernel of [kernel.FinishArgs]: four numbers at a time, and those that are left
// one by one.
func finish() *function {
	const bytes = 16
	var p kernel.FinishArgs
	f := &function{name: "finish"}
	dst := f.argument(unsafe.Offsetof(p.Dst))
	src := f.argument(unsafe.Offsetof(p.Src))
	scaleAt := f.argument(unsafe.Offsetof(p.Scale))
	shiftAt := f.argument(unsafe.Offsetof(p.Shift))
	rows := f.argument(unsafe.Offsetof(p.Rows))
	n0 := f.argument(unsafe.Offsetof(p.N))
	stride := f.argument(unsafe.Offsetof(p.Stride))
	step := f.argument(unsafe.Offsetof(p.Step))
	f.scale(stride, 2)
	f.scale(step, 2)
	n, to, at := f.number(), f.number(), f.number()
	v := f.vectors(5)
	scale, shift, lo, hi, x := v[0], v[1], v[2], v[3], v[4]
	f.load(v128Load32Splat, arguments, int(unsafe.Offsetof(p.Lo)))
	f.set(lo)
	f.load(v128Load32Splat, arguments, int(unsafe.Offsetof(p.Hi)))
	f.set(hi)
	bounded := func(load vector) {
		f.load(load, at, 0)
		f.get(scale)
		f.vector(f32x4Mul)
		f.get(shift)
		f.vector(f32x4Add)
		// The sum is the first operand of both: pmax(a, b) is a < b ? b : a (WebAssembly, SIMD).
		// Likewise pmin(a, b) is b < a ? b : a. A NaN thus passes both.
		f.get(lo)
		f.vector(f32x4Pmax)
		f.get(hi)
		f.vector(f32x4Pmin)
		f.set(x)
	}
	f.count(rows, 1, func() {
		f.load(v128Load32Splat, scaleAt, 0)
		f.set(scale)
		f.load(v128Load32Splat, shiftAt, 0)
		f.set(shift)
		f.copy(to, dst)
		f.copy(at, src)
		// n & ^3 numbers go by four, and the n & 3 that are left by one.
		f.masked(n, n0, ^3, 4, func() {
			bounded(v128Load)
			f.store(to, 0, x)
			f.advance(to, bytes)
			f.advance(at, bytes)
		})
		f.masked(n, n0, 3, 1, func() {
			bounded(v128Load32Splat)
			f.get(to, x)
			f.vector(v128Store32Lane)
			f.at(0)
			f.op(0) // lane
			f.advance(to, 4)
			f.advance(at, 4)
		})
		f.sum(dst, dst, stride)
		f.sum(src, src, stride)
		f.sum(scaleAt, scaleAt, step)
		f.sum(shiftAt, shiftAt, step)
	})
	return f
}

// pairs writes the kernel of [kernel.PairArgs]: a loop for each operation.
func pairs() *function {
	var p kernel.PairArgs
	f := &function{name: "pairs"}
	dst := f.argument(unsafe.Offsetof(p.Dst))
	a := f.argument(unsafe.Offsetof(p.A))
	b := f.argument(unsafe.Offsetof(p.B))
	n := f.argument(unsafe.Offsetof(p.N))
	aStep := f.argument(unsafe.Offsetof(p.AStep))
	bStep := f.argument(unsafe.Offsetof(p.BStep))
	which := f.argument(unsafe.Offsetof(p.Op))
	// in the order of kernel's operations
	for i, op := range []vector{f32x4Add, f32x4Sub, f32x4Mul, f32x4Div} {
		f.get(which)
		f.constant(i)
		f.op(i32Eq)
		f.when(func() {
			f.count(n, 4, func() {
				f.get(dst)
				f.load(v128Load, a, 0)
				f.load(v128Load, b, 0)
				f.vector(op)
				f.vector(v128Store)
				f.at(0)
				f.advance(dst, 16)
				f.sum(a, a, aStep)
				f.sum(b, b, bStep)
			})
		}, nil)
	}
	return f
}

// deinterleave writes the kernel of [kernel.DeinterleaveArgs]: of two neighbouring vectors the
// numbers at even and at odd places.
func deinterleave() *function {
	var p kernel.DeinterleaveArgs
	f := &function{name: "deinterleave"}
	even0 := f.argument(unsafe.Offsetof(p.Even))
	odd0 := f.argument(unsafe.Offsetof(p.Odd))
	src0 := f.argument(unsafe.Offsetof(p.Src))
	lines := f.argument(unsafe.Offsetof(p.Lines))
	n0 := f.argument(unsafe.Offsetof(p.N))
	stride := f.argument(unsafe.Offsetof(p.Stride))
	from := f.argument(unsafe.Offsetof(p.From))
	f.scale(stride, 2)
	f.scale(from, 2)
	even, odd, src, n := f.number(), f.number(), f.number(), f.number()
	f.count(lines, 1, func() {
		f.copy(even, even0)
		f.copy(odd, odd0)
		f.copy(src, src0)
		f.copy(n, n0)
		f.count(n, 4, func() {
			for i, to := range []local{even, odd} {
				f.get(to)
				f.load(v128Load, src, 0)
				f.load(v128Load, src, 16)
				// The shuffle takes bytes 0 to 15 from the first vector and 16 to 31 from the
				// second.
				f.vector(i8x16Shuffle)
				for place := i; place < 8; place += 2 { // of the eight numbers
					for b := range 4 {
						f.op(byte(4*place + b))
					}
				}
				f.vector(v128Store)
				f.at(0)
				f.advance(to, 16)
			}
			f.advance(src, 32)
		})
		f.sum(even0, even0, stride)
		f.sum(odd0, odd0, stride)
		f.sum(src0, src0, from)
	})
	return f
}
