// Package server is the server's side of a round: checked uploads and a predictor in, a classifier out.
package server

import (
	"context"
	"encoding/json"
	"fmt"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
)

// Round is what a server knows when the uploads are there.
type Round struct {
	Uploads []Upload
	// Client is the manifest of the client graph (or the embedding) behind the uploads.
	Client models.Manifest
	// Predictor draws the unseen points; its kind decides the method.
	Predictor         *onnx.Model
	PredictorManifest models.Manifest
	// Samples is S; Fresh is n', the points drawn for a sample; L2 and Tolerance are those of the fits.
	Samples, Fresh int
	L2, Tolerance  float64
	Seed           uint64
	Threads        int
}

// Posterior samples the posterior given the uploads. The same round gives the same samples.
func (r *Round) Posterior(ctx context.Context, eng engine.Engine) (*posterior.Result, error) {
	drawer, err := sample.New(eng, r.Predictor)
	if err != nil {
		return nil, err
	}
	defer drawer.Close()
	var sets []*point.Set
	for _, u := range r.Uploads {
		sets = append(sets, u.ToSet())
	}
	// The clients' own points stay with the clients: the method that runs here reads their uploads alone.
	task, err := posterior.NewTask(posterior.Input{
		Clients: sets, Uploads: sets, Drawer: drawer, Samples: r.Samples, Fresh: r.Fresh, Seed: r.Seed, Stream: "pool", Threads: r.Threads,
	})
	if err != nil {
		return nil, err
	}
	method, err := posterior.Lookup(r.method())
	if err != nil {
		return nil, err
	}
	settings := posterior.DefaultSettings()
	settings.L2, settings.Tolerance = r.L2, r.Tolerance
	return method.Run(ctx, task, settings)
}

// method is the row of the registry that goes with the predictor.
func (r *Round) method() string { return "FMP" }

// Classifier puts the heads of a posterior behind features, the part of the client graph that makes them; nil makes the
// smaller form, which takes feature rows. withSamples makes the single heads' probabilities an output.
func (r *Round) Classifier(p *posterior.Result, features *onnx.Model, withSamples bool) (*onnx.Model, error) {
	o := models.Origin{
		Method: r.method(), Client: r.Client.Digest, Predictor: r.PredictorManifest.Digest, Protocol: "shared",
		L2: r.L2, Fresh: r.Fresh, Round: r.Uploads[0].Round,
	}
	for _, u := range r.Uploads {
		o.Clients = append(o.Clients, models.OriginClient{Name: u.Client, Upload: u.Digest, N: u.N})
	}
	f := r.Client
	f.Seed = r.Seed
	return Classifier(p, features, withSamples, f, o)
}

// Classifier makes the model that predicts of a posterior with one ensemble. f says what the features are of (class names,
// preprocessing, extractor), o what the heads are made from.
func Classifier(p *posterior.Result, features *onnx.Model, withSamples bool, f models.Manifest, o models.Origin) (*onnx.Model, error) {
	if len(p.Ensembles) != 1 {
		return nil, fmt.Errorf("a posterior of %d ensembles; a classifier is made of one", len(p.Ensembles))
	}
	parts := models.ClassifierParts{Features: features, Heads: p.Ensembles[0].Tensor(), Samples: withSamples}
	if p.Coordinates != nil {
		g, ok := p.Coordinates.(interface{ Graph() *onnx.Model })
		if !ok {
			return nil, fmt.Errorf("the heads are on coordinates (%T) that have no graph; write them as .npy", p.Coordinates)
		}
		parts.Coordinates = g.Graph()
	}
	config, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("origin of the classifier: %w", err)
	}
	return models.NewClassifier(parts, models.Manifest{
		Mean: f.Mean, Std: f.Std, Layout: f.Layout, Classes: f.Classes, Extractor: f.Extractor, Licence: f.Licence,
		TrainingData: f.TrainingData, Command: f.Command, Seed: f.Seed, Config: string(config),
	})
}
