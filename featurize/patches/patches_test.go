package patches

import (
	"bytes"
	"context"
	"testing"

	"fmp/featurize/dataset"
	"fmp/featurize/digits"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

func drawn(t *testing.T, n int) *dataset.Labelled {
	t.Helper()
	s := must.Get(digits.Draw(context.Background(), digits.Config{Train: n, Test: 1}))(t)
	p := &dataset.Labelled{Images: dataset.Images{N: n, H: s.Side, W: s.Side, Ch: 1, Pix: s.Train.Pix}}
	for _, y := range s.Train.Labels {
		p.Labels = append(p.Labels, int(y))
	}
	return p
}

func TestLearnSeparatesClassesTheSameOnAnyNumberOfWorkers(t *testing.T) {
	eng := orttest.New(t)
	part := drawn(t, 1200)
	o := Options{Filters: 16, Dx: 9, Samples: 1000, Grid: 3, Rounds: 5, Ridge: 0.01, Seed: 3}
	known := must.Get(part.Range(dataset.Range{To: 900}))(t)
	var files [][]byte
	var m *onnx.Model
	for _, w := range []int{1, 3} {
		o.Threads = w
		m = must.Get(Learn(context.Background(), eng, known, 10, o))(t)
		b := must.Get(serde.Marshal(m))(t)
		files = append(files, b)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("1 and 3 threads learn different extractors")
	}
	x := must.Get(extractor.New(eng, m, models.Manifest{}, extractor.Options{}, part.Images))(t)
	defer x.Close()
	h := must.Get(x.Features(context.Background(), &part.Images, nil))(t)
	// Nearest class mean on images that nothing was learned from.
	var mean [10][9]float64
	var count [10]float64
	for i, y := range known.Labels {
		count[y]++
		for k := range 9 {
			mean[y][k] += float64(h[9*i+k])
		}
	}
	right := 0
	for i := known.N; i < part.N; i++ {
		best, least := -1, 0.0
		for c := range 10 {
			var d float64
			for k := range 9 {
				e := float64(h[9*i+k]) - mean[c][k]/count[c]
				d += e * e
			}
			if best < 0 || d < least {
				best, least = c, d
			}
		}
		if best == part.Labels[i] {
			right++
		}
	}
	if acc := float64(right) / float64(part.N-known.N); acc < 0.5 {
		t.Errorf("nearest class mean is right on %.2f of new images; chance is 0.10", acc)
	}
}

func TestLearnErrors(t *testing.T) {
	eng := orttest.New(t)
	part := drawn(t, 200)
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"side":    {Options{Side: 40}, "do not fit"},
		"grid":    {Options{Grid: 25}, "does not fit"},
		"samples": {Options{Samples: 5}, "do not fit"},
		"dx":      {Options{Filters: 2, Samples: 100, Grid: 1, Dx: 5}, "ask for fewer"},
	} {
		must.Fail(Learn(context.Background(), eng, part, 10, c.o))(t, c.want, name)
	}
	blank := &dataset.Labelled{Images: dataset.Images{N: 200, H: 28, W: 28, Ch: 1,
		Pix: make([]uint8, 200*784)}, Labels: make([]int, 200)}
	must.Fail(Learn(context.Background(), eng, blank, 2, Options{Samples: 1000, Filters: 4}))(t,
		"blank", "blank images")
	few, _ := part.Range(dataset.Range{To: 50})
	must.Fail(Learn(context.Background(), eng, few, 10, Options{}))(t, "", "50 images")
}
