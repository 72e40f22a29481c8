package imagefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"strings"
)

// orientation is the orientation of a picture as it is stored, with the numbers of EXIF 2.32 (tag
// 0x0112): 1 is upright; the others say how to rotate and mirror it to make it so. Phones store
// photographs in the orientation of the sensor and record here how they were held.
type orientation int

const upright orientation = 1

// swaps reports whether height and width are exchanged.
func (o orientation) swaps() bool { return o >= 5 }

// mirrors reports whether the lines of a picture, and its columns, lie in the opposite order to
// those of the upright one, of which they are the columns and the lines where [orientation.swaps].
func (o orientation) mirrors() (lines, columns bool) {
	return o == 2 || o == 3 || o == 7 || o == 8, o == 3 || o == 4 || o == 6 || o == 7
}

// turning reads the orientation of a picture that is no JPEG: from the EXIF data of a PNG (chunk
// eXIf) or a WebP (chunk EXIF), and from the first directory of a TIFF. The picture is upright
// where it says nothing, or nothing valid. A file that is cut off is upright here; its decoder
// tells.
func turning(r io.ReaderAt) orientation {
	head := string(at(r, 0, 12))
	switch {
	case strings.HasPrefix(head, "\x89PNG\r\n\x1a\n"):
		return chunkOrientation(r, 8, binary.BigEndian, "eXIf", 4)
	case strings.HasPrefix(head, "RIFF") && strings.HasSuffix(head, "WEBP"):
		return chunkOrientation(r, 12, binary.LittleEndian, "EXIF", 0)
	case strings.HasPrefix(head, "II*\x00") || strings.HasPrefix(head, "MM\x00*"):
		return directoryOrientation(r)
	}
	return upright
}

// chunkOrientation finds a chunk of the given kind among those from an offset on. In a PNG length
// precedes kind, and a checksum of sum bytes follows the data (ISO/IEC 15948); in RIFF kind
// precedes length, and data are padded to an even length. sum is 0 for RIFF. Chunks are passed over
// unread, maxSegments at most.
func chunkOrientation(r io.ReaderAt, offset int64, order binary.ByteOrder, kind string,
	sum int) orientation {
	for range maxSegments {
		d := at(r, offset, 8)
		if len(d) < 8 {
			break
		}
		n, name := order.Uint32(d), string(d[4:])
		if sum == 0 {
			n, name = order.Uint32(d[4:]), string(d[:4])
		}
		if name == kind {
			b := at(r, offset+8, int(min(n, maxExif)))
			return tiffOrientation(bytes.TrimPrefix(b, []byte("Exif\x00\x00")))
		}
		offset += 8 + int64(n) + int64(sum)
		if sum == 0 {
			offset += int64(n & 1)
		}
	}
	return upright
}

// directoryOrientation reads the tag in the first directory of a TIFF file.
func directoryOrientation(r io.ReaderAt) orientation { return tiffOrientation(directory(r)) }

// directory returns a TIFF header and the first directory after it, wherever in the file that lies.
// It is as if the directory followed the header at once: its place is written anew. At most maxExif
// bytes of it are read.
func directory(r io.ReaderAt) []byte {
	head := at(r, 0, 8)
	if len(head) < 8 {
		return nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[0] == 'M' {
		order = binary.BigEndian
	}
	rest := at(r, int64(order.Uint32(head[4:])), maxExif)
	order.PutUint32(head[4:], 8)
	return append(head, rest...)
}

// tiffOrientation reads the tag in the first directory of a TIFF header. EXIF has it as SHORT;
// some programs write LONG.
func tiffOrientation(d []byte) orientation {
	if n, _ := tiffNumber(d, 0x0112); n >= 1 && n <= 8 {
		return orientation(n)
	}
	return upright
}

// Tags of a TIFF's directory (TIFF 6.0, section 8).
const tiffPhotometric, tiffFillOrder, tiffSamples, tiffPlanar, tiffExtra = 0x0106, 0x010a, 0x0115,
	0x011c, 0x0152

// tiffBits makes up for bits that golang.org/x/image 0.47 reads otherwise than a TIFF file says.
// Faxes (compression by CCITT's groups 3 or 4) whose 0 is black are negatives to it: runs of white
// are 0 there too (TIFF 6.0, section 11). im is changed in place.
func tiffBits(im image.Image, data []byte) {
	const blackIsZero = 1
	d := directory(bytes.NewReader(data))
	c, _ := tiffNumber(d, tiffCompression)
	zero, _ := tiffNumber(d, tiffPhotometric)
	if of, ok := im.(*image.Gray); ok && isFax(c) && zero == blackIsZero {
		for i, v := range of.Pix {
			of.Pix[i] = ^v
		}
	}
}

// tiffFault returns an error for a first directory that says of its pixels something that
// golang.org/x/image 0.47 reads wrongly, or refuses as a damaged file. In faxes alone it knows
// bytes whose first bit is the lowest.
func tiffFault(d []byte) error {
	const lowestFirst, planes, rgb, associated, unassociated = 2, 2, 2, 1, 2
	c, _ := tiffNumber(d, tiffCompression)
	order, _ := tiffNumber(d, tiffFillOrder)
	planar, _ := tiffNumber(d, tiffPlanar)
	samples, _ := tiffNumber(d, tiffSamples)
	extra, _ := tiffNumber(d, tiffExtra)
	colour, _ := tiffNumber(d, tiffPhotometric)
	alpha := samples == 4 && (extra == associated || extra == unassociated)
	switch {
	case beginsWithPreview(d):
		return errors.New("a camera raw file, or a TIFF that begins with a preview, which is " +
			"not read: save it as JPEG or PNG")
	case !isFax(c) && order == lowestFirst:
		return errors.New("the bits of its bytes are in reverse (FillOrder 2): save it anew")
	case planar == planes && samples > 1:
		return errors.New("a TIFF with a plane for each channel (PlanarConfiguration 2), which " +
			"is not read: save it as PNG")
	case colour == rgb && samples > 3 && !alpha:
		return fmt.Errorf("a TIFF of %d channels, which is not read unless the fourth and last is "+
			"alpha (ExtraSamples 1 or 2): save it as PNG", samples)
	}
	return nil
}

// beginsWithPreview reports whether the first directory of a TIFF is that of a smaller image than
// the file's (NewSubfileType), as in camera raw files, or of a DNG (DNGVersion). A file without
// another directory has no larger image, whatever its only one says.
func beginsWithPreview(d []byte) bool {
	const subfile, smaller, further, dng = 0x00fe, 1, 0x014a, 0xc612
	of, _ := tiffNumber(d, subfile)
	_, within := tiffNumber(d, further)
	_, raw := tiffNumber(d, dng)
	return of&smaller != 0 && (within != 0 || hasSecondDirectory(d)) || raw != 0
}

// hasSecondDirectory reports whether a TIFF header's first directory is followed by the place of
// another, or is too long to tell.
func hasSecondDirectory(d []byte) bool {
	order := tiffOrder(d)
	if order == nil {
		return false
	}
	at := uint64(order.Uint32(d[4:]))
	if at+2 > uint64(len(d)) {
		return false
	}
	at += 2 + tiffEntry*uint64(order.Uint16(d[at:]))
	return at+4 > uint64(len(d)) || order.Uint32(d[at:]) != 0
}

// tiffEntry is the length of an entry of a TIFF's directory.
const tiffEntry = 12

// tiffOrder is the order of bytes that a TIFF header says; nil where it is none.
func tiffOrder(d []byte) binary.ByteOrder {
	switch {
	case len(d) < 8:
	case string(d[:4]) == "II*\x00":
		return binary.LittleEndian
	case string(d[:4]) == "MM\x00*":
		return binary.BigEndian
	}
	return nil
}

const tiffCompression = 0x0103

// isFax reports whether a compression is one of CCITT's T.4 and T.6 (TIFF 6.0, section 11).
func isFax(compression uint32) bool { return compression == 3 || compression == 4 }

// Types of a TIFF's numbers, of 16 and of 32 bits (TIFF 6.0, section 2).
const tiffShort, tiffLong = 3, 4

// tiffNumber returns the last number with a tag in the first directory of a TIFF header, as
// decoders take it, and its type, 0 where it has none. The number is 0 where it is no single one of
// 16 or 32 bits. An entry is the tag, the type, the number of values, and the value or its place.
func tiffNumber(d []byte, tag uint16) (n uint32, kind uint16) {
	order := tiffOrder(d)
	if order == nil {
		return 0, 0
	}
	at := uint64(order.Uint32(d[4:]))
	if at+2 > uint64(len(d)) {
		return 0, 0
	}
	d = d[at:]
	entries := int(order.Uint16(d))
	for d = d[2:]; entries > 0 && len(d) >= tiffEntry; entries, d = entries-1, d[tiffEntry:] {
		if order.Uint16(d) != tag {
			continue
		}
		n, kind = 0, order.Uint16(d[2:])
		switch one := order.Uint32(d[4:]) == 1; {
		case one && kind == tiffShort:
			n = uint32(order.Uint16(d[8:]))
		case one && kind == tiffLong:
			n = order.Uint32(d[8:])
		}
	}
	return n, kind
}
