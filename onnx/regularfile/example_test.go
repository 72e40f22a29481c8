package regularfile_test

import (
	"fmt"
	"os"

	"fmp/onnx/regularfile"
)

// A folder is no regular file.
func ExampleReadFile() {
	_, err := regularfile.ReadFile(os.TempDir(), 1<<20)
	fmt.Println(err != nil)
	// Output: true
}
