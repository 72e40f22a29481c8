package dataset

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
)

// ContactSheet writes a PNG with one row per class, which shows the first cols images of that class
// in p, magnified scale times. Images are 2 pixels apart, on grey. Rows go from class 0 to
// classes-1, and images of a row are in the order of p. A row of fewer images ends in grey. Every
// pixel becomes a square of scale x scale, not interpolated: the sheet shows pixels as they are
// stored. p must be in memory.
func ContactSheet(w io.Writer, p *Labelled, classes, cols, scale int) error {
	if classes < 1 || cols < 1 || scale < 1 || scale > 16 || cols > 1000 || classes*cols > 100_000 {
		return fmt.Errorf("a contact sheet of %d rows and %d columns at scale %d; allowed are 1 "+
			"to 1000 columns, 100000 images and scale 1 to 16", classes, cols, scale)
	}
	const gap = 2
	cw, ch := p.W*scale+gap, p.H*scale+gap
	// At four bytes a pixel this is 1 GiB. Sides are at most [MaxSide] and the counts are bounded
	// above, so that the product fits 64 bits.
	if cols*cw*classes*ch > 1<<28 {
		return fmt.Errorf("a contact sheet of %dx%d pixels is too large; ask for fewer columns "+
			"or a smaller scale", cols*cw, classes*ch)
	}
	out := image.NewRGBA(image.Rect(0, 0, cols*cw+gap, classes*ch+gap))
	for i := range out.Pix {
		out.Pix[i] = 128
		if i%4 == 3 {
			out.Pix[i] = 255
		}
	}
	// Images of a class beyond the last column are passed over, and so are labels of no class.
	filled := make([]int, classes)
	for i, y := range p.Labels {
		if y < 0 || y >= classes || filled[y] == cols {
			continue
		}
		x0, y0 := gap+filled[y]*cw, gap+y*ch
		filled[y]++
		im := p.At(i)
		for r := range p.H * scale {
			for c := range p.W * scale {
				at := ((r/scale)*p.W + c/scale) * p.Ch
				px := color.RGBA{im[at], im[at], im[at], 255}
				if p.Ch == 3 {
					px.G, px.B = im[at+1], im[at+2]
				}
				out.SetRGBA(x0+c, y0+r, px)
			}
		}
	}
	return png.Encode(w, out)
}
