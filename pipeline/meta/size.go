package meta

import (
	"math/rand/v2"

	"fmp/pipeline/task"
)

// Bounds of a training step of a conjugate predictor, whose class means of all samples take tasks x
// samples x classes x k^2 multiplications by the metric, and several times as many numbers as tasks
// x samples x classes x k. The first applies where it is not met: classes of a task down to
// manyClasses, then tasks of a step, then samples down to fewSamples, then classes again.
const (
	stepWork    = 1 << 30
	manyClasses = 100
	fewSamples  = 10
	fewClasses  = 20
)

// bound lowers Batch and Samples where classes and coordinates are many, and returns the number of
// classes of a task. It lowers one after the other, each to its own least at most, until
//
//	tasks x samples x classes x k^2 <= stepWork
func (c *ConjugateConfig) bound(k int) int {
	classes, each := c.Corpus.C, k*k
	fit := func(v *int, others, least int) {
		*v = min(*v, max(least, stepWork/(others*each)))
	}
	fit(&classes, c.Batch*c.Samples, manyClasses)
	fit(&c.Batch, c.Samples*classes, 1)
	fit(&c.Samples, c.Batch*classes, fewSamples)
	fit(&classes, c.Batch*c.Samples, fewClasses)
	return classes
}

// some returns the bank of some random classes; the bank itself where it has no more.
func some(r *rand.Rand, b *task.Bank, classes int) *task.Bank {
	if b.C <= classes {
		return b
	}
	return b.Among(r.Perm(b.C)[:classes])
}
