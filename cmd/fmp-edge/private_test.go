package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
	"fmp/pipeline/privacy/prio"
)

// privateGraph writes the client graph of a private round behind the shipped extractor of the
// digits.
func privateGraph(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "private-client.onnx")
	write(t, path, assetstest.PrivateClient(t))
	return path
}

func norm(of []int64) float64 {
	var square float64
	for _, v := range of {
		square += float64(v) * float64(v)
	}
	return math.Sqrt(square)
}

// TestCompressPrivate: images become clipped sums in whole numbers; this client's noise is in them
// where it is asked for, and new each time; the message states no number of images.
func TestCompressPrivate(t *testing.T) {
	graph, dir := privateGraph(t), t.TempDir()
	im, labels := blobs(40)
	writeIDX(t, dir, im.Pix, labels)
	source := []string{filepath.Join(dir, "images"), "--labels", filepath.Join(dir, "labels"), "--client", "a"}
	compress := func(name string, args ...string) *federate.Release {
		t.Helper()
		path := filepath.Join(dir, name)
		run(t, slices.Concat([]string{"compress", "--model", graph, "-o", path}, source, args)...)
		r := must.Get(federate.DecodeRelease(must.Get(os.ReadFile(path))(t), federate.Expect{C: 10}))(t)
		if text := run(t, "inspect", path); !strings.Contains(text, "epsilon 4") {
			t.Errorf("inspect says %s", text)
		}
		return r
	}
	plain := compress("plain", "--epsilon", "4", "--noise", "trusted")
	k := plain.Sums.K
	for c := range 10 {
		row := plain.Sums.Values[c*(k+1):][:k+1]
		if far := norm(row[:k]); row[k] != 4*privacy.CountSteps || far > 4*privacy.Steps || far == 0 {
			t.Errorf("class %d: a count of %d and a sum of norm %v, of four images", c, row[k], far)
		}
	}
	one, kept, two := compress("one", "--epsilon", "4"), compress("kept", "--epsilon", "4"),
		compress("two", "--epsilon", "4", "--redraw")
	if !slices.Equal(one.Sums.Values, kept.Sums.Values) {
		t.Error("the noise of the same images for the same round was drawn a second time")
	}
	sigma := float64(one.Budget.NoiseSteps(10))
	var noise, between float64
	for i, v := range plain.Sums.Values {
		n := float64(len(plain.Sums.Values))
		noise += math.Pow(float64(one.Sums.Values[i]-v)/sigma, 2) / n
		between += math.Pow(float64(one.Sums.Values[i]-two.Sums.Values[i])/sigma, 2) / n
	}
	if noise < 0.5 || noise > 1.7 || between < 1 || between > 3.4 {
		t.Errorf("mean square of the noise %v, and of the difference of two %v, in sigma squared; want 1 and 2",
			noise, between)
	}
	client := compress("client", "--epsilon", "4", "--noise", "trusted", "--unit", "client",
		"--points", "40")
	if far := norm(client.Sums.Values); far > float64(client.Budget.ClientNorm(10)) {
		t.Errorf("a client's vector of norm %v; %d is allowed", far, client.Budget.ClientNorm(10))
	}
	// For two servers: a share of the same sums for each, without noise.
	leader := compress("leader", "--epsilon", "4", "--noise", "two-servers", "--points", "40")
	data := must.Get(os.ReadFile(filepath.Join(dir, helperFile("leader"))))(t)
	helper := must.Get(federate.DecodeRelease(data, federate.Expect{Model: leader.Model}))(t)
	scheme := must.Get(leader.Scheme())(t)
	var check [2]*prio.Checking
	var messages [2][]byte
	for i, r := range []*federate.Release{leader, helper} {
		check[i] = must.Get(scheme.Begin(new(prio.Key), r.Share))(t)
		messages[i] = must.Get(check[i].Message())(t)
		if r.Share.Server != i {
			t.Fatal(r.Share.Server)
		}
	}
	total := [2]*prio.Sum{scheme.NewSum(), scheme.NewSum()}
	for i := range total {
		total[i].Add(must.Get(check[i].Finish(messages[1-i]))(t))
		must.Do(t, total[i].AddNoise(1, rand.Reader))
	}
	opened := must.Get(total[prio.Leader].Open(must.Get(total[prio.Helper].Bytes())(t)))(t)
	for i, v := range opened.Values {
		if d := v - plain.Sums.Values[i]; d > 20 || d < -20 { // fourteen deviations of the noise of two
			t.Errorf("number %d of the opened sum is %d, of the client's %d", i, v,
				plain.Sums.Values[i])
		}
	}
}

// TestFixedReply: compress of a private round is over, and its upload there, at one time after its
// start: for few images and for many, for an image that cannot be read, for too many images, for a
// budget that is spent, and for an upload that was made before.
func TestFixedReply(t *testing.T) {
	graph, dir := privateGraph(t), t.TempDir()
	three, sixty, bad := photosOf(t, 3), photosOf(t, 60), photosOf(t, 3)
	write(t, filepath.Join(bad, "0", "bad.png"), []byte("\x89PNG\r\n\x1a\nno more"))
	const after = 40 * time.Second
	for i, c := range []struct {
		what, source, says string
		code               int
		args               []string
	}{
		{"three images", three, "", exitOK, nil},
		{"sixty images", sixty, "", exitOK, nil},
		{"the same again", sixty, "nothing is spent", exitOK, nil},
		{"a bad image", bad, "bad.png", exitOK, nil},
		{"a bad image left out", bad, "bad.png", exitOK, []string{"--on-bad", "skip", "--round", "3"}},
		{"no folder", filepath.Join(dir, "none"), "none", exitMissing, nil},
		{"too many of a client", sixty, "more than the round's 50", exitOK,
			[]string{"--points", "50", "--unit", "client", "--round", "5"}},
		{"too many for two servers", sixty, "more than the round's 1 ", exitOK,
			[]string{"--points", "1", "--noise", "two-servers", "--round", "6"}},
		{"a budget that is spent", sixty, "--max-epsilon allows", exitUsage,
			[]string{"--max-epsilon", "1.1", "--round", "2"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			start, out := time.Now(), filepath.Join(dir, "upload"+string(rune('a'+i)))
			done := make(chan int)
			go func() {
				done <- execute(t.Context(),
					append([]string{"compress", "--model", graph, "--client", "a", "-o",
						out, "--ledger", filepath.Join(dir, "ledger"), "--epsilon", "1",
						"--reply-after", after.String(), c.source}, c.args...), io.Discard, &log)
			}()
			time.Sleep(after - time.Millisecond)
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s: the upload is there before its time", c.what)
			}
			if code := <-done; code != c.code || time.Since(start) != after ||
				!strings.Contains(log.String(), c.says) {
				t.Errorf("%s: exit code %d after %v; want %d after %v and %q: %s", c.what, code,
					time.Since(start), c.code, after, c.says, log.String())
			}
			if n := strings.Count(log.String(), "reply comes in "); n != 3 ||
				!strings.Contains(log.String(), "reply comes in 10s\n") {
				t.Errorf("%s: it says %d times how long it is, want every ten seconds: %s", c.what, n,
					log.String())
			}
			if _, err := os.Stat(out); err == nil != (c.code == exitOK) {
				t.Errorf("%s: %v", c.what, err)
			}
		})
	}
}

// TestSalted: the message of an earlier program, which has no salt, is given again with one: the same
// sums, the same each time, in the same place or another, and nothing is spent. A client is charged no
// more either.
func TestSalted(t *testing.T) {
	graph, photos := privateGraph(t), photosOf(t, 6)
	for _, unit := range privacy.Units {
		dir := t.TempDir()
		compress := func(name string, args ...string) []byte {
			t.Helper()
			path := filepath.Join(dir, name)
			run(t, slices.Concat([]string{"compress", "--model", graph, "--client", "a", "-o", path, "--epsilon", "1",
				"--noise", "trusted", "--unit", unit, "--points", "9", "--ledger",
				filepath.Join(dir, "ledger"), photos}, args)...)
			return must.Get(os.ReadFile(path))(t)
		}
		first := compress("one", "--max-epsilon", "1")
		ledger := filepath.Join(dir, "ledger")
		_, r := asBefore(t, filepath.Join(dir, "one"), first, ledger)
		run(t, "inspect", filepath.Join(dir, "one"))
		elsewhere := compress("two", "--max-epsilon", "1")
		if got := must.Get(federate.DecodeRelease(elsewhere, federate.Expect{}))(t); !slices.Equal(got.Sums.Values,
			r.Sums.Values) || got.Salt == r.Salt {
			t.Errorf("%s: salt %x, sums %v; want any and %v", unit, got.Salt, got.Sums.Values, r.Sums.Values)
		}
		for _, name := range []string{"two", "one", "one"} {
			if !bytes.Equal(compress(name, "--max-epsilon", "1"), elsewhere) {
				t.Errorf("%s: %s is another message", unit, name)
			}
		}
		code, log := said(t, "compress", "--model", graph, "--client", "a", "-o", filepath.Join(dir, "three"),
			"--epsilon", "1", "--noise", "trusted", "--unit", unit, "--points", "9", "--round", "2", "--ledger", ledger,
			photos)
		if code != exitOK || !strings.Contains(log, "epsilon 1.465") {
			t.Errorf("%s: %d, %s; want two releases of epsilon 1", unit, code, log)
		}
	}
}

// asBefore makes an upload and its ledger those of a program of before messages had a salt.
func asBefore(t *testing.T, path string, data []byte, ledger string) ([]byte, *federate.Release) {
	t.Helper()
	r := must.Get(federate.DecodeRelease(data, federate.Expect{}))(t)
	r.Salt = [prio.NonceSize]byte{}
	old := must.Get(r.Encode())(t)
	write(t, path, old)
	lines := must.Get(os.ReadFile(ledger))(t)
	write(t, ledger, regexp.MustCompile(`,"chain":"[^"]*"`).ReplaceAll(bytes.ReplaceAll(lines,
		[]byte(models.DigestBytes(data)), []byte(models.DigestBytes(old))), nil))
	must.Do(t, os.Remove(ledger+privacy.SealSuffix))
	return old, r
}

// TestSaltedIfNew: join sends the message of an earlier program as it is where the server has an upload of
// this client, and with a salt where it has none.
func TestSaltedIfNew(t *testing.T) {
	graph, photos := privateGraph(t), photosOf(t, 6)
	for name, c := range map[string]struct {
		state, has string // has: its own, another or none
		code       int
		salted     bool
		lines      int // of the ledger
	}{
		"its own":          {wire.Open, "own", exitOK, false, 2},
		"its own, closed":  {wire.Closed, "own", exitOK, false, 1},
		"another":          {wire.Open, "another", exitFailed, false, 2},
		"none":             {wire.Open, "", exitOK, true, 3},
		"another, closed":  {wire.Closed, "another", exitClosed, false, 1},
		"none, and closed": {wire.Closed, "", exitClosed, false, 1},
	} {
		t.Chdir(t.TempDir())
		must.Do(t, must.Get(identity.New("a"))(t).Save("a.key"))
		run(t, "compress", "--model", graph, "--client", "a", "--round", "1", "-o", "a.1.upload", "--epsilon", "1",
			"--noise", "trusted", "--ledger", "ledger", photos)
		old, _ := asBefore(t, "a.1.upload", must.Get(os.ReadFile("a.1.upload"))(t), "ledger")
		has := map[string]string{"own": models.DigestBytes(old), "another": "another", "": ""}[c.has]
		url := keeping(t, graph, c.state, has)
		code, log := said(t, "join", url, "--key", "a.key", "--wait", "1s", "--cache",
			"graphs", "--ledger", "ledger", "--reply-after", "0", photos)
		if same := bytes.Equal(must.Get(os.ReadFile("a.1.upload"))(t), old); code != c.code || same == c.salted {
			t.Errorf("%s: exit code %d, the upload is as it was: %t; %s", name, code, same, log)
		}
		if n := bytes.Count(must.Get(os.ReadFile("ledger"))(t), []byte("\n")); n != c.lines {
			t.Errorf("%s: %d lines, want %d", name, n, c.lines)
		}
	}
}

// TestEveryServerIsCharged: an upload to which servers add the noise is charged for every server that it goes
// to, once, by join from any folder and by send, and none gets it beyond --max-epsilon.
func TestEveryServerIsCharged(t *testing.T) {
	graph, photos := privateGraph(t), photosOf(t, 6)
	t.Chdir(t.TempDir())
	must.Do(t, os.Mkdir("other", 0o700))
	for _, to := range []string{"a.key", "other/a.key"} {
		must.Do(t, must.Get(identity.New("a"))(t).Save(to))
	}
	one, two := keeping(t, graph, wire.Open, ""), keeping(t, graph, wire.Open, "")
	join := func(url, key string) []string {
		return []string{"join", url, "--key", key, "--ledger", "ledger", "--wait", "1s", "--cache", "graphs",
			"--receipt", filepath.Dir(key) + "/" + models.DigestBytes([]byte(url)), "--reply-after", "0", photos}
	}
	send := []string{"send", two, "--key", "a.key", "--ledger", "ledger", "--wait", "1s", "--receipt", "sent.json",
		"a.1.upload"}
	limit := []string{"--max-epsilon", "1"}
	over := keeping(t, graph, wire.Closed, "")
	for i, c := range []struct {
		args  []string
		code  int
		says  string
		lines int
	}{
		{slices.Concat(join(one, "a.key"), limit), exitOK, "", 1},
		{slices.Concat(join(one, "a.key"), limit), exitOK, "as it was made earlier", 1},
		{slices.Concat(join(one, "other/a.key"), limit), exitOK, "nothing is spent", 1},
		{slices.Concat(join(two, "a.key"), limit), exitUsage, "over 1 earlier releases", 1},
		{slices.Concat(join(two, "other/a.key"), limit), exitUsage, "over 1 earlier releases", 1},
		{slices.Concat(send, limit), exitUsage, "over 1 earlier releases", 1},
		{send, exitOK, "each adds noise of its own: with 1 earlier releases epsilon 1.465", 2},
		{send, exitOK, "", 2},
		{join(two, "other/a.key"), exitOK, "", 2},
		{[]string{"send", over, "--key", "a.key", "--ledger", "ledger", "--receipt", "over.json", "a.1.upload"},
			exitClosed, "fmp-edge: send: the round is closed", 2},
		{join(over, "a.key"), exitClosed, "the round is closed", 2},
	} {
		code, log := said(t, c.args...)
		ledger := must.Get(os.ReadFile("ledger"))(t)
		if lines := bytes.Count(ledger, []byte("\n")); code != c.code || lines != c.lines ||
			!strings.Contains(log, c.says) {
			t.Errorf("%d: exit code %d, %d lines, %s; want %d, %d and %q", i, code, lines, log, c.code, c.lines, c.says)
		}
		if sent := isThere("sent.json"); sent != (i >= 6) {
			t.Errorf("%d: sent: %t", i, sent)
		}
	}
	must.Do(t, os.RemoveAll("other/a.1.upload"))
	refuses(t, exitUsage, "--max-epsilon allows 1", slices.Concat(join(keeping(t, graph, wire.Open, ""), "other/a.key"),
		limit)...)
	if isThere("other/a.1.upload") {
		t.Error("an upload that is not sent is there")
	}
}

// TestOnePair: the shares of one splitting go to one pair of servers, by join and by send, whichever role a server
// has in another pair; another pair gets nothing unless the sums are split anew.
func TestOnePair(t *testing.T) {
	graph, photos := privateGraph(t), photosOf(t, 6)
	t.Chdir(t.TempDir())
	must.Do(t, must.Get(identity.New("a"))(t).Save("a.key"))
	b := ofExamples
	b.Noise, b.Points = privacy.TwoServers, 20
	server := func(key, role string) (url string, asked *int) {
		return stub(t, wire.Description{ServerKey: serverKey(key), Server: role, Privacy: &b, MaxPoints: 100,
			MaxBytes: federate.MaxBytes}, graph, nil)
	}
	x, _ := server("x", wire.Leader)
	y, atY := server("y", wire.Helper)
	turnedY, _ := server("y", wire.Leader)
	turnedX, atX := server("x", wire.Helper)
	z, atZ := server("z", wire.Helper)
	with := func(command, leader, helper string, args ...string) []string {
		return append([]string{command, leader, "--helper", helper, "--key", "a.key", "--ledger", "ledger", "--wait",
			"1s"}, args...)
	}
	join := []string{"--cache", "graphs", "--reply-after", "0", photos}
	const other, sent = "went to another pair of servers", "the helper: "
	for i, c := range []struct {
		args  []string
		says  string
		asked int // uploads that helpers were sent
		lines int
	}{
		{with("join", x, y, join...), sent, 1, 1},
		{with("join", x, y, join...), sent, 2, 1},
		{with("join", turnedY, turnedX, join...), other, 2, 1},
		{with("join", x, z, join...), other, 2, 1},
		{with("send", turnedY, turnedX, "a.1.upload"), other, 2, 1},
		{with("send", x, y, "a.1.upload"), sent, 3, 1},
		{with("join", turnedY, turnedX, append(join, "--redraw")...), "move the file away", 3, 1},
	} {
		_, log := said(t, c.args...)
		lines := bytes.Count(must.Get(os.ReadFile("ledger"))(t), []byte("\n"))
		if asked := *atX + *atY + *atZ; asked != c.asked || lines != c.lines || !strings.Contains(log, c.says) {
			t.Errorf("%d: %d uploads sent, %d lines, %s; want %d, %d and %q", i, asked, lines, log, c.asked, c.lines,
				c.says)
		}
	}
	must.Do(t, os.Mkdir("was", 0o700))
	for _, name := range []string{"a.1.upload", "a.1.upload.helper"} {
		must.Do(t, os.Rename(name, "was/"+name))
	}
	said(t, with("join", turnedY, turnedX, append(join, "--redraw")...)...)
	if *atX != 1 {
		t.Errorf("shares that were split anew were sent %d times to another pair; want once", *atX)
	}
	refuses(t, exitUsage, other, with("send", turnedY, turnedX, "was/a.1.upload")...)
	refuses(t, exitUsage, other, with("send", x, y, "a.1.upload")...)
}

// keeping serves a round with a trusted server's noise, which has an upload of this digest of client a.
func keeping(t *testing.T, graph, state, has string) (url string) {
	t.Helper()
	key, digest := must.Get(identity.New("server"))(t), must.Get(models.DigestFile(graph, maxModel))(t)
	b := ofExamples
	b.Noise = privacy.Trusted
	d := wire.Description{State: state, ServerKey: key.PublicText(), Privacy: &b, MaxPoints: 100,
		MaxBytes: federate.MaxBytes}
	url, _ = stub(t, d, graph, func(w http.ResponseWriter, r *http.Request) bool {
		refuse := func(status int, code string) {
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(wire.Problem{Code: code, Status: status})
		}
		asks := r.URL.Path == wire.ReceiptPath(1, "a")
		sent := ""
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			sent = models.DigestBytes(body)
		}
		switch {
		case asks && has == "":
			refuse(http.StatusNotFound, wire.NoReceipt)
		case sent != "" && sent != has && state == wire.Closed:
			refuse(http.StatusGone, wire.RoundClosed)
		case sent != "" && has != "" && sent != has:
			refuse(http.StatusConflict, wire.OtherUpload)
		case asks || sent != "":
			receipt := wire.Receipt{Round: 1, Client: "a", Graph: digest, Upload: cmp.Or(sent, has), Time: time.Now(),
				Spent: &b}
			receipt.Sign(key)
			_ = json.NewEncoder(w).Encode(receipt)
		default:
			return false
		}
		return true
	})
	return url
}

// TestBelongs: an upload is of its round, client, graph and budget, whatever points that have no effect say.
func TestBelongs(t *testing.T) {
	for want, change := range map[string]func(u *message){
		"":                  func(*message) {},
		"for round 4":       func(u *message) { u.Round = 4 },
		"made by model h":   func(u *message) { u.Model = "h" },
		`of client "b"`:     func(u *message) { u.Client = "b" },
		"is a plain one":    func(u *message) { u.Budget = nil },
		"budget is epsilon": func(u *message) { u.Budget.Epsilon = 2 },
	} {
		u := &message{Round: 3, Client: "a", Model: "g", Budget: &privacy.Budget{Epsilon: 1, Unit: privacy.Example,
			Noise: privacy.Local, Points: 9}}
		change(u)
		d := &wire.Description{Round: 3, Graph: "g", Privacy: &privacy.Budget{Epsilon: 1, Unit: privacy.Example,
			Noise: privacy.Local}}
		if err := belongs(u, d, &identity.Key{Name: "a"}); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestAllows: a round that gives less privacy than its client's flags ask for is refused, whatever
// its server says, and no other.
func TestAllows(t *testing.T) {
	budget := func(epsilon, delta float64, noise string) *privacy.Budget {
		return &privacy.Budget{Epsilon: epsilon, Delta: delta, Noise: noise}
	}
	for name, c := range map[string]struct {
		flags string
		round *privacy.Budget
		want  string // empty: allowed
	}{
		"no flags, plain":        {"", nil, ""},
		"no flags, any":          {"", budget(20, 0.01, privacy.Trusted), ""},
		"private":                {"--private", nil, "is not private"},
		"noise of a plain round": {"--noise=local", nil, "is not private"},
		"epsilon":                {"--max-epsilon=2", budget(2, 1e-5, privacy.Local), ""},
		"larger epsilon": {"--max-epsilon=2", budget(2.1, 1e-5, privacy.Local),
			"--max-epsilon allows 2"},
		"larger delta": {"--max-epsilon=2", budget(2, 2e-5, privacy.Local),
			"--max-delta allows 1e-05"},
		"larger delta that is allowed": {"--max-epsilon=2 --max-delta=0.001",
			budget(2, 0.001, privacy.Local), ""},
		"any delta": {"--private", budget(2, 0.001, privacy.Local), ""},
		"delta alone": {"--private --max-delta=1e-12", budget(2, 1e-5, privacy.Local),
			"--max-delta allows 1e-12"},
		"delta of a plain round": {"--max-delta=1e-5", nil, "is not private"},
		"noise of the server": {"--noise=local", budget(2, 1e-5, privacy.Trusted),
			"--noise allows local"},
		"noise of two servers": {"--noise=local", budget(2, 1e-5, privacy.TwoServers),
			"--noise allows local"},
		"two servers' noise from one": {"--noise=two-servers", budget(2, 1e-5, privacy.Trusted),
			"--noise allows two-servers"},
		"noise of the client":           {"--noise=local", budget(2, 1e-5, privacy.Local), ""},
		"the server's noise is allowed": {"--noise=trusted", budget(2, 1e-5, privacy.Trusted), ""},
	} {
		f := pflag.NewFlagSet("join", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		flags := connectionFlags(f)
		must.Do(t, f.Parse(strings.Fields(c.flags)))
		err := flags.allows("join", &wire.Description{Privacy: c.round})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// TestKeyAgain: the line of a key that is there is printed again, and the key stays.
func TestKeyAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.key")
	first := run(t, "key", "--client", "a", path)
	if again := run(t, "key", path); again != first || !strings.HasSuffix(first, " a\n") {
		t.Errorf("%q; want %q", again, first)
	}
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
