// Package collection finds the ONNX standard's operator tests for Go tests.
package collection

import (
	"os"
	"path/filepath"
	"testing"
)

// Version is that of the Python package onnx which the tests are made from.
const Version = "1.23.2"

// Dir returns the folder of the tests: $ONNX_TESTDATA, or where `make testdata` puts them. Without
// one a test is skipped, and fails in continuous integration ($CI is set).
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("ONNX_TESTDATA")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "fmp", "onnx-tests", Version)
	}
	if _, err := os.Stat(filepath.Join(dir, "node", "test_add", "model.onnx")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the standard's operator tests are not in %s, and continuous integration leaves none "+
				"out: run make testdata", dir)
		}
		t.Skipf("the standard's operator tests are not in %s: run make testdata", dir)
	}
	return dir
}
