// Package digits draws the default data set: printed digits in many typefaces, rotated, sheared,
// warped, eroded or thickened, blurred, and overlaid with clutter. Everything is drawn by this
// package from a seed. Training and test images use different typefaces, so that test images
// measure more than memorisation.
package digits

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"fmp/models/rng"
)

// Version changes whenever the same seed yields other images.
const Version = 2

// Variant is a form of the data set.
type Variant string

// The variants: 28x28 grey on black, and 32x32 colour on textured backgrounds.
const (
	Grey  Variant = "digits"
	Color Variant = "digits-color"
)

// VariantByName returns the variant whose data set has the given name, and whether there is one.
func VariantByName(name string) (Variant, bool) {
	v := Variant(name)
	return v, v == Grey || v == Color
}

// The default sizes of the two parts, and the maximum size of either.
const (
	DefaultTrain = 16_000
	DefaultTest  = 4_000
	MaxImages    = 200_000
)

// Config selects the images to draw.
type Config struct {
	Variant     Variant // "" means Grey
	Seed        uint64
	Train, Test int // number of images; 0 means DefaultTrain and DefaultTest
	// Progress, if not nil, is called with the number of images drawn, possibly from several
	// goroutines.
	Progress func(done, total int)
}

// Labelled is n images [n, Side, Side, Channels] and their digits.
type Labelled struct {
	Pix    []uint8
	Labels []uint8
}

// Set is a drawn data set.
type Set struct {
	Side, Channels int
	Train, Test    Labelled
}

// withDefaults returns c with the zero fields filled, and an error for one out of its bounds.
func (c Config) withDefaults() (Config, error) {
	c.Variant = cmp.Or(c.Variant, Grey)
	c.Train = cmp.Or(c.Train, DefaultTrain)
	c.Test = cmp.Or(c.Test, DefaultTest)
	if _, ok := VariantByName(string(c.Variant)); !ok {
		return c, fmt.Errorf("digits: variant %q; allowed are %q and %q", c.Variant, Grey, Color)
	}
	for _, n := range []int{c.Train, c.Test} {
		if n < 1 || n > MaxImages {
			return c, fmt.Errorf("digits: %d images; allowed are 1 to %d", n, MaxImages)
		}
	}
	return c, nil
}

// size returns the side in pixels and the channels of a variant.
func (v Variant) size() (side, channels int) {
	if v == Color {
		return 32, 3
	}
	return 28, 1
}

// Draw draws a data set. Every image has its own stream of random numbers, so the same Config gives
// the same bytes on any number of threads. The stream is named after the seed, the version, the
// variant, the part and the image's number.
func Draw(ctx context.Context, c Config) (*Set, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	all, err := faces()
	if err != nil {
		return nil, err
	}
	s := &Set{}
	s.Side, s.Channels = c.Variant.size()
	var done atomic.Int64
	part := func(name string, n int) (Labelled, error) {
		var mine []face
		for _, f := range all {
			if f.split == name {
				mine = append(mine, f)
			}
		}
		size := s.Side * s.Side * s.Channels
		p := Labelled{Pix: make([]uint8, n*size), Labels: make([]uint8, n)}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(runtime.GOMAXPROCS(0))
		const chunk = 200
		for from := 0; from < n; from += chunk {
			g.Go(func() error {
				pen := newPen(s.Side)
				for i := from; i < min(from+chunk, n); i++ {
					if err := ctx.Err(); err != nil {
						return err
					}
					r := rng.New(c.Seed, "digits", Version, c.Variant, name, i)
					y := r.IntN(10)
					p.Labels[i] = uint8(y)
					dst := p.Pix[i*size : (i+1)*size]
					glyph := mine[r.IntN(len(mine))].digits[y]
					if c.Variant == Color {
						pen.color(r, glyph, dst)
					} else {
						pen.grey(r, glyph, dst)
					}
				}
				if k := int(done.Add(int64(min(chunk, n-from)))); c.Progress != nil {
					c.Progress(k, c.Train+c.Test)
				}
				return nil
			})
		}
		return p, g.Wait()
	}
	if s.Train, err = part("train", c.Train); err != nil {
		return nil, err
	}
	if s.Test, err = part("test", c.Test); err != nil {
		return nil, err
	}
	return s, nil
}
