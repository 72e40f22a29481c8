package kernel

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx/internal/try"
)

// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: reduction = mean, sum or none;
// ignore_index; scores [n, c, d...], labels [n, d...], weights [c]:
//
//	l[n, d] = -weights[label] · logp[n, label, d], 0 where label = ignore_index
//	mean    = sum l / sum weights[label]
//
// The second takes logp = log softmax over c of its scores, and gives it as output 1. newLoss: an
// absent ignore_index differs from 0, which is a class.
func newLoss(soft bool) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		l := lossSpec{soft: soft, reduction: s.str("reduction"), ignores: s.hasAttr("ignore_index"),
			ignore: s.int("ignore_index")}
		return numeric(s, loss[float32](l), loss[float64](l))
	}
}

// lossSpec holds the attributes; soft says that scores are put through log softmax, ignores that
// ignore_index is given.
type lossSpec struct {
	soft, ignores bool
	reduction     string
	ignore        int
}

// A mean over labels of which none counts is NaN.
//
// loss sums in float64, in the order of the labels. An ignored label may lie outside the classes;
// any other outside is an error.
func loss[T floating](l lossSpec) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		if len(xs) < 2 || !slices.Equal(c.In[1].Shape,
			append(append([]int{}, xs[:1]...), xs[2:]...)) {
			return fmt.Errorf("scores of shape %v and labels of shape %v do not match", xs,
				c.In[1].Shape)
		}
		labels := try.Get(ints(c.In[1]))
		n, inner := xs[1], product(xs[2:])
		var weights []T
		if w := c.in(2); w != nil {
			if w.Len() != n {
				return fmt.Errorf("%d weights for %d classes", w.Len(), n)
			}
			weights = data[T](w)
		}
		x := data[T](c.In[0])
		if l.soft {
			t := try.Get(c.New(1, c.In[0].DType, xs))
			logp := data[T](t)
			row := make([]float64, n)
			for i := range labels {
				// Classes are the second axis: those of label i are `inner` elements apart.
				at := i/max(inner, 1)*n*inner + i%max(inner, 1)
				for k := range row {
					row[k] = float64(x[at+k*inner])
				}
				logSoftmax(row, math.Exp)
				for k, v := range row {
					logp[at+k*inner] = T(v)
				}
			}
			x = logp
		}
		each := make([]float64, len(labels))
		sum, total := 0.0, 0.0
		for i, y := range labels {
			if l.ignores && y == l.ignore {
				continue
			}
			if y < 0 || y >= n {
				return fmt.Errorf("label %d is outside 0 to %d", y, n-1)
			}
			w := 1.0
			if weights != nil {
				w = float64(weights[y])
			}
			each[i] = -w * float64(x[i/inner*n*inner+y*inner+i%inner])
			sum += each[i]
			total += w
		}
		shape := []int{}
		if l.reduction == "none" {
			shape = c.In[1].Shape
		}
		out := try.Get(c.New(0, c.In[0].DType, shape))
		o := data[T](out)
		switch l.reduction {
		case "none":
			for i, v := range each {
				o[i] = T(v)
			}
		case "sum":
			o[0] = T(sum)
		default:
			o[0] = T(sum / total)
			if total == 0 {
				o[0] = T(math.NaN())
			}
		}
		return nil
	}
}
