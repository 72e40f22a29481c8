package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/client"
)

// changedGraph writes the digits' client graph with something done to it.
func changedGraph(t *testing.T, change func(m *onnx.Model)) string {
	t.Helper()
	m, _ := assetstest.Load(t, "digits", models.KindClient)
	change(m)
	path := filepath.Join(t.TempDir(), "client.onnx")
	must.Do(t, serde.Save(path, m))
	return path
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
	c := must.Get(openClient(graph, 1))(t)
	return c.Parsed.Extractor
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
	im, labels := blobs(4)
	dir, _ := folder(t, im, labels)
	file := filepath.Join(t.TempDir(), "approved")
	try := func(graph, scope string, more ...string) (int, string) {
		out := filepath.Join(t.TempDir(), "upload")
		code, log := said(t, append([]string{"compress", "--model", graph, "--client", "a", "-o", out,
			"--approved", file, "--scope", scope, dir}, more...)...)
		if _, err := os.Stat(out); (err == nil) != (code == exitOK) {
			t.Errorf("exit code %d, upload: %v", code, err)
		}
		return code, log
	}
	answering(t, "")
	one, two := changedGraph(t, ownExtractor(2)), changedGraph(t, ownExtractor(3))
	first, second := digestOf(t, one), digestOf(t, two)
	here, there := client.ServerScope("key of one"), client.ServerScope("key of another")
	if code, log := try(model(t, models.KindClient), here); code != exitOK ||
		strings.Contains(log, "extractor") {
		t.Errorf("an extractor that comes with the program: exit code %d, %q", code, log)
	}
	for range 2 { // the second time too
		code, log := try(one, here)
		if code != exitUntrusted || !strings.Contains(log, "--"+yesFlag+" "+first) ||
			!strings.Contains(log, "parameters") ||
			!strings.Contains(log, "A network made for it can") {
			t.Errorf("an unknown extractor: exit code %d, %q", code, log)
		}
	}
	if code, log := try(one, here, "--"+yesFlag, second); code != exitUsage ||
		!strings.Contains(log, first) || !strings.Contains(log, second) {
		t.Errorf("another digest: exit code %d, %q; want one with both", code, log)
	}
	answering(t, "y\n")
	if code, log := try(one, here); code != exitUntrusted || !strings.Contains(log, "Type yes") {
		t.Errorf("an answer that is not yes: exit code %d, %q", code, log)
	}
	answering(t, "yes\n")
	if code, log := try(one, here); code != exitOK || !strings.Contains(log, "approved from now on") {
		t.Errorf("yes: exit code %d, %q", code, log)
	}
	answering(t, "")
	if code, log := try(one, here); code != exitOK || strings.Contains(log, "extractor") {
		t.Errorf("the same again: exit code %d, %q", code, log)
	}
	if code, log := try(two, here); code != exitUntrusted || !strings.Contains(log, first) ||
		!strings.Contains(log, second) {
		t.Errorf("another in its place: exit code %d, %q; want one with both digests", code, log)
	}
	if code, _ := try(one, there); code != exitUntrusted {
		t.Errorf("the same from a server of another key: exit code %d", code)
	}
	if code, log := try(two, here, "--"+yesFlag, second); code != exitOK {
		t.Errorf("with its digest: exit code %d, %q", code, log)
	}
	if code, log := try(model(t, models.KindClient), here, "--"+yesFlag, second); code != exitUsage {
		t.Errorf("another than the one that was named comes with the program: exit code %d, %q", code,
			log)
	}
	run(t, "approve", "--approved", file, two)
	if code, log := try(two, there); code != exitOK {
		t.Errorf("after it was approved: exit code %d, %q", code, log)
	}
	write(t, file, []byte("nonsense\n"))
	if code, log := try(one, here); code == exitOK || !strings.Contains(log, "line 1") {
		t.Errorf("a file of approved extractors that is none: exit code %d, %q", code, log)
	}
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
	refuses(t, exitUsage, "--at-least wants 2", append(args, "--at-least", "2")...)
	for i, y := range labels[:2] { // the classes 0 and 1 have two images each
		writePNG(t, filepath.Join(dir, fmt.Sprint(y), "second.png"), gray(im, 2+i))
	}
	run(t, append(args, "--at-least", "2")...)
	if u := read(t, out); u.N != 4 || u.Points.N != 2 || recovered(u.Points, im, labels) != 0 {
		t.Errorf("--at-least 2 sent %d images of %d classes", u.N, u.Points.N)
	}
}
