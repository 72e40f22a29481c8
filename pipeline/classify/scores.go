package classify

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"fmp/models"
	"fmp/onnx/cost"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/serde"
	"fmp/pipeline/tally"
)

// Parse opens a classifier from the bytes of its file.
// The engine must stay open as long as the classifier, which the caller closes.
func Parse(eng engine.Engine, data []byte) (*Classifier, error) {
	m, err := serde.Closed(data)
	if err != nil {
		return nil, err
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, err
	}
	f.Digest = models.DigestBytes(data)
	return New(eng, m, f)
}

// ParseImages is [Parse] for programs that embed the pure engine: the classifier is anybody's, is
// bounded as such, and takes images. threads are those of one operator, 0 for one a core.
func ParseImages(data []byte, threads int) (*Classifier, error) {
	e, err := pure.New(engine.Options{Threads: threads, Bytes: cost.Foreign.Bytes})
	if err != nil {
		return nil, err
	}
	c, err := Parse(e, data)
	if err == nil && c.TakesRows() {
		err = errors.New("it takes feature rows; fmp pool without --rows makes one that takes " +
			"images")
	}
	if err != nil {
		return nil, fmt.Errorf("classifier: %w", err)
	}
	return c, nil
}

// Has reports whether the classifier has an output: [models.SetOutput], or "low" and "high", the
// ends of credible intervals.
func (c *Classifier) Has(output string) bool {
	return slices.Contains(c.outputs, output)
}

// Scores are those of a site's labelled images, of which its report to the other sites is made.
// It is for one goroutine, and holds counts and scores and no image.
type Scores struct {
	images     tally.Images
	classifier *Classifier
	// Failed is the number of images without probabilities, which count as wrong and in no set.
	Failed int
	// Copies is the number of images that were left out as copies of others of their label
	// ([Distinct]).
	Copies *int
	add    func([]Prediction) error
}

// Scores returns the scores of no image yet.
// The level of prediction sets is the classifier's own, 0 where it makes none.
func (c *Classifier) Scores() (*Scores, error) {
	origin, err := models.ReadOrigin(c.Manifest)
	if err != nil {
		return nil, err
	}
	s := &Scores{images: tally.Images{C: c.Manifest.C}, classifier: c}
	if origin.Sets != nil {
		s.images.Level = origin.Sets.Level
	}
	s.add, s.Copies = Distinct(s.count)
	return s, nil
}

// Add adds the predictions of labelled images, of copies once. One image more or less changes the
// counts by one image at most, as the noise of a report wants.
func (s *Scores) Add(ps []Prediction) error { return s.add(ps) }

func (s *Scores) count(ps []Prediction) error {
	for i := range ps {
		p := &ps[i]
		// An image without probabilities counts as wrong: its class is another than its label.
		top, confidence := (p.Label+1)%s.images.C, float32(0)
		if p.Probabilities == nil {
			s.Failed++
		} else {
			top, _ = p.Top()
			confidence = p.Probabilities[top]
		}
		if err := s.images.Add(p.Label, top, float64(confidence), p.Set); err != nil {
			return err
		}
	}
	return nil
}

// Report returns the counts that may leave the site, none below least; with an epsilon above 0,
// counts with noise in place of that.
// Noise is drawn from the system's random numbers, so that nobody can draw it again. Each call
// draws anew, and spends epsilon again.
func (s *Scores) Report(least int, epsilon, delta float64) (r *tally.Report, err error) {
	if epsilon != 0 {
		r, err = s.images.Noisy(epsilon, delta, rand.Reader)
	} else {
		r, err = s.images.Report(least)
	}
	if err != nil {
		return nil, fmt.Errorf("the counts of the images: %w", err)
	}
	r.Classifier, r.Names = s.classifier.Manifest.Digest, s.classifier.Manifest.Classes
	return r, nil
}
