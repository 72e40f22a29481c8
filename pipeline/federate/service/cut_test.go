package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

// cutting is the context of a request whose connection ends when it is looked at for the left-th time.
type cutting struct {
	context.Context
	end  context.CancelFunc
	left atomic.Int64
}

func (c *cutting) look() {
	if c.left.Add(-1) == 0 {
		c.end()
	}
}

func (c *cutting) Done() <-chan struct{} { c.look(); return c.Context.Done() }
func (c *cutting) Err() error            { c.look(); return c.Context.Err() }

// cuts calls a function with a context that ends at its first step, its second, and so on to the last.
func cuts(t *testing.T, do func(t *testing.T, ctx context.Context)) {
	for step := int64(1); ; step++ {
		c := &cutting{}
		c.Context, c.end = context.WithCancel(t.Context())
		c.left.Store(step)
		do(t, c)
		c.end()
		if c.left.Load() > 0 {
			return
		}
	}
}

// cut sends a signed request whose connection ends with a context.
func (f *fixture) cut(ctx context.Context, method, client string, body []byte,
	change func(*http.Request)) {
	r := httptest.NewRequest(method, wire.UploadPath(3, client), bytes.NewReader(body)).WithContext(ctx)
	change(r)
	f.srv.Handler().ServeHTTP(httptest.NewRecorder(), r)
}

// roused reports whether Run was told to look since it was asked the last time.
func (f *fixture) roused() bool {
	select {
	case <-f.srv.wake:
		return true
	default:
		return false
	}
}

// known returns the digest of a client's upload in the server's index.
func (f *fixture) known(client string) string {
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	return f.srv.in[client].upload
}

// TestUploadCut: wherever the connection of an upload ends, the state has it and the server knows of it,
// or neither; sent again it is in.
func TestUploadCut(t *testing.T) {
	for name, before := range map[string]bool{"first": false, "in place of another": true} {
		t.Run(name, func(t *testing.T) {
			cuts(t, func(t *testing.T, ctx context.Context) {
				f := newFixture(t, "quorum: 2\nreplace: true\n")
				f.put("b", f.made("b", 1, nil))
				if before {
					f.put("a", f.made("a", 1, nil))
				}
				f.roused()
				data := f.made("a", 2, nil)
				f.cut(ctx, "PUT", "a", data, f.signed(f.keys["a"], identity.Upload, data, nil))
				stored, err := f.store.Get(t.Context(), "a")
				want := http.StatusCreated
				if err == nil && stored.Receipt.Upload == digestOf(data) {
					want = http.StatusOK
				}
				if err == nil && f.known("a") != stored.Receipt.Upload || err != nil && f.known("a") != "" ||
					f.roused() != (want == http.StatusOK) {
					t.Errorf("state %+v, %v; the server knows %q", stored, err, f.known("a"))
				}
				f.wants("again", want, "")(f.put("a", data))
				if f.known("a") != digestOf(data) || f.srv.due() > 0 {
					t.Errorf("after it came again: %q, due in %v", f.known("a"), f.srv.due())
				}
				f.stop()
			})
		})
	}
}

// TestLostAnswer: an upload that is stored, of which the server does not know, counts once its client
// comes again, with it or with another, and once a version holds it.
func TestLostAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		again uint64 // the upload that comes; 0: none
		want  int
	}{"the same": {1, http.StatusOK}, "another": {2, http.StatusCreated}, "none": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "quorum: 2\nreplace: true\nrebuild_interval: 1s\n")
			f.in("b", "a")
			f.srv.mu.Lock()
			delete(f.srv.in, "a")
			f.srv.mu.Unlock()
			f.roused()
			if c.again > 0 {
				f.wants(name, c.want, "")(f.put("a", f.made("a", c.again, nil)))
				if f.known("a") != digestOf(f.made("a", c.again, nil)) || !f.roused() || f.srv.due() > 0 {
					t.Error("it does not count")
				}
				return
			}
			f.pool()
			if f.pass(time.Hour); f.srv.due() < time.Minute {
				t.Error("the same version is due again")
			}
		})
	}
}

// TestReplayed: an upload that was replaced is not taken again, after a restart either, whoever sends
// the request; one that was not there before is.
func TestReplayed(t *testing.T) {
	f := newFixture(t, "quorum: 4\nreplace: true\n")
	for i, c := range []struct {
		seed uint64
		want int
	}{{1, 201}, {2, 201}, {1, 409}, {2, 200}, {3, 201}, {1, 409}, {2, 409}, {3, 200}} {
		if status, data := f.put("a", f.made("a", c.seed, nil)); status != c.want ||
			status == 409 && !strings.Contains(string(data), "was replaced") {
			t.Errorf("request %d, upload %d: %d %s; want %d", i, c.seed, status, data, c.want)
		}
		f.restart()
	}
}

// TestLateRecord: where the record of a request before arrives while an upload is checked, it is the
// answer if it is the same upload; another is answered when the client comes again.
func TestLateRecord(t *testing.T) {
	f := newFixture(t, "quorum: 4\n")
	for client, c := range map[string]struct {
		late  uint64
		want  int
		again int
	}{"a": {1, http.StatusCreated, http.StatusOK},
		"b": {2, http.StatusServiceUnavailable, http.StatusConflict}} {
		data, late := f.made(client, 1, nil), f.made(client, c.late, nil)
		f.srv.Check = func(*federate.Upload) error {
			r := &store.Record{Data: late, Receipt: wire.Receipt{Round: 3, Client: client,
				Graph: f.round.Client.Digest, Upload: digestOf(late), Time: f.clock()}}
			r.Receipt.Sign(f.key)
			return f.store.Put(t.Context(), r, 0)
		}
		f.wants(client, c.want, "")(f.put(client, data))
		if f.known(client) != digestOf(late) {
			t.Errorf("%s: what is stored is not known", client)
		}
		f.wants(client+" again", c.again, "")(f.put(client, data))
	}
}

// evaluated stores a report of a client.
func (f *fixture) evaluated(client string) (name string) {
	name = evaluationName(client, 1)
	must.Do(f.t, f.store.PutObject(f.t.Context(), name, []byte("the report of "+client)))
	return name
}

// isGone checks that nothing of a client is in the state.
func (f *fixture) isGone(client, report string) {
	f.t.Helper()
	_, err := f.store.Object(f.t.Context(), report, 99)
	if _, is := f.store.Get(f.t.Context(), client); !errors.Is(err, store.ErrNone) ||
		!errors.Is(is, store.ErrWithdrawn) || f.srv.goneOf(client) == nil {
		f.t.Errorf("report: %v; upload: %v; known as gone: %v", err, is, f.srv.goneOf(client) != nil)
	}
	for _, v := range f.srv.Status().Versions {
		members := must.Get(f.store.Members(f.t.Context(), v.Number))(f.t)
		if _, void := f.srv.void[v.Number]; bytes.Contains(must.Get(json.Marshal(members))(f.t),
			[]byte(`"`+client+`"`)) && !void {
			f.t.Errorf("version %d holds it", v.Number)
		}
	}
}

// TestWithdrawCut: wherever the connection of a withdrawal ends while a version is made, all of it is
// done, or nothing; sent again, all of it is.
func TestWithdrawCut(t *testing.T) {
	cuts(t, func(t *testing.T, ctx context.Context) {
		f := newFixture(t, "quorum: 3\n")
		f.in("a", "b", "c")
		report := f.evaluated("a")
		d := f.srv.description()
		change := with(d.Withdraw(f.keys["a"]))
		before := f.srv.Config.Pool
		f.srv.Config.Pool = func(poolCtx context.Context, uploads []pool.Upload) (*Pooled, error) {
			made, err := before(poolCtx, uploads)
			f.cut(ctx, "DELETE", "a", nil, change)
			return made, err
		}
		_ = f.srv.Pool(t.Context())
		if _, err := f.store.Get(t.Context(), "a"); err != nil {
			f.isGone("a", report)
		}
		f.wants("again", http.StatusOK, "")(f.request("DELETE", wire.UploadPath(3, "a"), nil, change))
		f.isGone("a", report)
		f.stop()
	})
}

// TestWithdrawAgain: a withdrawal that failed midway is ended by the next request for it, and by a
// pooling; one of which the state does not tell whether it is noted stops the pooling that is under way.
func TestWithdrawAgain(t *testing.T) {
	for name, c := range map[string]struct {
		midway func(f *fixture, r *store.Record)
		want   int
	}{
		"the note was stored late": {func(f *fixture, r *store.Record) {
			must.Do(f.t, f.store.Withdraw(f.t.Context(), r, store.Gone{Time: f.now, By: wire.ByClient}, nil))
		}, http.StatusOK},
		"the state does not answer": {func(f *fixture, _ *store.Record) { f.store.Conn().Close() },
			http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "quorum: 2\n")
			f.in("a")
			stored := must.Get(f.store.Get(t.Context(), "a"))(t)
			ctx, end := f.srv.stoppable(t.Context())
			defer end(nil)
			once := false
			f.srv.Config.Now = func() time.Time {
				if !once {
					once = true
					c.midway(f, stored)
				}
				return f.now
			}
			f.wants(name, c.want, "")(f.delete("a", wire.Any, f.keys["a"], nil))
			if !once || !errors.Is(context.Cause(ctx), errWithdrawn) {
				t.Errorf("the pooling goes on: %v", context.Cause(ctx))
			}
		})
	}
	f := newFixture(t, "quorum: 2\n")
	f.in("a", "b", "c")
	f.gone("a", f.made("a", 1, nil))
	report := f.evaluated("a") // as one that could not be deleted
	f.gone("a", f.made("a", 1, nil))
	f.isGone("a", report)
	stored := must.Get(f.store.Get(t.Context(), "b"))(t)
	must.Do(t, f.store.Withdraw(t.Context(), stored, store.Gone{Time: f.clock(), By: wire.ByClient}, nil))
	must.Fail(f.srv.Pool(t.Context()))(t, errWithdrawn.Error())
	f.pool()
	if f.pass(time.Hour); f.known("b") != "" || f.srv.due() < time.Minute {
		t.Errorf("b is in: %q; due in %v", f.known("b"), f.srv.due())
	}
}

// losing passes bytes on to a NATS server; the connection ends, without an answer, behind the first
// message that says the words.
func losing(t *testing.T, to, words string) string {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	var lost atomic.Bool
	pass := func(c, s net.Conn) {
		defer s.Close()
		defer c.Close()
		buf := make([]byte, 1<<20)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if bytes.Contains(buf[:n], []byte(words)) && lost.CompareAndSwap(false, true) {
				c.Close()
				_, _ = s.Write(buf[:n])
				time.Sleep(50 * time.Millisecond)
				return
			}
			if _, err := s.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, s); c.Close() }()
			go pass(c, s)
		}
	}()
	return "nats://" + l.Addr().String()
}

// lossy is a server whose store loses an answer, as losing does, and a function that starts it again.
func lossy(t *testing.T, extra, words string) (f *fixture, start func()) {
	o := &natsserver.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, JetStream: true, StoreDir: t.TempDir()}
	nats := must.Get(natsserver.NewServer(o))(t)
	nats.Start()
	t.Cleanup(nats.Shutdown)
	if !nats.ReadyForConnections(5 * time.Second) {
		t.Fatal("NATS does not start")
	}
	f = newFixture(t, extra)
	f.store.Close()
	f.store = must.Get(store.Open(t.Context(), store.Name(3, f.round.Client.Digest),
		store.Options{URL: losing(t, nats.Addr().String(), words)}))(t)
	start = func() {
		f.srv.Config.Store = f.store
		f.srv = must.Get(New(t.Context(), f.srv.Config))(t)
		f.http.Config.Handler = f.srv.Handler()
	}
	start()
	return f, start
}

// TestLostVersion: a version whose record is stored, and the answer lost, is found again: it keeps its
// file, and a withdrawal tells of it.
func TestLostVersion(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(f *fixture)
		pools     int // until nothing is due
		clients   []int
		void      int // versions
	}{
		"nothing": {func(*fixture) {}, 1, []int{2}, 0},
		"an upload": {func(f *fixture) { f.put("c", f.made("c", 1, nil)) }, 2,
			[]int{2, 3}, 0},
		"a withdrawal": {func(f *fixture) {
			if w := f.gone("a", f.made("a", 1, nil)); w.HeldVersions != 1 || len(f.notices().Superseded) != 1 {
				f.t.Errorf("receipt %+v", w)
			}
		}, 1, []int{2, 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, start := lossy(t, "quorum: 2\nrebuild_interval: 1s\n", "-versions.1 ")
			f.in("a", "b")
			short, end := context.WithTimeout(t.Context(), 3*time.Second)
			defer end()
			must.Fail(f.srv.Pool(short))(t, "version 1", name)
			c.meanwhile(f)
			for range c.pools {
				f.pass(time.Minute)
				f.pool()
			}
			if f.pass(time.Minute); f.srv.due() < time.Minute {
				t.Errorf("due in %v", f.srv.due())
			}
			start()
			versions := f.srv.Status().Versions
			void := len(f.notices().Superseded)
			if len(versions) != len(c.clients) || void != c.void {
				t.Fatalf("versions %+v, %d of them void", versions, void)
			}
			for i, v := range versions {
				data, _, err := f.store.Classifier(t.Context(), v.Number)
				if v.Clients != c.clients[i] || i >= void && (err != nil || digestOf(data) != v.Digest) {
					t.Errorf("version %+v, its file %s, %v", v, digestOf(data), err)
				}
			}
			if _, data := f.classifier(""); digestOf(data) != versions[len(versions)-1].Digest {
				t.Errorf("served is %s", data)
			}
		})
	}
}

// TestLostSum: while the state may have the classifier of a private round, of which the server does not
// know, no upload gets a receipt that the classifier would be without; after a failure that is known it
// does.
func TestLostSum(t *testing.T) {
	f, start := lossy(t, "quorum: 2\naccept_late: true\nprivacy: {epsilon: 1, noise: trusted}\n", "-versions.1 ")
	send := func(client string, want int) {
		t.Helper()
		f.wants(client, want, "")(f.put(client, f.trusted(client)))
	}
	send("a", http.StatusCreated)
	private := f.srv.Private
	f.srv.Private = func(context.Context, []pool.Release, func() (*privacy.Release, error)) (*Pooled, error) {
		return nil, errors.New("no memory")
	}
	must.Fail(f.srv.Pool(t.Context()))(t, "no memory")
	f.srv.Private = private
	send("b", http.StatusCreated)
	short, end := context.WithTimeout(t.Context(), 3*time.Second)
	defer end()
	must.Fail(f.srv.Pool(short))(t, "version 1")
	send("c", http.StatusGone)
	f.pool()
	send("c", http.StatusGone)
	start()
	send("c", http.StatusGone)
	if f.wantsOne(2); !f.srv.closed() {
		t.Error("the round is not closed")
	}
}

// TestMergeFollows: uploads that are merged where they are stored are those of the state, also where the
// server does not know that one was replaced or withdrawn.
func TestMergeFollows(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(f *fixture, stored *store.Record) error
		clients int
	}{
		"withdrawn": {func(f *fixture, stored *store.Record) error {
			return f.store.Withdraw(t.Context(), stored, store.Gone{Time: f.clock(), By: wire.ByClient}, nil)
		}, 2},
		"replaced": {func(f *fixture, stored *store.Record) error {
			stored.Data = f.made("b", 2, nil)
			stored.Receipt.Upload = digestOf(stored.Data)
			return f.store.Put(t.Context(), stored, stored.Revision)
		}, 3},
	} {
		f := newFixture(t, "quorum: 2\ntrust: true\nreplace: true\n")
		f.srv.Merge = func(ctx context.Context, members []store.Member) (*Pooled, error) {
			for _, m := range members {
				if r, err := f.store.Get(ctx, m.Client); err != nil || r.Receipt.Upload != m.Upload {
					return nil, errors.Join(errors.New("another upload"), err)
				}
			}
			return &Pooled{Classifier: []byte("merged"), Members: members}, nil
		}
		f.in("a", "b", "c")
		must.Do(t, c.change(f, must.Get(f.store.Get(t.Context(), "b"))(t)))
		must.Fail(f.srv.Pool(t.Context()))(t, "", name)
		must.Do(t, f.srv.Pool(t.Context()))
		f.wantsOne(c.clients)
	}
}

// TestNothingLeftForWorkers: what a pooling left for workers is deleted before the receipt of a withdrawal is
// sent, where no other pooling follows too; what it stores after that, and what a killed server left, is as well.
func TestNothingLeftForWorkers(t *testing.T) {
	f := newFixture(t, "quorum: 2\n")
	f.stop()
	left := func() []string {
		return slices.DeleteFunc(must.Get(f.store.Objects(t.Context()))(t),
			func(name string) bool { return !strings.HasPrefix(name, "left-") })
	}
	f.sweep = func(ctx context.Context) error {
		for _, name := range left() {
			if err := f.store.DeleteObject(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
	f.start()
	f.in("a", "b")
	waits, goOn, ended := make(chan bool), make(chan bool), make(chan error)
	f.srv.Merge = func(ctx context.Context, _ []store.Member) (*Pooled, error) {
		must.Do(t, f.store.PutObject(ctx, "left-before", []byte("an upload")))
		close(waits)
		<-goOn
		must.Do(t, f.store.PutObject(t.Context(), "left-after", []byte("an upload")))
		return nil, ctx.Err()
	}
	go func() { ended <- f.srv.Pool(t.Context()) }()
	<-waits
	f.gone("a", f.made("a", 1, nil))
	if names := left(); len(names) > 0 {
		t.Errorf("with the receipt %q are there", names)
	}
	close(goOn)
	must.Fail(<-ended)(t, errWithdrawn.Error())
	if names := left(); len(names) > 0 {
		t.Errorf("after the pooling %q are there", names)
	}
	must.Do(t, f.store.PutObject(t.Context(), "left-by-a-kill", []byte("an upload")))
	f.restart()
	if names := left(); len(names) > 0 {
		t.Errorf("after a restart %q are there", names)
	}
}

// TestStartsOnLast: a start serves no version whose file is another's, and supersedes one that holds an
// upload that was withdrawn, whether the note of the withdrawal names it or not.
func TestStartsOnLast(t *testing.T) {
	f := newFixture(t, "quorum: 2\n")
	f.in("a", "b")
	f.pool()
	stored := must.Get(f.store.Get(t.Context(), "a"))(t)
	must.Do(t, f.store.Withdraw(t.Context(), stored, store.Gone{Time: f.clock(), By: wire.ByClient}, nil))
	f.restart()
	if n := f.notices(); len(n.Superseded) != 1 || n.Latest != nil {
		t.Errorf("notice %+v", n)
	}
	for _, name := range must.Get(f.store.Objects(t.Context()))(t) {
		if strings.HasPrefix(name, "classifier-") {
			must.Do(t, f.store.PutObject(t.Context(), name, []byte("another")))
		}
	}
	must.Fail(New(t.Context(), f.srv.Config))(t, "another digest than its record")
}

// TestUnlisted: the parts of a version whose server was killed before its record was stored are erased by
// the next start, and by a withdrawal.
func TestUnlisted(t *testing.T) {
	for name, erase := range map[string]func(f *fixture){
		"start": func(f *fixture) { f.restart() },
		"withdrawal": func(f *fixture) {
			f.srv.unsure = true // as after the failure
			f.gone("a", f.made("a", 1, nil))
		}} {
		f := newFixture(t, "quorum: 2\n")
		f.in("a", "b")
		f.pool()
		want := must.Get(f.store.Objects(t.Context()))(t)
		means := bytes.Repeat([]byte("means of a "), 3000)
		for _, part := range []string{"classifier-2.onnx", "classifier-2-rows.onnx", "members-2.json",
			"classifier-1-aa.onnx"} {
			must.Do(t, f.store.PutObject(t.Context(), part, means))
		}
		erase(f)
		if got := must.Get(f.store.Objects(t.Context()))(t); !slices.Equal(got, want) || f.holds(means) {
			t.Errorf("%s: %v, their bytes are there: %v; want %v", name, got, f.holds(means), want)
		}
	}
}
