// Package stats holds the one statistic of a round: the sum of its uploads. Counts and their
// squares, class sums, second moments and curves are whole numbers, so that sums do not depend on
// order and grouping, and taking an upload out again leaves no trace, to the byte.
//
// Bounds make overflow impossible: a row has coordinates of size 2^16 at most, an upload 2^30
// images, a sum 2^24 clients. A second moment or a square of a mass is then below 2^86, which is
// 2^126 in steps of 2^-40.
package stats

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"fmp/onnx/dense"
	"fmp/pipeline/federate"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/internal/whole"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// Bounds on a sum.
const (
	// MaxClients is the maximum number of clients of a sum.
	MaxClients = 1 << 24
	// maxCoordinate is the largest coordinate of a row.
	maxCoordinate = 1 << 16
	// images of one upload, at most: those behind its means and its calibration points.
	maxImages = federate.MaxN + federate.MaxCalibration
)

// Sum is the sum of uploads of Dx coordinates and C classes.
type Sum struct {
	Dx, C int
	// Clients is the number of uploads, and Curved of those with a curve.
	Clients, Curved int
	// N is the number of images, and rows that of the rows that second moments stand for: degrees
	// of freedom, class means and calibration points.
	N, rows int64
	// [first + Dx]: mass, the sum of the squares of clients' masses, and sums of coordinates, of
	// classes that a client holds
	classes map[int][]whole.Number
	// upper triangle of second moments about 0, [Dx (Dx+1)/2]; nil of no clients, or where rows are
	// too wide
	second []whole.Number
	curve  steps
}

// first is the place of the sum of the first coordinate of a class, after the mass and the squares
// of clients' masses.
const first = 2

// steps are a curve in steps of moments.CurveStep nats below 0.
type steps [moments.Temperatures]uint64

// Compute returns the sum of one upload, of class means or moments. Calibration points count as
// images.
// With rows x_i of class y_i and mass n_i, and S the scatter, it has of each class c
//
//	n_c = sum_{y_i = c} n_i,   q_c = n_c^2,   s_c = sum_{y_i = c} n_i x_i
//
// and of all S + sum_i n_i x_i x_i'. Products of s_c are rounded to a step each, and elements of
// second moments once.
func Compute(u *federate.Upload) (*Sum, error) {
	labels := u.Points.Indices()
	if labels == nil {
		return nil,
			fmt.Errorf("stats: the points of client %q are of several classes each, an "+
				"embedding's: these do not add up; sum class means or moments", u.Client)
	}
	r := rowsOf(u, labels)
	s := &Sum{Dx: u.Points.Dx, C: u.Points.C, Clients: 1,
		N:       int64(u.N + len(r.label) - len(labels)),
		classes: map[int][]whole.Number{}}
	for i, y := range r.label {
		to := s.classes[y]
		if to == nil {
			to = make([]whole.Number, first+s.Dx)
			s.classes[y] = to
		}
		to[0].Add(whole.Round(r.mass[i]))
		for j, v := range r.x[i*s.Dx : (i+1)*s.Dx] {
			if math.Abs(v) > maxCoordinate {
				return nil,
					fmt.Errorf(
						"stats: a coordinate of row %d of client %q is %v; rows that add up have "+
							"%d at most", i,
						u.Client, v, maxCoordinate)
			}
			to[first+j].Add(whole.Round(r.mass[i] * v))
		}
	}
	// The square is that of the rounded mass, so that the bounds of a sum hold for both.
	for y, v := range s.classes {
		if v[0] == (whole.Number{}) {
			delete(s.classes, y) // of mass 0
			continue
		}
		mass := v[0].Float()
		v[1] = whole.Round(mass * mass)
	}
	if len(s.classes) == 0 {
		return nil, fmt.Errorf("stats: the class means of client %q have no mass", u.Client)
	}
	s.rows = int64(len(r.label))
	if u.Within != nil {
		s.rows += int64(u.Within.Dof)
	}
	if s.Dx <= federate.MaxMoments {
		s.second = r.second(u.Within)
	}
	if c := u.Curve; c != nil {
		s.Curved = 1
		for i, v := range c.Curve {
			s.curve[i] = uint64(-v / moments.CurveStep)
		}
	}
	return s, nil
}

// rows are an upload's class means and calibration points, with their masses.
type rows struct {
	k     int
	x     []float64
	label []int
	mass  []float64
}

// rowsOf returns class means with their masses, then calibration points with a mass of 1.
func rowsOf(u *federate.Upload, labels []int32) *rows {
	r := &rows{k: u.Points.Dx}
	add := func(row []float32, y int, mass float64) {
		r.x = append(r.x, dense.As[float64](row)...)
		r.label, r.mass = append(r.label, y), append(r.mass, mass)
	}
	for i, y := range labels {
		add(u.Points.Features(i), int(y), float64(u.Points.W[i]))
	}
	if c := u.Calibration; c != nil {
		for i, y := range c.Y {
			add(c.Features(i), int(y), 1)
		}
	}
	if w := u.Within; w != nil {
		for i, y := range w.Labels {
			add(w.Calibration[i*w.K:(i+1)*w.K], y, 1)
		}
	}
	return r
}

// second returns the second moments of the images about 0, S + sum_i n_i x_i x_i'. Rows x_i are of
// mass n_i, and S is the scatter about them. Products are rounded and added then, so that every
// machine has the same ones. It costs k^2 n/2 multiplications.
func (r *rows) second(w *moments.Within) []whole.Number {
	k, n := r.k, len(r.label)
	scatter := make([]float64, k*k)
	if w != nil {
		w.AddTo(scatter)
	}
	x, weighted := make([]float64, k*n), make([]float64, k*n) // columns
	for i := range n {
		for j, v := range r.x[i*k : (i+1)*k] {
			x[j*n+i], weighted[j*n+i] = v, r.mass[i]*v
		}
	}
	out := make([]whole.Number, k*(k+1)/2)
	triangle(k, func(at, i, j int) {
		out[at] = whole.Round(scatter[i*k+j] + moments.Dot(weighted[i*n:(i+1)*n], x[j*n:(j+1)*n]))
	})
	return out
}

// triangle does each element of an upper triangle, row by row, on all processors. Element (i, j)
// lies at i k - i (i - 1)/2 + j - i. do is called from several goroutines, each for rows of its
// own.
func triangle(k int, do func(at, i, j int)) {
	_ = parallel.Each(context.Background(), 0, k, func(_ context.Context, i int) error {
		for j := i; j < k; j++ {
			do(i*k-i*(i-1)/2+j-i, i, j)
		}
		return nil
	})
}

// Add adds a sum. After an error nothing is added. It shares no memory with the other.
func (s *Sum) Add(o *Sum) error {
	if err := s.alike(o); err != nil {
		return err
	}
	if s.Clients+o.Clients > MaxClients {
		return fmt.Errorf("stats: %d clients and %d are too many; a sum has %d at most", s.Clients,
			o.Clients, MaxClients)
	}
	s.combine(o, 1)
	return nil
}

// Sub takes a sum out that was added. After an error nothing is taken out.
// Numbers may wrap around meanwhile: they are checked after it, and adding takes every wrap back.
func (s *Sum) Sub(o *Sum) error {
	if err := s.alike(o); err != nil {
		return err
	}
	s.combine(o, -1)
	if err := s.check(); err != nil {
		s.combine(o, 1)
		return fmt.Errorf("stats: the sum that is taken out was not added: %w", err)
	}
	return nil
}

// alike returns an error unless both sums have the same sizes.
func (s *Sum) alike(o *Sum) error {
	if s.Dx != o.Dx || s.C != o.C {
		return fmt.Errorf("stats: sums of %d coordinates and %d classes, and of %d and %d, do not "+
			"add up", s.Dx, s.C, o.Dx, o.C)
	}
	return nil
}

// combine adds a sum, or takes it out where sign is -1. A class that no image is left of, and
// second moments of no client, are left out: the sum of the same uploads has one form. Add and take
// out are exact, so that the one undoes the other, to the bit.
func (s *Sum) combine(o *Sum, sign int) {
	each := (*whole.Number).Add
	if sign < 0 {
		each = (*whole.Number).Sub
	}
	s.Clients, s.Curved = s.Clients+sign*o.Clients, s.Curved+sign*o.Curved
	s.N, s.rows = s.N+int64(sign)*o.N, s.rows+int64(sign)*o.rows
	if s.classes == nil {
		s.classes = map[int][]whole.Number{}
	}
	for y, from := range o.classes {
		to := s.classes[y]
		if to == nil {
			to = make([]whole.Number, len(from))
			s.classes[y] = to
		}
		for j, v := range from {
			each(&to[j], v)
		}
		if zero(to) {
			delete(s.classes, y)
		}
	}
	if o.second != nil && s.second == nil {
		s.second = make([]whole.Number, len(o.second))
	}
	for j, v := range o.second {
		each(&s.second[j], v)
	}
	if s.Clients == 0 && zero(s.second) {
		s.second = nil
	}
	for i, v := range o.curve {
		s.curve[i] += uint64(sign) * v // modulo 2^64
	}
}

// zero reports whether all numbers are 0, exactly; also of none.
func zero(v []whole.Number) bool {
	return !slices.ContainsFunc(v, func(w whole.Number) bool { return w != whole.Number{} })
}

// Client returns the sum as if one client had sent it: class means with their masses, the scatter
// of the images about these, and the curve; no scatter where rows are too wide, and no curve where
// no client sent any. It returns nil for no clients. With M the second moments about 0, n_c and s_c
// the masses and sums of a class, and n_mc client m's mass of it
//
//	scatter = M - sum_c s_c s_c'/n_c,   dof = rows - classes
//	holders = n_c^2 / sum_m n_mc^2, from 1 to the number of clients
func (s *Sum) Client() (*point.Set, *moments.Within, *moments.ClientCurve) {
	if s.Clients == 0 {
		return nil, nil, nil
	}
	k, n := s.Dx, len(s.classes)
	set := &point.Set{N: n, Dx: k, C: s.C}
	x, weighted := make([]float64, k*n), make([]float64, k*n)
	var holders []float64
	for i, y := range s.held() {
		row := s.classes[y]
		mass := row[0].Float()
		holders = append(holders, min(max(mass*mass/row[1].Float(), 1), float64(s.Clients)))
		for j, v := range row[first:] {
			sum := v.Float()
			x[j*n+i], weighted[j*n+i] = sum/mass, sum
			set.Z = append(set.Z, float32(sum/mass))
		}
		set.W, set.Y = append(set.W, float32(mass)), append(set.Y, int32(y))
	}
	if set.N*(set.Dx+set.C) <= point.MaxDense {
		set = set.Dense()
	}
	var curve *moments.ClientCurve
	if s.Curved > 0 {
		curve = &moments.ClientCurve{Clients: s.Clients, Holders: holders}
		for i, v := range s.curve {
			curve.Curve[i] = -float64(v) * moments.CurveStep
		}
	}
	if s.second == nil {
		return set, nil, curve
	}
	w := &moments.Within{K: k, Dof: int(max(s.rows-int64(n), 0))}
	if w.Dof > 0 {
		w.Data = make([]float32, len(s.second))
		triangle(k, func(at, i, j int) {
			v := s.second[at].Float() - moments.Dot(weighted[i*n:(i+1)*n], x[j*n:(j+1)*n])
			if i == j {
				v = max(v, 0) // but for rounding
			}
			w.Data[at] = float32(v)
		})
	}
	return set, w, curve
}

// held returns the classes that any client holds, ascending.
func (s *Sum) held() []int { return slices.Sorted(maps.Keys(s.classes)) }
