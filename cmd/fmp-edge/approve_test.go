package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/models/signature"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
	"fmp/pipeline/client"
	"fmp/pipeline/federate/wire"
)

// changedGraph writes the digits' client graph with something done to it.
func changedGraph(t *testing.T, change func(m *onnx.Model)) string {
	t.Helper()
	m, _ := assetstest.Load(t, "digits", models.KindClient)
	change(m)
	return saved(t, m)
}

// ownExtractor scales the weights of the first convolution, which makes the extractor another.
func ownExtractor(by float32) func(m *onnx.Model) {
	return func(m *onnx.Model) {
		w := m.Graph.Initializers["stem/conv/weight"].Clone()
		for i := range w.F32() {
			w.F32()[i] *= by
		}
		m.Graph.Initializers["stem/conv/weight"] = w
	}
}

// digestOf is the digest of a client graph's extractor, as a script reads it from inspect. The
// graph's lines have it too, and its manifest's word goes by another name.
func digestOf(t *testing.T, graph string) string {
	t.Helper()
	var i struct {
		Digest string `json:"extractor_digest"`
		File   string `json:"extractor_file"`
	}
	must.Do(t, json.Unmarshal([]byte(run(t, "inspect", "--json", graph)), &i))
	_, f := must.Get2(models.Load(graph))(t)
	if s := run(t, "inspect", graph); i.File != f.Extractor ||
		!strings.Contains(s, "extractor: sha256 "+i.Digest) {
		t.Errorf("inspect of %s has %+v; its lines say %s", graph, i, s)
	}
	return i.Digest
}

// answering has a person at a terminal who types text; "" is no terminal.
func answering(t *testing.T, text string) {
	was := terminal
	t.Cleanup(func() { terminal = was })
	terminal = func() io.Reader {
		if text == "" {
			return nil
		}
		return strings.NewReader(text)
	}
}

// TestNoSilentFirstUse: an unknown extractor runs after a yes alone, at the terminal or by its
// digest on the command line, and no image is read before; without either the exit code is its own
// and the command is said. The yes holds for the scope: another extractor asks again, by both
// digests. One that comes with the program asks nothing.
func TestNoSilentFirstUse(t *testing.T) {
	dir := photosOf(t, 4)
	file := filepath.Join(t.TempDir(), "approved")
	try := func(code int, says []string, graph, scope string, more ...string) string {
		t.Helper()
		out := filepath.Join(t.TempDir(), "upload")
		got, log := said(t, append([]string{"compress", "--model", graph, "--client", "a", "-o", out,
			"--approved", file, "--scope", scope, dir}, more...)...)
		missing := slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(log, s) })
		if _, err := os.Stat(out); got != code || missing || (err == nil) != (got == exitOK) {
			t.Errorf("%q: exit code %d, upload: %v, %q; want %d and %q", more, got, err, log, code, says)
		}
		return log
	}
	silent := func(graph, scope string) {
		t.Helper()
		if log := try(exitOK, nil, graph, scope); strings.Contains(log, "extractor") {
			t.Errorf("of an extractor it says %q", log)
		}
	}
	answering(t, "")
	one, two := changedGraph(t, ownExtractor(2)), changedGraph(t, ownExtractor(3))
	first, second := digestOf(t, one), digestOf(t, two)
	both := []string{first, second}
	here, there := client.ServerScope("key of one"), client.ServerScope("key of another")
	silent(model(t, models.KindClient), here) // it comes with the program
	for range 2 {                             // the second time too
		try(exitUntrusted, []string{"--" + yesFlag + " " + first, "parameters", "A network made for it can"}, one, here)
	}
	try(exitUsage, both, one, here, "--"+yesFlag, second) // another digest
	answering(t, "y\n")
	try(exitUntrusted, []string{"Type yes"}, one, here)
	answering(t, "yes\n")
	try(exitOK, []string{"approved from now on"}, one, here)
	answering(t, "")
	silent(one, here)
	try(exitUntrusted, both, two, here) // another in its place
	try(exitUntrusted, nil, one, there) // a server of another key
	try(exitOK, nil, two, here, "--"+yesFlag, second)
	try(exitUsage, nil, model(t, models.KindClient), here, "--"+yesFlag, second) // it comes with the program
	run(t, "approve", "--approved", file, two)
	try(exitOK, nil, two, there)
	write(t, file, []byte("nonsense\n"))
	try(exitUsage, []string{"line 1"}, one, here)
}

// TestWithYes: the command that is said can be typed as it stands.
func TestWithYes(t *testing.T) {
	if got, want := withYes([]string{"join", "https://a:1", "my photos", "it's"}, "d"),
		`fmp-edge join https://a:1 'my photos' 'it'\''s' --`+yesFlag+" d"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestPixelsApproved: with an extractor that returns the pixels, which the owner approved, every
// image of a class of one stands in the upload; --at-least leaves such classes out.
func TestPixelsApproved(t *testing.T) {
	im, labels := blobs(8)
	dir, _ := folder(t, im, labels)
	graph, file, out := pixelExtractor(t), filepath.Join(t.TempDir(), "approved"),
		filepath.Join(t.TempDir(), "upload")
	args := []string{"compress", "--model", graph, "--client", "a", "-o", out, "--approved", file, dir}
	run(t, "approve", "--approved", file, graph)
	run(t, args...)
	if found := recovered(read(t, out).Points, im, labels); found != len(labels) {
		t.Errorf("%d of %d images stand in the upload; the test shows nothing", found, len(labels))
	}
	refuses(t, exitUsage, "wanted are at least 2", append(args, "--at-least", "2")...)
	for i, y := range labels[:2] { // the classes 0 and 1 have two images each
		writePNG(t, filepath.Join(dir, fmt.Sprint(y), "second.png"), gray(im, 2+i))
	}
	run(t, append(args, "--at-least", "2")...)
	if u := read(t, out); u.N != 4 || u.Points.N != 2 || recovered(u.Points, im, labels) != 0 {
		t.Errorf("--at-least 2 sent %d images of %d classes", u.N, u.Points.N)
	}
}

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

// withExternal writes a model whose first constant lies in the file ward-1.key beside it.
func withExternal(t *testing.T, path string, change func(p *onnxpb.ModelProto)) string {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	var p onnxpb.ModelProto
	must.Do(t, proto.Unmarshal(data, &p))
	w := p.Graph.Initializer[0]
	w.Dims, w.DataType, w.RawData, w.DataLocation = []int64{137}, int32(onnx.Uint8), nil,
		1
	w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: "ward-1.key"}}
	if change != nil {
		change(&p)
	}
	data = must.Get(proto.Marshal(&p))(t)
	to := filepath.Join(t.TempDir(), "model.onnx")
	write(t, to, data)
	return to
}

// TestNoOtherFile: a model that names the key file beside it is refused before that is opened,
// whatever it says that it is.
func TestNoOtherFile(t *testing.T) {
	images := photosOf(t, 10)
	kindless := func(p *onnxpb.ModelProto) { p.MetadataProps = nil }
	twice := func(p *onnxpb.ModelProto) {
		p.MetadataProps = append(p.MetadataProps,
			&onnxpb.StringStringEntryProto{Key: "fmp.kind", Value: models.KindExtractor})
	}
	for name, c := range map[string]struct {
		model  string
		change func(p *onnxpb.ModelProto)
		args   []string
	}{
		"client graph": {model(t, models.KindClient), nil,
			[]string{"compress", "--client", "a"}},
		"client graph without a kind": {model(t, models.KindClient), kindless,
			[]string{"compress", "--client", "a"}},
		"client graph of two kinds": {model(t, models.KindClient), twice,
			[]string{"compress", "--client", "a"}},
		"classifier":              {classifier(t), nil, []string{"predict"}},
		"client graph, inspected": {model(t, models.KindClient), nil, []string{"inspect"}},
	} {
		path := withExternal(t, c.model, c.change)
		for _, there := range []bool{false, true} {
			if there {
				write(t, filepath.Join(filepath.Dir(path), "ward-1.key"), make([]byte, 137))
			}
			args, out := c.args, filepath.Join(t.TempDir(), "upload")
			switch args[0] {
			case "inspect":
				args = []string{"inspect", path}
			case "compress":
				args = append(args[:3:3], "-o", out, "--model", path, images)
			default:
				args = append(args[:1:1], "--model", path, images)
			}
			code, log := said(t, args...)
			if _, err := os.Stat(out); code == exitOK || err == nil ||
				!strings.Contains(log, "lies in another file, which is not read") {
				t.Errorf("%s, the key there %v: exit code %d, %s", name, there, code, log)
			}
		}
	}
}

// TestBombClassifier: a classifier that takes much work is refused before an image is read, and
// nothing is printed of it.
func TestBombClassifier(t *testing.T) {
	images := photosOf(t, 3)
	m, _ := must.Get2(models.Load(classifier(t)))(t)
	g := m.Graph
	for _, n := range g.Nodes {
		for i, o := range n.Outputs {
			if o == "probabilities" {
				n.Outputs[i] = "honest"
			}
		}
		for i, in := range n.Inputs {
			if in == "probabilities" {
				n.Inputs[i] = "honest"
			}
		}
	}
	node := func(op, out string, in ...string) {
		g.Nodes = append(g.Nodes,
			&onnx.Node{Name: "bomb/" + out, Op: op, Inputs: in, Outputs: []string{out}})
	}
	g.Initializers["bomb/side"], g.Initializers["bomb/axis"] = onnx.Vector[int64](1, 12_000, 12_000),
		onnx.Vector[int64](0)
	node("ReduceMean", "one", "honest")
	node("Expand", "wide", "one", "bomb/side")
	node("MatMul", "product", "wide", "wide")
	node("ReduceMean", "mean", "product")
	node("Squeeze", "flat", "mean", "bomb/axis")
	node("Add", "probabilities", "honest", "flat")
	refuses(t, exitUsage, "multiply-adds", "predict", "--model", saved(t, m), images)
}

// TestAnotherServer: an upload that is there goes to another server by an approval for that one alone.
func TestAnotherServer(t *testing.T) {
	answering(t, "")
	graph := changedGraph(t, ownExtractor(2))
	digest, file := digestOf(t, graph), filepath.Join(t.TempDir(), "approved")
	try := func(server, yes string) error {
		making := pflag.NewFlagSet("compress", pflag.ContinueOnError)
		compressCommand.flags(making)
		must.Do(t, making.Parse([]string{"--approved", file, "--" + yesFlag, yes}))
		return ofServer(t.Context(), &wire.Description{ServerKey: server}, making, graph, &bytes.Buffer{})
	}
	for _, c := range []struct{ server, yes, want string }{{"one", digest, ""}, {"one", "", ""}, {"two", "", digest}} {
		if err := try(c.server, c.yes); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestReceiptsFree: no receipt of another server is overwritten, of the only server, the leader or the helper,
// under its default name or a given one.
func TestReceiptsFree(t *testing.T) {
	for name, c := range map[string]struct {
		flags  []string
		helper bool
		file   string
		server string // of the receipt
		want   bool   // free
	}{
		"none":              {nil, true, "", "", true},
		"its own":           {nil, false, "a.1.receipt.json", "one", true},
		"another's":         {nil, false, "a.1.receipt.json", "other", false},
		"of another round":  {nil, false, "a.2.receipt.json", "other", true},
		"by name":           {[]string{"--receipt", "mine.json"}, false, "mine.json", "other", false},
		"the helper's":      {nil, true, "a.1.helper.receipt.json", "two", true},
		"another helper's":  {nil, true, "a.1.helper.receipt.json", "one", false},
		"no receipt at all": {[]string{"--receipt", "mine.json"}, false, "mine.json", "", false},
	} {
		t.Chdir(t.TempDir())
		f := pflag.NewFlagSet("join", pflag.ContinueOnError)
		conn := connectionFlags(f)
		must.Do(t, f.Parse(append(c.flags, "--key", "a.key")))
		conn.first = &server{round: &wire.Description{Round: 1, ServerKey: "one"}}
		if c.helper {
			conn.second = &server{round: &wire.Description{Round: 1, ServerKey: "two"}}
		}
		if c.file != "" {
			must.Do(t, os.WriteFile(c.file, []byte(`{"server": "`+c.server+`", "round": 1, "client": "a"}`), 0o600))
		}
		if err := conn.receiptsFree("join", "a"); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
