package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/merge"
	"fmp/pipeline/point"
)

// edge runs fmp-edge.
func (f *federation) edge(args ...string) (int, string) {
	cmd := exec.Command(filepath.Join(f.bin, "fmp-edge"), args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestWithdrawServed: a client withdraws from a served round and the server is killed (-9) before
// it has made the next version: that one is, to the byte, the classifier of a round that the client
// never took part in, as is the one with a late client, and the one from which the operator takes
// that client out again. What the old version's notice says stops its use.
func TestWithdrawServed(t *testing.T) {
	f := newFederation(t, 4,
		"deadline: 2100-01-01T00:00:00Z\nquorum: 2\nrebuild_interval: 1s\nsamples: 40\n")
	f.serve("--state", f.path("never"))
	f.joins("c000", "c002")
	never := f.published(1)
	f.joins("c003")
	late := f.published(2)
	f.leave()

	f.write("round.yaml", bytes.Replace(read(t, f.path("round.yaml")), []byte("quorum: 2"),
		[]byte("quorum: 3"), 1))
	f.serve("--state", f.path("gone"))
	f.joins("c000", "c001", "c002")
	f.write("classifier.onnx", f.published(1))
	withdraw := []string{"withdraw", "http://" + f.address, "--key", f.path("keys/c001.key")}
	if code, out := f.edge(withdraw...); code != 0 ||
		!strings.Contains(out, "held by:   1 versions") || !strings.Contains(out, "remains:") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	f.nowhere("gone", "c001")
	f.kill()
	f.nowhere("gone", "c001")
	f.serve("--state", f.path("gone"))
	if !bytes.Equal(f.published(2), never) {
		t.Error("after a withdrawal and a kill the classifier is not the one that the client " +
			"never took part in")
	}
	if code, out := f.edge(withdraw...); code != 0 ||
		!strings.Contains(out, "version 2, sha256 "+models.DigestBytes(never)) {
		t.Errorf("the receipt afterwards: exit code %d: %s", code, out)
	}
	var w wire.Withdrawal
	key := f.status().ServerKey
	if err := json.Unmarshal(read(t, f.path("keys/c001.7.withdrawal.json")), &w); err != nil ||
		w.Verify(key) != nil || w.Without == nil {
		t.Errorf("receipt %+v: %v", w, err)
	}
	f.ends(1, "withdrew its upload", "c001")
	f.joins("c003")
	if !bytes.Equal(f.published(3), late) {
		t.Error("with a late client the classifier is not the pool of all")
	}
	if out := f.fmp("withdraw", "http://"+f.address, "c003", "--key",
		f.path("gone/server.key")); !strings.Contains(out, "by the operator") {
		t.Errorf("the operator's withdrawal: %s", out)
	}
	if !bytes.Equal(f.published(4), never) {
		t.Error("the operator's withdrawal gives another classifier")
	}
	f.heeded(key)
}

// nowhere checks that no file of a state has a piece of a client's upload that no other upload has.
func (f *federation) nowhere(state, client string) {
	f.t.Helper()
	upload, other := read(f.t, f.path("keys/"+client+".7.upload")), read(f.t, f.path("keys/c000.7.upload"))
	var distinct [][]byte
	for piece := range slices.Chunk(upload, 32) {
		if len(piece) == 32 && !bytes.Contains(other, piece) {
			distinct = append(distinct, piece)
		}
	}
	found, same := 0, 0
	must.Do(f.t, filepath.WalkDir(f.path(state), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a running server makes and renames files
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, piece := range distinct {
			if bytes.Contains(data, piece) {
				found++
			}
		}
		if bytes.Contains(data, other) {
			same++
		}
		return err
	}))
	if found > 0 || same == 0 || len(distinct) < 10 {
		f.t.Errorf("%d of %d pieces of the upload are in files of the state; another upload is in %d",
			found, len(distinct), same)
	}
}

// heeded checks that classifier.onnx, which the served notice names, is not used, and the last
// version is.
func (f *federation) heeded(key string) {
	t := f.t
	t.Helper()
	_, notice := f.get(wire.NoticePath(7))
	f.write("classifier.onnx.notice", notice)
	f.write("forged.notice", bytes.Replace(notice, []byte(`"version":1`), []byte(`"version":2`), 1))
	f.write("last.onnx", f.published(4))
	f.fmp("sign", "--new-key", f.path("signer.pem"))
	for _, name := range []string{"classifier.onnx", "last.onnx"} {
		f.fmp("sign", f.path(name), "--key", f.path("signer.pem"))
	}
	other := must.Get(identity.New("another server"))(t)
	own := must.Get(identity.Load(f.path("gone/server.key")))(t)
	elsewhere := must.Get(wire.ReadNotice(notice, key))(t)
	elsewhere.Round, elsewhere.Superseded = 8, []wire.VersionRef{}
	elsewhere.Sign(own)
	next := must.Get(json.Marshal(elsewhere))(t)
	f.write("next.notice", next)
	f.write("short.notice", notice[:len(notice)/2])
	f.write("empty.notice", nil)
	image := f.path("images/c002/3/0.png")
	calibrated, was := must.Get2(models.Load(f.path("classifier.onnx")))(t)
	must.Do(t, models.Descends(calibrated, was.Digest))
	must.Do(t, serde.Save(f.path("calibrated.onnx"), calibrated))
	f.fmp("onnx", "half", f.path("classifier.onnx"), "-o", f.path("half.onnx"), "--least", "16")
	for _, c := range []struct {
		program string
		args    []string
		code    int
		want    string
	}{
		{"fmp", []string{"predict", "half.onnx", image, "--notice", "classifier.onnx.notice"}, 1,
			"holds an upload that was withdrawn"},
		{"fmp", []string{"package", "classifier.onnx", "-o", "packed"}, 1, "holds an upload that was withdrawn"},
		{"fmp", []string{"predict", "classifier.onnx", image}, 1, "holds an upload that was withdrawn"},
		{"fmp", []string{"verify", "classifier.onnx", "--key", "signer.pem.pub"}, 1, "take version 4"},
		{"fmp-edge", []string{"predict", "--model", "classifier.onnx", image}, 1,
			"holds an upload that was withdrawn"},
		{"fmp", []string{"predict", "calibrated.onnx", image, "--notice", "classifier.onnx.notice"}, 1,
			"holds an upload that was withdrawn"},
		{"fmp", []string{"predict", "last.onnx", image, "--notice", "classifier.onnx.notice",
			"--server-key", key}, 0, ""},
		{"fmp", []string{"verify", "last.onnx", "--key", "signer.pem.pub", "--notice",
			"classifier.onnx.notice"}, 0, ""},
		{"fmp-edge", []string{"predict", "--model", "last.onnx", image, "--notice",
			"classifier.onnx.notice"}, 0, ""},
		{"fmp", []string{"predict", "last.onnx", image, "--notice", "forged.notice"}, 2, "not signed"},
		{"fmp", []string{"predict", "last.onnx", image, "--notice", "classifier.onnx.notice",
			"--server-key", other.PublicText()}, 2, "not signed"},
		{"fmp", []string{"predict", "classifier.onnx", image, "--notice", "next.notice", "--server-key",
			key}, 2, "it is of round 8"},
		{"fmp-edge", []string{"predict", "--model", "classifier.onnx", image,
			"--notice", "next.notice"}, 2, "tells nothing of"},
		{"fmp", []string{"verify", "classifier.onnx", "--key", "signer.pem.pub", "--notice",
			"next.notice"}, 2, "it is of round 8"},
		{"fmp", []string{"predict", "last.onnx", image, "--notice", "short.notice"}, 2, "notice"},
		{"fmp", []string{"verify", "last.onnx", "--key", "signer.pem.pub", "--notice",
			"empty.notice"}, 2, "notice"},
		{"fmp", []string{"predict", "last.onnx", image, "--server-key", key}, 3, "notice"},
		{"fmp-edge", []string{"predict", "--model", "last.onnx", image, "--notice", "missing"}, 3,
			"notice"},
	} {
		cmd := exec.Command(filepath.Join(f.bin, c.program), c.args...)
		cmd.Dir = f.dir
		if c.program == "fmp" && c.args[0] == "predict" {
			cmd.Args = append(cmd.Args, "--engine.name", "pure")
		}
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code ||
			!strings.Contains(string(out), c.want) {
			t.Errorf("%s %v: exit code %d: %s; want %d with %q", c.program, c.args, code,
				out, c.code, c.want)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

// mergedRound is a served round whose uploads a worker merges, more of them than a sample holds.
type mergedRound struct {
	t        *testing.T
	ctx      context.Context
	dir      string
	load     servedLoad
	requests [][]loadRequest
	queue    []string
	url      string
	kill     func()
}

func newMergedRound(ctx context.Context, t *testing.T, clients int, quorum int) *mergedRound {
	t.Helper()
	r := &mergedRound{t: t, ctx: ctx, dir: t.TempDir(),
		load: servedLoad{Clients: clients, Parallel: 32, Workers: 1}}
	r.requests = must.Get(r.load.prepare(ctx, r.dir, false, true))(t)
	file := filepath.Join(r.dir, "round.yaml")
	must.Do(t, os.WriteFile(file,
		fmt.Appendf(read(t, file), "quorum: %d\nsamples: 5\nrebuild_interval: 1s\n", quorum),
		0o600))
	r.queue = must.Get(loadQueue(r.dir))(t)
	r.start()
	t.Cleanup(func() { r.kill() })
	return r
}

func (r *mergedRound) start() {
	r.t.Helper()
	args := append([]string{"--round", filepath.Join(r.dir, "round.yaml"), "--merge", "--nats-listen"},
		r.queue...)
	r.url, r.kill = must.Get2(startServer(r.ctx, r.dir, args))(r.t)
}

func (r *mergedRound) send(requests [][]loadRequest) {
	r.t.Helper()
	must.Do(r.t, r.load.send(r.ctx, http.DefaultClient, [2]string{loadLeader: r.url}, requests))
}

// client is the name of the client of a request.
func (r *mergedRound) client(i int) string {
	return strings.TrimPrefix(r.requests[i][0].path, wire.UploadPath(benchRound, ""))
}

// places returns the requests of the clients with the lowest key, which the sample keeps whole, and
// with the highest, which is summed.
func (r *mergedRound) places() (kept, summed int) {
	graph := models.DigestBytes(read(r.t, filepath.Join(r.dir, "client.onnx")))
	key := func(i int) []byte { return merge.Key(benchRound, graph, r.client(i)) }
	for i := range r.requests {
		if slices.Compare(key(i), key(kept)) < 0 {
			kept = i
		}
		if slices.Compare(key(i), key(summed)) > 0 {
			summed = i
		}
	}
	return kept, summed
}

// merged starts a worker, waits for the last version, and kills the worker.
func (r *mergedRound) merged() []byte {
	r.t.Helper()
	stop := must.Get(r.load.startWorkers(r.ctx, r.dir, r.queue))(r.t)
	defer stop()
	if err := waitPooled(r.ctx, http.DefaultClient, r.url); err != nil {
		r.t.Fatalf("%v: %s", err, tail(filepath.Join(r.dir, "server.log")))
	}
	code, data := (&federation{t: r.t, scheme: "http",
		address: strings.TrimPrefix(r.url, "http://")}).get(
		wire.RoundPath(benchRound) + "/classifier.onnx")
	if code != http.StatusOK {
		r.t.Fatalf("%d %s", code, data)
	}
	return data
}

// TestWithdrawMerged: where workers merge the uploads, and the server is killed (-9) after a
// withdrawal, the next version is, to the byte, that of a round in which the client never took
// part: one whose upload the sample keeps whole, and one whose upload was summed.
func TestWithdrawMerged(t *testing.T) {
	if testing.Short() {
		t.Skip("runs servers and workers")
	}
	const clients = 840 // some more than a sample holds
	t.Setenv(programEnv, "1")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	with := newMergedRound(ctx, t, clients, clients)
	kept, summed := with.places()
	never := newMergedRound(ctx, t, clients, clients-2)
	never.send(slices.DeleteFunc(slices.Clone(never.requests), func(q []loadRequest) bool {
		return q[0].path == with.requests[kept][0].path || q[0].path == with.requests[summed][0].path
	}))
	want := never.merged()
	with.send(with.requests)
	if bytes.Equal(with.merged(), want) {
		t.Fatal("two clients make no difference")
	}
	key := must.Get(identity.Load(filepath.Join(with.dir, "state", "server.key")))(t)
	for _, i := range []int{summed, kept} {
		s := must.Get(sender.New(with.url, ""))(t)
		d := must.Get(s.Describe(ctx))(t)
		w, err := s.WithdrawFor(ctx, d, key, with.client(i))
		if err != nil || w.HeldVersions != 1 || w.Without != nil {
			t.Fatalf("%+v: %v", w, err)
		}
		with.kill()
		with.start()
	}
	if !bytes.Equal(with.merged(), want) {
		t.Error("after withdrawals and kills the merged classifier is not the one that the clients " +
			"never took part in")
	}
}

// TestReceiptsVerify: a receipt holds with the key of the server that signed it, for the upload
// that it is of, and in no other case.
func TestReceiptsVerify(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, data, 0o644))
		return path
	}
	upload := func(client string, mean float32) []byte {
		t.Helper()
		s := point.New(1, 1, 2)
		copy(s.Row(0), []float32{mean, 1, 0})
		s.W[0] = 3
		return must.Get((&federate.Upload{Round: 7, Client: client, Model: strings.Repeat("ab", 32), N: 3,
			Points: s}).Encode())(t)
	}
	server := must.Get(identity.New("server"))(t)
	other := must.Get(identity.New("other"))(t)
	key := func(k *identity.Key) string { return base64.StdEncoding.EncodeToString(k.Public()) }
	own := upload("a", 0.5)
	receipt := func(name string, k *identity.Key, change func(*wire.Receipt)) string {
		t.Helper()
		r := &wire.Receipt{Round: 7, Client: "a", Graph: strings.Repeat("ab", 32), Upload: models.DigestBytes(own),
			Bytes: len(own), Time: time.Unix(1e9, 5).UTC()}
		if change != nil {
			change(r)
		}
		r.Sign(k)
		return write(name, must.Get(json.Marshal(r))(t))
	}
	message := write("a.upload", own)
	// edited writes a receipt again with another text in it.
	edited := func(path, old, text string) []string {
		t.Helper()
		data := string(must.Get(os.ReadFile(path))(t))
		if !strings.Contains(data, old) {
			t.Fatalf("%s lacks %s", data, old)
		}
		name := models.DigestBytes([]byte(path + text))
		return []string{write(name, []byte(strings.Replace(data, old, text, 1)))}
	}
	withdrawal := func(name string, k *identity.Key) string {
		t.Helper()
		w := &wire.Withdrawal{Round: 7, Client: "a", Graph: strings.Repeat("ab", 32),
			Upload: models.DigestBytes(own), Time: time.Unix(1e9, 5).UTC(), By: wire.ByClient,
			Held: []wire.VersionRef{{Version: 1, SHA256: strings.Repeat("cd", 32)}}, HeldVersions: 1,
			Remains: wire.Remains(1)}
		w.Sign(k)
		return write(name, must.Get(json.Marshal(w))(t))
	}
	signed, gone := receipt("signed", server, nil), withdrawal("gone", server)
	size := fmt.Sprintf(`"bytes":%d`, len(own))
	for name, c := range map[string]struct {
		code int
		want string
		args []string
	}{
		"signed":        {0, `holds; "a", round 7`, []string{signed}},
		"of the upload": {0, "holds", []string{signed, "--upload", message}},
		"by another":    {1, "is not signed", []string{receipt("3", other, nil)}},
		"changed":       {1, "is not signed", edited(signed, "01:46:40.", "01:46:41.")},
		"of another upload": {1, "sha256",
			[]string{signed, "--upload", write("b.upload", upload("a", 0.25))}},
		"of another round": {1, "in round 8",
			[]string{receipt("6", server, func(r *wire.Receipt) { r.Round = 8 }), "--upload", message}},
		"of another's client": {1, `of "b"`,
			[]string{receipt("7", server, func(r *wire.Receipt) { r.Client = "b" }), "--upload", message}},
		"size edited": {0, "upload:  sha256", edited(signed, size, `"bytes":999999`)},
		"size edited, of the upload": {1, "are not signed",
			append(edited(signed, size, `"bytes":999998`), "--upload", message)},
		"with its size": {0, fmt.Sprint(len(own), " bytes"), []string{signed, "--upload", message}},
		"another field": {1, "unknown field", edited(signed, `{`, `{"note":"x",`)},
		"more behind":   {2, "no receipt", edited(signed, `}`, `}{}`)},
		"another time zone": {0, "2001-09-09T01:46:40Z",
			edited(signed, "01:46:40.000000005Z", "03:46:40.000000005+02:00")},
		"584 years later": {1, "is not signed", // 2^64 ns
			edited(signed, "2001-09-09T01:46:40.000000005Z", "2586-03-30T01:21:13.709551621Z")},
		"withdrawal":               {0, "withdrawn: the upload of \"a\" from round 7, at 2001", []string{gone}},
		"withdrawal, remains":      {0, "remains:   predictions that were made", []string{gone}},
		"withdrawal of the upload": {0, "receipt:   holds", []string{gone, "--upload", message}},
		"withdrawal by another":    {1, "is not signed", []string{withdrawal("other", other)}},
		"withdrawal of another upload": {1, "not the receipt of",
			[]string{gone, "--upload", write("c.upload", upload("a", 0.125))}},
		"withdrawal, another field": {1, "unknown field", edited(gone, `{`, `{"bytes":7,`)},
		"withdrawal, edited":        {1, "is not signed", edited(gone, `handed out before`, `not handed out`)},
		"no receipt":                {2, "no receipt", []string{message}},
		"no file":                   {3, "no such file", []string{filepath.Join(dir, "none")}},
	} {
		code, out, errs := runFMP(t,
			append([]string{"receipts", "verify", "--server-key", key(server)}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) || (code == 0) != (errs == "") {
			t.Errorf("%s: exit code %d: %s%s; want %d and %q", name, code, out, errs, c.code, c.want)
		}
	}
	refused(t, exitUsage, "give --server-key", "receipts", "verify", message)
	out, _ := ran(t, "receipts", "verify", signed, "--server-key", key(server), "--json")
	var r wire.Receipt
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Verify(key(server)) != nil ||
		strings.Contains(out, `"bytes"`) {
		t.Errorf("JSON: %s, %v", out, err)
	}
	out, _ = ran(t, "receipts", "verify", gone, "--server-key", key(server), "--json")
	must.Get(wire.ReadWithdrawal([]byte(out), key(server)))(t)
}
