package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"fmp/assets/assetstest"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/privacy"
)

// images is a source of drawn images with labels in turn.
type images struct {
	n, at, classes int
}

func (s *images) Len() int     { return s.n }
func (s *images) Close() error { return nil }

func (s *images) Next(_ context.Context, dst []uint8) (imagefile.Item, error) {
	r := rng.New(1, "image", s.at)
	for i := range dst {
		dst[i] = uint8(r.UintN(256))
	}
	s.at++
	return imagefile.Item{Label: (s.at - 1) % s.classes, Digest: [32]byte{byte(s.at)}}, nil
}

// graphs returns the digits' client graphs of a plain and a private round, with nodes put between
// the extractor and what follows, from "honest" to "features".
func graphs(t *testing.T, nodes ...*onnx.Node) (plain, private *Client) {
	t.Helper()
	open := func(m *onnx.Model) *Client {
		if len(nodes) > 0 {
			g := m.Graph
			at := slices.IndexFunc(g.Nodes,
				func(n *onnx.Node) bool { return n.Outputs[0] == "features" })
			g.Nodes[at].Outputs[0] = "honest"
			for i, n := range nodes {
				n = onnx.CloneNode(n)
				n.Name = "added" + string(rune('a'+i))
				g.Nodes = slices.Insert(g.Nodes, at+1+i, n)
			}
			g.Values = nil
		}
		return must.Get(New(m, must.Get(models.ReadManifest(m))(t), 1))(t)
	}
	m, _ := assetstest.Load(t, "digits", models.KindClient)
	p := must.Get(serde.Unmarshal(assetstest.PrivateClient(t)))(t)
	return open(m), open(p)
}

// TestBlocks: in a plain round an extractor that lets images of a block move each other's rows is
// refused; in a private one it changes nothing.
func TestBlocks(t *testing.T) {
	plain, _ := graphs(t)
	var told []int
	set, n, left, err := plain.Points(t.Context(), &images{n: 21, classes: 10},
		Options{Progress: func(done, total int) { told = append(told, done, total) }})
	if k := len(told); k < 4 || told[0] >= 21 || told[k-2] != 21 || told[k-1] != 21 {
		t.Errorf("progress is told %v of 21 images", told)
	}
	if err != nil || n != 21 || len(left) != 0 || set.N != 10 || plain.Zeros != 0 {
		t.Fatalf("%d images, %v left, %v", n, left, err)
	}
	mixed, private := graphs(t,
		&onnx.Node{Op: "ReduceMean", Inputs: []string{"honest"}, Outputs: []string{"mean"},
			Attrs: []onnx.Attr{onnx.IntsAttr("axes", 0), onnx.BoolAttr("keepdims", true)}},
		&onnx.Node{Op: "Add", Inputs: []string{"honest", "mean"}, Outputs: []string{"features"}},
	)
	must.Fail(mixed.Points(t.Context(), &images{n: 21, classes: 10}, Options{}))(t, "beside other images")
	all, _ := must.Get2(private.Coordinates(t.Context(), &images{n: 21, classes: 10}, Options{}))(t)
	first, _, err := private.Coordinates(t.Context(), &images{n: 1, classes: 10}, Options{})
	if err != nil || !slices.Equal(first.W, all.W[:len(first.W)]) {
		t.Errorf("an image has coordinates %v alone and %v before others, %v", first.W,
			all.W[:len(first.W)], err)
	}
}

// TestZeros: images of which a graph makes no finite numbers count as rows of zeros, in blocks,
// alone, and where the run fails.
func TestZeros(t *testing.T) {
	// NaN wherever a feature is below 0
	log := &onnx.Node{Op: "Log", Inputs: []string{"honest"}, Outputs: []string{"features"}}
	plain, private := graphs(t, log)
	const n = 19
	set, _, _, err := plain.Points(t.Context(), &images{n: n, classes: 10}, Options{})
	if err != nil || plain.Zeros != n || !finite(set.Z) || math.Abs(set.Mass()-n) > 1e-3 {
		t.Errorf("%d images of zeros, %v", plain.Zeros, err)
	}
	l, _, err := private.Coordinates(t.Context(), &images{n: n, classes: 10}, Options{})
	if err != nil || len(l.Labels) != n || private.Zeros != n ||
		slices.ContainsFunc(l.W, func(v float32) bool { return v != 0 }) {
		t.Errorf("%d images of zeros, %v", private.Zeros, err)
	}
}

// sent are the messages, one or two, that a client sends about its coordinates.
func sent(t *testing.T, c *Client, l *Labelled, b privacy.Budget) (data [][]byte) {
	t.Helper()
	messages := []*federate.Release{must.Get(c.Release(l, b, "a", 1))(t)}
	if b.Noise == privacy.TwoServers {
		messages = must.Get(messages[0].Split(rand.Reader))(t)
	}
	for _, r := range messages {
		data = append(data, must.Get(r.Encode())(t))
	}
	return data
}

// TestDigestTellsNothing: two messages of the same images differ, whoever adds the noise, so that a
// digest, which is published, is no test of images that somebody has.
func TestDigestTellsNothing(t *testing.T) {
	_, private := graphs(t)
	private.Manifest.Digest = strings.Repeat("07", 32)
	l, _ := must.Get2(private.Coordinates(t.Context(), &images{n: 9, classes: 10}, Options{}))(t)
	for _, noise := range privacy.Sources {
		b := privacy.Budget{Epsilon: 20, Delta: 1e-2, Unit: privacy.Example, Relation: privacy.AddRemove,
			Noise: noise, Points: 9}
		digests := map[string]bool{}
		for range 2 {
			for _, data := range sent(t, private, l, b) {
				digests[models.DigestBytes(data)] = true
			}
		}
		want := 2
		if noise == privacy.TwoServers {
			want = 4
		}
		if len(digests) != want {
			t.Errorf("noise %s: %d digests of %d messages", noise, len(digests), want)
		}
	}
}

// damaged is drawn images of which one cannot be read.
type damaged struct{ images }

func (s *damaged) Next(ctx context.Context, dst []uint8) (imagefile.Item, error) {
	item, err := s.images.Next(ctx, dst)
	if s.at == 8 {
		err = &imagefile.BadImage{Err: errors.New("bad")}
	}
	return item, err
}

// TestEveryNumberAnswers: a private upload is made of any number of images, beyond the round's too,
// and beside one that cannot be read. Neither tells so of an image.
func TestEveryNumberAnswers(t *testing.T) {
	_, private := graphs(t)
	private.Manifest.Digest = strings.Repeat("07", 32)
	for _, noise := range privacy.Sources {
		for _, unit := range privacy.Units {
			l, bad := must.Get2(private.Coordinates(t.Context(), &damaged{images{n: 30, classes: 3}}, Options{}))(t)
			if len(bad) != 1 || len(l.Labels) != 29 {
				t.Fatalf("%d images, %d left out", len(l.Labels), len(bad))
			}
			b := privacy.Budget{Epsilon: 20, Delta: 1e-2, Unit: unit, Relation: privacy.AddRemove,
				Noise: noise, Points: 1}
			sent(t, private, l, b)
		}
	}
}

// TestTinyNumbers: in a private round numbers below the normal range count as zeros, where the
// processor can; a plain round has the numbers that every processor has.
func TestTinyNumbers(t *testing.T) {
	scale := func(in, out string, by float32) []*onnx.Node {
		return []*onnx.Node{{Op: "Constant", Outputs: []string{out + "by"},
			Attrs: []onnx.Attr{onnx.TensorAttr("value", onnx.Scalar(by))}},
			{Op: "Mul", Inputs: []string{in, out + "by"}, Outputs: []string{out}}}
	}
	var nodes []*onnx.Node
	for i, by := range []float32{1e-30, 1e-12, 1e30, 1e12} { // 1e-42 between
		in, out := fmt.Sprint("scaled", i-1), fmt.Sprint("scaled", i)
		if i == 0 {
			in = "honest"
		}
		if i == 3 {
			out = "features"
		}
		nodes = append(nodes, scale(in, out, by)...)
	}
	plain, private := graphs(t, nodes...)
	pixels := make([]uint8, plain.Fit.Size())
	for i := range pixels {
		pixels[i] = uint8(i)
	}
	some := func(c *Client) bool {
		return slices.ContainsFunc(c.row(pixels), func(v float32) bool { return v != 0 })
	}
	flushes := runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"
	if !some(plain) || some(private) == flushes {
		t.Errorf(
			"numbers that were below the normal range are there: %v in a plain round, %v in a private one",
			some(plain), some(private))
	}
}

// TestAtLeast: classes of too few images are left out of a plain upload and named; a private one
// refuses to look.
func TestAtLeast(t *testing.T) {
	plain, private := graphs(t)
	set, n, left, err := plain.Points(t.Context(), &images{n: 13, classes: 10}, Options{AtLeast: 2})
	if err != nil || n != 6 || set.N != 3 || len(left) != 7 ||
		!strings.Contains(left[0].Error(), "class 3, of which there are 1 images") {
		t.Errorf("%d images of %d classes, left out %v, %v", n, set.N, left, err)
	}
	must.Fail(plain.Points(t.Context(), &images{n: 13, classes: 10}, Options{AtLeast: 3}))(
		t, "", "an upload of no class")
	must.Fail(private.Coordinates(t.Context(), &images{n: 13, classes: 10}, Options{AtLeast: 2}))(
		t, "tell of single ones")
	must.Fail(plain.Coordinates(t.Context(), &images{n: 3, classes: 10}, Options{}))(
		t, "", "coordinates of a plain round's graph")
}

// TestAtLeastLeft: calibration points come from classes that have as many other images as are
// wanted; a mean is of no fewer.
func TestAtLeastLeft(t *testing.T) {
	plain, _ := graphs(t)
	for _, c := range []struct{ n, classes, atLeast, points int }{
		{50, 10, 5, 0}, {50, 10, 4, 6}, {50, 10, 1, 10}, {53, 10, 5, 2}, {10, 5, 2, 0}, {40, 2, 19, 2}} {
		u, _ := must.Get2(plain.Upload(t.Context(), &images{n: c.n, classes: c.classes},
			Options{AtLeast: c.atLeast, Calibrate: 10, Secret: &Secret{1}}, "a"))(t)
		points := 0
		if u.Calibration != nil {
			points = u.Calibration.N
		}
		if points != c.points {
			t.Errorf("%d calibration points; want %+v", points, c)
		}
		for _, w := range u.Points.W {
			if float64(w) < float64(c.atLeast)-0.01 {
				t.Errorf("%+v: a mean of %v images", c, w)
			}
		}
	}
	// Images that are equal stay together, also of two classes of which one has others.
	equal, labels := make([][32]byte, 25), make([]int, 25)
	for i := range equal {
		equal[i], labels[i] = [32]byte{byte(i / 2)}, i%2
		if i >= 20 {
			equal[i], labels[i] = [32]byte{byte(i)}, 1
		}
	}
	for at := 2; at <= 10; at++ {
		chosen := (&Secret{1}).choose(equal, labels, 4, at)
		for i := 0; i < 20; i += 2 {
			if chosen[i] != chosen[i+1] || chosen[i] && at > 9 {
				t.Errorf("at least %d: images %d and %d: %v", at, i, i+1, chosen)
			}
		}
	}
}

const one, two = "1111111111111111111111111111111111111111111111111111111111111111",
	"2222222222222222222222222222222222222222222222222222222222222222"

// TestApproved: nothing is approved by being asked about; what is approved for a scope holds in it
// alone, what is approved everywhere in all, and no name is the word for everywhere.
func TestApproved(t *testing.T) {
	a := Approved{filepath.Join(t.TempDir(), "fmp", "approved")}
	for i, c := range []struct {
		digest, scope, add string
		approved           bool
		other              string
	}{{one, "here", "here", false, ""}, {one, "here", "", true, ""}, {two, "here", "", false, one},
		{two, "here", "", false, one}, {one, "there", "there", false, ""},
		{two, "a\nb", "a\nb", false, ""}, {two, "a b", "", true, ""}, {one, "*", Everywhere, false, ""},
		{one, "elsewhere", "", true, ""}, {two, "elsewhere", "", false, ""}} {
		s, err := a.Find(c.digest, c.scope)
		if err != nil || s.Approved != c.approved || s.Other != c.other {
			t.Errorf("%d: %+v, %v; want %+v", i, s, err, c)
		}
		if c.add != "" {
			must.Do(t, a.Add(c.digest, c.add))
		}
	}
}

// TestSecret: the secret is made once and kept to its owner; which images it chooses depends on it
// and on nothing else, equal images stay together, and a graph has no say.
func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fmp", "calibration.key")
	s := must.Get(LoadSecret(path))(t)
	if again, err := LoadSecret(path); err != nil || *again != *s {
		t.Errorf("the secret again: %v", err)
	}
	if other, err := LoadSecret(path + "2"); err != nil || *other == *s {
		t.Errorf("another secret: %v", err)
	}
	var all sync.WaitGroup
	var made [8]*Secret
	for i := range made { // of one that several make at once there is one
		all.Go(func() { made[i], _ = LoadSecret(path + "4") })
	}
	all.Wait()
	for i, m := range made {
		if m == nil || *m != *made[0] {
			t.Errorf("secret %d of those made at once is %v; want %v", i, m, made[0])
		}
	}
	var digests [][32]byte
	for i := range 50 {
		digests = append(digests, [32]byte{byte(i)})
	}
	chosen, other := s.choose(digests, nil, 10, 1), (&Secret{1}).choose(digests, nil, 10, 1)
	if slices.Equal(chosen, other) {
		t.Error("two secrets choose the same images")
	}
	for i, c := range chosen { // an image is chosen or not, whatever stands beside it twice
		twice := s.choose(append(slices.Clone(digests), digests[i]), nil, 10, 1)
		if twice[i] != twice[50] {
			t.Errorf("of equal images one is chosen (%v)", c)
		}
	}
	must.Do(t, os.Chmod(path, 0o644))
	if _, err := LoadSecret(path); err == nil && runtime.GOOS != "windows" {
		t.Error("a secret that all may read")
	}
	must.Do(t, os.WriteFile(path+"3", []byte("short"), 0o600))
	must.Fail(LoadSecret(path+"3"))(t, "", "a short secret")
}

// TestNoPoints: an upload has no calibration points unless so many are granted, and no choice is
// made without a secret. Another extractor behind the same images gets the same ones.
func TestNoPoints(t *testing.T) {
	plain, _ := graphs(t)
	negated, _ := graphs(t, &onnx.Node{Op: "Neg", Inputs: []string{"honest"},
		Outputs: []string{"features"}})
	u, _, err := plain.Upload(t.Context(), &images{n: 50, classes: 10}, Options{}, "a")
	if err != nil || u.Calibration != nil || u.N != 50 {
		t.Fatalf("%+v, %v", u, err)
	}
	must.Fail(plain.Upload(t.Context(), &images{n: 50, classes: 10}, Options{Calibrate: 5}, "a"))(
		t, "", "points without a secret")
	var labels [][]int32
	for _, c := range []*Client{plain, negated} {
		u, _, err := c.Upload(t.Context(), &images{n: 50, classes: 10},
			Options{Calibrate: 5, Secret: &Secret{7}}, "a")
		if err != nil || u.Calibration == nil || u.Calibration.N != 5 || u.N != 45 {
			t.Fatalf("%+v, %v", u, err)
		}
		labels = append(labels, u.Calibration.Y)
	}
	if !slices.Equal(labels[0], labels[1]) {
		t.Errorf("two extractors get points of the classes %v and %v", labels[0], labels[1])
	}
}

// FuzzApproved: a file of approved extractors is an error, or lines that are read again as they
// were.
func FuzzApproved(f *testing.F) {
	f.Add(string(line(one, "client \"a\" at https://server:8443")) + "# a comment\n\n" +
		string(line(two, Everywhere)))
	f.Add("1111 now here\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseApproved(text)
		if err != nil {
			return
		}
		again := ""
		for _, p := range all {
			again += p.digest + " " + p.when + " " + p.scope + "\n"
		}
		back, err := parseApproved(again)
		if err != nil || !slices.Equal(back, all) {
			t.Fatalf("%v came back as %v, %v", all, back, err)
		}
	})
}

// TestBombs: a client graph whose extractor takes much memory or work is refused before an image is
// read, by the node.
func TestBombs(t *testing.T) {
	ints := func(v ...int64) onnx.Attr { return onnx.TensorAttr("value", onnx.Vector(v...)) }
	node := func(op, in, out string, attrs ...onnx.Attr) *onnx.Node {
		return &onnx.Node{Op: op, Inputs: strings.Fields(in), Outputs: []string{out}, Attrs: attrs}
	}
	for name, c := range map[string]struct {
		nodes []*onnx.Node
		want  string
	}{
		"a product": {[]*onnx.Node{node("Constant", "", "side", ints(1, 12_000, 12_000)),
			node("Expand", "one side", "wide"), node("MatMul", "wide wide", "product"),
			node("ReduceMean", "product", "all", onnx.BoolAttr("keepdims", true)),
			node("Constant", "", "axis", ints(0)), node("Squeeze", "all axis", "flat"),
			node("Add", "honest flat", "features")}, "multiply-adds"},
		"a long line": {[]*onnx.Node{node("Constant", "", "line", ints(1, 300_000_000)),
			node("Expand", "one line", "wide"),
			node("ReduceMean", "wide", "all", onnx.BoolAttr("keepdims", true)),
			node("Add", "honest all", "features")}, "MiB of memory"},
	} {
		m, f := assetstest.Load(t, "digits", models.KindClient)
		g := m.Graph
		at := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Outputs[0] == "features" })
		g.Nodes[at].Outputs[0] = "honest"
		one := node("ReduceMean", "honest", "one", onnx.BoolAttr("keepdims", true))
		g.Nodes, g.Values = slices.Insert(g.Nodes, at+1, append([]*onnx.Node{one}, c.nodes...)...), nil
		if _, err := New(m, f, 1); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "not run") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestChunk: images whose values leave a core's caches go through the extractor one at a time.
func TestChunk(t *testing.T) {
	for _, row := range []struct{ side, channels, want int }{
		{28, 1, 8}, {32, 3, 8}, {64, 3, 5}, {96, 3, 2}, {128, 3, 1}, {224, 3, 1}, {1024, 3, 1},
	} {
		c := &Client{Fit: imagefile.Fit{H: row.side, W: row.side, Ch: row.channels}}
		if got := c.chunk(); got != row.want {
			t.Errorf("%d images of %d x %d x %d, want %d", got, row.side, row.side, row.channels, row.want)
		}
	}
}

// TestCurves: uploads of moments bring the curves of the client's images, the same for the same
// images; those of too few bring none, and nor do other uploads.
func TestCurves(t *testing.T) {
	c, _ := behindPixels(t, must.Get(models.MomentsEmbedding(models.MomentsConfig{Dx: 6, C: 3, Bytes: 1 << 16}))(t))
	upload := func(c *Client, n int) *federate.Upload {
		t.Helper()
		u, _ := must.Get2(c.Upload(t.Context(), &images{n: n, classes: 3}, Options{}, "a"))(t)
		return must.Get(federate.Decode(must.Get(u.Encode())(t), federate.Expect{}))(t)
	}
	first := upload(c, 30)
	if first.Curve == nil || first.Curve.Curve[10] == 0 {
		t.Errorf("curve of 30 images: %v", first.Curve)
	}
	if again := upload(c, 30); !reflect.DeepEqual(again, first) {
		t.Error("the same images give another upload")
	}
	if few := upload(c, 7); few.Curve != nil {
		t.Error("classes of two images have a curve")
	}
	plain, _ := graphs(t)
	if u, _, err := plain.Upload(t.Context(), &images{n: 40, classes: 10}, Options{},
		"a"); err != nil || u.Curve != nil {
		t.Errorf("class means with a curve, %v", err)
	}
}

// behindPixels returns the client of an embedding of six features, the pixels themselves, and its
// graph.
func behindPixels(t *testing.T, e *onnx.Model) (*Client, *onnx.Model) {
	t.Helper()
	return behindWeighed(t, e, 1, 1, 1, 1, 1, 1)
}

// behindWeighed returns the client of an embedding of two rows of pixels times weights, and its graph.
func behindWeighed(t *testing.T, e *onnx.Model, weights ...float32) (*Client, *onnx.Model) {
	t.Helper()
	ef, dx := must.Get(models.ReadManifest(e))(t), len(weights)
	b := build.New("extractor")
	pixels := b.Reshape(b.Input("image", onnx.Float32, "n", 1, 2, dx/2), -1, dx)
	b.Output("h", b.Mul(pixels, b.Param("weights", onnx.NewTensor(weights, dx))))
	x := must.Get(b.Model())(t)
	g := must.Get(models.ClientGraph(x, models.Manifest{Digest: "x"}, e, ef, models.Preprocessing{Height: 2,
		Width: dx / 2, Channels: 1, Mean: []float32{0.5}, Std: []float32{0.25}}))(t)
	f := must.Get(models.ReadManifest(g))(t)
	f.Digest = must.Get(models.Digest(g))(t)
	return must.Get(New(g, f, 1))(t), g
}

// TestHeavyFeature: a client of moments, on a basis too, knows of the feature that drowns the others.
func TestHeavyFeature(t *testing.T) {
	basis := onnx.ZerosF32(16, 2)
	rng.Normal(rng.New(1, "basis"), basis.F32())
	for name, b := range map[string]*onnx.Tensor{"all": nil, "basis": basis} {
		for _, times := range []float32{1, 1000} {
			e := must.Get(models.MomentsEmbedding(models.MomentsConfig{Dx: 16, C: 3, Bytes: 1 << 16, Basis: b}))(t)
			weights := slices.Repeat([]float32{1}, 16)
			weights[5] = times
			c, _ := behindWeighed(t, e, weights...)
			must.Get2(c.Upload(t.Context(), &images{n: 30, classes: 3}, Options{}, "a"))(t)
			if h := c.Heavy; h.Share > 0 != (times > 1) || h.Share > 0 && h.Feature != 5 {
				t.Errorf("%s, one feature times %v: %+v", name, times, h)
			}
		}
	}
}

// meanEmbeddings returns embeddings of class means of six features, by name.
func meanEmbeddings(t *testing.T, classes int) map[string]*onnx.Model {
	t.Helper()
	basis := onnx.ZerosF32(6, 2)
	rng.Normal(rng.New(1, "basis"), basis.F32())
	moments := models.MomentsConfig{Dx: 6, C: classes, Bytes: 1 << 20}
	all := must.Get(models.MomentsEmbedding(moments))(t)
	moments.Basis = basis
	return map[string]*onnx.Model{
		"moments": all, "moments on a basis": must.Get(models.MomentsEmbedding(moments))(t),
		"class means": must.Get(models.ClassMeansEmbedding(6, classes, 2))(t),
	}
}

// TestClassByClass: class means have the bits that the whole client graph gives.
func TestClassByClass(t *testing.T) {
	const n = 50
	for _, c := range []int{2, 7, 40} {
		for name, e := range meanEmbeddings(t, c) {
			t.Run(fmt.Sprintf("%s of %d classes", name, c), func(t *testing.T) {
				cl, g := behindPixels(t, e)
				s := must.Get(must.Get(pure.New(engine.Options{Threads: 1, Reproducible: true}))(t).Load(g))(t)
				src := &images{n: n, classes: min(7, c)}
				pixels, labels := make([]uint8, n*6), make([]int64, n)
				for i := range labels {
					item := must.Get(src.Next(t.Context(), pixels[i*6:(i+1)*6]))(t)
					labels[i] = int64(item.Label)
				}
				out := must.Get(engine.Eval(s, map[string]*onnx.Tensor{
					"images": onnx.NewTensor(pixels, n, 2, 3, 1), "labels": onnx.NewTensor(labels, n)},
					"points", "masses"))(t)
				want := must.Get(Set(out["points"], out["masses"], cl.Manifest))(t)
				got, _, _, err := cl.Points(t.Context(), &images{n: n, classes: min(7, c)}, Options{})
				must.Do(t, err)
				if got = got.Dense(); !reflect.DeepEqual(got, want) {
					t.Errorf("class by class %v, all at once %v", got, want)
				}
			})
		}
	}
}

// TestManyClasses: an upload of 10,000 classes takes memory for its images and the names of classes,
// not for a table of them.
func TestManyClasses(t *testing.T) {
	const n = 2000
	for name, e := range meanEmbeddings(t, 10_000) {
		c, _ := behindPixels(t, e)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		u, _ := must.Get2(c.Upload(t.Context(), &images{n: n, classes: 1000}, Options{}, "a"))(t)
		runtime.ReadMemStats(&after)
		if u.Points.N != 1000 || u.Points.Y == nil {
			t.Errorf("%s: %d points, dense %v", name, u.Points.N, u.Points.Y == nil)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 40<<20 {
			t.Errorf("%s: %d images of 10,000 classes take %d MB", name, n, took>>20)
		}
	}
}

// shown is an image of a source, by what draws its pixels, its class and its file.
type shown struct{ pixels, label, file int }

// listed is a source of images in a list.
type listed struct {
	list []shown
	at   int
}

func (s *listed) Len() int     { return len(s.list) }
func (s *listed) Close() error { return nil }

func (s *listed) Next(ctx context.Context, dst []uint8) (imagefile.Item, error) {
	one := s.list[s.at]
	s.at++
	item, err := (&images{at: one.pixels, classes: 1}).Next(ctx, dst)
	item.Label, item.Digest = one.label, [32]byte{byte(one.file), 1}
	return item, err
}

// TestCopies: copies of an image within its class change nothing but the number of copies that is
// told, in whatever order they come. Equal images of two classes are two, which are points or not
// together, whatever their files. In a private round copies are
// of one file, under whatever labels.
func TestCopies(t *testing.T) {
	var once, again, scattered, others, before, labels, three, apart []shown
	for i := range 40 {
		one := shown{i, i % 2, i}
		once = append(once, one)
		again = append(again, one, one, one)
		others = append(others, one, shown{i, i % 2, 100 + i})
		before = append(before, shown{i, i % 2, 100 + i}, one)
		labels = append(labels, one, shown{i, 1 - i%2, i})
		three = append(three, shown{i, i % 2, 100 + i}, one, shown{i, 1 - i%2, 100 + i})
		apart = append(apart, shown{i, i % 2, 100 + i}, shown{i, 1 - i%2, i})
	}
	scattered = slices.Concat(once, once, once[5:9])
	m := must.Get(models.MomentsEmbedding(models.MomentsConfig{Dx: 6, C: 10, Bytes: 1 << 20}))(t)
	moments, _ := behindPixels(t, m)
	plain, private := graphs(t)
	for name, c := range map[string]struct {
		list            []shown
		n, privately    int // that count
		atLeast, points int
	}{
		"none":                {once, 40, 40, 1, 8},
		"each thrice":         {again, 40, 40, 1, 8},
		"folders again":       {scattered, 40, 40, 1, 8},
		"copies of none":      {again[:3], 1, 1, 1, 0},
		"other files":         {others, 40, 80, 1, 8},
		"other files before":  {before, 40, 80, 1, 8},
		"two labels":          {labels, 80, 40, 1, 10},
		"two labels, a copy":  {three, 80, 80, 1, 10},
		"a file a label":      {apart, 80, 80, 1, 10},
		"few, but for copies": {append(again[:9:9], again[3:9]...), 2, 3, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, cl := range map[string]*Client{"moments": moments, "class means": plain} {
				o := Options{AtLeast: c.atLeast, Calibrate: 10, Secret: &Secret{1}}
				u, _ := must.Get2(cl.Upload(t.Context(), &listed{list: c.list}, o, "a"))(t)
				count, points := u.N, 0
				switch {
				case u.Within != nil:
					points = len(u.Within.Labels)
				case u.Calibration != nil:
					points = u.Calibration.N
				}
				if count += points; count != c.n || points != c.points || cl.Read != len(c.list) {
					t.Errorf("%s of %d images: %d count, %d of them points; want %d and %d", kind, cl.Read, count,
						points, c.n, c.points)
				}
				if like := map[int][]shown{len(once): once, len(labels): labels}[c.n]; like != nil {
					if want, _ := must.Get2(cl.Upload(t.Context(), &listed{list: like}, o, "a"))(t); !reflect.DeepEqual(
						u, want) {
						t.Errorf("%s: copies change the upload", kind)
					}
				}
			}
			l, _ := must.Get2(private.Coordinates(t.Context(), &listed{list: c.list}, Options{}))(t)
			_, _, _, err := plain.Points(t.Context(), &listed{list: c.list}, Options{AtLeast: len(c.list)})
			if says := "copies of others, which do not count"; len(c.list) > 1 &&
				(err == nil || strings.Contains(err.Error(), says) != (len(c.list) > c.n)) {
				t.Errorf("classes of as many images as there are, copies and all: %v", err)
			}
			if len(l.Labels) != c.privately || len(l.Digests) != c.privately ||
				private.Copies != len(c.list)-c.privately {
				t.Errorf("%d images count in a private round, %d are copies; want %d of %d", len(l.Labels),
					private.Copies, c.privately, len(c.list))
			}
		})
	}
}
