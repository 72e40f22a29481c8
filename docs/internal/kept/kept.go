// Package kept reads the runs in docs/results, for the tables of the page of results and for its
// plot.
package kept

import (
	"fmt"

	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
)

// Figure is a figure of a record; nil where the record lacks it.
type Figure = func(*experiment.Record) *float64

// Select is the figure of each repeat of a cell, whose own repeat does not matter and whose
// protocol may be empty, for any.
func Select(rs []experiment.Record, of experiment.Cell, figure Figure) map[int]float64 {
	out := map[int]float64{}
	for i := range rs {
		r := &rs[i]
		if r.Partition != of.Partition || r.Method != of.Method ||
			of.Protocol != "" && r.Protocol != of.Protocol {
			continue
		}
		if v := figure(r); v != nil {
			out[r.Repeat] = *v
		}
	}
	return out
}

// Less is the paired 95% interval of a less b over the repeats that both have; b may be nil: a
// itself.
func Less(a, b map[int]float64) (metric.Interval, error) {
	var x, y []float64
	for repeat := range 1000 { // in order
		v, ok := a[repeat]
		w, both := b[repeat]
		if ok && (both || b == nil) {
			x, y = append(x, v), append(y, w)
		}
	}
	if len(x) == 0 {
		return metric.Interval{}, fmt.Errorf("no repeat has both figures")
	}
	return metric.Paired(x, y, 0.95)
}

// NLL and Joint (of batches of two neighbourhoods) are figures of a record, First the same of the
// first samples of its ensemble.
func NLL(r *experiment.Record) *float64 { return &r.NLL }

// Joint is the joint NLL.
func Joint(r *experiment.Record) *float64 {
	if r.Uncertainty == nil || r.Uncertainty.Joint == nil {
		return nil
	}
	return &r.Uncertainty.Joint.Near
}

// First is NLL, or Joint, of the first samples.
func First(samples int, joint bool) Figure {
	return func(r *experiment.Record) *float64 {
		for _, p := range r.BySamples {
			switch {
			case p.Samples != samples:
			case !joint:
				return &p.NLL
			case p.Joint != nil:
				return &p.Joint.Near
			}
		}
		return nil
	}
}
