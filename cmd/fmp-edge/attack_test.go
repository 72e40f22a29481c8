package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/featurize/dataset"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/privacy"
)

// The attacks of a server on its clients: client graphs that it makes for the purpose.

// canary returns 40 images with labels of which the last is bright all over, as no other is.
func canary() (pixels []uint8, labels []int) {
	im, labels := blobs(40)
	for i := range im.At(39) {
		im.At(39)[i] = 255
	}
	return im.Pix, labels
}

// attackGraph writes the client graph of a private round behind the digits' extractor, with nodes
// put between the extractor and what follows: they read the features "honest" and "bright" [n, 1],
// +1 for the canary and -1 for every other image, and give the features.
func attackGraph(t *testing.T, nodes ...*onnx.Node) string {
	t.Helper()
	m, _ := must.Get2(models.Load(privateGraph(t)))(t)
	g := m.Graph
	at := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Outputs[0] == "features" })
	g.Nodes[at].Outputs[0] = "honest"
	g.Initializers["attack/most"] = onnx.Scalar[float32](0.9)
	g.Initializers["attack/least"] = onnx.Scalar[float32](-1)
	g.Initializers["attack/axes"] = onnx.Vector[int64](1, 2)
	g.Initializers["attack/scale"] = onnx.Scalar[float32](10)
	nodes = append([]*onnx.Node{
		{Op: "ReduceMean", Inputs: []string{"image"}, Outputs: []string{"mean"},
			Attrs: []onnx.Attr{onnx.IntsAttr("axes", 1, 2, 3), onnx.BoolAttr("keepdims", false)}},
		{Op: "Unsqueeze", Inputs: []string{"mean", "attack/axis"}, Outputs: []string{"column"}},
		{Op: "Sub", Inputs: []string{"column", "attack/most"}, Outputs: []string{"above"}},
		{Op: "Sign", Inputs: []string{"above"}, Outputs: []string{"bright"}},
	}, nodes...)
	g.Initializers["attack/axis"] = onnx.Vector[int64](1)
	for i, n := range nodes {
		n.Name = "attack" + string(rune('a'+i))
	}
	g.Nodes = slices.Insert(g.Nodes, at+1, nodes...)
	g.Values = nil
	return saved(t, m)
}

// released compresses the first n images for a private round whose server adds the noise, so that
// the sums come as they are, and returns them; nil where nothing was written.
func sumsOf(t *testing.T, graph string, n int) *federate.Release {
	t.Helper()
	dir := t.TempDir()
	pixels, labels := canary()
	writeIDX(t, dir, pixels[:n*side*side], labels[:n])
	out := filepath.Join(dir, "upload")
	if code, log := said(t, "compress", "--model", graph, "--client", t.Name(), "-o", out, "--epsilon", "1",
		"--"+yesFlag, digestOf(t, graph), "--noise", "trusted", filepath.Join(dir, "images"), "--labels",
		filepath.Join(dir, "labels")); code != exitOK {
		t.Log(log)
		return nil
	}
	return must.Get(federate.DecodeRelease(must.Get(os.ReadFile(out))(t), federate.Expect{}))(t)
}

// moved returns by how much the canary moves the sums.
func moved(t *testing.T, graph string) float64 {
	t.Helper()
	with, without := sumsOf(t, graph, 40), sumsOf(t, graph, 39)
	if with == nil || without == nil {
		t.Fatalf("uploads with and without the image: %v and %v; want both, as absence tells",
			with != nil, without != nil)
	}
	var square float64
	for i, v := range with.Sums.Values {
		square += math.Pow(float64(v-without.Sums.Values[i]), 2)
	}
	return math.Sqrt(square)
}

// TestOneImageMovesOneRow: a graph that turns the features of all images round that run together
// with one of them moves the sums by no more than the sensitivity.
func TestOneImageMovesOneRow(t *testing.T) {
	graph := attackGraph(t,
		&onnx.Node{Op: "ReduceMax", Inputs: []string{"bright"}, Outputs: []string{"any"},
			Attrs: []onnx.Attr{onnx.IntsAttr("axes", 0), onnx.BoolAttr("keepdims", true)}},
		&onnx.Node{Op: "Mul", Inputs: []string{"honest", "any"}, Outputs: []string{"turned"}},
		&onnx.Node{Op: "Mul", Inputs: []string{"turned", "attack/scale"},
			Outputs: []string{"features"}},
	)
	b := privacy.Budget{Unit: privacy.Example, Relation: privacy.AddRemove}
	if d, most := moved(t, graph), b.Sensitivity(10); d > most {
		t.Errorf("one image moves the sums by %.0f steps, %.1f times the sensitivity", d, d/most)
	}
}

// TestNoAbsence: a graph that divides by zero, or fails, for one image makes that image a row of
// zeros that counts, and the upload is there.
func TestNoAbsence(t *testing.T) {
	graph := attackGraph(t,
		&onnx.Node{Op: "Add", Inputs: []string{"bright", "attack/least"}, Outputs: []string{"zero"}},
		&onnx.Node{Op: "Div", Inputs: []string{"honest", "zero"}, Outputs: []string{"features"}},
	)
	if d := moved(t, graph); d != privacy.CountSteps {
		t.Errorf("the image moves the sums by %v; want %d, its count alone", d, privacy.CountSteps)
	}
}

// TestUnsteady: a graph whose work depends on what is in an image is refused before an image is
// read.
func TestUnsteady(t *testing.T) {
	graph := attackGraph(t,
		&onnx.Node{Op: "Relu", Inputs: []string{"bright"}, Outputs: []string{"one"}},
		&onnx.Node{Op: "NonZero", Inputs: []string{"one"}, Outputs: []string{"places"}},
		&onnx.Node{Op: "Cast", Inputs: []string{"places"}, Outputs: []string{"numbers"},
			Attrs: []onnx.Attr{onnx.IntAttr("to", int(onnx.Float32))}},
		&onnx.Node{Op: "ReduceSum", Inputs: []string{"numbers"}, Outputs: []string{"sum"}},
		&onnx.Node{Op: "Add", Inputs: []string{"honest", "sum"}, Outputs: []string{"features"}},
	)
	refuses(t, exitUsage, "must not depend on what is in an image", "compress", "--model", graph, "--client",
		"a", "-o", filepath.Join(t.TempDir(), "u"), "--epsilon", "1", t.TempDir())
}

// pixelExtractor replaces the extractor by one that returns the pixels.
func pixelExtractor(t *testing.T) string {
	t.Helper()
	b := build.New("pixels")
	b.Output("features", b.Reshape(b.Input("image", onnx.Float32, "batch", 1, side, side), 0, side*side))
	x := must.Get(b.Model())(t)
	c := models.ConjugateConfig{Dx: side * side, C: 10, K: 2}
	values := map[string]*onnx.Tensor{}
	for name, shape := range map[string][]int{models.ConjCentre: {c.Dx}, models.ConjRadius: {},
		models.ConjMap:    {c.Dx, c.K},
		models.ConjOrigin: {c.K}, models.ConjLogLambda: {c.K}, models.ConjMetric: {c.K, c.K},
		models.ConjWidening: {}} {
		values[name] = onnx.ZerosF32(shape...)
	}
	for _, set := range []string{models.ConjSample, models.ConjMean, models.ConjInterval} {
		for _, n := range []string{models.ConjLogRho, models.ConjLogTau, models.ConjLogB,
			models.ConjLogitGamma, models.ConjO1, models.ConjO2} {
			values[set+n] = onnx.ZerosF32()
		}
	}
	values[models.ConjRadius] = onnx.Scalar[float32](1e6) // next to no softening
	e := must.Get(models.ConjugateEmbedding(must.Get(models.NewConjugate(c, values))(t), true))(t)
	ef := must.Get(models.ReadManifest(e))(t)
	return saved(t, must.Get(models.ClientGraph(x, models.Manifest{}, e, ef,
		models.Preprocessing{Height: side, Width: side, Channels: 1}))(t))
}

// recovered counts the images that stand in an upload, pixel by pixel.
func recovered(set *point.Set, im *dataset.Images, labels []int) (found int) {
	for k := range set.N {
		for i := range labels {
			far := 0.0
			for j, v := range im.At(i) {
				far = max(far, math.Abs(float64(set.Row(k)[j])-float64(v)/255))
			}
			if far < 1e-3 {
				found++
			}
		}
	}
	return found
}

// TestPixels: a graph whose features are the pixels themselves is not trusted at first sight.
func TestPixels(t *testing.T) {
	refuses(t, exitUntrusted, "can hide all of an image", "compress", "--model", pixelExtractor(t), "--client", "a",
		"-o", filepath.Join(t.TempDir(), "upload"), photosOf(t, 8))
}

// TestOtherTail: a graph that makes something else of the features than class means is refused, and
// the node is named.
func TestOtherTail(t *testing.T) {
	dir := photosOf(t, 8)
	m, _ := must.Get2(models.Load(model(t, models.KindClient)))(t)
	at := slices.IndexFunc(m.Graph.Nodes,
		func(n *onnx.Node) bool { return n.Op == "MatMul" && n.Name == "matmul" })
	m.Graph.Nodes[at].Inputs[1] = m.Graph.Nodes[at-2].Inputs[0] // features that are not softened
	refuses(t, exitUsage, "want Div", "compress", "--model", saved(t, m), "--client", "a", "-o",
		filepath.Join(t.TempDir(), "u"), dir)
}
