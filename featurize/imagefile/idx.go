package imagefile

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"fmp/onnx/regularfile"
)

// IDXUbyte is the only element type that is supported: unsigned bytes.
//
// The IDX format (http://yann.lecun.com/exdb/mnist/): two zero bytes, the element type (8: unsigned
// byte), the number of dimensions, each dimension as a big-endian uint32, then the elements.
const IDXUbyte = 0x08

// ReadFile calls decode with the contents of a regular file, decompressed where its name ends in
// .gz, and their size, -1 where it is gzipped.
func ReadFile(path string, decode func(r io.Reader, size int64) error) error {
	f, err := regularfile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, size, err := contents(f)
	if err == nil {
		err = decode(r, size)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// contents returns a file's contents and their size, decompressed and -1 where its name ends in
// .gz.
func contents(f *os.File) (io.Reader, int64, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	r := bufio.NewReaderSize(f, 1<<16)
	if filepath.Ext(f.Name()) == ".gz" {
		z, err := gzip.NewReader(r)
		return z, -1, err
	}
	return r, st.Size(), nil
}

// IDXHeader reads the dimensions of an IDX file of unsigned bytes; their number must be minDims to
// maxDims.
func IDXHeader(r io.Reader, minDims, maxDims int) ([]int, error) {
	var magic [4]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return nil, fmt.Errorf("truncated: no IDX header: %w", err)
	}
	n := int(magic[3])
	if magic[0] != 0 || magic[1] != 0 || magic[2] != IDXUbyte || n < minDims || n > maxDims {
		return nil, fmt.Errorf("wrong magic number 0x%08x; an IDX file of unsigned bytes with "+
			"%d to %d dimensions begins with 0x%08x", binary.BigEndian.Uint32(magic[:]), minDims,
			maxDims, IDXUbyte<<8|minDims)
	}
	dims := make([]int, n)
	for i := range dims {
		var b [4]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return nil, fmt.Errorf("truncated: the header names %d dimensions: %w", n, err)
		}
		// No caller accepts a dimension of such a size, and on a 32-bit machine it would be
		// negative.
		dims[i] = int(min(binary.BigEndian.Uint32(b[:]), 1<<31-1))
	}
	return dims, nil
}

// IDXLabels reads the labels of an IDX file, at most as many as limit.
func IDXLabels(r io.Reader, size int64, limit int) ([]byte, error) {
	dims, err := IDXHeader(r, 1, 1)
	if err != nil {
		return nil, err
	}
	if dims[0] > limit {
		return nil, fmt.Errorf("the header says %d labels; at most %d are read", dims[0], limit)
	}
	return ReadExactly(r, dims[0], size)
}

// ReadExactly reads n bytes and returns an error if more follow. Where the size of the source is
// not known (-1), memory grows with the data that are there, not with the header's numbers.
func ReadExactly(r io.Reader, n int, size int64) ([]byte, error) {
	var data []byte
	if size >= int64(n) {
		data = make([]byte, n)
		if k, err := io.ReadFull(r, data); err != nil {
			return nil, fmt.Errorf("truncated: %d bytes of data are promised and %d are there: %w",
				n, k, err)
		}
	} else {
		var err error
		if data, err = io.ReadAll(io.LimitReader(r, int64(n))); err != nil {
			return nil, fmt.Errorf("%d bytes of data are promised; after %d: %w", n, len(data), err)
		}
		if len(data) < n {
			return nil, fmt.Errorf("truncated: %d bytes of data are promised and %d are there",
				n, len(data))
		}
	}
	if err := atEnd(r); err != nil {
		return nil, fmt.Errorf("after the %d bytes of data that its header promises %w", n, err)
	}
	return data, nil
}

// atEnd returns an error if anything follows, without reading all of it. Where r decompresses, the
// checksum is verified.
func atEnd(r io.Reader) error {
	var more [1]byte
	switch _, err := io.ReadFull(r, more[:]); {
	case err == nil:
		return errors.New("the file goes on")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
