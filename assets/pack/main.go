// Command pack puts FILE.planes in place of each FILE, as the larger models that come with the
// program are kept:
//
//	go run ./assets/pack assets/models/DATASET/embedding.onnx
//
// and FILE in place of each FILE.planes. It packs with the program zstd, at its highest level.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
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
		zstd := exec.Command("zstd", "-q", "--ultra", "-22", "-c",
			fmt.Sprintf("--stream-size=%d", len(b)))
		zstd.Stdin, zstd.Stderr = bytes.NewReader(planes.Sorted(b)), os.Stderr
		b, err = zstd.Output()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := atomicfile.WriteBytes(to, b); err != nil {
		return err
	}
	return os.Remove(file)
}
