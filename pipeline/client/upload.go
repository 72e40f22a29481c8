package client

import (
	"context"
	"fmt"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
)

// Parse returns the client of a client graph's file.
// The manifest's digest is that of the very bytes. threads are as in [New].
// A graph of another kind, or one without features, classes or points, is an error: no upload
// could be made of it.
func Parse(data []byte, threads int) (*Client, error) {
	m, err := serde.Closed(data)
	if err != nil {
		return nil, err
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, err
	}
	if f.Kind != models.KindClient || f.Dx < 1 || f.C < 2 || f.S < 1 {
		return nil, fmt.Errorf("its manifest says kind %q, dx %d, %d classes and s %d; "+
			"want %q, the file that fmp fuse writes, with dx and s of at least 1 and 2 classes",
			f.Kind, f.Dx, f.C, f.S, models.KindClient)
	}
	f.Digest = models.DigestBytes(data)
	return New(m, f, threads)
}

// Classes returns the classes that folders and lists of images may name.
func (c *Client) Classes() imagefile.Classes {
	return imagefile.Classes{Names: c.Manifest.Classes, N: c.Manifest.C}
}

// Upload makes the plain upload of a client of a name, points or moments as the graph has it, and
// names the images left out as [Client.Points] does. Its round and precision are the caller's to
// set.
// The name goes into the upload as it is. Of an error there is no upload, and left is nil too.
func (c *Client) Upload(ctx context.Context, src imagefile.Source, o Options,
	name string) (u *federate.Upload, left []error, err error) {
	u = &federate.Upload{Client: name, Model: c.Manifest.Digest}
	// A curve of an earlier call must not go along with other images.
	c.curve = nil
	switch {
	case c.Manifest.Bytes > 0:
		if u.Points, u.Within, left, err = c.Moments(ctx, src, o); err == nil {
			u.N = int(u.Points.Mass())
		}
	case o.Calibrate > 0:
		err = c.calibrated(ctx, src, o, u, &left)
	default:
		u.Points, u.N, left, err = c.Points(ctx, src, o)
	}
	if err != nil {
		return nil, nil, err
	}
	u.Curve = c.curve
	return u, left, nil
}

// calibrated sets class means and calibration points of an upload.
// The points that the secret chose are taken out of the rows first, so that means are of the others
// alone. N counts these.
// The points have the weight 0, as they stand for no images of the means. Where the secret chooses
// none, the upload has none, and is as others are.
func (c *Client) calibrated(ctx context.Context, src imagefile.Source, o Options,
	u *federate.Upload, left *[]error) error {
	f := c.Manifest
	if !f.ClassMeans {
		return fmt.Errorf("calibration points are sent beside class means or moments, and " +
			"this client graph makes other uploads (fmp fuse --upload class-means makes " +
			"one); ask for none")
	}
	h, labels, chosen, bad, err := c.labelled(ctx, src, o)
	if err != nil {
		return err
	}
	*left = bad
	dx, k := f.Dx, f.PointWidth()
	var rest []float32
	var kept []int
	points := &point.Set{Dx: k, C: f.C}
	for i, single := range chosen {
		row := h[i*dx : (i+1)*dx]
		if !single {
			rest, kept = append(rest, row...), append(kept, labels[i])
			continue
		}
		points.N, points.Z = points.N+1, append(points.Z, c.settle(c.coordinates(row), k)...)
		points.Y, points.W = append(points.Y, int32(labels[i])), append(points.W, 0)
	}
	if points.N > 0 {
		u.Calibration = points
	}
	u.N = len(kept)
	u.Points, err = c.embed(rest, kept)
	return err
}
