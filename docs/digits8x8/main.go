// Command digits8x8 writes scikit-learn's 8 x 8 digits as a folder of images by class, a data set
// of fmp:
//
//	pip download --no-deps scikit-learn
//	unzip -j scikit_learn-*.whl sklearn/datasets/data/digits.csv.gz
//	go run ./docs/digits8x8 digits.csv.gz FOLDER
//
// Each line of the file is an image: 64 grey levels from 0 to 16 by rows, and its digit.
package main

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

const side, white = 8, 16

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: digits8x8 digits.csv.gz FOLDER")
		os.Exit(2)
	}
	if err := convert(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "digits8x8:", err)
		os.Exit(1)
	}
}

// convert writes each image of the file as FOLDER/DIGIT/NUMBER.png.
func convert(file, folder string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	lines := csv.NewReader(z)
	lines.FieldsPerRecord = side*side + 1
	for n := 0; ; n++ {
		line, err := lines.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := write(line, filepath.Join(folder, line[side*side]), n); err != nil {
			return fmt.Errorf("%s: image %d: %w", file, n, err)
		}
	}
}

// write writes one image, whose grey levels are the first numbers of the line.
func write(line []string, folder string, n int) error {
	im := image.NewGray(image.Rect(0, 0, side, side))
	for i := range im.Pix {
		v, err := strconv.Atoi(line[i])
		if err != nil || v < 0 || v > white {
			return fmt.Errorf("level %q; want 0 to %d", line[i], white)
		}
		// Levels 0 to 16 become 0 to 255, rounded to the nearest.
		im.Pix[i] = uint8((v*255 + white/2) / white)
	}
	// The digit names the folder, and is checked before that is made.
	if d, err := strconv.Atoi(line[side*side]); err != nil || d < 0 || d > 9 {
		return fmt.Errorf("digit %q; want 0 to 9", line[side*side])
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(folder, fmt.Sprintf("%04d.png", n)))
	if err != nil {
		return err
	}
	if err := png.Encode(out, im); err != nil {
		return err
	}
	return out.Close()
}
