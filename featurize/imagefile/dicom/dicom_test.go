package dicom

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// element is one of a file that a test writes.
type element struct {
	tag   uint32
	kind  string
	value []byte
}

func short(tag uint32, v int) element {
	return element{tag, "US", binary.LittleEndian.AppendUint16(nil, uint16(v))}
}

func text(tag uint32, kind, v string) element {
	if len(v)%2 == 1 {
		v += " "
	}
	return element{tag, kind, []byte(v)}
}

// append writes an element; an undefined length where undef is set.
func (e element) append(b []byte, explicit, undef bool) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(e.tag>>16))
	b = binary.LittleEndian.AppendUint16(b, uint16(e.tag))
	n := uint32(len(e.value))
	if undef {
		n = undefined
	}
	switch {
	case !explicit:
		b = binary.LittleEndian.AppendUint32(b, n)
	case strings.Contains("OB OW SQ UN", e.kind):
		b = append(append(b, e.kind...), 0, 0)
		b = binary.LittleEndian.AppendUint32(b, n)
	default:
		b = binary.LittleEndian.AppendUint16(append(b, e.kind...), uint16(n))
	}
	return append(b, e.value...)
}

// end ends a sequence of undefined length.
var end = element{tagEnd, "", nil}.append(nil, false, false)

// file returns a file of a transfer syntax with a patient, sequences of both kinds, and the given
// elements before the pixels. Those that hold an end are of undefined length.
func file(syntax string, pixels []byte, elements ...element) []byte {
	b := append(make([]byte, preamble), "DICM"...)
	b = element{0x0002_0001, "OB", []byte{0, 1}}.append(b, true, false)
	b = text(tagSyntax, "UI", syntax).append(b, true, false)
	explicit := syntax != implicitVR
	b = text(0x0008_0016, "UI", "1.2.3").append(b, explicit, false)
	inner := text(0x0008_1150, "UI", "1.2").append(nil, explicit, false)
	item := element{tagItem, "", inner}.append(nil, false, true)
	item = element{tagItemEnd, "", nil}.append(item, false, false)
	item = element{tagEnd, "", nil}.append(item, false, false)
	b = element{0x0008_1140, "SQ", item}.append(b, explicit, true)
	b = element{0x0008_1199, "SQ", element{tagItem, "", inner}.append(nil, false, false)}.append(b,
		explicit, false)
	b = text(0x0010_0010, "PN", "Secret^Patient").append(b, explicit, false)
	for _, e := range elements {
		b = e.append(b, explicit, bytes.HasSuffix(e.value, end))
	}
	return element{tagPixels, "OW", pixels}.append(b, explicit, syntax == jpegBaseline)
}

// grey are the elements of a grey image.
func grey(w, h, allocated, stored, signed int, more ...element) []element {
	out := []element{short(tagSamples, 1), text(tagMeaning, "CS", "MONOCHROME2"), short(tagRows, h),
		short(tagColumns, w), short(tagAllocated, allocated), short(tagStored, stored),
		short(tagHigh, stored-1), short(tagSigned, signed)}
	return append(out, more...)
}

func words(v ...int) (out []byte) {
	for _, x := range v {
		out = binary.LittleEndian.AppendUint16(out, uint16(x))
	}
	return out
}

// table is one in place of a window, which stays unread.
var table = element{tagInterest, "SQ", element{tagItem, "", words(1, 2)}.append(nil, false, false)}

// TestGrey: values are rescaled and windowed as PS3.3 C.11 says, and keep 16 bits.
func TestGrey(t *testing.T) {
	window := func(c, w string, more ...element) []element {
		return append([]element{text(tagCentre, "DS", c), text(tagWidth, "DS", w)}, more...)
	}
	scale := []element{text(tagIntercept, "DS", "-1024"), text(tagSlope, "DS", "2")}
	for name, c := range map[string]struct {
		pixels []byte
		like   []element
		want   []float64 // y in 0 to 1
	}{
		"range":  {words(10, 20, 40, 30), grey(2, 2, 16, 12, 0), []float64{0, 1. / 3, 1, 2. / 3}},
		"signed": {words(-10, 20, 40, 0), grey(2, 2, 16, 16, 1), []float64{0, .6, 1, .2}},
		"high bits": {words(0xf000|10, 0xa000|20, 40, 30), grey(2, 2, 16, 12, 0),
			[]float64{0, 1. / 3, 1, 2. / 3}},
		"eight bits": {[]byte{10, 20, 40, 30}, grey(2, 2, 8, 8, 0), []float64{0, 1. / 3, 1, 2. / 3}},
		"one value":  {words(7, 7, 7, 7), grey(2, 2, 16, 12, 0), []float64{0, 0, 0, 0}},
		"linear": {words(0, 50, 100, 200), grey(2, 2, 16, 12, 0, window("50", "101")...),
			[]float64{.005, .505, 1, 1}},
		"exact": {words(0, 50, 75, 200),
			grey(2, 2, 16, 12, 0, window("50", "100", text(tagFunction, "CS", "LINEAR_EXACT"))...),
			[]float64{0, .5, .75, 1}},
		"sigmoid": {words(50, 100, 0, 50),
			grey(2, 2, 16, 12, 0, window("50", "100", text(tagFunction, "CS", "SIGMOID"))...),
			[]float64{.5, 1 / (1 + math.Exp(-2)), 1 / (1 + math.Exp(2)), .5}},
		"rescaled": {words(512, 562, 612, 0),
			grey(2, 2, 16, 12, 0, window("100", "201", scale...)...), []float64{.0025, .5025, 1, 0}},
		"first window": {words(0, 50, 100, 200), grey(2, 2, 16, 12, 0, window(`50\1`, `101\9`)...),
			[]float64{.005, .505, 1, 1}},
		"no values": {words(10, 20, 40, 30), slices.Insert(grey(2, 2, 16, 12, 0, window("", " ",
			text(tagIntercept, "DS", ""), text(tagSlope, "DS", "  "), text(tagFunction, "CS", ""))...), 2,
			element{tagPlanar, "US", nil}, text(tagFrames, "IS", "")), []float64{0, 1. / 3, 1, 2. / 3}},
		"window beside a table": {words(0, 50, 100, 200), grey(2, 2, 16, 12, 0, window("50", "101", table)...),
			[]float64{.005, .505, 1, 1}},
		"empty tables": {words(10, 20, 40, 30), grey(2, 2, 16, 12, 0, element{tagTable, "SQ", nil},
			element{tagInterest, "SQ", nil}, text(tagShape, "CS", "IDENTITY")), []float64{0, 1. / 3, 1, 2. / 3}},
		"tables of an end alone": {words(10, 20, 40, 30), grey(2, 2, 16, 12, 0, element{tagTable, "SQ", end},
			element{tagInterest, "SQ", end}), []float64{0, 1. / 3, 1, 2. / 3}},
		"step": {words(49, 50, 51, 0), grey(2, 2, 16, 12, 0, window("50", "1")...),
			[]float64{0, 1, 1, 0}},
	} {
		for _, syntax := range []string{implicitVR, explicitVR} {
			data := file(syntax, c.pixels, c.like...)
			im, err := Decode(bytes.NewReader(data))
			if err != nil {
				t.Errorf("%s, %s: %v", name, syntax, err)
				continue
			}
			cfg, err := DecodeConfig(bytes.NewReader(data))
			if err != nil || cfg.Width != 2 || cfg.Height != 2 || cfg.ColorModel != color.Gray16Model {
				t.Errorf("%s, %s: %+v, %v", name, syntax, cfg, err)
			}
			for i, y := range c.want {
				if got := im.(*image.Gray16).Gray16At(i%2, i/2).Y; math.Abs(float64(got)-y*65535) > 0.51 {
					t.Errorf("%s, %s: pixel %d is %d; want %v", name, syntax, i, got, y*65535)
				}
			}
		}
	}
	inverted := grey(2, 1, 16, 16, 0, text(tagShape, "CS", "INVERSE"))
	inverted[1] = text(tagMeaning, "CS", "MONOCHROME1")
	im, err := Decode(bytes.NewReader(file(explicitVR, words(0, 9), inverted...)))
	if err != nil || im.(*image.Gray16).Gray16At(0, 0).Y != 65535 ||
		im.(*image.Gray16).Gray16At(1, 0).Y != 0 {
		t.Errorf("MONOCHROME1: %v, %v", im, err)
	}
}

// TestPadding: padding is black and no part of the image. Its other cells are, to the bit, those of
// the image without padding, whichever value outside of them it has.
func TestPadding(t *testing.T) {
	window := []element{text(tagCentre, "DS", "50"), text(tagWidth, "DS", "101")}
	for name, c := range map[string]struct {
		stored, signed, padding, limit, cell int // limit, cell: -1 for none and for the padding
	}{
		"below":                   {16, 1, -2000, -1, -1},
		"least of all":            {16, 1, -32768, -1, -1},
		"above":                   {12, 0, 4095, -1, -1},
		"zero":                    {12, 0, 0, -1, -1},
		"twelve bits, signed":     {12, 1, -2000, -1, -2000 & 0xfff},
		"a range":                 {12, 0, 4000, 4095, 4050},
		"a range, least last":     {12, 0, 4095, 4000, 4050},
		"a range of signed":       {16, 1, -10, 0, -5},
		"beyond the stored bits":  {12, 0, 63536, -1, -1},
		"beyond those and signed": {12, 1, -32768, -1, -1},
	} {
		for _, meaning := range []string{"MONOCHROME1", "MONOCHROME2"} {
			for _, view := range [][]element{nil, window} {
				of := func(fourth int, more ...element) *image.Gray16 {
					e := grey(2, 2, 16, c.stored, c.signed, append(more, view...)...)
					e[1] = text(tagMeaning, "CS", meaning)
					im := must.Get(Decode(bytes.NewReader(file(implicitVR, words(10, 90, 40, fourth), e...))))(t)
					return im.(*image.Gray16)
				}
				padding, cell := []element{short(tagPadding, c.padding)}, c.padding
				if c.limit >= 0 {
					padding = append(padding, short(tagLimit, c.limit))
				}
				if c.cell != -1 {
					cell = c.cell
				}
				want := of(40)
				copy(want.Pix[6:], words(0))
				if got := of(cell, padding...); !reflect.DeepEqual(got, want) {
					t.Errorf("%s, %s, window %v: %v; want %v", name, meaning, view != nil, got.Pix, want.Pix)
				}
				if got := of(cell, short(tagLimit, 40)); reflect.DeepEqual(got, want) && view == nil {
					t.Errorf("%s, %s: a limit alone tells padding", name, meaning)
				}
			}
		}
	}
	for _, p := range []int{5, 70} { // that of the JPEG, and another
		im := image.NewGray(image.Rect(0, 0, 8, 8))
		for i := range im.Pix {
			im.Pix[i] = 5
		}
		var b bytes.Buffer
		must.Do(t, jpeg.Encode(&b, im, &jpeg.Options{Quality: 100}))
		e := grey(8, 8, 8, 8, 0, short(tagPadding, p), text(tagCentre, "DS", "1"), text(tagWidth, "DS", "2"))
		got := must.Get(Decode(bytes.NewReader(file(jpegBaseline, fragments(b.Bytes()), e...))))(t)
		if black := got.(*image.Gray16).Gray16At(3, 3).Y == 0; black != (p == 5) {
			t.Errorf("a JPEG of 5 with padding %d: black %v", p, black)
		}
	}
}

// TestFunctionalGroups: an enhanced image's rescaling and window act as those of others do, whether
// its sequences have a length or an end, and where their VR is unknown.
func TestFunctionalGroups(t *testing.T) {
	pixels := words(512, 562, 612, 0)
	values := []element{text(tagCentre, "DS", "100"), text(tagWidth, "DS", "201"),
		text(tagIntercept, "DS", "-1024"), text(tagSlope, "DS", "2")}
	want := must.Get(Decode(bytes.NewReader(file(explicitVR, pixels, grey(2, 2, 16, 12, 0, values...)...))))(t)
	for _, c := range []struct{ syntax, kind string }{{implicitVR, "SQ"}, {explicitVR, "SQ"}, {explicitVR, "UN"}} {
		syntax := c.syntax
		for _, ends := range []bool{false, true} {
			of := func(tag uint32, inner ...element) element {
				var b []byte
				for _, e := range inner {
					b = e.append(b, syntax == explicitVR && c.kind == "SQ", bytes.HasSuffix(e.value, end))
				}
				if ends {
					b = element{tagItemEnd, "", nil}.append(b, false, false)
				}
				b = element{tagItem, "", b}.append(nil, false, ends)
				if ends {
					b = append(b, end...)
				}
				return element{tag, c.kind, b}
			}
			other := of(0x0028_9110, text(0x0028_0030, "DS", `1\1`), text(tagWidth, "DS", "7"))
			groups := []element{of(0x5200_9229, other, of(0x0028_9145, values[2:]...)),
				of(0x5200_9230, of(0x0020_9111, short(0x0020_9157, 1)), of(0x0028_9132, values[:2]...))}
			data := file(syntax, pixels, grey(2, 2, 16, 12, 0, groups...)...)
			if got, err := Decode(bytes.NewReader(data)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, ends %v: %v, %v; want %v", c, ends, got, err, want)
			}
			groups[1] = of(0x5200_9230, of(0x0028_9132, table))
			must.Fail(Decode(bytes.NewReader(file(syntax, pixels, grey(2, 2, 16, 12, 0,
				groups...)...))))(t, "its VOI LUT", syntax)
		}
	}
	long := append(element{tagItem, "", nil}.append(nil, false, false), words(0x20, 0x10, 8, 0)...)
	cut := element{0x5200_9229, "SQ", long}
	must.Fail(Decode(bytes.NewReader(file(implicitVR, pixels,
		grey(2, 2, 16, 12, 0, cut)...))))(t, "end within an element", "cut")
}

// colour are the elements of an image of three samples.
func colour(w, h int, meaning string, planar int) []element {
	return []element{short(tagSamples, 3), text(tagMeaning, "CS", meaning), short(tagPlanar, planar),
		short(tagRows, h), short(tagColumns, w), short(tagAllocated, 8), short(tagStored, 8),
		short(tagHigh, 7), short(tagSigned, 0)}
}

// TestColour: samples lie by pixel or by plane, and luma with chroma is converted.
func TestColour(t *testing.T) {
	for name, data := range map[string][]byte{
		"by pixel": file(explicitVR, []byte{1, 2, 3, 4, 5, 6}, colour(2, 1, "RGB", 0)...),
		"padding of each sample": file(explicitVR, []byte{1, 2, 3, 4, 5, 6}, append(colour(2, 1, "RGB", 0),
			element{tagPadding, "US", words(1, 2, 3)}, element{tagLimit, "US", words(1, 2, 3)})...),
		"by plane": file(implicitVR, []byte{1, 4, 2, 5, 3, 6}, colour(2, 1, "RGB", 1)...),
	} {
		im, err := Decode(bytes.NewReader(data))
		if err != nil || im.At(0, 0) != (color.RGBA{1, 2, 3, 255}) ||
			im.At(1, 0) != (color.RGBA{4, 5, 6, 255}) {
			t.Errorf("%s: %v, %v", name, im, err)
		}
	}
	im, err := Decode(bytes.NewReader(file(explicitVR, []byte{100, 128, 128, 0}, colour(1, 1, "YBR_FULL", 0)...)))
	if err != nil || im.At(0, 0) != (color.RGBA{100, 100, 100, 255}) {
		t.Errorf("luma and chroma: %v, %v", im, err)
	}
}

// fragments returns the pixels of a JPEG in two fragments behind an empty table.
func fragments(data []byte) []byte {
	half := len(data) / 4 * 2
	out := element{tagItem, "", nil}.append(nil, false, false)
	out = element{tagItem, "", data[:half]}.append(out, false, false)
	out = element{tagItem, "", data[half:]}.append(out, false, false)
	return element{tagEnd, "", nil}.append(out, false, false)
}

// TestJPEG: a baseline JPEG is read in fragments, with the window on its grey values, and must have
// the header's size.
func TestJPEG(t *testing.T) {
	im := image.NewGray(image.Rect(0, 0, 16, 8))
	for i := range im.Pix {
		im.Pix[i] = uint8(i)
	}
	var b bytes.Buffer
	must.Do(t, jpeg.Encode(&b, im, &jpeg.Options{Quality: 100}))
	got := must.Get(Decode(bytes.NewReader(file(jpegBaseline, fragments(b.Bytes()),
		grey(16, 8, 8, 8, 0, text(tagCentre, "DS", "64"), text(tagWidth, "DS", "129"))...))))(t)
	for i, v := range im.Pix {
		if y := float64(got.(*image.Gray16).Gray16At(i%16, i/16).Y) /
			65535; math.Abs(y-(float64(v)+0.5)/128) > 0.02 {
			t.Errorf("pixel %d: %v; want %v", i, y, (float64(v)+0.5)/128)
		}
	}
	must.Fail(Decode(bytes.NewReader(file(jpegBaseline, fragments(b.Bytes()),
		grey(8, 16, 8, 8, 0)...))))(t, "16x8", "another size")
	b.Reset()
	must.Do(t, jpeg.Encode(&b, image.NewRGBA(image.Rect(0, 0, 16, 8)), nil))
	if _, err := Decode(bytes.NewReader(file(jpegBaseline, fragments(b.Bytes()),
		colour(16, 8, "YBR_FULL_422", 0)...))); err != nil {
		t.Errorf("colour: %v", err)
	}
	must.Fail(Decode(bytes.NewReader(file(jpegBaseline, fragments(b.Bytes()),
		grey(16, 8, 8, 8, 0)...))))(t, "", "colour was taken for grey")
}

// TestRefused: images that are not read are refused by the reason, and no error holds a value of
// the patient.
func TestRefused(t *testing.T) {
	pixels := words(1, 2, 3, 4)
	with := func(change func(e []element)) []byte {
		e := grey(2, 2, 16, 12, 0)
		change(e)
		return file(explicitVR, pixels, e...)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"an escape": {file("1.2.840.10008.1.2.5\x1b[2J\n", pixels, grey(2, 2, 16, 12, 0)...),
			`(transfer syntax "1.2.840.10008.1.2.5\x1b[2J\n")`},
		"JPEG 2000": {file("1.2.840.10008.1.2.4.90", pixels, grey(2, 2, 16, 12, 0)...), "are JPEG 2000"},
		"lossless": {file("1.2.840.10008.1.2.4.70", pixels, grey(2, 2, 16, 12, 0)...),
			"are lossless JPEG"},
		"run lengths": {file("1.2.840.10008.1.2.5", pixels, grey(2, 2, 16, 12, 0)...), "are run lengths"},
		"big endian":  {file("1.2.840.10008.1.2.2", pixels, grey(2, 2, 16, 12, 0)...), "are big endian"},
		"unknown":     {file("1.2.3", pixels, grey(2, 2, 16, 12, 0)...), `"1.2.3" is not read`},
		"palette": {with(func(e []element) { e[1] = text(tagMeaning, "CS", "PALETTE COLOR") }),
			"PALETTE COLOR"},
		"JPEG of RGB": {file(jpegBaseline, pixels, colour(2, 2, "RGB", 0)...),
			"JPEG of RGB is not read; save it uncompressed"},
		"32 bits":    {with(func(e []element) { e[4] = short(tagAllocated, 32) }), "32 bits"},
		"stored":     {with(func(e []element) { e[5] = short(tagStored, 17) }), "17"},
		"empty rows": {with(func(e []element) { e[2] = element{tagRows, "US", nil} }), "2x0"},
		"no centre": {file(explicitVR, pixels, grey(2, 2, 16, 12, 0, text(tagCentre, "DS", ""),
			text(tagWidth, "DS", "9"))...), "a window of width 9 around NaN"},
		"no number":  {file(explicitVR, pixels, grey(2, 2, 16, 12, 0, text(tagCentre, "DS", `\9`))...), "want a number"},
		"high bit":   {with(func(e []element) { e[6] = short(tagHigh, 3) }), "up to bit 3"},
		"no rows":    {with(func(e []element) { e[2] = short(tagRows, 0) }), "2x0"},
		"other size": {with(func(e []element) { e[2] = short(tagRows, 3) }), "take 8 bytes"},
		"frames": {file(explicitVR, pixels, short(tagSamples, 1), text(tagMeaning, "CS", "MONOCHROME2"),
			text(tagFrames, "IS", "7")), "7 frames"},
		"cut":   {file(explicitVR, pixels, grey(2, 2, 16, 12, 0)...)[:300], "EOF"},
		"order": {file(explicitVR, pixels, short(tagRows, 2), short(tagSamples, 1)), "after"},
		"padding of three": {file(explicitVR, pixels, grey(2, 2, 16, 12, 0,
			element{tagPadding, "US", words(1, 2, 3)})...), "(0028,0120) has 6 bytes in place of 2; save it without"},
		"limit of four bytes": {file(implicitVR, pixels, grey(2, 2, 16, 12, 0, short(tagPadding, 1),
			element{tagLimit, "US", words(1, 2)})...), "(0028,0121) has 4 bytes in place of 2"},
		"rows of four bytes": {with(func(e []element) { e[2] = element{tagRows, "US", words(2, 0)} }),
			"00280010 has 4 bytes"},
		"table": {file(explicitVR, pixels, element{tagTable, "SQ", table.value}), "table of the modality"},
		"table with an end": {file(explicitVR, pixels, element{tagTable, "SQ", slices.Concat(table.value, end)}),
			"table of the modality"},
		"table for a window": {file(explicitVR, pixels, grey(2, 2, 16, 12, 0, table)...),
			"its VOI LUT"},
		"inverse": {file(implicitVR, pixels, grey(2, 2, 16, 12, 0, text(tagShape, "CS", "INVERSE"))...),
			"presentation is INVERSE"},
	} {
		_, err := Decode(bytes.NewReader(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// FuzzDecode: whatever the file, no panic, an image of the size that is announced, and memory
// bounded by the file and that size.
func FuzzDecode(f *testing.F) {
	f.Add(file(implicitVR, words(1, 2, 3, 4),
		grey(2, 2, 16, 12, 0, text(tagCentre, "DS", "2"), text(tagWidth, "DS", "3"))...))
	f.Add(file(explicitVR, []byte{1, 2, 3, 4, 5, 6}, colour(2, 1, "RGB", 1)...))
	var b bytes.Buffer
	must.Do(f, jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 16, 8)), nil))
	f.Add(file(jpegBaseline, fragments(b.Bytes()), grey(16, 8, 8, 8, 0)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeConfig(bytes.NewReader(data))
		if err != nil {
			return
		}
		pixels := c.Width * c.Height
		if pixels > 1<<20 {
			return
		}
		alloctest.AtMost(t, 64*pixels+64*len(data)+1<<20, func() {
			im, err := Decode(bytes.NewReader(data))
			if err == nil && im.Bounds() != image.Rect(0, 0, c.Width, c.Height) {
				t.Fatal(fmt.Sprint(im.Bounds(), " of ", c.Width, c.Height))
			}
		})
	})
}

// TestEncode: a written file is read back with all of its 16 bits, has the same bytes again, and
// its group of file information has the length that it states.
func TestEncode(t *testing.T) {
	im := image.NewGray16(image.Rect(3, 5, 10, 8))
	for i := range 21 {
		im.SetGray16(3+i%7, 5+i/7, color.Gray16{Y: uint16(3121 * i)})
	}
	var b, again bytes.Buffer
	must.Do(t, Encode(&b, im))
	if err := Encode(&again, im); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("the same image has other bytes, %v", err)
	}
	got, err := Decode(bytes.NewReader(b.Bytes()))
	if err != nil || got.Bounds() != image.Rect(0, 0, 7, 3) {
		t.Fatalf("%v, %v", got, err)
	}
	for i := range 21 {
		if y := int(got.(*image.Gray16).Gray16At(i%7, i/7).Y); y-3121*i > 1 || 3121*i-y > 1 {
			t.Errorf("pixel %d is %d; written was %d", i, y, 3121*i)
		}
	}
	from := preamble + 4 + 12 // behind the element of the length
	if n := int(binary.LittleEndian.Uint32(b.Bytes()[from-4:])); string(
		b.Bytes()[from+n:][:4]) != "\x08\x00\x16\x00" {
		t.Errorf("the group of file information does not end after %d bytes", n)
	}
	for _, box := range []image.Rectangle{{}, image.Rect(0, 0, 1<<16, 1)} {
		must.Fail(Encode(&b, image.NewGray16(box)))(t, "", box)
	}
}
