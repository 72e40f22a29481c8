package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// played is the script that prints docs/played-round.md, and checks each of its steps itself.
const played = "played-round.sh"

// TestPlayedRound plays the round, and compares what it prints with the page, but for figures.
func TestPlayedRound(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole round")
	}
	for _, needed := range []string{"sh", "curl", "awk"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("needs %s: %v", needed, err)
		}
	}
	env := append(environment(programs(t)), "XDG_CONFIG_HOME="+t.TempDir(),
		"XDG_CACHE_HOME="+t.TempDir())
	lines := printed(shell(t, t.TempDir(), env, "sh "+must.Get(filepath.Abs(played))(t)))
	page := filepath.Join("..", "played-round.md")
	if *update {
		must.Do(t, os.WriteFile(page, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
		return
	}
	shown := printed(must.Get(os.ReadFile(page))(t))
	for i := range max(len(lines), len(shown)) {
		if i >= len(lines) || i >= len(shown) || alike(lines[i]) != alike(shown[i]) {
			t.Fatalf("line %d of the page is not like that which is printed: %q, %q; go test "+
				"./docs/examples -run PlayedRound -update", i+1,
				shown[min(i, len(shown)):min(i+1, len(shown))],
				lines[min(i, len(lines)):min(i+1, len(lines))])
		}
	}
}
