package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"fmp/cmd/buildinfo"
)

// file is one of an archive. Its mode is that of Unix; 0 is a link, whose target stands as data. A
// name that ends in / is a folder.
type file struct {
	name string
	mode int64
	data []byte
}

// copyright is the line of a licence that names the owner.
var copyright = regexp.MustCompile(`(?m)^Copyright .*$`)

// tarball writes files under a folder, in their order, owned by root (numbers 0) and as old as
// when. The same files give the same bytes.
func tarball(folder string, files []file, when time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: path.Join(folder, f.name), Mode: f.mode, Size: int64(len(f.data)),
			ModTime: when, Format: tar.FormatUSTAR}
		if f.mode == 0 { // a link, to the name that stands as data
			h.Typeflag, h.Linkname, h.Size, h.Mode = tar.TypeSymlink, string(f.data), 0, 0o777
		}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Size > 0 {
			if _, err := w.Write(f.data); err != nil {
				return nil, err
			}
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// tarGzip is tarball compressed, with neither name nor time in the head of gzip.
func tarGzip(folder string, files []file, when time.Time) ([]byte, error) {
	t, err := tarball(folder, files, when)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = z.Write(t); err == nil {
		err = z.Close()
	}
	return b.Bytes(), err
}

// zipped writes files into a ZIP, in their order. It is for Windows, and keeps no modes.
func zipped(folder string, files []file, when time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		to, err := w.CreateHeader(&zip.FileHeader{Name: path.Join(folder, f.name),
			Method: zip.Deflate, Modified: when})
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// deb returns a Debian package: an ar archive of the format's version, the control file and the
// tree. The ONNX Runtime lies beside fmp in /usr/lib/fmp, where fmp looks for it.
func deb(arch string, files []file, when time.Time) ([]byte, error) {
	var tree []file
	for _, folder := range []string{"usr/", "usr/bin/", "usr/lib/", "usr/lib/fmp/", "usr/share/",
		"usr/share/doc/", "usr/share/doc/fmp/"} {
		tree = append(tree, file{folder, 0o755, nil}) // dpkg makes none by itself
	}
	for _, f := range files {
		folder := "usr/share/doc/fmp"
		// Programs lie beside the ONNX Runtime's library, whose name begins with l.
		if f.mode == 0o755 || path.Ext(f.name) != ".md" && path.Dir(f.name) == "." &&
			f.name[0] == 'l' {
			folder = "usr/lib/fmp"
		}
		tree = append(tree, file{path.Join(folder, f.name), f.mode, f.data})
		if f.mode == 0o755 {
			tree = append(tree, file{"usr/bin/" + f.name, 0, []byte("../lib/fmp/" + f.name)})
		}
	}
	size := 0
	for _, f := range tree {
		size += len(f.data)
	}
	// Installed-Size is in KiB (deb-control(5)).
	control := fmt.Sprintf("Package: fmp\nVersion: %s\nArchitecture: %s\nMaintainer: the authors "+
		"of fmp\nInstalled-Size: %d\nDepends: libc6 (>= 2.28)\nSection: science\nPriority: "+
		"optional\nDescription: calibrated federated image classification on ONNX\n fmp is the "+
		"server and the laboratory, fmp-edge the client.\n", buildinfo.Next, arch, (size+1023)/1024)
	meta, err := tarGzip(".", []file{{"control", 0o644, []byte(control)}}, when)
	if err != nil {
		return nil, err
	}
	data, err := tarGzip(".", tree, when)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, f := range []file{{"debian-binary", 0, []byte("2.0\n")}, {"control.tar.gz", 0, meta},
		{"data.tar.gz", 0, data}} {
		// An entry of ar: 60 bytes of name, time, owner, group, mode and size in text, and the
		// data, padded to an even length (deb(5)).
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", f.name, when.Unix(), 0, 0, "100644",
			len(f.data), f.data)
		if len(f.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes(), nil
}

// image is a container image of the client and its licences for one architecture.
type image struct {
	arch  string
	files []file
}

// imageOf takes the files of an image from those of an archive.
func imageOf(arch string, archive []file) image {
	i := image{arch, []file{{"licenses/", 0o755, nil}}}
	for _, f := range archive {
		switch f.name {
		case "LICENSE", "THIRD_PARTY.md":
			f.name = "licenses/" + f.name
			fallthrough
		case "fmp-edge":
			i.files = append(i.files, f)
		}
	}
	return i
}

// oci returns an OCI archive of the client, which needs nothing but itself. Its one image is an
// index of platforms: readers (skopeo, podman load) refuse an archive of several images without a
// name. Index, manifest, configuration and layer name each other by SHA-256 (OCI image
// specification). A layer that is not compressed has its own digest for its DiffID.
func oci(images []image, when time.Time) ([]byte, error) {
	var files []file
	// blob adds a file named by its digest, and returns the descriptor that refers to it.
	blob := func(kind string, data []byte) v1.Descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		files = append(files, file{"blobs/sha256/" + sum, 0o644, data})
		return v1.Descriptor{MediaType: kind, Digest: digest.Digest("sha256:" + sum),
			Size: int64(len(data))}
	}
	platforms := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex}
	for _, i := range images {
		layer, err := tarball(".", i.files, when)
		if err != nil {
			return nil, err
		}
		l := blob(v1.MediaTypeImageLayer, layer)
		// 65532 is the user nonroot of distroless images.
		c := v1.Image{Created: &when, Platform: v1.Platform{Architecture: i.arch, OS: "linux"},
			Config: v1.ImageConfig{Entrypoint: []string{"/fmp-edge"}, User: "65532:65532"}}
		c.RootFS.Type, c.RootFS.DiffIDs = "layers", append(c.RootFS.DiffIDs, l.Digest)
		config, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		m, err := json.Marshal(v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2},
			MediaType: v1.MediaTypeImageManifest,
			Config:    blob(v1.MediaTypeImageConfig, config), Layers: []v1.Descriptor{l}})
		if err != nil {
			return nil, err
		}
		d := blob(v1.MediaTypeImageManifest, m)
		d.Platform = &c.Platform
		platforms.Manifests = append(platforms.Manifests, d)
	}
	list, err := json.Marshal(platforms)
	if err != nil {
		return nil, err
	}
	named := blob(v1.MediaTypeImageIndex, list)
	named.Annotations = map[string]string{v1.AnnotationRefName: buildinfo.Next,
		"io.containerd.image.name": "docker.io/library/fmp-edge:" + buildinfo.Next} // of docker load
	data, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{named}})
	if err != nil {
		return nil, err
	}
	// The file oci-layout marks the folder as an image layout (OCI image specification).
	files = append([]file{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", 0o644, data}}, files...)
	return tarball("", files, when)
}
