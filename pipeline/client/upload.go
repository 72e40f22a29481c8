package client

import (
	"context"
	"fmt"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
)

// Parse returns the client of a client graph's file.
func Parse(data []byte, threads int) (*Client, error) {
	m, err := serde.Unmarshal(data)
	if err != nil {
		return nil, err
	}
	f, err := models.ReadManifest(m)
	if err != nil {
		return nil, err
	}
	if f.Kind != models.KindClient || f.Dx < 1 || f.C < 2 || f.S < 1 {
		return nil, fmt.Errorf("its manifest says kind %q, dx %d, %d classes and s %d; want %q, the file that fmp fuse writes, with dx and s of at least 1 and 2 classes", f.Kind, f.Dx, f.C, f.S, models.KindClient)
	}
	f.Digest = models.DigestBytes(data)
	return New(m, f, threads)
}

// Classes returns the classes that folders and lists of images may name.
func (c *Client) Classes() imagefile.Classes {
	return imagefile.Classes{Names: c.Manifest.Classes, N: c.Manifest.C}
}

// Upload makes the plain upload of a client of a name, points or moments as the graph has it, and names the images left out as [Client.Points] does. Its
// round and precision are the caller's to set.
func (c *Client) Upload(ctx context.Context, src imagefile.Source, o Options, name string) (u *federate.Upload, left []error, err error) {
	u = &federate.Upload{Client: name, Model: c.Manifest.Digest}
	if c.Manifest.Bytes == 0 {
		u.Points, u.N, left, err = c.Points(ctx, src, o)
	} else if u.Points, u.Within, left, err = c.Moments(ctx, src, o, name); err == nil {
		u.N = int(u.Points.Mass())
	}
	if err != nil {
		return nil, nil, err
	}
	return u, left, nil
}
