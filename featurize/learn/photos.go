package learn

import (
	"math/rand/v2"

	"fmp/featurize/dataset"
	"fmp/onnx"
	"fmp/onnx/train"
)

// Photos returns labelled images as examples for [train.Tuning]: feed makes the model's input of
// images ([extractor.Feeder]), the target is the class, as probabilities [n, classes] or, for a
// contrastive loss, as a number [n, 1]. In training images are flipped and shifted as a says. Batch
// is as safe for several goroutines as feed is, and the images must be in memory. Without r, as in
// validation, images stay as they are. The part is not changed: Select copies the images.
func Photos(
	part *dataset.Labelled, classes int, loss string, a Augment,
	feed func(*dataset.Images) (map[string]*onnx.Tensor, error),
) train.Data {
	return train.Data{N: part.N,
		Batch: func(rows []int, r *rand.Rand) (map[string]*onnx.Tensor, error) {
			im, err := part.Select(rows)
			if err != nil {
				return nil, err
			}
			if r != nil && (a.Flip || a.Shift > 0) {
				// The varied image is made beside its source, since pixels are read after their
				// place is written.
				buf := make([]uint8, im.H*im.W*im.Ch)
				for i := range im.N {
					a.vary(buf, im.At(i), im.H, im.W, im.Ch, r)
					copy(im.At(i), buf)
				}
			}
			feeds, err := feed(im)
			if err != nil {
				return nil, err
			}
			labels := make([]int, len(rows))
			for i, row := range rows {
				labels[i] = part.Labels[row]
			}
			feeds[train.TargetInput] = train.Target(labels, classes, loss)
			return feeds, nil
		}}
}
