package dicom

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// parser reads the elements of a data set (PS3.5 7.1) in their order.
type parser struct {
	r        io.Reader
	explicit bool
	elements int
}

// long are the value representations with a length of four bytes.
var long = []string{"OB", "OD", "OF", "OL", "OV", "OW", "SQ", "SV", "UC", "UN", "UR", "UT", "UV"}

func (p *parser) read(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(p.r, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// skip passes over n bytes unread, where the file can be moved in.
func (p *parser) skip(n int64) error {
	if s, ok := p.r.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekCurrent)
		return err
	}
	_, err := io.CopyN(io.Discard, p.r, n)
	return err
}

// element reads the beginning of an element.
func (p *parser) element() (tag, length uint32, kind string, err error) {
	if p.elements++; p.elements > maxElements {
		return 0, 0, "", fmt.Errorf("more than %d elements before its pixels", maxElements)
	}
	b, err := p.read(8)
	if err != nil {
		return 0, 0, "", fmt.Errorf("an element of its header: %w", err)
	}
	tag = uint32(binary.LittleEndian.Uint16(b))<<16 | uint32(binary.LittleEndian.Uint16(b[2:]))
	if !p.explicit || tag>>16 == 0xfffe {
		return tag, binary.LittleEndian.Uint32(b[4:]), "", nil
	}
	if kind = string(b[4:6]); !slices.Contains(long, kind) {
		return tag, uint32(binary.LittleEndian.Uint16(b[6:])), kind, nil
	}
	if b, err = p.read(4); err != nil {
		return 0, 0, "", fmt.Errorf("element %08x: %w", tag, err)
	}
	return tag, binary.LittleEndian.Uint32(b), kind, nil
}

// item reads the beginning of a fragment, or the end of all.
func (p *parser) item() (tag, length uint32, err error) {
	tag, length, _, err = p.element()
	if err == nil && tag != tagItem && tag != tagEnd || length == undefined {
		err = errors.Join(err, fmt.Errorf("element %08x in place of an item", tag))
	}
	return tag, length, err
}

// header reads the data set up to its pixels.
func (p *parser) header() (*header, error) {
	if err := p.skip(preamble + 4); err != nil {
		return nil, err
	}
	h := &header{slope: 1, frames: 1, samples: 1, centre: math.NaN()}
	p.explicit = true // of the file's own group
	for meta, last := true, uint32(0); ; {
		tag, length, kind, err := p.element()
		if err != nil {
			return nil, err
		}
		if meta && tag>>16 != 2 {
			// The group after the file's own is written as the syntax says; its tag is the same in
			// all that are read.
			meta = false
			switch h.syntax {
			case implicitVR:
				p.explicit = false
				if length, err = p.asImplicit(kind, length); err != nil {
					return nil, err
				}
			case explicitVR, jpegBaseline:
			default:
				return nil, syntaxError(h.syntax)
			}
		}
		if tag <= last {
			return nil, fmt.Errorf("element %08x after %08x", tag, last)
		}
		last = tag
		filled := length > 0
		switch {
		case tag == tagPixels:
			h.length = length
			return h, h.check()
		case tag > tagPixels:
			return nil, errors.New("it has no pixels")
		case length == undefined:
			explicit, before := p.explicit, p.elements
			p.explicit = explicit && kind != "UN" // whose items are of implicit VR (PS3.5 6.2.2)
			err = p.sequence(0)
			p.explicit = explicit
			filled = p.elements > before+1 // more than its end
		case tag == tagSyntax || tag == tagShape || tag>>16 == 0x0028 && tag < tagTable:
			err = p.keep(h, tag, length)
		default:
			err = p.skip(int64(length))
		}
		if err != nil {
			return nil, err
		}
		if filled && tag == tagTable {
			return nil, errors.New("its grey values go through a table of the modality " +
				"(0028,3000), which is not read")
		}
		h.table = h.table || filled && tag == tagInterest
	}
}

// asImplicit returns the length of an element of implicit VR whose beginning was read as an
// explicit one.
func (p *parser) asImplicit(kind string, length uint32) (uint32, error) {
	if kind == "" { // an item's
		return length, nil
	}
	if slices.Contains(long, kind) {
		return 0, errors.New("its first element is of explicit VR, and its transfer syntax implicit VR")
	}
	return uint32(kind[0]) | uint32(kind[1])<<8 | length<<16, nil
}

// keep reads a value of the header.
func (p *parser) keep(h *header, tag, length uint32) error {
	if length > maxText {
		return p.skip(int64(length)) // none of those that are read
	}
	value, err := p.read(int(length))
	if err != nil {
		return fmt.Errorf("element %08x: %w", tag, err)
	}
	return h.set(tag, value)
}

// sequence passes over the items of a sequence of undefined length.
func (p *parser) sequence(depth int) error {
	if depth == maxDepth {
		return fmt.Errorf("more than %d sequences in each other", maxDepth)
	}
	for {
		tag, length, _, err := p.element()
		switch {
		case err != nil:
			return err
		case tag == tagEnd || tag == tagItemEnd:
			return nil
		case length == undefined: // an item, or a sequence in one: both end with a delimiter
			err = p.sequence(depth + 1)
		default:
			err = p.skip(int64(length))
		}
		if err != nil {
			return err
		}
	}
}
