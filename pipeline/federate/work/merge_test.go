package work

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/merge"
	"fmp/pipeline/option"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
)

// many stores uploads of 1,024 class means each, so that the sample has the fewest that judge.
func many(t *testing.T, st *store.Store, graph string, n int) (members []store.Member) {
	t.Helper()
	const c = 1024
	for i := range n {
		s := &point.Set{N: c, Dx: 1, C: c}
		for y := range c {
			s.Z, s.W, s.Y = append(s.Z, float32(i+y)), append(s.W, 1), append(s.Y, int32(y))
		}
		u := &federate.Upload{Round: 1, Client: fmt.Sprint("client ", i), Model: graph, N: c, Points: s}
		data := must.Get(u.Encode())(t)
		m := store.Member{Client: u.Client, Upload: models.DigestBytes(data)}
		must.Do(t, st.Put(t.Context(),
			&store.Record{Receipt: wire.Receipt{Client: m.Client, Upload: m.Upload}, Data: data},
			0))
		members = append(members, m)
	}
	return members
}

// TestMergeAnswers: a part is taken of the worker that signed it and of the uploads that it was
// asked for alone; who is left out is named.
func TestMergeAnswers(t *testing.T) {
	graph := []byte("graph")
	st, url, _ := open(t, graph)
	digest := models.DigestBytes(graph)
	members := many(t, st, digest, 20)
	q := must.Get(NewQueue(t.Context(), st, 1, Models{Graph: graph}, option.Default[pool.Options]()))(t)
	w := connect(t, url)
	liar, prepared := "", 0
	w.Judge = func(_ context.Context, by *merge.Part, m Models,
		_ pool.Options) (func(*federate.Upload) (float64, error), error) {
		if len(by.Kept) != merge.Judges || string(m.Graph) != "graph" {
			t.Errorf("judged by %d uploads of the graph %q", len(by.Kept), m.Graph)
		}
		prepared++
		return func(u *federate.Upload) (float64, error) {
			if liar == "" {
				liar = u.Client
			}
			if u.Client == liar {
				return 0, nil
			}
			return 1, nil
		}, nil
	}
	w.Key = must.Get(identity.New("worker"))(t)
	q.Signers = must.Get(identity.ParseRoster([]byte(w.Key.Line())))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = w.Run(ctx, 1) }()
	q.Uploads = 5
	p, left := must.Get2(q.Merge(ctx, members))(t)
	if prepared != 1 {
		t.Errorf("the judgement was prepared %d times for two jobs", prepared)
	}
	if p.Clients() != 20 || len(p.Kept) != merge.Judges || p.Summed != 9 || p.LeftOut != 1 || len(left) != 1 ||
		left[0] != liar {
		t.Errorf("%d clients, %d kept, %d summed, %d left out: %q; want %q", p.Clients(), len(p.Kept),
			p.Summed, p.LeftOut, left, liar)
	}
	cancel()
	w = &Worker{Conn: w.Conn, Key: w.Key, Judge: w.Judge, Log: w.Log}

	// The members are in the order of their keys now.
	judges := func(members []store.Member) (*merge.Part, string) {
		t.Helper()
		var m merge.Merger
		for _, member := range members {
			must.Do(t, addMember(t.Context(), st, &m, member))
		}
		data := must.Get(m.Part().Encode())(t)
		digest := models.DigestBytes(data)
		must.Do(t, st.PutObject(t.Context(), digest, data))
		return m.Part(), digest
	}
	sample, against := judges(members[:merge.Judges])
	_, others := judges(members[1 : merge.Judges+1])
	of := merging{Against: against, Limit: merge.Key(1, digest, members[merge.Judges].Client),
		Members: members[merge.Judges:]}
	answer := func(change func(*merging)) map[string][]byte {
		t.Helper()
		asked := of
		change(&asked)
		input := must.Get(json.Marshal(asked))(t)
		return must.Get(w.merge(t.Context(), st, Job{Sampling: q.job, Merge: true}, input))(t)
	}
	honest := answer(func(*merging) {})
	for want, files := range map[string]map[string][]byte{
		"":                       honest,
		"the part is not of the": answer(func(m *merging) { m.Members = m.Members[1:] }),
		"judged by others":       answer(func(m *merging) { m.Against = others }),
		"no signature":           {partFile: honest[partFile]},
		"not valid": {partFile: honest[partFile],
			signatureFile: answer(func(m *merging) { m.Members = m.Members[1:] })[signatureFile]},
		"left-out.json": {partFile: honest[partFile], signatureFile: honest[signatureFile], leftOutFile: []byte("[]")},
		"was not to be merged": {partFile: honest[partFile], signatureFile: honest[signatureFile],
			leftOutFile: []byte(`["nobody"]`)},
	} {
		var m merge.Merger
		must.Do(t, m.AddPart(sample))
		if _, err := q.add(&m, of, files); want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	for want, change := range map[string]func(*merging){
		"was replaced": func(m *merging) {
			m.Members = []store.Member{{Client: members[merge.Judges].Client, Upload: digest}}
		},
		"limit":           func(m *merging) { m.Limit = nil },
		"below the limit": func(m *merging) { m.Members = members[:merge.Judges+1] },
		"whether they":    func(m *merging) { m.Against = "" },
		"against is":      func(m *merging) { m.Against = "x" },
		"nothing of that": func(m *merging) { m.Against = strings.Repeat("0", 64) },
		"another message": func(m *merging) { m.Against = digest },
		"none, or some":   func(m *merging) { m.Members = nil },
	} {
		asked := of
		change(&asked)
		input := must.Get(json.Marshal(asked))(t)
		must.Fail(w.merge(t.Context(), st, Job{Sampling: q.job, Merge: true}, input))(t, want)
	}
}
