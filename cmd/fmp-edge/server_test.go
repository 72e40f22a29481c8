package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
)

// TestAnotherServer: an upload that was made for one server goes to another by its own approval alone, and never
// where that server's receipt is in the way.
func TestAnotherServer(t *testing.T) {
	answering(t, "")
	dir := t.TempDir()
	graph := changedGraph(t, ownExtractor(2))
	digest, receipt := digestOf(t, graph), filepath.Join(dir, "a.1.receipt.json")
	try := func(server, yes string) error {
		f := pflag.NewFlagSet("join", pflag.ContinueOnError)
		c, making := connectionFlags(f), pflag.NewFlagSet("compress", pflag.ContinueOnError)
		compressCommand.flags(making)
		must.Do(t, f.Parse([]string{"--key", filepath.Join(dir, "a.key")}))
		must.Do(t, making.Parse([]string{"--approved", filepath.Join(dir, "approved"), "--" + yesFlag, yes}))
		return c.ofServer(t.Context(), &wire.Description{Round: 1, ServerKey: server}, making,
			func() (string, error) { return graph, nil }, &bytes.Buffer{})
	}
	if err := try("one", digest); err != nil {
		t.Fatal(err)
	}
	if err := try("one", ""); err != nil {
		t.Errorf("approved before: %v", err)
	}
	if err := try("two", ""); err == nil || !strings.Contains(fmt.Sprint(err), digest) {
		t.Errorf("approved for another server: %v", err)
	}
	must.Do(t, os.WriteFile(receipt, []byte(`{"round": 1, "server": "one"}`), 0o600))
	if err := try("one", ""); err != nil {
		t.Errorf("its own receipt: %v", err)
	}
	if err := try("two", digest); err == nil || !strings.Contains(fmt.Sprint(err), "another server's receipt") {
		t.Errorf("another server's receipt: %v", err)
	}
}
