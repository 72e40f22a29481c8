package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/conformal"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/selfsigned"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
)

// TestRosterBeingWritten: a roster that changes from look to look is not read; one that two looks
// find the same is, once.
func TestRosterBeingWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "roster.txt")
	f := watchedFiles{paths: []string{path}}
	at := time.Unix(1e9, 0)
	write := func(text string) {
		t.Helper()
		at = at.Add(time.Second)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		must.Do(t, os.Chtimes(path, at, at))
	}
	write("a b c")
	f.last = f.stamp()
	f.taken = f.last
	look := func(want bool, when string) {
		t.Helper()
		if got := f.settled(); got != want {
			t.Errorf("%s: settled %v; want %v", when, got, want)
		}
	}
	look(false, "unchanged")
	write("a") // cut off by an editor that writes it anew
	look(false, "one look after a change")
	write("a b c d")
	look(false, "changed again")
	look(true, "the same at two looks")
	look(false, "taken already")
	must.Do(t, os.Remove(path))
	look(false, "away")
	write("a b c d e")
	look(false, "back")
	look(true, "back for two looks")
}

// TestRosterAtStart: a roster that changed between the reading of the round and the first look is taken;
// one with the same clients is not taken again, and one that is refused leaves the last in place.
func TestRosterAtStart(t *testing.T) {
	t.Parallel()
	a, b := must.Get(identity.New("a"))(t).Line()+"\n", must.Get(identity.New("b"))(t).Line()+"\n"
	other := must.Get(identity.New("b"))(t).Line() + "\n"
	for name, c := range map[string]struct {
		loaded string
		found  []string // one after the other
		want   []string // rosters that are taken
	}{
		"unchanged":        {a + b, []string{a + b}, nil},
		"a line less":      {a + b, []string{a}, []string{"[a]"}},
		"a line more":      {a, []string{a + b}, []string{"[a b]"}},
		"another key":      {a + b, []string{a + other}, []string{"[a b]"}},
		"the same again":   {a, []string{"# note\n" + a, a + b}, []string{"[a b]"}},
		"there and back":   {a, []string{a + b, a}, []string{"[a b]", "[a]"}},
		"refused, then on": {a, []string{"none\n", a + b}, []string{"[a b]"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { atStart(t, c.loaded, c.found, c.want) })
		})
	}
}

// atStart is a case of TestRosterAtStart, in time of its own.
func atStart(t *testing.T, loaded string, found, want []string) {
	path := filepath.Join(t.TempDir(), "roster.txt")
	r := &round.Round{Clients: must.Get(identity.ParseRoster([]byte(loaded)))(t)}
	r.Roster = path
	at := time.Unix(1e9, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, ended := make(chan string, 9), make(chan struct{})
	for i, text := range found {
		at = at.Add(time.Second)
		must.Do(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.Do(t, os.Chtimes(path+".new", at, at))
		must.Do(t, os.Rename(path+".new", path))
		if i == 0 {
			go func() {
				defer close(ended)
				watchRoster(ctx, 50*time.Millisecond, r, func(clients *identity.Roster) {
					got <- fmt.Sprint(clients.Names())
				}, slog.New(slog.DiscardHandler))
			}()
		}
		time.Sleep(500 * time.Millisecond)
	}
	cancel()
	<-ended
	close(got)
	var taken []string
	for one := range got {
		taken = append(taken, one)
	}
	if !slices.Equal(taken, want) {
		t.Errorf("taken: %v; want %v", taken, want)
	}
}

// TestRosterReadAgain: a roster that cannot be read at one moment is taken at a later one, though its file
// looks the same. The fault is said once.
func TestRosterReadAgain(t *testing.T) {
	t.Parallel()
	line := must.Get(identity.New("a"))(t).Line() + "\n"
	path := filepath.Join(t.TempDir(), "roster.txt")
	write := func(text string) {
		must.Do(t, os.WriteFile(path+".new", []byte(text), 0o600))
		must.Do(t, os.Chtimes(path+".new", time.Unix(1e9, 0), time.Unix(1e9, 0)))
		must.Do(t, os.Rename(path+".new", path))
	}
	write("E" + line[1:])
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &round.Round{Clients: must.Get(identity.ParseRoster([]byte(
			line + must.Get(identity.New("b"))(t).Line())))(t)}
		r.Roster = path
		var log bytes.Buffer
		var taken []string
		go watchRoster(ctx, time.Second, r, func(clients *identity.Roster) {
			taken = append(taken, clients.Names()...)
		}, slog.New(slog.NewTextHandler(&log, nil)))
		for _, text := range []string{"", line} {
			if text != "" {
				write(text)
			}
			time.Sleep(time.Minute + time.Millisecond)
		}
		if !slices.Equal(taken, []string{"a"}) || strings.Count(log.String(), "want lines of") != 1 {
			t.Errorf("taken %v, and in the log:\n%s", taken, &log)
		}
	})
}

// TestAcceptor: that no connection can be taken is said once a minute.
func TestAcceptor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := &acceptor{Listener: refusing{errors.New("too many open files")},
			log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 90 {
			_, err := a.Accept()
			if err == nil {
				t.Fatal("a connection")
			}
			time.Sleep(time.Second)
		}
		a.Listener = refusing{net.ErrClosed}
		time.Sleep(time.Minute)
		if _, err := a.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "no connection can be taken"); n != 2 {
			t.Errorf("said %d times in 90 seconds:\n%s", n, &log)
		}
	})
}

// refusing is a listener that takes no connection.
type refusing struct{ err error }

func (r refusing) Accept() (net.Conn, error) { return nil, r.err }
func (r refusing) Close() error              { return nil }
func (r refusing) Addr() net.Addr            { return &net.TCPAddr{} }

// TestLabelledImages: the folder of the server's own images is checked before a client comes, and a
// fault of it later leaves the scores out, not the classifier.
func TestLabelledImages(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := &round.Round{Client: models.Manifest{C: 2, Classes: []string{"cat", "dog"}}}
	if n := scoredOn(r).MaxItems; n != 1_000_000 {
		t.Errorf("%d images are taken at the start; a classifier is scored on 1,000,000 at most", n)
	}
	for name, c := range map[string]struct{ path, class, want string }{
		"none":    {},
		"missing": {path: folder + "/nowhere", want: "nowhere"},
		"good":    {path: folder + "/good", class: "cat"},
		"zebra":   {path: folder + "/other", class: "zebra", want: "zebra"},
	} {
		if c.class != "" {
			must.Do(t, os.MkdirAll(filepath.Join(c.path, c.class), 0o700))
			file := must.Get(os.Create(filepath.Join(c.path, c.class, "1.png")))(t)
			must.Do(t, png.Encode(file, image.NewGray(image.Rect(0, 0, 8, 8))))
			must.Do(t, file.Close())
		}
		r.Labelled = c.path
		if err := new(serveFlags).checkLabelled(r); (err != nil) != (c.want != "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if err := (&serveFlags{asHelper: true}).checkLabelled(r); err != nil {
			t.Errorf("%s, at the helper: %v", name, err)
		}
	}
	var log bytes.Buffer
	s := &server{round: r, eng: must.Get(pure.New(engine.Options{}))(t), log: slog.New(slog.NewTextHandler(&log, nil))}
	r.Labelled = folder + "/nowhere"
	made := must.Get(s.measured(t.Context(),
		&service.Pooled{Classifier: []byte("x"), Summary: "kept"}, nil))(t)
	if made.Summary != "kept" || !strings.Contains(log.String(), "not scored") {
		t.Errorf("summary %v; log %s", made.Summary, &log)
	}
}

// TestListenHeeds: predictions end where a notice that comes later names their classifier, and go on
// beside one that names another, or that cannot be read.
func TestListenHeeds(t *testing.T) {
	r := newMadeRound(t, 3)
	path := r.path("c.onnx")
	ran(t, append([]string{"pool", "--engine.name", "pure", "--samples", "2", "-o", path}, r.uploads...)...)
	data := r.read("c.onnx")
	_, f := must.Get2(models.Load(path))(t)
	o := must.Get(models.ReadOrigin(f))(t)
	key := must.Get(identity.New("server"))(t)
	notice := func(digest string) []byte {
		n := &wire.Notice{Round: o.Round, Graph: o.Client,
			Superseded: []wire.VersionRef{{Version: 1, SHA256: digest}}}
		n.Sign(key)
		return must.Get(json.Marshal(n))(t)
	}
	for name, c := range map[string]struct {
		notice []byte
		ends   bool
		logged int // lines of a notice that is not read
	}{
		"named":   {notice(models.DigestBytes(data)), true, 0},
		"another": {notice(strings.Repeat("b", 64)), false, 0},
		"half":    {notice(models.DigestBytes(data))[:99], false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(path + ".notice")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			cmd, cfg := newPredictCommand(), option.Default[engineSettings]()
			from, to := io.Pipe()
			log := must.Get(os.Create(r.path("log")))(t)
			defer log.Close()
			cmd.SetContext(ctx)
			cmd.SetOut(to)
			cmd.SetErr(log)
			cfg.Engine.Name = "pure"
			ended := make(chan error, 1)
			go func() {
				ended <- servePredictions(cmd, cfg, path, data,
					listening{address: "127.0.0.1:0", every: 100 * time.Microsecond})
			}()
			line := must.Get(bufio.NewReader(from).ReadString('\n'))(t)
			_, address, _ := strings.Cut(strings.TrimSpace(line), " on ")
			must.Do(t, atomicfile.WriteBytes(path+".notice", c.notice))
			if !c.ends {
				// a hundred requests take many times as long as the notice stays unread
				for n := 0; n < 100 || bytes.Count(r.read("log"), []byte("is not read")) < c.logged; n++ {
					must.Do(t, must.Get(http.Get(address+"/v2/health/ready"))(t).Body.Close())
				}
				stop()
			}
			if err := <-ended; errors.Is(err, wire.ErrSuperseded) != c.ends || !c.ends && err != nil {
				t.Errorf("ended with %v", err)
			}
			if got := r.read("log"); bytes.Count(got, []byte("is not read")) != c.logged {
				t.Errorf("logged %s; want %d lines of the notice", got, c.logged)
			}
		})
	}
}

// otherValue returns another value of a setting than its default, as a text.
func otherValue(t *testing.T, s option.Setting) string {
	t.Helper()
	was := showValue(s.Value.Interface())
	for _, text := range append(s.Choices(), "own.onnx", "true", "7", "0.25", "0.75", "0.001") {
		one := reflect.New(s.Value.Type()).Elem()
		if decodeSetting(text, one) == nil && text != was && text != "none" {
			if s := s; len(func() []error { s.Value = one; return s.Check() }()) == 0 && s.Given() {
				return text
			}
		}
	}
	t.Fatalf("%s: no other value than %s is known", s.Key, was)
	return ""
}

// TestOptionsOfARound: every option of a round is read alike from its flag, its short flag, its
// variable, a settings file and a round file, the command line over the round file, and is an error
// for uploads that do not read it.
func TestOptionsOfARound(t *testing.T) {
	const file = "round: 1\nclient_graph: c.onnx\nroster: r.txt\ndeadline: 2030-01-01T00:00:00Z\n"
	cfg := option.Default[poolSettings]()
	for _, s := range option.List(&cfg.Options) {
		text := otherValue(t, s)
		nested := func(name string) string { // a.b: text, as YAML
			parts := strings.Split(name, ".")
			return strings.Join(parts, ": {") + ": " + text + strings.Repeat("}", len(parts)-1) + "\n"
		}
		read := func(args ...string) any {
			cfg := option.Default[poolSettings]()
			cmd := &cobra.Command{}
			r := bindSettings(cmd, &cfg, engineAliases)
			must.Do(t, cmd.ParseFlags(args))
			must.Do(t, r.resolve())
			return optionValue(&cfg.Options, s.Name)
		}
		got := map[string]any{"flag": read("--" + s.Key + "=" + text),
			"settings": read("--config", writeFile(t, "s.yaml", nested(s.Key)))}
		if s.Flag != "" {
			got["short flag"] = read("--" + s.Flag + "=" + text)
		}
		f := must.Get(round.Parse([]byte(file + nested(s.Name))))(t)
		got["round file"] = optionValue(&f.Options, s.Name)
		t.Setenv(envName(s.Key), text)
		got["variable"] = read()
		want := got["flag"]
		for from, v := range got {
			if !reflect.DeepEqual(v, want) || !optionNamed(&f.Options, s.Name).Given() {
				t.Errorf("%s is %v from a %s, and %v from a flag", s.Name, v, from, want)
			}
		}
		over := option.Default[pool.Options]()
		cfg := option.Default[poolSettings]()
		if err := bindSettings(&cobra.Command{}, &cfg, engineAliases).resolveOver(&over, &cfg); err != nil ||
			!reflect.DeepEqual(optionValue(&over, s.Name), want) {
			t.Errorf("%s: a server reads %v over its round file, %v", s.Name,
				optionValue(&over, s.Name), err)
		}
		must.Do(t, os.Unsetenv(envName(s.Key)))
		kinds := strings.Fields(s.Tag.Get("rounds"))
		for _, kind := range []string{"points", "means", "moments", pool.OfPrivate} {
			if err := f.Unread(kind); (err == nil) != slices.Contains(kinds, kind) || err != nil &&
				!strings.Contains(err.Error(), s.Key) {
				t.Errorf("%s in a round of %s: %v", s.Name, kind, err)
			}
		}
		if s.Doc == "" || len(kinds) == 0 {
			t.Errorf("%s says neither what it is nor who reads it", s.Name)
		}
	}
}

func optionNamed(o *pool.Options, name string) *option.Setting {
	list := option.List(o)
	return &list[slices.IndexFunc(list, func(s option.Setting) bool { return s.Name == name })]
}

func optionValue(o *pool.Options, name string) any { return optionNamed(o, name).Value.Interface() }

// TestOptionDefaults: the tags state what the zero options do.
func TestOptionDefaults(t *testing.T) {
	o := option.Default[pool.Options]()
	var scores []string
	for _, s := range conformal.Scores {
		scores = append(scores, string(s))
	}
	if got := optionNamed(&o, "sets.score").Choices(); !slices.Equal(got, scores) {
		t.Errorf("scores %v are allowed, and there are %v", got, scores)
	}
	if o.Seed != pool.Seed || o.Tolerance != pool.Tolerance || *o.FalseShare != pool.FalseShare ||
		o.Anchor != pool.ShippedAnchor {
		t.Errorf("the defaults are %+v", o)
	}
	for text, ok := range map[string]bool{"0": true, "0.4999": true, "0.5": false, "-0.1": false} {
		cfg := option.Default[poolSettings]()
		cmd := &cobra.Command{}
		r := bindSettings(cmd, &cfg, engineAliases)
		must.Do(t, cmd.ParseFlags([]string{"--false-share", text}))
		if err := r.resolve(); (err == nil) != ok || err != nil &&
			!strings.Contains(err.Error(), "0 to less than 0.5") {
			t.Errorf("a share of %s: %v", text, err)
		}
	}
}

// TestOptionFiles: files in a round file are beside it, and words are no files.
func TestOptionFiles(t *testing.T) {
	for text, want := range map[string]string{"default": "default", "none": "none",
		"own.upload":  "FOLDER/own.upload",
		"/own.upload": "/own.upload"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "round.yaml")
		body := fmt.Sprintf(
			"round: 1\nclient_graph: %s\nroster: roster.txt\ndeadline: 2030-01-01T00:00:00Z\nanchor: %s\n",
			shippedFile(t, "client"), text)
		must.Do(t, os.WriteFile(path, []byte(body), 0o600))
		ran(t, "keys", "a", "--dir", dir, "--roster", filepath.Join(dir, "roster.txt"))
		r := must.Get(round.Load(path))(t)
		if want = strings.Replace(want, "FOLDER", dir, 1); r.Anchor != want {
			t.Errorf("anchor: %s is %q, want %q", text, r.Anchor, want)
		}
	}
}

// TestProxies: a client behind the proxy of its environment, which alone knows the way to the
// server, joins a round of a server behind a proxy of its own that has the certificate.
func TestProxies(t *testing.T) {
	f := newFederation(t, 1, "deadline: 2100-01-01T00:00:00Z\n")
	f.serve("--host", "example.com")
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: f.address}))
	defer front.Close()
	// for example.com
	f.write("front.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}))
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "example.com:443" {
			t.Errorf("the proxy is asked %s %s", r.Method, r.Host)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		asked.Add(1)
		to, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(http.StatusOK)
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _, _ = io.Copy(to, from); to.Close() }()
		_, _ = io.Copy(from, to)
		from.Close()
	}))
	defer proxy.Close()
	cmd := exec.Command(filepath.Join(f.bin, "fmp-edge"), "join", "https://example.com", "--ca",
		f.path("front.crt"), "--key", f.path("keys/c000.key"), "--cache", f.path("cache"),
		f.path("images/c000"))
	cmd.Env = append(os.Environ(), "HTTPS_PROXY="+proxy.URL, "NO_PROXY=")
	out, err := cmd.CombinedOutput()
	if err != nil || asked.Load() == 0 || !strings.Contains(string(out), "receipt:") {
		t.Errorf("%v, %d through the proxy: %s", err, asked.Load(), out)
	}
	if st := f.status(); st.In != 1 {
		t.Errorf("%d in", st.In)
	}
}

// TestServeExpired: a certificate that has ended is told of at the start, and to a client without advice
// that does not help; a signal ends the server with exit code 0, whatever requests are under way.
func TestServeExpired(t *testing.T) {
	f := newFederation(t, 1, "deadline: 2100-01-01T00:00:00Z\n")
	cert, key := f.path("old.crt"), f.path("old.key")
	must.Do(t, selfsigned.Ensure(cert, key, time.Now().AddDate(-2, 0, 0)))
	f.scheme = "https"
	f.serve("--tls-cert", cert, "--tls-key", key)
	f.logged("it ended at")
	if code, out := f.join(f.address, f.names[0], "--ca", cert, "--wait", "1s"); code == 0 ||
		!strings.Contains(out, "expired") || strings.Contains(out, "names its file") {
		t.Errorf("with the certificate: exit code %d: %s", code, out)
	}
	if runtime.GOOS == "windows" { // which has no such signal
		return
	}
	open := must.Get(tls.Dial("tcp", f.address, &tls.Config{InsecureSkipVerify: true}))(t) // a request under way
	defer open.Close()
	must.Do(t, f.server.Process.Signal(syscall.SIGTERM))
	must.Do(t, f.server.Wait())
	f.server = nil
}

// TestKeysTwice: what cannot be made whole leaves nothing in the way of the same command, and a
// roster without clients gets some.
func TestKeysTwice(t *testing.T) {
	path := newFolder(t)
	must.Do(t, os.WriteFile(path("b.key"), []byte("x"), 0o600))
	must.Do(t, os.WriteFile(path("roster.txt"), []byte("# nobody yet\n"), 0o600))
	args := []string{"keys", "a", "b", "--dir", path(""), "--roster", path("roster.txt")}
	refused(t, exitUsage, "b.key is there already", args...)
	must.Do(t, os.Remove(path("b.key")))
	ran(t, args...)
	if got := must.Get(identity.LoadRoster(path("roster.txt")))(t); got.Len() != 2 {
		t.Errorf("the roster has %d clients; want 2", got.Len())
	}
}

// TestRosterOverKey: a roster in the place of one of the new keys is refused before any is saved.
func TestRosterOverKey(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "keys"), 0o700))
	must.Do(t, os.Symlink("keys", filepath.Join(dir, "link")))
	for _, c := range []struct{ keys, roster string }{{"keys", "keys/b.key"}, {"keys", "link/b.key"},
		{"link", "keys/b.key"}, {"new", "new/b.key"}, {"new/keys", "new/keys/b.key"}} {
		refused(t, exitUsage, "is the key file of b too", "keys", "a", "b", "--dir", filepath.Join(dir, c.keys),
			"--roster", filepath.Join(dir, c.roster))
		if made, err := filepath.Glob(filepath.Join(dir, c.keys, "*")); err != nil || len(made) > 0 {
			t.Errorf("%v: %v is made, %v", c, made, err)
		}
	}
}

// TestKeysAtOnce: of processes that make keys at once each finds its clients in the roster.
func TestKeysAtOnce(t *testing.T) {
	dir := t.TempDir()
	roster := filepath.Join(dir, "rosters", "roster.txt")
	var all sync.WaitGroup
	const n = 8
	for i := range n {
		all.Go(func() {
			refused(t, exitOK, "", "keys", "--dir", filepath.Join(dir, "keys"), "--roster", roster,
				fmt.Sprint("ward-", i))
		})
	}
	all.Wait()
	if got := must.Get(identity.LoadRoster(roster))(t); got.Len() != n {
		t.Errorf("the roster has %d clients; want %d", got.Len(), n)
	}
}

// TestServerKeyOnce: servers that start first at once have one key.
func TestServerKeyOnce(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "server.key")
		var keys [8]*identity.Key
		var faults [len(keys)]error
		var wg sync.WaitGroup
		for i := range keys {
			wg.Go(func() { keys[i], faults[i] = serverKey(path) })
		}
		wg.Wait()
		for i, err := range faults {
			must.Do(t, err)
			if keys[i].PublicText() != keys[0].PublicText() {
				t.Error("two keys")
			}
		}
	}
}
