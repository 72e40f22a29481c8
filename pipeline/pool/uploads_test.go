package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/privacy"
)

// inRound is a message of a client in a round; of a private one with an epsilon.
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
			s.Row(0)[2], s.W[0] = 1, 2
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
		"one client twice":   {true, []inRound{b, b, {"b", 2, 2}, d}, nil, "b", []string{"both of", "both of", "that of"}},
		"private and none":   {true, nil, nil, "", nil},
		"no say":             {false, []inRound{a, b, c}, []string{"c"}, "a", []string{"allowed: 9", "allowed: 9"}},
		"in the round":       {false, []inRound{b, c, a}, []string{"b"}, "bc", []string{"allowed: 2"}},
		"withdraws twice":    {false, []inRound{b, c, c}, []string{"c"}, "bcc", nil},
		"only who withdraws": {false, []inRound{b}, []string{"b"}, "b", nil},
	} {
		paths := written(t, r.private, r.all)
		var got string
		var bad []error
		if r.private {
			var good []Release
			good, bad = ReadReleases(paths, federate.Expect{}, nil)
			for _, u := range good {
				got += u.Client
			}
		} else {
			var good []Upload
			good, bad = ReadUploads(paths, federate.Expect{}, r.without, nil)
			for _, u := range good {
				got += u.Client
			}
		}
		if got != r.want || !slices.EqualFunc(bad, r.bad,
			func(err error, want string) bool { return strings.Contains(err.Error(), want) }) {
			t.Errorf("%s: clients %q, errors %v; want %q, %q", name, got, bad, r.want, r.bad)
		}
	}
}
