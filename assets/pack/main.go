// Command pack puts FILE.planes in place of each FILE, as the larger models that come with the program are kept:
//
//	go run ./assets/pack assets/models/DATASET/embedding.onnx
//
// and FILE in place of each FILE.planes.
package main

import (
	"fmt"
	"os"
	"strings"

	"fmp/assets/internal/planes"
	"fmp/onnx/atomicfile"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := turn(file); err != nil {
			fmt.Fprintln(os.Stderr, "pack:", err)
			os.Exit(1)
		}
	}
}

func turn(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	to, packed := strings.CutSuffix(file, ".planes")
	if packed {
		b, err = planes.Unpack(b, 1<<30)
	} else {
		to = file + ".planes"
		b, err = planes.Pack(b)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := atomicfile.WriteBytes(to, b); err != nil {
		return err
	}
	return os.Remove(file)
}
