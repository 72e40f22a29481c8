package imagefile

import (
	"errors"
	"image"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

// TestOpenFiles: files that are given have the order, labels and digests that the same folder has,
// and name the same files that are none.
func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	for i, path := range []string{"cat/b.png", "cat/a/z.PNG", "cat/a.png", "cat/a b.png", "dog/x.png",
		"dog/y.png", "cat/.hidden/c.png",
		"cat/notes.txt", "cat/broken.jpg", "loose.png", ".git/d.png", "dog/e.heic"} {
		data := imagefiletest.PNG(t, image.NewGray(image.Rect(0, 0, 4+i, 4)))
		imagefiletest.Write(t, filepath.Join(dir, path), data[:len(data)-i%2*len(data)/2])
	}
	var paths []string
	must.Do(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			paths = append([]string{filepath.ToSlash(rel)}, paths...)
		}
		return err
	}))
	type seen struct {
		Name   string
		Label  int
		Digest [32]byte
		Bad    bool
	}
	read := func(src Source, base string) (out []seen) {
		dst := make([]uint8, 8*8)
		for range src.Len() {
			item, err := src.Next(t.Context(), dst)
			name := must.Get(filepath.Rel(base, item.Name))(t)
			out = append(out, seen{filepath.ToSlash(name), item.Label, item.Digest, err != nil})
		}
		return out
	}
	o := Options{Fit: Fit{H: 8, W: 8, Ch: 1}, Classes: Classes{Names: []string{"cat", "dog"}, N: 2},
		MaxItems: 100}
	open := func(path string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, path)) }
	for _, optional := range []bool{false, true} {
		o.Optional = optional
		a, others := must.Get2(Open(dir, o))(t)
		b, given := must.Get2(OpenFiles(paths, open, o))(t)
		if d := cmp.Diff(others, given); d != "" {
			t.Errorf("labels optional %v: files that are no images: %s", optional, d)
		}
		want := read(a, dir)
		if optional { // a folder's own files lie between its folders by name there too
			if len(want) != 9 {
				t.Errorf("%d images; want 9", len(want))
			}
		}
		if d := cmp.Diff(want, read(b, ".")); d != "" {
			t.Errorf("labels optional %v: the folder has - and the files +\n%s", optional, d)
		}
	}
	o.Optional, o.MaxItems = false, 3
	must.Fail(OpenFiles(paths, open, o))(t, "", "more images than are allowed are taken")
	if _, _, err := OpenFiles([]string{"zebra/a.png"}, open, o); err == nil ||
		err.Error() != `folder zebra: "zebra" is no class of the model; it knows cat, dog` {
		t.Errorf("a folder of no class: %v", err)
	}
	must.Fail(OpenFiles([]string{"loose.png"}, open, o))(t, "", "no image of a class, and no error")
	if _, _, err := OpenFiles([]string{"cat/a.png", "dog/a.png", "cat/a.png"}, open, o); err == nil ||
		err.Error() != "cat/a.png is there twice; give each file a path of its own" {
		t.Errorf("one path of two files: %v", err)
	}
}

// TestFlagsOfCommands: errors about images name flags as those of commands alone.
func TestFlagsOfCommands(t *testing.T) {
	torn := errors.New("b.png: torn")
	data := imagefiletest.PNG(t, image.NewGray(image.Rect(0, 0, 9, 9)))
	src, _ := must.Get2(OpenFiles([]string{"a.png"}, func(string) ([]byte, error) { return data, nil },
		Options{Fit: Fit{H: 2, W: 2, Ch: 1}, MaxPixels: 5, MaxItems: 1, Classes: Classes{N: 1}, Optional: true}))(t)
	_, large := src.Next(t.Context(), make([]uint8, 4))
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"one":   {Unread([]error{torn}), "or leave it out (commands: --on-bad skip)"},
		"two":   {Unread([]error{torn, torn}), "or leave them out (commands: --on-bad skip)"},
		"large": {large, "scale it down (commands: or allow more with --max-pixels)"},
	} {
		must.Fail(0, c.err)(t, c.want, name)
	}
}
