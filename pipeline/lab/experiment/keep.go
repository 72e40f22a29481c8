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
	"fmp/onnx/serde"
)

// ModelsDir is the folder of a run directory to which [KeepModels] writes classifiers.
const ModelsDir = "models"

// KeepModels writes the classifiers of the first repeat for each martingale posterior of the run, in the format of fmp pool, to
// the folder [ModelsDir]: PARTITION-PROTOCOL-METHOD.onnx. Existing files are left as they are. It returns their paths.
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
	// The client's feature graph: what a client would run, up to its features.
	var mean, std []float32
	if p.Stats != nil {
		mean, std = p.Stats.Mean, p.Stats.Std
	}
	x, pre := p.Extractor.Client(mean, std)
	e, err := models.ReadManifest(p.Embedding)
	if err != nil {
		return nil, err
	}
	e.Classes = p.Manifest.Classes
	client, err := models.ClientGraph(x, p.Extractor.Manifest(), p.Embedding, e, pre)
	if err != nil {
		return nil, err
	}
	f, err := models.ReadManifest(client)
	if err != nil {
		return nil, err
	}
	features, err := models.FeatureGraph(client, f)
	if err != nil {
		return nil, err
	}
	f.Seed, f.Command, f.Extractor = c.Seed, "fmp run --keep-models", p.Manifest.Models["extractor"]
	f.TrainingData = fmt.Sprintf("clients' part of %s (images sha256 %s)", c.Dataset.Label(), p.Manifest.Data["images"])
	var out []string
	for _, part := range c.Partitions() {
		rows, stream, err := c.draw(p.Data.Clients, part, 0)
		if err != nil {
			return nil, err
		}
		t, err := newTask(ctx, c, p.Tools, p.Data.Clients, rows, stream, c.threads())
		if err != nil {
			return nil, err
		}
		for _, cell := range cells {
			if cell.Repeat != 0 || cell.Partition != part.Name() {
				continue
			}
			m, s, _, err := cellSettings(c, cell, tuned)
			if err != nil {
				return nil, err
			}
			if !m.Info().Keep {
				continue
			}
			path := filepath.Join(dir.file(ModelsDir), strings.Join([]string{cell.Partition, cell.Protocol, cell.Method}, "-")+".onnx")
			out = append(out, path)
			if _, err := os.Stat(path); err == nil {
				continue
			} else if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			res, err := m.Run(ctx, t, s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cell, err)
			}
			o := models.Origin{Method: cell.Method, Predictor: p.Manifest.Models["predictor"], Protocol: cell.Protocol}
			switch {
			case res.Spent != nil:
				o.Predictor = p.Manifest.Models["private"]
				if o.Private, err = json.Marshal(res.Spent); err != nil {
					return nil, err
				}
			case m.Info().Conjugate:
				o.Predictor = p.Manifest.Models["conjugate"]
			default:
				o.L2, o.Fresh = s.L2, c.Predictor.Fresh
			}
			for i, r := range rows {
				o.Clients = append(o.Clients, models.OriginClient{Name: fmt.Sprint("client ", i), N: len(r)})
			}
			classifier, err := res.Classifier(ctx, features, false, f, o)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cell, err)
			}
			if err := serde.Save(path, classifier); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
