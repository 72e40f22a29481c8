package imagefile

import "encoding/binary"

// orientation is the orientation of a picture as it is stored, with the numbers of EXIF 2.32 (tag 0x0112): 1 is upright; the
// others say how to rotate and mirror it to make it so. Phones store photographs in the orientation of the sensor and record
// here how they were held.
type orientation int

const upright orientation = 1

// swaps reports whether height and width are exchanged.
func (o orientation) swaps() bool { return o >= 5 }

// stored returns the pixel, in a stored picture of w x h, that is shown at x, y.
func (o orientation) stored(x, y, w, h int) (int, int) {
	switch o {
	case 2:
		return w - 1 - x, y
	case 3:
		return w - 1 - x, h - 1 - y
	case 4:
		return x, h - 1 - y
	case 5:
		return y, x
	case 6:
		return y, h - 1 - x
	case 7:
		return w - 1 - y, h - 1 - x
	case 8:
		return w - 1 - y, x
	}
	return x, y
}

// exifWithin bounds where in a file the EXIF data of a JPEG begin, in bytes: one segment of 64 KiB may precede them.
const exifWithin = 1 << 17

// readOrientation finds the orientation in the EXIF data of a JPEG (segment APP1) or PNG (chunk eXIf) file; upright
// where there is none or it is malformed. It reads each byte at most once.
func readOrientation(data []byte) orientation {
	if len(data) > 8 && string(data[:8]) == "\x89PNG\r\n\x1a\n" {
		for d := data[8:]; len(d) >= 12; {
			n, kind := binary.BigEndian.Uint32(d), string(d[4:8])
			if uint64(n) > uint64(len(d)-12) || kind == "IEND" {
				break
			}
			if kind == "eXIf" {
				return tiffOrientation(d[8 : 8+n])
			}
			d = d[12+n:]
		}
		return upright
	}
	if len(data) < 2 || data[0] != 0xff || data[1] != 0xd8 {
		return upright
	}
	const (
		app1      = 0xe1
		startScan = 0xda // pixels follow
	)
	for d := data[2:]; len(d) >= 4 && d[0] == 0xff; {
		if d[1] == 0xff { // padding
			d = d[1:]
			continue
		}
		n := int(binary.BigEndian.Uint16(d[2:])) // counts itself
		if n < 2 || n > len(d)-2 || d[1] == startScan {
			break
		}
		if body := d[4 : 2+n]; d[1] == app1 && len(body) > 6 && string(body[:6]) == "Exif\x00\x00" {
			return tiffOrientation(body[6:])
		}
		d = d[2+n:]
	}
	return upright
}

// tiffOrientation reads the tag in the first directory of a TIFF header (TIFF 6.0, section 2).
func tiffOrientation(d []byte) orientation {
	if len(d) < 8 {
		return upright
	}
	var order binary.ByteOrder
	switch string(d[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return upright
	}
	at := uint64(order.Uint32(d[4:]))
	if at+2 > uint64(len(d)) {
		return upright
	}
	const tag, short, entry = 0x0112, 3, 12
	d = d[at:]
	entries := int(order.Uint16(d))
	for d = d[2:]; entries > 0 && len(d) >= entry; entries, d = entries-1, d[entry:] {
		if order.Uint16(d) == tag && order.Uint16(d[2:]) == short {
			if o := orientation(order.Uint16(d[8:])); o >= 1 && o <= 8 {
				return o
			}
		}
	}
	return upright
}
