package pool

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
)

// MaxUploads is the maximum number of clients of one round; MaxPoints is the number of points that
// a round is computed with: if uploads hold more, nearby points of one class are merged
// (point.Group).
const (
	MaxUploads = 200_000
	MaxPoints  = 8192
)

// Upload is one client's upload, read from a file and checked.
type Upload struct {
	*federate.Upload
	Path, Digest string // SHA-256 of the file
}

// Expect returns the fields of a round's uploads that its client graph tells.
func Expect(client models.Manifest) federate.Expect {
	return federate.Expect{Model: client.Digest, Dx: client.PointWidth(), C: client.C}
}

// ReadUploads reads and checks the uploads of one round, each from a different client, all made by
// one model. Model, round and sizes that want leaves open are those of most clients' uploads, of
// the latest round where as many have others: no client of three decides them alone, and the order
// of files decides nothing. bad are the errors of all uploads that cannot be used. progress is told
// of each; nil: nobody asks.
func ReadUploads(paths []string, want federate.Expect, without []string,
	progress func(stage string, done, total int)) (good []Upload, bad []error) {
	return gather(len(paths), files(paths, progress), decodeUpload,
		rule{want, without, "pool one upload of each"})
}

// files returns a function that reads one of some files of messages, and tells progress of it.
func files(paths []string,
	progress func(stage string, done, total int)) func(i int) (string, []byte, error) {
	return func(i int) (string, []byte, error) {
		data, err := regularfile.ReadFile(paths[i], federate.MaxBytes)
		if err != nil {
			err = fmt.Errorf("reading upload: %w", err)
		}
		if progress != nil {
			progress("uploads", i+1, len(paths))
		}
		return paths[i], data, err
	}
}

// corpusOf returns the moments of a server's own images: of an upload that a client graph of their
// classes made. A prior is believed by all, so that its scatter must be a covariance of at least
// one degree of freedom.
func corpusOf(u Upload) (*discriminant.Client, error) {
	path := u.Path
	// One image a class has no scatter, of which a prior of covariances is made.
	if u.Within == nil || u.Within.Dof == 0 {
		return nil, fmt.Errorf("corpus %s: it holds no moments; make it behind a client graph of "+
			"fmp fuse --upload moments, of several images a class", path)
	}
	if u.Within.Trace() == 0 {
		return nil, fmt.Errorf("corpus %s: the images of each class are alike; give others", path)
	}
	if err := checkCovariance(u.Within, u.Precision); err != nil {
		return nil, fmt.Errorf("corpus %s: %w", path, err)
	}
	return &discriminant.Client{Means: u.Points, Within: u.Within}, nil
}

// readUpload reads an upload that is something to the server, which as says in errors. It may be of
// any round and graph: whether it goes with a round's is checked where the round is known. Sizes
// and numbers are those that federate.Decode lets pass.
func readUpload(as, path string) (Upload, error) {
	data, err := regularfile.ReadFile(path, federate.MaxBytes)
	if err != nil {
		return Upload{}, fmt.Errorf("reading %s: %w", as, err)
	}
	u, err := federate.Decode(data, federate.Expect{})
	if err != nil {
		return Upload{}, fmt.Errorf("%s %s: %w", as, path, err)
	}
	return Upload{u, path, models.DigestBytes(data)}, nil
}

// DecodeUploads is [ReadUploads] for messages in memory, which are called by their numbers from 0.
func DecodeUploads(messages [][]byte, want federate.Expect) (good []Upload, bad []error) {
	read := func(i int) (string, []byte, error) {
		return fmt.Sprint("upload ", i), messages[i], nil
	}
	return gather(len(messages), read, decodeUpload, rule{want, nil, "pool one upload of each"})
}

// decodeUpload reads one upload for [gather].
func decodeUpload(path string, data []byte, want federate.Expect) (Upload, received, error) {
	u, err := federate.Decode(data, want)
	if err != nil {
		return Upload{}, received{}, err
	}
	return Upload{u, path, models.DigestBytes(data)}, received{client: u.Client, matches: u.Matches,
		shared: shared{model: u.Model, round: u.Round, dx: u.Points.Dx, c: u.Points.C}}, nil
}

// received is a message as it came: its client, and the fields that all messages of a round have in
// common; or the reason why it cannot be used.
type received struct {
	path, client string
	digest       [sha256.Size]byte
	clients      int // of a part, which names none; 0: it is a message of one client
	shared
	matches func(federate.Expect) error // that the message has the fields, once they are known
	err     error
}

// shared is the fields that all messages of a round have in common.
type shared struct {
	model  string
	round  uint64
	dx, c  int
	budget privacy.Budget // of a private round
	// moments is set where files are merged, which add up with their like alone.
	moments bool
}

// rule says which messages are of one round.
type rule struct {
	want federate.Expect // fields that are known
	// without are clients that do not say which round it is, and may have several messages.
	without []string
	twice   string // the remedy where another client has
}

// gather reads messages and returns those of the round of most clients', each from a different
// client; bad are the errors of the others. It reads every message once and holds all of them, as
// the fields of most are known at the end. Who is left out depends on no order (rule.apply).
func gather[M any](n int, read func(i int) (path string, data []byte, err error),
	decode func(path string, data []byte, want federate.Expect) (M, received, error),
	by rule) (good []M, bad []error) {
	all, in := make([]M, n), make([]received, n)
	for i := range n {
		path, data, err := read(i)
		if err == nil {
			if all[i], in[i], err = decode(path, data, by.want); err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			in[i].digest = sha256.Sum256(data)
		}
		in[i].path, in[i].err = path, err
	}
	by.apply(in)
	for i, m := range in {
		if m.err != nil {
			bad = append(bad, m.err)
		} else {
			good = append(good, all[i])
		}
	}
	return good, bad
}

// apply sets the errors of messages that are not of the round of most clients' or are of a client
// with another message there. All messages of such a client are bad: the order of files would
// choose one of them. Of copies of one message the first is good.
func (by rule) apply(in []received) {
	// Messages are held against their round by all that is known of it, that of most included.
	most, want := mostly(in, by.without), by.want
	if most != nil {
		want.Model, want.Round, want.Dx, want.C = most.model, &most.round, most.dx, most.c
	}
	first, other := map[string]int{}, map[string]int{} // messages of a client, the first two unlike
	for i := range in {
		m := &in[i]
		if m.err == nil {
			if m.err = m.matches(want); m.err != nil {
				m.err = fmt.Errorf("%s: %w", m.path, m.err)
			}
		}
		if m.err == nil && most != nil {
			m.err = m.unlike(most)
		}
		if m.err != nil || m.clients > 0 || slices.Contains(by.without, m.client) {
			continue
		}
		if at, ok := first[m.client]; !ok {
			first[m.client] = i
		} else if _, ok := other[m.client]; !ok && in[at].digest != m.digest {
			other[m.client] = i
		}
	}
	for i := range in {
		m := &in[i]
		at, ok := first[m.client]
		if ok && i == at {
			at, ok = other[m.client]
		}
		if ok && m.err == nil && m.clients == 0 {
			m.err = fmt.Errorf("%s and %s are both of client %q; %s", m.path, in[at].path, m.client,
				by.twice)
		}
	}
}

// unlike returns an error for a message of another budget, or another kind, than most have.
func (m *received) unlike(most *shared) error {
	switch {
	case m.budget != most.budget:
		return fmt.Errorf("%s: its budget is %v; that of most uploads is %v, and a round has one",
			m.path, m.budget, most.budget)
	case m.moments != most.moments:
		return fmt.Errorf("%s: uploads of moments and others do not add up; merge those of one "+
			"client graph", m.path)
	}
	return nil
}

// mostly returns the fields of most clients' messages, of the latest round where as many have
// others; nil where none counts. A client has one vote, and none where its messages are of several
// rounds, so that many files of one do not decide. A part has the votes of its clients.
func mostly(in []received, without []string) (most *shared) {
	count, of := map[shared]int{}, map[string]shared{}
	split := map[string]bool{} // clients with messages of several rounds
	for _, m := range in {
		switch was, voted := of[m.client]; {
		case m.err != nil || slices.Contains(without, m.client):
		case m.clients > 0:
			count[m.shared] += m.clients
		case voted && was != m.shared:
			split[m.client] = true
		default:
			of[m.client] = m.shared
		}
	}
	for client, s := range of {
		if !split[client] {
			count[s]++
		}
	}
	for s, n := range count {
		if most == nil || n > count[*most] || n == count[*most] && before(s, *most) {
			most = &s
		}
	}
	return most
}

// before orders fields of which as many clients are: the latest round, then any order that is the
// same on every machine.
func before(a, b shared) bool {
	return cmp.Or(cmp.Compare(b.round, a.round),
		strings.Compare(fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b))) < 0
}

// Twins reports uploads that hold the same points and masses as an earlier one: possibly one client
// under two names. Uploads are compared in full only where a few of their values agree, so that it
// costs O(uploads) in most rounds.
func Twins(us []Upload) []string {
	var out []string
	first := make(map[[3]float32][]int, len(us)) // by a few of their values
	for i, a := range us {
		key := [3]float32{a.Points.Z[0], a.Points.Z[len(a.Points.Z)/2], a.Points.W[0]}
		for _, j := range first[key] {
			if b := us[j]; slices.Equal(a.Points.Z, b.Points.Z) &&
				slices.Equal(a.Points.Y, b.Points.Y) &&
				slices.Equal(a.Points.W, b.Points.W) {
				out = append(out, fmt.Sprintf(
					"%s and %s hold the same points, from clients %q and %q: "+
						"are they one client's?", b.Path, a.Path, b.Client, a.Client))
				break
			}
		}
		first[key] = append(first[key], i)
	}
	return out
}

// Heavy says which feature drowns the others (moments.Heavy) in half of the uploads or more; ""
// where none does, and where uploads hold directions of the features alone, which do not tell.
func (r *Round) Heavy() string {
	in := map[int]int{}
	for _, u := range r.Uploads {
		if u.Within == nil || u.Points.Dx != r.Client.Dx {
			return ""
		}
		h := moments.HeavyMoments(u.Points, u.Within)
		if h.Share == 0 {
			continue
		}
		if in[h.Feature]++; 2*in[h.Feature] >= len(r.Uploads) {
			return fmt.Sprintf("number %d of %d of the features, from 0, has most of the sum of "+
				"all and varies, which drowns the others: take another layer (fmp fuse --layer) "+
				"or scale it down (docs/extractors.md, Without a corpus)", h.Feature, r.Client.Dx)
		}
	}
	return ""
}

// Absent returns the names of the round's classes of which no upload, and no sum of merged ones,
// has images; none where uploads are embedded, so that nothing tells. Names are in the order of the
// classes.
func (r *Round) Absent() (out []string) {
	if r.kind() == ofPoints {
		return nil
	}
	var sets []*point.Set
	for _, u := range r.Uploads {
		if u.Points != nil {
			sets = append(sets, u.Points)
		}
	}
	if r.Rest != nil {
		sets = append(sets, r.Rest.Means)
	}
	held := map[int]bool{}
	for _, s := range sets {
		for i, w := range s.W {
			s.Shares(i, func(y int, share float32) { held[y] = held[y] || w > 0 && share > 0 })
		}
	}
	for y, name := range r.Client.Classes {
		if !held[y] {
			out = append(out, name)
		}
	}
	return out
}

// Images returns how many images each client of a round claims, and how many of them count if it is
// honest. Calibration points that are kept for prediction sets have no mass, so that the judgement
// lacks them; they are images of their clients too.
func (r *Round) Images(j *posterior.Judgement) (claimed, counted []float64) {
	claimed, counted = slices.Clone(j.Claimed), slices.Clone(j.Counted)
	for m, u := range r.Uploads {
		if all := float64(u.Images()); u.Images() > u.N {
			claimed[m], counted[m] = all, counted[m]+all-claimed[m]
		}
	}
	return claimed, counted
}
