package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/serde"
	"fmp/pipeline/lab/rival"
)

// ModelsDir is the folder of a run directory to which [KeepModels] writes classifiers.
const ModelsDir = "models"

// KeepModels writes the classifiers of the first repeat for each martingale posterior of the run,
// in the format of fmp pool, to the folder [ModelsDir]: PARTITION-PROTOCOL-METHOD.onnx. Existing
// files are left as they are. It returns their paths. Each is sampled again from the streams of its
// cell, and so has the heads that were scored. An error leaves the files that were written before
// it, and a second call goes on with the rest.
func KeepModels(ctx context.Context, p *Prepared, dir *Directory) ([]string, error) {
	c := p.Config
	cells, err := Cells(&c)
	if err != nil {
		return nil, err
	}
	tuned, err := ReadTuned(dir.Path)
	if err != nil {
		return nil, err
	}
	features, f, err := p.featureGraph()
	if err != nil {
		return nil, err
	}
	k := &keeper{Prepared: p, dir: dir, tuned: tuned, features: features, manifest: f}
	var out []string
	for _, part := range c.Partitions() {
		t, rows, err := p.Tools.drawn(ctx, &c, p.Data.Clients, part, 0, c.threads())
		if err != nil {
			return nil, err
		}
		for _, cell := range cells {
			if cell.Repeat != 0 || cell.Partition != part.Name() {
				continue
			}
			path, err := k.keep(ctx, cell, t, rows)
			if err != nil {
				return nil, err
			}
			if path != "" {
				out = append(out, path)
			}
		}
	}
	return out, nil
}

// featureGraph returns the part of the client graph from images to features, and the manifest of
// classifiers behind it. Features are standardised in the graph where the run did so itself. The
// embedding is fused and cut off again by [models.FeatureGraph], which reads a client graph.
func (p *Prepared) featureGraph() (*onnx.Model, models.Manifest, error) {
	var mean, std []float32
	if p.Stats != nil {
		mean, std = p.Stats.Mean, p.Stats.Std
	}
	x, pre := p.Extractor.Client(mean, std)
	e, err := models.ReadManifest(p.Embedding)
	if err != nil {
		return nil, e, err
	}
	e.Classes = p.Manifest.Classes
	client, err := models.ClientGraph(x, p.Extractor.Manifest(), p.Embedding, e, pre)
	if err != nil {
		return nil, e, err
	}
	f, err := models.ReadManifest(client)
	if err != nil {
		return nil, f, err
	}
	features, err := models.FeatureGraph(client, f)
	f.Seed, f.Command, f.Extractor = p.Config.Seed, "fmp run --keep-models",
		p.Manifest.Models["extractor"]
	f.TrainingData = fmt.Sprintf("clients' part of %s (images sha256 %s)", p.Config.Dataset.Label(),
		p.Manifest.Data["images"])
	return features, f, err
}

// keeper writes classifiers of a run. It is for one call and one goroutine.
type keeper struct {
	*Prepared
	// dir is the run's directory, and tuned has the choices of its tuned protocol.
	dir   *Directory
	tuned *Tuned
	// features is the graph from images to features, which all classifiers begin with. manifest is
	// theirs, without the parts of a single cell.
	features *onnx.Model
	manifest models.Manifest
}

// keep writes the classifier of a cell, whose clients hold the given rows, unless its file exists.
// It returns the file's path; none where the method is not a martingale posterior. The origin in
// its manifest names the model that made the heads: the private, the conjugate or the drawing
// predictor. The file appears whole or not at all.
func (k *keeper) keep(ctx context.Context, cell Cell, t *rival.Task, rows [][]int) (string, error) {
	m, s, _, err := cellSettings(k.Config, cell, k.tuned)
	if err != nil || !m.Info().Keep {
		return "", err
	}
	path := filepath.Join(k.dir.file(ModelsDir),
		strings.Join([]string{cell.Partition, cell.Protocol, cell.Method}, "-")+".onnx")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	res, err := m.Run(ctx, t, s)
	if err != nil {
		return "", fmt.Errorf("%s: %w", cell, err)
	}
	o := models.Origin{Method: cell.Method, Predictor: k.Manifest.Models["predictor"],
		Protocol: cell.Protocol}
	switch {
	case res.Spent != nil:
		o.Predictor = k.Manifest.Models["private"]
		if o.Private, err = json.Marshal(res.Spent); err != nil {
			return "", err
		}
	case m.Info().Conjugate:
		o.Predictor = k.Manifest.Models["conjugate"]
	default:
		o.L2, o.Fresh = s.L2, k.Config.Predictor.Fresh
	}
	// Clients of a run have numbers for names.
	for i, r := range rows {
		o.Clients = append(o.Clients,
			models.OriginClient{Name: fmt.Sprint("client ", i), N: len(r)})
	}
	classifier, err := res.Classifier(ctx, k.features, false, k.manifest, o)
	if err != nil {
		return "", fmt.Errorf("%s: %w", cell, err)
	}
	return path, serde.Save(path, classifier)
}
