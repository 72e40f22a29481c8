//go:build cgo

package main

import (
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx/must"
)

// TestApprovedDigests: a digest of an approved extractor may be in upper case, as some tools write it.
func TestApprovedDigests(t *testing.T) {
	graph := assetstest.Data(t, "digits", models.KindClient)
	for digest, ok := range map[string]bool{"": true, strings.Repeat("0a", 32): true, strings.Repeat("0A", 32): true,
		strings.Repeat("0g", 32): false, strings.Repeat("0a", 31): false} {
		handle, err := openClient(graph, digest)
		if !ok {
			must.Fail(handle, err)(t, "no sha256", digest)
		} else if err != nil {
			t.Errorf("%q: %v", digest, err)
		}
	}
}
