package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/pool"
	"fmp/pipeline/privacy"
)

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
