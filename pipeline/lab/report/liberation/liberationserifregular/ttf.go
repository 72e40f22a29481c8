// Package liberationserifregular provides Liberation Sans Regular under this name.
package liberationserifregular

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is the font, as TrueType.
var TTF = liberationsansregular.TTF
