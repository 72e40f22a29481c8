package open

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
	"fmp/pipeline/point"
)

// Stats are the pooled statistics of the clients' uploads.
// k is the number of coordinates and C that of classes. Nobody changes it once it is pooled.
type Stats struct {
	// Mass is n_c [C]; Mean the class means [C, k], zero for a class without mass.
	Mass []float64
	Mean *mat.Dense
	// Scatter [k, k] is the scatter of the clients' class means about the pooled ones, weighted by
	// mass, and DF (nu) its degrees of freedom: the number of class means sent less the number of
	// classes present.
	Scatter *mat.SymDense
	DF      float64
	// Own are the per-class terms of Scatter for the first maxOwn classes; they show how classes
	// differ in covariance.
	Own []Scatter
}

// Scatter is the scatter of one class, with its degrees of freedom.
type Scatter struct {
	Of *mat.SymDense
	DF float64
}

// maxOwn bounds the memory for a round of many classes.
const maxOwn = 64

// Pool pools uploads, each a set of class means of softened features with labels and masses. A
// point counts toward each class by that class's share of its label; a point without mass does not
// count.
// It costs O(M C k²) for M uploads. Uploads are only read.
func Pool(uploads []*point.Set) (*Stats, error) {
	return pool(len(uploads), Each(uploads))
}

// Each returns a function that returns upload m, for uploads in memory.
func Each(uploads []*point.Set) func(m int) (*point.Set, error) {
	return func(m int) (*point.Set, error) { return uploads[m], nil }
}

// pool is Pool for uploads that are computed when they are read, so that a round of any size is in
// memory only once. It reads every upload twice. With f_mc and n_mc the means and masses of
// clients, f_c pooled,
//
//	Scatter = sum_mc n_mc (f_mc - f_c)(f_mc - f_c)',   DF = cells - classes present
//
// upload must return the same set at both readings. It is called in order, for one at a time.
func pool(uploads int, upload func(m int) (*point.Set, error)) (*Stats, error) {
	if uploads == 0 {
		return nil, fmt.Errorf("no uploads to pool; give one at least")
	}
	first, err := upload(0)
	if err != nil {
		return nil, err
	}
	if first == nil {
		return nil, fmt.Errorf("no uploads to pool; give one at least")
	}
	k, c := first.Dx, first.C
	s := &Stats{Mass: make([]float64, c), Mean: mat.NewDense(c, k, nil),
		Scatter: mat.NewSymDense(k, nil)}
	s.Own = make([]Scatter, min(c, maxOwn))
	for y := range s.Own {
		// The first client of a class spends the degree of freedom of its mean.
		s.Own[y] = Scatter{mat.NewSymDense(k, nil), -1}
	}
	cells := 0
	for m := range uploads {
		u, err := upload(m)
		if err != nil {
			return nil, err
		}
		if u == nil || u.Dx != k || u.C != c {
			return nil, fmt.Errorf("upload %d is not of %d coordinates and %d classes, as the "+
				"first is", m, k, c)
		}
		own := Means(u)
		for y := range c {
			if own.Mass[y] == 0 {
				continue
			}
			x := own.Mean.RawRowView(y)
			cells++
			s.Mass[y] += own.Mass[y]
			floats.AddScaled(s.Mean.RawRowView(y), own.Mass[y], x)
		}
	}
	s.divide()
	present, _ := s.present()
	if present == 0 {
		return nil, fmt.Errorf("the uploads have no mass; give some points a weight above 0")
	}
	// The second pass is about the pooled means: sums of squares less squares of sums would
	// cancel.
	d := mat.NewVecDense(k, nil)
	for m := range uploads {
		u, err := upload(m)
		if err != nil {
			return nil, err
		}
		own := Means(u)
		for y, n := range own.Mass {
			if n == 0 {
				continue
			}
			mean := s.Mean.RawRowView(y)
			for j, v := range own.Mean.RawRowView(y) {
				d.SetVec(j, v-mean[j])
			}
			into := s.Scatter
			if y < len(s.Own) {
				into = s.Own[y].Of
				s.Own[y].DF++
			}
			into.SymRankOne(into, n, d)
		}
	}
	for _, o := range s.Own {
		s.Scatter.AddSym(s.Scatter, o.Of)
	}
	s.DF = float64(cells) - present
	return s, nil
}

// divide turns sums of classes into their means.
func (s *Stats) divide() {
	for y, n := range s.Mass {
		if n > 0 {
			mean := s.Mean.RawRowView(y)
			for j := range mean {
				mean[j] /= n
			}
		}
	}
}

// Means returns the masses and class means of the union of sets of one kind; for one set, a
// client's upload. Scatter and DF are not set.
// It costs O(N k) for points of one class. Sums are in float64.
func Means(sets ...*point.Set) *Stats {
	c, dx := sets[0].C, sets[0].Dx
	s := &Stats{Mass: make([]float64, c), Mean: mat.NewDense(c, dx, nil)}
	for _, set := range sets {
		for i := range set.N {
			set.Shares(i, func(y int, share float32) {
				w := float64(set.W[i]) * float64(share)
				if w == 0 {
					return
				}
				s.Mass[y] += w
				mean := s.Mean.RawRowView(y)
				for j, v := range set.Features(i) {
					mean[j] += w * float64(v)
				}
			})
		}
	}
	s.divide()
	return s
}

// Set returns the class means as points, one for each class with mass. Beyond [point.MaxDense]
// numbers labels stay indices, as classes by classes would fill memory.
// The numbers are rounded to float32, and masses too.
func (s *Stats) Set() *point.Set {
	c, dx := s.Mean.Dims()
	out := &point.Set{N: c, Dx: dx, C: c, Z: make([]float32, 0, c*dx), W: make([]float32, c),
		Y: make([]int32, c)}
	for y, n := range s.Mass {
		out.Z = append(out.Z, dense.As[float32](s.Mean.RawRowView(y))...)
		out.Y[y], out.W[y] = int32(y), float32(n)
	}
	if out = out.Held(); c*(dx+c) <= point.MaxDense {
		return out.Dense()
	}
	return out
}

// present returns the number of classes with mass, and the total mass.
func (s *Stats) present() (classes, total float64) {
	for _, n := range s.Mass {
		if n > 0 {
			classes++
			total += n
		}
	}
	return classes, total
}
