// Package dataset reads labelled images: the embedded digits (see featurize/digits), MNIST and its
// kin in IDX files, CIFAR-10 and CIFAR-100 in their binary records, and folders of image files by
// class. Every reader treats its files as hostile: headers, sizes, counts and labels are checked
// against stated bounds before memory is taken for them.
package dataset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"fmp/featurize/digits"
	"fmp/featurize/imagefile"
)

// Bounds on a data set.
const (
	// MaxBytes bounds the pixels of images that are held in memory: 1 GiB.
	// Data of more are refused, or decoded when they are asked for: see [Options].Hold.
	MaxBytes = 1 << 30
	// MaxSide bounds the height and width of a stored image.
	MaxSide = 4096
	// MaxClasses bounds the number of classes.
	MaxClasses = 10_000
)

// Images holds N images of H x W pixels and Ch channels (1 grey, 3 RGB): Pix is [N, H, W, Ch],
// row-major. Files that are decoded when they are asked for ([Images.Lazy]) have no Pix.
type Images struct {
	N, H, W, Ch int
	Pix         []uint8
	files       *files
}

// At returns image i, [H, W, Ch], of images in memory. It shares memory with the set. Lazy images
// have none: call [Images.Load] first. The slice's capacity ends with the image, so that appending
// to it does not write into the next.
func (im *Images) At(i int) []uint8 {
	s := im.H * im.W * im.Ch
	return im.Pix[i*s : (i+1)*s : (i+1)*s]
}

// Select copies the images with the given indices, in that order; of files their names. An index
// may come twice. An index out of range is an error, and nothing is copied.
func (im *Images) Select(idx []int) (*Images, error) {
	for _, i := range idx {
		if i < 0 || i >= im.N {
			return nil, fmt.Errorf("image %d was asked for; the set has images 0 to %d", i, im.N-1)
		}
	}
	if im.Lazy() {
		paths := make([]string, len(idx))
		for k, i := range idx {
			paths[k] = im.files.paths[i]
		}
		return im.with(paths), nil
	}
	out := &Images{N: len(idx), H: im.H, W: im.W, Ch: im.Ch,
		Pix: make([]uint8, 0, len(idx)*im.H*im.W*im.Ch)}
	for _, i := range idx {
		out.Pix = append(out.Pix, im.At(i)...)
	}
	return out, nil
}

// Labelled is a labelled set of images.
type Labelled struct {
	Images
	Labels []int // one per image
}

// Subset copies the images with the given indices, in that order, and their labels. The labels are
// not checked against any classes.
func (p *Labelled) Subset(idx []int) (*Labelled, error) {
	im, err := p.Select(idx)
	if err != nil {
		return nil, err
	}
	out := &Labelled{Images: *im, Labels: make([]int, len(idx))}
	for k, i := range idx {
		out.Labels[k] = p.Labels[i]
	}
	return out, nil
}

// Dataset is a data set in memory.
type Dataset struct {
	Name    string
	Classes []string // names of the labels of Train and Test
	Train   Labelled
	Test    Labelled
	// Extra holds the training images of classes that were not chosen; only the training of a
	// feature extractor may use them. Its labels continue from len(Classes).
	Extra        Labelled
	ExtraClasses []string
	// Notes are remarks for a reader of the results: missing files, resized images. They name
	// folders without their path, so that results can be shared.
	Notes []string
	// Bad are the files of images that cannot be read and were left out (see Options.Skip).
	Bad []string
	// Digest is the SHA-256, in hexadecimal, of the names, sizes, pixels and labels of all parts.
	Digest string
}

// Options select a data set.
type Options struct {
	// Name is a data set of [Names], the name of a folder in the data folder, or the path of a
	// folder. Default: "digits".
	Name string
	// Dir is the data folder (setting dataset.dir); "" searches $FMP_DATA, then the user's cache.
	Dir string
	// Classes selects the classes to keep: a number keeps that many from the first; a list
	// of names, numbers and ranges ("cat,dog", "0,3,7-9") keeps those; "" or "0" keeps all.
	// Numbers are the order from 0, or the classes' names where one is called by another number.
	// The others go into Extra.
	Classes string
	// Exclude lists, in the same form, classes that are dropped: not even the training of an
	// extractor uses them.
	Exclude string
	// Test is the share, from 0 (default) to below 1, of the training images of a class without
	// test images that become its test images: the last ones.
	Test float64
	// Fit is the size that images in folders are resized to, and how; a height and width of 0 keep
	// a common size. Its channels are not used: images stay grey where all are.
	Fit imagefile.Fit
	// Skip leaves out images of a folder that cannot be read and names them in a note; without it
	// they are an error that names them.
	Skip bool
	// Hold is the number of bytes that the pixels of a folder's images may take to be held in
	// memory. Those of a larger folder are decoded when they are asked for. 0 means [MaxBytes],
	// beyond which a folder is refused.
	Hold int64
	// Seed is the seed of the drawn data sets (default 0). Ignored by those read from files.
	Seed uint64
	// Progress, if not nil, is called during long work with the number done and the total.
	Progress func(done, total int)
}

// Load reads or draws a data set. Its error wraps [ErrNotFound] where no folder holds the data set.
// Steps: read or draw, choose classes, hold out test images, check, digest. Classes are chosen
// before images are held out, so that only those that stay are divided.
func Load(ctx context.Context, o Options) (*Dataset, error) {
	o.Name = cmp.Or(o.Name, "digits")
	ds, err := load(ctx, o)
	if err == nil {
		err = ds.choose(o.Classes, o.Exclude)
	}
	if err == nil {
		err = ds.holdOut(o.Test)
	}
	if err == nil {
		err = ds.Check()
	}
	if err == nil {
		ds.Digest, err = ds.digest(ctx, o.Progress)
	}
	if err != nil {
		return nil, fmt.Errorf("data set %q: %w", o.Name, err)
	}
	return ds, nil
}

// load reads or draws a data set with all its classes.
func load(ctx context.Context, o Options) (*Dataset, error) {
	if v, ok := digits.VariantByName(o.Name); ok {
		return drawn(ctx, v, o)
	}
	dir, err := Find(o.Name, o.Dir)
	if err != nil {
		return nil, err
	}
	return open(ctx, o.Name, dir, o)
}

// open reads the data set in a folder, whatever its format. The list of checksums is checked before
// anything is decoded: see [SumsFile].
func open(ctx context.Context, name, dir string, o Options) (*Dataset, error) {
	kind, err := Detect(dir)
	if err != nil {
		return nil, err
	}
	if err := checkSums(ctx, dir); err != nil {
		return nil, err
	}
	var ds *Dataset
	switch kind {
	case KindIDX:
		ds, err = openIDX(dir)
	case KindCIFAR10:
		ds, err = openCIFAR10(dir)
	case KindCIFAR100:
		ds, err = openCIFAR100(dir)
	default:
		ds, err = openFolder(ctx, dir, o)
	}
	if err != nil {
		return nil, err
	}
	ds.Name = name
	return ds, nil
}

// drawn draws digits, or reads them from the cache of those that were drawn. Cached drawings equal
// new ones, so that the cache changes the time alone.
func drawn(ctx context.Context, v digits.Variant, o Options) (*Dataset, error) {
	set, err := digits.Cached(ctx, digits.Config{Variant: v, Seed: o.Seed, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	return FromDrawn(o.Name, set), nil
}

// FromDrawn wraps drawn digits as a data set; its Digest is left empty. It shares the pixels.
func FromDrawn(name string, set *digits.Set) *Dataset {
	part := func(p digits.Labelled) Labelled {
		labels := make([]int, len(p.Labels))
		for i, y := range p.Labels {
			labels[i] = int(y)
		}
		return Labelled{Images: Images{N: len(labels), H: set.Side, W: set.Side, Ch: set.Channels,
			Pix: p.Pix}, Labels: labels}
	}
	return &Dataset{Name: name, Classes: strings.Split("0123456789", ""), Train: part(set.Train),
		Test: part(set.Test)}
}

// Check returns an error for an inconsistent data set: parts of different image sizes, labels
// without a class, a part without images, a class without training images. It is run on every data
// set that Load returns. Training images may not be missing, and test and extra images may. It
// looks at all labels, and at no pixel.
func (ds *Dataset) Check() error {
	if len(ds.Classes) < 2 || len(ds.Classes)+len(ds.ExtraClasses) > MaxClasses {
		return fmt.Errorf("it has %d classes; allowed are 2 to %d", len(ds.Classes), MaxClasses)
	}
	for _, p := range []struct {
		name   string
		part   *Labelled
		lo, hi int
		may0   bool
	}{
		{"training", &ds.Train, 0, len(ds.Classes), false},
		{"test", &ds.Test, 0, len(ds.Classes), true},
		{"extra", &ds.Extra, len(ds.Classes), len(ds.Classes) + len(ds.ExtraClasses), true},
	} {
		im := &p.part.Images
		if im.N == 0 && p.may0 {
			continue
		}
		if im.N == 0 {
			return fmt.Errorf("it has no %s images", p.name)
		}
		// Files hold no pixels: their bytes are those that they will have.
		check, have := checkSize, len(im.Pix)
		if im.Lazy() {
			check, have = checkShape, len(im.files.paths)*im.H*im.W*im.Ch
		}
		if err := check(im.N, im.H, im.W, im.Ch); err != nil {
			return fmt.Errorf("%s images: %w", p.name, err)
		}
		if im.H != ds.Train.H || im.W != ds.Train.W || im.Ch != ds.Train.Ch {
			return fmt.Errorf("%s images are %dx%dx%d, training images %dx%dx%d; they must agree",
				p.name, im.H, im.W, im.Ch, ds.Train.H, ds.Train.W, ds.Train.Ch)
		}
		if have != im.N*im.H*im.W*im.Ch || len(p.part.Labels) != im.N {
			return fmt.Errorf("%d %s images of %dx%dx%d come with %d bytes and %d labels", im.N,
				p.name, im.H, im.W, im.Ch, have, len(p.part.Labels))
		}
		for i, y := range p.part.Labels {
			if y < p.lo || y >= p.hi {
				return fmt.Errorf("label %d of %s image %d; allowed are %d to %d", y, p.name, i,
					p.lo, p.hi-1)
			}
		}
	}
	seen := make([]bool, len(ds.Classes))
	for _, y := range ds.Train.Labels {
		seen[y] = true
	}
	for c, ok := range seen {
		if !ok {
			return fmt.Errorf("no training image has class %d (%s); choose the classes that are "+
				"there with dataset.classes", c, ds.Classes[c])
		}
	}
	return nil
}

// checkSize bounds the dimensions of a stack of images in memory; n may be 0. The comparison is a
// division, as the product of a header's numbers may overflow.
func checkSize(n, h, w, ch int) error {
	if err := checkShape(n, h, w, ch); err != nil {
		return err
	}
	if int64(n) > MaxBytes/int64(h*w*ch) {
		return fmt.Errorf("%d images of %dx%dx%d need more than %d bytes; use fewer or "+
			"smaller ones", n, h, w, ch, MaxBytes)
	}
	return nil
}

// checkShape bounds the dimensions of images.
func checkShape(n, h, w, ch int) error {
	if n < 0 || h < 1 || w < 1 || h > MaxSide || w > MaxSide || (ch != 1 && ch != 3) {
		return fmt.Errorf("%d images of %dx%d pixels and %d channels; allowed are 1 to %d pixels "+
			"a side and 1 or 3 channels", n, h, w, ch, MaxSide)
	}
	return nil
}

// digest returns the digest of the names, sizes, labels and pixels, or the files that these are
// decoded from. Lengths precede texts, so that no two lists give the same bytes. Files are read
// whole for it. Notes and the data set's name are not part of it, so that a copy under another name
// has the same. It costs a SHA-256 of all pixels or files.
func (ds *Dataset) digest(ctx context.Context, progress func(done, total int)) (string, error) {
	h := sha256.New()
	step := counter(ds.Train.N+ds.Test.N+ds.Extra.N, progress)
	for _, c := range [][]string{ds.Classes, ds.ExtraClasses} {
		hashInts(h, len(c))
		for _, s := range c {
			hashInts(h, len(s))
			io.WriteString(h, s)
		}
	}
	for _, p := range []*Labelled{&ds.Train, &ds.Test, &ds.Extra} {
		hashInts(h, p.N, p.H, p.W, p.Ch)
		h.Write(p.Pix)
		if p.Lazy() {
			if err := p.files.hash(ctx, h, step); err != nil {
				return "", err
			}
		}
		hashInts(h, p.Labels...)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashInts hashes numbers of eight bytes each, the lowest byte first. A 32-bit machine gives the
// same digest, since numbers are widened.
func hashInts(h hash.Hash, v ...int) {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	h.Write(b)
}

// isDir reports whether path is an existing folder.
func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// Range returns the images with index r.From <= i < r.To and their labels. It shares memory with
// the part. Indices out of order, or beyond the part, are an error.
func (p *Labelled) Range(r Range) (*Labelled, error) {
	if r.From < 0 || r.From > r.To || r.To > p.N {
		return nil, fmt.Errorf("images %d to %d were asked for; there are %d", r.From, r.To-1, p.N)
	}
	if p.Lazy() {
		return &Labelled{Images: *p.with(p.files.paths[r.From:r.To]),
			Labels: p.Labels[r.From:r.To]}, nil
	}
	size := p.H * p.W * p.Ch
	return &Labelled{
		Images: Images{N: r.Len(), H: p.H, W: p.W, Ch: p.Ch, Pix: p.Pix[r.From*size : r.To*size]},
		Labels: p.Labels[r.From:r.To],
	}, nil
}
