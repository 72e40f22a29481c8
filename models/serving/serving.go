// Package serving writes a classifier in the forms that model servers take: a model repository of
// NVIDIA Triton, and an OCI image layout, which registries, KServe and Kubernetes read.
//
// Terms: a model repository is a folder with a folder for each model, of its configuration and its
// numbered versions. An image layout is a folder of blobs, each named by its SHA-256. A referrer is
// a manifest whose subject is another, here a document about the image.
package serving

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/serde"
)

// Options say how a classifier is served. Batch is 1 to 4096, Instances 1 to 64, and Delay at most
// a second.
type Options struct {
	Name    string // of the model
	Version string // a whole number from 1: the version in the repository, and the tag of the image
	// Batch is the largest number of images that are classified at once, Delay how long the first
	// of them waits for others, and Instances the number of copies that run at the same time.
	Batch, Instances int
	Delay            time.Duration
	GPU              bool // instances run on the GPU
	// Card is the model card, Markdown, and Signature the bundle of the model's signature; nil for
	// none. The caller has verified the signature.
	Card, Signature []byte
}

// modelFile is a model's file in a version's folder.
const modelFile = "model.onnx"

// names are those that both Triton and file systems take.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// check returns an error for options that a model server would not take. A version must be written
// without zeros before it, as it names a folder.
func (o Options) check() error {
	if !names.MatchString(o.Name) {
		return fmt.Errorf("name %q; want letters, digits, _, . and -, at most 100, a letter or "+
			"digit first", o.Name)
	}
	if v, err := strconv.ParseUint(o.Version, 10, 31); err != nil || v < 1 ||
		strconv.FormatUint(v, 10) != o.Version {
		return fmt.Errorf("version %q; want a whole number from 1", o.Version)
	}
	if o.Batch < 1 || o.Batch > 4096 || o.Instances < 1 || o.Instances > 64 || o.Delay < 0 ||
		o.Delay > time.Second {
		return fmt.Errorf("batch %d, %d instances, delay %v; allowed are 1 to 4096, 1 to 64, and "+
			"0 to 1s", o.Batch, o.Instances, o.Delay)
	}
	return nil
}

// file is a file of the model repository.
type file struct {
	path    string // with slashes
	content []byte
}

// Package describes the files that [Write] has written.
type Package struct {
	Repository string   `json:"repository"` // folder of the model repository
	Layout     string   `json:"layout"`     // folder of the image layout
	Documents  []string `json:"documents"`  // files about the model
	Model      string   `json:"model"`      // sha256 of the model's file
	Name       string   `json:"name"`
	Tag        string   `json:"tag"`
}

// Write writes the classifier's file data into the folder dir, which must not be there, or be
// empty: the repository under triton, the image layout under oci, and the documents. The folder is
// written whole or not at all, and equal input gives equal bytes. The repository's model is data
// itself, so that a signature of it holds there too. Parents of dir must be there.
func Write(dir string, data []byte, o Options) (*Package, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	m, err := serde.Closed(data)
	if err != nil {
		return nil, err
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, err
	}
	if f.Kind != models.KindClassifier {
		return nil, fmt.Errorf("the model is %q; want the classifier that fmp pool writes", f.Kind)
	}
	digest := models.DigestBytes(data)
	files, err := repository(m, f, data, o)
	if err != nil {
		return nil, err
	}
	sbom, err := billOfMaterials(o, f, digest)
	if err != nil {
		return nil, err
	}
	attached := []attachment{{"sbom.cdx.json", typeSBOM, sbom}}
	if o.Card != nil {
		attached = append(attached, attachment{"card.md", typeCard, o.Card})
	}
	if o.Signature != nil {
		attached = append(attached, attachment{modelFile + ".sig", typeSignature, o.Signature})
	}
	p := &Package{Repository: filepath.Join(dir, "triton"), Layout: filepath.Join(dir, "oci"),
		Model: digest, Name: o.Name, Tag: o.Version}
	for _, a := range attached {
		p.Documents = append(p.Documents, filepath.Join(dir, a.name))
	}
	return p, whole(dir, func(dir string) error {
		for _, a := range attached {
			if err := put(filepath.Join(dir, a.name), a.content); err != nil {
				return err
			}
		}
		for _, f := range files {
			path := filepath.Join(dir, "triton", filepath.FromSlash(f.path))
			if err := put(path, f.content); err != nil {
				return err
			}
		}
		return writeOCI(filepath.Join(dir, "oci"), o.Version, files, attached)
	})
}

// repository returns the files of the model repository. Triton reads config.pbtxt, and its
// versions' folders by number.
func repository(m *onnx.Model, f models.Manifest, data []byte, o Options) ([]file, error) {
	// A name with a line break would name two classes.
	labels := len(f.Classes) > 0 // a manifest's names are printable: each takes one line
	config, err := tritonConfig(m.Graph, o, labels)
	if err != nil {
		return nil, err
	}
	files := []file{{o.Name + "/config.pbtxt", config}}
	if labels {
		files = append(files, file{o.Name + "/" + labelsFile,
			[]byte(strings.Join(f.Classes, "\n") + "\n")})
	}
	return append(files, file{o.Name + "/" + o.Version + "/" + modelFile, data}), nil
}

// whole runs write on a folder beside dir, and renames it to dir if write succeeds. A folder of the
// same name that has files is an error, and is left as it is. Folders of killed programs go. The
// renaming is one step, so that a reader sees no half of it. An error leaves dir as it was, but an
// empty folder may be gone.
func whole(dir string, write func(dir string) error) (err error) {
	dir = filepath.Clean(dir)
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is there and has files; give another folder", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	name := filepath.Base(dir) // other packages, of other users perhaps, lie beside it
	prefix := "." + name[:min(len(name), 200)] + ".fmp-package-"
	if err := atomicfile.RemoveStale(filepath.Dir(dir), prefix, time.Hour); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(dir), prefix+rand.Text()+".tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil { // less the umask, as os.MkdirTemp does not
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := write(tmp); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty folder
		return err
	}
	return os.Rename(tmp, dir)
}
