package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/moments"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

var chaosClients = flag.Int("chaos.clients", 12, "client processes of TestChaos")

// programs builds fmp and fmp-edge once, in the folder that goes with the tests, and not in the one that
// the first of them may have of its own.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(testsDir, "fmp-programs")
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{{"build", "-buildvcs=false", "-o", filepath.Join(dir, "fmp"), "."},
		{"build", "-buildvcs=false", "-o", filepath.Join(dir, "fmp-edge"), "../fmp-edge"}} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("go %v: %w\n%s", args, err, out)
		}
	}
	return dir, nil
})

// federation is a folder with a round, keys and images, and the processes that work in it.
type federation struct {
	t       *testing.T
	dir     string
	bin     string
	names   []string
	scheme  string // http, or https with a certificate of the server's own
	address string // of the server
	server  *exec.Cmd
}

func newFederation(t *testing.T, clients int, roundFile string) *federation {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs the programs")
	}
	bin := must.Get(programs())(t)
	f := &federation{t: t, dir: t.TempDir(), bin: bin, scheme: "http"}
	for i := range clients {
		f.names = append(f.names, fmt.Sprintf("c%03d", i))
	}
	f.fmp(append([]string{"keys", "--dir", f.path("keys"), "--roster", f.path("roster.txt")}, f.names...)...)
	f.write("client.onnx", read(t, shippedFile(t, models.KindClient)))
	f.write("round.yaml", []byte("round: 7\nclient_graph: client.onnx\nroster: roster.txt\n"+roundFile))
	for _, name := range f.names {
		r := rng.New(5, name)
		for c := range 10 {
			im := image.NewGray(image.Rect(0, 0, 28, 28))
			for k := range 60 { // a stroke of the class, with some noise
				im.SetGray(4+k%20, (4+2*c+k/20+r.IntN(2))%28, color.Gray{Y: uint8(200 + r.IntN(55))})
			}
			var b bytes.Buffer
			must.Do(t, png.Encode(&b, im))
			f.write(filepath.Join("images", name, fmt.Sprint(c), "0.png"), b.Bytes())
		}
	}
	f.address = freeAddress(t)
	t.Cleanup(f.kill)
	return f
}

// freeAddress returns an address of loopback that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

func (f *federation) path(name string) string { return filepath.Join(f.dir, name) }

func (f *federation) write(name string, data []byte) {
	f.t.Helper()
	must.Do(f.t, os.MkdirAll(filepath.Dir(f.path(name)), 0o755))
	must.Do(f.t, os.WriteFile(f.path(name), data, 0o644))
}

// secret writes a file that its owner alone can read.
func (f *federation) secret(name string, data []byte) {
	f.t.Helper()
	f.write(name, data)
	must.Do(f.t, os.Chmod(f.path(name), 0o600))
}

func (f *federation) fmp(args ...string) string {
	f.t.Helper()
	out, err := exec.Command(filepath.Join(f.bin, "fmp"), args...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("fmp %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// serve starts the server and waits until it is ready.
func (f *federation) serve(args ...string) {
	f.t.Helper()
	f.start(args...)
	f.until("/readyz", http.StatusOK)
}

// start starts the server.
func (f *federation) start(args ...string) {
	f.t.Helper()
	log := f.appended("server.log")
	defer log.Close()
	f.server = exec.Command(filepath.Join(f.bin, "fmp"),
		append([]string{"serve", "--round", f.path("round.yaml"), "--listen", f.address,
			"--engine.name", "pure"}, args...)...)
	f.server.Stdout, f.server.Stderr = log, log
	must.Do(f.t, f.server.Start())
}

// appended opens a log to add to.
func (f *federation) appended(log string) *os.File {
	f.t.Helper()
	return must.Get(os.OpenFile(f.path(log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))(f.t)
}

// loopbackClient does not check the server's certificate; fmp-edge, which is what the tests are of,
// does.
var loopbackClient = &http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// until waits until a path is answered with a status, and returns the reply and how long it took.
func (f *federation) until(path string, want int) ([]byte, time.Duration) {
	f.t.Helper()
	start := time.Now()
	for time.Since(start) < 60*time.Second {
		if resp, err := loopbackClient.Get(f.scheme + "://" + f.address + path); err == nil {
			data, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == want {
				return data, time.Since(start)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	text, _ := os.ReadFile(f.path("server.log"))
	f.t.Fatalf("%s is not answered with %d:\n%s", path, want, text)
	return nil, 0
}

// kill ends the server as a power cut would.
func (f *federation) kill() {
	if f.server != nil {
		_ = f.server.Process.Kill()
		_ = f.server.Wait()
		f.server = nil
	}
}

// leave ends the server for another one with a key of its own, whose receipts take the place of the first's.
func (f *federation) leave() {
	f.t.Helper()
	f.kill()
	for _, p := range must.Get(filepath.Glob(f.path("keys/*.receipt.json")))(f.t) {
		must.Do(f.t, os.Remove(p))
	}
}

// join runs a client through an address.
func (f *federation) join(address, name string, args ...string) (int, string) {
	return f.joined(address, name, &listener{}, args)
}

// joins has clients join, one after the other, which must succeed.
func (f *federation) joins(names ...string) {
	f.t.Helper()
	for _, name := range names {
		f.ends(0, "", name)
	}
}

// crowd has all clients join, some at once, each after a call of before with its number. Once as many as
// a key of acts are done, the act under it is done, while other clients go on.
func (f *federation) crowd(atOnce int, address string, before func(i int), acts map[int]func(), args ...string) {
	var all sync.WaitGroup
	var acting sync.Mutex
	var done atomic.Int64
	slots := make(chan struct{}, atOnce)
	for i, name := range f.names {
		all.Go(func() {
			if before != nil {
				before(i)
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			if code, out := f.join(address, name, args...); code != 0 {
				f.t.Errorf("%s: exit code %d: %s", name, code, out)
			}
			if act := acts[int(done.Add(1))]; act != nil {
				acting.Lock()
				defer acting.Unlock()
				act()
			}
		})
	}
	all.Wait()
}

// ends has a client join that must end with an exit code and say something.
func (f *federation) ends(code int, want, name string, args ...string) {
	f.t.Helper()
	if got, out := f.join(f.address, name, args...); got != code || !strings.Contains(out, want) {
		f.t.Fatalf("%s, %q: exit code %d: %s; want %d and %q", name, args, got, out, code, want)
	}
}

// refused has a client join that must fail and say why.
func (f *federation) refused(want, name string, args ...string) {
	f.t.Helper()
	if code, out := f.join(f.address, name, args...); code == 0 || !strings.Contains(out, want) {
		f.t.Errorf("%s, %q: exit code %d: %s; want %q", name, args, code, out, want)
	}
}

// withWorkers serves a round whose sampling is left to workers, and returns the function that starts
// one, with its log in a file of the round.
func (f *federation) withWorkers(state string) (serve func(), worker func(log string) *exec.Cmd) {
	f.t.Helper()
	queue := freeAddress(f.t)
	f.secret("nats.token", []byte("a token of the test's own\n"))
	token := []string{"--nats-token-file", f.path("nats.token")}
	return func() {
			f.t.Helper()
			f.serve(append([]string{"--state", f.path(state), "--workers", "--nats-listen", queue}, token...)...)
		}, func(log string) *exec.Cmd {
			f.t.Helper()
			w := exec.Command(filepath.Join(f.bin, "fmp"), append([]string{"worker", "--nats", "nats://" + queue,
				"--engine.name", "pure"}, token...)...)
			file := f.appended(log)
			defer file.Close()
			w.Stderr = file
			must.Do(f.t, w.Start())
			f.t.Cleanup(func() {
				_ = w.Process.Kill()
				_ = w.Wait()
			})
			return w
		}
}

func (f *federation) joined(address, name string, out *listener, args []string) (int, string) {
	cmd := exec.Command(filepath.Join(f.bin, "fmp-edge"),
		append([]string{"join", f.scheme + "://" + address, "--key",
			filepath.Join(f.dir, "keys", name+".key"), "--cache", f.path("cache"), "--threads", "1",
			filepath.Join(f.dir, "images", name)}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), out.text.String()
}

// joining starts a client, and tells when it has said some words (or ended), and how it ended: exit
// code and output.
func (f *federation) joining(words, name string,
	args ...string) (said chan struct{}, ended chan string) {
	out := &listener{words: words, said: make(chan struct{})}
	ended = make(chan string, 1)
	go func() {
		code, text := f.joined(f.address, name, out, args)
		ended <- fmt.Sprint(code, " ", text)
		out.once.Do(func() { close(out.said) })
	}()
	return out.said, ended
}

// listener keeps what a program writes, and closes said at some words.
type listener struct {
	words string
	said  chan struct{}
	text  bytes.Buffer
	once  sync.Once
}

func (l *listener) Write(p []byte) (int, error) {
	l.text.Write(p)
	if l.said != nil && strings.Contains(l.text.String(), l.words) {
		l.once.Do(func() { close(l.said) })
	}
	return len(p), nil
}

func (f *federation) get(path string) (int, []byte) {
	f.t.Helper()
	resp := must.Get(loopbackClient.Get(f.scheme + "://" + f.address + path))(f.t)
	defer resp.Body.Close()
	return resp.StatusCode, must.Get(io.ReadAll(resp.Body))(f.t)
}

func (f *federation) status() service.Status {
	f.t.Helper()
	var st service.Status
	code, data := f.get(wire.RoundPath(7) + "/status")
	if err := json.Unmarshal(data, &st); err != nil || code != 200 {
		f.t.Fatalf("status: %d %s", code, data)
	}
	return st
}

// receipt returns a receipt beside the keys.
func (f *federation) receipt(name string) (r wire.Receipt) {
	f.t.Helper()
	must.Do(f.t, json.Unmarshal(read(f.t, f.path("keys/"+name+".json")), &r))
	return r
}

// receipts checks that every client holds the receipt that the server's state says.
func (f *federation) receipts(st service.Status) {
	f.t.Helper()
	for _, m := range st.Members {
		r := f.receipt(m.Client + ".7.receipt")
		if r.Upload != m.Upload || !r.Time.Equal(m.Time) || r.Verify(st.ServerKey) != nil {
			f.t.Errorf("%s: receipt %+v; the server has %s of %s", m.Client, r, m.Upload, m.Time)
		}
	}
}

// published waits for a version of the classifier.
func (f *federation) published(n int) []byte {
	f.t.Helper()
	// a worker that was killed is silent for eight seconds before its job goes to another
	for range 1200 {
		if code, data := f.get(fmt.Sprintf("%s/classifier.onnx?version=%d", wire.RoundPath(7), n)); code == 200 {
			return data
		}
		time.Sleep(50 * time.Millisecond)
	}
	text, _ := os.ReadFile(f.path("server.log"))
	f.t.Fatalf("no version %d of the classifier:\n%s", n, text)
	return nil
}

// cutter passes connections on to an address and cuts a share of them after some bytes.
type cutter struct {
	l    net.Listener
	mu   sync.Mutex
	cuts int
}

func newCutter(t *testing.T, to string, share float64) *cutter {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := &cutter{l: l}
	t.Cleanup(func() { l.Close() })
	r := rng.New(1, "cutter")
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			limit := int64(1 << 40)
			c.mu.Lock()
			if r.Float64() < share {
				limit = int64(r.IntN(4000))
				c.cuts++
			}
			c.mu.Unlock()
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				done := make(chan struct{}, 2)
				go func() { _, _ = io.CopyN(out, in, limit); done <- struct{}{} }()
				go func() { _, _ = io.CopyN(in, out, limit); done <- struct{}{} }()
				<-done
			}()
		}
	}()
	return c
}

// TestServe: from keys to predictions with the programs as users have them: a client that comes
// before the server waits for it; the classifier is that of fmp pool of the same uploads; an
// image gets its prediction; after the deadline a client ends with its own exit code.
func TestServe(t *testing.T) {
	f := newFederation(t, 3,
		"deadline: 2100-01-01T00:00:00Z\nquorum: 2\ncalibrate: 2\nlabelled: images/c002\n")
	waits, early := f.joining("again in", "c000", "--json", "--calibrate", "2", "--secret",
		f.path("secret"))
	<-waits
	f.serve()
	if out := <-early; !strings.Contains(out, "again in") ||
		!strings.Contains(out, `"receipt_file"`) || !strings.HasPrefix(out, "0 ") {
		t.Errorf("a client that came early: %s", out)
	}
	f.ends(0, "asks for 2 calibration points", "c001")
	kept := f.path("keys/c001.7.receipt.json")
	again := f.path("again.json")
	f.fmp("receipts", "fetch", "http://"+f.address, "--key", f.path("keys/c001.key"), "-o", again)
	if was, is := read(t, kept), read(t, again); !bytes.Equal(was, is) {
		t.Errorf("the receipt fetched again is\n%s\nand was\n%s", is, was)
	}
	f.fmp("receipts", "verify", again, "--server-key", f.status().ServerKey, "--upload",
		f.path("keys/c001.7.upload"))
	if u := decoded(t, f.path("keys/c000.7.upload")); u.Calibration == nil ||
		u.Calibration.N != 2 || u.N != 8 {
		t.Errorf("n = %d and calibration points %+v; 2 of 10 images are granted", u.N, u.Calibration)
	}
	if u := decoded(t, f.path("keys/c001.7.upload")); u.Calibration != nil || u.N != 10 {
		t.Errorf("n = %d and calibration points %+v that nobody granted", u.N, u.Calibration)
	}
	classifier := f.published(1)
	f.write("served.onnx", classifier)
	var on struct {
		Labelled int
		Accuracy float64
	}
	if v := f.status().Versions; len(v) != 1 || json.Unmarshal(v[0].Summary, &on) != nil ||
		on.Labelled != 10 || on.Accuracy < 0.5 {
		t.Errorf("on the server's own images: %+v of %+v", on, v)
	}
	pooled := f.path("pooled.onnx")
	said := f.fmp("pool", f.path("keys/c000.7.upload"), f.path("keys/c001.7.upload"), "--client-graph",
		f.path("client.onnx"), "-o", pooled, "--engine.name", "pure")
	f.sameImages(said, pooled)
	predict := func(model string) string {
		_, predictions, _ := strings.Cut(f.fmp("predict", model, f.path("images/c002"), "--json",
			"--engine.name", "pure"), `"predictions"`)
		return predictions
	}
	if a, b := predict(f.path("served.onnx")), predict(pooled); a != b {
		t.Errorf("the served classifier predicts\n%.300s\nand that of fmp pool\n%.300s", a, b)
	}
	var got struct {
		Predictions []struct{ Probabilities []float32 }
	}
	resp := must.Get(http.Post("http://"+f.address+"/v1/predict", "image/png",
		bytes.NewReader(read(t, f.path("images/c002/3/0.png")))))(t)
	defer resp.Body.Close()
	data := must.Get(io.ReadAll(resp.Body))(t)
	if err := json.Unmarshal(data, &got); err != nil || resp.StatusCode != 200 || len(got.Predictions) != 1 ||
		len(got.Predictions[0].Probabilities) != 10 {
		t.Fatalf("predict: %d %s", resp.StatusCode, data)
	}
	f.kill()
	f.write("round.yaml", []byte("round: 7\nclient_graph: client.onnx\nroster: "+
		"roster.txt\ndeadline: 2020-01-01T00:00:00Z\nquorum: 2\n"))
	f.serve()
	f.ends(4, "closed", "c002") // after the deadline
	f.joins("c001")             // the same upload
	if later := f.published(1); !bytes.Equal(later, classifier) {
		t.Error("another classifier after a restart")
	}
}

// sameImages checks that ten images are ten wherever a number of them is told, two of them
// calibration points.
func (f *federation) sameImages(pooled, classifier string) {
	f.t.Helper()
	for _, want := range []string{" points for n = 20, 2 of them calibration points\n",
		" 10        10  c000, 2 of them calibration points\n"} {
		if !strings.Contains(pooled, want) {
			f.t.Errorf("fmp pool does not say %q:\n%s", want, pooled)
		}
	}
	for _, m := range f.status().Members {
		if m.N != 10 || m.Counted == nil || m.Client == "c000" && math.Round(*m.Counted) != 10 {
			f.t.Errorf("the status says %+v; want 10 images, of c000 all of them counted", m)
		}
	}
	_, manifest := must.Get2(models.Load(classifier))(f.t)
	if o, err := models.ReadOrigin(manifest); err != nil || len(o.Clients) != 2 ||
		o.Clients[0].N != 10 || o.Clients[1].N != 10 {
		f.t.Errorf("the provenance is of %+v, %v", o.Clients, err)
	}
}

// TestChaos: clients as processes, a fifth of their connections cut, the server killed twice, one
// of two workers killed once: every upload is in once, every client holds the receipt that the
// server would give it, and the classifier is byte for byte that of a round in peace.
// -chaos.clients 100 is the large one.
func TestChaos(t *testing.T) {
	n := *chaosClients
	f := newFederation(t, n, "deadline: 2100-01-01T00:00:00Z\n")
	f.serve("--state", f.path("peace"))
	f.crowd(8, f.address, nil, nil)
	peace := f.published(1)
	if receipts, err := filepath.Glob(f.path("keys/*.receipt.json")); err != nil || len(receipts) != n {
		t.Fatalf("%d receipts, %v", len(receipts), err)
	}
	f.leave()

	c := newCutter(t, f.address, 0.2)
	war, worker := f.withWorkers("war")
	war()
	dying := worker("server.log")
	worker("server.log")
	start := time.Now()
	f.crowd(8, c.l.Addr().String(), nil, map[int]func(){n / 3: func() { f.kill(); war() },
		2 * n / 3: func() { f.kill(); war() }, n / 2: func() { _ = dying.Process.Kill() }})
	if !bytes.Equal(peace, f.published(1)) {
		t.Error("the classifier is not that of the round in peace")
	}
	st := f.status()
	if st.In != n || len(st.Refused) != 0 || len(st.Missing) != 0 || len(st.Versions) != 1 {
		t.Errorf("%d in, %v refused, %v missing, %d versions", st.In, st.Refused, st.Missing,
			len(st.Versions))
	}
	f.receipts(st)
	t.Logf("%d clients, %d connections cut, the server killed twice, a worker once: %v", n, c.cuts,
		time.Since(start))
}

// TestWorkerFailover: of a worker that is killed (-9) while it does a job another one does the same
// job, and the classifier is byte for byte that of the server alone.
func TestWorkerFailover(t *testing.T) {
	f := newFederation(t, 3, "deadline: 2100-01-01T00:00:00Z\nsamples: 40\n")
	f.serve("--state", f.path("alone"))
	f.joins(f.names...)
	alone := f.published(1)
	f.leave()

	serve, work := f.withWorkers("shared")
	serve()
	// log reads what a worker has logged until it has said so, and returns the job that it says it
	// of.
	log := func(name, what string) string {
		t.Helper()
		for range 1200 {
			text, _ := os.ReadFile(f.path(name))
			if _, rest, ok := strings.Cut(string(text), what+" job="); ok &&
				strings.Contains(rest, "\n") {
				return strings.Fields(rest)[0]
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%s never said %q", name, what)
		return ""
	}
	first := work("first.log")
	f.joins(f.names...)
	job := log("first.log", `msg="job taken"`)
	must.Do(t, first.Process.Kill())
	if text, _ := os.ReadFile(f.path("first.log")); strings.Contains(string(text), `msg="job done" job=`+job) {
		t.Skip("the first worker was done with its job before it was killed")
	}
	work("second.log")
	if !bytes.Equal(alone, f.published(1)) {
		t.Error("the classifier is not that of the server alone")
	}
	if text := read(t, f.path("second.log")); !strings.Contains(string(text), `msg="job done" job=`+job) {
		t.Errorf("the second worker did not do job %s: %s", job, text)
	}
}

// decoded is an upload in a file.
func decoded(t *testing.T, path string) *federate.Upload {
	t.Helper()
	return must.Get(federate.Decode(read(t, path), federate.Expect{}))(t)
}

// TestReached: the address that is printed has the host of --listen, which the certificate covers,
// and the port that was taken.
func TestReached(t *testing.T) {
	t.Parallel()
	taken := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4321}
	for address, want := range map[string]string{"localhost:0": "localhost:4321",
		":0": "127.0.0.1:4321", "[::1]:0": "[::1]:4321"} {
		if got := reached(address, taken); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestFullDiskAndKills: twenty clients over HTTPS, the server killed twice, the second time while
// its disk is full, and the disk freed: the server says at once what is wrong, is back within five
// seconds of space being freed, and all twenty uploads are in with the receipts that their clients
// hold.
func TestFullDiskAndKills(t *testing.T) {
	disk := tinyDisk(t, 24<<20)
	const n = 20
	f := newFederation(t, n, "deadline: 2100-01-01T00:00:00Z\nbounds: {bytes: 65536}\n")
	t.Cleanup(f.kill) // before the disk goes
	f.scheme = "https"
	serve := func() { f.start("--state", disk, "--tls-self-signed", "--low-space", "8") }
	serve()
	f.until("/readyz", http.StatusOK)
	fill := filepath.Join(disk, "fill")
	// closed once the disk is full: the last clients wait for it, so that uploads meet a full disk
	full := make(chan struct{})
	var back time.Duration
	disturb := map[int]func(){
		5: func() {
			f.kill()
			serve()
			f.until("/readyz", http.StatusOK)
		},
		10: func() {
			file, err := os.Create(fill)
			if err != nil {
				t.Error(err)
				close(full)
				return
			}
			if _, err := file.Write(make([]byte, 17<<20)); err != nil {
				t.Error(err)
			}
			f.logged("low on space")
			for err == nil {
				_, err = file.Write(make([]byte, 4096))
			}
			file.Close()
			f.full()
			close(full)
			f.logged("request failed") // an upload of one of the last clients
			f.kill()
			serve()
			f.full()
			if err := os.Remove(fill); err != nil {
				t.Error(err)
			}
			_, back = f.until("/readyz", http.StatusOK)
		},
	}
	f.crowd(4, f.address, func(i int) {
		if i >= n-5 {
			<-full
		}
	}, disturb, "--ca", filepath.Join(disk, "server.crt"))
	st := f.status()
	if st.In != n || len(st.Refused) != 0 || len(st.Missing) != 0 || len(st.Members) != n {
		t.Errorf("%d in, %v refused, %v missing", st.In, st.Refused, st.Missing)
	}
	f.receipts(st)
	f.published(1)
	if back > 5*time.Second {
		t.Errorf("back %v after space was freed", back)
	}
	f.logged("has space again")
	t.Logf("%d clients, the server killed twice; ready %v after space was freed", n, back)
}

// logged waits until the server's log says something.
func (f *federation) logged(want string) {
	f.t.Helper()
	var text []byte
	for range 200 {
		text, _ = os.ReadFile(f.path("server.log"))
		if strings.Contains(string(text), want) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.t.Errorf("the log does not say %q:\n%s", want, text)
}

// full waits until the server says that its disk is full, and checks how it says so.
func (f *federation) full() {
	f.t.Helper()
	data, took := f.until("/readyz", http.StatusServiceUnavailable)
	var p wire.Problem
	if err := json.Unmarshal(data, &p); err != nil || p.Code != wire.NoSpace ||
		!strings.Contains(p.Detail, "full") || took > 20*time.Second {
		f.t.Errorf("a full disk, after %v: %s", took, data)
	}
	f.logged("the disk of the state is full") // metrics are of what was last looked at
	if _, data := f.get("/metrics"); !strings.Contains(string(data), "fmp_state_full 1") ||
		!strings.Contains(string(data), "fmp_state_low 1") {
		f.t.Error("the metrics do not say that the disk is full")
	}
}

// TestRoundCorpus: a round of moments reads its corpus before the first client comes; a round of
// class means refuses one.
func TestRoundCorpus(t *testing.T) {
	const dx, images = 40, 60
	at := newFolder(t)
	ran(t, "fuse", "--extractor", saveNet(t, onnx.ZerosF32(192, dx)), "--class-names", "a,b", "--engine", "pure",
		"-o", at("moments.onnx"))
	ran(t, "keys", "--dir", at("keys"), "--roster", at("roster.txt"), "c000")
	rows, labels := make([]float32, images*dx), make([]int, images)
	rng.Normal(rng.New(1, "rows"), rows)
	for i := range rows {
		rows[i] /= 2 * dx // class means are of length 1 at most
	}
	for i := range labels {
		labels[i] = i % 3
	}
	u := &federate.Upload{Client: "corpus", Model: strings.Repeat("0", 64),
		N: images - min(moments.MaxCalibration, images/5)}
	u.Points, u.Within = must.Get2(moments.Compute(rows, dx, labels, 3, u.Client))(t)
	data := must.Get(u.Encode())(t)
	must.Do(t, os.WriteFile(at("corpus.upload"), data, 0o600))
	load := func(graph string) (*pooling, error) {
		file := "round: 1\nclient_graph: " + graph +
			"\nroster: roster.txt\ndeadline: 2100-01-01T00:00:00Z\ncorpus: corpus.upload\n"
		must.Do(t, os.WriteFile(at("round.yaml"), []byte(file), 0o600))
		r, err := round.Load(at("round.yaml"))
		if err != nil {
			return nil, err
		}
		return newPooling(r, nil)
	}
	p, err := load("moments.onnx")
	if err != nil || p.options.CorpusMoments == nil || p.options.CorpusMoments.Within.K != dx {
		t.Errorf("a round of moments: %v", err)
	}
	_, err = load(shippedFile(t, models.KindClient))
	if err == nil || !strings.Contains(err.Error(), "corpus.upload) is for uploads of moments") {
		t.Errorf("a round of class means: %v", err)
	}
	must.Do(t, os.WriteFile(at("corpus.upload"), data[:50], 0o600))
	if _, err := load("moments.onnx"); err == nil || !strings.Contains(err.Error(), "corpus") {
		t.Errorf("half a corpus: %v", err)
	}
}

// TestServeWarns: a version of moments says in its account and in the log that nothing told the
// temperature, and which feature drowns the others.
func TestServeWarns(t *testing.T) {
	const dx, images = 16, 40
	graph := filepath.Join(t.TempDir(), "moments.onnx")
	ran(t, "fuse", "--extractor", saveNet(t, onnx.ZerosF32(192, dx)), "--class-names", "a,b", "--engine", "pure",
		"-o", graph)
	m, f := must.Get2(models.Load(graph))(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	t.Cleanup(func() { eng.Close() })
	for name, c := range map[string]struct {
		heavy, kappa      float64
		drowns, guess     string
		warnings, clients int
	}{
		"one client":      {1, 0, "", "one client alone counts", 1, 1},
		"heavy":           {1000, 0.85, "number 3 of 16", "", 1, 2},
		"heavy and alone": {1000, 0, "number 3 of 16", "one client alone counts", 2, 1},
		"neither":         {1, 0.85, "", "", 0, 2},
	} {
		var uploads []pool.Upload
		for i := range c.clients {
			r, rows, labels := rng.New(1, "warns", i), make([]float32, images*dx), make([]int, images)
			for at := range rows {
				v := r.Float64()
				if at%dx == 3 {
					v *= c.heavy
				}
				labels[at/dx], rows[at] = at/dx%2, float32(v)
			}
			for at := range images {
				row, sum := rows[at*dx:][:dx], float32(0)
				for _, v := range row {
					sum += v
				}
				for j, v := range row {
					row[j] = float32(math.Sqrt(float64(v / sum)))
				}
			}
			u := &federate.Upload{Client: fmt.Sprint("client ", i), Model: f.Digest, N: images}
			u.Points, u.Within = must.Get2(moments.Parted(rows, dx, labels, 2, nil))(t)
			uploads = append(uploads, pool.Upload{Upload: u})
		}
		p := &pooling{graph: m, client: f, eng: eng, options: pool.Options{Samples: 2, Seed: 1}}
		p.client.Kappa, p.client.KappaDeviation = c.kappa, c.kappa/4
		made := must.Get(p.pool(t.Context(), uploads, nil))(t)
		s, said := made.Summary.(summary), strings.Join(made.Warnings, "\n")
		if !strings.HasPrefix(s.Heavy, c.drowns) || (s.Heavy == "") != (c.drowns == "") ||
			!strings.HasPrefix(s.Unmeasured, c.guess) || (s.Unmeasured == "") != (c.guess == "") {
			t.Errorf("%s: the account is %+v", name, s)
		}
		if len(made.Warnings) != c.warnings || !strings.Contains(said, c.drowns) || !strings.Contains(said, c.guess) {
			t.Errorf("%s: the log has %q", name, said)
		}
	}
	if said := (&summary{NoSets: "too few"}).warnings(); len(said) != 1 || !strings.HasSuffix(said[0], ": too few") {
		t.Errorf("no sets: the log has %q", said)
	}
}

// TestServePrivate: a private round with the programs as users have them: the client makes what the
// round asks for and refuses what it was told to, the receipt and the classifier say what was
// spent, and the classifier predicts.
func TestServePrivate(t *testing.T) {
	for _, b := range []privacy.Budget{{Noise: privacy.Local, Unit: privacy.Example},
		{Noise: privacy.Trusted, Unit: privacy.Example},
		{Noise: privacy.Local, Unit: privacy.Client}, {Noise: privacy.Trusted, Unit: privacy.Client}} {
		noise := b.Noise
		t.Run(noise+" noise for a "+b.Unit, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // a ledger of its own
			f := newFederation(t, 3,
				"deadline: 2100-01-01T00:00:00Z\nquorum: 2\nsamples: 20\nlabelled: "+
					"images/c002\nprivacy: {epsilon: 8, points: 10, noise: "+noise+
					", unit: "+b.Unit+"}\n")
			f.write("plain.onnx", read(t, f.path("client.onnx")))
			f.fmp("fuse", "--dataset", "digits", "--upload", "private", "-o", f.path("client.onnx"))
			f.serve()
			f.refused("--max-epsilon allows 4", "c000", "--max-epsilon", "4")
			key := f.path("keys/c000.key")
			for upload, want := range map[string][]string{
				"plain.onnx": {"made by model"},
				"client.onnx": {"its budget", "--epsilon", "2", "--reply-after", "0", "--ledger",
					f.path("other.jsonl")},
			} {
				file := f.path(upload + ".upload")
				if code, out := f.edge(append([]string{"compress", "--model", f.path(upload), "--client", "c000",
					"--round", "7", "-o", file,
					f.path("images/c000")}, want[1:]...)...); code != 0 {
					t.Fatal(out)
				}
				if code, out := f.edge("send", "http://"+f.address, file, "--key", key); code == 0 ||
					!strings.Contains(out, strings.TrimPrefix(want[0], "its ")) {
					t.Errorf("%s: exit code %d: %s", upload, code, out)
				}
			}
			if n := f.status(); n.In != 0 || len(n.Refused) != 0 {
				t.Errorf("the server saw something of that: %+v", n)
			}
			for c, after := range map[string]string{"c000": "2s", "c001": "0"} {
				start := time.Now()
				f.ends(0, "is private: epsilon 8", c, "--private", "--max-epsilon", "8", "--reply-after", after)
				if took := time.Since(start); after == "2s" && took < 2*time.Second {
					t.Fatalf("the reply comes after %v", took)
				}
			}
			f.refused("second time", "c000", "--fresh")
			if s := f.receipt("c000.7.receipt").Spent; s == nil || s.Epsilon != 8 || s.Noise != noise ||
				s.Unit != b.Unit {
				t.Errorf("the receipt says %+v", s)
			}
			classifier := f.published(1)
			if o := originOf(t, classifier); o.Method != "FMP-DP" ||
				!strings.Contains(string(o.Private), `"epsilon":8`) || len(o.Clients) != 2 {
				t.Errorf("origin %+v", o)
			}
			f.write("served.onnx", classifier)
			if out := f.fmp("predict", f.path("served.onnx"), f.path("images/c002"), "--json",
				"--engine.name", "pure"); strings.Count(out,
				"probabilities") < 10 {
				t.Errorf("predictions: %s", out)
			}
			var version struct {
				Spent    privacy.Account
				Accuracy float64
			}
			if err := json.Unmarshal(f.status().Versions[0].Summary, &version); err != nil ||
				version.Spent.Epsilon != 8 ||
				version.Spent.Unit != b.Unit ||
				version.Spent.Releases != map[string]int{privacy.Local: 2,
					privacy.Trusted: 1}[noise] {
				t.Errorf("the version says %+v, %v", version, err)
			}
		})
	}
}

// TestServeTwoServers: a round of two servers with the programs as users have them, each server
// killed while clients come and once more after the sum was opened: nothing is lost, and nothing
// opened again.
func TestServeTwoServers(t *testing.T) {
	f := newFederation(t, 3, "deadline: 2100-01-01T00:00:00Z\nquorum: 2\nsamples: 20\nprivacy: "+
		"{epsilon: 8, noise: two-servers, unit: client, points: 10}\n")
	f.fmp("fuse", "--dataset", "digits", "--upload", "private", "-o", f.path("client.onnx"))
	f.secret("pair.secret", []byte("the two servers know this\n"))
	helper := *f
	helper.address = freeAddress(t)
	t.Cleanup(helper.kill)
	secret := []string{"--servers-secret-file", f.path("pair.secret")}
	lead := func() { f.serve(append(secret, "--helper", "http://"+helper.address)...) }
	help := func() { helper.serve(append(secret, "--as-helper", "--state", f.path("helper"))...) }
	if out, err := exec.Command(filepath.Join(f.bin, "fmp"), "serve", "--round",
		f.path("round.yaml")).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "--as-helper") {
		t.Errorf("a server that is neither: %s, %v", out, err)
	}
	help()
	lead()
	for want, args := range map[string][]string{
		"give --helper":         nil,
		"leader and the helper": {"--helper", "http://" + f.address},
	} {
		f.refused(want, "c000", args...)
	}
	// Each server in turn is away when a client comes, which waits until it is back.
	for i, away := range []struct {
		server *federation
		start  func()
	}{{&helper, help}, {f, lead}} {
		name := f.names[i]
		absent(t, f.path("keys/"+name+".7.upload"))
		away.server.kill()
		waits, done := f.joining("again in", name, "--helper", "http://"+helper.address, "--private",
			"--reply-after", "0")
		<-waits
		away.start()
		if out := <-done; !strings.HasPrefix(out, "0 ") {
			t.Fatalf("%s: exit code %s", name, out)
		}
		for _, r := range []string{".7.receipt", ".7.helper.receipt"} {
			if s := f.receipt(name + r).Spent; s == nil || s.Noise != privacy.TwoServers {
				t.Errorf("the receipt says %+v", s)
			}
		}
	}
	classifier := f.published(1)
	if o := originOf(t, classifier); !strings.Contains(string(o.Private), `"noise":"two-servers"`) ||
		!strings.Contains(string(o.Private), `"releases":2`) || len(o.Clients) != 2 {
		t.Errorf("origin %s", o.Private)
	}
	f.kill()
	helper.kill()
	help()
	lead()
	if !bytes.Equal(f.published(1), classifier) || len(f.status().Versions) != 1 {
		t.Error("after a restart it is another classifier")
	}
	f.ends(4, "", "c002", "--helper", "http://"+helper.address) // after the sum was opened
	f.ends(0, "sent:", "c000", "--helper", "http://"+helper.address)
}

// originOf returns what a classifier's file says it was made from.
func originOf(t *testing.T, classifier []byte) models.Origin {
	t.Helper()
	f := must.Get(models.ReadManifest(must.Get(serde.Unmarshal(classifier))(t)))(t)
	return must.Get(models.ReadOrigin(f))(t)
}

// TestPrivateSums: the server's noise is drawn once for a set of uploads, however often that is
// pooled, and anew for another set.
func TestPrivateSums(t *testing.T) {
	dir := t.TempDir()
	graph := filepath.Join(dir, "client.onnx")
	ran(t, "fuse", "--dataset", "digits", "--upload", "private", "-o", graph)
	m, f := must.Get2(models.Load(graph))(t)
	b := privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example, Relation: privacy.AddRemove,
		Noise: privacy.Trusted}
	p := must.Get(newPooling(&round.Round{File: round.File{Round: 7, Privacy: &b,
		Options: pool.Options{Samples: 10}}, GraphData: read(t, graph), Client: f}, nil))(t)
	st := must.Get(store.Open(t.Context(), store.Name(7, f.Digest),
		store.Options{Dir: filepath.Join(dir, "state")}))(t)
	defer st.Close()
	totals := func(digests ...string) []float64 {
		t.Helper()
		var releases []pool.Release
		for _, d := range digests {
			releases = append(releases, pool.Release{Digest: d, Release: &federate.Release{Round: 7, Client: d,
				Model: f.Digest, Budget: b, Sums: privacy.NewRelease(f.C, f.K)}})
		}
		r := must.Get(pool.NewPrivate(releases, m, f, p.options))(t)
		s := must.Get(r.Totals(service.Sums{Ctx: t.Context(), Store: st}, nil))(t)
		return append(s.Sums, s.Counts...)
	}
	first, again, other := totals("a", "b"), totals("b", "a"), totals("a", "b", "c")
	same, equal := true, 0
	for i, v := range first {
		same = same && v == again[i]
		if v == other[i] {
			equal++
		}
	}
	if !same || equal > len(first)/10 {
		t.Errorf("pooled again %v and %v; another set has %d of %d numbers in common", first, again,
			equal, len(first))
	}
}
