package dataset

import (
	"path/filepath"
	"testing"

	"fmp/featurize/digits"
	"fmp/featurize/imagefile"
	"fmp/onnx/must"
)

// TestWritten: photographs, some of them lying on their side, and DICOM files show what was drawn.
func TestWritten(t *testing.T) {
	shown(t, digits.Color, WritePhotos)
	shown(t, digits.Grey, WriteDICOM)
}

func shown(t *testing.T, variant digits.Variant, write func(string, *Dataset) error) {
	t.Helper()
	set := must.Get(digits.Draw(t.Context(), digits.Config{Variant: variant, Seed: 5, Train: 40, Test: 10}))(t)
	ds, dir := FromDrawn(string(variant), set), t.TempDir()
	must.Do(t, write(dir, ds))
	files, err := filepath.Glob(filepath.Join(dir, "train", "*", "*"))
	if err != nil || len(files) != 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	p := &ds.Train
	fit := imagefile.Fit{H: p.H, W: p.W, Ch: p.Ch}
	for i := range p.N {
		found, _ := filepath.Glob(filepath.Join(dir, "train", ds.Classes[p.Labels[i]],
			"00"+string(rune('0'+(i+1)/10))+string(rune('0'+(i+1)%10))+".*"))
		if len(found) != 1 {
			t.Fatalf("image %d: files %v", i, found)
		}
		got := make([]uint8, fit.Size())
		must.Do(t, fit.DecodeFile(t.Context(), found[0], got))
		var off float64
		for k, v := range p.At(i) {
			d := float64(got[k]) - float64(v)
			off += d * d
		}
		if off /= float64(len(got)); off > 300 { // a picture on its side is off by thousands
			t.Errorf("%s: mean squared difference %.0f", found[0], off)
		}
	}
}
