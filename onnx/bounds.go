package onnx

import (
	"math"
)

// The versions that models written by these packages declare: read by every ONNX Runtime from 1.13
// on.
const (
	DefaultOpset = 17
	DefaultIR    = 8
)

// Operator set versions of the standard domain that are understood.
const (
	MinOpset = 7
	MaxOpset = 28
)

// MaxIR is the newest version of the file format that is understood.
const MaxIR = 14

// Bounds on models from outside. Models beyond them are refused.
const (
	MaxElements  = math.MaxInt32 // of a tensor: 2^31-1
	MaxRank      = 64            // of a value
	MaxDepth     = 32            // of subgraphs in each other
	MaxNameBytes = 1 << 12       // of the name of a value, a node or an attribute
)
