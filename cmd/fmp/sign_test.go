package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestSign: a key is made, a file and a folder are signed with it, and verified; whatever is
// changed, added or signed by others is refused with exit code 1.
func TestSign(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	ok := func(args ...string) string {
		t.Helper()
		code, out, errs := runFMP(t, args...)
		if code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, errs)
		}
		return out
	}
	fails := func(want int, text string, args ...string) {
		t.Helper()
		if code, out, errs := runFMP(t, args...); code != want ||
			!strings.Contains(errs, text) || out != "" {
			t.Errorf("%v: exit code %d, %q, %q; want %d and %q", args, code, out, errs, want, text)
		}
	}
	put := func(name, text string) {
		t.Helper()
		must.Do(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
		must.Do(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	key, public := at("k.pem"), at("k.pem.pub")
	ok("sign", "--new-key", key)
	ok("sign", "--new-key", at("other.pem"))
	if st, err := os.Stat(key); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: %v, %v", st.Mode(), err)
	}
	fails(exitUsage, "is there already", "sign", "--new-key", key)
	fails(exitUsage, "alone", "sign", "--new-key", key, "--key", at("other.pem"))

	put("m/a.onnx", "one")
	put("m/notes/n.txt", "x")
	put("m/.git/HEAD", "x")
	ok("sign", at("m/a.onnx"), "--key", key, "-o", at("a.sig"))
	if out := ok("verify", at("m/a.onnx"), "--key", public, "--signature", at("a.sig")); !strings.HasPrefix(out,
		"verified:  "+at("m/a.onnx")) {
		t.Errorf("printed %q", out)
	}
	ok("sign", at("m"), "--key", key, "-o", at("m/m.sig"), "--ignore", "notes/")
	put("m/notes/n.txt", "y")
	if out := ok("verify", at("m"), "--key", public, "--signature", at("m/m.sig"),
		"--json"); !strings.Contains(out, `"files": 1`) ||
		!strings.Contains(out, `"notes"`) {
		t.Errorf("printed %q", out)
	}
	fails(exitMissing, "m.sig", "verify", at("m"), "--key", public) // beside it there is none
	fails(exitFailed, "was made with key", "verify", at("m"), "--key", at("other.pem.pub"),
		"--signature", at("m/m.sig"))
	fails(exitFailed, "covers 1 files of folder", "verify", at("m/notes/n.txt"), "--key", public,
		"--signature", at("m/m.sig"))
	put("m/b.onnx", "two")
	fails(exitFailed, `"b.onnx" is not covered`, "verify", at("m"), "--key", public,
		"--signature", at("m/m.sig"))
	put("m/a.onnx", "One")
	fails(exitFailed, "signed is", "verify", at("m/a.onnx"), "--key", public,
		"--signature", at("a.sig"))
	fails(exitUsage, "holds no public key", "verify", at("m"), "--key", key,
		"--signature", at("m/m.sig"))
	fails(exitUsage, "holds no private key", "sign", at("m"), "--key", public)
	fails(exitUsage, "--ignore is for folders", "sign", at("m/a.onnx"), "--key", key, "--ignore", "x")
	fails(exitUsage, "no path within", "sign", at("m"), "--key", key, "--ignore", "../x")
	fails(exitMissing, "nothing", "sign", at("nothing"), "--key", key)
	fails(exitUsage, "--key is missing", "verify", at("m"))
	fails(exitUsage, "give MODEL and --key", "sign", at("m"))
}

// TestSignedRound: a client that asks for a signature joins where the server hands out the one of
// its key, and sends nothing elsewhere.
func TestSignedRound(t *testing.T) {
	f := newFederation(t, 2, "deadline: 2099-01-01T00:00:00Z\n")
	f.fmp("sign", "--new-key", f.path("k.pem"))
	f.fmp("sign", "--new-key", f.path("other.pem"))
	refused := func(want string, args ...string) {
		t.Helper()
		if code, out := f.join(f.address, "c000", args...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%v: exit code %d, %s; want %q", args, code, out, want)
		}
	}
	f.serve()
	refused("comes without a signature", "--signed-by", f.path("k.pem.pub"))
	f.kill()
	f.fmp("sign", f.path("client.onnx"), "--key", f.path("k.pem"))
	f.fmp("sign", f.path("client.onnx"), "--key", f.path("other.pem"), "-o", f.path("other.sig"))
	f.serve()
	refused("was made with key", "--signed-by", f.path("other.pem.pub"))
	refused("was made with key", "--signed-by", f.path("k.pem.pub"), "--signature",
		f.path("other.sig"))
	refused("without --signed-by", "--signature", f.path("other.sig"))
	if n := f.status().In; n != 0 {
		t.Errorf("%d uploads of clients that should have sent none", n)
	}
	if code, out := f.join(f.address, "c000", "--signed-by", f.path("k.pem.pub")); code != 0 {
		t.Errorf("the signer's round: exit code %d, %s", code, out)
	}
	if code, out := f.join(f.address, "c001", "--signed-by", f.path("other.pem.pub"), "--signature",
		f.path("other.sig")); code != 0 {
		t.Errorf("a signature from elsewhere: exit code %d, %s", code, out)
	}
	// nor is an upload sent that is there already
	refused("was made with key", "--signed-by", f.path("other.pem.pub"))
	f.kill()
	f.write("client.onnx.sig", []byte("{"))
	if out, err := exec.Command(filepath.Join(f.bin, "fmp"), "serve", "--round", f.path("round.yaml"), "--listen",
		f.address).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "client.onnx.sig: no valid signature") {
		t.Errorf("a broken signature: %v, %s", err, out)
	}
}
