package score

import (
	"context"
	"fmt"

	"fmp/pipeline/metric"
	"fmp/pipeline/posterior"
)

// Shift holds points from another distribution than the test points: other images, or corrupted
// ones. The slices are read and never written.
type Shift struct {
	// Name is a data set or a kind of corruption; Severity is 1 to 5 for corruptions and 0
	// otherwise.
	Name     string
	Severity int
	// Features are n x dx, row-major, of the same dx as the test's, before any coordinates of
	// heads.
	Features []float32
	// Labels are the true classes; nil where the points belong to none of the classes.
	Labels []int
}

// Shifted holds a result's scores on a Shift. ECE and NLL should stay small while ACC falls: then
// the probabilities warn of the shift.
type Shifted struct {
	Name     string `json:"name"`
	Severity int    `json:"severity,omitempty"`
	// ACC, ECE and NLL are for labelled points.
	ACC float64 `json:"acc,omitempty"`
	ECE float64 `json:"ece,omitempty"`
	NLL float64 `json:"nll,omitempty"`
	// Entropy and Disagreement are areas under the ROC curve: the probability that one of the
	// points has higher entropy, or more disagreement among the heads, than a test point. Both are
	// for unlabelled points; the second needs several heads. 0.5 is chance. A value of 0 is not
	// written, as is that of a row without the measure.
	Entropy      float64 `json:"auroc_entropy,omitempty"`
	Disagreement float64 `json:"auroc_disagreement,omitempty"`
}

// shifted scores the shifts: means over the result's ensembles. The ROC curves use as many test
// points as shifted ones. An area is (1/mn) sum_ij [a_i > b_j] + [a_i = b_j]/2 over m shifted
// points a and n test points b. Test points are spread evenly over the files, so that both sides of
// an area have alike precision. Their entropies are remembered by their number, since shifts of one
// size share them. Labels decide the kind of measure: points with classes of the task have no area.
// The cost is one prediction of all shifted points for each ensemble.
func (k *Test) shifted(ctx context.Context, r *posterior.Result, rows []float32,
	threads int) ([]Shifted, error) {
	if len(k.Shifts) == 0 {
		return nil, nil
	}
	out := make([]Shifted, len(k.Shifts))
	share := 1 / float64(len(r.Ensembles))
	// width is that of the heads' coordinates, dx that of the features.
	width := len(rows) / len(k.Labels)
	dx := len(k.Features) / len(k.Labels)
	// Rows on the heads' coordinates are made once for all ensembles.
	moved := make([][]float32, len(k.Shifts))
	for i, s := range k.Shifts {
		var err error
		if moved[i], err = r.Rows(ctx, s.Features); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	for _, e := range r.Ensembles {
		entropy, disagreement := map[int][]float64{}, map[int][]float64{} // of so many test points
		for i, s := range k.Shifts {
			out[i].Name, out[i].Severity = s.Name, s.Severity
			a, err := metric.Examine(ctx, e, moved[i], nil, threads)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			if s.Labels != nil {
				scores, err := metric.Score(a.Mean, s.Labels)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.Name, err)
				}
				out[i].ACC += share * scores.ACC
				out[i].ECE += share * scores.ECE
				out[i].NLL += share * scores.NLL
				continue
			}
			n := min(len(s.Features)/dx, len(k.Labels))
			if entropy[n] == nil {
				var some []float32 // evenly spaced: files may hold images by class
				for j := range n {
					at := j * len(k.Labels) / n * width
					some = append(some, rows[at:at+width]...)
				}
				known, err := metric.Examine(ctx, e, some, nil, threads)
				if err != nil {
					return nil, err
				}
				entropy[n], disagreement[n] = known.Entropies()
			}
			more, differ := a.Entropies()
			area, err := metric.AUROC(more, entropy[n])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			out[i].Entropy += share * area
			if len(e) > 1 {
				if area, err = metric.AUROC(differ, disagreement[n]); err != nil {
					return nil, fmt.Errorf("%s: %w", s.Name, err)
				}
				out[i].Disagreement += share * area
			}
		}
	}
	return out, nil
}
