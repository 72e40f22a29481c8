package dataset

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"image/color"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"fmp/featurize/imagefile"
	"fmp/onnx/regularfile"
)

// Bounds on folders of images.
const (
	// MaxImageFile bounds an image file: 256 MiB.
	MaxImageFile = imagefile.MaxBytes
	// MaxImagePixels bounds the pixels of an image before it is decoded: 100 million.
	MaxImagePixels = imagefile.MaxPixels
	// MaxImageSide bounds the height and width of an image before it is decoded.
	MaxImageSide = imagefile.MaxSide
	maxFiles     = 1_000_000
	// testShare: one in testShare of a folder's images becomes a test image where there are no train and test folders.
	testShare = 5
)

type imageFile struct {
	path  string
	label int
	key   [sha256.Size]byte // of class and file name: orders the images
	h, w  int
	grey  bool
	bytes int64 // decoded
	err   error // why it cannot be read
	at    int   // where its pixels are
	test  bool
}

// decodedAtOnce bounds the memory of images that are being decoded by all goroutines together, except for a single image
// that needs more: 256 MiB.
const decodedAtOnce = 256 << 20

// openFolder reads images sorted into one folder per class: train/CLASS/... and test/CLASS/..., or CLASS/..., of which one
// in five becomes a test image. Images are ordered, and the test images chosen, by a hash of class and file name, so that
// both stay the same when files are added. Images are grey if all files are. They are resized to fit; where its size is 0
// and theirs differ, to the median height and width, at most 256, by Catmull-Rom interpolation; transparent pixels show
// white. Where images cannot be read, the error names them all; with skip they are left out, and a note names them.
func openFolder(ctx context.Context, dir string, fit imagefile.Fit, skip bool, progress func(done, total int)) (*Dataset, error) {
	if fit.H < 0 || fit.W < 0 || fit.H > MaxSide || fit.W > MaxSide || (fit.H == 0) != (fit.W == 0) {
		return nil, fmt.Errorf("images are to be resized to %dx%d pixels; allowed are 1 to %d a side, or 0 for both", fit.H, fit.W, MaxSide)
	}
	ds := &Dataset{}
	trainDir, testDir := filepath.Join(dir, "train"), filepath.Join(dir, "test")
	split := isDir(trainDir) && isDir(testDir)
	root := dir
	if split {
		root = trainDir
	}
	classes, err := subfolders(root)
	if err != nil {
		return nil, err
	}
	if len(classes) < 2 || len(classes) > MaxClasses {
		return nil, fmt.Errorf("%s has %d class folders; 2 to %d are needed", root, len(classes), MaxClasses)
	}
	ds.Classes = classes
	var other imagefile.LeftOut
	train, err := listImages(root, classes, &other)
	if err != nil {
		return nil, err
	}
	var test []imageFile
	if split {
		names, err := subfolders(testDir)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			if !slices.Contains(classes, n) {
				return nil, fmt.Errorf("%s has the class %q, which %s lacks", testDir, n, trainDir)
			}
		}
		if test, err = listImages(testDir, names, &other); err != nil {
			return nil, err
		}
		for i := range test {
			test[i].label = slices.Index(classes, names[test[i].label])
		}
	} else {
		ds.Notes = append(ds.Notes, fmt.Sprintf("%s has no train and test folders: one image in %d of each class is a test image, chosen by a hash of its name", filepath.Base(dir), testShare))
	}
	if other.N > 0 {
		ds.Notes = append(ds.Notes, fmt.Sprintf("under %s %v", filepath.Base(dir), other))
	}
	all := slices.Concat(train, test)
	for i := range all {
		all[i].at, all[i].test = i, i >= len(train)
	}
	if err := readHeaders(ctx, all); err != nil {
		return nil, err
	}
	h, w, ch, same := commonSize(all)
	if fit.H > 0 {
		h, w = fit.H, fit.W
	} else if !same {
		ds.Notes = append(ds.Notes, fmt.Sprintf("images under %s differ in size and were resized to the median, %dx%d", filepath.Base(dir), h, w))
	}
	if err := checkSize(len(all), h, w, ch); err != nil {
		return nil, err
	}
	im := Images{N: len(all), H: h, W: w, Ch: ch, Pix: make([]uint8, len(all)*h*w*ch)}
	fit.H, fit.W, fit.Ch = h, w, ch
	var done atomic.Int64
	room := semaphore.NewWeighted(decodedAtOnce)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range all {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			weight := min(f.bytes, decodedAtOnce)
			if err := room.Acquire(ctx, weight); err != nil {
				return err
			}
			defer room.Release(weight)
			if f.err == nil {
				var src image.Image
				if src, all[i].err = DecodeFile(f.path); all[i].err == nil {
					fit.Pixels(src, im.At(i))
				}
			}
			if k := int(done.Add(1)); progress != nil && (k%64 == 0 || k == len(all)) {
				progress(k, len(all))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var bad []error
	var names []string
	for _, f := range all {
		if f.err != nil {
			bad = append(bad, f.err)
			ds.Bad = append(ds.Bad, f.path)
			name, _ := filepath.Rel(dir, f.path) // it lies in dir
			names = append(names, filepath.ToSlash(name))
		}
	}
	if len(bad) > 0 && !skip {
		return nil, fmt.Errorf("%d of %d images cannot be read; mend them, or leave them out with --on-bad skip:\n%w", len(bad), len(all), errors.Join(bad...))
	}
	if len(bad) > 0 {
		ds.Notes = append(ds.Notes, fmt.Sprintf("%d of %d images under %s cannot be read and were left out: %s", len(bad), len(all), filepath.Base(dir), strings.Join(names, ", ")))
	}
	all = slices.DeleteFunc(all, func(f imageFile) bool { return f.err != nil })
	if !split {
		chooseTest(all, len(classes))
	}
	part := func(pix []uint8, test bool) Part {
		p := Part{Images: Images{H: h, W: w, Ch: ch, Pix: pix}}
		for _, f := range all {
			if f.test == test {
				p.Pix = append(p.Pix, im.At(f.at)...)
				p.Labels = append(p.Labels, f.label)
				p.N++
			}
		}
		return p
	}
	ds.Test = part(nil, true)
	ds.Train = part(im.Pix[:0], false) // where they are, moved up
	if ds.Train.N == 0 || ds.Test.N == 0 {
		return nil, fmt.Errorf("%s gives %d training and %d test images; both are needed", dir, ds.Train.N, ds.Test.N)
	}
	return ds, nil
}

func subfolders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries { // ReadDir sorts by name
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// listImages lists the image files in each class's folder and its subfolders, ordered by key. Links are
// not followed; files that are no images are named.
func listImages(root string, classes []string, other *imagefile.LeftOut) ([]imageFile, error) {
	var out []imageFile
	for label, class := range classes {
		base := filepath.Join(root, class)
		err := filepath.WalkDir(base, func(path string, e os.DirEntry, err error) error {
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
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if !imagefile.IsImage(path) {
				other.Add(rel)
				return nil
			}
			if len(out) == maxFiles {
				return fmt.Errorf("more than %d images under %s", maxFiles, root)
			}
			out = append(out, imageFile{path: path, label: label, key: sha256.Sum256([]byte(filepath.ToSlash(rel)))})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b imageFile) int {
		return cmp.Or(bytes.Compare(a.key[:], b.key[:]), strings.Compare(a.path, b.path))
	})
	return out, nil
}

// chooseTest makes the first images of each class, in the order of their keys, test images: one in testShare, at
// least one where the class has two.
func chooseTest(files []imageFile, classes int) {
	want := make([]int, classes)
	for _, f := range files {
		want[f.label]++
	}
	for c, n := range want {
		want[c] = n / testShare
		if n > 1 {
			want[c] = max(want[c], 1)
		}
	}
	for i := range files {
		f := &files[i]
		f.test = want[f.label] > 0
		want[f.label]--
	}
}

// readHeaders reads the files' sizes, or the error for a file that cannot be read.
func readHeaders(ctx context.Context, files []imageFile) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range files {
		f := &files[i]
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			r, err := regularfile.Open(f.path)
			if err != nil {
				f.err = err
				return nil
			}
			defer r.Close()
			c, err := imagefile.Header(r)
			if err != nil {
				f.err = fmt.Errorf("%s: %w", f.path, err)
				return nil
			}
			f.bytes = c.Memory
			f.h, f.w, f.grey = c.Height, c.Width, c.ColorModel == color.GrayModel || c.ColorModel == color.Gray16Model
			return nil
		})
	}
	return g.Wait()
}

// DecodeFile reads an image after checking its size.
func DecodeFile(path string) (image.Image, error) { return imagefile.DecodeFile(path) }

// Decode decodes an image after checking its size.
func Decode(data []byte) (image.Image, error) { return imagefile.Decode(data) }

// commonSize returns the size and channels that all readable images are brought to; 1x1 where there are none.
func commonSize(files []imageFile) (h, w, ch int, same bool) {
	var hs, ws []int
	ch, same = 1, true
	for _, f := range files {
		if f.err != nil {
			continue
		}
		hs, ws = append(hs, f.h), append(ws, f.w)
		if !f.grey {
			ch = 3
		}
		same = same && f.h == hs[0] && f.w == ws[0]
	}
	if len(hs) == 0 {
		return 1, 1, ch, true
	}
	if same && hs[0] <= MaxSide && ws[0] <= MaxSide {
		return hs[0], ws[0], ch, true
	}
	slices.Sort(hs)
	slices.Sort(ws)
	return min(hs[len(hs)/2], 256), min(ws[len(ws)/2], 256), ch, false
}
