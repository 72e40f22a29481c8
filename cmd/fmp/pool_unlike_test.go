package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
)

// TestPoolUnlike: where clients give two classes each other's names, fmp pool says that the corpus's
// images of these do not count, and of no class where names are right.
func TestPoolUnlike(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	fmp := func(args ...string) string { t.Helper(); return onPure(t, args...) }
	fmp("train", "conjugate", "--dataset", "digits", "--images", "--steps", "1", "-o", at("images.onnx"))
	for name, swapped := range map[string]bool{"right": false, "swapped": true} {
		args := []string{"pool", "--rows", "--samples", "5", "--predictor", at("images.onnx"),
			"-o", at(name + ".onnx")}
		for i := range 3 {
			file := at(fmt.Sprint(name, i, ".upload"))
			fmp("anchor", "--dataset", "digits", "--images", "20", "--seed", fmt.Sprint(i+1), "-o", file)
			u := must.Get(federate.Decode(must.Get(os.ReadFile(file))(t), federate.Expect{}))(t)
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
