package serde

import (
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
)

// external writes a model whose weight w lies in another file, and returns the model's path.
// entries are the tensor's external_data.
func external(t *testing.T, dir string, dims []int64, entries map[string]string) string {
	t.Helper()
	data := must.Get(Marshal(modeltest.Linear(t, "m", "image", "features", 2, 2)))(t)
	data = edited(t, data, func(p *onnxpb.ModelProto) {
		w := p.Graph.Initializer[0]
		w.RawData, w.DataLocation, w.Dims = nil, dataElsewhere, dims
		for _, k := range slices.Sorted(maps.Keys(entries)) {
			w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: k, Value: entries[k]})
		}
	})
	path := filepath.Join(dir, "model.onnx")
	must.Do(t, os.WriteFile(path, data, 0o644))
	return path
}

func TestLoadExternalData(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "model")
	must.Do(t, os.MkdirAll(filepath.Join(dir, "weights"), 0o755))
	raw := make([]byte, 8)
	for i := range 4 {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i)+0.5))
	}
	for _, f := range []string{"../secret", "w.bin", "weights/w.bin"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, f), raw, 0o644))
	}
	must.Do(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")))
	for _, tc := range []struct {
		name    string
		dims    []int64
		entries map[string]string
		want    string // in the error; "" for success
	}{
		{"beside the model", []int64{2, 2},
			map[string]string{"location": "w.bin", "offset": "8", "length": "16"}, ""},
		{"below, to the end", []int64{2, 2},
			map[string]string{"location": "weights/w.bin", "offset": "8"}, ""},
		{"above", []int64{2, 2}, map[string]string{"location": "../secret", "offset": "8"},
			"outside the model's folder"},
		{"absolute", []int64{2, 2},
			map[string]string{"location": filepath.Join(outside, "secret"), "offset": "8"},
			"outside the model's folder"},
		{"a link that leads out", []int64{2, 2}, map[string]string{"location": "link", "offset": "8"},
			"must lie in the model's folder"},
		{"a folder", []int64{2, 2}, map[string]string{"location": "weights"}, "want a regular file"},
		{"no such file", []int64{2, 2}, map[string]string{"location": "none.bin"}, "none.bin"},
		{"no file named", []int64{2, 2}, nil, "names no file"},
		{"cut short", []int64{2, 2}, map[string]string{"location": "w.bin", "offset": "9"}, "cut short"},
		{"an offset beyond all", []int64{2, 2},
			map[string]string{"location": "w.bin", "offset": "9223372036854775807"}, "cut short"},
		{"a negative offset", []int64{2, 2}, map[string]string{"location": "w.bin", "offset": "-8"},
			`offset is "-8"`},
		{"another length", []int64{2, 2}, map[string]string{"location": "w.bin", "length": "12"},
			"needs 16 bytes"},
		{"a huge tensor", []int64{40000, 40000}, map[string]string{"location": "w.bin"}, "cut short"},
		{"an impossible tensor", []int64{1 << 30, 1 << 30},
			map[string]string{"location": "w.bin"}, "elements"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := Load(external(t, dir, tc.dims, tc.entries))
			if tc.want != "" {
				must.Fail(err)(t, tc.want)
				must.Fail(err)(t, `"w"`)
				return
			}
			must.Do(t, err)
			if got := m.Graph.Initializers["w"].F32(); got[0] != 0.5 || got[3] != 3.5 {
				t.Errorf("weights are %v", got)
			}
		})
	}
	data := must.Get(os.ReadFile(external(t, dir, []int64{2, 2}, map[string]string{"location": "w.bin"})))(t)
	must.Fail(Unmarshal(data))(t, "", "Unmarshal read a tensor that lies in another file")
}

// FuzzExternal reads the data of a tensor from another file, as whatever entries say: what is read
// is the file's own bytes at the place that the entries name, and takes at most a few copies of the
// file (maxShared) and 4,000 bytes of memory.
func FuzzExternal(f *testing.F) {
	f.Add("w.bin", "4", "16", int32(1), int64(2), int64(2), uint8(1), []byte("xxxx0123456789abcdef"))
	f.Add("w.bin", "", "", int32(7), int64(1), int64(0), uint8(2), []byte{})
	f.Add("../secret", "0", "8", int32(1), int64(1), int64(2), uint8(1), []byte("secret!!"))
	f.Add("link", "0", "8", int32(1), int64(1), int64(2), uint8(1), []byte("secret!!"))
	f.Add("w.bin", "-1", "99999999999999999999", int32(8), int64(1<<40), int64(1<<40),
		uint8(9), []byte("abc"))
	f.Add("w.bin", "9223372036854775807", "8", int32(10), int64(-1), int64(4), uint8(200),
		[]byte("abcdefgh"))
	f.Add("w.bin", "4", "1", int32(26), int64(2), int64(2), uint8(2), []byte("169a0123456789abcdef"))
	f.Add("w.bin", "4", "2", int32(22), int64(3), int64(1), uint8(2), []byte("169a0123456789abcdef"))
	outside := f.TempDir()
	dir := filepath.Join(outside, "model")
	must.Do(f, os.Mkdir(dir, 0o755))
	must.Do(f, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret!!secret!!"), 0o644))
	must.Do(f, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")))
	f.Fuzz(func(t *testing.T, location, offset, length string, dtype int32, rows, columns int64,
		tensors uint8, content []byte) {
		must.Do(t, os.WriteFile(filepath.Join(dir, "w.bin"), content, 0o644))
		g := &onnxpb.GraphProto{}
		for i := range int(tensors % 16) {
			w := &onnxpb.TensorProto{Name: string(rune('a' + i)), DataType: dtype,
				Dims:         []int64{rows, columns},
				DataLocation: dataElsewhere}
			w.ExternalData = append(w.ExternalData,
				&onnxpb.StringStringEntryProto{Key: "location", Value: location})
			for k, v := range map[string]string{"offset": offset, "length": length} {
				if v != "" {
					w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: k, Value: v})
				}
			}
			g.Initializer = append(g.Initializer, w)
		}
		var err error
		alloctest.AtMost(t, maxShared*len(content)+len(location)*8+4000,
			func() { _, err = readExternal(&onnxpb.ModelProto{Graph: g}, dir, io.Discard) })
		if err != nil {
			return
		}
		from, _ := strconv.Atoi(offset)
		size := rows * columns * int64(onnx.DType(dtype).Size())
		switch dtype { // several elements a byte
		case 21, 22, 23: // UINT4, INT4, FLOAT4E2M1
			size = (rows*columns + 1) / 2
		case 25, 26: // UINT2, INT2
			size = (rows*columns + 3) / 4
		}
		for _, w := range g.Initializer {
			if filepath.Clean(location) != "w.bin" || from > len(content) ||
				!bytes.HasPrefix(content[from:], w.RawData) ||
				int64(len(w.RawData)) != size {
				t.Fatalf("%q from %q of a file with %q gave %q", location, offset, content, w.RawData)
			}
		}
	})
}
