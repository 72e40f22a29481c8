package kernel

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// NonMaxSuppression: center_point_box = 0; boxes [b, n, 4], scores [b, c, n], at most
// max_output_boxes_per_class (default 0) of each class, iou_threshold (0), score_threshold (none).
// Boxes are taken by falling score; one that overlaps a chosen one by more than the threshold is
// dropped. out = [chosen, 3]: batch, class, box. With c candidates and k chosen of a class it costs
// O(c log c + c k). Among equal scores the lower index comes first; NaN scores are above no
// threshold and drop out. Order of the result is by batch, class and falling score.
func newNonMaxSuppression(s *Spec) (Kernel, error) {
	center := s.bool("center_point_box")
	return func(c *Call) error {
		bs, ss := c.In[0].Shape, c.In[1].Shape
		if len(bs) != 3 || len(ss) != 3 || bs[2] != 4 || bs[0] != ss[0] || bs[1] != ss[2] {
			return fmt.Errorf("boxes of shape %v and scores of shape %v: [b, n, 4] and [b, classes, n] "+
				"are expected", bs, ss)
		}
		// A limit of 0, the default, or below gives no boxes at all.
		limit, overlap, least := 0, 0.0, math.Inf(-1)
		if t := c.in(2); t != nil {
			limit = whole(t, "max_output_boxes_per_class")
		}
		if t := c.in(3); t != nil {
			overlap = float64(only[float32](t, "iou_threshold"))
		}
		if t := c.in(4); t != nil {
			least = float64(only[float32](t, "score_threshold"))
		}
		boxes, scores := c.In[0].F32(), c.In[1].F32()
		n := bs[1]
		var found []int64
		for b := range bs[0] {
			// Corners are worked out once a batch, since every class reads them.
			rect := make([][4]float64, n)
			for i := range rect {
				rect[i] = corners(boxes[(b*n+i)*4:], center)
			}
			for class := range ss[1] {
				row := scores[(b*ss[1]+class)*n:][:n]
				var order []int
				for i, v := range row {
					if float64(v) > least {
						order = append(order, i)
					}
				}
				slices.SortStableFunc(order, func(i, j int) int {
					return cmp.Compare(row[j], row[i])
				})
				var chosen []int
				for _, i := range order {
					if len(chosen) >= limit {
						break
					}
					if !slices.ContainsFunc(chosen,
						func(j int) bool { return intersection(rect[i], rect[j]) > overlap }) {
						chosen = append(chosen, i)
						found = append(found, int64(b), int64(class), int64(i))
					}
				}
			}
		}
		out := try.Get(c.New(0, onnx.Int64, []int{len(found) / 3, 3}))
		copy(out.I64(), found)
		return nil
	}, nil
}

// corners are a box's least and greatest coordinates: [y1, x1, y2, x2] in any order of corners, or
// [x, y, width, height]. x and y of the second form are the centre's.
func corners(b []float32, center bool) [4]float64 {
	p, q, r, s := float64(b[0]), float64(b[1]), float64(b[2]), float64(b[3])
	if center {
		return [4]float64{p - r/2, q - s/2, p + r/2, q + s/2}
	}
	return [4]float64{min(p, r), min(q, s), max(p, r), max(q, s)}
}

// intersection over union. It is 0 of boxes that touch or lie apart. Which coordinate comes first
// does not matter to an area.
func intersection(a, b [4]float64) float64 {
	// A box of negative width or height overlaps none: an overlap is at most as long as a side.
	h, w := min(a[2], b[2])-max(a[0], b[0]), min(a[3], b[3])-max(a[1], b[1])
	if h <= 0 || w <= 0 {
		return 0
	}
	area := func(r [4]float64) float64 { return (r[2] - r[0]) * (r[3] - r[1]) }
	return h * w / (area(a) + area(b) - h*w)
}
