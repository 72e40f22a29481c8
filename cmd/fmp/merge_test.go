package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/federate/work"
	"fmp/pipeline/merge"
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
	f := shippedManifest(t, "digits", models.KindClient)
	madeUpload(t, f, path("unknown.upload"), "unknown", strings.Repeat("ab", 32), 0)
	ran(t, "merge", "-o", path("unknown.part"), path("unknown.upload"))
	ran(t, "merge", "-o", path("fit.part"), "--on-bad", "skip", "--trust", r.far(), uploads[1])
	ran(t, "merge", "-o", path("one.part"), uploads[1])
	if !bytes.Equal(read("fit.part"), read("one.part")) {
		t.Error("an upload that no image gives is in a part")
	}
	for want, args := range map[string]string{
		"far.upload: points[0]": "merge -o OUT far.upload 1.upload",
		"(--client-graph)":      "merge -o OUT unknown.upload --trust",
		"not valid":             "pool signed.part forged.part --signed-by workers.txt -o OUT",
		"no signature":          "merge -o OUT signed.part left.part --signed-by workers.txt",
		"forged.part: part: it": "merge -o OUT 1.upload --against forged.part --signed-by workers.txt",
		"reading part: open":    "merge -o OUT 1.upload --against missing.part --signed-by workers.txt",
		"reading roster":        "merge -o OUT signed.part --signed-by missing.txt",
		"reading key":           "merge -o OUT signed.part --key missing.key",
		"bad.upload":            "merge -o OUT bad.upload 1.upload",
		"is in already":         "merge -o OUT all.part 3.upload",
		"--trust":               "merge -o OUT all.part --against all.part --trust",
		"5 uploads":             "merge -o OUT all.part --against all.part",
		"at least 1 argument (": "merge -o OUT",
		"already":               "pool all.part 3.upload -o OUT",
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

// TestMergeWithdrawnJudge: a client that withdraws judges nobody: a part to judge by that is of its upload, or of
// another upload of it, is refused.
func TestMergeWithdrawnJudge(t *testing.T) {
	r := newMadeRound(t, 11)
	ran(t, append([]string{"merge", "-o", r.path("by.part")}, r.uploads[:10]...)...)
	other := decoded(t, r.uploads[3])
	other.Points.W[0]++
	other.N++
	must.Do(t, os.WriteFile(r.path("other"), must.Get(other.Encode())(t), 0o600))
	for without, want := range map[string]string{r.uploads[10]: "", r.uploads[3]: `holds client "client 3"`,
		r.path("other"): `holds client "client 3"`} {
		args := append([]string{"merge", "-o", r.path("o.part"), "--against", r.path("by.part"), "--without", without},
			r.uploads...)
		if want == "" {
			ran(t, args...)
			must.Do(t, os.Remove(r.path("o.part")))
			continue
		}
		refused(t, exitUsage, want, args...)
		absent(t, r.path("o.part"))
	}
	refused(t, exitUsage, "which withdraws", append([]string{"merge", "-o", r.path("o.part"), "--against",
		r.path("by.part"), "--anchor", r.uploads[10], "--without", r.uploads[10]}, r.uploads...)...)
	absent(t, r.path("o.part"))
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

// TestNoGraph: uploads behind a client graph that is not known end the command in one error.
func TestNoGraph(t *testing.T) {
	r := newMadeRound(t, 0)
	f := shippedManifest(t, "digits", models.KindClient)
	for _, client := range []string{"a", "b"} {
		r.uploads = append(r.uploads, madeUpload(t, f, r.path(client+".upload"), client, strings.Repeat("ab", 32), 0))
	}
	for _, onBad := range []string{"fail", "skip"} {
		for name, args := range map[string][]string{"a pool": r.args(), "a state": r.args("--state", r.path("s.state")),
			"a merge": {"merge", "--trust"}} {
			args = append(slices.Concat(args, r.uploads), "--on-bad", onBad, "-o", r.path("out.onnx"))
			code, _, said := runFMP(t, args...)
			if code != exitUsage || strings.Count(said, "the client graph behind the uploads") != 1 ||
				strings.Count(said, "\n") != 1 {
				t.Errorf("%s, --on-bad %s: exit code %d, %q; want one error", name, onBad, code, said)
			}
		}
	}
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
	must.Do(t, r.load.checkRestart(r.ctx, r.url, start))
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
		alone := must.Get(p.pool(ctx, uploads, nil))(t)
		if s := alone.Summary.(summary); s.Scope != posterior.ScopeOpen || s.Unknown != "nine" || s.Samples != 25 ||
			len(alone.Honest) != clients {
			t.Fatalf("%s: summary %+v, P(honest) %v", name, s, alone.Honest)
		}
		p.queue = must.Get(work.NewQueue(ctx, st, 1,
			work.Models{Graph: assetstest.Data(t, "digits", models.KindClient), Open: c.data},
			p.options))(t)
		spread := must.Get(p.pool(ctx, uploads, nil))(t)
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

// natsCluster starts three NATS servers that keep streams together. Servers without a leader after a
// minute end, and others start on other ports: a port may be another program's by then.
func natsCluster(t *testing.T, token string) (urls []string, servers []*natsserver.Server) {
	t.Helper()
	var said []string
	for range 3 {
		urls, servers = startCluster(t, token)
		for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(100 * time.Millisecond) {
			if slices.ContainsFunc(servers, (*natsserver.Server).JetStreamIsLeader) {
				return urls, servers
			}
		}
		for _, s := range servers {
			said = append(said, fmt.Sprintf("%s: listens at %v, %d routes", s.Name(), s.Addr(), s.NumRoutes()))
			s.Shutdown()
		}
	}
	t.Fatalf("the NATS servers have no leader: %q", said)
	return nil, nil
}

// startCluster starts the servers on a loopback address that other programs do not take ports of, where
// the system has one. Elections wait until votes are written, so that a busy disk may stop them.
func startCluster(t *testing.T, token string) (urls []string, servers []*natsserver.Server) {
	t.Helper()
	host := fmt.Sprintf("127.77.%d.%d", os.Getpid()>>8&255, os.Getpid()&255)
	if l, err := net.Listen("tcp", host+":0"); err != nil {
		host = "127.0.0.1"
	} else {
		l.Close()
	}
	var ports []int
	var held []net.Listener
	for range 6 { // all are held until all are known, so that they differ
		l := must.Get(net.Listen("tcp", host+":0"))(t)
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	for _, l := range held {
		l.Close()
	}
	var routes []string
	for i := range 3 {
		urls = append(urls, fmt.Sprintf("nats://%s:%d", host, ports[i]))
		routes = append(routes, fmt.Sprintf("nats://%s:%d", host, ports[3+i]))
	}
	for i := range 3 {
		s := must.Get(natsserver.NewServer(&natsserver.Options{ServerName: fmt.Sprint("n", i), Host: host,
			Port: ports[i], JetStream: true,
			StoreDir: memoryDir(t), NoSigs: true, NoLog: true, MaxPayload: 8 << 20, Authorization: token,
			LeafNode: natsserver.LeafNodeOpts{Host: host, Port: natsserver.RANDOM_PORT},
			Cluster:  natsserver.ClusterOpts{Name: "fmp", Host: host, Port: ports[3+i]},
			Routes:   natsserver.RoutesFromStr(strings.Join(routes, ","))}))(t)
		s.Start()
		servers = append(servers, s)
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	}
	return urls, servers
}

// TestCluster: fmp serve keeps a round on three NATS servers of which one dies in the middle of it.
// Every client gets its receipt, and the classifier is byte for byte that of the server inside the
// program.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three NATS servers and the programs")
	}
	const clients, token = 6, "a token of the test's own"
	f := newFederation(t, clients, "deadline: 2100-01-01T00:00:00Z\n")
	f.serve("--state", f.path("alone"))
	f.joins(f.names...)
	alone := f.published(1)
	f.leave()

	urls, servers := natsCluster(t, token)
	f.secret("nats.token", []byte(token+"\n"))
	f.serve("--state", f.path("cluster"), "--nats", strings.Join(urls, ","), "--nats-replicas", "3",
		"--nats-token-file", f.path("nats.token"))
	for i, name := range f.names {
		if i == clients/2 {
			// the worst one
			servers[slices.IndexFunc(servers, (*natsserver.Server).JetStreamIsLeader)].Shutdown()
		}
		f.joins(name)
	}
	if !bytes.Equal(alone, f.published(1)) {
		t.Error("the classifier is not that of the server inside the program")
	}
	if st := f.status(); st.In != clients || len(st.Refused) != 0 || len(st.Versions) != 1 {
		t.Errorf("%d in, %v refused, %d versions", st.In, st.Refused, len(st.Versions))
	}
}

// mergeCluster is a round on three NATS servers: uploads of class means, of which some name their
// classes falsely.
type mergeCluster struct {
	t       *testing.T
	urls    []string
	servers []*natsserver.Server
	members []store.Member
	uploads map[string][]byte
	lies    map[string]bool
	pooling *pooling
}

func newMergeCluster(t *testing.T, clients, liar int) (*mergeCluster, *store.Store) {
	c := &mergeCluster{t: t, uploads: map[string][]byte{}, lies: map[string]bool{}}
	st := c.open()
	t.Cleanup(func() { st.Close() })
	s := newSimulated(t)
	var writes errgroup.Group
	writes.SetLimit(32)
	for i := range clients {
		name := fmt.Sprintf("client-%08d", i)
		shift := 0
		if i%liar == 0 {
			shift, c.lies[name] = 3, true
		}
		data := must.Get(s.upload(name, shift))(t)
		m := store.Member{Client: name, Upload: models.DigestBytes(data)}
		c.members, c.uploads[name] = append(c.members, m), data
		writes.Go(func() error {
			return st.Put(t.Context(),
				&store.Record{Receipt: wire.Receipt{Client: name, Upload: m.Upload},
					N: 20, Data: data}, 0)
		})
	}
	must.Do(t, writes.Wait())
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	t.Cleanup(func() { eng.Close() })
	c.pooling = &pooling{graph: s.graph, client: s.f, eng: eng,
		options: pool.Options{Scope: posterior.ScopeClosed, Samples: 10, Seed: 3}}
	return c, st
}

// open opens a round on three NATS servers. On a busy machine the copies of a bucket may be left
// without a leader: other servers take the place of those.
func (c *mergeCluster) open() (st *store.Store) {
	var err error
	for range 3 {
		c.urls, c.servers = natsCluster(c.t, "")
		err = c.again(time.Minute, func(ctx context.Context) (err error) {
			st, err = store.Open(ctx, "fmp-test",
				store.Options{URL: strings.Join(c.urls, ","), Replicas: 3})
			return err
		})
		if err == nil {
			break
		}
		for _, s := range c.servers {
			s.Shutdown()
		}
	}
	must.Do(c.t, err)
	return st
}

// again repeats an operation until it succeeds, as a server of a round does, or until the time is
// over. Its context has no deadline, as a server's has none: NATS would wait until then for the
// answers of a server that died.
func (c *mergeCluster) again(most time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	defer time.AfterFunc(most, cancel).Stop()
	for {
		if err := do(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// worker starts a worker that merges, which calls before with each upload that it judges.
func (c *mergeCluster) worker(urls string, key *identity.Key, before func()) *work.Worker {
	conn := must.Get(store.Connect(store.Options{URL: urls}, "test"))(c.t)
	w := &work.Worker{Conn: conn, Key: key, Log: slog.New(slog.DiscardHandler)}
	w.Judge = func(ctx context.Context, by *merge.Part, m work.Models,
		o pool.Options) (func(*federate.Upload) (float64, error), error) {
		share, err := judging(ctx, by, m, o)
		return func(u *federate.Upload) (float64, error) {
			before()
			return share(u)
		}, err
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	c.t.Cleanup(func() { cancel(); conn.Close(); <-done })
	go func() {
		defer close(done)
		_ = w.Run(ctx, 3)
	}()
	return w
}

// leaf starts a NATS server without streams of its own, a leaf node of the others, and returns its
// URL.
func (c *mergeCluster) leaf() string {
	var remotes []*url.URL
	for _, s := range c.servers {
		v := must.Get(s.Varz(nil))(c.t)
		remotes = append(remotes,
			&url.URL{Scheme: "nats-leaf",
				Host: net.JoinHostPort(v.LeafNode.Host, fmt.Sprint(v.LeafNode.Port))})
	}
	s := must.Get(natsserver.NewServer(&natsserver.Options{ServerName: "leaf", Host: "127.0.0.1",
		Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true, MaxPayload: 8 << 20,
		LeafNode: natsserver.LeafNodeOpts{Remotes: []*natsserver.RemoteLeafOpts{{URLs: remotes}}}}))(c.t)
	s.Start()
	c.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		c.t.Fatal("the leaf node is not ready")
	}
	return s.ClientURL()
}

// alone returns the classifier of the uploads merged in this process, as fmp merge does: the sample
// is what a part keeps whole.
func (c *mergeCluster) alone() []byte {
	t := c.t
	all := func(m *merge.Merger) *merge.Part {
		for _, of := range c.members {
			must.Do(t, m.Add(c.uploads[of.Client]))
		}
		return m.Part()
	}
	sample := merge.Merger{}
	for _, k := range all(&merge.Merger{Trust: true}).Kept {
		must.Do(t, sample.Add(k.Data))
	}
	data := must.Get(sample.Part().Encode())(t)
	judge := must.Get(pool.Judge(t.Context(), c.pooling.eng, sample.Part(), c.pooling.graph,
		c.pooling.client, c.pooling.options))(t)
	uploads, rest := must.Get2(pool.Merged(all(&merge.Merger{Judge: judge, Against: models.DigestBytes(data)}), false))(t)
	if rest.LeftOut == 0 || rest.Summed == 0 {
		t.Fatalf("%d are summed and %d are left out", rest.Summed, rest.LeftOut)
	}
	made := must.Get(c.pooling.pool(t.Context(), uploads, rest))(t)
	return made.Rows
}

// probabilities are those of a classifier of feature rows, on rows beside the simulated clients'.
func (c *mergeCluster) probabilities(classifier []byte) []float32 {
	g := must.Get(serde.Unmarshal(classifier))(c.t)
	s := must.Get(c.pooling.eng.Load(g))(c.t)
	defer s.Close()
	const n = 100
	rows := make([]float32, n*c.pooling.client.Dx)
	rng.Normal(rng.New(1, "rows"), rows)
	out := must.Get(engine.Eval(s,
		map[string]*onnx.Tensor{g.Graph.Inputs[0].Name: onnx.NewTensor(rows, n,
			c.pooling.client.Dx)}, g.Graph.Outputs[0].Name))(c.t)
	return out[g.Graph.Outputs[0].Name].F32()
}

// TestMergeCluster: workers merge a round that three NATS servers keep, one of them behind a leaf
// node. A worker is killed with a job in its hands, and a NATS server with it. Every upload is
// counted once, those that name their classes falsely are left out, and the classifier is byte for
// byte that of uploads merged in one process, and nearly that of uploads pooled one by one.
func TestMergeCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three NATS servers, and waits until a worker has been silent")
	}
	const clients, liar = 1150, 9
	c, st := newMergeCluster(t, clients, liar)
	want := c.alone()
	q := must.Get(work.NewQueue(t.Context(), st, benchRound,
		work.Models{Graph: assetstest.Data(t, "digits", models.KindClient)}, c.pooling.options))(t)
	q.Uploads, c.pooling.mergers = 40, q
	key := must.Get(identity.New("worker"))(t)
	q.Signers = must.Get(identity.ParseRoster([]byte(key.Line())))(t)
	taken, killed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	dying := c.worker(strings.Join(c.urls, ","), key, func() {
		once.Do(func() { close(taken) })
		<-killed
	})
	merged := make(chan error, 1)
	var made *service.Pooled
	go func() {
		merged <- c.again(4*time.Minute, func(ctx context.Context) (err error) {
			made, err = c.pooling.merged(ctx, slices.Clone(c.members))
			return err
		})
	}()
	<-taken
	leaf := c.leaf()
	dying.Conn.Close() // as kill -9 would
	close(killed)
	c.servers[slices.IndexFunc(c.servers, (*natsserver.Server).JetStreamIsLeader)].Shutdown()
	c.worker(strings.Join(c.urls, ","), key, func() {})
	c.worker(leaf, key, func() {})
	must.Do(t, <-merged)
	if !bytes.Equal(made.Rows, want) {
		t.Error("the classifier is not that of uploads merged in one process")
	}
	if len(made.Members) != clients {
		t.Errorf("%d members; want %d", len(made.Members), clients)
	}
	for i, m := range made.Members {
		if m.Client != c.members[i].Client || m.Upload != c.members[i].Upload ||
			(m.Honest < 0.5) != c.lies[m.Client] {
			t.Errorf("member %+v; it lies: %v", m, c.lies[m.Client])
		}
	}
	var uploads []pool.Upload
	for _, m := range c.members {
		u := must.Get(federate.Decode(c.uploads[m.Client], federate.Expect{}))(t)
		uploads = append(uploads, pool.Upload{Upload: u, Digest: m.Upload})
	}
	single := must.Get(c.pooling.pool(t.Context(), uploads, nil))(t)
	most := 0.0
	was := c.probabilities(single.Rows)
	for i, p := range c.probabilities(made.Rows) {
		most = max(most, math.Abs(float64(p-was[i])))
	}
	if t.Logf("probabilities differ by %.2g at most from those of uploads pooled one by one",
		most); most > 1e-3 {
		t.Errorf("probabilities differ by %.2g", most)
	}
}
