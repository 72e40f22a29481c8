package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFixedReply: compress of a private round is over, and its upload there, at one time after its
// start: for few images and for many, for an image that cannot be read, for too many images, for a
// budget that is spent, and for an upload that was made before.
func TestFixedReply(t *testing.T) {
	graph, dir := privateGraph(t), t.TempDir()
	three, sixty, bad := photosOf(t, 3), photosOf(t, 60), photosOf(t, 3)
	write(t, filepath.Join(bad, "0", "bad.png"), []byte("\x89PNG\r\n\x1a\nno more"))
	const after = 40 * time.Second
	for i, c := range []struct {
		what, source, says string
		code               int
		args               []string
	}{
		{"three images", three, "", exitOK, nil},
		{"sixty images", sixty, "", exitOK, nil},
		{"the same again", sixty, "nothing is spent", exitOK, nil},
		{"a bad image", bad, "bad.png", exitOK, nil},
		{"a bad image left out", bad, "bad.png", exitOK, []string{"--on-bad", "skip", "--round", "3"}},
		{"no folder", filepath.Join(dir, "none"), "none", exitMissing, nil},
		{"too many images", sixty, "", exitOK, []string{"--points", "50", "--round", "4"}},
		{"too many of a client", sixty, "more than the round's 50", exitOK,
			[]string{"--points", "50", "--unit", "client", "--round", "5"}},
		{"too many for two servers", sixty, "more than the round's 1 ", exitOK,
			[]string{"--points", "1", "--noise", "two-servers", "--round", "6"}},
		{"a budget that is spent", sixty, "--max-epsilon allows", exitUsage,
			[]string{"--max-epsilon", "1.1", "--round", "2"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			start, out := time.Now(), filepath.Join(dir, "upload"+string(rune('a'+i)))
			done := make(chan int)
			go func() {
				done <- execute(t.Context(),
					append([]string{"compress", "--model", graph, "--client", "a", "-o",
						out, "--ledger", filepath.Join(dir, "ledger"), "--epsilon", "1",
						"--reply-after", after.String(), c.source}, c.args...), io.Discard, &log)
			}()
			time.Sleep(after - time.Millisecond)
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s: the upload is there before its time", c.what)
			}
			if code := <-done; code != c.code || time.Since(start) != after ||
				!strings.Contains(log.String(), c.says) {
				t.Errorf("%s: exit code %d after %v; want %d after %v and %q: %s", c.what, code,
					time.Since(start), c.code, after, c.says, log.String())
			}
			if n := strings.Count(log.String(), "reply comes in "); n != 3 ||
				!strings.Contains(log.String(), "reply comes in 10s\n") {
				t.Errorf("%s: it says %d times how long it is, want every ten seconds: %s", c.what, n,
					log.String())
			}
			if _, err := os.Stat(out); err == nil != (c.code == exitOK) {
				t.Errorf("%s: %v", c.what, err)
			}
		})
	}
}

// TestReplyAfter: times that are no fixed reply are refused, as is the flag with plain uploads.
func TestReplyAfter(t *testing.T) {
	source := t.TempDir()
	for want, args := range map[string][]string{
		"allowed are 2s":        {"--model", privateGraph(t), "--epsilon", "1", "--reply-after", "1s"},
		"allowed are 2s to 24h": {"--model", privateGraph(t), "--epsilon", "1", "--reply-after", "25h"},
		"would be a plain one":  {"--model", model(t, "client"), "--reply-after", "10s"},
	} {
		refuses(t, exitUsage, want, append([]string{"compress", "--client", "a", "-o",
			filepath.Join(source, "u"), source}, args...)...)
	}
}
