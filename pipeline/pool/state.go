package pool

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/federate"
	"fmp/pipeline/option"
	"fmp/pipeline/stats"
)

// Without returns the uploads of all clients but those of some names, and theirs, each once. A name
// that no upload is from is an error, as is a round of nobody else. The order of uploads stays.
// Files of one upload that were given twice are one. Of a client that leaves all uploads go.
// It is for rounds that hold all uploads as files; a state has Update. The slices given stay as
// they were, and the uploads are shared.
func Without(uploads []Upload, names []string) (left, gone []Upload, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(uploads, func(u Upload) bool { return u.Client == name }) {
			return nil, nil, fmt.Errorf(
				"pool: client %q is to be left out: none of the %d uploads is from this client",
				name, len(uploads))
		}
	}
	for _, u := range uploads {
		if !slices.Contains(names, u.Client) {
			left = append(left, u)
		} else if !slices.ContainsFunc(gone, u.is) {
			gone = append(gone, u)
		}
	}
	if len(left) == 0 {
		return nil, nil, fmt.Errorf("pool: without %s no upload is left", strings.Join(names, ", "))
	}
	return left, gone, nil
}

// is reports whether two files are of one upload. The digest is that of the message, so that a copy
// under another path is the same upload.
func (u Upload) is(v Upload) bool { return u.Client == v.Client && u.Digest == v.Digest }

// Update adds uploads to a state (nil: none yet), or takes those of some clients out, and returns
// it and the uploads that were taken out. An upload that is in already stays; of each client that
// is taken out the upload must be given. After an error the state is of no use. It changes the
// state that it is given. Adding and taking out are exact, so that their order leaves no trace.
// Each upload is bound to its client by its digest: one of another digest is an error of the
// state, so that nobody counts twice. Sums are taken out by the very upload that was added, as a
// state keeps no uploads.
func Update(s *stats.State, uploads []Upload, without []string) (*stats.State, []Upload, error) {
	var gone []Upload
	for _, u := range uploads {
		out := slices.Contains(without, u.Client)
		if s == nil && !out { // the first upload decides round, graph and sizes
			s = stats.Start(u.Upload)
		}
		if s == nil {
			return nil, nil, fmt.Errorf("pool: client %q is to be taken out of the state, and "+
				"there is none yet", u.Client)
		}
		// A copy of a file was subtracted with its first.
		if out && slices.ContainsFunc(gone, u.is) {
			continue
		}
		var err error
		if in, ok := s.Client(u.Client); out {
			err = s.Remove(u.Upload, u.Digest)
			if i := slices.IndexFunc(gone,
				func(g Upload) bool { return g.Client == u.Client }); i >= 0 {
				err = fmt.Errorf("client %q: a second upload, %.12s, beside %.12s, which was in: "+
					"give that alone", u.Client, u.Digest, gone[i].Digest)
			}
			gone = append(gone, u)
		} else if !ok || in.Upload != u.Digest {
			err = s.Add(u.Upload, u.Digest)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("pool: %s: %w", u.Path, err)
		}
	}
	for _, name := range without {
		if !slices.ContainsFunc(gone, func(u Upload) bool { return u.Client == name }) {
			return nil, nil, fmt.Errorf("pool: client %q is to be taken out of the state: give "+
				"the upload that was added, which is subtracted", name)
		}
	}
	if s == nil || len(s.Clients()) == 0 {
		return nil, nil, errors.New("pool: no upload would be left in the state, which stays as " +
			"it was: delete its file to withdraw all")
	}
	return s, gone, nil
}

// NewState prepares a round of the uploads whose sums a state holds. Each fold of clients stands in
// as one client, so that all are taken for honest and none has a camera of its own. Options that
// want single uploads are an error. Folds are left out in turn where clients are else, so that the
// temperature is of clients left out.
// Empty folds are left out. Means are computed from the sums, and the state is only read.
func NewState(s *stats.State, graph *onnx.Model, client models.Manifest,
	o Options) (*Round, error) {
	if o.For != "" {
		return nil, fmt.Errorf("pool: a classifier for client %q: shifts of clients are found "+
			"from single uploads, and a state has their sums", o.For)
	}
	for _, setting := range option.List(&o.Sets) {
		if setting.Given() {
			return nil, fmt.Errorf("pool: prediction sets are made of single calibration points, "+
				"and a state has sums: leave --%s out", setting.Flag)
		}
	}
	// A fold's means and scatter mix its clients: nothing in them tells of one.
	o.Trust, o.alike, o.folds, o.Level = true, true, true, -1
	var uploads []Upload
	for i := range stats.Folds {
		f := s.Fold(i)
		means, within, curve := f.Client()
		if means == nil {
			continue
		}
		uploads = append(uploads,
			Upload{Upload: &federate.Upload{Round: s.Round, Model: s.Model, N: int(f.N),
				Points: means, Within: within,
				Curve: curve, Client: fmt.Sprintf("fold %d of %d clients", i, f.Clients)},
				Path: fmt.Sprint("fold ", i)})
	}
	r, err := New(uploads, graph, client, o)
	if unfit := (*UnfitError)(nil); errors.As(err, &unfit) {
		return nil, fmt.Errorf("%w: take out the client whose upload is at fault (--without), or "+
			"make the state anew of uploads", err)
	}
	// The origin names clients and their uploads, and no folds.
	if err == nil {
		r.members = s.Clients()
	}
	return r, err
}
