package main

import (
	"os"
	"strings"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/moments"
)

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
