package client

import (
	_ "embed"
	"strings"
)

// known lists extractors by digest (docs/formats.md) and name, a line each: go test ./cmd/fmp -run
// TestKnown -update makes it again.
//
//go:embed known.txt
var known string

// Known returns the name of an extractor that comes with this program, or that fmp extractors pull
// makes, by its digest; "" of any other. Who runs this program trusts them as much as it.
func Known(digest string) string {
	for line := range strings.Lines(known) {
		if d, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && d == digest {
			return name
		}
	}
	return ""
}
