package imagefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// entry is one of a TIFF's directory.
type entry struct {
	tag, kind    uint16
	count, value uint32
}

// greyTIFF returns the header and the directory of a grey TIFF with further entries, in the order of
// their tags.
func greyTIFF(side uint32, further ...entry) []byte {
	return greyPages(side, 0, further...)
}

// greyPages is greyTIFF with the place of a second directory.
func greyPages(side, second uint32, further ...entry) []byte {
	all := []entry{{0x100, tiffLong, 1, side}, {0x101, tiffLong, 1, side}, {0x102, tiffShort, 1, 8},
		{0x106, tiffShort, 1, 1}}
	for _, e := range further {
		i := 0
		for i < len(all) && all[i].tag < e.tag {
			i++
		}
		all = append(all[:i], append([]entry{e}, all[i:]...)...)
	}
	d := binary.LittleEndian.AppendUint16([]byte("II*\x00\x08\x00\x00\x00"), uint16(len(all)))
	for _, e := range all {
		d = binary.LittleEndian.AppendUint16(d, e.tag)
		d = binary.LittleEndian.AppendUint16(d, e.kind)
		d = binary.LittleEndian.AppendUint32(d, e.count)
		d = binary.LittleEndian.AppendUint32(d, e.value)
	}
	return binary.LittleEndian.AppendUint32(d, second)
}

// TestMemoryOfTIFF: what a strip or tile may inflate to counts, wherever its size is told, and where
// it is told in a way that this package does not read.
func TestMemoryOfTIFF(t *testing.T) {
	how := func(c uint32) entry { return entry{tiffCompression, tiffShort, 1, c} }
	rows := entry{0x116, tiffLong, 1, 16}
	tile := func(across, down uint32) []entry {
		return []entry{{0x142, tiffLong, 1, across}, {0x143, tiffLong, 1, down}}
	}
	const large, small, pixels = 9999, 3000, 9999 * 9999
	for _, c := range []struct {
		name    string
		side    uint32
		further []entry
		want    int64 // 0: refused
	}{
		{"deflated in one strip", large, []entry{how(8)}, 0},
		{"deflated in one strip, fewer pixels", small, []entry{how(8)}, 25 * 3000 * 3000},
		{"by LZW in one strip", large, []entry{how(5)}, 0},
		{"by PackBits in one strip", large, []entry{how(32773)}, 0},
		{"deflated in strips", large, []entry{how(8), rows}, pixels + 24*16*large},
		{"deflated in strips of all rows", large, []entry{how(8), {0x116, tiffLong, 1, 1<<32 - 1}}, 0},
		{"deflated in strips of two numbers", large, []entry{how(8), {0x116, tiffLong, 2, 16}}, 0},
		{"deflated in tiles", large, append(tile(256, 128), how(8)), pixels + 24*256*128},
		{"deflated in one tile", large, append(tile(large, large), how(8)), 0},
		{"deflated in tiles that strips hide", large, append(tile(large, large), how(8), rows), 0},
		{"deflated in tiles of bytes that strips hide", large,
			[]entry{how(8), rows, {0x142, 1, 1, 128}, {0x143, 1, 1, 128}}, 0},
		{"a fax in one strip", large, []entry{how(4)}, 4 * pixels},
		{"as it is, in one strip", large, []entry{how(1)}, pixels + 9*MaxBytes/4},
		{"as it is, fewer pixels", small, []entry{how(1)}, 19 * 3000 * 3000},
		{"as it is, by default", small, nil, 19 * 3000 * 3000},
		{"compressed as a byte says", large, []entry{{tiffCompression, 1, 1, 1}}, 0},
	} {
		h, err := header(bytes.NewReader(greyTIFF(c.side, c.further...)), MaxPixels)
		if refused := errors.Is(err, ErrSize); refused != (c.want == 0) || err != nil && !refused ||
			!refused && h.Memory != c.want {
			t.Errorf("%s: %d bytes, %v; want %d", c.name, h.Memory, err, c.want)
		}
	}
}

// TestRawFile: a TIFF whose first image is a preview, or which says that it is a DNG, is no image.
func TestRawFile(t *testing.T) {
	for _, c := range []struct {
		name    string
		second  uint32
		further []entry
		raw     bool
	}{
		{"an image", 0, nil, false},
		{"a page of several", 512, []entry{{0xfe, tiffLong, 1, 2}}, false},
		{"a preview", 512, []entry{{0xfe, tiffLong, 1, 1}}, true},
		{"a preview of a page", 512, []entry{{0xfe, tiffLong, 1, 3}}, true},
		{"a preview of an image within", 0, []entry{{0xfe, tiffLong, 1, 1}, {0x14a, tiffLong, 1, 512}}, true},
		{"a preview of two within", 0, []entry{{0xfe, tiffLong, 1, 1}, {0x14a, tiffLong, 2, 512}}, true},
		{"a preview of nothing", 0, []entry{{0xfe, tiffLong, 1, 1}}, false},
		{"a DNG", 0, []entry{{0xfe, tiffLong, 1, 0}, {0xc612, 1, 4, 0x401}}, true},
	} {
		_, err := header(bytes.NewReader(greyPages(2, c.second, c.further...)), MaxPixels)
		if raw := err != nil && strings.Contains(err.Error(), "camera raw"); raw != c.raw || !raw && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
