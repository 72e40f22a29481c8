package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
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
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
)

// natsCluster starts three NATS servers that keep streams together. They listen on a loopback
// address that other programs do not take ports of, where the system has one.
func natsCluster(t *testing.T, token string) (urls []string, servers []*natsserver.Server) {
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
			StoreDir: t.TempDir(), NoSigs: true, NoLog: true, MaxPayload: 8 << 20, Authorization: token,
			LeafNode: natsserver.LeafNodeOpts{Host: host, Port: natsserver.RANDOM_PORT},
			Cluster:  natsserver.ClusterOpts{Name: "fmp", Host: host, Port: ports[3+i]},
			Routes:   natsserver.RoutesFromStr(strings.Join(routes, ","))}))(t)
		s.Start()
		servers = append(servers, s)
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	}
	for start := time.Now(); !slices.ContainsFunc(servers,
		(*natsserver.Server).JetStreamIsLeader); time.Sleep(100 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatal("the NATS servers have no leader")
		}
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
	c.urls, c.servers = natsCluster(t, "")
	var st *store.Store
	must.Do(t, c.again(func(ctx context.Context) (err error) {
		st, err = store.Open(ctx, "fmp-test",
			store.Options{URL: strings.Join(c.urls, ","), Replicas: 3})
		return err
	}))
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

// again repeats an operation until it succeeds, as a server of a round does. Its context has no
// deadline, as a server's has none: NATS would wait until then for the answers of a server that
// died.
func (c *mergeCluster) again(do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	defer time.AfterFunc(4*time.Minute, cancel).Stop()
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
	made := must.Get(c.pooling.poolRest(t.Context(), uploads, rest))(t)
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
		merged <- c.again(func(ctx context.Context) (err error) {
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
	single := must.Get(c.pooling.pool(t.Context(), uploads))(t)
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
