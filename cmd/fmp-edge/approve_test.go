package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/pipeline/client"
)

// changedGraph writes the digits' client graph with something done to it.
func changedGraph(t *testing.T, change func(m *onnx.Model)) string {
	t.Helper()
	m, _ := assetstest.Load(t, "digits", models.KindClient)
	change(m)
	return saved(t, m)
}

// ownExtractor scales the weights of the first convolution, which makes the extractor another.
func ownExtractor(by float32) func(m *onnx.Model) {
	return func(m *onnx.Model) {
		w := m.Graph.Initializers["stem/conv/weight"].Clone()
		for i := range w.F32() {
			w.F32()[i] *= by
		}
		m.Graph.Initializers["stem/conv/weight"] = w
	}
}

// digestOf is the digest of a client graph's extractor.
func digestOf(t *testing.T, graph string) string {
	t.Helper()
	return must.Get(openClient(graph, 1))(t).Parsed.Extractor
}

// answering has a person at a terminal who types text; "" is no terminal.
func answering(t *testing.T, text string) {
	was := terminal
	t.Cleanup(func() { terminal = was })
	terminal = func() io.Reader {
		if text == "" {
			return nil
		}
		return strings.NewReader(text)
	}
}

// TestNoSilentFirstUse: an unknown extractor runs after a yes alone, at the terminal or by its
// digest on the command line, and no image is read before; without either the exit code is its own
// and the command is said. The yes holds for the scope: another extractor asks again, by both
// digests. One that comes with the program asks nothing.
func TestNoSilentFirstUse(t *testing.T) {
	dir := photosOf(t, 4)
	file := filepath.Join(t.TempDir(), "approved")
	try := func(code int, says []string, graph, scope string, more ...string) string {
		t.Helper()
		out := filepath.Join(t.TempDir(), "upload")
		got, log := said(t, append([]string{"compress", "--model", graph, "--client", "a", "-o", out,
			"--approved", file, "--scope", scope, dir}, more...)...)
		missing := slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(log, s) })
		if _, err := os.Stat(out); got != code || missing || (err == nil) != (got == exitOK) {
			t.Errorf("%q: exit code %d, upload: %v, %q; want %d and %q", more, got, err, log, code, says)
		}
		return log
	}
	silent := func(graph, scope string) {
		t.Helper()
		if log := try(exitOK, nil, graph, scope); strings.Contains(log, "extractor") {
			t.Errorf("of an extractor it says %q", log)
		}
	}
	answering(t, "")
	one, two := changedGraph(t, ownExtractor(2)), changedGraph(t, ownExtractor(3))
	first, second := digestOf(t, one), digestOf(t, two)
	both := []string{first, second}
	here, there := client.ServerScope("key of one"), client.ServerScope("key of another")
	silent(model(t, models.KindClient), here) // it comes with the program
	for range 2 {                             // the second time too
		try(exitUntrusted, []string{"--" + yesFlag + " " + first, "parameters", "A network made for it can"}, one, here)
	}
	try(exitUsage, both, one, here, "--"+yesFlag, second) // another digest
	answering(t, "y\n")
	try(exitUntrusted, []string{"Type yes"}, one, here)
	answering(t, "yes\n")
	try(exitOK, []string{"approved from now on"}, one, here)
	answering(t, "")
	silent(one, here)
	try(exitUntrusted, both, two, here) // another in its place
	try(exitUntrusted, nil, one, there) // a server of another key
	try(exitOK, nil, two, here, "--"+yesFlag, second)
	try(exitUsage, nil, model(t, models.KindClient), here, "--"+yesFlag, second) // it comes with the program
	run(t, "approve", "--approved", file, two)
	try(exitOK, nil, two, there)
	write(t, file, []byte("nonsense\n"))
	try(exitUsage, []string{"line 1"}, one, here)
}

// TestWithYes: the command that is said can be typed as it stands.
func TestWithYes(t *testing.T) {
	if got, want := withYes([]string{"join", "https://a:1", "my photos", "it's"}, "d"),
		`fmp-edge join https://a:1 'my photos' 'it'\''s' --`+yesFlag+" d"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestPixelsApproved: with an extractor that returns the pixels, which the owner approved, every
// image of a class of one stands in the upload; --at-least leaves such classes out.
func TestPixelsApproved(t *testing.T) {
	im, labels := blobs(8)
	dir, _ := folder(t, im, labels)
	graph, file, out := pixelExtractor(t), filepath.Join(t.TempDir(), "approved"),
		filepath.Join(t.TempDir(), "upload")
	args := []string{"compress", "--model", graph, "--client", "a", "-o", out, "--approved", file, dir}
	run(t, "approve", "--approved", file, graph)
	run(t, args...)
	if found := recovered(read(t, out).Points, im, labels); found != len(labels) {
		t.Errorf("%d of %d images stand in the upload; the test shows nothing", found, len(labels))
	}
	refuses(t, exitUsage, "wanted are at least 2", append(args, "--at-least", "2")...)
	for i, y := range labels[:2] { // the classes 0 and 1 have two images each
		writePNG(t, filepath.Join(dir, fmt.Sprint(y), "second.png"), gray(im, 2+i))
	}
	run(t, append(args, "--at-least", "2")...)
	if u := read(t, out); u.N != 4 || u.Points.N != 2 || recovered(u.Points, im, labels) != 0 {
		t.Errorf("--at-least 2 sent %d images of %d classes", u.N, u.Points.N)
	}
}
