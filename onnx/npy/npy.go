// Package npy reads and writes tensors as NumPy's .npy files, of any rank and of every element type
// that NumPy shares with ONNX.
//
// Source of the format: NumPy Enhancement Proposal 1 and numpy.lib.format (versions 1.0 to 3.0). It
// is written here because github.com/sbinet/npyio 0.6 writes slices of one dimension and matrices
// of float64 only, reads no float16, and takes a file that ends early for zeros.
package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

const (
	magic = "\x93NUMPY"
	// maxHeader bounds the header of a file that is read; NumPy's own limit is 10,000 bytes.
	maxHeader = 1 << 16
	// maxText bounds the characters of one string of a file that is read.
	maxText = 1 << 16
)

// element types by NumPy's kind and size in bytes.
var types = map[string]onnx.DType{
	"b1": onnx.Bool, "i1": onnx.Int8, "u1": onnx.Uint8, "i2": onnx.Int16, "u2": onnx.Uint16,
	"i4": onnx.Int32, "u4": onnx.Uint32,
	"i8": onnx.Int64, "u8": onnx.Uint64, "f2": onnx.Float16, "f4": onnx.Float32, "f8": onnx.Float64,
}

// Load reads the file at path, as [Read] does.
func Load(path string) (*onnx.Tensor, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading tensor: %w; want a .npy file", err)
	}
	defer f.Close()
	t, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return t, nil
}

// Save writes t to the file at path, whole or not at all.
func Save(path string, t *onnx.Tensor) error {
	return atomicfile.Write(path, func(w io.Writer) error { return Write(w, t) })
}

// Read reads one array to its end. Elements in Fortran (column-major) order and in big-endian byte
// order are rearranged. A file that is cut short, has bytes left over, or holds elements that ONNX
// has no type for is an error. No more memory is taken than a small multiple of r's own size. Text
// is UTF-32 in the file, from which trailing NUL characters are cut, as NumPy does.
func Read(r io.Reader) (*onnx.Tensor, error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	n, err := onnx.Elements(h.shape)
	if err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	// Texts without characters take no bytes of the file and a string's header each in memory.
	if h.size == 0 && n > maxText {
		return nil, fmt.Errorf("npy: %d texts of no characters; allowed are %d", n, maxText)
	}
	want := int64(n) * int64(h.size)
	if want >= math.MaxInt {
		return nil, fmt.Errorf("npy: shape %v of %s needs %d bytes, more than this machine can address",
			h.shape, h.descr, want)
	}
	var buf bytes.Buffer
	// Memory grows with the bytes that come, and not with the size that the header claims. One byte
	// more than is wanted tells of bytes that are left over.
	got, err := io.Copy(&buf, io.LimitReader(r, want+1))
	if err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	if got < want {
		return nil,
			fmt.Errorf("npy: the file is cut short: shape %v of %s needs %d bytes and %d are there",
				h.shape, h.descr, want, got)
	}
	if got > want {
		return nil, fmt.Errorf("npy: shape %v of %s needs %d bytes and there are more",
			h.shape, h.descr, want)
	}
	t, err := onnx.Zeros(h.dtype, h.shape...)
	if err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	if err := h.decode(t, buf.Bytes()); err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	return t, nil
}

// header is the part of a file before the elements.
type header struct {
	descr   string
	dtype   onnx.DType
	size    int // bytes of one element
	order   binary.ByteOrder
	fortran bool
	shape   []int
}

// readHeader reads a length of 4 bytes in versions 2 and 3, and of 2 bytes in version 1. Version 3
// differs from 2 in that the header's text is UTF-8.
func readHeader(r io.Reader) (*header, error) {
	var start [8]byte
	if _, err := io.ReadFull(r, start[:]); err != nil || string(start[:6]) != magic {
		return nil, fmt.Errorf("npy: not a .npy file: it does not start with \\x93NUMPY and a version")
	}
	var length uint32
	switch major := start[6]; major {
	case 1:
		var n uint16
		if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
			return nil, fmt.Errorf("npy: header cut short: %w", err)
		}
		length = uint32(n)
	case 2, 3:
		if err := binary.Read(r, binary.LittleEndian, &length); err != nil {
			return nil, fmt.Errorf("npy: header cut short: %w", err)
		}
	default:
		return nil, fmt.Errorf("npy: format version %d is not known; allowed are 1, 2 and 3", major)
	}
	// The header is refused before memory is taken for it.
	if length > maxHeader {
		return nil, fmt.Errorf("npy: a header of %d bytes; allowed are %d", length, maxHeader)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, fmt.Errorf("npy: header cut short: %w", err)
	}
	h, err := parseHeader(string(text))
	if err != nil {
		return nil, fmt.Errorf("npy: header %q: %w", strings.TrimSpace(string(text)), err)
	}
	return h, nil
}

// parseHeader reads the Python dictionary literal {'descr': '<f4', 'fortran_order': False, 'shape':
// (2, 3)}. Keys may come in any order, each once; no other key and no Python expression is read.
func parseHeader(text string) (*header, error) {
	h := &header{}
	p := &parser{rest: text}
	seen := map[string]bool{}
	p.expect("{")
	for p.err == nil && !p.accept("}") {
		key := p.quoted()
		p.expect(":")
		if seen[key] {
			p.fail("the key %q stands twice", key)
		}
		seen[key] = true
		switch key {
		case "descr":
			if strings.HasPrefix(p.peek(), "[") {
				p.fail("records are not supported; save each field as an array of its own")
				break
			}
			h.descr = p.quoted()
		case "fortran_order":
			switch {
			case p.accept("True"):
				h.fortran = true
			case !p.accept("False"):
				p.fail("fortran_order is neither True nor False")
			}
		case "shape":
			h.shape = p.tuple()
		default:
			if p.err == nil {
				p.fail("the key %q is not known", key)
			}
		}
		if !p.accept(",") {
			p.expect("}")
			break
		}
	}
	if p.err == nil && p.peek() != "" {
		p.fail("%q stands after the end", p.peek())
	}
	if p.err == nil && !(seen["descr"] && seen["fortran_order"] && seen["shape"]) {
		p.fail("descr, fortran_order or shape is missing")
	}
	if p.err != nil {
		return nil, p.err
	}
	return h, h.setType()
}

// setType reads a descr such as "<f4"; a byte order of one byte says nothing, and "=" is
// little-endian.
func (h *header) setType() error {
	d := h.descr
	h.order = binary.LittleEndian
	if d != "" && strings.ContainsRune("<>|=", rune(d[0])) {
		if d[0] == '>' {
			h.order = binary.BigEndian
		}
		d = d[1:]
	}
	if t, ok := types[d]; ok {
		h.dtype, h.size = t, t.Size()
		return nil
	}
	// "U5" is text of five characters, each of four bytes.
	if n, err := strconv.Atoi(strings.TrimPrefix(d, "U")); err == nil &&
		strings.HasPrefix(d, "U") && n >= 0 && n <= maxText {
		h.dtype, h.size = onnx.String, 4*n
		return nil
	}
	return fmt.Errorf("elements of type %q have no counterpart in ONNX; allowed are bool, the "+
		"integers of 1 to 8 bytes, f2, f4, f8 and U: convert with astype first", h.descr)
}

// decode fills t from the bytes of the file. raw has as many bytes as t's elements take in the
// file. A UTF-32 character takes four.
func (h *header) decode(t *onnx.Tensor, raw []byte) error {
	raw = h.byRows(raw)
	texts, ok := t.Data.([]string)
	if !ok {
		_, err := binary.Decode(raw, h.order, t.Data)
		return err
	}
	for i := range texts {
		var s []rune
		for b := raw[i*h.size : (i+1)*h.size]; len(b) > 0; b = b[4:] {
			r := rune(h.order.Uint32(b))
			if !utf8.ValidRune(r) {
				return fmt.Errorf("element %d holds %#x, which is no character", i, uint32(r))
			}
			s = append(s, r)
		}
		texts[i] = strings.TrimRight(string(s), "\x00")
	}
	return nil
}

// byRows returns the bytes of the elements in row-major order. It takes one walk over the elements
// and as much memory again.
func (h *header) byRows(raw []byte) []byte {
	if !h.fortran || len(h.shape) < 2 || len(raw) == 0 {
		return raw
	}
	stride := make([]int, len(h.shape)) // of the row-major result
	s := 1
	for k := len(h.shape) - 1; k >= 0; k-- {
		stride[k] = s
		s *= h.shape[k]
	}
	rows := make([]byte, len(raw))
	index := make([]int, len(h.shape))
	// at is the row-major place of the element that index names.
	at := 0
	for i := range s {
		copy(rows[at*h.size:], raw[i*h.size:(i+1)*h.size])
		for k := 0; k < len(index); k++ { // the first axis runs fastest
			index[k]++
			at += stride[k]
			if index[k] < h.shape[k] {
				break
			}
			at -= stride[k] * h.shape[k]
			index[k] = 0
		}
	}
	return rows
}

// parser takes a Python literal apart. After the first error every call does nothing, so that
// callers look at err once.
type parser struct {
	rest string
	err  error
}

// fail keeps the first error.
func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// peek skips white space and returns all that is left.
func (p *parser) peek() string {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	return p.rest
}

// accept takes s if it comes next.
func (p *parser) accept(s string) bool {
	if p.err != nil || !strings.HasPrefix(p.peek(), s) {
		return false
	}
	p.rest = p.rest[len(s):]
	return true
}

// expect fails where s does not come next.
func (p *parser) expect(s string) {
	if !p.accept(s) {
		p.fail("no %q where one was expected", s)
	}
}

// quoted reads a text in either kind of quotes; escapes are refused.
func (p *parser) quoted() string {
	for _, q := range []string{"'", `"`} {
		if p.accept(q) {
			s, rest, ok := strings.Cut(p.rest, q)
			if !ok || strings.Contains(s, `\`) {
				p.fail("a text without an end")
				return ""
			}
			p.rest = rest
			return s
		}
	}
	p.fail("no text where one was expected")
	return ""
}

// tuple reads a shape; 32 axes are NumPy's own limit up to version 1.26.
func (p *parser) tuple() []int {
	shape := []int{}
	p.expect("(")
	for p.err == nil && !p.accept(")") {
		rest := p.peek()
		end := 0
		for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
			end++
		}
		v, err := strconv.Atoi(rest[:end])
		if err != nil || v > onnx.MaxElements || len(shape) == 32 {
			p.fail("shape is not a tuple of at most 32 numbers, each at most %d", onnx.MaxElements)
			return nil
		}
		shape = append(shape, v)
		p.rest = rest[end:]
		if !p.accept(",") {
			p.expect(")")
			break
		}
	}
	return shape
}

// describe returns how files name elements of a type that NumPy has, and of BFloat16; "" of others
// and of text.
func describe(t onnx.DType) string {
	if t == onnx.BFloat16 {
		return "<f4"
	}
	for d, dt := range types {
		if dt == t && t.Size() == 1 {
			return "|" + d
		} else if dt == t {
			return "<" + d
		}
	}
	return ""
}

// Holds reports whether [Write] takes tensors of a type.
func Holds(d onnx.DType) bool { return d == onnx.String || describe(d) != "" }

// Write writes t in format version 1.0, little-endian, row-major. BFloat16
// elements, which NumPy has not, are written as float32, which holds each of them exactly.
func Write(w io.Writer, t *onnx.Tensor) error {
	if err := onnx.CheckTensor(t); err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	// width is the characters of the longest text, which all texts take in the file.
	descr, width := describe(t.DType), 0
	if t.DType == onnx.String {
		for _, s := range t.Data.([]string) {
			if !utf8.ValidString(s) {
				return fmt.Errorf("npy: the text %q is not UTF-8", s)
			}
			width = max(width, utf8.RuneCountInString(s))
		}
		descr = fmt.Sprintf("<U%d", width)
	}
	if descr == "" {
		return fmt.Errorf("npy: elements of type %v cannot be written", t.DType)
	}
	if err := writeHeader(w, descr, t.Shape); err != nil {
		return err
	}
	var err error
	switch d := t.Data.(type) {
	case []string:
		buf := make([]byte, 0, 4*width)
		for _, s := range d {
			buf = buf[:0]
			for _, r := range s {
				buf = binary.LittleEndian.AppendUint32(buf, uint32(r))
			}
			// Shorter texts are filled up with NUL characters.
			buf = append(buf, make([]byte, 4*width-len(buf))...)
			if _, err = w.Write(buf); err != nil {
				break
			}
		}
	case []uint16:
		if t.DType != onnx.BFloat16 {
			err = binary.Write(w, binary.LittleEndian, d)
			break
		}
		wide := make([]uint32, len(d))
		for i, h := range d {
			// A bfloat16 is the upper half of a float32.
			wide[i] = uint32(h) << 16
		}
		err = binary.Write(w, binary.LittleEndian, wide)
	default:
		err = binary.Write(w, binary.LittleEndian, d)
	}
	if err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}

// writeHeader writes the part of a file before its elements, which start at a multiple of 64 bytes.
// The header ends in a line break, padded with spaces, as NumPy's format asks for.
func writeHeader(w io.Writer, descr string, dimensions []int) error {
	dims := make([]string, len(dimensions))
	for i, d := range dimensions {
		dims[i] = strconv.Itoa(d)
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		// Python writes a tuple of one with a comma.
		shape += ","
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	// Ten bytes are the magic, the version and the length; one is the line break.
	total := (10 + len(dict) + 1 + 63) / 64 * 64
	head := append([]byte(magic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(total-10))
	head = append(head, dict...)
	head = append(head, bytes.Repeat([]byte{' '}, total-1-len(head))...)
	head = append(head, '\n')
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}

// WriteMatrixHeader writes the header of a matrix of float32. The elements follow it: row by row,
// the least significant byte first.
func WriteMatrixHeader(w io.Writer, rows, columns int) error {
	return writeHeader(w, "<f4", []int{rows, columns})
}

// ReadMatrixHeader reads the header of a matrix of float32, as [WriteMatrixHeader] writes it, and
// returns its size. Another array is an error.
func ReadMatrixHeader(r io.Reader) (rows, columns int, err error) {
	h, err := readHeader(r)
	if err != nil {
		return 0, 0, err
	}
	if len(h.shape) != 2 || h.descr != "<f4" || h.fortran {
		return 0, 0, fmt.Errorf("npy: shape %v of %s; want a matrix of <f4 by rows",
			h.shape, h.descr)
	}
	if _, err := onnx.Elements(h.shape); err != nil {
		return 0, 0, fmt.Errorf("npy: %w", err)
	}
	return h.shape[0], h.shape[1], nil
}
