package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/onnx/train"
	"fmp/pipeline/federate"
	"fmp/pipeline/privacy"
)

func TestProgressInALog(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := newProgress(&out)
	p.now = func() time.Time { return now }
	for i := 0; i <= 100; i++ {
		p.report("features", i, 100)
		now = now.Add(time.Second)
	}
	p.report("fits", 3, 0)
	p.training(train.Progress{Step: 3, Steps: 10, Metrics: train.Metrics{"loss": 0.5}, Rate: 0.01})
	p.close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if n := len(lines); n < 10 || n > 14 {
		t.Errorf("100 seconds gave %d lines, want about one every ten seconds:\n%s", n, out.String())
	}
	for _, want := range []string{"features: 0 of 100 (0%)",
		"features: 10 of 100 (10%), 1/s, 1m30s left", "features: 100 of 100 (100%)",
		"fits: 3", "training: 3 of 10 (30%), loss 0.5000, learning rate 0.01"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in:\n%s", want, out.String())
		}
	}
	if strings.ContainsAny(out.String(), "\r\x1b") {
		t.Error("a log got control characters")
	}
}

// TestPace: rates are plain numbers of three digits.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		done int
		took time.Duration
		want string
	}{{228_123, 10 * time.Second, ", 22800/s"}, {15, 10 * time.Second, ", 1.5/s"},
		{1, 3 * time.Second, ", 0.333/s"},
		{1, 10 * time.Hour, ", 0.0000278/s"}, {0, time.Second, ""}, {1, 0, ""}} {
		if got := pace(c.done, 0, 1, c.took); got != c.want {
			t.Errorf("%d in %v: %q; want %q", c.done, c.took, got, c.want)
		}
	}
}

func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.bars = true
	for i := range 5 {
		p.report("features", i+1, 5)
	}
	p.close()
	if !strings.Contains(out.String(), "features") || !strings.HasSuffix(out.String(), "\n") {
		t.Errorf("drew %q", out.String())
	}
}

// TestLateProgress: work of a moment writes nothing; longer work is shown from then on, with rate
// and time left.
func TestLateProgress(t *testing.T) {
	var out bytes.Buffer
	p := newLateProgress(&out)
	now := time.Now()
	clock := func() time.Time { return now }
	p.now, p.w.(*late).now = clock, clock
	p.report("short", 0, 2)
	p.report("short", 2, 2)
	p.report("long", 0, 40)
	now = now.Add(logEvery / 2)
	p.report("long", 5, 40)
	if out.Len() > 0 {
		t.Errorf("in the first seconds it wrote %q", out.String())
	}
	now = now.Add(logEvery)
	p.report("long", 15, 40)
	p.report("long", 40, 40)
	p.close()
	if want := "long: 15 of 40 (37%), 1/s, 25s left\nlong: 40 of 40 (100%), 2.67/s\n"; out.String() != want {
		t.Errorf("wrote %q; want %q", out.String(), want)
	}
}

// TestPoolingShowsProgress: merging uploads, and pooling them, a part or a private round, say how far
// they are where it takes its time; what is on standard output stays JSON.
func TestPoolingShowsProgress(t *testing.T) {
	path := newFolder(t)
	f, e := shippedManifest(t, "digits", models.KindClient), shippedManifest(t, "digits", models.KindEmbedding)
	graph := path("private.onnx")
	ran(t, "fuse", "--dataset", "digits", "--upload", "private", "-o", graph)
	_, of := must.Get2(models.Load(graph))(t)
	var uploads, embedded, releases []string
	for i := range 3 {
		name := fmt.Sprint("client ", i)
		uploads = append(uploads, madeUpload(t, f, path(name+".upload"), name, f.Digest, 0))
		embedded = append(embedded, madeUpload(t, e, path(name+".points"), name, e.Digest, 1))
		releases = append(releases, madeRelease(t, of, path(name+".release"), name))
	}
	pool := []string{"pool", "--predictor", shippedFile(t, models.KindPredictor), "--client-graph",
		shippedFile(t, models.KindEmbedding), "--engine.name", "pure", "-o", path("heads.npy")}
	wasQuiet := quietInLog
	t.Cleanup(func() { quietInLog = wasQuiet })
	for _, c := range []struct {
		want  string
		args  []string
		files []string
	}{
		{"uploads: 3 of 3 (100%)", []string{"merge", "-o", path("all.part")}, uploads},
		{"uploads: 1 of 1 (100%)", []string{"pool", "--rows", "--scope", "closed", "-o",
			path("part.onnx")}, []string{path("all.part")}},
		{"uploads: 3 of 3 (100%)", []string{"pool", "--samples", "5", "--client-graph", graph, "-o",
			path("private-round.onnx")}, releases},
		{"uploads: 3 of 3 (100%)", pool, embedded},
		{"samples: 20 of 20 (100%)", pool, embedded},
	} {
		for _, quietInLog = range []time.Duration{time.Hour, 0} {
			code, out, errs := runFMP(t, append(append(c.args, "--json"), c.files...)...)
			if code != exitOK || !json.Valid([]byte(out)) {
				t.Fatalf("%v: exit code %d: %s%s", c.args, code, out, errs)
			}
			if strings.Contains(errs, c.want) != (quietInLog == 0) {
				t.Errorf("%v, quiet for %v: it says %q, want %q where it takes longer",
					c.args, quietInLog, errs, c.want)
			}
		}
	}
}

// madeRelease writes the message of a client without images for a private round.
func madeRelease(t *testing.T, f models.Manifest, path, client string) string {
	t.Helper()
	b := privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example,
		Relation: privacy.AddRemove, Noise: privacy.Local}
	sums := privacy.NewRelease(f.C, f.K)
	must.Do(t, sums.AddNoise(b.NoiseSteps(f.C), rand.Reader))
	data := must.Get((&federate.Release{Client: client, Model: f.Digest, Budget: b, Sums: sums}).Encode())(t)
	must.Do(t, os.WriteFile(path, data, 0o600))
	return path
}
