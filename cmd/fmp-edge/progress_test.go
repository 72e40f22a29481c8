package main

import (
	"strings"
	"testing"
	"time"
)

// TestProgress: a long command says every ten seconds how far it is, and nothing at its end.
func TestProgress(t *testing.T) {
	at := time.Unix(0, 0)
	var log strings.Builder
	tell := progress(&log, func() time.Time { return at })
	for done := 10; done <= 100; done += 10 {
		at = at.Add(4 * time.Second)
		tell(done, 100)
	}
	const want = "fmp-edge: images: 30 of 100 (30%), 2.5/s, 28s left\n" +
		"fmp-edge: images: 60 of 100 (60%), 2.5/s, 16s left\n" +
		"fmp-edge: images: 90 of 100 (90%), 2.5/s, 4s left\n"
	if log.String() != want {
		t.Errorf("it says %q; want %q", log.String(), want)
	}
}
