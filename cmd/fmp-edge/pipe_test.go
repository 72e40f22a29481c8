//go:build unix

package main

import (
	"syscall"
	"testing"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
)

// TestNamedPipesAreRefused: a named pipe in the place of any file that is read is an error that
// says so, at once.
func TestNamedPipesAreRefused(t *testing.T) {
	client, embedding := model(t, models.KindClient), model(t, models.KindEmbedding)
	t.Chdir(t.TempDir())
	for _, path := range []string{"image.png", "m.onnx", "index.csv", "images", "labels.gz", "rows.npy", "labels.npy",
		"got.upload", "sent.upload", "a.key"} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skipf("needs named pipes: %v", err)
		}
	}
	write(t, "list.csv", []byte("image.png,1\n"))
	write(t, "labels", []byte{0, 0, 8, 1, 0, 0, 0, 1, 3})
	compress := "compress --client a -o upload --model "
	var list []outputstest.Wrong
	for _, line := range []string{compress + "m.onnx list.csv", compress + client + " index.csv",
		compress + client + " list.csv", compress + client + " images --labels labels",
		compress + client + " labels --labels labels.gz",
		compress + embedding + " --rows rows.npy --labels labels.npy", "inspect got.upload", "bench --model m.onnx",
		"inspect m.onnx", "send http://127.0.0.1:1 sent.upload --key list.csv", "join http://127.0.0.1:1 . --key a.key"} {
		list = append(list, outputstest.Wrong{line, "want a regular file"})
	}
	outputstest.CheckWrong(t, list, both(t))
}
