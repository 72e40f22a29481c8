package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/cmd/buildinfo"
	"fmp/onnx/must"
)

// TestRelease: the same programs give the same bytes at another time in another folder, digests are
// those of the files, and archive, package and image hold the programs as they are.
func TestRelease(t *testing.T) {
	t.Chdir("../..")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	var trees [2]map[string][]byte
	for i := range trees {
		bin, out := t.TempDir(), filepath.Join(t.TempDir(), "dist")
		for _, p := range platforms {
			name := "fmp-edge-" + strings.ReplaceAll(p, "/", "-")
			if strings.HasPrefix(p, "windows/") {
				name += ".exe"
			}
			must.Do(t, os.WriteFile(filepath.Join(bin, name), []byte("client of "+p), 0o700))
		}
		must.Do(t, release(t.Context(), bin, out))
		if err := release(t.Context(), bin, out); err == nil {
			t.Error("a folder that is there was written to")
		}
		trees[i] = map[string][]byte{}
		for _, path := range must.Get(filepath.Glob(filepath.Join(out, "*")))(t) {
			data := must.Get(os.ReadFile(path))(t)
			trees[i][filepath.Base(path)] = data
		}
	}
	if len(trees[0]) != len(platforms)+2+1+1 {
		t.Errorf("%d files", len(trees[0]))
	}
	for name, data := range trees[0] {
		if !bytes.Equal(data, trees[1][name]) {
			t.Errorf("%s differs between two builds", name)
		}
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name)
		if name != "SHA256SUMS" && !strings.Contains(string(trees[0]["SHA256SUMS"]), line) {
			t.Errorf("SHA256SUMS has no line %q", line)
		}
	}
	name := "fmp-" + buildinfo.Next + "-linux-amd64"
	got := untar(t, gunzip(t, trees[0][name+".tar.gz"]))
	if string(got[name+"/fmp-edge"]) != "client of linux/amd64" || len(got[name+"/LICENSE"]) == 0 {
		t.Errorf("the archive holds %v", slices.Sorted(maps.Keys(got)))
	}
	members := unar(t, trees[0]["fmp_"+buildinfo.Next+"_amd64.deb"])
	if string(members["debian-binary"]) != "2.0\n" {
		t.Errorf("the package is of version %q", members["debian-binary"])
	}
	if control := untar(t, gunzip(t, members["control.tar.gz"]))["control"]; !strings.Contains(
		string(control), "Architecture: amd64\n") {
		t.Errorf("control says %s", control)
	}
	tree := untar(t, gunzip(t, members["data.tar.gz"]))
	if string(tree["usr/lib/fmp/fmp-edge"]) != "client of linux/amd64" {
		t.Errorf("the package holds %v", slices.Sorted(maps.Keys(tree)))
	}
	for name := range tree { // dpkg makes no folder by itself
		if parent := path.Dir(strings.TrimSuffix(name, "/")) + "/"; parent != "./" &&
			tree[parent] == nil {
			t.Errorf("the package has %s, and no folder %s before it", name, parent)
		}
	}
	image := untar(t, trees[0]["fmp-edge-"+buildinfo.Next+".oci.tar"])
	var index struct {
		Manifests []struct {
			Digest, MediaType string
			Annotations       map[string]string
		}
	}
	read := func(data []byte, want int) {
		t.Helper()
		if err := json.Unmarshal(data, &index); err != nil || len(index.Manifests) != want {
			t.Fatalf("index %s: %v; want %d manifests", data, err, want)
		}
	}
	read(image["index.json"], 1) // one image, of any platform
	if name := index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != buildinfo.Next {
		t.Errorf("the image's tag is %q, want %q", name, buildinfo.Next)
	}
	read(image["blobs/sha256/"+strings.TrimPrefix(index.Manifests[0].Digest, "sha256:")], 2)
	layers := 0
	for _, data := range image {
		if bytes.Contains(data, []byte("client of linux/")) {
			layers++
			held := slices.Sorted(maps.Keys(untar(t, data)))
			want := []string{"fmp-edge", "licenses/", "licenses/LICENSE", "licenses/THIRD_PARTY.md"}
			if !slices.Equal(held, want) {
				t.Errorf("a layer of the image holds %v; want %v", held, want)
			}
		}
	}
	if layers != 2 {
		t.Errorf("%d layers", layers)
	}
	for name, data := range image {
		if sum, ok := strings.CutPrefix(name, "blobs/sha256/"); ok &&
			fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("blob %s has another digest", name)
		}
	}
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	z := must.Get(gzip.NewReader(bytes.NewReader(data)))(t)
	return must.Get(io.ReadAll(z))(t)
}

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = must.Get(io.ReadAll(r))(t)
	}
}

// unar reads an ar archive.
func unar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	rest, ok := bytes.CutPrefix(data, []byte("!<arch>\n"))
	out := map[string][]byte{}
	for len(rest) > 0 && ok {
		var n int
		if _, err := fmt.Sscan(string(rest[48:58]), &n); err != nil || string(rest[58:60]) != "`\n" {
			t.Fatalf("header %q: %v", rest[:60], err)
		}
		out[strings.TrimSpace(string(rest[:16]))] = rest[60 : 60+n]
		rest = rest[60+n+n%2:]
	}
	return out
}

// TestStamped: programs of a release say the commit of their sources, which Go leaves out in a
// worktree of git.
func TestStamped(t *testing.T) {
	root := t.TempDir()
	clone, worktree, bin := filepath.Join(root, "clone"), filepath.Join(root, "worktree"), filepath.Join(root, "bin")
	run := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a",
			"GIT_AUTHOR_EMAIL=a@example.invalid", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.invalid")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, dir := range []string{clone, bin} {
		must.Do(t, os.Mkdir(dir, 0o755))
	}
	must.Do(t, os.WriteFile(filepath.Join(clone, "go.mod"), []byte("module fmp\n\ngo 1.26\n"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(clone, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	run(clone, "git", "init", "-q")
	run(clone, "git", "add", ".")
	run(clone, "git", "commit", "-qm", "a")
	run(clone, "git", "worktree", "add", "-q", worktree)
	commit, program := run(clone, "git", "rev-parse", "HEAD"), filepath.Join(bin, "fmp-edge-linux-amd64")
	must.Do(t, os.WriteFile(program+".cdx.json", nil, 0o600))
	for _, k := range []struct{ name, from, commit, err string }{
		{"a clone", clone, commit, ""},
		{"another commit", clone, strings.Repeat("0", 40), "does not say the commit 000000000000"},
		{"a worktree", worktree, commit, "build in a clone"},
		{"sources without git", worktree, "", ""},
	} {
		run(k.from, "go", "build", "-buildvcs=true", "-o", program, ".")
		if err := stamped(bin, k.commit); k.err == "" {
			must.Do(t, err)
		} else {
			must.Fail(0, err)(t, k.err, k.name)
		}
	}
	must.Do(t, os.WriteFile(program, []byte("no program"), 0o600))
	must.Fail(0, stamped(bin, commit))(t, "fmp-edge")
}
