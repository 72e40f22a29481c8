package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"fmp/models"
	"fmp/onnx/sorting"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/merge"
)

// mergeUploads is the number of uploads of a job that merges.
// A failed job is done again in whole, so that a smaller number loses less work.
const mergeUploads = 1000

// Files of an answer to a job that merges: the part, its signature, and the names of clients that
// were left out of the sums.
const partFile, signatureFile, leftOutFile = "part", "part.sig", "left-out.json"

// merging is the input of a job that merges.
// It is JSON, as a job is. Its SHA-256 names the job's input.
type merging struct {
	// Against is the digest of the part whose uploads judge those that are summed, and the name of
	// its object; "": all are trusted.
	Against string `json:"against,omitempty"`
	// Limit is the key from which uploads are summed.
	Limit []byte `json:"limit"`
	// Server is the public key of the server that asks, for which the part is signed.
	Server  string         `json:"server,omitempty"`
	Members []store.Member `json:"members"`
}

// Merge merges the stored uploads of members: those of the lowest keys here, as the sample of the
// round, and the others by workers, who judge them by the sample unless the options trust them. The
// part depends on the uploads alone. left are the clients that were left out of the sums. It
// reorders the members.
// The lowest keys are added until the first has no room, and from its key on workers sum. Objects
// of the jobs are swept at the end, the part to judge by among them.
// After an error the part is not whole, and objects of jobs stay for the next attempt.
func (q *Queue) Merge(ctx context.Context,
	members []store.Member) (whole *merge.Part, left []string, err error) {
	sorting.By(members, func(a, b store.Member) int {
		return slices.Compare(merge.Key(q.job.Round, q.job.Graph, a.Client),
			merge.Key(q.job.Round, q.job.Graph, b.Client))
	})
	m := merge.Merger{Want: federate.Expect{Model: q.job.Graph, Round: &q.job.Round}}
	rest := members
	for len(rest) > 0 {
		err := addMember(ctx, q.store, &m, rest[0])
		// A merger without a judge refuses the first upload that has no room to be kept.
		if errors.Is(err, merge.ErrJudge) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		rest = rest[1:]
	}
	// an attempt that ended midway may have left parts, with uploads that were withdrawn since
	if len(rest) == 0 {
		return m.Part(), nil, q.Sweep(ctx)
	}
	of := merging{Server: q.Server, Limit: merge.Key(q.job.Round, q.job.Graph, rest[0].Client)}
	if !q.job.Options.Trust {
		data, err := m.Part().Encode()
		if err != nil {
			return nil, nil, err
		}
		of.Against = models.DigestBytes(data)
		if err := q.store.PutObject(ctx, of.Against, data); err != nil {
			return nil, nil, err
		}
	}
	if left, err = q.mergeRest(ctx, &m, of, rest); err == nil {
		err = q.Sweep(ctx)
	}
	return m.Part(), left, err
}

// mergeRest leaves the merging of members to workers, and adds their parts. A job has up to
// q.Uploads members.
// Parts are added in the order of their jobs, and would add up to the same in any. A part that is
// refused is deleted, so that the job is done again.
// A job's answer is named by its ID, the digest of all that it depends on. So an attempt after one
// that failed finds the parts of jobs that ended.
func (q *Queue) mergeRest(ctx context.Context, m *merge.Merger, of merging,
	rest []store.Member) (left []string, err error) {
	var inputs [][]byte
	chunks := slices.Collect(slices.Chunk(rest, q.Uploads))
	for _, of.Members = range chunks {
		input, err := json.Marshal(of)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, input)
	}
	err = q.all(ctx, Job{Sampling: q.job, Merge: true}, inputs,
		func(i int, j Job, r answer) error {
			of.Members = chunks[i]
			out, err := q.add(m, of, r.Files)
			if err != nil { // the next attempt must ask again
				return errors.Join(fmt.Errorf("job %.12s: %w", j.ID, err),
					q.store.DeleteObject(ctx, resultName(j.ID)))
			}
			left = append(left, out...)
			return nil
		})
	return left, err
}

// add adds a worker's part, which must be of the uploads that it was asked for.
// Signature, clients and their digests, the judge and those left out are compared with the job. The
// sums themselves are believed, within the bounds of [merge.Decode].
// Signers nil asks for no signature: workers are then trusted by their access to the queue.
func (q *Queue) add(m *merge.Merger, of merging,
	files map[string][]byte) (left []string, err error) {
	if q.Signers != nil {
		if err := merge.Verify(q.Signers, files[partFile], files[signatureFile],
			q.Server); err != nil {
			return nil, err
		}
	}
	p, err := merge.Decode(files[partFile], m.Want)
	if err != nil {
		return nil, err
	}
	clients := make(map[string]string, len(of.Members))
	for _, c := range of.Members {
		clients[c.Client] = c.Upload
	}
	// A worker keeps no upload: all of its members are above the limit.
	if len(p.Kept) > 0 || p.Against != of.Against || !p.Lists(clients) {
		return nil, errors.New("the part is not of the uploads that were to be merged, or was " +
			"judged by others")
	}
	if err := json.Unmarshal(files[leftOutFile], &left); err != nil {
		return nil, fmt.Errorf("%s: %w", leftOutFile, err)
	}
	for _, name := range left {
		if clients[name] == "" {
			return nil, fmt.Errorf("%s: client %.128q was not to be merged", leftOutFile, name)
		}
	}
	if len(left) != p.LeftOut {
		return nil, fmt.Errorf("%s: %d clients, and %d by the part", leftOutFile,
			len(left), p.LeftOut)
	}
	return left, m.AddPart(p)
}

// addMember adds the stored upload of a member.
// Its bytes must have the digest in the list of members: a client may have replaced it since.
// A replaced upload ends the job, as its digest is no member's.
func addMember(ctx context.Context, st *store.Store, m *merge.Merger, of store.Member) error {
	r, err := st.Get(ctx, of.Client)
	if err != nil {
		return err
	}
	if models.DigestBytes(r.Data) != of.Upload {
		return fmt.Errorf("the upload of %q was replaced", of.Client)
	}
	if err := m.Add(r.Data); err != nil {
		return fmt.Errorf("the upload of %q: %w", of.Client, err)
	}
	return nil
}

// merge does a job that merges.
// It reads one upload at a time, so that memory is that of the sums. Uploads below the limit, which
// the server keeps, are an error. The part is signed for the server that asks.
// It stops between uploads when its context ends. A client counts as left out by a share of 0.
func (w *Worker) merge(ctx context.Context, st *store.Store, job Job,
	input []byte) (map[string][]byte, error) {
	var of merging
	if err := json.Unmarshal(input, &of); err != nil {
		return nil, fmt.Errorf("members to merge: %w", err)
	}
	round, left := job.Round, []string{}
	m := merge.Merger{Want: federate.Expect{Model: job.Graph, Round: &round}, Limit: of.Limit,
		Trust: of.Against == "", Against: of.Against}
	if len(m.Limit) == 0 || len(of.Members) > merge.MaxClients ||
		(of.Against != "") == job.Options.Trust {
		return nil, errors.New("members to merge: the limit of their keys is missing, " +
			"or it is not said whether they are judged")
	}
	if of.Against != "" {
		judge, err := w.judgement(ctx, st, job, of.Against)
		if err != nil {
			return nil, err
		}
		m.Judge = func(u *federate.Upload) (float64, error) {
			share, err := judge(u)
			if err == nil && share <= 0 {
				left = append(left, u.Client)
			}
			return share, err
		}
	}
	for _, member := range of.Members {
		if err := addMember(ctx, st, &m, member); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	p := m.Part()
	// Uploads below the limit are the server's to keep, and are no worker's.
	if p == nil || len(p.Kept) > 0 {
		return nil, errors.New("members to merge: none, or some whose keys are below the limit")
	}
	data, err := p.Encode()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{partFile: data}
	if w.Key != nil {
		if files[signatureFile], err = merge.Sign(w.Key, data, of.Server); err != nil {
			return nil, err
		}
	}
	files[leftOutFile], err = json.Marshal(left)
	return files, err
}

// judgement prepares the judgement by the uploads of a part; it stays for the next job.
// The part in the store must have the digest that the job names.
// One is kept for a sampling and a part, as its preparation reads models and takes seconds. Jobs
// of a worker come one at a time.
func (w *Worker) judgement(ctx context.Context, st *store.Store, job Job,
	against string) (func(*federate.Upload) (float64, error), error) {
	if w.judge != nil && w.against == against && w.last == job.Sampling.key() {
		return w.judge, nil
	}
	if !aDigest.MatchString(against) {
		return nil, fmt.Errorf("members to merge: against is %.80q; allowed: %s", against, aDigest)
	}
	data, err := st.Object(ctx, against, merge.MaxBytes)
	if err != nil {
		return nil, err
	}
	if models.DigestBytes(data) != against {
		return nil, errors.New("the part to judge by in the store is not the one that " +
			"the job names")
	}
	by, err := merge.Decode(data, federate.Expect{Model: job.Graph, Round: &job.Round})
	if err != nil {
		return nil, err
	}
	m, err := readModels(ctx, st, job)
	if err != nil {
		return nil, err
	}
	if w.judge, err = w.Judge(ctx, by, m, job.Options); err != nil {
		return nil, err
	}
	w.against, w.last = against, job.Sampling.key()
	return w.judge, nil
}
