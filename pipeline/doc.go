// Package pipeline documents the path from features to a classifier. It holds no code of its own.
// Its packages are the product; the order is that in which data pass through them:
//
//   - point: weighted data points z = (h, y),
//   - compress: a client's points to its upload,
//   - privacy: uploads of class sums with noise,
//   - federate: uploads, rounds and their service between machines,
//   - honesty: uploads to the probability that each client is honest,
//   - sample: uploads to drawn points, or to heads in closed form,
//   - erm: points to a head,
//   - open: predictors for classes that the corpus lacks,
//   - posterior: uploads to posterior samples of a head,
//   - pool: a round's uploads to a classifier,
//   - classify and evaluate: images to probabilities, and these to scores (metric),
//   - corpus, task and meta: training of the predictors that ship with the program (shipped), on
//     rounds drawn from the server's own images,
//   - oneshot: a round as three functions, and settings: the settings of commands.
//
// The laboratory lies under lab and uses the product, never the reverse:
//
//   - lab/rival and lab/score: FMP and its rivals behind one interface, their tuning, and how they
//     are scored,
//   - lab/experiment and lab/report: repeated runs of all methods, and their tables,
//   - lab/attack, lab/audit and lab/bench: bad clients, leakage by uploads, and costs.
//
// The example goes through them step by step.
package pipeline
