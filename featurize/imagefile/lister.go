package imagefile

import (
	"fmt"
	"path/filepath"
	"slices"

	"fmp/onnx/printable"
)

// lister lists the images of a folder. Files are in the order in which they were added, others
// those that are left out by name.
type lister struct {
	mapping
	dir    string
	o      Options
	files  []Item
	others LeftOut
}

// newLister begins a list of the images in a folder, of which it reads nothing itself.
func newLister(dir string, o Options) *lister {
	return &lister{mapping: mapping{classes: o.Classes}, dir: dir, o: o}
}

// class returns the label of the images in a folder of the folder. Where labels are optional,
// images in a folder of no class have none, which the mapping tells. The error names the folder and
// the classes that are known.
func (l *lister) class(name string) (int, error) {
	label, err := l.mapping.class(name)
	if err != nil && !l.o.Optional {
		return label, fmt.Errorf("folder %s: %w", printable.Line(filepath.Join(l.dir, name)), err)
	}
	if err != nil {
		label = Unlabelled
		l.put(name, label)
	}
	return label, nil
}

// add lists an image that lies in a folder of the folder, "" for none. bad says why it cannot be
// read, where that is known already. A bad one keeps its place and is reported when its turn comes,
// so that all are named at once.
func (l *lister) add(folder, path string, label int, bad error) error {
	if len(l.files) == l.o.MaxItems {
		return fmt.Errorf("more than %d images under %s; give fewer", l.o.MaxItems, l.dir)
	}
	l.files = append(l.files, Item{Name: path, Label: label, bad: bad, from: l.count(folder)})
	return nil
}

// end returns an error where there is no image.
func (l *lister) end() error {
	if len(l.files) > 0 {
		return nil
	}
	left := ""
	if l.others.N > 0 {
		left = fmt.Sprintf(" (%v)", l.others)
	}
	if l.o.Optional {
		return fmt.Errorf("%s has no images (%s)%s", l.dir, Formats, left)
	}
	return fmt.Errorf("%s has no images (%s) in folders named by class%s; lay them out as %s",
		l.dir, Formats, left, filepath.Join(l.dir, "CLASS", "image.jpg"))
}

// listFolder lists the images of DIR/CLASS/..., in the order of their names; where labels are
// optional, those of DIR as well. Others than these are left out by name ([Walker]). An error ends
// the listing; images that cannot be read do not.
func listFolder(dir string, o Options) ([]Item, []Mapped, LeftOut, error) {
	l := newLister(dir, o)
	names, loose, err := entries(dir, &l.others)
	if err != nil {
		return nil, nil, l.others, err
	}
	labels := map[string]int{}
	for _, name := range names {
		if labels[name], err = l.class(name); err != nil {
			return nil, nil, l.others, err
		}
	}
	// Where labels are optional, loose files become walks of their own, each of one file.
	for _, name := range loose {
		labels[name] = Unlabelled
		if !o.Optional {
			l.others.Add(name, looseReason(name))
		} else {
			names = append(names, name)
		}
	}
	// Files and folders are in one order, as the names say.
	slices.Sort(names)
	w := Walker{Dir: dir, Others: &l.others, Visit: func(path string, class int, bad error) error {
		return l.add(names[class], path, labels[names[class]], bad)
	}}
	for i, name := range names {
		if err := w.Walk(name, i); err != nil {
			return nil, nil, l.others, err
		}
	}
	if err := w.End(); err != nil {
		return nil, nil, l.others, err
	}
	return l.files, l.list, l.others, l.end()
}
