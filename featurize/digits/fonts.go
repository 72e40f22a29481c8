package digits

import (
	"fmt"
	"sync"

	"codeberg.org/go-fonts/dejavu/dejavusans"
	"codeberg.org/go-fonts/dejavu/dejavusansbold"
	"codeberg.org/go-fonts/dejavu/dejavusansextralight"
	"codeberg.org/go-fonts/dejavu/dejavusansmono"
	"codeberg.org/go-fonts/dejavu/dejavusansmonooblique"
	"codeberg.org/go-fonts/dejavu/dejavuserif"
	"codeberg.org/go-fonts/dejavu/dejavuserifbold"
	"codeberg.org/go-fonts/dejavu/dejavuserifitalic"
	"codeberg.org/go-fonts/latin-modern/lmmono10italic"
	"codeberg.org/go-fonts/latin-modern/lmmono10regular"
	"codeberg.org/go-fonts/latin-modern/lmmonolt10bold"
	"codeberg.org/go-fonts/latin-modern/lmroman10bold"
	"codeberg.org/go-fonts/latin-modern/lmroman10italic"
	"codeberg.org/go-fonts/latin-modern/lmroman10regular"
	"codeberg.org/go-fonts/latin-modern/lmromandunh10regular"
	"codeberg.org/go-fonts/latin-modern/lmsans10bold"
	"codeberg.org/go-fonts/latin-modern/lmsans10oblique"
	"codeberg.org/go-fonts/latin-modern/lmsans10regular"
	"codeberg.org/go-fonts/latin-modern/lmsansdemicond10regular"
	"codeberg.org/go-fonts/latin-modern/lmsansquot8regular"
	"codeberg.org/go-fonts/liberation/liberationmonobold"
	"codeberg.org/go-fonts/liberation/liberationmonoitalic"
	"codeberg.org/go-fonts/liberation/liberationmonoregular"
	"codeberg.org/go-fonts/liberation/liberationsansbold"
	"codeberg.org/go-fonts/liberation/liberationsansbolditalic"
	"codeberg.org/go-fonts/liberation/liberationsansitalic"
	"codeberg.org/go-fonts/liberation/liberationsansregular"
	"codeberg.org/go-fonts/liberation/liberationserifbold"
	"codeberg.org/go-fonts/liberation/liberationserifbolditalic"
	"codeberg.org/go-fonts/liberation/liberationserifitalic"
	"codeberg.org/go-fonts/liberation/liberationserifregular"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gobolditalic"
	"golang.org/x/image/font/gofont/goitalic"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// face is one font: a typeface ("Go", "DejaVu Sans") in one style.
type face struct {
	typeface, style string
	data            []byte
}

// The typefaces of training images and of test images have no member in common.
var (
	trainFaces = []face{
		{"Go", "regular", goregular.TTF}, {"Go", "bold", gobold.TTF},
		{"Go", "italic", goitalic.TTF}, {"Go", "bold italic", gobolditalic.TTF},
		{"Go Mono", "regular", gomono.TTF}, {"Go Mono", "bold", gomonobold.TTF},
		{"Liberation Sans", "regular", liberationsansregular.TTF}, {"Liberation Sans", "bold", liberationsansbold.TTF},
		{"Liberation Sans", "italic", liberationsansitalic.TTF}, {"Liberation Sans", "bold italic", liberationsansbolditalic.TTF},
		{"Liberation Serif", "regular", liberationserifregular.TTF}, {"Liberation Serif", "bold", liberationserifbold.TTF},
		{"Liberation Serif", "italic", liberationserifitalic.TTF}, {"Liberation Serif", "bold italic", liberationserifbolditalic.TTF},
		{"Latin Modern Roman", "regular", lmroman10regular.TTF}, {"Latin Modern Roman", "bold", lmroman10bold.TTF},
		{"Latin Modern Roman", "italic", lmroman10italic.TTF}, {"Latin Modern Roman", "Dunhill", lmromandunh10regular.TTF},
		{"Latin Modern Mono", "regular", lmmono10regular.TTF}, {"Latin Modern Mono", "italic", lmmono10italic.TTF},
		{"Latin Modern Mono", "bold", lmmonolt10bold.TTF},
		{"DejaVu Sans Mono", "regular", dejavusansmono.TTF}, {"DejaVu Sans Mono", "oblique", dejavusansmonooblique.TTF},
	}
	testFaces = []face{
		{"DejaVu Sans", "regular", dejavusans.TTF}, {"DejaVu Sans", "bold", dejavusansbold.TTF},
		{"DejaVu Sans", "extra light", dejavusansextralight.TTF},
		{"DejaVu Serif", "regular", dejavuserif.TTF}, {"DejaVu Serif", "bold", dejavuserifbold.TTF},
		{"DejaVu Serif", "italic", dejavuserifitalic.TTF},
		{"Liberation Mono", "regular", liberationmonoregular.TTF}, {"Liberation Mono", "bold", liberationmonobold.TTF},
		{"Liberation Mono", "italic", liberationmonoitalic.TTF},
		{"Latin Modern Sans", "regular", lmsans10regular.TTF}, {"Latin Modern Sans", "bold", lmsans10bold.TTF},
		{"Latin Modern Sans", "oblique", lmsans10oblique.TTF}, {"Latin Modern Sans", "demi condensed", lmsansdemicond10regular.TTF},
		{"Latin Modern Sans", "quotation", lmsansquot8regular.TTF},
	}
)

// pt is a point of the plane; y points down, as in images.
type pt struct{ x, y float64 }

// outline is closed polygons, filled by the non-zero winding rule, scaled so that its bounding box has
// height 1 and is centred at the origin.
type outline [][]pt

// glyphs holds the outlines of the ten digits in each face of a split.
var (
	trainGlyphs = sync.OnceValues(func() ([][10]outline, error) { return loadGlyphs(trainFaces) })
	testGlyphs  = sync.OnceValues(func() ([][10]outline, error) { return loadGlyphs(testFaces) })
)

func loadGlyphs(faces []face) ([][10]outline, error) {
	out := make([][10]outline, len(faces))
	for i, f := range faces {
		for d := range 10 {
			o, err := glyph(f.data, rune('0'+d))
			if err != nil {
				return nil, fmt.Errorf("digit %d of %s %s: %w", d, f.typeface, f.style, err)
			}
			out[i][d] = o
		}
	}
	return out, nil
}

// glyph is the outline of one character, its curves cut into short lines so that a warp bends it.
func glyph(ttf []byte, r rune) (outline, error) {
	f, err := sfnt.Parse(ttf)
	if err != nil {
		return nil, err
	}
	var buf sfnt.Buffer
	g, err := f.GlyphIndex(&buf, r)
	if err != nil {
		return nil, err
	}
	if g == 0 {
		return nil, fmt.Errorf("the font has no such character")
	}
	const ppem = 256
	b, _, err := f.GlyphBounds(&buf, g, fixed.I(ppem), font.HintingNone)
	if err != nil {
		return nil, err
	}
	segs, err := f.LoadGlyph(&buf, g, fixed.I(ppem), nil)
	if err != nil {
		return nil, err
	}
	toPt := func(p fixed.Point26_6) pt { return pt{float64(p.X) / 64, float64(p.Y) / 64} }
	lo, hi := toPt(b.Min), toPt(b.Max)
	h := hi.y - lo.y
	if !(h > 0) {
		return nil, fmt.Errorf("the character is empty")
	}
	norm := func(p pt) pt { return pt{(p.x - (lo.x+hi.x)/2) / h, (p.y - (lo.y+hi.y)/2) / h} }
	var o outline
	for _, s := range segs {
		if s.Op == sfnt.SegmentOpMoveTo {
			o = append(o, []pt{norm(toPt(s.Args[0]))})
			continue
		}
		if len(o) == 0 {
			return nil, fmt.Errorf("the outline does not begin with a move")
		}
		c := &o[len(o)-1]
		p0 := (*c)[len(*c)-1]
		const steps = 6
		for k := 1; k <= steps; k++ {
			t := float64(k) / steps
			u := 1 - t
			var p pt
			switch s.Op {
			case sfnt.SegmentOpLineTo:
				p = mix(pt{}, 0, p0, u, norm(toPt(s.Args[0])), t)
			case sfnt.SegmentOpQuadTo:
				p = mix(p0, u*u, norm(toPt(s.Args[0])), 2*u*t, norm(toPt(s.Args[1])), t*t)
			case sfnt.SegmentOpCubeTo:
				a := mix(p0, u*u*u, norm(toPt(s.Args[0])), 3*u*u*t, norm(toPt(s.Args[1])), 3*u*t*t)
				p = mix(pt{}, 0, a, 1, norm(toPt(s.Args[2])), t*t*t)
			}
			*c = append(*c, p)
		}
	}
	return o, nil
}

func mix(a pt, wa float64, b pt, wb float64, c pt, wc float64) pt {
	return pt{wa*a.x + wb*b.x + wc*c.x, wa*a.y + wb*b.y + wc*c.y}
}
