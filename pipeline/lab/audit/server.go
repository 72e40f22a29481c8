package audit

import (
	"context"
	"fmt"
	"math"
	"slices"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/pass"
	"fmp/pipeline/client"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/privacy"
)

// Crafted is the attack of a malicious server on one image of a client: a client graph that the
// server makes for the purpose, run by the client's own program. The server knows every image but
// that one, and asks of each release whether it was there. Knowing all other images is the
// adversary of differential privacy itself: a weaker one learns less.
type Crafted struct {
	// Name describes the graph.
	Name string `json:"name"`
	// Refused is why the client does not run the graph; the rest is then empty.
	Refused string `json:"refused,omitempty"`
	// Moved is by how much the image moves the sums before noise, as a multiple of the sensitivity:
	// at most 1.
	Moved float64 `json:"moved"`
	Attack
	Releases int `json:"releases"`
	proof
}

const (
	// beside is the number of images beside the one that is attacked.
	beside = 15
	// perRound is the number of releases attacked for each round of an audit.
	perRound = 50
)

// RunServer attacks a client of a private round as a server does that makes the client graph: with
// the numbers of an approved graph's tail chosen against one image, with extractors that move other
// images' rows, give no number or fail for that image, and with graphs that a client must refuse.
// Seen is the view of one server: in a round with noise of the clients' own a client's release,
// with two servers the sum with the other's noise. A server that is trusted with the noise sees the
// sums as they are, and there is nothing to be audited. Budgets for a whole client are not audited
// here and give no rows. A refusal is a row with its reason, and any other error ends the audit.
func RunServer(ctx context.Context, p *experiment.Prepared, o Options) ([]Crafted, error) {
	c := p.Config
	if c.Privacy.Noise == privacy.Trusted || c.Privacy.Unit != privacy.Example {
		return nil, nil
	}
	b, fuse, err := graphs(p)
	if err != nil {
		return nil, err
	}
	var out []Crafted
	for _, craft := range crafts {
		m, err := fuse(craft.extractor, craft.tail)
		if err == nil && craft.fused != nil {
			craft.fused(m)
		}
		a := Crafted{Name: craft.name, proof: proof{Confidence: confidence}}
		a.Refused, err = attackClient(m, err, c.Engine.Threads,
			func(cl *client.Client) error { return a.run(ctx, cl, b, o) })
		if err != nil {
			return nil, fmt.Errorf("audit: %s: %w", craft.name, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// attackClient attacks a client that has a graph, which was made without an error, or says why the
// client refuses it. An error of making the graph is the audit's own and is returned.
func attackClient(m *onnx.Model, err error, threads int,
	attack func(cl *client.Client) error) (refused string, _ error) {
	if err != nil {
		return "", err
	}
	f, err := manifestOf(m)
	if err != nil {
		return "", err
	}
	cl, err := client.New(m, f, threads)
	if err != nil {
		return err.Error(), nil
	}
	return "", attack(cl)
}

// graphs returns the budget of a private run for an image, and a function that makes its client
// graph with nodes behind the extractor and with another embedding, or without these. A nil tail
// leaves the approved embedding. Graphs that it makes share the extractor's weights, which nobody
// writes.
func graphs(p *experiment.Prepared) (privacy.Budget,
	func(behind, func(*onnx.Model) *onnx.Model) (*onnx.Model, error), error) {
	c := p.Config
	b := *c.Privacy.Budget(c.Federation.Points)
	b.Unit = privacy.Example
	e, err := models.PrivateEmbedding(p.Private, len(p.Manifest.Classes), p.Manifest.Classes)
	if err != nil {
		return b, nil, err
	}
	f, err := models.ReadManifest(e)
	if err != nil {
		return b, nil, err
	}
	x, pre := p.Extractor.Client(nil, nil)
	if p.Stats != nil {
		x, pre = p.Extractor.Client(p.Stats.Mean, p.Stats.Std)
	}
	return b, func(nodes behind, tail func(*onnx.Model) *onnx.Model) (*onnx.Model, error) {
		end := e
		if tail != nil {
			end = tail(e)
		}
		return models.ClientGraph(nodes.put(x, pre), models.Manifest{}, end, f, pre)
	}, nil
}

// run attacks the releases of a client, half of which have the image. With c the change of the sums
// by the image, and y a release less the sums without it, the score is c'y - |c|^2/2. It grows with
// the likelihood ratio of normal noise. The sums are computed twice, with the image and without it,
// and noise is added to copies. With the deviation s of the noise the best attack has d' = |c|/s.
func (a *Crafted) run(ctx context.Context, cl *client.Client, b privacy.Budget, o Options) error {
	var sums [2]*privacy.Release
	for in := range sums {
		l, _, err := cl.Coordinates(ctx, &drawnImages{n: beside + in, classes: cl.Manifest.C,
			draw: func(dst []uint8, at int) { // the last, the one that is attacked, is white
				r := rng.New(o.Seed, "audit", "picture", at)
				for i := range dst {
					if dst[i] = uint8(r.UintN(200)); at == beside {
						dst[i] = 255
					}
				}
			}}, client.Options{})
		if err != nil {
			return err
		}
		if sums[in], err = cl.Sums(l, b); err != nil {
			return err
		}
	}
	var square float64
	change := make([]float64, len(sums[1].Values))
	for i, v := range sums[1].Values {
		change[i] = float64(v - sums[0].Values[i])
		// square becomes |c|^2, the energy that the image adds to the sums.
		square += change[i] * change[i]
	}
	account := b.Spend(cl.Manifest.C, 1)
	a.Moved = math.Sqrt(square) / b.Sensitivity(cl.Manifest.C)
	var guesses []guess
	var scores [2][]float64
	r := rng.New(o.Seed, "audit", "server", a.Name)
	for range o.Rounds * perRound {
		if err := ctx.Err(); err != nil {
			return err
		}
		// A fair coin decides whether the image is among those of this release.
		in := r.IntN(2)
		s := &privacy.Release{Classes: sums[in].Classes, K: sums[in].K,
			Values: slices.Clone(sums[in].Values)}
		if err := s.AddNoise(account.Deviation, rng.Bytes(r)); err != nil {
			return err
		}
		score := -square / 2
		for i, v := range s.Values {
			score += change[i] * float64(v-sums[0].Values[i])
		}
		guesses = append(guesses, guess{score, in == 1})
		scores[in] = append(scores[in], score)
	}
	a.Releases = len(guesses)
	a.count(guesses)
	return a.conclude(&a.proof, scores[1], scores[0], a.Releases, account.Sigma, b.Delta)
}

// craft is a client graph made to attack. A field that is zero changes nothing, so that crafts
// combine.
type craft struct {
	name string
	// extractor is put behind the approved one; none leaves it as it is.
	extractor behind
	// scale multiplies the coordinates' map, 0 leaves it.
	scale float32
	// fused changes the whole graph.
	fused func(m *onnx.Model)
}

// crafts are the rows of an audit, the honest graph first.
var crafts = []craft{
	{name: "the graph as it should be"},
	{name: "an approved extractor, every image at the norm that clips it", scale: 1e4},
	{name: "rows of all images of a call turned by one", scale: 1e4, extractor: behind{
		node("ReduceMax", []string{"white"}, "any", onnx.IntsAttr("axes", 0),
			onnx.BoolAttr("keepdims", true)),
		node("Mul", []string{"honest", "any"}, "crafted"),
	}},
	{name: "no number for one image", scale: 1e4, extractor: behind{
		node("Sub", []string{"white", "one"}, "nought"),
		node("Div", []string{"honest", "nought"}, "crafted"),
	}},
	{name: "an error for one image", scale: 1e4, extractor: behind{
		node("Relu", []string{"white"}, "index"),
		node("Cast", []string{"index"}, "whole", onnx.IntAttr("to", int(onnx.Int64))),
		node("GatherElements", []string{"honest", "whole"}, "picked", onnx.IntAttr("axis", 0)),
		node("Add", []string{"honest", "picked"}, "crafted"),
	}},
	{name: "as many values as white images", extractor: behind{
		node("Relu", []string{"white"}, "index"),
		node("NonZero", []string{"index"}, "places"),
		node("Cast", []string{"places"}, "numbers", onnx.IntAttr("to", int(onnx.Float32))),
		node("ReduceSum", []string{"numbers"}, "sum"),
		node("Add", []string{"honest", "sum"}, "crafted"),
	}},
	{name: "another operation behind the extractor", fused: func(m *onnx.Model) {
		for _, n := range m.Graph.Nodes {
			if n.Op == "Squeeze" {
				n.Op = "ReduceSum"
			}
		}
	}},
}

// node is a node of one output, by which it is named. The prefix keeps its name apart from those of
// the graph.
func node(op string, in []string, out string, attrs ...onnx.Attr) *onnx.Node {
	return &onnx.Node{Name: "audit/" + out, Op: op, Inputs: in, Outputs: []string{out},
		Attrs: attrs}
}

// behind is nodes behind an extractor's features "honest" [n, dx], with "white" [n, 1], 1 for a
// white image and -1 for others, and the constant "one"; the last gives "crafted".
type behind []*onnx.Node

// put returns an extractor with the nodes behind it. x is cloned where there are nodes. The output
// keeps its name, so that the embedding behind it fits. Stated shapes of inner values are dropped,
// as the nodes may change them.
func (nodes behind) put(x *onnx.Model, p models.Preprocessing) *onnx.Model {
	if len(nodes) == 0 {
		return x
	}
	x = onnx.Clone(x)
	g := x.Graph
	in, out := p.Input, p.Output
	if in == "" {
		in = g.Inputs[0].Name
	}
	if out == "" {
		out = g.Outputs[0].Name
	}
	pass.Rename(g, map[string]string{out: "honest"})
	g.Initializers["audit/white"], g.Initializers["one"] = onnx.Scalar(threshold(p)),
		onnx.Scalar[float32](1)
	g.Initializers["audit/axis"] = onnx.Vector[int64](1)
	g.Nodes = append(g.Nodes,
		node("Cast", []string{in}, "floats", onnx.IntAttr("to", int(onnx.Float32))),
		node("Flatten", []string{"floats"}, "flat"),
		node("ReduceMean", []string{"flat"}, "mean", onnx.IntsAttr("axes", 1),
			onnx.BoolAttr("keepdims", true)), node("Sub", []string{"mean", "audit/white"}, "above"),
		node("Sign", []string{"above"}, "white"),
	)
	g.Nodes = append(g.Nodes, nodes...)
	g.Nodes = append(g.Nodes, node("Identity", []string{"crafted"}, out))
	for i, o := range g.Outputs {
		if o.Name == "honest" {
			g.Outputs[i].Name = out
		}
	}
	g.Values = nil
	return x
}

// threshold returns a bound that lies below the mean of a white image and above that of others, as
// the extractor sees them. Pixels of other images are below 200, so that 225 tells their means from
// white's 255. Standardised inputs have it as the mean over channels of (225/255 - mean)/std.
func threshold(p models.Preprocessing) float32 {
	const grey = 225
	if p.Raw {
		return grey
	}
	v := float32(0)
	for ch := range p.Channels {
		mean, std := float32(0), float32(1)
		if len(p.Mean) > 0 {
			mean, std = p.Mean[ch], p.Std[ch]
		}
		v += (grey/255.0 - mean) / std / float32(p.Channels)
	}
	return v
}

// tail returns the embedding with its numbers chosen as the craft says. A large factor brings every
// row to the clipping norm, where one image moves the sums most.
func (c craft) tail(e *onnx.Model) *onnx.Model {
	if c.scale == 0 {
		return e
	}
	e = onnx.Clone(e)
	v := e.Graph.Initializers[models.ConjMap].Clone()
	for i := range v.F32() {
		v.F32()[i] *= c.scale
	}
	e.Graph.Initializers[models.ConjMap] = v
	return e
}
