package client

import (
	"reflect"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
)

// TestCurves: uploads of moments bring the curves of the client's images, the same for the same
// images; those of too few bring none, and nor do other uploads.
func TestCurves(t *testing.T) {
	e := must.Get(models.MomentsEmbedding(models.MomentsConfig{Dx: 6, C: 3, Bytes: 1 << 16}))(t)
	ef := must.Get(models.ReadManifest(e))(t)
	b := build.New("extractor")
	b.Output("h", b.Reshape(b.Input("image", onnx.Float32, "n", 1, 2, 3), -1, 6))
	x := must.Get(b.Model())(t)
	g := must.Get(models.ClientGraph(x, models.Manifest{Digest: "x"}, e, ef,
		models.Preprocessing{Height: 2, Width: 3, Channels: 1}))(t)
	f := must.Get(models.ReadManifest(g))(t)
	f.Digest = must.Get(models.Digest(g))(t)
	c := must.Get(New(g, f, 1))(t)
	upload := func(c *Client, n int) *federate.Upload {
		t.Helper()
		u, _ := must.Get2(c.Upload(t.Context(), &images{n: n, classes: 3}, Options{}, "a"))(t)
		data := must.Get(u.Encode())(t)
		u = must.Get(federate.Decode(data, federate.Expect{}))(t)
		return u
	}
	first := upload(c, 30)
	if first.Curve == nil || first.Curve.Curve[10] == 0 {
		t.Errorf("curve of 30 images: %v", first.Curve)
	}
	if again := upload(c, 30); !reflect.DeepEqual(again, first) {
		t.Error("the same images give another upload")
	}
	if few := upload(c, 7); few.Curve != nil {
		t.Error("classes of two images have a curve")
	}
	plain, _ := graphs(t)
	if u, _, err := plain.Upload(t.Context(), &images{n: 40, classes: 10}, Options{},
		"a"); err != nil || u.Curve != nil {
		t.Errorf("class means with a curve, %v", err)
	}
}
