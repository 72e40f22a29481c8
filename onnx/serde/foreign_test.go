package serde

import (
	"strings"
	"testing"
)

// What users give in place of an ONNX model is named, with what to do.
func TestOtherFormatsAreNamed(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"", "empty"},
		{"PK\x03\x04\x00\x00archive/data.pkl", "torch.onnx.export"},
		{"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"},
		{"\x89HDF\r\n\x1a\n\x00\x00", "Keras"},
		{"\x1c\x00\x00\x00TFL3\x00\x00", "TensorFlow Lite"},
		{"\x10\x00\x00\x00\x00\x00\x00\x00{\"a\":{\"dtype\":1}}", "safetensors"},
		{"\x1f\x8b\x08\x00", "gzipped"},
		{"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"},
		{"\n<!DOCTYPE html><html>", "web page"},
		{"Not found", "text"},
		{strings.Repeat("a", 61) + "é" + strings.Repeat("a", 9), "text"},
		{strings.Repeat("a", 63) + "é", "text"},
		{strings.Repeat("a", 61) + "😀a", "text"},
		{strings.Repeat("a", 62) + "\xc3(aa", "damaged"},
		{"\xff\xff\xff\xff", "damaged"},
	} {
		_, err := Unmarshal([]byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "not an ONNX model") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error is %v, want one line with %q", c.data, err, c.want)
		}
	}
}
