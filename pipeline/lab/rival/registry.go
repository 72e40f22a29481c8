package rival

// registry lists the methods of the paper in the order of its table, then the others.
var registry = []Method{
	// nine of the paper's ten, in the order of its table
	lann, lbnn, lmp, ann, bnn, mp, cann, cbnn, cfmp,
	// forms of FMP; the paper's own is FMP-ISAB
	fmp, fmpMean, fmpLaplace, fmpJoint, fmpISAB, fmpOne,
	// rivals by class means, moments or class Gaussians, and by predictions
	ncm, lda, plda, regression, fedcgs, fedcgsCorpus, ghlda, ghqda, fisherMix, fed3r, fedpft,
	predbayes,
	// methods of private rounds
	fmpDP, fmpDPPlugin, fedpftDP,
	// controls and bounds
	prior, corpusOnly, fmpNamed,
}
