package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"fmp/onnx/must"
)

func TestSay(t *testing.T) {
	t.Parallel()
	for asJSON, want := range map[bool]string{false: "a of 2%\n", true: "{\n  \"name\": \"a<b\"\n}\n"} {
		var b strings.Builder
		cmd := &cobra.Command{}
		cmd.SetOut(&b)
		jsonFlag(cmd, "")
		must.Do(t, cmd.ParseFlags([]string{fmt.Sprint("--json=", asJSON)}))
		if err := say(cmd, map[string]string{"name": "a<b"}, "%s of %d%%\n", "a", 2); err != nil ||
			b.String() != want {
			t.Errorf("json %v: %q, %v; want %q", asJSON, b.String(), err, want)
		}
	}
}
