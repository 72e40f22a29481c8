// Package round reads round files. A round file holds a server's requests of the clients of one
// round, who they are, the deadline, and the bounds on uploads.
package round

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"fmp/featurize/yamlfile"
	"fmp/models"
	"fmp/models/signature"
	"fmp/onnx/regularfile"
	"fmp/pipeline/conformal"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/moments"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// maxBytes is the maximum size of a round file.
const maxBytes = 64 << 10

// File is the contents of a round file. Paths are relative to it.
type File struct {
	// Round is the number of the round in its federation. An upload is signed for one round; give
	// each its own number.
	Round uint64 `yaml:"round"`
	// Title is the title shown to people.
	Title string `yaml:"title"`
	// Graph is the path of the client graph, as written by fmp fuse.
	Graph string `yaml:"client_graph"`
	// Options are the options of pooling, as in fmp pool.
	pool.Options `yaml:",inline"`
	// Roster is the path of the file of clients that may send.
	Roster string `yaml:"roster"`
	// Deadline is the deadline for uploads.
	Deadline Time `yaml:"deadline"`
	// Quorum is the number of uploads at which the first classifier is made before the deadline.
	// Default: the size of the roster.
	Quorum int `yaml:"quorum"`
	// MinUploads is the minimum number of uploads for a classifier at the deadline. Default 1.
	MinUploads int `yaml:"min_uploads"`
	// AcceptLate says that uploads are accepted after the deadline too.
	AcceptLate bool `yaml:"accept_late"`
	// RebuildInterval is the minimum interval between two versions of the classifier, the later
	// made with uploads that arrived since. Default 1m.
	RebuildInterval Duration `yaml:"rebuild_interval"`
	// Replace allows a client to replace its upload while the round is open.
	Replace bool `yaml:"replace"`
	// Precisions are the element types allowed, the preferred one first. Default: all, float32
	// first.
	Precisions []federate.Precision `yaml:"precisions"`
	// Calibrate is the maximum number of calibration points of an upload, by which prediction sets
	// are made. A client is asked for that number, and its owner grants as many or fewer: 0
	// (default) to 100, to 10 of rounds of moments, and 0 of private ones.
	Calibrate int `yaml:"calibrate"`
	// Bounds are the bounds on an upload.
	Bounds     Bounds `yaml:"bounds"`
	bytesGiven bool   // Bounds.Bytes is the file's, and no default
	// Workers is the path of a roster of workers: only parts that one of them signed are pooled
	// (fmp worker --merge). Default: parts of any worker that the NATS servers let in.
	Workers string `yaml:"workers"`
	// Privacy makes the round private: uploads are class sums released under this privacy budget,
	// with the defaults of fmp-edge compress.
	Privacy *privacy.Budget `yaml:"privacy"`
	// Labelled is a folder of the server's own images, by class; the status page reports the
	// accuracy on them.
	Labelled string `yaml:"labelled"`
}

// Bounds are the bounds on one upload. An upload that exceeds one is refused.
type Bounds struct {
	// Points is the maximum number of images that a client may claim: 1 to 1e9; default 10,000.
	Points int `yaml:"points"`
	// Bytes is the maximum size of the message, 1 KiB to 4 MiB; default 512 KiB, or the bound of
	// the client graph (fmp fuse --bytes) where that is more.
	Bytes int `yaml:"bytes"`
	// Rate is the minimum number of bytes a second at which an upload comes, after ten seconds: 1
	// to 1e9; default 1024.
	Rate int `yaml:"rate"`
	// Norm is the maximum norm of a point's features; above 0. Default: the bound that the
	// predictor states, or none.
	Norm float64 `yaml:"norm"`
}

// Duration is a time.Duration written as 90s or 2h.
type Duration time.Duration

// UnmarshalYAML parses a duration. A number without a unit is an error but for 0, as nobody could
// tell seconds from minutes. Its range is checked by [Parse].
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is no duration; write 90s, 10m or 2h", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// Time is a time.Time written with its zone: YAML would take a day for its first moment, in UTC.
type Time struct{ time.Time }

// UnmarshalYAML parses a time of RFC 3339.
func (t *Time) UnmarshalYAML(n *yaml.Node) (err error) {
	if t.Time, err = time.Parse(time.RFC3339, n.Value); err != nil {
		var is string
		if n.Kind == yaml.ScalarNode { // others have no text of their own
			is = strconv.Quote(n.Value) + "; "
		}
		return fmt.Errorf("line %d: %swant a time, such as 2030-01-31T18:00:00Z or "+
			"2030-01-31T18:00:00+01:00", n.Line, is)
	}
	return nil
}

// maxSignature is the maximum size of the signature of a client graph, which clients get with the
// round's description.
const maxSignature = 16 << 10

// graphSignature reads the signature of a client graph, which clients verify; nil if there is no
// file.
// It must cover this very file, and is not verified here: clients do, by the keys that they trust.
// A signature of another file would have clients refuse the round, so that it is an error here.
func graphSignature(graph, digest string) ([]byte, error) {
	path := graph + ".sig"
	data, err := regularfile.ReadFile(path, maxSignature)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("signature of the client graph: %w", err)
	}
	if err := signature.Covers(data, graph, digest); err != nil {
		return nil,
			fmt.Errorf("signature %s: %w; sign the client graph again (fmp sign), or move "+
				"the file away", path, err)
	}
	return data, nil
}

// Bounds and defaults of the numbers in a round file.
const (
	minBytes, topBytes = 1 << 10, 4 << 20
	defaultBytes       = 512 << 10
	defaultPoints      = 10_000
	defaultRate        = 1 << 10
	topRate            = 1_000_000_000
	maxTitle           = 200
	headBytes          = 1 << 10 // maximum size of a private round's message besides its share
)

// Round is a round that is ready to be served: the file's values with their defaults, and the
// contents of the files that it names. Paths in File are relative to the folder of the process, or
// whole.
type Round struct {
	File
	// GraphData is the contents of the client graph's file, and Client its manifest.
	GraphData []byte
	Client    models.Manifest
	// GraphSignature is the signature of the client graph, from the file beside it with .sig; nil
	// if there is none.
	GraphSignature []byte
	// Clients is the roster at the time when the round was loaded, and Signers that of workers;
	// nil: the file names none.
	Clients, Signers *identity.Roster
}

// Load reads a round file and the files that it names. Paths that options name are taken relative
// to the round file, as all others are. The order is: the file's own faults, client graph, kinds,
// bounds, signature, rosters. The graph is read twice, and the digests compared, so that its
// manifest is of the bytes that are served. Nothing is written.
func Load(path string) (*Round, error) {
	data, err := regularfile.ReadFile(path, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("reading round: %w", err)
	}
	file, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("round %s: %w", path, err)
	}
	r := &Round{File: *file}
	paths := []*string{&r.Graph, &r.Roster, &r.Workers, &r.Labelled}
	for _, s := range option.List(&r.Options) {
		if s.NamesFile() {
			paths = append(paths, s.Value.Addr().Interface().(*string))
		}
	}
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	if _, r.Client, err = models.Load(r.Graph); err != nil {
		return nil, fmt.Errorf("round %s: client_graph: %w", path, err)
	}
	if err := r.suitsGraph(path); err != nil {
		return nil, err
	}
	r.fit(r.Client.Bytes)
	if err := r.takesPrivate(); err != nil {
		return nil, fmt.Errorf("round %s: %w", path, err)
	}
	if r.GraphData, err = regularfile.ReadFile(r.Graph, wire.MaxGraph); err != nil {
		return nil, fmt.Errorf("round %s: %w", path, err)
	}
	if got := models.DigestBytes(r.GraphData); got != r.Client.Digest {
		return nil, fmt.Errorf("round %s: client_graph %s changed while it was read", path, r.Graph)
	}
	if r.GraphSignature, err = graphSignature(r.Graph, r.Client.Digest); err != nil {
		return nil, fmt.Errorf("round %s: %w", path, err)
	}
	if r.Clients, err = identity.LoadRoster(r.Roster); err != nil {
		return nil, fmt.Errorf("round %s: %w", path, err)
	}
	if r.Workers != "" {
		if r.Signers, err = identity.LoadRoster(r.Workers); err != nil {
			return nil, fmt.Errorf("round %s: workers: %w", path, err)
		}
	}
	return r, nil
}

// takesPrivate returns an error if a private round's own bound is below the messages of its
// clients, whose size is known: a client would spend its budget on one that is refused.
// A message of a plain sum has 8 C (K + 1) bytes besides its head. A leader's share has the proof
// too. Without two servers the message is made with the longest name and a salt, so that no
// client's has more bytes.
func (r *Round) takesPrivate() error {
	b, c, k := r.Privacy, r.Client.C, r.Client.K
	if b == nil {
		return nil
	}
	var n int
	if b.Noise == privacy.TwoServers {
		s, err := prio.New(*b, c, k, "")
		if err != nil {
			return err
		}
		n = s.LeaderBytes() + headBytes
	} else {
		largest := federate.Release{Round: r.Round, Client: strings.Repeat("n", identity.MaxName),
			Model: r.Client.Digest, Budget: *b, Sums: privacy.NewRelease(c, k),
			Salt: [prio.NonceSize]byte{1}}
		data, err := largest.Encode()
		if err != nil {
			return err
		}
		n = len(data)
	}
	if r.fit(n); n > r.Bounds.Bytes {
		return fmt.Errorf("an upload of %d classes and %d coordinates has up to %d bytes, and "+
			"bounds.bytes allows %d: raise it to %d, or with two servers lower privacy.points", c,
			k, n, r.Bounds.Bytes, n)
	}
	return nil
}

// suitsGraph returns an error if the file's settings are of another kind of uploads than the client
// graph's. A private round with a graph of plain uploads would protect nobody.
func (r *Round) suitsGraph(path string) error {
	if r.Client.Kind != models.KindClient {
		return fmt.Errorf(
			"round %s: client_graph %s is of kind %q; want a client graph, as fmp fuse writes it",
			path, r.Graph, r.Client.Kind)
	}
	if private := r.Client.Clip > 0; private != (r.Privacy != nil) {
		if private {
			return fmt.Errorf("round %s: client_graph %s is of a private round and the "+
				"file states no privacy; give it privacy: {epsilon: ...}, or another "+
				"graph", path, r.Graph)
		}
		return fmt.Errorf("round %s: privacy is stated and client_graph %s is of plain "+
			"uploads; want the one that fmp fuse --upload private writes", path, r.Graph)
	}
	if r.Calibrate > 0 && !r.Client.ClassMeans && r.Client.Bytes == 0 {
		return fmt.Errorf("round %s: calibrate is %d and client_graph %s is of other uploads than "+
			"class means and moments: leave it out, or give a graph of fmp fuse "+
			"--upload class-means or moments", path, r.Calibrate, r.Graph)
	}
	if r.Calibrate > moments.MaxCalibration && r.Client.Bytes > 0 {
		return fmt.Errorf("round %s: calibrate is %d and client_graph %s is of moments, "+
			"which have %d calibration points at most", path, r.Calibrate, r.Graph,
			moments.MaxCalibration)
	}
	return nil
}

// ErrRoster means that a roster lacks clients that the round file asks for.
var ErrRoster = errors.New("the roster does not fit the round file")

// CheckRoster returns ErrRoster if a roster has too few clients for the round. A round that is open
// takes such a roster: the client that it lacks may be one whose key was stolen. It is no part of
// [Load], as a roster may shrink while its round is open.
func (r *Round) CheckRoster(clients *identity.Roster) error {
	if r.Groups != "" {
		_, of, err := conformal.Groups(r.Groups)
		if err != nil {
			return fmt.Errorf("sets.groups: %w", err)
		}
		for c := range of {
			if !slices.Contains(clients.Names(), c) {
				return fmt.Errorf("%w: sets.groups: client %q is not on the roster", ErrRoster, c)
			}
		}
	}
	if n := clients.Len(); r.Quorum > n || r.MinUploads > n {
		return fmt.Errorf("%w: quorum %d and min_uploads %d; the roster has %d clients", ErrRoster,
			r.Quorum, r.MinUploads, n)
	}
	return nil
}

// Parse parses a round file and checks every field. Unknown keys are errors too. No file that it
// names is opened: [Load] does that.
func Parse(data []byte) (*File, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("more than %d bytes", maxBytes)
	}
	f := &File{Options: option.Default[pool.Options](), MinUploads: 1,
		RebuildInterval: Duration(time.Minute), Bounds: Bounds{Points: defaultPoints,
			Bytes: notGiven, Rate: defaultRate, Norm: notGiven}}
	if err := yamlfile.Decode(data, f); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, fmt.Errorf("%w; docs/federate.md shows a round file", err)
	}
	return f, f.fill()
}

// fit raises the default bound on an upload's bytes to that of a client graph.
// A bound that the file states stays as it is. A message has headBytes besides the graph's own, and
// never more than the largest bound.
func (f *File) fit(bytes int) {
	if !f.bytesGiven && bytes > 0 {
		f.Bounds.Bytes = min(max(f.Bounds.Bytes, bytes+headBytes), topBytes)
	}
}

// notGiven is the value of bounds that a file does not have, where 0 is none that is allowed.
const notGiven = math.MinInt

// fill sets defaults that depend on other fields, and returns all that is wrong with the file.
// All faults are told at once, as the file is corrected by hand.
func (f *File) fill() error {
	normGiven := f.Bounds.Norm != notGiven
	if f.bytesGiven = f.Bounds.Bytes != notGiven; !f.bytesGiven {
		f.Bounds.Bytes = defaultBytes
	}
	if !normGiven {
		f.Bounds.Norm = 0
	}
	known := []federate.Precision{federate.Single, federate.Half, federate.Int8}
	if f.Precisions == nil {
		f.Precisions = known
	}
	private := f.fillPrivacy()
	var faults []error
	want := func(ok bool, key string, value any, allowed string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s is %v; allowed: %s", key, value, allowed))
		}
	}
	want(len(f.Title) <= maxTitle, "title", fmt.Sprintf("%d bytes long", len(f.Title)),
		fmt.Sprintf("up to %d bytes", maxTitle))
	want(f.Graph != "", "client_graph", "missing", "the client graph that fmp fuse wrote")
	for _, s := range option.List(&f.Options) {
		want(len(s.Check()) == 0, s.Name, reflect.Indirect(s.Value), s.Allowed())
	}
	want(f.Roster != "", "roster", "missing", "the roster that fmp keys wrote")
	deadline := "missing"
	if !f.Deadline.IsZero() {
		deadline = f.Deadline.Format(time.RFC3339)
	}
	want(!f.Deadline.IsZero() && f.Deadline.Year() < 2200, "deadline", deadline,
		"times before the year 2200, such as 2030-01-31T18:00:00Z")
	want(f.Quorum >= 0 && f.Quorum <= identity.MaxClients, "quorum", f.Quorum,
		fmt.Sprintf("0 (all of the roster) to %d", identity.MaxClients))
	want(f.MinUploads >= 1 && f.MinUploads <= identity.MaxClients, "min_uploads", f.MinUploads,
		fmt.Sprintf("1 to %d", identity.MaxClients))
	want(f.RebuildInterval >= Duration(time.Second) && f.RebuildInterval <= Duration(24*time.Hour),
		"rebuild_interval", time.Duration(f.RebuildInterval), "1s to 24h")
	want(f.Bounds.Points >= 1 && f.Bounds.Points <= federate.MaxN, "bounds.points", f.Bounds.Points,
		fmt.Sprintf("1 to %d", federate.MaxN))
	want(f.Bounds.Bytes >= minBytes && f.Bounds.Bytes <= topBytes, "bounds.bytes", f.Bounds.Bytes,
		fmt.Sprintf("%d to %d", minBytes, topBytes))
	want(f.Bounds.Rate >= 1 && f.Bounds.Rate <= topRate, "bounds.rate", f.Bounds.Rate,
		fmt.Sprintf("1 to %d bytes a second", topRate))
	want(!normGiven || f.Bounds.Norm > 0 && !math.IsInf(f.Bounds.Norm, 0), "bounds.norm",
		f.Bounds.Norm, "finite numbers above 0")
	want(f.Calibrate >= 0 && f.Calibrate <= federate.MaxCalibration, "calibrate", f.Calibrate,
		fmt.Sprintf("0 to %d", federate.MaxCalibration))
	want(len(f.Precisions) > 0, "precisions", "empty", fmt.Sprintf("%v, each once", known))
	for i, p := range f.Precisions {
		want(slices.Contains(known, p) && !slices.Contains(f.Precisions[:i], p), "precisions",
			f.Precisions, fmt.Sprintf("%v, each once", known))
	}
	return errors.Join(append(faults, private)...)
}

// fillPrivacy sets the defaults of a private round and returns an error for settings that do not
// apply to one. A setting that would be without effect is an error.
func (f *File) fillPrivacy() error {
	b := f.Privacy
	if b == nil {
		return nil
	}
	b.Delta = cmp.Or(b.Delta, privacy.DefaultDelta)
	b.Unit, b.Relation, b.Noise = cmp.Or(b.Unit, privacy.Example),
		cmp.Or(b.Relation, privacy.AddRemove), cmp.Or(b.Noise, privacy.Local)
	faults := []error{b.Check(), f.Unread(pool.OfPrivate)}
	for _, k := range []struct {
		given    bool
		key, why string
	}{
		{b.Noise == privacy.TwoServers && f.AcceptLate, "accept_late: true",
			"two servers open one sum, at quorum or at the deadline"},
		{f.Calibrate > 0, "calibrate",
			"calibration points are single images, which a private round protects"},
		{f.Replace, "replace: true", "a second upload of a client spends its budget a second time"},
		{f.Bounds.Norm != 0, "bounds.norm", "it is of points, and a private upload has sums"},
	} {
		if k.given {
			faults = append(faults, fmt.Errorf("%s does not go with this private "+
				"round: %s", k.key, k.why))
		}
	}
	return errors.Join(faults...)
}

// Now returns the state of the round at a time: a state of package wire. At the deadline itself the
// round is late or closed.
func (r *File) Now(t time.Time) string {
	switch {
	case t.Before(r.Deadline.Time):
		return "open"
	case r.AcceptLate:
		return "late"
	}
	return "closed"
}
