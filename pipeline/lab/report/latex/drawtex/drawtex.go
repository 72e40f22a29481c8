// Package drawtex names the operations that draw a formula.
package drawtex

import "golang.org/x/image/font/sfnt"

// Op is an operation.
type Op any

// Glyph is a letter in a font.
type Glyph struct {
	Size   float64
	Font   *sfnt.Font
	Symbol string
}

// GlyphOp draws a letter at a place.
type GlyphOp struct {
	X, Y  float64
	Glyph Glyph
}

// RectOp draws a rectangle.
type RectOp struct{ X1, Y1, X2, Y2 float64 }

// Canvas holds operations.
type Canvas struct{}

// New returns an empty canvas.
func New() *Canvas { return &Canvas{} }

// Ops returns the operations, of which there are none.
func (*Canvas) Ops() []Op { return nil }
