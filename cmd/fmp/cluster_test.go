package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"fmp/onnx/must"
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
