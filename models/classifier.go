package models

import (
	"encoding/json"
	"fmt"
	"math"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/dense"
	"fmp/onnx/pass"
)

// maxHeads bounds the number of posterior samples (heads) of a classifier.
const maxHeads = 10_000

// minProbability is the lower bound of probabilities under the logarithm of an entropy: p log p is
// 0 there.
const minProbability = 1e-30

// ClassifierParts are the parts that a classifier is built from.
type ClassifierParts struct {
	// Features turns images into features ([FeatureGraph]). Without it the classifier takes feature
	// rows.
	Features *onnx.Model
	// Coordinates maps features [n, dx] to the heads' inputs [n, k], its first output; nil where
	// the heads take the features themselves (k = dx). Further outputs, such as low and high,
	// become the classifier's.
	Coordinates *onnx.Model
	// Heads are samples of the posterior, [S, k+1, C], float64, the row of biases last.
	Heads *onnx.Tensor
	// Samples adds the probabilities of each head as an output.
	Samples bool
	// Widening, if not 0, adds low and high from the heads: mean and standard deviation of a
	// probability's log-odds over them, the second times Widening for the tempering of their draws
	// and for 90% of a normal.
	Widening float64
	// Beyond, [C], is added to the variance of log-odds of each class, as heads vary too little;
	// nil for nothing. It wants Widening.
	Beyond []float64
	// Shift, if not nil, adds the input shift and the output estimated_shift ([WithShift]), which
	// want Coordinates of a conjugate predictor.
	Shift *ShiftParts
}

// NewClassifier builds the model that predicts: preprocessing, extractor, coordinates, S heads and
// the mean of their softmaxes in one graph.
//
//	images [n, H, W, Ch] uint8        raw pixels; features [n, dx] float32 where Features is nil
//	probabilities [n, C] float32      p = mean over s of p_s, p_s = softmax([rows, 1] heads_s)
//	entropy [n] float32               H(p) = -sum p log p, in nats: the total uncertainty
//	mutual_information [n] float32    H(p) - mean over s of H(p_s), in nats: the part due to the
//	                                  heads' disagreement (Houlsby et al. 2011, arXiv:1112.5745),
//	                                  which more data would lower
//	low, high [n, C] float32          bounds of 90% intervals for p given infinite data; only
//	                                  where the method has them
//	samples [n, S, C] float32         p_s; only with Samples
//	set [n, C] bool                   prediction set; only after [WithSets]
//	estimated_shift [dx] float32      shift of the images of a call, for the input shift [dx];
//	                                  only with Shift
//
// f supplies the manifest fields that only the caller knows; Kind, Dx, C and S are filled in.
func NewClassifier(p ClassifierParts, f Manifest) (m *onnx.Model, err error) {
	defer wrapped(&err, makingClassifier)
	weights, bias, err := p.regressions()
	if err != nil {
		return nil, err
	}
	if classes := p.Heads.Shape[2]; p.Beyond != nil &&
		(len(p.Beyond) != classes || p.Widening == 0) {
		return nil, fmt.Errorf("a variance that heads lack for %d of %d classes, with a widening "+
			"of %v; want one a class, and a widening above 0", len(p.Beyond), classes, p.Widening)
	}
	name := "features"
	if p.Features != nil || p.Coordinates != nil {
		name = headRows // the graph before has features of its own
	}
	if m, err = p.heads(name, weights, bias); err != nil {
		return nil, err
	}
	before := func(first *onnx.Model, input string) error {
		if first == nil {
			return nil
		}
		if len(first.Graph.Outputs) != 1 && first != p.Coordinates {
			return fmt.Errorf("graph %q has %d outputs; want one", first.Graph.Name,
				len(first.Graph.Outputs))
		}
		m, err = pass.Compose(first, m, map[string]string{input: first.Graph.Outputs[0].Name})
		return err
	}
	dx := weights.Shape[0]
	if p.Shift != nil {
		if p.Coordinates, err = WithShift(p.Coordinates, *p.Shift); err != nil {
			return nil, err
		}
	}
	if p.Coordinates != nil {
		in := p.Coordinates.Graph.Inputs
		if len(in) != 1 || len(in[0].Shape) != 2 || !in[0].Shape[1].IsKnown() {
			return nil, fmt.Errorf("coordinates take %v; want rows of features", in)
		}
		dx, name = in[0].Shape[1].Size, in[0].Name
		if err := before(p.Coordinates, headRows); err != nil {
			return nil, err
		}
	}
	if err := before(p.Features, name); err != nil {
		return nil, err
	}
	return described(m, f, dx, p.Heads.Shape[2], p.Heads.Shape[0])
}

// makingClassifier begins the errors of a classifier that is not made.
const makingClassifier = "making the classifier"

// MinOther is the lower bound of 1 - p under the logarithm of log-odds: float32 tells p from 1 no
// nearer.
const MinOther = 1e-7

// logOdds returns log p/(1-p). Both probabilities have a lower bound, so that no log-odds are
// infinite.
func logOdds(b *build.Builder, p build.Ref) build.Ref {
	other := b.Op("Max", []build.Ref{b.Sub(b.F32(1), p), b.F32(MinOther)})
	return b.Sub(b.Log(b.Op("Max", []build.Ref{p, b.F32(minProbability)})), b.Log(other))
}

// answers adds the outputs that every classifier has, from the probabilities of its heads, [n, S,
// C]. Mutual information is the entropy of the mean less the mean entropy, and is above 0 by
// Jensen's inequality.
func answers(b *build.Builder, single build.Ref, samples bool) {
	mean := b.ReduceMean(single, false, 1)
	entropy := func(p build.Ref, axis int) build.Ref {
		log := b.Log(b.Op("Max", []build.Ref{p, b.F32(minProbability)}))
		return b.Op("Neg", []build.Ref{b.ReduceSum(b.Mul(p, log), false, axis)})
	}
	total := entropy(mean, 1)
	b.Output("probabilities", mean)
	b.Output("entropy", total)
	// Never below 0 but for rounding.
	b.Output("mutual_information", b.Relu(b.Sub(total, b.ReduceMean(entropy(single, 2), false, 1))))
	if samples {
		b.Output("samples", single)
	}
}

// described returns a classifier with its documentation and manifest.
func described(m *onnx.Model, f Manifest, dx, classes, samples int) (*onnx.Model, error) {
	m.Graph.Name = KindClassifier
	m.Producer, m.Metadata = "fmp", map[string]string{}
	document(m.Graph, f)
	m.Doc = m.Graph.Doc
	f.Kind, f.Dx, f.C, f.S = KindClassifier, dx, classes, samples
	return m, f.Write(m)
}

// headRows names the input of the heads behind a graph that makes coordinates or features.
const headRows = "rows"

// regressions returns the heads as one layer: weights [k, samples x classes] and bias. Weights of
// head s and class c are column s C + c, so that one product serves all heads. They are rounded to
// float32.
func (p ClassifierParts) regressions() (weights, bias *onnx.Tensor, err error) {
	h := p.Heads
	if h == nil || h.F64() == nil || len(h.Shape) != 3 || h.Shape[0] < 1 || h.Shape[0] > maxHeads ||
		h.Shape[1] < 2 ||
		h.Shape[1]-1 > maxWidth || h.Shape[2] < 2 || h.Shape[2] > maxWidth {
		return nil, nil, fmt.Errorf("heads %v; want float64 [samples, k+1, classes], 1 to %d "+
			"samples, k from 1 and classes from 2 to %d", h, maxHeads, maxWidth)
	}
	samples, k, classes := h.Shape[0], h.Shape[1]-1, h.Shape[2]
	weights, bias = onnx.ZerosF32(k, samples*classes), onnx.ZerosF32(samples*classes)
	for i, v := range h.F64() {
		s, j, c := i/(classes*(k+1)), i/classes%(k+1), i%classes
		to := bias.F32()[s*classes+c:]
		if j < k {
			to = weights.F32()[(j*samples+s)*classes+c:]
		}
		if to[0] = float32(v); math.IsNaN(v) || math.IsInf(float64(to[0]), 0) {
			return nil, nil, fmt.Errorf("head %d holds %v at row %d, class %d; want finite numbers",
				s, v, j, c)
		}
	}
	return weights, bias, nil
}

// heads builds the graph from rows to the classifier's outputs. With l_s the log-odds of head s,
// their mean and variance over heads, and w the widening, the interval of a class is
//
//	logistic(mean -+ 1.645 sqrt(w^2 variance + beyond))
func (p ClassifierParts) heads(input string, weights, bias *onnx.Tensor) (*onnx.Model, error) {
	b := build.New("heads")
	x := b.Input(input, onnx.Float32, "n", weights.Shape[0])
	logits := b.Op("Gemm", []build.Ref{x, b.Param("weights", weights), b.Param("bias", bias)})
	single := b.Softmax(b.Reshape(logits, -1, p.Heads.Shape[0], p.Heads.Shape[2]), 2)
	answers(b, single, p.Samples)
	if p.Widening != 0 {
		odds := logOdds(b, single)
		middle := b.ReduceMean(odds, true, 1)
		off := b.Sub(odds, middle)
		variance := b.Mul(b.F32(float32(p.Widening*p.Widening)),
			b.ReduceMean(b.Mul(off, off), false, 1))
		if p.Beyond != nil {
			variance = b.Add(variance, b.Param(beyond,
				onnx.NewTensor(dense.As[float32](p.Beyond), len(p.Beyond))))
		}
		reach := b.Mul(b.F32(normalTenth), b.Sqrt(variance))
		middle = b.Squeeze(middle, 1)
		b.Output("low", b.Op("Sigmoid", []build.Ref{b.Sub(middle, reach)}))
		b.Output("high", b.Op("Sigmoid", []build.Ref{b.Add(middle, reach)}))
	}
	return b.Model()
}

// document writes the meaning of a classifier, its inputs and its outputs into its doc strings.
func document(g *onnx.Graph, f Manifest) {
	g.Doc = "Classifier of images. Its probabilities are the mean over samples of the posterior " +
		"of a softmax regression on the features of a frozen extractor."
	images := "One image a row, bytes 0 to 255 in the order height, width, channel; "
	fit := map[string]string{"": "stretched", "stretch": "stretched",
		"pad": "padded with black"}[f.Resize]
	if share, crop := CropShare(f.Resize); crop {
		fit = "cropped in the middle"
		if share < 1 {
			fit += fmt.Sprintf(", to %g of its shorter side,", share)
		}
		fit += " and scaled"
	}
	about := map[string]string{
		"features": "One row of features of the extractor an image.",
		"probabilities": "Probability of each class, in the order of the property fmp.classes; a " +
			"row sums to 1.",
		"entropy": "Entropy of the probabilities in nats: the whole uncertainty of the class.",
		"mutual_information": "Mutual information of class and posterior sample in nats: " +
			"the part of the entropy that more data would lower.",
		"low": "Lower end of the 90% interval of each probability, given infinite data " +
			"of these classes.",
		"high": "Upper end of the 90% interval of each probability, given infinite data " +
			"of these classes.",
		ShiftOutput: "Shift of softened features that the images of this call have in common, by " +
			"expectation and maximization without labels: feed it as shift with images of the " +
			"same camera.",
		"samples": "Probability of each class for each sample of the posterior: " +
			"image, sample, class."}
	about[ShiftInput] = "Shift of the camera that took the images, of " + ShiftOutput +
		"; 0 is that of the clients on average."
	for _, vs := range [][]onnx.ValueInfo{g.Inputs, g.Optional, g.Outputs} {
		for i := range vs {
			v := &vs[i]
			if v.Doc = about[v.Name]; v.Name != "images" {
				continue
			}
			v.Doc = images + "one channel is grey (ITU-R BT.601)"
			if n := len(v.Shape); n == 4 && v.Shape[3].Size == 3 {
				v.Doc = images + "three channels are red, green and blue (sRGB)"
			}
			if v.Doc += ", upright (EXIF); "; f.Height > 0 {
				v.Doc += fmt.Sprintf(
					"an image of any size is %s to %d x %d by the graph itself, by Catmull-Rom "+
						"interpolation.",
					fit, f.Height, f.Width)
			} else {
				v.Doc += "an image of another size is " +
					fit + " to this one by Catmull-Rom interpolation."
			}
		}
	}
}

// Origin is the provenance of a classifier, stored as JSON in its manifest's Config.
type Origin struct {
	// Method is the name, in the registry of methods, of the method that made the heads.
	Method string `json:"method"`
	// Client is the sha256 of the client graph that made the uploads, Predictor that of the
	// predictor; empty for a model that was not read from a file.
	Client    string `json:"client_graph,omitempty"`
	Predictor string `json:"predictor,omitempty"`
	// Protocol is "shared", one choice of settings for all methods, or "tuned".
	Protocol string  `json:"protocol"`
	L2       float64 `json:"l2,omitempty"` // penalty of the fits; 0 for a method that fits none
	// Fresh are the points drawn per sample; 0 for the limit of infinitely many.
	Fresh int    `json:"fresh,omitempty"`
	Round uint64 `json:"round"`
	// Private is the privacy account (privacy.Account) of a private round; nil for other rounds.
	Private json.RawMessage `json:"private,omitempty"`
	// Clients are the uploads, in their order.
	Clients []OriginClient `json:"clients"`
	// Sets is the calibration of prediction sets; nil where the classifier has none.
	Sets *OriginSets `json:"sets,omitempty"`
	// Scaling is the calibration of the probabilities; nil where there is none.
	Scaling *OriginScaling `json:"scaling,omitempty"`
	// Of are the sha256 of the classifiers, the oldest first, that this one was made from by fmp
	// calibrate.
	Of []string `json:"of,omitempty"`
	// Ends are those of the intervals, where the predictor learned them; nil: one half width each.
	Ends *Ends `json:"ends,omitempty"`
}

// OriginClient is one client of an [Origin].
type OriginClient struct {
	Name string `json:"name"`
	// Upload is the sha256 of the upload's file; empty for an upload that was never a file.
	Upload string `json:"upload,omitempty"`
	N      int    `json:"n"` // number of images that the upload summarises
}

// ReadOrigin returns the provenance in a classifier's manifest.
func ReadOrigin(f Manifest) (Origin, error) {
	var o Origin
	if f.Config == "" {
		return o, nil
	}
	if err := json.Unmarshal([]byte(f.Config), &o); err != nil {
		return o, fmt.Errorf("%s: its manifest's config: %w", f.name(), err)
	}
	return o, nil
}
