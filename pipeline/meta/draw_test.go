package meta

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDrawLog(t *testing.T) {
	dir := t.TempDir()
	log, svg := filepath.Join(dir, "log.jsonl"), filepath.Join(dir, "log.svg")
	write := func(s string) {
		if err := os.WriteFile(log, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"kind":"train","step":10,"loss":2}
{"kind":"train","step":20,"loss":1.5}
{"kind":"validation","step":20,"gap":0.4,"acc":0.7,"fmp_acc":0.69}
`)
	if err := DrawLog(log, svg); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "relative gap", "fmp_acc", "loss"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the drawing does not show %q", want)
		}
	}
	for _, bad := range []string{"", "{}\n", "not JSON\n", `{"kind":"train","step":1,"unknown":3}` + "\n"} {
		write(bad)
		if err := DrawLog(log, filepath.Join(dir, "bad.svg")); err == nil {
			t.Errorf("log %q was drawn", bad)
		}
		if _, err := os.Stat(filepath.Join(dir, "bad.svg")); err == nil {
			t.Errorf("log %q left a drawing", bad)
		}
	}
}
