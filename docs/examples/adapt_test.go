package examples

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// camera writes a drawn photograph of a camera with less contrast and lighter images, or as it is,
// to a file.
func camera(t *testing.T, from, to string, other bool) {
	t.Helper()
	data := must.Get(os.ReadFile(from))(t)
	im := must.Get(png.Decode(bytes.NewReader(data)))(t)
	out := image.NewRGBA(im.Bounds())
	for y := range im.Bounds().Dy() {
		for x := range im.Bounds().Dx() {
			c := color.RGBAModel.Convert(im.At(x, y)).(color.RGBA)
			if other {
				for _, v := range []*uint8{&c.R, &c.G, &c.B} {
					*v = uint8(min(0.8*float64(*v)+30, 255))
				}
			}
			out.SetRGBA(x, y, c)
		}
	}
	must.Do(t, os.MkdirAll(filepath.Dir(to), 0o755))
	var b bytes.Buffer
	must.Do(t, png.Encode(&b, out))
	must.Do(t, os.WriteFile(to, b.Bytes(), 0o644))
}

// dressed stores a drawn photograph as others come: 0 to be turned (EXIF), 1 half transparent, 2 grey
// of 16 bits, 3 so in a TIFF whose 0 is white.
func dressed(t *testing.T, path string, how int) {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	if how == 0 {
		chunk := []byte("eXIfII*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00")
		out := binary.BigEndian.AppendUint32(bytes.Clone(data[:33]), uint32(len(chunk)-4)) // after IHDR
		out = binary.BigEndian.AppendUint32(append(out, chunk...), crc32.ChecksumIEEE(chunk))
		must.Do(t, os.WriteFile(path, append(out, data[33:]...), 0o644))
		return
	}
	im := must.Get(png.Decode(bytes.NewReader(data)))(t)
	var out draw.Image = image.NewGray16(im.Bounds())
	encode := png.Encode
	switch how {
	case 1:
		out = image.NewNRGBA(im.Bounds())
	case 3:
		encode = negative // its name stays: the first bytes tell
	}
	draw.DrawMask(out, im.Bounds(), im, image.Point{}, image.NewUniform(color.Alpha{255 >> (how % 2)}),
		image.Point{}, draw.Src)
	var b bytes.Buffer
	must.Do(t, encode(&b, out))
	must.Do(t, os.WriteFile(path, b.Bytes(), 0o644))
}

// TestAdapt: of six owners two have another camera. A further owner of theirs has, by fmp predict
// --adapt, fmp-edge predict --adapt and the documented Python, the same probabilities, which are
// other than without, and more of its photographs are classified well.
func TestAdapt(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs and runs a round")
	}
	code := shown(t, "shifts.md", "adapt.py", "python")
	dir, run := place(t)
	python := snippets(t, dir)[0]
	run("fmp data synth -o drawn --photos --train 600 --test 240")
	for _, part := range []string{"train", "test"} {
		files, err := filepath.Glob(filepath.Join(dir, "drawn", part, "*", "*.png"))
		if err != nil || len(files) < 60 {
			t.Fatalf("%d drawn photographs, %v", len(files), err)
		}
		for i, file := range files {
			class, name := filepath.Base(filepath.Dir(file)), filepath.Base(file)
			if part == "train" {
				camera(t, file, filepath.Join(dir, fmt.Sprint("owner", i%6), class, name), i%6 >= 4)
				continue
			}
			to := filepath.Join(dir, "new", class, class+"-"+name)
			if i%4 == 0 {
				to = filepath.Join(dir, "theirs", name)
			}
			if camera(t, file, to, true); i < 12 {
				dressed(t, to, []int{0, 1, 2, 0, 1, 3}[i%6])
			}
		}
	}
	run("fmp fuse --dataset digits -o client.onnx")
	for m := range 6 {
		run(fmt.Sprintf("fmp-edge compress --model client.onnx --client owner%d -o upload%d owner%d", m, m, m))
	}
	out := run("fmp pool -o classifier.onnx --client-graph client.onnx upload0 upload1 upload2 " +
		"upload3 upload4 upload5")
	if !bytes.Contains(out, []byte("2 of 6 clients differ")) {
		t.Fatalf("no cameras differ:\n%s", out)
	}
	plain := run("fmp predict classifier.onnx new --json")
	adapted := run("fmp predict classifier.onnx new --adapt theirs --json")
	want := predictions(t, adapted)
	if a, b := right(want), right(predictions(t, plain)); a < b-2 {
		t.Errorf("adapted, %d of %d photographs are classified well; %d before", a, len(want), b)
	} else {
		t.Logf("adapted, %d of %d photographs are classified well; %d before", a, len(want), b)
	}
	if bytes.Equal(plain, adapted) {
		t.Error("--adapt changes no probability")
	}
	near(t, "fmp-edge", want,
		predictions(t, run("fmp-edge predict --model classifier.onnx --adapt theirs --json new")), 1e-4)
	said := run("fmp calibrate classifier.onnx new -o sets.onnx && fmp predict sets.onnx new --adapt theirs 2>&1")
	if !bytes.Contains(said, []byte("sets do not promise their level")) {
		t.Errorf("of sets of another camera fmp predict says: %s", said)
	}
	if python.missing != "" {
		t.Skip(python.missing)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "adapt.py"), code, 0o644))
	files := must.Get(filepath.Glob(filepath.Join(dir, "new", "*", "*")))(t)
	near(t, "adapt.py", want,
		lines(t, run(strings.Join(append([]string{python.program, "adapt.py", "classifier.onnx", "theirs"},
			files...), " "))), 1e-4)
}

// right returns the number of photographs, named CLASS-NAME, whose most probable class is theirs.
func right(of map[string][]float64) (n int) {
	for file, p := range of {
		best := 0
		for c, v := range p {
			if v > p[best] {
				best = c
			}
		}
		if strings.HasPrefix(file, fmt.Sprint(best, "-")) {
			n++
		}
	}
	return n
}
