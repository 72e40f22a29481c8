package dataset

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The binary version of CIFAR (https://www.cs.toronto.edu/~kriz/cifar.html): records of one label
// byte (CIFAR-10) or a coarse and a fine one (CIFAR-100), then 1,024 bytes each of red, green and
// blue, row by row.
const (
	cifarSide   = 32
	cifarPixels = 3 * cifarSide * cifarSide
)

// cifar10Classes are in the order of the labels, as batches.meta.txt lists them.
var cifar10Classes = []string{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog",
	"horse", "ship", "truck"}

// openCIFAR10 reads the training batches that are there, and the test batch. Some that are missing
// make a note, all of them an error. Batches follow one another in the order of their numbers, so
// that the order of images does not depend on the file system.
func openCIFAR10(dir string) (*Dataset, error) {
	ds := &Dataset{Classes: cifar10Classes}
	missing := ""
	for b := 1; b <= 5; b++ {
		path := filepath.Join(dir, fmt.Sprintf("data_batch_%d.bin", b))
		p, err := readCIFAR(path, 1, 10)
		if errors.Is(err, os.ErrNotExist) {
			missing += fmt.Sprintf(" %d", b)
			continue
		}
		if err != nil {
			return nil, err
		}
		if ds.Train.N == 0 {
			ds.Train = *p
			continue
		}
		ds.Train.N += p.N
		ds.Train.Pix = append(ds.Train.Pix, p.Pix...)
		ds.Train.Labels = append(ds.Train.Labels, p.Labels...)
	}
	if ds.Train.N == 0 {
		return nil, fmt.Errorf("%w: %s has none of data_batch_1.bin to data_batch_5.bin",
			ErrNotFound, dir)
	}
	if missing != "" {
		ds.Notes = append(ds.Notes, fmt.Sprintf("%s lacks batches%s: %d training images are there",
			filepath.Base(dir), missing, ds.Train.N))
	}
	test, err := readCIFAR(filepath.Join(dir, "test_batch.bin"), 1, 10)
	if err != nil {
		return nil, err
	}
	ds.Test = *test
	return ds, nil
}

// openCIFAR100 reads both parts with their fine labels. Their coarse labels, one of 20 groups, are
// passed over.
func openCIFAR100(dir string) (*Dataset, error) {
	train, err := readCIFAR(filepath.Join(dir, "train.bin"), 2, 100)
	if err != nil {
		return nil, err
	}
	test, err := readCIFAR(filepath.Join(dir, "test.bin"), 2, 100)
	if err != nil {
		return nil, err
	}
	names, notes, err := classNames(filepath.Join(dir, "fine_label_names.txt"), 100)
	if err != nil {
		return nil, err
	}
	ds := &Dataset{Classes: names[:100], Train: *train, Test: *test, Notes: notes}
	// Trailing classes without training images are dropped. Every class must have training images
	// ([Dataset.Check]), and a part of the files may have the first classes alone.
	top := 0
	for _, y := range train.Labels {
		top = max(top, y)
	}
	if top < 99 {
		for i, y := range test.Labels {
			if y > top {
				return nil, fmt.Errorf("test image %d in %s has class %d; training images have "+
					"classes up to %d", i, dir, y, top)
			}
		}
		ds.Classes = ds.Classes[:top+1]
		ds.Notes = append(ds.Notes,
			fmt.Sprintf("%s has training images of classes 0 to %d only", filepath.Base(dir), top))
	}
	return ds, nil
}

// readCIFAR reads a file of binary records with labelBytes label bytes, the last of which is the
// label and must be below classes. Pixels are returned interleaved, [n, 32, 32, 3].
func readCIFAR(path string, labelBytes, classes int) (*Labelled, error) {
	return readAs(path, func(r io.Reader, size int64) (*Labelled, error) {
		return decodeCIFAR(r, size, labelBytes, classes)
	})
}

// decodeCIFAR reads size bytes of whole records. A file whose size is not known is refused.
// Pixels take 3,072 bytes of a record, so that MaxBytes of records bound them. The size must be
// known since it alone tells the number of records: the format has no header.
func decodeCIFAR(r io.Reader, size int64, labelBytes, classes int) (*Labelled, error) {
	record := int64(labelBytes + cifarPixels)
	if size <= 0 || size%record != 0 {
		return nil, fmt.Errorf("truncated or of another format: %d bytes are not a whole number "+
			"of %d-byte records", size, record)
	}
	if size > MaxBytes {
		return nil, fmt.Errorf("%d bytes; at most %d are read", size, MaxBytes)
	}
	n := int(size / record)
	p := &Labelled{Images: Images{N: n, H: cifarSide, W: cifarSide, Ch: 3,
		Pix: make([]uint8, n*cifarPixels)}, Labels: make([]int, n)}
	buf := make([]byte, record)
	for i := range n {
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, fmt.Errorf("record %d: %w", i, err)
		}
		y := int(buf[labelBytes-1])
		if y >= classes {
			return nil, fmt.Errorf("record %d has label %d; allowed are 0 to %d", i, y, classes-1)
		}
		p.Labels[i] = y
		dst, src := p.At(i), buf[labelBytes:]
		plane := cifarSide * cifarSide
		for k := range plane {
			// Planes of red, green and blue become pixels.
			dst[3*k], dst[3*k+1], dst[3*k+2] = src[k], src[plane+k], src[2*plane+k]
		}
	}
	return p, nil
}
