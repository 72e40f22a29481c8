package dataset

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fmp/featurize/imagefile"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// idxMaxImages bounds the number that a header states, before it is multiplied by an image's size.
const idxMaxImages = 10_000_000

// idxFiles are the beginnings of the four names: images and labels of training, then those of the
// test. Images stand at even places and labels at odd ones.
var idxFiles = []string{"train-images", "train-labels", "t10k-images", "t10k-labels"}

// findIDX returns the file of the given part in dir, preferring a plain one to a gzipped one; ""
// where there is none. Names differ in the number of dimensions, and in a dot for the hyphen before
// it. A label file has 1 dimension, grey images have 3 and those with channels 4.
func findIDX(dir, part string) string {
	for _, dims := range []string{"1", "3", "4"} {
		for _, sep := range []string{"-", "."} {
			for _, ext := range []string{"", ".gz"} {
				p := filepath.Join(dir, part+sep+"idx"+dims+"-ubyte"+ext)
				if isFile(p) {
					return p
				}
			}
		}
	}
	return ""
}

// openIDX reads the four files of MNIST and its kin. Its classes are those that classes.txt names,
// or else numbers up to the largest label. Labels of the test files count too. A class that only
// they have is left to [Dataset.Check], which refuses one without training images.
func openIDX(dir string) (*Dataset, error) {
	paths := make([]string, len(idxFiles))
	for i, f := range idxFiles {
		if paths[i] = findIDX(dir, f); paths[i] == "" {
			return nil, fmt.Errorf("%w: %s has no %s-idx*-ubyte, plain or .gz; all four "+
				"files are needed", ErrNotFound, dir, f)
		}
	}
	ds := &Dataset{}
	classes := 1
	for i, p := range []*Labelled{&ds.Train, &ds.Test} {
		im, err := readAs(paths[2*i], decodeIDXImages)
		if err != nil {
			return nil, err
		}
		labels, err := readAs(paths[2*i+1], decodeIDXLabels)
		if err != nil {
			return nil, err
		}
		if im.N != len(labels) {
			return nil, fmt.Errorf("%s has %d images and %s has %d labels; the two files do not "+
				"belong together", paths[2*i], im.N, paths[2*i+1], len(labels))
		}
		*p = Labelled{Images: *im, Labels: labels}
		for _, y := range labels {
			classes = max(classes, y+1)
		}
	}
	names, note, err := classNames(filepath.Join(dir, "classes.txt"), classes)
	if err != nil {
		return nil, err
	}
	ds.Classes = names
	ds.Notes = append(ds.Notes, note...)
	return ds, nil
}

// readAs decodes a file, gzipped where its name ends in .gz.
func readAs[T any](path string,
	decode func(r io.Reader, size int64) (T, error)) (out T, err error) {
	err = imagefile.ReadFile(path, func(r io.Reader, size int64) error {
		var err error
		out, err = decode(r, size)
		return err
	})
	return out, err
}

// decodeIDXImages reads images of 3 dimensions (grey) or 4 (the last one 1 or 3 channels). The
// sizes are checked against their bounds before memory is taken for pixels. size is that of the
// file, -1 where it is gzipped: see [imagefile.ReadExactly].
func decodeIDXImages(r io.Reader, size int64) (*Images, error) {
	dims, err := imagefile.IDXHeader(r, 3, 4)
	if err != nil {
		return nil, err
	}
	if len(dims) == 3 {
		dims = append(dims, 1)
	}
	im := &Images{N: dims[0], H: dims[1], W: dims[2], Ch: dims[3]}
	if im.N > idxMaxImages {
		return nil, fmt.Errorf("the header says %d images; at most %d are read", im.N, idxMaxImages)
	}
	if err := checkSize(im.N, im.H, im.W, im.Ch); err != nil {
		return nil, fmt.Errorf("the header says %w", err)
	}
	im.Pix, err = imagefile.ReadExactly(r, im.N*im.H*im.W*im.Ch, size)
	return im, err
}

// decodeIDXLabels reads labels, a byte each. They are checked against the classes later, as the
// number of classes follows from them.
func decodeIDXLabels(r io.Reader, size int64) ([]int, error) {
	raw, err := imagefile.IDXLabels(r, size, idxMaxImages)
	if err != nil {
		return nil, err
	}
	labels := make([]int, len(raw))
	for i, y := range raw {
		labels[i] = int(y)
	}
	return labels, nil
}

// WriteIDX writes a data set as the four IDX files into dir, images with 3 dimensions (grey) or 4
// (RGB), and the names of its classes as classes.txt. Labels must be below 256. The images must be
// in memory. Each file is written whole or not at all. An error leaves the files that came before
// it.
func WriteIDX(dir string, ds *Dataset) error {
	if len(ds.Classes) > 256 {
		return fmt.Errorf("writing IDX: %d classes; labels are bytes and hold at most 256",
			len(ds.Classes))
	}
	for i, p := range []*Labelled{&ds.Train, &ds.Test} {
		shape, kind := []int{p.N, p.H, p.W}, "-idx3-ubyte"
		if p.Ch != 1 {
			shape, kind = append(shape, p.Ch), "-idx4-ubyte"
		}
		if err := writeIDX(filepath.Join(dir, idxFiles[2*i]+kind), shape, p.Pix); err != nil {
			return err
		}
		raw := make([]byte, len(p.Labels))
		for k, y := range p.Labels {
			raw[k] = byte(y)
		}
		if err := writeIDX(filepath.Join(dir, idxFiles[2*i+1]+"-idx1-ubyte"),
			[]int{p.N}, raw); err != nil {
			return err
		}
	}
	return atomicfile.WriteBytes(filepath.Join(dir, "classes.txt"),
		[]byte(strings.Join(ds.Classes, "\n")+"\n"))
}

// writeIDX writes two zero bytes, the type of the values, and the number of dimensions. Each
// dimension follows in four bytes, most significant first, then the values, the last dimension
// fastest. The caller sees to it that data has the product of shape's numbers.
func writeIDX(path string, shape []int, data []byte) error {
	head := []byte{0, 0, imagefile.IDXUbyte, byte(len(shape))}
	for _, d := range shape {
		head = binary.BigEndian.AppendUint32(head, uint32(d))
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	})
}

// classNames reads one name per line; where the file is missing or has fewer than n names, the
// classes are named by their numbers, and a note says so if the file exists. A list that is too
// short may lack any of them, so that none of its names is used.
func classNames(path string, n int) ([]string, []string, error) {
	// Names beyond the n-th stay: [Dataset.Check] refuses classes without training images.
	names, err := readLines(path, MaxClasses)
	switch {
	case err == nil && len(names) >= n:
		return names, nil, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, nil, err
	}
	var note []string
	if err == nil {
		note = []string{fmt.Sprintf(
			"%s names %d classes and the labels go up to %d: classes are called by their numbers",
			filepath.Base(path), len(names), n-1)}
	}
	names = make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names, note, nil
}

// readLines reads at most limit non-empty lines of at most 256 bytes. A class's number is its
// line's place among these.
func readLines(path string, limit int) ([]string, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	// A line of up to 512 bytes is read whole, so that its error states the limit.
	s.Buffer(make([]byte, 0, 512), 512)
	var out []string
	for s.Scan() {
		line := s.Text()
		if line == "" {
			continue
		}
		if len(line) > 256 || len(out) == limit {
			return nil, fmt.Errorf("%s: not a list of at most %d names of at most 256 bytes",
				path, limit)
		}
		out = append(out, line)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}
