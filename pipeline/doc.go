// Package pipeline is the road from features to a posterior. It holds no code of its own; its packages, in the
// order in which a value passes them, are
//
//   - point: weighted data points z = (h, y),
//   - task: which client holds which points,
//   - compress: a client's points to its upload,
//   - sample: uploads to drawn points,
//   - erm: points to a head,
//   - posterior: the methods, each a way from points to samples of a head,
//   - metric: heads to probabilities, and those to scores,
//   - meta: training of predictor and embedding,
//   - experiment and report: all of it, many times, to a table.
//
// The example takes the road step by step.
package pipeline
