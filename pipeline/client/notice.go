package client

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/wire"
)

// maxClassifier bounds the file of a classifier whose digest is looked up in a notice: 2 GiB.
const maxClassifier = 2 << 30

// Heed returns [wire.ErrSuperseded] if a notice of its round's server names a classifier: the notice in a file, by default that of the
// classifier's name with .notice, if there is one. Where the server's key (base64) is given, there must be a notice that it signed; else a
// notice that somebody put beside the classifier is believed, as it can do no more than stop its use.
func Heed(classifier, notice, server string) error {
	data, err := regularfile.ReadFile(cmp.Or(notice, classifier+".notice"), wire.MaxNotice)
	if notice == "" && server == "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("notice of superseded versions: %w", err)
	}
	n, err := wire.ReadNotice(data, server)
	if err != nil {
		return fmt.Errorf("%s: %w", cmp.Or(notice, classifier+".notice"), err)
	}
	digest, err := regularfile.Digest(classifier, maxClassifier)
	if err != nil {
		return fmt.Errorf("notice of superseded versions: %w", err)
	}
	of, err := descent(classifier)
	if err != nil {
		return fmt.Errorf("notice of superseded versions: %w", err)
	}
	for _, d := range append([]string{digest}, of...) {
		if err := n.Heed(d); err != nil {
			return fmt.Errorf("%s is not used: %w", classifier, err)
		}
	}
	return nil
}

// descent returns the digests of the classifiers that one was made from by calibration.
func descent(classifier string) ([]string, error) {
	_, f, err := models.Load(classifier)
	if err != nil {
		return nil, nil // no model, and no classifier that anything would run
	}
	o, err := models.ReadOrigin(f)
	return o.Of, err
}
