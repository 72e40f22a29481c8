package bench

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"time"

	"fmp/featurize/imagefile"
	"fmp/pipeline/lab/internal/processor"
)

// Photo holds the times of a photograph on its way from a file to a model's pixels, in milliseconds
// of the processor. Times are of the whole process: decoding may use several threads.
type Photo struct {
	Megapixels float64 `json:"megapixels"`
	Width      int     `json:"width"`
	Height     int     `json:"height"`
	Format     string  `json:"format"`
	Bytes      int     `json:"bytes"`
	// Covers is how many of the photograph's pixels a decoded one covers, across and down. A
	// decoder of JPEG can leave out resolution that a small fit has no use for, which makes the
	// numbers exceed 1.
	Covers [2]float64 `json:"covers"`
	Decode Spread     `json:"decode"`
	Resize Spread     `json:"resize"`
	All    Spread     `json:"all"`
}

// Bounds on a drawn photograph.
const (
	MinMegapixels = 0.001
	MaxMegapixels = float64(imagefile.MaxPixels) / 1e6
)

// Photos measures drawn photographs of the given megapixels, 4 by 3, in the formats JPEG and PNG,
// brought to a fit. Width and height are whole, so that the megapixels are met from below. Results
// are by megapixels, JPEG before PNG. progress is told before each photograph.
func Photos(ctx context.Context, fit imagefile.Fit, megapixels []float64, runs int,
	progress func(done, total int)) ([]Photo, error) {
	formats := []struct {
		name   string
		encode func(*bytes.Buffer, image.Image) error
	}{
		{"JPEG", func(b *bytes.Buffer, im image.Image) error {
			return jpeg.Encode(b, im, &jpeg.Options{Quality: 90})
		}},
		{"PNG", func(b *bytes.Buffer, im image.Image) error {
			return (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(b, im)
		}},
	}
	var out []Photo
	for i, m := range megapixels {
		// m 10^6 = w h pixels with w = 4/3 h.
		height := int(math.Sqrt(m * 1e6 * 3 / 4))
		im := drawnPhoto(height*4/3, height)
		for k, format := range formats {
			progress(i*len(formats)+k, len(megapixels)*len(formats))
			var b bytes.Buffer
			if err := format.encode(&b, im); err != nil {
				return nil, err
			}
			p := Photo{Megapixels: m, Width: im.Rect.Dx(), Height: im.Rect.Dy(),
				Format: format.name, Bytes: b.Len()}
			if err := p.measure(ctx, fit, b.Bytes(), runs); err != nil {
				return nil, err
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// measure fills in the times, of runs after one to warm up. Reading decodes as far as the fit
// wants it, and the second part resizes. The file is in memory: reading a disk is not measured.
func (p *Photo) measure(ctx context.Context, fit imagefile.Fit, data []byte, runs int) error {
	pix := make([]uint8, fit.Size())
	var decode, resize, all []float64
	for run := range runs + 1 {
		start := processor.Time()
		im, err := fit.Read(ctx, data)
		if err != nil {
			return err
		}
		between := processor.Time()
		p.Covers[0], p.Covers[1] = im.Covers()
		im.Pixels(pix)
		end := processor.Time()
		if run == 0 {
			continue
		}
		ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
		decode, resize, all = append(decode, ms(between-start)), append(resize, ms(end-between)),
			append(all, ms(end-start))
	}
	p.Decode, p.Resize, p.All = newSpread(decode), newSpread(resize), newSpread(all)
	return nil
}

// drawnPhoto draws shapes in smooth light with the noise of a sensor, the same for a size. A
// picture is 600 units wide. Its edges are those of tiles of 47 x 61 units, a third of which are
// darker by 50. Noise keeps a codec busy, as a smooth picture would be coded in a few bytes. Its
// deviation is 3 of 255, a pixel at a time.
func drawnPhoto(w, h int) *image.RGBA {
	random := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	im := image.NewRGBA(image.Rect(0, 0, w, h))
	wave := make([]float64, w)
	unit := 600 / float64(max(w, 1)) // shapes grow with the picture, noise does not
	for x := range wave {
		wave[x] = 40 * math.Sin(float64(x)*unit/31)
	}
	for y := range h {
		light := 40 * math.Cos(float64(y)*unit/23)
		for x := range w {
			v := 120 + wave[x] + light + 3*random.NormFloat64()
			if (int(float64(x)*unit)/47+int(float64(y)*unit)/61)%3 == 0 {
				v -= 50
			}
			pix := im.Pix[4*(y*w+x):]
			for c, shift := range []float64{20, 0, -15} {
				pix[c] = uint8(min(255, max(0, v+shift*math.Sin(float64(x+y)*unit/97))))
			}
			pix[3] = 255
		}
	}
	return im
}
