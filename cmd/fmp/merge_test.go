package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/federate/work"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
	"fmp/pipeline/shipped"
)

// TestMerge: merged uploads are pooled like the uploads, whatever the tree; damaged ones are named
// and left out, or end the merge, which then writes nothing.
func TestMerge(t *testing.T) {
	r := newMadeRound(t, 5)
	path, read, uploads := r.path, r.read, r.uploads
	res := answer[merged](t, append([]string{"merge", "--json", "-o", path("all.part")}, uploads...)...)
	if info, err := os.Stat(path("all.part")); err != nil || res.Clients != 5 || res.Kept != 5 ||
		res.Summed != 0 ||
		int(info.Size()) != res.Bytes {
		t.Errorf("merged: %+v, %v", res, err)
	}
	ran(t, "merge", "-o", path("left.part"), uploads[4], uploads[1])
	ran(t, "merge", "-o", path("tree.part"), uploads[0], path("left.part"), uploads[3], uploads[2])
	if !bytes.Equal(read("tree.part"), read("all.part")) {
		t.Error("a tree of merges gives another part than one merge")
	}
	ran(t, "merge", "-o", path("four.part"), uploads[0], uploads[1], uploads[3], uploads[4])
	ran(t, "merge", "-o", path("less.part"), "--without", uploads[2], path("all.part"))
	ran(t, append([]string{"merge", "-o", path("passed.part"), "--without", uploads[2]}, uploads...)...)
	ran(t, "merge", "-o", path("glob.part"), "--without", uploads[2], path("all.part"), uploads[2])
	if !bytes.Equal(read("less.part"), read("four.part")) ||
		!bytes.Equal(read("glob.part"), read("four.part")) ||
		!bytes.Equal(read("passed.part"), read("four.part")) {
		t.Error("a client that withdrew leaves a trace in the part")
	}
	refused(t, exitUsage, "is not in", "merge", "-o", path("none.part"), "--without", uploads[2],
		path("four.part"))
	pool := func(files ...string) pooled {
		t.Helper()
		return answer[pooled](t, append([]string{"pool", "--json", "--engine.name", "pure", "--rows", "--scope",
			"closed", "-o", path("c.onnx")}, files...)...)
	}
	single, joined := pool(uploads...), pool(path("all.part"))
	if slices.Sort(joined.Clients); !slices.Equal(joined.Clients, single.Clients) ||
		joined.N != single.N || joined.Points != single.Points {
		t.Errorf("a pooled part is %+v, its uploads are %+v", joined, single)
	}
	if beside := pool(path("left.part"), uploads[0], uploads[2], uploads[3]); len(beside.Clients) != 5 {
		t.Errorf("a part beside uploads: clients %v", beside.Clients)
	}
	must.Do(t, os.WriteFile(path("bad.upload"), read("0.upload")[:99], 0o600))
	ran(t, "keys", "--dir", path("keys"), "--roster", path("workers.txt"), "worker", "worker 2")
	ran(t, "keys", "--dir", path("others"), "--roster", path("others.txt"), "worker")
	ran(t, "merge", "--key", path("keys/worker.key"), "-o", path("signed.part"), uploads[0], uploads[1])
	ran(t, "merge", "--key", path("others/worker.key"), "-o", path("forged.part"), uploads[2])
	pool(path("signed.part"), uploads[2], "--signed-by", path("workers.txt"))
	ran(t, "merge", "--key", path("keys/worker.key"), "-o", path("again.part"), uploads[0])
	ran(t, "merge", "-o", path("again.part"), uploads[1])
	absent(t, path("again.part.sig"))
	for want, args := range map[string]string{
		"not valid":      "pool signed.part forged.part --signed-by workers.txt -o OUT",
		"no signature":   "merge -o OUT signed.part left.part --signed-by workers.txt",
		"reading roster": "merge -o OUT signed.part --signed-by missing.txt",
		"reading key":    "merge -o OUT signed.part --key missing.key",
		"bad.upload":     "merge -o OUT bad.upload 1.upload",
		"is in already":  "merge -o OUT all.part 3.upload",
		"--trust":        "merge -o OUT all.part --against all.part --trust",
		"5 uploads":      "merge -o OUT all.part --against all.part",
		"none":           "merge -o OUT",
		"already":        "pool all.part 3.upload -o OUT",
	} {
		fields := strings.Fields(args)
		for i, a := range fields {
			if strings.Contains(a, ".") {
				fields[i] = path(a)
			} else if a == "OUT" {
				fields[i] = path("out.onnx")
			}
		}
		fails(t, want, fields...)
		absent(t, path("out.onnx"))
	}
	// No file is lost to the signature of a part, nor to the lack of one.
	must.Do(t, errors.Join(os.Link(path("0.upload"), path("x.part.sig")), os.Link(path("all.part"), path("y.part.sig")),
		os.Link(path("keys/worker.key"), path("k.part.sig")), os.Mkdir(path("z.part.sig"), 0o755),
		os.Link(path("signed.part.sig"), path("s.part.sig")),
		os.WriteFile(path("j.part.sig"), []byte(`{"worker":"a","signature":"YQ=="}`), 0o600)))
	for _, c := range [][2]string{{"x.part", uploads[1]}, {"x.part", path("x.part.sig")}, {"j.part", uploads[1]},
		{"y.part", path("all.part")},
		{"y.part", uploads[1] + " --without " + path("y.part.sig")}, {"z.part", uploads[1]},
		{"k.part", uploads[1] + " --key " + path("k.part.sig")}, {"s.part", path("s.part.sig")}} {
		refused(t, exitUsage, c[0], append([]string{"merge", "-o", path(c[0])}, strings.Fields(c[1])...)...)
		absent(t, path(c[0]))
		must.Get(os.Stat(path(c[0] + ".sig")))(t)
	}
	refused(t, exitOK, "bad.upload", "merge", "--on-bad", "skip", "-o", path("skip.part"),
		path("bad.upload"), uploads[1])
}

// TestMergeJudging: a flag that says how uploads are judged is an error where none is; a settings file
// and the environment, which other commands share, may say it.
func TestMergeJudging(t *testing.T) {
	r := newMadeRound(t, 2)
	must.Do(t, os.WriteFile(r.path("shared.yaml"), []byte("seed: 7\npredictor:\n  model: untrained\n"), 0o600))
	t.Setenv("FMP_SEED", "9")
	out := []string{"-o", r.path("o.part")}
	merge := func(args ...string) []string { return slices.Concat([]string{"merge"}, args, out, r.uploads) }
	for _, c := range []struct {
		args []string
		key  string // of the setting that is refused
	}{
		{[]string{"--predictor", r.path("missing.onnx")}, "predictor.model"},
		{[]string{"--scope", "open", "--trust"}, "posterior.scope"},
		{[]string{"--seed", "7"}, "seed"},
		{[]string{"--set", "seed=7"}, "seed"},
		{[]string{"--anchor", r.uploads[0]}, "anchor"},
		{[]string{"--open.model", "none"}, "open.model"},
	} {
		refused(t, exitUsage, "setting "+c.key+" (flag ", merge(c.args...)...)
		absent(t, r.path("o.part"))
	}
	ran(t, merge("--config", r.path("shared.yaml"), "--threads", "1")...)
	// With a part to judge by they are read, and here that part keeps too few uploads.
	must.Do(t, os.Rename(r.path("o.part"), r.path("by.part")))
	refused(t, exitUsage, "2 uploads", merge("--seed", "7", "--against", r.path("by.part"))...)
}

// TestMergeJudgement: parts that other options judged by the same part are not alike, as the same
// upload may be in the sums of one and left out of the other. Defaults have the part's own digest.
func TestMergeJudgement(t *testing.T) {
	r := newMadeRound(t, 10)
	ran(t, append([]string{"merge", "-o", r.path("by.part")}, r.uploads...)...)
	digest := models.DigestBytes(r.read("by.part"))
	seen := map[string]string{}
	for _, c := range []struct {
		args  string
		alike bool
	}{{"", true}, {"--scope auto", true}, {"--threads 1", true}, {"--scope closed", false},
		{"--scope open", false}, {"--seed 7", false}, {"--open.model none", false}, {"--anchor none", false},
		{"--anchor " + r.uploads[0], false}, {"--predictor " + r.path("p.onnx"), false}} {
		must.Do(t, os.WriteFile(r.path("p.onnx"), assetstest.Data(t, "digits", models.KindConjugate), 0o600))
		got := answer[merged](t, slices.Concat([]string{"merge", "--json", "-o", r.path("o.part"), "--against",
			r.path("by.part")}, strings.Fields(c.args), r.uploads)...).Against
		if other, ok := seen[got]; (got == digest) != c.alike || ok && !c.alike {
			t.Errorf("%q: judged by %s, as %q; the part is %s", c.args, got, other, digest)
		}
		seen[got] = c.args
	}
}

// TestMergeFull: where the disk is full a signed part and its signature stay as they were.
func TestMergeFull(t *testing.T) {
	disk := tinyDisk(t, 1<<20)
	r := newMadeRound(t, 40)
	at := func(name string) string { return filepath.Join(disk, name) }
	ran(t, "keys", "--dir", r.path("keys"), "--roster", r.path("workers.txt"), "worker")
	merge := append([]string{"merge", "--key", r.path("keys/worker.key"), "-o", at("all.part")}, r.uploads...)
	ran(t, merge[:len(merge)-1]...)
	var had [2][]byte
	for i, name := range []string{"all.part", "all.part.sig"} {
		had[i] = read(t, at(name))
	}
	rest := make([]byte, 1<<20)
	if err := os.WriteFile(at("rest"), rest, 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	must.Do(t, os.Truncate(at("rest"), must.Get(os.Stat(at("rest")))(t).Size()-8192))
	refused(t, exitFailed, "no space left", merge...)
	for i, name := range []string{"all.part", "all.part.sig"} {
		if !bytes.Equal(read(t, at(name)), had[i]) {
			t.Errorf("%s is another after a merge that failed", name)
		}
	}
	must.Do(t, os.Remove(at("rest")))
	ran(t, merge...)
	ran(t, "merge", "--signed-by", r.path("workers.txt"), "-o", r.path("again.part"), at("all.part"))
}

// TestMergeKilled: a server that is killed (-9) while its workers' jobs wait leaves the sample and
// the jobs in the store. Another upload has come meanwhile, so that the server merges other uploads
// when it is back; nothing of the first attempt stays, and no upload is lost.
func TestMergeKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a server and a worker")
	}
	const clients = 840 // some more than a sample holds
	t.Setenv(programEnv, "1")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r := newMergedRound(ctx, t, clients, clients-1)
	token := read(t, filepath.Join(r.dir, "nats.token"))
	graph := assetstest.Data(t, "digits", models.KindClient)
	objects := func() []string {
		conn, err := store.Connect(store.Options{URL: r.queue[0], Token: strings.TrimSpace(string(token))},
			"test")
		if err != nil {
			return nil
		}
		st := must.Get(store.Attach(ctx, conn, store.Name(benchRound, models.DigestBytes(graph)), 1))(t)
		defer st.Close()
		return must.Get(st.Objects(ctx))(t)
	}
	until := func(done func(names []string) bool) (names []string) {
		for names = objects(); !done(names); names = objects() {
			select {
			case <-ctx.Done():
				t.Fatalf("the store has %q; the server's log:\n%s", names,
					tail(filepath.Join(r.dir, "server.log")))
			case <-time.After(100 * time.Millisecond):
			}
		}
		return names
	}
	input := func(name string) bool { return strings.HasPrefix(name, "input-") }
	r.send(r.requests[:clients-1])
	left := until(func(names []string) bool { return slices.ContainsFunc(names, input) })
	r.send(r.requests[clients-1:])
	r.kill()
	r.start()
	r.merged()
	now, want := objects(), []string{models.DigestBytes(graph), "classifier-1-rows.onnx",
		"classifier-1.onnx", "members-1.json", "quorum"}
	for i, name := range now { // the digest of the version's parts is in their names
		now[i] = regexp.MustCompile("-1-[0-9a-f]{64}").ReplaceAllString(name, "-1")
	}
	slices.Sort(now)
	slices.Sort(want)
	if !slices.Equal(now, want) {
		t.Errorf("of %q there are %q; want %q", left, now, want)
	}
	r.kill()
	start := time.Now()
	r.start()
	must.Do(t, r.load.checkRestart(r.url, start))
}

// tail returns the end of a file.
func tail(file string) []byte {
	data, _ := os.ReadFile(file)
	return data[max(0, len(data)-2000):]
}

// TestExpanding: on Windows commands get the files that a pattern matches, as shells of other systems
// give them.
func TestExpanding(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"b.upload", "a.upload", "c.part"} {
		must.Do(t, os.WriteFile(name, nil, 0o600))
	}
	for _, c := range []struct{ system, args, want string }{
		{"windows", "*.upload c.part", "a.upload b.upload c.part"},
		{"windows", "?.part none.upload", "c.part none.upload"},
		{"windows", "*.csv", "*.csv: no file has such a name"},
		{"windows", "[*.csv", "[*.csv: no file has such a name"},
		{"linux", "*.upload", "*.upload"},
	} {
		var got string
		root := &cobra.Command{Use: "fmp", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(&cobra.Command{Use: "x UPLOAD...",
			Args: func(_ *cobra.Command, args []string) error {
				got = strings.Join(args, " ") + "\n"
				return nil
			}, RunE: func(_ *cobra.Command, args []string) error {
				got += strings.Join(args, " ")
				return nil
			}})
		expanding(c.system, root)
		root.SetArgs(strings.Fields("x " + c.args))
		want := c.want + "\n" + c.want
		if err := root.Execute(); err != nil {
			got, want = err.Error(), c.want
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s: %q, want %q", c.system, c.args, got, want)
		}
	}
}

// TestWorkersOpen: of classes that the corpus lacks, workers sample the open form with the
// predictor of the program and with a round's own, chains of who is honest among the jobs; the
// classifiers are byte for byte those of one process.
func TestWorkersOpen(t *testing.T) {
	const clients = 12 // more than honesty.Exact: chains propose who is honest
	g, f := assetstest.Load(t, "digits", models.KindClient)
	f.Classes = append(slices.Clone(f.Classes[:9]), "nine")
	predictor, _ := must.Get2(shipped.Open(f))(t)
	own := saved(t)(predictor, nil)
	file := read(t, own)
	o := store.Options{Dir: t.TempDir(), Listen: freeAddress(t), Token: "a token of the test's own"}
	st := must.Get(store.Open(t.Context(), "fmp-test", o))(t)
	t.Cleanup(func() { st.Close() })
	var uploads []pool.Upload
	for m := range clients {
		name := fmt.Sprintf("client-%02d", m)
		s := point.New(f.S, f.Dx, f.C)
		for c := range f.S { // class means of new classes, in places of their own
			row := s.Row(c)
			rng.Normal(rng.New(1, "class", c), row[:f.Dx])
			noise := make([]float32, f.Dx)
			rng.Normal(rng.New(1, name, c), noise)
			for j := range f.Dx {
				row[j] = 0.2*row[j] + 0.1*noise[j]
			}
			row[f.Dx+c%f.C], s.W[c] = 1, 2
		}
		u := &federate.Upload{Round: 1, Client: name, Model: f.Digest, N: 2 * f.S, Points: s}
		data := must.Get(u.Encode())(t)
		digest := models.DigestBytes(data)
		must.Do(t, st.Put(t.Context(),
			&store.Record{Receipt: wire.Receipt{Client: name, Upload: digest}, Data: data},
			0))
		uploads = append(uploads, pool.Upload{Upload: u, Digest: digest})
	}
	open := func() engine.Engine {
		e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
		t.Cleanup(func() { e.Close() })
		return e
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		o := store.Options{URL: "nats://" + o.Listen, Token: o.Token}
		conn := must.Get(store.Connect(o, "test"))(t)
		t.Cleanup(conn.Close)
		eng := open()
		w := &work.Worker{Conn: conn, Log: slog.New(slog.DiscardHandler),
			Open: func(uploads []pool.Upload, m work.Models, o pool.Options) (work.Sampler, error) {
				o.Threads = 1
				return openSampling(eng, uploads, m, o)
			}}
		go func() { _ = w.Run(ctx, 1) }()
	}
	for name, c := range map[string]struct {
		path string
		data []byte
	}{"the program's": {}, "the round's own": {own, file}} {
		p := &pooling{graph: g, client: f, eng: open(),
			options: pool.Options{Open: c.path, Scope: posterior.ScopeOpen, Samples: 25, Seed: 3}}
		alone := must.Get(p.pool(ctx, uploads))(t)
		if s := alone.Summary.(summary); s.Scope != posterior.ScopeOpen || s.Unknown != "nine" || s.Samples != 25 ||
			len(alone.Honest) != clients {
			t.Fatalf("%s: summary %+v, P(honest) %v", name, s, alone.Honest)
		}
		p.queue = must.Get(work.NewQueue(ctx, st, 1,
			work.Models{Graph: assetstest.Data(t, "digits", models.KindClient), Open: c.data},
			p.options))(t)
		spread := must.Get(p.pool(ctx, uploads))(t)
		if !bytes.Equal(alone.Classifier, spread.Classifier) || !bytes.Equal(alone.Rows, spread.Rows) {
			t.Errorf("%s: the classifier that workers sampled is not that of one process", name)
		}
	}
}

// TestAway: a worker waits for servers that are not there, and for those that end while it is let
// in; not where it is refused.
func TestAway(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	go func() { // resets what connects to it
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_, _ = c.Write([]byte("INFO {}\r\n"))
			c.Close()
		}
	}()
	for range 20 {
		if _, err := store.Connect(store.Options{URL: "nats://" + l.Addr().String()}, "test"); !away(err) {
			t.Errorf("%T %v", err, err)
		}
	}
	l.Close()
	if _, err := store.Connect(store.Options{URL: "nats://" + l.Addr().String()}, "test"); !away(err) {
		t.Errorf("%T %v", err, err)
	}
	if away(nats.ErrAuthorization) || away(nil) {
		t.Error("a worker waits where it is refused or let in")
	}
}
