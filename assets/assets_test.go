package assets

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
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
