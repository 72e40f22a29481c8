package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"fmp/onnx/regularfile"
	"fmp/pipeline/federate"
)

// MaxUploads bounds the clients of one round; MostPoints is how many points a round is computed with: where uploads hold more,
// those of one class that are near each other become one (point.Group).
const (
	MaxUploads = 200_000
	MostPoints = 8192
)

// Upload is one client's, read from a file and checked.
type Upload struct {
	*federate.Upload
	Path, Digest string // sha256 of the file
}

// ReadUploads reads and checks the uploads of one round, each of another client, all made by one model. What want leaves
// open, the first good upload says. bad are the errors of those that cannot be used, all of them.
func ReadUploads(paths []string, want federate.Expect) (good []Upload, bad []error) {
	from := map[string]string{}
	for _, path := range paths {
		u, err := readUpload(path, want)
		if err == nil && from[u.Client] != "" {
			err = fmt.Errorf("%s and %s are both of client %q; pool one upload of each", from[u.Client], path, u.Client)
		}
		if err != nil {
			bad = append(bad, err)
			continue
		}
		from[u.Client] = path
		want.Model, want.Round = u.Model, &u.Round
		want.Dx, want.C = u.Points.Dx, u.Points.C
		good = append(good, *u)
	}
	return good, bad
}

func readUpload(path string, want federate.Expect) (*Upload, error) {
	data, err := regularfile.ReadFile(path, federate.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("reading upload: %w", err)
	}
	u, err := federate.Decode(data, want)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(data)
	return &Upload{u, path, hex.EncodeToString(sum[:])}, nil
}

// Twins names the uploads that hold the same points and masses as one before: one client under two names, perhaps.
func Twins(us []Upload) []string {
	var out []string
	first := make(map[[3]float32][]int, len(us)) // by a few of their numbers
	for i, a := range us {
		key := [3]float32{a.Points.Z[0], a.Points.Z[len(a.Points.Z)/2], a.Points.W[0]}
		for _, j := range first[key] {
			if b := us[j]; slices.Equal(a.Points.Z, b.Points.Z) && slices.Equal(a.Points.W, b.Points.W) {
				out = append(out, fmt.Sprintf("%s and %s hold the same points, from clients %q and %q: are they one client's?", b.Path, a.Path, b.Client, a.Client))
				break
			}
		}
		first[key] = append(first[key], i)
	}
	return out
}
