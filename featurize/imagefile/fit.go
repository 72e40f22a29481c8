package imagefile

import (
	"fmt"

	"fmp/models"
	"fmp/onnx"
)

// FitOf returns the shape of the images that a client graph or a classifier takes, by its input and
// its manifest. Height and width are in pixels, and the batch may be of any size.
func FitOf(images onnx.ValueInfo, f models.Manifest) (Fit, error) {
	var fit Fit
	if images.DType != onnx.Uint8 || len(images.Shape) != 4 {
		return fit, fmt.Errorf("its input is %v; want images, uint8 [n, H, W, Ch]", images)
	}
	// 4096 is the bound on stored images too.
	for i, to := range []*int{&fit.H, &fit.W, &fit.Ch} {
		d := images.Shape[i+1]
		if !d.IsKnown() || d.Size < 1 || d.Size > 4096 || (i == 2 && d.Size != 1 && d.Size != 3) {
			return fit, fmt.Errorf("its images are %v; want a fixed height and width of 1 to "+
				"4096 and 1 or 3 channels", images)
		}
		*to = d.Size
	}
	r, err := ParseResize(f.Resize)
	fit.Resize = r
	return fit, err
}
