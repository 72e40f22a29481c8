package dataset

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"image/color"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/semaphore"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/onnx/sorting"
)

// Bounds on folders of images.
const (
	maxFiles = 10_000_000
	// testShare: one in testShare of a folder's images becomes a test image where there are no
	// train and test folders.
	testShare = 5
)

// imageFile is a file of a folder, with all that is found out about it. One that cannot be read
// keeps its place until leaveOut. label is the place of its class in Dataset.Classes. bytes and
// long are both 0 where the file could not be opened.
type imageFile struct {
	path  string
	label int
	key   [sha256.Size]byte // of class and file name: orders the images
	h, w  int
	grey  bool
	bytes int64  // decoded
	long  int64  // in bytes, as a file
	sum   string // SHA-256 of the file; empty where no other has its length
	err   error  // why it cannot be read
	at    int    // where its pixels are
	test  bool
}

// decodedAtOnce bounds the memory of images that are being decoded by all goroutines together,
// except for a single image that needs more: 256 MiB.
const decodedAtOnce = 256 << 20

// openFolder reads images sorted into one folder per class: train/CLASS/... and test/CLASS/..., or
// CLASS/..., of which one in five becomes a test image. The images of a class are ordered, and its
// test images chosen, by a hash of class and file name: both stay the same when files are added.
// Classes are spread evenly. Images are grey if all files are. They are resized to fit; where its
// size is 0 and theirs differ, to the median height and width, at most 256, by Catmull-Rom
// interpolation; transparent pixels show white. Where images cannot be read, the error names them
// all; with o.Skip they are left out, and a note names them. Copies of a file count once, and no
// training image is a copy of a test image. Where the pixels take more than o.Hold bytes, these
// are files without a readable header: the others are decoded later. Steps, in this order: list
// names, read headers, settle the size, decode or keep names, drop the unreadable, choose test
// images and drop copies, divide. An error at any of them returns no data set.
func openFolder(ctx context.Context, dir string, o Options) (*Dataset, error) {
	fit := o.Fit
	if fit.H < 0 || fit.W < 0 || fit.H > MaxSide || fit.W > MaxSide ||
		(fit.H == 0) != (fit.W == 0) {
		return nil, fmt.Errorf("images are to be resized to %dx%d pixels; allowed are 1 to %d a "+
			"side, or 0 for both", fit.H, fit.W, MaxSide)
	}
	f := &folder{dir: dir, data: &Dataset{}}
	if err := f.list(); err != nil {
		return nil, err
	}
	// Headers tell the size, the memory and the fault of each file before memory is taken for
	// pixels.
	if err := readHeaders(ctx, f.files); err != nil {
		return nil, err
	}
	f.size(&fit)
	var pixels *Images
	var err error
	// A folder without a readable file has some size here, and is refused by leaveOut or parts.
	if n := len(f.files); o.Hold > 0 && int64(n)*int64(fit.Size()) > o.Hold {
		pixels = &Images{N: n, H: fit.H, W: fit.W, Ch: fit.Ch,
			files: &files{dir: dir, fit: fit, room: semaphore.NewWeighted(decodedAtOnce)}}
	} else if err = checkSize(n, fit.H, fit.W, fit.Ch); err == nil {
		pixels, err = f.decode(ctx, fit, o.Progress)
	}
	if err != nil {
		return nil, err
	}
	if err := f.leaveOut(o.Skip); err != nil {
		return nil, err
	}
	// Test images are chosen of those that are left, copies apart.
	if err := f.distinct(ctx); err != nil {
		return nil, err
	}
	if err := f.parts(pixels); err != nil {
		return nil, err
	}
	return f.data, nil
}

// folder is a folder of images that is being read.
type folder struct {
	dir   string
	data  *Dataset
	split bool // it has train and test folders
	files []imageFile
}

// note adds a remark to the data set. It must name no path, as results are shared. It says the
// folder's last name alone.
func (f *folder) note(format string, args ...any) {
	f.data.Notes = append(f.data.Notes, fmt.Sprintf(format, args...))
}

// list finds the classes and the image files, in the order of spread. Files that are left out are
// named in a note.
// A folder is of parts only where it has both: either alone may be a class.
func (f *folder) list() error {
	trainDir, testDir := filepath.Join(f.dir, "train"), filepath.Join(f.dir, "test")
	f.split = isDir(trainDir) && isDir(testDir)
	root := f.dir
	if f.split {
		root = trainDir
	}
	var other imagefile.LeftOut
	if f.split {
		parts, err := imagefile.ClassFolders(f.dir, &other)
		if err != nil {
			return err
		}
		// Such folders, as validation, are not used and are named in the note.
		for _, name := range parts {
			if name != "train" && name != "test" {
				other.Add(name, "a folder beside train and test")
			}
		}
	}
	classes, err := imagefile.ClassFolders(root, &other)
	if err != nil {
		return err
	}
	// Too many folders are refused below, before any is read.
	if !f.split && len(classes) <= MaxClasses {
		if err := f.checkParts(classes); err != nil {
			return err
		}
	}
	if len(classes) < 2 || len(classes) > MaxClasses {
		return fmt.Errorf("%s has %d class folders; 2 to %d are needed", root,
			len(classes), MaxClasses)
	}
	f.data.Classes = classes
	if f.files, err = listImages(root, classes, &other); err != nil {
		return err
	}
	if f.split {
		if err := f.listTest(testDir, trainDir, &other); err != nil {
			return err
		}
	} else {
		f.note("%s has no train and test folders: one image in %d of each class is a test image, "+
			"chosen by a hash of its name", filepath.Base(f.dir), testShare)
	}
	if other.N > 0 {
		f.note("under %s %v", filepath.Base(f.dir), other)
	}
	spread(f.files)
	for i := range f.files {
		f.files[i].at = i
	}
	return nil
}

// checkParts refuses folders that are parts of a data set, by other names than train and test. All
// are called so, or one of two is and both hold at least two folders of the same names: these are
// the classes. Among three or more, a folder called train may be a class (bus, car and train, by
// day and by night). Where the names of folders do not tell, a note does.
func (f *folder) checkParts(classes []string) error {
	in := map[string]int{} // by name, the class folders that hold a folder of it
	inner := make([][]string, len(classes))
	for i, class := range classes {
		var err error
		inner[i], err = imagefile.ClassFolders(filepath.Join(f.dir, class), new(imagefile.LeftOut))
		if err != nil {
			return err
		}
		for _, name := range inner[i] {
			in[name]++
		}
	}
	parts, alike := len(classes) > 0 && !slices.ContainsFunc(classes, isClass), ""
	for i, class := range classes {
		again := slices.DeleteFunc(inner[i], func(name string) bool { return in[name] < 2 })
		if len(again) > 1 {
			parts, alike = parts || len(classes) == 2 && !isClass(class), cmp.Or(alike, class)
		}
	}
	if parts {
		return fmt.Errorf("%s has folders of parts (%s), and no train beside test: rename those "+
			"of training and test images to train and test, with a folder for each class in both; "+
			"if they are classes, give them other names", f.dir,
			strings.Join(classes[:min(len(classes), 5)], ", "))
	}
	if alike != "" {
		f.note("class %q of %s holds folders that another class holds too: if these are the "+
			"classes, name the folders of parts train and test", alike, filepath.Base(f.dir))
	}
	return nil
}

// isClass reports whether a folder's name is none that others give to a part of a data set.
func isClass(name string) bool {
	switch strings.ToLower(name) {
	case "train", "training", "test", "testing", "val", "valid", "validation":
		return false
	}
	return true
}

// listTest adds the images of the test folder, whose classes are among those of the train folder. A
// class without test images is no error. Their labels become places among the classes of the train
// folder.
func (f *folder) listTest(dir, train string, other *imagefile.LeftOut) error {
	names, err := imagefile.ClassFolders(dir, other)
	if err != nil {
		return err
	}
	for _, n := range names {
		if !slices.Contains(f.data.Classes, n) {
			return fmt.Errorf("%s has the class %q, which %s lacks", dir, n, train)
		}
	}
	files, err := listImages(dir, names, other)
	if err != nil {
		return err
	}
	for _, t := range files {
		t.label, t.test = slices.Index(f.data.Classes, names[t.label]), true
		f.files = append(f.files, t)
	}
	return nil
}

// size sets the size and channels that all images are brought to. Sizes that fit gives are kept;
// its channels are those of the files. It is settled by headers, before anything is decoded.
// Unreadable files have no part in it.
func (f *folder) size(fit *imagefile.Fit) {
	h, w, ch, same := commonSize(f.files)
	if fit.H > 0 {
		h, w = fit.H, fit.W
	} else if !same {
		f.note("images under %s differ in size and were resized to %dx%d (the median, at most %d "+
			"on the longer side)", filepath.Base(f.dir), h, w, medianSide)
	}
	fit.H, fit.W, fit.Ch = h, w, ch
}

// decode reads all images, in the order of the files; those that cannot be read get an error.
// Images that are decoded at once take decodedAtOnce bytes. Each file's pixels lie at its place in
// Pix, also where others fail. An error of its own is one of ctx alone.
func (f *folder) decode(ctx context.Context, fit imagefile.Fit,
	progress func(done, total int)) (*Images, error) {
	n := len(f.files)
	im := &Images{N: n, H: fit.H, W: fit.W, Ch: fit.Ch, Pix: make([]uint8, n*fit.Size())}
	room, step := semaphore.NewWeighted(decodedAtOnce), counter(n, progress)
	return im, each(ctx, n, func(ctx context.Context, i int) error {
		file := &f.files[i]
		// An image that needs more than all of it is decoded alone.
		// Waiting is in the order of the calls, so that a large image is not overtaken without end.
		weight := min(file.bytes, decodedAtOnce)
		if err := room.Acquire(ctx, weight); err != nil {
			return err
		}
		defer room.Release(weight)
		if file.err == nil {
			file.err = fit.DecodeFile(ctx, file.path, im.At(i))
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		step()
		return nil
	})
}

// leaveOut drops images that cannot be read, which without skip are an error. A file that the
// command is to overwrite is an error in any case. Where pixels are held it comes after decoding,
// since a sound header does not make a sound file. All faults are reported at once, for a user to
// mend them in one go.
func (f *folder) leaveOut(skip bool) error {
	var bad []error
	var names []string
	all := len(f.files)
	f.files = slices.DeleteFunc(f.files, func(file imageFile) bool {
		if file.err != nil {
			bad = append(bad, file.err)
			f.data.Bad = append(f.data.Bad, file.path)
			name, _ := filepath.Rel(f.dir, file.path) // it lies in dir
			names = append(names, filepath.ToSlash(name))
		}
		return file.err != nil
	})
	if len(bad) == 0 {
		return nil
	}
	if err := errors.Join(bad...); errors.Is(err, regularfile.ErrOutput) {
		return err
	}
	if !skip {
		return imagefile.Unread(bad)
	}
	f.note("%d of %d images under %s cannot be read and were left out: %s", len(bad), all,
		filepath.Base(f.dir), strings.Join(names, ", "))
	return nil
}

// distinct chooses the test images, and leaves out copies: files of a class and part that have the
// bytes of an earlier one, and training images that have those of a test image of whatever class. A
// method that learned of the latter would be scored on images that it has seen. Bytes are compared,
// not pixels: the same picture stored twice by a camera is no copy here. A file that two classes
// hold stays in both where both are of one part.
func (f *folder) distinct(ctx context.Context) error {
	if err := hashFiles(ctx, f.files); err != nil {
		return err
	}
	type key struct {
		sum   string
		label int
		test  bool
	}
	// tests is from a sum to the name of a test image that has it.
	first, tests := map[key]string{}, map[string]string{}
	var copies imagefile.LeftOut
	leave := func(file *imageFile, of string) bool {
		name, _ := filepath.Rel(f.dir, file.path) // it lies in dir
		copies.Add(name, "a copy of "+of)
		return true
	}
	f.files = slices.DeleteFunc(f.files, func(file imageFile) bool {
		// The first one in the order of keys stays.
		k := key{file.sum, file.label, file.test}
		if of, again := first[k]; again && k.sum != "" {
			return leave(&file, of)
		}
		first[k], _ = filepath.Rel(f.dir, file.path)
		return false
	})
	if !f.split {
		chooseTest(f.files, len(f.data.Classes))
	}
	for _, file := range f.files {
		if file.test && file.sum != "" {
			tests[file.sum], _ = filepath.Rel(f.dir, file.path)
		}
	}
	f.files = slices.DeleteFunc(f.files, func(file imageFile) bool {
		of, again := tests[file.sum]
		return again && !file.test && leave(&file, of)
	})
	if copies.N > 0 {
		f.note("under %s %v: copies of a file count once, and none is in both parts",
			filepath.Base(f.dir), copies)
	}
	return nil
}

// hashFiles computes the sums of files of which others have the length. Those of another length are
// no copies, and are not read for it.
// The time is that of reading these files once.
func hashFiles(ctx context.Context, files []imageFile) error {
	alike := map[int64]int{}
	for _, f := range files {
		alike[f.long]++
	}
	return each(ctx, len(files), func(_ context.Context, i int) (err error) {
		if f := &files[i]; alike[f.long] > 1 {
			f.sum, err = models.DigestFile(f.path, math.MaxInt64)
		}
		return err
	})
}

// parts divides the images into training and test images. It takes the memory of im over.
func (f *folder) parts(im *Images) error {
	part := func(pix []uint8, test bool) Labelled {
		p := Labelled{Images: Images{H: im.H, W: im.W, Ch: im.Ch, Pix: pix}}
		if im.Lazy() {
			p.Images = *im.with(nil)
		}
		for _, file := range f.files {
			if file.test == test {
				if im.Lazy() {
					p.files.paths = append(p.files.paths, file.path)
				} else {
					p.Pix = append(p.Pix, im.At(file.at)...)
				}
				p.Labels = append(p.Labels, file.label)
				p.N++
			}
		}
		return p
	}
	// Test images are copied out before training images move up over them. Files that are left keep
	// their order, so that no image moves to a higher place than its own.
	f.data.Test = part(nil, true)
	f.data.Train = part(im.Pix[:0], false) // where they are, moved up
	if train, test := f.data.Train.N, f.data.Test.N; train == 0 || test == 0 {
		return fmt.Errorf("%s gives %d training and %d test images, without copies; both are "+
			"needed", f.dir, train, test)
	}
	return nil
}

// listImages lists the image files in each class's folder and its subfolders ([imagefile.Walker]),
// ordered by key. Labels are places in classes. A file's key is the SHA-256 of its path below root,
// with slashes on every system. The key has no part of root, so that a copy of the folder elsewhere
// gives the same order and the same split.
func listImages(root string, classes []string, other *imagefile.LeftOut) ([]imageFile, error) {
	var out []imageFile
	w := imagefile.Walker{Dir: root, Others: other,
		Visit: func(path string, label int, bad error) error {
			if len(out) == maxFiles {
				return fmt.Errorf("more than %d images under %s", maxFiles, root)
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			out = append(out, imageFile{path: path, label: label,
				key: sha256.Sum256([]byte(filepath.ToSlash(rel))), err: bad})
			return nil
		}}
	for label, class := range classes {
		if err := w.Walk(class, label); err != nil {
			return nil, err
		}
	}
	if err := w.End(); err != nil {
		return nil, err
	}
	sorting.By(out, func(a, b imageFile) int {
		return cmp.Or(bytes.Compare(a.key[:], b.key[:]), strings.Compare(a.path, b.path))
	})
	return out, nil
}

// chooseTest makes the first images of each class, in the order of their keys, test images: one in
// testShare, at least one where the class has two. Files of a class must be in that order. The
// number is rounded down: of 9 images of a class one is for the test, of 10 two.
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

// spread orders the files so that each range of them has its share of every class: image i of the n
// files that a class has in a folder stands at (i + 1/2)/n of the whole. A range of a share s has
// s n of them, give or take one, where chance would leave a class of ten out of a fifth in one draw
// of nine. Files that are left out later, and test images chosen of them, take places too, which
// moves the others by less than one image. Images of a class stay in the order of their keys, as do
// classes at one place. It takes O(n log n) steps and a map of n paths.
func spread(files []imageFile) {
	type group struct {
		label int
		test  bool
	}
	n, at := map[group]float64{}, map[group]float64{}
	for _, f := range files {
		n[group{f.label, f.test}]++
	}
	place := make(map[string]float64, len(files)) // by path
	for _, f := range files {
		g := group{f.label, f.test}
		place[f.path] = (at[g] + 0.5) / n[g]
		at[g]++
	}
	slices.SortStableFunc(files, func(a, b imageFile) int {
		return cmp.Compare(place[a.path], place[b.path])
	})
}

// readHeaders reads the files' sizes, or the error for a file that cannot be read. Permission that
// is denied ends it, as no image is at fault. Its faults and those of the header become the file's
// own, for leaveOut to report.
func readHeaders(ctx context.Context, files []imageFile) error {
	return each(ctx, len(files), func(_ context.Context, i int) error {
		f := &files[i]
		if f.err != nil { // a link that leads out of the folder
			return nil
		}
		r, err := regularfile.Open(f.path)
		if errors.Is(err, fs.ErrPermission) { // no fault of the file
			return err
		}
		if err != nil {
			f.err = err
			return nil
		}
		defer r.Close()
		if info, err := r.Stat(); err == nil {
			f.long = info.Size()
		}
		c, err := imagefile.Header(r)
		if err != nil {
			f.err = fmt.Errorf("%s: %w", f.path, err)
			return nil
		}
		// These are bounds by the header: see [imagefile.Header].
		f.bytes = c.Memory
		f.h, f.w, f.grey = c.Height, c.Width, c.ColorModel == color.GrayModel ||
			c.ColorModel == color.Gray16Model
		return nil
	})
}

// medianSide bounds the longer side of images that are brought to the median size.
const medianSide = 256

// commonSize returns the size and channels that all readable images are brought to; 1x1 where there
// are none. Height and width have medians of their own, the upper one of an even number. Where the
// longer of the two is above medianSide, both shrink by one factor. The median is not moved by a
// few panoramas or thumbnails, as the mean would be. same is false where images are resized.
func commonSize(files []imageFile) (h, w, ch int, same bool) {
	var hs, ws []int
	ch, same = 1, true
	for _, f := range files {
		if f.err != nil {
			continue
		}
		hs, ws = append(hs, f.h), append(ws, f.w)
		if !f.grey {
			// One image of colours makes all of them colour.
			ch = 3
		}
		same = same && f.h == hs[0] && f.w == ws[0]
	}
	if len(hs) == 0 {
		return 1, 1, ch, true
	}
	// Equal sizes above MaxSide are brought down as sizes that differ are.
	if same && hs[0] <= MaxSide && ws[0] <= MaxSide {
		return hs[0], ws[0], ch, true
	}
	slices.Sort(hs)
	slices.Sort(ws)
	h, w = hs[len(hs)/2], ws[len(ws)/2]
	if longer := max(h, w); longer > medianSide {
		h, w = max(h*medianSide/longer, 1), max(w*medianSide/longer, 1)
	}
	return h, w, ch, false
}
