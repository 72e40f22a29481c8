package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/assets/assetstest"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// photographs draws a folder of images, and returns its paths with slashes and a reader of them.
func photographs(t *testing.T) (dir string, paths []string, read func(string) ([]byte, error)) {
	t.Helper()
	dir = t.TempDir()
	r := rng.New(3, "photographs")
	for i := range 30 {
		im := image.NewGray(image.Rect(0, 0, 28+i%3, 28))
		for k := range 60 {
			im.SetGray(4+k%20, (4+2*(i%10)+k/20+r.IntN(2))%28, color.Gray{Y: uint8(200 + r.IntN(55))})
		}
		var b bytes.Buffer
		must.Do(t, png.Encode(&b, im))
		path := filepath.Join(dir, fmt.Sprint(i%10), fmt.Sprintf("%d", i/20),
			fmt.Sprintf("a %d.png", 30-i))
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			paths = append([]string{filepath.ToSlash(rel)}, paths...) // in an order of their own
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, paths, func(path string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, path)) }
}

func graph(t *testing.T) []byte {
	t.Helper()
	return must.Get(os.ReadFile(assetstest.File(t, "digits", models.KindClient)))(t)
}

// ask calls a method and reads its answer; it fails unless the error holds what is wanted, none
// where that is empty.
func ask(t *testing.T, s *session, method string, params any, q *request,
	refused string) (map[string]any, []byte) {
	t.Helper()
	var err error
	q.params = must.Get(json.Marshal(params))(t)
	if q.progress == nil {
		q.progress = func(int, int) {}
	}
	out, data, err := s.call(method, q)
	if refused != "" {
		if err == nil || !strings.Contains(err.Error(), refused) {
			t.Fatalf("%s: error %v; want one with %q", method, err, refused)
		}
		return nil, nil
	}
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	text := must.Get(json.Marshal(out))(t)
	var fields map[string]any
	must.Do(t, json.Unmarshal(text, &fields))
	return fields, data
}

// TestUpload: a page's upload has the bytes of the upload that the client makes of the same folder,
// whatever the order of the files; progress counts every image, and what is shown of the upload is
// what is in it.
func TestUpload(t *testing.T) {
	dir, paths, read := photographs(t)
	data := graph(t)
	s := &session{}
	ask(t, s, "open", map[string]string{"digest": strings.Repeat("0", 64)}, &request{data: data},
		"it is not used")
	ask(t, s, "compress", map[string]any{"name": "a", "paths": paths}, &request{read: read},
		"no client graph is open")
	info, _ := ask(t, s, "open", map[string]string{"scope": "here"}, &request{data: data}, "")
	if info["shipped"] != "digits" || info["digest"] != models.DigestBytes(data) {
		t.Errorf("the graph is shown as %v", info)
	}
	seen, round := 0, uint64(1<<53+1) // JavaScript's numbers have none of it
	shown, got := ask(t, s, "compress",
		map[string]any{"name": "a", "round": fmt.Sprint(round), "paths": paths, "precision": "float16"},
		&request{read: read, progress: func(done, all int) { seen += all + done }}, "")
	if want := 30*30 + 30*31/2; seen != want {
		t.Errorf("progress adds up to %d; want %d", seen, want)
	}
	c := must.Get(client.Parse(data, 1))(t)
	src, _ := must.Get2(imagefile.Open(dir,
		imagefile.Options{Fit: c.Fit, Classes: c.Classes(), MaxItems: client.MaxItems}))(t)
	u, _ := must.Get2(c.Upload(context.Background(), src, client.Options{}, "a"))(t)
	u.Round, u.Precision = round, federate.Half
	want := must.Get(u.Encode())(t)
	if !bytes.Equal(got, want) {
		t.Errorf("the page's upload has sha256 %s; the client's %s", models.DigestBytes(got),
			models.DigestBytes(want))
	}
	rows := shown["points"].([]any)
	if shown["images"] != 30. || len(rows) != 10 || shown["bytes"] != float64(len(got)) ||
		shown["round"] != fmt.Sprint(round) ||
		rows[4].(map[string]any)["images"] != 3. ||
		rows[4].(map[string]any)["class"] != 4. {
		t.Errorf("the upload is shown as %v", shown)
	}
	copied := append(slices.Clone(paths), paths[0]+".png", paths[1]+".png", paths[2]+".png")
	both, same := ask(t, s, "compress", map[string]any{"name": "a", "round": fmt.Sprint(round),
		"paths": copied, "precision": "float16"}, &request{read: func(path string) ([]byte, error) {
		return read(strings.Replace(path, ".png.png", ".png", 1))
	}}, "")
	if both["copies"] != 3. || both["images"] != 30. || shown["copies"] != nil || len(same) != len(got) {
		t.Errorf("with copies the upload is shown as %v", both)
	}
	again, _ := ask(t, s, "explain", nil, &request{data: got}, "")
	if again["digest"] != shown["digest"] {
		t.Errorf("a kept upload is shown with digest %v; want %v", again["digest"], shown["digest"])
	}
	ask(t, s, "explain", nil, &request{data: got[:len(got)-1]}, "upload")
	ask(t, s, "compress", map[string]any{"name": " a", "paths": paths}, &request{read: read}, "name")
	ask(t, s, "list", map[string]any{"paths": []string{"zebra/a.png"}}, &request{},
		"is no class of the model")
	ask(t, s, "nothing", nil, &request{}, "no method")
}

// TestShaded: zero is the middle, the largest number an end.
func TestShaded(t *testing.T) {
	got := shaded([][]float32{{0, -2}, {2, 1}})
	if want := [][]byte{{128, 1}, {255, 191}}; !bytes.Equal(got[0], want[0]) ||
		!bytes.Equal(got[1], want[1]) {
		t.Errorf("%v; want %v", got, want)
	}
}

// TestExtractorOfAnother: an unknown extractor is refused until its owner approves it, for the
// server's key; another in its place, and the same of another key, are refused again, and nothing
// is read before.
func TestExtractorOfAnother(t *testing.T) {
	_, paths, read := photographs(t)
	changed := func(by float32) []byte {
		m, _ := assetstest.Load(t, "digits", models.KindClient)
		w := m.Graph.Initializers["stem/conv/weight"].Clone()
		for i := range w.F32() {
			w.F32()[i] *= by
		}
		m.Graph.Initializers["stem/conv/weight"] = w
		return must.Get(serde.Marshal(m))(t)
	}
	unread := &request{read: func(string) ([]byte, error) { t.Error("a photograph was read"); return nil, nil }}
	s := &session{round: &wire.Description{ServerKey: "one", MaxPoints: 1000, MaxBytes: 1 << 20}}
	first, _ := ask(t, s, "open", nil, &request{data: changed(2)}, "")
	if refused, _ := first["refused"].(string); !strings.Contains(refused, "unknown") {
		t.Fatalf("an unknown extractor: %v", first)
	}
	if can, _ := first["can"].(string); !strings.Contains(can, "A network made for it can") ||
		first["bytes"] == 0.0 {
		t.Errorf("what it can do is not said: %v", first)
	}
	ask(t, s, "compress", map[string]any{"name": "a", "paths": paths}, unread, "not approved")
	first, _ = ask(t, s, "approve", nil, &request{}, "")
	again, _ := ask(t, s, "open", map[string]any{"approved": first["approved"]},
		&request{data: changed(2)}, "")
	if again["refused"] != nil {
		t.Fatalf("the same again: %v", again)
	}
	s.round.ServerKey = "two"
	if moved, _ := ask(t, s, "open", map[string]any{"approved": first["approved"]},
		&request{data: changed(2)}, ""); moved["refused"] == nil {
		t.Fatalf("the same of another key: %v", moved)
	}
	s.round.ServerKey = "one"
	second, _ := ask(t, s, "open", map[string]any{"approved": first["approved"]},
		&request{data: changed(3)}, "")
	if refused, _ := second["refused"].(string); !strings.Contains(refused, "not the one that was approved") {
		t.Fatalf("another extractor: %v", second)
	}
	ask(t, s, "compress", map[string]any{"name": "a", "paths": paths}, unread, "not approved")
	third, _ := ask(t, s, "approve", nil, &request{}, "")
	if third["refused"] != nil || third["approved"] == first["approved"] {
		t.Fatalf("after approval: %v", third)
	}
	ask(t, s, "compress", map[string]any{"name": "a", "paths": paths}, &request{read: read}, "")
}

// TestPrivate: a private upload is made once and written down; its owner's limit holds over rounds,
// and rounds, graphs and uploads that do not agree about privacy are refused.
func TestPrivate(t *testing.T) {
	_, paths, read := photographs(t)
	graphs := map[bool][]byte{false: graph(t), true: assetstest.PrivateClient(t)}
	delta, state, server := 1e-5, wire.Open, byte(0)
	round := func(s *session, number uint64, noise string, epsilon float64, private bool,
		refused string) {
		t.Helper()
		d := wire.Description{Round: number, State: state, Now: time.Now(),
			Deadline: time.Now().Add(time.Hour),
			Graph:    models.DigestBytes(graphs[private]), GraphBytes: 1, MaxPoints: 100,
			MaxBytes:  1 << 20,
			ServerKey: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{server}, 32))}
		if noise != "" {
			d.Privacy = &privacy.Budget{Epsilon: epsilon, Delta: delta, Unit: privacy.Example,
				Relation: privacy.AddRemove, Noise: noise, Points: 1}
		}
		if noise == privacy.TwoServers {
			d.Server = wire.Leader
		}
		text := must.Get(json.Marshal(map[string]any{"rounds": []wire.Description{d}}))(t)
		ask(t, s, "round", nil, &request{data: text}, refused)
	}
	round(&session{}, 1, privacy.TwoServers, 1, true, "fmp-edge join --helper")
	s := &session{}
	ask(t, s, "open", nil, &request{data: graphs[true]}, "no server states the round's budget")
	round(s, 1, "", 0, true, "")
	ask(t, s, "open", nil, &request{data: graphs[true]}, "is not private")
	round(s, 1, privacy.Local, 1, false, "")
	ask(t, s, "open", nil, &request{data: graphs[false]}, "is one of plain uploads")
	round(s, 1, privacy.Local, 1, true, "")
	ask(t, s, "open", nil, &request{data: graphs[true]}, "")
	ledger := ""
	compress := func(limit float64, taken bool, refused string,
		paths ...string) (map[string]any, []byte) {
		t.Helper()
		return ask(t, s, "compress",
			map[string]any{"name": "a", "paths": paths, "ledger": ledger,
				"maxEpsilon": limit, "taken": taken, "kept": "here", "reply": 60}, &request{read: read}, refused)
	}
	unread := func(string) ([]byte, error) { t.Error("a photograph was read"); return nil, nil }
	for limit, refused := range map[float64]string{0: "a number above 0", .5: "you allow 0.5"} {
		ask(t, s, "compress", map[string]any{"name": "a", "paths": paths, "maxEpsilon": limit},
			&request{read: unread}, refused)
	}
	state = wire.Closed
	round(s, 1, privacy.Local, 1, true, "")
	ask(t, s, "compress", map[string]any{"name": "a", "paths": paths, "maxEpsilon": 2.},
		&request{read: unread}, "is closed")
	late := map[string]any{"name": "a", "paths": paths, "maxEpsilon": 2., "reply": 3601}
	state = wire.Open
	round(s, 1, privacy.Local, 1, true, "")
	ask(t, s, "compress", late, &request{read: unread}, "would be there 3601 seconds from now")
	loose := &session{}
	delta = .01
	round(loose, 1, privacy.Local, .1, true, "")
	delta = 1e-5
	ask(t, loose, "open", nil, &request{data: graphs[true]}, "")
	ask(t, loose, "compress", map[string]any{"name": "a", "paths": paths, "maxEpsilon": 2.},
		&request{read: unread}, "the page allows 1e-05")
	compress(1.2, true, "made elsewhere", paths...)
	shown, first := compress(1.2, false, "", paths...)
	_, other := compress(1.2, false, "", paths...)
	r, err := federate.DecodeRelease(first, federate.Expect{})
	if err != nil || r.Budget.Epsilon != 1 || r.Client != "a" || r.Round != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	o := must.Get(federate.DecodeRelease(other, federate.Expect{}))(t)
	apart := 0. // two draws are 1.13 deviations apart in the mean, to .09 of these
	for i, v := range r.Sums.Values {
		apart += math.Abs(float64(v-o.Sums.Values[i])) / float64(len(r.Sums.Values))
	}
	if d := float64(r.Budget.NoiseSteps(r.Sums.Classes)); apart < d/2 || apart > 2*d {
		t.Errorf("two draws are %v apart in the mean, and the noise's deviation is %v", apart, d)
	}
	if shown["images"] != 0. || shown["digest"] != models.DigestBytes(first) ||
		!strings.Contains(shown["promise"].(string), "epsilon 1,") {
		t.Errorf("shown: %v", shown)
	}
	ledger = shown["spent"].(map[string]any)["line"].(string)
	if again, data := compress(1.2, true, "", paths...); data != nil ||
		again["spent"].(map[string]any)["again"].(map[string]any)["sha256"] != models.DigestBytes(
			first) {
		t.Errorf("the same photographs: %v", again)
	}
	compress(9, false, "of other photographs", paths[1:]...)
	if e, _ := ask(t, s, "explain", nil, &request{data: first}, ""); e["digest"] != shown["digest"] ||
		e["spent"] != nil {
		t.Errorf("explained: %v", e)
	}
	round(s, 2, privacy.Local, 1, true, "")
	ask(t, s, "explain", nil, &request{data: first}, "is for round 1")
	compress(1.2, false, "1.465 would be spent on one of the photographs, over 1 earlier",
		paths[1:]...)
	if l, _ := compress(1.5, false, "", paths...); l["spent"].(map[string]any)["earlier"] != 1. {
		t.Errorf("a second round: %v", l["spent"])
	}
	ledger += "{"
	compress(9, false, "what was spent cannot be told", paths...)
	round(s, 2, privacy.Local, 2, true, "")
	ask(t, s, "explain", nil, &request{data: first}, "privacy is")
	s.key = must.Get(identity.New("a"))(t)
	for _, salt := range []byte{0, 1} {
		round(s, 1, privacy.Trusted, 1, true, "")
		r.Budget.Noise, r.Salt[0] = privacy.Trusted, salt
		data := must.Get(r.Encode())(t)
		ask(t, s, "explain", nil, &request{data: data}, "")
		ask(t, s, "sign", nil, &request{data: data}, map[byte]string{0: "next round", 1: ""}[salt])
	}
	ledger = ""
	round(s, 1, privacy.Trusted, 1, true, "")
	shown, first = compress(1.2, false, "", paths...)
	ledger = shown["spent"].(map[string]any)["line"].(string)
	compress(1.2, true, "", paths...)
	server = 1
	round(s, 1, privacy.Trusted, 1, true, "")
	compress(9, false, "was made for another server", paths...)
	ledger = ""
	round(s, 1, "", 0, true, "")
	compress(9, false, "is not private", paths...)
	ask(t, s, "explain", nil, &request{data: first}, "privacy is")
}

// TestTooLate: a private round that may end before the reply is refused, as there is nothing to
// spend a budget on.
func TestTooLate(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(d *wire.Description)
		reply, age float64
		refused    string
	}{
		"first description":  {func(*wire.Description) {}, 0, 0, ""},
		"in time":            {func(*wire.Description) {}, 39.5, 0, ""},
		"too late":           {func(*wire.Description) {}, 40.5, 0, "there 40.5 seconds from now"},
		"a slow answer":      {func(*wire.Description) {}, 20, 19.5, ""},
		"too slow an answer": {func(*wire.Description) {}, 20, 20.5, "nothing was read"},
		"none is to come":    {func(*wire.Description) {}, 0, 45, ""},
		"over":               {func(d *wire.Description) { d.State = wire.Closed }, 45, 0, ""},
		"late":               {func(d *wire.Description) { d.State = wire.Late }, 45, 0, ""},
		"takes late ones":    {func(d *wire.Description) { d.AcceptLate, d.Withdrawal = true, true }, 45, 0, ""},
		"one sum, made once": {func(d *wire.Description) { d.AcceptLate = true }, 45, 0, "nothing was read"},
		"not private":        {func(d *wire.Description) { d.Privacy = nil }, 45, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			d := wire.Description{Round: 2, State: wire.Open, Now: now, Deadline: now.Add(40 * time.Second),
				Graph: strings.Repeat("0", 64), GraphBytes: 1, MaxPoints: 100, MaxBytes: 1 << 20,
				ServerKey: base64.StdEncoding.EncodeToString(make([]byte, 32)),
				Privacy: &privacy.Budget{Epsilon: 4, Delta: 1e-5, Unit: privacy.Example,
					Relation: privacy.AddRemove, Noise: privacy.Local, Points: 1}}
			c.change(&d)
			text := must.Get(json.Marshal(map[string]any{"rounds": []wire.Description{d}}))(t)
			s := &session{key: must.Get(identity.New("a"))(t)}
			ask(t, s, "round", map[string]float64{"reply": c.reply, "age": c.age}, &request{data: text}, c.refused)
			if c.refused != "" {
				return
			}
			ended := ""
			if c.age > 40 {
				ended = "nothing was kept and nothing spent"
			}
			ask(t, s, "stillOpen", nil, &request{}, ended)
		})
	}
}

// TestEvaluate: the photographs of classes are counted, and other files named.
func TestEvaluate(t *testing.T) {
	_, paths, read := photographs(t)
	m, f := assetstest.Load(t, "digits", models.KindClient)
	whole := must.Get(models.NewClassifier(models.ClassifierParts{Features: must.Get(models.FeatureGraph(m, f))(t),
		Heads: onnx.NewTensor(make([]float64, (f.Dx+1)*f.C), 1, f.Dx+1, f.C)}, f))(t)
	s := &session{key: must.Get(identity.New("a"))(t)}
	ask(t, s, "classifier", nil, &request{data: must.Get(serde.Marshal(whole))(t)}, "")
	for name, want := range map[string]string{"scan.tif": "scan.tif", ".scan.tif": "scan.tif",
		"a/scan.tif": "a_scan.tif", "scan": "scan.jpg"} {
		ask(t, s, "predict", map[string]any{"name": name}, &request{data: []byte("no image")}, want+": not a readable image")
	}
	for name, c := range map[string]struct {
		more  []string
		n     float64
		names string
	}{
		"none":         {nil, 0, "<nil>"},
		"loose":        {[]string{"one.png", "two.png"}, 2, "one.png"},
		"hidden":       {[]string{"0/.a.png"}, 1, ".a.png"},
		"other format": {[]string{"0/raw.xyz"}, 1, "raw.xyz"},
	} {
		got, _ := ask(t, s, "evaluate", map[string]any{"paths": append(slices.Clone(paths), c.more...)},
			&request{read: read}, "")
		others, counted := got["others"].(map[string]any), 0.
		for _, g := range got["report"].(map[string]any)["groups"].([]any) {
			counted += g.(map[string]any)["n"].(float64)
		}
		if counted != float64(len(paths)) || others["n"] != c.n ||
			!strings.Contains(fmt.Sprint(others["names"]), c.names) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestReceipt: a request is signed by the key, and a receipt is taken only of the server's key and
// for what was sent.
func TestReceipt(t *testing.T) {
	_, paths, read := photographs(t)
	data := graph(t)
	server := must.Get(identity.New("server"))(t)
	key := func(k *identity.Key) string { r := &wire.Receipt{}; r.Sign(k); return r.Server }
	d := wire.Description{Round: 7, State: wire.Open, Now: time.Now(),
		Deadline: time.Now().Add(time.Hour), Graph: models.DigestBytes(data),
		GraphBytes: int64(len(data)),
		MaxPoints:  100, MaxBytes: 1 << 20, Precisions: []string{"int8"}, ServerKey: key(server)}
	list := func(d wire.Description) []byte {
		return must.Get(json.Marshal(map[string]any{"rounds": []wire.Description{d}}))(t)
	}
	s := &session{}
	about, _ := ask(t, s, "round", nil, &request{data: list(d)}, "")
	if about["graph_path"] != "/v1/rounds/7/graph" || about["round"] != "7" {
		t.Errorf("the round is shown as %v", about)
	}
	ask(t, s, "open", map[string]string{"digest": d.Graph}, &request{data: data}, "")
	info, secret := ask(t, s, "newKey", map[string]string{"name": "shop 1"}, &request{}, "")
	if got, _ := ask(t, &session{}, "readKey", nil, &request{data: secret}, ""); got["line"] != info["line"] {
		t.Errorf("a kept key has line %v; want %v", got["line"], info["line"])
	}
	_, upload := ask(t, s, "compress", map[string]any{"name": "shop 1", "round": "7", "paths": paths},
		&request{read: read}, "")
	signed, _ := ask(t, s, "sign", nil, &request{data: upload}, "")
	headers := signed["headers"].(map[string]any)
	k := must.Get(identity.Parse(secret))(t)
	statement := identity.Statement{Purpose: identity.Upload, Server: d.ServerKey, Round: 7,
		Client: "shop 1", Graph: d.Graph,
		Content: models.DigestBytes(upload)}
	if !identity.Verify(k.Public(), statement, wire.Signature(headers["Authorization"].(string))) ||
		signed["path"] != "/v1/rounds/7/uploads/shop%201" {
		t.Errorf("the request is %v", signed)
	}
	r := wire.Receipt{Round: 7, Client: "shop 1", Graph: d.Graph, Upload: models.DigestBytes(upload),
		Time: time.Now()}
	reply := func(r wire.Receipt, k *identity.Key) *request {
		r.Sign(k)
		text := must.Get(json.Marshal(r))(t)
		return &request{data: text}
	}
	digest := map[string]any{"digest": signed["digest"]}
	ask(t, s, "receipt", digest, reply(r, server), "")
	ask(t, s, "receipt", digest, reply(r, k), "not signed by the server's key")
	r.Upload = d.Graph
	ask(t, s, "receipt", digest, reply(r, server), "sent was")
	// The key's own receipt is asked for, and an upload withdrawn, by the key; the withdrawal's
	// receipt is the server's alone.
	for method, purpose := range map[string]identity.Purpose{"ask": identity.Ask, "withdraw": identity.Withdraw} {
		signed, _ := ask(t, s, method, nil, &request{}, "")
		statement.Purpose, statement.Content = purpose, map[string]string{"withdraw": wire.Any}[method]
		if !identity.Verify(k.Public(), statement,
			wire.Signature(signed["headers"].(map[string]any)["Authorization"].(string))) {
			t.Errorf("%s: the request is %v", method, signed)
		}
		ask(t, &session{}, method, nil, &request{}, "a key and a round")
	}
	w := wire.Withdrawal{Round: 7, Client: "shop 1", Graph: d.Graph, Upload: r.Upload,
		Time: time.Now(), By: "client",
		Held: []wire.VersionRef{}}
	for by, refused := range map[*identity.Key]string{server: "", k: "not signed by the server's key"} {
		w.Sign(by)
		text := must.Get(json.Marshal(w))(t)
		ask(t, s, "withdrawn", nil, &request{data: text}, refused)
	}
	ask(t, s, "evaluate", map[string]any{"paths": paths}, &request{read: read}, "a classifier")
	// More images than the round allows.
	few := d
	few.MaxPoints = 5
	ask(t, s, "round", nil, &request{data: list(few)}, "")
	ask(t, s, "compress", map[string]any{"name": "shop 1", "round": "7", "paths": paths},
		&request{read: read}, "give fewer")
}
