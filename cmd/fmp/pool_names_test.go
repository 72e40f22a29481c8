package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
)

// TestPoolNames: the program's corpus counts in a round of two of its classes, in the order of the
// round; where it lacks one by name, fmp pool says which.
func TestPoolNames(t *testing.T) {
	at := newFolder(t)
	fmp := func(args ...string) string { t.Helper(); return onPure(t, args...) }
	fmp("fuse", "--dataset", "digits", "--class-names", "8,3", "--set", "open.model=none", "-o", at("closed.onnx"))
	refused(t, exitUsage, "names that the corpus lacks", "fuse", "--dataset", "digits",
		"--class-names", "8,fox", "--set", "open.model=none", "-o", at("none.onnx"))
	var uploads []string
	for _, c := range []struct{ names, unknown string }{{"8,3", ""}, {"8,three", "three"}} {
		graph := at(c.names + ".onnx")
		fmp("fuse", "--dataset", "digits", "--class-names", c.names, "-o", graph)
		for i := range 3 {
			file := at(fmt.Sprint(c.names, i, ".upload"))
			if c.unknown == "" {
				fmp("anchor", "--dataset", "digits", "--client-graph", graph, "--images", "20", "--seed", fmt.Sprint(i+1),
					"-o", file)
				uploads = append(uploads, file)
			}
			u := decoded(t, uploads[i])
			u.Client, u.Model = fmt.Sprint("client ", i), must.Get(models.DigestFile(graph, 1<<30))(t)
			must.Do(t, os.WriteFile(file, must.Get(u.Encode())(t), 0o600))
		}
		args := []string{"pool", "--samples", "5", "--client-graph", graph, "-o", at("c.onnx"),
			at(c.names + "0.upload"), at(c.names + "1.upload"), at(c.names + "2.upload")}
		got := answer[pooled](t, append(args, "--json", "--engine.name", "pure")...)
		if (got.Named != nil) != (c.unknown == "") || strings.Join(got.Unknown, ",") != c.unknown ||
			!slices.Equal(got.Classes, strings.Split(c.names, ",")) {
			t.Errorf("%s: classes %v, the corpus counts: %v, lacks %v", c.names, got.Classes, got.Named != nil, got.Unknown)
		}
		text := fmp(args...)
		if strings.Contains(text, "the corpus has no class three") != (c.unknown != "") ||
			strings.Contains(text, "of its images count") != (c.unknown == "") {
			t.Errorf("%s: printed is %s", c.names, text)
		}
		if text := fmp(append(args, "--scope", "open")...); !strings.Contains(text, "open: by --scope (novelty ") {
			t.Errorf("%s: printed is %s", c.names, text)
		}
		if c.unknown != "" {
			continue
		}
		if text := fmp(append(args, "--scope", "closed")...); !strings.Contains(text, "closed: by --scope\n") {
			t.Errorf("%s: printed is %s", c.names, text)
		}
	}
}

// TestPoolScope: what is printed of a round's scope.
func TestPoolScope(t *testing.T) {
	novelty := 2.5
	for want, p := range map[string]pooled{
		"closed: of the corpus's classes":                    {Scope: "closed", known: true},
		"open: of classes that the corpus lacks":             {Scope: "open"},
		"open: images unlike the corpus's of the same names": {Scope: "open", known: true},
		"open: by --scope":                                   {Scope: "open", known: true, asked: true},
	} {
		p.Novelty, p.Shape = &novelty, []int{1, 2, 2}
		var b strings.Builder
		p.print(&b)
		if !strings.Contains(b.String(), "scope:      "+want+" (novelty 2.50") {
			t.Errorf("%+v: printed is %s", p, b.String())
		}
	}
	for want, p := range map[string]pooled{
		"scope:      closed: by --scope\n": {Scope: "closed", asked: true},
		"":                                 {Scope: "closed"},
	} {
		p.Shape = []int{1, 2, 2}
		var b strings.Builder
		if p.print(&b); !strings.Contains(b.String(), want) || want == "" && strings.Contains(b.String(), "scope:") {
			t.Errorf("%+v: printed is %s, want %q", p, b.String(), want)
		}
	}
}

// TestFuseWithoutImages: a client graph behind an extractor that comes with the program needs no image
// of its data set.
func TestFuseWithoutImages(t *testing.T) {
	t.Setenv("FMP_DATA", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "client.onnx")
	for _, args := range [][]string{{"--dataset", "cifar10", "--class-names", "cat,dog"}, {"--dataset", "mnist"}} {
		ran(t, append(append([]string{"fuse"}, args...), "-o", file)...)
	}
	refused(t, exitMissing, "cifar10", "fuse", "--dataset", "cifar10", "--dataset.dir", t.TempDir(), "-o", file)
}

// TestPoolUnlike: where clients give two classes each other's names, fmp pool says that the corpus's
// images of these do not count, and of no class where names are right.
func TestPoolUnlike(t *testing.T) {
	at := newFolder(t)
	fmp := func(args ...string) string { t.Helper(); return onPure(t, args...) }
	fmp("train", "conjugate", "--dataset", "digits", "--images", "--steps", "1", "-o", at("images.onnx"))
	for name, swapped := range map[string]bool{"right": false, "swapped": true} {
		args := []string{"pool", "--rows", "--samples", "5", "--predictor", at("images.onnx"),
			"-o", at(name + ".onnx")}
		for i := range 3 {
			file := at(fmt.Sprint(name, i, ".upload"))
			fmp("anchor", "--dataset", "digits", "--images", "20", "--seed", fmt.Sprint(i+1), "-o", file)
			u := decoded(t, file)
			if u.Client = fmt.Sprint("client ", i); swapped {
				for j := range u.Points.Dx {
					three, eight := u.Points.Row(3), u.Points.Row(8)
					three[j], eight[j] = eight[j], three[j]
				}
			}
			must.Do(t, os.WriteFile(file, must.Get(u.Encode())(t), 0o600))
			args = append(args, file)
		}
		got := answer[pooled](t, append(args, "--json", "--engine.name", "pure")...)
		var want []string
		if swapped {
			want = []string{"3", "8"}
		}
		if got.Named == nil || !slices.Equal(got.Unlike, want) {
			t.Errorf("%s names: images of %v do not count, want %v", name, got.Unlike, want)
		}
		text := fmp(args...)
		if strings.Contains(text, "not those of 3, 8: the clients' lie elsewhere") != swapped {
			t.Errorf("%s names: printed is %s", name, text)
		}
	}
}
