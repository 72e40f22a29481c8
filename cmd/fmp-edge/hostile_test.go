package main

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/onnx/printable"
)

// evil is a name that a terminal would obey: it clears the screen, sets the title, turns the
// direction of the text and begins a line.
const evil = "\x1b[2J\x1b]0;owned\x07\u202e\u009b31m\r\nfmp-edge: signed by the ward.png"

// shown fails where what a command printed has characters that a terminal obeys.
func shown(t *testing.T, args []string, text string) {
	t.Helper()
	for _, line := range strings.Split(strings.ReplaceAll(text, "\t", " "), "\n") {
		if !printable.Is(line) {
			t.Errorf("%q prints %q", args, line)
		}
	}
}

// TestHostileNames: no command lets a terminal obey a name of a file, a class, a client or a
// server.
func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	graph := model(t, models.KindClient)
	photos := filepath.Join(dir, "photos")
	var b bytes.Buffer
	must.Do(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 8, 8))))
	for _, name := range []string{"0/" + evil, "0/good.png", "0/" + evil + ".txt",
		"1/broken" + strings.ReplaceAll(evil, "\n", "")} {
		data := b.Bytes()
		if strings.Contains(name, "broken") {
			data = data[:40]
		}
		if err := atomicfile.WriteBytes(filepath.Join(photos, name), data); err != nil {
			t.Skip(err) // a file system without such names
		}
	}
	other := filepath.Join(dir, "other", evil)
	must.Do(t, os.MkdirAll(other, 0o755))
	list := filepath.Join(dir, "list.csv")
	must.Do(t, os.WriteFile(list, []byte("\"photos/0/good.png\",\""+evil+"\"\n"), 0o600))
	out := filepath.Join(dir, "up")
	runs := [][]string{
		{"compress", "--model", graph, "--client", "a", "-o", out, photos},
		{"compress", "--model", graph, "--client", "a", "-o", out, "--on-bad", "skip", photos},
		{"compress", "--model", graph, "--client", "a", "-o", out, "--on-bad", "skip",
			"--json", photos},
		{"compress", "--model", graph, "--client", "a", "-o", out, filepath.Join(dir, "other")},
		{"compress", "--model", graph, "--client", "a", "-o", out, list},
		{"compress", "--model", graph, "--client", evil, "-o", out, photos},
		{"inspect", out}, {evil}, {"help", evil},
	}
	for _, c := range commands() { // each with hostile arguments of every kind
		runs = append(runs, []string{c.name, evil}, []string{c.name, evil, evil},
			[]string{c.name, "--" + evil, "x"},
			[]string{c.name, "--key", evil, "--model", evil, "--client", evil, evil},
			[]string{c.name, "--json", filepath.Join(dir, evil)},
			[]string{c.name, "https://" + evil, "--key", evil, photos}, []string{c.name, "--help"})
	}
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	for _, args := range runs {
		var stdout, stderr strings.Builder
		execute(t.Context(), args, &stdout, &stderr)
		shown(t, args, stdout.String())
		shown(t, args, stderr.String())
		if args[0] == "compress" && len(args) > 4 &&
			strings.Contains(stderr.String(), "\nfmp-edge: signed by") {
			t.Errorf("%q: a name begins a line: %s", args, stderr.String())
		}
	}
	if st, err := os.Stat(out); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the upload: %v, %v; want mode 0600", st, err)
	}
}
