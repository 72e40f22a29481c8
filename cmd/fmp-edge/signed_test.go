package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"fmp/models/signature"
	"fmp/onnx/must"
)

// TestSignedBy: compress and predict run a model only where the key that they are given signed it,
// by whatever road its signature comes.
func TestSignedBy(t *testing.T) {
	at := newFolder(t)
	for _, name := range []string{"k", "other"} {
		private, public := must.Get2(signature.NewKey())(t)
		write(t, at(name), private)
		write(t, at(name+".pub"), public)
	}
	sign := func(key, model string) []byte {
		t.Helper()
		k := must.Get(signature.LoadPrivate(at(key)))(t)
		return must.Get(signature.Sign(k, model, nil))(t)
	}
	images := photosOf(t, 10)
	for what, c := range map[string]struct {
		model string
		args  []string
	}{
		"client graph": {model(t, "client"),
			[]string{"compress", "--client", "a", "-o", at("a.upload"), images}},
		"classifier": {classifier(t), []string{"predict", images}},
	} {
		data := must.Get(os.ReadFile(c.model))(t)
		file := at(strings.ReplaceAll(what, " ", "-") + ".onnx")
		write(t, file, data)
		args := append(c.args, "--model", file, "--signed-by", at("k.pub"))
		fails := func(want string, code int, more ...string) {
			t.Helper()
			_ = os.Remove(at("a.upload"))
			var out, log bytes.Buffer
			got := execute(context.Background(), append(args, more...), &out, &log)
			if _, err := os.Stat(at("a.upload")); got != code || out.Len() > 0 || err == nil ||
				!strings.Contains(log.String(), want) {
				t.Errorf("%s, %s: exit code %d, %s; want %d and %q", what, more, got,
					log.String(), code, want)
			}
		}
		fails("asks for a signature of "+file, exitMissing)
		write(t, file+".sig", sign("other", file))
		fails("is not used: no valid signature: it was made with key", exitFailed)
		write(t, file+".sig", sign("k", file))
		run(t, args...)
		write(t, at("elsewhere.sig"), sign("k", at("k.pub")))
		fails("has sha256", exitFailed, "--signature", at("elsewhere.sig"))
		fails("holds no public key", exitUsage, "--signed-by", at("k"))
		fails("--signed-by is empty", exitUsage, "--signed-by", "", "--signature", file+".sig")
	}
}
