// Package kept reads the runs in docs/results, for the tables of the page of results and for its
// plot.
package kept

import (
	"fmt"

	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
)

// Select is the figure of each repeat of one method on one partition, with raw (shared) settings,
// where its record has it.
func Select(rs []experiment.Record, partition, method string,
	figure func(*experiment.Record) (float64, bool)) map[int]float64 {
	out := map[int]float64{}
	for i := range rs {
		r := &rs[i]
		if r.Partition != partition || r.Method != method || r.Protocol != "shared" {
			continue
		}
		if v, ok := figure(r); ok {
			out[r.Repeat] = v
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
func NLL(r *experiment.Record) (float64, bool) { return r.NLL, true }

// Joint is the joint NLL.
func Joint(r *experiment.Record) (float64, bool) {
	if r.Uncertainty == nil || r.Uncertainty.Joint == nil {
		return 0, false
	}
	return r.Uncertainty.Joint.Near, true
}

// First is NLL, or Joint, of the first samples.
func First(samples int, joint bool) func(*experiment.Record) (float64, bool) {
	return func(r *experiment.Record) (float64, bool) {
		for _, p := range r.BySamples {
			switch {
			case p.Samples != samples:
			case !joint:
				return p.NLL, true
			case p.Joint != nil:
				return p.Joint.Near, true
			}
		}
		return 0, false
	}
}

// Absent is a figure of records of tasks in which no client holds some class.
func Absent(figure func(*experiment.Record) (float64, bool)) func(
	*experiment.Record) (float64, bool) {
	return func(r *experiment.Record) (float64, bool) {
		if r.Absent == nil {
			return 0, false
		}
		return figure(r)
	}
}
