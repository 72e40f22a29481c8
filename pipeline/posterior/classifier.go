package posterior

import (
	"context"
	"encoding/json"
	"fmt"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/sample"
)

// Classifier returns the ONNX model that predicts from a result with one ensemble. features is the
// graph that computes its feature rows (models.FeatureGraph); if nil, the model takes feature rows.
// samples adds an output with the probabilities of each head. f describes the features (class
// names, preprocessing, extractor), o the sources of the heads. It is an error where there is more
// than one ensemble, or coordinates without a graph.
// The manifest's Config holds o as JSON. Where the file computes its heads from latents, shift and
// coordinates of r are not looked at.
func (r *Result) Classifier(ctx context.Context, features *onnx.Model, samples bool,
	f models.Manifest, o models.Origin) (*onnx.Model, error) {
	if len(r.Ensembles) != 1 {
		return nil, fmt.Errorf("a posterior of %d ensembles; a classifier is made of one",
			len(r.Ensembles))
	}
	// Reports on the classifier tell how far its intervals reach.
	if k, ok := r.Intervals.(*conjugateIntervals); ok {
		if f, ok := k.predictor.(*sample.Refit); ok && f.Ends != (models.Ends{}) {
			o.Ends = &f.Ends
		}
	}
	config, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("origin of the classifier: %w", err)
	}
	about := models.Manifest{
		Mean: f.Mean, Std: f.Std, Layout: f.Layout, Resize: f.Resize, Classes: f.Classes,
		Extractor: f.Extractor, Licence: f.Licence,
		TrainingData: f.TrainingData, Command: f.Command, Seed: f.Seed, Config: string(config),
	}
	// Of many classes the file holds latents, from which it computes heads, in place of these.
	if k, ok := r.Intervals.(interface {
		Wide(ctx context.Context) (*models.WideParts, error)
	}); ok {
		wide, err := k.Wide(ctx)
		if err != nil {
			return nil, err
		}
		if wide != nil {
			wide.Features, wide.Samples = features, samples
			return models.NewWideClassifier(*wide, about)
		}
	}
	parts := models.ClassifierParts{Features: features, Heads: r.Ensembles[0].Tensor(),
		Samples: samples, Shift: r.Shift}
	if r.Coordinates != nil {
		g, ok := r.Coordinates.(interface{ Graph() *onnx.Model })
		if !ok {
			return nil, fmt.Errorf("the heads are on coordinates (%T) that have no graph",
				r.Coordinates)
		}
		parts.Coordinates = g.Graph()
	}
	if k, ok := r.Intervals.(interface {
		Graph(ctx context.Context) (*onnx.Model, error)
	}); ok {
		both, err := k.Graph(ctx)
		if err != nil {
			return nil, err
		}
		if both != nil { // same coordinates, plus the ends of the intervals
			parts.Coordinates = both
		}
	}
	if k, ok := r.Intervals.(*headIntervals); ok {
		parts.Widening, parts.Beyond = k.widening, k.beyond
	}
	return models.NewClassifier(parts, about)
}
