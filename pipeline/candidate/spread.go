package candidate

import (
	"math"
	"math/rand/v2"

	"fmp/pipeline/erm"
)

// spread is the uncertainty of a candidate's class means. The temperature T that clients measured
// is that of the whole prediction, of which the spread of class means is a part: with logits of
// variance s² between samples, a softmax that is averaged over samples is about that of the mean
// logits over sqrt(1 + pi s²/8) (MacKay 1992, equation 10). Two classes' logits differ by twice
// the variance, so that
//
//	T² = T'² + pi/4 tempering s²,   s² = mean_c v_c tr(W^-1 S)/dof
//
// where S/dof is the covariance of images about their class mean, and v_c = 1/(n_c + n0) is the
// posterior variance of a class mean in units of W. Samples have logits over T' and means of
// variance tempering v_c; tempering is 1, or less where the spread would be more than half of T².
type spread struct {
	*discriminant
	variance []float64 // v_c, [C]
	sharper  float64   // T/T'
	size     float64   // of the drawn logits: sqrt(tempering)/T'
}

// maxSpread is the largest share of the squared temperature that is spread: T' is T/sqrt(2) at
// least.
const maxSpread = 0.5

// spread returns that of a discriminant whose head has a temperature.
func (h *discriminant) spread(temperature float64) *spread {
	out := &spread{discriminant: h, variance: make([]float64, h.c)}
	var noise, mean, held float64
	for j, v := range h.precision {
		noise += v * h.lambda[j] / h.dof
	}
	for y, n := range h.n {
		out.variance[y] = 1 / (n + h.n0)
		if n > 0 {
			mean, held = mean+out.variance[y], held+1
		}
	}
	part := math.Pi / 4 * mean / held * noise / (temperature * temperature)
	if !(part > 0) {
		return nil
	}
	tempering := min(1, maxSpread/part)
	out.sharper = 1 / math.Sqrt(1-tempering*part)
	out.size = math.Sqrt(tempering) * out.sharper / temperature
	return out
}

// draw returns a head with class means drawn about its own. In the basis the draw of class c is
// e_c = sqrt(v_c) W^(1/2) z, with z of N(0, I); logits grow by size e_c'W^-1 (u - m_c), the change
// of m_c'W^-1 u - m_c'W^-1 m_c / 2 to first order.
func (s *spread) draw(t erm.Theta, r *rand.Rand) erm.Theta {
	k, c := s.k, s.c
	away := linear{make([]float64, c*k), make([]float64, c)}
	for y, v := range s.variance {
		w, size := away.w[y*k:][:k], s.size*math.Sqrt(v)
		for j := range w {
			w[j] = size * math.Sqrt(s.precision[j]) * r.NormFloat64()
		}
		away.bias[y] = -dot(w, s.m[y*k:][:k])
	}
	out := s.head(away)
	axpy(s.sharper, t.W, out.W)
	return out
}
