// Package liberationmonoitalic provides Liberation Sans Regular under this name.
package liberationmonoitalic

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is the font, as TrueType.
var TTF = liberationsansregular.TTF
