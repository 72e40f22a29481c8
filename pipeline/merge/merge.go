// Package merge adds uploads of a round up: many become one part, parts become one, and a part is
// pooled in place of its uploads.
//
// A part holds some uploads whole and of the others sums alone. A client's key is a SHA-256 of
// round, client graph and name; kept are the uploads of the lowest keys, [Judges] in any case and
// further ones while all have at most [MaxPoints] points and [maxKept] bytes together (bottom-k
// sampling; Cohen and Kaplan 2007). Sums are whole numbers in steps of 2^-40, masses, masses times
// class means and scatters. Both depend on the set of uploads alone: a tree of merges gives the
// part of the whole, bit for bit, in any order and grouping.
//
// Uploads that are summed are judged one at a time (Merger.Judge), each given the uploads that
// another part keeps, so that who is left out depends on no grouping either.
package merge

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx/sorting"
	"fmp/pipeline/federate"
	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// Bounds on a part.
const (
	// Judges is the number of uploads that others are judged by at least: a majority of fewer is
	// chance. As many are kept, however large they are.
	Judges = honesty.Exact
	// MaxPoints is the maximum number of points of more kept uploads.
	MaxPoints = 8192
	// MaxClients is the maximum number of clients.
	MaxClients = 1 << 24
	// MaxBytes is the maximum size of a part.
	MaxBytes = Judges*federate.MaxBytes + MaxClients*entryBytes + maxSums

	maxKept = 64 << 20  // bytes of the kept uploads beyond Judges
	maxSums = 256 << 20 // bytes of the sums
	// maxCoordinate is the largest coordinate that is summed.
	maxCoordinate = 1 << 16
)

// Of 2^24 clients two have one half of a key with a probability of 2^-81.
const (
	half       = 16
	entryBytes = 2 * half
)

// entry is the first half of a client's key and the first half of its upload's digest.
type entry [entryBytes]byte

// byKey orders entries by their clients, and not by their uploads.
func byKey(a, b entry) int { return bytes.Compare(a[:half], b[:half]) }

// Kept is an upload that a part holds whole.
type Kept struct {
	*federate.Upload
	Data []byte
	key  [sha256.Size]byte
}

// summed returns the number of images that the sums are of with the upload.
func (k *Kept) summed() int {
	if k.Within != nil {
		return k.Images()
	}
	return k.N
}

// Part is uploads of one round that were merged.
type Part struct {
	Round   uint64
	Model   string // SHA-256 of the client graph, in hexadecimal
	Dx, C   int
	Moments bool
	Kept    []Kept // by their keys
	// Summed is the number of clients in the sums, LeftOut of those left out as not honest, and N
	// the images that the first's sums are of: of moments calibration points are among them, of
	// class means not, as these take no part.
	Summed, LeftOut, N int
	// Against is the digest of the part against whose uploads they were judged, and of options if
	// some are not their defaults; "": all were trusted.
	Against string

	limit   []byte // the lowest key of an upload that is not kept; nil: all are
	clients []entry
	// [C, 1 + dx], and of moments the upper triangle of the scatter; nil while nothing is summed
	sums []whole.Number
	dof  whole.Number
}

// Clients returns the number of clients whose uploads went in.
func (p *Part) Clients() int { return len(p.clients) }

// Merger merges uploads and parts. It is not safe for concurrent use.
type Merger struct {
	// Judge returns the share of an upload's images that counts in the sums, 0 for an upload that
	// is left out. It depends on the upload and on Against alone. Without it uploads are
	// summed where Trust is set, else that is an error.
	Judge func(*federate.Upload) (share float64, err error)
	Trust bool
	// Against is a digest of the part, and of options, that Judge judges by.
	Against string
	// Limit is the key ([Key]) from which uploads are summed; nil: it follows from the uploads. A
	// tree whose mergers have the same limit, no higher than that of all uploads, gives the part
	// that it gives without.
	Limit []byte
	// Without has the SHA-256 of uploads that Add passes over; those that it came upon are true.
	Without map[[sha256.Size]byte]bool
	// Want holds the fields of the uploads that are known beforehand.
	Want federate.Expect
	// Check refuses single uploads that the round's client graph makes of no images, and uploads of
	// a part that Trust would sum; nil: none.
	Check func(*federate.Upload) error

	part *Part
	// fresh are the clients of the uploads that were added one by one since the last part.
	fresh map[[half]byte]entry
}

// TogetherError is an error of several files together: if one of them were left out for it, their
// order would choose which.
type TogetherError struct{ error }

// Unwrap returns the error that is wrapped.
func (e TogetherError) Unwrap() error { return e.error }

// errTwice is the error for a client that comes again.
func errTwice(name string) error {
	return fmt.Errorf("%s is in already: merge each client's upload once", name)
}

// Add adds the upload or the part that data hold. After an error nothing is added.
// Parts and uploads are told apart by their first bytes. It costs O(log clients) for an upload
// besides decoding, and the sums' numbers where it is summed.
func (m *Merger) Add(data []byte) error {
	if IsPart(data) {
		p, err := Decode(data, m.Want)
		if err != nil {
			return err
		}
		return m.AddPart(p)
	}
	if digest := sha256.Sum256(data); len(m.Without) > 0 {
		if _, out := m.Without[digest]; out {
			m.Without[digest] = true
			return nil
		}
	}
	u, err := federate.Decode(data, m.Want)
	if err != nil {
		return err
	}
	return m.addUpload(u, data)
}

// start opens the merger for the kind of the first upload, and checks that of later ones. Later
// uploads must be of the same round, graph and sizes, which Want has from there on.
func (m *Merger) start(like *Part) error {
	if n := sizeOf(like.Dx, like.C, like.Moments); n > maxSums/whole.Bytes {
		return fmt.Errorf("%d classes of %d coordinates are %d sums; a part has %d at most", like.C,
			like.Dx, n, maxSums/whole.Bytes)
	}
	if m.part == nil {
		m.part = &Part{Round: like.Round, Model: like.Model, Dx: like.Dx, C: like.C,
			Moments: like.Moments, Against: m.Against, limit: bytes.Clone(m.Limit)}
		m.fresh = map[[half]byte]entry{}
		round := like.Round
		m.Want = federate.Expect{Model: like.Model, Dx: like.Dx, C: like.C, Round: &round}
	}
	if m.part.Moments != like.Moments {
		return fmt.Errorf("uploads of moments and others do not add up; " +
			"merge those of one client graph")
	}
	return nil
}

// addUpload adds one upload. It clones data that it keeps. After an error the upload is not in.
// Coordinates are bounded so that 2^24 clients of 10^9 images stay below 2^127 steps. An upload at
// or above the limit is judged and summed, else kept.
func (m *Merger) addUpload(u *federate.Upload, data []byte) error {
	if u.Points.Indices() == nil {
		return errors.New("its points are of several classes each, an embedding's: these do not " +
			"add up; merge class means or moments")
	}
	if m.Check != nil {
		if err := m.Check(u); err != nil {
			return err
		}
	}
	for i, v := range u.Points.Z {
		if math.Abs(float64(v)) > maxCoordinate {
			return fmt.Errorf("a coordinate of point %d is %v; class means that add up have %d at "+
				"most", i/(len(u.Points.Z)/u.Points.N), v, maxCoordinate)
		}
	}
	if err := m.start(&Part{Round: u.Round, Model: u.Model, Dx: u.Points.Dx, C: u.Points.C,
		Moments: u.Within != nil}); err != nil {
		return err
	}
	if m.part.Clients()+len(m.fresh) >= MaxClients {
		return TogetherError{fmt.Errorf("%d clients are in; a part has %d at most", MaxClients,
			MaxClients)}
	}
	k := Kept{Upload: u, Data: data, key: key(u.Round, u.Model, u.Client)}
	e := entryOf(k.key, sha256.Sum256(data))
	if m.has(e) {
		return errTwice(fmt.Sprintf("client %q", u.Client))
	}
	if m.part.limit != nil && bytes.Compare(k.key[:], m.part.limit) >= 0 {
		share, err := m.share(&k)
		if err != nil {
			return err
		}
		m.count(&k, share)
	} else {
		k.Data = bytes.Clone(data)
		at, _ := slices.BinarySearchFunc(m.part.Kept, k, compare)
		m.part.Kept = slices.Insert(m.part.Kept, at, k)
		if err := m.below(); err != nil {
			m.part.Kept = slices.DeleteFunc(m.part.Kept,
				func(o Kept) bool { return o.key == k.key })
			return err
		}
	}
	m.fresh[[half]byte(e[:half])] = e
	return nil
}

// Key returns a client's key: no upload's content moves it.
// It is 32 bytes of SHA-256 of round, graph and name. Within a round a client chooses its place by
// its name alone.
func Key(round uint64, model, client string) []byte {
	k := key(round, model, client)
	return k[:]
}

// key is SHA-256 of a fixed text, the round (8 bytes, little-endian), the graph in hexadecimal, and
// the name. The graph has one length, so that no two clients share the text.
func key(round uint64, model, client string) [sha256.Size]byte {
	b := binary.LittleEndian.AppendUint64([]byte("fmp.merge.Part\n"), round)
	return sha256.Sum256(append(append(b, model...), client...))
}

// entryOf is the halves of both, side by side.
func entryOf(key, digest [sha256.Size]byte) (e entry) {
	copy(e[:half], key[:])
	copy(e[half:], digest[:])
	return e
}

// Lists reports whether the part is of these uploads: their SHA-256 in hexadecimal, by client.
func (p *Part) Lists(uploads map[string]string) bool {
	for client, upload := range uploads {
		digest, err := hex.DecodeString(upload)
		if err != nil || len(digest) != sha256.Size {
			return false
		}
		e := entryOf(key(p.Round, p.Model, client), [sha256.Size]byte(digest))
		if at, ok := slices.BinarySearchFunc(p.clients, e, byKey); !ok || p.clients[at] != e {
			return false
		}
	}
	return len(uploads) == len(p.clients)
}

// Holds reports whether the part is of an upload of a client.
func (p *Part) Holds(client string) bool {
	e := entryOf(key(p.Round, p.Model, client), [sha256.Size]byte{})
	_, ok := slices.BinarySearchFunc(p.clients, e, byKey)
	return ok
}

// compare orders kept uploads by their whole keys.
func compare(a, b Kept) int { return bytes.Compare(a.key[:], b.key[:]) }

// has reports whether a client is in. It costs O(log clients).
func (m *Merger) has(e entry) bool {
	if _, ok := m.fresh[[half]byte(e[:half])]; ok {
		return true
	}
	_, ok := slices.BinarySearchFunc(m.part.clients, e, byKey)
	return ok
}

// kept returns how many of the first of some uploads are kept. Their keys ascend, so that the first
// ones are those of the lowest keys.
// The first Judges are kept of any size. Of the others the first that passes MaxPoints or maxKept
// ends it, with all after it.
func kept(all []Kept) int {
	points, size := 0, 0
	for i, k := range all {
		n, b := k.Points.N, len(k.Data)
		if points, size = points+n, size+b; i >= Judges && (points > MaxPoints || size > maxKept) {
			return i
		}
	}
	return len(all)
}

// ErrJudge is wrapped by the error for an upload that is to be summed, where nothing is known to
// judge it by.
var ErrJudge error = TogetherError{fmt.Errorf("a part keeps %d uploads whole, or up to %d class "+
	"means, and sums the others, which are judged beforehand: give a part to judge by "+
	"(--against), or trust all clients (--trust)", Judges, MaxPoints)}

// share returns the share of an upload that counts in the sums. It is 1 where all are trusted and
// from 0 to 1 where Judge says so. The error names the client, whose upload may be another file's.
func (m *Merger) share(k *Kept) (float64, error) {
	if m.Judge == nil {
		switch {
		case m.part.Against != "":
			return 0, TogetherError{fmt.Errorf("the part's uploads were %s: give that part "+
				"(--against), and not --trust", judged(m.part.Against))}
		case !m.Trust:
			return 0, ErrJudge
		}
		if m.Check != nil {
			if err := m.Check(k.Upload); err != nil {
				return 0, TogetherError{fmt.Errorf("client %q: %w", k.Client, err)}
			}
		}
		return 1, nil
	}
	share, err := m.Judge(k.Upload)
	if err != nil {
		return 0, TogetherError{fmt.Errorf("client %q: %w", k.Client, err)}
	}
	return min(max(share, 0), 1), nil
}

// count adds an upload to the sums. One that has no share is a client of the part all the same, so
// that it cannot come again.
func (m *Merger) count(k *Kept, share float64) {
	p := m.part
	if share == 0 {
		p.LeftOut++
		return
	}
	p.Summed, p.N = p.Summed+1, p.N+k.summed()
	if p.sums == nil {
		p.sums = make([]whole.Number, sizeOf(p.Dx, p.C, p.Moments))
	}
	p.addMeans(k.Upload, share, (*whole.Number).Add)
}

// sizeOf returns the number of sums. It is C (1 + dx) for masses and sums, and dx (dx + 1)/2 more
// for the triangle of the scatter.
func sizeOf(dx, c int, ofMoments bool) int {
	n := c * (1 + dx)
	if ofMoments {
		n += dx * (dx + 1) / 2
	}
	return n
}

// addMeans adds an upload's masses, class means and scatter to the sums, or takes them out.
// Calibration points of moments count as images. With s the share, and n, x and S of the upload it
// adds, as whole numbers,
//
//	n s  to the mass,   n s x  to the sums,   S s  to the scatter
//
// Each product is rounded to a step before it is added, so that taking it out again leaves no
// trace.
func (p *Part) addMeans(u *federate.Upload, share float64, add func(*whole.Number, whole.Number)) {
	set, scatter := u.Points, []float64(nil)
	dof := 0
	if u.Within != nil {
		scatter = make([]float64, p.Dx*p.Dx)
		u.Within.AddTo(scatter)
		set, dof = withCalibration(u, scatter), u.Within.Dof
		dof += u.Points.N + len(u.Within.Labels) - set.N
	}
	for i := range set.N {
		mass := float64(set.W[i]) * share
		set.Shares(i, func(y int, _ float32) {
			to := p.sums[y*(1+p.Dx):][:1+p.Dx]
			add(&to[0], whole.Round(mass))
			for j, v := range set.Features(i) {
				add(&to[1+j], whole.Round(mass*float64(v)))
			}
		})
	}
	add(&p.dof, whole.Round(float64(dof)*share))
	at := p.C * (1 + p.Dx)
	for i := 0; i < p.Dx && scatter != nil; i++ {
		for _, v := range scatter[i*p.Dx+i : (i+1)*p.Dx] {
			add(&p.sums[at], whole.Round(v*share))
			at++
		}
	}
}

// withCalibration returns an upload's class means with its calibration points among their images,
// and adds those to the scatter, [k, k], one at a time (Welford's update). Products are rounded
// before they are added, so that every machine has the same sums.
// With n images of mean m so far, and d = x - m, a point x changes them to
//
//	scatter + n/(n + 1) d d',   m + d/(n + 1),   n + 1
//
// where the scatter is the upper triangle alone. A class without a mean begins with n = 0.
func withCalibration(u *federate.Upload, scatter []float64) *point.Set {
	k, set := u.Points.Dx, &point.Set{Dx: u.Points.Dx, C: u.Points.C}
	_, labels := u.Points.Labelled()
	at := map[int]int{}
	for i, y := range labels {
		set.Z, set.W, set.Y = append(set.Z, u.Points.Features(i)...), append(set.W, u.Points.W[i]),
			append(set.Y, int32(y))
		at[y] = set.N
		set.N++
	}
	d := make([]float64, k)
	for i, y := range u.Within.Labels {
		to, ok := at[y]
		if !ok {
			to, at[y] = set.N, set.N
			set.Z, set.W, set.Y, set.N = append(set.Z, make([]float32, k)...), append(set.W, 0),
				append(set.Y, int32(y)), set.N+1
		}
		mean, n := set.Features(to), float64(set.W[to])
		for j, v := range u.Within.Calibration[i*k : (i+1)*k] {
			d[j] = float64(v) - float64(mean[j])
		}
		for a, v := range d {
			f := v * (n / (n + 1))
			for b := a; b < k && n > 0; b++ {
				scatter[a*k+b] += float64(f * d[b])
			}
			mean[a] = float32(float64(mean[a]) + float64(v/(n+1)))
		}
		set.W[to]++
	}
	return set
}

// AddPart adds a part. The lower of both limits holds for the result, and uploads from there on are
// summed. After an error the merger is as it was. It costs O(clients + sums).
func (m *Merger) AddPart(p *Part) error {
	if err := m.start(p); err != nil {
		return err
	}
	against := m.part.Against
	if p.limit != nil && p.Against != against {
		if m.Judge != nil || m.part.limit != nil {
			err := fmt.Errorf("its uploads were %s, and those here are %s: merge all given the "+
				"same part and options", judged(p.Against), judged(against))
			if m.Judge == nil { // the first part would say who judges
				err = TogetherError{err}
			}
			return err
		}
		against = p.Against
	}
	if len(p.clients)+m.part.Clients()+len(m.fresh) > MaxClients {
		return TogetherError{fmt.Errorf("%d clients and %d are too many; a part has %d at most",
			m.part.Clients()+len(m.fresh), len(p.clients), MaxClients)}
	}
	m.settle()
	clients, twice := union(m.part.clients, p.clients)
	if twice != nil {
		return TogetherError{errTwice(m.name(twice, p))}
	}
	had := *m.part
	m.part.Against = against
	m.part.Kept = slices.Concat(had.Kept, p.Kept)
	sorting.By(m.part.Kept, compare)
	if m.part.limit == nil || p.limit != nil && bytes.Compare(p.limit, m.part.limit) < 0 {
		m.part.limit = p.limit
	}
	if err := m.below(); err != nil {
		*m.part = had
		return err
	}
	m.part.clients = clients
	m.part.Summed, m.part.LeftOut, m.part.N = m.part.Summed+p.Summed,
		m.part.LeftOut+p.LeftOut, m.part.N+p.N
	if m.part.sums == nil && p.sums != nil {
		m.part.sums = make([]whole.Number, len(p.sums))
	}
	for i, v := range p.sums {
		m.part.sums[i].Add(v)
	}
	m.part.dof.Add(p.dof)
	return nil
}

// below moves kept uploads whose keys are not below the limit, and those beyond the bounds, into
// the sums. The limit becomes the key of the first that has no room. It only falls while uploads
// are added, so that one that was summed would be summed in any order.
func (m *Merger) below() error {
	n, limit := len(m.part.Kept), m.part.limit
	if limit != nil {
		n, _ = slices.BinarySearchFunc(m.part.Kept, limit,
			func(k Kept, limit []byte) int { return bytes.Compare(k.key[:], limit) })
	}
	if at := kept(m.part.Kept[:n]); at < n {
		n, limit = at, bytes.Clone(m.part.Kept[at].key[:])
	}
	out := m.part.Kept[n:]
	shares := make([]float64, len(out))
	// All are judged before one is added, so that nothing is added after an error.
	for i := range out {
		var err error
		if shares[i], err = m.share(&out[i]); err != nil {
			return err
		}
	}
	for i := range out {
		m.count(&out[i], shares[i])
	}
	if m.part.limit = limit; len(out) > 0 {
		m.part.Kept = slices.Clone(m.part.Kept[:n])
	}
	return nil
}

// judged says by which part uploads were judged, for an error.
func judged(against string) string {
	if against == "" {
		return "trusted"
	}
	return fmt.Sprintf("judged by %.12s", against)
}

// name returns how an error calls a client that two parts hold.
func (m *Merger) name(twice *entry, p *Part) string {
	for _, k := range slices.Concat(m.part.Kept, p.Kept) {
		if bytes.Equal(k.key[:half], twice[:half]) {
			return fmt.Sprintf("client %q", k.Client)
		}
	}
	return "a client whose key begins with " + hex.EncodeToString(twice[:4])
}

// settle moves the clients that came one by one among the sorted ones: once for many, as it costs
// O(clients).
func (m *Merger) settle() {
	fresh := slices.SortedFunc(maps.Values(m.fresh), byKey)
	m.part.clients, _ = union(m.part.clients, fresh)
	clear(m.fresh)
}

// union merges sorted lists, and returns an entry whose client is in both. It costs O(a + b), and
// shares no memory with either.
func union(a, b []entry) (out []entry, twice *entry) {
	out = make([]entry, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := byKey(a[0], b[0]); {
		case c == 0:
			return nil, &a[0]
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		default:
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...), nil
}

// Part returns the part merged so far; nil where nothing is. Adding more changes it.
func (m *Merger) Part() *Part {
	if m.part != nil {
		m.settle()
	}
	return m.part
}

// Rest returns the class means of the clients in the sums, one for each class that they hold, with
// their masses, and of moments their scatter; nil where nothing is summed. A mean is s_c/n_c, of
// the whole numbers s_c and n_c. Shares of images make the degrees of freedom a fraction, which is
// rounded.
// The result is as one client would send it.
func (p *Part) Rest() (*point.Set, *moments.Within) {
	if p.sums == nil {
		return nil, nil
	}
	set := &point.Set{Dx: p.Dx, C: p.C}
	for y := range p.C {
		s := p.sums[y*(1+p.Dx):][:1+p.Dx]
		mass := s[0].Float()
		if mass <= 0 {
			continue
		}
		for _, v := range s[1:] {
			set.Z = append(set.Z, float32(v.Float()/mass))
		}
		set.N, set.W, set.Y = set.N+1, append(set.W, float32(mass)), append(set.Y, int32(y))
	}
	if set.N*(set.Dx+set.C) <= point.MaxDense {
		set = set.Dense()
	}
	if !p.Moments {
		return set, nil
	}
	w := &moments.Within{K: p.Dx, Dof: int(math.Round(p.dof.Float()))}
	for _, v := range p.sums[p.C*(1+p.Dx):] {
		w.Data = append(w.Data, float32(v.Float()))
	}
	if w.Dof == 0 {
		w.Data = nil
	}
	return set, w
}
