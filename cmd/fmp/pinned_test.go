package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestPinned: images that examples build on are of exact versions, those of Go and NATS the
// module's own; packages of Python are of exact versions with digests, and pip is made to check
// them.
func TestPinned(t *testing.T) {
	module := must.Get(os.ReadFile("../../go.mod"))(t)
	of := func(pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindSubmatch(module)
		if m == nil {
			t.Fatalf("go.mod has no %s", pattern)
		}
		return string(m[1])
	}
	own := map[string]string{"golang": of(`(?m)^go (\S+)$`), "nats": of(`nats-server/v2 v(\S+)`)}
	exact := regexp.MustCompile(`^([a-z0-9./-]+):(\d+\.\d+(?:\.\d+)?)(-[a-z]+)?(@sha256:[0-9a-f]{64})?$`)
	image := regexp.MustCompile(`(?m)^\s*(?:- )?(?:FROM|image:) (\S+)`)
	images := 0
	walk := func(root string, visit func(path, text string)) {
		must.Do(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			visit(path, string(data))
			return err
		}))
	}
	walk("../../examples/deploy", func(path, text string) {
		for _, m := range image.FindAllStringSubmatch(text, -1) {
			if m[1] == "fmp" || m[1] == "build" { // what the Dockerfile makes
				continue
			}
			images++
			v := exact.FindStringSubmatch(m[1])
			if v == nil || own[v[1]] != "" && own[v[1]] != v[2] {
				t.Errorf("%s: image %s; want an exact version, of %v those of go.mod", path, m[1], own)
			}
		}
	})
	if images < 4 {
		t.Errorf("%d images were found; want the Dockerfile's two and both of NATS", images)
	}
	requirement := regexp.MustCompile(`(?m)^[A-Za-z0-9]\S*.*$`)
	pinned := regexp.MustCompile(`^[A-Za-z0-9._-]+(\[[a-z,]+\])?==[0-9][0-9A-Za-z.+]*( ; [^\\]*)? \\$`)
	for _, folder := range []string{"bench/peers", "bench/runtimes", "bench/service", "onnx/conformance/testdata"} {
		data := must.Get(os.ReadFile(filepath.Join("../..", folder, "requirements.txt")))(t)
		// a requirement's digests are on lines of their own
		text := strings.ReplaceAll(string(data), "\n    ", "\t")
		lines := requirement.FindAllString(text, -1)
		for _, line := range lines {
			head, digests, _ := strings.Cut(line, "\t")
			if !pinned.MatchString(head) || !strings.Contains(digests, "--hash=sha256:") {
				t.Errorf("%s: %s is not of one version with digests", folder, head)
			}
		}
		if len(lines) < 4 {
			t.Errorf("%s: %d requirements", folder, len(lines))
		}
	}
	makefile := must.Get(os.ReadFile("../../Makefile"))(t)
	for _, line := range strings.Split(string(makefile), "\n") {
		if strings.Contains(line, "pip install") && !strings.Contains(line, "--require-hashes -r ") {
			t.Errorf("Makefile: %s", line)
		}
	}
	collection := must.Get(os.ReadFile("../../onnx/internal/collection/collection.go"))(t)
	version := regexp.MustCompile(`const Version = "(.*)"`).FindSubmatch(collection)
	data, _ := os.ReadFile("../../onnx/conformance/testdata/requirements.txt")
	if version == nil || !strings.Contains(string(data), "onnx=="+string(version[1])+" ") {
		t.Errorf("the standard's tests are of version %s; its package is another", version)
	}
}
