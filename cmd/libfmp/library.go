// Command libfmp is the client as a C library (fmp.h): load, compress, predict, evaluate, by the
// packages of fmp-edge. It is built by make lib, as a shared and as a static library. Exported
// functions are in export.go; this file knows nothing of C.
package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/pipeline/classify"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/privacy"
	"fmp/pipeline/tally"
)

// A library needs an empty one: cgo's build modes ask for package main.
func main() {}

// maxImages bounds the images of a call. It is that of an upload of fmp-edge.
const maxImages = client.MaxItems

// model is a classifier or a client graph behind a handle. Calls of one handle wait for each other.
// Of classifier and client one is set, and none once the handle is closed.
type model struct {
	sync.Mutex
	classifier *classify.Classifier
	client     *client.Client
}

// handles are the open models. Numbers are never given twice, so that a closed handle is told from
// all others. A lock of its own guards the map, and is never held while a model computes.
var handles = struct {
	sync.Mutex
	open map[uint64]*model
	last uint64
}{open: map[uint64]*model{}}

// keep gives a model its handle. 0 is none. 2^64 handles do not run out.
func keep(m *model) uint64 {
	handles.Lock()
	defer handles.Unlock()
	handles.last++
	handles.open[handles.last] = m
	return handles.last
}

// find returns an open model, locked. Its lock is waited for without that of the handles, so that a
// long call keeps no other handle waiting. A handle that is closed meanwhile is found empty. The
// caller unlocks the model.
func find(handle uint64) (*model, error) {
	handles.Lock()
	m := handles.open[handle]
	handles.Unlock()
	if m == nil {
		return nil, fmt.Errorf("handle %d is not open", handle)
	}
	m.Lock()
	return m, nil
}

// findClassifier is find for classifiers alone. After an error nothing is locked.
func findClassifier(handle uint64) (*model, error) {
	m, err := find(handle)
	if err == nil && m.classifier == nil {
		m.Unlock()
		err = fmt.Errorf("handle %d is a client graph's or closed; want a classifier's "+
			"(fmp_classifier_open)", handle)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// drop closes a handle, after the calls that use it. A call that waits for the model meanwhile
// finds it empty. A handle that is not open is no error.
func drop(handle uint64) {
	handles.Lock()
	m := handles.open[handle]
	delete(handles.open, handle)
	handles.Unlock()
	if m != nil {
		m.Lock()
		m.classifier, m.client = nil, nil
		m.Unlock()
	}
}

// openClassifier opens a classifier from the bytes of its file. Its notice is looked for by
// fmp_classifier_open, as bytes have no file beside them. An operator has one thread a core, which
// 0 asks for.
func openClassifier(data []byte) (uint64, error) {
	c, err := classify.ParseImages(data, 0)
	if err != nil {
		return 0, err
	}
	return keep(&model{classifier: c}), nil
}

// openClient opens a client graph. Its extractor comes with this library, or is the approved one
// (SHA-256): else it is an error. approved is 64 hexadecimal digits in either case, or "". A graph
// of private rounds is refused, as the library keeps no ledger.
func openClient(data []byte, approved string) (uint64, error) {
	c, err := client.Parse(data, 0)
	if err != nil {
		return 0, fmt.Errorf("client graph: %w", err)
	}
	if c.Private() {
		return 0, errors.New("client graph: it is one of private rounds, whose budget wants a " +
			"ledger: use fmp-edge join --private")
	}
	var m client.Memory
	if approved != "" {
		approved = strings.ToLower(approved) // some tools write digests in upper case
		if len(approved) != 64 || strings.Trim(approved, "0123456789abcdef") != "" {
			return 0, fmt.Errorf("approved extractor: %.80q is no sha256; want 64 "+
				"hexadecimal digits", approved)
		}
		if err := m.Add(approved, client.Files); err != nil {
			return 0, fmt.Errorf("approved extractor: %w", err)
		}
	}
	if err := c.Trust(&m, client.Files); err != nil {
		return 0, fmt.Errorf("client graph: %w", err)
	}
	return keep(&model{client: c}), nil
}

// described is the classes, the size of images and the outputs of a model. Classes are in the order
// of the outputs.
type described struct {
	Kind    string   `json:"kind"`
	Digest  string   `json:"digest"`
	Classes []string `json:"classes"`
	// Height, Width and Channels are of the images that the model takes after resizing.
	Height   int `json:"height"`
	Width    int `json:"width"`
	Channels int `json:"channels"`
	// Sets and Intervals say whether predictions have prediction sets and credible intervals.
	Sets      bool `json:"sets"`
	Intervals bool `json:"intervals"`
}

// describe waits for a call that uses the model. A class without a name has its number. A closed
// handle is an error.
func describe(handle uint64) (*described, error) {
	m, err := find(handle)
	if err != nil {
		return nil, err
	}
	defer m.Unlock()
	d := func(f models.Manifest, fit imagefile.Fit) *described {
		return &described{Kind: f.Kind, Digest: f.Digest, Classes: classify.Names(f),
			Height: fit.H, Width: fit.W, Channels: fit.Ch}
	}
	switch {
	case m.classifier != nil:
		out := d(m.classifier.Manifest, m.classifier.Fit)
		out.Sets, out.Intervals = m.classifier.Has(models.SetOutput), m.classifier.Has("low")
		return out, nil
	case m.client != nil:
		return d(m.client.Manifest, m.client.Fit), nil
	}
	return nil, fmt.Errorf("handle %d is not open", handle)
}

// images are the encoded images of a call; labels are class numbers, nil where there are none. read
// copies one of the caller's images.
type images struct {
	n      int
	read   func(i int) ([]byte, error)
	labels []int32
}

// source returns the images under names of their numbers, in folders of their classes. Six digits
// are enough for maxImages. The names are in the order of the caller's images within a class, and
// folders in that of fmp-edge. With labels the order is class by class, else that of the caller.
func (im *images) source(fit imagefile.Fit, f models.Manifest) (imagefile.Source, error) {
	if im.n < 1 || im.n > maxImages {
		return nil, fmt.Errorf("%d images; want 1 to %d", im.n, maxImages)
	}
	folders := foldersOf(f)
	paths := make([]string, im.n)
	for i := range paths {
		paths[i] = fmt.Sprintf("%06d.jpg", i) // formats are told by content
		if im.labels != nil {
			if y := im.labels[i]; y < 0 || int(y) >= f.C {
				return nil, fmt.Errorf("image %d has label %d; there are %d classes from 0", i, y,
					f.C)
			}
			paths[i] = folders[im.labels[i]] + "/" + paths[i]
		}
	}
	read := func(p string) ([]byte, error) { return im.read(number(p)) }
	src, _, err := imagefile.OpenFiles(paths, read,
		imagefile.Options{Fit: fit, MaxItems: maxImages, Optional: im.labels == nil,
			Classes: imagefile.Classes{N: f.C, Names: folders}})
	return src, err
}

// foldersOf returns a folder's name for each class, in the order of the folders of fmp-edge: those
// are called as the class, or by its number. Sums of floats have the bytes of their order. The
// number in front sorts as the names of fmp-edge's folders do.
func foldersOf(f models.Manifest) []string {
	names := make([]string, f.C)
	for c := range names {
		names[c] = strconv.Itoa(c)
	}
	if len(f.Classes) == f.C {
		copy(names, f.Classes)
	}
	sorted := slices.Sorted(slices.Values(names))
	for c, name := range names {
		at, _ := slices.BinarySearch(sorted, name)
		names[c] = fmt.Sprintf("%06d label %d", at, c) // errors have it
	}
	return names
}

// number is that of the image of a name. Names are source's own, so that the text is digits. It is
// the inverse of the names that source gives, whichever folder they are in.
func number(p string) int {
	i, _ := strconv.Atoi(strings.TrimSuffix(path.Base(p), ".jpg"))
	return i
}

// predict classifies images and gives each prediction with the number of its image. p is valid
// until give returns. An image that cannot be read is an error. With labels images come class by
// class, so that give is told the number of each. The handle is locked throughout.
func predict(handle uint64, im *images, give func(i int, p *classify.Prediction) error) error {
	m, err := findClassifier(handle)
	if err != nil {
		return err
	}
	defer m.Unlock()
	src, err := im.source(m.classifier.Fit, m.classifier.Manifest)
	if err != nil {
		return err
	}
	bad, err := m.classifier.Images(context.Background(), src, false,
		func(ps []classify.Prediction) error {
			for i := range ps {
				if err := give(number(ps[i].Name), &ps[i]); err != nil {
					return err
				}
			}
			return nil
		})
	return errors.Join(append(bad, err)...)
}

// evaluation says how the report of a site is made. Fields are those of fmp_evaluation. epsilon 0
// asks for no noise; delta is then 0 or its default.
type evaluation struct {
	key            []byte // the file of the client's key
	round          uint64
	server         string // its public key (base64), or ""
	least          int    // 0: the default
	epsilon, delta float64
}

// check sets the default of the least count, and returns an error for an evaluation that is not
// made. delta may be its default without epsilon, as callers in C fill in the struct. e is changed.
func (e *evaluation) check() error {
	if e.epsilon != 0 && e.least != 0 {
		return errors.New("evaluate: least is of reports without noise: give 0 beside epsilon")
	}
	if e.epsilon == 0 && e.delta != 0 && e.delta != privacy.DefaultDelta {
		return fmt.Errorf("evaluate: delta is %v, which is of reports with noise: give epsilon, "+
			"or 0", e.delta)
	}
	e.least = cmp.Or(e.least, tally.Least)
	if e.least < tally.MinLeast || e.least > tally.MaxLeast {
		return fmt.Errorf("evaluate: least is %d; allowed are %d to %d, and 0 for %d", e.least,
			tally.MinLeast, tally.MaxLeast, tally.Least)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(e.server)
	if e.server != "" && (err != nil || len(key) != ed25519.PublicKeySize) {
		return fmt.Errorf("evaluate: server is %.80q, no base64 of %d bytes; give the public key "+
			"that the round's description states", e.server, ed25519.PublicKeySize)
	}
	return nil
}

// evaluate scores labelled images and returns the signed counts of a site. With noise each image is
// classified by itself, and one that cannot be read is left out: an error would tell of it. The
// report is signed with the client's key and kept nowhere: a ledger of noise is the caller's.
// Labels, key and options are checked before the handle is looked for.
func evaluate(handle uint64, im *images, e *evaluation) ([]byte, error) {
	key, err := identity.Parse(e.key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if im.labels == nil {
		return nil, errors.New("images to evaluate with want labels")
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	m, err := findClassifier(handle)
	if err != nil {
		return nil, err
	}
	defer m.Unlock()
	c, noisy := m.classifier, e.epsilon != 0
	if noisy {
		c = c.Alone()
	}
	src, err := im.source(c.Fit, c.Manifest)
	if err != nil {
		return nil, err
	}
	s, err := c.Scores()
	if err != nil {
		return nil, err
	}
	bad, err := c.Images(context.Background(), src, noisy, s.Add)
	if !noisy {
		err = errors.Join(append(bad, err)...)
	}
	if err != nil {
		return nil, err
	}
	r, err := s.Report(e.least, e.epsilon, e.delta)
	if err != nil {
		return nil, err
	}
	r.Round, r.Server = e.round, e.server
	return r.Sign(key)
}

// upload says how an upload is made. Fields are those of fmp_upload. The library writes no file.
type upload struct {
	name      string // of the client
	round     uint64
	precision string // "": float32
	atLeast   int    // images of a class, 0: any
}

// check returns an error for an upload that is not made. The precision is checked where the upload
// is encoded.
func (o *upload) check() error {
	if err := identity.CheckName(o.name); err != nil {
		return err
	}
	if o.atLeast < 0 || o.atLeast > maxImages {
		return fmt.Errorf("compress: at_least is %d; allowed are 0 to %d", o.atLeast, maxImages)
	}
	return nil
}

// compress makes the upload of labelled images, with the bytes of fmp-edge compress. An image that
// cannot be read is an error, and nothing is made. Sums are made in the order of classes as
// fmp-edge reads folders, so that the bytes are equal. Calibration points are not made here.
func compress(handle uint64, im *images, o *upload) ([]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if im.labels == nil {
		return nil, errors.New("images to compress want labels")
	}
	m, err := find(handle)
	if err != nil {
		return nil, err
	}
	defer m.Unlock()
	if m.client == nil {
		return nil, fmt.Errorf("handle %d is a classifier's or closed; want a client graph's "+
			"(fmp_client_load)", handle)
	}
	src, err := im.source(m.client.Fit, m.client.Manifest)
	if err != nil {
		return nil, err
	}
	u, left, err := m.client.Upload(context.Background(), src,
		client.Options{AtLeast: max(1, o.atLeast)}, o.name)
	if err != nil {
		return nil, err
	}
	// else these are the classes that were asked to be left out
	if len(left) > 0 && o.atLeast <= 1 {
		return nil, errors.Join(left...)
	}
	u.Round, u.Precision = o.round, federate.Precision(o.precision)
	return u.EncodeWithin(m.client.Manifest.Bytes)
}
