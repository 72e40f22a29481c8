package serde

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// foreignFormat names the probable format of a file that is no ONNX model, and a remedy, by the
// bytes that it begins with; "" where that is not known.
// At most 64 bytes are searched. Text may begin with a byte order mark or blanks.
func foreignFormat(data []byte) string {
	// The bound moves to the begin of a character that it cuts, of four bytes at most.
	end := min(len(data), 64)
	for end < len(data) && end > 61 && !utf8.RuneStart(data[end]) {
		end--
	}
	text := bytes.TrimLeft(data[:end], "\ufeff \t\r\n")
	switch {
	case len(data) == 0:
		return "the file is empty"
	// The signature of a local file header (PKWARE's APPNOTE.TXT, 4.3.7).
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		return "it is a zip archive, as PyTorch's and Keras' own files are; export the model with " +
			"torch.onnx.export or tf2onnx"
	// Protocol 2 of pickle, with the opcode LONG1 (0x8a) of torch.save's magic number.
	case bytes.HasPrefix(data, []byte("\x80\x02")) &&
		bytes.IndexByte(data[:min(len(data), 64)], 0x8a) >= 0:
		return "it is a Python pickle, as old PyTorch files are; export the model with torch.onnx.export"
	case bytes.HasPrefix(data, []byte("\x89HDF\r\n\x1a\n")):
		return "it is an HDF5 file, as Keras writes; export the model with tf2onnx"
	// A FlatBuffer has its file identifier behind the four bytes of the root's offset.
	case len(data) >= 8 && string(data[4:8]) == "TFL3":
		return "it is a TensorFlow Lite model; export it with tf2onnx"
	// Eight bytes of the header's length, little-endian, and then the header in JSON.
	case len(data) > 9 && binary.LittleEndian.Uint64(data) < uint64(len(data)) && data[8] == '{':
		return "it is a safetensors file, which holds weights and no graph; load it in its framework " +
			"and export the model"
	// ID1 and ID2 of RFC 1952, section 2.3.1.
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		return "it is gzipped; unpack it first"
	case bytes.HasPrefix(text, []byte("version https://git-lfs")):
		return "it is a pointer of Git LFS in place of the file; fetch that with git lfs pull"
	case bytes.HasPrefix(text, []byte("<")):
		return "it is a web page, perhaps in place of a download"
	// The last case, since pointers and pages are text as well.
	case utf8.Valid(text) &&
		bytes.IndexFunc(text, func(r rune) bool {
			return r < ' ' && r != '\n' && r != '\r' && r != '\t'
		}) < 0:
		return "it is text"
	}
	return ""
}
