// Package ttf names the fonts of a formula.
package ttf

import (
	"golang.org/x/image/font/sfnt"

	"codeberg.org/go-latex/latex/drawtex"
)

// Fonts are the faces of a formula.
type Fonts struct{ Default, Rm, It, Bf, BfIt *sfnt.Font }

// NewFrom returns the fonts that mtex.Parse takes.
func NewFrom(*drawtex.Canvas, *Fonts) *Fonts { return nil }
