package candidate

import (
	"fmt"
	"math"

	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
)

// NewCorpus returns a corpus of images whose classes are the round's: rows [N, K] with labels [N]
// of c classes. A class of n rows has n - 1 contrasts, of each row with the mean of those before
// it, whose outer products add up to its scatter. It reads the rows once and costs N K^2
// multiplications. The corpus keeps rows and labels. After n others of mean m the contrast of row x
// is
//
//	sqrt(n/(n + 1)) (x - m)
func NewCorpus(rows []float32, k int, labels []int, c int) (*Corpus, error) {
	if k < 1 || len(labels) == 0 || len(rows) != len(labels)*k {
		return nil, fmt.Errorf("candidate: corpus: %d numbers for %d labels; want %d each",
			len(rows), len(labels), k)
	}
	mean, count := make([]float64, c*k), make([]float64, c)
	out := &Corpus{Within: make([]float64, k*k), Rows: rows, Labels: labels}
	f := moment.Factor{K: k, To: out.Within}
	for i, y := range labels {
		if y < 0 || y >= c {
			return nil, fmt.Errorf("candidate: corpus: label %d of row %d; allowed are 0 to %d",
				y, i, c-1)
		}
		m, n := mean[y*k:][:k], count[y]
		var contrast []float64
		if n > 0 {
			contrast = f.Row()
		}
		for j, v := range rows[i*k : (i+1)*k] {
			away := float64(v) - m[j]
			if n > 0 {
				contrast[j] = math.Sqrt(n/(n+1)) * away
			}
			m[j] += away / (n + 1)
		}
		count[y]++
	}
	f.Flush()
	dof := float64(len(labels))
	for y, n := range count {
		if n > 0 {
			dof--
			out.Means = append(out.Means, dense.As[float32](mean[y*k:][:k])...)
		}
	}
	out.Dof = max(dof, 1)
	scale(1/out.Dof, out.Within)
	mirror(out.Within, k)
	return out, nil
}
