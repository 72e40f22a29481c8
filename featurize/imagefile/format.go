package imagefile

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // registers the decoder
	_ "image/png" // registers the decoder
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	_ "golang.org/x/image/webp" // registers the decoder

	"fmp/featurize/imagefile/dicom"
	"fmp/featurize/imagefile/jpeg"
	"fmp/onnx/printable"
)

// DICOM files are found by package image as those of the other formats are.
func init() { image.RegisterFormat("dicom", dicom.Magic, dicom.Decode, dicom.DecodeConfig) }

// Formats names the formats of images that are read everywhere; of an animated GIF the first frame.
// [HEIFFormats] are read besides them where the machine has a decoder.
const Formats = "JPEG, PNG, WebP, GIF, TIFF, BMP or DICOM"

// decoded and undecoded are the extensions of image files, those of formats that are read and those
// of others. Files of both are images of a folder: one that cannot be read is a bad image, never a
// file that is left out unseen.
var (
	decoded = []string{".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".gif", ".tif",
		".tiff", ".bmp", ".dib", ".dcm", ".dicom", ".heic", ".heif", ".hif", ".avif"}
	undecoded = []string{".jxl", ".jp2", ".j2k", ".jxr", ".psd", ".svg", ".ico",
		".tga", ".ppm", ".pgm", ".pbm", ".pnm", ".exr", ".qoi", ".xcf",
		".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".pef", ".srw"}
)

// IsImage reports whether a file is an image by the extension of its name, of a format that is read
// or not. Nothing is opened. A file of images without such an extension is found by its first bytes
// only where it is given by name ([Open]).
func IsImage(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return slices.Contains(decoded, ext) || slices.Contains(undecoded, ext)
}

// brands are the names of the formats of ISO base media files (ISO/IEC 14496-12) by their major
// brand, and signatures those of other formats that are not read, by their first bytes.
var (
	brands = map[string]string{"heic": "HEIC", "heix": "HEIC", "heim": "HEIC", "heis": "HEIC",
		"hevc": "HEIC", "hevx": "HEIC", "mif1": "HEIF", "msf1": "HEIF", "avif": "AVIF",
		"avis": "AVIF", "crx ": "CR3"}
	signatures = []struct{ first, name string }{
		{"\x00\x00\x00\x0cJXL ", "JPEG XL"}, {"\xff\x0a", "JPEG XL"},
		{"\x00\x00\x00\x0cjP  ", "JPEG 2000"}, {"\xff\x4f\xff\x51", "JPEG 2000"},
		{"8BPS", "PSD"}, {"<svg", "SVG"}, {"<?xml", "SVG"}, {"\x00\x00\x01\x00", "ICO"},
		{"%PDF", "PDF"},
		{"qoif", "QOI"},
		{"\x76\x2f\x31\x01", "OpenEXR"}, {"II\xbc\x01", "JPEG XR"},
		{"II+\x00", "BigTIFF"}, {"MM\x00+", "BigTIFF"},
	}
)

// formatOf names the format of a file that no decoder knows; "" where its first bytes do not say.
func formatOf(head []byte) string {
	if len(head) >= 12 && string(head[4:8]) == "ftyp" {
		return brands[string(head[8:12])]
	}
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.first)) {
			return s.name
		}
	}
	return ""
}

// headBytes is the number of first bytes that tell formats apart.
const headBytes = 24

// animatedWebP reports whether a file begins as a WebP image of several frames (its VP8X chunk's
// flag A). The flags are the byte behind the chunk's size, at offset 20, and animation is bit 1.
func animatedWebP(head []byte) bool {
	return len(head) > 20 && string(head[:4]) == "RIFF" && string(head[8:16]) == "WEBPVP8X" &&
		head[20]&2 != 0
}

// unread returns the error for an image that a decoder refused, or that none knows. It wraps err
// where a decoder knew the format.
func unread(head []byte, err error) error {
	if animatedWebP(head) {
		return errors.New("an animated WebP image, which is not read: save its first " +
			"frame as JPEG or PNG")
	}
	switch {
	case errors.As(err, new(tiff.UnsupportedError)), errors.Is(err, bmp.ErrUnsupported),
		errors.As(err, new(jpeg.UnsupportedError)):
		return fmt.Errorf("an image of a kind that is not read (%w): save it as PNG", err)
	case !errors.Is(err, image.ErrFormat):
		return fmt.Errorf("not a readable image: %w", err)
	}
	switch name := formatOf(head); name {
	case "":
		return fmt.Errorf("not a readable image: its first bytes are of none of the formats that "+
			"are read (%s; %s with a program)", Formats, HEIFFormats)
	case "HEIC", "HEIF", "AVIF":
		return fmt.Errorf("a %s image, a format that is read from files by fmp and "+
			"fmp-edge alone: save it as JPEG (an iPhone does under Settings, Camera, Formats, "+
			"Most Compatible)", name)
	default:
		return fmt.Errorf("a %s image, a format that is not read: save it as JPEG or PNG", name)
	}
}

// LeftOut counts the files in a folder that are left out, and names the first of them, each with
// the reason. It grows by five names at most, so that a large folder of other files costs little.
type LeftOut struct {
	N     int      `json:"n"`
	Names []string `json:"names,omitempty"`
}

// maxNamed is the number of files that LeftOut names.
const maxNamed = 5

// Add adds a file and the reason why it is left out. It keeps the name in a form that is safe to
// print.
func (l *LeftOut) Add(name, why string) {
	l.N++
	if len(l.Names) < maxNamed {
		l.Names = append(l.Names, printable.Line(filepath.ToSlash(name))+" ("+why+")")
	}
}

// String says which files were left out, in a sentence without its end.
func (l LeftOut) String() string {
	files, more := "files were", ""
	if l.N == 1 {
		files = "file was"
	}
	if n := l.N - len(l.Names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d %s left out: %s%s", l.N, files, strings.Join(l.Names, ", "), more)
}
