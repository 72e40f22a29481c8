package stats

import (
	"fmt"
	"math"

	"fmp/pipeline/federate"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/moments"
)

// slack is how far sums may pass their bounds by rounding, relative to these: masses of an upload
// in float16 sum to n within a hundredth.
const slack = 1.02

// maxCurve is the size of a client's curve in steps: 400 images of 32 nats, below 2^24.
const maxCurve = moments.MaxCurveImages * -moments.MinLikelihood / moments.CurveStep

// check returns an error unless the sum is one that uploads can have: no count below 0, no mass
// beyond the images, no mean and no second moment beyond the largest coordinate, no curve beyond
// its clients'. It holds after Decode, where a file may claim anything, and after Sub, where
// another sum than was added may be taken out. With M clients, N images, and n_c, q_c and s_c the
// mass, the squares of clients' masses and the sums of a class that is held, it asks for
//
//	n_c > 0,   n_c^2/M <= q_c <= n_c^2,   |s_cj| <= 2^16 n_c,   sum_c n_c <= N
//
// but for slack. It costs O(numbers of the sum).
func (s *Sum) check() error {
	clients := int64(s.Clients)
	switch {
	case s.Clients < 0 || s.Clients > MaxClients || s.Curved < 0 || s.Curved > s.Clients:
		return fmt.Errorf(
			"stats: %d clients, %d of them with a curve; allowed are 0 to %d, and no more with a "+
				"curve", s.Clients, s.Curved, MaxClients)
	case s.N < clients || s.N > clients*maxImages:
		return fmt.Errorf("stats: %d images of %d clients; allowed are one to %d each", s.N,
			s.Clients, maxImages)
	case s.rows < clients || s.rows < int64(len(s.classes)) ||
		s.rows > s.N+clients*federate.MaxSize:
		return fmt.Errorf("stats: %d rows of %d images", s.rows, s.N)
	case (s.Clients > 0) != (len(s.classes) > 0),
		(s.second != nil) != (s.Clients > 0 && s.Dx <= federate.MaxMoments):
		return fmt.Errorf("stats: %d classes and %d second moments of %d clients", len(s.classes),
			len(s.second), s.Clients)
	}
	// By Cauchy and Schwarz the squares of M clients' masses n_m, of sum n, add up to n^2/M to n^2.
	total, tiny := 0.0, float64(clients)*0x1p-40 // by rounding
	for y, row := range s.classes {
		if row[0].High < 0 || row[0] == (whole.Number{}) {
			return fmt.Errorf("stats: the mass of class %d is %v; want one above 0", y,
				row[0].Float())
		}
		mass, square := row[0].Float(), row[1].Float()
		low := mass * mass / float64(clients)
		if !(square >= low/slack-tiny && square <= mass*mass*slack+tiny) {
			return fmt.Errorf("stats: the squares of clients' masses of class %d sum to %v; want "+
				"%v to %v, for a mass of %v of %d clients",
				y, square, low, mass*mass, mass, clients)
		}
		for j, v := range row[first:] {
			if f := v.Float(); v.High == math.MinInt64 ||
				math.Abs(f) > slack*maxCoordinate*mass+1e-6 {
				return fmt.Errorf("stats: sum %d of class %d is %v; want %v at most, for a "+
					"mass of %v", j, y, f, maxCoordinate*mass, mass)
			}
		}
		total += mass
	}
	if total > slack*float64(s.N) {
		return fmt.Errorf("stats: masses sum to %v; want n at most, %d", total, s.N)
	}
	if err := s.checkSecond(); err != nil {
		return err
	}
	for i, v := range s.curve {
		if v > uint64(s.Curved)*maxCurve {
			return fmt.Errorf(
				"stats: a sum of %d curves is -%v nats at temperature %.3g; want -%v at least",
				s.Curved, float64(v)*moments.CurveStep, moments.Temperature(i),
				float64(s.Curved)*maxCurve*moments.CurveStep)
		}
	}
	return nil
}

// checkSecond checks the second moments: no images have larger ones, and none of one coordinate is
// below 0. With N images it asks for |m_ij| <= 2^32 N and m_ii >= 0, but for slack.
func (s *Sum) checkSecond() error {
	if s.second == nil {
		return nil
	}
	most := slack * maxCoordinate * maxCoordinate * float64(s.N)
	at := 0
	for i := range s.Dx {
		for j := i; j < s.Dx; j++ {
			v := s.second[at]
			if f := v.Float(); v.High == math.MinInt64 || math.Abs(f) > most ||
				i == j && v.High < 0 {
				return fmt.Errorf("stats: the second moment of coordinates %d and %d is %v; want "+
					"up to %v, and at least 0 of one", i, j, f, most)
			}
			at++
		}
	}
	return nil
}
