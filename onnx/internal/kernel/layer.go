package kernel

// Layer returns the package that a program imports to have an operator that is in none by default:
// "" for all others. It names them apart from their code, which a program without the import does
// not hold.
func Layer(op string) string {
	switch op {
	case "DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix",
		"Unique", "Col2Im", "Det", "MaxUnpool",
		"TensorScatter", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss",
		"NonMaxSuppression":
		return "fmp/onnx/rare"
	case "StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch", "TfIdfVectorizer":
		return "fmp/onnx/text"
	}
	return ""
}
