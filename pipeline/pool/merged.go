package pool

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/regularfile"
	"fmp/onnx/sorting"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/merge"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Rest is the sum of clients whose uploads were merged (package merge).
// It stands in a round as one more client, whom nobody judges.
type Rest struct {
	// Summed is the number of clients, LeftOut of those left out as not honest, and N the images of
	// the first.
	Summed, LeftOut, N int
	Means              *point.Set
	Within             *moments.Within // of moments
	Digest             string          // of the part
}

// mergedClients ends the name of many clients, which are not listed.
const mergedClients = " merged clients"

// ErrTrust is wrapped by the error for parts whose sums nobody judged.
var ErrTrust = errors.New(
	"merge them given a part to judge by (fmp merge --against), or trust all clients (--trust)")

// ReadSigned reads an upload or a part. Where workers is not nil, a part must be signed by one of
// them, in the file beside it with .sig.
// An upload needs no worker's signature: its client's is another matter. The signature must cover
// the bytes as they are.
func ReadSigned(path string, workers *identity.Roster) ([]byte, error) {
	data, err := regularfile.ReadFile(path, merge.MaxBytes)
	if err != nil || workers == nil || !merge.IsPart(data) {
		return data, err
	}
	signature, err := regularfile.ReadFile(path+".sig", merge.MaxSignature)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // Verify says that there is no signature
		return nil, err
	}
	return data, merge.Verify(workers, data, signature, "")
}

// ReadMerged adds files to a merger, each an upload or a part, which workers sign ([ReadSigned]).
// Round and graph are those of most clients. Of a client with two unlike uploads neither is added,
// and of copies the first. So who is left out depends on no order. bad are the errors of those that
// cannot be used. An error of files together ([merge.TogetherError]) ends it. progress is told of
// each; nil: nobody asks. It goes on after a bad file, so that all are told of at once.
// Files are read twice, since memory has no room for all of them.
// It costs two reads of each file and O(1) memory for each, beside the merger's own. The order of
// the errors is that of the paths.
func ReadMerged(paths []string, m *merge.Merger, workers *identity.Roster,
	progress func(stage string, done, total int)) (bad []error, err error) {
	if progress == nil {
		progress = func(string, int, int) {}
	}
	var in []received
	for i, path := range paths {
		data, err := ReadSigned(path, workers)
		r := received{path: path, digest: sha256.Sum256(data)}
		// An upload that is to be left out is marked as seen, and is in no part.
		if _, out := m.Without[r.digest]; out && err == nil && !merge.IsPart(data) {
			m.Without[r.digest] = true
		} else {
			if err == nil {
				err = r.decode(data, m.Want)
			}
			r.err = inFile(path, err)
			in = append(in, r)
		}
		progress("uploads", i+1, len(paths))
	}
	rule{want: m.Want, twice: "merge one upload of each"}.apply(in)
	done, total := 0, len(in)-len(errorsOf(in))
	// A part cannot be split: of a part and an upload of one of its clients the upload is bad.
	for _, ofParts := range []bool{true, false} {
		for i := range in {
			r := &in[i]
			if r.err != nil || (r.clients > 0) != ofParts {
				continue
			}
			if err = r.addTo(m); errors.As(err, new(merge.TogetherError)) {
				return errorsOf(in), inFile(r.path, err)
			}
			r.err = inFile(r.path, err)
			done++
			progress("merging", done, total)
		}
	}
	return errorsOf(in), nil
}

// errorsOf returns the errors of the messages that have one.
func errorsOf(in []received) (bad []error) {
	for _, r := range in {
		if r.err != nil {
			bad = append(bad, r.err)
		}
	}
	return bad
}

// decode reads the fields of an upload or a part, and keeps nothing else of it.
// matches holds only headers: its closure must not keep features in memory.
func (r *received) decode(data []byte, want federate.Expect) error {
	if !merge.IsPart(data) {
		u, of, err := decodeUpload(r.path, data, want)
		if err == nil {
			r.client, r.shared, r.moments = of.client, of.shared, u.Within != nil
			r.matches = (&federate.Upload{Round: u.Round, Model: u.Model,
				Points: &point.Set{N: u.Points.N, Dx: u.Points.Dx, C: u.Points.C}}).Matches
		}
		return err
	}
	p, err := merge.Decode(data, want)
	if err == nil {
		r.clients, r.moments = p.Clients(), p.Moments
		r.model, r.round, r.dx, r.c = p.Model, p.Round, p.Dx, p.C
		r.matches = (&merge.Part{Model: p.Model, Round: p.Round, Dx: p.Dx, C: p.C}).Matches
	}
	return err
}

// addTo adds the file to a merger. It must be the one that was read before.
// The digest is compared since minutes may lie between the two reads.
func (r *received) addTo(m *merge.Merger) error {
	data, err := regularfile.ReadFile(r.path, merge.MaxBytes)
	if err != nil {
		return err
	}
	if sha256.Sum256(data) != r.digest {
		return errors.New("another process changed it meanwhile: run the command again")
	}
	return m.Add(data)
}

// inFile names the file of an error, where it does not name one.
func inFile(path string, err error) error {
	if named := (*fs.PathError)(nil); errors.As(err, &named) {
		return fmt.Errorf("reading upload: %w", err)
	} else if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// AnyPart reports whether one of some files is a part.
// It reads the first bytes of each file, and takes one that cannot be read for no part.
func AnyPart(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return merge.IsPart(head(path)) })
}

// Readable returns an error where one of some files cannot be read: it may be a part for all that
// [AnyPart] says.
func Readable(paths []string) error {
	for _, path := range paths {
		f, err := regularfile.Open(path)
		if err != nil {
			return fmt.Errorf("reading upload: %w", err)
		}
		f.Close()
	}
	return nil
}

// Merged returns the uploads that a part keeps whole, in the order of their clients' names, and its
// sums; nil where it has none. Sums that nobody judged are an error unless trust is set. An
// upload's path begins with its digest, as a part has no files.
// It costs an encoding of the part for its digest, where it has sums.
func Merged(p *merge.Part, trust bool) ([]Upload, *Rest, error) {
	var uploads []Upload
	for _, k := range p.Kept {
		digest := models.DigestBytes(k.Data)
		uploads = append(uploads, Upload{k.Upload, digest[:12] + ".upload", digest})
	}
	sorting.By(uploads, func(a, b Upload) int { return strings.Compare(a.Client, b.Client) })
	// Without kept uploads there is nothing to judge by, nor anything that shows how clients
	// differ.
	if len(uploads) == 0 {
		return nil, nil, errors.New("pool: the part keeps no upload whole: it is one of a " +
			"round's, merge it with the others (fmp merge)")
	}
	if p.Summed == 0 {
		return uploads, nil, nil
	}
	if p.Against == "" && !trust {
		return nil, nil, fmt.Errorf("pool: %d clients were summed without being judged: %w",
			p.Summed, ErrTrust)
	}
	data, err := p.Encode()
	if err != nil {
		return nil, nil, err
	}
	r := &Rest{Summed: p.Summed, LeftOut: p.LeftOut, N: p.N, Digest: models.DigestBytes(data)}
	// Sums become the class means and the scatter of one more client.
	r.Means, r.Within = p.Rest()
	return uploads, r, nil
}

// Join adds a part's sums to a round. Sums are checked as uploads are, since a part may be false:
// means within reach of images, and a scatter that is a covariance. After an error the round is as
// it was.
// A nil rest, of a part without sums, changes nothing. The rest is shared with the round.
func (r *Round) Join(rest *Rest) error {
	if rest == nil {
		return nil
	}
	if r.For != "" {
		return fmt.Errorf("pool: a classifier for client %q: shifts of clients are found from "+
			"single uploads, and %d clients were summed", r.For, rest.Summed)
	}
	// The mean of means within a ball is within it, as a ball is convex.
	if r.reach != nil {
		if err := r.reach.CheckSum(rest.Means); err != nil {
			return fmt.Errorf("pool: the sum of %d clients: %w: one of the parts is false; merge "+
				"the uploads anew (fmp merge --on-bad skip), or take signed parts alone "+
				"(--signed-by)", rest.Summed, err)
		}
	}
	if w := rest.Within; w != nil && w.Dof > 0 {
		bad, err := discriminant.Improper([]discriminant.Client{{Means: rest.Means, Within: w}})
		if err != nil {
			return fmt.Errorf("pool: the sum of %d clients: %w", rest.Summed, err)
		}
		if bad != nil {
			return fmt.Errorf("pool: the sum of %d clients: its scatter is no covariance, as "+
				"sums of uploads are: one of the parts is false; pool them one at a time to find "+
				"it, and take signed parts alone (--signed-by)", rest.Summed)
		}
	}
	r.Rest = rest
	return nil
}

// Judge returns the judgement of further clients by the uploads of a part (merge.Merger.Judge): the
// share of a client's images that counts is that below the cap of package honesty, and 0 where the
// client is less likely honest than not. Of n images, and a cap of the part's clients, it is
// cap/max(n, cap). The predictor's sessions stay open for the judgement. Sums
// of the part do not judge: only the uploads that it keeps do.
// An error of the round or of the predictor comes before any client is judged.
func Judge(ctx context.Context, eng engine.Engine, p *merge.Part, graph *onnx.Model,
	client models.Manifest, o Options) (
	func(*federate.Upload) (float64, error), error) {
	// The options of the round that do not bear on honesty are set aside.
	o.Trust, o.For, o.Sets, o.alike = false, "", Sets{Level: -1}, true
	uploads, _, err := Merged(p, true)
	if err != nil {
		return nil, err
	}
	if len(uploads) < merge.Judges {
		return nil, fmt.Errorf("pool: the part keeps %d uploads; to judge by it needs %d at least",
			len(uploads), merge.Judges)
	}
	r, err := New(uploads, graph, client, o)
	if err != nil {
		return nil, err
	}
	s, err := r.Sampling(eng)
	if err != nil {
		return nil, err
	}
	if r.Moments() {
		known, err := r.knownMoments()
		if err != nil {
			return nil, err
		}
		by, err := posterior.NewMomentsAgainst(ctx, s.clients, known, r.Seed, r.Threads)
		return func(u *federate.Upload) (float64, error) {
			if u.Within == nil {
				return 0, nil // the client graph makes moments
			}
			return by.Share(discriminant.Client{Means: u.Points, Within: u.Within})
		}, err
	}
	by, err := s.means.Against(ctx)
	if err != nil {
		s.Close()
		return nil, err
	}
	return func(u *federate.Upload) (float64, error) {
		if err := r.Check(u); err != nil {
			return 0, nil // no images have such means
		}
		return by.Share(u.Points)
	}, nil
}
