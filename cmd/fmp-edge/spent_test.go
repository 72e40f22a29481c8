package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/tally"
)

// TestNothingBegun: a private upload that is refused begins no ledger, nor a seal or a folder for
// one; an empty file gets no seal.
func TestNothingBegun(t *testing.T) {
	graph, dir := privateGraph(t), t.TempDir()
	photos := photosOf(t, 6)
	taken, empty, folder := filepath.Join(dir, "taken"), filepath.Join(dir, "empty.jsonl"),
		filepath.Join(dir, "folder")
	with := func(ledger, out, epsilon string, more ...string) []string {
		return append([]string{"compress", "--model", graph, "--client", "a", "--epsilon", epsilon,
			"-o", filepath.Join(dir, out), "--ledger", ledger, photos}, more...)
	}
	run(t, with(filepath.Join(dir, "first.jsonl"), "taken", "1")...)
	before := must.Get(os.ReadFile(taken))(t)
	write(t, empty, nil)
	for _, ledger := range []string{filepath.Join(dir, "new.jsonl"), filepath.Join(folder, "new.jsonl"), empty} {
		refuses(t, exitUsage, "--max-epsilon allows 0.5", with(ledger, "over", "1", "--max-epsilon", "0.5")...)
		refuses(t, exitUsage, "is an upload of a private round already, another one", with(ledger, "taken", "2")...)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	want := []string{empty, filepath.Join(dir, "first.jsonl"),
		filepath.Join(dir, "first.jsonl.seal"), taken, taken + ".classes.csv"}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("the folder has %q, %v; want %q", left, err, want)
	}
	if after, err := os.ReadFile(taken); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the upload that was there was changed (%v)", err)
	}
	run(t, with(empty, "one", "1")...)
	if _, err := os.Stat(empty + ".seal"); err != nil {
		t.Error(err)
	}
}

// explains fails where the explanation of a file does not say all of it.
func explains(t *testing.T, path string, says ...string) {
	t.Helper()
	s := run(t, "inspect", "--explain", path)
	for _, want := range says {
		if !strings.Contains(s, want) {
			t.Errorf("%s: want %q in %s", path, want, s)
		}
	}
}

// TestSpent: a private upload is made once; what further ones of the same images spend is added up,
// image by image, and held to --max-epsilon.
func TestSpent(t *testing.T) {
	graph, dir := privateGraph(t), t.TempDir()
	im, labels := blobs(6)
	photos, order := folder(t, im, labels)
	ledger := filepath.Join(dir, "spent.jsonl")
	path := func(name string) string { return filepath.Join(dir, name) }
	want := func(what string, code int, says, out, source string, args ...string) {
		t.Helper()
		got, log := said(t, append([]string{"compress", "--model", graph, "--client", "a", "-o", path(out),
			"--epsilon", "1", "--ledger", ledger, source}, args...)...)
		if got != code || !strings.Contains(log, says) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", what, got, log, code, says)
		}
		if _, err := os.Stat(path(out)); code != exitOK && err == nil &&
			!strings.HasPrefix(out, "one") {
			t.Errorf("%s: an upload was written", what)
		}
	}
	content := func(name string) string { return string(must.Get(os.ReadFile(path(name)))(t)) }
	want("the first", exitOK, "", "one", photos, "--max-epsilon", "1")
	first := content("one")
	want("the same again", exitOK, "nothing is spent", "one", photos, "--max-epsilon", "1")
	want("the same elsewhere", exitOK, "nothing is spent", "copy", photos, "--max-epsilon", "1")
	if content("one") != first || content("copy") != first {
		t.Error("the noise was drawn again")
	}
	want("another round, over the limit", exitUsage, "epsilon 1.465", "two", photos, "--round", "2",
		"--max-epsilon", "1.4")
	want("another round in the same file", exitUsage, "is an upload of a private round already", "one", photos,
		"--round", "2")
	want("another round", exitOK, "with 1 earlier releases epsilon 1.465", "three", photos, "--round", "2",
		"--max-epsilon", "1.5")
	// One image of these and another: that image has been in two releases.
	shared := filepath.Join(photos, fmt.Sprint(labels[order[0]]), fmt.Sprintf("%04d.png", order[0]))
	write(t, path("list.csv"), fmt.Appendf(nil, "path,label\n%s,1\n", shared))
	want("a folder that shares an image", exitUsage, "over 2 earlier releases", "four", path("list.csv"),
		"--max-epsilon", "1.7")
	other, _ := blobs(8)
	writePNG(t, path("new.png"), gray(other, 7))
	write(t, path("new.csv"), []byte("path,label\nnew.png,1\n"))
	want("an image that was in none", exitOK, "", "five", path("new.csv"), "--max-epsilon", "1")
	// The upload is gone: the noise is drawn again where that is meant, and counted.
	for _, name := range []string{"one", "copy"} {
		must.Do(t, os.Remove(path(name)))
	}
	want("an upload that is gone", exitUsage, "--redraw", "six", photos)
	want("drawn again, over the limit", exitUsage, "--max-epsilon allows 1.5", "seven", photos, "--redraw",
		"--max-epsilon", "1.5")
	want("drawn again", exitOK, "with 2 earlier releases", "eight", photos, "--redraw")
	if content("eight") == first {
		t.Error("the noise was not drawn again")
	}
	explains(t, path("eight"), "2.72 times as likely with one image there or not", "no number of images")
	explains(t, graph, "the sums of 9 coordinates and a count", "which this program knows (digits)")
	plain := model(t, models.KindClient)
	run(t, "compress", "--model", plain, "--client", "a", "-o", path("plain"), photos)
	explains(t, path("plain"), "6 images", "Classes of fewer than 5 images")
	run(t, "compress", "--model", plain, "--client", "a", "-o", path("calibrated"), "--calibrate", "2",
		"--secret", path("secret"), photos)
	explains(t, path("calibrated"), "the features of 1 single images", "5 images")
	explains(t, plain, "the mean of 32 numbers")
}

// TestOneMore: an image that is there again, by a copy, a link or a second line, under another class too,
// changes neither whether a private upload is made nor its charge.
func TestOneMore(t *testing.T) {
	graph, dir := privateGraph(t), t.TempDir()
	im, labels := blobs(6)
	photos, order := folder(t, im, labels)
	var list string
	for _, i := range order {
		list += fmt.Sprintf("%d/%04d.png,%d\n", labels[i], i, labels[i])
	}
	first := fmt.Sprintf("%d/%04d.png", labels[order[0]], order[0])
	must.Do(t, os.Symlink(filepath.Base(first), filepath.Join(photos, filepath.Dir(first), "link.png")))
	whole := must.Get(os.ReadFile(filepath.Join(photos, first)))(t)
	compress := func(name, source string) {
		t.Helper()
		out := filepath.Join(dir, "upload")
		code, log := said(t, "compress", "--model", graph, "--client", "a", "-o", out, "--epsilon", "1",
			"--max-epsilon", "1", "--ledger", filepath.Join(dir, "spent"), source)
		if code != exitOK || (name == "the first") == strings.Contains(log, "nothing is spent") {
			t.Errorf("%s: exit code %d, %s", name, code, log)
		}
	}
	compress("the first", photos)
	for name, more := range map[string]string{"a list": "", "a line twice": first + ",0\n",
		"a link": filepath.Dir(first) + "/link.png,0\n", "another class": first + ",7\n"} {
		write(t, filepath.Join(photos, "list.csv"), []byte(list+more))
		compress(name, filepath.Join(photos, "list.csv"))
	}
	must.Do(t, os.Mkdir(filepath.Join(photos, "8"), 0o700))
	for _, copied := range []string{filepath.Dir(first) + "/copy.png", "8/copy.png"} {
		write(t, filepath.Join(photos, copied), whole)
		compress(copied, photos)
	}
}

// TestExplainNoise: the explanation of a private upload says whether the server reads the number of
// images.
func TestExplainNoise(t *testing.T) {
	graph, dir := privateGraph(t), t.TempDir()
	photos := photosOf(t, 6)
	const exact, none = "the exact number of images of each class", "no number of images"
	for noise, want := range map[string]string{"local": none, "trusted": exact, "two-servers --points 10": none} {
		args := strings.Fields(noise)
		path := filepath.Join(dir, args[0])
		run(t, append([]string{"compress", "--model", graph, "--client", "a", "--ledger", path + ".ledger",
			"--epsilon", "1", "-o", path, photos, "--noise"}, args...)...)
		s := run(t, "inspect", "--explain", path)
		if !strings.Contains(s, want) || strings.Contains(s, exact) && strings.Contains(s, none) {
			t.Errorf("%s: want %q in %s", noise, want, s)
		}
	}
	explains(t, graph, "unless the noise is trusted")
}

// TestExplainCounts: what is said of a plain upload is what is in it: no class that was left out, the
// single images among those of their classes, the numbers of a mean, and small classes by number.
func TestExplainCounts(t *testing.T) {
	plain, dir := model(t, models.KindClient), t.TempDir()
	photos := photosOf(t, 25) // classes 0 to 4 have three images, the others two
	out := filepath.Join(dir, "upload")
	for _, c := range []struct {
		flags     []string
		says, not string
		json      string
	}{
		{nil, "25 images, and how many of each of 10 classes: [3 3 3 3 3 2 2 2 2 2]\n- 10 points of 32 numbers each",
			"about", `"classes": 10`},
		{nil, "number 0 (3), number 1 (3)", ": 0 (3)", `"n": 25`},
		{[]string{"--at-least", "3"}, "- 4 -> class 4 (number 4): 3 images", "- 5 -> class 5", `"n": 15`},
		{[]string{"--calibrate", "5", "--secret", filepath.Join(dir, "secret")},
			"25 images, and how many of each of 10 classes: [3 3 3 3 3 2 2 2 2 2]", "about", `"calibration": 5`},
	} {
		log := run(t, slices.Concat([]string{"compress", "--model", plain, "--client", "a", "-o", out, "--json"}, c.flags,
			[]string{photos})...)
		s := run(t, "inspect", "--explain", out)
		if !strings.Contains(s, c.says) || strings.Contains(s, c.not) {
			t.Errorf("%v: want %q and not %q in %s", c.flags, c.says, c.not, s)
		}
		if s := run(t, "inspect", "--json", out); !strings.Contains(s, c.json) {
			t.Errorf("%v: want %s in %s", c.flags, c.json, s)
		}
		if left := slices.Contains(c.flags, "--at-least"); left != strings.Contains(log, `"few": 5`) ||
			strings.Contains(log, `"bad"`) || left == strings.Contains(log, `"from": "5"`) {
			t.Errorf("%v: folders of the upload: %s", c.flags, log)
		}
	}
}

// TestExplainSingles: of single images uploads of both forms say the same, and their classes count
// among those that inspect prints.
func TestExplainSingles(t *testing.T) {
	plain, dir := model(t, models.KindClient), t.TempDir()
	photos := photosOf(t, 25)
	out := filepath.Join(dir, "upload")
	run(t, "compress", "--model", plain, "--client", "a", "-o", out, "--calibrate", "5", "--secret",
		filepath.Join(dir, "secret"), photos)
	var i uploadInfo
	must.Do(t, json.Unmarshal([]byte(run(t, "inspect", "--json", out)), &i))
	sum := 0.0
	for _, mass := range i.ClassMass {
		sum += mass
	}
	if sum != 25 || i.N != 25 {
		t.Errorf("%d images, by class %v", i.N, i.ClassMass)
	}
	u := must.Get(federate.Decode(must.Get(os.ReadFile(out))(t), federate.Expect{}))(t)
	labelsOf := singles(u)
	y := labelsOf[0]
	few := i.ClassMass[y]
	for _, of := range labelsOf {
		if of == y {
			few--
		}
	}
	for name, c := range map[string]struct {
		within      *moments.Within
		calibration *point.Set
	}{
		"moments":     {&moments.Within{K: 32, Labels: labelsOf}, nil},
		"class means": {nil, u.Calibration},
	} {
		u.Within, u.Calibration = c.within, c.calibration
		if s := explainUpload(i, u); !strings.Contains(s, "- the features of 5 single images, 32 numbers each, with "+
			"their classes, by which the server makes prediction sets and may set its temperature; it can "+
			"tell that these images took part, and the classifier tells their scores\n") ||
			!strings.Contains(s, fmt.Sprintf("number %d (%g)", y, few)) {
			t.Errorf("%s: %s", name, s)
		}
	}
}

// TestPaidForStays: no command writes over a private upload or a report with noise of something
// else; the same release again does, and one that is drawn again takes its own place.
func TestPaidForStays(t *testing.T) {
	private, plain, c, dir := privateGraph(t), model(t, models.KindClient), classifier(t), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	with := func(args []string, more ...string) []string { return slices.Concat(args, more) }
	first, second := photosOf(t, 13), photosOf(t, 11)
	must.Do(t, must.Get(identity.New("a"))(t).Save(path("a.key")))
	compress := []string{"compress", "--model", private, "--client", "a", "--ledger", path("spent"), "--epsilon", "1"}
	shares := with(compress, "--noise", "two-servers", "--points", "20")
	public := []string{"compress", "--model", plain, "--client", "a"}
	counts := []string{"evaluate", "--model", c, "--key", path("a.key")}
	noisy := with(counts, "--ledger", path("spent"), "--epsilon", "1")
	for _, r := range []struct {
		args          []string
		flag, at, out string
	}{{compress, "-o", first, "one"}, {compress, "-o", second, "two"}, {shares, "-o", first, "shares"},
		{shares, "-o", second, "other.helper"}, {noisy, "--output", first, "one.json"},
		{noisy, "--output", second, "two.json"}} {
		run(t, with(r.args, r.flag, path(r.out), r.at)...)
	}
	paid := []string{"one", "two", "shares", "shares.helper", "other.helper", "other.helper.helper", "one.json",
		"two.json"}
	for name, r := range map[string]struct {
		args          []string
		flag, at, out string
		says          string
	}{
		"another, made before":       {compress, "-o", first, "two", "an upload of a private round already"},
		"another, drawn again":       {with(compress, "--redraw"), "-o", first, "two", "an upload of a private"},
		"another, fresh":             {with(compress, "--round", "2"), "-o", first, "two", "an upload of a private"},
		"a plain upload":             {public, "-o", second, "two", "an upload of a private round already"},
		"a helper's, made before":    {shares, "-o", first, "other", "other.helper is an upload of a private"},
		"a helper's, drawn again":    {with(shares, "--redraw"), "-o", first, "other", "other.helper is an upload"},
		"a helper's, fresh":          {with(shares, "--round", "2"), "-o", first, "other", "other.helper is an"},
		"an upload over a report":    {public, "-o", second, "two.json", "a report with noise already"},
		"a report, made before":      {noisy, "--output", first, "two.json", "a report with noise already"},
		"a report, drawn again":      {with(noisy, "--redraw"), "--output", first, "two.json", "a report with noise"},
		"a plain report":             {counts, "--output", second, "two.json", "a report with noise already"},
		"a report over an upload":    {counts, "--output", second, "two", "an upload of a private round already"},
		"the same upload":            {compress, "-o", first, "one", ""},
		"the same shares":            {shares, "-o", first, "shares", ""},
		"the same report":            {noisy, "--output", first, "one.json", ""},
		"the same upload, elsewhere": {compress, "-o", first, "copy", ""},
		"the same shares, elsewhere": {shares, "-o", first, "copied", ""},
	} {
		before := map[string][]byte{}
		for _, f := range paid {
			before[f] = must.Get(os.ReadFile(path(f)))(t)
		}
		args := with(r.args, r.flag, path(r.out), r.at)
		if r.says == "" {
			run(t, args...)
		} else {
			refuses(t, exitUsage, r.says, args...)
		}
		for f, want := range before {
			if got, err := os.ReadFile(path(f)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s was written over: %v", name, f, err)
			}
		}
	}
	for _, kind := range []string{"", ".helper"} {
		was, copied := must.Get(os.ReadFile(path("shares"+kind)))(t), must.Get(os.ReadFile(path("copied"+kind)))(t)
		if !bytes.Equal(was, copied) {
			t.Errorf("share %q was drawn again", kind)
		}
	}
	for _, r := range [][]string{with(compress, "--redraw", "-o", path("one"), first),
		with(shares, "--redraw", "-o", path("shares"), first),
		with(noisy, "--redraw", "--output", path("one.json"), first)} {
		run(t, r...)
	}
}

// TestNoiseIsSpent: a report with noise is charged to the ledger of private uploads before it is
// written; beyond the owner's limit nothing is written or sent; the same report is given again, and
// nothing is spent.
func TestNoiseIsSpent(t *testing.T) {
	c, dir := classifier(t), t.TempDir()
	photos := photosOf(t, 6)
	path := func(name string) string { return filepath.Join(dir, name) }
	key := must.Get(identity.New("a"))(t)
	must.Do(t, key.Save(path("a.key")))
	var out bytes.Buffer
	want := func(what string, code int, says string, args ...string) {
		t.Helper()
		var log bytes.Buffer
		out.Reset()
		got := execute(context.Background(),
			append([]string{"evaluate", "--model", c, "--key", path("a.key"), "--ledger", path("spent"),
				photos}, args...), &out, &log)
		if code != exitOK && out.Len() > 0 {
			t.Errorf("%s: %q was printed", what, out.String())
		}
		if got != code || !strings.Contains(log.String(), says) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", what, got, log.String(), code, says)
		}
	}
	read := func(name string) *tally.Report {
		t.Helper()
		data := must.Get(os.ReadFile(path(name)))(t)
		r := &tally.Report{}
		must.Do(t, json.Unmarshal(data, r))
		return r
	}
	noisy := []string{"--epsilon", "1", "--output"}
	want("over the limit", exitUsage, "--max-epsilon allows 0.9",
		append(noisy, path("none"), "--max-epsilon", "0.9")...)
	if _, err := os.Stat(path("none")); err == nil {
		t.Error("a report beyond the limit was written")
	}
	want("the first", exitOK, "", append(noisy, path("one"), "--max-epsilon", "1")...)
	want("the same again", exitOK, "nothing is spent",
		append(noisy, path("one"), "--max-epsilon", "1")...)
	want("the same elsewhere", exitOK, "nothing is spent",
		append(noisy, path("copy"), "--max-epsilon", "1")...)
	kept, copied := read("one"), read("copy")
	if !bytes.Equal(kept.Signature, copied.Signature) {
		t.Error("the noise was drawn again")
	}
	want("another round", exitOK, "with 1 earlier releases epsilon 1.4",
		append(noisy, path("two"), "--round", "2", "--max-epsilon", "1.5")...)
	want("another round in the same file", exitUsage, "is a report with noise already",
		append(noisy, path("one"), "--round", "3")...)
	want("drawn again, over the limit", exitUsage, "over 2 earlier releases",
		append(noisy, path("three"), "--redraw", "--max-epsilon", "1.5")...)
	want("signed and printed, over the limit", exitUsage, "--max-epsilon allows 0.9",
		append(noisy, path("none"), "--round", "4", "--json", "--max-epsilon", "0.9")...)
	want("signed and printed", exitOK, "nothing is spent", append(noisy, path("one"), "--json")...)
	if kept := must.Get(os.ReadFile(path("one")))(t); !bytes.Equal(out.Bytes(), kept) {
		t.Errorf("printed %s; kept is %s", out.Bytes(), kept)
	}
	write(t, filepath.Join(photos, "0", "bad.png"), []byte("no image"))
	want("an image that cannot be read", exitOK, "bad.png", append(noisy, path("bad"), "--round", "9")...)
	must.Do(t, os.Remove(filepath.Join(photos, "0", "bad.png")))
	one := must.Get(filepath.Glob(filepath.Join(photos, "0", "*")))(t)[0]
	for _, class := range []string{"0", "1"} { // its own, and another
		copied := filepath.Join(photos, class, "copy.png")
		write(t, copied, must.Get(os.ReadFile(one))(t))
		want("a copy in "+class, exitOK, "nothing is spent", append(noisy, path("one"), "--max-epsilon", "1")...)
		must.Do(t, os.Remove(copied))
	}
	must.Do(t, os.Remove(path("one")))
	want("a report that is gone", exitUsage, "--redraw", append(noisy, path("one"))...)
	if info, err := os.Stat(path("spent")); err != nil || info.Size() == 0 {
		t.Error(err)
	}
	// An upload of the same images, of another program's ledger of both.
	refuses(t, exitUsage, "over 3 earlier releases", "compress", "--model", privateGraph(t),
		"--client", "a", "-o", path("upload"), "--ledger", path("spent"), "--epsilon", "1",
		"--max-epsilon", "1.5", photos)
}

// TestNoiseOfRows: no feature row keeps a report with noise from being made, and a copy of one costs
// nothing; without noise a row that is not finite is an error.
func TestNoiseOfRows(t *testing.T) {
	path := newFolder(t)
	heads := onnx.NewTensor([]float64{10, -10, 0, 0}, 1, 2, 2)
	must.Do(t, serde.Save(path("c.onnx"), must.Get(models.NewClassifier(models.ClassifierParts{Heads: heads},
		models.Manifest{Dx: 1, C: 2}))(t)))
	must.Do(t, must.Get(identity.New("a"))(t).Save(path("a.key")))
	for name, last := range map[string]float64{"finite": 3, "a copy": 2, "NaN": math.NaN(), "wide": 1e300} {
		must.Do(t, npy.Save(path("x.npy"), onnx.NewTensor([]float64{1, 2, -2, last}, 4, 1)))
		must.Do(t, npy.Save(path("y.npy"), onnx.NewTensor([]int64{0, 0, 1, 0}, 4)))
		args := []string{"evaluate", "--model", path("c.onnx"), "--key", path("a.key"), "--labels", path("y.npy"),
			path("x.npy")}
		if name == "NaN" || name == "wide" {
			refuses(t, exitUsage, "row 3 has a number that is not finite", args...)
		}
		run(t, append(args, "--epsilon", "1", "--max-epsilon", "1", "--output", path(name), "--ledger",
			path(name+".ledger"))...)
	}
}
