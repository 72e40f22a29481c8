package op

import (
	"os"
	"testing"

	"fmp/onnx/must"
)

// What programs carry is the file beside it: go generate ./onnx/op makes both.
func TestPacked(t *testing.T) {
	t.Parallel()
	want := must.Get(os.ReadFile("schemas.txt"))(t)
	if got, err := text(); err != nil || got != string(want) {
		t.Errorf("schemas.txt.gz is not schemas.txt (%v): run gzip -9nc schemas.txt > schemas.txt.gz",
			err)
	}
}
