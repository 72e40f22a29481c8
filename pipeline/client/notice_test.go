package client

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
)

// TestHeed: a classifier is not used where a notice of its own round names it; a notice of another
// round, or of another client graph, tells nothing of it, whoever signed it.
func TestHeed(t *testing.T) {
	graph, key := strings.Repeat("a", 64), newKey(t)
	path := filepath.Join(t.TempDir(), "classifier.onnx")
	origin := must.Get(json.Marshal(models.Origin{Method: "FMP", Client: graph, Protocol: "shared", Round: 7}))(t)
	m, err := models.NewClassifier(models.ClassifierParts{Heads: onnx.NewTensor([]float64{1, -1, 0, 0}, 1, 2, 2)},
		models.Manifest{Classes: []string{"cat", "dog"}, Config: string(origin)})
	if err == nil {
		err = serde.Save(path, m)
	}
	must.Do(t, err)
	digest := must.Get(models.DigestFile(path, maxClassifier))(t)
	must.Do(t, Heed(path, "", ""))
	link := path + ".link"
	if err := os.Symlink(filepath.Base(path), link); err != nil {
		t.Skip(err)
	}
	named, other := []wire.VersionRef{{Version: 1, SHA256: digest}},
		[]wire.VersionRef{{Version: 1, SHA256: strings.Repeat("b", 64)}}
	for _, c := range []struct {
		name       string
		round      uint64
		graph      string
		superseded []wire.VersionRef
		server     string
		want       string // "": it is used
	}{
		{"named", 7, graph, named, "", wire.ErrSuperseded.Error()},
		{"named by the key", 7, graph, named, key.PublicText(), wire.ErrSuperseded.Error()},
		{"another version", 7, graph, other, "", ""},
		{"another round", 8, graph, other, "", "it is of round 8"},
		{"another graph", 7, strings.Repeat("c", 64), other, "", "tells nothing of"},
		{"another key", 7, graph, other, newKey(t).PublicText(), "notice"},
	} {
		n := &wire.Notice{Round: c.round, Graph: c.graph, Superseded: c.superseded}
		n.Sign(key)
		data := must.Get(json.Marshal(n))(t)
		must.Do(t, atomicfile.WriteBytes(path+".notice", data))
		if e := Heed(link, "", c.server); (e == nil) != (c.want == "") ||
			errors.Is(e, wire.ErrSuperseded) != (c.superseded[0].SHA256 == digest) {
			t.Errorf("%s, by a link: %v; want %q", c.name, e, c.want)
		}
		err = Heed(path, "", c.server)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
		if c.superseded[0].SHA256 == digest && !errors.Is(err, wire.ErrSuperseded) {
			t.Errorf("%s: %v is not of a superseded version", c.name, err)
		}
	}
	must.Do(t, os.Rename(path+".notice", link+".notice")) // beside the link alone: of another key still
	must.Do(t, Heed(link, "", ""))
	must.Fail(Heed(link, "", newKey(t).PublicText()))(t, "", "a notice of another key beside a link")
	must.Do(t, os.Remove(link+".notice"))
	for _, classifier := range []string{link, path} {
		must.Fail(Heed(classifier, "", key.PublicText()))(t, "", "a server's notice is missing", classifier)
	}
}

// TestHeeder: a classifier that is in use is looked up by its own bytes, in a notice that came
// meanwhile and whatever its name leads to by then.
func TestHeeder(t *testing.T) {
	graph, key, dir := strings.Repeat("a", 64), newKey(t), t.TempDir()
	made := func(name string, of ...string) (path string, data []byte) {
		origin := must.Get(json.Marshal(models.Origin{Method: "FMP", Client: graph, Round: 7, Of: of}))(t)
		m := must.Get(models.NewClassifier(
			models.ClassifierParts{Heads: onnx.NewTensor([]float64{1, -1, 0, 0}, 1, 2, 2)},
			models.Manifest{Classes: []string{"cat", name}, Config: string(origin)}))(t)
		path = filepath.Join(dir, name)
		must.Do(t, serde.Save(path, m))
		return path, must.Get(os.ReadFile(path))(t)
	}
	old, was := made("dog")
	next, is := made("fox")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(old, link); err != nil {
		t.Skip(err)
	}
	_, adapted := made("half", models.DigestBytes(was))
	for name, c := range map[string]struct {
		data []byte
		want string // "": it is used
	}{"old": {was, wire.ErrSuperseded.Error()}, "made of it": {adapted, wire.ErrSuperseded.Error()}, "next": {is, ""}} {
		must.Do(t, atomicfile.WriteBytes(old, was))
		heed := must.Get(Heeder(link, "", "", c.data))(t)
		must.Do(t, heed())
		n := &wire.Notice{Round: 7, Graph: graph,
			Superseded: []wire.VersionRef{{Version: 1, SHA256: models.DigestBytes(was)}}}
		n.Sign(key)
		must.Do(t, atomicfile.WriteBytes(old+".notice", must.Get(json.Marshal(n))(t)))
		must.Do(t, os.Remove(link))
		must.Do(t, os.Symlink(next, link))
		must.Do(t, atomicfile.WriteBytes(old, is))
		if err := heed(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		must.Do(t, os.Remove(old+".notice"))
		must.Do(t, os.Remove(link))
		must.Do(t, os.Symlink(old, link))
	}
	must.Fail(Heeder(old, "", "", []byte("none")))(t, "classifier")
}

func newKey(t *testing.T) *identity.Key {
	t.Helper()
	return must.Get(identity.New("server"))(t)
}
