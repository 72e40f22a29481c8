package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// oddPhotographs writes 60 pictures of odd sizes: PNGs in colour, and grey JPEGs that are turned by
// EXIF in each of its eight ways. Both formats decode to the same numbers everywhere: larger JPEGs
// are decoded no further than needed, and not to the bit.
func oddPhotographs(t *testing.T, dir string) {
	t.Helper()
	r := rng.New(4, "odd photographs")
	for i := range 60 {
		w, h := 9+r.IntN(120), 9+r.IntN(120)
		pixel := func(x, y, c int) uint8 {
			return uint8(128 + 90*math.Sin(float64(x*(c+2))/9+float64(i))*math.Cos(float64(y)/7) +
				float64(r.IntN(30)))
		}
		var b bytes.Buffer
		name := fmt.Sprintf("%02d.png", i)
		if i%3 > 0 {
			im := image.NewNRGBA(image.Rect(0, 0, w, h))
			for k := range w * h {
				x, y := k%w, k/w
				im.SetNRGBA(x, y, color.NRGBA{R: pixel(x, y, 0), G: pixel(x, y, 1),
					B: pixel(x, y, 2), A: 255})
			}
			must.Do(t, png.Encode(&b, im))
		} else {
			name = fmt.Sprintf("%02d.jpg", i)
			im := image.NewGray(image.Rect(0, 0, w, h))
			for k := range im.Pix {
				im.Pix[k] = pixel(k%w, k/w, 0)
			}
			var plain bytes.Buffer
			must.Do(t, jpeg.Encode(&plain, im, &jpeg.Options{Quality: 95}))
			// One directory entry: Orientation (0x112), SHORT, once.
			exif := []byte(
				"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00")
			binary.BigEndian.PutUint16(exif[24:], uint16(1+i/3%8))
			b.Write([]byte{0xff, 0xd8, 0xff, 0xe1, 0, byte(len(exif) + 2)})
			b.Write(exif)
			b.Write(plain.Bytes()[2:])
		}
		must.Do(t, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600))
	}
}

// presetClassifier writes a classifier behind a preset, with drawn weights: of images of any size,
// 24 x 32 pixels inside.
func presetClassifier(t *testing.T, dir, preset string) string {
	t.Helper()
	w := onnx.ZerosF32(8, 3, 5, 5)
	rng.Normal(rng.New(5, "filters"), w.F32())
	for i := range w.F32() {
		w.F32()[i] *= 0.2
	}
	b := build.New("filters")
	x := b.Input("image", onnx.Float32, "batch", 3, 24, 32)
	h := b.Relu(b.Op("Conv", []build.Ref{x, b.Param("w", w)}, onnx.IntsAttr("strides", 2, 2)))
	b.Output("features", b.Reshape(b.Op("GlobalAveragePool", []build.Ref{h}), 0, 8))
	net, client := saved(t)(b.Model()), filepath.Join(dir, preset+".client.onnx")
	ran(t, "fuse", "--extractor", net, "--preset", preset, "--class-names", "a,b,c", "-o", client)
	graph, f := must.Get2(models.Load(client))(t)
	features := must.Get(models.FeatureGraph(graph, f))(t)
	heads := make([]float64, 4*9*3)
	r := rng.New(6, "heads")
	for i := range heads {
		heads[i] = r.NormFloat64()
	}
	m := must.Get(models.NewClassifier(
		models.ClassifierParts{Features: features, Heads: onnx.NewTensor(heads, 4, 9, 3)},
		models.Manifest{Classes: []string{"a", "b", "c"}, Resize: f.Resize, Layout: f.Layout}))(t)
	path := filepath.Join(dir, preset+".onnx")
	must.Do(t, serde.Save(path, must.Get(models.AnySize(m))(t)))
	return path
}

// other runs a program of another runtime, which ends with 3 where it misses what it needs.
func other(t *testing.T, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	must.Have(t, err)
	out, err := exec.Command(path, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		must.Have(t, errors.New(string(out)))
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}

// TestPhotographsAgree: the probabilities of 60 photographs of odd sizes under every preset are
// those of fmp predict, to 1e-4, in Python's onnxruntime, in onnxruntime-web and in tritonclient on
// our own /v2. Python decodes the files for all three.
func TestPhotographsAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("runs other runtimes")
	}
	needRuntime(t)
	dir := t.TempDir()
	photos := filepath.Join(dir, "photos")
	must.Do(t, os.Mkdir(photos, 0o700))
	oddPhotographs(t, photos)
	other(t, "python3", filepath.Join("testdata", "photographs.py"), "decode", photos)
	for _, preset := range extractor.PresetNames() {
		path := presetClassifier(t, dir, preset)
		want := answer[predictedJSON](t, "predict", path, photos, "--json")
		if len(want.Predictions) != 60 {
			t.Fatalf("%d predictions", len(want.Predictions))
		}
		agree := func(t *testing.T, by string) {
			got := map[string][]float64{}
			must.Do(t, json.Unmarshal(read(t, filepath.Join(photos, by+".json")), &got))
			for _, p := range want.Predictions {
				name := filepath.Base(p.File)
				if len(got[name]) != 3 {
					t.Fatalf("%s: %v for %s", by, got[name], name)
				}
				for c, v := range p.Probabilities {
					if math.Abs(v-got[name][c]) > 1e-4 {
						t.Errorf("%s behind %s: %v of class %d by %s, %v by fmp predict", name, preset,
							got[name][c], c, by, v)
					}
				}
			}
		}
		t.Run(preset+"/onnxruntime", func(t *testing.T) {
			other(t, "python3", filepath.Join("testdata", "photographs.py"),
				"onnxruntime", photos, path)
			agree(t, "onnxruntime")
		})
		t.Run(preset+"/onnxruntime-web", func(t *testing.T) {
			other(t, "node", filepath.Join("testdata", "photographs.js"), photos, path)
			agree(t, "onnxruntime-web")
		})
		t.Run(preset+"/tritonclient", func(t *testing.T) {
			other(t, "python3", filepath.Join("testdata", "photographs.py"), "tritonclient", photos,
				served(t, path))
			agree(t, "tritonclient")
		})
	}
}

// served starts fmp predict --listen of a classifier, and returns its address.
func served(t *testing.T, path string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	from, to := io.Pipe()
	done := make(chan int)
	go func() {
		code := execute(ctx, []string{"predict", path, "--listen", "127.0.0.1:0"},
			strings.NewReader(""), to, io.Discard)
		to.Close()
		done <- code
	}()
	t.Cleanup(func() {
		stop()
		go io.Copy(io.Discard, from)
		<-done
	})
	line, err := bufio.NewReader(from).ReadString('\n')
	_, address, ok := strings.Cut(line, "on http://")
	if err != nil || !ok {
		t.Fatalf("fmp predict --listen says %q, %v", line, err)
	}
	return strings.TrimSpace(address)
}
