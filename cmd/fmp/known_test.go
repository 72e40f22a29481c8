package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/featurize/published"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/client"
)

var update = flag.Bool("update", false,
	"write the digests of known extractors anew, of published ones those that are here")

// TestKnown: the digests that clients know extractors by are those of the graphs that come with the
// program and that fmp extractors pull makes. Of a published extractor that is not here its line is
// taken as it is.
func TestKnown(t *testing.T) {
	const file = "../../pipeline/client/known.txt"
	digest := func(graph []byte) string { return must.Get(client.Parse(graph, 1))(t).Parsed.Extractor }
	want := map[string]string{}
	names := []string{"digits", "digits-color", "mnist", "cifar10", "cifar100"}
	for _, name := range names {
		want[name] = digest(assetstest.Data(t, name, models.KindClient))
	}
	if d := digest(assetstest.PrivateClient(t)); d != want["digits"] {
		t.Errorf("the extractor of a private round's graph has digest %s, that of a plain one %s",
			d, want["digits"])
	}
	for _, e := range must.Get(published.List())(t) {
		names = append(names, e.Name)
		if e.Path == "" {
			continue
		}
		out := filepath.Join(t.TempDir(), "client.onnx")
		ran(t, "fuse", "--extractor", e.Name, "--class-names", "a,b", "--engine", "pure", "-o", out)
		want[e.Name] = digest(read(t, out))
	}
	var lines []string
	for line := range strings.Lines(string(read(t, file))) {
		d, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if w, ok := want[name]; ok && w != d {
			t.Errorf("%s has digest %s; the file says %s: go test ./cmd/fmp -run TestKnown -update",
				name, w, d)
			d = w
		}
		lines = append(lines, d+" "+name+"\n")
		at := slices.Index(names, name)
		if at < 0 || client.Known(strings.Fields(line)[0]) != name {
			t.Errorf("%q is no extractor of ours, or stands twice", name)
			continue
		}
		names = slices.Delete(names, at, at+1)
	}
	if len(names) > 0 {
		t.Errorf("the file lacks %v", names)
	}
	if *update {
		must.Do(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644))
	}
}
