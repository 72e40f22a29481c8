// Package pipeline documents the path from features to a posterior. It holds no code of its own; its packages, in the
// order in which data pass through them, are
//
//   - point: weighted data points z = (h, y),
//   - task: which client holds which points,
//   - compress: a client's points to its upload,
//   - sample: uploads to drawn points,
//   - erm: points to a head,
//   - posterior: the methods, each from points to posterior samples of a head,
//   - metric: heads to probabilities, and probabilities to scores,
//   - meta: training of predictor and embedding,
//   - experiment and report: repeated runs of all of these, and their tables.
//
// The example goes through them step by step.
package pipeline
