package imagefile

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/image/draw"
)

// drawn returns an image of edges, lines and noise.
func drawn(h, w, ch int, seed uint64) []uint8 {
	random := rand.New(rand.NewPCG(seed, 7))
	pix := make([]uint8, h*w*ch)
	for y := range h {
		for x := range w {
			for c := range ch {
				v := 128 + 100*((x/(3+c)+y/5)%2) - 60*(y%7/6)
				if x*2 > w {
					v = random.IntN(256)
				}
				pix[(y*w+x)*ch+c] = uint8(min(255, max(0, v)))
			}
		}
	}
	return pix
}

// resampled are sizes that are resized, and to what.
var resampled = []struct{ h, w, toH, toW int }{
	{24, 24, 24, 24}, {57, 91, 24, 24}, {91, 57, 24, 40}, {7, 5, 24, 24}, {1, 90, 16, 16},
	{2, 1, 5, 5}, {200, 150, 16, 24}, {300, 301, 3, 40},
}

// TestResampledIsCatmullRom: pixels lie within a level of those of package draw, which truncates
// levels where ours are rounded.
func TestResampledIsCatmullRom(t *testing.T) {
	for _, c := range resampled {
		src := Raw(drawn(c.h, c.w, 3, 1), c.h, c.w, 3)
		want := image.NewRGBA(image.Rect(0, 0, c.toW, c.toH))
		draw.CatmullRom.Scale(want, want.Rect, src, src.Bounds(), draw.Src, nil)
		fit := Fit{H: c.toH, W: c.toW, Ch: 3}
		got := make([]uint8, fit.Size())
		fit.Pixels(src, got)
		for i, v := range got {
			if d := int(v) - int(want.Pix[i/3*4+i%3]); d < -1 || d > 1 {
				t.Fatalf("%v: value %d is %d; package draw has %d", c, i, v, want.Pix[i/3*4+i%3])
			}
		}
	}
}

// stored returns the pixel, in a stored picture of w x h, that is shown at x, y.
func (o orientation) stored(x, y, w, h int) (int, int) {
	if o.swaps() {
		x, y = y, x
	}
	lines, columns := o.mirrors()
	if lines {
		x = w - 1 - x
	}
	if columns {
		y = h - 1 - y
	}
	return x, y
}

// TestTurnedPixels: a picture that lies on its side or is mirrored has the very pixels of the same
// picture turned before.
func TestTurnedPixels(t *testing.T) {
	for _, c := range resampled {
		for o := orientation(1); o <= 8; o++ {
			for _, resize := range []Resize{Stretch, Crop, Pad, "crop:0.875"} {
				for _, ch := range []int{1, 3} {
					pix := drawn(c.h, c.w, ch, uint64(o))
					h, w := c.h, c.w
					if o.swaps() {
						h, w = w, h
					}
					up := make([]uint8, len(pix))
					for y := range h {
						for x := range w {
							sx, sy := o.stored(x, y, c.w, c.h)
							copy(up[(y*w+x)*ch:][:ch], pix[(sy*c.w+sx)*ch:])
						}
					}
					fit := Fit{H: c.toH, W: c.toW, Ch: ch, Resize: resize}
					got, want := make([]uint8, fit.Size()), make([]uint8, fit.Size())
					fit.pixels(picture{Image: Raw(pix, c.h, c.w, ch), by: o}, got)
					fit.Pixels(Raw(up, h, w, ch), want)
					if !bytes.Equal(got, want) {
						t.Fatalf("%v: orientation %d, %s, %d channels: other pixels than of the "+
							"upright picture", c, o, resize, ch)
					}
				}
			}
		}
	}
}

// TestAxis: weights of an output sum to one, exactly, and no sum of products overflows 31 bits.
func TestAxis(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {1, 9}, {2, 5}, {9, 2}, {640, 224}, {4032, 224}, {20000, 1},
		{20000, 3}, {3, 4096}, {896, 224}} {
		a := newAxis(c[0], c[1], false)
		for i := range a.first {
			sum, size := 0, 0
			for _, w := range a.line(i) {
				sum, size = sum+int(w), size+max(int(w), -int(w))
			}
			if sum != 1<<a.bits || size*(255<<middleBits)*5/4 > 1<<31-1-1<<21 {
				t.Fatalf("%v: output %d has weights of the sum %d and of the size %d; want %d", c,
					i, sum, size, 1<<a.bits)
			}
		}
	}
}

// TestLanesAreGo: vectors have the sums that Go has.
func TestLanesAreGo(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, c := range [][2]int{{1, 9}, {17, 5}, {640, 224}, {403, 22}, {3, 40}} {
		a := newAxis(c[0], c[1], c[0]%2 == 1)
		row := make([]int16, a.from+a.taps)
		for i := range row {
			row[i] = int16(random.IntN(25000) - 4000)
		}
		got, want := make([]int32, c[1]), make([]int32, c[1])
		a.along(got, row)
		a.alongGo(want, row)
		if !slices.Equal(got, want) {
			t.Errorf("%v: along a row: %v; want %v", c, got, want)
		}
		const n, stride = 75, 80
		rows := make([]uint8, (a.from+1)*stride+n)
		for i := range rows {
			rows[i] = uint8(random.IntN(256))
		}
		words := make([]int16, len(rows)+tapGroup)
		for i := range words {
			words[i] = int16(random.IntN(511) - 255)
		}
		mid, wantMid, sums := make([]int16, n), make([]int16, n), make([]int32, n)
		for i, first := range a.first {
			a.downward(mid, sums, rows[first*stride:], stride, i)
			downGo(a, wantMid, sums, rows[first*stride:], stride, i)
			if !slices.Equal(mid, wantMid) {
				t.Fatalf("%v: down to output %d: %v; want %v", c, i, mid, wantMid)
			}
			a.downwardWords(mid, sums, words[first*stride:], stride, i)
			downGo(a, wantMid, sums, words[first*stride:], stride, i)
			if !slices.Equal(mid, wantMid) {
				t.Fatalf("%v: words down to output %d: %v; want %v", c, i, mid, wantMid)
			}
		}
	}
}

// TestColoursOfPairs: colours of JPEGs are those of package color, in vectors and not, from even
// and odd columns on, for every subsampling.
func TestColoursOfPairs(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 9))
	for _, ratio := range []image.YCbCrSubsampleRatio{image.YCbCrSubsampleRatio420, image.YCbCrSubsampleRatio422,
		image.YCbCrSubsampleRatio444, image.YCbCrSubsampleRatio440, image.YCbCrSubsampleRatio411,
		image.YCbCrSubsampleRatio410} {
		src := image.NewYCbCr(image.Rect(0, 0, 75, 10), ratio)
		for _, plane := range [][]uint8{src.Y, src.Cb, src.Cr} {
			for i := range plane {
				plane[i] = []uint8{0, 255, uint8(random.IntN(256))}[random.IntN(3)]
			}
		}
		for x := range 6 {
			for y := range 10 {
				for n := 1; n < 75-x; n += 17 {
					to := [3][]uint8{make([]uint8, n), make([]uint8, n), make([]uint8, n)}
					newReader(src, 3).read(x, y, to)
					for i := range n {
						c := src.YCbCrAt(x+i, y)
						r, g, b := color.YCbCrToRGB(c.Y, c.Cb, c.Cr)
						if to[0][i] != r || to[1][i] != g || to[2][i] != b {
							t.Fatalf("%v: pixel %d, %d of a line from %d: %d %d %d; want %d %d %d",
								ratio, x+i, y, x, to[0][i], to[1][i], to[2][i], r, g, b)
						}
					}
				}
			}
		}
	}
}

func BenchmarkPixels(b *testing.B) {
	for _, c := range []struct{ h, w int }{{480, 640}, {3024, 4032}} {
		src := image.NewYCbCr(image.Rect(0, 0, c.w, c.h), image.YCbCrSubsampleRatio420)
		copy(src.Y, drawn(c.h, c.w, 1, 3))
		fit := Fit{H: 224, W: 224, Ch: 3}
		dst := make([]uint8, fit.Size())
		for _, o := range []orientation{upright, 6} {
			b.Run(fmt.Sprintf("%dx%d/%d", c.w, c.h, o), func(b *testing.B) {
				for b.Loop() {
					fit.pixels(picture{Image: src, by: o}, dst)
				}
			})
		}
	}
}
