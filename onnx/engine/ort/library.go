package ort

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
)

const (
	// PinnedVersion is the version of the ONNX Runtime that this package is made for, and that
	// [Fetch] brings.
	PinnedVersion = "1.27.0"
	// MinVersion is the oldest one that offers the programming interface that onnxruntime_go asks
	// for (its header says ORT_API_VERSION 24).
	MinVersion = "1.24"
	// LibraryEnv names the environment variable that holds the library's path.
	LibraryEnv = "ONNXRUNTIME_LIB"
)

// ErrNoLibrary is wrapped by every error that says that the ONNX Runtime's library was not found.
var ErrNoLibrary = errors.New("the ONNX Runtime library was not found")

// FindLibrary looks for the ONNX Runtime's shared library, in this order: the setting (a path; ""
// where there is none) or else $ONNXRUNTIME_LIB, the program's own folder, the system's library
// folders, and the cache ([CacheDir]). A setting that does not lead to a file is an error: it is
// never silently replaced by something else. tried lists the places that were looked at. A system's
// library whose name tells a version before [MinVersion] is passed over and listed with the reason.
func FindLibrary(setting string) (path string, tried []string, err error) {
	from := "engine.library"
	if setting == "" {
		setting, from = os.Getenv(LibraryEnv), "$"+LibraryEnv
	}
	if setting != "" {
		tried = append(tried, setting)
		st, err := os.Stat(setting)
		if err != nil {
			return "", tried, fmt.Errorf("%w: %s is %s: %w; correct it, or unset it to search",
				ErrNoLibrary, from, setting, err)
		}
		if st.IsDir() {
			return "", tried, fmt.Errorf("%w: %s is %s, which is a folder; name the file itself (%s)",
				ErrNoLibrary, from, setting, libraryNames()[0])
		}
		return setting, tried, nil
	}
	// A release has the library beside its program, in the version that it is made for.
	if p := besideProgram(); p != "" {
		return p, append(tried, p), nil
	}
	for _, dir := range systemDirs() {
		for _, name := range libraryNames() {
			p := filepath.Join(dir, name)
			if !isFile(p) {
				continue
			}
			if v, ok := fileVersion(p); ok && older(v, MinVersion) {
				tried = append(tried, fmt.Sprintf(
					"%s (version %s is too old, %s is the oldest that works)", p, v, MinVersion))
				continue
			}
			return p, append(tried, p), nil
		}
		tried = append(tried, filepath.Join(dir, libraryNames()[0]))
	}
	dir, err := CacheDir()
	if err != nil {
		return "", tried, fmt.Errorf("%w: %w", ErrNoLibrary, err)
	}
	p := filepath.Join(dir, libraryNames()[0])
	tried = append(tried, p)
	if isFile(p) {
		return p, tried, nil
	}
	return "", tried, fmt.Errorf(
		"%w (looked at %s); run `make setup` or `fmp setup` to fetch it, or set %s to its path",
		ErrNoLibrary, strings.Join(tried, ", "), LibraryEnv)
}

// program is the path of the running program; a variable for tests.
var program = os.Executable

// besideProgram returns the library of a release, which lies in the folder of its program; "" where
// there is none.
func besideProgram() string {
	exe, err := program()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if p := filepath.Join(filepath.Dir(exe), libraryNames()[0]); err == nil && isFile(p) {
		return p
	}
	return ""
}

// CacheDir returns the folder that [Fetch] puts the library into: fmp/onnxruntime/VERSION in
// $XDG_CACHE_HOME, or in the system's folder for caches.
func CacheDir() (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		var err error
		if base, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("no folder for caches: %w; set XDG_CACHE_HOME", err)
		}
	}
	return filepath.Join(base, "fmp", "onnxruntime", PinnedVersion), nil
}

// libraryNames are the file names of the library on this system, the one in the cache first.
func libraryNames() []string {
	switch runtime.GOOS {
	case "windows":
		return []string{"onnxruntime.dll"}
	case "darwin":
		return []string{"libonnxruntime." + PinnedVersion + ".dylib", "libonnxruntime.1.dylib",
			"libonnxruntime.dylib"}
	}
	return []string{"libonnxruntime.so." + PinnedVersion, "libonnxruntime.so.1",
		"libonnxruntime.so"}
}

// systemDirs are the folders where the system keeps libraries. Windows' own folder is left out on
// purpose: the onnxruntime.dll there is part of Windows, and old.
func systemDirs() []string {
	var dirs []string
	switch runtime.GOOS {
	case "windows":
		dirs = filepath.SplitList(os.Getenv("PATH"))
		root := strings.ToLower(os.Getenv("SystemRoot"))
		kept := dirs[:0]
		for _, d := range dirs {
			if root == "" || !strings.HasPrefix(strings.ToLower(d), root) {
				kept = append(kept, d)
			}
		}
		dirs = kept
	case "darwin":
		dirs = append(filepath.SplitList(os.Getenv("DYLD_LIBRARY_PATH")), "/opt/homebrew/lib",
			"/usr/local/lib", "/opt/local/lib")
	default:
		dirs = filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
		dirs = append(dirs, ldSoConf("/etc/ld.so.conf", 0)...)
		dirs = append(dirs, "/usr/local/lib", "/usr/lib", "/usr/lib64", "/lib")
		if m := multiarch(); m != "" {
			dirs = append(dirs, "/usr/local/lib/"+m, "/usr/lib/"+m)
		}
	}
	// A folder is looked at once, at its first place. Empty names, as of "a::b", are dropped.
	seen := map[string]bool{"": true}
	var out []string
	for _, d := range dirs {
		if !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	return out
}

// multiarch is Debian's name for this platform's library folder.
func multiarch() string {
	return map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu",
		"riscv64": "riscv64-linux-gnu"}[runtime.GOARCH]
}

// ldSoConf reads the folders that the dynamic linker is told of (ld.so.conf(5)), following
// includes. Includes are followed a few deep, so that files that include each other come to an end.
func ldSoConf(path string, depth int) []string {
	f, err := os.Open(path)
	if err != nil || depth > 4 {
		return nil // the linker's configuration is a hint: without it the usual folders remain
	}
	defer f.Close()
	var dirs []string
	for s := bufio.NewScanner(f); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		line = strings.TrimSpace(line)
		if pattern, ok := strings.CutPrefix(line, "include "); ok {
			pattern = strings.TrimSpace(pattern)
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			files, _ := filepath.Glob(pattern)
			sort.Strings(files)
			for _, p := range files {
				dirs = append(dirs, ldSoConf(p, depth+1)...)
			}
		} else if filepath.IsAbs(line) {
			dirs = append(dirs, line)
		}
	}
	return dirs
}

// isFile follows links, since a library's usual name is one.
func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && !st.IsDir()
}

// versionPattern finds the version at the end of a name such as libonnxruntime.so.1.27.0 or
// libonnxruntime.1.27.0.dylib.
var versionPattern = regexp.MustCompile(`(\d+\.\d+(?:\.\d+)?)(?:\.dylib)?$`)

// fileVersion reads the version out of the name of the file that path leads to, as libraries carry
// it. The name is that behind symbolic links: libonnxruntime.so.1 leads to one with the whole
// version.
func fileVersion(path string) (string, bool) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}
	m := versionPattern.FindStringSubmatch(filepath.Base(real))
	if m == nil {
		return "", false
	}
	return m[1], true
}

// older compares dotted version numbers. Parts that one of them lacks count as equal: 1.24 is not
// older than 1.24.3.
func older(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; i < len(x) && i < len(y); i++ {
		// A part that is no number counts as 0.
		m, _ := strconv.Atoi(x[i])
		n, _ := strconv.Atoi(y[i])
		if m != n {
			return m < n
		}
	}
	return false
}
