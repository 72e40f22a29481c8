// Package liberationserifitalic provides Liberation Sans Regular under this name.
package liberationserifitalic

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is the font, as TrueType.
var TTF = liberationsansregular.TTF
