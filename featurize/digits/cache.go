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
// draw other images. Version is raised where the code draws other images.
func (c Config) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "digits %d %s %d %d %d", Version, c.Variant, c.Seed, c.Train, c.Test)
	io.WriteString(h, packed)
	return hex.EncodeToString(h.Sum(nil))
}

// Cached returns the result of [Draw], cached in a file in the user's cache folder under the digest
// of the Config. A damaged file is drawn anew; a cache that cannot be written is ignored, since
// drawing takes seconds. The result is the caller's: each call reads or draws anew. Several
// programs may write at once, each its own whole file.
func Cached(ctx context.Context, c Config) (*Set, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	root, err := os.UserCacheDir()
	if err != nil {
		return Draw(ctx, c)
	}
	// 16 digits are 64 bits: equal ones of other configurations are not to be feared.
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

// writeCache writes the parts' pixels and labels, followed by their SHA-256. The file has no
// header: the Config gives all lengths.
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
// of another length, or damaged. The length is checked before anything is cut, and the checksum
// covers all that is used.
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
	// The capacity is cut off, so that a caller's append does not write into the next part.
	take := func(n int) []byte { b := body[:n:n]; body = body[n:]; return b }
	s := &Set{Side: side, Channels: ch}
	s.Train.Pix, s.Train.Labels = take(c.Train*size), take(c.Train)
	s.Test.Pix, s.Test.Labels = take(c.Test*size), take(c.Test)
	return s, true
}
