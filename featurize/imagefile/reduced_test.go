package imagefile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/featurize/imagefile/jpeg"
	"fmp/onnx/must"
)

// scenes are pictures that a reduced decoding may get wrong: noise, edges of black and white, text,
// a chessboard; and the like of photographs.
var scenes = map[string]func(random *rand.Rand, x, y float64) float64{
	"noise": func(r *rand.Rand, _, _ float64) float64 { return 255 * r.Float64() },
	"edges": func(_ *rand.Rand, x, y float64) float64 {
		if (math.Mod(x*0.97+y*0.31, 61) < 30) != (math.Mod(y*0.9-x*0.2+200, 83) < 40) {
			return 255
		}
		return 0
	},
	"board": func(_ *rand.Rand, x, y float64) float64 {
		return 255 * float64((int(x)/25+int(y)/25)%2)
	},
	"text": func(_ *rand.Rand, x, y float64) float64 {
		if int(y)%14 < 9 && (int(x)*7+int(y)*3/2*int(x/6)+int(x)/6*5)%11 < 4 {
			return 20
		}
		return 240
	},
	"photograph": func(r *rand.Rand, x, y float64) float64 {
		v := 120 + 60*math.Sin(x/97+y/61) + 30*math.Sin(x/13)*math.Cos(y/17) + 6*r.NormFloat64()
		if math.Hypot(x-300, y-200) < 120 {
			v -= 70
		}
		return v
	},
}

func scene(draw func(*rand.Rand, float64, float64) float64, w, h int, colour bool) image.Image {
	random := rand.New(rand.NewPCG(3, uint64(w)))
	grey, rgba := image.NewGray(image.Rect(0, 0, w, h)), image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			v := uint8(min(255, max(0, draw(random, float64(x), float64(y)))))
			grey.Pix[y*w+x] = v
			copy(rgba.Pix[4*(y*w+x):],
				[]uint8{v, uint8(float64(v) * (0.7 + 0.3*math.Sin(float64(x+y)/90))), 255 - v, 255})
		}
	}
	if colour {
		return rgba
	}
	return grey
}

// TestColoursOfReduced: luma beyond white stays, and colours beyond red, green and blue are cut
// off.
func TestColoursOfReduced(t *testing.T) {
	plane := func(levels ...int16) jpeg.Plane {
		return jpeg.Plane{W: len(levels), H: 1, Stride: len(levels), Reduced: levels}
	}
	p := &reduced{planes: []jpeg.Plane{plane(0, 150, -140, 100, 150), plane(0, 0, 0, 0, 50),
		plane(10, 0, 0, 100, -100)}}
	p.colours()
	for i, want := range [][]int16{{14, 150, -140, 127, 10}, {-7, 150, -140, 29, 150}, {0, 150, -140, 100, 150}} {
		if got := p.planes[i].Reduced; !slices.Equal(got, want) {
			t.Errorf("colour %d: %v; want %v", i, got, want)
		}
	}
}

// TestMix: colours computed in lanes are those computed one by one, for all levels that a decoder
// gives and every length of the rest.
func TestMix(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 7))
	for n := range 67 {
		var got, want [3][]int16
		for c := range got {
			for range n {
				got[c] = append(got[c], int16(random.IntN(511)-255))
			}
			want[c] = slices.Clone(got[c])
		}
		mix(got[0], got[1], got[2])
		mixGo(want[0], want[1], want[2])
		for c := range got {
			if !slices.Equal(got[c], want[c]) {
				t.Fatalf("%d samples, colour %d: %v; want %v", n, c, got[c], want[c])
			}
		}
	}
}

// TestReducedIsWhole: the pixels of a reduced photograph lie within two levels of those of the
// whole one, turned and cropped or not, wherever the rule takes one; those of noise and of hard
// edges of colour lie near.
func TestReducedIsWhole(t *testing.T) {
	reductions := map[string]int{}
	for name, draw := range scenes {
		for _, size := range [][2]int{{640, 480}, {637, 421}} {
			for _, colour := range []bool{false, true} {
				of := imagefiletest.JPEG(t, scene(draw, size[0], size[1], colour), 92)
				for _, fit := range []Fit{{H: 100, W: 66, Ch: 3}, {H: 37, W: 43, Ch: 3, Resize: Crop},
					{H: 24, W: 24, Ch: 3, Resize: "crop:0.875"},
					{H: 40, W: 40, Ch: 3, Resize: Pad}, {H: 18, W: 17, Ch: 1}, {H: 12, W: 16, Ch: 3}} {
					for _, o := range []orientation{1, 4, 6, 7} {
						data := withEXIF(of, exif(o, binary.BigEndian))
						small := must.Get(decode(t.Context(), data, MaxBytes, MaxPixels, fit, &jpeg.Memory{}))(t)
						if small.reduced == nil {
							reductions["none"]++
							continue
						}
						p := small.planes[0]
						reductions[fmt.Sprint(p.Across, "x", p.Down)]++
						whole := picture{Image: must.Get(jpeg.Decode(t.Context(), data))(t), by: small.by}
						got, want := make([]uint8, fit.Size()), make([]uint8, fit.Size())
						fit.pixels(small, got)
						fit.pixels(whole, want)
						worst, sum := 0, 0.0
						for i := range got {
							d := int(got[i]) - int(want[i])
							worst, sum = max(worst, d, -d), sum+float64(d*d)
						}
						mean, most, bound := math.Sqrt(sum/float64(len(got))), 2, 0.8
						// colours of hard edges lie beyond red, green and blue, and are cut off
						if name != "photograph" {
							most, bound = 20, 3.2
						}
						if worst > most || mean > bound {
							t.Errorf("%s, %v, colour %v, %+v, orientation %d: off by %d levels, "+
								"%.2f in the mean square", name, size, colour, fit, o, worst, mean)
						}
					}
				}
			}
		}
	}
	if len(reductions) < 5 {
		t.Errorf("reductions are %v", reductions)
	}
}

// TestPartIsEnough: a JPEG of which the fit's part alone is decoded has the pixels of the whole one,
// where colours are enlarged, too.
func TestPartIsEnough(t *testing.T) {
	for _, size := range [][2]int{{672, 448}, {448, 672}, {637, 421}} {
		of := imagefiletest.JPEG(t, scene(scenes["noise"], size[0], size[1], true), 0)
		for _, fit := range []Fit{{H: 400, W: 400, Ch: 3, Resize: Crop}, {H: 64, W: 64, Ch: 3, Resize: Crop},
			{H: 300, W: 200, Ch: 3, Resize: "crop:0.875"}, {H: 12, W: 16, Ch: 1, Resize: "crop:0.5"}} {
			for o := orientation(1); o <= 8; o++ {
				data := withEXIF(of, exif(o, binary.BigEndian))
				part := must.Get(decode(t.Context(), data, MaxBytes, MaxPixels, fit, &jpeg.Memory{}))(t)
				h := must.Get(jpeg.ReadHeader(bytes.NewReader(data)))(t)
				whole := picture{by: part.by}
				whole.Image, whole.reduced = must.Get2(decodeJPEG(t.Context(), data, fit.points(h, o),
					image.Rectangle{}, &jpeg.Memory{}))(t)
				if im, ok := whole.Image.(*image.YCbCr); ok && fit.nearWhole(size[0], size[1], o) {
					enlarge(im)
				}
				got, want := make([]uint8, fit.Size()), make([]uint8, fit.Size())
				fit.pixels(part, got)
				fit.pixels(whole, want)
				if !bytes.Equal(got, want) {
					t.Errorf("%v, %+v, orientation %d: pixels differ", size, fit, o)
				}
				if part.reduced == nil && part.Image.Bounds() == whole.Image.Bounds() {
					t.Errorf("%v, %+v, orientation %d: all of it is decoded", size, fit, o)
				}
			}
		}
	}
}

// TestReadEach: lanes have the colours of the plain road, of all chroma and of lines of any length.
func TestReadEach(t *testing.T) {
	var luma, cb, cr []uint8
	for _, l := range []uint8{0, 1, 127, 200, 255} {
		for i := range 1 << 16 {
			luma, cb, cr = append(luma, l), append(cb, uint8(i>>8)), append(cr, uint8(i))
		}
	}
	for from, n := range map[int]int{0: len(luma), 5: 1, 77: 7, 300: 8, 4001: 9, 70_003: 31} {
		var got, want [3][]uint8
		for c := range got {
			got[c], want[c] = make([]uint8, n), make([]uint8, n)
		}
		readEach(luma[from:][:n], cb[from:][:n], cr[from:][:n], got[0], got[1], got[2])
		readEachGo(luma[from:][:n], cb[from:][:n], cr[from:][:n], want[0], want[1], want[2])
		for c := range got {
			if !bytes.Equal(got[c], want[c]) {
				t.Errorf("%d pixels from %d on, colour %d: %v; want %v", n, from, c, got[c], want[c])
			}
		}
	}
}
