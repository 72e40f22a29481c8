package main

import (
	"reflect"

	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx/atomicfile"
)

// keepSidecar writes the side-car file of a model that was made of another and takes images as that
// one does with x, where the other's own metadata do not say it all: it has a side-car, or x is of
// flags.
func keepSidecar(model, made string, f models.Manifest, x extractor.Options) error {
	if _, path, err := extractor.Sidecar(model); err != nil || path == "" && reflect.ValueOf(x).IsZero() {
		return err
	}
	side, err := extractor.NewSidecar(model, f, x)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(made+".yaml", side)
}
