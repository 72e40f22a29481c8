// Package text makes the pure engine know the operators on strings: StringConcat, StringSplit,
// StringNormalizer, RegexFullMatch and TfIdfVectorizer. It is imported for that alone:
//
//	import _ "fmp/onnx/text"
//
// The ONNX Runtime knows them by itself.
package text

import "fmp/onnx/internal/kernel"

func init() { kernel.EnableText() }
