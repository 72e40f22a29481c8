package docs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestCertificateRecipe runs the recipe of a certificate: its key is one that browsers take, ECDSA
// on P-256. Chromium refuses Ed25519.
func TestCertificateRecipe(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("no openssl here")
	}
	pages := must.Get(filepath.Glob("*.md"))(t)
	recipe := regexp.MustCompile(`(?m)^openssl (req -x509 (?:\\\n|[^#\n])+)`)
	found := 0
	for _, page := range pages {
		text := must.Get(os.ReadFile(page))(t)
		for _, m := range recipe.FindAllStringSubmatch(string(text), -1) {
			found++
			cmd := exec.Command(openssl, strings.Fields(strings.ReplaceAll(m[1], "\\\n", " "))...)
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %s: %v\n%s", page, m[1], err, out)
			}
			data := must.Get(os.ReadFile(filepath.Join(cmd.Dir, "server.crt")))(t)
			block, _ := pem.Decode(data)
			c := must.Get(x509.ParseCertificate(block.Bytes))(t)
			if k, ok := c.PublicKey.(*ecdsa.PublicKey); !ok || k.Curve != elliptic.P256() ||
				len(c.DNSNames) == 0 {
				t.Errorf("%s: the certificate has a key of %T and the names %v; want one on "+
					"P-256, and a name", page, c.PublicKey, c.DNSNames)
			}
		}
	}
	if found == 0 {
		t.Error("no page has a recipe")
	}
}
