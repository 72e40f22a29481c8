package imagefile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"fmp/featurize/imagefile/jpeg"
	"fmp/onnx/regularfile"
)

// heif is the formats of HEIF files (ISO/IEC 23008-12), which a decoder of the machine reads: HEVC
// in HEIC, AV1 in AVIF.
var heif = []string{"HEIC", "HEIF", "AVIF"}

// HEIFFormats names the formats that a decoder of the machine reads.
const HEIFFormats = "HEIC and AVIF"

// decoder is a program of the machine that writes a PNG of an image in a HEIF file, turned and
// mirrored as the file says (irot, imir). Of several images in a file it writes the first. Programs
// that leave pictures unturned are none (avifdec 0.11), nor are those that decode one tile of many
// (ffmpeg before 7).
type decoder struct {
	name    string
	in, out string // prefixes of the file names in its arguments
}

// decoders are tried in this order.
var decoders = []decoder{{name: "heif-dec"}, {name: "heif-convert"},
	{name: "magick", in: "heic:", out: "png:"}}

// Bounds on a decoder's run besides those on images.
const (
	decoderTime   = 2 * time.Minute
	decoderMemory = 4 << 30 // address space; Linux only
	decoderWords  = 2000    // bytes of its output that errors show
)

// ErrNoDecoder is wrapped by the error for a HEIC or AVIF where the machine has no decoder.
var ErrNoDecoder = errors.New("no program on this machine decodes it")

// HEIFDecoder returns the path of the program that decodes HEIC and AVIF, the first of those known
// that is on the PATH. The error says which package has one. The current folder is never looked in.
func HEIFDecoder() (string, error) {
	found, _ := installed()
	if len(found) == 0 {
		return "", fmt.Errorf("%w (looked for heif-dec, heif-convert and magick on the PATH): "+
			"install %s, or save it as JPEG (an iPhone does under Settings, Camera, Formats, "+
			"Most Compatible)", ErrNoDecoder, heifPackage())
	}
	return found[0], nil
}

// heifPackage names the package with a decoder for the system.
func heifPackage() string {
	switch runtime.GOOS {
	case "darwin":
		return "libheif (brew install libheif)"
	case "windows":
		return "ImageMagick (winget install ImageMagick.ImageMagick)"
	}
	return "libheif's tools (Debian, Ubuntu: apt install libheif-examples; Fedora: dnf install " +
		"libheif-tools)"
}

// installed returns the decoders on this machine, and their paths. LookPath refuses a program of
// the current folder.
func installed() (paths []string, which []decoder) {
	for _, d := range decoders {
		if p, err := exec.LookPath(d.name); err == nil {
			paths, which = append(paths, p), append(which, d)
		}
	}
	return paths, which
}

// decodeHEIF decodes the contents of a HEIF file with a program of the machine. Where several
// programs are there, each is tried until one succeeds. The errors of all are joined.
func decodeHEIF(ctx context.Context, data []byte, pixels int) (image.Image, error) {
	// The size is bounded before a program of others sees the file.
	if _, err := header(bytes.NewReader(data), pixels); err != nil {
		return nil, err
	}
	format := formatOf(data[:12])
	if _, err := HEIFDecoder(); err != nil {
		return nil, fmt.Errorf("a %s image: %w", format, err)
	}
	var failed []error
	paths, which := installed()
	for i, d := range which {
		im, err := d.run(ctx, paths[i], data, pixels)
		if err == nil {
			return im, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", paths[i], err))
	}
	return nil, fmt.Errorf("not a readable %s image: %w", format, errors.Join(failed...))
}

// run decodes data in a folder of its own: the program is given names that are ours, and reads and
// writes there alone. The program has two minutes, bounded memory where the system can bound it,
// and is killed with ctx. Its PNG is decoded under the bounds of any other.
func (d decoder) run(ctx context.Context, path string, data []byte,
	pixels int) (im image.Image, err error) {
	dir, err := os.MkdirTemp("", "fmp-image-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const in, out = "in.heic", "out.png"
	if err := os.WriteFile(filepath.Join(dir, in), data, 0o600); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, decoderTime)
	defer cancel()
	cmd := exec.CommandContext(limited, path, d.in+in, d.out+out)
	said := &words{}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, said, said, time.Second
	if err := start(cmd, uint64(longest(pixels))); err != nil {
		return nil, err
	}
	err = cmd.Wait()
	if err != nil && limited.Err() != nil {
		return nil, fmt.Errorf("killed: %w", limited.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, said)
	}
	f, err := regularfile.Open(filepath.Join(dir, out))
	if errors.Is(err, os.ErrNotExist) { // of several images each has a number
		f, err = regularfile.Open(filepath.Join(dir, "out-1.png"))
	}
	if err != nil {
		return nil, fmt.Errorf("it wrote no image%s", said)
	}
	defer f.Close()
	png, err := io.ReadAll(io.LimitReader(f, int64(longest(pixels))+1))
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(png, []byte("\x89PNG")) {
		return nil, fmt.Errorf("it wrote no PNG%s", said)
	}
	p, err := decode(ctx, png, longest(pixels), pixels, Fit{}, &jpeg.Memory{})
	if err != nil {
		return nil, fmt.Errorf("its PNG: %w", err)
	}
	// EXIF is copied from the file, where it describes the camera and not the picture
	return p.Image, nil
}

// words keeps the first bytes of a program's output.
type words struct{ b []byte }

// Write takes all bytes, so that a program which says much does not wait for its reader.
func (t *words) Write(p []byte) (int, error) {
	t.b = append(t.b, p[:min(len(p), decoderWords-len(t.b))]...)
	return len(p), nil
}

// String returns it for the end of an error, on one line and without control characters.
func (t *words) String() string {
	line := strings.Join(strings.FieldsFunc(string(t.b),
		func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if line == "" {
		return ""
	}
	return fmt.Sprintf(": %q", line)
}

// heifHeader reads the size of the largest image in a HEIF file as displayed, from its properties
// (ispe, irot), and bounds the memory of its decoding here: a PNG of 16 bits. It takes no memory
// for boxes, and walks at most maxSegments of a level, in four levels.
func heifHeader(r io.ReaderAt) (h Info) {
	h.ColorModel, h.by = color.NRGBAModel, upright
	var walk func(from, to int64, depth int)
	// quarter says that the image is turned by 90 or 270 degrees.
	quarter := false
	// A box is its length, its kind and its contents (ISO/IEC 14496-12); those of meta begin with
	// four bytes of version and flags.
	walk = func(from, to int64, depth int) {
		for range maxSegments {
			b := at(r, from, 20)
			if len(b) < 9 || from >= to {
				return
			}
			n, head := int64(binary.BigEndian.Uint32(b)), int64(8)
			switch kind := string(b[4:8]); {
			case depth < 3 && slices.Contains([]string{"meta", "iprp", "ipco"}, kind):
				if kind == "meta" {
					head = 12
				}
				walk(from+head, min(to, from+n), depth+1)
			case kind == "ispe" && len(b) == 20:
				// tiles have less of both
				h.Width = max(h.Width, int(min(binary.BigEndian.Uint32(b[12:]), 1<<30)))
				h.Height = max(h.Height, int(min(binary.BigEndian.Uint32(b[16:]), 1<<30)))
			case kind == "irot":
				quarter = quarter || b[8]&1 == 1
			}
			if n < 8 {
				return
			}
			from += n
		}
	}
	walk(0, 1<<62, 0)
	if quarter {
		h.Width, h.Height = h.Height, h.Width
	}
	h.Memory = 8 * int64(min(h.Width, 1<<28)) * int64(h.Height)
	return h
}
