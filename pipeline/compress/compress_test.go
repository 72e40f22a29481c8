package compress

import (
	"context"
	"math"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

func newCompressor(t *testing.T, dx, c, s int) *Compressor {
	t.Helper()
	e := orttest.New(t)
	m := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: dx, C: c, Size: s}, 3))(t)
	k := must.Get(New(e, m))(t)
	t.Cleanup(func() { k.Close() })
	return k
}

func client(n, dx, c int) *point.Set {
	r := rng.New(1, "client", n)
	s := point.New(n, dx, c)
	for i := range n {
		rng.Normal(r, s.Row(i)[:dx])
		s.Row(i)[dx+r.IntN(c)] = 1
	}
	return s
}

// TestCompress: uploads have the manifest's size, masses that sum to the client's, and do not
// depend on the clients beside it (padding).
func TestCompress(t *testing.T) {
	t.Parallel()
	const dx, c, s = 16, 5, 7
	var clients []*point.Set
	for n := range 2*batchSize + 3 {
		clients = append(clients, client(1+n%40, dx, c))
	}
	k := newCompressor(t, dx, c, s)
	got := must.Get(k.Compress(context.Background(), clients))(t)
	if len(got) != len(clients) {
		t.Fatalf("%d uploads of %d clients", len(got), len(clients))
	}
	for i, u := range got {
		if u.N != s || u.Dx != dx || u.C != c || math.Abs(u.Mass()-clients[i].Mass()) > 1e-4 {
			t.Fatalf("upload %d has %d points, dx %d, %d classes, mass %v; the client's mass is %v",
				i, u.N, u.Dx, u.C, u.Mass(), clients[i].Mass())
		}
	}
	for _, i := range []int{0, 20, len(clients) - 1} {
		alone := must.Get(k.Compress(context.Background(), clients[i:i+1]))(t)
		for j, v := range alone[0].Z {
			if math.Abs(float64(v-got[i].Z[j])) > 1e-5 {
				t.Fatalf("client %d alone gives %v at %d, among others %v", i, v, j, got[i].Z[j])
			}
		}
	}
	again := must.Get(k.Compress(context.Background(), clients))(t)
	if !cmp.Equal(got, again) {
		t.Error("a second call gives other uploads")
	}
}

func TestCompressErrors(t *testing.T) {
	t.Parallel()
	k := newCompressor(t, 4, 3, 3)
	bad := client(5, 4, 3)
	bad.Z[1] = float32(math.Inf(1))
	for _, c := range []struct {
		want    string
		clients []*point.Set
	}{
		{"client 1 has no points", []*point.Set{client(5, 4, 3), point.New(0, 4, 3)}},
		{"dx 5", []*point.Set{client(5, 5, 3)}},
		{"out of range", []*point.Set{bad}},
	} {
		must.Fail(k.Compress(context.Background(), c.clients))(t, c.want)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	must.Fail(k.Compress(cancelled, []*point.Set{client(5, 4, 3)}))(
		t, "",
		"a cancelled call compressed")

}

// TestManyClasses: class means of many classes are those of few, with a class's number each, and
// take no table of classes by classes.
func TestManyClasses(t *testing.T) {
	const dx, c, many = 6, 5, 10_000
	open := func(classes int) *Compressor {
		k := must.Get(New(orttest.New(t), must.Get(models.ClassMeansEmbedding(dx, classes, 2))(t)))(t)
		t.Cleanup(func() { k.Close() })
		return k
	}
	few := client(40, dx, c)
	few.W[3] = 0.5
	features, labels := few.Labelled()
	wide := &point.Set{N: few.N, Dx: dx, C: many, Z: features, W: few.W}
	for _, y := range labels {
		wide.Y = append(wide.Y, int32(y)*2000)
	}
	want := must.Get(open(c).Compress(t.Context(), []*point.Set{few}))(t)[0]
	k := open(many)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := must.Get(k.Compress(t.Context(), []*point.Set{wide, wide}))(t)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("two clients take %d MB", took>>20)
	}
	for _, u := range got {
		if u.N != c || u.Dx != dx || u.C != many {
			t.Fatalf("%d points of %d numbers and %d classes", u.N, u.Dx, u.C)
		}
		for i, y := range u.Y {
			if int(y) != 2000*i || u.W[i] != want.W[i] {
				t.Errorf("point %d is of class %d with mass %v; want mass %v", i, y, u.W[i], want.W[i])
			}
			for j, v := range u.Features(i) {
				if math.Abs(float64(v-want.Features(i)[j])) > 1e-6 {
					t.Fatalf("number %d of class %d is %v; of few classes %v", j, y, v, want.Features(i)[j])
				}
			}
		}
	}
}
