package posterior

// registry lists the methods in the order of the letter's table, then what is beyond it.
var registry = []Method{lann, lbnn, lmp, ann, bnn, mp, cann, cbnn, cfmp, fmp, fmpMean, fmpISAB,
	ncm, lda, plda, regression, fedcgs, ghlda, ghqda, fed3r, fedpft, predbayes, fmpDP, fmpDPPlugin, fedpftDP, prior, corpusOnly, fmpNamed}
