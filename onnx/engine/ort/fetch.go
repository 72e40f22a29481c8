package ort

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// npmPackage is the published package that carries the library for every platform.
const npmPackage = "onnxruntime-node@" + PinnedVersion

// libraryFile is one file of the package that a platform needs.
type libraryFile struct {
	member string // path inside the package
	name   string // file name in the cache
	sha256 string // recorded when this version was adopted
}

// libraryFiles lists them by GOOS/GOARCH; the library itself comes last, so that it is only in
// place when all that it loads is.
var libraryFiles = map[string][]libraryFile{
	"linux/amd64": {{"package/bin/napi-v6/linux/x64/libonnxruntime.so.1",
		"libonnxruntime.so." + PinnedVersion,
		"d8aff4aa8abee8fb2abb2f2f2459ffc94461e781e41b9f7c072829dd0d470221"}},
	"linux/arm64": {{"package/bin/napi-v6/linux/arm64/libonnxruntime.so.1",
		"libonnxruntime.so." + PinnedVersion,
		"c36bc200e7e6c093b8abb0b34590fbdd8c52fd3fb5e33795b9523ffdde2fce0f"}},
	"darwin/arm64": {{"package/bin/napi-v6/darwin/arm64/libonnxruntime.1.27.0.dylib",
		"libonnxruntime." + PinnedVersion + ".dylib",
		"89f692a3a1a224e4ad0b796b0e7c0bd81113b0741bfe84211eceef14d05a9e59"}},
	"windows/amd64": {{"package/bin/napi-v6/win32/x64/DirectML.dll", "DirectML.dll",
		"86d9b418e982fa1effb6ea39cb916b04fe3896ccedc6982d73a5477459b56d81"},
		{"package/bin/napi-v6/win32/x64/onnxruntime.dll", "onnxruntime.dll",
			"273f9ef9cf755c6a0f342226a80448156c10ceb74db2ae8c8370dc98e75af0eb"}},
	"windows/arm64": {{"package/bin/napi-v6/win32/arm64/DirectML.dll", "DirectML.dll",
		"759a2d3054d4ce583186bd6f0b5c36071492b3dfba8be456b69f1b17b313171c"},
		{"package/bin/napi-v6/win32/arm64/onnxruntime.dll", "onnxruntime.dll",
			"908ce63e73f375e90daabe24c52486b42392c19df3d63973a26f871cfeab5453"}},
}

// The bound is against an archive that unpacks without end.
// maxLibraryBytes bounds the unpacked bytes; the largest library today has 39 MB.
const maxLibraryBytes = 256 << 20

// Fetch brings the ONNX Runtime's library ([PinnedVersion]) for this platform into [CacheDir] with
// npm, which checks the package against the registry's digest; the library is checked against the
// digest recorded here, and only then moved into place. A library that is there already and has the
// right digest is left alone. say receives a line for each step; it may be nil.
func Fetch(ctx context.Context, say func(string)) (path string, err error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	files, ok := libraryFiles[platform]
	if !ok {
		return "", fmt.Errorf("there is no published ONNX Runtime library for %s in %s; build one and "+
			"set %s to its path, or use the pure engine (engine.name=pure)",
			platform, npmPackage, LibraryEnv)
	}
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	if say == nil {
		say = func(string) {}
	}
	return fetch(ctx, dir, files, say)
}

// FetchFor brings the library of another platform (GOOS/GOARCH) into a folder, as [Fetch] does that
// of this one.
func FetchFor(ctx context.Context, platform, dir string,
	say func(string)) (path string, err error) {
	files, ok := libraryFiles[platform]
	if !ok {
		return "", fmt.Errorf("there is no published ONNX Runtime library for %s in %s",
			platform, npmPackage)
	}
	return fetch(ctx, dir, files, say)
}

// fetch has npm pack the package in a folder beside dir, and renames its files into dir once their
// digests are right. The last of files is the library. On an error the folder beside dir is
// removed, and files in dir are as they were or new and verified.
func fetch(ctx context.Context, dir string, files []libraryFile,
	say func(string)) (path string, err error) {
	path = filepath.Join(dir, files[len(files)-1].name)
	if err := present(dir, files); err == nil {
		say("the ONNX Runtime " + PinnedVersion + " is there: " + path)
		return path, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		say(fmt.Sprintf("fetching it again: %v", err))
	}
	defer func() {
		if err != nil {
			path, err = "", fmt.Errorf("fetching the ONNX Runtime %s into %s: %w",
				PinnedVersion, dir, err)
		}
	}()
	npm, err := exec.LookPath("npm")
	if err != nil {
		return path, fmt.Errorf("npm is not installed; install Node.js, or download the library from "+
			"the ONNX Runtime's releases and set %s to its path", LibraryEnv)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return path, err
	}
	// Beside the cache folder, so that files can be renamed into it. Folders that a killed run left
	// are removed once they are an hour old.
	if err := atomicfile.RemoveStale(filepath.Dir(dir), ".fetch-", time.Hour); err != nil {
		return path, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".fetch-*.tmp")
	if err != nil {
		return path, err
	}
	defer os.RemoveAll(tmp)
	say("fetching the ONNX Runtime " + PinnedVersion + " with npm (100 MB, once)")
	// npm pack brings the archive alone. npm install would run scripts and bring dependencies.
	cmd := exec.CommandContext(ctx, npm, "pack", npmPackage, "--silent", "--pack-destination", ".")
	cmd.Dir = tmp
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		// A process that the context killed is reported as the context's error.
		if ctx.Err() != nil {
			return path, ctx.Err()
		}
		return path, fmt.Errorf(
			"npm pack %s: %w: %s; check the network and npm's settings (npm config get registry)",
			npmPackage, err, tail(stderr.String(), 400))
	}
	archives, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return path, fmt.Errorf("npm pack %s left %d archives; want 1", npmPackage, len(archives))
	}
	if err := unpack(ctx, archives[0], tmp, files); err != nil {
		return path, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return path, err
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(tmp, f.name), filepath.Join(dir, f.name)); err != nil {
			return path, err
		}
	}
	say("installed and verified: " + path)
	return path, nil
}

// present reports whether every file is in dir with its digest; os.ErrNotExist where one is not
// there. It reads every file whole.
func present(dir string, files []libraryFile) error {
	for _, f := range files {
		r, err := regularfile.Open(filepath.Join(dir, f.name))
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, r)
		r.Close()
		if err != nil {
			return err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != f.sha256 {
			return fmt.Errorf("%s has the digest %s; want %s", filepath.Join(dir, f.name),
				got, f.sha256)
		}
	}
	return nil
}

// checkCached returns an error for a library in the cache, or beside the program under the name
// that releases give it, that is not the published one, with all that it loads. The file is read
// whole, once a process: its time and size prove nothing, as both can be set. real is path without
// symbolic links. A library elsewhere is the user's own.
func checkCached(path, real string) error {
	dir, err := CacheDir()
	if err != nil {
		return nil // then none is there
	}
	files, known := libraryFiles[runtime.GOOS+"/"+runtime.GOARCH]
	whole := dir
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		whole = resolved
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	if !known {
		return nil
	}
	if beside := besideProgram(); beside != "" && real == beside {
		dir = filepath.Dir(beside)
	} else if filepath.Dir(path) != dir && filepath.Dir(real) != whole {
		return nil
	}
	if err := present(dir, files); err != nil {
		return fmt.Errorf("the ONNX Runtime in %s is not the published one and is not loaded: %w; fmp "+
			"setup fetches it again", dir, err)
	}
	return nil
}

// unpack takes the wanted files, and nothing else, out of a gzipped tar archive into dir, and
// checks their digests.
func unpack(ctx context.Context, archive, dir string, files []libraryFile) error {
	in, err := regularfile.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("reading %s: %w", filepath.Base(archive), err)
	}
	wanted := map[string]libraryFile{}
	for _, f := range files {
		wanted[f.member] = f
	}
	r := tar.NewReader(z)
	for len(wanted) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", filepath.Base(archive), err)
		}
		f, ok := wanted[h.Name]
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		// The header's size is refused first, and the reader is bounded all the same.
		if h.Size > maxLibraryBytes {
			return fmt.Errorf("%s has %d bytes; allowed are %d", h.Name, h.Size, maxLibraryBytes)
		}
		// The file's name comes from the table above, since paths of an archive may be hostile.
		sum, err := write(filepath.Join(dir, f.name), io.LimitReader(r, maxLibraryBytes))
		if err != nil {
			return err
		}
		if sum != f.sha256 {
			return fmt.Errorf(
				"%s has the digest %s; want %s: it is not the published library and was not installed",
				h.Name, sum, f.sha256)
		}
		delete(wanted, h.Name)
	}
	// One missing member is enough for the error.
	for m := range wanted {
		return fmt.Errorf("the package %s holds no %s", npmPackage, m)
	}
	return nil
}

// write copies r to a new file at path, synced, and returns the SHA-256 of the bytes written. A
// file that is there already is an error.
func write(path string, r io.Reader) (sum string, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), r); err != nil {
		return "", fmt.Errorf("unpacking %s: %w", filepath.Base(path), err)
	}
	return hex.EncodeToString(h.Sum(nil)), f.Sync()
}

// tail keeps the last n bytes of a text, which may begin within a character.
func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) > n {
		s = "..." + s[len(s)-n:]
	}
	return s
}
