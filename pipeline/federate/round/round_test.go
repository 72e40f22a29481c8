package round

import (
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

const good = "round: 1\nclient_graph: c.onnx\nroster: r.txt\ndeadline: 2030-01-01T00:00:00Z\n"

// TestParse: defaults are filled in, and every field that is out of its bounds is named with what
// is allowed.
func TestParse(t *testing.T) {
	t.Parallel()
	f := must.Get(Parse([]byte(good)))(t)
	if f.MinUploads != 1 || f.RebuildInterval != Duration(time.Minute) ||
		f.Bounds.Points != defaultPoints || f.Bounds.Bytes != defaultBytes ||
		len(f.Precisions) != 3 || f.Trust {
		t.Errorf("defaults %+v", f)
	}
	for text, want := range map[string]string{
		good + "accept_late: maybe": "true or false",
		good + "late: true":         "late",
		"":                          "empty",
		"round: 1":                  "client_graph is missing",
		good + "round: 2":           "already",
		good + "colour: red":        "colour",
		good + "---\n" + good:       "more than one document",
		"round: -1\n" + good[9:]:    `"-1"; want a whole number of at least 0`,
		good + "quorum: -1":         "quorum is -1",
		good + "min_uploads: -2":    "min_uploads is -2",
		good + "calibrate: 101":     "calibrate is 101",
		good + "calibrate: 5\nprivacy: {epsilon: 1}": "single images",
		good +
			"sets: {level: .9}\nprivacy: {epsilon: 1}": "sets.level (setting sets.level) is for uploads " +
			"of class means or moments",
		good + "sets: {by_class: perhaps}":                 "true or false",
		good + "rebuild_interval: 1":                       "no duration",
		good + "rebuild_interval: 10ms":                    "rebuild_interval is 10ms",
		good + "bounds: {points: -5}":                      "bounds.points is -5",
		good + "bounds: {bytes: 100}":                      "bounds.bytes is 100",
		good + "bounds: {bytes: 8388608}":                  "bounds.bytes is 8388608",
		good + "bounds: {norm: -1}":                        "bounds.norm is -1",
		good + "min_uploads: 0":                            "min_uploads is 0",
		good + "rebuild_interval: 0s":                      "rebuild_interval is 0s",
		good + "bounds: {points: 0}":                       "bounds.points is 0",
		good + "bounds: {bytes: 0}":                        "bounds.bytes is 0",
		good + "bounds: {rate: 0}":                         "bounds.rate is 0",
		good + "bounds: {norm: 0}":                         "bounds.norm is 0",
		good + "precisions: []":                            "precisions is empty",
		good + "bounds: {norm: .inf}":                      "bounds.norm",
		good + "precisions: [float8]":                      "precisions is [float8]",
		good + "precisions: [int8, int8]":                  "each once",
		good + "samples: -1":                               "samples is -1",
		good + "fresh: 1000000":                            "fresh is",
		good + "l2: -1":                                    "l2 is -1",
		good + "privacy: {}":                               "epsilon is 0",
		good + "privacy: {epsilon: 50}":                    "epsilon is 50",
		good + "privacy: {epsilon: 1, delta: 1}":           "delta is 1",
		good + "privacy: {epsilon: 1, unit: house}":        `unit is "house"`,
		good + "privacy: {epsilon: 1, unit: client}":       "points is 0",
		good + "privacy: {epsilon: 1, noise: two-servers}": "points is 0",
		good + "accept_late: true\nprivacy: {epsilon: 1, noise: two-servers, points: 9}": "open one sum",
		good + "privacy: {epsilon: 1, color: red}":                                       "color",
		good +
			"trust: true\nprivacy: {epsilon: 1}": "trust (setting trust) is for",
		good + "replace: true\nprivacy: {epsilon: 1}": "a second time",
		good +
			"scope: open\nprivacy: {epsilon: 1}": "posterior.scope) is for uploads of class means",
		good +
			"l2: 1\nprivacy: {epsilon: 1}": "erm.l2) is for uploads of an embedding's points",
		good + "title: " + strings.Repeat("x", 201): "title is 201 bytes long",
	} {
		must.Fail(Parse([]byte(text)))(t, want, text)
	}
	if f, err := Parse([]byte(good + "privacy: {epsilon: 2}")); err != nil ||
		f.Privacy.String() != "epsilon 2, delta 1e-05 for one image "+
			"added or removed, noise: local" || f.Trust {
		t.Errorf("a private round %+v, %v", f, err)
	}
	for when, want := range map[string]string{"2029-12-31T23:59:59Z": "open", "2030-01-01T00:00:00Z": "closed"} {
		at, err := time.Parse(time.RFC3339, when)
		if err != nil || f.Now(at) != want {
			t.Errorf("at %s the round is %s, want %s", when, f.Now(at), want)
		}
	}
}

// TestDeadline: a deadline has a zone; forms that YAML would take for another moment are refused.
func TestDeadline(t *testing.T) {
	t.Parallel()
	const of, wrong = "round: 1\nclient_graph: c.onnx\nroster: r.txt\ndeadline: ", "want a time, such as"
	for text, want := range map[string]string{ // an instant, or a fault
		"2100-03-31T18:00:00Z":       "2100-03-31T18:00:00Z",
		"'2100-03-31T18:00:00Z'":     "2100-03-31T18:00:00Z",
		"2100-03-31T18:00:00+02:00":  "2100-03-31T16:00:00Z",
		"&d 2100-03-31T18:00:00.5Z":  "2100-03-31T18:00:00.5Z",
		"2199-12-31T23:59:59Z":       "2199-12-31T23:59:59Z",
		"2200-01-01T00:00:00Z":       "times before the year 2200",
		"9999-12-31T23:59:59Z":       "times before the year 2200",
		"2100-03-31":                 wrong,
		"2100-03-31 18:00:00":        wrong,
		"2100-03-31T18:00:00":        wrong,
		"2100-03-31 18:00:00 +02:00": wrong,
		"2100-03-31t18:00:00z":       wrong,
		"soon":                       wrong,
		"[2100-03-31T18:00:00Z]":     "line 4: want a time",
		"{at: 2100-03-31T18:00:00Z}": "line 4: want a time",
		"":                           "deadline is missing",
	} {
		f, err := Parse([]byte(of + text + "\n"))
		if err != nil {
			must.Fail(0, err)(t, want, text)
		} else if got := f.Deadline.UTC().Format(time.RFC3339Nano); got != want {
			t.Errorf("%s: %s; want %s", text, got, want)
		}
	}
}

// FuzzRound: what is read is within its bounds.
func FuzzRound(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(good + "bounds: {points: 5, bytes: 4096}\nprecisions: [int8]\nagain: 2h\nlate: true\n"))
	f.Add([]byte(good + "privacy: {epsilon: 2, unit: client, points: 40, relation: replace-one, " +
		"noise: trusted}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil {
			return
		}
		if r.Graph == "" || r.Roster == "" || r.Deadline.IsZero() || r.Quorum < 0 || r.MinUploads < 1 ||
			r.Bounds.Points < 1 || r.Bounds.Bytes < minBytes || r.Bounds.Bytes > topBytes ||
			!(r.Bounds.Norm >= 0) || len(r.Precisions) == 0 ||
			(r.Privacy != nil && (r.Privacy.Check() != nil || r.Trust)) {
			t.Fatalf("read %+v", r)
		}
	})
}

// TestBytesOfGraph: where the file does not say otherwise, what a client graph makes is allowed.
func TestBytesOfGraph(t *testing.T) {
	for _, c := range [][3]int{{notGiven, 2 << 20, 2<<20 + headBytes}, {notGiven, 1 << 10, defaultBytes},
		{notGiven, 1 << 30, topBytes}, {notGiven, 0, defaultBytes}, {4096, 2 << 20, 4096}} {
		f := &File{Bounds: Bounds{Bytes: c[0]}}
		_ = f.fill() // it lacks what has no default
		if f.fit(c[1]); f.Bounds.Bytes != c[2] {
			t.Errorf("bounds.bytes %d and a graph of %d allow %d; want %d", c[0], c[1], f.Bounds.Bytes, c[2])
		}
	}
}

// TestTakesPrivate: a private round allows what its clients make, whatever their names and its noise; its own
// bound below that is refused.
func TestTakesPrivate(t *testing.T) {
	of := func(noise string, bytes, classes int) (*Round, error) {
		f := File{Bounds: Bounds{Bytes: bytes}, Privacy: &privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example,
			Relation: privacy.AddRemove, Noise: noise, Points: 10}}
		_ = f.fill() // it lacks what has no default
		r := &Round{File: f, Client: models.Manifest{C: classes, K: 9, Digest: strings.Repeat("0a", 32)}}
		return r, r.takesPrivate()
	}
	for _, c := range []struct {
		noise          string
		bytes, classes int
		allowed        int // 0: refused
	}{{privacy.Local, notGiven, 10, defaultBytes}, {privacy.Local, notGiven, 10_000, 10_000*80 + 2*headBytes},
		{privacy.Local, 1024, 10, 0}, {privacy.Local, 1056, 10, 1056}, {privacy.Trusted, 1024, 10, 0},
		{privacy.Trusted, 1076, 10, 0}, {privacy.Trusted, 1077, 10, 1077},
		{privacy.TwoServers, 4096, 10, 0}, {privacy.TwoServers, 1 << 20, 10, 1 << 20}} {
		r, err := of(c.noise, c.bytes, c.classes)
		if (err == nil) != (c.allowed > 0) || err != nil && !strings.Contains(err.Error(), "raise it to ") {
			t.Errorf("%+v: %v", c, err)
		}
		if got := r.Bounds.Bytes; err == nil && (got < c.allowed-headBytes || got > c.allowed) {
			t.Errorf("%+v: %d bytes are allowed", c, got)
		}
	}
}

// TestGroups: groups of clients are read, and their clients must be on the roster.
func TestGroups(t *testing.T) {
	for groups, want := range map[string]string{"north=a": `"a" is not on the roster`,
		"north": "NAME=CLIENT", "": ""} {
		err := (&Round{File: File{Options: pool.Options{Sets: pool.Sets{Groups: groups}}}}).CheckRoster(
			&identity.Roster{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("groups %q: %v; want %q", groups, err, want)
		}
	}
}

// TestAnchorSetting: a private round takes no anchor's file, and either word in its place.
func TestAnchorSetting(t *testing.T) {
	const file = "client_graph: c.onnx\nroster: r.txt\ndeadline: 2030-01-31T18:00:00Z\n"
	const private = "privacy: {epsilon: 1}\n"
	for anchor, fits := range map[string]bool{pool.LeftOut: true, pool.ShippedAnchor: true, "known.upload": false} {
		if _, err := Parse([]byte(file + "anchor: " + anchor + "\n")); err != nil {
			t.Errorf("anchor: %s: %v", anchor, err)
		}
		if _, err := Parse([]byte(file + private + "anchor: " + anchor + "\n")); (err == nil) != fits {
			t.Errorf("anchor: %s of a private round: %v", anchor, err)
		}
	}
}
