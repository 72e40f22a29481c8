// Package classical makes the pure engine and gradients know the linear models, trees and encoders
// of ai.onnx.ml, as exporters of scikit-learn and of boosted trees write them. It is imported for
// that alone:
//
//	import _ "fmp/onnx/classical"
//
// The ONNX Runtime knows them by itself. Support vector machines, ZipMap and CastMap are refused.
// testdata/exports.py compares the engines on exports of both libraries.
package classical

import "fmp/onnx/internal/spell"

func init() { spell.EnableClassical() }
