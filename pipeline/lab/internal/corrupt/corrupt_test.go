package corrupt

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"fmp/featurize/dataset"
	"fmp/models/rng"
	"fmp/onnx/must"
)

// scene is images of waves of all lengths and directions.
func scene(n, h, w, ch int) *dataset.Images {
	im := &dataset.Images{N: n, H: h, W: w, Ch: ch, Pix: make([]uint8, n*h*w*ch)}
	r := rng.New(7, "scene")
	for i := range n {
		v := make([]float64, h*w*ch)
		for k := 1; k <= 40; k++ {
			fx, fy, phase, size := 0.06*float64(k)*r.NormFloat64(), 0.06*float64(k)*r.NormFloat64(),
				7*r.Float64(), 20/math.Sqrt(float64(k))
			for p := range v {
				v[p] += size * math.Sin(fx*float64(p/ch%w)+fy*float64(p/ch/w)+phase+float64(p%ch))
			}
		}
		for p, x := range v {
			im.At(i)[p] = uint8(min(max(110+x, 0), 255))
		}
	}
	return im
}

// TestCorruptions: every kind changes an image, more so the more severe it is; the same stream
// gives the same pixels; the images given are left alone.
func TestCorruptions(t *testing.T) {
	for _, ch := range []int{1, 3} {
		im := scene(4, 32, 32, ch)
		was := bytes.Clone(im.Pix)
		for _, name := range Names() {
			last := 0.0
			for severity := 1; severity <= Severities; severity++ {
				out := must.Get(Apply(im, name, severity, rng.New(1, name)))(t)
				again := must.Get(Apply(im, name, severity, rng.New(1, name)))(t)
				if !bytes.Equal(out.Pix, again.Pix) {
					t.Errorf("%s: the same stream gave other pixels", name)
				}
				var distance float64
				for i, v := range out.Pix {
					d := float64(v) - float64(im.Pix[i])
					distance += d * d / float64(len(out.Pix))
				}
				if distance = math.Sqrt(distance); distance <= last {
					t.Errorf("%s of %d channels: severity %d is %.2f off, the one below %.2f", name, ch,
						severity, distance, last)
				}
				last = distance
			}
			if last < 3 || last > 80 {
				t.Errorf("%s at its worst is %.1f of 255 off", name, last)
			}
		}
		if !bytes.Equal(im.Pix, was) {
			t.Error("the images given were changed")
		}
	}
	for _, k := range []struct {
		name     string
		severity int
	}{{"fog", 1}, {"contrast", 0}, {"contrast", 6}} {
		must.Fail(Apply(scene(1, 8, 8, 1), k.name, k.severity, rng.New(1)))(t, "",
			fmt.Sprintf("%+v was done", k))
	}
}

// TestExact: corruptions whose pixels are known.
func TestExact(t *testing.T) {
	flat := &dataset.Images{N: 1, H: 6, W: 6, Ch: 1, Pix: bytes.Repeat([]byte{100}, 36)}
	for _, name := range []string{"gaussian-blur", "contrast", "pixelate"} {
		out := must.Get(Apply(flat, name, 5, rng.New(1)))(t)
		if !bytes.Equal(out.Pix, flat.Pix) {
			t.Errorf("%s changes an even image: %v", name, out.Pix)
		}
	}
	out, err := Apply(flat, "brightness", 2, rng.New(1)) // 25.5 brighter
	must.Do(t, err)
	if out.Pix[0] != 126 {
		t.Errorf("brightness 2 of 100 is %d, want 126", out.Pix[0])
	}
	if p := Inverted(flat).Pix[0]; p != 155 {
		t.Errorf("inverted 100 is %d", p)
	}
	if s := Shaped(scene(2, 28, 28, 1), scene(1, 32, 32, 3)); s.N != 2 || s.H != 32 || s.Ch != 3 ||
		len(s.Pix) != 2*32*32*3 {
		t.Errorf("shaped is %d x %d x %d x %d", s.N, s.H, s.W, s.Ch)
	}
	if n := Noise(flat, 3, rng.New(1)); n.N != 3 || len(n.Pix) != 108 {
		t.Errorf("noise is %d images", n.N)
	}
}
