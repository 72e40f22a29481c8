package models

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
)

// Kinds of model, the values of [Manifest].Kind.
const (
	KindExtractor  = "extractor"
	KindPredictor  = "predictor"
	KindEmbedding  = "embedding"
	KindClient     = "client"
	KindClassifier = "classifier"
	KindOpen       = "open"
	KindConjugate  = "conjugate"
	KindPrivate    = "private"
)

// kinds lists the Kind constants.
var kinds = []string{KindExtractor, KindPredictor, KindEmbedding, KindClient, KindClassifier,
	KindOpen, KindConjugate, KindPrivate}

// Manifest describes a model in the metadata properties of its file, each under "fmp." and the name
// given here in parentheses. A zero field is not written.
type Manifest struct {
	Kind string // (kind) one of the Kind constants
	// Dx (dx), C (classes) and D (d) are the numbers of features, classes and the width of the
	// blocks and noise; S (s) is an embedding's number of compressed points, or a classifier's of
	// heads; Fresh (fresh) the number of points that a predictor draws by default.
	Dx, C, D, S, Fresh int
	// Latent (latent) is the number of leading columns of a predictor's noise that all rows of one
	// sample share; 0 means independent noise for every point.
	Latent int
	// L2 (l2) is the L2 penalty of the fits that a predictor was trained for.
	L2 float64
	// K (k) is the number of coordinates of an uploaded or drawn point, where these are not the dx
	// features: a conjugate predictor's coordinates.
	K int
	// Clip (clip) is the norm that each point is clipped to before a client sums them for a private
	// round; 0 for models of other rounds.
	Clip float64
	// ClassMeans (class_means) says that the points of an embedding or a client graph are class
	// means, one per class, of mass 0 where the client has no point of it.
	ClassMeans bool
	// Bytes (bytes) is the largest upload of clients that send moments: class means, scatter and
	// calibration points; 0 for other uploads.
	Bytes int
	// Kappa (kappa) and KappaDeviation (kappa_deviation) state the known temperature of
	// discriminants behind the extractor: its median and the standard deviation of its logarithm
	// (package discriminant). 0 is nothing.
	Kappa, KappaDeviation float64
	// Mean and Std (mean, std) apply to pixels scaled to 0..1, one number per channel; Layout
	// (layout) is NCHW or NHWC.
	Mean, Std []float32
	Layout    string
	// Resize (resize) is how images of another shape are brought to the model's: crop or pad; empty
	// means stretch.
	Resize string
	// Height and Width (height, width) are the size that a classifier of images of any size brings
	// them to, and 0 for other models.
	Height, Width int
	// Classes (class_names) are the classes' names, in order.
	Classes []string
	// Extractor (extractor_digest) is the digest of the extractor behind which the model was
	// trained; empty for a model that depends on none.
	Extractor string
	// Licence (licence), TrainingData (training_data), Command (command), Seed (seed) and Config
	// (config, JSON) are the model's provenance.
	Licence, TrainingData, Command string
	Seed                           uint64
	Config                         string

	// Source is the path of the file that the manifest was read from, Digest its sha256, of the
	// tensors in files beside it too ([Load]); they are not written.
	Source, Digest string
}

const keyPrefix = "fmp."

// of returns the graph that b builds as a model with the manifest.
func (f Manifest) of(b *build.Builder) (*onnx.Model, error) {
	m, err := b.Model()
	if err != nil {
		return nil, err
	}
	return m, f.Write(m)
}

// writeOrigin writes the manifest with a provenance.
func (f Manifest) writeOrigin(m *onnx.Model, o Origin) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	f.Config = string(text)
	return f.Write(m)
}

// Write replaces the manifest in a model's metadata; other properties are kept. m's metadata is
// changed in place. It is not changed where the manifest is wrong.
func (f Manifest) Write(m *onnx.Model) error {
	if err := f.check(); err != nil {
		return err
	}
	if m.Metadata == nil {
		m.Metadata = map[string]string{}
	}
	for k := range m.Metadata {
		if len(k) > len(keyPrefix) && strings.HasPrefix(k, keyPrefix) {
			delete(m.Metadata, k)
		}
	}
	put := func(key, v string) {
		if v != "" {
			m.Metadata[keyPrefix+key] = v
		}
	}
	for _, p := range f.texts() {
		put(p.key, *p.at)
	}
	for _, n := range f.numbers() {
		if *n.at != 0 {
			put(n.key, strconv.Itoa(*n.at))
		}
	}
	for _, n := range f.fractions() {
		if *n.at != 0 {
			put(n.key, strconv.FormatFloat(*n.at, 'g', -1, 64))
		}
	}
	if f.ClassMeans {
		put("class_means", "true")
	}
	put("seed", strconv.FormatUint(f.Seed, 10))
	for _, l := range f.lists() {
		s, err := json.Marshal(l.at)
		if err != nil {
			return fmt.Errorf("manifest: encoding %s: %w", l.key, err)
		}
		if string(s) != "null" && string(s) != "[]" {
			put(l.key, string(s))
		}
	}
	return nil
}

// property is a field of a manifest, with its key.
type property[P any] struct {
	key string
	at  P
}

// texts lists the fields that are written as they are.
func (f *Manifest) texts() []property[*string] {
	return []property[*string]{{"kind", &f.Kind}, {"layout", &f.Layout}, {"resize", &f.Resize},
		{"extractor_digest", &f.Extractor}, {"licence", &f.Licence},
		{"training_data", &f.TrainingData}, {"command", &f.Command}, {"config", &f.Config}}
}

// numbers lists the fields of whole numbers of at least 0.
func (f *Manifest) numbers() []property[*int] {
	return []property[*int]{{"dx", &f.Dx}, {"classes", &f.C}, {"d", &f.D}, {"s", &f.S},
		{"fresh", &f.Fresh}, {"latent", &f.Latent}, {"k", &f.K}, {"bytes", &f.Bytes},
		{"height", &f.Height}, {"width", &f.Width}}
}

// fractions lists the fields of numbers above 0.
func (f *Manifest) fractions() []property[*float64] {
	return []property[*float64]{{"l2", &f.L2}, {"clip", &f.Clip}, {"kappa", &f.Kappa},
		{"kappa_deviation", &f.KappaDeviation}}
}

// lists lists the fields that are written as JSON.
func (f *Manifest) lists() []property[any] {
	return []property[any]{{"mean", &f.Mean}, {"std", &f.Std}, {"class_names", &f.Classes}}
}

// ReadManifest reads a model's manifest. For a model without one, such as a third-party extractor,
// it returns a Manifest with an empty Kind; a malformed one is an error. Properties under unknown
// keys are passed over, so that files of newer programs can be read.
func ReadManifest(m *onnx.Model) (Manifest, error) {
	var f Manifest
	get := func(key string) string { return m.Metadata[keyPrefix+key] }
	for _, p := range f.texts() {
		*p.at = get(p.key)
	}
	for _, n := range f.numbers() {
		s := get(n.key)
		if s == "" {
			continue
		}
		v, err := strconv.Atoi(s)
		// 2^31 - 1 fits int on every machine.
		if err != nil || v < 0 || v > math.MaxInt32 {
			return Manifest{}, fmt.Errorf("manifest: %s%s is %q; want a whole number of at least 0",
				keyPrefix, n.key, s)
		}
		*n.at = v
	}
	for _, n := range f.fractions() {
		if s := get(n.key); s != "" {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || !(v > 0) || math.IsInf(v, 0) {
				return Manifest{}, fmt.Errorf("manifest: %s%s is %q; want a number above 0",
					keyPrefix, n.key, s)
			}
			*n.at = v
		}
	}
	switch s := get("class_means"); s {
	case "", "true":
		f.ClassMeans = s != ""
	default:
		return Manifest{}, fmt.Errorf("manifest: %sclass_means is %q; want true, or nothing",
			keyPrefix, s)
	}
	if s := get("seed"); s != "" {
		var err error
		if f.Seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			return Manifest{}, fmt.Errorf("manifest: %sseed is %q; want a whole number of at "+
				"least 0", keyPrefix, s)
		}
	}
	for _, l := range f.lists() {
		s := get(l.key)
		if s == "" {
			continue
		}
		if err := json.Unmarshal([]byte(s), l.at); err != nil {
			return Manifest{}, fmt.Errorf("manifest: %s%s is not the JSON list that it should "+
				"be: %w", keyPrefix, l.key, err)
		}
	}
	return f, f.check()
}

// check returns an error for a field that no model of ours has. Manifests come from files of
// others. It is run when a manifest is written, and when it is read.
func (f Manifest) check() error {
	if f.Kind != "" && !slices.Contains(kinds, f.Kind) {
		return fmt.Errorf("manifest: kind is %q; allowed are %s", f.Kind, strings.Join(kinds, ", "))
	}
	switch f.Layout {
	case "", "NCHW", "NHWC":
	default:
		return fmt.Errorf("manifest: layout is %q; allowed are NCHW and NHWC", f.Layout)
	}
	if len(f.Mean) != len(f.Std) {
		return fmt.Errorf("manifest: %d means and %d standard deviations; "+
			"want one of each per channel", len(f.Mean), len(f.Std))
	}
	for i := range f.Std {
		if !(f.Std[i] > 0) || math.IsInf(float64(f.Std[i]), 0) || math.IsNaN(float64(f.Mean[i])) ||
			math.IsInf(float64(f.Mean[i]), 0) {
			return fmt.Errorf("manifest: channel %d has mean %v and standard deviation %v; want "+
				"finite numbers, the second above 0", i, f.Mean[i], f.Std[i])
		}
	}
	if (f.Kappa == 0) != (f.KappaDeviation == 0) {
		return fmt.Errorf("manifest: kappa is %v and its deviation %v; want both or neither",
			f.Kappa, f.KappaDeviation)
	}
	if len(f.Classes) > 0 && f.C > 0 && len(f.Classes) != f.C {
		return fmt.Errorf("manifest: %d class names for %d classes", len(f.Classes), f.C)
	}
	for i, name := range f.Classes {
		if !printable.Is(name) {
			return fmt.Errorf("manifest: the name of class %d is %.200q, which has control "+
				"characters: name it in plain text", i, name)
		}
	}
	return nil
}

// PointWidth returns the width of an uploaded or drawn point without its label: k where set,
// otherwise dx.
func (f Manifest) PointWidth() int {
	if f.K != 0 {
		return f.K
	}
	return f.Dx
}

// name names the model in errors, by its kind and its file.
func (f Manifest) name() string {
	kind := cmp.Or(f.Kind, "model")
	if f.Source != "" {
		return kind + " " + f.Source
	}
	return kind
}

// wrapped puts the step that failed before an error, where there is one. It is for a deferred call,
// with the address of the named result.
func wrapped(err *error, doing string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", doing, *err)
	}
}

// manifestOf reads the manifest of a model and returns an error unless it is of the given kind.
func manifestOf(m *onnx.Model, kind string) (Manifest, error) {
	f, err := ReadManifest(m)
	if err == nil && f.Kind != kind {
		err = fmt.Errorf("the model's manifest says kind %q; want %q, as fmp train %s writes it",
			f.Kind, kind, kind)
	}
	return f, err
}

// Match returns an error unless two models can work together: sizes that both state (dx, classes)
// and the extractor that both were trained behind must agree. The error names both sides. A size or
// digest of 0 or "" is not stated, and agrees with any. Of an extractor the digest is [Load]'s,
// of others that in their manifest.
func Match(a, b Manifest) error {
	for _, n := range []struct {
		what string
		a, b int
	}{{"dx", a.Dx, b.Dx}, {"classes", a.C, b.C}} {
		if n.a != 0 && n.b != 0 && n.a != n.b {
			return fmt.Errorf("%s has %s %d and %s has %s %d; use models that were made for each "+
				"other", a.name(), n.what, n.a, b.name(), n.what, n.b)
		}
	}
	behind := func(f Manifest) string {
		if f.Kind == KindExtractor || f.Kind == "" {
			return f.Digest
		}
		return f.Extractor
	}
	if x, y := behind(a), behind(b); x != "" && y != "" && x != y {
		return fmt.Errorf("%s goes with extractor %.12s and %s with %.12s; use models that were "+
			"trained behind the same extractor", a.name(), x, b.name(), y)
	}
	return nil
}

// Digest returns the sha256, in hexadecimal, of a model's bytes as [serde.Save] writes them.
func Digest(m *onnx.Model) (string, error) {
	data, err := serde.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("digest of model: %w", err)
	}
	return DigestBytes(data), nil
}

// DigestBytes returns the sha256, in hexadecimal, of a model file's content.
func DigestBytes(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// DigestFile returns the sha256, in hexadecimal, of the first limit bytes of a regular file. A file
// that grows meanwhile is read to the limit at most.
func DigestFile(path string, limit int64) (string, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, limit)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Load reads a model file and its manifest, with Source and Digest filled in. A client graph or a
// classifier must be one closed file ([serde.Closed]); the larger tensors of others may lie in
// files beside it. The file is read once, so that the digest is of the bytes that are parsed: the
// file's, and behind them those of the tensors beside it, in the order of their files' names, offsets and
// lengths.
func Load(path string) (*onnx.Model, Manifest, error) {
	return loadAs(path, func(metadata map[string]string) bool {
		kind := metadata[keyPrefix+"kind"]
		return kind == KindClient || kind == KindClassifier
	})
}

// LoadClosed is [Load] of a model that must be one closed file, whatever it says that it is.
func LoadClosed(path string) (*onnx.Model, Manifest, error) {
	return loadAs(path, func(map[string]string) bool { return true })
}

// loadAs is [Load], where closed says by the metadata if the model must be one file.
func loadAs(path string,
	closed func(metadata map[string]string) bool) (*onnx.Model, Manifest, error) {
	data, err := serde.ReadFile(path)
	if err != nil {
		return nil, Manifest{}, err
	}
	h := sha256.New()
	h.Write(data) // before the model takes the bytes over
	m, err := serde.LoadOwn(path, data, closed, h)
	if err != nil {
		return nil, Manifest{}, err
	}
	f, err := ReadManifest(m)
	if err != nil {
		return nil, Manifest{}, fmt.Errorf("model %s: %w", path, err)
	}
	f.Source, f.Digest = path, hex.EncodeToString(h.Sum(nil))
	return m, f, nil
}
