// Package liberationserifbolditalic provides Liberation Sans Regular under this name.
package liberationserifbolditalic

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is the font, as TrueType.
var TTF = liberationsansregular.TTF
