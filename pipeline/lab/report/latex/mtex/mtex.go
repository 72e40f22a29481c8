// Package mtex refuses formulas.
package mtex

import (
	"errors"

	"codeberg.org/go-latex/latex/drawtex"
	"codeberg.org/go-latex/latex/font/ttf"
	"codeberg.org/go-latex/latex/tex"
)

// Renderer draws a canvas.
type Renderer interface {
	Render(width, height, dpi float64, c *drawtex.Canvas) error
}

// Parse returns an error: formulas are not linked.
func Parse(string, float64, float64, *ttf.Fonts) (tex.Tree, error) {
	return nil, errors.New("mtex: formulas are not linked into this program")
}
