package examples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	scale "golang.org/x/image/draw"
	"golang.org/x/image/tiff"

	"fmp/onnx/must"
)

// TestPagesShowTheSnippets: the code of the page is that of the files that TestSnippets runs.
func TestPagesShowTheSnippets(t *testing.T) {
	shown(t, "extractors.md", "classify.py", "python")
	shown(t, "extractors.md", "classify.mjs", "js")
}

// shown is the code of a file, which a page must show as it is.
func shown(t *testing.T, page, name, language string) []byte {
	t.Helper()
	code := must.Get(os.ReadFile(name))(t)
	text := must.Get(os.ReadFile(filepath.Join("..", page)))(t)
	if !bytes.Contains(text, []byte("```"+language+"\n"+string(code)+"```\n")) {
		t.Errorf("docs/%s does not show %s as it is", page, name)
	}
	return code
}

// decoded writes photographs of many sizes into photos, as PNG, TIFF and JPEG, and the pixels that
// package jpeg decodes of the latter into pixels, as PNG.
func decoded(t *testing.T, from, photos, pixels string) {
	t.Helper()
	write := func(path string, encode func(f *os.File) error) {
		f := must.Get(os.Create(path))(t)
		must.Do(t, encode(f))
		must.Do(t, f.Close())
	}
	files, err := filepath.Glob(filepath.Join(from, "*", "*.png"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d drawn photographs, %v", len(files), err)
	}
	for i, file := range files {
		data := must.Get(os.ReadFile(file))(t)
		src := must.Get(png.Decode(bytes.NewReader(data)))(t)
		size := []image.Point{{640, 480}, {333, 517}, {32, 32}, {20, 27}}[i%4]
		im := image.NewRGBA(image.Rectangle{Max: size})
		scale.BiLinear.Scale(im, im.Rect, src, src.Bounds(), draw.Src, nil)
		name := strings.TrimSuffix(filepath.Base(file), ".png")
		if i < 2 { // as X-rays are stored
			grey := image.NewGray16(im.Rect)
			draw.Draw(grey, im.Rect, im, image.Point{}, draw.Src)
			for _, folder := range []string{photos, pixels} {
				path, encode := filepath.Join(folder, name+".png"), png.Encode
				if i == 1 {
					path, encode = filepath.Join(folder, name+".tif"), negative
				}
				write(path, func(f *os.File) error { return encode(f, grey) })
			}
			continue
		}
		if i%3 == 0 {
			write(filepath.Join(photos, name+".png"),
				func(f *os.File) error { return png.Encode(f, im) })
			write(filepath.Join(pixels, name+".png"),
				func(f *os.File) error { return png.Encode(f, im) })
			continue
		}
		var compressed bytes.Buffer
		must.Do(t, jpeg.Encode(&compressed, im, &jpeg.Options{Quality: 85}))
		back := must.Get(jpeg.Decode(bytes.NewReader(compressed.Bytes())))(t)
		draw.Draw(im, im.Rect, back, image.Point{}, draw.Src)
		write(filepath.Join(photos, name+".jpg"),
			func(f *os.File) error { _, err := f.Write(compressed.Bytes()); return err })
		write(filepath.Join(pixels, name+".png"), func(f *os.File) error { return png.Encode(f, im) })
	}
}

// negative writes a TIFF that says that its 0 is white (WhiteIsZero).
func negative(w io.Writer, im image.Image) error {
	var b bytes.Buffer
	if err := tiff.Encode(&b, im, nil); err != nil {
		return err
	}
	const photometric = "\x06\x01\x03\x00\x01\x00\x00\x00" // the entry's tag, type and count
	at := bytes.LastIndex(b.Bytes(), []byte(photometric))  // the directory is behind the pixels
	if at < 0 {
		return errors.New("the TIFF does not say of which colour its 0 is")
	}
	b.Bytes()[at+len(photometric)] = 0
	_, err := w.Write(b.Bytes())
	return err
}

// snippet is one of the files that classify, with the program that runs it, or the reason why none
// does.
type snippet struct {
	program, file, missing string
}

// snippets finds Python with its packages (PYTHON, or python3), and node with those in the folder
// NODE_PATH.
func snippets(t *testing.T, dir string) []snippet {
	t.Helper()
	python := snippet{file: "classify.py",
		missing: "needs Python (or PYTHON=...) with onnxruntime, pillow and numpy"}
	for _, name := range []string{os.Getenv("PYTHON"), "python3"} {
		if p, err := exec.LookPath(name); name != "" && err == nil &&
			exec.Command(p, "-c", "import numpy, onnxruntime, PIL").Run() == nil {
			python.program, python.missing = p, ""
			break
		}
	}
	node := snippet{file: "classify.mjs",
		missing: "needs node, and onnxruntime-node and sharp in a folder that NODE_PATH names"}
	if p, err := exec.LookPath("node"); err == nil && os.Getenv("NODE_PATH") != "" {
		node.program, node.missing = p, ""
		must.Do(t, os.Symlink(os.Getenv("NODE_PATH"), filepath.Join(dir, "node_modules")))
	}
	both := []snippet{python, node}
	for i := range both {
		code := must.Get(os.ReadFile(both[i].file))(t)
		both[i].file = filepath.Join(dir, both[i].file)
		must.Do(t, os.WriteFile(both[i].file, code, 0o644))
	}
	return both
}

// TestSnippets: the documented Python and JavaScript have the probabilities of fmp predict and
// fmp-edge predict from the same pixels, of photographs of many sizes, behind the default and
// behind cropping.
func TestSnippets(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs and runs a round")
	}
	dir, run := place(t)
	both := snippets(t, dir)
	for i, s := range both {
		if s.missing != "" && (both[1-i].missing != "" || os.Getenv("CI") != "") {
			must.Have(t, errors.New(s.missing))
		}
	}
	for _, folder := range []string{"photos", "pixels"} {
		must.Do(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	run("fmp data synth -o drawn --photos --train 60 --test 40")
	decoded(t, filepath.Join(dir, "drawn", "test"), filepath.Join(dir, "photos"),
		filepath.Join(dir, "pixels"))
	for _, resize := range []string{"stretch", "crop", "crop:0.875", "pad"} {
		run("fmp fuse --dataset digits-color --resize " + resize +
			" -o client.onnx && fmp-edge compress --model client.onnx --client shop -o upload " +
			"drawn/train && fmp pool upload --client-graph client.onnx --fixed-size -o " +
			"fixed.onnx && fmp pool upload --client-graph client.onnx -o classifier.onnx")
		want := predictions(t, run("fmp predict fixed.onnx photos --json"))
		// our decoder reduces large JPEG files, others' do not
		ofPixels := predictions(t, run("fmp predict fixed.onnx pixels --json"))
		near(t, resize+", of any size", want,
			predictions(t, run("fmp predict classifier.onnx photos --json")), 1e-4)
		near(t, resize+", fmp-edge", want,
			predictions(t, run("fmp-edge predict --model classifier.onnx photos --json")), 1e-4)
		for _, s := range both {
			if s.missing != "" {
				t.Logf("not compared: %s", s.missing)
				continue
			}
			for _, c := range []struct {
				folder string
				want   map[string][]float64
				bound  float64
			}{{"pixels", ofPixels, 1e-4}, {"photos", want, 0.05}} {
				files := must.Get(filepath.Glob(filepath.Join(dir, c.folder, "*")))(t)
				got := lines(t, run(strings.Join(append([]string{s.program, s.file, "classifier.onnx"},
					files...), " ")))
				near(t, resize+", "+filepath.Base(s.file)+" of "+c.folder, c.want, got, c.bound)
			}
		}
	}
}

// predictions reads the JSON of fmp predict: probabilities by file, without folder and extension.
func predictions(t *testing.T, text []byte) map[string][]float64 {
	t.Helper()
	var out struct {
		Predictions []struct {
			File          string
			Probabilities []float64
		}
	}
	must.Do(t, json.Unmarshal(text, &out))
	of := map[string][]float64{}
	for _, p := range out.Predictions {
		of[stem(p.File)] = p.Probabilities
	}
	return of
}

func stem(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// lines reads what a snippet prints.
func lines(t *testing.T, text []byte) map[string][]float64 {
	t.Helper()
	of := map[string][]float64{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var p struct {
			File          string
			Probabilities []float64
		}
		must.Do(t, json.Unmarshal(s.Bytes(), &p))
		of[stem(p.File)] = p.Probabilities
	}
	return of
}

// near compares the probabilities of the same photographs.
func near(t *testing.T, name string, want, got map[string][]float64, bound float64) {
	t.Helper()
	if len(want) < 4 || len(got) != len(want) {
		t.Fatalf("%s: %d photographs; want %d", name, len(got), len(want))
	}
	worst := 0.0
	for file, p := range want {
		if len(got[file]) != len(p) {
			t.Fatalf("%s: %s has %d probabilities; want %d", name, file, len(got[file]), len(p))
		}
		for c := range p {
			worst = max(worst, math.Abs(p[c]-got[file][c]))
		}
	}
	t.Logf("%s: probabilities differ by %.2g at most", name, worst)
	if !(worst <= bound) {
		t.Errorf("%s: probabilities differ by %.2g; want %v at most", name, worst, bound)
	}
}
