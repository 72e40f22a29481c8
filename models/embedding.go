package models

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
)

// EmbeddingConfig configures an embedding of client data. The zero value of a field means its
// default.
type EmbeddingConfig struct {
	// Dx and C are the numbers of features and classes.
	Dx int `json:"dx"`
	C  int `json:"c"`
	// Size is s, the number of compressed points; default C.
	Size int `json:"size"`
	// ConstantWeights gives every compressed point the weight n/s; by default each point is divided
	// among the seeds, and the mass of a compressed point is the sum of its seed's shares.
	ConstantWeights bool `json:"constant_weights"`
	// Dim is the width d of the blocks; default Dx + C + 64.
	Dim int `json:"dim"`
	// Published builds the blocks of Lee et al. 2019 in place of the identity-initialised ones.
	Published bool `json:"published"`
	// Heads is used by the published blocks; default 4.
	Heads int `json:"heads"`
	// Hidden is the width of a two-layer feed-forward part in the blocks; default 0, one layer.
	Hidden int `json:"hidden"`
	// Blocks is the number of set attention blocks between the per-point layer and the pooling,
	// which make f a function of the whole set; default 0. With the identity path they start as
	// attention among the points of a label; set Hidden with them.
	Blocks int `json:"blocks"`
}

// fill gives zero fields their defaults, and returns an error for one out of its bounds.
func (c *EmbeddingConfig) fill() error {
	if c.Dx < 1 || c.Dx > maxWidth || c.C < 2 || c.C > maxWidth {
		return fmt.Errorf("embedding for dx %d and C %d; allowed are dx 1 to %d and C 2 to %d",
			c.Dx, c.C, maxWidth, maxWidth)
	}
	dz := c.Dx + c.C
	c.Size = cmp.Or(c.Size, c.C)
	fillWidth(&c.Heads, &c.Dim, c.Published, dz)
	if !c.Published && c.Dim < dz+1 {
		return fmt.Errorf("embedding of width %d for points of %d numbers; the identity path "+
			"needs a width of at least %d", c.Dim, dz, dz+1)
	}
	if c.Size < 1 || c.Size > maxSize {
		return fmt.Errorf("embedding to %d points; allowed are 1 to %d", c.Size, maxSize)
	}
	if c.Blocks < 0 || c.Blocks > 16 {
		return fmt.Errorf("embedding with %d attention blocks; allowed are 0 to 16", c.Blocks)
	}
	return nil
}

// NewEmbedding builds an untrained embedding h(Z) = MAB(S, f(Z)), which compresses a client's
// points to s points with masses by s learned seeds (arXiv:2605.18554):
//
//	points     [batch, n, dx+C]  the client's points
//	weights    [batch, n]        1 for a point, 0 for padding
//	compressed [batch, s, dx+C]  features, then a point on the probability simplex
//	masses     [batch, s]        they sum to the sum of weights
//
// Seed i starts out attending to label i mod C, so that with the identity path the untrained
// embedding returns approximately the class means, with masses close to the class counts. Initial
// values are drawn from streams of seed.
func NewEmbedding(c EmbeddingConfig, seed uint64) (*onnx.Model, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	dz, d := c.Dx+c.C, c.Dim
	b := build.New("embedding")
	points := b.Input("points", onnx.Float32, "batch", "n", dz)
	weights := b.Input("weights", onnx.Float32, "batch", "n")
	lw := logWeights(b, weights)

	w := newWeights(b, seed)
	x := lift(w.Scope("lift"), points, dz, d, !c.Published)
	for i := range c.Blocks {
		block := publishedBlock(d, c.Heads)
		if !c.Published {
			block = labelMates(d, c.Dx, c.C, max(c.Hidden, 1))
		}
		x, _ = block.MAB(w.Scope(fmt.Sprintf("block%d", i)), x, x, lw) // SAB, equation 8
	}
	pool, seeds := publishedBlock(d, c.Heads), initial(gaussian(1))
	if !c.Published {
		pool = labelPooling(d, c.Dx, c.C)
		seeds = labelSeeds(c.Dx, c.C)
	}
	pool.Hidden = c.Hidden
	// PMA, equation 11: pooling by attention of learned seeds.
	in := w.Scope("pool")
	o, logits := pool.MAB(in, in.b.Unsqueeze(in.Param("seeds", seeds, c.Size, d), 0), x, lw)
	b.Output("compressed", decode(w.Scope("decode"), o, d, c.Dx, c.C, !c.Published))
	b.Output("masses", masses(b, logits, weights, c))
	cfg, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("embedding: encoding the configuration: %w", err)
	}
	return Manifest{Kind: KindEmbedding, Dx: c.Dx, C: c.C, D: d, S: c.Size, Seed: seed,
		Config: string(cfg)}.of(b)
}

// labelMates is a set attention block in which a point starts out attending to the points of its
// own label, and adds the values that the per-point layer computed for those to its own learned
// coordinates, the two halves of them exchanged; the point itself passes through unchanged. Labels
// are renumbered in every task, so the appearance of a label's points can only be learned from the
// set. By comparing itself with them, a point can tell how typical of its label it is, which
// decides how much it weighs in the fit that the upload has to reproduce: the residuals of easy
// points vanish there.
func labelMates(d, dx, c, hidden int) block {
	dz := dx + c
	half := (d - dz) / 2
	onLabels := eye(func(i int) float32 {
		if i < dx || i >= dz {
			return 0
		}
		return float32(2 * math.Pow(float64(d), 0.25)) // a logit of 4 for the same label
	})
	some := multiplied(fanIn(d), 0.05)
	match := func(r *rand.Rand, t []float32, shape []int) {
		eye := make([]float32, len(t))
		onLabels(r, eye, shape)
		some(r, t, shape)
		for i, v := range eye {
			t[i] += v
		}
	}
	return block{
		Dim: d, Heads: 1, Residual: residualQuery, Project: true, IdentityValue: true,
		Hidden: hidden,
		query:  match, key: match, keyBias: constant(0),
		project: func(_ *rand.Rand, t []float32, _ []int) {
			for i := range half {
				t[(dz+i)*d+dz+half+i], t[(dz+half+i)*d+dz+i] = 1, 1
			}
		},
	}
}

// labelPooling is the pooling block that starts out comparing labels: queries and keys are the
// coordinates themselves, without the features and with a small weight on the learned ones.
func labelPooling(d, dx, c int) block {
	p := identityBlock(d, dx+c, 1)
	p.Residual = residualNone
	p.query = eye(func(int) float32 { return 1 })
	p.key = eye(func(i int) float32 {
		switch {
		case i < dx:
			return 0
		case i < dx+c:
			return 1
		}
		return 0.3
	})
	p.keyBias, p.feed = constant(0), constant(0)
	return p
}

// labelSeeds starts seed i near 6 sqrt(d) times the unit vector of label i mod C, so that its logit
// is about 6 for points of that label and 0 for others.
func labelSeeds(dx, c int) initial {
	noise := gaussian(0.1)
	return func(r *rand.Rand, t []float32, shape []int) {
		noise(r, t, shape)
		for i := range shape[0] {
			t[i*shape[1]+dx+i%c] += float32(6 * math.Sqrt(float64(shape[1])))
		}
	}
}

// masses divides each point among the seeds by a softmax of its logits over them (averaged over
// heads) and sums each seed's shares; with ConstantWeights it divides the sum of weights evenly.
func masses(b *build.Builder, logits, weights build.Ref, c EmbeddingConfig) build.Ref {
	if c.ConstantWeights {
		even := slices.Repeat([]float32{1 / float32(c.Size)}, c.Size)
		return b.Mul(b.ReduceSum(weights, true, 1), b.Const(onnx.NewTensor(even, 1, c.Size)))
	}
	var share build.Ref
	if c.Heads > 1 {
		share = b.ReduceMean(b.Softmax(logits, 2), false, 1)
	} else {
		share = b.Softmax(logits, 1)
	}
	return b.Squeeze(b.MatMul(share, b.Unsqueeze(weights, 2)), 2)
}
