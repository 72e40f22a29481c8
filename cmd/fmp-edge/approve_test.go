package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/serde"
	"fmp/pipeline/client"
)

// TestShipped: the extractors that are known by their digests are those that come with the program.
func TestShipped(t *testing.T) {
	for _, name := range []string{"digits", "digits-color", "mnist", "cifar10", "cifar100"} {
		c, err := openClient(assetstest.File(t, name, models.KindClient), 1)
		if err != nil {
			t.Fatal(err)
		}
		if client.Shipped[c.Apart.Extractor] != name {
			t.Errorf("%q: %q,", c.Apart.Extractor, name)
		}
	}
	c, err := openClient(privateGraph(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if client.Shipped[c.Apart.Extractor] != "digits" {
		t.Errorf("the extractor of a private round's graph has digest %s", c.Apart.Extractor)
	}
}

// changedGraph writes the digits' client graph with something done to it.
func changedGraph(t *testing.T, change func(m *onnx.Model)) string {
	t.Helper()
	m, _ := assetstest.Load(t, "digits", models.KindClient)
	change(m)
	path := filepath.Join(t.TempDir(), "client.onnx")
	if err := serde.Save(path, m); err != nil {
		t.Fatal(err)
	}
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

// TestApprove: the first extractor of a client is trusted and said, the same one again silently; another is refused by both digests until
// it is approved, which leaves the first as it is. One that comes with the program needs nothing.
func TestApprove(t *testing.T) {
	im, labels := blobs(4)
	dir, _ := folder(t, im, labels)
	file := filepath.Join(t.TempDir(), "approved")
	try := func(graph, client string) (int, string) {
		var log bytes.Buffer
		out := filepath.Join(t.TempDir(), "upload")
		code := execute(context.Background(), []string{"compress", "--model", graph, "--client", client, "-o", out, "--approved", file, dir},
			io.Discard, &log)
		if _, err := os.Stat(out); (err == nil) != (code == exitOK) {
			t.Errorf("exit code %d, upload: %v", code, err)
		}
		return code, log.String()
	}
	one, two := changedGraph(t, ownExtractor(2)), changedGraph(t, ownExtractor(3))
	if code, log := try(model(t, models.KindClient), "a"); code != exitOK || log != "" {
		t.Errorf("an extractor that comes with the program: exit code %d, %q", code, log)
	}
	if code, log := try(one, "a"); code != exitOK || !strings.Contains(log, "trusted from now on") {
		t.Errorf("the first extractor: exit code %d, %q", code, log)
	}
	if code, log := try(one, "a"); code != exitOK || log != "" {
		t.Errorf("the same again: exit code %d, %q", code, log)
	}
	digests := map[string]bool{}
	for _, path := range []string{one, two} {
		c, err := openClient(path, 1)
		if err != nil {
			t.Fatal(err)
		}
		digests[c.Apart.Extractor] = true
	}
	code, log := try(two, "a")
	for d := range digests {
		if code != exitUsage || !strings.Contains(log, d) || !strings.Contains(log, "fmp-edge approve "+two) {
			t.Errorf("a changed one: exit code %d, %q; want one with both digests and what to do", code, log)
		}
	}
	if code, _ := try(two, "another client"); code != exitOK {
		t.Error("the first extractor of another client is refused")
	}
	run(t, "approve", "--approved", file, two)
	for _, graph := range []string{one, two} {
		if code, log := try(graph, "a"); code != exitOK {
			t.Errorf("after it was approved: exit code %d, %q", code, log)
		}
	}
	write(t, file, []byte("nonsense\n"))
	if code, log := try(one, "a"); code == exitOK || !strings.Contains(log, "line 1") {
		t.Errorf("a file of approved extractors that is none: exit code %d, %q", code, log)
	}
}

// TestPixelsApproved: with an extractor that returns the pixels, which the owner approved, every image of a class of one stands in the
// upload; --at-least leaves such classes out.
func TestPixelsApproved(t *testing.T) {
	im, labels := blobs(8)
	dir, _ := folder(t, im, labels)
	graph, file, out := pixelExtractor(t), filepath.Join(t.TempDir(), "approved"), filepath.Join(t.TempDir(), "upload")
	args := []string{"compress", "--model", graph, "--client", "a", "-o", out, "--approved", file, dir}
	run(t, "approve", "--approved", file, graph)
	run(t, args...)
	if found := recovered(read(t, out).Points, im, labels); found != len(labels) {
		t.Errorf("%d of %d images stand in the upload; the test shows nothing", found, len(labels))
	}
	var log bytes.Buffer
	if code := execute(context.Background(), append(args, "--at-least", "2"), io.Discard, &log); code == exitOK ||
		!strings.Contains(log.String(), "--at-least wants 2") {
		t.Errorf("classes of one image were sent with --at-least 2: %s", log.String())
	}
	for i, y := range labels[:2] { // the classes 0 and 1 have two images each
		writePNG(t, filepath.Join(dir, fmt.Sprint(y), "second.png"), gray(im, 2+i))
	}
	run(t, append(args, "--at-least", "2")...)
	if u := read(t, out); u.N != 4 || u.Points.N != 2 || recovered(u.Points, im, labels) != 0 {
		t.Errorf("--at-least 2 sent %d images of %d classes", u.N, u.Points.N)
	}
}
