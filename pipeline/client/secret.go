package client

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"fmp/pipeline/federate/identity"
	"fmp/pipeline/moments"
)

// Secret is a client's own, by which its calibration points are chosen: those of the lowest
// HMAC-SHA256 of the image's file, or of its pixels in an IDX file. Who does not know it cannot
// tell beforehand which images these are, nor make an image one of them. The same images give the
// same points in every round, so that rounds together tell of no more of them, and equal images are
// all chosen, or none is. Of files that are one image the least SHA-256 tells, in whatever order
// they come.
type Secret [sha256.Size]byte

// LoadSecret reads the secret of a file that its owner alone may read, and makes it where it is not
// there.
func LoadSecret(path string) (*Secret, error) {
	var s Secret
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		rand.Read(s[:]) // never fails
		// another process may have made it since
		if err := identity.SaveSecret(path, s[:]); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("secret of calibration points: %w", err)
		}
	}
	data, err := identity.ReadSecret(path, int64(len(s)))
	if err != nil {
		return nil, fmt.Errorf("secret of calibration points: %w", err)
	}
	if len(data) != len(s) {
		return nil,
			fmt.Errorf(
				"secret of calibration points: %s has %d bytes; want %d: move it away, and "+
					"another is made", path, len(data), len(s))
	}
	copy(s[:], data)
	return &s, nil
}

// choose marks the images that are calibration points, by the digests of their files. Where an
// owner wants classes of atLeast images, as many are left to each: the mean of fewer tells of
// single ones.
// Points are given back from the highest HMAC on, until each class has as many others. It costs O(n
// log n), and O(n) for each point given back.
func (s *Secret) choose(digests [][sha256.Size]byte, labels []int, most, atLeast int) []bool {
	sums := make([][sha256.Size]byte, len(digests))
	for i, d := range digests {
		h := hmac.New(sha256.New, s[:])
		h.Write([]byte("fmp calibration point\n"))
		h.Write(d[:])
		sums[i] = [sha256.Size]byte(h.Sum(nil))
	}
	chosen := moments.Lowest(sums, most)
	if atLeast < 2 {
		return chosen
	}
	left := map[int]int{}
	for i, y := range labels {
		if !chosen[i] {
			left[y]++
		}
	}
	order := make([]int, len(sums))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order,
		func(a, b int) int { return bytes.Compare(sums[b][:], sums[a][:]) })
	for _, i := range order {
		few := chosen[i] && left[labels[i]] < atLeast
		for j := range chosen {
			if few && chosen[j] && sums[j] == sums[i] { // equal images stay together
				chosen[j] = false
				left[labels[j]]++
			}
		}
	}
	return chosen
}
