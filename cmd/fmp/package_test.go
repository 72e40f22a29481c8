package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
	"fmp/models/serving"
	"fmp/onnx/must"
)

// TestPackage: a pooled classifier is packaged, its signature verified and taken along; another's
// signature or card, a model of another kind and a missing folder are refused, and nothing is written.
func TestPackage(t *testing.T) {
	at := newFolder(t)
	pooledFrom(t, "digits-color", at("classifier.onnx"), "--samples", "3")
	must.Do(t, os.WriteFile(at("card.md"), []byte("# Digits\n\n- **classifier**: sha256 "+
		models.DigestBytes(read(t, at("classifier.onnx")))+"\n"), 0o600))
	must.Do(t, os.WriteFile(at("other.md"), []byte("# Digits\n\n- **classifier**: sha256 "+
		models.DigestBytes(nil)+"\n"), 0o600))
	for _, args := range [][]string{{"sign", "--new-key", at("k.pem")}, {"sign", "--new-key", at("other.pem")},
		{"sign", at("classifier.onnx"), "--key", at("k.pem")}} {
		ran(t, args...)
	}
	p := answer[serving.Package](t, "package", at("classifier.onnx"), "-o", at("p"), "--card",
		at("card.md"), "--signed-by", at("k.pem.pub"), "--json")
	if len(p.Documents) != 3 {
		t.Fatalf("documents %v", p.Documents)
	}
	model := filepath.Join(p.Repository, "classifier", "1", "model.onnx")
	ran(t, "verify", model, "--key", at("k.pem.pub"), "--signature", at("p/model.onnx.sig"))
	config, err := os.ReadFile(filepath.Join(p.Repository, "classifier", "config.pbtxt"))
	if want := `name: "images" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ]`; err != nil ||
		!strings.Contains(string(config), want) {
		t.Errorf("the configuration lacks %s: %v\n%s", want, err, config)
	}
	t.Chdir(at(""))
	refused(t, exitFailed, "was made with key", "package", "classifier.onnx", "-o", "no", "--signed-by", "other.pem.pub")
	absent(t, "no")
	client := "package " + shippedFile(t, models.KindClient) + " -o no "
	outputstest.CheckWrong(t, []outputstest.Wrong{{"package classifier.onnx -o p", "has files"},
		{client + "--signed-by k.pem.pub", "fmp sign"}, {client, "want the classifier"},
		{"package classifier.onnx -o no --card none.md", "card"},
		{"package classifier.onnx -o no --card other.md", "does not state the sha256"}}, everything(t))
}
