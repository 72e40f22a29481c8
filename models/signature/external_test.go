package signature

import (
	"bytes"
	"crypto/elliptic"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"fmp/onnx/must"
)

// message encodes a field of protobuf that holds bytes.
func message(field protowire.Number, parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), all)
}

// externalTensor encodes a tensor in a file, as the given field of a graph or an attribute.
func externalTensor(field protowire.Number, location string) []byte {
	entry := message(13, message(1, []byte("location")), message(2, []byte(location)))
	return message(field, message(8, []byte("w")), entry, []byte{14 << 3, 1})
}

// TestExternalFiles: the signature of a model's file covers the files that hold its data: one that
// is changed, missing, added or a link is refused, wherever in the model it is named; one outside
// the folder is not signed.
func TestExternalFiles(t *testing.T) {
	k := key(t, elliptic.P256())
	weights, constant := externalTensor(5, "w.bin"),
		message(1, message(5, externalTensor(5, "part/c.bin")))
	model := message(7, weights, constant)
	set := func(t *testing.T) (dir, file string) {
		dir = t.TempDir()
		put(t, filepath.Join(dir, "w.bin"), "weights")
		put(t, filepath.Join(dir, "part", "c.bin"), "constant")
		put(t, filepath.Join(dir, "other.bin"), "not of the model")
		file = filepath.Join(dir, "m.onnx")
		put(t, file, string(model))
		return dir, file
	}
	sign := func(t *testing.T, file string) (*Manifest, error) {
		data, err := Sign(k, file, nil)
		if err != nil {
			return nil, err
		}
		return Verify(&k.PublicKey, data)
	}
	changed := func(name string, text ...[]byte) func(dir string) error {
		return func(dir string) error {
			return os.WriteFile(filepath.Join(dir, name), bytes.Join(text, nil), 0o600)
		}
	}
	linked := func(name string) func(dir string) error {
		return func(dir string) error {
			return errors.Join(os.Rename(filepath.Join(dir, name), filepath.Join(dir, "moved")),
				os.Symlink("moved", filepath.Join(dir, name)))
		}
	}
	for name, c := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"as signed":          {func(string) error { return nil }, ""},
		"a file beside":      {changed("other.bin"), ""},
		"weights swapped":    {changed("w.bin", []byte("Weights")), `"w.bin" was changed`},
		"a constant swapped": {changed("part/c.bin"), `"part/c.bin" was changed`},
		"weights missing": {func(dir string) error { return os.Remove(filepath.Join(dir, "w.bin")) },
			"no such file"},
		"weights linked":  {linked("w.bin"), "is a link"},
		"a folder linked": {linked("part"), "is a link"},
		"a file added": {changed("m.onnx", message(7, weights, constant, externalTensor(5, "other.bin"))),
			`"other.bin" is not covered`},
		"a file dropped": {changed("m.onnx", message(7, weights)), `"part/c.bin" is missing`},
		"no file left":   {changed("m.onnx", message(7)), "covers 3 files"},
	} {
		dir, file := set(t)
		m, err := sign(t, file)
		if err != nil || m.Files() != 3 {
			t.Fatalf("%s: %v", name, err)
		}
		must.Do(t, c.change(dir))
		if err := m.Check(file); (err == nil) != (c.want == "") || err != nil &&
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		must.Fail(m.CheckDigest(file, m.files["m.onnx"]))(t, "", name)
	}
	for name, model := range map[string][]byte{
		"above the folder":   message(7, externalTensor(5, "../w.bin")),
		"absolute":           message(7, externalTensor(5, "/etc/hostname")),
		"itself":             message(7, externalTensor(5, "m.onnx")),
		"a folder":           message(7, externalTensor(5, "part")),
		"by a detour":        message(7, externalTensor(5, "part/../w.bin")),
		"no name":            message(7, externalTensor(5, "")),
		"in a sparse tensor": message(7, message(15, externalTensor(1, "../w.bin"))),
		"in a function": append(message(7),
			message(25, message(7, message(5, externalTensor(5, "../w.bin"))))...),
		"in a model of damaged text": append(message(7, externalTensor(5, "w.bin")),
			message(6, []byte{0xff})...),
		"in a model with a broken end": message(7, weights, []byte{0xff}),
	} {
		_, file := set(t)
		put(t, file, string(model))
		must.Fail(sign(t, file))(t, "", name)
	}
	dir, file := set(t)
	m := must.Get(sign(t, file))(t)
	put(t, filepath.Join(dir, "renamed.onnx"), string(model))
	must.Fail(m.Check(filepath.Join(dir, "renamed.onnx")))(t, "",
		"a model of another name and the same files is taken for the one that was signed")
	t.Chdir(dir)
	if err := m.Check("m.onnx"); err != nil {
		t.Errorf("by its name alone: %v", err)
	}
}
