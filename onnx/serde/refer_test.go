package serde

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
)

// Weights of a large file are left where they lie: loading takes no memory for them, and a model
// that is encoded for a runtime names them.
func TestLargeDataStayInTheirFile(t *testing.T) {
	const rows, columns, offset = 1024, 4100, 4096
	dir := t.TempDir()
	f := must.Get(os.Create(filepath.Join(dir, "w.bin")))(t)
	last := binary.LittleEndian.AppendUint32(nil, math.Float32bits(2.5))
	must.Get(f.WriteAt(last, offset+4*(rows*columns-1)))(t)
	must.Do(t, f.Close())
	path := external(t, dir, []int64{rows, columns},
		map[string]string{"location": "w.bin", "offset": "4096"})
	alloctest.AtMost(t, 1<<20, func() {
		m := must.Get(Load(path))(t)
		w := m.Graph.Initializers["w"]
		if v := w.F32()[rows*columns-1]; v != 2.5 {
			t.Errorf("the last weight is %v", v)
		}
		data, folder := must.Get2(Refer(m))(t)
		var p onnxpb.ModelProto
		must.Do(t, proto.Unmarshal(data, &p))
		var said []string
		for _, w := range p.Graph.Initializer {
			for _, kv := range w.ExternalData {
				said = append(said, w.Name+" "+kv.Key+"="+kv.Value)
			}
		}
		if got, want := strings.Join(said, ", "),
			"w location=w.bin, w offset=4096, w length=16793600"; folder != dir || got != want {
			t.Errorf("folder %q and %q, want %q and %q", folder, got, dir, want)
		}
		if m.Graph.Initializers["w"] != w {
			t.Error("the model lost its weights")
		}
		// A tensor in their place is encoded.
		own := *w
		own.Shape, own.Data, own.External = []int{1}, w.F32()[:1], nil
		m.Graph.Initializers["w"] = &own
		if _, folder, err := Refer(m); err != nil || folder != "" {
			t.Errorf("folder %q, %v, where no data lie in a file", folder, err)
		}
	})
}
