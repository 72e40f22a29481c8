package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/merge"
	"fmp/pipeline/point"
	"fmp/pipeline/privacy"
)

// inRound is a message of a client in a round; of a private one with an epsilon, of others with that
// coordinate.
type inRound struct {
	client  string
	round   uint64
	epsilon float64
}

// written writes messages to files, those of private rounds where private is set.
func written(t *testing.T, private bool, all []inRound) (paths []string) {
	t.Helper()
	dir, model := t.TempDir(), strings.Repeat("a", 64)
	for i, m := range all {
		var data []byte
		if private {
			data = must.Get((&federate.Release{Round: m.round, Client: m.client, Model: model,
				Budget: privacy.Budget{Epsilon: m.epsilon, Delta: 1e-5, Unit: privacy.Example,
					Relation: privacy.AddRemove, Noise: privacy.Trusted},
				Sums: privacy.NewRelease(3, 2), Salt: [16]byte{1}}).Encode())(t)
		} else {
			s := point.New(1, 2, 3)
			s.Row(0)[0], s.Row(0)[2], s.W[0] = float32(m.epsilon), 1, 2
			data = must.Get((&federate.Upload{Round: m.round, Client: m.client, Model: model, N: 2, Points: s}).Encode())(t)
		}
		path := filepath.Join(dir, fmt.Sprint(i))
		must.Do(t, os.WriteFile(path, data, 0o600))
		paths = append(paths, path)
	}
	return paths
}

// TestWhichRound: the round is that of most clients' messages, whatever the order and whether it is
// private, and who withdraws has no say.
func TestWhichRound(t *testing.T) {
	a, b, c, d := inRound{"a", 9, 4}, inRound{"b", 2, 4}, inRound{"c", 2, 4}, inRound{"d", 2, 2}
	e := inRound{"e", 2, 4}
	for name, r := range map[string]struct {
		private bool
		all     []inRound
		without []string
		want    string // clients
		bad     []string
	}{
		"uploads":            {false, []inRound{a, b, c}, nil, "bc", []string{"round is 9; allowed: 2"}},
		"private":            {true, []inRound{a, b, c}, nil, "bc", []string{"round is 9; allowed: 2"}},
		"budget of most":     {true, []inRound{d, b, c}, nil, "bc", []string{"budget is"}},
		"no majority":        {true, []inRound{d, b}, nil, "d", []string{"that of most"}},
		"one client twice":   {true, []inRound{b, b, {"b", 2, 2}, d}, nil, "bd", []string{"that of most", "that of most"}},
		"private and none":   {true, nil, nil, "", nil},
		"no say":             {false, []inRound{a, b, c}, []string{"c"}, "a", []string{"allowed: 9", "allowed: 9"}},
		"in the round":       {false, []inRound{b, c, e, a}, []string{"b"}, "bce", []string{"allowed: 2"}},
		"as many":            {false, []inRound{b, a}, nil, "a", []string{"allowed: 9"}},
		"two of a client":    {false, []inRound{b, {"b", 2, 3}, c}, nil, "c", []string{"both of", "both of"}},
		"copies":             {false, []inRound{b, b, c}, nil, "bc", []string{"both of"}},
		"withdraws twice":    {false, []inRound{b, c, c}, []string{"c"}, "bcc", nil},
		"only who withdraws": {false, []inRound{b}, []string{"b"}, "b", nil},
	} {
		paths := written(t, r.private, r.all)
		for range 2 {
			var got []string
			var bad []error
			if r.private {
				var good []Release
				good, bad = ReadReleases(paths, federate.Expect{}, nil)
				for _, u := range good {
					got = append(got, u.Client)
				}
			} else {
				var good []Upload
				good, bad = ReadUploads(paths, federate.Expect{}, r.without, nil)
				for _, u := range good {
					got = append(got, u.Client)
				}
			}
			slices.Sort(got)
			if strings.Join(got, "") != r.want || !slices.EqualFunc(bad, r.bad,
				func(err error, want string) bool { return strings.Contains(err.Error(), want) }) {
				t.Errorf("%s: clients %q, errors %v; want %q, %q", name, got, bad, r.want, r.bad)
			}
			slices.Reverse(paths)
		}
	}
}

// TestOrderOfMerges: in every order of files the same clients are in a part, whatever is at fault in
// the others; an error of files together ends it.
func TestOrderOfMerges(t *testing.T) {
	a, b, c, d := inRound{"a", 9, 4}, inRound{"b", 2, 4}, inRound{"c", 2, 4}, inRound{"d", 2, 4}
	b2, b9 := inRound{"b", 2, 5}, inRound{"b", 9, 4}
	type file []inRound // of several clients, or of one twice: a part
	for name, r := range map[string]struct {
		files []file
		want  string // clients; or the error that ends it
		bad   int
	}{
		"part of another round":   {[]file{{a, a}, {b}, {c}, {d}}, "bcd", 1},
		"part of most":            {[]file{{b, c, d}, {a}, {inRound{"e", 9, 4}}}, "bcd", 2},
		"as many":                 {[]file{{a}, {b}}, "a", 1},
		"two of a client":         {[]file{{b}, {b2}, {c}, {d}}, "cd", 2},
		"of a client in rounds":   {[]file{{b9}, {b}, {c}}, "bc", 1},
		"copies":                  {[]file{{b}, {b}, {c}}, "bc", 1},
		"part and upload of it":   {[]file{{b, c}, {b2}, {d}}, "bcd", 1},
		"two parts of one client": {[]file{{b, c}, {c, d}, {inRound{"e", 2, 4}}}, "is in already", 0},
	} {
		var paths []string
		for _, of := range r.files {
			from := written(t, false, of)
			if len(of) > 1 {
				m := merge.Merger{Trust: true}
				for _, path := range from[:len(slices.Compact(slices.Clone(of)))] {
					must.Do(t, m.Add(must.Get(os.ReadFile(path))(t)))
				}
				must.Do(t, os.WriteFile(from[0], must.Get(m.Part().Encode())(t), 0o600))
			}
			paths = append(paths, from[0])
		}
		order := rng.New(1, "order")
		for range 12 {
			order.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
			m := merge.Merger{Trust: true}
			bad, err := ReadMerged(paths, &m, nil, nil)
			var got []string
			for _, k := range m.Part().Kept {
				got = append(got, k.Client)
			}
			slices.Sort(got)
			if err == nil && (strings.Join(got, "") != r.want || len(bad) != r.bad) ||
				err != nil && !strings.Contains(err.Error(), r.want) {
				t.Errorf("%s: clients %q, bad %v, %v; want %q and %d bad", name, got, bad, err, r.want, r.bad)
			}
		}
	}
}
