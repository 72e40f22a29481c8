package imagefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

// lay writes files, and links where a value is not empty.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	data := must.Get(os.ReadFile("testdata/odd/rgb.bmp"))(t)
	for name, to := range files {
		path := filepath.Join(dir, name)
		if to == "" {
			imagefiletest.Write(t, path, data)
			continue
		}
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if err := os.Symlink(to, path); err != nil {
			t.Skip(err)
		}
	}
}

// TestLinks: a link counts where its image is listed nowhere else, once; one that leads outside or
// nowhere is a bad image; and whatever is left out is named with its reason.
func TestLinks(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	lay(t, out, map[string]string{"far.bmp": ""})
	lay(t, dir, map[string]string{
		"cat/1.bmp": "", ".store/2.bmp": "", ".store/3.bmp": "", ".store/deep/4.bmp": "",
		"dog/5.bmp":  "",
		"dog/.6.bmp": "", "7.bmp": "",
		"readme.txt": "", "cat/two.bmp": "../.store/2.bmp", "dog/again.bmp": "../.store/2.bmp",
		"dog/self.bmp": "5.bmp", "dog/store": "../.store",
		"cat/loop": "..", "cat/far.bmp": filepath.Join(out, "far.bmp"), "cat/all": out,
		"cat/gone.bmp": "nowhere.bmp",
		"cat/notes":    filepath.Join(out, "notes"), "bird/one.bmp": "../dog/5.bmp",
		"cat/list.txt": filepath.Join(out, "far.bmp"),
	})
	o := Options{Fit: Fit{H: 4, W: 4, Ch: 3},
		Classes: Classes{Names: []string{"cat", "dog", "bird"}, N: 3}, MaxItems: 99}
	files, mapped, others, err := listFolder(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	good, bad := map[string]int{}, map[string]string{}
	for _, f := range files {
		name, _ := filepath.Rel(dir, f.Name)
		if f.bad != nil {
			bad[filepath.ToSlash(name)] = f.bad.Error()
			continue
		}
		good[filepath.ToSlash(name)] = f.Label
	}
	if d := cmp.Diff(map[string]int{"cat/1.bmp": 0, "cat/two.bmp": 0, "dog/5.bmp": 1,
		"dog/store/3.bmp": 1, "dog/store/deep/4.bmp": 1},
		good); d != "" {
		t.Errorf("the images are\n%s", d)
	}
	for name, why := range map[string]string{"cat/far.bmp": "a link out of the folder",
		"cat/all": "a link out of the folder", "cat/gone.bmp": "leads nowhere",
		"cat/notes": "leads nowhere", "dog/again.bmp": "cat/two.bmp is in another class",
		"dog/store/2.bmp": "cat/two.bmp is in another class",
		"bird/one.bmp":    "dog/5.bmp is in another class"} {
		if !strings.Contains(bad[name], why) {
			t.Errorf("%s: %q; want %q", name, bad[name], why)
		}
		delete(bad, name)
	}
	if len(bad) > 0 {
		t.Errorf("bad images: %q", bad)
	}
	every := LeftOut{Names: make([]string, 0)}
	w := Walker{Dir: dir, Others: &every, Visit: func(string, int, error) error { return nil }}
	for i, name := range []string{"cat", "dog", "bird"} {
		must.Do(t, w.Walk(name, i))
	}
	must.Do(t, w.End())
	if others.N != every.N+2 { // 7.bmp and readme.txt
		t.Errorf("%d files are left out: %v; want %d of the classes and two beside them: %v", others.N,
			others, every.N, every.Names)
	}
	if want := []Mapped{{"bird", "bird", 2, 1}, {"cat", "cat", 0, 6},
		{"dog", "dog", 1, 5}}; !cmp.Equal(mapped, want) {
		t.Errorf("classes: %+v; want %+v", mapped, want)
	}
	for _, c := range []struct{ name, why string }{{"7.bmp", noClass}, {"readme.txt", noImage}} {
		if !strings.Contains(others.String(), c.name+" ("+c.why+")") {
			t.Errorf("left out: %v; want %s, %s", others, c.name, c.why)
		}
	}
}

// TestClassesByName: a name is never taken for a number, nor a number for a name; one of two classes is neither's.
func TestClassesByName(t *testing.T) {
	grades, pets := []string{"1", "2", "3"}, []string{"cat", "dog", "fish"}
	twice := []string{"digger", "crane", "heron", "crane"}
	for _, c := range []struct {
		classes Classes
		name    string
		want    int // -1: an error
		says    string
	}{
		{Classes{grades, 3, false}, "1", 0, ""}, {Classes{grades, 3, false}, "3", 2, ""},
		{Classes{grades, 3, false}, "0", -1,
			"knows 1, 2, 3; where names are numbers of classes (0: 1), give --class-numbers"},
		{Classes{grades, 3, true}, "0", 0, ""}, {Classes{grades, 3, true}, "1", 1, ""},
		{Classes{grades, 3, true}, "3", -1, "0 to 2"},
		{Classes{pets, 3, false}, "0", -1, "(0: cat)"}, {Classes{pets, 3, false}, "dog", 1, ""},
		{Classes{pets, 3, true}, "dog", -1, "0 to 2"},
		{Classes{pets, 3, true}, "2", 2, ""}, {Classes{pets, 3, true}, "02", -1, "0 to 2"},
		{Classes{pets, 3, true}, "+2", -1, "0 to 2"},
		{Classes{nil, 3, false}, "2", 2, ""}, {Classes{nil, 3, false}, "3", -1, "knows 0 to 2"},
		{Classes{pets, 3, false}, "Dog", -1, "knows cat"},
		{Classes{pets, 3, false}, "7", -1, "knows cat, dog, fish"},
		{Classes{twice, 4, false}, "crane", -1, `"crane" is the name of classes number 1 and 3`},
		{Classes{twice, 4, false}, "heron", 2, ""}, {Classes{twice, 4, true}, "3", 3, ""},
	} {
		got, err := c.classes.label(c.name)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want || err != nil &&
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%q of %+v: %d, %v; want %d, %q", c.name, c.classes, got, err, c.want, c.says)
		}
	}
}

// TestLabelsOfIDX: a label that is the number of one class and the name of another wants the flag.
func TestLabelsOfIDX(t *testing.T) {
	dir := t.TempDir()
	images, labels := filepath.Join(dir, "images"), filepath.Join(dir, "labels")
	must.Do(t, os.WriteFile(images, imagefiletest.IDX(0x803, []uint32{2, 1, 1}, 0, 9), 0o600))
	for _, c := range []struct {
		names    string
		labels   []byte
		byNumber bool
		says     string // nothing: the labels are taken as numbers
	}{
		{"0 1 2", []byte{2, 0}, false, ""},
		{"cat dog fish", []byte{2, 0}, false, ""},
		{"1 2 3", []byte{0, 1}, false, "label 1 of image 1: it is the number of class 2 (from 0) and the name of " +
			"class number 0"},
		{"1 2 3", []byte{0, 1}, true, ""},
		{"2 0 1", []byte{0, 1}, false, "label 0 of image 0"},
		{"0 2 1", []byte{0, 0}, false, ""},
		{"", []byte{2, 1}, false, ""},
	} {
		must.Do(t, os.WriteFile(labels, imagefiletest.IDX(0x801, []uint32{2}, c.labels...), 0o600))
		s, err := openIDX(images, Options{Fit: Fit{1, 1, 1, Stretch}, Labels: labels, MaxItems: 9,
			Classes: Classes{Names: strings.Fields(c.names), N: 3, ByNumber: c.byNumber}})
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("labels %v of classes %q: %v; want %q", c.labels, c.names, err, c.says)
		}
		if err == nil {
			s.Close()
		}
	}
}
