package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
	"fmp/pipeline/stats"
)

// madeRound is made-up uploads of class means, and runs fmp pool on them.
type madeRound struct {
	t       *testing.T
	dir     string
	uploads []string
}

func newMadeRound(t *testing.T, clients int) *madeRound {
	t.Helper()
	f := shippedManifest(t, "digits", models.KindClient)
	r := &madeRound{t: t, dir: t.TempDir()}
	for i := range clients {
		r.uploads = append(r.uploads,
			madeUpload(t, f, r.path(fmt.Sprint(i, ".upload")), fmt.Sprint("client ", i), f.Digest, 0))
	}
	return r
}

func (r *madeRound) path(name string) string { return filepath.Join(r.dir, name) }

func (r *madeRound) read(name string) []byte {
	r.t.Helper()
	return read(r.t, r.path(name))
}

// args are those of fmp pool.
func (r *madeRound) args(more ...string) []string {
	return append([]string{"pool", "--engine.name", "pure", "--rows", "--scope", "closed", "--samples", "5"},
		more...)
}

// pool writes a classifier and returns its bytes.
func (r *madeRound) pool(out string, args ...string) []byte {
	r.t.Helper()
	ran(r.t, r.args(append(args, "-o", r.path(out))...)...)
	return r.read(out)
}

// TestPoolWithout: the classifier of a round that a client withdrew from is, to the byte, the one
// of the round that it never took part in, and the record of it, which is signed, says which
// published versions still hold the client.
func TestPoolWithout(t *testing.T) {
	r := newMadeRound(t, 5)
	before := r.pool("all.onnx", r.uploads...)
	never := r.pool("never.onnx", slices.Delete(slices.Clone(r.uploads), 2, 3)...)
	ran(t, "keys", "--dir", r.path("keys"), "--roster", r.path("servers.txt"), "server")
	ran(t, append([]string{"merge", "-o", r.path("first.part")}, r.uploads...)...)
	r.pool("mixed.onnx", r.uploads[0], r.uploads[1])
	must.Do(t, os.WriteFile(r.path("again"), r.read("2.upload"), 0o600))
	other := decoded(t, r.uploads[2])
	other.Points.W[0]++
	other.N++
	must.Do(t, os.WriteFile(r.path("other"), must.Get(other.Encode())(t), 0o600))
	got := r.pool("without.onnx",
		slices.Concat([]string{"--without", "client 2", "--key", r.path("keys/server.key"), "--record",
			r.path("record.json"), "--published", r.path("all.onnx"), "--published",
			r.path("mixed.onnx")}, r.uploads, []string{r.path("again"), r.path("other")})...)
	if !bytes.Equal(got, never) || bytes.Equal(got, before) {
		t.Error("the classifier without a client is not the one that it never took part in")
	}
	roster := must.Get(identity.LoadRoster(r.path("servers.txt")))(t)
	w := must.Get(pool.VerifyWithdrawal(r.read("record.json"), roster))(t)
	if len(w.Withdrawn) != 2 || w.Withdrawn[0].Name != "client 2" ||
		w.Withdrawn[0].Upload != models.DigestBytes(r.read("2.upload")) ||
		w.Classifier != models.DigestBytes(got) || len(w.Holds) != 1 ||
		w.Holds[0].SHA256 != models.DigestBytes(before) || len(w.Holds[0].Holds) != 1 || len(w.Free) != 1 ||
		len(w.Unknown) != 0 {
		t.Errorf("record: %+v", w)
	}
	forged := bytes.Replace(r.read("record.json"), []byte(`"holds"`), []byte(`"free"`), 1)
	if _, err := pool.VerifyWithdrawal(forged, roster); err == nil {
		t.Error("a record that was changed is taken")
	}
	for want, args := range map[string][]string{
		"none of the 5 uploads":     append([]string{"--without", "client 9"}, r.uploads...),
		"no upload is left":         {"--without", "client 0", r.uploads[0]},
		"--record tells of clients": append([]string{"--record", "x", "--key", "y"}, r.uploads...),
		"give both or neither": append([]string{"--record", "x", "--without", "client 1"},
			r.uploads...),
		"--published versions": append([]string{"--published", "x", "--without", "client 1"},
			r.uploads...),
		"published versions are classifiers": slices.Concat([]string{"--without", "client 2", "--key",
			r.path("keys/server.key"), "--record", r.path("x.json"), "--published",
			shippedFile(t, models.KindPredictor)}, r.uploads),
		"fmp merge --without": {"--without", "client 1", r.path("first.part")},
	} {
		refused(t, exitUsage, want, r.args(append(args, "-o", r.path("none.onnx"))...)...)
	}
	for _, name := range []string{"none.onnx", "x.json"} {
		absent(t, r.path(name))
	}
}

// TestWithoutHasNoSay: a client that withdraws decides no round by its upload, and two files of it are
// no error.
func TestWithoutHasNoSay(t *testing.T) {
	r := newMadeRound(t, 3)
	f := shippedManifest(t, "digits", models.KindClient)
	made := func(client string, round uint64) string {
		return madeUpload(t, f, r.path(fmt.Sprint(client, round)), client, f.Digest, round)
	}
	never := r.pool("never.onnx", r.uploads...)
	must.Do(t, os.WriteFile(r.path("again"), must.Get(os.ReadFile(made("client 9", 0)))(t), 0o600))
	twice := r.pool("twice.onnx",
		append([]string{"--without", "client 9", made("client 9", 0), r.path("again")}, r.uploads...)...)
	if !bytes.Equal(twice, never) {
		t.Error("two files of a client that withdrew leave a trace")
	}
	code, _, stderr := runFMP(t, r.args("--on-bad", "skip", "--without", "client 9", "-o",
		r.path("none.onnx"), r.uploads[0], made("client 8", 3), made("client 9", 3))...)
	if code != exitUsage || !strings.Contains(stderr, "left out: "+r.path("client 93")+": upload: round") ||
		!strings.Contains(stderr, "none of the 1 uploads") {
		t.Errorf("an upload of another round is taken out: exit code %d: %s", code, stderr)
	}
}

// atOnce pools late clients in processes at once: a state has all whose command did not fail, and the
// others are told that it changed. A record is written before the state, so that it can be made again.
func (r *madeRound) atOnce() {
	r.t.Helper()
	r.pool("once.onnx", "--state", r.path("once.state"), r.uploads[0])
	var codes [4]int
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() {
			out := r.path(fmt.Sprint("once", i, ".onnx"))
			code, _, stderr := runFMP(r.t, r.args("--state", r.path("once.state"), "-o", out, r.uploads[i+1])...)
			if codes[i] = code; code != exitOK && !strings.Contains(stderr, "run the command again") {
				r.t.Errorf("a process beside others: exit code %d: %s", code, stderr)
			}
		})
	}
	all.Wait()
	s := must.Get(stats.Decode(r.read("once.state"), federate.Expect{}))(r.t)
	for i, code := range codes {
		if _, in := s.Client(fmt.Sprint("client ", i+1)); in != (code == exitOK) {
			r.t.Errorf("client %d is in the state: %v, and its command ended with %d", i+1, in, code)
		}
	}
	o := poolSums{state: r.path("once.state"), before: []byte("another")}
	if _, err := o.take(); err == nil {
		r.t.Error("a state that another process changed is taken")
	}
	must.Do(r.t, os.Mkdir(r.path("wall"), 0o755))
	before := r.read("once.state")
	run := &poolRun{poolSums: poolSums{state: r.path("once.state"), sums: s, record: r.path("wall"),
		withdrawal: &pool.Withdrawal{}, by: must.Get(identity.New("server"))(r.t)}, out: r.path("once.onnx")}
	u := decoded(r.t, r.uploads[5])
	must.Do(r.t, s.Add(u, strings.Repeat("ab", 32)))
	if err := run.finish(); err == nil || !bytes.Equal(r.read("once.state"), before) {
		r.t.Errorf("a record that cannot be written: %v; the state changed", err)
	}
}

// TestPoolState: a late upload is added to a state without the others' files, and one that
// withdraws is taken out, with the bytes of a state and a classifier that were made at once.
func TestPoolState(t *testing.T) {
	r := newMadeRound(t, 6)
	all := r.pool("all.onnx", append([]string{"--state", r.path("all.state")}, r.uploads...)...)
	r.pool("some.onnx", "--state", r.path("s.state"), r.uploads[4], r.uploads[1],
		r.uploads[0], r.uploads[3])
	some, someState := r.read("some.onnx"), r.read("s.state")
	r.pool("late.onnx", "--state", r.path("s.state"), r.uploads[5])
	late := r.pool("late.onnx", "--state", r.path("s.state"), r.uploads[2])
	if !bytes.Equal(late, all) || !bytes.Equal(r.read("s.state"), r.read("all.state")) {
		t.Error("late uploads give another classifier or state than all at once")
	}
	if again := r.pool("late.onnx", "--state", r.path("s.state"), r.uploads[2]); !bytes.Equal(again, all) {
		t.Error("an upload that is in already changes the classifier")
	}
	if again := r.pool("again.onnx", "--state", r.path("s.state")); !bytes.Equal(again, all) {
		t.Error("the state alone gives another classifier")
	}
	gone := r.pool("gone.onnx", "--state", r.path("s.state"), "--without", "client 5", "--without",
		"client 2", r.uploads[2], r.uploads[5])
	if !bytes.Equal(gone, some) || !bytes.Equal(r.read("s.state"), someState) {
		t.Error("clients that withdrew leave a trace")
	}
	if res := answer[pooled](t, r.args("--json", "--state", r.path("s.state"), "-o",
		r.path("c.onnx"))...); len(res.Clients) != 4 || res.N == 0 {
		t.Errorf("pooled: %+v", res)
	}
	_, f := must.Get2(models.Load(r.path("c.onnx")))(t)
	if o, err := models.ReadOrigin(f); err != nil || len(o.Clients) != 4 ||
		o.Clients[3].Name != "client 4" {
		t.Errorf("the classifier's clients are %+v, %v", o.Clients, err)
	}
	damaged := bytes.Clone(someState)
	damaged[len(damaged)/2] ^= 1
	must.Do(t, os.WriteFile(r.path("damaged.state"), damaged, 0o600))
	for want, args := range map[string][]string{
		"give the upload that was added": {"--state", r.path("s.state"), "--without", "client 1"},
		"is not in": {"--state", r.path("s.state"), "--without",
			"client 2", r.uploads[2]},
		"there is none yet": {"--state", r.path("new.state"), "--without",
			"client 2", r.uploads[2]},
		"was given none":    {},
		"checksum":          {"--state", r.path("damaged.state")},
		"shifts of clients": {"--state", r.path("s.state"), "--for", "client 1"},
		"leave --level":     {"--state", r.path("s.state"), "--level", "0.9"},
		"leave --score":     {"--state", r.path("s.state"), "--score", "adaptive"},
		"leave --by-class":  {"--state", r.path("s.state"), "--by-class"},
		"--proportions out": {"--state", r.path("s.state"), "--proportions", "equal"},
		"--false-share out": {"--state", r.path("s.state"), "--false-share", "0.1"},
	} {
		refused(t, exitUsage, want, r.args(append(args, "-o", r.path("none.onnx"))...)...)
	}
	r.atOnce()
	fails(t, "is not there", r.args("--state", r.path("none/new.state"), r.uploads[2], "-o",
		r.path("none.onnx"))...)
	if !bytes.Equal(r.read("s.state"), someState) {
		t.Error("an error changed the state")
	}
}

// TestPoolCommand: a classifier records the flags and settings that act on it, wherever they are given,
// and files by their digests, so that it holds no name of this machine.
func TestPoolCommand(t *testing.T) {
	r := newMadeRound(t, 12)
	must.Do(t, os.WriteFile(r.path("c.yaml"), []byte("seed: 3\n"), 0o600))
	merge := append([]string{"merge", "-o", r.path("1.part")}, r.uploads[:10]...)
	ran(t, merge...)
	for from, to := range map[string]string{"11.upload": "known", "1.part": "2.part"} {
		must.Do(t, os.WriteFile(r.path(to), r.read(from), 0o600))
	}
	uploads := r.uploads[:4]
	for name, c := range map[string]struct{ first, second, names []string }{
		"threads":       {nil, []string{"--threads", "2"}, nil},
		"the library":   {nil, []string{"--engine.library", r.path("ort.so")}, nil},
		"a default":     {nil, []string{"--seed", "1"}, nil},
		"a config file": {[]string{"--seed", "3"}, []string{"--config", r.path("c.yaml")}, []string{" --seed=3"}},
		"--set":         {[]string{"--seed", "3"}, []string{"--set", "seed=3"}, []string{" --seed=3"}},
		"an anchor": {[]string{"--anchor", r.uploads[11]}, []string{"--anchor", r.path("known")},
			[]string{" --anchor=" + models.DigestBytes(r.read("11.upload"))}},
		"a part to judge by": {[]string{"--against", r.path("1.part"), r.path("1.part")},
			[]string{"--against", r.path("2.part"), r.path("1.part")},
			[]string{" --against=" + models.DigestBytes(r.read("1.part"))}},
	} {
		of := uploads
		if strings.HasPrefix(name, "a part") {
			of = r.uploads[10:11]
		}
		first := r.pool("first.onnx", slices.Concat(c.first, of)...)
		if !bytes.Equal(first, r.pool("second.onnx", slices.Concat(c.second, of)...)) {
			t.Errorf("%s: the classifier of %q is not that of %q", name, c.first, c.second)
		}
		_, f := must.Get2(models.Load(r.path("first.onnx")))(t)
		if strings.Contains(f.Command, r.dir) || !strings.Contains(f.Command, "--posterior.samples=5") {
			t.Errorf("%s: the command is %q", name, f.Command)
		}
		for _, want := range c.names {
			if !strings.Contains(f.Command, want) {
				t.Errorf("%s: no %q in the command %q", name, want, f.Command)
			}
		}
	}
	for want, args := range map[string][]string{
		"are of parts":  {"--against", r.path("1.part")},
		"anchor: open ": {"--anchor", r.path("gone")},
	} {
		fails(t, want, r.args(slices.Concat(args, uploads, []string{"-o", r.path("none.onnx")})...)...)
	}
}

// TestKindOfState: uploads that the client graph does not make are told by name before they are in a
// sum.
func TestKindOfState(t *testing.T) {
	upload := func(client string, k int, w *moments.Within) pool.Upload {
		return pool.Upload{Path: client + ".upload", Upload: &federate.Upload{Client: client, N: 3, Within: w,
			Points: &point.Set{N: 1, Dx: k, C: 2, Z: make([]float32, k), Y: []int32{1}, W: []float32{3}}}}
	}
	o := poolRun{graph: &onnx.Model{}, manifest: models.Manifest{Dx: 2, C: 2, Bytes: 4096}}
	good, bad := o.ofKind([]pool.Upload{upload("a", 2, &moments.Within{K: 2}), upload("b", 3, &moments.Within{K: 3}),
		upload("c", 2, nil), upload("d", 2, &moments.Within{K: 2, Dof: 1, Data: []float32{1, 2, 1}}),
		upload("e", 2, &moments.Within{K: 2, Dof: 1, Data: []float32{1, 0, 1}})}, nil)
	if len(good) != 2 || good[1].Client != "e" || len(bad) != 3 {
		t.Fatalf("%d good, %v", len(good), bad)
	}
	for i, want := range []string{`b.upload: of client "b": points are of 3`, "holds no moments", "no covariance"} {
		if !strings.Contains(bad[i].Error(), want) {
			t.Errorf("%v; want %q", bad[i], want)
		}
	}
}
