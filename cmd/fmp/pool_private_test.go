package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/privacy"
)

// TestPoolRedraw: another sum of uploads of a private round wants --redraw, and classifier and account
// say what all sums together spent.
func TestPoolRedraw(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	graph, out := filepath.Join(dir, "client.onnx"), filepath.Join(dir, "c.onnx")
	ran(t, "fuse", "--dataset", "digits", "--upload", "private", "-o", graph)
	_, f := must.Get2(models.Load(graph))(t)
	made := func(client, noise string) string {
		t.Helper()
		r := &federate.Release{Client: client, Model: f.Digest, Sums: privacy.NewRelease(f.C, f.K), Salt: [16]byte{1},
			Budget: privacy.Budget{Epsilon: 4, Delta: 1e-5, Unit: privacy.Example, Relation: privacy.AddRemove,
				Noise: noise}}
		path := filepath.Join(dir, client+"."+noise)
		must.Do(t, os.WriteFile(path, must.Get(r.Encode())(t), 0o600))
		return path
	}
	a, b, c := made("a", privacy.Trusted), made("b", privacy.Trusted), made("c", privacy.Trusted)
	plain := madeUpload(t, shippedManifest(t, "digits", models.KindClient), filepath.Join(dir, "plain"), "p",
		f.Digest, 0)
	for _, s := range []struct {
		args  []string
		says  string // "": it succeeds
		draws int
	}{
		{[]string{a, b, c, "-o", filepath.Join(dir, "first.onnx")}, "", 0},
		{[]string{a, b, "-o", out}, "give --redraw", 0},
		{[]string{a, b, "-o", filepath.Join(dir, "first.onnx"), "--redraw"}, "choose another --output", 0},
		{[]string{a, b, "-o", out, "--redraw"}, "", 2},
		{[]string{made("a", privacy.Local), "-o", out, "--redraw"}, "add their own", 0},
		{[]string{a, b, c, "-o", out, "--for", "a"}, "--for is of clients", 0},
		{[]string{plain, "-o", out, "--redraw"}, "not of one", 0},
	} {
		args := slices.Concat([]string{"pool", "--engine.name", "pure", "--rows", "--json", "--samples", "5",
			"--client-graph", graph}, s.args)
		if s.says != "" {
			refused(t, exitUsage, s.says, args...)
		} else if res := answer[pooledPrivate](t, args...); res.Spent.Draws != s.draws {
			t.Errorf("%q: %+v", s.args, res)
		}
	}
	_, f = must.Get2(models.Load(out))(t)
	if o, err := models.ReadOrigin(f); err != nil || !strings.Contains(string(o.Private), `"epsilon":5.98`) ||
		strings.Contains(f.Command, "redraw") {
		t.Errorf("origin %s, command %s, %v", o.Private, f.Command, err)
	}
}
