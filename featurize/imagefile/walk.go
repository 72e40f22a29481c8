package imagefile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fmp/onnx/regularfile"
)

// Reasons why a file is left out.
const (
	noImage = "no image"
	noClass = "in no folder of a class"
	hidden  = "hidden"
	listed  = "a link to images that are listed"
	around  = "a link to a folder that it lies in"
	outside = "a link out of the folder"
)

// Walker lists the image files of a folder by their classes. Links that stay within the folder are
// followed, after all that is no link, and to images and folders that are not listed otherwise; so
// no image counts twice, and one in two classes is a bad image. So is an image, or a folder, that a
// link has outside. All else is left out by name: files that are no images, and hidden images. It
// opens no image. Classes are numbers of the caller's.
type Walker struct {
	Dir    string
	Others *LeftOut
	// Visit takes an image file of a class, in the order of names, and the reason why it cannot be
	// read, where it is known.
	Visit func(path string, class int, bad error) error

	real  string // Dir without links
	seen  []link // the images that are no links
	links []link
	files map[string]link // the listed images by their paths without links, once links are followed
	dirs  map[string]bool // the folders that links were followed to, with the class
}

// link is a path, and the class of the folder that it lies in.
type link struct {
	path  string
	class int
}

// Walk lists the images in Dir/name, which may be a file or a folder. Links are kept for
// [Walker.End], once all that is no link is known. It must be called before [Walker.End], and once
// for each name. Hidden folders below it are passed over with all that is in them.
func (w *Walker) Walk(name string, class int) (err error) {
	if w.real == "" {
		if w.real, err = filepath.EvalSymlinks(w.Dir); err != nil {
			return err
		}
	}
	base := filepath.Join(w.Dir, name)
	return filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		// A folder that cannot be read is an error, not an empty folder.
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(e.Name(), ".") && path != base && e.IsDir():
			return filepath.SkipDir
		case strings.HasPrefix(e.Name(), ".") && path != base:
			if IsImage(path) {
				w.leave(path, hidden)
			}
			return nil
		case e.IsDir():
			return nil
		case e.Type()&fs.ModeSymlink != 0:
			w.links = append(w.links, link{path, class})
			return nil
		}
		if !e.Type().IsRegular() || !IsImage(path) {
			w.leave(path, noImage)
			return nil
		}
		w.seen = append(w.seen, link{path, class})
		return w.Visit(path, class, nil)
	})
}

// leave leaves a file out, named by its path within Dir: notes are shared, and name no folder
// outside.
func (w *Walker) leave(path, why string) {
	if rel, err := filepath.Rel(w.Dir, path); err == nil {
		path = rel
	}
	w.Others.Add(path, why)
}

// End follows the links, which is done once all folders have been walked. They are taken in the
// order of the walk, which says which of two links to an image counts. It takes a look-up of every
// listed image, where there is a link at all.
func (w *Walker) End() error {
	if len(w.links) == 0 {
		return nil
	}
	w.files, w.dirs = make(map[string]link, len(w.seen)), map[string]bool{}
	for _, l := range w.seen {
		real, err := filepath.EvalSymlinks(l.path)
		if regularfile.OfMachine(err) {
			return err
		}
		if err == nil {
			w.files[real] = l
		}
	}
	for _, l := range w.links {
		if err := w.follow(l); err != nil {
			return err
		}
	}
	return nil
}

// follow visits the image or the folder that a link leads to, or leaves the link out. An error, of
// the machine too, ends the walk; the fault of one link is a bad image. Faults of the machine are
// those that other images would meet too.
func (w *Walker) follow(l link) error {
	real, err := filepath.EvalSymlinks(l.path)
	if regularfile.OfMachine(err) {
		return err
	}
	if err != nil {
		if !IsImage(l.path) && filepath.Ext(l.path) != "" {
			w.leave(l.path, noImage)
			return nil
		}
		// A link without an extension may have led to a folder of images: it must not go unseen.
		return w.Visit(l.path, l.class, fmt.Errorf("%s: a link that leads nowhere", l.path))
	}
	st, err := os.Stat(real)
	if regularfile.OfMachine(err) {
		return err
	}
	if err != nil {
		return w.Visit(l.path, l.class, err)
	}
	rel, err := filepath.Rel(w.real, real)
	switch {
	case (err != nil || !filepath.IsLocal(rel)) && (st.IsDir() || IsImage(l.path)):
		return w.Visit(l.path, l.class, fmt.Errorf("%s: a link out of the folder, to %s: copy "+
			"what it leads to, or name the files in a list (.csv of path,label)", l.path, real))
	case err != nil || !filepath.IsLocal(rel):
		w.leave(l.path, outside)
	case st.IsDir():
		return w.folder(l, real)
	case !st.Mode().IsRegular() || !IsImage(l.path):
		w.leave(l.path, noImage)
	default:
		return w.image(l, real)
	}
	return nil
}

// image lists an image that a link leads to, unless it is listed already; under two classes it is a
// bad image. Which of two links is listed depends on the order of the walk alone.
func (w *Walker) image(l link, real string) error {
	first, is := w.files[real]
	switch {
	case !is:
		w.files[real] = l
		return w.Visit(l.path, l.class, nil)
	case first.class != l.class:
		return w.Visit(l.path, l.class, fmt.Errorf("%s: the image %s is in another class, too, "+
			"by this link", l.path, first.path))
	}
	w.leave(l.path, listed)
	return nil
}

// folder lists the images of a folder that a link leads to, under the link's name. A link to a
// folder that it lies in is left out: it would be followed without end. So is a second link to a
// folder from one class.
func (w *Walker) folder(l link, real string) error {
	at, err := filepath.EvalSymlinks(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(real, at); err == nil && filepath.IsLocal(rel) {
		w.leave(l.path, around)
		return nil
	}
	// The key has the class, so that a folder linked from two classes makes its images bad ones.
	key := fmt.Sprint(l.class, " ", real)
	if w.dirs[key] {
		w.leave(l.path, listed)
		return nil
	}
	w.dirs[key] = true
	entries, err := os.ReadDir(real)
	if regularfile.OfMachine(err) {
		return err
	}
	if err != nil {
		return w.Visit(l.path, l.class, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		// Each entry is a link from here on: its images may be listed already.
		if err := w.follow(link{filepath.Join(l.path, e.Name()), l.class}); err != nil {
			return err
		}
	}
	return nil
}

// entries returns the names of the folders in a folder, links to folders among them, and of its
// other entries, in order. Hidden ones are in neither; of these, images are left out by name. A
// link that leads nowhere is among the others.
func entries(dir string, others *LeftOut) (folders, files []string, err error) {
	all, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, nil, err
	}
	for _, e := range all {
		is := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			st, err := os.Stat(filepath.Join(dir, e.Name()))
			if regularfile.OfMachine(err) {
				return nil, nil, err
			}
			is = err == nil && st.IsDir()
		}
		switch {
		case strings.HasPrefix(e.Name(), "."):
			if !is && IsImage(e.Name()) {
				others.Add(e.Name(), hidden)
			}
		case is:
			folders = append(folders, e.Name())
		default:
			files = append(files, e.Name())
		}
	}
	return folders, files, nil
}

// looseReason says why a file beside the folders of classes is left out.
func looseReason(name string) string {
	if IsImage(name) {
		return noClass
	}
	return noImage
}

// ClassFolders returns the names of the folders in a folder, in order, links to folders among them.
// Other files are left out by name.
func ClassFolders(dir string, others *LeftOut) ([]string, error) {
	names, files, err := entries(dir, others)
	for _, f := range files {
		others.Add(f, looseReason(f))
	}
	return names, err
}
