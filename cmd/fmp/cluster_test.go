package main

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

// TestCluster: fmp serve keeps a round on three NATS servers of which one dies in the middle of it. Every client gets its receipt, and the
// classifier is byte for byte that of the server inside the program.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three NATS servers and the programs")
	}
	const clients, token = 6, "a token of the test's own"
	f := newFederation(t, clients, "deadline: 2100-01-01T00:00:00Z\n")
	join := func(name string) {
		t.Helper()
		if code, out := f.join(f.address, name); code != 0 {
			t.Fatalf("%s: exit code %d: %s", name, code, out)
		}
	}
	f.serve("--state", f.path("alone"))
	for _, name := range f.names {
		join(name)
	}
	alone := f.published(1)
	f.kill()

	var ports []int
	var held []net.Listener
	for range 6 { // all are held until all are known, so that they differ
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	for _, l := range held {
		l.Close()
	}
	var urls, routes []string
	for i := range 3 {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[3+i]))
	}
	var servers []*natsserver.Server
	for i := range 3 {
		s, err := natsserver.NewServer(&natsserver.Options{ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: ports[i], JetStream: true,
			StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			MaxPayload: 8 << 20, Authorization: token, Cluster: natsserver.ClusterOpts{Name: "fmp", Host: "127.0.0.1", Port: ports[3+i]},
			Routes: natsserver.RoutesFromStr(strings.Join(routes, ","))})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		servers = append(servers, s)
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	}
	for start := time.Now(); !slices.ContainsFunc(servers, (*natsserver.Server).JetStreamIsLeader); time.Sleep(100 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatal("the NATS servers have no leader")
		}
	}
	f.secret("nats.token", []byte(token+"\n"))
	f.serve("--state", f.path("cluster"), "--nats", strings.Join(urls, ","), "--nats-replicas", "3", "--nats-token-file", f.path("nats.token"))
	for i, name := range f.names {
		if i == clients/2 {
			for _, s := range servers { // the worst one
				if s.JetStreamIsLeader() {
					s.Shutdown()
					break
				}
			}
		}
		join(name)
	}
	if !bytes.Equal(alone, f.published(1)) {
		t.Error("the classifier is not that of the server inside the program")
	}
	if st := f.status(); st.In != clients || len(st.Refused) != 0 || len(st.Versions) != 1 {
		t.Errorf("%d in, %v refused, %d versions", st.In, st.Refused, len(st.Versions))
	}
}
