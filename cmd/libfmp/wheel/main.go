// Command wheel packs the shared library and its few lines of Python as a wheel (PEP 427): a zip
// archive with a list of its files.
//
//	wheel LIBRARY PYTHON FOLDER    writes FOLDER/fmp-VERSION-py3-none-PLATFORM.whl
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"fmp/cmd/buildinfo"
	"fmp/onnx/atomicfile"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: wheel LIBRARY PYTHON FOLDER")
		os.Exit(2)
	}
	name, err := write(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, "wheel:", err)
		os.Exit(1)
	}
	fmt.Println(name)
}

// platform is pip's name of the machine that this runs on. Linux is without a manylinux tag: the
// library is of the C library that it was built with.
func platform() (string, error) {
	for _, p := range []struct{ of, tag string }{
		{"linux/amd64", "linux_x86_64"}, {"linux/arm64", "linux_aarch64"},
		{"darwin/arm64", "macosx_12_0_arm64"}, {"windows/amd64", "win_amd64"},
	} {
		if p.of == runtime.GOOS+"/"+runtime.GOARCH {
			return p.tag, nil
		}
	}
	return "", fmt.Errorf("no name of %s/%s for pip is known", runtime.GOOS, runtime.GOARCH)
}

// pipVersion turns 0.1.0-dev into 0.1.0.dev0 (PEP 440).
func pipVersion(v string) string {
	number, rest, dev := strings.Cut(v, "-")
	if !dev {
		return number
	}
	return number + "." + strings.TrimLeft(rest, ".") + "0"
}

// licences are the files that must go with the library's code, ours and that of others.
var licences = []string{"LICENSE", "THIRD_PARTY.md"}

// file is one of the archive, by its name there.
type file struct {
	name string
	data []byte
}

// write makes the wheel (PEP 427) of the library, its Python code and the licences, and returns its
// path. RECORD has the SHA-256 of each file, in base64 without padding, and its size; of itself
// neither.
func write(library, python, folder string) (string, error) {
	tag, err := platform()
	if err != nil {
		return "", err
	}
	tag = "py3-none-" + tag
	version := pipVersion(buildinfo.Next)
	info := "fmp-" + version + ".dist-info/"
	code, err := os.ReadFile(filepath.Join(python, "fmp", "__init__.py"))
	if err != nil {
		return "", err
	}
	binary, err := os.ReadFile(library)
	if err != nil {
		return "", err
	}
	files := []file{
		{"fmp/__init__.py", code},
		{"fmp/" + filepath.Base(library), binary},
		{info + "METADATA", []byte("Metadata-Version: 2.4\nName: fmp\nVersion: " + version +
			"\nSummary: Calibrated federated image classification: client and classifier\n" +
			"License-Expression: MIT\nLicense-File: " + strings.Join(licences, "\nLicense-File: ") +
			"\nRequires-Python: >=3.8\n")},
		{info + "WHEEL", []byte("Wheel-Version: 1.0\nGenerator: fmp\n" +
			"Root-Is-Purelib: false\nTag: " + tag + "\n")},
	}
	for _, name := range licences {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(library), name))
		if err != nil {
			return "", fmt.Errorf("a licence, which make lib copies beside the library: %w", err)
		}
		files = append(files, file{info + "licenses/" + name, data})
	}
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name,
			base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	files = append(files, file{info + "RECORD", []byte(record.String())})
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		if err != nil {
			return "", err
		}
		if _, err := w.Write(f.data); err != nil {
			return "", err
		}
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	name := filepath.Join(folder, "fmp-"+version+"-"+tag+".whl")
	return name, atomicfile.WriteBytes(name, b.Bytes())
}
