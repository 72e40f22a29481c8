package imagefile

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/onnx/sorting"
)

const (
	// maxList bounds a list of images: 16 MiB.
	// A line of 160 bytes for each of 100,000 images fits.
	maxList = 16 << 20
	// maxIDX bounds the labels of an IDX file.
	maxIDX = 1_000_000
)

// Unlabelled is the label of an image that has no label, or one that the model does not know.
const Unlabelled = -1

// Item is an image of a source. Items are copied. An error of Next comes with the item that it
// concerns.
type Item struct {
	Name  string // its path, or its number in an IDX file
	Label int    // 0 to C-1, or Unlabelled
	// Digest is the sha256 of the picture's file, or of an IDX file's image: the same wherever the
	// image lies and whatever model it is read for.
	Digest [sha256.Size]byte

	bad  error // why it cannot be read, where its folder tells
	from int   // 1 + the place in [MappingOf] of the name that it came under; 0 for none
}

// Source returns images one by one. It is read from front to back by one goroutine, and once. An
// error that is no *BadImage ends the source.
type Source interface {
	Len() int // number of images
	// Next writes the pixels of the next image, brought to the source's shape. A *BadImage error
	// concerns this image only.
	Next(ctx context.Context, dst []uint8) (Item, error)
	Close() error
}

// BadImage is the error for an image that cannot be read or classified; those after it can.
type BadImage struct{ Err error }

func (e *BadImage) Error() string { return e.Err.Error() }
func (e *BadImage) Unwrap() error { return e.Err }

// Unread returns the error for bad images that were not to be left out; nil where there are none.
// It names a flag as one of commands: the library and the page have none. All of them are named, on
// a line each.
func Unread(bad []error) error {
	switch len(bad) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w; mend it, or leave it out (commands: --on-bad skip)", bad[0])
	}
	return fmt.Errorf("%d images cannot be used; mend them, or leave them out (commands: --on-bad "+
		"skip):\n%w", len(bad), errors.Join(bad...))
}

// maxFirst is the number of bad images that [First] names.
const maxFirst = 20

// First joins the errors of the first of bad images, and says how many there are besides; nil where
// there are none.
func First(bad []error) error {
	n := min(len(bad), maxFirst)
	if more := len(bad) - n; more > 0 {
		return fmt.Errorf("%w\nand %d more", errors.Join(bad[:n]...), more)
	}
	return errors.Join(bad...)
}

// MisuseError is the error for a source or options that cannot be used together. It is told from
// errors of the files, which no other options mend.
type MisuseError struct{ text string }

func (e *MisuseError) Error() string { return e.text }

// misuse makes the error of options.
func misuse(format string, args ...any) error { return &MisuseError{fmt.Sprintf(format, args...)} }

// Options say how to read a source. Options that do not go together are a *MisuseError of [Open].
type Options struct {
	Fit Fit
	// Classes are those that folders and lists may name.
	Classes Classes
	// Optional allows images without a label: a single image, files beside the folders, a list of
	// paths.
	Optional bool
	// Repeats allows a list to name an image again, of whatever class: for uses that count an image
	// once by its [Item.Digest], and that no image may keep from being made.
	Repeats bool
	// Labels is the IDX file with the labels of an IDX file's images; Skip and Count select among
	// them (Count 0: all that follow). Of a folder it is a list, .csv of path,label, of the images
	// in it that count.
	Labels      string
	Skip, Count int
	// MaxPixels bounds the pixels of an image before it is decoded (default [MaxPixels]); MaxItems
	// the number of images in a source.
	MaxPixels, MaxItems int
	// Threads is how many files [Read] decodes at once, before they are used: 0 is one a core.
	Threads int
}

// Open opens a folder of images (one folder per class), a list of them (.csv of path,label), an IDX
// file of images, or, where labels are optional, one image. An image of a format that is not read
// is a bad one; others are the files in a folder that are none. A *MisuseError says which options
// do not go together. No picture is decoded before it is asked for. A file that is none of these by
// its name or its beginning is taken for an IDX file. The caller closes src.
func Open(path string, o Options) (src Source, others LeftOut, err error) {
	o.MaxPixels = cmp.Or(o.MaxPixels, MaxPixels)
	st, err := os.Stat(path)
	if err != nil {
		return nil, others, fmt.Errorf("images: %w", err)
	}
	ext := strings.ToLower(filepath.Ext(path))
	// An image is known by its name, or by how it begins.
	picture := IsImage(path) || !st.IsDir() && startsAsImage(path)
	byList := st.IsDir() && strings.EqualFold(filepath.Ext(o.Labels), ".csv")
	if (st.IsDir() || ext == ".csv" || picture) &&
		(o.Labels != "" && !byList || o.Skip != 0 || o.Count != 0) {
		return nil, others, misuse("--labels, --skip and --count go with an IDX file, and %s is "+
			"none (--labels LIST.csv with a folder)", path)
	}
	p := &pictures{Options: o}
	switch {
	case byList:
		if p.files, p.mapped, err = openList(o.Labels, path, o); err != nil {
			return nil, others, err
		}
		if err := unlisted(path, p.files, &others); err != nil {
			return nil, others, err
		}
	case st.IsDir():
		if p.files, p.mapped, others, err = listFolder(path, o); err != nil {
			return nil, others, err
		}
	case ext == ".csv":
		if p.files, p.mapped, err = openList(path, filepath.Dir(path), o); err != nil {
			return nil, others, err
		}
	case picture && o.Optional:
		p.files = []Item{{Name: path, Label: Unlabelled}}
	case picture:
		return nil, others, misuse("%s is one image and has no label; give a folder with one "+
			"folder of images a class, or a .csv of path,label", path)
	case o.Labels == "" && !o.Optional:
		return nil, others, misuse("%s is neither a folder nor a .csv; an IDX file "+
			"wants --labels", path)
	default:
		src, err := openIDX(path, o)
		return src, others, err
	}
	return p, others, nil
}

// startsAsImage reports whether a file without the extension of an image begins like one. Its
// header alone is read. A HEIF file is known by its brand, as no decoder is registered for it.
func startsAsImage(path string) bool {
	f, err := regularfile.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var h Info
	var format string
	if h.read(f, &format) == nil {
		return true
	}
	head := at(f, 0, 16)
	return len(head) >= 12 && string(head[4:8]) == "ftyp" && formatOf(head) != ""
}

// Read passes the images of a source to do in their order, at most n at a time: their pixels, one
// after another, and their items. Images that cannot be read are left out, of the counts of
// [MappingOf] too, and returned as bad; do has then seen all others if skip is set, and perhaps
// only some of them if not. Both are used again once do has returned. Files are decoded ahead of
// their use, by [Options].Threads goroutines. It holds n images of the fit's size besides those
// that are decoded. Pixels are [n, H, W, Ch], a byte each. An error of do ends the reading and is
// returned as err. ctx is looked at before every image.
func Read(ctx context.Context, src Source, f Fit, n int, skip bool,
	do func(pixels []uint8, items []Item) error) (bad []error, err error) {
	// Files of the file system are decoded ahead; those that a function gives come one by one.
	p, ok := src.(*pictures)
	if ok && p.read == nil {
		a := p.ahead(ctx)
		defer a.stop()
		src = a
	}
	size := f.Size()
	pixels, items := make([]uint8, n*size), make([]Item, 0, n)
	flush := func() error {
		if len(items) == 0 || len(bad) > 0 && !skip {
			return nil
		}
		err := do(pixels[:len(items)*size], items)
		items = items[:0]
		return err
	}
	for range src.Len() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// The image goes behind those that wait for do.
		at := len(items)
		if len(bad) > 0 && !skip {
			at, items = 0, items[:0] // the rest is read to report every bad image
		}
		item, err := src.Next(ctx, pixels[at*size:(at+1)*size])
		var one *BadImage
		if errors.As(err, &one) {
			bad = append(bad, err)
			if ok {
				LeaveOut(p, item)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if items = append(items, item); len(items) == n {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return bad, flush()
}

// pictures is a source of image files.
type pictures struct {
	Options
	files  []Item
	mapped []Mapped
	at     int
	read   func(path string) ([]byte, error) // nil: from the file system
}

func (p *pictures) Len() int     { return len(p.files) }
func (p *pictures) Close() error { return nil }

// Next decodes one file, in memory of its own. It must not be called more than Len times.
func (p *pictures) Next(ctx context.Context, dst []uint8) (Item, error) {
	f := p.files[p.at]
	p.at++
	return p.image(ctx, f, dst, &memories{})
}

// image writes the pixels of a file. An error of the file is a *BadImage. The context's, one of the
// machine, and that of a file which the command itself is to overwrite, end the reading. m holds
// memory that images of one goroutine share. The name is checked first, as it is printed.
func (p *pictures) image(ctx context.Context, f Item, dst []uint8, m *memories) (Item, error) {
	if f.bad != nil {
		return f, &BadImage{f.bad}
	}
	if !printable.Is(f.Name) {
		why := "has control characters"
		if !utf8.ValidString(f.Name) {
			why = "is not UTF-8"
		}
		return f, &BadImage{fmt.Errorf("%q: its name %s; rename it", f.Name, why)}
	}
	var err error
	if p.read == nil {
		f.Digest, err = p.Fit.decodeFile(ctx, f.Name, p.MaxPixels, dst, m)
	} else {
		var data []byte
		if data, err = p.read(f.Name); err != nil {
			err = fmt.Errorf("%s: %w", f.Name, err)
		} else {
			f.Digest, err = p.Fit.decodeBytes(ctx, f.Name, data, p.MaxPixels, dst, &m.samples)
		}
	}
	if errors.Is(err, ErrSize) {
		err = fmt.Errorf("%w; scale it down (commands: or allow more with --max-pixels)", err)
	}
	if err != nil && ctx.Err() != nil {
		return f, ctx.Err()
	}
	if errors.Is(err, regularfile.ErrOutput) || regularfile.OfMachine(err) {
		return f, err // not for --on-bad to leave out
	}
	if err != nil {
		return f, &BadImage{err}
	}
	return f, nil
}

// OpenFiles is [Open] for a folder whose files lie elsewhere than in the file system: their paths
// in it, CLASS/.../NAME with slashes, and a function that returns the contents of one. The images
// come in the order in which Open gives them. read may be called while the images are read, from
// the goroutine that reads them. Its errors make bad images. Paths are not checked against any
// folder, as nothing is opened by them.
func OpenFiles(paths []string, read func(path string) ([]byte, error),
	o Options) (src Source, others LeftOut, err error) {
	o.MaxPixels = cmp.Or(o.MaxPixels, MaxPixels)
	var parts [][]string
	for _, p := range paths {
		parts = append(parts, strings.Split(p, "/"))
	}
	// They are in order by folder and name, as a walk of a file system gives them.
	sorting.By(parts, slices.Compare)
	for i := 1; i < len(parts); i++ {
		// One of the two would be read twice, and the other never.
		if slices.Equal(parts[i-1], parts[i]) {
			return nil, others, fmt.Errorf("%s is there twice; give each file a path of its own",
				printable.Line(strings.Join(parts[i], "/")))
		}
	}
	// As Open names them: hidden files of the folder itself, then loose ones, then those of
	// classes.
	l := newLister(".", o)
	for _, p := range parts {
		if name := p[0]; len(p) == 1 && strings.HasPrefix(name, ".") && IsImage(name) {
			l.others.Add(name, hidden)
		}
	}
	for _, p := range parts {
		if name := p[0]; len(p) == 1 && !strings.HasPrefix(name, ".") && !o.Optional {
			l.others.Add(name, looseReason(name))
		}
	}
	for _, p := range parts {
		path, last := strings.Join(p, "/"), len(p)-1
		switch {
		case last == 0 && (!o.Optional || strings.HasPrefix(path, ".")), slices.ContainsFunc(
			p[:last], func(name string) bool { return strings.HasPrefix(name, ".") }):
			continue
		case strings.HasPrefix(p[last], "."):
			if IsImage(path) {
				l.others.Add(path, hidden)
			}
			continue
		}
		label, folder := Unlabelled, ""
		if len(p) > 1 {
			folder = p[0]
			if label, err = l.class(folder); err != nil {
				return nil, others, err
			}
		}
		if !IsImage(path) {
			l.others.Add(path, noImage)
		} else if err := l.add(folder, path, label, nil); err != nil {
			return nil, others, err
		}
	}
	return &pictures{Options: o, files: l.files, mapped: l.list, read: read}, l.others, l.end()
}

// Items returns the images of a source of files, in their order; nil for other sources. The slice
// is the source's own.
func Items(s Source) []Item {
	if p, ok := s.(*pictures); ok {
		return p.files
	}
	return nil
}

// openList reads a list of images whose paths are relative to a folder. The list itself may lie
// elsewhere. A relative path of the list may lead anywhere: it is the user's own word.
func openList(path, dir string, o Options) ([]Item, []Mapped, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	files, mapped, err := readList(f, dir, o)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return files, mapped, nil
}

// unlisted names the images in a folder that its list does not hold, those that a link alone has
// among them. Labels play no part: all are of one class. Links to folders outside are passed over,
// as the list may name images in them.
func unlisted(dir string, files []Item, others *LeftOut) error {
	listed := map[string]bool{}
	for _, f := range files {
		listed[filepath.Clean(f.Name)] = true
	}
	folders, loose, err := entries(dir, others)
	if err != nil {
		return err
	}
	w := Walker{Dir: dir, Others: &LeftOut{}, Visit: func(path string, _ int, _ error) error {
		// Names are compared as they are spelt, so that a link and its file differ.
		if rel, err := filepath.Rel(dir, path); err == nil && IsImage(path) &&
			!listed[filepath.Clean(path)] {
			others.Add(rel, "not in the list")
		}
		return nil
	}}
	for _, name := range append(folders, loose...) {
		if err := w.Walk(name, 0); err != nil {
			return err
		}
	}
	return w.End()
}

// listText returns the text of a list, behind the byte order mark of spreadsheets.
func listText(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if mark, _ := b.Peek(3); string(mark) == "\xef\xbb\xbf" {
		b.Discard(len(mark))
	}
	if mark, _ := b.Peek(2); string(mark) == "\xff\xfe" || string(mark) == "\xfe\xff" {
		return nil, errors.New("the list is in UTF-16; save it as UTF-8 (spreadsheets: CSV UTF-8)")
	}
	return io.LimitReader(b, maxList+1), nil
}

// readList reads lines of path,label, or of path alone where labels are optional; a first line of
// just these words is a header. Paths are relative to the list's folder. A list with any wrong line
// is refused whole.
func readList(r io.Reader, dir string, o Options) ([]Item, []Mapped, error) {
	b, err := listText(r)
	if err != nil {
		return nil, nil, err
	}
	c := csv.NewReader(b)
	// A line without a label is an error, unless labels are optional.
	c.FieldsPerRecord = 2
	if o.Optional {
		c.FieldsPerRecord = 0 // as many as the first line has
	}
	// The reader's slice is used again: strings in it are copies and may be kept.
	c.ReuseRecord = true
	var files []Item
	names, labels := mapping{classes: o.Classes}, map[string]int{}
	for line := 1; ; line++ {
		record, err := c.Read()
		// The reader was given a byte more than the bound, so that a longer list is told from one
		// that ends there.
		if c.InputOffset() > maxList {
			return nil, nil, fmt.Errorf("a list of more than %d bytes", maxList)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || len(record) > 2 {
			if err == nil {
				err = fmt.Errorf("record %d has %d fields", line, len(record))
			}
			return nil, nil, fmt.Errorf("want lines of path,label with a comma "+
				"between the two: %w", err)
		}
		path, name := record[0], ""
		if len(record) == 2 {
			name = strings.TrimSpace(record[1])
		}
		if line == 1 && strings.EqualFold(path, "path") &&
			(len(record) == 1 || strings.EqualFold(name, "label")) {
			continue
		}
		// A system takes a name up to its first NUL.
		if path == "" || strings.ContainsRune(path, 0) {
			return nil, nil, fmt.Errorf("record %d: the path is %q; want the "+
				"path of an image", line, path)
		}
		label := Unlabelled
		if name != "" || !o.Optional {
			if label, err = names.class(name); err != nil {
				return nil, nil, fmt.Errorf("record %d: label %w", line, err)
			}
		}
		if len(files) == o.MaxItems {
			return nil, nil, fmt.Errorf("more than %d images", o.MaxItems)
		}
		path = filepath.Clean(filepath.FromSlash(path))
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		file, err := ownName(path)
		if err != nil {
			return nil, nil, err
		}
		if before, again := labels[file]; again {
			if err := o.twice(before, label); err != nil {
				return nil, nil, fmt.Errorf("record %d: %s %w; leave one of the two out",
					line, path, err)
			}
		}
		labels[file] = label
		files = append(files, Item{Name: path, Label: label, from: names.count(name)})
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("no images in the list; want lines of path,label")
	}
	return files, names.list, nil
}

// ownName returns the one name of a file to which links may lead; that of a file that is not there
// is its path. An error is the machine's. Two names of one file by hard links count as two.
func ownName(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	switch {
	case regularfile.OfMachine(err):
		return "", err
	case err != nil:
		return path, nil
	}
	return real, nil
}

// twice returns an error for an image that a list names twice with these labels. Without a label
// twice, an image is classified twice.
func (o *Options) twice(before, label int) error {
	switch {
	case o.Repeats:
		return nil
	case before != label:
		return errors.New("has another label above, perhaps by a link: an image is of one class")
	case label != Unlabelled:
		return errors.New("is in the list above, perhaps by a link: an image counts once")
	}
	return nil
}

// idx is a source of images of one size in an IDX file, read as they are needed. Labels are read at
// once: they are a byte each, and at most [maxIDX]. It serves one goroutine, from front to back: a
// gzipped file cannot be moved in.
type idx struct {
	Options
	file    *os.File
	r       io.Reader
	labels  []byte // nil where there are none
	left    []int  // labels of [LeaveOut]
	n, at   int
	size    int64 // bytes, -1 where it is gzipped
	last    bool  // the n-th is the last of the file
	h, w, c int
	buf     []uint8
}

// openIDX opens an IDX file of images, with its labels where the options name a file of them. The
// caller closes it.
func openIDX(images string, o Options) (*idx, error) {
	s := &idx{Options: o}
	if o.Labels != "" {
		err := ReadFile(o.Labels, func(r io.Reader, size int64) (err error) {
			s.labels, err = IDXLabels(r, size, maxIDX)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("labels: %w", err)
		}
	}
	f, err := regularfile.Open(images)
	if err != nil {
		return nil, err
	}
	s.file = f
	if err := s.open(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", images, err)
	}
	return s, nil
}

// open reads the header, checks all sizes against their bounds, and passes over the images that are
// skipped. Of a gzipped file it decompresses these. Bounds are checked in the order of the header,
// so that no product overflows.
func (s *idx) open() error {
	var err error
	if s.r, s.size, err = contents(s.file); err != nil {
		return err
	}
	dims, err := IDXHeader(s.r, 3, 4)
	if err != nil {
		return err
	}
	if len(dims) == 3 {
		dims = append(dims, 1)
	}
	all := dims[0]
	if s.Labels != "" && all != len(s.labels) {
		return fmt.Errorf("it has %d images and there are %d labels; the two files do not "+
			"belong together", all, len(s.labels))
	}
	s.h, s.w, s.c = dims[1], dims[2], dims[3]
	if s.h < 1 || s.w < 1 || s.h > 4096 || s.w > 4096 || (s.c != 1 && s.c != 3) {
		return fmt.Errorf("images of %dx%d pixels and %d channels; allowed are 1 to 4096 pixels "+
			"a side and 1 or 3 channels", s.h, s.w, s.c)
	}
	if s.Skip >= all {
		return fmt.Errorf("%d images are to be skipped and there are %d", s.Skip, all)
	}
	if s.n = s.Count; s.n == 0 {
		s.n = all - s.Skip
	}
	if s.n > all-s.Skip {
		return fmt.Errorf("%d images are wanted after %d, and there are %d in all", s.n,
			s.Skip, all)
	}
	if s.n > s.MaxItems {
		return fmt.Errorf("%d images; allowed are %d; take fewer with --count", s.n, s.MaxItems)
	}
	if s.labels != nil {
		s.labels = s.labels[s.Skip : s.Skip+s.n]
	}
	for i, y := range s.labels {
		if int(y) >= s.Classes.N {
			return fmt.Errorf("label %d of image %d; the model knows 0 to %d", y, s.Skip+i,
				s.Classes.N-1)
		}
		if err := s.Classes.unclear(int(y)); err != nil {
			return fmt.Errorf("label %d of image %d: %w", y, s.Skip+i, err)
		}
	}
	if want := int64(all) * int64(s.h) * int64(s.w) * int64(s.c); s.size >= 0 && s.size < want {
		return fmt.Errorf("truncated: its header promises %d bytes of images and "+
			"the file has %d", want, s.size)
	}
	// Only behind the last image of the file is its end to be found.
	s.last = s.Skip+s.n == all
	s.buf = make([]uint8, s.h*s.w*s.c)
	if _, err := io.CopyN(io.Discard, s.r, int64(s.Skip)*int64(len(s.buf))); err != nil {
		return fmt.Errorf("truncated before image %d: %w", s.Skip, err)
	}
	return nil
}

func (s *idx) Len() int     { return s.n }
func (s *idx) Close() error { return s.file.Close() }

// Next reads one image. That something follows the last of the file is told with it, as a gzipped
// file tells no sooner. Its errors end the reading: the images behind have no sure place.
func (s *idx) Next(_ context.Context, dst []uint8) (Item, error) {
	item := Item{Name: fmt.Sprintf("%s#%d", s.file.Name(), s.Skip+s.at), Label: Unlabelled}
	if _, err := io.ReadFull(s.r, s.buf); err != nil {
		return item, fmt.Errorf("%s: truncated at image %d of those wanted: %w",
			s.file.Name(), s.at, err)
	}
	if s.labels != nil {
		item.Label = int(s.labels[s.at])
	}
	item.Digest = sha256.Sum256(s.buf)
	s.at++
	if s.at == s.n && s.last {
		if err := atEnd(s.r); err != nil {
			return item, fmt.Errorf("%s: after the %d images that its header promises %w",
				s.file.Name(), s.Skip+s.n, err)
		}
	}
	s.Fit.Pixels(Raw(s.buf, s.h, s.w, s.c), dst)
	return item, nil
}
