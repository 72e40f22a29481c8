package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
	"fmp/models/serving"
	"fmp/onnx/must"
)

// TestSign: a key is made, a file and a folder are signed with it, and verified; whatever is
// changed, added or signed by others is refused with exit code 1.
func TestSign(t *testing.T) {
	at := newFolder(t)
	put := func(name, text string) {
		t.Helper()
		must.Do(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
		must.Do(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	key, public := at("k.pem"), at("k.pem.pub")
	ran(t, "sign", "--new-key", key)
	ran(t, "sign", "--new-key", at("other.pem"))
	if st, err := os.Stat(key); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: %v, %v", st.Mode(), err)
	}
	refused(t, exitUsage, "is there already", "sign", "--new-key", key)
	refused(t, exitUsage, "alone", "sign", "--new-key", key, "--key", at("other.pem"))

	put("m/a.onnx", "one")
	put("m/notes/n.txt", "x")
	put("m/.git/HEAD", "x")
	ran(t, "sign", at("m/a.onnx"), "--key", key, "-o", at("a.sig"))
	if out, _ := ran(t, "verify", at("m/a.onnx"), "--key", public, "--signature", at("a.sig")); !strings.HasPrefix(out,
		"verified:  "+at("m/a.onnx")) {
		t.Errorf("printed %q", out)
	}
	ran(t, "sign", at("m"), "--key", key, "-o", at("m/m.sig"), "--ignore", "notes/")
	put("m/notes/n.txt", "y")
	if out, _ := ran(t, "verify", at("m"), "--key", public, "--signature", at("m/m.sig"),
		"--json"); !strings.Contains(out, `"files": 1`) ||
		!strings.Contains(out, `"notes"`) {
		t.Errorf("printed %q", out)
	}
	refused(t, exitMissing, "m.sig", "verify", at("m"), "--key", public) // beside it there is none
	refused(t, exitFailed, "was made with key", "verify", at("m"), "--key", at("other.pem.pub"),
		"--signature", at("m/m.sig"))
	refused(t, exitFailed, "covers 1 files of folder", "verify", at("m/notes/n.txt"), "--key", public,
		"--signature", at("m/m.sig"))
	put("m/b.onnx", "two")
	refused(t, exitFailed, `"b.onnx" is not covered`, "verify", at("m"), "--key", public,
		"--signature", at("m/m.sig"))
	put("m/a.onnx", "One")
	refused(t, exitFailed, "signed is", "verify", at("m/a.onnx"), "--key", public,
		"--signature", at("a.sig"))
	refused(t, exitUsage, "holds no public key", "verify", at("m"), "--key", key,
		"--signature", at("m/m.sig"))
	refused(t, exitUsage, "holds no private key", "sign", at("m"), "--key", public)
	refused(t, exitUsage, "--ignore is for folders", "sign", at("m/a.onnx"), "--key", key, "--ignore", "x")
	refused(t, exitUsage, "no path within", "sign", at("m"), "--key", key, "--ignore", "../x")
	refused(t, exitMissing, "nothing", "sign", at("nothing"), "--key", key)
	for _, mode := range []os.FileMode{0o644, 0o622, 0o606} {
		if must.Do(t, os.Chmod(key, mode)); runtime.GOOS != "windows" {
			refused(t, exitUsage, "chmod 600 "+key, "sign", at("m/a.onnx"), "--key", key)
		}
	}
	refused(t, exitUsage, "--key is missing", "verify", at("m"))
	refused(t, exitUsage, "give MODEL and --key", "sign", at("m"))
}

// TestSignedRound: a client that asks for a signature joins where the server hands out the one of
// its key, and sends nothing elsewhere.
func TestSignedRound(t *testing.T) {
	f := newFederation(t, 2, "deadline: 2099-01-01T00:00:00Z\n")
	f.fmp("sign", "--new-key", f.path("k.pem"))
	f.fmp("sign", "--new-key", f.path("other.pem"))
	f.serve()
	f.refused("comes without a signature", "c000", "--signed-by", f.path("k.pem.pub"))
	f.kill()
	f.fmp("sign", f.path("client.onnx"), "--key", f.path("k.pem"))
	f.fmp("sign", f.path("client.onnx"), "--key", f.path("other.pem"), "-o", f.path("other.sig"))
	f.serve()
	f.refused("was made with key", "c000", "--signed-by", f.path("other.pem.pub"))
	f.refused("was made with key", "c000", "--signed-by", f.path("k.pem.pub"), "--signature",
		f.path("other.sig"))
	f.refused("without --signed-by", "c000", "--signature", f.path("other.sig"))
	if n := f.status().In; n != 0 {
		t.Errorf("%d uploads of clients that should have sent none", n)
	}
	f.ends(0, "", "c000", "--signed-by", f.path("k.pem.pub"))
	f.ends(0, "", "c001", "--signed-by", f.path("other.pem.pub"), "--signature", f.path("other.sig"))
	// nor is an upload sent that is there already
	f.refused("was made with key", "c000", "--signed-by", f.path("other.pem.pub"))
	f.kill()
	f.write("client.onnx.sig", []byte("{"))
	if out, err := exec.Command(filepath.Join(f.bin, "fmp"), "serve", "--round", f.path("round.yaml"), "--listen",
		f.address).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "client.onnx.sig: no valid signature") {
		t.Errorf("a broken signature: %v, %s", err, out)
	}
}

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
