package extractor

import (
	"testing"

	"fmp/featurize/yamlfile"
	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// FuzzSidecar: what passes is valid, and a file takes at most 2,000 bytes of memory for each of its
// bytes and for each node that one may hold.
func FuzzSidecar(f *testing.F) {
	for _, s := range []string{"mean: [0.5]\nstd: [0.25]\nlayout: NHWC\noutput: pool\n",
		"side: 64\nbatch: 8", "a: &a [*a]", "mean: {x: 1}",
		"---\n---\n", "std: [1e-9]", "? [1]: 2"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var o Options
		var err error
		alloctest.AtMost(t, 2000*(len(data)+yamlfile.MaxNodes), func() { o, err = parseSidecar(data) })
		if err == nil && o.check() != nil {
			t.Errorf("%q gave options that are refused: %+v", data, o)
		}
	})
}

// FuzzSignature reads the signature of whatever model decodes, in at most 2,000 bytes of memory for
// each of the file's.
func FuzzSignature(f *testing.F) {
	b := build.New("m")
	v := b.Op("Flatten", []build.Ref{b.Relu(b.Input("image", onnx.Float32, "n", 3, 2, 2))})
	b.Output("scores", b.MatMul(v, b.Param("w", onnx.ZerosF32(12, 2))))
	m := must.Get(b.Model())(f)
	data := must.Get(serde.Marshal(m))(f)
	f.Add(data, "", "")
	f.Add(data, "relu", "NHWC")
	f.Fuzz(func(t *testing.T, data []byte, output, layout string) {
		m, err := serde.Unmarshal(data)
		if err != nil {
			return
		}
		o := Options{Output: output, Layout: layout}
		if o.check() != nil {
			return
		}
		var s signature
		alloctest.AtMost(t, 2000*len(data), func() { s, err = read(m, o, 3) })
		if err != nil {
			return
		}
		if s.batch < 0 || s.h < 0 || s.h > maxInputSide || s.w < 0 || s.w > maxInputSide ||
			(s.ch != 1 && s.ch != 3) {
			t.Errorf("signature %+v", s)
		}
		prune(m, s.output)
	})
}
