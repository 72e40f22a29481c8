package kernel

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"

	"fmp/onnx/must"
)

// guarded returns n random numbers that end, or begin, at a page that may not be touched.
func guarded(t *testing.T, r *rand.Rand, n int, begin bool) []float32 {
	const page = 4096
	bytes := (4*n + page - 1) / page * page
	all := must.Get(syscall.Mmap(-1, 0, bytes+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE))(t)
	t.Cleanup(func() { _ = syscall.Munmap(all) })
	for _, closed := range [][]byte{all[:page], all[page+bytes:]} {
		must.Do(t, syscall.Mprotect(closed, syscall.PROT_NONE))
	}
	at := page
	if !begin {
		at += bytes - 4*n
	}
	v := unsafe.Slice((*float32)(unsafe.Pointer(&all[at])), n)
	copy(v, tame(r, n))
	return v
}

// Rows that lie in runs are packed as they are one by one, and nothing beside them is touched.
func TestPackedRuns(t *testing.T) {
	if !narrower(t) {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.New(rand.NewPCG(1, 12))
	for i := range 60 {
		rows, cols := 1+r.IntN(20), 1+r.IntN(100)
		stride := cols + r.IntN(3)
		b := matrix[float32]{rows: rows, cols: cols, stride: stride,
			data: guarded(t, r, (rows-1)*stride+cols, i%2 == 0)}
		want := make([]float32, rows*padColumns(cols))
		haveAVX512 = false
		packColumns(want, b)
		haveAVX512 = true
		got := guarded(t, r, len(want), i%2 == 0)
		if packColumns(got, b); !sameBits(got, want) {
			t.Fatalf("%d x %d, rows %d apart: %v, want %v", rows, cols, stride, got, want)
		}
	}
}

// Columns of windows are laid out in panels as they are copied and packed, whatever part of them a
// slab holds, and nothing beside them is touched.
func TestRunsOfTaps(t *testing.T) {
	if !haveRuns() {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.New(rand.NewPCG(2, 12))
	for i := range 120 {
		in := []int{1 + r.IntN(12), 1 + r.IntN([]int{4, 12, 60}[i%3])}
		pair := func(n int) []int { return []int{1 + r.IntN(n), 1 + r.IntN(n)} }
		w, sp, err := window{size: pair(4), stride: pair(3), dilation: pair(2), begin: []int{i % 2, 1},
			end: []int{1, i % 3}}.fit(in)
		if err != nil {
			continue
		}
		p := must.Get(newPhases(w, in, sp))(t)
		const channels = 3
		x := guarded(t, r, channels*in[0]*in[1], i%2 == 0)
		k, pos := channels*len(p.offsets), sp[0]*sp[1]
		p0 := r.IntN(pos)
		s := slab{l: r.IntN(k), j: r.IntN(pos - p0)}
		s.d, s.cols = 1+r.IntN(k-s.l), 1+r.IntN(min(pos-p0-s.j, panelWidth))
		split := make([]float32, p.len())
		all := dense(make([]float32, k*pos), k, pos)
		for c := range channels {
			tapColumns(p, all.data[c*len(p.offsets)*pos:], pos, x[c*in[0]*in[1]:][:in[0]*in[1]], split, 0, pos)
		}
		want := make([]float32, s.d*padColumns(s.cols))
		packColumns(want, all.part(s.l, p0+s.j, s.d, s.cols))
		got, room := guarded(t, r, len(want), i%2 == 0), guarded(t, r, p.len(), i%2 == 0)
		clear(got)
		clear(room)
		if layRuns(got, s, p, x, room, p0); !sameBits(got, want) {
			t.Fatalf("window %+v on %v, %+v from %d: %v, want %v", w, in, s, p0, got, want)
		}
	}
}

// A tile of 48 columns, and of one more, has the bits of narrower ones, wherever its sums begin and
// end, and touches nothing beside its operands.
func TestWidestTiles(t *testing.T) {
	if !widest(wideCols) {
		t.Skip("this processor has no AVX-512")
	}
	r := rand.New(rand.NewPCG(3, 12))
	for i := range 72 {
		m, k, n := 8*(1+r.IntN(3)), 1+r.IntN(40), []int{48, 49, 80, 81, 305}[i%5]
		if i%4 == 0 {
			m, k = 8*(18+r.IntN(20)), panelDepth-3+r.IntN(200) // packed, in several slabs
		}
		a := dense(guarded(t, r, m*k, i%2 == 0), m, k)
		b := dense(guarded(t, r, k*n, i%2 == 0), k, n)
		left, from := guarded(t, r, m*k, false), guarded(t, r, m, false)
		packLeft(left, a)
		got := dense(guarded(t, r, m*n, i%2 == 0), m, n)
		want := dense(append([]float32{}, got.data...), m, n)
		p := newPacks(false)
		p.bounds, p.bounded, p.more = [2]float32{-2, 3}, i%3 > 0, i%2 > 0
		if i%6 == 5 {
			from = nil
		}
		p.multiply(left, a, b, got, from, nil)
		for j := 0; j < n; j += 16 {
			w := min(16, n-j)
			part := dense(make([]float32, m*16), m, 16) // the last column too is one of many
			some := dense(make([]float32, k*16), k, 16)
			for row := range m {
				copy(part.data[16*row:], want.data[row*n+j:][:w])
			}
			for row := range k {
				copy(some.data[16*row:], b.data[row*n+j:][:w])
			}
			p.multiply(left, a, some, part, from, nil)
			for row := range m {
				copy(want.data[row*n+j:][:w], part.data[16*row:])
			}
		}
		packPool.Put(p)
		if !sameBits(got.data, want.data) {
			t.Fatalf("%d x %d x %d, %+v: other bits than narrow tiles have", m, k, n, p.manner)
		}
	}
}
