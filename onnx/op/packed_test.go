package op

import (
	"os"
	"testing"
)

// What programs carry is the file beside it: go generate ./onnx/op makes both.
func TestPacked(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("schemas.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := text(); err != nil || got != string(want) {
		t.Errorf("schemas.txt.gz is not schemas.txt (%v): run gzip -9nc schemas.txt > schemas.txt.gz",
			err)
	}
}
