package serving

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// Media types and annotations of the OCI image specification 1.1
// (github.com/opencontainers/image-spec), and of the manifests attached to the image.
const (
	typeManifest  = "application/vnd.oci.image.manifest.v1+json"
	typeIndex     = "application/vnd.oci.image.index.v1+json"
	typeConfig    = "application/vnd.oci.image.config.v1+json"
	typeLayer     = "application/vnd.oci.image.layer.v1.tar"
	typeEmpty     = "application/vnd.oci.empty.v1+json"
	typeCard      = "text/markdown"
	typeSBOM      = "application/vnd.cyclonedx+json"
	typeSignature = "application/vnd.dev.sigstore.bundle.v0.3+json"

	refName   = "org.opencontainers.image.ref.name"
	titleName = "org.opencontainers.image.title"
)

// platforms are those of the image: a model has none, and programs that pull it ask for theirs.
var platforms = []platform{{"amd64", "linux"}, {"arm64", "linux"}}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// descriptor names a blob by digest, size and media type.
type descriptor struct {
	MediaType    string            `json:"mediaType"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	Platform     *platform         `json:"platform,omitempty"`
}

// manifest lists the layers of one image, or the document of a referrer.
type manifest struct {
	Schema       int               `json:"schemaVersion"`
	MediaType    string            `json:"mediaType"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Config       descriptor        `json:"config"`
	Layers       []descriptor      `json:"layers"`
	Subject      *descriptor       `json:"subject,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

// index lists manifests: those of all platforms, or all of a layout.
type index struct {
	Schema    int          `json:"schemaVersion"`
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"`
}

// imageConfig is the configuration of an image that runs nothing.
type imageConfig struct {
	platform
	Config struct{} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// layout is the folder of an OCI image layout.
type layout string

// blob writes content under its digest. A blob that is there has the same bytes, and is written
// anew.
func (l layout) blob(mediaType string, content []byte) (descriptor, error) {
	sum := sha256.Sum256(content)
	name := hex.EncodeToString(sum[:])
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: int64(len(content))}
	return d, put(filepath.Join(string(l), "blobs", "sha256", name), content)
}

// object writes a document as a blob. Fields are in the order of the struct, so that equal
// documents have equal digests.
func (l layout) object(mediaType string, doc any) (descriptor, error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, data)
}

// attachment is a document about the image, which becomes a manifest of its own with the image as
// its subject.
type attachment struct {
	name, mediaType string
	content         []byte
}

// writeOCI writes the image, whose one layer holds the files under /models, with its attachments.
// The index is written last: a layout without one is none. The image is tagged in the index alone.
func writeOCI(dir, tag string, files []file, attached []attachment) error {
	l := layout(dir)
	image, err := l.image(files)
	if err != nil {
		return err
	}
	tagged := image
	tagged.Annotations = map[string]string{refName: tag}
	top := index{2, typeIndex, []descriptor{tagged}}
	for _, a := range attached {
		d, err := l.attach(image, a)
		if err != nil {
			return err
		}
		top.Manifests = append(top.Manifests, d)
	}
	data, err := json.Marshal(top)
	if err != nil {
		return err
	}
	version := []byte(`{"imageLayoutVersion":"1.0.0"}`)
	if err := put(filepath.Join(dir, "oci-layout"), version); err != nil {
		return err
	}
	return put(filepath.Join(dir, "index.json"), data)
}

// image writes the layer, and a manifest for each platform. All platforms share one layer, since a
// model has none of its own. The tar archive is not compressed, so that its digest is that of the
// layer's contents (DiffID) as well.
func (l layout) image(files []file) (descriptor, error) {
	tarball, err := archive(files)
	if err != nil {
		return descriptor{}, err
	}
	layer, err := l.blob(typeLayer, tarball)
	if err != nil {
		return descriptor{}, err
	}
	all := index{2, typeIndex, nil}
	for _, p := range platforms {
		c := imageConfig{platform: p}
		c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{layer.Digest}
		config, err := l.object(typeConfig, c)
		if err != nil {
			return descriptor{}, err
		}
		m, err := l.object(typeManifest,
			manifest{Schema: 2, MediaType: typeManifest, Config: config,
				Layers: []descriptor{layer}})
		if err != nil {
			return descriptor{}, err
		}
		m.Platform = &p
		all.Manifests = append(all.Manifests, m)
	}
	return l.object(typeIndex, all)
}

// attach writes a document as a referrer of the image. Registries list it by the image's digest
// (the referrers API of the distribution specification). The document is the one layer, and the
// configuration the empty object of the specification.
func (l layout) attach(image descriptor, a attachment) (descriptor, error) {
	layer, err := l.blob(a.mediaType, a.content)
	if err != nil {
		return descriptor{}, err
	}
	layer.Annotations = map[string]string{titleName: a.name}
	config, err := l.blob(typeEmpty, []byte("{}"))
	if err != nil {
		return descriptor{}, err
	}
	m := manifest{Schema: 2, MediaType: typeManifest, ArtifactType: a.mediaType, Config: config,
		Layers: []descriptor{layer}, Subject: &image}
	d, err := l.object(typeManifest, m)
	d.ArtifactType = a.mediaType
	return d, err
}

// archive returns files as a tar archive under models/. Equal files give equal bytes. Folders come
// before their files, and times are 0. The whole archive is made in memory, the model's size.
func archive(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	for _, f := range files {
		name := "models/" + f.path
		for at, c := range name {
			folder := name[:at]
			if c != '/' || made[folder] {
				continue
			}
			made[folder] = true
			h := &tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755,
				ModTime: time.Unix(0, 0)}
			if err := w.WriteHeader(h); err != nil {
				return nil, err
			}
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644,
			Size:    int64(len(f.content)),
			ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// put writes a file, with its folder.
func put(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
