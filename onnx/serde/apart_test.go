package serde

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// weighty is a model with initializers of every width above and below the size from which on data
// stay where they lie, whose places in the file are odd ones.
func weighty(t testing.TB) *onnx.Model {
	m := modeltest.Linear(t, "m", "image", "features", 2, 2)
	small := make([]float32, 3)
	large := make([]float32, apartFrom)
	doubles, bytes := make([]float64, apartFrom), make([]int8, apartFrom+1)
	for i := range large {
		large[i], doubles[i], bytes[i] = float32(i)/7, math.Sqrt(float64(i)), int8(i*31)
	}
	for i := range 8 { // names of different lengths move what follows
		name := strings.Repeat("n", i)
		m.Graph.Initializers["f"+name] = onnx.NewTensor(large, len(large))
		m.Graph.Initializers["s"+name] = onnx.NewTensor(small, len(small))
		m.Graph.Initializers["d"+name] = onnx.NewTensor(doubles, len(doubles))
		m.Graph.Initializers["b"+name] = onnx.NewTensor(bytes, len(bytes))
	}
	return m
}

// TestOwnData: a model that takes over the bytes of its file is the model of a copy, and its larger
// numbers of four bytes lie in the file's memory.
func TestOwnData(t *testing.T) {
	data := must.Get(Marshal(weighty(t)))(t)
	want := must.Get(Unmarshal(data))(t)
	for _, whole := range []bool{false, true} {
		own := bytes.Clone(data)
		got := must.Get(LoadOwn("m.onnx", own, func(map[string]string) bool { return whole }, io.Discard))(t)
		again, err := Marshal(got)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("whole %v: other bytes than those read (%v)", whole, err)
		}
		if len(got.Graph.Initializers) != len(want.Graph.Initializers) {
			t.Errorf("%d initializers of %d", len(got.Graph.Initializers), len(want.Graph.Initializers))
		}
		first := uintptr(unsafe.Pointer(unsafe.SliceData(own)))
		for name, x := range got.Graph.Initializers {
			v, ok := x.Data.([]float32)
			at := uintptr(unsafe.Pointer(unsafe.SliceData(v)))
			if ok && len(v) >= apartFrom && (at < first || at-first > uintptr(len(own)) || at%4 != 0) {
				t.Errorf("whole %v: %s was copied", whole, name)
			}
		}
	}
}

// FuzzTakeApart: a message put together from its parts is the message, whatever the bytes; and what
// is taken apart lies within the data.
func FuzzTakeApart(f *testing.F) {
	const from = 4
	data := must.Get(Marshal(modeltest.Linear(f, "m", "image", "features", 2, 2)))(f)
	f.Add(data)
	f.Add(append(data, data...)) // two graphs
	bytesOf := func(num protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), value)
	}
	numbers := bytesOf(fieldRawData, make([]byte, 2*from))
	for _, twice := range [][]byte{nil, numbers, bytesOf(fieldRawData, nil)} { // the last counts
		tensor := append(bytes.Clone(numbers), twice...)
		f.Add(bytesOf(fieldGraph, bytesOf(fieldInitializer, tensor)))
	}
	for _, open := range openings {
		f.Add(edited(f, data, open))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, errWant := decode(bytes.Clone(data), maxParts)
		own := bytes.Clone(data)
		rest, raw := takeApart(own, from)
		got, err := decode(rest, maxParts)
		if (err == nil) != (errWant == nil) {
			t.Fatalf("in parts %v, whole %v", err, errWant)
		}
		if err != nil {
			return
		}
		for i, part := range raw {
			got.Graph.Initializer[i].RawData = part
		}
		if !proto.Equal(got, want) {
			t.Fatal(fmt.Sprint("in parts ", got, ", whole ", want))
		}
	})
}
