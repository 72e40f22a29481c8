package kernel

// EnableRare makes [Prepare] know the operators that networks over images seldom have: of signals,
// losses, detection and others. Package rare calls it, once and before anything runs; programs that
// do not import that package do not hold their code.
func EnableRare() {
	register(
		Def{Op: "DFT", Since: 17, Half: true, New: newDFT},
		Def{Op: "STFT", Since: 17, Half: true, New: newSTFT},
		Def{Op: "HannWindow", Since: 17, OutType: outputDatatype,
			New: newWindowFunction(0.5, 0.5, 0)},
		Def{Op: "HammingWindow", Since: 17, OutType: outputDatatype,
			New: newWindowFunction(25./46, 21./46, 0)},
		Def{Op: "BlackmanWindow", Since: 17, OutType: outputDatatype,
			New: newWindowFunction(0.42, 0.5, 0.08)},
		Def{Op: "MelWeightMatrix", Since: 17, OutType: outputDatatype, New: newMelWeightMatrix},
		Def{Op: "Unique", Since: 11, Half: true, New: newUnique},
		Def{Op: "Col2Im", Since: 18, Half: true, New: newCol2Im},
		Def{Op: "Det", Since: 11, Half: true, New: newDet},
		Def{Op: "MaxUnpool", Since: 9, Half: true, New: newMaxUnpool},
		Def{Op: "TensorScatter", Since: 24, New: newTensorScatter},
		Def{Op: "NegativeLogLikelihoodLoss", Since: 12, Half: true, New: newLoss(false)},
		Def{Op: "SoftmaxCrossEntropyLoss", Since: 12, Half: true, New: newLoss(true)},
		Def{Op: "NonMaxSuppression", Since: 10, New: newNonMaxSuppression},
	)
}
