package digits

import (
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// packed are the ten digits of every face, gzipped, as fonts draw them at 256 pixels an em: a line
// "split, typeface, style", then for each digit a path in the commands of SVG (M, L, Q and C,
// absolute), in sixty-fourths of a pixel. The whole fonts would add 6 MB to the program.
//
//go:embed outlines.txt.gz
var packed string

// outlines unpacks the paths of all faces. The archive is part of the program, so that its size
// needs no bound.
func outlines() (string, error) {
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

// face is one font: a typeface ("Go", "DejaVu Sans") in one style. The typefaces of training images
// and of test images have no member in common. A classifier is thus tested on digits of shapes that
// it has not seen.
type face struct {
	split, typeface, style string
	digits                 [10]outline
}

// pt is a point of the plane; y points down, as in images.
type pt struct{ x, y float64 }

// outline is closed polygons, filled by the non-zero winding rule, scaled so that its bounding box
// has height 1 and is centred at the origin. Their lines are closed by [pen.fill], not by a last
// point that repeats the first. A digit with a hole has a polygon for the hole, of the other
// direction.
type outline [][]pt

// faces returns all faces that come with the program. They are read once, on the first call, and
// shared by all goroutines: nobody writes to them.
var faces = sync.OnceValues(func() ([]face, error) {
	text, err := outlines()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if err != nil {
		return nil, fmt.Errorf("digits: outlines: %w", err)
	} else if len(lines)%11 != 0 {
		return nil, fmt.Errorf("digits: outlines of %d lines, not 11 a face", len(lines))
	}
	var out []face
	for ; len(lines) > 0; lines = lines[11:] {
		name := strings.Split(lines[0], ", ")
		if len(name) != 3 {
			return nil, fmt.Errorf("digits: face %q is not a split, a "+
				"typeface and a style", lines[0])
		}
		f := face{split: name[0], typeface: name[1], style: name[2]}
		for d := range f.digits {
			segments, err := parsePath(lines[1+d])
			if err == nil {
				f.digits[d], err = flatten(segments)
			}
			if err != nil {
				return nil, fmt.Errorf("digits: digit %d of %s %s: %w", d, f.typeface, f.style, err)
			}
		}
		out = append(out, f)
	}
	return out, nil
})

// commands of a path, each with the points that follow its letter.
var commands = map[sfnt.SegmentOp]struct {
	letter byte
	points int
}{sfnt.SegmentOpMoveTo: {'M', 1}, sfnt.SegmentOpLineTo: {'L', 1}, sfnt.SegmentOpQuadTo: {'Q', 2},
	sfnt.SegmentOpCubeTo: {'C', 3}}

// parsePath reads a path of one digit. Coordinates are whole numbers, in sixty-fourths of a pixel
// ([fixed.Int26_6]). Maps are walked in no order, but at most one command has the letter.
func parsePath(line string) (sfnt.Segments, error) {
	var out sfnt.Segments
	words := strings.Fields(line)
next:
	for len(words) > 0 {
		for op, c := range commands {
			if words[0] != string(c.letter) || len(words) < 1+2*c.points {
				continue
			}
			s := sfnt.Segment{Op: op}
			for i, w := range words[1 : 1+2*c.points] {
				v, err := strconv.ParseInt(w, 10, 32)
				if err != nil {
					return nil, err
				}
				if p := &s.Args[i/2]; i%2 == 0 {
					p.X = fixed.Int26_6(v)
				} else {
					p.Y = fixed.Int26_6(v)
				}
			}
			out, words = append(out, s), words[1+2*c.points:]
			continue next
		}
		return nil, fmt.Errorf("%q and %d words after it are no command of a path",
			words[0], len(words)-1)
	}
	return out, nil
}

// flatten cuts the curves of one character into short lines, so that a warp bends them. Each
// becomes six lines, a straight one too, and points are scaled to [outline]'s box. Bounds are those
// of the control points too, so that a box may be larger than the ink.
func flatten(segs sfnt.Segments) (outline, error) {
	toPt := func(p fixed.Point26_6) pt { return pt{float64(p.X) / 64, float64(p.Y) / 64} }
	b := segs.Bounds()
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
			// t runs from 1/6 to 1: the first point is there already.
			t := float64(k) / steps
			u := 1 - t
			var p pt
			switch s.Op {
			case sfnt.SegmentOpLineTo:
				p = mix(pt{}, 0, p0, u, norm(toPt(s.Args[0])), t)
			// u^2 p0 + 2 u t p1 + t^2 p2, a Bezier curve of degree 2
			case sfnt.SegmentOpQuadTo:
				p = mix(p0, u*u, norm(toPt(s.Args[0])), 2*u*t, norm(toPt(s.Args[1])), t*t)
			// u^3 p0 + 3 u^2 t p1 + 3 u t^2 p2 + t^3 p3, one of degree 3
			case sfnt.SegmentOpCubeTo:
				a := mix(p0, u*u*u, norm(toPt(s.Args[0])), 3*u*u*t, norm(toPt(s.Args[1])), 3*u*t*t)
				p = mix(pt{}, 0, a, 1, norm(toPt(s.Args[2])), t*t*t)
			}
			*c = append(*c, p)
		}
	}
	return o, nil
}

// mix returns wa a + wb b + wc c. Weights need not add up to 1.
func mix(a pt, wa float64, b pt, wb float64, c pt, wc float64) pt {
	return pt{wa*a.x + wb*b.x + wc*c.x, wa*a.y + wb*b.y + wc*c.y}
}
