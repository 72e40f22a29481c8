package digits

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// digest identifies the images that a Config draws. The outlines are part of it, as other fonts
// draw other images.
func (c Config) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "digits %d %s %d %d %d", Version, c.Variant, c.Seed, c.Train, c.Test)
	io.WriteString(h, packed)
	return hex.EncodeToString(h.Sum(nil))
}

// Cached returns the result of [Draw], cached in a file in the user's cache folder under the digest
// of the Config. A damaged file is drawn anew; a cache that cannot be written is ignored, since
// drawing takes seconds.
func Cached(ctx context.Context, c Config) (*Set, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	root, err := os.UserCacheDir()
	if err != nil {
		return Draw(ctx, c)
	}
	path := filepath.Join(root, "fmp", "drawn", string(c.Variant)+"-"+c.digest()[:16]+".bin")
	if s, ok := readCache(path, c); ok {
		return s, nil
	}
	s, err := Draw(ctx, c)
	if err != nil {
		return nil, err
	}
	_ = writeCache(path, s) // see above
	return s, nil
}

// writeCache writes the parts' pixels and labels, followed by their SHA-256.
func writeCache(path string, s *Set) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		h := sha256.New()
		for _, b := range [][]byte{s.Train.Pix, s.Train.Labels, s.Test.Pix, s.Test.Labels} {
			h.Write(b)
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		_, err := w.Write(h.Sum(nil))
		return err
	})
}

// readCache returns the images of a file that writeCache wrote for c; false where it is not there,
// of another length, or damaged.
func readCache(path string, c Config) (*Set, bool) {
	side, ch := c.Variant.size()
	size := side * side * ch
	total := (c.Train+c.Test)*(size+1) + sha256.Size
	data, err := regularfile.ReadFile(path, int64(total))
	if err != nil || len(data) != total {
		return nil, false
	}
	body, sum := data[:total-sha256.Size], data[total-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, false
	}
	take := func(n int) []byte { b := body[:n:n]; body = body[n:]; return b }
	s := &Set{Side: side, Channels: ch}
	s.Train.Pix, s.Train.Labels = take(c.Train*size), take(c.Train)
	s.Test.Pix, s.Test.Labels = take(c.Test*size), take(c.Test)
	return s, true
}
