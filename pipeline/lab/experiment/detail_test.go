package experiment

import (
	"bytes"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"fmp/featurize/dataset"
	"fmp/onnx/must"
)

// inspected is what [Inspect] writes, in the folder path, of a small run on the data.
func inspected(t *testing.T, c *Config, d *Data, path string) *Detail {
	t.Helper()
	c.Federation.Partition = "homogeneous"
	c.FillDefaults()
	im := &dataset.Images{N: 60, H: 2, W: 3, Ch: 3, Pix: make([]uint8, 60*2*3*3)}
	for i := range im.N {
		im.At(i)[0] = uint8(i)
	}
	p := &Prepared{Config: *c, Data: d, Tools: Tools{Compressor: classMeans{}, Drawer: bootstrap{}},
		Images: im, Manifest: Manifest{Identity: "x", Classes: []string{"a", "b", "c", "d"}}}
	dir := must.Get(Open(path, *c, p.Manifest))(t)
	defer dir.Close()
	must.Do(t, Inspect(t.Context(), p, dir))
	return must.Get(ReadDetail(path))(t)
}

// Features that are all equal, as of a dead extractor, have no axes, and the file is written all
// the same.
func TestInspectEqualRows(t *testing.T) {
	c, d := small(), clusters(t, 4, 6, 300, 60)
	for i := range d.Clients.Len() {
		clear(d.Clients.Row(i))
	}
	if got := inspected(t, &c, d, t.TempDir()); got.View.Explained != [2]float64{} {
		t.Errorf("explained %v", got.View.Explained)
	}
}

func TestInspectPicksImagesAndPlacesPoints(t *testing.T) {
	c, d := small(), clusters(t, 4, 6, 300, 60)
	path := t.TempDir()
	got := inspected(t, &c, d, path)
	if len(got.Easy) != 4 || len(got.Hard) != 4 { // one a class
		t.Fatalf("%d easy and %d hard images", len(got.Easy), len(got.Hard))
	}
	if got.Easy[0].Entropy >= got.Hard[0].Entropy ||
		got.Hard[0].Disagreement < got.Hard[1].Disagreement {
		t.Errorf("easy %+v, hard %+v", got.Easy[0], got.Hard[0])
	}
	for _, e := range append(got.Easy, got.Hard...) {
		pic := must.Get(png.Decode(bytes.NewReader(e.PNG)))(t)
		if r, _, _, _ := pic.At(0, 0).RGBA(); int(r>>8) != e.Index || e.Label != d.TestLabels[e.Index] {
			t.Errorf("image %d shows image %d with label %d", e.Index, r>>8, e.Label)
		}
		if len(e.Samples) != c.Posterior.Samples {
			t.Errorf("%d samples", len(e.Samples))
		}
		var mean float64 // the mean of the samples is the ensemble's probability
		for _, s := range e.Samples {
			mean += s[0] / float64(len(e.Samples))
		}
		if math.Abs(mean-e.Mean[e.Top[0]]) > 1e-9 {
			t.Errorf("image %d: the samples' mean is %g, the ensemble's %g", e.Index, mean,
				e.Mean[e.Top[0]])
		}
	}
	v := got.View
	if len(v.Sets["client"]) != c.Federation.Points || len(v.Sets["upload"]) != 4 ||
		len(v.Sets["drawn"]) != c.Predictor.Fresh {
		t.Errorf("%d, %d and %d points", len(v.Sets["client"]), len(v.Sets["upload"]),
			len(v.Sets["drawn"]))
	}
	if v.Explained[0] < v.Explained[1] || v.Explained[0] > 1 || v.Explained[1] <= 0 {
		t.Errorf("explained %v", v.Explained)
	}
	must.Do(t, os.WriteFile(filepath.Join(path, DetailFile),
		[]byte(`{"classes":["a"],"hard":[{"label":7}]}`), 0o644))
	must.Fail(ReadDetail(path))(t, "class 7 of 1", "a spoilt file")
}
