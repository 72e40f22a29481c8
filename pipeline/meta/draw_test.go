package meta

import (
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

func TestDrawLog(t *testing.T) {
	dir := t.TempDir()
	log, svg := filepath.Join(dir, "log.jsonl"), filepath.Join(dir, "log.svg")
	write := func(s string) {
		must.Do(t, os.WriteFile(log, []byte(s), 0o644))
	}
	write(`{"kind":"train","step":10,"loss":2}
{"kind":"train","step":20,"loss":1.5}
{"kind":"validation","step":20,"gap":0.4,"acc":0.7,"fmp_acc":0.69}
`)
	must.Do(t, DrawLog(log, svg))
	data := must.Get(os.ReadFile(svg))(t)
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

// TestLegendsCoverNoLine: an axis of 0 to 10 ends so that its lines take what the legend leaves.
func TestLegendsCoverNoLine(t *testing.T) {
	a := plot.Axis{Min: 0, Max: 10}
	makeRoom(&a, 4)
	if got, want := 10/a.Max, 1-4*legendLine; math.Abs(got-want) > 1e-12 {
		t.Errorf("lines take %v of the panel; want %v", got, want)
	}
}

// TestDrawLogOfOneLargeValue: fuzzing found the panic of an axis whose range was nothing.
func TestDrawLogOfOneLargeValue(t *testing.T) {
	for _, log := range []string{`{"kind":"train","step":1,"loss":1e20}`,
		`{"kind":"train","step":1e25,"loss":-3e29}`, `{"kind":"train","step":0,"loss":0}`,
		`{"kind":"train","step":1,"loss":1e20}` + "\n" +
			`{"kind":"train","step":2,"loss":1.0000001e20}`} {
		file := filepath.Join(t.TempDir(), "log")
		must.Do(t, os.WriteFile(file, []byte(log), 0o644))
		if err := DrawLog(file, file+".svg"); err != nil {
			t.Errorf("%s: %v", log, err)
		}
	}
}

// FuzzDrawLog reads whatever a log holds, to values that can be drawn, and draws one in sixteen of
// those that are read, since that takes a hundred times as long: an SVG file or an error, soon.
func FuzzDrawLog(f *testing.F) {
	f.Add([]byte(`{"kind":"train","step":1,"loss":2.5}` + "\n" +
		`{"kind":"validation","step":1,"acc":0.5,"gap":1}` + "\n"))
	f.Add([]byte(`{"kind":"train","step":1e308,"loss":-1e308}` + "\n" +
		`{"kind":"train","step":-1e308,"loss":1e308}` + "\n"))
	f.Add([]byte(`{"kind":"train","step":1,"loss":1e-320}` + "\n" +
		`{"kind":"train","step":1,"loss":2e-320}` + "\n"))
	f.Add([]byte("null\n"))
	f.Add([]byte(`{"kind":"train","step":1e30,"loss":1e30}` + "\n"))
	dir := f.TempDir()
	log, svg := filepath.Join(dir, "log.jsonl"), filepath.Join(dir, "log.svg")
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<12 {
			t.Skip()
		}
		series, err := readLog(data)
		for name, xys := range series {
			for _, p := range xys {
				if !drawable(p.X) || !drawable(p.Y) {
					t.Fatalf("%s has the point %v", name, p)
				}
			}
		}
		if err != nil || len(series) == 0 || crc32.ChecksumIEEE(data)%16 != 0 {
			return
		}
		must.Do(t, os.WriteFile(log, data, 0o644))
		start := time.Now()
		// A page of axes and lines takes some; nothing of it grows with the numbers drawn.
		alloctest.AtMost(t, 32<<20+4000*len(data), func() { _ = DrawLog(log, svg) })
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%d bytes took %v", len(data), d)
		}
	})
}
