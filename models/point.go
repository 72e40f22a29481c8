package models

import "fmp/onnx/build"

// Bounds on the sizes of a graph; they keep a hostile or mistaken configuration from exhausting
// memory.
const (
	maxWidth = 1 << 14
	maxSize  = 1 << 14
)

// minWeight is the lower bound of weights under the logarithm that enters attention logits: no real
// mass is so small, and a point of this weight gets no attention that float32 can distinguish from
// none.
const minWeight = 1e-30

// lift maps z to [z, mlp(z)], the per-point layer g of the predictor and f of the embedding;
// without identity it maps z to mlp(z). mlp has one hidden layer of twice its output's width.
func lift(w layers, z build.Ref, dz, d int, identity bool) build.Ref {
	out := d
	if identity {
		out = d - dz
	}
	h := w.b.Relu(w.Linear("mlp0", z, dz, 2*out, fanIn(dz), fanIn(dz)))
	h = w.Linear("mlp1", h, 2*out, out, fanIn(2*out), fanIn(2*out))
	if identity {
		h = w.b.Concat(2, z, h)
	}
	return h
}

// decode turns rows of width d into points: the first dx coordinates are features, and a softmax of
// kappa times the next C, kappa learned from 5, is the label. Without identity the coordinates are
// first mapped linearly to dx + C.
func decode(w layers, o build.Ref, d, dx, c int, identity bool) build.Ref {
	if !identity {
		o = w.Linear("out", o, d, dx+c, fanIn(d), fanIn(d))
	}
	label := w.b.Mul(w.Param("kappa", constant(5)), w.b.Slice(o, 2, dx, dx+c))
	return w.b.Concat(2, w.b.Slice(o, 2, 0, dx), w.b.Softmax(label, 2))
}

// logWeights returns log(max(weights, minWeight)) as [batch, 1, n].
func logWeights(b *build.Builder, weights build.Ref) build.Ref {
	return b.Unsqueeze(b.Log(b.Op("Max", []build.Ref{weights, b.F32(minWeight)})), 1)
}
