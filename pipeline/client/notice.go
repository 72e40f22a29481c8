package client

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"fmp/models"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/wire"
)

// maxClassifier bounds the file of a classifier whose digest is looked up in a notice: 2 GiB.
// The digest is of the whole file, and costs a read of it.
const maxClassifier = 2 << 30

// Heed returns [wire.ErrSuperseded] if a notice of its round's server names a classifier: the
// notice in a file, by default that of the classifier's name with .notice, if there is one, and of
// the name that a link leads to. Where the server's key (base64) is given, there must be a notice
// that it signed; else a notice that somebody put beside the classifier is believed, as it can do
// no more than stop its use. A notice of another round than the one that the classifier's
// provenance states is an error.
// An error other than wire.ErrSuperseded means that it is not known whether the classifier was
// superseded: the caller does not use it either.
func Heed(classifier, notice, server string) error {
	return heedAll(classifier, notice == "", noticesOf(classifier, notice), server,
		func() (named, error) {
			digest, err := models.DigestFile(classifier, maxClassifier)
			if err != nil {
				return named{}, err
			}
			o, err := origin(classifier)
			return named{digest, o}, err
		})
}

// Heeder returns [Heed] of a classifier that was read, for as long as it is used: another file may
// take its place meanwhile, and a notice may come beside it.
// Files of notices are read anew at each call, and the classifier's bytes once.
func Heeder(classifier, notice, server string, data []byte) (func() error, error) {
	m, err := serde.Unmarshal(data)
	if err != nil {
		return nil, fmt.Errorf("classifier %s: %w", classifier, err)
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, fmt.Errorf("classifier %s: %w", classifier, err)
	}
	o, err := models.ReadOrigin(f)
	of, at := named{models.DigestBytes(data), o}, noticesOf(classifier, notice)
	return func() error {
		return heedAll(classifier, notice == "", at, server,
			func() (named, error) { return of, nil })
	}, err
}

// named is a classifier as notices name it.
// A notice names versions by digest. A classifier that was calibrated since has another, and its
// origin those before it.
type named struct {
	digest string
	origin models.Origin
}

// noticesOf returns the files in which a classifier's notice may be.
// Both names are looked at, as a notice may lie beside a link or beside the file that it leads to.
func noticesOf(classifier, notice string) []string {
	at := []string{cmp.Or(notice, classifier+".notice")}
	if target, err := filepath.EvalSymlinks(classifier); notice == "" && err == nil {
		at = append(at, target+".notice") // links switch between versions
	}
	return at
}

// heedAll is [Heed] of the notices in some files, which need not be there where they are optional.
// The first notice that forbids the classifier ends it. of is called only where a notice is there,
// as it costs a read of the classifier.
func heedAll(classifier string, optional bool, at []string, server string,
	of func() (named, error)) error {
	var missing error
	for _, path := range at {
		data, err := regularfile.ReadFile(path, wire.MaxNotice)
		if err != nil {
			err = fmt.Errorf("notice of superseded versions: %w", err)
		}
		if optional && errors.Is(err, fs.ErrNotExist) {
			missing = err
			continue
		}
		// Once a notice has the server's signature, others may add to it unsigned: they can only
		// forbid.
		if err == nil {
			err = heed(classifier, path, data, server, of)
		}
		if err != nil {
			return err
		}
		server = "" // it has signed one
	}
	if server != "" {
		return missing
	}
	return nil
}

// heed is [Heed] of the notice in a file.
// Rounds are compared only where the origin states a client graph.
func heed(classifier, notice string, data []byte, server string, of func() (named, error)) error {
	n, err := wire.ReadNotice(data, server)
	if err != nil {
		return fmt.Errorf("%s: %w", notice, err)
	}
	c, err := of()
	if err != nil {
		return fmt.Errorf("notice of superseded versions: %w", err)
	}
	if o := c.origin; o.Client != "" && (o.Round != n.Round || o.Client != n.Graph) {
		return fmt.Errorf("%s: notice: it is of round %d with client graph %.80s, and "+
			"tells nothing of %s, which is of round %d with %.80s", notice,
			n.Round, n.Graph, classifier, o.Round, o.Client)
	}
	for _, d := range append([]string{c.digest}, c.origin.Of...) {
		if err := n.Heed(d); err != nil {
			return fmt.Errorf("%s is not used: %w", classifier, err)
		}
	}
	return nil
}

// origin returns the provenance of a classifier, with the digests of those that it was made from by
// calibration.
// An unreadable model has an empty origin, and is judged by its digest alone.
func origin(classifier string) (o models.Origin, err error) {
	_, f, err := models.Load(classifier)
	if err != nil {
		return o, nil // no model, and no classifier that anything would run
	}
	return models.ReadOrigin(f)
}
