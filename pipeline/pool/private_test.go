package pool

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/meta"
	"fmp/pipeline/privacy"
	"fmp/pipeline/sample"
	"fmp/pipeline/task"
)

// private is the world's private predictor in a file, ready to run, and the client graph behind it.
func (w *world) private(t *testing.T) (string, *sample.Private, *onnx.Model, models.Manifest) {
	t.Helper()
	conjugate, _ := must.Get2(models.Load(w.predictor))(t)
	pix, labels := pixels(rng.New(1, "corpus"), 600, classes)
	bank := must.Get(task.NewBank(featuresOf(pix), dx, labels, classes))(t)
	c, values := must.Get2(meta.StartPrivate(bank, conjugate))(t)
	m := must.Get(models.NewPrivate(c, values))(t)
	f := must.Get(models.ReadManifest(m))(t)
	f.Extractor = "x"
	must.Do(t, f.Write(m))
	path := filepath.Join(t.TempDir(), "private.onnx")
	must.Do(t, serde.Save(path, m))
	p := must.Get(sample.NewPrivate(w.eng, m))(t)
	t.Cleanup(func() { p.Close() })
	e := must.Get(models.PrivateEmbedding(m, classes, []string{"left", "middle", "right"}))(t)
	g, cf := clientGraph(t, e)
	return path, p, g, cf
}

func featuresOf(pix []uint8) []float32 {
	out := make([]float32, len(pix))
	for i, v := range pix {
		out[i] = float32(v) / 255
	}
	return out
}

// equal wants the classifiers of the same files in two orders to be one file.
func equal(t *testing.T, a, b *onnx.Model) {
	t.Helper()
	if !bytes.Equal(must.Get(serde.Marshal(a))(t), must.Get(serde.Marshal(b))(t)) {
		t.Error("the files in another order give another classifier")
	}
}

// TestPrivateRound: messages of a private round become a classifier that is right and says what was
// spent, in any order of the files; noise of the server is drawn once; what does not belong together
// is refused.
func TestPrivateRound(t *testing.T) {
	w := newWorld(t)
	predictor, p, g, f := w.private(t)
	test, truth := pixels(rng.New(1, "test"), 300, classes)
	for _, noise := range []string{privacy.Local, privacy.Trusted} {
		dir := t.TempDir()
		b := privacy.Budget{Epsilon: 4, Delta: 1e-5, Unit: privacy.Example,
			Relation: privacy.AddRemove, Noise: noise}
		var paths []string
		write := func(name string, b privacy.Budget) string {
			t.Helper()
			pix, labels := pixels(rng.New(1, "client", name), 150, classes)
			rows := must.Get(p.Rows(context.Background(), featuresOf(pix)))(t)
			sums := must.Get(privacy.Sum(rows, labels, classes, p.K(), p.Clip()))(t)
			if b.Noise == privacy.Local {
				must.Do(t, sums.AddNoise(b.NoiseSteps(classes), rand.Reader))
			}
			data := must.Get((&federate.Release{Client: name, Model: f.Digest, Budget: b,
				Sums: sums, Salt: [16]byte{1}}).Encode())(t)
			path := filepath.Join(dir, fmt.Sprintf("%s-%v.upload", name, b.Epsilon))
			must.Do(t, os.WriteFile(path, data, 0o644))
			return path
		}
		for i := range 4 {
			same := b
			same.Points = i // has no effect
			paths = append(paths, write(fmt.Sprint("client ", i), same))
		}
		if !IsPrivate(paths[0]) || IsPrivate(predictor) {
			t.Error("a message of a private round is not told from a model")
		}
		releases, bad := ReadReleases(paths, federate.Expect{Model: f.Digest}, nil)
		if len(bad) != 0 || len(releases) != 4 {
			t.Fatalf("%d releases, %v", len(releases), bad)
		}
		round := must.Get(NewPrivate(releases, g, f, Options{Predictor: predictor, Seed: 3, Samples: 25}))(t)
		keeper := SumFile{Path: filepath.Join(dir, "sum"), Folder: filepath.Join(dir, "sums")}
		totals := must.Get(round.Totals(keeper, nil))(t)
		again, err := round.Totals(keeper, nil)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(totals) {
			t.Errorf("the same round pooled again has other sums: %v, %v, %v", totals, again, err)
		}
		q := must.Get(round.Posterior(context.Background(), w.eng, totals))(t)
		m := must.Get(round.Classifier(t.Context(), q, false, false, ""))(t)
		turned := slices.Clone(releases)
		slices.Reverse(turned)
		other := must.Get(NewPrivate(turned, g, f, Options{Predictor: predictor, Seed: 3, Samples: 25}))(t)
		equal(t, m, must.Get(other.Classifier(t.Context(), q, false, false, ""))(t))
		mf := must.Get(models.ReadManifest(m))(t)
		if o, err := models.ReadOrigin(mf); err != nil || o.Method != "FMP-DP" ||
			!strings.Contains(string(o.Private), `"epsilon":4`) ||
			o.Clients[0].N != 0 {
			t.Errorf("origin %+v, %v", o, err)
		}
		if n := right(w.eval(t, m, test, nil)["probabilities"].F32(), truth); n < 240 {
			t.Errorf("%s: right on %d of 300", noise, n)
		}
		// Fewer clients are another sum, which is not drawn over the one that is there.
		fewer := must.Get(NewPrivate(releases[:3], g, f, Options{Predictor: predictor}))(t)
		if _, err := fewer.Totals(keeper, nil); (err == nil) != (noise == privacy.Local) {
			t.Errorf("%s: a second sum beside the first: %v", noise, err)
		}
		half := b
		half.Epsilon = 2
		if _, bad := ReadReleases([]string{paths[0], write("client 9", half), paths[0], paths[1]},
			federate.Expect{}, nil); len(bad) != 2 ||
			!strings.Contains(bad[0].Error(), "a round has one") ||
			!strings.Contains(bad[1].Error(), "both of client") {
			t.Errorf("refusals %v", bad)
		}
		mixed := must.Get(federate.DecodeRelease(must.Get(os.ReadFile(write("client 9", half)))(t),
			federate.Expect{}))(t)
		must.Fail(NewPrivate(append(releases, Release{mixed, "mixed", ""}), g, f,
			Options{Predictor: predictor}))(t, "a round has one", noise)
		must.Fail(NewPrivate(releases, g, f, Options{Predictor: w.predictor}))(
			t, "fmp train private", "a conjugate predictor")
	}
}
