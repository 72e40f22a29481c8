package dicom

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// parser reads the elements of a data set (PS3.5 7.1) in their order. r is read once, from the
// file's beginning on. Elements are counted in all sequences, against maxElements.
type parser struct {
	r        io.Reader
	explicit bool
	elements int
	at       int64 // bytes read and passed over
}

// start is the beginning of an element; kind is empty where it is of implicit VR.
type start struct {
	tag, length uint32
	kind        string
}

// long are the value representations with a length of four bytes.
var long = []string{"OB", "OD", "OF", "OL", "OV", "OW", "SQ", "SV", "UC", "UN", "UR", "UT", "UV"}

// read returns the next n bytes; a file that ends before is io.ErrUnexpectedEOF. n is bounded by
// its callers, as memory is taken before it is read.
func (p *parser) read(n int) ([]byte, error) {
	b := make([]byte, n)
	p.at += int64(n)
	_, err := io.ReadFull(p.r, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// skip passes over n bytes unread, where the file can be moved in. Seeking beyond the end is no
// error here: the next read finds it.
func (p *parser) skip(n int64) error {
	p.at += n
	if s, ok := p.r.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekCurrent)
		return err
	}
	_, err := io.CopyN(io.Discard, p.r, n)
	return err
}

// element reads the beginning of an element. It is a tag of two numbers and, of implicit VR, a
// length of four bytes. Of explicit VR two letters follow the tag, and a length of two bytes, or of
// four behind two that are reserved. An undefined length is left to the caller.
func (p *parser) element() (e start, err error) {
	if p.elements++; p.elements > maxElements {
		return e, fmt.Errorf("more than %d elements before its pixels", maxElements)
	}
	b, err := p.read(8)
	if err != nil {
		return e, fmt.Errorf("an element of its header: %w", err)
	}
	// Group and element are two numbers of 16 bits each.
	e.tag = uint32(binary.LittleEndian.Uint16(b))<<16 | uint32(binary.LittleEndian.Uint16(b[2:]))
	// Items and delimiters have no kind in either form (PS3.5 7.5).
	if !p.explicit || e.tag>>16 == 0xfffe {
		e.length = binary.LittleEndian.Uint32(b[4:])
		return e, nil
	}
	if e.kind = string(b[4:6]); !slices.Contains(long, e.kind) {
		e.length = uint32(binary.LittleEndian.Uint16(b[6:]))
		return e, nil
	}
	if b, err = p.read(4); err != nil {
		return e, fmt.Errorf("element %08x: %w", e.tag, err)
	}
	e.length = binary.LittleEndian.Uint32(b)
	return e, nil
}

// item reads the beginning of a fragment, or the end of all. A fragment of undefined length is an
// error, since fragments have no delimiter (PS3.5 A.4).
func (p *parser) item() (tag, length uint32, err error) {
	e, err := p.element()
	if err == nil && e.tag != tagItem && e.tag != tagEnd || e.length == undefined {
		err = errors.Join(err, fmt.Errorf("element %08x in place of an item", e.tag))
	}
	return e.tag, e.length, err
}

// header reads the data set up to its pixels. Outside of sequences elements must be in the
// order of their tags, each once (PS3.5 7.1). Values outside of the groups that are read are passed
// over.
func (p *parser) header() (*header, error) {
	if err := p.skip(preamble + 4); err != nil {
		return nil, err
	}
	h := &header{slope: 1, frames: 1, samples: 1, centre: math.NaN(), padding: -1, limit: -1}
	p.explicit = true // of the file's own group
	for meta, last := true, uint32(0); ; {
		e, err := p.element()
		if err != nil {
			return nil, err
		}
		tag, length, kind := e.tag, e.length, e.kind
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
		// Order and uniqueness keep a second value from replacing one that was checked.
		if tag <= last {
			return nil, fmt.Errorf("element %08x after %08x", tag, last)
		}
		last = tag
		switch {
		case tag == tagPixels:
			h.length = length
			return h, h.check()
		case tag > tagPixels:
			return nil, errors.New("it has no pixels")
		}
		if err := p.take(h, start{tag, length, kind}, 0); err != nil {
			return nil, err
		}
	}
}

// take reads an element that is no pixels: its value is kept, or passed over. depth counts the
// sequences that it lies in. A private element is passed over like any other.
func (p *parser) take(h *header, e start, depth int) error {
	explicit, before := p.explicit, p.elements
	// filled says that there is a value, or an item in the sequence.
	filled := e.length > 0
	var err error
	switch {
	case slices.Contains(frameGroups, e.tag) || e.length == undefined:
		p.explicit = explicit && e.kind != "UN" // whose items are of implicit VR (PS3.5 6.2.2)
		if slices.Contains(frameGroups, e.tag) {
			err = p.frame(h, e.length, depth)
		} else {
			err = p.sequence(depth)
		}
		p.explicit = explicit
		filled = p.elements > before+1 // more than its end
	case e.tag == tagSyntax || e.tag == tagShape || e.tag>>16 == 0x0028 && e.tag < tagTable:
		err = p.keep(h, e.tag, e.length)
	default:
		err = p.skip(int64(e.length))
	}
	if err == nil && filled && e.tag == tagTable {
		err = errors.New("its grey values go through a table of the modality (0028,3000), " +
			"which is not read")
	}
	h.table = h.table || filled && e.tag == tagInterest
	return err
}

// frame reads the values of a sequence of functional groups, or of an item of one: the rescaling
// and the window of an enhanced image's only frame (PS3.3 C.7.6.16.2.9 and C.7.6.16.2.10). A stated
// length bounds the items. Items in items count as depth, so that recursion is bounded.
func (p *parser) frame(h *header, length uint32, depth int) error {
	return p.within(length, depth, func(e start) error {
		if e.tag == tagItem {
			return p.frame(h, e.length, depth+1)
		}
		return p.take(h, e, depth+1)
	})
}

// sequence passes over the items of a sequence of undefined length. A patient's data in them are
// not looked at.
func (p *parser) sequence(depth int) error {
	return p.within(undefined, depth, func(e start) error {
		if e.length == undefined { // an item, or a sequence in one: both end with a delimiter
			return p.sequence(depth + 1)
		}
		return p.skip(int64(e.length))
	})
}

// within passes the elements of a sequence, or of an item of one, to do, up to its length or its
// delimiter. Elements that overrun a stated length are an error.
func (p *parser) within(length uint32, depth int, do func(e start) error) error {
	if depth == maxDepth {
		return fmt.Errorf("more than %d sequences in each other", maxDepth)
	}
	// It is of use where the length is stated.
	end := p.at + int64(length)
	for length == undefined || p.at < end {
		e, err := p.element()
		if err != nil || e.tag == tagEnd || e.tag == tagItemEnd {
			return err
		}
		if err := do(e); err != nil {
			return err
		}
	}
	if p.at != end {
		return errors.New("its functional groups (5200,9229 and 5200,9230) end within an element")
	}
	return nil
}

// asImplicit returns the length of an element of implicit VR whose beginning was read as an
// explicit one. The two letters are the lower half of the length. It concerns one element, the
// first behind the file's own group.
func (p *parser) asImplicit(kind string, length uint32) (uint32, error) {
	if kind == "" { // an item's
		return length, nil
	}
	if slices.Contains(long, kind) {
		return 0, errors.New("its first element is of explicit VR, and its transfer " +
			"syntax implicit VR")
	}
	return uint32(kind[0]) | uint32(kind[1])<<8 | length<<16, nil
}

// keep reads a value of the header. A value of more than maxText bytes in this group is a table or
// a text that has no part in the pixels.
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
