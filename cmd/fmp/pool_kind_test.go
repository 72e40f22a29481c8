package main

import (
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/pool"
)

// TestKindOfState: uploads that the client graph does not make are told by name before they are in a
// sum.
func TestKindOfState(t *testing.T) {
	upload := func(client string, k int, w *moments.Within) pool.Upload {
		return pool.Upload{Path: client + ".upload", Upload: &federate.Upload{Client: client, N: 3, Within: w,
			Points: &point.Set{N: 1, Dx: k, C: 2, Z: make([]float32, k), Y: []int32{1}, W: []float32{3}}}}
	}
	o := poolRun{graph: &onnx.Model{}, manifest: models.Manifest{Dx: 2, C: 2, Bytes: 4096}}
	good, bad := o.ofKind([]pool.Upload{upload("a", 2, &moments.Within{K: 2}), upload("b", 3, &moments.Within{K: 3}),
		upload("c", 2, nil), upload("d", 2, &moments.Within{K: 2, Dof: 1, Data: []float32{1, 2, 1}}),
		upload("e", 2, &moments.Within{K: 2, Dof: 1, Data: []float32{1, 0, 1}})}, nil)
	if len(good) != 2 || good[1].Client != "e" || len(bad) != 3 {
		t.Fatalf("%d good, %v", len(good), bad)
	}
	for i, want := range []string{`b.upload: of client "b": points are of 3`, "holds no moments", "no covariance"} {
		if !strings.Contains(bad[i].Error(), want) {
			t.Errorf("%v; want %q", bad[i], want)
		}
	}
}
