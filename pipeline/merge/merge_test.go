package merge

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"google.golang.org/protobuf/proto"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/serverpb"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

var model = strings.Repeat("ab", 32)

// made is a client's class means, of few or hundreds of classes, so that a part keeps few uploads.
func made(t testing.TB, i int, precision federate.Precision) []byte {
	t.Helper()
	const c, dx = 700, 2
	r := rng.New(1, "upload", i)
	s, lacks := &point.Set{Dx: dx, C: c}, []float64{0.1, 0.1, 0.1, 0.95}[i%4]
	for y := range c {
		if r.Float64() < lacks {
			continue
		}
		s.Z = append(s.Z, float32(r.NormFloat64()*math.Pow(10, float64(r.IntN(6)-4))),
			float32(r.NormFloat64()))
		s.W, s.Y, s.N = append(s.W, float32(1+r.IntN(20))), append(s.Y, int32(y)), s.N+1
	}
	return encoded(t, &federate.Upload{Round: 3, Client: fmt.Sprint("client ", i), Model: model,
		N: int(s.Mass()), Points: s, Precision: precision})
}

// several are the class means of some clients.
func several(t testing.TB, from, to int) [][]byte {
	t.Helper()
	return each(to-from, func(i int) []byte { return made(t, from+i, federate.Single) })
}

// each returns n uploads.
func each(n int, upload func(i int) []byte) (all [][]byte) {
	for i := range n {
		all = append(all, upload(i))
	}
	return all
}

// madeMoments is a client's moments, of n images.
func madeMoments(t testing.TB, i, n int, precision federate.Precision) []byte {
	t.Helper()
	const c, k = 40, 8
	r := rng.New(1, "moments", i)
	rows, labels := make([]float32, n*k), make([]int, n)
	for i := range labels {
		labels[i] = r.IntN(c)
		for j := range k {
			rows[i*k+j] = float32(0.1 * r.NormFloat64())
		}
	}
	means, w := must.Get2(moments.Compute(rows, k, labels, c, fmt.Sprint(i)))(t)
	return encoded(t, &federate.Upload{Round: 3, Client: fmt.Sprint("client ", i), Model: model,
		N: int(means.Mass()), Points: means, Within: w, Precision: precision})
}

func encoded(t testing.TB, u *federate.Upload) []byte {
	t.Helper()
	return must.Get(u.Encode())(t)
}

// merged merges messages into a part's bytes.
func merged(t testing.TB, judge func(*federate.Upload) (float64, error), all ...[]byte) []byte {
	t.Helper()
	return must.Get(merger(t, judge, all...).Part().Encode())(t)
}

// merger has merged messages.
func merger(t testing.TB, judge func(*federate.Upload) (float64, error), all ...[]byte) *Merger {
	t.Helper()
	m := &Merger{Trust: judge == nil, Judge: judge}
	if judge != nil {
		m.Against = model
	}
	for _, data := range all {
		must.Do(t, m.Add(data))
	}
	return m
}

// tree merges messages in a random tree: order, groups and depth are random.
func tree(t testing.TB, r *rand.Rand, judge func(*federate.Upload) (float64, error),
	all [][]byte) []byte {
	t.Helper()
	if len(all) < 3 {
		return merged(t, judge, all...)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var parts [][]byte
	for at := 0; at < len(all); {
		to := min(at+1+r.IntN(len(all)-1), len(all))
		part := tree(t, r, judge, append([][]byte(nil), all[at:to]...))
		if r.IntN(2) == 0 || to-at > 1 {
			parts = append(parts, part)
		} else {
			parts = append(parts, all[at]) // an upload beside parts
		}
		at = to
	}
	return merged(t, judge, parts...)
}

// judging leaves clients out, and lets others count in part, by what they sent alone.
func judging(u *federate.Upload) (float64, error) {
	switch sum := u.N % 7; {
	case sum < 2:
		return 0, nil
	case sum < 4:
		return 1 / 3., nil
	}
	return 1, nil
}

// TestTrees: every tree of merges gives the bytes of the whole; beyond what a part keeps whole, its
// sums are the exact ones to half a step a client.
func TestTrees(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(i int) []byte{
		"float32": func(i int) []byte { return made(t, i, federate.Single) },
		"int8":    func(i int) []byte { return made(t, i, federate.Int8) },
		"moments": func(i int) []byte { return madeMoments(t, i, 1+i%90, federate.Single) },
	}
	for name, upload := range kinds {
		for rule, judge := range map[string]func(*federate.Upload) (float64, error){"trusted": nil,
			"judged": judging} {
			t.Run(name+" "+rule, func(t *testing.T) {
				t.Parallel()
				n := 40
				if name == "moments" {
					n = 450
				}
				all := each(n, upload)
				whole := merged(t, judge, all...)
				p := must.Get(Decode(whole, federate.Expect{}))(t)
				if p.Clients() != n || p.Summed == 0 || (judge != nil) != (p.LeftOut > 0) ||
					len(p.Kept)+p.Summed+p.LeftOut != n {
					t.Fatalf("of %d clients %d are in, %d kept, %d summed, %d left out", n, p.Clients(),
						len(p.Kept), p.Summed, p.LeftOut)
				}
				checkSum(t, p, all, judge)
				r := rng.New(1, "tree", name, rule)
				for range 4 {
					if part := tree(t, r, judge, append([][]byte(nil), all...)); !bytes.Equal(part, whole) {
						t.Fatal("a tree of merges differs from the whole")
					}
				}
			})
		}
	}
}

// TestKept: a part keeps as many uploads as others are judged by, however large they are, and more
// within its bounds.
func TestKept(t *testing.T) {
	t.Parallel()
	data := make([]byte, federate.MaxBytes)
	for _, c := range []struct{ uploads, points, bytes, want int }{
		{7, 5000, 9, 7}, {40, 1000, 9, Judges}, {40, 1, federate.MaxBytes, Judges},
		{40, 700, 9, 11}, {40, 1, 4 << 20, 16}, {200, 100, 9, 81},
	} {
		k := Kept{Upload: &federate.Upload{Points: &point.Set{N: c.points}}, Data: data[:c.bytes]}
		if got := kept(slices.Repeat([]Kept{k}, c.uploads)); got != c.want {
			t.Errorf("of %d uploads of %d points and %d bytes %d are kept; want %d", c.uploads, c.points,
				c.bytes, got, c.want)
		}
	}
}

// TestLimit: a small upload is summed where one of a lower key, in another part, had no room.
func TestLimit(t *testing.T) {
	t.Parallel()
	var all []Kept
	for i := range 80 {
		data := made(t, i, federate.Single)
		u := must.Get(federate.Decode(data, federate.Expect{}))(t)
		all = append(all, Kept{Upload: u, Data: data, key: key(u.Round, u.Model, u.Client)})
	}
	slices.SortFunc(all, compare)
	var low, high, whole [][]byte
	for _, k := range all {
		switch large := k.Points.N > 100; {
		case large && len(low) < 14:
			low = append(low, k.Data)
		case len(low) == 14:
			if len(high) < 3 && large {
				continue // the first ones are small
			}
			high = append(high, k.Data)
		}
	}
	whole = slices.Concat(low, high)
	if part := merged(t, nil, merged(t, nil, high...), merged(t, nil, low...)); !bytes.Equal(part,
		merged(t, nil, whole...)) {
		t.Error("parts give another part than their uploads")
	}
}

// checkSum compares masses and sums of coordinates with those in exact arithmetic.
func checkSum(t *testing.T, p *Part, all [][]byte, judge func(*federate.Upload) (float64, error)) {
	t.Helper()
	want := make([]big.Float, p.C*(1+p.Dx))
	for i := range want {
		want[i].SetPrec(300)
	}
	keeps := map[string]bool{}
	for _, k := range p.Kept {
		keeps[k.Client] = true
	}
	images, n := 0.0, 0
	for _, data := range all {
		u := must.Get(federate.Decode(data, federate.Expect{}))(t)
		share := 1.0
		if judge != nil {
			share, _ = judge(u)
		}
		if keeps[u.Client] || share == 0 {
			continue
		}
		set := u.Points
		if n += u.N; u.Within != nil {
			n += len(u.Within.Labels)
			images += share * float64(u.N+len(u.Within.Labels))
			set = withCalibration(u, make([]float64, p.Dx*p.Dx))
		}
		for i := range set.N {
			y := set.Indices()[i]
			mass := share * float64(set.W[i])
			for j, v := range append([]float32{1}, set.Features(i)...) {
				x := big.NewFloat(mass)
				to := &want[int(y)*(1+p.Dx)+j]
				to.Add(to, x.Mul(x, big.NewFloat(float64(v)).SetPrec(300)))
			}
		}
	}
	if p.N != n {
		t.Errorf("the sums are of %d images; want %d, of moments calibration points among them", p.N, n)
	}
	mass := 0.0
	for i := range want {
		exact, _ := want[i].Float64()
		if got := p.sums[i].Float(); math.Abs(got-exact) > float64(len(all))*whole.Step {
			t.Fatalf("sum %d is %v; exactly %v", i, got, exact)
		}
		if i%(1+p.Dx) == 0 {
			mass += exact
		}
	}
	if p.Moments && math.Abs(mass-images) > 1e-6*images {
		t.Errorf("the sums hold %v images with calibration points, of %v", mass, images)
	}
}

// TestMomentsWithCalibration: scatter, means and degrees of freedom of a client whose calibration
// points are counted are those of all of its images.
func TestMomentsWithCalibration(t *testing.T) {
	t.Parallel()
	const c, k, n = 2, 4, 60
	r := rng.New(1, "all")
	rows, labels := make([]float32, n*k), make([]int, n)
	for i := range labels {
		labels[i] = r.IntN(c)
		for j := range k {
			rows[i*k+j] = float32(0.2 * r.NormFloat64())
		}
	}
	means, w, err := moments.Compute(rows, k, labels, c, "key")
	if err != nil || len(w.Labels) == 0 {
		t.Fatal(err, len(w.Labels))
	}
	got := make([]float64, k*k)
	w.AddTo(got)
	set := withCalibration(&federate.Upload{Points: means, Within: w}, got)
	all, scatter := must.Get2(moments.Parted(rows, k, labels, c, nil))(t)
	want := make([]float64, k*k)
	scatter.AddTo(want)
	_, held := all.Labelled()
	for i, y := range held {
		for j, v := range set.Features(i) {
			if math.Abs(float64(v-all.Features(i)[j])) > 1e-6 || set.W[i] != all.W[i] || int(set.Y[i]) != y {
				t.Errorf("mean %d of class %d is %v of %v images, want %v of %v of class %d", j, set.Y[i], v,
					set.W[i], all.Features(i)[j], all.W[i], y)
			}
		}
	}
	if set.N != len(held) || !floats.EqualApprox(got, want, 1e-5) {
		t.Errorf("%d classes with the scatter %v, want %d with %v", set.N, got, len(held), want)
	}
}

// TestRefused: what does not add up is refused, and leaves the merger as it was.
func TestRefused(t *testing.T) {
	t.Parallel()
	soft := point.New(2, 2, 700)
	for i := range 2 {
		soft.Row(i)[2], soft.Row(i)[3] = 0.5, 0.5
	}
	other := func(change func(u *federate.Upload)) []byte {
		u := must.Get(federate.Decode(made(t, 50, federate.Single), federate.Expect{}))(t)
		change(u)
		return encoded(t, u)
	}
	wide := &federate.Upload{Round: 3, Client: "wide", Model: model, N: 1,
		Points: &point.Set{N: 1, Dx: 1 << 16, C: 1 << 16, W: []float32{1},
			Y: []int32{1}, Z: make([]float32, 1<<16)}}
	must.Fail((&Merger{Trust: true}).Add(encoded(t, wide)))(
		t, "sums", "an upload whose sums would take gigabytes")
	all := several(t, 0, 30)
	big := merged(t, nil, all...)
	judgedPart := merged(t, judging, all...)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"upload twice":  {all[3], "is in already"},
		"part with it":  {merged(t, nil, made(t, 40, federate.Single), all[3]), "is in already"},
		"embedding":     {other(func(u *federate.Upload) { u.Points, u.N = soft, 2 }), "embedding"},
		"far out":       {other(func(u *federate.Upload) { u.Points.Z[0] = 1e9 }), "65536 at most"},
		"another round": {other(func(u *federate.Upload) { u.Round = 4 }), "round"},
		"another graph": {other(func(u *federate.Upload) { u.Model = strings.Repeat("cd", 32) }),
			"model"},
		"moments":        {madeMoments(t, 60, 20, federate.Single), "dx"},
		"judged":         {judgedPart, "same part"},
		"nothing at all": {nil, "empty"},
	} {
		m := Merger{Trust: true}
		must.Do(t, m.Add(big))
		must.Fail(m.Add(c.data))(t, c.want, name)
		if data, err := m.Part().Encode(); err != nil || !bytes.Equal(data, big) {
			t.Errorf("%s: the refused one changed the part (%v)", name, err)
		}
	}
	m := Merger{}
	var err error
	added := 0
	for ; err == nil && added < len(all); added++ {
		err = m.Add(all[added])
	}
	added-- // but for the last
	if !errors.Is(err, ErrJudge) || m.Part().Clients() != added {
		t.Errorf("uploads beyond those kept, without a judgement: %v, %d clients of %d", err,
			m.Part().Clients(), added)
	}
	m = Merger{Trust: true}
	must.Fail(errors.Join(m.Add(big), m.Add(merged(t, judging, several(t, 30, 60)...))))(
		t, "same part", "a trusted part and a judged one")
	m = Merger{Trust: true}
	must.Do(t, m.Add(judgedPart))
	err = nil
	for i := 30; err == nil && i < 90; i++ {
		err = m.Add(made(t, i, federate.Single))
	}
	must.Fail(0, err)(t, "give that part (--against), and not --trust", "trust beside a judged part")
}

// changed returns a part with a field changed and the checksum made to fit.
func changed(t testing.TB, data []byte, change func(m *serverpb.Part)) []byte {
	t.Helper()
	var m serverpb.Part
	must.Do(t, proto.Unmarshal(data, &m))
	change(&m)
	m.Checksum = checksum(&m)
	return must.Get(proto.Marshal(&m))(t)
}

// TestHostile: parts whose fields contradict each other, or are out of bounds, are refused.
func TestHostile(t *testing.T) {
	t.Parallel()
	few := each(500, func(i int) []byte { return madeMoments(t, i, 60, federate.Single) })
	means, ofMoments := merged(t, nil, several(t, 0, 30)...), merged(t, nil, few...)
	set := func(b []byte, at int, v whole.Number) {
		copy(b[at*whole.Bytes:], whole.Append(nil, []whole.Number{v}))
	}
	scatter := 40 * (1 + 8)
	for name, c := range map[string]struct {
		of     []byte
		change func(m *serverpb.Part)
		want   string
	}{
		"format":     {means, func(m *serverpb.Part) { m.Format = 7 }, "format"},
		"no clients": {means, func(m *serverpb.Part) { m.Clients = nil }, "clients"},
		"half a client": {means, func(m *serverpb.Part) { m.Clients = m.Clients[:len(m.Clients)-1] },
			"kept, summed"},
		"a client more": {means,
			func(m *serverpb.Part) { m.Clients = append(m.Clients, bytes.Repeat([]byte{255}, 32)...) },
			"kept, summed"},
		"summed more": {means, func(m *serverpb.Part) { m.Summed++; m.LeftOut-- }, "left_out"},
		"out of order": {means, func(m *serverpb.Part) { copy(m.Clients, m.Clients[64:96]) },
			"ascending"},
		"client twice": {means, func(m *serverpb.Part) { copy(m.Clients[32:], m.Clients[:32]) },
			"ascending"},
		"another digest": {means, func(m *serverpb.Part) { m.Clients[20]++ }, "digests"},
		"kept out of order": {means,
			func(m *serverpb.Part) { m.Kept[0], m.Kept[1] = m.Kept[1], m.Kept[0] }, "order"},
		"above the limit": {means, func(m *serverpb.Part) { m.Limit = make([]byte, 32) }, "limit"},
		"no limit":        {means, func(m *serverpb.Part) { m.Limit = nil }, "limit"},
		"another upload": {means,
			func(m *serverpb.Part) { m.Kept[0] = madeMoments(t, 1, 60, federate.Single) }, "kept[0]"},
		"damaged upload": {means, func(m *serverpb.Part) { m.Kept[0][200]++ }, "kept[0]"},
		"another dx":     {means, func(m *serverpb.Part) { m.Dx++ }, "sums"},
		"huge dx":        {means, func(m *serverpb.Part) { m.Dx = 1 << 30 }, "dx"},
		"huge moments":   {ofMoments, func(m *serverpb.Part) { m.Dx = 1 << 13 }, "dx"},
		"n":              {means, func(m *serverpb.Part) { m.N = m.Summed }, "masses"},
		"no images":      {means, func(m *serverpb.Part) { m.N = 0 }, "n is 0"},
		"negative mass": {means, func(m *serverpb.Part) { set(m.Sums, 0, whole.Round(-1)) },
			"mass of class 0"},
		"mean out of reach": {means, func(m *serverpb.Part) { set(m.Sums, 1, whole.Round(1e9)) },
			"sum 0 of class 0"},
		"overflow": {means,
			func(m *serverpb.Part) { set(m.Sums, 1, whole.Number{High: math.MaxInt64}) }, "2^84"},
		"no masses":  {means, func(m *serverpb.Part) { clear(m.Sums) }, "masses"},
		"short sums": {means, func(m *serverpb.Part) { m.Sums = m.Sums[1:] }, "sums"},
		"against":    {means, func(m *serverpb.Part) { m.Against = []byte{1} }, "against"},
		"long means": {ofMoments, func(m *serverpb.Part) { set(m.Sums, 1, whole.Round(1e6)) },
			"sum 0 of class 0"},
		"negative scatter": {ofMoments, func(m *serverpb.Part) { set(m.Sums, scatter, whole.Round(-1)) },
			"scatter of coordinate 0"},
		"large scatter": {ofMoments, func(m *serverpb.Part) { set(m.Sums, scatter, whole.Round(1e9)) },
			"trace"},
		"large covariance": {ofMoments,
			func(m *serverpb.Part) { set(m.Sums, scatter+1, whole.Round(1e9)) }, "scatter[1]"},
		"dof":    {ofMoments, func(m *serverpb.Part) { set(m.Dof, 0, whole.Round(1e9)) }, "dof"},
		"no dof": {ofMoments, func(m *serverpb.Part) { m.Dof = nil }, "dof"},
	} {
		must.Fail(Decode(changed(t, c.of, c.change), federate.Expect{}))(t, c.want, name)
	}
	for i := 0; i < len(means); i += 1 + len(means)/200 {
		data := bytes.Clone(means)
		data[i] ^= 0x10
		must.Fail(Decode(data, federate.Expect{}))(t, "", "bit 4 of byte", i, "is flipped")
	}
	must.Fail(Decode(made(t, 50, federate.Single), federate.Expect{}))(t, "uploads are merged first")
}

// TestWhole: whole numbers of 128 bits keep to exact sums of both signs, at the ends of their range
// too.
func TestWhole(t *testing.T) {
	t.Parallel()
	r := rng.New(1, "whole")
	var sum whole.Number
	exact := new(big.Float).SetPrec(400)
	for range 10_000 {
		v := math.RoundToEven(r.NormFloat64()*math.Pow(2, float64(r.IntN(46)))/whole.Step) * whole.Step
		sum.Add(whole.Round(v))
		exact.Add(exact, big.NewFloat(v))
		want, _ := exact.Float64()
		if got := sum.Float(); math.Abs(got-want) > 1e-15*math.Abs(want)+whole.Step {
			t.Fatalf("%v, exactly %v", got, want)
		}
		if back := whole.Read(whole.Append(nil, []whole.Number{sum})); back[0] != sum {
			t.Fatalf("%v reads back as %v", sum, back[0])
		}
	}
	if got, want := (whole.Number{High: math.MinInt64}).Float(), -math.Ldexp(1, 87); got != want {
		t.Errorf("the smallest number is %v, want %v", got, want)
	}
}

func FuzzPart(f *testing.F) {
	few := merged(f, nil, madeMoments(f, 1, 20, federate.Int8), madeMoments(f, 2, 9, federate.Single))
	f.Add(few)
	f.Add(merged(f, nil, made(f, 1, federate.Int8)))
	p := must.Get(Decode(few, federate.Expect{}))(f)
	// With sums, which take thousands of clients in earnest.
	m := Merger{Trust: true, part: p, fresh: map[[half]byte]entry{}}
	p.limit = bytes.Clone(p.Kept[1].key[:])
	must.Do(f, m.below())
	f.Add(must.Get(p.Encode())(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m serverpb.Part
		if proto.Unmarshal(data, &m) == nil && len(data) < 1<<16 { // else all end at the checksum
			m.Checksum = checksum(&m)
			data, _ = proto.Marshal(&m)
		}
		p, err := Decode(data, federate.Expect{})
		if err != nil {
			return
		}
		q := must.Get(Decode(must.Get(p.Encode())(t), federate.Expect{}))(t)
		set, w := q.Rest()
		var numbers []float32
		if set != nil {
			numbers = slices.Concat(set.Z, set.W)
		}
		if w != nil {
			numbers = append(numbers, w.Data...)
		}
		for _, v := range numbers {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				t.Fatalf("the rest holds %v", v)
			}
		}
		merger := Merger{Trust: true}
		if err := merger.AddPart(q); err != nil {
			return // it keeps too much beside what it sums
		}
		must.Fail(merger.AddPart(p))(t, "", "a part is merged twice")
	})
}

// TestDofOfCalibration: a calibration point adds a degree of freedom to the sums, unless it is the
// first image of its class.
func TestDofOfCalibration(t *testing.T) {
	t.Parallel()
	means := &point.Set{N: 1, Dx: 2, C: 3, Z: []float32{0.1, 0.2}, W: []float32{5}, Y: []int32{0}}
	for _, v := range []struct {
		labels []int
		want   float64
	}{{nil, 4}, {[]int{0}, 5}, {[]int{1}, 4}, {[]int{1, 0, 1, 2}, 6}} {
		w := &moments.Within{K: 2, Rank: 1, Data: []float32{0.1, 0.1}, Dof: 4, Labels: v.labels,
			Calibration: make([]float32, 2*len(v.labels))}
		p := &Part{Dx: 2, C: 3, Moments: true, sums: make([]whole.Number, sizeOf(2, 3, true))}
		p.addMeans(&federate.Upload{Points: means, Within: w}, 1, (*whole.Number).Add)
		if got := p.dof.Float(); got != v.want {
			t.Errorf("calibration points of classes %v: %v degrees of freedom, want %v",
				v.labels, got, v.want)
		}
	}
}

// TestCheck: an upload that the round's client graph does not make is refused by itself, the first
// too, and nothing of it stays.
func TestCheck(t *testing.T) {
	m := Merger{Trust: true, Check: func(u *federate.Upload) error {
		if u.Within == nil {
			return errors.New("no moments")
		}
		return nil
	}}
	if err := m.Add(made(t, 0, federate.Single)); err == nil || m.Part() != nil {
		t.Errorf("the first upload has no moments: %v, part %v", err, m.Part())
	}
	for i := 1; i < 3; i++ {
		must.Do(t, m.Add(madeMoments(t, i, 20, federate.Single)))
	}
	if n := m.Part().Clients(); n != 2 {
		t.Errorf("%d clients are in; want 2", n)
	}
	// One that a part keeps whole is not summed either.
	kept := Merger{Trust: true}
	must.Do(t, kept.Add(made(t, 0, federate.Single)))
	m = Merger{Trust: true, Limit: make([]byte, 32), Check: m.Check}
	must.Fail(0, m.AddPart(kept.Part()))(t, "no moments")
	if p := m.Part(); p.Clients() != 0 || p.Summed != 0 {
		t.Errorf("%d clients are in, %d summed; want none", p.Clients(), p.Summed)
	}
}
