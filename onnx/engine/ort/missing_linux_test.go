package ort

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestMissing: the reason names the provider's library where that is not beside the runtime's, the
// library that it needs where that is not on the machine, and is empty where nothing is missing.
func TestMissing(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "libonnxruntime.so.1")
	provider := filepath.Join(dir, "libonnxruntime_providers_cuda.so")
	if got := missing(lib, "cuda"); !strings.Contains(got, provider) {
		t.Errorf("no provider: %q", got)
	}
	must.Do(t, os.WriteFile(provider, []byte("no library"), 0o600))
	if got := missing(lib, "cuda"); !strings.Contains(got, "ELF") && !strings.Contains(got, "short") {
		t.Errorf("no library: %q", got)
	}
	compile := func(out, code string, args ...string) {
		source := filepath.Join(dir, "a.c")
		must.Do(t, os.WriteFile(source, []byte(code), 0o600))
		c := exec.Command("cc", append([]string{"-shared", "-fPIC", "-o", out, source}, args...)...)
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, text)
		}
	}
	needed := filepath.Join(dir, "libneeded-by-cuda.so")
	compile(needed, "int needed(void) { return 1; }")
	compile(provider, "int needed(void); int provider(void) { return needed(); }", "-L"+dir,
		"-lneeded-by-cuda", "-Wl,-rpath,"+dir)
	if got := missing(lib, "cuda"); got != "" {
		t.Errorf("with all that it needs: %q", got)
	}
	must.Do(t, os.Remove(needed))
	if got := missing(lib, "cuda"); !strings.Contains(got, "libneeded-by-cuda.so") {
		t.Errorf("without a library that it needs: %q", got)
	}
}
