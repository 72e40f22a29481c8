package main

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fmp/featurize/imagefile"
)

const (
	// maxCSV bounds a list of images: 16 MiB.
	maxCSV = 16 << 20
	// maxIDX bounds the labels of an IDX file.
	maxIDX = 1_000_000
)

// source gives labelled images one after the other.
type source interface {
	len() int
	// next writes the pixels of the next image, [h, w, ch], and returns its label.
	next(dst []uint8) (int, error)
	close() error
}

// classes maps the names that folders and lists use to labels: a class's name, or its number from 0.
type classes struct {
	names []string
	n     int
}

func (c classes) label(name string) (int, error) {
	if i := slices.Index(c.names, name); i >= 0 {
		return i, nil
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < c.n {
		return i, nil
	}
	// Names that are the numbers need not be said twice.
	known := ""
	for i, n := range c.names {
		if n != strconv.Itoa(i) {
			known = strings.Join(c.names, ", ")
			break
		}
	}
	if len(known) > 200 {
		known = known[:200] + "..."
	}
	if known != "" {
		known = " and " + known
	}
	return 0, fmt.Errorf("%q is no class of the model; it knows 0 to %d%s", name, c.n-1, known)
}

// labelled is an image file and its label.
type labelled struct {
	path  string
	label int
}

// pictures is a source of PNG and JPEG files.
type pictures struct {
	files     []labelled
	at        int
	h, w, ch  int
	maxPixels int
}

func (p *pictures) len() int     { return len(p.files) }
func (p *pictures) close() error { return nil }

func (p *pictures) next(dst []uint8) (int, error) {
	f := p.files[p.at]
	p.at++
	im, err := imagefile.DecodeFileWithin(f.path, p.maxPixels)
	if errors.Is(err, imagefile.ErrSize) {
		return 0, fmt.Errorf("%w; scale it down, or allow more with --max-pixels", err)
	}
	if err != nil {
		return 0, err
	}
	imagefile.Pixels(im, p.h, p.w, p.ch, dst)
	return f.label, nil
}

// listFolder lists the images of DIR/CLASS/..., in the order of their names. Hidden files and links are left out; so
// are files of other types, which are counted.
func listFolder(dir string, known classes) (files []labelled, others int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		label, err := known.label(e.Name())
		if err != nil {
			return nil, 0, fmt.Errorf("folder %s: %w", filepath.Join(dir, e.Name()), err)
		}
		base := filepath.Join(dir, e.Name())
		err = filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if strings.HasPrefix(e.Name(), ".") && path != base {
				if e.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
			if !e.Type().IsRegular() {
				return nil
			}
			switch strings.ToLower(filepath.Ext(path)) {
			case ".png", ".jpg", ".jpeg":
			default:
				others++
				return nil
			}
			if len(files) == maxItems {
				return fmt.Errorf("more than %d images under %s", maxItems, dir)
			}
			files = append(files, labelled{path, label})
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	if len(files) == 0 {
		left := ""
		if others > 0 {
			left = fmt.Sprintf(" (%d files there are neither .png nor .jpg nor .jpeg)", others)
		}
		return nil, 0, fmt.Errorf("%s has no PNG or JPEG images in folders named by class%s; lay them out as %s", dir, left, filepath.Join(dir, "CLASS", "image.png"))
	}
	return files, others, nil
}

// readList reads lines of path,label; a first line of just that is a title. Paths are relative to the list.
func readList(r io.Reader, dir string, known classes) ([]labelled, error) {
	b := bufio.NewReader(io.LimitReader(r, maxCSV+1))
	if mark, _ := b.Peek(3); string(mark) == "\xef\xbb\xbf" { // the byte order mark of spreadsheets
		b.Discard(len(mark))
	}
	c := csv.NewReader(b)
	c.FieldsPerRecord = 2
	c.ReuseRecord = true
	var files []labelled
	for line := 1; ; line++ {
		record, err := c.Read()
		if c.InputOffset() > maxCSV {
			return nil, fmt.Errorf("a list of more than %d bytes", maxCSV)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("want lines of path,label with a comma between the two: %w", err)
		}
		path, name := record[0], strings.TrimSpace(record[1])
		if line == 1 && strings.EqualFold(path, "path") && strings.EqualFold(name, "label") {
			continue
		}
		if path == "" || strings.ContainsRune(path, 0) {
			return nil, fmt.Errorf("record %d: the path is %q; want the path of an image", line, path)
		}
		label, err := known.label(name)
		if err != nil {
			return nil, fmt.Errorf("record %d: label %w", line, err)
		}
		if len(files) == maxItems {
			return nil, fmt.Errorf("more than %d images", maxItems)
		}
		path = filepath.FromSlash(path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		files = append(files, labelled{path, label})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no images in the list; want lines of path,label")
	}
	return files, nil
}

// idx is a source of images of one size in an IDX file, read as they are needed.
type idx struct {
	file     *os.File
	r        io.Reader
	labels   []int
	at       int
	image    picture
	buf      []uint8
	h, w, ch int // wanted
}

// openIDX opens count images (0: all that follow) after skip others, with the labels of another IDX file.
func openIDX(images, labels string, skip, count, h, w, ch int, known classes) (*idx, error) {
	var ys []byte
	err := imagefile.ReadFile(labels, func(r io.Reader, size int64) error {
		dims, err := imagefile.IDXHeader(r, 1, 1)
		if err != nil {
			return err
		}
		if dims[0] > maxIDX {
			return fmt.Errorf("the header says %d labels; at most %d are read", dims[0], maxIDX)
		}
		ys, err = imagefile.ReadExactly(r, dims[0], size)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	f, err := os.Open(images)
	if err != nil {
		return nil, err
	}
	s := &idx{file: f, h: h, w: w, ch: ch}
	if err := s.open(images, ys, skip, count, known); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", images, err)
	}
	return s, nil
}

func (s *idx) open(path string, ys []byte, skip, count int, known classes) error {
	s.r = bufio.NewReaderSize(s.file, 1<<15)
	if filepath.Ext(path) == ".gz" {
		z, err := gzip.NewReader(s.r)
		if err != nil {
			return err
		}
		s.r = z
	}
	dims, err := imagefile.IDXHeader(s.r, 3, 4)
	if err != nil {
		return err
	}
	if len(dims) == 3 {
		dims = append(dims, 1)
	}
	if dims[0] != len(ys) {
		return fmt.Errorf("it has %d images and there are %d labels; the two files do not belong together", dims[0], len(ys))
	}
	s.image = picture{h: dims[1], w: dims[2], ch: dims[3]}
	if s.image.h < 1 || s.image.w < 1 || s.image.h > 4096 || s.image.w > 4096 || (s.image.ch != 1 && s.image.ch != 3) {
		return fmt.Errorf("images of %dx%d pixels and %d channels; allowed are 1 to 4096 pixels a side and 1 or 3 channels", s.image.h, s.image.w, s.image.ch)
	}
	if skip >= len(ys) {
		return fmt.Errorf("%d images are to be skipped and there are %d", skip, len(ys))
	}
	if count == 0 {
		count = len(ys) - skip
	}
	if count > len(ys)-skip {
		return fmt.Errorf("%d images are wanted after %d, and there are %d in all", count, skip, len(ys))
	}
	if count > maxItems {
		return fmt.Errorf("%d images; allowed are %d; take fewer with --count", count, maxItems)
	}
	for i, y := range ys[skip : skip+count] {
		if int(y) >= known.n {
			return fmt.Errorf("label %d of image %d; the model knows 0 to %d", y, skip+i, known.n-1)
		}
		s.labels = append(s.labels, int(y))
	}
	s.buf = make([]uint8, s.image.h*s.image.w*s.image.ch)
	if _, err := io.CopyN(io.Discard, s.r, int64(skip)*int64(len(s.buf))); err != nil {
		return fmt.Errorf("truncated before image %d: %w", skip, err)
	}
	return nil
}

func (s *idx) len() int     { return len(s.labels) }
func (s *idx) close() error { return s.file.Close() }

func (s *idx) next(dst []uint8) (int, error) {
	if _, err := io.ReadFull(s.r, s.buf); err != nil {
		return 0, fmt.Errorf("%s: truncated at image %d of those wanted: %w", s.file.Name(), s.at, err)
	}
	y := s.labels[s.at]
	s.at++
	if s.image.h == s.h && s.image.w == s.w && s.image.ch == s.ch {
		copy(dst, s.buf)
		return y, nil
	}
	s.image.pix = s.buf
	imagefile.Pixels(&s.image, s.h, s.w, s.ch, dst)
	return y, nil
}
