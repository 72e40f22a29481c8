package stats

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"google.golang.org/protobuf/proto"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/serverpb"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

const testK, testC = 5, 4

// images are a client's rows, and its upload as a server reads it.
type images struct {
	rows   []float32
	labels []int
	upload *federate.Upload
	digest string
}

// someImages makes a client of up to 30 rows of length 1 at most. Some clients have one image a
// class, and no scatter.
func someImages(t testing.TB, r *rand.Rand, name string) images {
	t.Helper()
	var im images
	n := 1 + r.IntN(30)
	for i := range n {
		y := r.IntN(testC)
		if n <= testC {
			y = i
		}
		row, length := make([]float32, testK), 0.0
		for j := range row {
			row[j] = float32(r.NormFloat64())
			if j == y {
				row[j] += 2
			}
			length += float64(row[j] * row[j])
		}
		for _, v := range row {
			im.rows = append(im.rows, v/float32(math.Sqrt(length)))
		}
		im.labels = append(im.labels, y)
	}
	means, within := must.Get2(moments.Compute(im.rows, testK, im.labels, testC, name))(t)
	curve := must.Get(moments.CurveOf(im.rows, testK, im.labels, testC, name))(t)
	u := &federate.Upload{Round: 1, Client: name, Model: strings.Repeat("ab", 32),
		N: int(means.Mass()), Points: means, Within: within, Curve: curve}
	data := must.Get(u.Encode())(t)
	im.upload = must.Get(federate.Decode(data, federate.Expect{}))(t)
	im.digest = fmt.Sprintf("%064x", r.Uint64())
	return im
}

func someClients(t testing.TB, seed uint64, n int) (out []images) {
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range n {
		out = append(out, someImages(t, r, fmt.Sprint("client ", i)))
	}
	return out
}

func stateOf(t testing.TB, clients ...images) *State {
	t.Helper()
	s := Start(clients[0].upload)
	for _, c := range clients {
		must.Do(t, s.Add(c.upload, c.digest))
	}
	return s
}

func encoded(t testing.TB, s *State) []byte {
	t.Helper()
	return must.Get(s.Encode())(t)
}

// TestStatesAreSums: in any order, through files, and with others added and taken out between, the
// same uploads give the same bytes.
func TestStatesAreSums(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 3))
		all := someClients(t, seed, 2+r.IntN(25))
		want := encoded(t, stateOf(t, all...))
		extra := someClients(t, seed+100, 40)[30:]
		for range 4 {
			order := slices.Clone(all)
			r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			s := stateOf(t, order...)
			for _, e := range extra {
				must.Do(t, s.Add(e.upload, e.digest))
			}
			s = must.Get(Decode(encoded(t, s), federate.Expect{}))(t)
			for _, e := range extra {
				must.Do(t, s.Remove(e.upload, e.digest))
			}
			if !bytes.Equal(encoded(t, s), want) {
				t.Fatal("the state depends on order or uploads that were taken out")
			}
		}
	}
}

// TestWithdrawal: a state of which a client is taken out is the one that the client never took part
// in.
func TestWithdrawal(t *testing.T) {
	all := someClients(t, 1, 12)
	for i, x := range all {
		s := stateOf(t, all...)
		must.Do(t, s.Remove(x.upload, x.digest))
		if !bytes.Equal(encoded(t, s), encoded(t, stateOf(t, slices.Delete(slices.Clone(all), i, i+1)...))) {
			t.Errorf("client %d leaves a trace", i)
		}
		before := encoded(t, s)
		must.Fail(s.Remove(x.upload, x.digest))(t, "not in", "taken out twice")
		if !bytes.Equal(encoded(t, s), before) {
			t.Error("after an error the state is another")
		}
	}
	s := stateOf(t, all[0])
	must.Do(t, s.Remove(all[0].upload, all[0].digest))
	for i := range Folds {
		if f := s.Fold(i); f.Clients != 0 || f.second != nil || len(f.classes) != 0 ||
			f.check() != nil {
			t.Errorf("fold %d of no clients: %+v", i, f)
		}
	}
}

// TestRefusals: nothing is added twice, taken out by another file, or of another round.
func TestRefusals(t *testing.T) {
	all := someClients(t, 2, 3)
	s := stateOf(t, all[0], all[1])
	before := encoded(t, s)
	other := *all[2].upload
	other.Round++
	forged := *all[1].upload // the upload's name and digest, and other numbers
	forged.Points = all[2].upload.Points
	forged.N = all[2].upload.N
	points := *all[2].upload
	points.Points = &point.Set{N: 1, Dx: testK, C: testC, Z: []float32{0, 0, 0, 0, 0, .5, .5, 0, 0},
		W: []float32{1}}
	far := *all[2].upload
	far.Points = &point.Set{N: 1, Dx: testK, C: testC, Z: []float32{1 << 17, 0, 0, 0, 0, 1, 0, 0, 0},
		W: []float32{1}}
	for name, v := range map[string]struct {
		do   func() error
		want string
	}{
		"twice":         {func() error { return s.Add(all[0].upload, all[2].digest) }, "is in already"},
		"another round": {func() error { return s.Add(&other, all[2].digest) }, "of round 2"},
		"of several classes": {func() error { return s.Add(&points, all[2].digest) },
			"several classes"},
		"far": {func() error { return s.Add(&far, all[2].digest) }, "65536 at most"},
		"another file": {func() error { return s.Remove(all[0].upload, all[1].digest) },
			"give the one that was added"},
		"other numbers": {func() error { return s.Remove(&forged, all[1].digest) }, "was not added"},
	} {
		must.Fail(v.do())(t, v.want, name)
		if !bytes.Equal(encoded(t, s), before) {
			t.Errorf("%s: after an error the state is another", name)
		}
	}
}

// TestClient: the sum is the class means and the scatter of all clients' images together, as one
// client would have sent them, and the sum of the curves. Squares of counts tell how many hold a class.
func TestClient(t *testing.T) {
	clients := someClients(t, 3, 7)
	sum := &Sum{Dx: testK, C: testC}
	var rows []float32
	var labels []int
	var curve moments.Curve
	masses, squares := map[int]float64{}, map[int]float64{}
	for _, c := range clients {
		of := must.Get(Compute(c.upload))(t)
		must.Do(t, sum.Add(of))
		rows, labels = append(rows, c.rows...), append(labels, c.labels...)
		if c.upload.Curve != nil {
			for i, v := range c.upload.Curve.Curve {
				curve[i] += v
			}
		}
		own := map[int]float64{}
		for _, y := range c.labels {
			own[y]++
		}
		for y, n := range own {
			masses[y], squares[y] = masses[y]+n, squares[y]+n*n
		}
	}
	means, within, got := sum.Client()
	must.Do(t, within.Check(testC))
	if sum.N != int64(len(labels)) || got.Curve != curve || got.Clients != 7 || within.Dof != len(labels)-means.N {
		t.Errorf("%d images, %d degrees of freedom of %d", sum.N, within.Dof, len(labels))
	}
	_, held := means.Labelled()
	for i, y := range held {
		if want := masses[y] * masses[y] / squares[y]; math.Abs(got.Holders[i]-want) > 1e-9 {
			t.Errorf("class %d has %v holders; want %v", y, got.Holders[i], want)
		}
	}
	direct, all := must.Get2(moments.Parted(rows, testK, labels, testC, nil))(t)
	for i, y := range held {
		for j, v := range means.Features(i) {
			if math.Abs(float64(v-direct.Features(i)[j])) > 1e-6 || means.W[i] != direct.W[i] {
				t.Errorf("mean of class %d is %v, of mass %v; want %v of %v images", y, v, means.W[i],
					direct.Features(i)[j], direct.W[i])
			}
		}
	}
	full, want := within.Whole(), all.Whole()
	if _, ys := direct.Labelled(); !slices.Equal(held, ys) || !floats.EqualApprox(full, want, 1e-5) {
		t.Errorf("scatter of classes %v is %v; want %v of %v", held, full, want, ys)
	}
	if means, within, curves := (&Sum{Dx: testK, C: testC}).Client(); means != nil ||
		within != nil || curves != nil {
		t.Error("no clients sent something")
	}
}

// TestWideRows: rows of more numbers than moments have are summed without second moments.
func TestWideRows(t *testing.T) {
	k := federate.MaxMoments + 1
	set := &point.Set{N: 1, Dx: k, C: 2, Z: make([]float32, k), W: []float32{3}, Y: []int32{1}}
	u := &federate.Upload{Client: "a", Model: strings.Repeat("ab", 32), N: 3, Points: set}
	s := Start(u)
	must.Do(t, s.Add(u, strings.Repeat("cd", 32)))
	if back, err := Decode(encoded(t, s), federate.Expect{}); err != nil {
		t.Error(err)
	} else if means, within, _ := back.Fold(FoldOf("a")).Client(); within != nil || means.W[0] != 3 {
		t.Errorf("scatter %v, mass %v", within, means.W[0])
	}
}

// TestFoldIsForGood: a client's fold is that of every program, and folds are even.
func TestFoldIsForGood(t *testing.T) {
	if FoldOf("client 1") != 3 {
		t.Errorf("client 1 is in fold %d; want 3", FoldOf("client 1"))
	}
	counts := map[int]int{}
	for i := range 10_000 {
		counts[FoldOf(fmt.Sprint("site ", i))]++
	}
	for fold, n := range counts {
		if len(counts) != 10 || n < 850 || n > 1150 { // five deviations
			t.Errorf("%d of 10000 clients are in fold %d of %d", n, fold, len(counts))
		}
	}
}

// TestDecodeRefuses changes one field at a time and makes the checksum fit.
func TestDecodeRefuses(t *testing.T) {
	all := someClients(t, 4, 12)
	state := stateOf(t, all...)
	data := encoded(t, state)
	full := slices.IndexFunc(state.fold[:], func(s *Sum) bool { return s.Curved > 0 })
	set := func(b []byte, at int, v whole.Number) {
		copy(b[at*whole.Bytes:], whole.Append(nil, []whole.Number{v}))
	}
	for name, v := range map[string]struct {
		spoil func(*serverpb.State)
		want  string
	}{
		"format":     {func(m *serverpb.State) { m.Format = 9 }, "format"},
		"model":      {func(m *serverpb.State) { m.Model = m.Model[1:] }, "model"},
		"dx":         {func(m *serverpb.State) { m.Dx++ }, "folds"},
		"huge dx":    {func(m *serverpb.State) { m.Dx = 1 << 31 }, "dx"},
		"classes":    {func(m *serverpb.State) { m.Classes = 1 }, "classes"},
		"no clients": {func(m *serverpb.State) { m.Clients = nil }, "clients"},
		"order": {func(m *serverpb.State) { m.Clients[0], m.Clients[1] = m.Clients[1], m.Clients[0] },
			"clients[1]"},
		"name":   {func(m *serverpb.State) { m.Clients[0].Name = "\x1b" }, "client"},
		"digest": {func(m *serverpb.State) { m.Clients[0].Upload = nil }, "clients[0]"},
		"images": {func(m *serverpb.State) { m.Clients[0].N = 1 << 40 }, "clients[0]"},
		"a client of no sum": {func(m *serverpb.State) {
			m.Folds[full] = &serverpb.Sum{}
		}, "fold"},
		"a sum of no client": {func(m *serverpb.State) { m.Clients = m.Clients[:1] }, "fold"},
		"folds":              {func(m *serverpb.State) { m.Folds = m.Folds[1:] }, "folds"},
		"held":               {func(m *serverpb.State) { m.Folds[full].Held[0] = 1 << 30 }, "held"},
		"sums":               {func(m *serverpb.State) { m.Folds[full].Sums = m.Folds[full].Sums[16:] }, "sums"},
		"second": {func(m *serverpb.State) { m.Folds[full].Second = m.Folds[full].Second[16:] },
			"second"},
		"negative mass": {func(m *serverpb.State) { set(m.Folds[full].Sums, 0, whole.Round(-1)) },
			"mass"},
		"no mass": {func(m *serverpb.State) { set(m.Folds[full].Sums, 0, whole.Round(0)) }, "mass"},
		"masses": {func(m *serverpb.State) { set(m.Folds[full].Sums, 0, whole.Round(1e6)) },
			"masses"},
		"far": {func(m *serverpb.State) { set(m.Folds[full].Sums, 2, whole.Round(1e9)) },
			"sum 0 of class"},
		"squares of no mass": {func(m *serverpb.State) { set(m.Folds[full].Sums, 1, whole.Round(0)) },
			"squares of clients' masses"},
		"large squares": {func(m *serverpb.State) { set(m.Folds[full].Sums, 1, whole.Round(1e9)) },
			"squares of clients' masses"},
		"negative second": {func(m *serverpb.State) { set(m.Folds[full].Second, 0, whole.Round(-1)) },
			"second moment"},
		"large second": {func(m *serverpb.State) {
			set(m.Folds[full].Second, 1, whole.Number{High: math.MinInt64})
		}, "second moment"},
		"rows":    {func(m *serverpb.State) { m.Folds[full].Rows = 1 << 50 }, "rows"},
		"no rows": {func(m *serverpb.State) { m.Folds[full].Rows = 0 }, "rows"},
		"curved":  {func(m *serverpb.State) { m.Folds[full].Curved = 100 }, "with a curve"},
		"curve":   {func(m *serverpb.State) { m.Folds[full].Curve[0] = 1 << 60 }, "curves"},
		"a curve short": {func(m *serverpb.State) { m.Folds[full].Curve = m.Folds[full].Curve[1:] },
			"curve"},
	} {
		var m serverpb.State
		must.Do(t, proto.Unmarshal(data, &m))
		v.spoil(&m)
		m.Checksum = checksum(&m)
		bad := must.Get(proto.Marshal(&m))(t)
		must.Fail(Decode(bad, federate.Expect{}))(t, v.want, name)
	}
	for i := range len(data) {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if s, err := Decode(bad, federate.Expect{}); err == nil && !bytes.Equal(encoded(t, s), data) {
			t.Fatalf("a bit of byte %d changed: read as another state", i)
		}
	}
	must.Fail(Decode(data, federate.Expect{Model: strings.Repeat("cd", 32)}))(
		t, "",
		"a state of another model is taken")

}

// FuzzDecode: whatever is read can be written, and is then the same.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, stateOf(f, someClients(f, 5, 3)...)), true)
	f.Add([]byte{0x08, 0x07}, true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		var m serverpb.State
		if seal && proto.Unmarshal(data, &m) == nil {
			m.Checksum = checksum(&m)
			data = must.Get(proto.Marshal(&m))(t)
		}
		var s *State
		var err error
		alloctest.AtMost(t, 400*len(data), func() { s, err = Decode(data, federate.Expect{}) })
		if err != nil {
			return
		}
		again := encoded(t, s)
		back, err := Decode(again, federate.Expect{})
		if err != nil || !bytes.Equal(encoded(t, back), again) {
			t.Fatalf("written and read again it is another: %v", err)
		}
		for i := range Folds {
			s.Fold(i).Client()
		}
	})
}
