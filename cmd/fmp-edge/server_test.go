package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"fmp/onnx/must"
	"fmp/pipeline/federate/wire"
)

// TestAnotherServer: an upload that is there goes to another server by an approval for that one alone.
func TestAnotherServer(t *testing.T) {
	answering(t, "")
	graph := changedGraph(t, ownExtractor(2))
	digest, file := digestOf(t, graph), filepath.Join(t.TempDir(), "approved")
	try := func(server, yes string) error {
		making := pflag.NewFlagSet("compress", pflag.ContinueOnError)
		compressCommand.flags(making)
		must.Do(t, making.Parse([]string{"--approved", file, "--" + yesFlag, yes}))
		return ofServer(t.Context(), &wire.Description{ServerKey: server}, making, graph, &bytes.Buffer{})
	}
	for _, c := range []struct{ server, yes, want string }{{"one", digest, ""}, {"one", "", ""}, {"two", "", digest}} {
		if err := try(c.server, c.yes); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestReceiptsFree: no receipt of another server is overwritten, of the only server, the leader or the helper,
// under its default name or a given one.
func TestReceiptsFree(t *testing.T) {
	for name, c := range map[string]struct {
		flags  []string
		helper bool
		file   string
		server string // of the receipt
		want   bool   // free
	}{
		"none":              {nil, true, "", "", true},
		"its own":           {nil, false, "a.1.receipt.json", "one", true},
		"another's":         {nil, false, "a.1.receipt.json", "other", false},
		"of another round":  {nil, false, "a.2.receipt.json", "other", true},
		"by name":           {[]string{"--receipt", "mine.json"}, false, "mine.json", "other", false},
		"the helper's":      {nil, true, "a.1.helper.receipt.json", "two", true},
		"another helper's":  {nil, true, "a.1.helper.receipt.json", "one", false},
		"no receipt at all": {[]string{"--receipt", "mine.json"}, false, "mine.json", "", false},
	} {
		t.Chdir(t.TempDir())
		f := pflag.NewFlagSet("join", pflag.ContinueOnError)
		conn := connectionFlags(f)
		must.Do(t, f.Parse(append(c.flags, "--key", "a.key")))
		conn.first = &server{round: &wire.Description{Round: 1, ServerKey: "one"}}
		if c.helper {
			conn.second = &server{round: &wire.Description{Round: 1, ServerKey: "two"}}
		}
		if c.file != "" {
			must.Do(t, os.WriteFile(c.file, []byte(`{"server": "`+c.server+`", "round": 1, "client": "a"}`), 0o600))
		}
		if err := conn.receiptsFree("join", "a"); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
