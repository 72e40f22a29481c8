package pool

import (
	"bytes"
	"errors"
	"fmt"
	"math"
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
	"fmp/pipeline/merge"
	"fmp/pipeline/meta"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// many are messages of clients whose class means lie about those of a real one as means of their
// images do. Every liar'th names its classes falsely; 0: none does.
func (w *world) many(t *testing.T, g *onnx.Model, f models.Manifest, clients,
	liar int) (messages [][]byte) {
	t.Helper()
	pix, labels := pixels(rng.New(1, "many"), 900, classes)
	real := w.eval(t, g, pix, labels)["points"].F32()
	for m := range clients {
		r := rng.New(1, "many", m)
		n := 3 * (4 + r.IntN(3))
		set := &point.Set{N: classes, Dx: f.PointWidth(), C: classes, Y: []int32{0, 1, 2},
			W: slices.Repeat([]float32{float32(n / 3)}, classes)}
		for c := range classes {
			from := c
			if liar > 0 && m%liar == 0 {
				from = (c + 1) % classes
			}
			var square float64
			for _, v := range real[from*(set.Dx+classes):][:set.Dx] {
				v += 0.1 * float32(r.NormFloat64()/math.Sqrt(float64(n/3)))
				set.Z, square = append(set.Z, v), square+float64(v*v)
			}
			mean := set.Z[len(set.Z)-set.Dx:]
			for j := range mean { // no image lies beyond the radius
				mean[j] *= min(1, g.Graph.Initializers[models.ConjRadius].F32()[0]/float32(math.Sqrt(square)))
			}
		}
		u := federate.Upload{Client: fmt.Sprint("client ", m), Model: f.Digest, N: n, Points: set}
		messages = append(messages, must.Get(u.Encode())(t))
	}
	return messages
}

// manyMoments are as many, of moments.
func manyMoments(t *testing.T, f models.Manifest, clients, liar int) (messages [][]byte) {
	t.Helper()
	for m := range clients {
		r := rng.New(1, "moments", m)
		rows, labels := make([]float32, 12*dx), make([]int, 12)
		for i := range labels {
			labels[i] = i % classes
			for j := range dx {
				rows[i*dx+j] = float32(0.35 + 0.03*r.NormFloat64())
				if j%3 == labels[i] {
					rows[i*dx+j] += 0.05
				}
			}
		}
		for i := range labels {
			if liar > 0 && m%liar == 0 {
				labels[i] = (labels[i] + 1) % classes
			}
		}
		messages = append(messages, must.Get(momentsOf(t, f, m, rows, labels).Encode())(t))
	}
	return messages
}

func part(t *testing.T, m *merge.Merger, messages ...[]byte) (*merge.Part, []byte) {
	t.Helper()
	for _, data := range messages {
		must.Do(t, m.Add(data))
	}
	data := must.Get(m.Part().Encode())(t)
	return m.Part(), data
}

// honest are the messages of those of w.many's and manyMoments' clients that do not lie.
func honest(messages [][]byte, liar int) (out [][]byte) {
	for m, data := range messages {
		if m%liar != 0 {
			out = append(out, data)
		}
	}
	return out
}

func decoded(t *testing.T, messages [][]byte) []Upload {
	t.Helper()
	uploads, bad := DecodeUploads(messages, federate.Expect{})
	must.Do(t, errors.Join(bad...))
	return uploads
}

// of pools a part, and returns the classifier's bytes and its probabilities of new images.
func (w *world) of(t *testing.T, uploads []Upload, rest *Rest, g *onnx.Model, f models.Manifest,
	o Options) ([]byte, []float32) {
	t.Helper()
	r := must.Get(New(uploads, g, f, o))(t)
	must.Do(t, r.Join(rest))
	p := must.Get(r.Posterior(t.Context(), w.eng))(t)
	if open, _ := Open(p); open != (o.Scope == posteriorOpen) {
		t.Fatalf("scope %q was asked for, and open is %v", o.Scope, open)
	}
	m := must.Get(r.Classifier(t.Context(), p, false, false, ""))(t)
	data := must.Get(serde.Marshal(m))(t)
	pix, _ := pixels(rng.New(1, "test"), 100, classes)
	return data, w.eval(t, m, pix, nil)["probabilities"].F32()
}

const posteriorOpen = "open"

// openFile is an open predictor of the corpus of newWorld, with its features scaled and moved.
func openFile(t *testing.T, scale, by float32) string {
	t.Helper()
	pix, labels := pixels(rng.New(1, "corpus"), 600, classes)
	features := featuresOf(pix)
	for i, v := range features {
		features[i] = v*scale + by
	}
	bank := must.Get(task.NewBank(features, dx, labels, classes))(t)
	p := must.Get(meta.UntrainedOpen(bank, dx))(t)
	m := must.Get(p.Model())(t)
	mf := must.Get(models.ReadManifest(m))(t)
	mf.Extractor = "x"
	file := filepath.Join(t.TempDir(), "open.onnx")
	must.Do(t, errors.Join(mf.Write(m), serde.Save(file, m)))
	return file
}

// alone returns the probabilities of uploads pooled one by one.
func (w *world) alone(t *testing.T, messages [][]byte, g *onnx.Model, f models.Manifest, o Options) []float32 {
	t.Helper()
	_, p := w.of(t, decoded(t, messages), nil, g, f, o)
	return p
}

// distance is the mean size of the differences of probabilities.
func distance(a, b []float32) (sum float64) {
	for i := range a {
		sum += math.Abs(float64(a[i]-b[i])) / float64(len(a))
	}
	return sum
}

// judged merges messages whose clients the sample of the first 300 judges.
func (w *world) judged(t *testing.T, messages [][]byte, g *onnx.Model, f models.Manifest, o Options) *merge.Part {
	t.Helper()
	sample, data := part(t, &merge.Merger{}, messages[:300]...)
	judge := must.Get(Judge(t.Context(), w.eng, sample, g, f, o))(t)
	p, _ := part(t, &merge.Merger{Judge: judge, Against: models.DigestBytes(data)}, messages...)
	return p
}

// TestMergedUploads: a tree of merges gives the classifier of one merge, bit for bit, and nearly
// that of all uploads one by one, in every form; a part that keeps all its uploads is pooled as
// these are; clients that lie are left out of the sums.
func TestMergedUploads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g, f := w.client(t, true)
	mg, mf := momentsGraph(t)
	mf.Kappa, mf.KappaDeviation = 0.85, 0.25 // unknown, the sums cannot be left out
	const clients = 3200
	open := openFile(t, 1, 0)
	for name, c := range map[string]struct {
		messages [][]byte
		o        Options
		near     float64
	}{
		"closed": {w.many(t, g, f, clients, 0), Options{Predictor: w.predictor, Open: "none"}, 1e-6},
		"open": {w.many(t, g, f, clients, 0),
			Options{Predictor: w.predictor, Open: open, Scope: posteriorOpen, Samples: 10}, 0.005},
		"moments": {manyMoments(t, mf, clients, 0), Options{Samples: 10}, 2e-5},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Seed, c.o.Level, c.o.Trust = 1, -1, true
			g, f := g, f
			if name == "moments" {
				g, f = mg, mf
			}
			p, whole := part(t, &merge.Merger{Trust: true}, c.messages...)
			if p.Summed == 0 {
				t.Fatal("nothing is summed")
			}
			uploads, rest := must.Get2(Merged(p, true))(t)
			want, probabilities := w.of(t, uploads, rest, g, f, c.o)
			_, left := part(t, &merge.Merger{Trust: true}, c.messages[1000:]...)
			_, right := part(t, &merge.Merger{Trust: true}, c.messages[:999]...)
			p, tree := part(t, &merge.Merger{Trust: true}, left, c.messages[999], right)
			uploads, rest = must.Get2(Merged(p, true))(t)
			if got, _ := w.of(t, uploads, rest, g, f, c.o); !bytes.Equal(got, want) ||
				!bytes.Equal(tree, whole) {
				t.Error("a tree of merges gives another classifier than one merge")
			}
			all := decoded(t, c.messages)
			_, single := w.of(t, all, nil, g, f, c.o)
			if d := distance(single, probabilities); d > c.near {
				t.Errorf("probabilities of merged uploads differ by %.2g on average from those "+
					"of all one by one", d)
			}
			p, _ = part(t, &merge.Merger{}, c.messages[:20]...)
			if uploads, rest = must.Get2(Merged(p, false))(t); rest != nil {
				t.Fatal(rest)
			}
			few := slices.Clone(all[:20])
			slices.SortFunc(few, func(a, b Upload) int { return strings.Compare(a.Client, b.Client) })
			got, _ := w.of(t, uploads, nil, g, f, c.o)
			if want, _ := w.of(t, few, nil, g, f, c.o); !bytes.Equal(got, want) {
				t.Error("a part that keeps all its uploads gives another classifier than these")
			}
		})
	}
}

// TestMergedLies: of clients with false class names those that are summed are left out, given the
// uploads that another part keeps, and the classifier is nearly that of the others; honest ones are
// not.
func TestMergedLies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g, f := w.client(t, true)
	const clients, liar = 3200, 6
	messages := w.many(t, g, f, clients, liar)
	o := Options{Predictor: w.predictor, Open: "none", Seed: 1, Sets: Sets{Level: -1}}
	trusting := o
	trusting.Trust = true
	want := w.alone(t, honest(messages, liar), g, f, trusting)
	sample, data := part(t, &merge.Merger{}, messages[:300]...)
	for name, c := range map[string]struct {
		scope, open string
		near        float64
	}{"closed": {"", "none", 5e-4}, "open": {posteriorOpen, openFile(t, 1, 0), 0.05}} {
		o := o
		o.Scope, o.Open = c.scope, c.open
		judge := must.Get(Judge(t.Context(), w.eng, sample, g, f, o))(t)
		against := models.DigestBytes(data)
		p, _ := part(t, &merge.Merger{Judge: judge, Against: against}, messages...)
		lies := 0
		for _, k := range p.Kept {
			var m int
			must.Get(fmt.Sscanf(k.Client, "client %d", &m))(t)
			if m%liar == 0 {
				lies++
			}
		}
		if summed := clients/liar + 1 - lies; p.LeftOut < summed || p.LeftOut > summed+5 {
			t.Errorf("%s: %d clients are left out of the sums; %d of them lie", name, p.LeftOut, summed)
		}
		if name == posteriorOpen {
			continue
		}
		uploads, rest := must.Get2(Merged(p, false))(t)
		_, got := w.of(t, uploads, rest, g, f, o)
		if d := distance(got, want); d > c.near {
			t.Errorf("%s: probabilities differ by %.2g on average from those of the honest clients",
				name, d)
		}
		_, left := part(t, &merge.Merger{Judge: judge, Against: against}, messages[:1600]...)
		_, right := part(t, &merge.Merger{Judge: judge, Against: against}, messages[1600:]...)
		tree, _ := part(t, &merge.Merger{Judge: judge, Against: against}, right, left)
		a, _ := tree.Encode()
		if b, _ := p.Encode(); !bytes.Equal(a, b) {
			t.Errorf("%s: a tree of judged merges gives another part than one merge", name)
		}
	}
	trusted, _ := part(t, &merge.Merger{Trust: true}, messages...)
	if _, _, err := Merged(trusted, false); !errors.Is(err, ErrTrust) {
		t.Errorf("sums that nobody judged: %v", err)
	}
	few, _ := part(t, &merge.Merger{}, messages[:3]...)
	must.Fail(Judge(t.Context(), w.eng, few, g, f, o))(t, "", "three uploads judge others")
	uploads, rest := must.Get2(Merged(trusted, true))(t)
	o.Open, o.For = openFile(t, 1, 0), uploads[0].Client
	r := must.Get(New(uploads, g, f, o))(t)
	must.Fail(r.Join(rest))(t, "single uploads", "a classifier for one client of a round with sums")
	r.For = ""
	for i := range rest.Means.Z {
		rest.Means.Z[i] *= 50
	}
	must.Fail(r.Join(rest))(t, "as far out", "sums whose means no images have")
}

// TestMergedManyClasses: a round whose uploads have more class means together than a part keeps whole
// otherwise is judged and pooled: of two further clients that which names its classes falsely is left
// out.
func TestMergedManyClasses(t *testing.T) {
	t.Parallel()
	const c = 1000
	r := rng.New(1, "many classes")
	pix, labels := make([]uint8, 3*c*dx), make([]int, 3*c)
	for i := range pix {
		if pix[i] = uint8(40 + r.IntN(170)); i >= c*dx {
			pix[i] = pix[i%(c*dx)] + uint8(r.IntN(5))
		}
		labels[i/dx] = i / dx % c
	}
	w := newWorldOf(t, pix, labels, c)
	g, f := w.client(t, true)
	real := w.eval(t, g, pix[:c*dx], labels[:c])["points"].F32()
	made := func(client, from int) []byte {
		s := &point.Set{N: c, Dx: f.PointWidth(), C: c, W: slices.Repeat([]float32{4}, c)}
		for y := range c {
			s.Y = append(s.Y, int32(y))
			for _, v := range real[(y+from)%c*(s.Dx+c):][:s.Dx] {
				s.Z = append(s.Z, v*float32(1-0.01*r.Float64()))
			}
		}
		return must.Get((&federate.Upload{Client: fmt.Sprint("client ", client), Model: f.Digest, N: 4 * c,
			Points: s}).Encode())(t)
	}
	var sample [][]byte
	for i := range merge.Judges {
		sample = append(sample, made(i, 0))
	}
	by, data := part(t, &merge.Merger{}, sample...)
	o := Options{Predictor: w.predictor, Open: "none", Seed: 1, Samples: 2, Sets: Sets{Level: -1}}
	judge := must.Get(Judge(t.Context(), w.eng, by, g, f, o))(t)
	p, _ := part(t, &merge.Merger{Judge: judge, Against: models.DigestBytes(data), Limit: make([]byte, 32)},
		made(10, 0), made(11, 1))
	if p.Summed != 1 || p.LeftOut != 1 {
		t.Errorf("%d are summed and %d left out; want one each", p.Summed, p.LeftOut)
	}
	p, _ = part(t, &merge.Merger{Judge: judge, Against: models.DigestBytes(data)},
		append(sample, made(10, 0), made(12, 0))...)
	uploads, rest := must.Get2(Merged(p, false))(t)
	if len(uploads) != merge.Judges || rest.Summed != 2 {
		t.Fatalf("%d are kept and %d summed", len(uploads), rest.Summed)
	}
	round := must.Get(New(uploads, g, f, o))(t)
	must.Do(t, round.Join(rest))
	must.Get(round.Posterior(t.Context(), w.eng))(t)
}

// TestMergedFalseMoments: clients of moments that name their classes falsely are left out of the
// sums, and honest ones are not; the classifier is nearer to that of the honest clients than where
// nobody is judged, and about as near as where all are judged at once.
func TestMergedFalseMoments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g, f := momentsGraph(t)
	const clients, liar = 3200, 6
	messages := manyMoments(t, f, clients, liar)
	o := Options{Seed: 1, Sets: Sets{Level: -1}, Samples: 10}
	trusting := o
	trusting.Trust = true
	p := w.judged(t, messages, g, f, o)
	summed := 0 // of those that lie
	for m := 0; m < clients; m += liar {
		if !slices.ContainsFunc(p.Kept, func(k merge.Kept) bool { return k.Client == fmt.Sprint("client ", m) }) {
			summed++
		}
	}
	if p.LeftOut != summed || summed == 0 {
		t.Errorf("%d clients are left out of the sums; %d of them lie", p.LeftOut, summed)
	}
	uploads, rest := must.Get2(Merged(p, false))(t)
	_, got := w.of(t, uploads, rest, g, f, o)
	own, no := *rest.Within, *rest
	own.Data, no.Within = slices.Clone(own.Data), &own
	own.Data[1] = 3 * (own.Data[0] + own.Data[dx]) // of coordinates 0 and 1: more than both variances
	must.Fail(new(Round).Join(&no))(t, "no covariance", "a sum whose scatter is no covariance")
	want := w.alone(t, honest(messages, liar), g, f, trusting)
	one, trusted := distance(got, want), distance(w.alone(t, messages, g, f, trusting), want)
	t.Logf("nobody judged %.2g, one by one %.2g", trusted, one)
	if one > trusted/100 {
		t.Errorf("probabilities differ by %.2g on average from those of the honest clients, and by "+
			"%.2g where nobody is judged", one, trusted)
	}
	if !testing.Short() {
		t.Logf("all at once %.2g", distance(w.alone(t, messages, g, f, o), want))
	}
}

// TestJudgedOneByOne measures the cost of judging summed clients one by one, in probabilities
// against those of the honest clients alone, beside all at once and nobody.
func TestJudgedOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("20,000 clients")
	}
	t.Parallel()
	w := newWorld(t)
	g, f := w.client(t, true)
	o := Options{Predictor: w.predictor, Open: "none", Seed: 1, Sets: Sets{Level: -1}}
	trusting := o
	trusting.Trust = true
	for _, liar := range []int{20, 6, 3} {
		messages := w.many(t, g, f, 20_000, liar)
		want := w.alone(t, honest(messages, liar), g, f, trusting)
		p := w.judged(t, messages, g, f, o)
		uploads, rest := must.Get2(Merged(p, false))(t)
		_, merged := w.of(t, uploads, rest, g, f, o)
		trusted, once, one := distance(w.alone(t, messages, g, f, trusting), want),
			distance(w.alone(t, messages, g, f, o), want), distance(merged, want)
		t.Logf("one client in %d lies: nobody judged %.2g, all at once %.2g, one by one %.2g; %d left "+
			"out of %d", liar, trusted, once, one, p.LeftOut, p.LeftOut+p.Summed)
		if one > 5e-5 || trusted < 100*one {
			t.Errorf(
				"one client in %d lies: probabilities differ by %.2g, and by %.2g where nobody is judged",
				liar, one, trusted)
		}
	}
}
