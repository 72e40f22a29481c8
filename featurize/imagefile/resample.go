package imagefile

import (
	"image"

	"fmp/models"
)

// part holds the pixels of an image's height or width that are resized: from of them, from start
// on. Of the result these are to pixels, from at on.
type part struct {
	start, from, at, to int
	mirrored            bool // the result lies in the opposite order
}

// parts returns the parts of an upright image of h x w pixels and of the fit's, as [models.AnySize]
// has them.
func (f Fit) parts(h, w int) (rows, columns part) {
	// a b / c, to the nearest whole number of at least 1.
	share := func(a, b, c int) int { return max(1, (2*a*b+c)/(2*c)) }
	rows, columns = part{from: h, to: f.H}, part{from: w, to: f.W}
	cropped, crop := models.CropShare(string(f.Resize))
	switch {
	case crop:
		// The largest middle part of the fit's shape, less the margin that a crop by share names.
		rows.from, columns.from = min(h, share(w, f.H, f.W)), min(w, share(h, f.W, f.H))
		rows.from, columns.from = models.Shrunk(rows.from, cropped),
			models.Shrunk(columns.from, cropped)
		rows.start, columns.start = (h-rows.from)/2, (w-columns.from)/2
	case f.Resize == Pad:
		// The largest size of the image's shape that the fit holds, in its middle.
		rows.to, columns.to = min(f.H, share(h, f.W, w)), min(f.W, share(w, f.H, h))
		rows.at, columns.at = (f.H-rows.to)/2, (f.W-columns.to)/2
	}
	return rows, columns
}

// Pixels resizes src, and writes [H, W, Ch], row-major, into dst. Transparent pixels show white.
// Colour is converted to grey by 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), grey to three equal
// channels.
//
// Height is resized before width, of pixels of 8 bits: the pixels that the graph of
// [models.AnySize] has.
func (f Fit) Pixels(src image.Image, dst []uint8) {
	f.pixels(picture{Image: src, by: upright}, dst)
}

// pixels is Pixels for a picture as it is stored.
func (f Fit) pixels(src picture, dst []uint8) {
	if src.reduced != nil {
		src.reduced.pixels(f, src.by, dst)
		return
	}
	o := src.by
	whole := src.whole()
	across, down := f.stored(whole.Dx(), whole.Dy(), o)
	if f.Resize == Pad {
		clear(dst[:f.Size()])
	}
	s := resampler{reader: newReader(src.Image, f.Ch),
		across: newAxis(across.from, across.to, across.mirrored),
		down:   newAxis(down.from, down.to, down.mirrored),
		x:      whole.Min.X + across.start, y: whole.Min.Y + down.start,
		right: f.Ch, below: f.W * f.Ch}
	if o.swaps() {
		s.right, s.below = s.below, s.right
	}
	s.out = dst[across.at*s.right+down.at*s.below:]
	if o.swaps() {
		s.acrossFirst()
	} else {
		s.downFirst()
	}
}

// resampler resizes a picture as it is stored. Output (x, y) of the axes is written right*x +
// below*y behind the beginning of out.
type resampler struct {
	*reader
	across, down *axis
	x, y         int // of the picture: where the resized part begins
	out          []uint8
	right, below int
}

// ring keeps the rows that an axis's next outputs want, of each channel. They lie one behind
// another, stride values apart. Where there is no room behind the last one, the rows from begin on
// move to the front.
type ring[T any] struct {
	planes     [3][]T
	stride     int
	begin, end int // rows that it has
	first      int // row at the beginning of the planes
	capacity   int
}

// newRing returns an empty ring for the rows that an axis takes, of as many values each as width.
func newRing[T any](a *axis, channels, width int) *ring[T] {
	// There is room for the rows of two outputs, so that a row is moved once at most, on average.
	// One row more, and two groups, are for lanes that read behind the end.
	r := &ring[T]{stride: width, capacity: min(2*a.span+tapGroup, a.from)}
	for c := range channels {
		r.planes[c] = make([]T, (r.capacity+1)*width+2*tapGroup)
	}
	return r
}

// want fills the ring with rows up to end, which it has read; rows before begin are not wanted any
// more.
func (r *ring[T]) want(begin, end int, read func(row, at int)) {
	r.begin = begin
	for ; r.end < end; r.end++ {
		if r.end-r.first == r.capacity {
			for _, p := range r.planes {
				if p != nil {
					copy(p, p[(r.begin-r.first)*r.stride:r.capacity*r.stride])
				}
			}
			r.first = r.begin
		}
		read(r.end, (r.end-r.first)*r.stride)
	}
}

// rows returns a channel's rows from one on. The ring must have been filled up to them by want.
func (r *ring[T]) rows(c, row int) []T { return r.planes[c][(row-r.first)*r.stride:] }

// outputs calls do for each output, in the order of their inputs. A mirrored axis has its first
// inputs in its last output. Rows are thus read in one direction.
func (a *axis) outputs(do func(i int)) {
	n := len(a.first)
	for i := range n {
		if a.mirrored {
			i = n - 1 - i
		}
		do(i)
	}
}

// downFirst resizes columns, then lines. Rows are read once each, and held while outputs want them:
// memory is O(width * span). Line i of the result is
//
//	out_i = across(sum_k w_ik line_(first_i + k))
//
// with the weights w of the axis down: of each channel one line of sums is held.
func (s *resampler) downFirst() {
	from, ch := s.across.from, s.channels
	rows := newRing[uint8](s.down, ch, from)
	read := func(y, at int) {
		var to [3][]uint8
		for c := range ch {
			to[c] = rows.planes[c][at:][:from]
		}
		s.read(s.x, s.y+y, to)
	}
	middle := make([]int16, from+s.across.taps)
	sums := make([]int32, max(from, len(s.across.first)))
	s.down.outputs(func(i int) {
		first := s.down.first[i]
		rows.want(first, first+s.down.present(i), read)
		for c := range ch {
			s.down.downward(middle[:from], sums, rows.rows(c, first), rows.stride, i)
			line := sums[:len(s.across.first)]
			s.across.along(line, middle)
			out := s.out[i*s.below+c:]
			for x, v := range line {
				out[x*s.right] = s.across.level(v)
			}
		}
	})
}

// acrossFirst resizes lines, then columns: of a picture that lies on its side. Its lines are the
// upright picture's columns, so that height still comes before width. Each line is resized as it is
// read, so that the ring holds short ones.
func (s *resampler) acrossFirst() {
	from, ch, n := s.across.from, s.channels, len(s.across.first)
	rows := newRing[int16](s.down, ch, n)
	var line [3][]uint8
	for c := range ch {
		line[c] = make([]uint8, from)
	}
	wide, sums := make([]int16, from+s.across.taps), make([]int32, n)
	read := func(y, at int) {
		s.read(s.x, s.y+y, line)
		for c := range ch {
			for x, v := range line[c] {
				wide[x] = int16(v)
			}
			s.across.along(sums, wide)
			for x, v := range sums {
				rows.planes[c][at+x] = s.across.middle(v)
			}
		}
	}
	s.down.outputs(func(i int) {
		first := s.down.first[i]
		k := s.down.present(i)
		rows.want(first, first+k, read)
		for c := range ch {
			addRows(sums, rows.rows(c, first), n, s.down.line(i)[:k])
			out := s.out[i*s.below+c:]
			for x, v := range sums {
				out[x*s.right] = s.down.level(v)
			}
		}
	})
}
