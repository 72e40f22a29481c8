package dicom

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"image"
	"io"
	"math"
	"math/big"
)

// secondaryCapture is the class of images that no scanner took (PS3.3 A.8.1).
const secondaryCapture = "1.2.840.10008.5.1.4.1.1.7"

// Encode writes an image as a DICOM file of nobody: explicit VR, little endian, uncompressed, 16
// bits of grey with the window of their whole range. Identifiers follow from the pixels, so that
// the same image has the same bytes. The whole file is made in memory, its pixels twice.
func Encode(w io.Writer, im *image.Gray16) error {
	width, height := im.Rect.Dx(), im.Rect.Dy()
	if width < 1 || height < 1 || width > math.MaxUint16 || height > math.MaxUint16 {
		return fmt.Errorf("dicom: %dx%d pixels cannot be written; 1 to %d in each direction can",
			width, height, math.MaxUint16)
	}
	pixels := make([]byte, 0, 2*width*height)
	for y := im.Rect.Min.Y; y < im.Rect.Max.Y; y++ {
		for x := im.Rect.Min.X; x < im.Rect.Max.X; x++ {
			pixels = binary.LittleEndian.AppendUint16(pixels, im.Gray16At(x, y).Y)
		}
	}
	// A UID of 2.25 may have 39 digits, which stays below the 64 characters of a UID.
	uid := func(of string) string { // 2.25 and the number of 128 bits (PS3.5 B.2)
		sum := sha256.Sum256(append([]byte(of), pixels...))
		return "2.25." + new(big.Int).SetBytes(sum[:16]).String()
	}
	instance := uid("instance")

	// The file's own group (PS3.10 7.1): its version, the class and the identifier of the image,
	// the transfer syntax, and the program.
	var meta writer
	meta.bytes(0x0002_0001, "OB", []byte{0, 1})
	meta.text(0x0002_0002, "UI", secondaryCapture)
	meta.text(0x0002_0003, "UI", instance)
	meta.text(tagSyntax, "UI", explicitVR)
	meta.text(0x0002_0012, "UI", uid("program"))
	var b writer
	b.Write(make([]byte, preamble))
	b.WriteString("DICM")
	b.bytes(0x0002_0000, "UL", binary.LittleEndian.AppendUint32(nil, uint32(meta.Len())))
	b.Write(meta.Bytes())

	// The class and the identifier of the image; its modality is other (OT) and its conversion
	// synthetic (SYN).
	b.text(0x0008_0016, "UI", secondaryCapture)
	b.text(0x0008_0018, "UI", instance)
	b.text(0x0008_0060, "CS", "OT")
	b.text(0x0008_0064, "CS", "SYN")
	b.text(0x0010_0010, "PN", "") // name and identifier of nobody
	b.text(0x0010_0020, "LO", "")
	// The study and the series that every image is in.
	b.text(0x0020_000d, "UI", uid("study"))
	b.text(0x0020_000e, "UI", uid("series"))
	b.number(tagSamples, 1)
	b.text(tagMeaning, "CS", "MONOCHROME2")
	b.number(tagRows, height)
	b.number(tagColumns, width)
	b.number(tagAllocated, 16)
	b.number(tagStored, 16)
	b.number(tagHigh, 15)
	b.number(tagSigned, 0)
	b.text(tagCentre, "DS", "32768")
	b.text(tagWidth, "DS", "65536")
	b.bytes(tagPixels, "OW", pixels)
	_, err := w.Write(b.Bytes())
	return err
}

// writer collects elements of explicit VR, little endian.
type writer struct{ bytes.Buffer }

// bytes writes an element (PS3.5 7.1.2): the tag as two numbers, the two letters of the kind, the
// length and the value. Lengths have two bytes, and of the long kinds four behind two of zero.
// Lengths of more than 65,535 bytes occur in the pixels alone.
func (w *writer) bytes(tag uint32, kind string, value []byte) {
	head := binary.LittleEndian.AppendUint16(nil, uint16(tag>>16))
	head = append(binary.LittleEndian.AppendUint16(head, uint16(tag)), kind...)
	if kind == "OB" || kind == "OW" {
		head = binary.LittleEndian.AppendUint32(append(head, 0, 0), uint32(len(value)))
	} else {
		head = binary.LittleEndian.AppendUint16(head, uint16(len(value)))
	}
	w.Write(head)
	w.Write(value)
}

// number writes an element of one number of 16 bits.
func (w *writer) number(tag uint32, v int) {
	w.bytes(tag, "US", binary.LittleEndian.AppendUint16(nil, uint16(v)))
}

// text pads a value to even length, identifiers with a zero (PS3.5 6.2).
func (w *writer) text(tag uint32, kind, v string) {
	switch {
	case len(v)%2 == 0:
	case kind == "UI":
		v += "\x00"
	default:
		v += " "
	}
	w.bytes(tag, kind, []byte(v))
}
