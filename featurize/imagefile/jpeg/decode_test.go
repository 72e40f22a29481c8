package jpeg

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"image/draw"
	peer "image/jpeg"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// pictures returns the files in testdata: one drawn picture of 53 x 37 pixels, written by
// libjpeg-turbo 3.2, and two made of them.
func pictures(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.jpg")
	if err != nil || len(paths) != 14 {
		t.Fatalf("%d pictures, %v", len(paths), err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		if all[strings.TrimSuffix(filepath.Base(path), ".jpg")], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	// Colours that lie side by side become ones that lie below each other, in a picture of other
	// sides; Adobe's inks become YCCK.
	tall := bytes.Clone(all["422"])
	i := bytes.Index(tall, []byte{0xff, baseline})
	copy(tall[i+5:], []byte{0, 64, 0, 40}) // of as many blocks
	tall[i+11] = 0x12
	all["440"] = tall
	inks := bytes.Clone(all["cmyk"])
	inks[bytes.Index(inks, []byte("Adobe"))+11] = 2
	all["ycck"] = inks
	return all
}

// samples returns the samples of a picture as they are stored, in full.
func samples(im image.Image) [][]uint8 {
	var out [][]uint8
	plane := func(pix []uint8, stride, w, h int) {
		for y := range h {
			out = append(out, pix[y*stride:][:w])
		}
	}
	b := im.Bounds()
	switch im := im.(type) {
	case *image.Gray:
		plane(im.Pix, im.Stride, b.Dx(), b.Dy())
	case *image.YCbCr:
		w, h := im.COffset(b.Max.X-1, 0)+1, im.COffset(0, b.Max.Y-1)/im.CStride+1
		plane(im.Y, im.YStride, b.Dx(), b.Dy())
		plane(im.Cb, im.CStride, w, h)
		plane(im.Cr, im.CStride, w, h)
	case *image.RGBA:
		plane(im.Pix, im.Stride, 4*b.Dx(), b.Dy())
	case *image.CMYK:
		plane(im.Pix, im.Stride, 4*b.Dx(), b.Dy())
	}
	return out
}

// apart returns the largest difference of two pictures' samples; -1 where they are of different
// kinds.
func apart(a, b image.Image) int {
	if a.Bounds() != b.Bounds() || a.ColorModel() != b.ColorModel() {
		return -1
	}
	x, y := samples(a), samples(b)
	if len(x) != len(y) || len(x) == 0 {
		return -1
	}
	worst := 0
	for i := range x {
		for k, v := range x[i] {
			d := int(v) - int(y[i][k])
			worst = max(worst, d, -d)
		}
	}
	return worst
}

// TestDecode: samples lie within one level of those of image/jpeg, and lumas are those of
// libjpeg-turbo.
func TestDecode(t *testing.T) {
	for name, data := range pictures(t) {
		got, err := Decode(t.Context(), data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err := peer.Decode(bytes.NewReader(data))
		switch {
		case name == "progressive-restarts":
			// image/jpeg counts restarts in blocks that such a scan does not have
			if want, err = Decode(t.Context(), pictures(t)["420-progressive"]); err != nil {
				t.Fatal(err)
			}
		case err != nil:
			t.Errorf("%s: image/jpeg: %v", name, err)
			continue
		}
		most := 1
		if name == "rgb" || name == "ycck" {
			most = 2 // after the conversion
		}
		if d := apart(got, want); d < 0 || d > most {
			t.Errorf("%s: %d levels from image/jpeg", name, d)
		}
		luma := sha256.New()
		switch im := got.(type) {
		case *image.Gray:
			for y := range 37 {
				luma.Write(im.Pix[y*im.Stride:][:53])
			}
		case *image.YCbCr:
			for y := range 37 {
				luma.Write(im.Y[y*im.YStride:][:53])
			}
		default:
			continue
		}
		if sum := fmt.Sprintf("%x", luma.Sum(nil)[:8]); sum != "c95251e0088bd602" && name != "440" {
			t.Errorf("%s: luma %s is not libjpeg-turbo's", name, sum)
		}
	}
}

// TestReduce: reduced samples are the sum of the cosines of low frequency at their middles, of
// every number of points, to one level.
func TestReduce(t *testing.T) {
	for name, data := range map[string][]byte{"a drawing": pictures(t)["444"], "noise": noise(t)} {
		t.Run(name, func(t *testing.T) { reduces(t, data) })
	}
}

// noise returns a picture whose blocks have all their coefficients.
func noise(t *testing.T) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	im := image.NewYCbCr(image.Rect(0, 0, 53, 37), image.YCbCrSubsampleRatio444)
	for _, plane := range [][]uint8{im.Y, im.Cb, im.Cr} {
		for i := range plane {
			plane[i] = uint8(90 + random.IntN(76))
		}
	}
	rgba := image.NewRGBA(im.Rect)
	draw.Draw(rgba, rgba.Rect, im, image.Point{}, draw.Src)
	return imagefiletest.JPEG(t, rgba, 100)
}

func reduces(t *testing.T, data []byte) {
	whole := must.Get(Decode(t.Context(), data))(t)
	im := whole.(*image.YCbCr)
	wave := func(u int, x float64) float64 {
		c := math.Cos(math.Pi * float64(u) * x)
		if u == 0 {
			c = math.Sqrt2 / 2
		}
		return c / 2
	}
	for _, p := range []Points{{1, 1}, {2, 2}, {4, 4}, {8, 8}, {8, 2}, {1, 4}, {4, 8}} {
		_, planes := must.Get2(Reduce(t.Context(), data, []Points{p, p, p}, image.Rectangle{}, &Memory{}))(t)
		for i, pix := range [][]uint8{im.Y, im.Cb, im.Cr} {
			if i > 0 && im.SubsampleRatio != image.YCbCrSubsampleRatio444 {
				break
			}
			got := planes[i]
			if cap(got.Reduced) != len(got.Reduced) {
				t.Fatalf("%v: plane %d reaches into the next one", p, i)
			}
			if got.W != (53*p.X+7)/8 || got.H != (37*p.Y+7)/8 || got.Across != 8/float64(p.X) ||
				got.Down != 8/float64(p.Y) {
				t.Fatalf("%v: %d x %d of %v x %v", p, got.W, got.H, got.Across, got.Down)
			}
			for y := range got.H {
				for x := range got.W {
					block := pix[y/p.Y*8*im.YStride+x/p.X*8:]
					sum := 0.0
					for v := range p.Y {
						for u := range p.X {
							c := 0.0
							for k := range 64 {
								c += float64(block[k/8*im.YStride+k%8]) * wave(u,
									(float64(k%8)+.5)/8) * wave(v, (float64(k/8)+.5)/8)
							}
							sum += c * wave(u, (float64(x%p.X)+.5)/float64(p.X)) * wave(v,
								(float64(y%p.Y)+.5)/float64(p.Y))
						}
					}
					if d := float64(got.Reduced[y*got.Stride+x]) + 128 - sum; math.Abs(d) > 1.5 {
						t.Fatalf("%v, plane %d: sample %d, %d is %d; want %.1f", p, i, x, y,
							got.Reduced[y*got.Stride+x]+128, sum)
					}
				}
			}
		}
	}
}

// TestReducedAlike: what is passed over does not change what is kept: progressive files, restarts
// and grey ones have the same samples.
func TestReducedAlike(t *testing.T) {
	all := pictures(t)
	for _, p := range []Points{{1, 1}, {2, 2}, {4, 4}, {2, 4}} {
		luma := func(name string, of []byte) []int16 {
			points := []Points{p, p, p}
			h, planes, err := Reduce(t.Context(), of, points, image.Rectangle{}, &Memory{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var out []int16
			for y := range ceil(h.Height*p.Y, 8) {
				out = append(out, planes[0].Reduced[y*planes[0].Stride:][:planes[0].W]...)
			}
			return out
		}
		want := luma("444", all["444"])
		for _, name := range []string{"444-progressive", "420", "420-progressive", "411",
			"422-progressive", "restarts", "progressive-restarts",
			"grey"} {
			got := luma(name, all[name])
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s, %v: sample %d is %d; want %d", name, p, i, got[i], want[i])
				}
			}
		}
	}
}

// TestCut: a file that ends anywhere before its end is an error, whole and reduced, as it is to
// image/jpeg.
func TestCut(t *testing.T) {
	for name, data := range pictures(t) {
		for n := range len(data) - 2 {
			cut := data[:n]
			if _, err := Decode(t.Context(), cut); err == nil {
				t.Fatalf("%s: %d of %d bytes are a picture", name, n, len(data))
			}
			if n%7 > 0 || name == "cmyk" || name == "ycck" {
				continue
			}
			points := []Points{{2, 2}, {2, 2}, {2, 2}}
			if _, _, err := Reduce(t.Context(), cut, points, image.Rectangle{}, &Memory{}); err == nil {
				t.Fatalf("%s: %d of %d bytes are a reduced picture", name, n, len(data))
			}
		}
		// pixels are missing, the end is not
		end := append(bytes.Clone(data[:len(data)-40]), 0xff, endImage)
		must.Fail(Decode(t.Context(), end))(t, "", name)
	}
	if _, err := Decode(t.Context(), pictures(t)["grey"][:400]); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut off: %v", err)
	}
}

// TestCorrupt: what a file may not say is an error that names it.
func TestCorrupt(t *testing.T) {
	grey := pictures(t)["grey"]
	frame, tables := bytes.Index(grey, []byte{0xff, baseline}),
		bytes.Index(grey, []byte{0xff, huffmans})
	scan := bytes.Index(grey, []byte{0xff, startScan})
	set := func(at int, b ...byte) []byte {
		d := bytes.Clone(grey)
		copy(d[at:], b)
		return d
	}
	for want, data := range map[string][]byte{
		"does not begin as":          []byte("GIF89a"),
		"none of baseline":           set(frame+1, 0xc9),
		"samples have 12 bits":       set(frame+4, 12),
		"size is 53 x 0":             set(frame+5, 0, 0),
		"another length than":        set(frame+9, 3),
		"wants quantization table 4": set(frame+12, 4),
		"no quantization table":      set(frame+12, 2),
		"table of codes is corrupt":  set(tables+4, 0x25),
		"component 9":                set(scan+5, 9),
		"no table of codes":          set(scan+6, 0x33),
		"header of a scan":           set(scan+4, 2),
		"before its pixels":          append(bytes.Clone(grey[:frame]), grey[scan:]...),
		"two frame headers": append(append(bytes.Clone(grey[:scan]), grey[frame:frame+13]...),
			grey[scan:]...),
		"belongs": append(append(bytes.Clone(grey[:scan]), 0xff, interval, 0, 4, 0, 1),
			append(bytes.Clone(grey[scan:scan+30]), 0xff, restart+5, 0xff, endImage)...),
	} {
		must.Fail(Decode(t.Context(), data))(t, want)
	}
}

// TestSampled: each component is enlarged to the picture's size, whatever samples it has relative to the
// others; pictures that package image has keep theirs. Memory is what the header says.
func TestSampled(t *testing.T) {
	const w, h = 1060, 740
	level := func(c, x, y int) uint8 { return uint8(20 + 60*c + 3*(x%9) + 4*(y%7)) }
	for _, samples := range [][3][2]int{
		{{1, 1}, {2, 2}, {2, 2}}, {{1, 1}, {1, 2}, {4, 1}}, {{2, 1}, {1, 2}, {1, 1}}, {{2, 2}, {2, 1}, {1, 1}},
		{{4, 4}, {1, 1}, {1, 1}}, {{4, 2}, {2, 1}, {1, 1}}, {{2, 2}, {1, 1}, {1, 1}}, {{1, 4}, {1, 1}, {1, 1}},
	} {
		data := imagefiletest.Sampled(w, h, samples, level)
		header := must.Get(ReadHeader(bytes.NewReader(data)))(t)
		var im image.Image
		alloctest.AtMost(t, int(header.Memory())+1<<14,
			func() { im = must.Get(Decode(t.Context(), data))(t) })
		p := im.(*image.YCbCr)
		for i := 0; i < w*h; i += 11 {
			x, y := i%w, i/w
			for c, got := range []uint8{p.Y[p.YOffset(x, y)], p.Cb[p.COffset(x, y)], p.Cr[p.COffset(x, y)]} {
				a, b := header.Cover(c)
				if want := level(c, x/a, y/b); max(got, want)-min(got, want) > 2 {
					t.Fatalf("%v: component %d is %d at %d, %d; want %d", samples, c, got, x, y, want)
				}
			}
		}
	}
}

// TestStops: a decoder stops when its context ends.
func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, data := range pictures(t) {
		if _, err := Decode(ctx, data); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode: whatever the bytes, there is no panic; memory is what the header says, beside that of
// the file; a picture is read whole and reduced or neither way; and pictures that image/jpeg reads
// too have its size and colour model.
func FuzzDecode(f *testing.F) {
	for _, data := range pictures(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadHeader(bytes.NewReader(data))
		if err != nil {
			return
		}
		if h.Width*h.Height > 1<<16 {
			t.Skip()
		}
		var got image.Image
		alloctest.AtMost(t, int(h.Memory())+1<<14+8*len(data),
			func() { got, err = Decode(t.Context(), data) })
		if len(h.Components) < 4 {
			_, planes, e := Reduce(t.Context(), data, []Points{{2, 4}, {8, 1}, {4, 4}}, image.Rectangle{}, &Memory{})
			if (got != nil) != (e == nil) {
				t.Errorf("whole: %v; reduced, %d planes: %v", err, len(planes), e)
			}
		}
		want, e := peer.Decode(bytes.NewReader(data))
		if err == nil && e == nil &&
			(got.Bounds() != want.Bounds() || got.ColorModel() != want.ColorModel()) {
			t.Errorf("%v %T; image/jpeg has %v %T", got.Bounds(), got, want.Bounds(), want)
		}
	})
}

// FuzzPixels: pictures of any pixels that image/jpeg writes lie within a level of those that it
// reads.
func FuzzPixels(f *testing.F) {
	f.Add([]byte{1, 200, 30, 255, 0, 0, 90}, uint8(7), uint8(90), true)
	f.Add([]byte{255, 0}, uint8(33), uint8(1), false)
	f.Fuzz(func(t *testing.T, pixels []byte, w, quality uint8, colour bool) {
		width := int(w)%70 + 1
		if len(pixels) == 0 || len(pixels) > 1<<14 {
			t.Skip()
		}
		r := image.Rect(0, 0, width, ceil(len(pixels), width))
		grey, rgba := image.NewGray(r), image.NewRGBA(r)
		copy(grey.Pix, pixels)
		for i, v := range pixels {
			copy(rgba.Pix[4*i:], []uint8{v, pixels[len(pixels)-1-i], v * 3, 255})
		}
		var im image.Image = grey
		if colour {
			im = rgba
		}
		var b bytes.Buffer
		must.Do(t, peer.Encode(&b, im, &peer.Options{Quality: int(quality)}))
		got := must.Get(Decode(t.Context(), b.Bytes()))(t)
		want := must.Get(peer.Decode(&b))(t)
		if d := apart(got, want); d < 0 || d > 1 {
			t.Errorf("%d levels from image/jpeg", d)
		}
	})
}

// TestPart: a part of a picture has the samples of the whole one, whatever its coding, and what lies
// outside is passed over without another error.
func TestPart(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	for name, data := range pictures(t) {
		whole, err := Decode(t.Context(), data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 40 {
			w, h := whole.Bounds().Dx(), whole.Bounds().Dy()
			r := image.Rect(random.IntN(w), random.IntN(h), random.IntN(w), random.IntN(h))
			d := must.Get(newDecoder(t.Context(), data, r, &Memory{}))(t)
			d.show(r, 0)
			must.Do(t, d.decode(nil))
			im := must.Get(d.picture())(t)
			b := im.Bounds()
			if !r.In(b) || !b.In(whole.Bounds()) {
				t.Fatalf("%s: %v holds %v", name, r, b)
			}
			for y := b.Min.Y; y < b.Max.Y; y++ {
				for x := b.Min.X; x < b.Max.X; x++ {
					if im.At(x, y) != whole.At(x, y) {
						t.Fatalf("%s, %v: pixel %d, %d is %v; want %v", name, b, x, y, im.At(x, y),
							whole.At(x, y))
					}
				}
			}
			if len(d.Components) == 3 {
				reducesPart(t, name, data, r)
			}
		}
	}
}

func reducesPart(t *testing.T, name string, data []byte, r image.Rectangle) {
	points := []Points{{2, 4}, {8, 1}, {4, 4}}
	_, want, err := Reduce(t.Context(), data, points, image.Rectangle{}, &Memory{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	d := must.Get(newDecoder(t.Context(), data, r, &Memory{}))(t)
	d.show(r, 0)
	must.Do(t, d.decode(points))
	for i := range want {
		p := d.parts[i].plane
		for y := range p.H {
			for x := range p.W {
				got := p.Reduced[y*p.Stride+x]
				if want := want[i].Reduced[(p.Y+y)*want[i].Stride+p.X+x]; got != want {
					t.Fatalf("%s, %v, plane %d: sample %d, %d is %d; want %d", name, r, i, p.X+x, p.Y+y,
						got, want)
				}
			}
		}
	}
}

// TestEightByEight: lanes have the samples of the plain passes, of blocks of any numbers.
func TestEightByEight(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	for n := range 4000 {
		var d decoder
		bound := int64(1) << (n % 32)
		for i := range 1 + random.IntN(64) {
			d.block[zigzag[i]] = int32(random.Int64N(2*bound) - bound)
		}
		for _, whole := range []bool{false, true} {
			plane := func() *Plane {
				p := &Plane{Stride: 11}
				if whole {
					p.Whole = make([]uint8, 100)
				} else {
					p.Reduced = make([]int16, 100)
				}
				return p
			}
			got, want := plane(), plane()
			if !d.eightByEight(got, 3) {
				t.Skip("there are no lanes")
			}
			d.passes(8, 8)
			for v := range 8 {
				want.put(3+11*v, d.rows[v][:], eighth+fraction+between)
			}
			if !slices.Equal(got.Whole, want.Whole) || !slices.Equal(got.Reduced, want.Reduced) {
				t.Fatalf("block %v: samples are %v %v; want %v %v", d.block, got.Whole, got.Reduced,
					want.Whole, want.Reduced)
			}
		}
	}
}
