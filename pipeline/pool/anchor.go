package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"fmp/pipeline/discriminant"
	"fmp/pipeline/posterior"
	"fmp/pipeline/shipped"
)

// ShippedAnchor and LeftOut stand in place of a file: the anchor that comes with the program, and
// none.
const (
	ShippedAnchor = "default"
	LeftOut       = "none"
)

// anchoring says where a round's anchor is from.
type anchoring int

const (
	anchoredNot   anchoring = iota // there is none, or nobody is judged
	anchoredGiven                  // Options.Anchor, or AnchorUpload
	// it comes with the program, and yields where it contradicts too many clients
	anchoredShipped
	anchoredMissing // clients are judged by each other alone
)

// anchors sets the anchor of a round that was given none, and returns an error for one that does
// not go with the round. An anchor must be of the round's own client graph, as its means are
// compared with the clients'.
func (r *Round) anchors() (err error) {
	a := r.AnchorUpload
	switch {
	case a == nil && (r.Trust || !r.closedForm()): // nobody is judged
		return nil
	case a == nil && r.Anchor == LeftOut:
		r.anchored = anchoredMissing
		return nil
	case a == nil:
		r.anchored = anchoredShipped
		if r.AnchorUpload, err = shipped.Anchor(r.Client, r.Graph); errors.Is(err, fs.ErrNotExist) {
			r.anchored, err = anchoredMissing, nil
		}
		return err
	case r.Trust:
		return errors.New("an anchor says which clients are honest, and all are taken for " +
			"honest: leave one of the two out")
	case a.Model != r.Uploads[0].Model:
		return fmt.Errorf("the anchor was made by the client graph %.12s, and the round's is "+
			"%.12s: make it with the round's", a.Model, r.Uploads[0].Model)
	}
	r.anchored = anchoredGiven
	return nil
}

// knownMoments returns the anchor of a round of moments; nil where it has none.
func (r *Round) knownMoments() (*discriminant.Client, error) {
	a := r.AnchorUpload
	if a == nil {
		return nil, nil
	}
	if a.Within == nil {
		return nil,
			errors.New("pool: the anchor holds no moments, and the uploads do: make it with the " +
				"round's client graph")
	}
	return &discriminant.Client{Means: a.Points, Within: a.Within}, nil
}

// Anchored names the images by which the round's clients are judged besides each other, in a
// sentence; "" where nobody is judged.
func (r *Round) Anchored(j *posterior.Judgement) string {
	m := len(r.Uploads)
	switch {
	case j == nil || r.Rest != nil && r.anchored == anchoredMissing:
		return ""
	case j.Yielded:
		return "left out: the anchor that comes with the program contradicts more than two " +
			"thirds of the clients; " + falls(m)
	case r.anchored == anchoredShipped:
		return fmt.Sprintf("%d images that come with the program, of all %d classes",
			r.AnchorUpload.N, r.Client.C)
	case r.anchored == anchoredGiven:
		return fmt.Sprintf("%d images of %q%s", r.AnchorUpload.N, r.AnchorUpload.Client, r.thin())
	}
	return "none: " + falls(m)
}

// wellHeld is the number of images of a class from which on an anchor judges it, as the shipped one
// has them.
const wellHeld = 10

// thin says of how many classes the anchor has too few images; "" where of none. An image of
// several classes counts for each by the share of its label. Sums of float32 counts are rounded to
// whole images.
func (r *Round) thin() string {
	held := make([]float64, r.Client.C)
	for i, w := range r.AnchorUpload.Points.W {
		r.AnchorUpload.Points.Shares(i,
			func(y int, share float32) { held[y] += float64(share * w) })
	}
	n := 0
	for _, images := range held {
		if images > 0 && math.Round(images) < wellHeld {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; of %d classes it has fewer than %d images, by which honest clients may "+
		"pass for bad ones: give more", n, wellHeld)
}

// falls says from how many colluders on a round falls whose clients judge each other: half of them,
// rounded up.
func falls(clients int) string {
	return fmt.Sprintf("%d of %d clients that collude take the round over, fewer where a class "+
		"has few holders (docs/byzantine.md, Colluders, and an anchor)", (clients+1)/2, clients)
}
