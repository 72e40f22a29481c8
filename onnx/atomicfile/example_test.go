package atomicfile_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"fmp/onnx/atomicfile"
)

// A write that fails leaves the file as it was.
func ExampleWrite() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "settings")
	if err := atomicfile.WriteBytes(path, []byte("whole")); err != nil {
		panic(err)
	}
	err = atomicfile.Write(path, func(w io.Writer) error {
		io.WriteString(w, "half")
		return errors.New("the disk is full")
	})
	data, _ := os.ReadFile(path)
	fmt.Printf("%v, %s\n", err != nil, data)
	// Output: true, whole
}
