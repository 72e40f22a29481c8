// Command release packs the programs of a version: archives by platform, Debian packages, a
// container image of the client, and digests.
//
//	go run ./docs/release -bin bin/release -out dist
//
// make release builds the programs before and signs the folder after. The same programs give the
// same bytes: entries are sorted, owned by root, and as old as the commit ($SOURCE_DATE_EPOCH).
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	stamp "debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"fmp/cmd/buildinfo"
	"fmp/onnx/engine/ort"
)

// platforms are those of a release. The client is built for all, fmp where there is a C compiler
// for it.
var platforms = []string{"linux/amd64", "linux/arm64", "linux/armv7", "linux/riscv64",
	"darwin/arm64", "windows/amd64"}

// bundled are the platforms whose archives hold the ONNX Runtime. That of Windows needs DirectML,
// which has terms of its own.
var bundled = []string{"linux/amd64", "linux/arm64"}

// debian names the architectures of Debian that packages are made for.
var debian = map[string]string{"linux/amd64": "amd64", "linux/arm64": "arm64"}

// microsoft is the copyright of the ONNX Runtime; its licence has the words of ours.
const microsoft = "Copyright (c) Microsoft Corporation"

// main checks all programs before the folder is made.
func main() {
	bin := flag.String("bin", "bin/release", "folder of the programs, PROGRAM-OS-ARCH")
	out := flag.String("out", "dist", "folder to write; it must not be there")
	flag.Parse()
	head, _ := exec.Command("git", "rev-parse", "HEAD").Output() // none of sources without git
	err := stamped(*bin, string(bytes.TrimSpace(head)))
	if err == nil {
		err = release(context.Background(), *bin, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// stamped refuses programs that do not say the commit of the sources: the Go tool stamps none in a
// worktree of git, without an error.
func stamped(bin, commit string) error {
	programs, err := filepath.Glob(filepath.Join(bin, "fmp*-*"))
	if err != nil || commit == "" {
		return err
	}
	for _, path := range programs {
		if strings.HasSuffix(path, ".json") { // a bill of materials
			continue
		}
		info, err := stamp.ReadFile(path)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
			return s.Key == "vcs.revision" && s.Value == commit
		}) {
			return fmt.Errorf("%s: it does not say the commit %.12s, as Go leaves it out in a "+
				"worktree of git; build in a clone: git clone . FOLDER", path, commit)
		}
	}
	return nil
}

// release writes all files of a release into a new folder. A folder that is there is an error, so
// that no file of another release stands among them. On an error the new folder is left with the
// files written so far.
func release(ctx context.Context, bin, out string) error {
	when, err := commitTime()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return fmt.Errorf("%w; remove it, or give another -out", err)
	}
	var clients []image
	for _, p := range platforms {
		files, err := contents(ctx, bin, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		name := "fmp-" + buildinfo.Next + "-" + strings.ReplaceAll(p, "/", "-")
		write, end := tarGzip, ".tar.gz"
		if strings.HasPrefix(p, "windows/") {
			write, end = zipped, ".zip"
		}
		if err := save(out, name+end)(write(name, files, when)); err != nil {
			return err
		}
		if arch, ok := debian[p]; ok {
			if err := save(out,
				"fmp_"+buildinfo.Next+"_"+arch+".deb")(deb(arch, files, when)); err != nil {
				return err
			}
			clients = append(clients, imageOf(arch, files))
		}
		for _, program := range []string{"fmp", "fmp-edge"} {
			bom := program + "-" + strings.ReplaceAll(p, "/", "-") + ".cdx.json"
			data, err := os.ReadFile(filepath.Join(bin, bom))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := save(out, bom)(data, err); err != nil {
				return err
			}
		}
	}
	if err := save(out, "fmp-edge-"+buildinfo.Next+".oci.tar")(oci(clients, when)); err != nil {
		return err
	}
	return digests(out)
}

// contents returns the files of a platform's archive: its programs, the ONNX Runtime, and the
// licences.
func contents(ctx context.Context, bin, platform string) ([]file, error) {
	var files []file
	add := func(path, name string, mode int64) error {
		data, err := os.ReadFile(path)
		if err == nil {
			files = append(files, file{name, mode, data})
		}
		return err
	}
	end := ""
	if strings.HasPrefix(platform, "windows/") {
		end = ".exe"
	}
	for _, program := range []string{"fmp-edge", "fmp"} {
		path := filepath.Join(bin, program+"-"+strings.ReplaceAll(platform, "/", "-")+end)
		err := add(path, program+end, 0o755)
		if program == "fmp" && errors.Is(err, fs.ErrNotExist) {
			fmt.Printf("%s: fmp-edge alone, as %s was not built\n", platform, path)
			break
		}
		if err != nil {
			return nil, err
		}
		if program == "fmp" && slices.Contains(bundled, platform) {
			dir := filepath.Join(bin, "onnxruntime-"+strings.ReplaceAll(platform, "/", "-"))
			path, err := ort.FetchFor(ctx, platform, dir, func(s string) { fmt.Println(s) })
			if err != nil {
				return nil, err
			}
			if err := add(path, filepath.Base(path), 0o644); err != nil {
				return nil, err
			}
			ours, err := os.ReadFile("LICENSE")
			if err != nil {
				return nil, err
			}
			files = append(files,
				file{"LICENSE.onnxruntime", 0o644, copyright.ReplaceAll(ours, []byte(microsoft))})
		}
	}
	for _, name := range []string{"LICENSE", "THIRD_PARTY.md", "CHANGELOG.md"} {
		if err := add(name, name, 0o644); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// commitTime returns $SOURCE_DATE_EPOCH, or the time of the commit.
func commitTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the time of the commit: %w; set SOURCE_DATE_EPOCH", err)
		}
		text = string(bytes.TrimSpace(out))
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}

// save writes a file that was made without an error. It is called with a maker's results, as in
// save(dir, name)(oci(clients, when)).
func save(dir, name string) func(data []byte, err error) error {
	return func(data []byte, err error) error {
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d bytes\n", name, len(data))
		return os.WriteFile(filepath.Join(dir, name), data, 0o644)
	}
}

// digests writes SHA256SUMS of all files, as sha256sum -c reads it. Lines are in the order of the
// names.
func digests(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return save(dir, "SHA256SUMS")([]byte(b.String()), nil)
}
