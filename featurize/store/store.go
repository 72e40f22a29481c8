// Package store manages the data sets in the data folder: it downloads the official archives,
// checks and unpacks them, and imports data sets that the user has.
package store

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"fmp/featurize/dataset"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// Dir returns the data folder to write to: the setting, otherwise the first that is searched.
// Nothing is made: [Pull] and [Import] make it.
func Dir(setting string) (string, error) {
	dirs := dataset.Dirs(setting)
	if len(dirs) == 0 {
		return "", fmt.Errorf("no data folder: set dataset.dir or FMP_DATA")
	}
	return dirs[0], nil
}

// Pull downloads a published data set into the data folder and returns the data set's folder. A
// data set that is already there is left unchanged. Nothing appears under its name before every
// file is checked and readable. Downloads lie in DIR/.downloads until the data set has its name: a
// call that was stopped goes on with them. Two calls at once share a download's part, and the
// checksums find one that they spoiled. The folder itself is written by one of them. An error
// leaves the downloads, and the folder as it was.
func Pull(ctx context.Context, s dataset.Known, dir string, d *Downloader) (string, error) {
	// The first folder is the one that is written; others are looked in.
	to := filepath.Join(dir, s.Folders[0])
	if complete(ctx, s, to) {
		return to, nil
	}
	downloads := filepath.Join(dir, ".downloads")
	var paths []string
	for _, f := range s.Files {
		p, err := d.Fetch(ctx, f, downloads)
		if err != nil {
			return "", err
		}
		paths = append(paths, p)
	}
	// Files are checked where they are unpacked, under a name that nothing reads.
	err := place(ctx, to, func(tmp string) error {
		// Archives are unpacked and single files, as those of MNIST, copied as they are.
		for _, p := range paths {
			if s.Unpack == nil {
				if err := copyFile(p, filepath.Join(tmp, filepath.Base(p))); err != nil {
					return err
				}
			} else if err := unpack(ctx, p, tmp, s.Unpack); err != nil {
				return err
			}
		}
		return readable(ctx, tmp, to)
	})
	if err != nil {
		return "", err
	}
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			return "", fmt.Errorf("removing a download that is no longer needed: %w", err)
		}
	}
	_ = os.Remove(downloads) // kept if it is not empty
	return to, nil
}

// complete reports whether all files of a data set are in folder to and can be read. Lists of names
// may be missing, and files may be unpacked. It loads the data set, which checks its list of
// checksums. It reads all of the data, so that damage of a copy is found before it is kept.
func complete(ctx context.Context, s dataset.Known, to string) bool {
	var names []string
	for n := range s.Unpack {
		names = append(names, n)
	}
	for _, f := range s.Files {
		if s.Unpack == nil {
			names = append(names, f.Name)
		}
	}
	for _, n := range names {
		if filepath.Ext(n) == ".txt" {
			continue
		}
		_, err := os.Stat(filepath.Join(to, n))
		if _, err2 := os.Stat(filepath.Join(to, strings.TrimSuffix(n, ".gz"))); err != nil &&
			err2 != nil {
			return false
		}
	}
	_, err := dataset.Load(ctx, dataset.Options{Name: to})
	return err == nil
}

// readable checks that a folder holds a data set that can be read, before it gets the name to.
func readable(ctx context.Context, dir, to string) error {
	if _, err := dataset.Load(ctx, dataset.Options{Name: dir}); err != nil {
		return fmt.Errorf("checking what is to become %s: %w", to, err)
	}
	return nil
}

// alone locks a folder, nil where another has it. Another fmp may remove the folder meanwhile, and
// a third make it again: the folder that is locked is the one that is there. The system releases
// the lock when the program ends, however it ends.
func alone(dir string) (io.Closer, error) {
	before, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	lock, ok, err := atomicfile.Lock(dir)
	if err != nil {
		return nil, err
	}
	// The folder could have been removed and made anew between Stat and Lock: the lock would be of
	// a folder that nobody looks at.
	if now, err := os.Stat(dir); ok && err == nil && os.SameFile(before, now) {
		return lock, nil
	}
	return nil, lock.Close()
}

// place fills a temporary folder beside to and gives it the name to. The old folder is replaced
// only then. fill is given the folder .NAME.tmp/new, and the old folder becomes .NAME.tmp/old. Both
// lie beside the new one, so that renaming suffices. .NAME.tmp is locked meanwhile. After an error
// of fill the old folder stands as it was. Between the two renamings there is no folder of the
// name; a program that is killed there leaves the old one in .NAME.tmp/old, which the next call
// puts back. The old folder is removed only where there is one of the name.
func place(ctx context.Context, to string, fill func(tmp string) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(to), "."+filepath.Base(to)+".tmp")
	var lock io.Closer
	if err = os.MkdirAll(tmp, 0o755); err == nil {
		lock, err = alone(tmp)
	}
	// The folder of another may come and go meanwhile.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) || lock == nil && err == nil {
		return fmt.Errorf("another fmp is at work on %s; wait for that one", to)
	} else if err != nil {
		return err
	}
	// Both are in the locked folder, so that no other fmp makes or removes them meanwhile.
	fresh, old := filepath.Join(tmp, "new"), filepath.Join(tmp, "old")
	defer func() {
		err = errors.Join(err, os.RemoveAll(fresh), settle(to, old))
		if runtime.GOOS == "windows" { // it removes no open file
			lock.Close()
		}
		_ = os.Remove(filepath.Join(tmp, atomicfile.LockFile))
		_ = os.Remove(tmp)
		lock.Close()
	}()
	// Files that a killed program left there, and those that one of an earlier release called
	// .NAME.NUMBER.
	left, err := filepath.Glob(filepath.Join(filepath.Dir(to),
		"."+filepath.Base(to)+".[0-9]*", "new"))
	if err != nil {
		return err
	}
	// The glob is of the folders new in them.
	for i, p := range left {
		left[i] = filepath.Dir(p)
	}
	for _, p := range append(left, fresh) {
		if err := os.RemoveAll(p); err != nil {
			return err
		}
	}
	if err := settle(to, old); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return err
	}
	if err := fill(fresh); err != nil {
		return err
	}
	// A list that came with the data is better evidence: it is older than the copy.
	// Downloads of CIFAR and MNIST bring none, so that it is of the copy, which was checked in
	// fill.
	if _, err := os.Stat(filepath.Join(fresh, dataset.SumsFile)); errors.Is(err, os.ErrNotExist) {
		if err := dataset.WriteSums(ctx, fresh); err != nil {
			return err
		}
	}
	if err := os.Rename(to, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, to)
}

// settle removes the old folder of a replacement where there is a folder to, and else puts it back.
// An old folder that cannot be put back stays where it lies.
func settle(to, old string) error {
	switch _, err := os.Lstat(to); {
	case err == nil:
		return os.RemoveAll(old)
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := os.Rename(old, to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("putting back %s: %w; the old folder is %s: rename it", to, err, old)
	}
	return nil
}

// unpack extracts the wanted files, by base name, from a tar.gz archive. Other entries are skipped;
// links and folders are never created; a file over its maximum size, or present twice, is an error.
// Folders in names are left out, so that no file leads out of to. An archive without any of the
// files is an error. One that lacks some is refused by the caller, which reads the data set.
func unpack(ctx context.Context, archive, to string, want map[string]int64) error {
	f, err := regularfile.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: not a gzip file: %w", archive, err)
	}
	defer z.Close()
	// A bound on an archive that unpacks without end; the files of CIFAR-10 have 184 MB.
	r := tar.NewReader(io.LimitReader(z, 4<<30))
	found := map[string]bool{}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		// The base name alone is used: .. and absolute paths are thereby harmless.
		name := filepath.Base(filepath.FromSlash(h.Name))
		limit, ok := want[name]
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size > limit {
			return fmt.Errorf("%s: %s has %d bytes; at most %d are taken", archive, h.Name,
				h.Size, limit)
		}
		if found[name] {
			return fmt.Errorf("%s: %s is there twice", archive, name)
		}
		found[name] = true
		// A tar's entry gives no more bytes than its header states.
		if err := write(filepath.Join(to, name), r); err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("%s: none of the files of the data set are in the archive", archive)
	}
	return nil
}

// write makes a file; a file or link that has the name already is an error. Its folder must be
// there. An error may leave a part of the file, in a folder that is then removed.
func write(path string, r io.Reader) (err error) {
	// O_EXCL follows no link that has the name.
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	_, err = io.Copy(out, r)
	return err
}

// copyFile copies a regular file to a new one, and makes the folders on its path.
func copyFile(from, to string) error {
	in, err := regularfile.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return write(to, in)
}

// recognise returns the kind of a data set in a folder or an official archive; of an archive also
// the sizes of its files and its folder. Archives are known by the name of their file, and checked
// by its digest. Digests are checked before anything is unpacked. A file of another name is an
// error that names the archives.
func recognise(from string) (kind dataset.Kind, archive map[string]int64, folder string,
	err error) {
	st, err := os.Stat(from)
	if err != nil {
		return kind, nil, "", fmt.Errorf("importing a data set: %w", err)
	}
	if st.IsDir() {
		kind, err = dataset.Detect(from)
		return kind, nil, "", err
	}
	for _, s := range dataset.All() {
		for _, f := range s.Files {
			if s.Unpack != nil && f.Name == filepath.Base(from) {
				if err := check(f, from); err != nil {
					return kind, nil, "", fmt.Errorf("%s: %w", from, err)
				}
				return s.Kind, s.Unpack, s.Folders[0], nil
			}
		}
	}
	return kind, nil, "", fmt.Errorf("%s is neither a folder nor an official archive "+
		"(cifar-10-binary.tar.gz, cifar-100-binary.tar.gz); unpack it and give the folder", from)
}

// nameOf returns the name and the folder of an imported data set; an empty name means the official
// one, or else that of its folder. Names of official data sets are for files of their kind alone,
// and those of drawn ones for none. It reads nothing from the data folder, and checks the name
// before anything is written. The case of an official name does not matter. CIFAR's kinds tell
// their name, IDX files could be of any data set.
func nameOf(from, name, folder string, kind dataset.Kind) (_, _ string, err error) {
	if name == "" {
		abs, err := filepath.Abs(from)
		if err != nil {
			return "", "", err
		}
		name = filepath.Base(abs)
		for _, s := range dataset.All() {
			if s.Kind == kind && s.Unpack != nil {
				name = s.Name
			}
		}
	}
	folder = cmp.Or(folder, name)
	if s, ok := dataset.Lookup(strings.ToLower(name)); ok && s.Kind != "" {
		if kind != s.Kind {
			return "", "", fmt.Errorf("%q is the name of a data set whose files are of the kind "+
				"%s, and these are of the kind %s: give another with --name", s.Name, s.Kind, kind)
		}
		name, folder = s.Name, s.Folders[0]
	}
	// A name with a separator would lead out of the data folder, and one with a dot would be
	// hidden.
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") ||
		strings.ContainsAny(name, `/\`) {
		return "", "", fmt.Errorf("%q is no name for a data set; give one without separators", name)
	}
	if s, ok := dataset.Lookup(name); ok && s.Kind == "" {
		return "", "", fmt.Errorf("%q is the name of a drawn data set; give "+
			"another with --name", name)
	}
	return name, folder, nil
}

// Import copies a data set that the user has, a folder in any supported format or an official
// archive of CIFAR, into the data folder, and returns its name and folder there. An empty name
// means the official name for CIFAR's files, otherwise the folder's own. An existing data set of
// that name is replaced only if replace is set. Images that cannot be read are an error that names
// them all; with skip they are left out and returned. Steps: recognise, settle the name, refuse a
// folder that is there, read all images once, copy, list checksums, rename. The data set's folder
// changes at the last alone.
func Import(ctx context.Context, from, name, dir string, replace,
	skip bool) (_, _ string, bad []string, err error) {
	kind, archive, folder, err := recognise(from)
	if err != nil {
		return "", "", nil, err
	}
	if name, folder, err = nameOf(from, name, folder, kind); err != nil {
		return "", "", nil, err
	}
	to := filepath.Join(dir, folder)
	if _, err := os.Stat(to); err == nil && !replace {
		return "", "", nil, fmt.Errorf("%s is there already; give --replace, or another "+
			"name with --name", to)
	}
	if inside(from, to) {
		return "", "", nil, fmt.Errorf("%s lies in %s; it is in its place already", from, to)
	}
	if archive == nil {
		// Before anything is copied, and under the name that the user knows it by.
		path := from
		if !strings.ContainsAny(path, `/\`) {
			path = "./" + path // not the name of a data set
		}
		ds, err := dataset.Load(ctx, dataset.Options{Name: path, Skip: skip})
		if err != nil {
			return "", "", nil, err
		}
		bad = ds.Bad
	}
	err = place(ctx, to, func(tmp string) error {
		// place may have put back the folder of a program that was killed, or another made one.
		if _, err := os.Lstat(to); err == nil && !replace {
			return fmt.Errorf("%s is there already; give --replace, or another name with --name", to)
		}
		if archive == nil {
			err = copyTree(ctx, from, tmp, bad)
		} else {
			err = unpack(ctx, from, tmp, archive)
		}
		// images in folders were read, and none is a link
		if err == nil && (archive != nil || kind != dataset.KindFolder) {
			err = readable(ctx, tmp, to)
		}
		return err
	})
	return name, to, bad, err
}

// inside reports whether path is dir or lies in it. Links are not followed.
func inside(path, dir string) bool {
	a, err := filepath.Abs(path)
	b, err2 := filepath.Abs(dir)
	if err != nil || err2 != nil {
		return false
	}
	rel, err := filepath.Rel(b, a)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// copyTree copies regular files except those in without; links and hidden files are left out.
func copyTree(ctx context.Context, from, to string, without []string) error {
	return filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if path != from && strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() || slices.Contains(without, path) {
			return nil
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}
