package assets

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

func TestConfig(t *testing.T) {
	if !slices.Contains(ConfigNames(), "demo") {
		t.Fatalf("no demo among %v", ConfigNames())
	}
	b, err := Config("demo")
	if err != nil || !strings.Contains(string(b), "dataset:") {
		t.Errorf("demo: %v, %q", err, b)
	}
	if _, err := Config("dmeo"); err == nil || !strings.Contains(err.Error(), "demo") {
		t.Errorf("error %v does not list the names", err)
	}
}

func TestModelOfNoDataSet(t *testing.T) {
	for _, name := range []string{"nothing", "../configs", ""} {
		if _, err := Model(name, "extractor"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestPlainExtractor: the extractor of the drawn digits, which lies beside its packed form for the
// examples, is what the program has.
func TestPlainExtractor(t *testing.T) {
	want := must.Get(os.ReadFile("models/digits/extractor.onnx"))(t)
	if got, err := Model("digits", "extractor"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the packed extractor unpacks to %d bytes, %v; want the %d of the plain one",
			len(got), err, len(want))
	}
}
