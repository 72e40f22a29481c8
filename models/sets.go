package models

import (
	"encoding/json"
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/pass"
)

// SetOutput is the output of a classifier with prediction sets: set [n, C] bool, whether a class is in the set of an image. The most
// probable class always is.
const SetOutput = "set"

// OriginSets is the calibration of a classifier's prediction sets, part of its [Origin].
type OriginSets struct {
	// Level is the stated coverage, Score the conformity score (package conformal), and Threshold the score from which on a class is in
	// the set.
	Level     float64 `json:"level"`
	Score     string  `json:"score"`
	Threshold float32 `json:"threshold"`
	// Images is the number of calibration images, From the name of their source.
	Images int `json:"images"`
	// Clients is the number of clients that sent them; 0 where they are one owner's, who calibrated the classifier itself.
	Clients int    `json:"clients,omitempty"`
	From    string `json:"from"`
	// Top are the calibration images' highest probabilities, Right whether they name the image's class.
	Top   []float32 `json:"top"`
	Right []bool    `json:"right"`
}

// WithSets returns a classifier with the output set, and the sets' calibration in its provenance. adaptive says that the score of
// a class is 1 less the sum of the probabilities that are at least its own; otherwise it is its probability.
func WithSets(classifier *onnx.Model, sets OriginSets, adaptive bool) (*onnx.Model, error) {
	f, err := ReadManifest(classifier)
	if err != nil {
		return nil, fmt.Errorf("adding prediction sets: %w", err)
	}
	probabilities, ok := classifier.Graph.Output("probabilities")
	if !ok || f.Kind != KindClassifier {
		return nil, fmt.Errorf("adding prediction sets: the model is %q with outputs %v: want a classifier", f.Kind, classifier.Graph.Outputs)
	}
	origin, err := ReadOrigin(f)
	if err != nil {
		return nil, fmt.Errorf("adding prediction sets: %w", err)
	}
	b := build.New("sets")
	p := b.Input("stated", onnx.Float32, "n", f.C)
	score := p
	if adaptive {
		sorted := b.OpN("TopK", []build.Ref{p, b.Axes(f.C)}, 2, onnx.IntAttr("axis", 1))
		sum := b.Op("CumSum", []build.Ref{sorted[0], b.Const(onnx.Scalar(int64(1)))})
		back := b.Op("ScatterElements", []build.Ref{p, sorted[1], sum}, onnx.IntAttr("axis", 1))
		score = b.Sub(b.F32(1), back)
	}
	likely := b.Op("GreaterOrEqual", []build.Ref{score, b.Param("threshold", onnx.Scalar(sets.Threshold))})
	top := b.Op("Equal", []build.Ref{p, b.Op("ReduceMax", []build.Ref{p}, onnx.IntsAttr("axes", 1), onnx.IntAttr("keepdims", 1))})
	b.Output(SetOutput, b.Op("Or", []build.Ref{likely, top}))
	after, err := b.Model()
	if err != nil {
		return nil, fmt.Errorf("adding prediction sets: %w", err)
	}
	before := onnx.Clone(classifier)
	before.Graph.Outputs = slices.DeleteFunc(before.Graph.Outputs, func(v onnx.ValueInfo) bool { return v.Name == SetOutput })
	pass.RemoveUnused(before.Graph) // what earlier sets wanted
	m, err := pass.Compose(before, after, map[string]string{"stated": "probabilities"})
	if err != nil {
		return nil, fmt.Errorf("adding prediction sets: %w", err)
	}
	m.Graph.Outputs = slices.Insert(m.Graph.Outputs, 0, probabilities) // linked, and an output still
	m.Graph.Doc, m.Doc = classifier.Graph.Doc, classifier.Doc
	for i := range m.Graph.Outputs {
		v := &m.Graph.Outputs[i]
		if was, ok := classifier.Graph.Output(v.Name); ok {
			v.Doc = was.Doc
		}
	}
	m.Graph.Outputs[len(m.Graph.Outputs)-1].Doc = fmt.Sprintf("Whether a class is in the prediction set of an image, which holds the true "+
		"class with probability %v or more for images like the calibration images.", sets.Level)
	m.Graph.Name, m.Producer, m.Metadata = classifier.Graph.Name, classifier.Producer, classifier.Metadata
	origin.Sets = &sets
	text, err := json.Marshal(origin)
	if err != nil {
		return nil, fmt.Errorf("adding prediction sets: %w", err)
	}
	f.Config = string(text)
	return m, f.Write(m)
}
