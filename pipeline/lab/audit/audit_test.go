package audit

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/client"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
	"fmp/pipeline/task"
)

// TestLowerBound: guesses of a mechanism that answers truly with probability e^eps/(1 + e^eps)
// prove at most eps, nearly always, and not much less where there are many; guesses at random prove
// nothing.
func TestLowerBound(t *testing.T) {
	for _, epsilon := range []float64{0, 0.5, 2, 4} {
		q := 1 / (1 + math.Exp(-epsilon))
		above, sum := 0, 0.0
		const trials = 60
		for trial := range trials {
			r := rng.New(1, "trial", epsilon, trial)
			right := 0
			for range 300 {
				if r.Float64() < q {
					right++
				}
			}
			got := lowerBound(300, 300, right, 1e-9, 0.95)
			if sum += got / trials; got > epsilon {
				above++
			}
		}
		if above > trials/10 {
			t.Errorf("epsilon %v: %d of %d bounds are above it", epsilon, above, trials)
		}
		if sum < 0.7*epsilon-0.1 {
			t.Errorf("epsilon %v: the bounds are %v on average", epsilon, sum)
		}
	}
	if got := lowerBound(2000, 100, 100, 1e-5, 0.95); !(got > 2 && got < 6) {
		t.Errorf("100 of 100 right prove %v", got)
	}
	if with, without := lowerBound(1000, 200, 190, 1e-4, 0.95),
		lowerBound(1000, 200, 190, 1e-12, 0.95); with >= without {
		t.Errorf("a larger delta proves %v, a smaller one %v", with, without)
	}
}

// TestTimed: by a clock on which nothing but waiting takes time, replies with 45 images more, with
// a large file and with one that cannot be read leave when those without do.
func TestTimed(t *testing.T) {
	m := must.Get(serde.Unmarshal(assetstest.PrivateClient(t)))(t)
	f := must.Get(models.ReadManifest(m))(t)
	f.Digest = strings.Repeat("0", 64)
	cl := must.Get(client.New(m, f, 1))(t)
	b := privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Example, Relation: privacy.AddRemove,
		Noise: privacy.Local}
	for _, target := range targets {
		if len(target.extractor) > 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			a := Timed{Name: target.name, Runs: 6}
			const after = 90 * time.Second
			must.Do(t, a.run(t.Context(), cl, target, b, 1, after))
			if want := float64(after.Milliseconds()); a.Fixed != (Moments{0.5, want, want}) {
				t.Errorf("%s: at a fixed time %+v", target.name, a.Fixed)
			}
		})
	}
}

// TestPacking: through class means of single images, calibration points and a gate an approved
// packing extractor gives whole images away; means of many images and no gate give nothing of one.
func TestPacking(t *testing.T) {
	p := models.Preprocessing{Height: 8, Width: 8, Channels: 3, Raw: true, NHWC: true}
	const most = 8 * 8 * 8 * 3
	for _, c := range []struct {
		leaking
		bits, best [2]float64 // shares of all bits, from and to
	}{
		{leaking{upload: "single", perClass: 1}, [2]float64{0.9, 1}, [2]float64{0.9, 1}},
		{leaking{upload: "means", perClass: 40}, [2]float64{0, 0}, [2]float64{0, 0}},
		{leaking{upload: "points", perClass: 40, points: 10}, [2]float64{0.02, 0.03},
			[2]float64{0.9, 1}},
		{leaking{upload: "gate", perClass: 40, gate: true}, [2]float64{0.002, 0.03},
			[2]float64{0.6, 1}},
		{leaking{upload: "moments", perClass: 40, points: 10, moments: true}, [2]float64{0.01, 0.03},
			[2]float64{0.6, 1}},
		{leaking{upload: "moments, gate", perClass: 40, gate: true, moments: true},
			[2]float64{0.002, 0.03}, [2]float64{0.5, 1}},
	} {
		g, dx := must.Get2(packing(p, c.gate, c.moments))(t)
		cl := must.Get(plainClient(g, p, dx, c.moments))(t)
		var l Leak
		must.Do(t, l.unpack(t.Context(), cl, c.leaking, 1))
		if got := l.Bits / most; got < c.bits[0] || got > c.bits[1] {
			t.Errorf("%s: a share of %.4f of the bits of all images; want %v", c.upload, got, c.bits)
		}
		if got := l.Best / most; got < c.best[0] || got > c.best[1] {
			t.Errorf("%s: a share of %.4f of the bits of one image; want %v", c.upload, got, c.best)
		}
	}
}

// drawn returns n rows of k coordinates, of c Gaussian classes in turn whose covariance is not a
// multiple of I, of length 1 at most.
func drawn(seed uint64, n, k, c int) *labelled {
	x := make([]float32, n*k)
	rng.Normal(rng.New(seed, "rows"), x)
	out := &labelled{x, k, make([]int, n)}
	for i := range n {
		out.labels[i] = i % c
		row := x[i*k : (i+1)*k]
		for j := range row[1:] {
			row[j+1] += row[j]
		}
		row[i%c] += 4
		for j := range row {
			row[j] /= 100
		}
	}
	return out
}

// TestPartsTheory: of Gaussian classes the attack on class means reaches what theory says, scatter
// adds what it says, and calibration points are known; a scatter of fewer degrees of freedom than
// coordinates tells every image.
func TestPartsTheory(t *testing.T) {
	const k, c = 12, 2
	a := must.Get(newAttacked(drawn(1, 12_000, k, c), drawn(2, 2000, k, c), c, 1<<20))(t)
	all := must.Get(a.rounds(context.Background(), 10, 210, 0, Options{Rounds: 2, Seed: 1}))(t)
	means, scatter, points := all[0], all[1], all[2]
	if math.Abs(means.AUC-means.TheoryAUC) > 0.03 || math.Abs(means.TheoryAUC-0.596) > 0.01 {
		t.Errorf("class means: %+v", means)
	}
	if math.Abs(scatter.AUC-scatter.TheoryAUC) > 0.03 || scatter.AUC < means.AUC+0.06 {
		t.Errorf("scatter: %+v", scatter)
	}
	// Ten images of 210 are points, and certain; the others are as without.
	if share := points.Calibration / 210; math.Abs(points.Whole-share) > 1e-9 ||
		math.Abs(points.AUC-(share+(1-share)*scatter.AUC)) > 0.01 ||
		math.Abs(points.PointBytes-(points.Bytes-scatter.Bytes)/points.Calibration) > 1e-9 ||
		points.PointBytes < 4*k {
		t.Errorf("points: %+v", points)
	}
	few := must.Get(a.rounds(context.Background(), 10, 12, 0, Options{Rounds: 2, Seed: 1}))(t)
	if few[0].AUC > 0.95 || few[1].AUC < 0.999 || few[1].Freedom >= k {
		t.Errorf("12 images a client: %+v", few[:2])
	}
}

// TestPartsReconstruct: the image of a class of one is known, as are both of a class of two where
// the scatter is theirs alone, and those that are sent as calibration points.
func TestPartsReconstruct(t *testing.T) {
	const k, c = 6, 3
	rows := drawn(3, 3000, k, c)
	for _, form := range []struct {
		name      string
		bytes     int
		calibrate int
		of        []int // classes of the client's images
		whole     []float64
	}{
		{"one image a class", 0, 0, []int{0, 1, 2}, []float64{1}},
		{"three of a class", 0, 0, []int{0, 0, 0, 1}, []float64{0.25}},
		{"points beside class means", 0, 2, []int{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, []float64{0, 0.2}},
	} {
		a := must.Get(newAttacked(rows, drawn(4, 300, k, c), c, form.bytes))(t)
		var found tally
		must.Do(t, a.client(pickClasses(a, form.of), "client", form.calibrate, &found))
		parts := must.Get(found.parts(k, len(form.of)))(t)
		for i, want := range form.whole {
			if got := parts[i].Whole; math.Abs(got-want) > 1e-9 ||
				(want == 1) != (parts[i].Error < 1e-3) {
				t.Errorf("%s, %s: %.3f of the images are known, want %.3f; error %.3f", form.name,
					parts[i].Read, got, want, parts[i].Error)
			}
		}
	}
	// Of moments one image of three is the calibration point; the other two are of one class for
	// some key.
	a := must.Get(newAttacked(rows, drawn(4, 300, k, c), c, 1<<20))(t)
	pairs := 0
	for _, key := range strings.Split("abcdefghijklmnop", "") {
		var found tally
		must.Do(t, a.client(pickClasses(a, []int{0, 0, 1}), key, 0, &found))
		parts := must.Get(found.parts(k, 3))(t)
		if parts[2].Whole != 1 {
			t.Errorf("key %s: %+v", key, parts[2])
		}
		if parts[1].Freedom == 1 {
			pairs++
			if math.Abs(parts[1].Whole-2.0/3) > 1e-9 || parts[0].Whole != 0 {
				t.Errorf("a pair's scatter: %+v after %+v", parts[1], parts[0])
			}
		}
	}
	if pairs == 0 {
		t.Error("no key leaves two images of a class")
	}
}

// pickClasses returns the first rows of the clients' with the given classes.
func pickClasses(a *attacked, classes []int) (out []int) {
	at := 0
	for _, c := range classes {
		for a.bank.Labels[at] != c {
			at++
		}
		out = append(out, at)
		at++
	}
	return out
}

// TestRunParts: a run of moments is attacked in all of its features and in fewer directions of
// them, part by part; one with neither moments nor a predictor has nothing to be attacked.
func TestRunParts(t *testing.T) {
	const dx, c = 100, 2
	e := must.Get(posterior.NewEmbedded(dx, nil, nil, nil))(t)
	positive := func(seed uint64, n int) *labelled {
		x := drawn(seed, n, dx, c)
		for i, v := range x.rows {
			x.rows[i] = v * v
		}
		return x
	}
	own, test := positive(5, 600), positive(6, 200)
	bank := must.Get(task.NewBank(own.rows, dx, own.labels, c))(t)
	p := &experiment.Prepared{Tools: experiment.Tools{Embedded: e},
		Data: &experiment.Data{Clients: bank, Test: test.rows, TestLabels: test.labels}}
	p.Config.Federation.Clients, p.Config.Federation.Points = 2, 30
	parts := must.Get(RunParts(context.Background(), p, 0, Options{Rounds: 1}))(t)
	if len(parts) != 6 || parts[0].Coordinates != dx || parts[5].Coordinates != 70 {
		t.Fatalf("parts %+v", parts)
	}
	for i, want := range []float64{0, 22, 22, 0, 22, 22} { // 30 images less 6 points and 2 classes
		if got := parts[i]; got.Freedom != want || got.Points != 30 ||
			(got.Calibration == 6) != (i%3 == 2) || i%3 > 0 && got.AUC < 0.999 {
			t.Errorf("%+v", got)
		}
	}
	p.Tools.Embedded = nil
	if parts, err := RunParts(context.Background(), p, 0, Options{Rounds: 1}); parts != nil ||
		err != nil {
		t.Errorf("%v, %v without a predictor", parts, err)
	}
}
