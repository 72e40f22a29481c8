package models

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
)

// PredictorConfig configures a predictor of fresh points. The zero value of a field means its
// default.
type PredictorConfig struct {
	// Dx and C are the numbers of features and classes.
	Dx int `json:"dx"`
	C  int `json:"c"`
	// Dim is the width d of the blocks and of the noise; default Dx + C + 64. With the identity
	// path it must be at least Dx + C.
	Dim int `json:"dim"`
	// Published builds the blocks of Lee et al. 2019 in place of the identity-initialised ones.
	Published bool `json:"published"`
	// Heads is used by the published blocks; default 4.
	Heads int `json:"heads"`
	// Hidden is the width of a two-layer feed-forward part in the blocks; default 0, one layer.
	Hidden int `json:"hidden"`
	// Beta is the initial value of the learned factor on the identity path's attention logits; the
	// default is 2. At 6 an untrained draw is nearly one point of the context: more diverse and
	// less calibrated. The draw for an upload is then unrelated to that for the data.
	Beta float32 `json:"beta"`
	// IgnoreMasses leaves the context's weights out (the published form): every point counts once,
	// and padding is not possible.
	IgnoreMasses bool `json:"ignore_masses"`
	// Fresh is the default number of points per draw, written to the manifest; default 100.
	Fresh int `json:"fresh"`
	// Latent is the number of leading columns of the noise that all rows of one sample share, so
	// that the errors of its points are correlated; default 0, the published form: independent
	// noise for every point.
	Latent int `json:"latent,omitempty"`
}

// fill gives zero fields their defaults, and returns an error for one out of its bounds.
func (c *PredictorConfig) fill() error {
	if c.Dx < 1 || c.Dx > maxWidth || c.C < 2 || c.C > maxWidth {
		return fmt.Errorf("predictor for dx %d and C %d; allowed are dx 1 to %d and C 2 to %d",
			c.Dx, c.C, maxWidth, maxWidth)
	}
	dz := c.Dx + c.C
	fillWidth(&c.Heads, &c.Dim, c.Published, dz)
	c.Fresh = cmp.Or(c.Fresh, 100)
	c.Beta = cmp.Or(c.Beta, 2)
	if !(c.Beta > 0 && c.Beta <= 1000) {
		return fmt.Errorf("predictor with beta %v; allowed are numbers above 0 up to 1000", c.Beta)
	}
	low := 1
	if !c.Published {
		low = dz + 1 // the identity path carries a point and one more number
	}
	for _, n := range []struct {
		what           string
		is, low, above int
	}{{"dim", c.Dim, low, maxSize}, {"heads", c.Heads, 1, maxSize},
		{"hidden", c.Hidden, 0, maxSize},
		{"latent", c.Latent, 0, c.Dim - 1}} {
		if n.is < n.low || n.is > n.above {
			return fmt.Errorf("predictor: %s is %d; allowed are %d to %d", n.what, n.is,
				n.low, n.above)
		}
	}
	if c.Fresh < 1 || c.Fresh > maxSize {
		return fmt.Errorf("predictor with %d fresh points by default; allowed are 1 to %d",
			c.Fresh, maxSize)
	}
	return nil
}

// Contexts is the symbolic size of a predictor's contexts.
const Contexts = "contexts"

// NewPredictor builds an untrained predictor Z' = ISAB(Z, E) = MAB(E, MAB(E, g(Z))), which draws
// exchangeable points given a context Z from Gaussian noise E (arXiv:2605.18554):
//
//	points  [contexts, n, dx+C]   the context
//	weights [contexts, n]         its masses; 0 is padding
//	noise   [batch, fresh, d]     N(0, 1)
//	drawn   [batch, fresh, dx+C]  features, then a point on the probability simplex
//
// contexts is batch, or 1 for the same context in every draw. The first Latent columns of the noise
// are the same in all rows of a sample.
// A weight w counts as w points. With the identity path the untrained predictor is a smoothed
// bootstrap of its context. Initial values are drawn from streams of seed.
func NewPredictor(c PredictorConfig, seed uint64) (*onnx.Model, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	dz, d := c.Dx+c.C, c.Dim
	b := build.New("predictor")
	points := b.Input("points", onnx.Float32, Contexts, "n", dz)
	weights := b.Input("weights", onnx.Float32, Contexts, "n")
	noise := b.Input("noise", onnx.Float32, "batch", "fresh", d)

	block := publishedBlock(d, c.Heads)
	if !c.Published {
		block = identityBlock(d, dz, c.Beta)
		block.Heads = c.Heads
		// Queries of this scale, with beta, make a random query attend to few points.
		block.query = gaussian(1.7 / math.Sqrt(float64(d)))
	}
	block.Hidden = c.Hidden
	var lw build.Ref
	if !c.IgnoreMasses {
		lw = logWeights(b, weights)
	}
	w := newWeights(b, seed)
	// ISAB, equations 9 and 10, with the inducing points as the query.
	x := lift(w.Scope("lift"), points, dz, d, !c.Published)
	h, _ := block.MAB(w.Scope("inner"), noise, x, lw)
	o, _ := block.MAB(w.Scope("outer"), noise, h, "")
	b.Output("drawn", decode(w.Scope("decode"), o, d, c.Dx, c.C, !c.Published))
	cfg, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("predictor: encoding the configuration: %w", err)
	}
	return Manifest{Kind: KindPredictor, Dx: c.Dx, C: c.C, D: d, Fresh: c.Fresh, Latent: c.Latent,
		Seed: seed, Config: string(cfg)}.of(b)
}

// Noise returns samples x fresh x d numbers from N(0, 1), row-major, for the noise input of the
// manifest's predictor. The rows of a sample share the first Latent columns of its first row.
func (f Manifest) Noise(r *rand.Rand, samples, fresh int) []float32 {
	e := make([]float32, samples*fresh*f.D)
	rng.Normal(r, e)
	for s := range samples {
		own := e[s*fresh*f.D:][:fresh*f.D]
		for i := 1; i < fresh; i++ {
			copy(own[i*f.D:][:f.Latent], own)
		}
	}
	return e
}
