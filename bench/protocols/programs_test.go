// Package protocols runs the programs as their users do and asks them with the libraries of the
// protocols that they speak: grpc-go and OpenTelemetry's messages.
package protocols

import (
	"bufio"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/credentials"
)

// built is the folder with the programs, built once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "protocols")
	if err != nil {
		return "", err
	}
	for _, p := range []string{"fmp", "fmp-edge"} {
		c := exec.Command("go", "build", "-o", filepath.Join(dir, p), "./cmd/"+p)
		c.Dir = filepath.Join("..", "..")
		for _, v := range os.Environ() { // the module's own workspace
			if !strings.HasPrefix(v, "GOWORK=") {
				c.Env = append(c.Env, v)
			}
		}
		if out, err := c.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%v: %w\n%s", c, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := built(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// command returns a program's command with a folder to run in.
func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	programs, err := built()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), filepath.Join(programs, name), args...)
	c.Dir, c.Stderr = dir, &logged{t: t}
	return c
}

// logged is what a program writes to standard error, shown where the test fails.
type logged struct {
	t  *testing.T
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() == 0 {
		l.t.Cleanup(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.t.Failed() {
				l.t.Log(l.b.String())
			}
		})
	}
	return l.b.Write(p)
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := command(t, dir, name, args...)
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %v", c, err)
	}
}

// start runs a server and returns the address in its first line.
func start(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), "://")
	if err != nil || !ok {
		t.Fatalf("%v: %q %v", c, line, err)
	}
	return address
}

// graph writes client.onnx and a folder of images.
func graph(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	run(t, dir, "fmp", "fuse", "--dataset", "digits", "-o", "client.onnx")
	run(t, dir, "fmp", "data", "synth", "-o", "images", "--photos", "--seed", "1", "--train",
		"5", "--test", "5")
	return dir
}

// listening starts fmp predict --listen and returns its address.
func listening(t *testing.T) string {
	t.Helper()
	dir := graph(t)
	run(t, dir, "fmp-edge", "compress", "--model", "client.onnx", "--client", "a", "-o",
		"a.upload", "images/train")
	run(t, dir, "fmp", "pool", "a.upload", "--client-graph", "client.onnx", "--engine.name", "pure",
		"-o", "classifier.onnx")
	return start(t, command(t, dir, "fmp", "predict", "classifier.onnx", "--listen", "127.0.0.1:0",
		"--engine.name", "pure"))
}

// servedRound is a round with a running server.
type servedRound struct{ dir, address, token string }

// serving starts fmp serve, behind TLS and a token.
func serving(t *testing.T, args ...string) *servedRound {
	t.Helper()
	r := &servedRound{dir: graph(t), token: "a token of readers alone"}
	run(t, r.dir, "fmp", "keys", "a", "--dir", "keys", "--roster", "roster.txt")
	for name, text := range map[string]string{"readers.token": r.token,
		"round.yaml": "round: 1\nclient_graph: client.onnx\nroster: roster.txt\ndeadline: " +
			"2100-01-01T00:00:00Z\nquorum: 1\nsamples: 5\n"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args = append([]string{"serve", "--round", "round.yaml", "--listen", "127.0.0.1:0",
		"--tls-self-signed", "--token-file", "readers.token", "--engine.name", "pure"}, args...)
	r.address = start(t, command(t, r.dir, "fmp", args...))
	return r
}

// tls trusts the server's own certificate.
func (r *servedRound) tls(t *testing.T) credentials.TransportCredentials {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "state", "server.crt"))
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(data) {
		t.Fatalf("server.crt: %v", err)
	}
	return credentials.NewClientTLSFromCert(pool, "")
}

// join sends the upload of the round's one client.
func (r *servedRound) join(t *testing.T) {
	t.Helper()
	run(t, r.dir, "fmp-edge", "join", "https://"+r.address, "--ca", "state/server.crt", "--key",
		"keys/a.key", "--cache", "graphs", "images/train")
}

func number(n int) string      { return fmt.Sprint(n) }
func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
func list(b []byte) string     { return strings.ReplaceAll(fmt.Sprint(b), " ", ",") }
